"""Carries out the errands of a node about the partitions of one keyspace.

What happens to a request is decided by `ringpop_py.route.errand`; here it becomes calls and waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    CallError,
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    RingpopError,
)
from ringpop_py.base.values.requests import Moved, decode_results
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.errand import (
    MICROSECONDS,
    DeadlinePolicy,
    Errand,
    LearningRoutes,
    PartitionRequest,
    instant_us,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Mapping, Sequence

    from ringpop_py.base.metering import Tally
    from ringpop_py.route.errand import Ask
    from ringpop_py.state.shares.view import NodeView


_UNUSUAL: Final = (Moved, KeyspaceError)


class Destinations(LearningRoutes[int], Protocol):
    """The members that serve partitions, as far as one node knows."""

    @property
    def changed(self) -> trio.Event:
        """An event that is set at the next change of the table, and replaced then."""


class MemberRequest(PartitionRequest, Protocol):
    """A request of a member, which may serve parts of it.

    Attributes:
        kind: as what it counts (`Operations`); empty if it does not.
    """

    @property
    def kind(self) -> str:
        """See the class."""

    def size(self, number: int) -> int:
        """Return how many operations a part is."""

    def serve_here(self, numbers: Sequence[int]) -> Awaitable[list[Any]]:
        """Serve parts at this node; return their results, as `decode` does, or `Moved`."""


class Dispatcher:
    """Brings the requests of one node for one keyspace to the owners of its partitions."""

    def __init__(self, node: NodeView, destinations: Destinations, rng: random.Random) -> None:
        self._node = node
        self._name = node.name
        self._destinations = destinations
        self._read, self._write = (
            DeadlinePolicy(rng, changes_state=changes_state) for changes_state in (False, True)
        )

    async def ask(
        self,
        request: MemberRequest,
        numbers: Sequence[int],
        deadline: float,
        *,
        counts: bool = True,
    ) -> dict[int, object]:
        """Return the result of each part: what *request* decodes, or a `KeyspaceError`.

        Args:
            counts: whether parts that no owner has answered have failed.
        """
        errand = Errand(numbers, self._policy_of(request), instant_us(deadline))
        # The first round needs no clock: it is over in time, or its calls say so.
        results = await self._go_on(request, errand, deadline, 0, None)
        if errand.given_up and counts:
            self.count(request, errand.given_up, results)
        return results

    async def ask_one(
        self,
        request: MemberRequest,
        number: int,
        deadline: float,
        failed: KeyspaceError | None = None,
    ) -> Any:  # noqa: ANN401 - as *request* decodes it
        """As `ask` for one partition. If its owner serves the first attempt, there is no errand.

        Args:
            failed: how the first attempt has ended, which this node has served.
        """
        destinations = self._destinations
        changed = destinations.changed  # from before the attempt, as in a round
        to = destinations.destination(number)
        results: list[Any] | RingpopError
        if failed is not None:
            results = failed
            if to != self._name:  # so no pause is needed
                changed = trio.Event()
                changed.set()
            to = self._name
        elif not to or to == self._name:
            return (await self.ask(request, (number,), deadline))[number]
        else:
            results = await self._call(request, to, (number,), deadline)
            if isinstance(results, list) and not isinstance(results[0], _UNUSUAL):
                try:
                    return request.decode(number, results[0])
                except BodyError:
                    pass  # the errand says what it means
        errand, ask = Errand.begun(number, to, self._policy_of(request), instant_us(deadline))
        self._report(request, errand, ask, results)
        now = round(trio.current_time() * MICROSECONDS)
        results_by_part = await self._go_on(request, errand, deadline, now, changed)
        if errand.given_up:
            self.count(request, errand.given_up, results_by_part)
        return results_by_part[number]

    def count(
        self, request: MemberRequest, numbers: Sequence[int], results: Mapping[int, object]
    ) -> None:
        """Count the parts *numbers*: an error has failed, and anything else is done, at no owner.

        The parts of a scan are one operation.
        """
        if not request.kind:
            return
        tally: Tally = getattr(self._node.proxying.operations, request.kind)
        for number in numbers[:1] if request.kind == "scan" else numbers:
            result, size = results[number], 1 if request.kind == "scan" else request.size(number)
            if isinstance(result, KeyspaceError):
                tally.fail(result, size)
            else:
                tally.done += size

    def _policy_of(self, request: MemberRequest) -> DeadlinePolicy:
        return self._write if request.changes_state else self._read

    async def _go_on(
        self,
        request: MemberRequest,
        errand: Errand[int],
        deadline: float,
        now: int,
        changed: trio.Event | None,
    ) -> dict[int, object]:
        """Carry out *errand*; return its results. A change since before it began is *changed*."""
        destinations = self._destinations
        while (step := errand.next(destinations, now)) is not None:
            if isinstance(step, int):
                changed = destinations.changed if changed is None else changed
                with trio.move_on_at(step / MICROSECONDS):
                    await changed.wait()
                changed = None
            else:
                # From before the round: a change that comes during it ends the next pause.
                changed = destinations.changed
                if len(step) == 1:  # the usual case, a request for one key, needs no nursery
                    await self._carry(request, errand, step[0], deadline)
                else:
                    async with trio.open_nursery() as nursery:
                        for ask in step:
                            nursery.start_soon(self._carry, request, errand, ask, deadline)
                if not errand.open:
                    break
            now = round(trio.current_time() * MICROSECONDS)
        return errand.results

    async def _carry(
        self, request: MemberRequest, errand: Errand[int], ask: Ask[int], deadline: float
    ) -> None:
        if ask.to == self._name:
            with trio.move_on_at(deadline):
                results = await request.serve_here(ask.parts)
                errand.answered(ask, results, self._destinations)
                return
            # Not PartitionUnavailable: a commit that has begun here may still reach the log.
            late = OutcomeUnknown("the deadline passed while this node served the request")
            errand.failed(ask, late)
            return
        self._report(request, errand, ask, await self._call(request, ask.to, ask.parts, deadline))

    def _report(
        self,
        request: MemberRequest,
        errand: Errand[int],
        ask: Ask[int],
        results: list[Any] | RingpopError,
    ) -> None:
        if isinstance(results, RingpopError):
            errand.failed(ask, results)
        else:
            errand.answered(ask, results, self._destinations, request.decode)

    async def _call(
        self, request: MemberRequest, to: str, numbers: Sequence[int], deadline: float
    ) -> list[Any] | RingpopError:
        """Return the results of the member *to* as they came, or the error of the call."""
        address = self._node.address_of(to)
        if address is None:
            return PartitionUnavailable(f"its owner {to} is no longer a member")
        try:
            body = request.encode(numbers)
        # All that packing can raise: the values are the caller's, of any type and depth.
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            refused = BadOperation(f"a key or value in the request cannot be sent: {error}")
            self.count(request, numbers, dict.fromkeys(numbers, refused))
            return refused
        ttl_s = deadline - trio.current_time()
        if ttl_s <= 0:
            return PartitionUnavailable("no time was left")  # so nothing was sent
        call = Call(NODE_SERVICE, request.endpoint, b"", body, ttl_s=ttl_s)
        try:
            answer = await self._node.channel.call(address, call)
            return decode_results(answer.arg3, len(numbers))
        except (CallError, BodyError) as error:
            return error
