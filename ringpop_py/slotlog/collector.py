"""What a checkpoint makes superfluous: data that it covers, older checkpoints, and older marks.

First a mark is put, and known to be there, which says so. It outlives what is deleted: were the
checkpoint lost, the log would otherwise look as if it began with nothing. So the highest mark is
never deleted.

Claims and seals are never deleted. They are what a put that arrives years late runs into: an old
owner's data into the seal of its epoch, an old acquirer's claim into the claim that won.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ringpop_py.slotlog.slots import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ringpop_py.slotlog.effects import Listed


class Spans:
    """Slots that hold data: in each epoch those from a first to a last."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[int, int]] = {}

    def add(self, slot: Slot) -> None:
        """Take in *slot*, which follows the last of its epoch."""
        first, _ = self._spans.get(slot.epoch, (slot.sequence, 0))
        self._spans[slot.epoch] = (first, slot.sequence)

    def up_to(self, end: Slot) -> Iterator[Slot]:
        """All slots not beyond *end*, ascending."""
        for epoch, (first, last) in sorted(self._spans.items()):
            if epoch > end.epoch:
                return
            last_wanted = last if epoch < end.epoch else min(last, end.sequence)
            yield from (Slot(epoch, sequence) for sequence in range(first, last_wanted + 1))

    def drop_up_to(self, end: Slot) -> None:
        """Forget all slots not beyond *end*."""
        rest = {}
        for epoch, (first, last) in self._spans.items():
            first_kept = first if epoch > end.epoch else max(first, end.sequence + 1)
            if epoch >= end.epoch and first_kept <= last:
                rest[epoch] = (first_kept, last)
        self._spans = rest


def leftovers(slots: Sequence[Slot], checkpoint: Slot | None) -> tuple[Slot, ...]:
    """Those of the listed *slots* that *checkpoint* covers, but for claims and seals.

    Whoever made the checkpoint did not live to delete them, or a put of them came twice, and late.
    The last slot of an epoch that is over holds its seal, and nothing is ever put after that.
    """
    if checkpoint is None:
        return ()
    last = {slot.epoch: slot for slot in slots}
    return tuple(
        slot
        for slot in slots
        if slot <= checkpoint
        and slot.sequence > 0
        and (slot.epoch == checkpoint.epoch or slot != last[slot.epoch])
    )


class Collector:
    """The checkpoints of one epoch at its owner. One is under way at a time.

    It outlives the epoch: what was begun is finished after the owner was fenced, for a checkpoint
    stays true whoever goes on.
    """

    def __init__(self, epoch: int, data: Spans, rest: Sequence[Slot], log: Listed) -> None:
        self._epoch = epoch
        self._data = data
        self._rest = tuple(rest)
        self._known = set(log.checkpoints)
        self._marks = set(log.marks)
        self._durable: set[Slot] = set()
        self._keeps: frozenset[Slot] = frozenset()
        self._under_way: Slot | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way, or what it replaces is being deleted."""
        return self._under_way is not None

    def begin(self, slot: Slot, keeps: Collection[Slot]) -> None:
        """A checkpoint at *slot* is to be put, which builds on *keeps*.

        Those must be of this epoch, put by this owner, and known to be there. One of an earlier
        epoch is no ground to build on: its owner may have a put under way of a checkpoint that
        this node has not seen, and delete it when that is done.
        """
        assert not self.busy, "one checkpoint at a time"
        assert slot.epoch == self._epoch, "an owner makes checkpoints of its own epoch"
        assert self._durable.issuperset(keeps), "it builds on checkpoints of this epoch only"
        assert slot not in keeps, "a checkpoint does not build on itself"
        self._under_way = slot
        self._keeps = frozenset(keeps)
        self._known.add(slot)  # from now on it may be there

    def failed(self) -> Slot:
        """The put had no known success. The slot of it."""
        slot = self._under_way
        assert slot is not None
        self._under_way = None
        return slot

    def durable(self) -> Slot:
        """Note that the checkpoint is there, and return its slot, where the mark is to be put."""
        slot = self._under_way
        assert slot is not None
        self._durable.add(slot)
        self._marks.add(slot)  # from now on it may be there
        return slot

    def replaced(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...], tuple[Slot, ...]]:
        """Note that the mark is there; return the slots, checkpoints and marks to delete."""
        slot = self._under_way
        assert slot is not None
        slots = dict.fromkeys(chain(self._rest, self._data.up_to(slot)))
        return tuple(slots), self._older_checkpoints(slot), self._older_marks(slot)

    def _older_checkpoints(self, slot: Slot) -> tuple[Slot, ...]:
        return tuple(sorted(old for old in self._known if old < slot and old not in self._keeps))

    def _older_marks(self, slot: Slot) -> tuple[Slot, ...]:
        return tuple(sorted(old for old in self._marks if old < slot))

    def deleted(self, *, failed: bool) -> Slot:
        """Deleting has ended, or could not begin. What *failed* comes after the next checkpoint."""
        slot = self._under_way
        assert slot is not None
        self._under_way = None
        if not failed:
            self._data.drop_up_to(slot)
            self._rest = ()
            self._known.difference_update(self._older_checkpoints(slot))
            self._marks.difference_update(self._older_marks(slot))
            self._durable.intersection_update(self._known)
        return slot
