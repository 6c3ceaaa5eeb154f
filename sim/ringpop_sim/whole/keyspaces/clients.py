"""Clients of a keyspace of whole daemons: their requests, outcomes, and what they do when one dies.

Two thirds of the requests begin at a daemon, as those of its application do. If it dies, some of
these clients repeat a write at another one, with the same id. The others come from clients that are
no members.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio

from ringpop_py.base.errors import ApplicationError, OutcomeUnknown, RingpopError
from ringpop_py.base.values.operations import Change
from ringpop_py.client.aio.keyspaces import AsyncKeyspaceClient
from ringpop_py.state.actors.mail import stored_under
from ringpop_sim.linear import ABSENT, ANY, Invocation
from ringpop_sim.units import ms, s
from ringpop_sim.whole.actors import KIND
from ringpop_sim.whole.cluster import Daemon
from ringpop_sim.whole.keyspaces.outside import OutsideClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_sim.whole.keyspaces.shares import DaemonShares
    from ringpop_sim.whole.stage.scheduling import TrioProcess
    from ringpop_sim.world.process import Process

READ_SHARE: Final = 0.35
OUTSIDE_SHARE: Final = 0.33
"""The share of requests from clients that are no members."""
ALONE_SHARE: Final = 0.4
"""The share of requests for one key."""
BURST_MAX: Final = 4
TOGETHER_US: Final = 6 * ms
GAP_US: Final = 120 * ms
"""The times between the requests of a burst at most, and between bursts in the mean."""
MAIL_SHARES: Final = (READ_SHARE, 0.5, 0.15, 0.15, 0.3)
"""The shares of messages to actors that read, that are worked on, that fail, and of those for whose
reply nobody waits; and of reads that do not wake the actor."""
REPEATED_SHARE: Final = 0.6
REPEAT_US: Final = (300 * ms, 1300 * ms)


@dataclass(slots=True, eq=False)
class DaemonRequest:
    """One request: it reads *keys*, or appends one of *items* to each.

    Attributes:
        process: the daemon that it was sent to last, or beside which the client is.
        sent_at: when that was; *began_at* is when it was sent first.
        may_have_run: whether an earlier attempt may have taken effect.
        outside: whether the client is not a member.
        is_apart: whether it is no part of the history: who has begun it keeps it.
    """

    is_apart: ClassVar[bool] = False

    process: Daemon
    keys: Sequence[str]
    items: Sequence[int]
    began_at: int
    sent_at: int
    may_have_run: bool = False
    outside: bool = field(default=False, init=False)

    @property
    def errand(self) -> str:
        """What it asks for."""
        return f"{'append to' if self.items else 'get'} {', '.join(self.keys)}"

    async def carry_out(
        self, keyspace: Keyspace | AsyncKeyspaceClient, named: dict[str, Any]
    ) -> list[Any]:
        """Return the values of the keys, or errors; *named* are arguments of each call."""
        keys = self.keys
        if not self.items and len(keys) == 1:
            return [await keyspace.get(keys[0], **named)]
        if not self.items:
            values = await keyspace.get_many(keys, **named)
            return [values.get(key) for key in keys]
        named["operation_id"] = f"item-{self.items[0]}"
        if len(keys) == 1:
            return [await keyspace.update(keys[0], "append", self.items[0], **named)]
        pairs = zip(keys, self.items, strict=True)
        changes = [Change(key, "append", item) for key, item in pairs]
        found = await keyspace.update_many(changes, **named)
        return [one if isinstance(one, RingpopError) else one.values[0] for one in found]


@dataclass(slots=True, eq=False)
class MailRequest(DaemonRequest):
    """A message to an actor, whose record has the key; it reads, or has one item to append.

    Attributes:
        message: see `ListKeeper`; if it fails, it has an item that nobody may ever see.
        looks: whether the state is read, and no message sent.
        tells: whether nobody waits for the reply.
    """

    message: list[int] = field(default_factory=list)
    looks: bool = False
    tells: bool = False

    @property
    def errand(self) -> str:
        return f"{self.message} to {self.keys[0]}"

    async def carry_out(
        self, keyspace: Keyspace | AsyncKeyspaceClient, named: dict[str, Any]
    ) -> list[Any]:
        key = self.keys[0].removeprefix(f"{KIND}/")
        actors: Any = self.process.actors
        if isinstance(keyspace, AsyncKeyspaceClient):
            actors = keyspace.actors(KIND)
        if self.looks:
            return [await actors.state_of(key, **named)]
        if self.items:
            named["operation_id"] = f"item-{self.items[0]}"
        if self.tells:
            await actors.tell(key, self.message, **named)
            return [OutcomeUnknown("nobody waits for the reply")]
        try:
            return [await actors.ask(key, self.message, **named)]
        except ApplicationError as error:
            if error.kind != KIND:
                raise
            return [[int(item) for item in error.message.split()]]


class DaemonClients:
    """See the module.

    Attributes:
        history: what is known of all that has ended.
        open: the requests that have not ended.
        on_end: called with each request that has got its results.
        outsiders: by number of their daemons, the clients that are no members.
        begin_expiring: begins a request for keys that expire, at a daemon.
    """

    def __init__(self, shares: DaemonShares) -> None:
        self.plan = shares.plan
        self.history: list[Invocation] = []
        self.open: dict[DaemonRequest, None] = {}
        self.ended_count = 0
        self.failed_count = 0
        self.on_end: list[Callable[[DaemonRequest, Sequence[Any]], None]] = []
        self.begin_expiring: Callable[[Daemon], None]
        self._shares = shares
        self._world = shares.cluster
        self._rng = random.Random(f"clients {shares.world.seed}")
        self._is_calm = False
        self.outsiders: dict[int, OutsideClient] = {}
        self._items_count = 0
        self._world.push(self.plan.from_us, self._next)
        shares.on_end.append(self._ended)

    def _next(self, _: object) -> None:
        world = self._world
        if not self.outsiders:
            numbers = range(world.plan.nodes)
            self.outsiders = {number: OutsideClient(world, number) for number in numbers}
        gap_us = self._rng.expovariate(self.plan.per_second) * s
        world.push(world.now + 1 + int(gap_us), self._next)
        if world.now > world.plan.quiet_at_us + self.plan.after_us:
            return
        daemon = self.a_daemon()
        if daemon is not None:
            self._begin(daemon)

    def machine_of(self, body: TrioProcess) -> int:
        """Return the machine of a client that is no member."""
        return next(each.number for each in self.outsiders.values() if each.body is body)

    def burst(self, until: int) -> None:
        """Begin several requests at a time, again and again until *until*."""
        world, rng = self._world, self._rng
        self._is_calm = True
        if world.now > until:
            return
        for _ in range(rng.randint(1, BURST_MAX)):
            daemon = self.a_daemon()
            if daemon is not None:
                world.push(world.now + rng.randint(0, TOGETHER_US), self._begin_at, daemon)
        gap_us = 1 + int(rng.expovariate(1 / GAP_US))
        world.push(world.now + gap_us, lambda _: self.burst(until))

    def _begin_at(self, daemon: Daemon) -> None:
        if daemon.serves:
            self._begin(daemon)

    def a_daemon(self) -> Daemon | None:
        """Return a daemon that serves."""
        found = [p for p in self._world.running if isinstance(p, Daemon) and p.serves]
        return found[self._rng.randrange(len(found))] if found else None

    def _begin(self, daemon: Daemon) -> None:
        plan, rng, now = self.plan, self._rng, self._world.now
        if plan.actors and rng.random() < plan.actors:
            self._begin_mail(daemon)
            return
        if plan.expiring and rng.random() < plan.expiring:
            self.begin_expiring(daemon)
            return
        chosen = rng.sample(range(plan.keys), min(plan.keys_each, plan.keys))
        if rng.random() < ALONE_SHARE:
            chosen = chosen[:1]
        keys = [f"key-{number}" for number in chosen]
        items: list[int] = []
        if rng.random() >= READ_SHARE:
            items = [self._items_count + 1 + at for at in range(len(keys))]
            self._items_count += len(keys)
        self.send(DaemonRequest(daemon, keys, items, now, now), daemon)

    def _begin_mail(self, daemon: Daemon) -> None:
        plan, rng, now = self.plan, self._rng, self._world.now
        key = stored_under(KIND, f"actor-{rng.randrange(plan.keys)}")
        reads, works, fails, tells, looks = (rng.random() < share for share in MAIL_SHARES)
        self._items_count += 1
        item = 0 if reads and not fails else self._items_count
        request = MailRequest(daemon, [key], [item] if item and not fails else [], now, now)
        works_us = rng.randint(0, plan.busy_us) if works and not self._is_calm else 0
        request.message = [item, works_us, int(fails)]
        request.tells = bool(request.items) and tells and not self._is_calm
        request.looks = not item and looks
        self.send(request, daemon)

    def send(self, request: DaemonRequest, daemon: Daemon) -> None:
        """Send *request* to *daemon* for the first time, from there or from outside."""
        # A client is configured with one address, where its daemon may be no longer.
        is_there = daemon.machine == daemon.number
        request.outside = self._rng.random() < OUTSIDE_SHARE and is_there
        self._send(request, daemon)

    def _send(self, request: DaemonRequest, daemon: Daemon) -> None:
        request.process, request.sent_at = daemon, self._world.now
        self.open[request] = None
        if request.outside:
            client = self.outsiders[daemon.number]
            client.begin(lambda: self._do(request, daemon, client.keyspace))
        else:
            self._world.begin(daemon, lambda _: self._do(request, daemon, daemon.keyspace))

    async def _do(
        self,
        request: DaemonRequest,
        daemon: Daemon,
        keyspace: Keyspace | AsyncKeyspaceClient | None,
    ) -> None:
        """Send *request* to *daemon*, in a task of its own."""
        assert keyspace is not None
        found: list[Any]
        try:
            found = await request.carry_out(keyspace, {"timeout_s": self.plan.timeout_us / s})
        except RingpopError as error:
            found = [error for _ in request.keys]
            self.failed_count += 1
        except trio.Cancelled:  # the daemon ends
            self._is_cut_off(request)
            raise
        # Otherwise the client has asked another one.
        if request in self.open and request.process is daemon:
            self._record(request, found)

    # Outcomes.

    def _record(self, request: DaemonRequest, found: list[Any]) -> None:
        """Record what came of *request*: for each key a value or an error."""
        del self.open[request]
        self.ended_count += 1
        for call in self.on_end:
            call(request, found)
        if request.is_apart:
            return
        for key, one in zip(request.keys, found, strict=True):
            if not request.items and not isinstance(one, RingpopError):
                self._add(request, key, "get", None, tuple(one) if one else ABSENT)
        for key, item, one in zip(request.keys, request.items, found, strict=False):
            if not isinstance(one, RingpopError):
                # Another last item means that an earlier attempt has written this one.
                is_last = bool(one) and one[-1] == item  # absent: a later writer has won
                self._add(request, key, "append", item, tuple(one) if is_last else ANY)
            elif one.took_effect != "no" or request.may_have_run:
                self._add(request, key, "append", item, ANY, is_open=True)

    def _add(
        self,
        request: DaemonRequest,
        key: str,
        name: str,
        argument: Any,
        seen: Any,
        *,
        is_open: bool = False,
    ) -> None:
        world = self._world
        world.trace.note(world.now, request.process.serial, (key, name, seen))
        end = None if is_open else world.now
        self.history.append(Invocation(key, name, argument, seen, request.began_at, end))

    def all_operations(self) -> list[Invocation]:
        """Return the history, with the writes whose requests never ended, as open ones."""
        still = [one for request in self.open for one in self._open_operations(request)]
        return self.history + still

    # The end of a daemon.

    def _ended(self, process: Process) -> None:
        for request in list(self.open):
            if request.process is process and not request.outside:
                self._is_cut_off(request)

    def _is_cut_off(self, request: DaemonRequest) -> None:
        """Have the client of *request* repeat it at another daemon, or give it up."""
        world, rng = self._world, self._rng
        request.may_have_run = True
        if rng.random() < REPEATED_SHARE:
            world.push(world.now + rng.randint(*REPEAT_US), self._repeat, request)
        else:
            self._give_up(request)

    def _repeat(self, request: DaemonRequest) -> None:
        daemon = self.a_daemon()
        if daemon is None:
            self._give_up(request)
        elif request in self.open:
            self._send(request, daemon)

    def _give_up(self, request: DaemonRequest) -> None:
        if request in self.open:
            del self.open[request]
            self.ended_count += 1
            self.history += self._open_operations(request)

    @staticmethod
    def _open_operations(request: DaemonRequest) -> list[Invocation]:
        return [
            Invocation(key, "append", item, ANY, request.began_at, None)
            for key, item in zip(request.keys, request.items, strict=False)
            if not request.is_apart
        ]
