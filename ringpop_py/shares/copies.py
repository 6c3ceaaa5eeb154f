"""Stale reads whose owner does not answer: served from copies, which are made from the store.

A copy is the state after the log of a partition, read without claiming or sealing anything. It is
made for the first read, brought up to date by later ones, and forgotten soon. Its age is the time
since the last reading of the log began: what was acknowledged before that is in it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from ringpop_py.errors import KeyspaceError, NotEnoughMembers, PartitionUnavailable
from ringpop_py.partition.courier import PartitionRequest
from ringpop_py.values.requests import STALE_OWNER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.durable.partition import PartitionCopy
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.partition.courier import Courier
    from ringpop_py.partition.tasks import Spawn

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
        reading: set at the end of the reading under way; meanwhile the state may be anything.
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


class StaleRequest(PartitionRequest, Protocol):
    """A request whose parts can be served from a state."""

    @property
    def stale(self) -> bool:
        """Whether a copy may answer."""

    def look(self, number: int) -> Callable[[KeyedState], Any]:
        """Return a function that finds the result of partition *number* in its state."""


class StaleReader:
    """Brings stale reads to owners, and to the store if owners do not answer soon.

    Args:
        copies: None if there is no store to read from.
    """

    def __init__(self, courier: Courier, copies: Copies | None) -> None:
        self._courier = courier
        self._copies = copies

    async def ask(
        self, request: StaleRequest, numbers: Sequence[int], deadline: float
    ) -> tuple[dict[int, object], float | None]:
        """Return the result of each part, or its error; and the age of the oldest copy used.

        It is the age now, and not when the copy was looked at: other parts may have taken longer.
        The age is None if owners have answered everything.
        """
        copies = self._copies
        if copies is None:
            return await self._courier.ask(request, numbers, deadline), None
        results, complete_at = copies.read_fresh(request, numbers) if len(copies) else ({}, [])
        rest = [number for number in numbers if number not in results] if results else numbers
        if rest:
            now = trio.current_time()
            soon = now + min(STALE_OWNER_S, (deadline - now) / 2)
            answered = await self._courier.ask(request, rest, soon)
            late = [number for number, each in answered.items() if _is_unanswered(each)]
            if not late and not results:  # the common case
                return answered, None
            results |= answered
            complete_at += await self._race(copies, request, late, deadline, results)
        return results, trio.current_time() - min(complete_at) if complete_at else None

    async def _race(
        self,
        copies: Copies,
        request: StaleRequest,
        numbers: Sequence[int],
        deadline: float,
        results: dict[int, object],
    ) -> list[float]:
        """Put into *results* what comes first, of owners and copies.

        Return when each copy used was complete.
        """
        complete_at: list[float] = []
        if not numbers:
            return complete_at
        waiting = set(numbers)
        failed: dict[int, KeyspaceError] = {}
        async with trio.open_nursery() as nursery:

            async def ask_owners() -> None:
                found = await self._courier.ask(request, numbers, deadline)
                results.update({number: found[number] for number in waiting})
                passes = {n for n in waiting if _is_unanswered(found[n])}
                # If nobody could be asked, the answer came too early: a copy may still do better.
                waiting.intersection_update(passes)
                nursery.cancel_scope.deadline = deadline if waiting else -inf

            async def read_copy(number: int) -> None:
                try:
                    result, at = await copies.read(number, request.look(number))
                except KeyspaceError as error:
                    failed[number] = error  # its owner may still answer
                    return
                if number in waiting:
                    results[number] = result
                    complete_at.append(at)
                    waiting.discard(number)
                if not waiting:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(ask_owners)
            for number in numbers:
                nursery.start_soon(read_copy, number)
        for number in waiting & failed.keys():
            if _is_unanswered(results[number]):
                message = f"{results[number]}; nor can the store be read: {failed[number]}"
                results[number] = PartitionUnavailable(message)
        return complete_at


def _is_unanswered(result: object) -> bool:
    # `NotEnoughMembers`: there never was an owner.
    return isinstance(result, NotEnoughMembers) or (
        isinstance(result, KeyspaceError) and result.passes
    )
