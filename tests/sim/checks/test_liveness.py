"""L1 to L5 and L7: what does not come true is found, and what does is not."""

from __future__ import annotations

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import StatusChanged
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.prober import Prober
from ringpop_py.member.swim.rows import Rows
from ringpop_sim.checks.liveness import Converges, CrashesFound, HealsGently
from ringpop_sim.plans.plan import Crash, Cut, Discovery, Link, Operation, Pause, Plan, Rumour
from ringpop_sim.runs.run import Run
from ringpop_sim.units import minutes, s

CHECKS = (Converges, CrashesFound, HealsGently)


def long_run(*operations: Operation, seed: int = 1) -> Run:
    plan = Plan(nodes=4, until_us=12 * minutes, operations=operations)
    return Run(plan, seed, CHECKS)


def broken_in(under_way: Run) -> set[str]:
    return {broken.invariant for broken in under_way.finish().broken}


def deafen(under_way: Run) -> None:
    """Have the first node take in nothing from now on."""
    under_way.world.numbered[0].node._rows.update = lambda *_, **__: []  # type: ignore[method-assign]


def test_a_cluster_that_does_not_become_one_is_found() -> None:
    under_way = long_run(Rumour(at_us=6 * s, nodes=(1, 2, 3), about=2, status="suspect"))
    under_way.advance(5 * s)

    deafen(under_way)

    assert "L1" in broken_in(under_way)


def test_nothing_is_claimed_of_a_cluster_that_is_cut_for_ever() -> None:
    cut = Cut(at_us=5 * s, left=(0, 1), right=(2, 3))

    assert broken_in(long_run(cut)) == set()


def test_nothing_is_claimed_of_nodes_that_nothing_leads_to_each_other() -> None:
    alone = Discovery(at_us=0, nodes=(0, 1, 2, 3))

    assert broken_in(long_run(alone)) == set()


def test_a_crash_that_nobody_declares_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "status_due", lambda *_: None)

    broken = broken_in(long_run(Crash(at_us=5 * s, nodes=(1,))))

    assert broken >= {"L1", "L2"}


def test_a_member_that_is_never_probed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prober, "probe_next", lambda *_: None)

    assert "L2" in broken_in(long_run(Crash(at_us=5 * s, nodes=(1,), silent=True)))


def test_healing_that_declares_a_live_member_faulty_is_found() -> None:
    under_way = long_run()
    under_way.advance(5 * s)
    process = under_way.world.numbered[0]
    row = process.node.members.get("n1")
    assert row is not None

    after = replace(row, status=Status.FAULTY)
    for check in under_way.world.checks:
        check.fact(process, StatusChanged(row, after, "heal", "n2", ""))

    assert broken_in(under_way) == {"L3"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_hard_faults_are_overcome(seed: int, dialect: str) -> None:
    plan = Plan(
        nodes=6,
        until_us=12 * minutes,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(loss=0.01),
        operations=(
            Crash(at_us=5 * s, nodes=(4,), silent=True),
            Cut(at_us=10 * s, for_us=40 * s, left=(0, 1), right=(2, 3, 5)),
            Pause(at_us=40 * s, for_us=20 * s, nodes=(3,)),
            Crash(at_us=52 * s, for_us=9 * s, nodes=(0,), clock_us=-3600 * s),
        ),
    )
    under_way = Run(plan, seed, CHECKS)

    assert under_way.finish().broken == []
    converges = under_way.world.checks[1]
    assert isinstance(converges, Converges)
    assert converges.agreed_at is not None
