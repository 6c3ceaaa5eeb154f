"""Which slots of a node's own journal checkpoints cover, and hence which may be deleted.

A slot may be deleted once all that stands in it is covered: what was written, by a checkpoint of
its epoch at that slot or beyond, or of a later epoch; a release, only by a checkpoint of a later
epoch, since without the release a recovery would not know that the epoch has ended.

Before anything is deleted, a mark is put, and known to be in the store. The mark says that the
checkpoints were there before it: a reader that sees it and then lists checkpoints finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringpop_py.state.journal.records import Mark

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ringpop_py.state.journal.records import Fold, Slot


@dataclass(slots=True, eq=False)
class Snapshots:
    """The checkpoints of one partition, at the node that owns it; they are put one at a time.

    They outlive the ownership: a checkpoint that was begun is finished even after the partition has
    left, because it stays true whichever node goes on.

    Attributes:
        known: those in the store, or perhaps on their way there.
        durable: those of this epoch that are known to be there. Another may build only on these: a
            former owner may still finish a checkpoint of its own and delete those before it.
    """

    known: set[Slot]
    durable: set[Slot] = field(default_factory=set)
    under_way: Slot | None = None
    keeps: frozenset[Slot] = frozenset()

    def begin(self, slot: Slot, keeps: Collection[Slot]) -> None:
        """Begin a checkpoint at *slot*, which builds on those at *keeps*."""
        assert self.under_way is None, "one checkpoint at a time"
        assert self.durable.issuperset(keeps), "it builds on checkpoints of this epoch only"
        assert slot not in keeps, "a checkpoint does not build on itself"
        self.under_way = slot
        self.keeps = frozenset(keeps)
        self.known.add(slot)  # the put may take effect from now on, whatever its outcome

    def older(self, slot: Slot) -> tuple[Slot, ...]:
        """Return the checkpoints that the one at *slot* replaces."""
        return tuple(sorted(old for old in self.known if old < slot and old not in self.keeps))

    def deleted(self, slots: Collection[Slot]) -> None:
        """Note that the checkpoints at *slots* are gone."""
        self.known.difference_update(slots)
        self.durable.difference_update(slots)


@dataclass(slots=True, eq=False)
class Holding:
    """A partition that this node owns.

    Attributes:
        uncovered: the slots of the journal with entries of this epoch that no checkpoint covers.
        base: the newest checkpoint that is known to be in the store.
    """

    epoch: int
    fold: Fold
    snapshots: Snapshots
    base: Slot | None = None
    uncovered: list[int] = field(default_factory=list)


class Coverage:
    """What may be deleted of the journal *name*.

    Attributes:
        marked: the slot of the last mark that is known to be in the store; 0 if there is none.
        parted: the first uncovered slot of each partition and epoch that was released here.
        covered: for each partition, a checkpoint that is in the store.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.marked = 0
        self.parted: dict[tuple[int, int], int] = {}
        self.covered: dict[int, Slot] = {}
        self._rest_from = 1
        self._marks: list[int] = []

    def listed(self, partition: int, checkpoints: Sequence[Slot]) -> None:
        """Note that *checkpoints* of a *partition* are in the store."""
        if not checkpoints:
            return
        newest = checkpoints[-1]
        self.covered[partition] = max(newest, self.covered.get(partition, newest))
        for number, epoch in tuple(self.parted):
            if number == partition and epoch < newest.epoch:
                del self.parted[number, epoch]

    def mark_at(self, low: int, held: Collection[Holding]) -> int:
        """Return where a mark can be put, if the slots below *low* are known to be won."""
        firsts = [holding.uncovered[0] for holding in held if holding.uncovered]
        return min([low, *firsts, *self.parted.values()])

    def waits_for(self, low: int, held: Collection[Holding]) -> set[int]:
        """Return the partitions whose later owners have to cover what keeps the mark back."""
        firsts = [holding.uncovered[0] for holding in held if holding.uncovered]
        at = min([low, *firsts])
        return {number for (number, _), first in self.parted.items() if first < at}

    def mark(self, slot: int) -> Mark:
        """Return the mark to be put at *slot*."""
        self._marks.append(slot)  # the put may take effect from now on
        return Mark(dict(self.covered))

    def marked_at(self, slot: int) -> tuple[range, list[int]]:
        """Note that the mark at *slot* is in the store; return slots and marks to delete."""
        self.marked = slot
        return range(self._rest_from, slot), [mark for mark in self._marks if mark < slot]

    def deleted(self, slot: int) -> None:
        """Note that nothing is left below *slot*."""
        self._rest_from = slot
        self._marks = [mark for mark in self._marks if mark >= slot]
