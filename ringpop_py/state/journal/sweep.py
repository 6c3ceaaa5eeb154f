"""Trimming a journal that its node no longer trims: the node has ended, or has taken a new one.

The slots are read in order, from the mark on, up to a hole, a seal, or the first slot in which
something is not covered by a checkpoint that was listed. `coverage.py` has the rule. Any node may
do this at any time, several nodes at the same time, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import Asker, Effects
from ringpop_py.state.journal.records import Entry, Group, Mark, Release, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sweep(Asker):
    """One sweep of *journal*. It ends with `Trimmed`; `failed` if the store did not answer.

    Attributes:
        at_end: whether a seal stands where it ended, so that another sweep would find no more.
    """

    def __init__(self, journal: str) -> None:
        super().__init__()
        self.journal = journal
        self.at_end = False
        self._slots: Sequence[int] = ()
        self._marks: Sequence[int] = ()
        self._mark = 0
        self._next = 1
        self._covered: dict[int, Slot] = {}
        self._newest: dict[int, Slot | None] = {}

    def begin(self) -> Effects:
        """Begin."""
        return [self._ask(fx.ListJournal(self._new_id(), self.journal), self._listed)]

    def _listed(self, _request: fx.ListJournal, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.JournalListed):
            return self._end(failed=True)
        self._slots, self._marks = reply.slots, reply.marks
        if not reply.marks:
            return self._read()
        self._mark = self._next = reply.marks[-1]
        return [self._ask(fx.GetMark(self._new_id(), self.journal, self._mark), self._mark_met)]

    def _mark_met(self, _request: fx.GetMark, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.Found):  # there may be a higher one by now
            return self._end(failed=True)
        assert isinstance(reply.value, Mark)
        self._covered = dict(reply.value.covered)
        return self._read()

    def _read(self) -> Effects:
        return [self._ask(fx.GetSlot(self._new_id(), self.journal, self._next), self._slot_met)]

    def _slot_met(self, _request: fx.GetSlot, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.Found) or not isinstance(reply.value, Group):
            self.at_end = isinstance(reply, fx.Found)
            return self._trim()
        return self._judge(reply.value)

    def _judge(self, group: Group) -> Effects:
        """Go on behind *group* if all of it is covered; look at checkpoints first."""
        waits = {e.partition for e in group.entries if e.partition not in self._newest}

        def listed(request: fx.ListPartition, answer: fx.Reply) -> Effects:
            known = isinstance(answer, fx.PartitionListed) and answer.checkpoints
            self._newest[request.partition] = answer.checkpoints[-1] if known else None  # type: ignore[union-attr]
            waits.discard(request.partition)
            return [] if waits else self._judge(group)

        if waits:
            return [
                self._ask(fx.ListPartition(self._new_id(), number), listed)
                for number in sorted(waits)
            ]
        if not all(map(self._is_covered, group.entries)):
            return self._trim()
        for entry in group.entries:
            newest = self._newest[entry.partition]
            assert newest is not None
            self._covered[entry.partition] = newest
        self._next += 1
        return self._read()

    def _is_covered(self, entry: Entry) -> bool:
        newest = self._newest[entry.partition]
        if newest is None:
            return False
        if isinstance(entry.body, Release):
            return newest.epoch > entry.epoch
        return newest >= Slot(entry.epoch, self._next)

    def _trim(self) -> Effects:
        if self._next <= max(self._mark, 1):
            return self._delete()
        mark = fx.PutMark(self._new_id(), self.journal, self._next, Mark(self._covered))
        return [self._ask(mark, self._marked)]

    def _marked(self, request: fx.PutMark, reply: fx.Reply) -> Effects:
        if reply not in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):
            return self._end(failed=True)
        self._mark = request.slot
        return self._delete()

    def _delete(self) -> Effects:
        slots = [slot for slot in self._slots if slot < self._mark]
        marks = [mark for mark in self._marks if mark < self._mark]
        if not slots and not marks:
            return self._end(failed=False)
        delete = fx.DeleteSlots(self._new_id(), self.journal, slots, marks)
        return [self._ask(delete, self._deleted)]

    def _deleted(self, _request: fx.DeleteSlots, reply: fx.Reply) -> Effects:
        return self._end(failed=reply is not fx.StoreAnswer.DELETED)

    def _end(self, *, failed: bool) -> Effects:
        return [fx.Trimmed(self.journal, self._mark, failed)]
