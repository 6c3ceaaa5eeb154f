"""Clusters with partitions: their plans hold, take one course, and are told, shrunk and kept."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ringpop_py.slotlog.effects import StoreAnswer
from ringpop_sim.cli import main
from ringpop_sim.errors import PlanError
from ringpop_sim.keyspaces import oracles
from ringpop_sim.keyspaces.home import Home
from ringpop_sim.linear import Invocation
from ringpop_sim.plans.plan import Crash, Drain, FailStore, KeyspacePlan, Leave, Plan, Start
from ringpop_sim.runs.run import Run, run
from ringpop_sim.units import ms, s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLANS_COUNT = int(os.environ.get("RINGPOP_SIM_KEYSPACE_PLANS", "300"))


@pytest.mark.swarm
@pytest.mark.timeout(900)
def test_no_invariant_breaks_in_many_plans_with_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["keyspaces", "--seeds", str(PLANS_COUNT), "--format", "json"])

    said = capsys.readouterr()
    assert code == 0, said.err
    value = json.loads(said.out)
    assert value["plans"] == PLANS_COUNT
    assert value["events"] > 500 * PLANS_COUNT


def test_plans_with_partitions_take_one_course_under_any_hash_seed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["determinism", "--keyspaces", "--nodes", "4", "--seeds", "4"]) == 0
    assert "same course" in capsys.readouterr().out


def a_plan(*operations: Crash | Drain | FailStore | Leave | Start, **keyspace: object) -> Plan:
    """A plan of three nodes with a durable keyspace of four partitions."""
    return Plan(
        nodes=3,
        until_us=40 * s,
        calm_us=2 * s,
        keyspace=KeyspacePlan(partitions=4, **keyspace),  # type: ignore[arg-type]
        operations=operations,
    )


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_requests_are_served_and_partitions_move_to_those_who_join(mode: str) -> None:
    late = Start(at_us=3 * s, nodes=(2,))

    found = Run(a_plan(late, mode=mode, from_us=2 * s), 1)
    result = found.finish()

    assert result.ok, result.broken
    assert result.traffic["operations"] > 50
    assert found.homes is not None
    assert all(home.steward.serving for home in found.homes)


def test_nothing_is_served_while_the_store_does_not_say_that_the_keyspace_was_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(home: Home, answer: Callable[[StoreAnswer], None]) -> None:
        home.after(ms, lambda: answer(StoreAnswer.FAILED))

    monkeypatch.setattr(Home, "ask_dropped", fails)
    found = Run(a_plan(), 1)
    result = found.finish()

    assert found.homes is not None
    assert not any(home.steward.serving for home in found.homes)
    assert any(home.coming for home in found.homes)  # they try again
    assert {broken.invariant for broken in result.broken} == {"K4"}


def test_a_key_that_cannot_be_decided_breaks_k1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "PLACES_MAX", 3)

    result = run(a_plan(), 1)

    assert [broken.invariant for broken in result.broken] == ["K1"]
    assert "still undecided" in result.broken[0].detail


def test_a_crash_leaves_no_partition_without_an_owner() -> None:
    result = run(a_plan(Crash(at_us=3 * s, nodes=(1,))), 1)

    assert result.ok, result.broken
    assert result.traffic["moves"] > 4


@pytest.mark.parametrize("crash_at_us", range(3 * s + 100 * ms, 3 * s + 700 * ms, 100 * ms))
def test_partitions_of_a_member_that_falls_silent_while_it_leaves_are_served_again(
    crash_at_us: int,
) -> None:
    # Nobody probes a member that left, and a machine that is off does not refuse connections.
    cut_off = FailStore(at_us=2 * s, nodes=(1,), for_us=3 * s, how="cut")
    silent = Crash(at_us=crash_at_us, nodes=(1,), silent=True)

    result = run(a_plan(cut_off, Leave(at_us=3 * s, nodes=(1,)), silent, mode="durable"), 1)

    assert result.ok, result.broken


def test_a_store_that_is_away_for_one_node_takes_no_acknowledged_write() -> None:
    cut = FailStore(at_us=2 * s, for_us=5 * s, nodes=(0,), how="cut")

    assert run(a_plan(cut), 1).ok


def test_an_item_that_nobody_appended_is_found() -> None:
    found = Run(a_plan(), 1)
    found.advance(5 * s)

    found.clients.history.append(Invocation("key-1", "get", None, (99,), 4 * s, 5 * s))

    assert {broken.invariant for broken in found.finish().broken} == {"K1"}


def test_two_owners_in_an_epoch_are_found() -> None:
    found = Run(a_plan(), 1)
    found.advance(5 * s)
    assert found.homes is not None
    one, other = list(found.homes)[:2]

    for home in (one, other):
        found.homes.acknowledged(home, 0, 77)

    assert {broken.invariant for broken in found.finish().broken} == {"K2"}


def test_a_plan_that_breaks_is_shrunk_and_kept_as_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "ringpop_sim.keyspaces.oracles.RequestsOfKeysEnd.finish",
        lambda self: self.broke("K6", "always"),
    )
    plan = tmp_path / "plan.toml"
    assert main(["run", "random", "--seed", "1", "--show-plan"]) == 0
    plan.write_text(capsys.readouterr().out + "\n[keyspace]\npartitions = 2\n", "utf-8")

    code = main(["shrink", str(plan), "--seed", "1", "--invariant", "K6"])

    assert code in (0, 1)
    assert "[keyspace]" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", [{"partitions": 0}, {"mode": "elsewhere"}, {"per_second": 0.0}, {"keys_each": 0}]
)
def test_a_keyspace_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        replace(KeyspacePlan(), **wrong)  # type: ignore[arg-type]


def test_a_drained_node_serves_nothing_until_it_is_taken_back() -> None:
    drain = Drain(at_us=3 * s, for_us=10 * s, nodes=(0,))
    found = Run(a_plan(drain, from_us=500 * ms), 1)

    found.advance(10 * s)

    assert found.homes is not None
    first = next(iter(found.homes))
    assert not first.steward.serving
    assert found.finish().ok
    assert first.steward.serving
