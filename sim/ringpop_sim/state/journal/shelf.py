"""A store in memory, without faults of its own; `road.py` is the unreliable way to it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import RingpopError
from ringpop_py.base.values.checksum import unwrap, wrap
from ringpop_py.base.values.declared import decode, encode, replace
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.records import ORIGIN, Claim, Entry, Group, Mark, Release, Seal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from ringpop_py.state.journal.records import Record, Slot
    from ringpop_sim.state.journal.owners import Checkpoint
    from ringpop_sim.state.journal.promises import Op
    from ringpop_sim.state.journal.truth import Truth

Kept = dict[Any, Any]
"""Records of one kind, of one journal or partition, by slot or epoch."""


class Shelf:
    """The content of the store. Each method is atomic.

    Attributes:
        slots, marks: by journal and slot.
        claims, checkpoints: by partition, and by epoch or slot.
    """

    def __init__(self, truth: Truth, rng: random.Random) -> None:
        self.slots: defaultdict[str, dict[int, Record]] = defaultdict(dict)
        self.marks: defaultdict[str, dict[int, Mark]] = defaultdict(dict)
        self.claims: defaultdict[int, dict[int, Claim]] = defaultdict(dict)
        self.checkpoints: defaultdict[int, dict[Slot, Checkpoint]] = defaultdict(dict)
        self._truth = truth
        self._rng = rng
        self._unreadable: dict[tuple[int, Any], str] = {}
        """Why an object, by the identity of its mapping and its key, cannot be read."""
        self._whole: dict[tuple[int, Any], tuple[Kept, Any]] = {}
        """Objects that were lost or are damaged, as they were before; by the same."""

    def put(self, request: Any) -> fx.StoreAnswer:  # noqa: ANN401 - of several kinds
        """Carry out a put of anything but a checkpoint."""
        kept, key = self._place(request)
        if key in kept:
            return fx.StoreAnswer.TAKEN
        if isinstance(request, fx.PutSlot):
            kept[key] = request.record
            self._truth.put(request.journal, key, request.record)
        elif isinstance(request, fx.PutMark):
            kept[key] = request.mark
            self._truth.marked(request.journal, key, request.mark)
        else:
            assert isinstance(request, fx.PutClaim)
            kept[key] = request.claim
            self._truth.partitions[request.partition].claimed(key, request.claim)
        return fx.StoreAnswer.WON

    def _place(self, request: Any) -> tuple[Kept, Any]:  # noqa: ANN401 - of several kinds
        """Return the mapping and the key of the object that *request* puts or gets."""
        match request:
            case fx.PutSlot() | fx.GetSlot():
                return self.slots[request.journal], request.slot
            case fx.PutMark() | fx.GetMark():
                return self.marks[request.journal], request.slot
            case _:
                assert isinstance(request, fx.PutClaim | fx.GetClaim)
                return self.claims[request.partition], request.epoch

    def get(self, request: Any) -> fx.Reply:  # noqa: ANN401 - of several kinds
        """Carry out a get of anything but a checkpoint."""
        kept, key = self._place(request)
        why = self._unreadable.get((id(kept), key))
        if why is not None:
            return fx.Unreadable(why)
        return fx.Found(kept[key]) if key in kept else fx.StoreAnswer.ABSENT

    def put_checkpoint(self, request: fx.PutCheckpoint, body: Checkpoint) -> fx.StoreAnswer:
        """Carry out a put of a checkpoint."""
        kept = self.checkpoints[request.partition]
        if request.slot in kept:
            return fx.StoreAnswer.TAKEN
        kept[request.slot] = body
        if (id(kept), request.slot) in self._whole:
            return fx.StoreAnswer.WON  # in the place of a lost one, which is the truth
        state = self._state(request.partition, request.slot)
        found: Any = state.value if isinstance(state, fx.Found) else None
        self._truth.partitions[request.partition].checkpointed(request.slot, body[0], found)
        return fx.StoreAnswer.WON

    def restore(self, partition: int, op: Op) -> None:
        """Begin *partition* with a checkpoint from elsewhere, which has *op*."""
        self.checkpoints[partition][ORIGIN] = None, (op,)
        self._truth.partitions[partition].restored(op)

    def get_checkpoint(self, request: fx.GetCheckpoint) -> fx.Reply:
        """Return the operations of a checkpoint and of all that it builds on."""
        return self._state(request.partition, request.slot)

    def _state(self, partition: int, slot: Slot | None) -> fx.Reply:
        kept = self.checkpoints[partition]
        parts: list[tuple[Op, ...]] = []
        while slot is not None:
            why = self._unreadable.get((id(kept), slot))
            if why is not None:
                return fx.Unreadable(why)
            if slot not in kept:
                return fx.GoneCheckpoint(slot)
            slot, part = kept[slot]
            parts.append(part)
        return fx.Found([op for part in reversed(parts) for op in part])

    def delete_slots(self, journal: str, slots: Iterable[int]) -> None:
        """Delete *slots* of *journal*."""
        for slot in slots:
            record = self._delete(self.slots[journal], slot)
            if record is not None:
                self._truth.deleted(journal, slot, record)

    def delete_marks(self, journal: str, marks: Iterable[int]) -> None:
        """Delete *marks* of *journal*."""
        for slot in marks:
            if self._delete(self.marks[journal], slot) is not None:
                self._truth.mark_deleted(journal, slot)

    def delete_checkpoints(self, partition: int, slots: Iterable[Slot]) -> None:
        """Delete the checkpoints of *partition* at *slots*."""
        for slot in slots:
            if self._delete(self.checkpoints[partition], slot) is not None:
                self._truth.partitions[partition].checkpoint_deleted(slot)

    def _delete(self, kept: Kept, key: object) -> Any:  # noqa: ANN401 - of several kinds
        """Delete what is kept there; return it as it was before any damage, or None."""
        place = id(kept), key
        self._unreadable.pop(place, None)
        record = kept.pop(key, None)
        if record is None:
            return None
        _, whole = self._whole.pop(place, (kept, record))
        return whole

    # Damage, and its repair by an operator.

    def flip(self) -> None:
        """Flip a bit of some record, if there is one."""
        kept, key = self._some([*self.slots.values(), *self.marks.values(), *self.claims.values()])
        if key is None:
            return
        record = kept[key]
        # As a store keeps it: with the checksum, which has to notice the flip.
        name = f"{type(record).__name__}/{key}"
        value = bytearray(wrap(_packed(record), name))
        place = self._rng.randrange(8 * len(value))
        value[place // 8] ^= 1 << place % 8
        try:
            # This fails unless nothing looks at the checksum, as in one of the broken variants.
            self._harm(kept, key)
            kept[key] = _unpacked(unwrap(bytes(value), name))
        except (RingpopError, ValueError, TypeError) as error:
            self._unreadable[id(kept), key] = f"{type(error).__name__}: {error}"

    def _some(self, among: Sequence[Kept], newest: bool = False) -> tuple[Kept, Any]:  # noqa: FBT001, FBT002
        """Choose something that is kept; the key is None if there is nothing."""
        filled = [kept for kept in among if kept]
        if not filled:
            return {}, None
        kept = self._rng.choice(filled)
        return kept, max(kept) if newest else self._rng.choice(sorted(kept))

    def _harm(self, kept: Kept, key: object) -> None:
        # It may be damaged twice, and only the first copy is whole.
        self._whole.setdefault((id(kept), key), (kept, kept[key]))
        self._truth.harmed = True

    def spoil(self) -> None:
        """Damage some checkpoint, if there is one."""
        kept, key = self._some([*self.checkpoints.values()])
        if key is not None:
            self._harm(kept, key)
            self._unreadable[id(kept), key] = "a flipped bit"

    def lose_checkpoint(self, *, newest: bool = False) -> None:
        """Lose the *newest* checkpoint of a partition or some other, if there is one."""
        # Before there is a claim, nothing shows that there was a checkpoint.
        kept, key = self._some(
            [kept for number, kept in self.checkpoints.items() if self.claims[number]], newest
        )
        if key is not None:
            self._harm(kept, key)
            del kept[key]

    def lose(self) -> None:
        """Lose a group that others follow, if there is one."""
        # Without claims and seals no node is fenced, and a lost mark is only missed with what it
        # covers; so everything relies on a store that keeps these. The loss of the last record
        # would leave no trace.
        followed = [
            {slot: slots for slot in slots if slot < max(slots) and isinstance(slots[slot], Group)}
            for slots in self.slots.values()
        ]
        found, slot = self._some(followed)
        if slot is not None:
            self._harm(found[slot], slot)
            del found[slot][slot]

    def repair(self) -> None:
        """Restore what was lost or damaged, unless it was deleted meanwhile."""
        for (_, key), (kept, whole) in self._whole.items():
            kept[key] = whole
        self._whole.clear()
        self._unreadable.clear()


_KINDS: Final[dict[bytes, Any]] = {
    kind.__name__[:1].encode(): kind for kind in (Claim, Group, Mark, Seal)
}


def _packed(record: Claim | Group | Mark | Seal) -> bytes:
    return type(record).__name__[:1].encode() + encode(record)


def _unpacked(payload: bytes) -> Any:  # noqa: ANN401 - a record of any kind
    kind = _KINDS.get(payload[:1])
    if kind is None:
        raise ValueError("no record")
    record = decode(kind, payload[1:])
    if isinstance(record, Group):
        entries = tuple(replace(entry, body=_body(entry)) for entry in record.entries)
        return Group(entries)
    return record


def _body(entry: Entry) -> object:
    plain: Any = entry.body
    if isinstance(plain[0], str):
        return Release(plain[0])
    return tuple((client, number) for client, number in plain)
