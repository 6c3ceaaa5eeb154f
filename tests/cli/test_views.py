"""`cli.views`: when partitions are where they should be (the commands run in tests/e2e)."""

from __future__ import annotations

from typing import Any

from ringpop_py.cli.views import why_not_settled

COUNTS: dict[str, Any] = {
    "name": "counts",
    "generation": 1,
    "assignment_version": 0,
    "partitions": 4,
    "settled": 4,
    "waits_for": None,
}


def test_all_is_settled_when_each_member_sees_it_so() -> None:
    assert why_not_settled({"a": [COUNTS], "b": [COUNTS]}) == ""
    assert why_not_settled({"a": [], "b": []}) == ""


def test_one_member_that_sees_a_partition_elsewhere_is_enough() -> None:
    late = {**COUNTS, "settled": 3}

    assert why_not_settled({"a": [COUNTS], "b": [late]}) == (
        "keyspace counts: 3 of 4 partitions are where they should be, as b sees it"
    )


def test_the_reason_of_a_keyspace_that_waits_is_given() -> None:
    waiting = {**COUNTS, "settled": 0, "waits_for": "too few members"}

    assert why_not_settled({"a": [waiting]}).endswith(": too few members")


def test_all_members_have_to_know_the_same() -> None:
    renewed = {**COUNTS, "generation": 2}
    rebalanced = {**COUNTS, "assignment_version": 2}

    assert "not know all" in why_not_settled({"a": [renewed], "b": [COUNTS]})
    assert "not know all" in why_not_settled({"a": [rebalanced], "b": [COUNTS]})
    assert why_not_settled({"a": [COUNTS], "b": []}) == (
        "b does not know all keyspaces and assignments yet"
    )
