"""What a checkpoint replaces and makes deletable: data that it covers, older checkpoints and marks.

Nothing is deleted before the mark of the checkpoint is known to be in the store. The mark outlives
the records that are deleted: without it, a log whose checkpoint is lost would look like a log that
began with nothing. So the highest mark is never deleted.

Claims and seals are never deleted, because late puts have to collide with them, even years later:
the data of a former owner with the seal of its epoch, a late claim with the claim that won.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ringpop_py.slotlog.slots import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ringpop_py.slotlog.effects import Listed


class Spans:
    """Slots that hold data: one contiguous range in each epoch."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[int, int]] = {}

    def add(self, slot: Slot) -> None:
        """Add *slot*, which follows the last one of its epoch."""
        first, _ = self._spans.get(slot.epoch, (slot.sequence, 0))
        self._spans[slot.epoch] = (first, slot.sequence)

    def up_to(self, end: Slot) -> Iterator[Slot]:
        """Yield all slots up to and including *end*, in ascending order."""
        for epoch, (first, last) in sorted(self._spans.items()):
            if epoch > end.epoch:
                return
            last_wanted = last if epoch < end.epoch else min(last, end.sequence)
            yield from (Slot(epoch, sequence) for sequence in range(first, last_wanted + 1))

    def drop_up_to(self, end: Slot) -> None:
        """Forget all slots up to and including *end*."""
        rest = {}
        for epoch, (first, last) in self._spans.items():
            first_kept = first if epoch > end.epoch else max(first, end.sequence + 1)
            if epoch >= end.epoch and first_kept <= last:
                rest[epoch] = (first_kept, last)
        self._spans = rest


def leftovers(slots: Sequence[Slot], checkpoint: Slot | None) -> tuple[Slot, ...]:
    """Return those of the listed *slots* that *checkpoint* covers and that may be deleted.

    They are left over because the node that put the checkpoint died before it deleted them, or
    because a store carried out a put twice. Claims and seals stay: a claim has sequence 0, and the
    seal of a finished epoch is its last slot, since no put after it can win.
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
    """The checkpoints of one epoch at its owner, one at a time.

    A collector outlives its epoch: a checkpoint that was begun is finished after the owner was
    fenced, because a checkpoint stays true whichever node goes on.
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
        """Whether a checkpoint is being put, or what it replaces is being deleted."""
        return self._under_way is not None

    def begin(self, slot: Slot, keeps: Collection[Slot]) -> None:
        """Begin a checkpoint at *slot*, which builds on the checkpoints at *keeps*.

        This owner must have put those in this epoch, and must know that they are in the store. A
        checkpoint of an earlier epoch cannot be built on: its owner may still finish a checkpoint
        that this node has not seen, and delete the earlier one after that.
        """
        assert not self.busy, "one checkpoint at a time"
        assert slot.epoch == self._epoch, "an owner makes checkpoints of its own epoch"
        assert self._durable.issuperset(keeps), "it builds on checkpoints of this epoch only"
        assert slot not in keeps, "a checkpoint does not build on itself"
        self._under_way = slot
        self._keeps = frozenset(keeps)
        self._known.add(slot)  # the put may take effect from now on, whatever its outcome

    def failed(self) -> Slot:
        """Note that the put failed, or that its outcome is open; return the checkpoint's slot."""
        slot = self._under_way
        assert slot is not None
        self._under_way = None
        return slot

    def durable(self) -> Slot:
        """Note that the checkpoint is in the store; return its slot, where its mark goes."""
        slot = self._under_way
        assert slot is not None
        self._durable.add(slot)
        self._marks.add(slot)  # the put of the mark may take effect from now on
        return slot

    def replaced(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...], tuple[Slot, ...]]:
        """Note that the mark is in the store; return the slots, checkpoints and marks to delete."""
        slot = self._under_way
        assert slot is not None
        slots = dict.fromkeys(chain(self._rest, self._data.up_to(slot)))
        return tuple(slots), self._older_checkpoints(slot), self._older_marks(slot)

    def _older_checkpoints(self, slot: Slot) -> tuple[Slot, ...]:
        return tuple(sorted(old for old in self._known if old < slot and old not in self._keeps))

    def _older_marks(self, slot: Slot) -> tuple[Slot, ...]:
        return tuple(sorted(old for old in self._marks if old < slot))

    def deleted(self, *, failed: bool) -> Slot:
        """Note that deleting has ended; if it *failed*, the next checkpoint deletes the rest."""
        slot = self._under_way
        assert slot is not None
        self._under_way = None
        if not failed:
            self._data.drop_up_to(slot)
            self._rest = ()
            self._known.difference_update(self._older_checkpoints(slot))
            self._marks.difference_update(self._older_marks(slot))
            self._durable.intersection_update(self._known)  # nothing builds on what was deleted
        return slot
