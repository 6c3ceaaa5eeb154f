"""S10, S11 and L6: which daemon handles a request, how often it runs, and that it succeeds."""

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
from ringpop_sim.units import s, seconds
from ringpop_sim.whole.keyspaces.oracle import HinderedCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.plans.plan import Traffic
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.watcher import RequestEnded, RequestRun, SentRequest
    from ringpop_sim.world.world import World

LATE_US: Final = s // 2
BROKEN_US: Final = 5 * s
"""So long after a cut, connections end that it has broken, with the requests on them."""


def traffic_of(world: World) -> Traffic:
    """Return the traffic of a plan that has some."""
    assert world.plan.traffic is not None
    return world.plan.traffic


class OwnersHandle(Check):
    """S10: a request is sent to, and handled by, a daemon that owns all its keys.

    It is sent to the owner by the own list of the caller at that instant. It is handled only by a
    daemon that owns its keys by its own list.
    The check computes ownership anew from the rows. A forwarded request is handled if it passes the
    receiver's configured check: of the keys, of the checksum, or none. So with ``checksum`` and
    ``none`` the keys of forwarded requests are not checked at the receiver.

    With failover, the first so many members after a key may have it: each is asked only after those
    before it have failed, or while they are not alive in the caller's eyes.
    """

    invariants: ClassVar = ("S10",)

    def begin(self) -> None:
        self._traffic = traffic_of(self.world)
        self._of: dict[Process, tuple[int, HashRing]] = {}

    def asked(self, request: SentRequest, to: str, keys: Sequence[str]) -> None:
        ring, caller = self._ring(request.caller), request.caller.name
        request.believed.setdefault(to, set()).add(ring.checksum)
        if self._traffic.failover > 1 and request.may_repeat:
            self._asked_one_of_several(request, to, ring)
            return
        for key in keys:
            owner = ring.lookup(key) if len(ring) else "nobody"
            if to != owner:
                self.broke("S10", f"{caller} sent {key} to {to}, by its own list {owner} has it")

    def _asked_one_of_several(self, request: SentRequest, to: str, ring: HashRing) -> None:
        (key,), name = request.keys, request.caller.name
        may = ring.lookup_n(key, self._traffic.failover) if len(ring) else ()
        if to not in may:
            self.broke("S10", f"{name} sent {key} to {to}, and only {may} may have it")
            return
        is_alive = {each.name: each.status is Status.ALIVE for each in request.caller.node.members}
        for before in may[: may.index(to)]:
            if is_alive[before] and before not in request.asked:
                self.broke("S10", f"{name} sent {key} to {to}, and did not ask {before} first")

    def ran(self, run: RequestRun) -> None:
        request, ring, at = run.request, self._ring(run.at), run.at.name
        if run.forwarded and self._traffic.consistency != "keys":
            # An attempt that is late may run after a later one was sent, with another checksum.
            believed = request.believed.get(at, ())
            if self._traffic.consistency == "checksum" and ring.checksum not in believed:
                self.broke("S10", f"{at} handled {run.keys[0]}, sent with another ring's checksum")
            return
        if not run.forwarded and len(request.keys) > 1:
            return  # a caller handles its own keys when the owners of the others have answered
        for key in run.keys:
            owners = ring.lookup_n(key, self._traffic.failover) if len(ring) else ()
            if at not in owners:
                self.broke("S10", f"{at} handled {key}, which belongs to {owners} by its own list")

    def _ring(self, process: Process) -> HashRing:
        members = process.node.members
        known = self._of.get(process)
        if known is not None and known[0] == members.checksum:
            return known[1]
        extends, share = self.world.dialect.extends, self.world.config.damp_share
        owners = who_serves(list(members), extends=extends, damp_share=share)
        ring = HashRing(owners, dialect=self.world.dialect)
        self._of[process] = members.checksum, ring
        return ring


