"""`ringpopctl why`: what happened to a member, and what is seen of it now."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import trio

from ringpop_py.edge.cli.commands import time_of
from ringpop_py.edge.diagnosis.history import seen_now, story
from tests.edge.ctl.served import ctl, nodes

SINCE = 1_000.0
MACHINES = {
    "accepted": "its system accepts connections, and nobody answers: it is paused, hangs or swaps",
    "refused": "its system refuses connections: no process listens",
    "silent": "nothing answers: the machine is off, or the network is cut",
}


def ping(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    row = {"name": "c", "at_node": "a", "at": 1_060.0, "answered_at": 1_059.0, "failed_at": 0.0}
    return {**row, "failure": "", "round_trip_s": 0.0012, "words": "", "tcp": "", **more}


@pytest.mark.parametrize("tcp", MACHINES)
def test_what_the_machine_of_a_lost_member_does_says_what_has_happened(tcp: str) -> None:
    row = ping(failing_since=SINCE, failure="timeout", tcp=tcp)

    assert seen_now(row) == (f"pings have failed since {time_of(SINCE)} (timeout); {MACHINES[tcp]}")


def test_without_its_machine_the_words_of_the_error_are_shown() -> None:
    failing = {"failing_since": SINCE, "failure": "failed", "words": "no route to host"}
    untrusted = {**failing, "failure": "untrusted", "words": "expired", "tcp": "accepted"}

    assert seen_now(ping(**failing)).endswith("(failed); no route to host")
    assert seen_now(ping(**untrusted)).endswith("(untrusted): expired")


def test_a_member_that_answers_is_told_with_its_round_trip_and_what_was_lost() -> None:
    assert seen_now(ping()) == "it answered a ping 1.0 s ago, within 1.2 ms"
    assert seen_now(ping(last_10_s=(7, 1, 2))) == (
        "it answered a ping 1.0 s ago, within 1.2 ms; "
        "of 10 pings in 10 s, 1 came late and 2 were lost"
    )


def test_what_is_seen_now_stands_below_the_status() -> None:
    member = {"address": "h:1", "status": "faulty", "incarnation": 1}
    row = ping(failing_since=SINCE, failure="timeout", tcp="refused")
    gathered = {"name": "c", "asked": "a", "member": member, "records": [], "silent": {}}

    assert story({**gathered, "now": [row]}).splitlines()[:3] == [
        "c at h:1 is faulty (incarnation 1), says a",
        f"now: a: {seen_now(row)}",
        "",
    ]


async def test_why_asks_the_node_and_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    async with nodes("a", "b", "c") as (a, b, c):
        for node in (a, b):
            with trio.fail_after(20):
                while c.address not in node.signals.reach.peers:
                    await node.driver.perform(node.node.tick)
                    await trio.sleep(0.01)
        text = await ctl(a, capsys, "why", "c")
        value = await ctl(a, capsys, "--format", "json", "why", "c")

    line = r"^now: [ab]: it answered a ping [0-9.]+ s ago, within [0-9.]+ ms$"
    assert len(re.findall(line, text.out, re.MULTILINE)) == 2
    rows = json.loads(value.out)["now"]
    assert {row["at_node"] for row in rows} == {"a", "b"}
    assert {row["name"] for row in rows} == {"c"}
    assert all(row["answered"] > 0 for row in rows)
