"""`ctl.views`: who sees the same cluster, and when partitions are where they should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ringpop_py.edge.ctl.views import Views, WaitProgress, agreement, why_not_settled
from tests.edge.ctl.served import ctl, nodes

if TYPE_CHECKING:
    import pytest

COUNTS: dict[str, Any] = {
    "name": "counts",
    "generation": 1,
    "assignment_version": 0,
    "partitions": 4,
    "settled": 4,
    "waits_for": None,
}


def of(names: str, **more: Any) -> Views:  # noqa: ANN401
    found = Views([], dict.fromkeys(names, 1))
    for name, value in {"in_ring": len(names), **more}.items():
        setattr(found, name, value)
    return found


def test_members_that_all_answer_alike_see_the_same_cluster() -> None:
    assert agreement(1, of("abc")) == "all see the same cluster"
    assert agreement(1, of("abc", expected=3)) == "all see the same cluster"
    assert agreement(2, of("abc")) == "2 different views"


def test_members_out_of_reach_are_counted_and_named_on_each_side_of_a_split() -> None:
    larger, smaller = of("abc", lost=["d", "e"]), of("de", lost=["a", "b", "c"], expected=5)

    assert agreement(1, larger) == "3 of 5 members see the same; out of reach: d, e (faulty)"
    assert agreement(1, smaller) == "2 of 5 members see the same; out of reach: a, b, c (faulty)"
    assert agreement(2, larger) == "2 different views; out of reach: d, e (faulty)"


def test_expected_members_that_nobody_knows_any_more_are_missing() -> None:
    found = of("ab", expected=5, lost=["c"])

    assert found.missing == 2
    assert agreement(1, found) == (
        "2 of 5 members see the same; out of reach: c (faulty); "
        "2 members are in the ring, 5 are expected"
    )


def test_members_that_do_not_answer_do_not_see_the_same() -> None:
    assert agreement(1, of("ab", silent={"c": "why"})) == "2 of 3 members see the same"


async def test_views_ends_with_3_when_members_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with nodes("a", "b") as (a, _b):
        whole = await ctl(a, capsys, "views")
    async with nodes("a", "b", expect=3) as (a, _b):
        short = await ctl(a, capsys, "--format", "json", "views")

    assert (whole.code, whole.out.splitlines()[-1]) == (0, "all see the same cluster")
    assert short.code == 3
    value = json.loads(short.out)
    assert (value["lost"], value["in_ring"], value["expected"]) == ([], 2, 3)


def test_all_is_settled_when_each_member_sees_it_so() -> None:
    assert why_not_settled({"a": [COUNTS], "b": [COUNTS]}) == ""
    assert why_not_settled({"a": [], "b": []}) == ""


def test_one_member_that_sees_a_partition_elsewhere_is_enough() -> None:
    late = {**COUNTS, "settled": 3}

    assert why_not_settled({"a": [COUNTS], "b": [late]}) == (
        "keyspace counts: 3 of 4 partitions are where they should be, as b sees it"
    )


def test_a_keyspace_that_waits_for_its_minimum_is_named_with_what_is_missing() -> None:
    waiting = {**COUNTS, "settled": 0, "waits_for": "1 of the 3 members are here: a. Start 2 more"}

    assert why_not_settled({"a": [waiting]}) == (
        "keyspace counts, as a sees it: 1 of the 3 members are here: a. Start 2 more"
    )


def test_a_keyspace_that_waits_does_not_concern_who_asks_for_another() -> None:
    waiting = {**COUNTS, "name": "other", "settled": 0, "waits_for": "too few members"}

    assert why_not_settled({"a": [COUNTS, waiting]}, "counts") == ""
    assert why_not_settled({"a": [COUNTS]}, "other") == "no member knows a keyspace other"


def test_a_reason_to_wait_is_shown_when_it_changes_and_once_a_second_at_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = WaitProgress()

    for reason, waited_s in [("a", 0.1), ("a", 1.5), ("b", 2.0), ("c", 2.5), ("d", 3.1)]:
        progress.tell(reason, waited_s)

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "".join(f"ringpopctl: waiting: {reason}\n" for reason in "abd")


def test_all_members_have_to_know_the_same() -> None:
    renewed = {**COUNTS, "generation": 2}
    rebalanced = {**COUNTS, "assignment_version": 2}

    assert "not know all" in why_not_settled({"a": [renewed], "b": [COUNTS]})
    assert "not know all" in why_not_settled({"a": [rebalanced], "b": [COUNTS]})
    assert why_not_settled({"a": [COUNTS], "b": []}) == (
        "b does not know all keyspaces and assignments yet"
    )
