"""Holding the lock on a key: in a task of trio or asyncio, or beside a thread that renews it."""

from __future__ import annotations

import random
import secrets
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from ringpop_py.base.errors import LockLost, RingpopError
from ringpop_py.state.locks.holding import RELEASE_S, LockHolding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator


class Lock:
    """A lock that is held. Pass it as ``fence`` to writes: they never follow the next holder's.

    Attributes:
        key: the key.
        name: by which partitions know the lock.
        term: above all terms of locks in the key's partition before.
        lost: set as soon as the lock is known to be lost; `check` may know it before.
    """

    def __init__(self, holding: LockHolding, now: Callable[[], float]) -> None:
        self.key, self.name, self.term = holding.key, holding.asking.name, holding.term
        self._holding = holding
        self._now = now
        self.lost = threading.Event()

    def __repr__(self) -> str:
        return f"<Lock on {self.key!r}, term {self.term}>"

    def check(self) -> None:
        """Raise LockLost if the lock is no longer held, as far as is known here."""
        if why := self.why_lost():
            raise LockLost(why)

    def why_lost(self) -> str:
        """Return why the lock is not held; empty if it is, as far as is known here."""
        why = self._holding.why_lost(self._now())
        return why and f"the lock on {self.key!r}, term {self.term}: {why}"


@asynccontextmanager
async def async_locking(
    update: Callable[..., Awaitable[Any]], key: str, ttl_s: float, wait_s: float | None
) -> AsyncIterator[Lock]:
    """Wait for the lock; then run the block, which is cancelled when the lock is lost.

    Args:
        update: that of a keyspace; by it steps of locks are sent.
    """
    holder = _Holder(update, _holding(key, ttl_s, wait_s, anyio.current_time()))
    failure: Exception | None = None
    try:
        lock = await holder.taken()
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as block:
                group.start_soon(holder.keep, lock, block)
                try:
                    yield lock
                except Exception as error:  # noqa: BLE001 - raised below: not in a group
                    failure = error
                finally:
                    why = lock.why_lost()  # before the release, which may take long
            group.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(RELEASE_S, shield=True):
            await holder.release()
    if why:
        raise LockLost(why) from failure
    if failure is not None:
        raise failure


@contextmanager
def locking(
    update: Callable[..., Any], key: str, ttl_s: float, wait_s: float | None
) -> Iterator[Lock]:
    """Wait for the lock; then run the block, beside a thread that renews the lock."""
    holder = _ThreadHolder(update, _holding(key, ttl_s, wait_s, time.monotonic()))
    try:
        lock = holder.taken()
        renewals = threading.Thread(
            target=holder.keep, args=(lock,), name=f"lock {key}", daemon=True
        )
        renewals.start()
        try:
            yield lock
        finally:
            why = lock.why_lost()  # after a pause, that thread may not know it yet
            holder.stopped.set()
            renewals.join()
    finally:
        holder.release()
    if why:
        raise LockLost(why)


def _holding(key: str, ttl_s: float, wait_s: float | None, now: float) -> LockHolding:
    rng = random.Random(secrets.randbits(64))
    return LockHolding(key, ttl_s, wait_s, secrets.token_hex(12), rng, now)


class _Holder:
    """Carries out what a holding asks for, in a task."""

    def __init__(self, update: Callable[..., Awaitable[Any]], holding: LockHolding) -> None:
        self._update = update
        self._holding = holding

    async def taken(self) -> Lock:
        """Wait for the lock."""
        while not self._holding.term:
            await anyio.sleep_until(self._holding.due_at)
            await self._ask()
        return Lock(self._holding, anyio.current_time)

    async def keep(self, lock: Lock, block: anyio.CancelScope) -> None:
        """Renew the lock, and cancel *block* when it is lost."""
        holding = self._holding
        while not holding.why_lost(anyio.current_time()):
            await anyio.sleep_until(holding.next_at)
            if anyio.current_time() >= holding.due_at:
                await self._ask()
        lock.lost.set()
        block.cancel()

    async def release(self) -> None:
        """Release the lock, if it may be held."""
        if self._holding.is_open:
            with suppress(RingpopError):
                await self._update(**self._holding.released())

    async def _ask(self) -> None:
        holding, asked_at = self._holding, anyio.current_time()
        step = holding.asked(asked_at)
        try:
            term = await self._update(**step)
        except RingpopError as error:
            holding.failed(error, anyio.current_time())
        else:
            holding.granted(term, asked_at)


class _ThreadHolder:
    """Carries out what a holding asks for, in whichever thread calls; in one at a time."""

    def __init__(self, update: Callable[..., Any], holding: LockHolding) -> None:
        self.stopped = threading.Event()
        self._update = update
        self._holding = holding

    def taken(self) -> Lock:
        """Wait for the lock."""
        while not self._holding.term:
            self._wait_until(self._holding.due_at)
            self._ask()
        return Lock(self._holding, time.monotonic)

    def keep(self, lock: Lock) -> None:
        """Renew the lock until a stop, and say when it is lost."""
        holding = self._holding
        while not holding.why_lost(time.monotonic()):
            self._wait_until(holding.next_at)
            if self.stopped.is_set():
                return
            if time.monotonic() >= holding.due_at:
                self._ask()
        lock.lost.set()

    def release(self) -> None:
        """Release the lock, if it may be held."""
        if self._holding.is_open:
            with suppress(RingpopError):
                self._update(**self._holding.released())

    def _wait_until(self, at: float) -> None:
        self.stopped.wait(max(at - time.monotonic(), 0.0))

    def _ask(self) -> None:
        holding, asked_at = self._holding, time.monotonic()
        step = holding.asked(asked_at)
        try:
            term = self._update(**step)
        except RingpopError as error:
            holding.failed(error, time.monotonic())
        else:
            holding.granted(term, asked_at)
