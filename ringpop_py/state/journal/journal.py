"""The journal of one node, as a pure state machine: it writes for all partitions that it holds.

- commit: put a group at the next slot. If the put won, the folds apply it. While the outcome is
  unknown, put the same group at the same slot again. If the slot is taken, look at what is there.
  Our group: an earlier attempt won, since no other node puts groups into our journal. Another
  group: a copy of this process writes our journal, and this node gives everything up.
  A seal: this node is fenced, from all its partitions. Nothing: our group was there, and was
  counted, covered and deleted by others; put it again.
- read: the folds are whole if the next slot is absent. A seal that ends the journal would stand
  there, and without a seal or a release no other node owns one of our partitions.
- release: an entry of a group, which ends the epoch of its partition.
- fenced: a journal that was sealed is over. The node takes a new name, and claims its partitions
  again with the states in memory, which it may do because nothing that counts follows the seal. So
  a node that was wrongly taken for dead is back after one put for each partition. If another node
  was faster, the partition is lost.
- checkpoint and trim: see `coverage.py`.

`recovery.py` says how a partition comes here. docs/journal.md has the whole argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import Asker, Effects
from ringpop_py.state.journal.coverage import Coverage, Holding, Snapshots
from ringpop_py.state.journal.records import Claim, Entry, Group, Release, Seal, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ringpop_py.state.journal.records import Fold


class Journal(Asker):
    """The journal that *node_name* writes; only this object calls the folds of what it holds.

    *make_name* returns a text that no process anywhere has used before. Each method returns the
    effects that the driver must carry out, in order.

    Attributes:
        name: of the present journal.
        next_slot: the lowest slot that is not known to be won. The group under way is there.
        held: the partitions that this node owns.
        ends: the slots of the seals of other journals, and of former ones of this node, that are
            known to be true.
        reading: whether a read is under way.
        trimming: whether a mark is being put, or slots are being deleted.
    """

    def __init__(self, node_name: str, make_name: Callable[[], str]) -> None:
        super().__init__()
        self.node_name = node_name
        self.name = make_name()
        self.next_slot = 1
        self.held: dict[int, Holding] = {}
        self.ends: dict[str, int] = {}
        self._make_name = make_name
        self._reclaiming: dict[int, Holding] = {}
        self._coverage = Coverage(self.name)
        self.trimming = False
        self._committing: fx.PutSlot | None = None
        self._commit_id = 0
        """The id of the request on which the commit under way depends."""
        self.reading = False
        self._read_id = 0

    def __repr__(self) -> str:
        return f"<Journal {self.name} at slot {self.next_slot} holds {sorted(self.held)}>"

    @property
    def committing(self) -> bool:
        """Whether a commit is under way."""
        return self._committing is not None

    @property
    def marked(self) -> int:
        """The slot of the last mark, below which checkpoints cover all; 0 if there is none."""
        return self._coverage.marked

    @property
    def length(self) -> int:
        """How many slots a node that takes over would have to read at most."""
        return self.next_slot - max(self.marked, 1)

    def position(self, partition: int) -> Slot:
        """Return how far the fold of a held *partition* has come: its checkpoint stands there."""
        return Slot(self.held[partition].epoch, self.next_slot - 1)

    def reclaims(self, partition: int) -> bool:
        """Whether a claim of *partition* after a fence is under way."""
        return partition in self._reclaiming

    def behind(self, partition: int) -> int:
        """Return how many slots back the oldest uncovered entry of a held *partition* is.

        0 if all are covered. A node that takes over reads at least that many slots for it.
        """
        uncovered = self.held[partition].uncovered
        return self.next_slot - uncovered[0] if uncovered else 0

    def is_bare(self, partition: int) -> bool:
        """Whether no checkpoint of a held *partition* covers its former epochs: they are kept."""
        holding = self.held[partition]
        base = 0 if holding.base is None else holding.base.epoch
        return base < holding.epoch and holding.epoch > 1

    # What is held.

    def hold(
        self,
        partition: int,
        epoch: int,
        fold: Fold,
        checkpoints: Sequence[Slot],
        uncovered: Iterable[int] = (),
    ) -> None:
        """Hold *partition*, whose *epoch* a claim of this journal opened.

        Args:
            checkpoints: those that are in the store.
            uncovered: slots of this journal with entries of this epoch that none of them covers.
        """
        assert partition not in self.held
        assert partition not in self._reclaiming
        base = checkpoints[-1] if checkpoints else None
        snapshots = Snapshots(set(checkpoints))
        self.held[partition] = Holding(epoch, fold, snapshots, base, list(uncovered))
        self._coverage.parted.pop((partition, epoch), None)  # if it had left, it is back
        self._coverage.listed(partition, checkpoints)

    def leave(self, partition: int) -> None:
        """Stop holding *partition* without a release: its state here cannot go on.

        Its epoch stays open. A recovery of this node finds it as it was, and goes on in it.
        """
        self._part(partition, self.held.pop(partition), self.next_slot)

    def _part(self, partition: int, holding: Holding, slot: int) -> None:
        first = holding.uncovered[0] if holding.uncovered else slot
        self._coverage.parted.setdefault((partition, holding.epoch), first)

    # Commits.

    def commit(self, bodies: Mapping[int, object]) -> Effects:
        """Write *bodies* of partitions that are held, as one group; a `Release` ends an epoch.

        It ends with `Committed`, `NotCommitted` or `Fenced`. Only one commit may be under way.
        """
        assert self._committing is None, "one commit at a time"
        entries = [Entry(number, self.held[number].epoch, body) for number, body in bodies.items()]
        group = Group(tuple(entries))
        request = fx.PutSlot(self._new_id(), self.name, self.next_slot, group)
        self._committing = self._ask(request, self._commit_put)
        self._commit_id = request.id
        return [request]

    def _commit_asks(self, request: fx.PutSlot | fx.GetSlot | fx.ListJournal) -> Effects:
        self._commit_id = request.id
        return [request]

    def _commit_put(self, request: fx.PutSlot, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON:
            return self._committed(request)
        if reply is fx.StoreAnswer.TAKEN:
            look = fx.GetSlot(self._new_id(), request.journal, request.slot)
            return self._commit_asks(self._ask(look, self._commit_met))
        # "No room" is only true of this attempt. An earlier one may still take effect.
        if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:
            self._committing = None
            failed: Effects = [fx.ReadFailed()] if self._end_read(asked=False) else []
            return [fx.NotCommitted(request.slot), *failed]
        (again,) = self._again(request, self._commit_put)
        assert isinstance(again, fx.PutSlot)
        return self._commit_asks(again)

    def _commit_met(self, request: fx.GetSlot, reply: fx.Reply) -> Effects:
        assert self._committing is not None
        if isinstance(reply, fx.Found):
            if reply.value == self._committing.record:
                return self._committed(self._committing)
            if isinstance(reply.value, Group):
                return self._doubled()
            return self._commit_sealed(reply.value)
        if reply is fx.StoreAnswer.ABSENT:  # ours; others have covered and deleted it
            (again,) = self._again(self._committing, self._commit_put)
        else:
            (again,) = self._again(request, self._commit_met)
        assert isinstance(again, fx.PutSlot | fx.GetSlot)
        return self._commit_asks(again)

    def _commit_sealed(self, seal: object) -> Effects:
        """Find out whether the seal in the slot of our group is true."""
        assert isinstance(seal, Seal)
        # It may be a lie: our group was there, and others have covered and deleted it. This node is
        # fenced in any case, for only a recovery covers what we have not. Whether the group counts
        # is shown by a list: a mark above the slot was put before the deletion.

        def listed(request: fx.ListJournal, reply: fx.Reply) -> Effects:
            assert self._committing is not None
            if not isinstance(reply, fx.JournalListed):
                (again,) = self._again(request, listed)
                assert isinstance(again, fx.ListJournal)
                return self._commit_asks(again)
            outcome_open = bool(reply.marks) and reply.marks[-1] > self._committing.slot
            return self._fenced(seal.by, outcome_open=outcome_open)

        look = fx.ListJournal(self._new_id(), self.name, marks_only=True)
        return self._commit_asks(self._ask(look, listed))

    def _committed(self, request: fx.PutSlot) -> Effects:
        self._committing = None
        assert isinstance(request.record, Group)
        slot, held = request.slot, self.held
        for entry in request.record.entries:
            number, body = entry.partition, entry.body
            holding = held.get(number)
            if holding is None or holding.epoch != entry.epoch:  # it has left during the commit
                self._coverage.parted.setdefault((number, entry.epoch), slot)
            elif isinstance(body, Release):
                self._part(number, held.pop(number), slot)
            else:
                holding.fold.apply(body)
                holding.uncovered.append(slot)
        self.next_slot += 1
        # A read that was requested before this commit won is proved by it. Its own answer must not
        # count any more: the slot may be deleted by then, and hold a lie.
        if self.reading:
            self._end_read()
            return [fx.Committed(request.slot), fx.MayRead()]
        return [fx.Committed(request.slot)]

    # Reads.

    def read(self) -> Effects:
        """Ask whether the folds are whole. It ends with `MayRead`, `ReadFailed` or `Fenced`.

        Not while a commit is under way: its `Committed` answers all reads requested before it. A
        commit may begin during a read, and ends the read if its outcome is known first. A read that
        is requested during another one has to wait for it and ask again.
        """
        assert self._committing is None, "a commit is under way"
        assert not self.reading, "one question at a time is enough for all readers"
        self.reading = True
        look = fx.GetSlot(self._new_id(), self.name, self.next_slot)
        self._read_id = look.id
        return [self._ask(look, self._read_met)]

    def _read_met(self, _request: fx.GetSlot, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found) and isinstance(reply.value, Seal):
            if self._committing is not None:
                return []  # the commit finds it, too, and whether it is true
            # Nothing of ours was ever in the slot, and so nothing was deleted from it.
            return self._fenced(reply.value.by, outcome_open=False)
        # Our group is a commit that began meanwhile. Its put won, so there was no seal in its slot
        # then, and hence none when this read was requested.
        if isinstance(reply, fx.Found):
            if self._committing is None or reply.value != self._committing.record:
                return self._doubled()
            sure = True
        else:
            sure = reply is fx.StoreAnswer.ABSENT
        self.reading = False
        return [fx.MayRead()] if sure else [fx.ReadFailed()]

    def _end_read(self, *, asked: bool = True) -> bool:
        """End the read under way, if there is one; unless *asked*, only if its answer has come."""
        if not self.reading or (not asked and self._read_id in self._open):
            return False
        self._open.pop(self._read_id, None)
        self.reading = False
        return True

    # Fences.

    def _doubled(self) -> Effects:
        """Give everything up: a group that is not ours stands in our next slot.

        A copy of this process, from a restored image of the machine, writes the journal, and goes
        on with it. This process acquires what it should own as any other node does, in a journal of
        its own.
        """
        return self._fenced(self.node_name, outcome_open=True)

    def _fenced(self, by: str, *, outcome_open: bool) -> Effects:
        """Leave a journal that was sealed, and claim again what it held."""
        self._open.pop(self._commit_id, None)
        self._end_read()
        self._committing = None
        former = self.name
        if not outcome_open:
            self.ends[former] = self.next_slot
        self.name = self._make_name()
        self.next_slot = 1
        self._coverage = Coverage(self.name)
        held, self.held = self.held, {}
        if outcome_open:
            for holding in held.values():
                holding.fold.reset()
            return [fx.Fenced(former, by, outcome_open, tuple(held))]
        effects: Effects = [fx.Fenced(former, by, outcome_open, ())]
        for number, holding in held.items():
            holding.uncovered.clear()
            self._reclaiming[number] = holding
            effects.append(self._reclaim(number, holding))
        return effects

    def _reclaim(self, partition: int, holding: Holding) -> fx.PutClaim:
        claim = Claim(self.node_name, self.name, self.next_slot, holding.base)
        request = fx.PutClaim(self._new_id(), partition, holding.epoch + 1, claim)
        return self._ask(request, self._reclaim_put)

    def _reclaim_put(self, request: fx.PutClaim, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON:
            return self._reclaimed(request)
        if request.attempt == 0 and reply is fx.StoreAnswer.NO_ROOM:
            # As in `Recovery`: the claim is not there, and others may be able to write theirs.
            self._reclaiming.pop(request.partition).fold.reset()
            return [fx.Lost(request.partition, "")]
        if reply is not fx.StoreAnswer.TAKEN:
            return self._again(request, self._reclaim_put)

        def met(look: fx.GetClaim, found: fx.Reply) -> Effects:
            if not isinstance(found, fx.Found):
                return self._again(look, met)  # a claim is never deleted
            assert isinstance(found.value, Claim)
            if found.value.journal == request.claim.journal:
                return self._reclaimed(request)
            self._reclaiming.pop(request.partition).fold.reset()
            return [fx.Lost(request.partition, found.value.owner)]

        return [self._ask(fx.GetClaim(self._new_id(), request.partition, request.epoch), met)]

    def _reclaimed(self, request: fx.PutClaim) -> Effects:
        number, holding = request.partition, self._reclaiming[request.partition]
        holding.epoch = request.epoch
        holding.snapshots.durable.clear()
        if request.claim.journal != self.name:  # fenced again; we wrote nothing in that epoch
            return [self._reclaim(number, holding)]
        self.held[number] = self._reclaiming.pop(number)
        return [fx.Reclaimed(number, request.epoch)]

    # Checkpoints.

    def checkpointing(self, partition: int) -> bool:
        """Whether a checkpoint of a *partition* that is held is under way."""
        return self.held[partition].snapshots.under_way is not None

    def checkpoint(self, partition: int, slot: Slot, keeps: Collection[Slot] = ()) -> Effects:
        """Put a checkpoint of the fold as it was at *slot*, and delete the older ones.

        It ends with `CheckpointFailed`, or with `Checkpointed` and later `Collected`. All of them
        may also come after the partition has left. Not while `checkpointing`.

        Args:
            slot: what `position` was in the present epoch when the snapshot was taken.
            keeps: all checkpoints that this one builds on. Each must have been reported as
                `Checkpointed` in this epoch, so the first of an epoch is a whole one.
        """
        holding = self.held[partition]
        assert slot.epoch == holding.epoch, "an owner makes checkpoints of its own epoch"
        assert slot.sequence < self.next_slot, "it has only what is known to be won"
        snapshots, coverage = holding.snapshots, self._coverage
        snapshots.begin(slot, keeps)

        def put(_request: fx.PutCheckpoint, reply: fx.Reply) -> Effects:
            if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):
                holding.base = slot
                coverage.listed(partition, [slot])
                if coverage is self._coverage:
                    rest = [at for at in holding.uncovered if at > slot.sequence]
                    holding.uncovered[:] = rest
            if reply is not fx.StoreAnswer.WON:
                # If it is taken, an earlier attempt has put one there. It covers the same slots,
                # but perhaps it builds on others: they must stay, and none may build on it.
                snapshots.under_way = None
                return [fx.CheckpointFailed(partition, slot)]
            if holding.epoch == slot.epoch:
                snapshots.durable.add(slot)
            older = fx.DeleteCheckpoints(self._new_id(), partition, snapshots.older(slot))
            return [fx.Checkpointed(partition, slot), self._ask(older, deleted)]

        def deleted(request: fx.DeleteCheckpoints, reply: fx.Reply) -> Effects:
            snapshots.under_way = None
            failed = reply is not fx.StoreAnswer.DELETED
            if not failed:
                snapshots.deleted(request.slots)
            return [fx.Collected(partition, failed)]

        return [self._ask(fx.PutCheckpoint(self._new_id(), partition, slot), put)]

    # Trimming.

    def trim(self) -> Effects:
        """Delete the slots that checkpoints cover. It ends with `Trimmed`. Not while `trimming`.

        First the checkpoints of partitions that were released are listed: only those of their later
        owners cover a release.
        """
        assert not self.trimming
        self.trimming = True
        coverage = self._coverage
        waits = coverage.waits_for(self.next_slot, self.held.values())

        def listed(request: fx.ListPartition, reply: fx.Reply) -> Effects:
            if isinstance(reply, fx.PartitionListed):
                coverage.listed(request.partition, reply.checkpoints)
            waits.discard(request.partition)
            return [] if waits else self._mark(coverage)

        if not waits:
            return self._mark(coverage)
        return [
            self._ask(fx.ListPartition(self._new_id(), number), listed) for number in sorted(waits)
        ]

    def _mark(self, coverage: Coverage) -> Effects:
        at = coverage.marked
        if coverage is self._coverage:  # otherwise others trim it
            at = coverage.mark_at(self.next_slot, self.held.values())
        if at <= max(coverage.marked, 1):
            return self._trimmed(coverage, failed=False)

        def put(request: fx.PutMark, reply: fx.Reply) -> Effects:
            if reply not in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):
                return self._trimmed(coverage, failed=True)
            slots, marks = coverage.marked_at(request.slot)
            delete = fx.DeleteSlots(self._new_id(), coverage.name, slots, marks)
            return [self._ask(delete, deleted)]

        def deleted(_request: fx.DeleteSlots, reply: fx.Reply) -> Effects:
            failed = reply is not fx.StoreAnswer.DELETED
            if not failed:
                coverage.deleted(at)
            return self._trimmed(coverage, failed=failed)

        mark = fx.PutMark(self._new_id(), coverage.name, at, coverage.mark(at))
        return [self._ask(mark, put)]

    def _trimmed(self, coverage: Coverage, *, failed: bool) -> Effects:
        self.trimming = False
        return [fx.Trimmed(coverage.name, coverage.marked, failed)]
