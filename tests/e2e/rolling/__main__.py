"""A rolling restart under callers of all kinds, by hand: ``python -m tests.e2e.rolling``.

With ``--kill`` daemons are killed instead, as a control: then callers must meet errors, or this
could not show any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from tests.e2e.rolling.run import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.rolling.run import Outcome

ERRORS_SHOWN_MAX = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if there were no errors, or, with ``--kill``, if there were."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rolling", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5, metavar="N")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="restarts of each (2)")
    parser.add_argument("--handler-s", type=float, default=1.5, metavar="S", help="(1.5)")
    parser.add_argument("--each", type=int, default=5, metavar="N", help="threads a way in (5)")
    parser.add_argument("--kill", action="store_true", help="kill -9: the control")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="rolling-"))
    restarts = list(range(options.nodes)) * options.rounds
    outcome = trio.run(
        partial(
            run,
            folder,
            nodes=options.nodes,
            restarts=restarts,
            handler_s=options.handler_s,
            each=options.each,
            kill=options.kill,
        )
    )
    _print(outcome)
    print(f"logs: {folder}")
    if outcome.problems:
        return 1
    return int(bool(outcome.errors) is not options.kill)


def _print(outcome: Outcome) -> None:
    print(f"{'way in':24}{'calls':>8}{'moved':>8}{'errors':>8}{'slowest':>10}")
    for way, tally in sorted(outcome.tallies.items()):
        errors = tally.errors.total()
        row = f"{way:24}{tally.calls:8}{tally.moved:8}{errors:8}{tally.slowest_s:8.2f} s"
        print(row)
    print(f"{'all':24}{outcome.calls:8}{'':8}{outcome.errors:8}")
    stops = ", ".join(f"{stop_s:.1f}" for stop_s in outcome.stop_s)
    print(
        f"{len(outcome.stop_s)} restarts in {outcome.duration_s:.0f} s; each ended after {stops} s"
    )
    for way, tally in sorted(outcome.tallies.items()):
        for error, count in tally.errors.most_common(ERRORS_SHOWN_MAX):
            print(f"  {way}: {count} times {error[:300]}")
    for problem in outcome.problems:
        print(f"  PROBLEM: {problem}")


if __name__ == "__main__":
    sys.exit(main())
