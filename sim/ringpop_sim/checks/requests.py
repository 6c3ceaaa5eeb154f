"""S10, S11 and L6: which node handles a request, how often it runs, and that it succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.ring.hashring import HashRing
from ringpop_py.swim import effects as fx
from ringpop_sim.checks import Check
from ringpop_sim.checks.calm import CalmCheck
from ringpop_sim.checks.liveness import agree
from ringpop_sim.checks.placement import who_serves
from ringpop_sim.plans.plan import Impair
from ringpop_sim.units import s, seconds
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from ringpop_py.swim.effects import Effect
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.watcher import RequestAttempt, RequestEnded, TrafficRequest
    from ringpop_sim.world.world import World

RINGS_MAX: Final = 512  # rings take much memory
ENDED_MAX: Final = 100_000  # limits memory; a second end after so many others goes unnoticed


class OwnersHandle(Check):
    """S10: a request is handled only by a node that owns all its keys, by that node's own list.

    The check computes ownership anew from the rows at that instant. A forwarded request is
    handled if it passes the receiver's configured check: of the keys, of the checksum, or none.
    So with ``checksum`` and ``none`` the keys of forwarded requests are not checked.
    """

    invariants: ClassVar = ("S10",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rings: dict[tuple[tuple[str, str], ...], HashRing] = {}
        self._of: dict[Process, tuple[int, HashRing]] = {}

    def attempt(self, attempt: RequestAttempt) -> None:
        traffic = self.world.plan.traffic
        assert traffic is not None
        if not attempt.ran or (attempt.forwarded and traffic.consistency == "none"):
            return
        ring, at, keys = self._ring(attempt.at), attempt.at.name, attempt.request.route.keys
        if attempt.forwarded and traffic.consistency == "checksum":
            if attempt.believed != ring.checksum:
                self.broke("S10", f"{at} handled {keys[0]}, sent with another ring's checksum")
            return
        for key in keys:
            owner = ring.lookup(key) if len(ring) else "nobody"
            if owner != at:
                self.broke("S10", f"{at} handled {key}, which belongs to {owner} by its own list")

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
    """S11: each request ends once for its caller, and runs no more often than it may.

    - Each request ends exactly once, and within the time of its schedule and time-outs.
    - It takes at most one attempt and the retries; each goes from the caller to another node.
    - It runs once; if it is idempotent, it may run once more for each answer that was lost.

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

    def attempt(self, attempt: RequestAttempt) -> None:
        request, traffic = attempt.request, self.world.plan.traffic
        assert traffic is not None
        if not request.over:
            self._open[request.number] = request
        what = f"request {request.number}"
        if request.attempt_count > 1 + len(traffic.retry_schedule_us):
            self.broke("S11", f"{what} was tried {request.attempt_count} times")
        if attempt.forwarded and request.owner == request.caller.name:
            self.broke("S11", f"{what} was sent by {request.caller.name} to itself")
        if self._doubled or not attempt.ran:
            return
        # `Traffic` counts a forwarded run only after this hook.
        runs = request.run_count + attempt.forwarded
        allowed = 1 + (request.lost_count if traffic.idempotent else 0)
        if runs > allowed:
            self.broke("S11", f"{what} ran {runs} times; {request.lost_count} answers were lost")

    def request_ended(self, ended: RequestEnded) -> None:
        number = ended.request.number
        self._open.pop(number, None)
        if number in self._ended:
            self.broke("S11", f"request {number} ended twice")
        self._ended[number] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

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
    wants_facts: ClassVar = True

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
