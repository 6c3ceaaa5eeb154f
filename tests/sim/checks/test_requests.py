"""S10, S11 and L6: requests that are handled by the wrong one, too often or never are found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import KeysDiverged
from ringpop_py.route.errand import Ask
from ringpop_sim.checks.requests import OwnersHandle, RequestsEnd, RequestsSucceed
from ringpop_sim.plans.plan import Crash, Cut, Leave, Link, Pause, Plan, Stop, Traffic
from ringpop_sim.runs.run import Run
from ringpop_sim.runs.traffic import Rings, TrafficSource
from ringpop_sim.units import ms, s
from ringpop_sim.world.watcher import TrafficRequest

if TYPE_CHECKING:
    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.watcher import RequestAttempt, RequestEnded, Watcher

CHECKS = (OwnersHandle, RequestsEnd, RequestsSucceed)
TRAFFIC = Traffic(per_second=20, from_us=3 * s, service_us=5 * ms)
CALM = Plan(nodes=4, until_us=60 * s, traffic=TRAFFIC)


class Recorder(OwnersHandle):
    """Keeps the last attempt and the last end of a request."""

    last_attempt: RequestAttempt
    last_ended: RequestEnded

    def attempt(self, attempt: RequestAttempt) -> None:
        self.last_attempt = attempt

    def request_ended(self, ended: RequestEnded) -> None:
        self.last_ended = ended


def broken_in(plan: Plan, seed: int = 1) -> set[str]:
    return {broken.invariant for broken in Run(plan, seed, CHECKS).finish().broken}


def under_way_with(plan: Plan) -> tuple[list[Watcher], Recorder]:
    """The oracles of a run that is under way, and what was seen last in it."""
    under_way = Run(plan, 1, (Recorder, *CHECKS))
    under_way.advance(30 * s)
    recorder = next(c for c in under_way.world.checks if type(c) is Recorder)
    return [c for c in under_way.world.checks if type(c) in CHECKS], recorder


def broken_of(checks: list[Watcher]) -> set[str]:
    return {b.invariant for c in checks if isinstance(c, CHECKS) for b in c.broken}


def test_a_request_that_is_handled_by_another_than_its_owner_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringpop_sim.runs.traffic.refusal", lambda *_, **__: "")
    rings: dict[Process, HashRing] = {}
    of = Rings.of

    def old(self: Rings, process: Process) -> HashRing:
        return rings.setdefault(process, of(self, process))

    monkeypatch.setattr(Rings, "of", old)

    plan = replace(CALM, operations=(Leave(at_us=10 * s, nodes=(1,)),))
    assert "S10" in broken_in(plan)


def test_a_request_that_ends_twice_is_found() -> None:
    checks, seen = under_way_with(CALM)

    for check in checks:
        check.request_ended(seen.last_ended)

    assert broken_of(checks) == {"S11"}


def test_a_request_that_runs_twice_though_no_answer_was_lost_is_found() -> None:
    checks, seen = under_way_with(CALM)

    request = seen.last_attempt.request
    request.runs[request.keys[0]] = 2
    for check in checks:
        check.attempt(replace(seen.last_attempt, at=request.caller, forwarded=False))

    assert "S11" in broken_of(checks)


@pytest.mark.parametrize(
    ("result", "lost"),
    [
        (KeysDiverged("", (), "no"), 0),  # though it ran
        (KeysDiverged("", (), "unknown"), 0),  # though every end is known
        ("key-0 by nobody", 0),  # the answer for another key
    ],
    ids=["no effect", "unknown", "of another key"],
)
def test_a_result_that_is_not_true_is_found(result: object, lost: int) -> None:
    checks, seen = under_way_with(CALM)
    request = seen.last_ended.request
    assert isinstance(request, TrafficRequest)
    (key,) = request.keys
    request.errand.results[key] = result
    request.lost[key] = lost

    for check in checks:
        check.request_ended(replace(seen.last_ended, request=replace(request, number=0)))

    assert broken_of(checks) == {"S11"}


def test_a_request_that_is_sent_to_another_than_its_owner_is_found() -> None:
    checks, seen = under_way_with(CALM)
    request = seen.last_attempt.request
    others = {process.name for process in seen.world.running} - {seen.last_attempt.at.name}

    for check in checks:
        check.asked(request, Ask(min(others), request.keys, 1, s))

    assert broken_of(checks) == {"S10"}


def test_a_request_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrafficSource, "_answered", lambda *_: None)
    monkeypatch.setattr(TrafficSource, "_timed_out", lambda *_: None)

    assert "S11" in broken_in(CALM)


def test_a_request_that_fails_for_nothing_is_found() -> None:
    checks, seen = under_way_with(CALM)

    failed = replace(seen.last_ended, error="MaxRetriesExceeded")
    for check in checks:
        check.request_ended(failed)

    assert "L6" in broken_of(checks)


FAILOVER = replace(TRAFFIC, idempotent=True, failover=2)


def test_a_request_that_goes_past_an_owner_that_is_alive_is_found() -> None:
    checks, seen = under_way_with(replace(CALM, traffic=FAILOVER))
    request = seen.last_attempt.request
    owner, second = ring_of_caller(seen).lookup_n(request.keys[0], 2)
    request.asked.clear()

    for check in checks:
        check.asked(request, Ask(owner, request.keys, 1, s))
    assert broken_of(checks) == set()
    for check in checks:
        check.asked(request, Ask(second, request.keys, 2, s))
    assert broken_of(checks) == {"S10"}


def ring_of_caller(seen: Recorder) -> HashRing:
    return seen._ring(seen.last_attempt.request.caller)


def test_a_member_that_is_too_far_from_the_owner_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringpop_sim.runs.traffic.refusal", lambda *_, **__: "")
    plan = replace(CALM, nodes=6, traffic=FAILOVER)
    plan = replace(plan, operations=(Leave(at_us=10 * s, nodes=(1,)),))
    rings: dict[Process, HashRing] = {}
    of = Rings.of
    monkeypatch.setattr(Rings, "of", lambda self, p: rings.setdefault(p, of(self, p)))

    assert "S10" in broken_in(plan)


def test_while_an_owner_is_gone_the_next_member_answers() -> None:
    crash = Crash(at_us=20 * s, nodes=(1,))
    plans = [
        replace(CALM, operations=(crash,), traffic=replace(traffic, retry_schedule_us=(100 * ms,)))
        for traffic in (replace(TRAFFIC, idempotent=True), FAILOVER)
    ]
    alone, together = (Run(plan, 1, CHECKS).finish() for plan in plans)

    assert not together.broken
    assert together.traffic["failed"] == 0 < alone.traffic["failed"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(consistency="keys"),
        Traffic(consistency="checksum"),
        Traffic(consistency="none"),
        Traffic(keys_each=3),
        Traffic(idempotent=True, failover=2),
        Traffic(idempotent=True, failover=3, consistency="checksum"),
    ],
    ids=["keys", "checksum", "none", "several keys", "failover", "failover by checksum"],
)
def test_hard_faults_break_nothing(seed: int, traffic: Traffic) -> None:
    plan = Plan(
        nodes=6,
        until_us=60 * s,
        link=Link(loss=0.05),
        traffic=replace(
            traffic, per_second=50, service_us=20 * ms, idempotent=traffic.failover > 1 or seed != 0
        ),
        operations=(
            Cut(at_us=10 * s, for_us=15 * s, left=(0, 1, 2), right=(3, 4, 5), refuse=seed == 1),
            Crash(at_us=12 * s, for_us=20 * s, nodes=(1, 4)),
            Pause(at_us=40 * s, for_us=8 * s, nodes=(2,)),
            Stop(at_us=42 * s, for_us=8 * s, nodes=(3,)),
        ),
    )

    assert broken_in(plan, seed) == set()
