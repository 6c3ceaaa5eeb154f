"""Partitions of the first version of the store, in which each had a log of its own.

They are taken over one by one, when they are next claimed: their log is read and sealed as a new
owner would do it, and a whole checkpoint of its end is put. The claim that follows is of the second
version (`Heir.upgrade`). It stands where a node of the first version puts its own next claim, so
only one of the two can win, and such a node then says that it has to be upgraded.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ringpop_py.errors import StoreUnavailable
from ringpop_py.journal import effects as fx
from ringpop_py.journal.records import Claim as JournalClaim
from ringpop_py.partition.logstore import LogStore
from ringpop_py.partition.tasks import Worker
from ringpop_py.slotlog import effects as log_is
from ringpop_py.slotlog.collector import leftovers
from ringpop_py.slotlog.effects import StoreAnswer
from ringpop_py.slotlog.slotlog import Effects, SlotLog, Stage
from ringpop_py.slotlog.slots import Claim, Data, Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.journal.heir import MayTake
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.slotlog.replay import Fold
    from ringpop_py.stores.layout import KeyspaceKeys, PartitionKeys
    from ringpop_py.stores.store import Store

ATTEMPTS_MAX: Final = 100
PAUSE_S: Final = 0.005


class _Ended(log_is.Followed, frozen=True):
    """The log is read, and sealed at its position."""


class _Reader(SlotLog):
    """Acquires a log up to the claim, which is not put."""

    def _claim(self) -> Effects:
        self.stage = Stage.IDLE
        return [_Ended(self.position, self.holder, self.sealed_to)]


class Upgrader:
    """Takes over partitions of the keyspace under *keys*, for the node *node_name*."""

    def __init__(self, node_name: str, keys: KeyspaceKeys, worker: Worker) -> None:
        self._node_name = node_name
        self._keys = keys
        self._worker = worker

    async def read(
        self, number: int, state: KeyedState, may_take: MayTake
    ) -> Slot | fx.NotAcquired:
        """Make *state* that of the whole log, seal it, and put a checkpoint of its end.

        Returns:
            Where the end is; or who owns the partition and may not be replaced.

        Raises:
            StateDamaged: if the log cannot be read.
            StoreUnavailable: if the store fails.
        """
        return await self._worker.run(self.read_now, number, state, may_take)

    def read_now(self, number: int, state: KeyedState, may_take: MayTake) -> Slot | fx.NotAcquired:
        """As `read`. Blocking."""
        keys = self._keys.partition(number)
        logs = LogStore(keys, Worker(self._worker.store, 1))
        log = _Reader(self._node_name, state, logs.make_nonce)

        def may(claim: Claim, epoch: int) -> bool:
            return may_take(JournalClaim(claim.owner, "", 1), epoch)

        def reply_to(request: log_is.Request) -> log_is.Reply:
            return _reply(keys, logs, request)

        end = _run(log, log.acquire(may), reply_to, logs)
        if isinstance(end, log_is.NotAcquired):
            holder = JournalClaim(end.holder.owner, "", 1)
            return fx.NotAcquired(number, end.position.epoch, holder, end.position)
        assert isinstance(end, _Ended)
        self._put_checkpoint(number, state, end.position, logs)
        return end.position

    def _put_checkpoint(
        self, number: int, state: KeyedState, position: Slot, logs: LogStore
    ) -> None:
        """Put the checkpoint and its mark, and delete what it replaces; the seal stays."""
        from ringpop_py.partition.checkpoints import (  # noqa: PLC0415 - pyarrow takes 60 MB
            Checkpoint,
            encode_checkpoint,
        )

        keys, store = self._keys, self._worker.store
        snapshot = state.whole()
        checkpoint = Checkpoint(keys.name, keys.generation, number, position, (), snapshot)
        try:
            file = encode_checkpoint(checkpoint)
        finally:
            snapshot.entries.close()
        parts = keys.partition(number)
        # If it is there already, another node has read the same log to the same end.
        store.put_if_absent(parts.checkpoint(position), file)
        store.put_if_absent(parts.mark(position), b"")
        listed = logs.perform_now(log_is.ListLog(0))
        if isinstance(listed, log_is.Listed):
            before = Slot(position.epoch, position.sequence - 1)
            older = [slot for slot in listed.checkpoints if slot < position]
            marks = [slot for slot in listed.marks if slot < position]
            slots = leftovers([s for s in listed.slots if s != position], before)
            logs.perform_now(log_is.Delete(0, slots, tuple(older), tuple(marks)))


def _run(
    log: SlotLog,
    effects: Effects,
    reply_to: Callable[[log_is.Request], log_is.Reply],
    logs: LogStore,
) -> log_is.Fact:
    """Carry out *effects* and what follows; return the fact with which it ends."""
    waiting = deque(effects)
    while True:
        effect = waiting.popleft()
        if isinstance(effect, log_is.Request):
            waiting.extend(log.answered(effect.id, reply_to(effect)))
        elif isinstance(effect, log_is.Damaged):
            raise logs.error_of(effect)
        else:
            return effect


def _reply(keys: PartitionKeys, logs: LogStore, request: log_is.Request) -> log_is.Reply:
    attempt = getattr(request, "attempt", 0)
    if attempt > ATTEMPTS_MAX:
        raise StoreUnavailable(
            f"{keys.root} changes too fast to be read: {ATTEMPTS_MAX} attempts; retry later"
        )
    if attempt:
        time.sleep(PAUSE_S)
    reply: log_is.Reply = logs.perform_now(request)
    if reply in (StoreAnswer.FAILED, StoreAnswer.NO_ROOM):
        assert logs.trouble is not None
        raise type(logs.trouble)(str(logs.trouble))  # a new one: the log store keeps the first
    return reply


class _Nothing:
    """A fold for reading a log whose state does not matter."""

    def reset(self) -> None: ...

    def restore(self, checkpoint: object) -> None: ...

    def apply(self, body: object) -> None: ...


def fence_first(owner: str, store: Store, keys: PartitionKeys) -> None:
    """End the log under *keys*: a former owner can no longer commit. Blocking.

    Only the end of the log is read, so that even one that cannot be read as a whole can be ended.
    Raises StoreUnavailable if the store fails.
    """
    logs = LogStore(keys, Worker(store, 1))
    fold: Fold = _Nothing()
    log = SlotLog(owner, fold, logs.make_nonce)

    def reply_to(request: log_is.Request) -> log_is.Reply:
        if isinstance(request, log_is.GetCheckpoint):
            return log_is.Found(None)  # its content does not matter
        return _without_state(request, _reply(keys, logs, request))

    _run(log, log.acquire(lambda *_: True), reply_to, logs)


def _without_state(request: log_is.Request, reply: log_is.Reply) -> log_is.Reply:
    """Return *reply*, as if a checkpoint were just before the end, and nothing were damaged."""
    match reply:
        case log_is.Listed(slots, checkpoints, marks) if slots:
            last = slots[-1]
            before = Slot(last.epoch, max(0, last.sequence - 1))
            return log_is.Listed(slots, sorted({*checkpoints, *marks, before}))
        case log_is.Unreadable() | StoreAnswer.ABSENT if (
            isinstance(request, log_is.GetSlot) and request.slot.sequence == 0
        ):
            return log_is.Found(Claim("", ""))
        case log_is.Unreadable():
            # This is data, or a seal. A seal is put behind it, and the next claim. If it was data,
            # our seal ends the epoch of an owner that may still be there. If it was a seal, our
            # seal is in the slot where another owner would have gone on.
            return log_is.Found(Data(None, ""))
        case _:
            return reply
