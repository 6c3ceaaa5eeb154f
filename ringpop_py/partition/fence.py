"""Ending a partition's log for good, so that no node acknowledges anything in it any more.

The mark of a dropped generation reaches only nodes that can receive gossip. An owner that is cut
off from all others, but not from the store, does not learn of it. So the node that drops the
keyspace also takes each partition, as a new owner would: the log then refuses the old owner's
commits. No node takes the partition back, because a node that has just acquired one looks for the
mark before it serves.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ringpop_py.errors import StoreUnavailable
from ringpop_py.partition.logstore import LogStore
from ringpop_py.partition.tasks import Worker, in_parallel
from ringpop_py.slotlog import effects as log_is
from ringpop_py.slotlog.effects import StoreAnswer
from ringpop_py.slotlog.slotlog import SlotLog
from ringpop_py.slotlog.slots import Claim, Data, Slot

if TYPE_CHECKING:
    from ringpop_py.slotlog.replay import Fold
    from ringpop_py.stores.layout import KeyspaceKeys, PartitionKeys
    from ringpop_py.stores.store import Store

FENCE: Final = "(nobody: dropped)"
"""The owner in the last claim of a fenced log."""
ATTEMPTS_MAX: Final = 100
PAUSE_S: Final = 0.005
AT_ONCE: Final = 16  # partitions are fenced at the same time, each with a thread of the worker


class _Nothing:
    """A fold for reading a log whose state does not matter."""

    def reset(self) -> None: ...

    def restore(self, checkpoint: object) -> None: ...

    def apply(self, body: object) -> None: ...


def fence(store: Store, keys: PartitionKeys, fold: Fold | None = None) -> None:
    """End the log under *keys*: a former owner can no longer commit. Blocking.

    Args:
        fold: becomes the state of the whole log. Without it only the end of the log is read, so
            that even a log that cannot be read as a whole can be ended.

    Raises:
        StoreUnavailable: if the store fails. It is open whether the log was ended; repeat the call,
            which is idempotent.
        StateDamaged: if the whole log was to be read and cannot be. Whether it was ended is open.
    """
    logs = LogStore(store, keys, Worker(store, 1))
    slot_log = SlotLog(FENCE, fold if fold is not None else _Nothing(), logs.make_nonce)
    effects = deque(slot_log.acquire(lambda _: True))
    while effects:
        effect = effects.popleft()
        if isinstance(effect, log_is.Request):
            reply = _reply(keys, logs, effect, wants_state=fold is not None)
            effects.extend(slot_log.answered(effect.id, reply))
        elif isinstance(effect, log_is.Damaged):
            raise logs.error_of(effect)
        else:
            assert isinstance(effect, log_is.Acquired), effect
            return


def _reply(
    keys: PartitionKeys, logs: LogStore, request: log_is.Request, *, wants_state: bool
) -> log_is.Reply:
    attempt = getattr(request, "attempt", 0)
    if attempt > ATTEMPTS_MAX:
        raise StoreUnavailable(
            f"{keys.root} changes too fast to be read: {ATTEMPTS_MAX} attempts; retry later"
        )
    if attempt:
        time.sleep(PAUSE_S)
    if isinstance(request, log_is.GetCheckpoint) and not wants_state:
        return log_is.Found(None)  # its content does not matter
    reply = logs.perform_now(request)
    if reply in (StoreAnswer.FAILED, StoreAnswer.NO_ROOM):
        assert logs.trouble is not None
        raise type(logs.trouble)(str(logs.trouble))  # a new one: the log store keeps the first
    return reply if wants_state else _without_state(request, reply)


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


def fence_generation(store: Store, keys: KeyspaceKeys, partitions_count: int) -> None:
    """Fence all partitions, one after the other, if that was not done before. Blocking."""
    if store.get(keys.fenced) is not None:
        return
    for number in range(partitions_count):
        fence(store, keys.partition(number))
    store.put_if_absent(keys.fenced, b"")


async def fence_at_once(
    worker: Worker, store: Store, keys: KeyspaceKeys, partitions_count: int
) -> None:
    """Fence all partitions, several at a time.

    Raises:
        KeyspaceError: if one fails; some may be fenced, and others not.
    """
    if await worker.run(store.get, keys.fenced) is not None:
        return

    async def one(number: int) -> None:
        await worker.run(fence, store, keys.partition(number))

    await in_parallel(one, partitions_count, AT_ONCE)
    await worker.run(store.put_if_absent, keys.fenced, b"")
