"""``ringpopctl top`` and ``stats``: rates and latencies from two looks, and figures for people."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from ringpop_py.base.errors import BodyError
from ringpop_py.base.metering import BOUNDS_S, Operations
from ringpop_py.edge.admin import accounts
from ringpop_py.edge.ctl import ringpopctl
from ringpop_py.edge.diagnosis import look
from ringpop_py.edge.diagnosis.look import figure, stats

if TYPE_CHECKING:
    from ringpop_py.client.sync.client import Client
    from ringpop_py.edge.cli.commands import Output


def operation(kind: str, done: int, *, failed: int = 0, timed: dict[int, int]) -> dict[str, Any]:
    """One kind, of which as many took as long as each of these buckets."""
    counts = [timed.get(place, 0) for place in range(len(BOUNDS_S) + 1)]
    found = {"kind": kind, "done": done, "refused": 0, "failed": failed}
    return {**found, "counts": counts, "total_s": 0.0}


def said(at: float, *operations: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": {"gossip": {"pings_sent": 10 * at, "pings_received": 0}},
        "checkup": {"at": at, "cpu_s": at / 2, "memory_bytes": 5e6, "health_score": 1},
        "work": {"operations": list(operations)},
    }


class Cluster:
    """A client of a cluster whose members say what they are told, look by look."""

    def __init__(self, *looks: dict[str, Any]) -> None:
        self._looks = list(looks)

    def admin(self, path: str, *_: object, **__: object) -> dict[str, Any]:
        if path == "/health":
            return {}
        found = self._looks.pop(0)
        members = [{"name": name, "status": "alive"} for name in found]
        silent = {name: "too slow" for name, each in found.items() if each is None}
        heard = {name: each for name, each in found.items() if each is not None}
        return {"members": members, "said": heard, "silent": silent, "cut": []}


def top(cluster: Cluster, by: str | None, monkeypatch: pytest.MonkeyPatch) -> Output:
    monkeypatch.setattr(look, "FIRST_S", 0)
    return look.Top()(cast("Client", cluster), argparse.Namespace(by=by, sort=None))


def rows(output: Output) -> list[dict[str, Any]]:
    return cast("dict[str, list[dict[str, Any]]]", output.value)["members"]


def two_looks() -> Cluster:
    reads = operation("read", 100, timed={0: 100})
    later = operation("read", 300, failed=10, timed={0: 298, 3: 2})
    return Cluster(
        {"a": said(100, reads), "b": None, "c": said(100)},
        {"a": said(102, later, operation("job", 50, timed={})), "b": None, "c": said(102)},
    )


def test_a_member_has_the_sum_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    output = top(two_looks(), None, monkeypatch)

    a, b, c = rows(output)
    assert (a["requests"], a["failed"], a["refused"]) == (130.0, 5.0, 0.0)
    assert a["p99_ms"] == pytest.approx(0.1)
    assert (a["cpu"], a["memory_mb"], a["pings"], a["slow"]) == (50.0, 5.0, 10.0, 1)
    assert (b["status"], b["requests"]) == ("alive, silent", None)
    assert (c["requests"], c["failed"], c["p99_ms"]) == (0.0, 0.0, None)
    assert output.text.splitlines()[0].split()[:2] == ["MEMBER", "STATUS"]
    assert "130.0" in output.text


def test_by_kind_each_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    output = top(two_looks(), "kind", monkeypatch)

    reads, jobs = rows(output)
    assert (reads["name"], reads["kind"], reads["requests"], reads["failed"]) == (
        "a",
        "read",
        105.0,
        5.0,
    )
    assert (jobs["kind"], jobs["requests"], jobs["p99_ms"]) == ("job", 25.0, None)


def test_a_member_that_was_started_again_has_no_rates_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [
        {"a": said(at, operation("read", done, timed={0: done}))} for at, done in ((1, 9), (2, 3))
    ]
    [row] = rows(top(Cluster(*looks), None, monkeypatch))
    assert (row["requests"], row["p99_ms"]) == (0.0, None)


def test_a_member_of_an_older_version_counts_no_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = said(1)
    del older["work"]["operations"]
    [row] = rows(top(Cluster({"a": older}, {"a": {**older}}), None, monkeypatch))
    assert (row["requests"], row["memory_mb"]) == (None, 5.0)


def test_what_a_member_says_of_its_operations_is_checked() -> None:
    sound = {"puts": 0, "puts_s": 0.0, "jobs": [], "shuffles": []}
    right = operation("read", 1, timed={0: 1})
    accounts.checked("/admin/work", {**sound, "operations": [right]})
    accounts.checked("/admin/work", sound)  # of an older version
    for wrong in ({"done": -1}, {"counts": [1]}, {"kind": None}, {"total_s": -1.0}):
        with pytest.raises(BodyError):
            accounts.checked("/admin/work", {**sound, "operations": [{**right, **wrong}]})
    assert len(Operations().read.seconds.counts) == len(right["counts"])


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("uptime_s", 42.582403898239136, ("uptime", "42.6 s")),
        ("uptime_s", 183_412.7, ("uptime", "183,000 s")),
        ("uptime_s", 0.00123456, ("uptime", "0.00123 s")),
        ("memory_mb", 50.649, ("memory", "50.6 MB")),
        ("keys", ["e36e90ef", "00aa11bb"], ("keys", "e36e90ef, 00aa11bb")),
        ("keys", [], ("keys", "-")),
        ("store", None, ("store", "-")),
        ("ready", True, ("ready", "yes")),
        ("checksum", 17338837530455028055, ("checksum", "17338837530455028055")),
        ("gossip.pings_sent", 1234567, ("gossip.pings_sent", "1234567")),
        ("proxy.attempts_failed", {"timeout": 2, "refused": 1}, (..., "timeout 2, refused 1")),
        ("proxy.attempts_failed", {}, (..., "-")),
    ],
)
def test_a_figure_has_its_unit_and_three_digits(
    name: str, value: object, shown: tuple[object, str]
) -> None:
    assert figure(name, value) == ((name, shown[1]) if shown[0] is ... else shown)


class FakeNode:
    def admin(self, endpoint: str) -> dict[str, Any]:
        if endpoint == "/admin/node":
            return {"uptime_s": 42.582403898239136, "gossip": {"pings_sent": 7}, "keys": ["e36e"]}
        return {"process": {"memory": {"rss": 50_778_112}}}


def test_stats_are_round_for_people_and_raw_for_programs() -> None:
    node: Any = FakeNode()

    output = stats(node, argparse.Namespace())

    assert [line.split() for line in output.text.splitlines()] == [
        ["WHAT", "VALUE"],
        ["uptime", "42.6", "s"],
        ["gossip.pings_sent", "7"],
        ["keys", "e36e"],
        ["memory", "50.8", "MB"],
    ]
    value: Any = output.value
    assert (value["uptime_s"], value["keys"]) == (42.582403898239136, ["e36e"])


def test_top_stops_after_its_rounds_with_the_busiest_members_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = 0

    def members_said(_client: object, *_sections: str) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        members = [{"name": name, "status": "alive"} for name in ("away", "idle", "busy")]
        reads = operation("read", 10 * asked, timed={})
        answers = {"idle": said(0.0), "busy": said(float(asked), reads)}
        return {"members": members, "said": answers, "silent": {"away": "it hangs"}}

    monkeypatch.setattr(look, "members_said", members_said)
    monkeypatch.setattr(look, "FIRST_S", 0.0)
    monkeypatch.setattr(ringpopctl, "WATCH_S", 0.001)

    flags = ["--format", "json", "top", "-n", "3", "--sort", "cpu"]
    assert ringpopctl.main(flags) == 0

    rounds = [json.loads(line)["members"] for line in capsys.readouterr().out.splitlines()]
    assert asked == 1 + 3
    assert [[row["name"] for row in rows] for rows in rounds] == [["busy", "away", "idle"]] * 3
    assert rounds[0][0]["cpu"] == 50.0