class RequestsEnd(HinderedCheck):
    """S11: each request ends once for its caller, runs no more often than it may, and says so.

    - Each request ends within the time of its schedule and time-outs.
    - It takes at most one attempt and the retries; each goes from the caller to another node.
    - Each key runs once; if the request may run twice, once more for each attempt with an open end.
    - Each key has a result: an answer that a handler gave for that key, or an error. The error says
      "no" effect only if the key never runs, and "unknown" only if an end was open.

    Exempt: a caller that is hindered, or was since, need not end its requests in time.
    """

    invariants: ClassVar = ("S11",)

    def begin(self) -> None:
        super().begin()
        self._attempts_max = 1 + len(traffic_of(self.world).retry_schedule_us)
        self._open: dict[int, SentRequest] = {}

    def request_began(self, request: SentRequest) -> None:
        self._open[request.number] = request

    def asked(self, request: SentRequest, to: str, keys: Sequence[str]) -> None:
        if to == request.caller.name:
            self.broke("S11", f"{request} was sent by its caller to itself")
        for key in keys:
            if request.attempts[key] > self._attempts_max:
                self.broke("S11", f"{request} was tried {request.attempts[key]} times for {key}")

    def ran(self, run: RequestRun) -> None:
        request = run.request
        for key in run.keys:
            runs, lost = request.runs[key], request.lost[key]
            if runs > 1 + (lost if request.may_repeat else 0):
                self.broke("S11", f"{request} ran {runs} times for {key}; {lost} answers were lost")

    def request_ended(self, ended: RequestEnded) -> None:
        request = ended.request
        if self._open.pop(request.number, None) is None:
            self.broke("S11", f"{request} ended twice")
        self._judge_time(request)
        for key in () if request.gone else request.keys:
            self._judge(request, key)

    def _judge(self, request: SentRequest, key: str) -> None:
        """Compare the result of *key* with what happened to it."""
        runs, lost = request.runs[key], request.lost[key]
        result = request.results.get(key)
        if result is None:
            self.broke("S11", f"{request} ended without a result for {key}")
        elif isinstance(result, bytes):
            if result not in request.answers[key]:
                what = f"the result {result!r} for {key}, of {request.answers[key]}"
                self.broke("S11", f"{request} ran {runs} times, with {what}")
        elif not isinstance(result, RingpopError):
            pass  # a status of HTTP does not say what took effect
        elif runs and result.took_effect == "no":
            self.broke("S11", f"{request} ran for {key}, though it says: {result}")
        elif not lost and result.took_effect == "unknown":
            self.broke("S11", f"{request} had no open end for {key}, though it says: {result}")

    def _judge_time(self, request: SentRequest) -> None:
        well_since = self.well_since(request.caller.number)
        lasts_us = self.world.now - request.started_at
        is_late = lasts_us > request.within_us + LATE_US
        if is_late and well_since is not None and well_since < request.started_at:
            self.broke("S11", f"{request} took {seconds(lasts_us):.3f} s")

    def finish(self) -> None:
        for request in self._open.values():
            if request.caller.running:
                self._judge_time(request)


class RequestsSucceed(CalmCheck):
    """L6: while the cluster is calm and agrees, requests succeed within their schedule.

    The check looks when a request fails. A failure breaks L6 if the world was calm (`Calm`) since
    shortly before the request was sent, no row changed meanwhile, and all nodes agree.

    Exempt: a request whose caller ended, or whose key no node owns.
    """

    invariants: ClassVar = ("L6",)

    def begin(self) -> None:
        super().begin()
        self._changed_at = 0

    def fact(self, _process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.StatusChanged):
            self._changed_at = self.world.now

    def request_ended(self, ended: RequestEnded) -> None:
        if not ended.error:
            return
        request, now = ended.request, self.world.now
        lasted_us = now - request.started_at + BROKEN_US
        traffic = traffic_of(self.world)
        in_time = 2 * self._calm.late_us + 2 * traffic.service_us < traffic.timeout_us
        # Longer than the request, so that nothing from before it is in progress.
        steady = self._calm.lasts_us > lasted_us and now - self._changed_at > lasted_us
        if in_time and steady and self._serves():
            self.broke("L6", f"{request} failed: {ended.error}")

    def _serves(self) -> bool:
        running = self.world.running
        # All may have left by command, and then no node owns a key.
        return agree(running, wholly=True) and any(
            process.node.local.status.reachable for process in running
        )


REQUEST_ORACLES: Final = (OwnersHandle, RequestsEnd, RequestsSucceed)
