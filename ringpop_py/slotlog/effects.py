"""What a `SlotLog` requests of its driver, the driver's replies, and the facts that it reports.

The driver answers each request once, by its id, through `SlotLog.answered`; the order is free. It
carries the requests out against a store that outlives nodes:

| request | against the store | replies |
|---|---|---|
| `PutSlot` | put if absent | WON, TAKEN, NO_ROOM |
| `GetSlot` | get | `Found` with the record, ABSENT, `Unreadable` |
| `ListLog` | list | `Listed` |
| `GetCheckpoint` | get, with all that it builds on | `Found`, `GoneCheckpoint`, `Unreadable` |
| `PutCheckpoint`, `PutMark` | put if absent | WON, TAKEN, NO_ROOM |
| `Delete` | delete | DELETED |

Each request can also be answered with FAILED: the store could not be reached, or failed, and it is
open whether a put took place. A store may carry out a put later than it reports, or twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from ringpop_py.slotlog.slots import Claim, Record, Slot
from ringpop_py.values.declared import Declared

# Requests.


class _AtSlot(Declared, frozen=True):
    id: int  # of the request: the reply names it, and a repeated request has a new one
    slot: Slot


class PutSlot(_AtSlot, frozen=True):
    """Put *record* at *slot* if the slot is absent.

    Attributes:
        attempt: 0 for the first attempt. Later attempts repeat a put whose outcome is open; the
            driver should wait before it carries them out.
    """

    record: Record
    attempt: int = 0


class GetSlot(_AtSlot, frozen=True):
    """Get the record at *slot*. Several can be open at a time, and be answered in any order."""

    attempt: int = 0


class ListLog(Declared, frozen=True):
    """List checkpoints, slots and marks, in one list or in several.

    A list must look at checkpoints in ascending order, or at all of them at one moment; the same
    holds for marks. In another order it could miss both a checkpoint that is being deleted and the
    newer one that replaces it. A list need not be a snapshot: it may show or leave out what is put
    or deleted while it is made.

    Attributes:
        attempt: above 0 if the list before it failed or did not help; the driver should wait.
    """

    id: int
    attempt: int = 0


class GetCheckpoint(_AtSlot, frozen=True):
    """Get the checkpoint at *slot* and all that it builds on, in the form for `Fold.restore`."""

    attempt: int = 0


class PutCheckpoint(_AtSlot, frozen=True):
    """Put the snapshot for which `SlotLog.checkpoint` was called at *slot* if that is absent."""


class PutMark(_AtSlot, frozen=True):
    """Put a mark at *slot* if there is none: a checkpoint covers everything up to this slot.

    The mark outlives the records that are then deleted. If that checkpoint is lost, the mark shows
    a reader of the log that the log is not empty.
    """


class Delete(Declared, frozen=True):
    """Delete *slots*, *checkpoints* and *marks*, in any order; absent ones are not an error."""

    id: int
    slots: tuple[Slot, ...]
    checkpoints: tuple[Slot, ...]
    marks: tuple[Slot, ...]


Request = PutSlot | GetSlot | ListLog | GetCheckpoint | PutCheckpoint | PutMark | Delete


# Replies.


class StoreAnswer(Enum):
    """Replies without content. NO_ROOM: this put did not take place, and never will."""

    WON = auto()
    TAKEN = auto()
    ABSENT = auto()
    DELETED = auto()
    NO_ROOM = auto()
    FAILED = auto()


class Found(Declared, frozen=True):
    """The record in the slot, or the content of the checkpoint."""

    value: object


class Listed(Declared, frozen=True):
    """All slots with records, all checkpoints and all marks, each sorted."""

    slots: Sequence[Slot]
    checkpoints: Sequence[Slot]
    marks: Sequence[Slot] = ()


class Unreadable(Declared, frozen=True):
    """A record or checkpoint is damaged, or of a newer version; *why* says what and where."""

    why: str


class GoneCheckpoint(Declared, frozen=True):
    """The checkpoint at *slot* is absent: the one requested, or one on which that one builds."""

    slot: Slot


class GoneRecord(Declared, frozen=True):
    """The record in *slot* is absent, although later ones exist and no checkpoint covers it."""

    slot: Slot


Gone = GoneCheckpoint | GoneRecord
Reply = StoreAnswer | Found | Listed | Unreadable | GoneCheckpoint


# Facts.


class _SlotFact(Declared, frozen=True):
    slot: Slot


class Acquired(Declared, frozen=True):
    """This node owns *epoch*. The fold is the log up to this node's claim."""

    epoch: int


class NotAcquired(Declared, frozen=True):
    """The owner is *holder*, which must not be replaced. The fold is the log up to *position*."""

    holder: Claim
    position: Slot


class Followed(Declared, frozen=True):
    """The fold is the log up to *position*, which was its end a moment ago.

    Attributes:
        holder: the last claim; None if no node ever claimed the partition.
        sealed_to: the node that is meant to claim the next epoch, empty for any node; None if the
            epoch is not sealed.
    """

    position: Slot
    holder: Claim | None
    sealed_to: str | None


class Damaged(Declared, frozen=True):
    """The log cannot be read to its end, because *what* of it is lost. The fold was reset."""

    what: Unreadable | Gone


class Committed(_SlotFact, frozen=True):
    """The body is in the log at *slot*, and the fold has applied it.

    At some moment since `commit` was called, this node was the owner and its fold had everything
    before *slot*. So a read that was requested before that call may be answered, too.
    """


class NotCommitted(_SlotFact, frozen=True):
    """The store has no room. The body is not in the log and never will be; the owner stays."""


class MayRead(Declared, frozen=True):
    """The fold was the whole log at some moment since `read` was called."""


class ReadFailed(Declared, frozen=True):
    """The store did not answer, so it is open whether the fold is the whole log."""


class Fenced(Declared, frozen=True):
    """Another node sealed the epoch, so this node is no longer the owner. The fold was reset.

    A read under way must not be answered.

    Attributes:
        to: the node that is probably the next owner; empty if that is not known.
        commit_open: whether the commit under way may be in the log. Usually it is not, and never
            will be. But if others have already deleted the record in its slot, nothing shows what
            that record was.
    """

    to: str
    commit_open: bool = False


class Released(Declared, frozen=True):
    """This node sealed its epoch at *slot* for *to*. The fold stays until `drop`."""

    to: str
    slot: Slot


class Checkpointed(_SlotFact, frozen=True):
    """The checkpoint at *slot* is durable; what it replaces is being deleted."""


class CheckpointFailed(_SlotFact, frozen=True):
    """It is open whether the checkpoint at *slot* is in the store. Nothing was deleted.

    No other checkpoint may build on it. The next one is at a later slot.
    """


class Collected(Declared, frozen=True):
    """Deletion for the checkpoint at *slot* has ended; the next one deletes what *failed*."""

    slot: Slot
    failed: bool


OwnerFact = Committed | NotCommitted | MayRead | ReadFailed
CheckpointFact = Checkpointed | CheckpointFailed | Collected
Fact = Acquired | NotAcquired | Followed | Damaged | OwnerFact | Fenced | Released | CheckpointFact
Effect = Request | Fact
