"""Requests for keys, routed to their owners by the product's own routes and rings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import (
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    NoOwner,
    PeerDeclined,
    RingpopError,
)
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.member.ring.placement import Placement
from ringpop_py.member.swim.member import Status
from ringpop_py.route.proxy.owners import refusal, successors_in
from ringpop_py.route.proxy.retry import SchedulePolicy
from ringpop_sim.checks import Check
from ringpop_sim.units import s, seconds
from ringpop_sim.world.process import Life
from ringpop_sim.world.requests import WholeRequest
from ringpop_sim.world.watcher import RequestAttempt, RequestEnded, TrafficRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.route.errand import Ask
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

FOLLOWED_MAX: Final = 64


class Rings(Check):
    """The rings of all processes.

    In clusters of up to `FOLLOWED_MAX` nodes each process has its own ring, which follows its
    member list as the product's does. In larger clusters processes with equal member lists share
    one ring, made from the whole list.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._follows = world.plan.nodes <= FOLLOWED_MAX
        self._placements: dict[int, Placement] = {}
        self._by_members: dict[tuple[tuple[str, str], ...], HashRing] = {}
        self._of: dict[int, tuple[int, HashRing]] = {}

    def started(self, process: Process) -> None:
        if self._follows:
            self._placements[process.serial] = Placement(process.node)

    def members_changed(self, process: Process, names: Sequence[str]) -> None:
        if self._follows:
            # All that changed together in one step, as the product's ring follows it.
            self._placements[process.serial].follow(names)

    def of(self, process: Process) -> HashRing:
        """Return the ring that *process* has now."""
        if self._follows:
            return self._placements[process.serial].ring
        members = process.node.members
        known = self._of.get(process.serial)
        if known is not None and known[0] == members.checksum:
            return known[1]
        owners = tuple(sorted((m.name, m.identity) for m in members if members.in_ring(m)))
        ring = self._by_members.get(owners)
        if ring is None:
            ring = HashRing(dict(owners), dialect=self.world.dialect)
            self._by_members[owners] = ring
        self._of[process.serial] = members.checksum, ring
        return ring


class CallerRoutes:
    """The owners of keys, as *caller* sees them. See `proxy.owners.KeyRoutes`."""

    def __init__(self, rings: Rings, caller: Process) -> None:
        self._rings = rings
        self._caller = caller

    def destination(self, key: str) -> str:
        """Return the owner by the ring of the caller."""
        ring = self._rings.of(self._caller)
        return ring.lookup(key) if len(ring) else ""

    @property
    def owned_by(self) -> object:
        """What decides now."""
        return self._rings.of(self._caller)

    def owners_of(self, keys: Sequence[str]) -> Sequence[str]:
        """Return the owner of each of *keys*; empty texts if there is none."""
        return [self.destination(key) for key in keys]

    def successors(self, key: str, count: int) -> list[str]:
        """Return the owner and those after it, as `RingOwners.successors` does."""

        def is_doubtful(name: str) -> bool:
            row = self._caller.node.members.get(name)
            return row is None or row.status is not Status.ALIVE

        return successors_in(self._rings.of(self._caller), key, count, is_doubtful)

    def why_nobody(self, key: str) -> RingpopError:
        """Return why no member owns *key*."""
        return NoOwner(f"no member is in the ring, so nobody owns {key}")


