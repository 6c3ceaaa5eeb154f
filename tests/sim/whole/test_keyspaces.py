"""Clusters with partitions: their plans hold, take one course, and are told, shrunk and kept."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.state.catalog.journalstore import JournalStore
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.durable.writer import Writer
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.codec import encode_record
from ringpop_py.state.journal.records import Seal
from ringpop_py.state.partition.machine import Machine
from ringpop_sim.cli import main
from ringpop_sim.errors import PlanError
from ringpop_sim.linear import Invocation
from ringpop_sim.plans.plan import (
    Crash,
    Drain,
    FailStore,
    KeyspacePlan,
    Leave,
    Link,
    Plan,
    Start,
    Stop,
    uniform,
)
from ringpop_sim.runs.run import run
from ringpop_sim.scenarios import scenario
from ringpop_sim.units import ms, s
from ringpop_sim.whole.cluster import KEYSPACE
from ringpop_sim.whole.keyspaces import oracles
from ringpop_sim.whole.keyspaces.oracle import KeyspaceOracle
from ringpop_sim.whole.keyspaces.shares import GENERATION, ShareWatcher
from ringpop_sim.whole.run import WholeRun
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.state.partition.record import Perform
    from ringpop_sim.whole.keyspaces.shares import DaemonShare

PLANS_COUNT = int(os.environ.get("RINGPOP_SIM_KEYSPACE_PLANS", "40"))


@pytest.mark.swarm
@pytest.mark.timeout(900)
def test_no_invariant_breaks_in_many_plans_with_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(
        ["swarm", "--whole", "--faults", "4", "--seeds", str(PLANS_COUNT), "--format", "json"]
    )

    said = capsys.readouterr()
    assert code == 0, said.err
    value = json.loads(said.out)
    assert value["plans"] == PLANS_COUNT
    assert value["events"] > 500 * PLANS_COUNT


def test_plans_with_partitions_take_one_course_under_any_hash_seed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["determinism", "--whole", "--nodes", "4", "--seeds", "4"]) == 0
    assert "same course" in capsys.readouterr().out


KEYS = KeyspaceKeys(CLUSTER, KEYSPACE, GENERATION)


def a_run(plan: Plan) -> WholeRun:
    return WholeRun(plan, 1)


def a_plan(
    *operations: Crash | Drain | FailStore | Leave | Start | Stop, **keyspace: object
) -> Plan:
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
    found = a_run(a_plan(late, mode=mode, from_us=2 * s))
    found.advance(12 * s)

    assert all(share.steward.serving for share in found.shares or ())
    result = found.finish()
    assert result.ok, result.broken
    assert result.traffic["operations"] > 50


def test_nothing_is_served_while_the_store_does_not_say_that_the_keyspace_was_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(_host: DurableHost) -> bool:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(DurableHost, "is_over", fails)
    found = a_run(a_plan())
    found.advance(10 * s)

    shares = list(found.shares or ())
    assert not any(share.steward.serving for share in shares)
    assert any(share.steward.coming or share.steward.parts for share in shares)  # they try again
    assert {broken.invariant for broken in found.finish().broken} == {"K4"}


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


def test_a_node_that_restarts_while_others_wait_for_the_store_keeps_what_it_claims() -> None:
    # n1 learnt before the restart of n3 that it does not own the partition, and claims it at 2.8 s.
    full = FailStore(at_us=800 * ms, for_us=2 * s, how="full")
    restart = Stop(at_us=2 * s, for_us=500 * ms, nodes=(3,))
    plan = Plan(
        nodes=4,
        until_us=10 * s,
        calm_us=2 * s,
        keyspace=KeyspacePlan(partitions=4, handoffs_max=1, takeovers_max=1, keys=8),
        operations=(full, restart),
    )

    for seed in range(20):
        result = run(plan, seed)

        assert result.ok, (seed, result.broken)


def test_a_store_that_is_away_for_one_node_takes_no_acknowledged_write() -> None:
    cut = FailStore(at_us=2 * s, for_us=5 * s, nodes=(0,), how="cut")

    assert run(a_plan(cut), 1).ok


def test_an_item_that_nobody_appended_is_found() -> None:
    found = a_run(a_plan())
    found.advance(5 * s)

    found.clients.history.append(Invocation("key-1", "get", None, (99,), 4 * s, 5 * s))

    assert {broken.invariant for broken in found.finish().broken} == {"K1"}


def test_two_owners_in_an_epoch_are_found() -> None:
    found = a_run(a_plan())
    found.advance(5 * s)
    assert found.shares is not None

    for share in list(found.shares)[:2]:
        found.shares.report(ShareWatcher.acknowledged, share, 0, 77)

    assert {broken.invariant for broken in found.finish().broken} == {"K2"}


class Fences(KeyspaceOracle):
    """How long each fence took, until the node had claimed or lost all that its journal held."""

    def __init__(self, found: WholeRun) -> None:
        assert found.shares is not None
        super().__init__(found.world, found.shares, found.clients)
        self.open: dict[DaemonShare, tuple[int, int]] = {}
        self.took_us: list[int] = []
        self.claimed_again = 0

    def told(self, share: DaemonShare, fact: fx.Fact) -> None:
        if isinstance(fact, fx.Fenced):
            held = sum(share.journal.reclaims(n) for n in range(self.shares.plan.partitions))
            self.open[share] = self.world.now, held
        elif isinstance(fact, fx.Reclaimed | fx.Lost):
            self.claimed_again += isinstance(fact, fx.Reclaimed)
            at, left = self.open.pop(share)
            if left > 1:
                self.open[share] = at, left - 1
            else:
                self.took_us.append(self.world.now - at)


def test_a_node_that_was_sealed_wrongly_puts_one_claim_a_partition_and_reads_no_slot() -> None:
    found = a_run(a_plan(per_second=50.0, after_us=30 * s))
    found.advance(10 * s)
    share = next(share for share in found.shares or () if share.steward.serving)
    before = {number: share.table[number].epoch for number in share.steward.serving}
    fences, calls = Fences(found), Counter[str]()
    perform_now = JournalStore.perform_now

    def count(store: JournalStore, request: fx.Request) -> fx.Reply:
        if found.world.current is share.process and share in fences.open:
            calls[type(request).__name__] += 1
        return perform_now(store, request)

    # Somebody took it for dead, put a seal, and thought better of it.
    slot = KEYS.journal(share.journal.name).slot(share.journal.next_slot)
    objects = found.world.store.objects
    assert slot not in objects
    objects[slot] = encode_record(Seal("n7"), slot)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JournalStore, "perform_now", count)
        found.advance(12 * s)

    assert calls["PutClaim"] == len(before)
    assert set(calls) <= {"PutClaim", "PutSlot"}  # the first that is back goes on with its writes
    assert fences.claimed_again == len(before)
    assert max(fences.took_us) < 20 * ms  # one put, and all at the same time
    assert share.steward.serving == set(before)
    assert all(share.table[number].epoch == epoch + 1 for number, epoch in before.items())
    assert found.finish().ok


def test_a_member_that_is_taken_for_dead_has_what_nobody_else_claimed_again_in_a_second() -> None:
    claimed_again, took_us = 0, [0]
    for seed in (1, 2, 3):
        found = WholeRun(scenario("partitions-sealed"), seed)
        fences = Fences(found)
        result = found.finish()
        assert result.ok, result.broken
        claimed_again += fences.claimed_again
        took_us += fences.took_us

    assert claimed_again >= 5
    assert max(took_us) < 1 * s


def test_a_fence_after_which_nothing_is_claimed_breaks_k10(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Machine.answered

    def deaf(machine: Machine[Any], asked: Perform, *rest: object) -> list[Any]:
        return [] if asked.part is None else answered(machine, asked, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Machine, "answered", deaf)

    result = run(scenario("partitions-sealed"), 1)

    assert "K10" in {broken.invariant for broken in result.broken}


def test_journals_are_short_half_a_minute_after_members_were_drained_and_killed() -> None:
    plan = scenario("journals-trimmed")
    found = WholeRun(plan, 1)
    found.advance(plan.quiet_at_us + 30 * s)

    assert found.shares is not None
    written = sum(share.journal.next_slot for share in found.shares)
    kept = found.shares.shelf.slots_counts().total()
    assert written > 1_000
    assert kept < 200
    result = found.finish()
    assert result.ok, result.broken


def test_a_journal_that_nobody_trims_breaks_k11(monkeypatch: pytest.MonkeyPatch) -> None:
    async def does_nothing(writer: Writer) -> fx.Trimmed:
        await trio.lowlevel.checkpoint()
        return fx.Trimmed(writer.journal.name, 0, failed=False)

    monkeypatch.setattr(Writer, "trim", does_nothing)

    result = run(scenario("journals-trimmed"), 1)

    assert {broken.invariant for broken in result.broken} == {"K11"}


def test_a_state_that_is_not_in_the_store_breaks_k12() -> None:
    slow = Link(delay=uniform(6 * ms, 8 * ms))  # so no requests come in the calm at the end
    found = a_run(replace(a_plan(), link=slow))
    found.advance(15 * s)  # all is in checkpoints by then
    objects = found.world.store.objects
    prefixes = tuple(KEYS.partition(number).checkpoints for number in range(4))
    checkpoints = [key for key in objects if key.startswith(prefixes)]
    for key in checkpoints:
        del objects[key]

    broken = found.finish().broken

    assert checkpoints
    assert "K12" in {each.invariant for each in broken}


def test_a_seal_that_no_verdict_asks_for_breaks_k13() -> None:
    found = a_run(a_plan())
    found.advance(5 * s)
    assert found.shares is not None
    one = next(share for share in found.shares if share.journal.held)
    other = next(share for share in found.shares if share is not one)
    number = min(one.journal.held)
    claim = found.shares.shelf.claim(number, one.journal.held[number].epoch)
    assert claim is not None

    # Before it has decided so, and then while the owner is alive.
    found.shares.report(ShareWatcher.told, other, fx.Sealed(number, claim.journal, 99, claim))
    found.shares.report(ShareWatcher.replaces, other, number, claim)

    assert [broken.invariant for broken in found.finish().broken] == ["K13", "K13"]


def test_a_plan_that_breaks_is_shrunk_and_kept_as_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "ringpop_sim.whole.keyspaces.oracles.RequestsOfKeysEnd.finish",
        lambda self: self.broke("K6", "always"),
    )
    plan = tmp_path / "plan.toml"
    assert main(["run", "partitions-awaited", "--show-plan"]) == 0
    plan.write_text(capsys.readouterr().out, "utf-8")

    code = main(["shrink", str(plan), "--seed", "1", "--invariant", "K6"])

    assert code in (0, 1)
    assert "[keyspace]" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"mode": "elsewhere"},
        {"per_second": 0.0},
        {"keys_each": 0},
        {"unserved_us": -1},
        {"store_read_us": -1},
        {"timeout_us": 0},
    ],
)
def test_a_keyspace_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        replace(KeyspacePlan(), **wrong)  # type: ignore[arg-type]


def test_a_drained_node_serves_nothing_until_it_is_taken_back() -> None:
    drain = Drain(at_us=3 * s, for_us=10 * s, nodes=(0,))
    found = a_run(a_plan(drain, from_us=500 * ms))

    found.advance(10 * s)
    first = min(found.shares or (), key=lambda share: share.number)
    assert not first.steward.serving
    found.advance(20 * s)

    assert first.steward.serving
    assert found.finish().ok
