"""What a `SlotLog` asks of its driver, what the driver answers, and what the log tells it.

Requests have an id and are answered through `SlotLog.answered`, in any order, each once. The driver
carries them out against a store that outlives nodes:

| request | against the store | replies |
|---|---|---|
| `PutSlot` | put if absent | WON, TAKEN, NO_ROOM |
| `GetSlot` | get | `Found` with the record, ABSENT, `Unreadable` |
| `ListLog` | list | `Listed` |
| `GetCheckpoint` | get, with all that it builds on | `Found`, `GoneCheckpoint`, `Unreadable` |
| `PutCheckpoint`, `PutMark` | put if absent | WON, TAKEN, NO_ROOM |
| `Delete` | delete | DELETED |

and FAILED for each: the store could not be reached, or failed, and whether a put took place is
open. A store may carry out a put later than it says, or twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.slotlog.slots import Claim, Record, Slot


# Requests.


@dataclass(frozen=True, slots=True)
class PutSlot:
    """Put *record* at *slot* if that is absent.

    Attributes:
        attempt: 0 for the first; later ones repeat what had an open outcome, and should wait.
    """

    id: int
    slot: Slot
    record: Record
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class GetSlot:
    """Get the record at *slot*. Several are asked for at a time, and may overtake each other."""

    id: int
    slot: Slot
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class ListLog:
    """List checkpoints, slots and marks, in one list or in several.

    A list looks at checkpoints in ascending order, or at all of them at one moment; so at marks. It
    need be no snapshot: what is put or deleted while it lasts may be in it or not. Were the order
    another, it could miss a checkpoint that is being deleted and the newer one as well.

    Attributes:
        attempt: above 0, a list before it failed or did not help; wait.
    """

    id: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class GetCheckpoint:
    """Get the checkpoint at *slot*, with all that it builds on, as `Fold.restore` takes it."""

    id: int
    slot: Slot
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    """Put the snapshot that `SlotLog.checkpoint` was called for at *slot* if that is absent."""

    id: int
    slot: Slot


@dataclass(frozen=True, slots=True)
class PutMark:
    """Put a mark at *slot* if that has none: all up to there is covered by a checkpoint.

    It outlives the records that are deleted then. So if that checkpoint is lost, a reader of
    the log knows that the log is not empty.
    """

    id: int
    slot: Slot


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete *slots*, *checkpoints* and *marks*, in any order; those that are gone are no error."""

    id: int
    slots: tuple[Slot, ...]
    checkpoints: tuple[Slot, ...]
    marks: tuple[Slot, ...]


Request = PutSlot | GetSlot | ListLog | GetCheckpoint | PutCheckpoint | PutMark | Delete


# Replies.


class StoreAnswer(Enum):
    """Replies that say no more than that. NO_ROOM: this put did not take place, and will not."""

    WON = auto()
    TAKEN = auto()
    ABSENT = auto()
    DELETED = auto()
    NO_ROOM = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at the slot, or what the checkpoint says."""

    value: object


@dataclass(frozen=True, slots=True)
class Listed:
    """All slots with records, all checkpoints and all marks, each sorted."""

    slots: Sequence[Slot]
    checkpoints: Sequence[Slot]
    marks: Sequence[Slot] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands there was damaged, or a newer version wrote it; *why* says what, and where."""

    why: str


@dataclass(frozen=True, slots=True)
class GoneCheckpoint:
    """There is no checkpoint at *slot*, which was asked for, or on which that one builds."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class GoneRecord:
    """There is no record in *slot*, though there are later ones, and no checkpoint has it."""

    slot: Slot


Gone = GoneCheckpoint | GoneRecord
Reply = StoreAnswer | Found | Listed | Unreadable | GoneCheckpoint


# Facts.


@dataclass(frozen=True, slots=True)
class Acquired:
    """This node is the owner of *epoch*. The fold is what the log says, up to its claim."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NotAcquired:
    """The owner is *holder*, which may not be replaced. The fold is the log up to *position*."""

    holder: Claim
    position: Slot


@dataclass(frozen=True, slots=True)
class Followed:
    """The fold is the log up to *position*, which was its end a moment ago.

    Attributes:
        holder: who claimed last; None if nobody ever did.
        sealed_to: the epoch is over, and this node is meant to go on (empty: any); None if it
            is not over.
    """

    position: Slot
    holder: Claim | None
    sealed_to: str | None


@dataclass(frozen=True, slots=True)
class Damaged:
    """The log cannot be read to its end, for *what* of it is lost. The fold was reset."""

    what: Unreadable | Gone


@dataclass(frozen=True, slots=True)
class Committed:
    """The body is in the log at *slot*, and applied.

    At some moment since `commit` was called this node was the owner, with all before *slot* in
    its fold: whoever asked to read before that call may be answered, too.
    """

    slot: Slot


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The store has no room. The body is not in the log and never will be; the owner stays."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class MayRead:
    """The fold was the whole log at a moment since `read` was called."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The store did not answer, so nobody knows whether the fold is the whole log."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The epoch was sealed by another: this node is the owner no more. The fold was reset.

    A read under way must not be answered.

    Attributes:
        to: who is probably the owner next; empty if that is not known.
        commit_open: the commit under way may be in the log. Mostly it is known not to be, and
            never will be; but who is fenced so late that others have deleted what was in its slot
            cannot tell.
    """

    to: str
    commit_open: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """This node sealed its epoch at *slot* for *to*. The fold stays until `drop`."""

    to: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The checkpoint at *slot* is durable; what it replaces is being deleted."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """Nobody knows whether the checkpoint at *slot* is there. Nothing was deleted.

    No other checkpoint may build on it. The next one is at a later slot.
    """

    slot: Slot


@dataclass(frozen=True, slots=True)
class Collected:
    """Deleting for the checkpoint at *slot* has ended; what *failed* is tried with the next."""

    slot: Slot
    failed: bool


Fact = (
    Acquired
    | NotAcquired
    | Followed
    | Damaged
    | Committed
    | NotCommitted
    | MayRead
    | ReadFailed
    | Fenced
    | Released
    | Checkpointed
    | CheckpointFailed
    | Collected
)
Effect = Request | Fact
