"""Runs what is to find a planted bug, one thing after the other, until something breaks.

A program of its own, so that each bug is in a process with a core of its own. The first argument
names the invariants that are wanted: a plan ends as soon as one is broken. Each other argument is a
scenario, a size and a seed (``crash:8:1``, size 0: as it comes), a law (``theory:rotation``), or a
random plan (``plans:4:7``: of four nodes, drawn from 7; ``partitions:4:7``: with partitions,
``durable:4:7`` and ``memory:4:7``: of that mode; ``expiring:5:7``: with keys that expire), the
tests in a file (``unit:tests/…/test_x.py``) of which a rare course of events needs one, or
schedules of dataflows (``dataflows:300:1``: 300 of them, from seed 1 on).
Prints one JSON object: by invariant, where it broke first, and how.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from ringpop_py.state.placement.definition import Mode
from ringpop_sim.flow.exchange.schedule import DATAFLOWS
from ringpop_sim.runs import theory
from ringpop_sim.runs.run import run_of
from ringpop_sim.runs.swarm import Shape
from ringpop_sim.scenarios import scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LAWS: Final[dict[str, Callable[[], list[theory.TheoryRow]]]] = {
    "rotation": lambda: theory.rotation(1, sizes=(5,)),
    "suspicion": lambda: theory.suspicion(1, sizes=(12,)),
}
CHECKERS: Final = {"dataflows": DATAFLOWS}
THEORY: Final = "theory"
LOOK_US: Final = 1_000_000
RANDOM: Final = ("partitions", "plans", "expiring", *get_args(Mode))
UNIT: Final = "unit"
ROOT: Final = Path(__file__).parents[3]
TESTS_FAILED: Final = 1
"""The exit code of pytest, which takes long to import."""


def fails(tests: Path) -> bool:
    """Return whether a test in the file *tests* fails.

    In a process of its own, because a planted bug may break trio's own state, and so pytest.
    """
    # Without the paths of this project, where the product is as it should be.
    program = [sys.executable, "-P", "-m", "pytest", "-qx", "-p", "no:cacheprovider"]
    paths = ["-o", "pythonpath=", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*program, *paths, str(tests)], stdout=sys.stderr, check=False)
    assert done.returncode in (0, TESTS_FAILED), done
    return done.returncode == TESTS_FAILED


def broken_by(hunt: str, wanted: Sequence[str] = ()) -> dict[str, str]:
    """What breaks in *hunt*: an invariant, and the first detail of it.

    A plan ends as soon as one of the *wanted* invariants is broken.
    """
    name, *rest = hunt.split(":")
    if name == THEORY:
        wrong = [row for row in LAWS[rest[0]]() if not row.ok]
        return {THEORY: str(wrong[0].as_json())} if wrong else {}
    if name == UNIT:
        return {UNIT: rest[0]} if fails(ROOT / rest[0]) else {}
    size, seed = map(int, rest)
    if name in CHECKERS:
        outcomes = (CHECKERS[name].run(each) for each in range(seed, seed + size))
        return next(({o.broken.invariant: str(o)} for o in outcomes if o.broken is not None), {})
    if name in RANDOM:
        mode: Any = name if name in get_args(Mode) else None
        shape = Shape(size, 5, name != "plans", mode=mode, expiring=name == "expiring")
        plan = shape.plan(seed)
    else:
        plan = scenario(name, size or None)
    found: dict[str, str] = {}
    run = run_of(plan, seed)
    for at in range(0, plan.quiet_at_us, LOOK_US) if wanted else ():
        run.advance(at)
        if any(broken.invariant in wanted for broken in run.broken):
            break
    else:
        run.finish()
    for broken in run.broken:
        found.setdefault(broken.invariant, f"at {broken.at_us / 1e6:.3f} s: {broken.detail}")
    return found


def main(wanted: str, *hunts: str) -> None:
    """Prints what broke in the first of *hunts* in which anything did, by invariant."""
    for hunt in hunts:
        found = broken_by(hunt, wanted.split())
        if found:
            print(json.dumps({name: f"{hunt} {detail}" for name, detail in found.items()}))
            return
    print("{}")


if __name__ == "__main__":
    main(*sys.argv[1:])
