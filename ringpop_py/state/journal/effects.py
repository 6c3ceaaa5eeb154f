"""What journals and recoveries ask of their driver, its replies, and the facts that they report.

The driver answers each request once, by its id, through `answered` of the object that made it; the
order is free. It carries the requests out against a store that outlives nodes:

| request | against the store | replies |
|---|---|---|
| `PutSlot` | put if absent | WON, TAKEN, NO_ROOM |
| `GetSlot` | get | `Found` with the record, ABSENT, `Unreadable` |
| `ListJournal` | list | `JournalListed` |
| `PutMark` | put if absent | WON, TAKEN, NO_ROOM |
| `GetMark` | get | `Found` with the mark, ABSENT, `Unreadable` |
| `ListPartition` | list | `PartitionListed` |
| `PutClaim` | put if absent | WON, TAKEN, NO_ROOM |
| `GetClaim` | get | `Found` with the claim, ABSENT, `Unreadable` |
| `PutCheckpoint` | put if absent | WON, TAKEN, NO_ROOM |
| `GetCheckpoint` | get, with all that it builds on | `Found`, `GoneCheckpoint`, `Unreadable` |
| `DeleteSlots`, `DeleteCheckpoints` | delete | DELETED |

Each request can also be answered with FAILED: the store could not be reached, or failed, so it is
unknown whether a put took place. A store may carry out a put later than it reports, or twice.

A driver may answer a `GetSlot` with what an earlier one has found there, since nothing else ever
stands in a slot that was read; it must not do so with ABSENT.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from ringpop_py.base.values.declared import Declared
from ringpop_py.state.journal.records import Claim, Mark, Record, Slot

# Requests.


class _Asked(Declared, frozen=True):
    id: int  # of the request: the reply names it, and a repeated request has a new one


class PutSlot(_Asked, frozen=True):
    """Put *record* at *slot* of *journal* if nothing is there.

    Attributes:
        attempt: 0 for the first attempt; the driver should wait before it carries out a later one.
            It means the same in all requests.
    """

    journal: str
    slot: int
    record: Record
    attempt: int = 0


class GetSlot(_Asked, frozen=True):
    """Get the record at *slot* of *journal*. Several can be open at a time."""

    journal: str
    slot: int
    attempt: int = 0


class ListJournal(_Asked, frozen=True):
    """List the marks of *journal*, and its slots unless *marks_only*.

    A list must look at marks in ascending order, or at all of them at one moment. It need not be a
    snapshot: it may show or leave out what is put or deleted while it is made.
    """

    journal: str
    marks_only: bool = False
    attempt: int = 0


class PutMark(_Asked, frozen=True):
    """Put *mark* at *slot* of *journal* if there is none."""

    journal: str
    slot: int
    mark: Mark
    attempt: int = 0


class GetMark(_Asked, frozen=True):
    """Get the mark at *slot* of *journal*."""

    journal: str
    slot: int
    attempt: int = 0


class ListPartition(_Asked, frozen=True):
    """List the checkpoints of *partition* first, and then its claims.

    A list must look at checkpoints in ascending order, or at all of them at one moment: in another
    order it could miss both one that is being deleted and the newer one that replaces it. The same
    holds for claims. It need not be a snapshot.
    """

    partition: int
    attempt: int = 0


class PutClaim(_Asked, frozen=True):
    """Put *claim*, for *epoch* of *partition*, if there is none."""

    partition: int
    epoch: int
    claim: Claim
    attempt: int = 0


class GetClaim(_Asked, frozen=True):
    """Get the claim of *epoch* of *partition*."""

    partition: int
    epoch: int
    attempt: int = 0


class PutCheckpoint(_Asked, frozen=True):
    """Put the snapshot for which `Journal.checkpoint` was called at *slot*, if nothing is there."""

    partition: int
    slot: Slot


class GetCheckpoint(_Asked, frozen=True):
    """Get the checkpoint at *slot* and all that it builds on, in the form for `Fold.restore`."""

    partition: int
    slot: Slot
    attempt: int = 0


class DeleteSlots(_Asked, frozen=True):
    """Delete *slots* and *marks* of *journal*, in any order; absent ones are not an error."""

    journal: str
    slots: Sequence[int]
    marks: Sequence[int]


class DeleteCheckpoints(_Asked, frozen=True):
    """Delete the checkpoints of *partition* at *slots*."""

    partition: int
    slots: Sequence[Slot]


Request = (
    PutSlot
    | GetSlot
    | ListJournal
    | PutMark
    | GetMark
    | ListPartition
    | PutClaim
    | GetClaim
    | PutCheckpoint
    | GetCheckpoint
    | DeleteSlots
    | DeleteCheckpoints
)


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
    """The record, mark or claim that was asked for, or the content of the checkpoint."""

    value: object


class Unreadable(Declared, frozen=True):
    """An object is damaged, or in another version of the format; *why* says what and where."""

    why: str


class JournalListed(Declared, frozen=True):
    """The slots with records (none if only marks were asked for) and the marks, each sorted."""

    slots: Sequence[int]
    marks: Sequence[int]


class PartitionListed(Declared, frozen=True):
    """The epochs with claims, and the checkpoints, each sorted."""

    epochs: Sequence[int]
    checkpoints: Sequence[Slot]


class GoneCheckpoint(Declared, frozen=True):
    """The checkpoint at *slot* is absent: the one requested, or one on which that one builds."""

    slot: Slot


class GoneRecord(Declared, frozen=True):
    """Nothing is at *slot* of *journal*, although it was written and no mark covers it."""

    journal: str
    slot: int


class GoneClaim(Declared, frozen=True):
    """The claim of *epoch* of *partition* is absent, although there is a later one."""

    partition: int
    epoch: int


Gone = GoneCheckpoint | GoneRecord | GoneClaim
Reply = StoreAnswer | Found | JournalListed | PartitionListed | Unreadable | GoneCheckpoint


# Facts of a recovery.


class Sealed(Declared, frozen=True):
    """This node has put a seal at *slot* of *journal*, which the claim *holder* names."""

    partition: int
    journal: str
    slot: int
    holder: Claim


class Acquired(Declared, frozen=True):
    """This node owns *epoch* of *partition*, which its journal holds from now on."""

    partition: int
    epoch: int


class NotAcquired(Declared, frozen=True):
    """The owner is *holder*, by the claim of *epoch*, and must not be replaced.

    The fold has what was written up to *position*: an epoch, and a slot of its journal.
    """

    partition: int
    epoch: int
    holder: Claim
    position: Slot


class Followed(Declared, frozen=True):
    """The fold has what was written up to *position*, which was the end a moment ago.

    Attributes:
        epoch, holder: the newest claim; 0 and None if no node ever claimed the partition.
    """

    partition: int
    position: Slot
    epoch: int
    holder: Claim | None


class Damaged(Declared, frozen=True):
    """The partition cannot be read to its end, because *what* of it is lost. The fold was reset."""

    partition: int
    what: Unreadable | Gone


class ClaimRefused(Declared, frozen=True):
    """The store has refused the claim of *partition*, which is not there. The fold was reset."""

    partition: int


# Facts of a journal.


class Committed(Declared, frozen=True):
    """The group is in the journal at *slot*, and the folds have applied it.

    At some moment since `commit` was called, this node owned all partitions of its journal, and
    their folds had everything before *slot*. So reads that were requested before that call may be
    answered, too. The partitions with a `Release` in the group are no longer held.
    """

    slot: int


class NotCommitted(Declared, frozen=True):
    """The store has no room. The group is not in the journal and never will be."""

    slot: int


class MayRead(Declared, frozen=True):
    """The folds were whole at some moment since `read` was called."""


class ReadFailed(Declared, frozen=True):
    """The store did not answer, so it is unknown whether the folds are whole."""


class Fenced(Declared, frozen=True):
    """The journal *name* was sealed by the node *by*. This node goes on in a new one.

    A group or a read that was under way has ended.

    Attributes:
        outcome_open: whether the group under way may be in the journal, and then all partitions
            are lost here. Otherwise it is not there, and never will be, and the claims of the next
            epochs are on their way; each ends with `Reclaimed` or `Lost`.
        lost: the partitions that this node no longer has.
    """

    name: str
    by: str
    outcome_open: bool
    lost: tuple[int, ...]


class Reclaimed(Declared, frozen=True):
    """This node owns *partition* again, in *epoch*, with the state that it had."""

    partition: int
    epoch: int


class Lost(Declared, frozen=True):
    """Another node, *owner*, claimed *partition* after the seal. Its fold was reset.

    The owner is empty if the store has refused our claim: then it may be anybody's.
    """

    partition: int
    owner: str


class Checkpointed(Declared, frozen=True):
    """The checkpoint of *partition* at *slot* is durable; older ones are being deleted."""

    partition: int
    slot: Slot


class CheckpointFailed(Declared, frozen=True):
    """It is unknown whether the checkpoint at *slot* is in the store. Nothing was deleted.

    Instead, one from an earlier attempt may be there, which covers everything up to *slot*. No
    other checkpoint may build on it.
    """

    partition: int
    slot: Slot


class Collected(Declared, frozen=True):
    """The older checkpoints of *partition* were deleted; if that *failed*, the next one does it."""

    partition: int
    failed: bool


class Trimmed(Declared, frozen=True):
    """Slots of *journal* below *first* were deleted; if that *failed*, the next trim does it."""

    journal: str
    first: int
    failed: bool


CommitFact = Committed | NotCommitted | MayRead | ReadFailed
CheckpointFact = Checkpointed | CheckpointFailed | Collected
TryFact = Acquired | NotAcquired | Followed | Damaged | ClaimRefused
Fact = Sealed | TryFact | CommitFact | Fenced | Reclaimed | Lost | CheckpointFact | Trimmed
Effect = Request | Fact
