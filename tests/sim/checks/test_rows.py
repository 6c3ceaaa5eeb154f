"""S1 to S5: hand-made violations are found, and hard faults raise no false alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import Refuted, StatusChanged, SuspicionConfirmed, Via
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import MemberChange, Ping
from ringpop_sim.checks.rows import (
    IncarnationsIssued,
    Refutations,
    RowsRise,
    StatusesLast,
    suspicion_us,
)
from ringpop_sim.plans.plan import Crash, Cut, Link, Pause, Plan, Rumour, Stop, Twin
from ringpop_sim.runs.run import Run
from ringpop_sim.units import s
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from ringpop_sim.world.process import Process

CHECKS = (RowsRise, IncarnationsIssued, Refutations, StatusesLast)


def calm_run(*, dialect: str = "native") -> Run:
    """Three nodes that know each other."""
    assert dialect in ("native", "ringpop")
    plan = Plan(nodes=3, until_us=30 * s, dialect="native" if dialect == "native" else "ringpop")
    under_way = Run(plan, 1, CHECKS)
    under_way.advance(5 * s)
    return under_way


def tell(under_way: Run, process: Process, effect: StatusChanged | Refuted) -> None:
    """Have all oracles hear a fact that the node did not tell."""
    for check in under_way.world.checks.facts:
        check.fact(process, effect)


def changed(before: Member | None, after: Member | None, via: Via = "ping") -> StatusChanged:
    return StatusChanged(before, after, via, "n2", "n2")


def rumoured(under_way: Run, process: Process, row: Member, source: str = "n2") -> None:
    """Have *process* hear *row* in a ping."""
    about = process.address
    ping = Ping(
        CLUSTER,
        None,
        source,
        *about,
        0,
        None,
        (MemberChange(member=row, source=source, source_incarnation=0),),
    )
    under_way.world.exchange.forge(process, ping)


def two_of(under_way: Run) -> tuple[Process, Member]:
    """A process, and the row that it has of another."""
    process = under_way.world.numbered[0]
    row = process.node.members.get(under_way.world.numbered[1].name)
    assert row is not None
    return process, row


def broken_in(under_way: Run) -> set[str]:
    return {broken.invariant for broken in under_way.finish().broken}


def test_a_row_that_goes_down_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    tell(under_way, process, changed(row, replace(row, incarnation=row.incarnation - 1)))

    assert "S1" in broken_in(under_way)


def test_a_row_that_changes_in_silence_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    process.node.members.put(replace(row, status=Status.SUSPECT))

    assert broken_in(under_way) >= {"S1"}


def test_a_checksum_that_is_not_that_of_the_rows_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    process.node.members._checksum.replace(row.name, replace(row, incarnation=1))

    assert "S1" in broken_in(under_way)


def test_a_node_that_forgets_itself_is_found() -> None:
    under_way = calm_run()
    process, _ = two_of(under_way)

    tell(under_way, process, changed(process.node.local, None))

    assert "S1" in broken_in(under_way)


def test_an_incarnation_that_nobody_issued_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    rumoured(under_way, process, replace(row, incarnation=row.incarnation + 1))

    assert broken_in(under_way) == {"S2"}


def test_an_accused_node_that_stays_what_it_is_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = calm_run()
    process, _ = two_of(under_way)
    monkeypatch.setattr(process.node._rows, "update", lambda *_, **__: [])

    rumoured(under_way, process, replace(process.node.local, status=Status.SUSPECT))

    assert "S3" in broken_in(under_way)


def test_a_refutation_without_a_higher_incarnation_is_found() -> None:
    under_way = calm_run()
    process, _ = two_of(under_way)
    local = process.node.local

    tell(under_way, process, Refuted(replace(local, status=Status.SUSPECT), local, "n1"))

    assert broken_in(under_way) == {"S3"}


def test_an_own_row_that_changes_under_its_incarnation_is_found() -> None:
    under_way = calm_run()
    process, _ = two_of(under_way)
    local = process.node.local

    tell(under_way, process, changed(local, replace(local, status=Status.LEAVE), "local"))

    assert "S3" in broken_in(under_way)


def test_a_tombstone_of_a_stranger_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    tell(under_way, process, changed(None, replace(row, name="x", status=Status.TOMBSTONE)))

    assert "S4" in broken_in(under_way)


def test_a_tombstone_that_is_resurrected_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)
    dead = replace(row, status=Status.TOMBSTONE)

    tell(under_way, process, changed(row, dead))
    tell(under_way, process, changed(dead, row))

    assert "S4" in broken_in(under_way)


def test_a_suspect_that_is_faulty_at_once_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)
    suspect = replace(row, status=Status.SUSPECT)

    tell(under_way, process, changed(row, suspect, "probe"))
    tell(under_way, process, changed(suspect, replace(row, status=Status.FAULTY), "timer"))

    assert "S5" in broken_in(under_way)


def test_a_faulty_member_that_never_was_suspect_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    tell(under_way, process, changed(row, replace(row, status=Status.FAULTY), "timer"))

    assert "S5" in broken_in(under_way)


@pytest.mark.parametrize(
    ("members", "accusers", "lasts_s"), [(2, 0, 3), (10, 1, 18), (10, 4, 3), (100, 1, 36)]
)
def test_a_suspicion_lasts_the_longer_the_fewer_accuse(
    members: int, accusers: int, lasts_s: int
) -> None:
    config = GossipConfig(suspect_s=3.0)

    assert suspicion_us(config, members, accusers) == lasts_s * s


def test_a_suspicion_of_one_accuser_that_ends_as_if_there_were_more_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)
    suspect, faulty = (replace(row, status=status) for status in (Status.SUSPECT, Status.FAULTY))

    tell(under_way, process, changed(row, suspect, "probe"))
    under_way.advance(10 * s)
    expired = StatusChanged(suspect, faulty, "timer", "n0", "n0", accusers=(process.name,))
    tell(under_way, process, expired)

    assert "S5" in broken_in(under_way)


def test_an_accuser_that_has_not_accused_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)
    suspect = replace(row, status=Status.SUSPECT)

    tell(under_way, process, changed(row, suspect, "ping"))
    for check in under_way.world.checks:
        check.fact(process, SuspicionConfirmed(suspect, "n2", ("n2",), 0))

    assert "S5" in broken_in(under_way)


def test_news_of_a_faulty_member_for_which_nobody_waited_is_found() -> None:
    under_way = calm_run()
    process, row = two_of(under_way)

    rumoured(under_way, process, replace(row, status=Status.FAULTY))

    assert broken_in(under_way) == {"S5"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_hard_faults_break_nothing(seed: int, dialect: str) -> None:
    plan = Plan(
        nodes=6,
        until_us=90 * s,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(loss=0.05, duplicate=0.1, corrupt=0.02),
        settings=(("faulty_s", 20.0), ("tombstone_s", 5.0)),
        operations=(
            Cut(at_us=10 * s, for_us=15 * s, left=(0, 1, 2), right=(3, 4, 5)),
            Crash(at_us=12 * s, for_us=20 * s, nodes=(1, 4), clock_us=-3600 * s),
            Crash(at_us=15 * s, for_us=5 * s, nodes=(0,), memory="kept", silent=True),
            Pause(at_us=40 * s, for_us=8 * s, nodes=(2,)),
            Stop(at_us=42 * s, for_us=8 * s, nodes=(3,)),
            Twin(at_us=45 * s, for_us=8 * s, about=5),
            Rumour(at_us=50 * s, nodes=(0, 1, 2), about=3, status="faulty"),
            Crash(at_us=52 * s, nodes=(0,)),
        ),
    )

    assert Run(plan, seed, CHECKS).finish().broken == []
