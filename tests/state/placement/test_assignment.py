"""`state.placement.assignment`: what was recorded, who should own what now, and moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BodyError, NoOwner, NotEnoughMembers
from ringpop_py.base.values.declared import encode
from ringpop_py.state.placement.assignment import (
    Assignment,
    Move,
    backups_of,
    check_cluster_size,
    decode_assignment,
    effective_owners,
    placed,
    plan_moves,
)
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.state.placement.strategies import assign

NAMES = ("a", "b", "c", "d")
owners_lists = st.lists(st.sampled_from(NAMES), min_size=1, max_size=40)
some_names = st.lists(st.sampled_from([*NAMES, "e"]), min_size=1, unique=True)


def spread(owners: tuple[str, ...] | list[str], names: set[str]) -> int:
    held = Counter(owners)
    return max(held[name] for name in names) - min(held[name] for name in names)


# -- effective owners ----------------------------------------------------------------------


@given(owners_lists, some_names)
def test_whose_recorded_owner_is_there_does_not_move(owners: list[str], members: list[str]) -> None:
    """R11: only partitions of members that are gone do."""
    now = effective_owners(Assignment(1, tuple(owners)), members)

    assert set(now) <= set(members)
    assert all(b == a for a, b in zip(owners, now, strict=True) if a in members)


def test_the_partitions_of_a_dead_member_fall_to_the_others_in_even_shares() -> None:
    """R11."""
    assignment = Assignment(1, assign("round_robin", 256, NAMES))

    now = effective_owners(assignment, ["d", "a", "b"])

    assert sum(a != b for a, b in zip(assignment.owners, now, strict=True)) == 64
    assert sorted(Counter(now).values()) == [85, 85, 86]


def test_a_newcomer_takes_what_the_dead_had_as_it_is_the_emptiest() -> None:
    assignment = Assignment(1, assign("round_robin", 12, NAMES))

    now = effective_owners(assignment, ["a", "b", "c", "e"])

    assert now == tuple("e" if owner == "d" else owner for owner in assignment.owners)


def test_without_members_nobody_should_own_anything() -> None:
    with pytest.raises(NoOwner):
        effective_owners(Assignment(1, ("a",)), [])


# -- the size that a cluster must have at first --------------------------------------------


def test_below_the_minimum_size_nothing_is_assigned_and_the_reason_is_said() -> None:
    """F4."""
    with pytest.raises(NotEnoughMembers) as caught:
        check_cluster_size(["b", "a"], 3, assigned=False)

    assert str(caught.value) == (
        "no partition was assigned yet: 2 of the 3 members that the keyspace waits for "
        "(min_cluster_size) are here: a, b. Start 1 more, or lower it: ringpopctl keyspace set"
    )


def test_of_many_members_that_are_too_few_the_first_are_named() -> None:
    with pytest.raises(NotEnoughMembers, match=r"are here: 0, 1, 10, .*, …\. Start 80 more"):
        check_cluster_size([str(n) for n in range(20)], 100, assigned=False)
    with pytest.raises(NotEnoughMembers, match=r"0 of the 3 members.* are here: none\. Start 3"):
        check_cluster_size([], 3, assigned=False)


def test_falling_below_the_minimum_size_later_unassigns_nothing() -> None:
    """F4."""
    check_cluster_size(["a"], 3, assigned=True)


# -- records -------------------------------------------------------------------------------


@given(st.integers(1, 2**63 - 1), owners_lists)
def test_an_assignment_is_read_as_it_was_written(version: int, owners: list[str]) -> None:
    assignment = Assignment(version, tuple(owners))

    assert decode_assignment(assignment.encode(), len(owners)) == assignment


@pytest.mark.parametrize(
    "value",
    [
        [1, ["a"], [0]],
        [1, ["a"], [0, 1]],
        [1, ["a"], [0, -1]],
        [0, ["a"], [0, 0]],
    ],
)
def test_a_malformed_assignment_is_refused(value: object) -> None:
    with pytest.raises(BodyError):
        decode_assignment(encode(value), 2)


# -- plans ---------------------------------------------------------------------------------


def test_the_example_of_fixed_partitions() -> None:
    """F17, F5, F12: ephesus joins athens, byzantium and cyrene, and gets two of nine partitions.

    The seed counts from 1, so its partition 7 of athens is our 6. It goes on with one move where
    two make the shares even, and its own algorithm plans both.
    """
    three = ["athens", "byzantium", "cyrene"]
    before = assign("average", 9, three)

    after = assign("average", 9, [*three, "ephesus"], before)

    assert before == ("athens", "byzantium", "cyrene") * 3
    plan = plan_moves(before, after)
    assert plan.moves == (Move(6, "athens", "ephesus"), Move(7, "byzantium", "ephesus"))
    assert plan.lines() == [
        "2 of 9 partitions move",
        "partition 6: athens -> ephesus",
        "partition 7: byzantium -> ephesus",
        "athens: 3 -> 2",
        "byzantium: 3 -> 2",
        "cyrene: 3 -> 3",
        "ephesus: 0 -> 2",
    ]
    first = plan_moves(before, after, max_moves=1)
    assert first.lines()[:2] == [
        "1 of 9 partitions move (1 more would follow)",
        "partition 6: athens -> ephesus",
    ]


def test_nothing_moves_where_all_is_as_it_should_be() -> None:
    plan = plan_moves(["a", "b"], ["a", "b"])

    assert plan.moves == ()
    assert plan.lines() == ["0 of 2 partitions move", "a: 1 -> 1", "b: 1 -> 1"]


def test_the_fullest_is_relieved_in_favour_of_the_emptiest_first() -> None:
    """F12."""
    current = ["b", "b", "b", "a", "a", "a", "a", "a", "a", "c"]
    target = ["b", "b", "c", "b", "c", "a", "a", "a", "a", "c"]

    plan = plan_moves(current, target, max_moves=1)

    assert plan.moves == (Move(4, "a", "c"),)
    assert (plan.before, plan.after) == ({"a": 6, "b": 3, "c": 1}, {"a": 5, "b": 3, "c": 2})
    assert plan.left_count == 2
    assert [move.partition for move in plan_moves(current, target).moves] == [4, 3, 2]


def test_partitions_without_an_owner_and_those_that_must_leave_come_before_any_balance() -> None:
    current = ["a", "a", "a", "a", "gone", NOBODY, "b"]
    target = ["a", "a", "b", "c", "c", "b", "b"]

    plan = plan_moves(current, target, max_moves=2)

    assert {move.partition for move in plan.moves} == {4, 5}
    assert plan.after == {"a": 4, "b": 2, "c": 1, "gone": 0}


def test_a_cut_that_would_leave_it_worse_is_shorter_still() -> None:
    """F12: half of an exchange makes one member fuller than any was."""
    current, target = ["a", "b", "a", "b"], ["b", "a", "a", "b"]

    assert plan_moves(current, target, max_moves=1).moves == ()
    assert len(plan_moves(current, target, max_moves=2).moves) == 2


@given(st.data(), st.integers(1, 40), st.integers(0, 40))
def test_a_cut_never_leaves_shares_less_even_than_at_both_ends(
    data: st.DataObject, count: int, max_moves: int
) -> None:
    lists = st.lists(st.sampled_from(NAMES), min_size=count, max_size=count)
    current, target = data.draw(lists), data.draw(lists)
    current = [owner if owner in target else target[0] for owner in current]  # nobody must leave

    plan = plan_moves(current, target, max_moves=max_moves)

    names = set(target)
    assert len(plan.moves) <= max_moves
    assert spread(plan.owners, names) <= max(spread(current, names), spread(target, names))


@given(st.data(), st.integers(1, 40), st.one_of(st.none(), st.integers(0, 40)))
def test_a_plan_says_what_its_moves_do(
    data: st.DataObject, count: int, max_moves: int | None
) -> None:
    current = data.draw(st.lists(st.sampled_from([*NAMES, NOBODY]), min_size=count, max_size=count))
    target = data.draw(st.lists(st.sampled_from(NAMES[:3]), min_size=count, max_size=count))

    plan = plan_moves(current, target, max_moves=max_moves)

    owners = list(current)
    for move in plan.moves:
        assert owners[move.partition] == move.source
        assert target[move.partition] == move.target
        owners[move.partition] = move.target
    assert plan.owners == tuple(owners)
    different = sum(a != b for a, b in zip(current, target, strict=True))
    assert len(plan.moves) + plan.left_count == different
    if max_moves is None:
        assert plan.owners == tuple(target)
    for name in plan.before:
        assert plan.before[name] == current.count(name)
        assert plan.after[name] == owners.count(name)
    assert set(current) | set(target) == set(plan.before) | ({NOBODY} & set(current))


def test_plans_that_are_carried_out_in_small_cuts_reach_even_shares() -> None:
    current: tuple[str, ...] = ("a",) * 20 + ("b",) * 10
    rounds = 0
    while (target := assign("average", 30, ["a", "b", "c"], current)) != current:
        current = plan_moves(current, target, max_moves=3).owners
        rounds += 1

    assert rounds == 4
    assert Counter(current) == {"a": 10, "b": 10, "c": 10}


@pytest.mark.parametrize("strategy", ["balanced", "ring", "range"])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_the_first_backup_is_who_would_own_the_partition_without_its_owner(
    strategy: str, copies: int
) -> None:
    members = ["a", "b", "c", "d"]
    definition = Definition(
        name="k", partitions=64, mode="memory", strategy=strategy, copies=copies
    )

    found = backups_of(definition, members, "b")

    assert {len(names) for names in found} == {copies - 1}
    assert all(len({*names, "b"}) == copies for names in found)
    firsts = tuple(names[0] for names in found if names)
    assert firsts == (placed(definition, ["a", "c", "d"]) if copies > 1 else ())
    assert backups_of(definition, ["b"], "b") == [()] * 64
    assert {len(names) for names in backups_of(definition, ["b", "c"], "b")} == {min(copies - 1, 1)}
