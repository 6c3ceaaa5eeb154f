"""The same seed takes the same course in every process; where it does not, the place is found."""

from __future__ import annotations

import pytest

from ringpop_sim.cli import main
from ringpop_sim.runs.determinism import _equal_count, divergences


@pytest.mark.timeout(600)
def test_the_hashing_of_strings_changes_no_course(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["determinism", "--seeds", "10"]) == 0

    assert "10 plans took the same course" in capsys.readouterr().out


@pytest.mark.timeout(240)
def test_a_course_that_depends_on_the_hashing_of_strings_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil = (
        "import sys; from ringpop_sim.world.world import World; "
        "start = World.start;"
        "World.start = lambda self, number, machine, name=None: start(self, number, machine, "
        "name or min({f'{number}a', f'{number}b'}, key=hash));"
        "from ringpop_sim.runs.determinism import child; child(sys.argv[1:])"
    )
    monkeypatch.setattr("ringpop_sim.runs.determinism._CHILD", spoil)

    assert main(["determinism", "--seeds", "3", "--nodes", "4"]) == 3

    said = capsys.readouterr().err
    assert "seed 0: PYTHONHASHSEED 0 and" in said


def test_courses_are_compared_up_to_the_first_difference() -> None:
    assert _equal_count(["a", "b", "c"], ["a", "b", "d"]) == 2


def test_one_seed_alone_can_be_checked() -> None:
    assert divergences(4711, 1) == []
