"""Processes for shuffles run beside whole daemons, die with their rows, and begin again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringpop_sim.runs.run import run
from ringpop_sim.scenarios import scenario
from ringpop_sim.whole.run import WholeRun

if TYPE_CHECKING:
    from ringpop_sim.whole.shuffles.kept import ShufflesKept

DESCRIPTORS = Path("/proc/self/fd")
PLAN = scenario("shuffles-killed")


def looked_at(kept: ShufflesKept) -> tuple[list[int], list[bool], dict[str, int]]:
    """Return the starts beside each node, whether no copy was lost, and what was read."""
    starts = [daemon.ringpop.shuffles.starts for daemon in kept.cluster.running]  # type: ignore[attr-defined]
    tallies = {name: truth.tally for name, truth in kept.truths.items()}
    answers = {name: tally["answers"] for name, tally in tallies.items()}
    return starts, [truth.is_single for truth in kept.truths.values()], answers


def test_a_process_that_is_killed_loses_its_rows_and_the_shuffle_loses_none() -> None:
    whole = WholeRun(PLAN, 1)
    kept = whole.shuffles
    assert kept is not None
    whole.advance(PLAN.quiet_at_us + 15_000_000)
    starts, are_single, answers = looked_at(kept)
    folder = kept.shufflers.folder
    assert {path.name for path in folder.iterdir()} == {"n0", "n1", "n2"}
    descriptors = len(list(DESCRIPTORS.iterdir()))
    result = whole.finish()

    assert result.broken == []
    assert sorted(starts) == [1, 1, 2]  # the third began again with its node
    assert are_single == [True, True]
    assert min(answers.values()) > 4
    assert not folder.exists()
    assert len(list(DESCRIPTORS.iterdir())) < descriptors


def test_a_run_with_shuffles_takes_one_course() -> None:
    assert run(PLAN, 1).digest == run(PLAN, 1).digest
