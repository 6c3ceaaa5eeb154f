"""`replicate` and `quorum_read`: carries out what a `Quorum` decides, at the members of a key."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.arguments import checked_callable, checked_kind, checked_seconds, routed_key
from ringpop_py.base.errors import ConfigError, DeadlineExceeded, NoOwner, RingpopError
from ringpop_py.base.faults import is_fault
from ringpop_py.base.logs import log
from ringpop_py.route.proxy.head import Head
from ringpop_py.route.proxy.owners import RingOwners
from ringpop_py.route.proxy.request import Reply, Request, RequestOptions
from ringpop_py.route.quorum.quorum import Quorum

if TYPE_CHECKING:
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.route.proxy.forward import Proxy
    from ringpop_py.route.quorum.quorum import Repair, Resolve

BEHIND_MAX: Final = 1_024
"""So many requests that have their quorum may go on; beyond it, the oldest is given up."""
LATE_S: Final = 1.0
"""So many seconds after the quorum of a read, a reply still counts for its repair."""


@dataclass(frozen=True, slots=True)
class _OneOwner(RingOwners):
    """One member, as long as it is among the first *n* of a key."""

    member: str = ""
    n: int = 1

    def destination(self, key: str) -> str:
        ring = self.ring()
        return self.member if len(ring) and self.member in ring.lookup_n(key, self.n) else ""

    def why_nobody(self, _key: str) -> NoOwner:
        return NoOwner(f"{self.member} is no longer among the first {self.n} members of the key")

    def head(self, keys: tuple[str, ...]) -> Head:
        # As with failover: the receiver checks that it is among the first *n* by its own ring.
        return Head(keys, self.ring().checksum, self.local, failover=self.n)


@dataclass(frozen=True, slots=True)
class _Course:
    """One request on its way to the members of its key.

    Attributes:
        late_s: how long those that are late may still answer, once enough have.
        decided: is set when the caller need not wait any longer.
    """

    key: str
    request: Request
    quorum: Quorum
    options: RequestOptions
    late_s: float
    deadline: float
    decided: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Replication:
    """Sends requests to the first members of their keys, and waits for as many as are needed."""

    def __init__(self, channel: Channel, proxy: Proxy, owners: RingOwners) -> None:
        self._channel = channel
        self._proxy = proxy
        self._owners = owners
        self._behind: dict[trio.CancelScope, None] = {}  # the oldest first

    async def replicate(
        self, key: str, request: Request, n: int, w: int, options: RequestOptions
    ) -> dict[str, Reply]:
        """See `Ringpop.replicate`."""
        return await self._begin(_course(key, request, Quorum(n, w, "w"), options, math.inf))

    async def quorum_read(
        self,
        key: str,
        request: Request,
        n: int,
        r: int,
        resolve: Resolve,
        repair: Repair | None,
        options: RequestOptions,
    ) -> Reply:
        """See `Ringpop.quorum_read`."""
        checked_callable(resolve, "resolve")
        late_s, after = 0.0, None
        if repair is not None:
            checked_callable(repair, "repair")
            late_s, after = LATE_S, partial(self._repair, resolve, repair)
        course = _course(key, request, Quorum(n, r, "r"), options, late_s)
        replies = await self._begin(course, after)
        resolved = resolve([*replies.values()])
        checked_kind(resolved, Reply, "what resolve returns", "a Reply")
        return resolved

    async def _begin(self, course: _Course, after: _After | None = None) -> dict[str, Reply]:
        """Ask the members, and return the replies as soon as there are enough.

        Args:
            after: what follows in the background when all have answered, or are too late.
        """
        asked = course.quorum.ask(self._members(course))
        if not asked:
            raise self._owners.why_nobody(course.key)
        if not course.quorum.is_decided:
            self._channel.spawn(self._run, course, asked, after)
            try:
                await course.decided.wait()
            except trio.Cancelled:
                course.scope.cancel()
                raise
        if not course.quorum.is_reached:
            raise course.quorum.failure()
        return course.quorum.in_order()

    async def _run(self, course: _Course, asked: list[str], after: _After | None) -> None:
        try:
            with course.scope:
                async with trio.open_nursery() as nursery:
                    for member in asked:
                        nursery.start_soon(self._ask, nursery, course, member)
                    await course.decided.wait()
                    self._behind[course.scope] = None
                    if len(self._behind) > BEHIND_MAX:
                        next(iter(self._behind)).cancel()
                    nursery.cancel_scope.deadline = trio.current_time() + course.late_s
                if after is not None and course.quorum.is_reached:
                    await after(course)
        finally:
            self._behind.pop(course.scope, None)
            course.decided.set()  # also if the node ends meanwhile

    def _members(self, course: _Course) -> tuple[str, ...]:
        ring = self._owners.ring()
        return ring.lookup_n(course.key, course.quorum.n) if len(ring) else ()

    async def _ask(self, nursery: trio.Nursery, course: _Course, member: str) -> None:
        quorum = course.quorum
        options = course.options.copy()
        if course.deadline < math.inf:  # one that stands in for another has what is left
            options["deadline_s"] = max(course.deadline - trio.current_time(), 0.0)
        try:
            quorum.replies[member] = await self._send(course, member, course.request, options)
        except RingpopError as error:
            quorum.errors[member] = error
        for another in quorum.ask(self._members(course)):
            nursery.start_soon(self._ask, nursery, course, another)
        if quorum.is_decided:
            course.decided.set()

    async def _send(
        self, course: _Course, member: str, request: Request, options: RequestOptions
    ) -> Reply:
        known, n, until = self._owners, course.quorum.n, math.inf
        reconcile = partial(known.reconcile, n=n)
        owner = _OneOwner(known.local, known.ring, reconcile, known.consistency, member=member, n=n)
        if member == known.local:  # nothing else limits the handler of this node
            limit_s = self._proxy.application.config.timeout_s
            until = trio.current_time() + min(options.get("deadline_s", math.inf), limit_s)
        with trio.move_on_at(until):
            reply = await self._proxy.proxy(course.key, request, owners=owner, **options)
            assert isinstance(reply, Reply)
            return reply
        raise DeadlineExceeded("the handler of this node took longer", (), "unknown")

    async def _repair(self, resolve: Resolve, repair: Repair, course: _Course) -> None:
        """Send the members that replied something else what *repair* wants them to get."""
        try:
            resolved = resolve([*course.quorum.in_order().values()])
            others = course.quorum.others_than(resolved)
            request = repair(resolved) if others else None
            if request is None:
                return
            checked_kind(request, Request, "what repair returns", "a Request or None")
        except BaseException as error:
            if not is_fault(error):
                raise
            log.exception("repair-failed", key=course.key)
            return

        async def send(member: str) -> None:
            with suppress(RingpopError):  # it is counted, and a later read repairs what is left
                await self._send(course, member, request, RequestOptions())

        async with trio.open_nursery() as nursery:
            for member in others:
                nursery.start_soon(send, member)


_After = Callable[[_Course], Awaitable[None]]


def _course(
    key: str, request: Request, quorum: Quorum, options: RequestOptions, late_s: float
) -> _Course:
    checked_kind(request, Request, "request", "a Request")
    if "failover" in options:
        raise ConfigError("failover is for requests to one member: here the first n get it")
    left_s = checked_seconds(options.get("deadline_s", math.inf), "deadline_s")
    deadline = trio.current_time() + left_s
    return _Course(routed_key(key), request, quorum, options, late_s, deadline)
