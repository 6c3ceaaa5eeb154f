"""How a partition comes to a node: read what its owners wrote, end the last epoch, claim the next.

```
IDLE ─► LISTING ─► READING ─► SEALING ─► CLAIMING ─► IDLE (the journal holds it)
           ▲__________│__________│___________│
```

1. List checkpoints and claims. Get the claims from the newest checkpoint's epoch on: the chain.
2. List the marks of the chain's journals, and get the highest of each.
3. List the checkpoints *again*, unless the marks and claims were known before, and restore the
   newest. A mark says that checkpoints were there before it; so a list that begins after the mark
   was seen shows them.
4. Read each epoch of the chain in the order of slots, from its claim or the mark on, up to its
   release, or to the seal of its journal.
5. At a hole in the newest epoch, its journal is not sealed. If the owner may not be replaced, stop.
   Otherwise put a seal there.
6. Put the claim of the next epoch until it is known, and hold the partition.

What a reader can believe:

- A group in a slot is what was always there, even if a late put revived it: the node that writes
  the journal puts one group at a slot until it knows the outcome.
- **A seal may be a lie.** A node that was overtaken takes a deleted slot for the end of the journal
  and puts a seal there. But slots are deleted below a mark only, and the mark is there before. So a
  list that begins after the seal was read decides: a mark above it means that it is a lie, and the
  reader starts over; a slot above it, that the seal stands where something was lost. The decision,
  once made, holds for good (`Journal.ends`).
- **A hole** is the end of the journal, or was deleted. Where a later claim, a later slot or our own
  memory says that something was there, it was deleted, and a list shows a mark above it; or it is
  lost. Otherwise a seal is put into the hole, and is in doubt like any other.

So an epoch is closed by what was read, and never by what was not found. A loss is noticed where
anything else implies what was there: claims, marks, checkpoints and later slots.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import Asker, Effects
from ringpop_py.state.journal.records import ORIGIN, Claim, Group, Mark, Release, Seal, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.journal.journal import Journal
    from ringpop_py.state.journal.records import Fold, Record

MayTake = Callable[[Claim, int], bool]
READS_MAX: Final = 16
"""The most slots that are read ahead: requested, or waiting for an earlier one. Reading ahead hides
the delay of a distant store; the limit bounds the memory."""
_NOTHING: Final = Slot(0, -1)
"""Before `ORIGIN`, where a restored keyspace may have a checkpoint: nothing was restored yet."""


class Stage(Enum):
    """What a recovery is doing."""

    IDLE = auto()
    LISTING = auto()
    READING = auto()
    SEALING = auto()
    CLAIMING = auto()


class Recovery(Asker):
    """One *partition* on its way to the node of *journal*; see the module.

    Once it is acquired, only the journal calls *fold*, and the recovery must not be used again.
    Each method returns the effects that the driver must carry out, in order. The answers to
    requests of an earlier try are ignored.

    Attributes:
        epoch: of the newest claim that is known; 0 if there is none.
        pursues: whether the outcome of a claim is unknown; the driver must go on until it ends.
    """

    def __init__(self, partition: int, fold: Fold, journal: Journal) -> None:
        super().__init__()
        self.partition = partition
        self.stage = Stage.IDLE
        self.epoch = 0
        self._fold = fold
        self._journal = journal
        self._claims: dict[int, Claim] = {}
        self._may_take: MayTake | None = None
        self._misses_nothing = False
        self._rounds = 0
        self._first = 1
        """The first epoch of the chain."""
        self._waits = 0
        self._listed = fx.PartitionListed((), ())
        self.pursues = False
        self._learns = False
        """Whether this round has met a claim or a mark that was not known when it began."""
        self._forget()

    def __repr__(self) -> str:
        return f"<Recovery of {self.partition} {self.stage.name} at {tuple(self.position)}>"

    def _forget(self) -> None:
        """Start over, with an empty fold."""
        self._fold.reset()
        self._checkpoints: list[Slot] = []
        self._marks: dict[str, int] = {}
        self._expected = _NOTHING
        """A checkpoint here or beyond is in the store, unless it is lost."""
        self._missed: fx.GoneRecord | fx.GoneCheckpoint | None = None
        self._restored = _NOTHING
        # The reading: of epoch `_at`, whose next slot is `_next`.
        self._at = 0
        self._next = 0
        self._closed = True  # before the first epoch
        self._uncovered: list[int] = []
        self._hole_below = 0
        """Something stood in this slot of the epoch's journal: known before it was looked at
        again."""
        self._stop_reading()

    def _stop_reading(self) -> None:
        for request_id in [
            request_id
            for request_id, (request, _) in self._open.items()
            if isinstance(request, fx.GetSlot)
        ]:
            del self._open[request_id]
        self._asked: set[int] = set()
        self._found: dict[int, Record | None] = {}
        self._window = 1

    @property
    def position(self) -> Slot:
        """The epoch that is being read, and the slot of its journal up to which it was."""
        return max(Slot(self._at, self._next - 1), ORIGIN)

    def journal_of(self, epoch: int) -> str:
        """Return the journal that the claim of *epoch* names; empty if it was not read."""
        claim = self._claims.get(epoch)
        return "" if claim is None else claim.journal

    # What the driver asks for.

    def follow(self, *, miss_nothing: bool = False) -> Effects:
        """Read on to the present end, and write nothing. It ends with `Followed` or `Damaged`.

        With *miss_nothing*, the fold then has everything acknowledged before this call.
        """
        assert self.stage is Stage.IDLE
        self._may_take, self._misses_nothing = None, miss_nothing
        return self._look()

    def acquire(self, may_take: MayTake) -> Effects:
        """Become the owner. It ends with `Acquired`, `NotAcquired` or `Damaged`.

        It reports each seal that it puts, with `Sealed`.

        *may_take* decides whether the owner that made a claim may be replaced although it did not
        release the partition. To replace it is to seal its journal, and so to take all partitions
        from it. *may_take* is not asked about a claim of this node's own name, of a former life.
        """
        assert self.stage is Stage.IDLE
        self._may_take = may_take
        return self._look()

    def drop(self) -> None:
        """Forget everything, and reset the fold. Not while `CLAIMING`.

        A claim whose outcome is unknown has to be pursued, even if the partition is no longer
        wanted here: if it took effect, this node owns the partition, and no other node could tell.
        """
        assert self.stage is not Stage.CLAIMING, "a claim is pursued; release it once it is known"
        self.stage = Stage.IDLE
        self._open.clear()
        self._forget()

    # Listing.

    def _look(self, *, useless: bool = False) -> Effects:
        """List everything; *useless*: the last round did not help, so the driver waits."""
        self.stage = Stage.LISTING
        self._stop_reading()
        self._rounds = self._rounds + 1 if useless else 0
        look = fx.ListPartition(self._new_id(), self.partition, self._rounds)
        return [self._ask(look, self._listed_first)]

    def _listed_first(self, request: fx.ListPartition, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.PartitionListed):
            return self._again(request, self._listed_first)
        self._listed, self._learns = reply, False
        newest = reply.checkpoints[-1] if reply.checkpoints else _NOTHING
        self.epoch = max([self.epoch, *reply.epochs])
        if newest.epoch > self.epoch:  # claims are listed after checkpoints, and were there before
            return self._stop(fx.GoneClaim(self.partition, newest.epoch))
        self._first = max(1, newest.epoch, self._at)
        gets = [
            self._ask(fx.GetClaim(self._new_id(), self.partition, epoch), self._claim_met)
            for epoch in range(self._first, self.epoch + 1)
            if epoch not in self._claims
        ]
        self._waits = len(gets)
        return [*gets] or self._list_marks()

    def _claim_met(self, request: fx.GetClaim, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            assert isinstance(reply.value, Claim)
            self._claims[request.epoch] = reply.value
            self._learns = True
            self._waits -= 1
            if self._waits:
                return []
            return self._list_marks()
        if reply is fx.StoreAnswer.ABSENT:
            return self._stop(fx.GoneClaim(self.partition, request.epoch))
        if isinstance(reply, fx.Unreadable):
            return self._stop(reply)
        return self._again(request, self._claim_met)

    def _list_marks(self) -> Effects:
        chain = [self._claims[epoch] for epoch in range(self._first, self.epoch + 1)]
        for claim in chain:
            if claim.base is not None:
                self._expect(claim.base)
        journals = dict.fromkeys(claim.journal for claim in chain)
        self._waits = len(journals)
        if not journals:
            return self._list_again()
        return [
            self._ask(fx.ListJournal(self._new_id(), journal, marks_only=True), self._marks_met)
            for journal in journals
        ]

    def _marks_met(self, request: fx.ListJournal, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.JournalListed):
            return self._again(request, self._marks_met)
        highest = reply.marks[-1] if reply.marks else 0
        missed = self._missed
        if isinstance(missed, fx.GoneRecord) and missed.journal == request.journal:
            if highest <= missed.slot:  # a list that began after the hole was seen
                return self._stop(missed)
            self._missed = None
        if highest == self._marks.get(request.journal, 0):
            return self._mark_known()
        look = fx.GetMark(self._new_id(), request.journal, highest)
        return [self._ask(look, self._mark_met)]

    def _mark_met(self, request: fx.GetMark, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            assert isinstance(reply.value, Mark)
            self._marks[request.journal] = request.slot
            self._learns = True
            covered = reply.value.covered.get(self.partition)
            if covered is not None:
                self._expect(covered)
            return self._mark_known()
        if reply is fx.StoreAnswer.ABSENT:  # there is a higher one by now
            look = fx.ListJournal(self._new_id(), request.journal, marks_only=True)
            return [self._ask(look, self._marks_met)]
        if isinstance(reply, fx.Unreadable):
            return self._stop(reply)
        return self._again(request, self._mark_met)

    def _mark_known(self) -> Effects:
        self._waits -= 1
        return [] if self._waits else self._list_again()

    def _expect(self, slot: Slot) -> None:
        self._expected = max(self._expected, slot)

    def _list_again(self) -> Effects:
        if not self._learns:  # the list of this round has begun after all marks were seen
            return self._judge(self._listed)
        look = fx.ListPartition(self._new_id(), self.partition)
        return [self._ask(look, self._listed_again)]

    def _listed_again(self, request: fx.ListPartition, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.PartitionListed):
            return self._again(request, self._listed_again)
        return self._judge(reply)

    def _judge(self, reply: fx.PartitionListed) -> Effects:
        """Begin with the newest checkpoint, unless the fold has more; or look again."""
        newest = reply.checkpoints[-1] if reply.checkpoints else _NOTHING
        if max(newest, self.position if self._at else _NOTHING) < self._expected:
            return self._stop(fx.GoneCheckpoint(self._expected))
        missed = self._missed
        if isinstance(missed, fx.GoneCheckpoint):
            if newest == self._restored:  # it was not replaced by a newer one
                return self._stop(missed)
            self._missed = None
        if max([newest.epoch, *reply.epochs]) > self.epoch:
            return self._look()
        if max(newest.epoch, self._at, 1) < self._first:  # the one that was listed first is lost
            return self._look(useless=True)
        self._checkpoints = list(reply.checkpoints)
        if newest == _NOTHING or (self._at and newest <= self.position):
            return self._read_on()
        # What marks have said is kept with them, since a mark that is known is not read again.
        kept = self._marks, self._expected, self._checkpoints
        self._forget()
        self._marks, self._expected, self._checkpoints = kept
        self._restored = newest
        look = fx.GetCheckpoint(self._new_id(), self.partition, newest)
        return [self._ask(look, self._restore)]

    def _restore(self, request: fx.GetCheckpoint, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            self._fold.restore(reply.value)
            self._at, slot = request.slot
            self._next = slot + 1
            self._closed = self._at not in self._claims
            return self._read_on()
        if isinstance(reply, fx.GoneCheckpoint):  # a newer one replaced it, or it is lost
            self._missed = reply
            return self._look(useless=True)
        if isinstance(reply, fx.Unreadable):
            return self._stop(reply)
        return self._again(request, self._restore)

    def _stop(self, what: fx.Unreadable | fx.Gone) -> Effects:
        """Report that the partition cannot be read. After a repair, the next try starts afresh."""
        self._rounds = 0
        self.stage, self.pursues = Stage.LISTING, False
        self.drop()
        return [fx.Damaged(self.partition, what)]

    # Reading.

    def _read_on(self) -> Effects:
        self.stage = Stage.READING
        if not self._closed:
            self._skip_to_mark()
        return self._go_on()

    def _skip_to_mark(self) -> None:
        """Go on at the mark of the journal: the fold has what stands below it for us."""
        self._next = max(self._next, self._marks.get(self._journal_read, 0))

    def _go_on(self) -> Effects:
        """Read in order as far as slots were found; decide at the end of the newest epoch."""
        while True:
            if self._closed:
                self._stop_reading()  # what was read ahead is not of this epoch, and may come late
                if self._at == self.epoch:
                    return self._at_end()
                self._enter(self._at + 1)
            if self._is_at_own_end():
                return self._at_own_end()
            if self._next not in self._found:
                return self._ask_slots()
            record = self._found.pop(self._next)
            if not isinstance(record, Group):
                return self._at_hole() if record is None else self._at_seal()
            self._take(record)

    def _enter(self, epoch: int) -> None:
        self._at, self._closed = epoch, False
        self._uncovered = []
        self._hole_below = 0
        self._next = self._claims[epoch].first
        self._skip_to_mark()

    def _take(self, group: Group) -> None:
        entry = group.entry_of(self.partition)
        if entry is not None and entry.epoch == self._at:
            if isinstance(entry.body, Release):
                self._closed = True
            else:
                self._fold.apply(entry.body)
                self._uncovered.append(self._next)
        self._next += 1

    @property
    def _claim_read(self) -> Claim:
        """The claim of the epoch that is read."""
        return self._claims[self._at]

    @property
    def _journal_read(self) -> str:
        return self._claim_read.journal

    def _ask_slots(self) -> Effects:
        journal = self._journal_read
        slot = self._next
        effects: Effects = []
        while len(self._asked) + len(self._found) < self._window:
            if slot not in self._asked and slot not in self._found:
                self._asked.add(slot)
                look = fx.GetSlot(self._new_id(), journal, slot)
                effects.append(self._ask(look, self._slot_met))
            slot += 1
        return effects

    def _slot_met(self, request: fx.GetSlot, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            assert isinstance(reply.value, Group | Seal)
            self._found[request.slot] = reply.value
            self._window = min(2 * self._window, READS_MAX)
        elif reply is fx.StoreAnswer.ABSENT:
            self._found[request.slot] = None
        elif isinstance(reply, fx.Unreadable):
            return self._stop(reply)
        else:
            return self._again(request, self._slot_met)
        self._asked.discard(request.slot)
        return self._go_on() if request.slot == self._next else []

    def _at_hole(self) -> Effects:
        """Decide at an absent slot: what stood there was deleted or lost, or the journal ends."""
        journal, slot, own = self._journal_read, self._next, self._journal
        later = any(record is not None for record in self._found.values())
        self._stop_reading()
        if self._hole_below == slot or self._at < self.epoch:
            self._missed = fx.GoneRecord(journal, slot)
            return self._look(useless=True)
        # What this node knows it may have learned after the slot was looked at.
        if later or journal in own.ends or (journal == own.name and slot < own.next_slot):
            return self._ask_hole()
        if self._may_take is None and not self._misses_nothing:
            return self._followed()
        look = fx.ListJournal(self._new_id(), journal)
        return [self._ask(look, self._listed_beyond)]

    def _is_at_own_end(self) -> bool:
        own = self._journal
        is_own = self._at == self.epoch and self._journal_read == own.name
        return is_own and self._next >= own.next_slot

    def _at_own_end(self) -> Effects:
        """Hold a partition that our own journal claimed: the outcome was unknown, or we left it.

        What is in the slot of the group under way is not read, since the journal applies that group
        to all that it holds by then.
        """
        self._stop_reading()
        if self._may_take is None:
            return self._followed()
        return self._look(useless=True) if self._is_here else self._hold()

    def _ask_hole(self) -> Effects:
        """Look again at an absent slot: it was put since, or was deleted, or is lost."""
        self._hole_below = self._next
        return self._ask_slots()

    def _listed_beyond(self, request: fx.ListJournal, reply: fx.Reply) -> Effects:
        """Decide at a hole: is it the end of the journal?"""
        if not isinstance(reply, fx.JournalListed):
            return self._again(request, self._listed_beyond)
        if reply.marks and reply.marks[-1] > self._next:
            return self._look(useless=True)
        if reply.slots and reply.slots[-1] > self._next:
            return self._ask_hole()
        # It is, or was when it was looked at.
        claim = self._claim_read
        if self._may_take is None:
            return self._followed()
        if claim.owner != self._journal.node_name and not self._may_take(claim, self.epoch):
            self.stage = Stage.IDLE
            self.pursues = False
            return [fx.NotAcquired(self.partition, self.epoch, claim, self.position)]
        self.stage = Stage.SEALING
        seal = fx.PutSlot(
            self._new_id(), request.journal, self._next, Seal(self._journal.node_name)
        )
        return [self._ask(seal, self._seal_put)]

    # The end.

    def _followed(self) -> Effects:
        self.stage = Stage.IDLE
        holder = self._claims.get(self.epoch)
        return [fx.Followed(self.partition, self.position, self.epoch, holder)]

    def _seal_put(self, request: fx.PutSlot, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Unreadable):  # the slot is known to have been won
            return self._stop(reply)
        if reply not in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):
            return self._again(request, self._seal_put)
        self.stage = Stage.READING
        told: Effects = []
        if reply is fx.StoreAnswer.WON:
            told = [fx.Sealed(self.partition, request.journal, request.slot, self._claim_read)]
        return [*told, *self._ask_slots()]  # whatever stands there now

    def _at_seal(self) -> Effects:
        journal, slot = self._journal_read, self._next

        def judge(request: fx.ListJournal, reply: fx.Reply) -> Effects:
            if not isinstance(reply, fx.JournalListed):
                return self._again(request, judge)
            if reply.marks and reply.marks[-1] > slot:  # a lie
                self._forget()
                return self._look(useless=True)
            behind = [each for each in reply.slots if each > slot]
            if behind:
                return self._look_behind(behind)
            return self._seal_true()

        if self._journal.ends.get(journal) == slot:
            return self._seal_true()
        self._found.clear()
        return [self._ask(fx.ListJournal(self._new_id(), journal), judge)]

    def _look_behind(self, slots: Sequence[int]) -> Effects:
        """Find out whether a group stands at *slots*, behind the seal: then a record was lost.

        Another seal is no sign of that. Two nodes that end a generation can put one each.
        """
        journal, slot = self._journal_read, self._next

        def met(request: fx.GetSlot, reply: fx.Reply) -> Effects:
            if isinstance(reply, fx.Found):
                if isinstance(reply.value, Group):
                    return self._stop(fx.GoneRecord(journal, slot))
                return self._look_behind(slots[1:]) if slots[1:] else self._seal_true()
            if reply is fx.StoreAnswer.ABSENT:  # it was deleted, so the seal is a lie by now
                self._forget()
                return self._look(useless=True)
            if isinstance(reply, fx.Unreadable):
                return self._stop(reply)
            return self._again(request, met)

        return [self._ask(fx.GetSlot(self._new_id(), journal, slots[0]), met)]

    def _seal_true(self) -> Effects:
        self._journal.ends[self._journal_read] = self._next
        self._closed = True
        return self._go_on()

    def _at_end(self) -> Effects:
        """Claim the next epoch, or say where the end is: the newest epoch is closed."""
        if self._may_take is None:
            return self._followed()
        if self._is_here:
            return self._look(useless=True)
        self.stage = Stage.CLAIMING
        self.pursues = True
        base = self._checkpoints[-1] if self._checkpoints else None
        journal = self._journal
        # Not a later slot: a seal may land on the group under way. A recovery that begins behind it
        # would never meet it.
        claim = Claim(journal.node_name, journal.name, journal.next_slot, base)
        put = fx.PutClaim(self._new_id(), self.partition, self.epoch + 1, claim)
        return [self._ask(put, self._claim_put)]

    def _claim_put(self, request: fx.PutClaim, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON and request.claim.journal == self._journal.name:
            self._claims[request.epoch] = request.claim
            self.epoch = self._at = request.epoch
            self._uncovered = []
            return self._hold()
        if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):
            # Another node was faster, an earlier attempt has won, or our journal was sealed.
            return self._look()
        if isinstance(reply, fx.Unreadable):  # a claim of that epoch is known to have been there
            return self._stop(reply)
        if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:
            # It is certain that the claim is not there: who cannot write claims nothing.
            self._rounds = 0
            self.stage, self.pursues = Stage.LISTING, False
            self.drop()
            return [fx.ClaimRefused(self.partition)]
        return self._again(request, self._claim_put)

    @property
    def _is_here(self) -> bool:
        """Whether the journal still has the partition, or claims it again, from a former try.

        That try was given up, and its release is on the way. Until the release is known, its state
        and ours must not both stand for the partition.
        """
        journal = self._journal
        return self.partition in journal.held or journal.reclaims(self.partition)

    def _hold(self) -> Effects:
        self.stage = Stage.IDLE
        self.pursues = False
        self._open.clear()
        self._journal.hold(
            self.partition, self.epoch, self._fold, self._checkpoints, self._uncovered
        )
        return [fx.Acquired(self.partition, self.epoch)]
