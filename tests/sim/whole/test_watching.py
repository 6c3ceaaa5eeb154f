"""Watchers in whole daemons: random plans hold, and the oracle sees what breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringpop_py.state.watch import recent
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.plan import Drain, KeyspacePlan, Plan
from ringpop_sim.runs.run import run
from ringpop_sim.runs.swarm import Shape
from ringpop_sim.units import ms, s
from ringpop_sim.whole import watching
from ringpop_sim.whole.run import WholeRun
from ringpop_sim.whole.watching import LogOfChanges, WatchersSee

KEYSPACE = KeyspacePlan(partitions=2, watchers=2, per_second=30.0)
PLAN = Plan(
    nodes=3,
    until_us=90 * s,
    calm_us=2 * s,
    keyspace=KEYSPACE,
    operations=(Drain(at_us=5 * s, for_us=4 * s, nodes=(0,)),),
)


@pytest.mark.parametrize("seed", range(300, 305))
def test_no_invariant_breaks_in_random_plans_with_watchers(seed: int) -> None:
    plan = Shape(4, 4, keyspaces=True, mode="durable").plan(seed)
    assert plan.keyspace is not None

    result = run(replace(plan, keyspace=replace(plan.keyspace, watchers=3)), seed)

    assert result.ok, result.broken


def begun() -> tuple[WholeRun, WatchersSee]:
    found = WholeRun(PLAN, 1)
    found.advance(8 * s)
    return found, next(each for each in found.world.checks if isinstance(each, WatchersSee))


def test_what_a_watcher_has_not_seen_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "DOWN_US", (1 * ms,))  # so that it forgets nothing by a gap
    found, oracle = begun()
    assert oracle.counts["changes"] > 20
    program = oracle._programs[0]

    program.seen[min(program.numbers)]["key-0"] = b"\x07"

    assert "K20" in {broken.invariant for broken in found.finish().broken}


def test_a_watcher_that_does_not_come_to_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found, oracle = begun()

    monkeypatch.setattr(oracle, "_begin", lambda _: None)  # those that end do not come back

    assert "K22" in {broken.invariant for broken in found.finish().broken}


def test_what_an_owner_must_have_is_what_fits_in_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "SAVED_BYTES", 1 << 18)
    log = LogOfChanges()
    for number in range(50):
        assert log.follow(len(log.changes), [(f"k{number}", b"1"), (f"l{number}", None)])
    assert log.follow(10, [("k5", b"1"), ("l5", None)])
    assert not log.follow(10, [("k5", b"2"), ("l5", None)])
    assert not log.follow(102, [("k51", b"1")])

    many = 1_500
    assert log.must_have(99, 100)
    log.follow(100, [("k", b"x" * 300_000)])
    assert not log.must_have(99, 101)
    log.follow(101, [(f"m{number}", None) for number in range(many)])
    assert log.must_have(101, 101 + many)
    log.follow(101 + many, [(f"n{number}", None) for number in range(many)])
    assert not log.must_have(101, 101 + 2 * many)


def test_a_keyspace_in_memory_mode_has_no_watchers() -> None:
    with pytest.raises(PlanError, match="durable"):
        replace(KEYSPACE, mode="memory")
