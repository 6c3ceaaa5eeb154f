"""Healing: two sides that hold each other for faulty become one cluster again."""

from __future__ import annotations

import itertools

import pytest

from ringpop_py.address import Address
from ringpop_py.config import GossipConfig
from ringpop_py.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.membership.effects import Healed, StatusChanged
from ringpop_py.membership.healing import FAILURES_MAX, Healing, contradictions
from ringpop_py.membership.member import Member, Status
from ringpop_py.membership.messages import Change
from tests.membership.world import World, address_of

A, B = Address("10.0.0.1", 3000), Address("10.0.0.2", 3000)


def row(incarnation: int, status: Status) -> Member:
    return Member("a", A, incarnation, status)


@pytest.mark.parametrize("status", [Status.FAULTY, Status.TOMBSTONE])
def test_what_we_hold_for_dead_and_they_for_alive_is_told_them_as_a_suspicion(
    status: Status,
) -> None:
    ours = {"a": row(2, status)}

    for_us, for_them = contradictions(ours, [row(2, Status.ALIVE)])

    assert for_us == []
    assert for_them == [Change(row(2, Status.SUSPECT))]


def test_what_they_hold_for_dead_and_we_for_alive_is_told_us() -> None:
    ours = {"a": row(2, Status.ALIVE)}

    for_us, for_them = contradictions(ours, [row(3, Status.FAULTY)])

    assert for_us == [Change(row(3, Status.SUSPECT))]
    assert for_them == []


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (row(2, Status.FAULTY), row(3, Status.ALIVE)),  # theirs is newer: merging will do
        (row(2, Status.ALIVE), row(2, Status.SUSPECT)),
        (row(2, Status.LEAVE), row(2, Status.ALIVE)),  # it said so itself
        (row(2, Status.FAULTY), row(2, Status.FAULTY)),
    ],
)
def test_what_does_not_contradict_needs_no_refutation(mine: Member, theirs: Member) -> None:
    assert contradictions({"a": mine}, [theirs]) == ([], [])


def test_a_run_skips_who_the_reached_side_can_reach() -> None:
    healing = Healing([A, B])
    assert healing.next_target() == B

    healing.succeeded([row(1, Status.ALIVE)])

    assert healing.next_target() is None
    assert healing.healed == [B]


def test_a_run_ends_after_too_many_failures() -> None:
    healing = Healing([A] * 100)

    tries = 0
    while healing.next_target() is not None:
        healing.failure_count += 1
        tries += 1

    assert tries == FAILURES_MAX


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP])
def test_a_full_split_heals_in_two_runs(dialect: Dialect) -> None:
    world = split(dialect, heal_period_s=1_000)

    for _ in range(2):
        world.do(0, lambda node, now: node.heal(now))
        world.run(1)

    world.run_until(world.converged, within_s=5)
    (_, first), (_, _second) = world.effects(0, Healed)
    assert isinstance(first, Healed)
    assert set(first.targets) <= {address_of(i) for i in (2, 3, 4)}
    assert first.targets


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP])
def test_a_full_split_heals_by_itself(dialect: Dialect) -> None:
    world = split(dialect)

    world.run_until(world.converged, within_s=5 * world.config.heal_period_s)


def test_healing_declares_nobody_faulty() -> None:
    world = split(NATIVE)
    healed_at = world.now

    world.run_until(world.converged, within_s=5 * world.config.heal_period_s)
    world.run(20)

    late = [
        effect
        for index in range(5)
        for at, effect in world.effects(index, StatusChanged)
        if at > healed_at
        and isinstance(effect, StatusChanged)
        and effect.after
        and effect.after.status is Status.FAULTY
    ]
    assert late == []


def test_a_cluster_in_one_piece_is_left_alone() -> None:
    world = World()
    world.start_cluster(3)

    world.do(0, lambda node, now: node.heal(now))
    world.run(1)

    assert [effect for _, effect in world.effects(0, Healed)] == [Healed(())]


def test_hosts_of_another_cluster_are_not_merged_with() -> None:
    world = World()
    world.start(0, [0, 1], cluster="red")
    world.start(1, [0, 1], cluster="blue")

    world.run(10)
    world.do(0, lambda node, now: node.heal(now))
    world.run(5)

    assert [len(node.members) for node in world.nodes] == [1, 1]


def split(dialect: Dialect, *, heal_period_s: float = 30.0) -> World:
    """Two and three nodes that were cut off from each other until all were faulty, and no more."""
    world = World(dialect, config=GossipConfig(heal_period_s=heal_period_s))
    world.start_cluster(5)
    for one, other in itertools.product((0, 1), (2, 3, 4)):
        world.cut(one, other)
    world.run_until(
        lambda: all(
            world.status(one, other) is Status.FAULTY and world.status(other, one) is Status.FAULTY
            for one, other in itertools.product((0, 1), (2, 3, 4))
        ),
        within_s=120,
    )
    world.run(7)  # so that the last ping-reqs to the other side have been given up
    world.heal()
    return world
