"""S9 and L5: lists and rings that differ under one checksum are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.member.ring.placement import Placement
from ringpop_py.member.swim.member import DRAINING, Member, Status
from ringpop_py.member.swim.memberlist import MemberList
from ringpop_sim.checks.placement import EqualListsEqualRings, who_serves
from ringpop_sim.plans.plan import Crash, Cut, Leave, Link, Plan, Rumour
from ringpop_sim.runs.run import Run
from ringpop_sim.units import s
from ringpop_sim.world.network import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKS = (EqualListsEqualRings,)
CRASH = Crash(at_us=5 * s, nodes=(1,))


def broken_in(plan: Plan, seed: int = 1) -> set[str]:
    return {broken.invariant for broken in Run(plan, seed, CHECKS).finish().broken}


def test_lists_that_differ_under_one_checksum_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringpop_py.member.swim.checksum._INCARNATION_STATUS", lambda *_: b"")

    assert "S9" in broken_in(Plan(nodes=4, until_us=20 * s, operations=(CRASH,)))


def test_a_ring_that_is_not_rebuilt_on_faulty_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Placement.follow

    def late(placement: Placement, changed: Sequence[str]) -> None:
        rows = (placement._members.get(name) for name in changed)
        if not any(row is not None and row.status is Status.FAULTY for row in rows):
            follow(placement, changed)

    monkeypatch.setattr(Placement, "follow", late)

    assert "S9" in broken_in(Plan(nodes=4, until_us=60 * s, operations=(CRASH,)))


def test_damping_that_leaves_out_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberList, "holds", lambda _list, member: member.name == "n0")

    assert broken_in(Plan(nodes=6, until_us=5 * s)) >= {"S9", "L5"}


def test_reachable_members_serve_except_draining_ones_and_some_damped_ones() -> None:
    rows = [Member(f"n{i}", *address_of(i), 1) for i in range(6)]
    rows[0] = replace(rows[0], labels=(DRAINING,))
    rows[1] = replace(rows[1], status=Status.FAULTY)
    rows[2] = replace(rows[2], status=Status.SUSPECT)
    rows[3] = replace(rows[3], damping=1)
    rows[4] = replace(rows[4], damping=3)

    native = who_serves(rows, extends=True, damp_share=0.1)
    plain = who_serves(rows, extends=False, damp_share=0.1)

    assert set(native) == {"n2", "n4", "n5"}
    assert set(plain) == {"n0", "n2", "n3", "n4", "n5"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_hard_faults_break_nothing(seed: int, dialect: str) -> None:
    flaps = tuple(Rumour(at_us=(60 + i) * s, nodes=tuple(range(6)), about=2) for i in range(25))
    plan = Plan(
        nodes=8,
        until_us=120 * s,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(loss=0.1),
        settings=(("faulty_s", 20.0), ("tombstone_s", 5.0)),
        operations=(
            Cut(at_us=10 * s, for_us=15 * s, left=(0, 1, 2), right=(3, 4, 5)),
            Crash(at_us=12 * s, for_us=20 * s, nodes=(1, 4), moves=True),
            Leave(at_us=20 * s, for_us=20 * s, nodes=(6,)),
            *flaps,
        ),
    )

    assert broken_in(plan, seed) == set()
