"""S10, S11 and L6: which node handles a request, how often it runs, and that it succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.base.errors import RingpopError
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_sim.checks import Check
from ringpop_sim.checks.calm import CalmCheck
from ringpop_sim.checks.liveness import agree
from ringpop_sim.checks.placement import who_serves
from ringpop_sim.plans.plan import Impair
from ringpop_sim.units import s, seconds
from ringpop_sim.world.process import Life
from ringpop_sim.world.watcher import TrafficRequest

if TYPE_CHECKING:
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.route.errand import Ask
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.watcher import RequestAttempt, RequestEnded
    from ringpop_sim.world.world import World

RINGS_MAX: Final = 512  # rings take much memory
ENDED_MAX: Final = 100_000  # limits memory; a second end after so many others goes unnoticed


class OwnersHandle(Check):
    """S10: a request is sent to, and handled by, a node that owns all its keys.

    It is sent to the owner by the own list of the caller at that instant. It is handled only by a
    node that owns its keys by its own list.
    The check computes ownership anew from the rows. A forwarded request is handled if it passes the
    receiver's configured check: of the keys, of the checksum, or none. So with ``checksum`` and
    ``none`` the keys of forwarded requests are not checked at the receiver.

    With failover, the first so many members after a key may have it: each is asked only after those
    before it have failed, or while they are not alive in the caller's eyes.
    """

    invariants: ClassVar = ("S10",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rings: dict[tuple[tuple[str, str], ...], HashRing] = {}
        self._of: dict[Process, tuple[int, HashRing]] = {}

    def asked(self, request: TrafficRequest, ask: Ask[str]) -> None:
        traffic = self.world.plan.traffic
        assert traffic is not None
        ring, caller = self._ring(request.caller), request.caller.name
        if traffic.failover > 1:
            self._asked_one_of_several(request, ask, ring)
            return
        for key in ask.parts:
            owner = ring.lookup(key) if len(ring) else "nobody"
            if ask.to != owner:
                self.broke(
                    "S10", f"{caller} sent {key} to {ask.to}, by its own list {owner} has it"
                )

    def _asked_one_of_several(self, request: TrafficRequest, ask: Ask[str], ring: HashRing) -> None:
        traffic, (key,) = self.world.plan.traffic, request.keys
        assert traffic is not None
        may = ring.lookup_n(key, traffic.failover) if len(ring) else ()
        name, members = request.caller.name, request.caller.node.members
        if ask.to not in may:
            self.broke("S10", f"{name} sent {key} to {ask.to}, which is none of {may}")
            return
        is_alive = {each.name: each.status is Status.ALIVE for each in members}
        for before in may[: may.index(ask.to)]:
            if is_alive[before] and before not in request.asked:
                self.broke("S10", f"{name} sent {key} to {ask.to}, and did not ask {before} first")

    def attempt(self, attempt: RequestAttempt) -> None:
        traffic = self.world.plan.traffic
        assert traffic is not None
        if not attempt.ran or (attempt.forwarded and traffic.consistency == "none"):
            return
        ring, at, keys = self._ring(attempt.at), attempt.at.name, attempt.keys
        if attempt.forwarded and traffic.consistency == "checksum":
            if attempt.believed != ring.checksum:
                self.broke("S10", f"{at} handled {keys[0]}, sent with another ring's checksum")
            return
        for key in keys:
            owners = ring.lookup_n(key, traffic.failover) if len(ring) else ()
            if at not in owners:
                self.broke("S10", f"{at} handled {key}, which belongs to {owners} by its own list")

    def _ring(self, process: Process) -> HashRing:
        members = process.node.members
        known = self._of.get(process)
        if known is not None and known[0] == members.checksum:
            return known[1]
        extends, share = self.world.dialect.extends, self.world.config.damp_share
        owners = who_serves(list(members), extends=extends, damp_share=share)
        key = tuple(sorted(owners.items()))
        ring = self._rings.get(key)
        if ring is None:
            if len(self._rings) > RINGS_MAX:
                self._rings.clear()
            ring = self._rings[key] = HashRing(owners, dialect=self.world.dialect)
        self._of[process] = members.checksum, ring
        return ring


class RequestsEnd(Check):
    """S11: each request ends once for its caller, runs no more often than it may, and says so.

    - Each request ends exactly once, and within the time of its schedule and time-outs.
    - It takes at most one attempt and the retries; each goes from the caller to another node.
    - Each key runs once; if the request may run twice, once more for each attempt with an open end.
    - Each key has a result: the answer for that key, by a node at which it ran, or an error. The
      error says "no" effect only if the key never runs, and "unknown" only if an end was open.

    Exempt: if the network doubles messages, which connections do not, a request may run twice. A
    caller that is paused, or was disturbed since, need not end its requests in time.
    """

    invariants: ClassVar = ("S11",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._doubled = world.plan.link.duplicate > 0 or any(
            isinstance(o, Impair) and o.duplicate > 0 for o in world.plan.operations
        )
        self._open: dict[int, TrafficRequest] = {}
        self._ended: dict[int, None] = {}

    def asked(self, request: TrafficRequest, _ask: Ask[str]) -> None:
        self._open[request.number] = request

    def attempt(self, attempt: RequestAttempt) -> None:
        request, traffic = attempt.request, self.world.plan.traffic
        assert traffic is not None
        what = f"request {request.number}"
        if request.attempt_count > 1 + len(traffic.retry_schedule_us):
            self.broke("S11", f"{what} was tried {request.attempt_count} times")
        if attempt.forwarded and attempt.at is request.caller:
            self.broke("S11", f"{what} was sent by {request.caller.name} to itself")
        if self._doubled or not attempt.ran:
            return
        for key in attempt.keys:
            runs, lost = request.runs[key], request.lost[key]
            if runs > 1 + (lost if traffic.idempotent else 0):
                self.broke("S11", f"{what} ran {runs} times for {key}; {lost} answers were lost")
            self._judge(request, key)

    def request_ended(self, ended: RequestEnded) -> None:
        request, number = ended.request, ended.request.number
        assert isinstance(request, TrafficRequest)
        self._open.pop(number, None)
        if number in self._ended:
            self.broke("S11", f"request {number} ended twice")
        self._ended[number] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        if not self._doubled and request.caller.running:
            for key in request.keys:
                self._judge(request, key)

    def _judge(self, request: TrafficRequest, key: str) -> None:
        """Compare the result of *key*, if there is one, with what happened to it."""
        results, runs, lost = request.errand.results, request.runs[key], request.lost[key]
        what = f"request {request.number}"
        if key not in results:
            if request.over and request.caller.running:
                self.broke("S11", f"{what} ended without a result for {key}")
            return
        result = results[key]
        if not isinstance(result, RingpopError):
            if not runs or not str(result).startswith(f"{key} by "):
                self.broke("S11", f"{what} ran {runs} times for {key}, with the result {result}")
        elif runs and result.took_effect == "no":
            self.broke("S11", f"{what} ran for {key}, though it says: {result}")
        elif not lost and result.took_effect == "unknown":
            self.broke("S11", f"{what} had no open end for {key}, though it says: {result}")

    def finish(self) -> None:
        traffic = self.world.plan.traffic
        if traffic is None:
            return
        attempts = 1 + len(traffic.retry_schedule_us)
        lasts_us = sum(traffic.retry_schedule_us) + attempts * traffic.timeout_us + s
        for request in self._open.values():
            caller, age_us = request.caller, self.world.now - request.started_at
            sound = caller.life is Life.RUNNING
            if sound and age_us > lasts_us and self.world.left_alone_for_us(caller) > age_us:
                for_s = f"{seconds(age_us):.1f} s"
                self.broke("S11", f"request {request.number} has been open for {for_s}")


class RequestsSucceed(CalmCheck):
    """L6: while the cluster is calm and agrees, requests succeed within their schedule.

    The check looks when a request fails. A failure breaks L6 if the world was calm (`Calm`) since
    shortly before the request was sent, no row changed meanwhile, and all nodes agree.

    Exempt: a request whose caller ended, or whose key no node owns.
    """

    invariants: ClassVar = ("L6",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._changed_at = 0

    def fact(self, _process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.StatusChanged):
            self._changed_at = self.world.now

    def request_ended(self, ended: RequestEnded) -> None:
        if not ended.error:
            return
        request, now = ended.request, self.world.now
        lasted_us = now - request.started_at + s
        traffic = self.world.plan.traffic
        assert traffic is not None
        in_time = 2 * self._calm.late_us + traffic.service_us < traffic.timeout_us
        # A second longer than the request, so that nothing from before it is in progress.
        steady = self._calm.lasts_us > lasted_us and now - self._changed_at > lasted_us
        if in_time and steady and request.caller.running and self._serves():
            self.broke("L6", f"request {request.number} failed: {ended.error}")

    def _serves(self) -> bool:
        running = self.world.running
        # All may have left by command, and then no node owns a key.
        return agree(running, wholly=True) and any(
            process.node.local.status.reachable for process in running
        )
