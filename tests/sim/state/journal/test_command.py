"""``ringpop-sim journal``: one answer on standard output, and an exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ringpop_sim.cli import main

if TYPE_CHECKING:
    import pytest


def test_it_says_in_json_what_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["journal", "--schedules", "5", "--first", "10", "--format", "json"])

    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (said["ok"], said["schedules"], said["failures"]) == (True, 5, [])
    assert said["epochs"] > 20


def test_it_says_in_words_that_nothing_broke(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["journal", "--schedules", "2", "--nodes", "5"])

    assert code == 0
    assert "every invariant held in every schedule" in capsys.readouterr().out


def test_a_trace_shows_the_last_steps_of_a_sound_schedule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["journal", "--schedules", "1", "--trace"])

    assert "PutSlot(" in capsys.readouterr().err


def test_more_nodes_than_there_are_names_for_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["journal", "--nodes", "27"])

    assert code == 2
    assert "at most 26 nodes" in capsys.readouterr().err
