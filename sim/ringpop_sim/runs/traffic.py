"""Requests for keys, routed to their owners by the product's own routes and rings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.errors import CallTimeout, ConnectFailed, ConnectionLost, PeerDeclined
from ringpop_py.proxy.schedule import GiveUp, HandleHere, RetryPolicy, Route, SendTo, refusal
from ringpop_py.ring.hashring import HashRing
from ringpop_py.ring.placement import Placement
from ringpop_sim.checks import Check
from ringpop_sim.units import s, seconds
from ringpop_sim.world.process import Life
from ringpop_sim.world.watcher import RequestAttempt, RequestEnded, TrafficRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.errors import CallError
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

FOLLOWED_MAX: Final = 64


class Rings(Check):
    """The rings of all processes.

    In clusters of up to `FOLLOWED_MAX` nodes each process has its own ring, which follows its
    member list as the product's does. In larger clusters processes with equal member lists share
    one ring, made from the whole list.
    """

    wants_facts: ClassVar[bool] = True

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


class TrafficSource:
    """Sends the requests of the world's plan, and follows each one to its end."""

    def __init__(self, world: World, rings: Rings) -> None:
        assert world.plan.traffic is not None
        self._world = world
        self._rings = rings
        self._traffic = world.plan.traffic
        self._rng = random.Random(f"traffic {world.seed}")
        self._policy = RetryPolicy(
            len(self._traffic.retry_schedule_us),
            tuple(seconds(delay_us) for delay_us in self._traffic.retry_schedule_us),
            self._traffic.idempotent,
        )
        self.counts = {"sent": 0, "answered": 0, "failed": 0, "abandoned": 0, "retries": 0}
        self.open_count = 0
        world.push(self._traffic.from_us, self._next)

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
            self._begin(group, caller)

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

    def _begin(self, keys: list[str], caller: Process) -> None:
        self.counts["sent"] += 1
        self.open_count += 1
        route = Route(keys, caller.name, self._policy)
        self._go(TrafficRequest(self.counts["sent"], caller, route, self._world.now))

    def _go(self, request: TrafficRequest) -> None:
        caller = request.caller
        if request.over:
            return
        if not caller.running:
            self._end(request, "its caller ended")
            return
        # No event tells the traffic that a process continues, so it looks again.
        if caller.life is Life.PAUSED:
            self._world.push(self._world.now + s // 10, self._go, request)
            return
        ring = self._rings.of(caller)
        step = request.route.next_step(ring)
        if isinstance(step, GiveUp):
            self._end(request, type(step.error).__name__)
        elif isinstance(step, HandleHere):
            request.run_count += 1
            self._tell(RequestAttempt(request, caller, ring.checksum, ran=True, forwarded=False))
            self._end(request, "")
        else:
            self._send(request, step, ring)

    def _send(self, request: TrafficRequest, step: SendTo, ring: HashRing) -> None:
        world, caller = self._world, request.caller
        request.attempt_count += 1
        request.open_attempt, request.owner = request.attempt_count, step.owner
        row = caller.node.members.get(step.owner)
        assert row is not None, f"{step.owner} is in the ring and not in the list"
        # Each message of an attempt has its number, so that a late one cannot end the next attempt.
        number = request.attempt_count
        machine = world.network.machine_of(row.address)
        arguments = (request, number, machine, ring.checksum)
        world.push(world.now + self._traffic.timeout_us, self._timed_out, (request, number))
        if machine == caller.machine:  # like the product: a node sends nothing to its own address
            world.push(world.now, self._refused, (request, number))
        elif world.network.is_refused(caller.machine, machine):
            world.transmit(machine, caller.machine, self._refused, (request, number))
        else:
            world.transmit(caller.machine, machine, self._arrived, arguments)

    def _arrived(self, arguments: tuple[TrafficRequest, int, int, int]) -> None:
        request, number, machine, believed = arguments
        world = self._world
        owner = world.at.get(machine)
        if owner is None:
            if not world.network.is_silent(machine):
                world.transmit(machine, request.caller.machine, self._refused, (request, number))
            return
        if owner.life is Life.PAUSED:  # the request waits in its socket
            world.push(world.now + s // 10, self._arrived, arguments)
            return
        ring = self._rings.of(owner)
        accepted = self._accepts(owner, ring, request.route.keys, believed)
        self._tell(RequestAttempt(request, owner, believed, ran=accepted, forwarded=True))
        if not accepted:
            caller = request.caller.machine
            world.transmit(owner.machine, caller, self._declined, (request, number))
            return
        request.run_count += 1
        world.push(world.now + self._traffic.service_us, self._served, (request, number, owner))

    def _served(self, arguments: tuple[TrafficRequest, int, Process]) -> None:
        request, number, owner = arguments
        # The request ran, but its answer is lost with the process.
        ends = self._answered if owner.running else self._lost
        caller = request.caller.machine
        self._world.transmit(owner.machine, caller, ends, (request, number))

    def _accepts(self, owner: Process, ring: HashRing, keys: Sequence[str], believed: int) -> bool:
        rule = self._traffic.consistency
        return not refusal(keys, believed, local=owner.name, ring=ring, consistency=rule)

    # How an attempt ends for its caller.

    def _answered(self, argument: tuple[TrafficRequest, int]) -> None:
        request, number = argument
        if not request.over and number == request.open_attempt and request.caller.running:
            self._end(request, "")

    def _refused(self, argument: tuple[TrafficRequest, int]) -> None:
        self._failed(*argument, ConnectFailed("refused"))

    def _declined(self, argument: tuple[TrafficRequest, int]) -> None:
        self._failed(*argument, PeerDeclined("not the owner"))

    def _timed_out(self, argument: tuple[TrafficRequest, int]) -> None:
        self._failed(*argument, CallTimeout("no answer in time"))

    def _lost(self, argument: tuple[TrafficRequest, int]) -> None:
        self._failed(*argument, ConnectionLost("the connection ended"))

    def _failed(self, request: TrafficRequest, number: int, error: CallError) -> None:
        if request.over or number != request.open_attempt:
            return
        request.open_attempt = 0  # an answer to this attempt is now too late
        # `RequestsEnd` allows an idempotent request one more run for each of these.
        if error.took_effect == "unknown":
            request.lost_count += 1
        after = request.route.failed(error, seconds(self._world.now))
        if isinstance(after, GiveUp):
            self._end(request, type(after.error).__name__)
            return
        self.counts["retries"] += 1
        if isinstance(error, PeerDeclined):
            self._reconcile(request)
        self._world.push(self._world.now + int(after.after_s * s), self._go, request)

    def _reconcile(self, request: TrafficRequest) -> None:
        """Exchange the differing views before the next attempt, as `Ringpop._reconcile` does."""
        owner = request.owner
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

    def _tell(self, attempt: RequestAttempt) -> None:
        for check in self._world.checks:
            check.attempt(attempt)
