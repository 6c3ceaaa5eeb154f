"""A store in memory, without faults of its own; `road.py` is the unreliable way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.errors import RingpopError
from ringpop_py.slotlog import effects as fx
from ringpop_py.slotlog.records import unwrap, wrap
from ringpop_py.slotlog.slots import Claim, Data, Record, Seal, Slot
from ringpop_py.values.declared import astuple
from ringpop_py.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    import random

    from ringpop_sim.schedules.owners import Checkpoint
    from ringpop_sim.schedules.truth import Op
    from ringpop_sim.slotlog.truth import Truth


class Shelf:
    """The content of the store. Each method is atomic."""

    def __init__(self, truth: Truth, rng: random.Random) -> None:
        self.slots: dict[Slot, Record] = {}
        self.checkpoints: dict[Slot, Checkpoint] = {}
        self.marks: set[Slot] = set()
        self._truth = truth
        self._rng = rng
        self._unreadable: dict[Slot, str] = {}
        self._whole: dict[Slot, Record] = {}
        """The records in which a bit was flipped, as they were before."""
        self._lost_slots: dict[Slot, Record] = {}
        self._lost_checkpoints: dict[Slot, Checkpoint] = {}

    def put(self, request: fx.PutSlot) -> fx.StoreAnswer:
        """Carry out a put."""
        if request.slot in self.slots:
            return fx.StoreAnswer.TAKEN
        self.slots[request.slot] = request.record
        self._truth.put(request.slot, request.record)
        return fx.StoreAnswer.WON

    def put_checkpoint(self, request: fx.PutCheckpoint, body: Checkpoint) -> fx.StoreAnswer:
        """Carry out a put of a checkpoint."""
        if request.slot in self.checkpoints:
            return fx.StoreAnswer.TAKEN
        self.checkpoints[request.slot] = body
        self._truth.checkpointed(request.slot)
        return fx.StoreAnswer.WON

    def put_mark(self, request: fx.PutMark) -> fx.StoreAnswer:
        """Carry out a put of a mark."""
        if request.slot in self.marks:
            return fx.StoreAnswer.TAKEN
        self.marks.add(request.slot)
        self._truth.marked(request.slot)
        return fx.StoreAnswer.WON

    def get(self, request: fx.GetSlot) -> fx.Reply:
        """Carry out a get."""
        if request.slot in self._unreadable:
            return fx.Unreadable(self._unreadable[request.slot])
        record = self.slots.get(request.slot)
        return fx.StoreAnswer.ABSENT if record is None else fx.Found(record)

    def get_checkpoint(self, request: fx.GetCheckpoint) -> fx.Reply:
        """Return the operations of a checkpoint and of all that it builds on."""
        parts: list[tuple[Op, ...]] = []
        slot: Slot | None = request.slot
        while slot is not None:
            body = self.checkpoints.get(slot)
            if body is None:
                return fx.GoneCheckpoint(slot)
            slot, part = body
            parts.append(part)
        return fx.Found([op for part in reversed(parts) for op in part])

    def delete_slots(self, request: fx.Delete) -> None:
        """Delete the slots of *request*."""
        for slot in request.slots:
            record = self.slots.pop(slot, None)
            self._unreadable.pop(slot, None)
            # As it was before a bit was flipped, because the truth knows no other.
            record = self._whole.pop(slot, record)
            if record is not None:
                self._truth.deleted(slot, record)

    def delete_checkpoints(self, request: fx.Delete) -> None:
        """Delete the checkpoints of *request*."""
        for slot in request.checkpoints:
            self.checkpoints.pop(slot, None)

    def delete_marks(self, request: fx.Delete) -> None:
        """Delete the marks of *request*."""
        for slot in request.marks:
            if slot in self.marks:
                self.marks.remove(slot)
                self._truth.mark_deleted(slot)

    # Damage, and its repair by an operator.

    def flip(self) -> None:
        """Flip a bit of some record, if there is one."""
        if not self.slots:
            return
        slot = self._rng.choice(sorted(self.slots))
        key = "/".join(map(str, slot))
        # As a store keeps it: with the checksum, which has to notice the flip.
        value = bytearray(wrap(_packed(self.slots[slot]), key))
        place = self._rng.randrange(8 * len(value))
        value[place // 8] ^= 1 << place % 8
        # A record may be flipped twice, and only the first copy is whole.
        self._whole.setdefault(slot, self.slots[slot])
        try:
            # Unless the checksum is not looked at, which is one of the broken variants, this fails.
            self.slots[slot] = _unpacked(unwrap(bytes(value), key))
        except (RingpopError, ValueError, TypeError) as error:
            self._unreadable[slot] = f"{type(error).__name__}: {error}"
        self._truth.harmed = True

    def lose_checkpoint(self, *, newest: bool = False) -> None:
        """Lose the *newest* checkpoint or some other, if there is one."""
        if self.checkpoints:
            known = sorted(self.checkpoints)
            slot = known[-1] if newest else self._rng.choice(known)
            self._lost_checkpoints[slot] = self.checkpoints.pop(slot)
            self._truth.harmed = True

    def lose(self) -> None:
        """Lose a record of data that others follow, if there is one."""
        # Without its claims and seals a log fences no owner, so everything relies on a store that
        # keeps these.
        data = [slot for slot, record in self.slots.items() if isinstance(record, Data)]
        # The loss of the last record would leave no trace.
        data = sorted(slot for slot in data if slot < max(self.slots))
        if data:
            slot = self._rng.choice(data)
            self._lost_slots[slot] = self.slots.pop(slot)
            self._truth.harmed = True

    def repair(self) -> None:
        """Restore what was lost or flipped, unless it was deleted meanwhile."""
        self.slots |= self._whole | self._lost_slots
        self.checkpoints |= self._lost_checkpoints
        self._whole.clear()
        self._unreadable.clear()


_KINDS: Final = {kind.__name__: kind for kind in (Claim, Data, Seal)}


def _packed(record: Record) -> bytes:
    return encode_value("msgpack", [type(record).__name__, *astuple(record)])


def _unpacked(payload: bytes) -> Record:
    kind, content, nonce = decode_value("msgpack", payload)
    if kind == Data.__name__:
        content = tuple((client, number) for client, number in content)
    if not isinstance(nonce, str) or kind not in _KINDS:
        raise ValueError("no record")
    return _KINDS[kind](content, nonce)
