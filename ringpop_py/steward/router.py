"""Routes requests from any node to the owners of partitions, until each part has its result.

The parts for one owner travel as one call. If a partition has moved, its former owner answers with
the row of the new one, so a part usually takes one redirect at most. A part that no member serves
at the moment is tried again until the deadline.
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
    """The members that serve partitions, as far as one node knows."""

    def destination(self, partition: int) -> str:
        """Return the member to ask about *partition*; empty if there is none."""

    def why_nobody(self, partition: int) -> KeyspaceError:
        """Return why there is no member to ask."""

    def learn(self, row: list[Any]) -> None:
        """Merge a row that another node sent. Raises BodyError."""

    @property
    def changed(self) -> trio.Event:
        """An event that is set at the next change of the table."""


class PartitionRequest(Protocol):
    """A request that is made of parts, one for each partition.

    A part may be done twice without harm: a read changes nothing, and writes have ids.

    Attributes:
        changes_state: whether it writes.
    """

    endpoint: str
    changes_state: bool

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of the part of partition *number*. Raises BodyError."""

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """Serve parts at this node; return their results, as `decode` does, or `Moved`."""


class Router:
    """Routes the requests of one keyspace to the owners of its partitions."""

    def __init__(self, node: NodeView, destinations: Destinations, rng: random.Random) -> None:
        self._node = node
        self._destinations = destinations
        self._rng = rng

    async def ask(
        self, request: PartitionRequest, numbers: Sequence[int], deadline: float
    ) -> dict[int, object]:
        """Return the result of each part: what *request* decodes, or a `KeyspaceError`."""
        results: dict[int, object] = {}
        journeys: dict[int, _Journey] = {}  # of parts that the first round left open: mostly none
        left = numbers
        attempts_count = 0
        while True:
            # Before the round: a change that comes during it ends the pause below immediately.
            changed = self._destinations.changed
            found = await self._one_round(request, left, deadline)
            redirected = False
            for number, result in found.items():
                if isinstance(result, Moved):
                    journey = journeys.setdefault(number, _Journey())
                    journey.redirect_count += 1
                    # Only the first redirect is followed without a pause: two nodes that name each
                    # other as the owner would otherwise be asked in a tight loop.
                    redirected |= journey.redirect_count == 1
                # An error that settles is the owner's own answer, so it is a result like a value.
                elif isinstance(result, KeyspaceError) and not result.settles:
                    journey = journeys.setdefault(number, _Journey())
                    journey.meet(result)
                    if not result.passes:
                        results[number] = journey.end(changes_state=request.changes_state)
                else:
                    results[number] = result
            # Without a journey every part has its result. That is the usual case, so no list is
            # built for it.
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
        """Ask each owner once. The result of a part may be `Moved`, or an error that passes."""
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
            # The usual case, a request for one key, needs no nursery.
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
                    # The entry is replaced, not added, so the loop over `found` may go on.
                    message = f"the row of its new owner cannot be read: {error}"
                    found[number] = PartitionUnavailable(message)
        return found

    async def _ask_owner(
        self, request: PartitionRequest, owner: str, group: list[int], deadline: float
    ) -> dict[int, object]:
        if owner == self._node.name:
            with trio.move_on_at(deadline):
                return dict(zip(group, await request.serve_here(group), strict=True))
            # Not PartitionUnavailable: a commit that has begun here may still reach the log.
            late = OutcomeUnknown("the deadline passed while this node served the request")
            return dict.fromkeys(group, late)
        try:
            results = await self._call(request, owner, group, deadline)
        except KeyspaceError as error:
            return dict.fromkeys(group, error)
        return self._decoded(request, group, results)

    async def _call(
        self, request: PartitionRequest, owner: str, group: list[int], deadline: float
    ) -> list[Any]:
        """Return the answer of *owner* to the parts in *group*. Raises the error of all of them."""
        address = self._node.address_of(owner)
        if address is None:
            raise PartitionUnavailable(f"its owner {owner} is no longer a member")
        try:
            body = request.encode(group)
        # All that packing can raise: the values are the caller's, of any type and depth.
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
        # Before its base class: the owner would refuse every retry, too.
        except BadRequest as error:
            raise BadOperation(f"{owner} cannot decode the request: {error}") from None
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
                # The owner has served the part, and a write may have taken effect.
                found[number] = OutcomeUnknown(f"the answer cannot be read: {error}")
        return found


class _Journey:
    """The attempts at one part that has no result yet."""

    __slots__ = ("last", "may_have_run", "redirect_count")

    def __init__(self) -> None:
        self.redirect_count = 0
        self.may_have_run = False
        self.last: KeyspaceError | None = None

    def meet(self, error: KeyspaceError) -> None:
        """Note that an attempt ended with *error*."""
        self.last = error
        # It stays set: a later attempt that did nothing says nothing about this one.
        self.may_have_run |= error.took_effect == "unknown"

    def end(self, *, changes_state: bool) -> KeyspaceError:
        """Return the error to end with: the time is over, or more time would not help."""
        # There is no last error if every attempt ended in a redirect.
        last = self.last or PartitionUnavailable("its owner changed again and again")
        # A read may run twice, so its outcome is never open.
        is_open = changes_state and self.may_have_run
        if not last.passes:
            return ended_with(last, unsure=is_open)
        if isinstance(last, StoreUnavailable):  # its cause helps more than a missing answer
            return last
        if is_open:
            return OutcomeUnknown(f"no answer in time, and it may have taken effect: {last}")
        return PartitionUnavailable(f"no owner answered in time: {last}")
