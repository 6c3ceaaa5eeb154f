"""The log of one partition at one node, as a pure state machine: who owns it, and what it says.

The ring says who should own a partition, the log says who does. There is no clock, no leader and no
lease in the argument: the only arbiter is a store that puts a key once.

```
IDLE ─► REPLAYING ─► SEALING ─► CLAIMING ─► ONLINE ─► RELEASING ─► IDLE   (and fenced: IDLE)
             └───────(sealed)──────▲
```

- acquire: read all there is (`replay.py` says what can be believed). If the end is not sealed, and
  the owner may be replaced, put a seal there. List again: the seal must be beyond doubt. Put the
  claim of the next epoch. Who wins that is the owner; nobody else will ever be, in this epoch.
- commit: put data at the next slot. Won: it is applied. Taken: there is a seal, and we are fenced.
  What is open is repeated, the same value at the same slot, until it is known; our nonce in the
  slot means that an earlier attempt won. A seal there means that none did, if it is beyond doubt.
- read: the fold is the whole log if the next slot is absent, for somebody else's epoch begins after
  a seal in that very slot.
- release: put a seal at the next slot. Nobody needs to be asked who is next.
- checkpoint: put it; then put a mark that says so; only then delete what it covers
  (`collector.py`).
- What should be there and is not, or cannot be read, ends it: `Damaged`, and nothing is put.

Why nothing is lost and nobody else writes:

1. One owner an epoch: a claim is never deleted, so one put of it ever wins.
2. An epoch ends where its seal is, also for an owner that does not know: a seal is never deleted,
   so whatever its owner puts there, however late, does not win.
3. An owner began with the whole log: it claimed after a list that had no doubt about the seal.
   So there was no checkpoint at or beyond the seal, so no data had been deleted from there, so
   the seal is the first record of its slot, and by 2 nothing follows it.
4. What is acknowledged is in the log before the seal, so by 3 whoever is next has it.

`docs/slotlog.md` has the whole story, and the checker that hunts for holes in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar, cast

from ringpop_py.slotlog.collector import Collector, leftovers
from ringpop_py.slotlog.effects import (
    Acquired,
    Checkpointed,
    CheckpointFailed,
    Collected,
    Committed,
    Damaged,
    Delete,
    Effect,
    Fenced,
    Followed,
    Found,
    GetCheckpoint,
    GetSlot,
    Gone,
    GoneCheckpoint,
    Listed,
    ListLog,
    MayRead,
    NotAcquired,
    NotCommitted,
    PutCheckpoint,
    PutMark,
    PutSlot,
    ReadFailed,
    Released,
    Reply,
    Request,
    StoreAnswer,
    Unreadable,
)
from ringpop_py.slotlog.replay import Fold, Replay
from ringpop_py.slotlog.slots import ORIGIN, Claim, Data, Record, Seal, Slot

if TYPE_CHECKING:
    from collections.abc import Collection

MayTake = Callable[[Claim], bool]
Effects = list[Effect]
R = TypeVar("R", bound=Request)
_Handler = Callable[[R, Reply], Effects]
_AnyHandler = _Handler[Request]


class Stage(Enum):
    """What a node is doing about a partition."""

    IDLE = auto()
    REPLAYING = auto()
    SEALING = auto()
    CLAIMING = auto()
    ONLINE = auto()
    RELEASING = auto()


class SlotLog:
    """One partition's log at the node *node_name*; it alone calls *fold*.

    *make_nonce* returns a text that no process in the world has used before. Each method returns
    what the driver has to do, in order; requests are answered through `answered`. What belongs to
    a former acquisition is ignored when it is answered.
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
        self._open: dict[int, tuple[Request, _AnyHandler]] = {}
        self._collecting: dict[int, tuple[Collector, Request]] = {}
        self._collector: Collector | None = None
        self._committing: PutSlot | None = None
        self._fence: Seal | None = None
        self._reading: GetSlot | None = None

    # What is known.

    @property
    def epoch(self) -> int:
        """Of `position`; while ONLINE, the epoch that this node owns."""
        return self._replay.position.epoch

    @property
    def position(self) -> Slot:
        """The last slot that was taken in. The fold is the log up to here."""
        return self._replay.position

    @property
    def next_slot(self) -> Slot:
        """The slot after `position`."""
        return self._replay.next_slot

    @property
    def base(self) -> Slot | None:
        """The newest checkpoint that is known of."""
        return self._replay.base

    @property
    def holder(self) -> Claim | None:
        """The last claim in the log up to `position`."""
        return self._replay.holder

    @property
    def sealed_to(self) -> str | None:
        """Whom the seal at `position` names; None if there is no seal."""
        return self._replay.seal.to if self._replay.seal is not None else None

    @property
    def checkpointing(self) -> bool:
        """Whether a checkpoint of this epoch is under way, or deleting what it replaces."""
        return self._collector is not None and self._collector.busy

    # Following and acquiring.

    def follow(self) -> Effects:
        """Read on to the present end, changing nothing. It ends with `Followed` or `Damaged`."""
        assert self.stage is Stage.IDLE
        self._may_take = None
        self._lists_left = 0
        return self._list()

    def copy(self) -> Effects:
        """As `follow`, for a node that reads only: it misses nothing acknowledged before this call.

        One list does not show that. Between its look at the checkpoints and its look at the slots,
        a checkpoint may come and the slots before it go, so that they are in neither. But then the
        checkpoint was there before a second list began, which shows it.
        """
        assert self.stage is Stage.IDLE
        self._may_take = None
        self._lists_left = 1
        return self._list()

    def acquire(self, may_take: MayTake) -> Effects:
        """Become the owner. It ends with `Acquired`, `NotAcquired` or `Damaged`.

        *may_take* is asked whether the owner that made a claim may be replaced, while it did not
        seal its epoch. It is not asked about claims of this node's own name, which are of its
        former lives. May be called while following.
        """
        assert self.stage in {Stage.IDLE, Stage.REPLAYING}
        self._may_take = may_take
        self._nonce = self._make_nonce()
        return [] if self.stage is Stage.REPLAYING else self._list()

    def drop(self) -> Effects:
        """Forget everything, the fold too. What is under way may still take effect in the log."""
        self.stage = Stage.IDLE
        self._open.clear()
        self._committing = None
        self._reading = None
        self._collector = None  # a checkpoint that is under way is finished nevertheless
        self._replay.forget()
        return []

    def _list(self, *, useless: bool = False) -> Effects:
        """Learn what there is; *useless*: the list before this one did not help."""
        self.stage = Stage.REPLAYING
        self._list_attempts = self._list_attempts + 1 if useless else 0
        return [self._ask(ListLog(self._new_id(), self._list_attempts), self._listed)]

    def _listed(self, request: ListLog, reply: Reply) -> Effects:
        if not isinstance(reply, Listed):
            return self._again(request, self._listed)
        lost = self._replay.lost(reply)
        if lost is not None:
            return self._stop(lost)
        checkpoint = self._replay.listed(reply)
        if checkpoint is not None:
            return [self._ask(GetCheckpoint(self._new_id(), checkpoint), self._restored)]
        return self._go_on()

    def _restored(self, request: GetCheckpoint, reply: Reply) -> Effects:
        if isinstance(reply, Found):
            self._replay.restored(reply.value)
            return self._go_on()
        if isinstance(reply, GoneCheckpoint):
            self._replay.not_restored(reply)
            return self._list(useless=True)
        if isinstance(reply, Unreadable):
            return self._stop(reply)
        return self._again(request, self._restored)

    def _go_on(self) -> Effects:
        """Read on; at the end of what was listed, decide."""
        slots = self._replay.to_ask()
        if slots:
            return [self._ask(GetSlot(self._new_id(), slot), self._read_on) for slot in slots]
        if self._replay.reading:
            return []
        if self._replay.torn or self._replay.doubtful:
            return self._list(useless=self._replay.torn)
        return self._at_end()

    def _read_on(self, request: GetSlot, reply: Reply) -> Effects:
        if isinstance(reply, Found):
            self._replay.read(request.slot, cast(Record, reply.value))
        elif reply is StoreAnswer.ABSENT:
            self._replay.read(request.slot, None)
        elif isinstance(reply, Unreadable):
            return self._stop(reply)
        else:
            return self._again(request, self._read_on)
        return self._go_on()

    def _stop(self, what: Unreadable | Gone) -> Effects:
        """The log cannot be read as it is; somebody may repair it, and then all of it is new."""
        self.drop()
        return [Damaged(what)]

    def _at_end(self) -> Effects:
        """The fold is all that was listed, and no seal is in doubt."""
        holder, position = self.holder, self.position
        if self._may_take is None:
            if self._lists_left:
                self._lists_left -= 1
                return self._list()
            self.stage = Stage.IDLE
            return [Followed(position, holder, self.sealed_to)]
        if holder is None or self._replay.seal is not None:
            return self._claim()
        if holder.nonce == self._nonce:  # our put had won, though we did not hear of it
            return self._online()
        if holder.owner == self.node_name or self._may_take(holder):
            return self._seal()
        self.stage = Stage.IDLE
        return [NotAcquired(holder, position)]

    def _seal(self) -> Effects:
        self.stage = Stage.SEALING
        return [self._put(Seal(self.node_name, self._nonce), self._sealed)]

    def _sealed(self, request: PutSlot, reply: Reply) -> Effects:
        if reply is StoreAnswer.WON:
            self._replay.take(request.slot, request.record)
            return self._list()  # in doubt, like any other seal
        if reply is StoreAnswer.TAKEN:  # by the owner or by another seal, ours perhaps
            return self._list()
        return self._again(request, self._sealed)

    def _claim(self) -> Effects:
        self.stage = Stage.CLAIMING
        return [self._put(Claim(self.node_name, self._nonce), self._claimed)]

    def _claimed(self, request: PutSlot, reply: Reply) -> Effects:
        if reply is StoreAnswer.WON:
            self._replay.take(request.slot, request.record)
            return self._online()
        if reply is StoreAnswer.TAKEN:  # by another claim, or ours
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
        acquired: Effects = [Acquired(self.epoch)]
        if replay.base is not None and replay.base > replay.marked:
            # The node that put it died before the mark, was of the first version, or restored the
            # keyspace. That the mark is put is not a condition for anything.
            acquired.append(self._ask(PutMark(self._new_id(), replay.base), self._base_marked))
        return acquired

    def _base_marked(self, _request: PutMark, _reply: Reply) -> Effects:
        return []

    # The owner.

    def commit(self, body: object) -> Effects:
        """Write *body*. It ends with `Committed`, `NotCommitted` or `Fenced`. One at a time."""
        assert self.stage is Stage.ONLINE
        assert self._committing is None, "one commit at a time"
        request = self._put(Data(body, self._nonce), self._commit_put)
        self._committing = request
        return [request]

    def _commit_put(self, request: PutSlot, reply: Reply) -> Effects:
        if reply is StoreAnswer.WON:
            return self._committed(request)
        if reply is StoreAnswer.TAKEN:
            return [self._ask(GetSlot(self._new_id(), request.slot), self._commit_met)]
        if reply is StoreAnswer.NO_ROOM and request.attempt == 0:
            self._committing = None
            return [NotCommitted(request.slot)]
        return self._again(request, self._commit_put)

    def _commit_met(self, request: GetSlot, reply: Reply) -> Effects:
        """What stands where we wanted to commit."""
        assert self._committing is not None
        if isinstance(reply, Found):
            if self._is_ours(reply.value, Data):
                return self._committed(self._committing)
            return self._fenced(reply.value)
        if reply is StoreAnswer.ABSENT:  # ours, which another owner has folded and deleted
            return self._again(self._committing, self._commit_put)
        return self._again(request, self._commit_met)

    def _committed(self, request: PutSlot) -> Effects:
        self._committing = None
        self._replay.take(request.slot, request.record)
        effects: Effects = [Committed(request.slot)]
        if self._reading is not None:
            # It was asked before this commit, which says more than the answer will: by then its
            # slot may have been deleted, and hold a lie.
            del self._open[self._reading.id]
            self._reading = None
            effects.append(MayRead())
        return effects

    def read(self) -> Effects:
        """Ask whether the fold is the whole log: `MayRead`, `ReadFailed` or `Fenced`.

        Not while a commit is under way: its `Committed` says the same to those who asked before it.
        A commit may begin while this is under way, and ends it if it is the first to be known.
        """
        assert self.stage is Stage.ONLINE
        assert self._committing is None, "a commit is under way"
        assert self._reading is None, "one question at a time is enough for all readers"
        self._reading = self._ask(GetSlot(self._new_id(), self.next_slot), self._read_met)
        return [self._reading]

    def _read_met(self, _request: GetSlot, reply: Reply) -> Effects:
        if isinstance(reply, Found) and not self._is_ours(reply.value, Data):
            return self._fenced(reply.value)
        # Ours is a commit that began meanwhile: there was no seal in its slot when it won, and so
        # none when this was asked.
        self._reading = None
        sure = isinstance(reply, Found) or reply is StoreAnswer.ABSENT
        return [MayRead()] if sure else [ReadFailed()]

    def release(self, to: str = "") -> Effects:
        """End the epoch, for *to* to go on. It ends with `Released` or `Fenced`.

        Not while a commit or a read is under way.
        """
        assert self.stage is Stage.ONLINE
        assert self._committing is None, "a commit is under way"
        assert self._reading is None, "a read is under way"
        self.stage = Stage.RELEASING
        return [self._put(Seal(to, self._nonce), self._release_put)]

    def _release_put(self, request: PutSlot, reply: Reply) -> Effects:
        if reply is StoreAnswer.WON:
            return self._released(request.slot, cast(Seal, request.record))
        if reply is StoreAnswer.TAKEN:
            return [self._ask(GetSlot(self._new_id(), request.slot), self._release_met)]
        return self._again(request, self._release_put)

    def _release_met(self, request: GetSlot, reply: Reply) -> Effects:
        if isinstance(reply, Found):
            if self._is_ours(reply.value, Seal):
                return self._released(request.slot, cast(Seal, reply.value))
            return self._fenced(reply.value)
        return self._again(request, self._release_met)  # a seal is never deleted

    def _released(self, slot: Slot, seal: Seal) -> Effects:
        self.stage = Stage.IDLE
        self._collector = None
        self._replay.take(slot, seal)
        self._replay.confirm()  # an owner's next slot was never anything before
        return [Released(seal.to, slot)]

    def _fenced(self, met: object) -> Effects:
        """A seal of another stands where this node wanted to put, or looked whether one is."""
        assert isinstance(met, Seal), f"{met!r} stands where only an owner or a seal can be"
        self._open.clear()
        if self._committing is not None:
            # The seal may be a lie: our data was there, was folded by another owner and deleted.
            # We are fenced in any case, but whether the commit is lost takes a list to know.
            self._fence = met
            return [self._ask(ListLog(self._new_id()), self._fence_listed)]
        return self._fence_off(met, commit_open=False)

    def _fence_listed(self, request: ListLog, reply: Reply) -> Effects:
        if not isinstance(reply, Listed):
            return self._again(request, self._fence_listed)
        assert self._committing is not None
        assert self._fence is not None
        newest = max([*reply.checkpoints, *reply.marks], default=ORIGIN)
        return self._fence_off(self._fence, commit_open=newest >= self._committing.slot)

    def _fence_off(self, seal: Seal, *, commit_open: bool) -> Effects:
        self.drop()
        return [Fenced(seal.to, commit_open)]

    def _is_ours(self, record: object, kind: type[Data | Seal]) -> bool:
        return isinstance(record, kind) and record.nonce == self._nonce

    # Checkpoints.

    def checkpoint(self, slot: Slot, keeps: Collection[Slot] = ()) -> Effects:
        """Put a checkpoint of the fold as it was at *slot*, mark it, delete what it replaces.

        It ends with `Checkpointed` and, later, `Collected`, or with `CheckpointFailed`; all of them
        may also come after this node was fenced. Commits and reads go on meanwhile. Not while
        `checkpointing`.

        Args:
            slot: of the owner's own epoch; `position` now or before.
            keeps: the checkpoints that this one builds on, all of them. Only such as this owner
                was told to be `Checkpointed` in this epoch: so the first of an epoch is a full one.
        """
        assert self.stage is Stage.ONLINE
        assert self._collector is not None
        assert slot <= self.position
        self._collector.begin(slot, keeps)
        return self._collect(self._collector, PutCheckpoint(self._new_id(), slot))

    def _collect(self, collector: Collector, request: PutCheckpoint | PutMark | Delete) -> Effects:
        self._collecting[request.id] = collector, request
        return [request]

    def _collected(self, collector: Collector, request: Request, reply: Reply) -> Effects:
        if isinstance(request, Delete):
            failed = reply is not StoreAnswer.DELETED
            return [Collected(collector.deleted(failed=failed), failed)]
        if isinstance(request, PutMark):
            if reply in (StoreAnswer.WON, StoreAnswer.TAKEN):
                delete = Delete(self._new_id(), *collector.replaced())
                return self._collect(collector, delete)
            return [Collected(collector.deleted(failed=True), failed=True)]
        assert isinstance(request, PutCheckpoint)
        if reply is not StoreAnswer.WON:
            # Taken, too: it may be what an earlier call left there, which builds on others.
            return [CheckpointFailed(collector.failed())]
        if collector is self._collector:
            self._replay.base = request.slot
        mark = PutMark(self._new_id(), collector.durable())
        return [Checkpointed(request.slot), *self._collect(collector, mark)]

    # Requests.

    def answered(self, request_id: int, reply: Reply) -> Effects:
        """Take in the *reply* to a request. A second one, or one that came too late, is nothing."""
        if request_id in self._collecting:
            return self._collected(*self._collecting.pop(request_id), reply)
        request, handler = self._open.pop(request_id, (None, None))
        if request is None or handler is None:
            return []
        return handler(request, reply)

    def _put(self, record: Record, handler: _Handler[PutSlot]) -> PutSlot:
        return self._ask(PutSlot(self._new_id(), self.next_slot, record), handler)

    def _ask(self, request: R, handler: _Handler[R]) -> R:
        self._open[request.id] = request, cast(_AnyHandler, handler)
        return request

    def _again(self, request: R, handler: _Handler[R]) -> Effects:
        """The same again: the store did not say what became of it."""
        assert isinstance(request, PutSlot | GetSlot | ListLog | GetCheckpoint)
        repeated = replace(request, id=self._new_id(), attempt=request.attempt + 1)
        return [self._ask(cast(R, repeated), handler)]

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids
