"""From any node to the owners of partitions, and again, until each part has its result.

Requests for one owner travel as one call. An owner that has moved says who it is now, so a part
takes one redirect at most; what nobody serves at the moment is tried again until the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.errors import (
    BadOperation,
    BadRequest,
    BodyError,
    CallError,
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    StoreUnavailable,
)
from ringpop_py.placing.backoff import delay_us
from ringpop_py.values.requests import Moved, decode_results, ended_with
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from ringpop_py.steward.view import NodeView


PAUSE_US_MAX: Final = 500_000
MICROSECONDS: Final = 1_000_000


class Destinations(Protocol):
    """Who serves which partition, as one node knows."""

    def destination(self, partition: int) -> str:
        """Whom to ask about *partition*; empty if there is nobody."""

    def why_nobody(self, partition: int) -> KeyspaceError:
        """Return why there is no member to ask."""

    def learn(self, row: list[Any]) -> None:
        """Somebody else knew who owns a partition. Raises BodyError."""

    @property
    def changed(self) -> trio.Event:
        """Is set when the next thing changes in the table."""


class PartitionRequest(Protocol):
    """A request that is made of parts, one a partition.

    A part may be done twice without harm: reads are reads, and writes have ids.

    Attributes:
        changes_state: whether it writes.
    """

    endpoint: str
    changes_state: bool

    def encode(self, numbers: Sequence[int]) -> bytes:
        """The request for the partitions *numbers*."""

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """The result of the part of partition *number*. Raises BodyError."""

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """The results of parts that this node is to serve, as `decode` makes them, or `Moved`."""


class Router:
    """Brings requests to owners for one keyspace."""

    def __init__(self, node: NodeView, destinations: Destinations, rng: random.Random) -> None:
        self._node = node
        self._destinations = destinations
        self._rng = rng

    async def ask(
        self, request: PartitionRequest, numbers: Sequence[int], deadline: float
    ) -> dict[int, object]:
        """The result of each part: what *request* makes of it, or a `KeyspaceError`."""
        results: dict[int, object] = {}
        journeys: dict[int, _Journey] = {}  # of parts that the first round left open: mostly none
        left = numbers
        attempts_count = 0
        while True:
            changed = self._destinations.changed
            found = await self._one_round(request, left, deadline)
            redirected = False
            for number, result in found.items():
                if isinstance(result, Moved):
                    journey = journeys.setdefault(number, _Journey())
                    journey.redirect_count += 1
                    redirected |= journey.redirect_count == 1
                elif isinstance(result, KeyspaceError) and not result.settles:
                    journey = journeys.setdefault(number, _Journey())
                    journey.meet(result)
                    if not result.passes:
                        results[number] = journey.end(changes_state=request.changes_state)
                else:
                    results[number] = result
            left = [number for number in left if number not in results] if journeys else []
            if not left:
                return results
            if trio.current_time() >= deadline:
                writes = request.changes_state
                return {**results, **{n: journeys[n].end(changes_state=writes) for n in left}}
            if not redirected:
                pause_s = delay_us(attempts_count, self._rng, cap_us=PAUSE_US_MAX) / MICROSECONDS
                with trio.move_on_at(min(deadline, trio.current_time() + pause_s)):
                    await changed.wait()
                attempts_count += 1

    async def _one_round(
        self, request: PartitionRequest, numbers: Sequence[int], deadline: float
    ) -> dict[int, object]:
        """Ask each owner once. A part's result may be `Moved` or an error that passes."""
        found: dict[int, object] = {}
        groups: dict[str, list[int]] = {}
        for number in numbers:
            owner = self._destinations.destination(number)
            if owner:
                groups.setdefault(owner, []).append(number)
            else:
                found[number] = self._destinations.why_nobody(number)

        async def ask_one(owner: str, group: list[int]) -> None:
            found.update(await self._ask_owner(request, owner, group, deadline))

        if len(groups) == 1:
            ((owner, group),) = groups.items()
            found.update(await self._ask_owner(request, owner, group, deadline))
        else:
            async with trio.open_nursery() as nursery:
                for owner, group in groups.items():
                    nursery.start_soon(ask_one, owner, group)
        for number, result in found.items():
            if isinstance(result, Moved):
                try:
                    self._destinations.learn(result.row)
                except BodyError as error:
                    message = f"who owns it now cannot be read: {error}"
                    found[number] = PartitionUnavailable(message)
        return found

    async def _ask_owner(
        self, request: PartitionRequest, owner: str, group: list[int], deadline: float
    ) -> dict[int, object]:
        if owner == self._node.name:
            with trio.move_on_at(deadline):
                return dict(zip(group, await request.serve_here(group), strict=True))
            late = OutcomeUnknown("the deadline passed while this node was at work")
            return dict.fromkeys(group, late)
        try:
            results = await self._call(request, owner, group, deadline)
        except KeyspaceError as error:
            return dict.fromkeys(group, error)
        return self._decoded(request, group, results)

    async def _call(
        self, request: PartitionRequest, owner: str, group: list[int], deadline: float
    ) -> list[Any]:
        """What *owner* says to the parts in *group*. Raises what all of them have come to."""
        address = self._node.address_of(owner)
        if address is None:
            raise PartitionUnavailable(f"its owner {owner} is not a member any more")
        try:
            body = request.encode(group)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadOperation(f"a key or value in the request cannot be sent: {error}") from None
        ttl_s = deadline - trio.current_time()
        if ttl_s <= 0:
            message = "no time was left"  # and so nothing was sent
            raise PartitionUnavailable(message)
        call = Call(NODE_SERVICE, request.endpoint, b"", body, ttl_s=ttl_s)
        try:
            answer = await self._node.channel.call(address, call)
            return decode_results(answer.arg3, len(group))
        except BadRequest as error:
            raise BadOperation(f"{owner} cannot make sense of it: {error}") from None
        except (CallError, BodyError) as error:
            kind = PartitionUnavailable if error.took_effect == "no" else OutcomeUnknown
            raise kind(f"{owner}: {type(error).__name__}: {error}") from None

    def _decoded(
        self, request: PartitionRequest, group: list[int], results: list[Any]
    ) -> dict[int, object]:
        found: dict[int, object] = {}
        for number, result in zip(group, results, strict=True):
            if isinstance(result, Moved | KeyspaceError):
                found[number] = result
                continue
            try:
                found[number] = request.decode(number, result)
            except BodyError as error:
                found[number] = OutcomeUnknown(f"the answer cannot be read: {error}")
        return found


class _Journey:
    """One part on its way."""

    __slots__ = ("last", "may_have_run", "redirect_count")

    def __init__(self) -> None:
        self.redirect_count = 0
        self.may_have_run = False
        self.last: KeyspaceError | None = None

    def meet(self, error: KeyspaceError) -> None:
        """Keep how an attempt ended."""
        self.last = error
        self.may_have_run |= error.took_effect == "unknown"

    def end(self, *, changes_state: bool) -> KeyspaceError:
        """The error to end with: the time is over, or more of it would not help."""
        last = self.last or PartitionUnavailable("its owner changed again and again")
        is_open = changes_state and self.may_have_run
        if not last.passes:
            return ended_with(last, unsure=is_open)
        if isinstance(last, StoreUnavailable):  # which says more than that nobody answered
            return last
        if is_open:
            return OutcomeUnknown(f"no answer in time, and it may have taken effect: {last}")
        return PartitionUnavailable(f"no owner answered in time: {last}")
