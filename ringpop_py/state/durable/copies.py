"""Copies of partitions, made from the store, for stale reads whose owner does not answer.

A copy is the state after the log of a partition, read without claiming or sealing anything. It is
made for the first read, brought up to date by later ones, and forgotten soon. Its age is the time
since the last reading of the log began: what was acknowledged before that is in it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.durable.partition import PartitionCopy
    from ringpop_py.state.shares.stale_reads import StaleRequest
    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.tasks import Spawn

F = TypeVar("F")

FRESH_S: Final = 1.0
"""The seconds for which a copy is used before the log is read again."""
KEPT_S: Final = 10.0
"""A copy that was not used for this many seconds is forgotten."""
COPIES_MAX: Final = 16
"""The most copies of one keyspace at a node; beyond it the one used longest ago is forgotten."""
READINGS_MAX: Final = 4
"""The most logs of a keyspace that are read for copies at a time; further ones wait."""


@dataclass(slots=True, eq=False)
class _Copy:
    """The copy of one partition.

    Attributes:
        reading: set at the end of the reading under way; until then, the state is undefined.
        error: why the last reading has failed.
        complete_at: when the last reading began: what was acknowledged before that is in it.
        read_at: when the last reading ended; None if there was none.
    """

    partition: PartitionCopy
    reading: trio.Event | None = None
    error: KeyspaceError | None = None
    complete_at: float = 0.0
    read_at: float | None = None
    used_at: float = 0.0
    users_count: int = 0

    @property
    def is_fresh(self) -> bool:
        if self.reading is not None or self.read_at is None:
            return False
        return trio.current_time() - self.read_at <= FRESH_S

    def see(self, look: Callable[[KeyedState], F]) -> tuple[F, float]:
        self.used_at = trio.current_time()
        return look(self.partition.state), self.complete_at


class Copies:
    """The copies of one durable keyspace at one node.

    Args:
        make_copy: makes the copy of a partition of that number, with nothing in it yet.
        spawn: runs a function in a task of its own.
        on_empty: called when all copies are forgotten.
    """

    def __init__(
        self,
        make_copy: Callable[[int], PartitionCopy],
        spawn: Spawn,
        on_empty: Callable[[], object],
    ) -> None:
        self._make_copy = make_copy
        self._spawn = spawn
        self._on_empty = on_empty
        self._copies: OrderedDict[int, _Copy] = OrderedDict()  # the one read last is last
        self._expiring = False
        self._limiter = trio.CapacityLimiter(READINGS_MAX)

    def __len__(self) -> int:
        return len(self._copies)

    def read_fresh(
        self, request: StaleRequest, numbers: Sequence[int]
    ) -> tuple[dict[int, object], list[float]]:
        """Return what parts with a fresh copy find in it, and when each copy was complete."""
        results: dict[int, object] = {}
        complete_at: list[float] = []
        for number in numbers:
            copy = self._copies.get(number)
            if copy is not None and copy.is_fresh:
                results[number], at = copy.see(request.look(number))
                complete_at.append(at)
        return results, complete_at

    async def read(self, number: int, look: Callable[[KeyedState], F]) -> tuple[F, float]:
        """Return what *look* finds in a copy of that partition, and when the copy was complete.

        Raises:
            KeyspaceError: if the log cannot be read.
        """
        copy = self._copies.get(number)
        if copy is None:
            if not self._expiring:
                self._spawn(self._expire)
                self._expiring = True
            copy = self._copies[number] = _Copy(self._make_copy(number))
        self._copies.move_to_end(number)
        copy.users_count += 1
        try:
            while not copy.is_fresh:
                await self._have_read(copy)
            return copy.see(look)
        finally:
            copy.users_count -= 1
            self._forget_some()

    async def _have_read(self, copy: _Copy) -> None:
        if copy.reading is None:
            # In a task of its own, because others may wait for it if this caller is cancelled.
            self._spawn(self._read_log, copy)
            copy.reading = trio.Event()
        await copy.reading.wait()
        if copy.error is not None:
            # A copy of the error: one error raised in several tasks would collect their tracebacks.
            raise type(copy.error)(str(copy.error))

    async def _read_log(self, copy: _Copy) -> None:
        try:
            async with self._limiter:
                began_at = trio.current_time()
                await copy.partition.read()
                copy.complete_at, copy.read_at, copy.error = began_at, trio.current_time(), None
        except BaseException as error:
            copy.read_at = None
            copy.partition.forget()
            # Without an error, the tasks that wait would begin a reading that is stopped again.
            stopped = PartitionUnavailable("the reading was stopped")
            copy.error = error if isinstance(error, KeyspaceError) else stopped
            if copy.error is stopped:
                raise
        finally:
            done, copy.reading = copy.reading, None
            assert done is not None
            done.set()

    async def _expire(self) -> None:
        while self._copies:
            await trio.sleep(KEPT_S / 2)
            self._forget_some()
        self._expiring = False
        self._on_empty()

    def _forget_some(self) -> None:
        now = trio.current_time()
        for number, copy in list(self._copies.items()):  # the one used longest ago comes first
            is_old = now - copy.used_at > KEPT_S
            in_use = copy.users_count or copy.reading is not None
            if not in_use and (is_old or len(self._copies) > COPIES_MAX):
                del self._copies[number]
                copy.partition.forget()