class TrafficSource:
    """Sends the requests of the world's plan: a driver of the product's own decisions."""

    def __init__(self, world: World, rings: Rings) -> None:
        assert world.plan.traffic is not None
        self._world = world
        self._rings = rings
        self._traffic = traffic = world.plan.traffic
        self._rng = random.Random(f"traffic {world.seed}")
        schedule_s = tuple(seconds(delay_us) for delay_us in traffic.retry_schedule_us)
        self._policy = SchedulePolicy(
            len(schedule_s), schedule_s, traffic.idempotent, traffic.timeout_us, traffic.failover
        )
        self.counts = {"sent": 0, "answered": 0, "failed": 0, "abandoned": 0, "retries": 0}
        self.open_count = 0
        world.push(traffic.from_us, self._next)

    def _next(self, _argument: object) -> None:
        gap_us = self._rng.expovariate(self._traffic.per_second) * s
        # At least 1, so that time passes at any rate.
        self._world.push(self._world.now + 1 + int(gap_us), self._next)
        callers = [p for p in self._world.running if p.life is Life.RUNNING and p.node.ready]
        keys = [self._key() for _ in range(self._traffic.keys_each)]
        if not callers:
            return
        caller = callers[self._rng.randrange(len(callers))]
        for group in self._by_owner(keys, caller):
            self._begin(tuple(dict.fromkeys(group)), caller)

    def _key(self) -> str:
        return f"key-{self._rng.randrange(self._traffic.keys)}"

    def _by_owner(self, keys: list[str], caller: Process) -> Iterable[list[str]]:
        """Group *keys* as `handle_or_proxy_all` does: by owner, in the view of *caller*."""
        if len(keys) == 1 or not len(ring := self._rings.of(caller)):
            return [keys]
        groups: dict[str, list[str]] = {}
        for key in keys:
            groups.setdefault(ring.lookup(key), []).append(key)
        return groups.values()

    def _begin(self, keys: tuple[str, ...], caller: Process) -> None:
        self.counts["sent"] += 1
        self.open_count += 1
        errand = WholeRequest(keys, self._policy)
        self._go(TrafficRequest(self.counts["sent"], caller, keys, self._world.now, errand))

    # The loop of a driver.

    def _go(self, request: TrafficRequest) -> None:
        if request.over:
            return
        if not request.caller.running:
            self._end(request, "its caller ended")
        # No event tells the traffic that a process continues, so it looks again.
        elif request.caller.life is Life.PAUSED:
            self._world.push(self._world.now + s // 10, self._go, request)
        else:
            self._step(request)

    def _step(self, request: TrafficRequest, declined_by: str = "") -> None:
        step = request.errand.next(CallerRoutes(self._rings, request.caller), self._world.now)
        if step is None:
            results = request.errand.results.values()
            errors = [result for result in results if isinstance(result, RingpopError)]
            self._end(request, type(errors[0]).__name__ if errors else "")
            return
        if declined_by and isinstance(step, int):
            self._reconcile(request, declined_by)
        if isinstance(step, int):
            self.counts["retries"] += 1
            self._world.push(step, self._go, request)
        else:
            for ask in step:
                for check in self._world.checks:
                    check.asked(request, ask)
                request.asked.add(ask.to)
            for ask in step:
                self._send((request, ask))

    def _send(self, argument: tuple[TrafficRequest, Ask[str]]) -> None:
        (request, ask), world = argument, self._world
        caller = request.caller
        if request.over:
            return
        if not caller.running:
            self._end(request, "its caller ended")
            return
        if caller.life is Life.PAUSED:
            world.push(world.now + s // 10, self._send, argument)
            return
        believed = self._rings.of(caller).checksum
        if ask.to == caller.name:
            results = self._serve(request, ask, caller, believed)
            assert results is not None, "it owns the keys by its own ring"
            self._finish(request, ask, results)
            return
        request.attempt_count += 1
        row = caller.node.members.get(ask.to)
        assert row is not None, f"{ask.to} is in the ring and not in the list"
        machine = world.network.machine_of(row.address)
        world.push(world.now + ask.wait_us, self._timed_out, (request, ask))
        if machine == caller.machine:  # like the product: a node sends nothing to its own address
            world.push(world.now, self._refused, (request, ask))
        elif world.network.is_refused(caller.machine, machine):
            world.transmit(machine, caller.machine, self._refused, (request, ask))
        else:
            arguments = (request, ask, machine, believed)
            world.transmit(caller.machine, machine, self._arrived, arguments)

    # At the owner.

    def _arrived(self, arguments: tuple[TrafficRequest, Ask[str], int, int]) -> None:
        request, ask, machine, believed = arguments
        world = self._world
        owner, caller = world.at.get(machine), request.caller.machine
        if owner is None:
            if not world.network.is_silent(machine):
                world.transmit(machine, caller, self._refused, (request, ask))
            return
        if owner.life is Life.PAUSED:  # the request waits in its socket
            world.push(world.now + s // 10, self._arrived, arguments)
            return
        results = self._serve(request, ask, owner, believed)
        if results is None:
            world.transmit(owner.machine, caller, self._declined, (request, ask))
            return
        served = (request, ask, owner, results)
        world.push(world.now + self._traffic.service_us, self._served, served)

    def _serve(
        self, request: TrafficRequest, ask: Ask[str], at: Process, believed: int
    ) -> list[Any] | None:
        """Return the result of each part, or None if *at* declines them."""
        forwarded = at is not request.caller
        ran = not forwarded or not refusal(
            ask.parts,
            believed,
            local=at.name,
            ring=self._rings.of(at),
            consistency=self._traffic.consistency,
            failover=self._traffic.failover,
        )
        if ran:
            request.runs.update(ask.parts)
        attempt = RequestAttempt(request, ask.parts, at, believed, ran, forwarded)
        for check in self._world.checks:
            check.attempt(attempt)
        return [f"{key} by {at.name}" for key in ask.parts] if ran else None

    def _served(self, arguments: tuple[TrafficRequest, Ask[str], Process, list[Any]]) -> None:
        request, ask, owner, results = arguments
        caller = request.caller.machine
        if owner.running:
            self._world.transmit(owner.machine, caller, self._answered, (request, ask, results))
        else:  # the request ran, but its answer is lost with the process
            self._world.transmit(owner.machine, caller, self._lost, (request, ask))

    # How an attempt ends for its caller. An errand ignores what comes late, so it gets everything.

    def _answered(self, arguments: tuple[TrafficRequest, Ask[str], list[Any]]) -> None:
        if arguments[0].caller.running:
            self._finish(*arguments)

    def _refused(self, argument: tuple[TrafficRequest, Ask[str]]) -> None:
        self._finish(*argument, ConnectFailed("refused"))

    def _declined(self, argument: tuple[TrafficRequest, Ask[str]]) -> None:
        self._finish(*argument, PeerDeclined("not the owner"))

    def _timed_out(self, argument: tuple[TrafficRequest, Ask[str]]) -> None:
        self._finish(*argument, CallTimeout("no answer in time"))

    def _lost(self, argument: tuple[TrafficRequest, Ask[str]]) -> None:
        self._finish(*argument, ConnectionLost("the connection ended"))

    def _finish(self, request: TrafficRequest, ask: Ask[str], end: list[Any] | CallError) -> None:
        errand = request.errand
        if request.over or not errand.under_way:
            return
        if isinstance(end, CallError):
            # `RequestsEnd` allows one more run for each of these, if the request may run twice.
            if ask.number not in request.ended and end.took_effect == "unknown":
                request.lost.update(ask.parts)
            errand.failed(ask, end)
        else:
            errand.answered(ask, end)
        request.ended.add(ask.number)
        if errand.under_way:
            return
        if request.caller.life is Life.PAUSED:  # it decides when it goes on, by what it knows then
            self._go(request)
        else:
            self._step(request, ask.to if isinstance(end, PeerDeclined) else "")

    def _reconcile(self, request: TrafficRequest, owner: str) -> None:
        """Exchange the differing views before the next attempt, as `Ringpop._reconcile` does."""
        if request.caller.node.dialect.pings_out_of_turn:
            self._world.do(request.caller, lambda node, now: node.exchange(owner, now))

    def _end(self, request: TrafficRequest, error: str) -> None:
        assert not request.over
        request.over = True
        self.open_count -= 1
        if not error:
            self.counts["answered"] += 1
        else:  # a caller that has ended waits for no answer
            self.counts["failed" if request.caller.running else "abandoned"] += 1
        ended = RequestEnded(request, error, self._world.now - request.started_at)
        for check in self._world.checks:
            check.request_ended(ended)
