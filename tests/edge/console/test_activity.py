"""What a cluster is busy with: one line for each thing that several members report."""

from __future__ import annotations

from typing import Any

from ringpop_py.edge.console.activity import (
    HANDOVERS_KEPT,
    Handovers,
    jobs_in,
    shuffles_in,
    streams_in,
    under_way,
)
from ringpop_py.state.placement.table import PartitionStatus, TableRow

ONLINE, MIGRATING = PartitionStatus.ONLINE, PartitionStatus.MIGRATING


def table(*owners: str, desired: str = "") -> list[TableRow]:
    return [
        TableRow(number, desired or owner, owner, epoch=1, status=ONLINE)
        for number, owner in enumerate(owners)
    ]


def job(name: str, state: str, files: int = 1, done: int = 0, at: float = 1.0) -> dict[str, Any]:
    return {
        "keyspace": "k",
        "job": name,
        "state": state,
        "files": files,
        "partitions_done": done,
        "partitions_count": 4,
        "rows_count": 0,
        "at": at,
    }


def test_partitions_that_moved_together_are_one_hand_over() -> None:
    handovers = Handovers()
    handovers.note("k", table("a", "a", "b", "b"), 1.0)
    assert handovers.listed() == []  # nobody looked before

    handovers.note("k", table("a", "a", "b", "b"), 2.0)
    handovers.note("k", table("a", "c", "c", "c"), 3.0)

    assert handovers.listed() == [
        {"at": 3.0, "keyspace": "k", "partitions": [2, 3], "from": "b", "to": "c"},
        {"at": 3.0, "keyspace": "k", "partitions": [1], "from": "a", "to": "c"},
    ]


def test_keyspaces_are_told_apart_and_the_last_hand_overs_are_kept() -> None:
    handovers = Handovers()
    for number in range(HANDOVERS_KEPT + 2):
        handovers.note("k", table("ab"[number % 2]), number)
        handovers.note("l", table("c"), number)

    listed = handovers.listed()
    assert len(listed) == HANDOVERS_KEPT
    assert (listed[0]["at"], listed[0]["keyspace"]) == (HANDOVERS_KEPT + 1, "k")


def test_a_keyspace_that_was_made_anew_hands_nothing_over() -> None:
    handovers = Handovers()
    handovers.note("k", table("a", "a"), 1.0)
    handovers.note("k", table("b", "b", "b"), 2.0)

    assert handovers.listed() == []


def test_moving_partitions_are_counted_by_their_owner_and_their_next_one() -> None:
    rows = [*table("a", "a", "b", desired="b"), TableRow(3, "b", "a", epoch=1, status=MIGRATING)]

    assert under_way(rows) == [
        {"from": "a", "to": "b", "status": "migrating", "partitions": 1},
        {"from": "a", "to": "b", "status": "online", "partitions": 2},
    ]


def test_a_job_is_as_far_as_the_member_says_that_knows_most() -> None:
    said = {
        "a": {"jobs": [job("j", "staging", files=3, at=5.0), job("old", "applied", at=0.5)]},
        "b": {"jobs": [job("j", "committed", files=2, done=1)]},
        "c": {"jobs": [job("j", "committed", files=0, done=3), job("j2", "of later versions")]},
    }

    first, second = jobs_in(said)

    assert (first["state"], first["files"], first["partitions_done"]) == ("committed", 5, 3)
    assert first["at"] == 5.0
    assert second["job"] == "old"


def test_a_shuffle_is_as_the_newest_record_has_it() -> None:
    said = {
        "a": {"shuffles": [{"name": "s", "version": 2, "state": "put"}]},
        "b": {"shuffles": [{"name": "s", "version": 5, "state": "get"}]},
        "c": {"shuffles": [{"name": "r", "version": 1, "state": "put"}]},
    }

    assert [(one["name"], one["state"]) for one in shuffles_in(said)] == [
        ("r", "put"),
        ("s", "get"),
    ]


def split(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as they are
    counts = {"held": 1, "records": 10, "refused": 0, "trouble": ""}
    return {"stream": "clicks", "keyspace": "k", "split": name, **counts, **more}


def test_a_stream_is_the_sum_of_its_splits() -> None:
    said = {
        "a": {"streams": [split("1"), split("2", refused=2, trouble="it stops")]},
        "b": {"streams": [split("3"), split("1", stream="other")]},
        "c": {},  # of an older version
    }

    clicks, other = streams_in(said)

    assert clicks == {
        "stream": "clicks",
        "keyspace": "k",
        "splits": 3,
        "readers": 2,
        "held": 3,
        "records": 30,
        "refused": 2,
        "troubles": ["2: it stops"],
    }
    assert (other["stream"], other["splits"]) == ("other", 1)
