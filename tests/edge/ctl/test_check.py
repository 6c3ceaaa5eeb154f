"""ringpopctl check: its output, and its exit codes."""

from __future__ import annotations

import argparse
from typing import Any

from ringpop_py.edge.cli.commands import members_said
from ringpop_py.edge.diagnosis.check import _output, check
from ringpop_py.edge.judge.problems import CRITICAL, WARNING, Problem


def test_the_first_line_is_the_worst_and_the_exit_code_says_so() -> None:
    problems = [Problem(CRITICAL, "views", "2 different views"), Problem(WARNING, "disk", "full")]
    output = _output(problems, 3)
    assert output.exit_code == CRITICAL
    assert output.text.splitlines() == [
        "ringpop CRITICAL: 2 different views",
        "CRITICAL  views            2 different views",
        "WARNING   disk             full",
    ]


def test_texts_of_peers_cannot_control_a_terminal_or_make_lines() -> None:
    text = _output([Problem(WARNING, "hosts", "h\x1b[2J\nringpop OK: all is well")], 3).text
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


class FakeNode:
    """A client of a node that asks others: it answers with one member at a time, `wide` never."""

    def __init__(self, said: dict[str, Any], silent: dict[str, str]) -> None:
        self.peer = "fake"
        self.asked: list[Any] = []
        self._said, self._silent = said, silent

    def admin(self, endpoint: str, body: Any = None, **_: object) -> dict[str, Any]:  # noqa: ANN401 - as Client has it
        if endpoint == "/health":
            return {}
        self.asked.append((endpoint, body))
        names = [name for name in self._said if name in body.get("names", self._said)]
        shown = [name for name in names if name != "wide"][:1]
        cut = [name for name in names if name not in shown]
        silent = {} if "names" in body else self._silent
        return {
            "members": [{"name": name} for name in (*self._said, *self._silent)],
            "said": {name: self._said[name] for name in shown},
            "silent": silent | dict.fromkeys(cut, "cut off"),
            "cut": cut,
        }


def test_members_that_an_answer_cuts_off_are_asked_for_again_until_none_comes() -> None:
    node: Any = FakeNode({"a": {"node": 1}, "wide": {}, "b": {"node": 2}}, {"c": "it hangs"})

    value = members_said(node, "node", load=True)

    assert value["said"] == {"a": {"node": 1}, "b": {"node": 2}}
    assert value["silent"] == {"c": "it hangs", "wide": "cut off"}
    assert [body.get("names") for _, body in node.asked] == [None, ["wide", "b"], ["wide"]]
    assert all(body["load"] and body["sections"] == ("node",) for _, body in node.asked)


def test_a_member_that_the_asked_node_does_not_reach_is_named_with_its_reason() -> None:
    row = {"status": "alive", "in_ring": True, "damped": False, "draining": False}
    said = {"checksum": 1, "ready": True, "version": "1", "silent_hosts": {}}
    node: Any = FakeNode({"a": {"node": said}}, {"b": "connection refused"})
    rows = [{"name": name, **row} for name in "ab"]
    answer = node.admin
    node.admin = lambda *asked, **more: {**answer(*asked, **more), "members": rows}

    output = check(node, argparse.Namespace(members=2, clock=5.0))

    assert output.exit_code == CRITICAL
    assert output.text.splitlines()[1] == (
        "CRITICAL  members          b does not answer: connection refused"
    )
