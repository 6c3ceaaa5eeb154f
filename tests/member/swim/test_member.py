"""`membership.member`: statuses, the override rule and labels."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.member import (
    DAMPING_MAX,
    DRAINING,
    Labels,
    Member,
    Status,
    checked_labels,
    label_sum,
    merged,
    overrides,
)

ADDRESS = Address("10.0.0.1", 3000)
labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")).map(
    lambda d: tuple(sorted(d.items()))
)
rows = st.builds(
    lambda *said: Member("a", *ADDRESS, *said), st.integers(0, 3), st.sampled_from(Status), labels
)
judged_rows = st.builds(replace, rows, damping=st.integers(0, 3) | st.just(DAMPING_MAX))


def row(incarnation: int, status: Status = Status.ALIVE, labels: Labels = ()) -> Member:
    return Member("a", *ADDRESS, incarnation, status, labels)


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(Status, 2)))
def test_of_one_incarnation_the_status_of_higher_precedence_overrides(
    low: Status, high: Status
) -> None:
    assert overrides(row(1, high), row(1, low))
    assert not overrides(row(1, low), row(1, high))


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Status, Status)))
def test_the_higher_incarnation_overrides_whatever_the_statuses(old: Status, new: Status) -> None:
    assert overrides(row(2, new), row(1, old))
    assert not overrides(row(1, old), row(2, new))


@pytest.mark.parametrize("status", Status)
def test_of_a_stranger_all_is_believed_but_a_tombstone(status: Status) -> None:
    assert overrides(row(1, status), None) == (status is not Status.TOMBSTONE)


def test_of_one_incarnation_and_status_the_greater_sum_of_labels_overrides() -> None:
    hello = (("hello", "world"),)
    both = (("foo", "baz"), ("hello", "world"))

    assert overrides(row(1, labels=hello), row(1))
    assert overrides(row(1, labels=hello), row(1, labels=both))
    assert not overrides(row(1, labels=both), row(1))


@given(rows, rows)
def test_of_two_views_one_overrides_unless_they_count_as_equal(one: Member, other: Member) -> None:
    equal = (one.incarnation, one.status, label_sum(one.labels)) == (
        other.incarnation,
        other.status,
        label_sum(other.labels),
    )

    assert overrides(one, other) + overrides(other, one) == (not equal)


@given(rows, rows, rows)
def test_overriding_is_transitive(a: Member, b: Member, c: Member) -> None:
    if overrides(a, b) and overrides(b, c):
        assert overrides(a, c)


@given(st.lists(judged_rows, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_merged_views_settle_on_one_row_in_whatever_order_they_come(
    views: list[Member], rng: object
) -> None:
    def settled(order: list[Member]) -> tuple[int, Status, int, int]:
        held = functools.reduce(lambda old, new: merged(new, old) or old, order)
        return held.incarnation, held.status, label_sum(held.labels), held.damping

    shuffled = [*views, *views[:2]]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]

    assert settled(views) == settled(shuffled)


@given(judged_rows, judged_rows)
def test_a_view_that_says_nothing_newer_is_not_kept(one: Member, other: Member) -> None:
    held = merged(other, one) or one

    assert merged(one, held) is None
    assert merged(other, held) is None


def test_a_new_incarnation_does_not_undo_a_verdict() -> None:
    damped = replace(row(1, Status.FAULTY), damping=1)

    assert merged(row(2), damped) == replace(row(2), damping=1)


def test_an_odd_counter_is_damped_and_the_last_one_is_not() -> None:
    damped = [number for number in range(5) if replace(row(1), damping=number).damped]

    assert damped == [1, 3]
    assert not replace(row(1), damping=DAMPING_MAX).damped


def test_a_member_drains_only_if_its_label_says_so() -> None:
    assert row(1, labels=(DRAINING,)).draining
    assert not row(1, labels=(("draining", "no"),)).draining


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((), 0),
        ((("hello", "world"),), 975109414),
        ((("foo", "baz"), ("hello", "world")), -1625122257),
        ((("__identity", "identity"),), -1005535378),
    ],
)
def test_the_sum_of_labels_is_that_of_the_go_implementation(labels: Labels, expected: int) -> None:
    assert label_sum(labels) == expected


@given(labels)
def test_the_sum_of_labels_does_not_depend_on_their_order(labels: Labels) -> None:
    assert label_sum(labels) == label_sum(labels[::-1])


def test_only_the_alive_and_the_suspected_are_reachable() -> None:
    reachable = [status for status in Status if status.reachable]

    assert reachable == [Status.ALIVE, Status.SUSPECT]


def test_a_member_stands_on_the_ring_under_its_identity_or_else_its_name() -> None:
    assert row(1).identity == "a"
    assert row(1, labels=(("__identity", "shard-1"),)).identity == "shard-1"


def test_sound_labels_come_back_sorted() -> None:
    assert checked_labels((("b", "1"), ("a", "2"))) == (("a", "2"), ("b", "1"))


def test_labels_of_the_node_itself_do_not_count() -> None:
    own = tuple((f"key{i}", "") for i in range(5))

    assert ("__identity", "x" * 200) in checked_labels((*own, ("__identity", "x" * 200)))
    assert DRAINING in checked_labels((*own, DRAINING))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (tuple((f"key{i}", "") for i in range(6)), "at most 5 labels, not 6"),
        ((("k" * 33, ""),), "a key has at most 32 bytes"),
        ((("é" * 17, ""),), "a key has at most 32 bytes"),
        ((("k", "v" * 129),), "a value 128"),
        ((("draining", "v" * 129),), "a value 128"),
        ((("k", "1"), ("k", "2")), "two labels have the same key"),
    ],
)
def test_labels_beyond_a_limit_are_refused(labels: Labels, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_labels(labels)
