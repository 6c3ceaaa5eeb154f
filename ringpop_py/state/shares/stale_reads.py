"""Stale reads: answered by owners, or from copies if owners do not answer soon."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ringpop_py.base.errors import KeyspaceError, NotEnoughMembers, PartitionUnavailable
from ringpop_py.base.values.requests import STALE_OWNER_S
from ringpop_py.state.shares.dispatcher import MemberRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.shares.dispatcher import Dispatcher
    from ringpop_py.state.table.keyed import KeyedState


class StaleRequest(MemberRequest, Protocol):
    """A request whose parts can be served from a state."""

    @property
    def stale(self) -> bool:
        """Whether a copy may answer."""

    def look(self, number: int) -> Callable[[KeyedState], Any]:
        """Return a function that finds the result of partition *number* in its state."""


class CopiesHere(Protocol):
    """The copies of one keyspace at this node; see `ringpop_py.state.durable.copies.Copies`."""

    def __len__(self) -> int: ...

    def read_fresh(
        self, request: StaleRequest, numbers: Sequence[int], /
    ) -> tuple[dict[int, object], list[float]]:
        """Return what parts with a fresh copy find in it, and when each copy was complete."""

    async def read(self, number: int, look: Callable[[KeyedState], Any], /) -> tuple[Any, float]:
        """Return what *look* finds in a copy, and when that was complete. Raises KeyspaceError."""


class StaleReader:
    """Brings stale reads to owners, and to the store if owners do not answer soon.

    Args:
        copies: None if there is no store to read from.
    """

    def __init__(self, dispatcher: Dispatcher, copies: CopiesHere | None) -> None:
        self._dispatcher = dispatcher
        self._copies = copies

    async def ask(
        self, request: StaleRequest, numbers: Sequence[int], deadline: float
    ) -> tuple[dict[int, object], float | None]:
        """Return the result of each part, or its error; and the age of the oldest copy used.

        It is the age now, and not when the copy was looked at: other parts may have taken longer.
        The age is None if owners have answered everything.
        """
        copies = self._copies
        if copies is None or not request.stale:
            return await self._dispatcher.ask(request, numbers, deadline), None
        results, complete_at = copies.read_fresh(request, numbers) if len(copies) else ({}, [])
        copied = list(results)
        rest = [number for number in numbers if number not in results] if results else numbers
        if rest:
            now = trio.current_time()
            soon = now + min(STALE_OWNER_S, (deadline - now) / 2)
            answered = await self._dispatcher.ask(request, rest, soon, counts=False)
            late = [number for number, each in answered.items() if _is_unanswered(each)]
            results |= answered
            read_at = await self._race(copies, request, late, deadline, results)
            complete_at += read_at.values()
            copied += read_at
        given_up = [number for number, each in results.items() if _is_given_up(each)]
        self._dispatcher.count(request, copied + given_up, results)
        return results, trio.current_time() - min(complete_at) if complete_at else None

    async def _race(
        self,
        copies: CopiesHere,
        request: StaleRequest,
        numbers: Sequence[int],
        deadline: float,
        results: dict[int, object],
    ) -> dict[int, float]:
        """Put into *results* what comes first, of owners and copies.

        Return when each copy used was complete.
        """
        complete_at: dict[int, float] = {}
        if not numbers:
            return complete_at
        waiting = set(numbers)
        failed: dict[int, KeyspaceError] = {}
        async with trio.open_nursery() as nursery:

            async def ask_owners() -> None:
                found = await self._dispatcher.ask(request, numbers, deadline)
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
                    complete_at[number] = at
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


def _is_given_up(result: object) -> bool:
    return isinstance(result, KeyspaceError) and not result.settles


def _is_unanswered(result: object) -> bool:
    # `NotEnoughMembers`: there never was an owner.
    return isinstance(result, NotEnoughMembers) or (
        isinstance(result, KeyspaceError) and result.passes
    )
