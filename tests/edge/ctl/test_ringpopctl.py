"""`cli.ringpopctl`: what nodes answer, as people read it (the commands run in tests/e2e)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl.ringpopctl import CHECK_USAGE, damping_text, main

STEADY: dict[str, Any] = {
    "name": "a",
    "status": "alive",
    "score": 0,
    "flapper": False,
    "damped": False,
    "verdict": 0,
    "in_ring": True,
    "reuse_in_s": None,
}
FLAPPER = {**STEADY, "name": "b", "score": 5400, "flapper": True}
DAMPED = {
    **STEADY,
    "name": "c",
    "score": 5000,
    "damped": True,
    "verdict": 3,
    "in_ring": False,
    "reuse_in_s": 299.6,
}
ANSWER: dict[str, Any] = {
    "source": "x",
    "damping": True,
    "suppress": 5000,
    "reuse": 2500,
    "damped_max": 1,
    "members": [STEADY, FLAPPER, DAMPED],
}


def test_the_table_tells_flapping_members_from_damped_ones_and_shows_for_how_long() -> None:
    assert damping_text(ANSWER).splitlines() == [
        "NAME  SCORE  STATE    IN RING  VERDICTS  BACK IN",
        "a         0           yes             0",
        "b      5400  flapper  yes             0",
        "c      5000  damped   no              3  300 s",
        "damped from 5000 if others agree, back at 2500; at most 1 left out now",
    ]


def test_a_node_that_does_not_damp_says_so() -> None:
    assert "damping is off" in damping_text({**ANSWER, "damping": False})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lookup", "k", "-n", "x"), "argument -n: a whole number, 1 or more, not 'x'"),
        (("lookup", "k", "-n", "0"), "argument -n: a whole number, 1 or more, not '0'"),
        (
            ("wait", "--for", "converged", "--timeout", "x"),
            "argument --timeout: a number of seconds, 0 or more, not 'x'",
        ),
        (
            ("checkpoint", "restore", "k", "epoch-x"),
            "argument CHECKPOINT: 'epoch-x' is neither epoch-N nor latest",
        ),
    ],
)
def test_a_wrong_number_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(arguments) == ExitCode.USAGE

    assert capsys.readouterr().err.splitlines()[-1].endswith(said)


@pytest.mark.parametrize("flags", [("--format", "json"), ("--format=json",)])
def test_wrong_usage_is_json_where_json_was_asked_for(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert main((*flags, "membrs")) == ExitCode.USAGE

    said = json.loads(capsys.readouterr().err)
    assert said["error"].endswith("did you mean members?")
    assert (said["code"], said["exit_code"]) == ("usage", ExitCode.USAGE)


@pytest.mark.parametrize(
    "arguments", [("check", "--members", "x"), ("check", "--x"), ("check", "--peer", "x:y")]
)
def test_a_check_that_is_not_set_up_is_no_outage(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert main(arguments) == CHECK_USAGE

    assert "ringpopctl" in capsys.readouterr().err
