"""Runs schedules until one breaks, or so many have not; prints what broke as one JSON object.

A program of its own, so that each broken variant is in a process with a copy of the source. Its
arguments are a checker, and the name of a directed schedule, or else the function that runs a
schedule, the first seed and a count.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_sim.state.journal.sweep import ScheduleOutcome


def outcomes(checker: str, *where: str) -> Iterator[ScheduleOutcome]:
    """Run the schedules that the arguments ask for."""
    if len(where) == 1:
        directed = import_module(f"tests.sim.{checker}.directed")
        yield directed.run_directed(getattr(directed, where[0]))
        return
    run, first, count = where[0], int(where[1]), int(where[2])
    schedule = import_module(f"ringpop_sim.{checker}.schedule")
    yield from map(getattr(schedule, run), range(first, first + count))


def main(*arguments: str) -> None:
    """Hunt."""
    for outcome in outcomes(*arguments):
        if outcome.broken is not None:
            invariant, how = outcome.broken
            print(json.dumps({"seed": outcome.seed, "invariant": invariant, "how": how}))
            return
    print("{}")


if __name__ == "__main__":
    main(*sys.argv[1:])
