"""S10, S11 and L6: requests that are handled by the wrong one, too often or never are found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import KeysDiverged
from ringpop_py.member.ring.hashring import HashRing
from ringpop_sim.plans.plan import Crash, Cut, Pause, Plan, Stop, Traffic
from ringpop_sim.runs.run import run, run_of
from ringpop_sim.units import ms, s
from ringpop_sim.whole.requests import REQUEST_ORACLES, OwnersHandle, RequestsEnd, RequestsSucceed
from ringpop_sim.world.watcher import RequestEnded, RequestRun, SentRequest

if TYPE_CHECKING:
    from ringpop_sim.world.world import World

TRAFFIC = Traffic(per_second=20, from_us=2 * s, service_us=5 * ms)
CALM = Plan(nodes=4, until_us=20 * s, traffic=TRAFFIC)
FAILOVER = replace(TRAFFIC, idempotent=True, failover=2)
KEY = "key-1"


class Scene:
    """A world at rest, and a request in it that nobody has made."""

    def __init__(self, traffic: Traffic = TRAFFIC) -> None:
        # Of nodes alone: what happens to the request is what the test says.
        plan = replace(CALM, traffic=None)
        under_way = run_of(plan, 1, ())
        under_way.advance(10 * s)
        self.world: World = under_way.world
        self.world.plan = replace(plan, traffic=traffic)
        self.oracles = [kind(self.world) for kind in REQUEST_ORACLES]
        self.members = sorted(self.world.running, key=self.order)
        self.request = SentRequest(1, self.members[-1], (KEY,), self.world.now, 10 * s)
        self.request.may_repeat = traffic.idempotent
        for oracle in self.oracles:
            oracle.request_began(self.request)

    def order(self, process: object) -> int:
        names = {each.name: each.name for each in self.world.running}
        return HashRing(names).lookup_n(KEY, len(names)).index(process.name)  # type: ignore[attr-defined]

    def asked(self, place: int) -> None:
        self.request.attempts[KEY] += 1
        for oracle in self.oracles:
            oracle.asked(self.request, self.members[place].name, (KEY,))

    def ran(self, place: int) -> None:
        self.request.runs[KEY] += 1
        for oracle in self.oracles:
            oracle.ran(RequestRun(self.request, (KEY,), self.members[place], forwarded=True))

    def ended(self, result: object, error: str = "") -> None:
        self.request.results[KEY] = result
        for oracle in self.oracles:
            oracle.request_ended(RequestEnded(self.request, error, 0))

    @property
    def broken(self) -> set[str]:
        return {broken.invariant for oracle in self.oracles for broken in oracle.broken}


def test_a_request_that_goes_well_breaks_nothing() -> None:
    scene = Scene()
    scene.asked(0)
    scene.ran(0)
    scene.request.answers[KEY] = [b"well"]
    scene.ended(b"well")

    assert scene.broken == set()


def test_a_request_that_goes_to_another_than_its_owner_is_found() -> None:
    scene = Scene()
    scene.asked(1)
    assert scene.broken == {"S10"}

    scene = Scene()
    scene.ran(1)
    assert scene.broken == {"S10"}


def test_a_request_that_goes_past_an_owner_that_is_alive_is_found() -> None:
    scene = Scene(FAILOVER)
    scene.asked(0)
    scene.request.asked.add(scene.members[0].name)
    scene.asked(1)
    scene.ran(1)
    assert scene.broken == set()

    scene.request.asked.clear()
    scene.asked(1)
    assert scene.broken == {"S10"}


def test_a_member_that_is_too_far_from_the_owner_is_found() -> None:
    scene = Scene(FAILOVER)
    scene.ran(2)

    assert scene.broken == {"S10"}


def test_a_request_that_its_caller_sends_to_itself_or_too_often_is_found() -> None:
    scene = Scene()
    scene.request.caller = scene.members[0]
    scene.asked(0)
    assert scene.broken == {"S11"}

    scene = Scene()
    for _ in range(5):
        scene.asked(0)
    assert scene.broken == {"S11"}


def test_a_request_that_runs_twice_though_no_answer_was_lost_is_found() -> None:
    scene = Scene(FAILOVER)
    scene.ran(0)
    scene.request.lost[KEY] = 1
    scene.ran(0)
    assert scene.broken == set()

    scene.ran(0)
    assert scene.broken == {"S11"}


def test_a_request_that_ends_twice_is_found() -> None:
    scene = Scene()
    scene.request.answers[KEY] = [b"well"]
    scene.ended(b"well")
    scene.ended(b"well")

    assert scene.broken == {"S11"}


@pytest.mark.parametrize(
    ("result", "lost"),
    [
        (KeysDiverged("", (), "no"), 0),  # though it ran
        (KeysDiverged("", (), "unknown"), 0),  # though every end is known
        (b"of another request", 0),
        (None, 0),
    ],
    ids=["no effect", "unknown", "of another request", "none"],
)
def test_a_result_that_is_not_true_is_found(result: object, lost: int) -> None:
    scene = Scene()
    scene.ran(0)
    scene.request.lost[KEY] = lost
    scene.request.answers[KEY] = [b"well"]
    scene.ended(result)

    assert scene.broken == {"S11"}


def test_a_request_that_never_ends_is_found() -> None:
    scene = Scene()
    scene.world.run(scene.world.now + 11 * s)
    for oracle in scene.oracles:
        oracle.finish()

    assert scene.broken == {"S11"}


def test_a_request_that_fails_for_nothing_is_found() -> None:
    scene = Scene()
    scene.ended("503", error="503")

    assert scene.broken == {"L6"}


def test_each_oracle_has_its_invariant() -> None:
    kinds = (OwnersHandle, RequestsEnd, RequestsSucceed)
    assert [kind.invariants for kind in kinds] == [("S10",), ("S11",), ("L6",)]


def test_while_an_owner_is_gone_the_next_member_answers() -> None:
    crash = Crash(at_us=8 * s, nodes=(1,))
    plans = [
        replace(CALM, operations=(crash,), traffic=replace(traffic, retry_schedule_us=(100 * ms,)))
        for traffic in (replace(TRAFFIC, idempotent=True, keys_each=2), FAILOVER)
    ]
    alone, together = (run(plan, 1) for plan in plans)

    assert not together.broken
    assert together.traffic["failed"] == 0 < alone.traffic["failed"]


def test_requests_reach_their_owners_while_one_of_them_crashes() -> None:
    crash = Crash(at_us=8 * s, nodes=(2,))
    result = run(replace(CALM, operations=(crash,)), seed=1)

    assert result.traffic["sent"] > 300
    assert result.traffic["answered"] > 0.98 * result.traffic["sent"]


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(consistency="checksum"),
        Traffic(consistency="none"),
        Traffic(keys_each=3, idempotent=True),
        Traffic(idempotent=True, failover=3, consistency="checksum"),
    ],
    ids=["checksum", "none", "several keys", "failover by checksum"],
)
def test_hard_faults_break_nothing(traffic: Traffic) -> None:
    plan = Plan(
        nodes=6,
        until_us=45 * s,
        traffic=replace(traffic, per_second=30, service_us=20 * ms),
        operations=(
            Cut(at_us=5 * s, for_us=12 * s, left=(0, 1, 2), right=(3, 4, 5), refuse=True),
            Crash(at_us=7 * s, for_us=12 * s, nodes=(1, 4)),
            Pause(at_us=26 * s, for_us=8 * s, nodes=(2,)),
            Stop(at_us=28 * s, for_us=8 * s, nodes=(3,)),
        ),
    )

    assert run(plan, 1).broken == []
