"""The log of one partition at one node, as a pure state machine.

The ring says which node should own a partition, the log says which node does. The argument uses no
clock, no leader and no lease. The only arbiter is a store that puts each key once.

```
IDLE ─► REPLAYING ─► SEALING ─► CLAIMING ─► ONLINE ─► RELEASING ─► IDLE   (and fenced: IDLE)
             └───────(sealed)──────▲
```

- acquire: read the log (`replay.py` says what can be believed). If its end is not sealed and the
  owner may be replaced, put a seal there. List again, because the seal must be beyond doubt. Put
  the claim of the next epoch. The node whose put wins is the only owner that this epoch ever has.
- commit: put data at the next slot. If the put won, apply the data. If the slot is taken, another
  node sealed the epoch and this node is fenced. If the outcome is open, put the same value at the
  same slot again until the outcome is known. Our nonce in the slot means that an earlier attempt
  won. A seal there means that no attempt won, if the seal is beyond doubt.
- read: the fold is the whole log if the next slot is absent, because another owner's epoch begins
  after a seal in that very slot.
- release: put a seal at the next slot. The successor need not be asked.
- checkpoint: put it, then put its mark, and only then delete what it covers (`collector.py`).
- If a record is lost or cannot be read, the acquisition ends with `Damaged`, and nothing is put.

Why nothing is lost and no other node writes:

1. An epoch has one owner: a claim is never deleted, so only one put of it ever wins.
2. An epoch ends at its seal, even for an owner that does not know about the seal: a seal is never
   deleted, so a put of that owner into this slot never wins, however late it is.
3. An owner began with the whole log: it claimed after a list that left no doubt about the seal.
   So there was no checkpoint at or beyond the seal, so no data had been deleted from there, so
   the seal is the first record of its slot, and by 2 nothing follows it.
4. Whatever was acknowledged is in the log before the seal. So by 3 the next owner has it.

`docs/slotlog.md` has the whole argument, and describes the checker that searches it for holes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar, cast

from ringpop_py.slotlog import effects as fx
from ringpop_py.slotlog.collector import Collector, leftovers
from ringpop_py.slotlog.replay import Fold, Replay
from ringpop_py.slotlog.slots import ORIGIN, Claim, Data, Record, Seal, Slot
from ringpop_py.values.declared import replace

if TYPE_CHECKING:
    from collections.abc import Collection

MayTake = Callable[[Claim, int], bool]
Effects = list[fx.Effect]
R = TypeVar("R", bound=fx.Request)
_Handler = Callable[[R, fx.Reply], Effects]
_AnyHandler = _Handler[fx.Request]


class Stage(Enum):
    """What a node is doing with a partition."""

    IDLE = auto()
    REPLAYING = auto()
    SEALING = auto()
    CLAIMING = auto()
    ONLINE = auto()
    RELEASING = auto()


class SlotLog:
    """One partition's log at the node *node_name*; only this object calls *fold*.

    *make_nonce* returns a text that no process anywhere has used before. Each method returns the
    effects that the driver must carry out, in order. Requests are answered through `answered`; the
    answer to a request of an earlier acquisition is ignored.
    """

    def __init__(self, node_name: str, fold: Fold, make_nonce: Callable[[], str]) -> None:
        self.node_name = node_name
        self.stage = Stage.IDLE
        self._make_nonce = make_nonce
        self._replay = Replay(fold)
        self._nonce = ""
        self._may_take: MayTake | None = None
        self._ids = 0
        self._list_attempts = 0
        self._lists_left = 0
        self._open: dict[int, tuple[fx.Request, _AnyHandler]] = {}
        self._collecting: dict[int, tuple[Collector, fx.Request]] = {}
        self._collector: Collector | None = None
        self._committing: fx.PutSlot | None = None
        self._fence: Seal | None = None
        self._reading: fx.GetSlot | None = None

    # What this node knows.

    @property
    def epoch(self) -> int:
        """The epoch of `position`; while ONLINE, the epoch that this node owns."""
        return self._replay.position.epoch

    @property
    def position(self) -> Slot:
        """The last slot that was folded. The fold is the log up to here."""
        return self._replay.position

    @property
    def next_slot(self) -> Slot:
        """The slot after `position`."""
        return self._replay.next_slot

    @property
    def holder(self) -> Claim | None:
        """The last claim in the log up to `position`."""
        return self._replay.holder

    @property
    def sealed_to(self) -> str | None:
        """The node that the seal at `position` names; None if there is no seal."""
        return self._replay.seal.to if self._replay.seal is not None else None

    @property
    def checkpointing(self) -> bool:
        """Whether a checkpoint of this epoch is being put, or what it replaces is being deleted."""
        return self._collector is not None and self._collector.busy

    # Following and acquiring.

    def follow(self, *, miss_nothing: bool = False) -> Effects:
        """Read on to the present end, and write nothing. It ends with `Followed` or `Damaged`.

        With *miss_nothing*, the fold then has everything acknowledged before this call.
        """
        assert self.stage is Stage.IDLE
        self._may_take = None
        # One list may miss something: between its looks at the checkpoints and at the slots, a
        # checkpoint may be put and the slots before it deleted, so that the list shows neither. But
        # that checkpoint was there before a second list began, and so the second list shows it.
        self._lists_left = 1 if miss_nothing else 0
        return self._list()

    def acquire(self, may_take: MayTake) -> Effects:
        """Become the owner. It ends with `Acquired`, `NotAcquired` or `Damaged`.

        *may_take* decides whether the owner that made a claim may be replaced although it did not
        seal its epoch. It is not called for a claim under this node's own name, which is from one
        of its former lives. `acquire` may be called while following.
        """
        assert self.stage in {Stage.IDLE, Stage.REPLAYING}
        self._may_take = may_take
        # A new nonce for each acquisition: an owner must not take a record of an earlier one, which
        # a late put may still write, for its own.
        self._nonce = self._make_nonce()
        return [] if self.stage is Stage.REPLAYING else self._list()

    def drop(self) -> Effects:
        """Forget everything and reset the fold. Open puts may still take effect in the log."""
        self.stage = Stage.IDLE
        self._open.clear()
        self._committing = None
        self._reading = None
        self._collector = None  # its checkpoint is finished nevertheless: see `_collecting`
        self._replay.forget()
        return []

    def _list(self, *, useless: bool = False) -> Effects:
        """List the log; *useless*: the list before this one did not help, so the driver waits."""
        self.stage = Stage.REPLAYING
        self._list_attempts = self._list_attempts + 1 if useless else 0
        return [self._ask(fx.ListLog(self._new_id(), self._list_attempts), self._listed)]

    def _listed(self, request: fx.ListLog, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.Listed):
            return self._again(request, self._listed)
        lost = self._replay.lost(reply)
        if lost is not None:
            return self._stop(lost)
        checkpoint = self._replay.listed(reply)
        if checkpoint is not None:
            return [self._ask(fx.GetCheckpoint(self._new_id(), checkpoint), self._restored)]
        return self._go_on()

    def _restored(self, request: fx.GetCheckpoint, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            self._replay.restored(reply.value)
            return self._go_on()
        if isinstance(reply, fx.GoneCheckpoint):
            self._replay.not_restored(reply)
            return self._list(useless=True)
        if isinstance(reply, fx.Unreadable):
            return self._stop(reply)
        return self._again(request, self._restored)

    def _go_on(self) -> Effects:
        """Read on; decide at the end of what was listed."""
        slots = self._replay.to_ask()
        if slots:
            return [self._ask(fx.GetSlot(self._new_id(), slot), self._read_on) for slot in slots]
        if self._replay.reading:
            return []
        if self._replay.torn or self._replay.doubtful:
            return self._list(useless=self._replay.torn)
        return self._at_end()

    def _read_on(self, request: fx.GetSlot, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            self._replay.read(request.slot, cast(Record, reply.value))
        elif reply is fx.StoreAnswer.ABSENT:
            self._replay.read(request.slot, None)
        elif isinstance(reply, fx.Unreadable):
            return self._stop(reply)
        else:
            return self._again(request, self._read_on)
        return self._go_on()

    def _stop(self, what: fx.Unreadable | fx.Gone) -> Effects:
        """Report that the log cannot be read. After a repair, the next try starts from nothing."""
        self.drop()
        return [fx.Damaged(what)]

    def _at_end(self) -> Effects:
        """Decide what comes next: the fold is all that was listed, and no seal is in doubt."""
        holder, position = self.holder, self.position
        if self._may_take is None:
            if self._lists_left:
                self._lists_left -= 1
                return self._list()
            self.stage = Stage.IDLE
            return [fx.Followed(position, holder, self.sealed_to)]
        if holder is None or self._replay.seal is not None:
            return self._claim()
        if holder.nonce == self._nonce:  # our put won, but its reply was lost
            return self._online()
        if holder.owner == self.node_name or self._may_take(holder, position.epoch):
            return self._seal()
        self.stage = Stage.IDLE
        return [fx.NotAcquired(holder, position)]

    def _seal(self) -> Effects:
        self.stage = Stage.SEALING
        return [self._put(Seal(self.node_name, self._nonce), self._sealed)]

    def _sealed(self, request: fx.PutSlot, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON:
            self._replay.take(request.slot, request.record)
            return self._list()  # in doubt, like any other seal
        if reply is fx.StoreAnswer.TAKEN:  # by the owner, or by another seal, possibly ours
            return self._list()
        return self._again(request, self._sealed)

    def _claim(self) -> Effects:
        self.stage = Stage.CLAIMING
        return [self._put(Claim(self.node_name, self._nonce), self._claimed)]

    def _claimed(self, request: fx.PutSlot, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON:
            self._replay.take(request.slot, request.record)
            return self._online()
        if reply is fx.StoreAnswer.TAKEN:  # by another claim, or by ours
            return self._list()
        return self._again(request, self._claimed)

    def _online(self) -> Effects:
        replay = self._replay
        log = replay.listed_last
        assert log is not None
        self.stage = Stage.ONLINE
        rest = leftovers(log.slots, replay.base)
        self._collector = Collector(self.epoch, replay.data, rest, log)
        replay.listed_last = None
        acquired: Effects = [fx.Acquired(self.epoch)]
        if replay.base is not None and replay.base > replay.marked:
            # The node that put this checkpoint died before it put the mark, was of the first
            # version, or restored the keyspace. Nothing depends on the outcome of this put.
            acquired.append(self._ask(fx.PutMark(self._new_id(), replay.base), self._base_marked))
        return acquired

    def _base_marked(self, _request: fx.PutMark, _reply: fx.Reply) -> Effects:
        return []

    # The owner.

    def commit(self, body: object) -> Effects:
        """Write *body*. It ends with `Committed`, `NotCommitted` or `Fenced`. One at a time."""
        assert self.stage is Stage.ONLINE
        assert self._committing is None, "one commit at a time"
        request = self._put(Data(body, self._nonce), self._commit_put)
        self._committing = request
        return [request]

    def _commit_put(self, request: fx.PutSlot, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON:
            return self._committed(request)
        if reply is fx.StoreAnswer.TAKEN:
            return [self._ask(fx.GetSlot(self._new_id(), request.slot), self._commit_met)]
        # "No room" is only true of this attempt. An earlier one may still take effect.
        if reply is fx.StoreAnswer.NO_ROOM and request.attempt == 0:
            self._committing = None
            return [fx.NotCommitted(request.slot)]
        return self._again(request, self._commit_put)

    def _commit_met(self, request: fx.GetSlot, reply: fx.Reply) -> Effects:
        assert self._committing is not None
        if isinstance(reply, fx.Found):
            if self._is_ours(reply.value, Data):
                return self._committed(self._committing)
            return self._fenced(reply.value)
        if reply is fx.StoreAnswer.ABSENT:  # ours; another owner has folded and deleted it
            return self._again(self._committing, self._commit_put)
        return self._again(request, self._commit_met)

    def _committed(self, request: fx.PutSlot) -> Effects:
        self._committing = None
        self._replay.take(request.slot, request.record)
        effects: Effects = [fx.Committed(request.slot)]
        if self._reading is not None:
            # The read was requested before this commit won, and so the commit proves it. Its own
            # answer must not count any more: the slot may be deleted by then, and hold a lie.
            del self._open[self._reading.id]
            self._reading = None
            effects.append(fx.MayRead())
        return effects

    def read(self) -> Effects:
        """Ask whether the fold is the whole log. It ends with `MayRead`, `ReadFailed` or `Fenced`.

        Not while a commit is under way: its `Committed` answers all reads requested before it. A
        commit may begin during a read, and ends the read if its outcome is known first.
        """
        assert self.stage is Stage.ONLINE
        assert self._committing is None, "a commit is under way"
        assert self._reading is None, "one question at a time is enough for all readers"
        self._reading = self._ask(fx.GetSlot(self._new_id(), self.next_slot), self._read_met)
        return [self._reading]

    def _read_met(self, _request: fx.GetSlot, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found) and not self._is_ours(reply.value, Data):
            return self._fenced(reply.value)
        # Our data is a commit that began meanwhile. Its put won, so there was no seal in its slot
        # then, and hence none when this read was requested.
        self._reading = None
        sure = isinstance(reply, fx.Found) or reply is fx.StoreAnswer.ABSENT
        return [fx.MayRead()] if sure else [fx.ReadFailed()]

    def release(self, to: str = "") -> Effects:
        """End the epoch for the successor *to*. It ends with `Released` or `Fenced`.

        Not while a commit or a read is under way.
        """
        assert self.stage is Stage.ONLINE
        assert self._committing is None, "a commit is under way"
        assert self._reading is None, "a read is under way"
        self.stage = Stage.RELEASING
        return [self._put(Seal(to, self._nonce), self._release_put)]

    def _release_put(self, request: fx.PutSlot, reply: fx.Reply) -> Effects:
        if reply is fx.StoreAnswer.WON:
            return self._released(request.slot, cast(Seal, request.record))
        if reply is fx.StoreAnswer.TAKEN:
            return [self._ask(fx.GetSlot(self._new_id(), request.slot), self._release_met)]
        return self._again(request, self._release_put)

    def _release_met(self, request: fx.GetSlot, reply: fx.Reply) -> Effects:
        if isinstance(reply, fx.Found):
            if self._is_ours(reply.value, Seal):
                return self._released(request.slot, cast(Seal, reply.value))
            return self._fenced(reply.value)
        return self._again(request, self._release_met)  # a seal is never deleted

    def _released(self, slot: Slot, seal: Seal) -> Effects:
        self.stage = Stage.IDLE
        self._collector = None
        self._replay.take(slot, seal)
        # Not in doubt, unlike an acquirer's seal: nothing was ever in an owner's next slot.
        self._replay.confirm()
        return [fx.Released(seal.to, slot)]

    def _fenced(self, met: object) -> Effects:
        """Stop owning: another node's seal is in the slot that this node wanted or looked at."""
        assert isinstance(met, Seal), f"{met!r} is in a slot that only the owner or a seal can take"
        self._open.clear()
        if self._committing is not None:
            # The seal may be a lie: our data was there, and another owner folded and deleted it.
            # This node is fenced in any case. Whether the commit is lost, only a list can tell.
            self._fence = met
            return [self._ask(fx.ListLog(self._new_id()), self._fence_listed)]
        return self._fence_off(met, commit_open=False)

    def _fence_listed(self, request: fx.ListLog, reply: fx.Reply) -> Effects:
        if not isinstance(reply, fx.Listed):
            return self._again(request, self._fence_listed)
        assert self._committing is not None
        assert self._fence is not None
        newest = max([*reply.checkpoints, *reply.marks], default=ORIGIN)
        return self._fence_off(self._fence, commit_open=newest >= self._committing.slot)

    def _fence_off(self, seal: Seal, *, commit_open: bool) -> Effects:
        self.drop()
        return [fx.Fenced(seal.to, commit_open)]

    def _is_ours(self, record: object, kind: type[Data | Seal]) -> bool:
        return isinstance(record, kind) and record.nonce == self._nonce

    # Checkpoints.

    def checkpoint(self, slot: Slot, keeps: Collection[Slot] = ()) -> Effects:
        """Put a checkpoint of the fold as it was at *slot*, mark it, and delete what it replaces.

        It ends with `CheckpointFailed`, or with `Checkpointed` and later `Collected`. All of them
        may also come after this node was fenced. Commits and reads go on meanwhile. Do not call it
        while `checkpointing`.

        Args:
            slot: a slot of the owner's own epoch, `position` or before.
            keeps: all checkpoints that this one builds on. Each must have been reported as
                `Checkpointed` to this owner in this epoch, so the first of an epoch is a full one.
        """
        assert self.stage is Stage.ONLINE
        assert self._collector is not None
        assert slot <= self.position
        self._collector.begin(slot, keeps)
        return self._collect(self._collector, fx.PutCheckpoint(self._new_id(), slot))

    def _collect(
        self, collector: Collector, request: fx.PutCheckpoint | fx.PutMark | fx.Delete
    ) -> Effects:
        self._collecting[request.id] = collector, request
        return [request]

    def _collected(self, collector: Collector, request: fx.Request, reply: fx.Reply) -> Effects:
        if isinstance(request, fx.Delete):
            failed = reply is not fx.StoreAnswer.DELETED
            return [fx.Collected(collector.deleted(failed=failed), failed)]
        if isinstance(request, fx.PutMark):
            if reply in (fx.StoreAnswer.WON, fx.StoreAnswer.TAKEN):
                delete = fx.Delete(self._new_id(), *collector.replaced())
                return self._collect(collector, delete)
            return [fx.Collected(collector.deleted(failed=True), failed=True)]
        assert isinstance(request, fx.PutCheckpoint)
        if reply is not fx.StoreAnswer.WON:
            # Not even "taken" counts: an earlier attempt may have put a checkpoint there that
            # builds on others, which would then be deleted.
            return [fx.CheckpointFailed(collector.failed())]
        if collector is self._collector:
            self._replay.base = request.slot
        mark = fx.PutMark(self._new_id(), collector.durable())
        return [fx.Checkpointed(request.slot), *self._collect(collector, mark)]

    # Requests.

    def answered(self, request_id: int, reply: fx.Reply) -> Effects:
        """Handle the *reply* to a request. Ignore a second reply, and one that comes too late."""
        if request_id in self._collecting:
            return self._collected(*self._collecting.pop(request_id), reply)
        request, handler = self._open.pop(request_id, (None, None))
        if request is None or handler is None:
            return []
        return handler(request, reply)

    def _put(self, record: Record, handler: _Handler[fx.PutSlot]) -> fx.PutSlot:
        return self._ask(fx.PutSlot(self._new_id(), self._replay.next_slot, record), handler)

    def _ask(self, request: R, handler: _Handler[R]) -> R:
        self._open[request.id] = request, cast(_AnyHandler, handler)
        return request

    def _again(self, request: R, handler: _Handler[R]) -> Effects:
        """Repeat *request*, because the store did not report its outcome."""
        assert isinstance(request, fx.PutSlot | fx.GetSlot | fx.ListLog | fx.GetCheckpoint)
        repeated = replace(request, id=self._new_id(), attempt=request.attempt + 1)
        return [self._ask(cast(R, repeated), handler)]

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids
