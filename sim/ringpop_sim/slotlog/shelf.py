"""A store in memory. That the road to it is a bad one is the business of `schedule.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.partitions.logeffects import (
    Answer,
    Delete,
    Found,
    GetCheckpoint,
    GetSlot,
    PutCheckpoint,
    PutSlot,
    Reply,
)

if TYPE_CHECKING:
    from ringpop_py.partitions.slots import Record, Slot
    from ringpop_sim.slotlog.truth import Op, Truth

Checkpoint = tuple["Slot | None", tuple["Op", ...]]
"""A checkpoint: the one that it builds on, if any, and what it adds."""


class Shelf:
    """What is stored. Each method takes place at one moment."""

    def __init__(self, truth: Truth) -> None:
        self.slots: dict[Slot, Record] = {}
        self.checkpoints: dict[Slot, Checkpoint] = {}
        self._truth = truth

    def put(self, request: PutSlot) -> Answer:
        """Carry out a put."""
        if request.slot in self.slots:
            return Answer.TAKEN
        self.slots[request.slot] = request.record
        self._truth.put(request.slot, request.record)
        return Answer.WON

    def put_checkpoint(self, request: PutCheckpoint, body: Checkpoint) -> Answer:
        """Carry out a put of a checkpoint."""
        if request.slot in self.checkpoints:
            return Answer.TAKEN
        self.checkpoints[request.slot] = body
        self._truth.checkpointed(request.slot)
        return Answer.WON

    def get(self, request: GetSlot) -> Reply:
        """Carry out a get."""
        record = self.slots.get(request.slot)
        return Answer.ABSENT if record is None else Found(record)

    def get_checkpoint(self, request: GetCheckpoint) -> Reply:
        """A checkpoint and all that it builds on, as the operations in it."""
        parts: list[tuple[Op, ...]] = []
        slot: Slot | None = request.slot
        while slot is not None:
            body = self.checkpoints.get(slot)
            if body is None:
                return Answer.ABSENT
            slot, part = body
            parts.append(part)
        return Found([op for part in reversed(parts) for op in part])

    def list_checkpoints(self, after: Slot | None, up_to: Slot | None) -> list[Slot]:
        """One page of the list of checkpoints; None: no bound."""
        return sorted(
            slot
            for slot in self.checkpoints
            if (after is None or slot > after) and (up_to is None or slot <= up_to)
        )

    def delete_slots(self, request: Delete) -> None:
        """Carry out one half of deleting."""
        for slot in request.slots:
            record = self.slots.pop(slot, None)
            if record is not None:
                self._truth.deleted(slot, record)

    def delete_checkpoints(self, request: Delete) -> None:
        """Carry out the other half."""
        for slot in request.checkpoints:
            self.checkpoints.pop(slot, None)
