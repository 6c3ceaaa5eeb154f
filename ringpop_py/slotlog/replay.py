"""Reading a log in order, from its newest checkpoint on, while others write and delete.

What can be believed of what is read:

- A claim and a seal are never deleted, and slots are written once. So a claim is always what it
  was, and so is the seal that really ended its epoch.
- Data stands at a slot only if its epoch's owner put it there, and an owner puts one value at a
  slot, however often. So data is always what it was, even where a late put revived what had been
  deleted already.
- **A seal may be a lie.** Whoever reads from an old checkpoint takes a slot that was deleted for
  the end of the log, and may put a seal there. But then there is a checkpoint at that slot or a
  later one, and was before the seal. So a seal that was read is in doubt until a list that began
  after it shows no such checkpoint; if it shows one, everything is read again from there.
- An absent slot is the end of the log or was deleted. It is told apart in the same way: by putting
  a seal there, and doubting it.

What should be there and is not may have been deleted, for a checkpoint covers it; that one was in
the store before. So a list that begins afterwards shows it, or a newer one. If it does not, the
checkpoint is lost, or the record is. The same goes for a mark, which says that there is such a
checkpoint, and for a checkpoint that was listed and cannot be got.

Records are folded in only in this order and only beyond doubt, so what was folded is at every
moment the beginning of the log.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.slotlog.collector import Spans
from ringpop_py.slotlog.effects import Gone, GoneCheckpoint, GoneRecord
from ringpop_py.slotlog.slots import ORIGIN, Claim, Data, Record, Seal, Slot

if TYPE_CHECKING:
    from ringpop_py.slotlog.effects import Listed

READS_MAX: Final = 16
"""Slots that are asked for, or wait for one before them, at a time. A store may be far away."""
_NOTHING: Final = Slot(0, -1)
"""Before `ORIGIN`: not even a checkpoint there was restored."""


class Fold(Protocol):
    """What a log is folded into. It sees each body once, in order, and must not fail."""

    def reset(self) -> None:
        """Become empty."""

    def restore(self, checkpoint: Any) -> None:  # noqa: ANN401 - opaque here
        """Become what *checkpoint* says."""

    def apply(self, body: object) -> None:
        """Take in the body of the next `Data`."""


class Replay:
    """The beginning of a log, folded, and what of the rest was asked for.

    Attributes:
        holder: the last claim; None if there is none, or it was not read yet.
        seal: what ended the epoch of `holder`, if that is how far it was read.
        base: the newest checkpoint that a list has shown.
        data: slots with data that were read since the fold was empty.
        marked: the highest mark that a list has shown; before `ORIGIN` if none has.
        listed_last: the last list.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self.forget()

    def forget(self) -> None:
        """Begin anew, with an empty fold."""
        self._fold.reset()
        self.holder: Claim | None = None
        self.seal: Seal | None = None
        self.base: Slot | None = None
        self.data = Spans()
        self.marked = _NOTHING
        self.listed_last: Listed | None = None
        self._last = _NOTHING
        self._sure = _NOTHING
        self._queue: deque[Slot] = deque()
        self._asked: set[Slot] = set()
        self._found: dict[Slot, Record] = {}
        self._torn = False
        self._expected = _NOTHING
        """A checkpoint here or beyond is in the store, unless *_missed* is lost."""
        self._missed: Gone | None = None

    @property
    def position(self) -> Slot:
        """The last slot that was taken in."""
        return max(self._last, ORIGIN)

    @property
    def next_slot(self) -> Slot:
        """The slot to take in next."""
        epoch, sequence = self.position
        if epoch > 0 and self.holder is None:
            return Slot(epoch, 0)  # a checkpoint does not say who made it
        if self.seal is not None or epoch == 0:
            return Slot(epoch + 1, 0)
        return Slot(epoch, sequence + 1)

    @property
    def reading(self) -> bool:
        """Whether slots were asked for and not answered."""
        return bool(self._asked)

    @property
    def doubtful(self) -> bool:
        """The last slot is a seal, and no list has confirmed it."""
        return self.seal is not None and self._sure != self._last

    @property
    def torn(self) -> bool:
        """Something is missing where a list has shown more. Only another list can help."""
        return self._torn

    def lost(self, log: Listed) -> Gone | None:
        """What is lost, as *log* shows, which began after it was missed; None if nothing is."""
        return self._missed if self._reach(log) < self._expected else None

    def _reach(self, log: Listed) -> Slot:
        """What of the log need not be read, given *log*: its checkpoint has it, or the fold."""
        return max(log.checkpoints[-1] if log.checkpoints else _NOTHING, self._sure)

    def _expect(self, slot: Slot, missed: Gone) -> None:
        if slot > self._expected:
            self._expected, self._missed = slot, missed

    def listed(self, log: Listed) -> Slot | None:
        """Take in a list, which began when nothing was being read.

        Returns:
            A checkpoint that has to be restored, now that everything was forgotten; None if
            what was folded is the beginning of the log, and reading goes on.
        """
        newest = log.checkpoints[-1] if log.checkpoints else None
        mark = log.marks[-1] if log.marks else _NOTHING
        if mark > self._reach(log):
            # Its checkpoint was put while the list was made, or is lost: the next list tells.
            self._expect(mark, GoneCheckpoint(mark))
            self._torn = True
            return None
        if newest is not None and newest > self._sure:
            self.forget()
            self.base, self.marked, self.listed_last = newest, mark, log
            return newest
        self.base, self.marked, self.listed_last = newest, mark, log
        self.confirm()
        self._plan(log)
        return None

    def restored(self, checkpoint: object) -> None:
        """The checkpoint at `base` was got."""
        assert self.base is not None
        assert self.listed_last is not None
        self._fold.restore(checkpoint)
        self._last = self._sure = self.base
        self._plan(self.listed_last)

    def not_restored(self, missed: GoneCheckpoint) -> None:
        """The checkpoint at `base` is not whole: a newer one replaced it, or *missed* is lost."""
        base = self.base
        assert base is not None
        self.forget()
        self._expect(_after(base), missed)

    def _plan(self, log: Listed) -> None:
        """Have everything read that *log* shows after what was taken in."""
        if self._torn:
            self._torn = False
            self._found.clear()
        found = self._found
        self._queue = deque(slot for slot in log.slots if slot > self._last and slot not in found)
        if self.holder is None and self._last.epoch > 0:
            self._queue.appendleft(self.next_slot)
        self._advance()

    def confirm(self) -> None:
        """The seal is beyond doubt."""
        self._sure = self._last

    def to_ask(self) -> list[Slot]:
        """Slots to ask for now."""
        if self._torn or self.doubtful:
            return []
        if self._found and not self._asked:  # the list had what comes after the next slot, not that
            self._asked.add(self.next_slot)
            return [self.next_slot]
        slots = []
        while self._queue and len(self._asked) + len(self._found) < READS_MAX:
            slot = self._queue.popleft()
            self._asked.add(slot)
            slots.append(slot)
        return slots

    def read(self, slot: Slot, record: Record | None) -> None:
        """*slot*, which was asked for, holds *record*, or is absent."""
        self._asked.remove(slot)
        if record is None:
            self._torn = True
            self._expect(max(slot, _after(self.base)), GoneRecord(slot))
            return
        self._found[slot] = record
        self._advance()

    def _advance(self) -> None:
        while not self.doubtful and self.next_slot in self._found:
            slot = self.next_slot
            self.take(slot, self._found.pop(slot))

    def take(self, slot: Slot, record: Record) -> None:
        """Fold *record* in, which stands at the next slot."""
        assert slot == self.next_slot
        match record:
            case Claim():
                self.holder, self.seal = record, None
            case Data(body):
                self._fold.apply(body)
                self.data.add(slot)
            case Seal():
                self.seal = record
        self._last = max(self._last, slot)  # the claim of a checkpoint's epoch is before it
        if self.seal is None:
            self._sure = self._last


def _after(slot: Slot | None) -> Slot:
    """What a checkpoint that is newer than the one at *slot* is at, at least."""
    return _NOTHING if slot is None else Slot(slot.epoch, slot.sequence + 1)
