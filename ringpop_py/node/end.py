"""The end of a node in good order: carries out what `Draining` decides."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.base.faults import is_fault
from ringpop_py.base.logs import log
from ringpop_py.member.drain import Draining, Phase, Work, text_of_left
from ringpop_py.member.swim.effects import Announced, Effect, Evicted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.node import Node
    from ringpop_py.net.security.site import SiteCertificate
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.node.driver import NodeDriver
    from ringpop_py.route.proxy.forward import Proxy
    from ringpop_py.state.keyspaces.on_demand import KeyspacesOnDemand

LOOK_S: Final = 0.02  # work is counted, not tracked, so the end is found by looking
FAREWELL_S_MAX: Final = 3.0
"""How many seconds each part of the farewell may take: partitions here, the members, hooks."""
ENDING_TEXT: Final = "this node is ending: ask another member"


class HttpSide(Protocol):
    """The HTTP server beside the node."""

    site: SiteCertificate | None

    @property
    def under_way(self) -> int:
        """How many requests are not answered yet."""

    async def end(self) -> None:
        """Accept no more requests; return soon, whatever is under way."""


EndHook = Callable[[], Awaitable[Any] | Any]
"""A function or a coroutine function without arguments."""


@dataclass(frozen=True, slots=True)
class EndHooks:
    """Hooks that run while the node still owns its keys, and when its connections are closed."""

    before: list[EndHook] = field(default_factory=list)
    after: list[EndHook] = field(default_factory=list)


class Ending:
    """Takes a node out of the ring, and ends it.

    Attributes:
        http: the HTTP servers.
        hooks: what the application has done before and after the end.
        closes: is set when the node declines new work, and cuts what has no end.
    """

    def __init__(
        self,
        node: Node,
        driver: NodeDriver,
        channel: Channel,
        *,
        proxying: Proxy,
        keyspaces: KeyspacesOnDemand,
        dataflows: Callable[[], int],
        timeout_s: float,
    ) -> None:
        self.http: list[HttpSide] = []
        self.hooks = EndHooks()
        self.closes = trio.Event()
        self._node = node
        self._driver = driver
        self._channel = channel
        self._proxying = proxying
        self._keyspaces = keyspaces
        self._dataflows = dataflows
        self._timeout_s = timeout_s
        self._draining: Draining | None = None
        self._run_by_one = trio.Lock()
        self._over = False
        self._announced = trio.Event()
        self._farewell_said: trio.Event | None = None  # while no farewell has begun

    @property
    def begun(self) -> bool:
        """Whether the node was asked to end."""
        return self._draining is not None

    @property
    def phase(self) -> str:
        """How far the end is, for people and programs: ``serving``, or a value of `Phase`."""
        if self._draining is not None:
            return self._draining.phase.value
        return Phase.DRAINING.value if self.draining else "serving"

    @property
    def closing(self) -> bool:
        """Whether new work is declined."""
        return self._draining is not None and self._draining.phase is not Phase.DRAINING

    @property
    def draining(self) -> bool:
        """Whether this node owns no keys by its own wish."""
        return self.begun or self._node.local.draining

    def left(self) -> dict[Work, int]:
        """Return how much work of each kind is under way, in all directions."""
        serving = self._channel.serving()
        under_way = self._keyspaces.under_way()
        sending = self._channel.sending()
        return {
            work: max(  # not a sum: one request is counted in several places
                serving[work],  # includes clients' requests that wait for their next try
                under_way.get(work, 0),
                self._requests() if work is Work.REQUESTS else 0,
                sum(http.under_way for http in self.http) if work is Work.HTTP_REQUESTS else 0,
                sending if work is Work.UNSENT_ANSWERS else 0,
                self._dataflows() if work is Work.DATAFLOWS else 0,
            )
            for work in Work
        }

    def _requests(self) -> int:
        streams = self._proxying.application.streams
        return max(self._proxying.counts.in_flight, streams.unfinished)

    def observe(self, effect: Effect) -> None:
        """Note *effect*, a fact of the protocol."""
        if isinstance(effect, Announced):
            self._announced.set()
        elif isinstance(effect, Evicted) and self._farewell_said is not None:
            self._farewell_said.set()

    def drain(self) -> None:
        """Stop owning keys, and have others learn of it immediately.

        In the dialect `ringpop`, which has no label for it, the node leaves the ring instead.
        """
        self._announced = trio.Event()
        extends = self._node.dialect.extends
        self._driver.submit(self._node.drain if extends else self._node.leave)
        # Otherwise members learn of it by later pings, and forward requests here until then.
        self._driver.submit(self._node.announce)

    def undrain(self) -> None:
        """Own keys again; this has no effect once the node ends."""
        if not self.begun:
            extends = self._node.dialect.extends
            self._driver.submit(self._node.undrain if extends else self._node.rejoin)

    async def run(self) -> None:
        """End the node in good order; see the module `drain`.

        Afterwards no connection is left, and the process may end. A second call waits for the
        first. If the first was cancelled, the second does not wait for work, and says farewell.
        """
        async with self._run_by_one:  # a second call waits for the first
            if self._draining is None:
                over_at = trio.current_time() + self._timeout_s
                self._draining = _draining_until(over_at)
                if self.hooks.before:
                    await _run_hooks(self.hooks.before, self._timeout_s)
                    # It begins now: of what went before, the others know nothing.
                    self._draining = _draining_until(over_at)
                if self._tells_first:
                    await self._tell_members()
                await self._finish_work(self._draining)
            # Also if the first call was cancelled in the middle of its work.
            self._draining.give_up()
            if not self._over:
                await self._say_farewell(self._draining)
                self._over = True
                if self.hooks.after:
                    left_s = self._draining.over_at - trio.current_time()
                    await _run_hooks(self.hooks.after, max(left_s, FAREWELL_S_MAX))

    @property
    def _tells_first(self) -> bool:
        """Whether the members learn of the end before the work is finished, as in Ringpop.

        Its members do not know draining, and would gossip a `leave` that they forget again. Only
        partitions need it: others take them over while this node still serves them.
        """
        leaves = self._node.dialect.leaves_on_eviction
        has_begun = self._farewell_said is not None
        return not leaves and (has_begun or not self.left()[Work.PARTITIONS])

    async def _tell_members(self) -> None:
        if self._farewell_said is None:
            self._farewell_said = trio.Event()
        self._driver.submit(self._node.evict_self)
        with trio.move_on_after(FAREWELL_S_MAX):
            await self._farewell_said.wait()
        self._announced.set()

    async def _finish_work(self, draining: Draining) -> None:
        began_at = trio.current_time()
        if not self._tells_first:
            self.drain()
        log.info("draining", left=text_of_left(self.left()) or "nothing")
        try:
            await self._until_done(draining)
        finally:  # also if it is cancelled
            self._tell_cut(self.left(), trio.current_time() - began_at)

    def _tell_cut(self, left: dict[Work, int], after_s: float) -> None:
        del left[Work.PARTITIONS]  # they are not cut: others take them over
        if any(left.values()):
            counts = {work.value: count for work, count in left.items() if count}
            text = f"cut after {after_s:.1f} s: {text_of_left(left)}"
            log.warning("drain-cut", text=text, **counts)

    async def _until_done(self, draining: Draining) -> None:
        while True:
            announced = self._announced.is_set()
            phase = draining.look(self.left(), trio.current_time(), announced=announced)
            if phase is not Phase.DRAINING:
                self._keyspaces.end_waits()
                self._proxying.application.streams.cut()
                self.closes.set()
            if phase is Phase.ENDED:
                return
            self._channel.handlers.decline(draining.declined, ENDING_TEXT)
            await trio.sleep(LOOK_S)

    async def _say_farewell(self, draining: Draining) -> None:
        partitions = self.left()[Work.PARTITIONS]
        if partitions:
            text = (
                f"{partitions} partitions were not handed over yet: others take over the durable "
                "ones automatically; those in memory mode that are not moved now are lost"
            )
            log.warning("partitions-left", text=text, count=partitions)
        log.info("saying farewell")
        self._channel.handlers.decline(draining.declined, ENDING_TEXT)
        with trio.move_on_after(FAREWELL_S_MAX):
            await self._keyspaces.close()
        await self._tell_members()
        for http in self.http:
            await http.end()
        # Last: the farewell, and requests over HTTP, need the connections that this ends.
        await self._channel.say_goodbye("this node has ended")


def _draining_until(over_at: float) -> Draining:
    now = trio.current_time()
    return Draining(now=now, timeout_s=max(0.0, over_at - now))


async def _run_hooks(hooks: Sequence[EndHook], within_s: float) -> None:
    """Run *hooks*, all at the same time; after *within_s* seconds, cancel those that still run.

    Neither that nor an exception in one has another effect than a line in the log.
    """
    running = [getattr(hook, "__qualname__", repr(hook)) for hook in hooks]
    with trio.move_on_after(within_s):
        async with trio.open_nursery() as nursery:
            for hook, name in zip(hooks, running[:], strict=True):
                nursery.start_soon(_run, hook, name, running)
    if running:
        text = f"hooks of the end were cut after {within_s:.1f} s: {', '.join(running)}"
        log.warning("hooks-cut", text=text, hooks=running)


async def _run(hook: EndHook, name: str, running: list[str]) -> None:
    try:
        result = hook()
        if inspect.isawaitable(result):
            await result
    except BaseException as error:
        if not is_fault(error, trio.Cancelled):
            raise
        log.exception("hook-failed", hook=name)
    running.remove(name)
