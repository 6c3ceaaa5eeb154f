"""`cli.ringpopctl`: what nodes answer, as people read it (the commands run in tests/e2e)."""

from __future__ import annotations

from typing import Any

from ringpop_py.cli.ringpopctl import damping_text

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


def test_who_flaps_is_told_from_who_is_damped_and_for_how_long() -> None:
    assert damping_text(ANSWER).splitlines() == [
        "NAME  SCORE  STATE    IN RING  VERDICTS  BACK IN",
        "a         0           yes             0",
        "b      5400  flapper  yes             0",
        "c      5000  damped   no              3  300 s",
        "damped from 5000 if others agree, back at 2500; at most 1 left out now",
    ]


def test_a_node_that_does_not_damp_says_so() -> None:
    assert "damping is off" in damping_text({**ANSWER, "damping": False})
