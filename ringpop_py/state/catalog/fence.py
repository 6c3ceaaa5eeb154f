"""Ends a partition for good, so that no node acknowledges anything in it any more.

The mark of a dropped generation reaches only nodes that can receive gossip. An owner that is cut
off from all others, but not from the store, does not learn of it. So the node that drops the
keyspace also seals each journal and claims each partition, as a new owner would: the owner's next
group then meets the seal. No node takes the partition back, because a node that has just acquired
one looks for the mark before it serves.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import StateDamaged, StoreUnavailable
from ringpop_py.state.catalog.journalstore import JournalStore, KnownRecords
from ringpop_py.state.catalog.layout import number_in
from ringpop_py.state.journal import codec
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import attempt_of
from ringpop_py.state.journal.journal import Journal
from ringpop_py.state.journal.records import Claim, Seal
from ringpop_py.state.journal.recovery import Recovery
from ringpop_py.state.tasks import Worker, in_parallel

if TYPE_CHECKING:
    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.journal.asker import Effects
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.table.keyed import KeyedState

FENCE: Final = "(nobody: dropped)"
"""The owner in the last claim of a fenced partition."""
ATTEMPTS_MAX: Final = 100
PAUSE_S: Final = 0.005
AT_ONCE: Final = 16  # partitions are fenced at the same time, each with a thread of the worker


def fence(store: Store, keys: KeyspaceKeys, number: int) -> None:
    """End a partition: its owner can no longer commit. Blocking.

    Nothing of its state is read, so that even a partition that cannot be read can be ended.

    Raises:
        StoreUnavailable: if the store fails. It is unknown whether the partition was ended; repeat
            the call, which is idempotent.
    """
    parts = keys.partition(number)
    name = secrets.token_hex(12)
    for _ in range(ATTEMPTS_MAX):
        epoch = max(filter(None, map(number_in, store.list(parts.claims))), default=0)
        if epoch:
            key = parts.claim(epoch)
            claim = _claim_in(store.get(key), key)
            if claim is not None and claim.owner == FENCE:
                return
            # A claim that cannot be read may be any node's: all journals are ended.
            journals = [claim.journal] if claim is not None else _journals(store, keys)
            for journal in journals:
                _seal(store, keys, journal)
        key = parts.claim(epoch + 1)
        if store.put_if_absent(key, codec.encode_claim(Claim(FENCE, name, 1), key)):
            return
        time.sleep(PAUSE_S)  # the owner was faster, in a new journal
    raise StoreUnavailable(
        f"{parts.root} changes too fast to be ended: {ATTEMPTS_MAX} attempts; retry later"
    )


def _claim_in(value: bytes | None, key: str) -> Claim | None:
    try:
        return None if value is None else codec.decode_claim(value, key)
    except StateDamaged:
        return None


def _journals(store: Store, keys: KeyspaceKeys) -> list[str]:
    return list(dict.fromkeys(map(keys.journal_in, store.list(keys.journals))))


def _seal(store: Store, keys: KeyspaceKeys, name: str) -> None:
    """Put a seal behind all that stands in a journal, unless there is one."""
    journal = keys.journal(name)
    while True:
        slots, marks = journal.numbers(store.list(journal.root))
        last, mark = max(slots, default=0), max(marks, default=0)
        # A seal below a mark is a lie: what stood there was covered and deleted, and the owner is
        # beyond it. Our seal, too, may have been overtaken while it was put: so list again.
        if mark <= last and _is_seal(store, journal.slot(last)):
            return
        at = max(last + 1, mark)
        while not store.put_if_absent(*_sealed(journal.slot(at))):
            at += 1  # its owner has gone on meanwhile


def _is_seal(store: Store, key: str) -> bool:
    value = store.get(key)
    try:
        return value is not None and isinstance(codec.decode_record(value, key), Seal)
    except StateDamaged:
        return False  # behind it, the seal ends an owner's journal in any case


def _sealed(key: str) -> tuple[str, bytes]:
    return key, codec.encode_record(Seal(FENCE), key)


def take_whole(store: Store, keys: KeyspaceKeys, number: int, state: KeyedState) -> None:
    """End a partition as `fence` does, and make *state* its whole final state. Blocking.

    Raises:
        StoreUnavailable: as `fence`.
        StateDamaged: if it cannot be read. It is unknown whether it was ended.
    """
    worker = Worker(store, 1)
    logs = JournalStore(keys, worker, KnownRecords())
    journal = Journal(FENCE, logs.make_name)
    recovery = Recovery(number, state, journal)
    fact = run_now(recovery, recovery.acquire(lambda *_: True), logs)
    assert isinstance(fact, fx.Acquired), fact


def run_now(recovery: Recovery, effects: Effects, logs: JournalStore) -> fx.Fact:
    """Carry out what *recovery* asks for, on this thread, and return how it ends.

    Raises:
        StoreUnavailable: the store fails, or changes too fast.
        StateDamaged: the partition cannot be read.
    """
    waiting = deque(effects)
    while True:
        effect = waiting.popleft()
        if isinstance(effect, fx.Request):
            waiting.extend(recovery.answered(effect.id, _reply(logs, effect)))
        elif isinstance(effect, fx.Damaged):
            raise logs.error_of(effect)
        elif not isinstance(effect, fx.Sealed):
            return effect


def _reply(logs: JournalStore, request: fx.Request) -> fx.Reply:
    attempt = attempt_of(request)
    if attempt > ATTEMPTS_MAX:
        raise StoreUnavailable(
            f"the store changes too fast to be read: {ATTEMPTS_MAX} attempts; retry later"
        )
    if attempt:
        time.sleep(PAUSE_S)
    reply: fx.Reply = logs.perform_now(request)
    if reply in (fx.StoreAnswer.FAILED, fx.StoreAnswer.NO_ROOM):
        assert logs.trouble is not None
        raise type(logs.trouble)(str(logs.trouble))  # a new one: the log store keeps the first
    return reply


def fence_generation(store: Store, keys: KeyspaceKeys, partitions_count: int) -> None:
    """Fence all partitions, one after the other, if that was not done before. Blocking."""
    if store.get(keys.fenced) is not None:
        return
    for number in range(partitions_count):
        fence(store, keys, number)
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
        await worker.run(partial(fence, store, keys, number))

    await in_parallel(one, partitions_count, AT_ONCE)
    await worker.run(store.put_if_absent, keys.fenced, b"")
