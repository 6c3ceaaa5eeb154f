"""The true content of the journals, and what must hold for all that read, write or own partitions.

The truth is the first record that was ever put at each slot of a journal, and the first claim of
each epoch, whatever was deleted or put again since. A journal ends with the first slot whose first
record is a seal; any other seal is a lie. An entry of a partition's epoch counts if the claim of
that epoch names its journal, and if neither the end of the journal nor the release of the epoch
stands before it. Each invariant is checked as soon as it can be known.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from ringpop_py.state.journal.records import ORIGIN, Group, Release, Seal, Slot
from ringpop_sim.state.journal.promises import DAMAGED, FOLD, PROMISES, LogTruth, ScheduleVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.state.journal.records import Claim, Entry, Mark, Record
    from ringpop_sim.state.journal.promises import Op

OWNER: Final = "owner"
REFUSED: Final = "refused"
FENCED: Final = "fenced"
DELETED: Final = "deleted"

INVARIANTS: Final[dict[str, str]] = {
    OWNER: "an epoch has one owner, and is claimed only when the one before has ended",
    REFUSED: "a group that was refused for good is not in the journal",
    FENCED: "an owner is fenced only if its journal was sealed; what is known to be an end is one",
    DELETED: "neither the seal that ended a journal, nor the highest mark, nor the newest "
    "checkpoint is deleted, nor a slot that checkpoints and a mark do not cover",
    **PROMISES,
    FOLD: "a fold or checkpoint is a prefix of the partition's log; an owner begins with all of it",
}


class JournalTruth:
    """A journal as it really is.

    Attributes:
        first: the record that was put first at each slot.
        next: the first slot at which nothing was ever put; where the end is, if it has ended.
        end: the slot of the seal that ended it.
        mark: the highest mark that was ever put; 0 if there is none.
    """

    def __init__(self) -> None:
        self.first: dict[int, Record] = {}
        self.next = 1
        self.end: int | None = None
        self.mark = 0


class PartitionTruth(LogTruth):
    """The log of the partition *number* as it really is.

    Attributes:
        claims: the claim that was put first for each epoch.
        released: the slot at which an epoch was released.
        checkpoints: all that were ever put, and on which each builds.
    """

    def __init__(self, truth: Truth, number: int) -> None:
        super().__init__()
        self.number = number
        self.claims: dict[int, Claim] = {}
        self.released: dict[int, int] = {}
        self.checkpoints: dict[Slot, Slot | None] = {}
        self._truth = truth
        self._restored = 0
        """How many items it had before its first epoch."""
        self._owners: dict[int, str] = {}
        self._counts: dict[int, list[tuple[int, int]]] = {}
        """For each epoch: at which slot the log has grown to how many items."""

    def breaks(self, invariant: str, detail: str) -> None:
        self._truth.breaks(invariant, f"partition {self.number}: {detail}")

    @property
    def newest(self) -> Slot:
        """The newest checkpoint that was ever put."""
        return max(self.checkpoints, default=Slot(0, -1))

    def _closed(self, epoch: int) -> bool:
        ended = epoch and self._truth.journal(self.claims[epoch].journal).end
        return not epoch or epoch in self.released or ended is not None

    def _count_at(self, position: Slot) -> int | None:
        """Return how many items the log has at *position*; None if it never was there."""
        if position == ORIGIN:
            return self._restored
        epoch, slot = position
        claim = self.claims.get(epoch)
        if claim is None or slot >= self._truth.journal(claim.journal).next:
            return None
        counts = self._counts[epoch]
        return counts[max(bisect_right(counts, slot, key=lambda grown: grown[0]) - 1, 0)][1]

    # Events of the store.

    def restored(self, op: Op) -> None:
        """Note that the partition begins with *op*, in a checkpoint from elsewhere."""
        self.add(op)
        self.checkpoints[ORIGIN] = None
        self._restored = len(self.items)

    def claimed(self, epoch: int, claim: Claim) -> None:
        """Note that *claim* won *epoch*."""
        if epoch in self.claims:
            return
        if (epoch > 1 and epoch - 1 not in self.claims) or not self._closed(epoch - 1):
            self.breaks(OWNER, f"{claim} of epoch {epoch}, but the one before is open")
        self.claims[epoch] = claim
        self._counts[epoch] = [(0, len(self.items))]
        self._truth.tally["epochs"] += 1

    def wrote(self, journal: str, slot: int, entry: Entry) -> None:
        """Note that *entry* is in *journal* at *slot*; whether it counts is decided here."""
        epoch = entry.epoch
        claim = self.claims.get(epoch)
        if claim is None or claim.journal != journal or claim.first > slot:
            return
        if epoch in self.released:
            return
        if isinstance(entry.body, Release):
            self.released[epoch] = slot
            self._truth.tally["releases"] += 1
            return
        for op in entry.body:  # type: ignore[attr-defined] # bodies are tuples of operations
            self.add(op)
        self._counts[epoch].append((slot, len(self.items)))

    def covers(self, slot: int, entry: Entry) -> bool:
        """Return whether a checkpoint was in the store that covers *entry* at *slot*."""
        if isinstance(entry.body, Release):
            return self.newest.epoch > entry.epoch
        return self.newest >= Slot(entry.epoch, slot)

    def checkpointed(self, slot: Slot, base: Slot | None, state: Sequence[Op] | None) -> None:
        """Note that a checkpoint, of *state*, was put at *slot*; it builds on the one at *base*.

        *state* is None if something on which it builds is no longer there.
        """
        self.checkpoints[slot] = base
        self._truth.tally["checkpoints"] += 1
        if state is not None:
            self.folded("the checkpoint", slot, state)

    def checkpoint_deleted(self, slot: Slot) -> None:
        """Note that the checkpoint at *slot* was deleted."""
        needed: Slot | None = self.newest
        while needed is not None:
            if slot == needed:
                newest = tuple(self.newest)
                self.breaks(DELETED, f"the checkpoint at {tuple(slot)}, needed for {newest}")
            needed = self.checkpoints.get(needed)

    # Events of nodes.

    def acquired(
        self, process: str, epoch: int, journal: str, end: int, fold: Sequence[Op]
    ) -> None:
        """Note that *process* holds *epoch* in *journal*, whose slots it knows below *end*."""
        claim = self.claims.get(epoch)
        other = self._owners.setdefault(epoch, process)
        if other != process:
            self.breaks(OWNER, f"epoch {epoch} has the owners {other} and {process}")
        elif claim is None or claim.journal != journal:
            self.breaks(OWNER, f"{process} owns epoch {epoch} by {journal}, but there is {claim}")
        # Its fold may be ahead of what its journal knows: a group under way that was read.
        count = self._count_at(Slot(epoch, end - 1))
        if count is None or not count <= len(fold) or fold != self.items[: len(fold)]:
            detail = f"{process} begins epoch {epoch} at {end} with {fold}, not {self.items}"
            self.breaks(FOLD, detail)

    def folded(self, process: str, position: Slot, fold: Sequence[Op]) -> None:
        """Note that *process* has *fold* of the log up to *position*."""
        count = self._count_at(position)
        if count is None:
            self.breaks(FOLD, f"{process} is at {tuple(position)}, where the log never was")
        else:
            self.compare(process, str(tuple(position)), count, fold)


class Truth(ScheduleVerdict):
    """All journals and partitions as they really are.

    Attributes:
        partitions: by number.
        harmed: whether something in the store was damaged or lost.
    """

    def __init__(self, partition_count: int) -> None:
        super().__init__()
        self.partitions = [PartitionTruth(self, number) for number in range(partition_count)]
        self.harmed = False
        self._journals: dict[str, JournalTruth] = {}
        self._refused: list[tuple[str, int, Group]] = []

    def journal(self, name: str) -> JournalTruth:
        """Return the journal *name*."""
        return self._journals.setdefault(name, JournalTruth())

    # Events of the store.

    def put(self, name: str, slot: int, record: Record) -> None:
        """Note that *record* won at *slot* of the journal *name*."""
        journal = self.journal(name)
        if slot not in journal.first:  # a put into a slot that was deleted is not the truth
            journal.first[slot] = record
            self._walk(name, journal)
        elif isinstance(record, Seal):
            self.tally["lies"] += 1

    def _walk(self, name: str, journal: JournalTruth) -> None:
        while journal.end is None and (record := journal.first.get(journal.next)) is not None:
            if isinstance(record, Seal):
                journal.end = journal.next
                self.tally["seals"] += 1
                return
            for entry in record.entries:
                self.partitions[entry.partition].wrote(name, journal.next, entry)
            journal.next += 1

    def _uncovered(self, journal: JournalTruth, slot: int) -> Iterator[Entry]:
        record = journal.first.get(slot)
        if isinstance(record, Group):
            for entry in record.entries:
                if not self.partitions[entry.partition].covers(slot, entry):
                    yield entry

    def marked(self, name: str, slot: int, mark: Mark) -> None:
        """Note that *mark* was put at *slot* of the journal *name*."""
        journal = self.journal(name)
        if slot > journal.next:
            self.breaks(DELETED, f"a mark at {slot} of {name}, which is only at {journal.next}")
        for below in range(max(journal.mark, 1), slot):
            for entry in self._uncovered(journal, below):
                self.breaks(DELETED, f"{name} is marked at {slot}, but {entry} is not covered")
        for number, checkpoint in mark.covered.items():
            if checkpoint not in self.partitions[number].checkpoints:
                self.breaks(DELETED, f"a mark of {name} names {checkpoint} of {number}, put never")
        journal.mark = max(journal.mark, slot)
        self.tally["marks"] += 1

    def mark_deleted(self, name: str, slot: int) -> None:
        """Note that the mark at *slot* of the journal *name* was deleted."""
        if slot == self.journal(name).mark:
            self.breaks(DELETED, f"the mark at {slot} of {name}, the highest one, was deleted")

    def deleted(self, name: str, slot: int, record: Record) -> None:
        """Note that *record* was deleted at *slot* of the journal *name*."""
        journal = self.journal(name)
        if journal.first.get(slot) is not record:
            return  # not the true record, or a copy of one that was deleted before
        for entry in self._uncovered(journal, slot):
            self.breaks(DELETED, f"{slot} of {name} was deleted, but {entry} is not covered")
        if slot == journal.end:
            self.breaks(DELETED, f"the seal at {slot} of {name}, which ended it, was deleted")
        elif slot >= journal.mark:
            self.breaks(DELETED, f"{slot} of {name} was deleted before there was a mark")
        self.tally["deleted"] += 1

    # Events of nodes.

    def fenced(self, process: str, name: str, slot: int | None) -> None:
        """Note that *process* learned that its journal *name* has ended at *slot*.

        *slot* is None if it does not know that: its own group may be there. Then it holds nothing.
        """
        if slot is not None:
            self.knows(process, name, slot)
        self.tally["fences"] += 1

    def knows(self, process: str, name: str, slot: int) -> None:
        """Note that *process* believes that the journal *name* has ended at *slot*."""
        end = self.journal(name).end
        if slot != end:
            self.breaks(FENCED, f"for {process}, {name} has ended at {slot}, but the end is {end}")

    def damaged(self, process: str, what: object) -> None:
        """Note that *process* reports a partition that it cannot read."""
        if not self.harmed:
            self.breaks(DAMAGED, f"{process} reports {what}, but nothing was damaged")

    def refused(self, name: str, slot: int, group: Group) -> None:
        """Note that *group* was refused for good, so it must never be at *slot* of *name*."""
        self._refused.append((name, slot, group))

    # The end.

    def ended(self, folds: Sequence[Sequence[Op]]) -> None:
        """Check all against the *folds* of the last owners, once nothing is in progress."""
        # Only now, because until the end a late put could have brought it into the journal.
        for name, slot, group in self._refused:
            # The same operations may be committed there again, as another group.
            if self.journal(name).first.get(slot) is group:
                self.breaks(REFUSED, f"{slot} of {name} was refused, but is in the journal")
        for partition, fold in zip(self.partitions, folds, strict=True):
            partition.ended(fold)
