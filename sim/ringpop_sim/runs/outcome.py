"""The result of one plan and seed, as a value that travels between processes and into files."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringpop_sim.plans.planfile import plan_text
from ringpop_sim.runs.run import run_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.checks import Broken, Check
    from ringpop_sim.plans.plan import Plan


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run, also of one that an exception ended.

    Attributes:
        digests: as `ringpop_sim.world.trace.Trace.digests`; the last is that of the end.
        converged: whether all nodes agreed at the end of the plan.
    """

    seed: int
    digests: tuple[str, ...]
    events: int
    virtual_s: float
    wall_s: float
    converged: bool
    broken: tuple[Broken, ...]
    kinds: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The final digest; runs that take the same course have the same one."""
        return self.digests[-1]

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that broke, each once, sorted by name."""
        return tuple(sorted({broken.invariant for broken in self.broken}))


def outcome_of(plan: Plan, seed: int, checks: Sequence[type[Check]] | None = None) -> RunOutcome:
    """Run *plan* with *seed*, and return its outcome even if an exception ends the run."""
    began = time.perf_counter()
    run = run_of(plan, seed, checks)
    world, result = run.world, run.finish()
    return RunOutcome(
        seed,
        (*world.trace.digests, world.trace.digest),
        world.event_count,
        world.now / 1e6,
        time.perf_counter() - began,
        result.converged_s is not None and not run.crashed,
        tuple(result.broken),
        tuple(sorted({operation.kind for operation in plan.operations})),
    )


def replay_command(plan: Plan, seed: int) -> str:
    """Return one shell command that runs *plan* with *seed* anywhere, because it has the plan."""
    return f"bin/ringpop-sim run - --seed {seed} <<'END'\n{plan_text(plan)}END"


def file_command(verb: str, path: str, seed: int | None = None) -> str:
    """Return the command that does *verb* with the plan or case at *path*."""
    seed_option = "" if seed is None else f" --seed {seed}"
    return f"bin/ringpop-sim {verb} {shlex.quote(path)}{seed_option}"
