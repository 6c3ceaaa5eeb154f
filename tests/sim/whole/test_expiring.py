"""Keys that expire, in whole daemons: random plans hold, and oracles see what breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringpop_sim.linear import ABSENT
from ringpop_sim.plans.plan import Jump, KeyspacePlan, Plan
from ringpop_sim.runs.run import run
from ringpop_sim.runs.swarm import Shape
from ringpop_sim.units import hours, ms, s
from ringpop_sim.whole.keyspaces.expiring import effect
from ringpop_sim.whole.run import WholeRun

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ringpop_py.state.placement.definition import Mode


def a_plan(*jumps: Jump, mode: Mode = "durable") -> Plan:
    keyspace = KeyspacePlan(partitions=2, mode=mode, expiring=0.9, per_second=30.0)
    return Plan(nodes=3, until_us=30 * s, calm_us=2 * s, keyspace=keyspace, operations=jumps)


@pytest.mark.parametrize("seed", range(200, 206))
def test_no_invariant_breaks_in_random_plans_with_keys_that_expire(seed: int) -> None:
    result = run(Shape(5, 4, keyspaces=True, expiring=True).plan(seed), seed)

    assert result.ok, result.broken


def test_no_key_is_early_where_one_clock_jumps_and_what_is_persisted_stays() -> None:
    jumps = (Jump(at_us=at_s * s, for_us=2 * s, nodes=(1,), clock_us=hours) for at_s in (3, 6))

    result = run(a_plan(*jumps), 1)

    assert result.ok, result.broken


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_an_index_that_does_not_follow_is_found(mode: Mode) -> None:
    found = WholeRun(a_plan(mode=mode), 1)
    found.advance(8 * s)
    assert found.shares is not None
    share = next(share for share in found.shares if share.steward.serving)

    share.partitions[min(share.steward.serving)].state.due._at["due-x"] = 1

    assert "K18" in {broken.invariant for broken in found.finish().broken}


def test_a_jump_also_sets_the_clock_of_a_daemon_that_starts_and_is_undone() -> None:
    found = WholeRun(a_plan(Jump(at_us=1 * s, for_us=2 * s, nodes=(1,), clock_us=-hours)), 1)
    process: Any = found.world.numbered
    found.advance(2 * s)
    assert process[1].body.wall_us == -hours
    found.advance(3 * s + 1 * ms)
    assert process[1].body.wall_us == 0
    assert found.finish().ok


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([("put", (1, True)), ("expire", (1, False))], ABSENT),
        ([("put", (1, True)), ("append", (2, False)), ("expire", (1, False))], ABSENT),
        ([("put", (1, True)), ("append", (2, True)), ("expire", (1, False))], ((1, 2), 2)),
        ([("put", (1, True)), ("persist", (2, False)), ("expire", (1, False))], ((1,), None)),
        ([("put", (1, True)), ("put", (2, False)), ("expire", (1, False))], ((2,), None)),
        ([("put", (1, True)), ("delete", (2, False)), ("append", (3, False))], ((3,), None)),
        ([("persist", (1, False))], ABSENT),
    ],
)
def test_a_key_expires_by_the_instant_that_was_set_last(
    operations: list[tuple[str, tuple[int, bool]]], after: object
) -> None:
    value: Hashable = ABSENT
    for name, argument in operations:
        value = effect(value, name, argument).value

    assert value == after
