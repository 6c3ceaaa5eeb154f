"""S6 to S8: suspicions without grounds are found, and those with grounds raise no alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import (
    CallPeer,
    ProbeReport,
    StatusChanged,
    SuspicionConfirmed,
    Via,
)
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.memberlist import MemberList
from ringpop_py.member.swim.messages import (
    Ack,
    Answered,
    Failed,
    Ping,
    PingReq,
    PingReqAck,
    Response,
)
from ringpop_py.member.swim.probe import Probe, Verdict
from ringpop_sim.checks.probes import NobodySuspected, PausesEndWell, ProbesFail
from ringpop_sim.plans.plan import Crash, Cut, Delay, Link, Pause, Plan, Slow, long_tail
from ringpop_sim.runs.run import Run
from ringpop_sim.units import ms, s
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from ringpop_py.base.address import Address

CHECKS = (ProbesFail, NobodySuspected, PausesEndWell)
CRASH = Crash(at_us=5 * s, nodes=(1,), silent=True)


def broken_in(plan: Plan, seed: int = 1) -> set[str]:
    return {broken.invariant for broken in Run(plan, seed, CHECKS).finish().broken}


class Told:
    """Four nodes, and an oracle to which made-up doings of the first are told."""

    def __init__(self) -> None:
        under_way = Run(Plan(nodes=4, until_us=5 * s), 1, CHECKS)
        under_way.advance(5 * s)
        self.process = under_way.world.numbered[0]
        self.check = next(c for c in under_way.world.checks if isinstance(c, ProbesFail))
        row = self.process.node.members.get("n1")
        assert row is not None
        self.row = row
        self._calls = 1_000_000

    def pings(self) -> int:
        ping = Ping(CLUSTER, 100, "n0", *self.process.address, 1, 1)
        return self._call(self.row.address, ping)

    def asks(self, helper: int) -> int:
        address, row = address_of(helper), self.row
        request = PingReq(CLUSTER, "n0", *self.process.address, 1, 1, row.name, *row.address)
        return self._call(address, request)

    def _call(self, to: Address, request: Ping | PingReq) -> int:
        self._calls += 1
        self.check.duty(self.process, CallPeer(self._calls, to, request, 500 * ms))
        return self._calls

    def fails(self, call_id: int) -> None:
        self.check.input(self.process, Failed(call_id, "refused"))

    def answers(self, call_id: int, response: Response) -> None:
        self.check.input(self.process, Answered(call_id, response))

    def suspects(self, via: Via = "probe") -> list[str]:
        after = replace(self.row, status=Status.SUSPECT)
        self.check.fact(self.process, StatusChanged(self.row, after, via, "n0", "n0"))
        return [broken.invariant for broken in self.check.broken]


def test_a_suspicion_after_ping_and_helpers_have_failed_is_as_it_should_be() -> None:
    told = Told()

    told.fails(told.pings())
    helpers = [told.asks(2), told.asks(3)]
    told.answers(helpers[0], PingReqAck("n1", ping_ok=False))
    told.fails(helpers[1])

    assert told.suspects() == []


def test_a_suspicion_without_a_failed_ping_is_found() -> None:
    told = Told()

    told.answers(told.pings(), Ack("n1", 1, 1))

    assert told.suspects() == ["S6"]


def test_an_answer_of_somebody_else_is_a_failed_ping() -> None:
    told = Told()

    told.answers(told.pings(), Ack("n9", 1, 1))
    helpers = [told.asks(2), told.asks(3)]
    told.answers(helpers[0], PingReqAck("n1", ping_ok=False))

    assert told.suspects() == []


def test_a_suspicion_without_helpers_is_found() -> None:
    told = Told()

    told.fails(told.pings())

    assert told.suspects() == ["S6"]


def test_a_suspicion_with_too_few_helpers_is_found() -> None:
    told = Told()

    told.fails(told.pings())
    told.answers(told.asks(2), PingReqAck("n1", ping_ok=False))

    assert told.suspects() == ["S6"]


def test_a_helper_that_reached_the_member_and_is_not_heard_is_found() -> None:
    told = Told()

    told.fails(told.pings())
    helpers = [told.asks(2), told.asks(3)]
    told.answers(helpers[0], PingReqAck("n1", ping_ok=True))
    told.answers(helpers[1], PingReqAck("n1", ping_ok=False))

    assert told.suspects() == ["S6"]


def test_silent_helpers_that_count_as_witnesses_are_found() -> None:
    told = Told()

    told.fails(told.pings())
    for helper in [told.asks(2), told.asks(3)]:
        told.fails(helper)

    assert told.suspects() == ["S6"]


@pytest.mark.parametrize(
    ("ping", "said", "broken"),
    [
        ("refused", ("lost", "refused", "timeout"), []),
        ("refused", ("refused",), []),
        ("lost", (), []),
        ("timeout", ("refused", "refused", "refused"), ["S6"]),
        ("refused", ("refused", "timeout", "timeout"), ["S6"]),
    ],
)
def test_evidence_that_is_none_is_found(
    ping: str, said: tuple[str, ...], broken: list[str]
) -> None:
    told = Told()
    helpers = tuple((f"h{place}", how) for place, how in enumerate(said))
    probe = ProbeReport(ping, helpers, strong=True)

    told.check.fact(told.process, SuspicionConfirmed(told.row, "n0", ("n0",), 0, probe))

    assert [b.invariant for b in told.check.broken] == broken


@pytest.mark.parametrize(("rounds", "broken"), [(2, ["S6"]), (3, [])])
def test_silence_accuses_only_after_rounds_without_any_answer(
    rounds: int, broken: list[str]
) -> None:
    told = Told()

    for _ in range(rounds + 1):
        told.check.world.now += 1 * s
        told.fails(told.pings())
        for helper in (2, 3):
            told.fails(told.asks(helper))

    assert told.suspects() == broken


def test_a_row_that_an_answer_to_an_old_call_changes_is_found() -> None:
    told = Told()

    call_id = told.pings()
    told.answers(call_id, Ack("n1", 1, 1))
    told.answers(call_id, Ack("n1", 1, 1))

    assert told.suspects("ack") == ["S6"]


def test_a_prober_that_asks_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberList, "random_pingable", lambda *_, **__: [])

    assert "S6" in broken_in(Plan(nodes=4, until_us=30 * s, operations=(CRASH,)))


def test_a_member_that_is_suspected_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def accuses(probe: Probe) -> None:
        probe.verdict = Verdict.SUSPECT

    under_way = Run(Plan(nodes=4, until_us=120 * s), 1, CHECKS)
    under_way.advance(100 * s)

    monkeypatch.setattr(Probe, "answered", accuses)

    assert "S7" in {broken.invariant for broken in under_way.finish().broken}


def test_a_short_pause_that_ends_in_faulty_is_found() -> None:
    pause = Pause(at_us=10 * s, for_us=1 * s, nodes=(1,))
    plan = Plan(nodes=4, until_us=60 * s, preset="wan", operations=(pause,))
    under_way = Run(plan, 1, CHECKS)
    under_way.advance(12 * s)
    process = under_way.world.numbered[0]
    row = process.node.members.get("n1")
    assert row is not None

    faulty = StatusChanged(row, replace(row, status=Status.FAULTY), "timer", "n0", "n0")
    for check in under_way.world.checks:
        check.fact(process, faulty)

    assert {broken.invariant for broken in under_way.finish().broken} == {"S8"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_hard_faults_break_nothing(seed: int, dialect: str) -> None:
    plan = Plan(
        nodes=6,
        until_us=90 * s,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(loss=0.1, duplicate=0.1, corrupt=0.05, delay=long_tail(20 * ms)),
        operations=(
            Cut(at_us=10 * s, for_us=15 * s, left=(0, 1, 2), right=(3, 4, 5), one_way=True),
            Crash(at_us=12 * s, for_us=20 * s, nodes=(1, 4), clock_us=-3600 * s, moves=True),
            Crash(at_us=15 * s, for_us=5 * s, nodes=(0,), memory="kept", silent=True),
            Slow(at_us=30 * s, for_us=20 * s, nodes=(5,), by_us=700 * ms),
            Pause(at_us=40 * s, for_us=8 * s, nodes=(2,)),
        ),
    )

    assert broken_in(plan, seed) == set()


@pytest.mark.parametrize("dialect", ["native", "ringpop"])
@pytest.mark.parametrize("pause_ms", [300, 1500])
def test_pauses_in_a_calm_cluster_break_nothing(dialect: str, pause_ms: int) -> None:
    plan = Plan(
        nodes=8,
        until_us=150 * s,
        preset="wan",
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(delay=Delay("uniform", 1 * ms, 40 * ms)),
        operations=(Pause(at_us=60 * s, for_us=pause_ms * ms, nodes=(3,)),),
    )

    assert broken_in(plan) == set()
