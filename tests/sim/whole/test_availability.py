"""How long partitions are unserved: each fault has a bound, and a plan that passes it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_sim.plans.plan import (
    Crash,
    Cut,
    Drain,
    FailStore,
    KeyspacePlan,
    Leave,
    Pause,
    Plan,
    Start,
    Stop,
)
from ringpop_sim.runs.run import run_of
from ringpop_sim.scenarios.keyspaces import QUICK
from ringpop_sim.units import s

if TYPE_CHECKING:
    from ringpop_sim.plans.plan import Operation

AT: Final = 8 * s
LONG: Final = 15 * s
ONE: Final = (1,)
REST: Final = (0, 2)
BUSY: Final = KeyspacePlan(
    partitions=8, keys=24, keys_each=3, per_second=40.0, from_us=3 * s, timeout_us=2 * s
)
BETWEEN_US: Final = 2 * s
"""How long at most no client happens to ask for one of the eight partitions."""


def a_plan(operation: Operation, unserved_us: int) -> Plan:
    """A plan of three daemons with many requests, which one fault concerns."""
    return Plan(
        nodes=3,
        until_us=120 * s,
        calm_us=2 * s,
        whole=True,
        settings=QUICK,  # with which a member that is gone is suspected after about 2 s
        keyspace=replace(BUSY, unserved_us=unserved_us),
        operations=(operation,),
    )


@pytest.mark.parametrize(
    ("operation", "bound_us"),
    [
        # Members come and go in order: only as long as a hand-over takes.
        pytest.param(Start(at_us=AT, nodes=(2,)), s, id="a start"),
        pytest.param(Stop(at_us=AT, for_us=LONG, nodes=ONE), s, id="a stop"),
        pytest.param(Drain(at_us=AT, for_us=LONG, nodes=ONE), s, id="a drain"),
        pytest.param(Leave(at_us=AT, for_us=LONG, nodes=ONE), s, id="a leave"),
        # A member that is gone has to be found out first.
        pytest.param(Crash(at_us=AT, nodes=ONE), 2 * s, id="a crash"),
        pytest.param(Crash(at_us=AT, nodes=ONE, silent=True), 5 * s, id="a loss of power"),
        pytest.param(Pause(at_us=AT, for_us=LONG, nodes=ONE), 5 * s, id="a pause"),
        pytest.param(Cut(at_us=AT, for_us=LONG, left=ONE, right=REST), 5 * s, id="a cut"),
        pytest.param(
            Cut(at_us=AT, for_us=LONG, left=ONE, right=REST, one_way=True), 5 * s, id="deafness"
        ),
        # A store that one member cannot use, or that is bad for all.
        pytest.param(
            FailStore(at_us=AT, for_us=LONG, nodes=ONE, how="read-only"), 5 * s, id="read-only"
        ),
        pytest.param(FailStore(at_us=AT, for_us=LONG, how="slow"), 5 * s, id="a slow store"),
        pytest.param(FailStore(at_us=AT, for_us=LONG, how="full"), 5 * s, id="a full store"),
        pytest.param(FailStore(at_us=AT, for_us=LONG, how="unknown"), 8 * s, id="a flaky store"),
        pytest.param(
            FailStore(at_us=AT, for_us=LONG, nodes=ONE, how="cut"), 10 * s, id="a member without it"
        ),
        # Nobody can serve them meanwhile, but soon afterwards.
        pytest.param(FailStore(at_us=AT, for_us=LONG, how="cut"), LONG + 3 * s, id="no store"),
    ],
)
def test_no_partition_is_unserved_for_longer_than_its_bound(
    operation: Operation, bound_us: int
) -> None:
    result = run_of(a_plan(operation, bound_us + BETWEEN_US), 1).finish()

    assert result.ok, result.broken


def test_a_partition_that_is_unserved_for_longer_breaks_the_plan() -> None:
    nobody = FailStore(at_us=AT, for_us=LONG, how="cut")

    result = run_of(a_plan(nobody, 10 * s), 1).finish()

    assert {broken.invariant for broken in result.broken} == {"W4"}
    assert "was unserved for 1" in result.broken[0].detail
