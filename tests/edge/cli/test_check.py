"""ringpopctl check: its output, and its exit codes."""

from __future__ import annotations

from ringpop_py.edge.cli.check import _output
from ringpop_py.edge.console.problems import CRITICAL, WARNING, Problem


def test_the_first_line_is_the_worst_and_the_exit_code_says_so() -> None:
    problems = [Problem(CRITICAL, "views", "2 different views"), Problem(WARNING, "disk", "full")]
    output = _output(problems, 3)
    assert output.exit_code == CRITICAL
    assert output.text.splitlines() == [
        "ringpop CRITICAL: 2 different views",
        "CRITICAL  views       2 different views",
        "WARNING   disk        full",
    ]


def test_what_others_have_said_cannot_control_a_terminal_or_make_lines() -> None:
    text = _output([Problem(WARNING, "hosts", "h\x1b[2J\nringpop OK: all is well")], 3).text
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2
