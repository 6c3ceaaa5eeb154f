"""What came of one plan and seed, as a value that travels between processes and into files."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringpop_sim.plans.planfile import plan_text
from ringpop_sim.runs.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.checks import Broken, Check
    from ringpop_sim.plans.plan import Plan


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run's, or that of one that an exception ended.

    Attributes:
        digests: on the way (see `ringpop_sim.world.trace.Trace.digests`), the last one at the end.
        converged: whether the cluster was one again at the end of the plan.
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
        """Equal for equal courses."""
        return self.digests[-1]

    @property
    def invariants(self) -> tuple[str, ...]:
        """Those that broke, each once, in the order of their names."""
        return tuple(sorted({broken.invariant for broken in self.broken}))


def outcome_of(plan: Plan, seed: int, checks: Sequence[type[Check]] | None = None) -> RunOutcome:
    """Run *plan* with *seed*, whatever comes of it."""
    began = time.perf_counter()
    run = Run(plan, seed, checks)
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
    """One command for a shell that runs *plan* with *seed* anywhere: the plan is in it."""
    return f"bin/ringpop-sim run - --seed {seed} <<'END'\n{plan_text(plan)}END"


def file_command(verb: str, path: str, seed: int | None = None) -> str:
    """The command that does *verb* with the plan or case at *path*."""
    seed_option = "" if seed is None else f" --seed {seed}"
    return f"bin/ringpop-sim {verb} {shlex.quote(path)}{seed_option}"
