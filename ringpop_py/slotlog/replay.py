"""Reading a log in order, from its newest checkpoint on, while other nodes write and delete.

What a reader can believe:

- Claims and seals are never deleted, and each slot is written once. So a claim is always what it
  was, and so is the seal that really ended its epoch.
- Data is in a slot only if the owner of the epoch put it there, and an owner puts only one value
  into a slot. So data is always what it was, even if a late put revived a deleted record.
- **A seal may be a lie.** A node that reads from an old checkpoint takes a deleted slot for the end
  of the log, and may put a seal there. But then a checkpoint at that slot or beyond was in the
  store before the seal. So a seal is in doubt until a list that began after the seal was read shows
  no such checkpoint. If the list shows one, the reader starts over from it.
- An absent slot is the end of the log or was deleted. The same test decides: put a seal there, and
  doubt it.

A record that should exist and does not may have been deleted because a checkpoint covers it. That
checkpoint was in the store before the deletion, so a list that begins afterwards shows it or a
newer one. If it does not, the checkpoint or the record is lost. The same holds for a mark, which
says that there is such a checkpoint, and for a checkpoint that was listed and is then absent.

Records are folded only in this order and only beyond doubt. So at every moment the fold is a
beginning of the log.
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
"""The most slots that are read ahead: requested, or waiting for an earlier one. Reading ahead hides
the delay of a distant store; the limit bounds the memory."""
_NOTHING: Final = Slot(0, -1)
"""Before `ORIGIN`, where a restored keyspace may have a checkpoint: nothing was restored yet."""


class Fold(Protocol):
    """What a log is folded into. It sees each body once, in order, and must not fail."""

    def reset(self) -> None:
        """Become empty."""

    def restore(self, checkpoint: Any) -> None:  # noqa: ANN401 - opaque here
        """Replace the state by that of *checkpoint*."""

    def apply(self, body: object) -> None:
        """Apply the body of the next `Data`."""


class Replay:
    """The part of a log that was folded, and what was requested of the rest.

    Attributes:
        holder: the last claim; None if there is none, or if it was not read yet.
        seal: the seal of the epoch of `holder`, if it was read.
        base: the newest checkpoint that a list has shown.
        data: slots with data that were read since the fold was empty.
        marked: the highest mark that a list has shown; before `ORIGIN` if there was none.
        listed_last: the last list.
        torn: whether something is absent that a list implies. Only another list can help.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self.forget()

    def forget(self) -> None:
        """Start over, with an empty fold."""
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
        self.torn = False
        # A checkpoint at this slot or beyond is in the store, unless what was missed is lost.
        self._expected = _NOTHING
        self._missed: Gone | None = None

    @property
    def position(self) -> Slot:
        """The last slot that was folded."""
        return max(self._last, ORIGIN)

    @property
    def next_slot(self) -> Slot:
        """The slot to fold next."""
        epoch, sequence = max(self._last, ORIGIN)  # `position`: each commit asks
        if epoch > 0 and self.holder is None:
            return Slot(epoch, 0)  # a checkpoint does not name the owner of its epoch
        if self.seal is not None or epoch == 0:
            return Slot(epoch + 1, 0)
        return Slot(epoch, sequence + 1)

    @property
    def reading(self) -> bool:
        """Whether slots were requested and are not answered yet."""
        return bool(self._asked)

    @property
    def doubtful(self) -> bool:
        """Whether the last slot is a seal that no list has confirmed."""
        return self.seal is not None and self._sure != self._last

    def lost(self, log: Listed) -> Gone | None:
        """Return what is lost by *log*, a list that began after the loss was seen; None if not."""
        return self._missed if self._reach(log) < self._expected else None

    def _reach(self, log: Listed) -> Slot:
        """Return the last slot that need not be read: *log* has its checkpoint, or it is folded."""
        return max(log.checkpoints[-1] if log.checkpoints else _NOTHING, self._sure)

    def _expect(self, slot: Slot, missed: Gone) -> None:
        if slot > self._expected:
            self._expected, self._missed = slot, missed

    def listed(self, log: Listed) -> Slot | None:
        """Use a new list, which began when no read was under way.

        Returns:
            The checkpoint to restore, after everything was forgotten. None if the fold is a
            beginning of the log, and reading goes on.
        """
        newest = log.checkpoints[-1] if log.checkpoints else None
        mark = log.marks[-1] if log.marks else _NOTHING
        if mark > self._reach(log):
            # The checkpoint of this mark was put while the list was made, or it is lost. The next
            # list decides which, since it begins after the mark was seen.
            self._expect(mark, GoneCheckpoint(mark))
            self.torn = True
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
        """Restore the fold from the checkpoint at `base`."""
        assert self.base is not None
        assert self.listed_last is not None
        self._fold.restore(checkpoint)
        self._last = self._sure = self.base
        self._plan(self.listed_last)

    def not_restored(self, missed: GoneCheckpoint) -> None:
        """Note that `base` is not whole: a newer checkpoint replaced it, or *missed* is lost."""
        base = self.base
        assert base is not None
        self.forget()
        self._expect(_after(base), missed)

    def _plan(self, log: Listed) -> None:
        if self.torn:
            self.torn = False
            self._found.clear()
        found = self._found
        self._queue = deque(slot for slot in log.slots if slot > self._last and slot not in found)
        if self.holder is None and self._last.epoch > 0:
            self._queue.appendleft(self.next_slot)
        self._advance()

    def confirm(self) -> None:
        """Note that the last slot is beyond doubt."""
        self._sure = self._last

    def to_ask(self) -> list[Slot]:
        """Return the slots to request now."""
        if self.torn or self.doubtful:
            return []
        # Later slots were found, but the list left out the next one: look whether it is absent.
        if self._found and not self._asked:
            self._asked.add(self.next_slot)
            return [self.next_slot]
        slots = []
        while self._queue and len(self._asked) + len(self._found) < READS_MAX:
            slot = self._queue.popleft()
            self._asked.add(slot)
            slots.append(slot)
        return slots

    def read(self, slot: Slot, record: Record | None) -> None:
        """Note that *slot*, which was requested, holds *record*, or is absent."""
        self._asked.remove(slot)
        if record is None:
            self.torn = True
            # The claim of the epoch of `base` is before `base`, which does not explain its absence.
            self._expect(max(slot, _after(self.base)), GoneRecord(slot))
            return
        self._found[slot] = record
        self._advance()

    def _advance(self) -> None:
        while not self.doubtful and self.next_slot in self._found:
            slot = self.next_slot
            self.take(slot, self._found.pop(slot))

    def take(self, slot: Slot, record: Record) -> None:
        """Fold *record*, which is in the next slot."""
        assert slot == self.next_slot
        match record:
            case Claim():
                self.holder, self.seal = record, None
            case Data(body):
                self._fold.apply(body)
                self.data.add(slot)
            case Seal():
                self.seal = record
        # Not simply the slot: after a restore, the claim of the checkpoint's epoch is read late.
        self._last = max(self._last, slot)
        if self.seal is None:
            self._sure = self._last


def _after(slot: Slot | None) -> Slot:
    """Return the lowest slot that a newer checkpoint than the one at *slot* can have."""
    return _NOTHING if slot is None else Slot(slot.epoch, slot.sequence + 1)
