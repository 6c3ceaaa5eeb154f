"""Runs schedules until one breaks, or so many have not; prints what broke as one JSON object.

A program of its own, so that each broken variant is in a process with a copy of the source.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main(checker: str, first: int, count: int) -> None:
    """Hunt in *count* seeds of *checker* from *first* on."""
    run_schedule = import_module(f"ringpop_sim.{checker}.schedule").run_schedule
    for seed in range(first, first + count):
        broken = run_schedule(seed).broken
        if broken is not None:
            print(json.dumps({"seed": seed, "invariant": broken.invariant, "how": broken.detail}))
            return
    print("{}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
