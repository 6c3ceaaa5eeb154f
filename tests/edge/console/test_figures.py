"""Figures of members: differences of what they have counted, whom they reach, what they own."""

from __future__ import annotations

from typing import Any

from ringpop_py.base.metering import BOUNDS_S
from ringpop_py.edge.console.figures import (
    FIGURES,
    Figures,
    Tallied,
    cells_of,
    lost_in,
    owned,
    placed,
)
from ringpop_py.edge.console.matrix import FAILS, WELL, paths_of
from ringpop_py.edge.console.ringmap import Owned, ownership_finding
from ringpop_py.state.placement.table import PartitionStatus, TableRow


def counted(at: float, done: int, **more: Any) -> Tallied:  # noqa: ANN401 - of several kinds
    """What a member says that has read for *done* times, each within 4 to 5 ms."""
    buckets = [0] * (len(BOUNDS_S) + 1)
    buckets[BOUNDS_S.index(0.005)] = done
    read = {"kind": "read", "done": done, "refused": 0, "failed": 0, "counts": buckets}
    write = {**read, "kind": "write", "done": 0, "refused": 3, "failed": 2, "counts": [0] * 17}
    work = {"puts": 0, "puts_s": 0.0, "operations": [read, write], **more}
    return Tallied.of(at, work, {"cpu_s": at / 10, "memory_bytes": 140_400_000})


def test_rates_are_means_of_ten_seconds_and_counts_are_of_all_kinds() -> None:
    figures = Figures()
    assert figures.told() == dict.fromkeys(FIGURES)

    figures.note(counted(100.0, 10))
    first = figures.told()
    assert (first["handled"], first["failed"], first["memory_mb"]) == (13, 2, 140)
    assert [first[name] for name in ("requests_s", "p99_ms", "cpu_percent")] == [None, None, None]

    for second in range(1, 31):
        figures.note(counted(100.0 + second, 10 + 5 * second * (second > 15)))
    last = figures.told()
    assert last["handled"] == 163
    assert last["requests_s"] == 5.0
    assert 2.5 < last["p99_ms"] <= 5.0
    assert last["cpu_percent"] == 10
    assert set(last) == set(FIGURES)


def test_a_process_that_was_started_anew_counts_from_the_beginning() -> None:
    figures = Figures()
    figures.note(counted(1.0, 900, puts=1, puts_s=1.0))
    figures.note(counted(2.0, 1_000, puts=3, puts_s=1.0 + 2 * 0.025))
    assert figures.told()["put_ms"] == 25.0
    figures.note(counted(3.0, 1_001, puts=3, puts_s=1.0 + 2 * 0.025))
    assert figures.told()["put_ms"] == 25.0

    figures.note(counted(4.0, 5))

    told = figures.told()
    assert (told["handled"], told["requests_s"], told["put_ms"]) == (8, None, None)


def test_a_member_of_an_older_version_lacks_figures() -> None:
    figures = Figures()
    for at in (1.0, 2.0):
        figures.note(Tallied.of(at, {"puts": 0, "puts_s": 0.0}, {}))
    assert figures.told() == dict.fromkeys(FIGURES)
    figures.note(Tallied.of(3.0, {}, {}))
    assert figures.told() == dict.fromkeys(FIGURES)


def ping(name: str, **more: object) -> dict[str, Any]:
    usual = {"round_trip_s": 0.002_04, "answered_at": 90.0, "failed_at": 0.0, "failure": "timeout"}
    return {"name": name, **usual, **more}


def test_pings_that_have_failed_count_until_one_is_answered_but_for_a_single_one() -> None:
    cells = cells_of(
        {
            "at": 100.0,
            "pings": [
                ping("b", last_10_s=(7, 2, 1), tcp="accepted"),
                ping("c", failed_at=91.0, tcp="silent"),
                ping("d", answered_at=0.0, round_trip_s=None),
                ping("e", last_10_s=(4, 0, 1)),
                ping("f", failed_at=99.0, failing_since=99.0, last_10_s=(0, 0, 1)),
                ping("g", failed_at=99.0, failing_since=98.0, last_10_s=(0, 0, 2)),
            ],
        }
    )

    well = {"ms": 2.0, "lost": None, "failure": "", "tcp": ""}
    assert cells == {
        "b": {**well, "lost": 0.3, "tcp": "accepted"},
        "c": {**well, "failure": "timeout", "tcp": "silent"},
        "d": {**well, "ms": None},
        "e": {**well, "lost": 0.0},
        "f": {**well, "lost": 0.0},
        "g": {**well, "lost": 1.0, "failure": "timeout"},
    }
    [row, *_] = paths_of("abcde", {"a": cells}, (), {}).rows
    assert (row[2], row[4]) == (FAILS, WELL)


def test_who_is_lost_is_faulty_or_gone_by_what_the_judge_found() -> None:
    members = [{"name": name, "status": "alive"} for name in "abc"]
    members.append({"name": "d", "status": "faulty"})
    problems = [
        {"cause": "paused", "members": ("b",)},
        {"cause": "path", "members": ("a", "c")},
        {"cause": "members", "members": ()},
    ]
    assert lost_in(members, problems) == {"b", "d"}


def test_places_are_in_natural_order_and_partitions_name_them() -> None:
    statuses = {"n10": "alive", "n2": "faulty", "n1": "suspect", "n3": "leave", "n4": "tombstone"}
    rows = [{"name": name, "status": status} for name, status in statuses.items()]
    places = [row["name"] for row in placed(rows)]
    assert places == ["n1", "n2", "n10"]

    online, away = PartitionStatus.ONLINE, PartitionStatus.OFFLINE
    table = [
        TableRow(0, "n1", "n1", status=online),
        TableRow(1, "n10", "n1", status=online),
        TableRow(2, "n10", "n2", status=online),
        TableRow(3, "n3", "n3", status=online),
        TableRow(4, "n10", "n10", status=away),
        TableRow(5),
        TableRow(6, "n10", "n1", status=PartitionStatus.MIGRATING),
    ]
    carts = Owned(**owned("carts", table, places, {"n1", "n10", "n3"}))
    assert tuple(carts) == ("carts", [0, 0, -1, -1, -1, -1, -1], "smusuuu")
    text = "4 of 7 partitions unserved; 1 on their way"
    assert ownership_finding([carts]) == ("crit", text)
