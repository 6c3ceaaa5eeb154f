"""`ctl.look`: figures for people."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from ringpop_py.edge.ctl import look, ringpopctl
from ringpop_py.edge.ctl.look import Top, figure, stats


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


def said(cpu_s: float, at: float, requests: int) -> dict[str, Any]:
    proxy = {"handled_here": requests, "served": 0, "proxied": 0, "failures": 0}
    checkup = {"at": at, "cpu_s": cpu_s, "memory_bytes": 1_000_000, "health_score": 0}
    return {
        "node": {"proxy": proxy, "gossip": {"pings_sent": 0, "pings_received": 0}},
        "checkup": checkup,
    }


def test_top_stops_after_its_rounds_with_the_busiest_members_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = 0

    def members_said(_client: object, *_sections: str) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        members = [{"name": name, "status": "alive"} for name in ("away", "idle", "busy")]
        busy = said(asked * 0.5, asked, asked * 10)
        answers = {"idle": said(0.0, asked, 0), "busy": busy}
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
    assert Top()._before == {}
