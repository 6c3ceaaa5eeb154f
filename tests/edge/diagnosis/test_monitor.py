"""ringpopctl monitor: the log of a node as people read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ringpop_py.base.logs import log
from ringpop_py.edge.diagnosis import monitor
from ringpop_py.edge.diagnosis.monitor import next_page, text_of
from tests.edge.ctl.served import ctl, nodes

if TYPE_CHECKING:
    import pytest

    from ringpop_py.client.sync.client import Client

LINE: dict[str, Any] = {"number": 4, "at": 0.5, "level": "info", "event": "x", "text": "a\x1bb"}


class Answers:
    """A client whose node gives *answers*, one after the other; it keeps what it was asked."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.bodies: list[object] = []

    def admin(self, _endpoint: str, body: object) -> dict[str, Any]:
        self.bodies.append(body)
        return self.answers.pop(0)


def test_a_line_cannot_control_the_terminal_and_a_traceback_stands_below_it() -> None:
    head, *below = text_of({**LINE, "traceback": "Traceback\n  x\x1b\n"}).splitlines()

    assert head.endswith(".500 [info   ] a\\x1bb")
    assert below == ["    Traceback", "      x\\x1b"]


def test_lines_that_are_lost_are_counted_and_a_node_that_was_restarted_is_read_from_its_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = {"last": 90, "forgotten": 7, "lines": [LINE]}
    young = {"last": 3, "forgotten": 0, "lines": []}
    node = Answers(lost, young, lost)

    first = next_page(node, "info", 50)  # type: ignore[arg-type]
    second = next_page(node, "info", 90)  # type: ignore[arg-type]

    assert (first, second) == (lost, lost)
    assert [body["after"] for body in node.bodies] == [50, 90, 0]  # type: ignore[index]
    assert capsys.readouterr().err.splitlines() == [
        "ringpopctl: 7 lines came too fast, and are lost",
        "ringpopctl: the node was restarted",
    ]


async def test_lines_are_followed_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def ask(node: Client, level: str, after: int) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        log.debug("line", number=asked)
        if asked > 2:
            raise KeyboardInterrupt
        return next_page(node, level, after)

    monkeypatch.setattr(monitor, "next_page", ask)
    async with nodes("ant", "bee") as (ant, _):
        done = await ctl(ant, capsys, "monitor", "bee", "--level", "debug", "--format", "json")

    lines = [json.loads(line) for line in done.out.splitlines()]
    texts = [line["text"] for line in lines if line["event"] == "line"]
    assert texts == ["line number=1", "line number=2"]
    assert done.code == 130
