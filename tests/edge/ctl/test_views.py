"""`ctl.views`: when partitions are where they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.edge.ctl.views import WaitProgress, why_not_settled

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
