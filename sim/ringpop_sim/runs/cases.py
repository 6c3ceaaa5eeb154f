"""Cases: a plan, a seed and their result in one file, to be replayed later.

A case is a plan as TOML with an additional table ``[case]``, so it can be run and changed like any
other plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.planfile import CASE, plan_of, plan_text, read_text, table_of

if TYPE_CHECKING:
    from ringpop_sim.plans.plan import Plan
    from ringpop_sim.runs.run import Result


@dataclass(frozen=True, slots=True)
class Case:
    """The expected result of *plan* and *seed*: the invariants that break, and the digest."""

    plan: Plan
    seed: int
    digest: str
    broken: tuple[str, ...] = ()


def case_of(plan: Plan, outcome: Result) -> Case:
    """Return the case of *plan* with the result *outcome*."""
    return Case(plan, outcome.seed, outcome.digest, outcome.invariants)


def case_text(case: Case) -> str:
    """Return *case* as TOML."""
    broken = ", ".join(f'"{name}"' for name in case.broken)
    table = f'[{CASE}]\nseed = {case.seed}\ndigest = "{case.digest}"\nbroken = [{broken}]\n'
    return f"{plan_text(case.plan)}\n{table}"


def read_case(path: str | Path) -> Case:
    """Read the case in the file at *path*. Raises PlanError."""
    table = table_of(read_text(path), str(path))
    found = table.get(CASE)
    if not isinstance(found, dict) or type(found.get("seed")) is not int:
        raise PlanError(f"{path}: this is not a case: it has no table [{CASE}] with a seed")
    digest, broken = found.get("digest", ""), found.get("broken", [])
    if not isinstance(digest, str) or not isinstance(broken, list):
        raise PlanError(f"{path}: {CASE}: digest must be text, and broken a list of invariants")
    names = tuple(sorted({str(name) for name in broken}))
    return Case(plan_of(table, str(path)), found["seed"], digest, names)


def write_case(case: Case, path: str | Path) -> None:
    """Write *case* to *path*, and replace what is there. Raises PlanError."""
    try:
        Path(path).write_text(case_text(case), "utf-8")
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None
