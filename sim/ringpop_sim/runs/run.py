"""One run: a plan and a seed in, what came of it out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringpop_sim.checks.all import ALL
from ringpop_sim.checks.crashes import crash
from ringpop_sim.checks.liveness import LOOK_US, agree
from ringpop_sim.runs.expected import Expected
from ringpop_sim.runs.measures import Measures
from ringpop_sim.runs.traffic import Rings, TrafficSource
from ringpop_sim.units import seconds
from ringpop_sim.world.operations import schedule
from ringpop_sim.world.world import FRAME_BYTES, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_sim.checks import Broken, Check
    from ringpop_sim.plans.plan import Plan
    from ringpop_sim.world.watcher import Watcher


@dataclass(slots=True)
class Result:
    """What came of a run.

    Attributes:
        digest: equal for equal courses of events, in any process.
        detected_s: from the first crash until all others that were left alone knew; None if
            nobody crashed for good, or not all came to know.
        converged_s: from the end of the last fault until all saw the same; None if they did not.
        false_faulty: how often a member that had been left alone was declared faulty.
        wall_s: how long the run took.
    """

    scenario: str
    seed: int
    nodes: int
    digest: str
    virtual_s: float
    events: int
    wall_s: float
    broken: list[Broken] = field(default_factory=list)
    detected_s: float | None = None
    converged_s: float | None = None
    false_faulty: int = 0
    messages_per_node_s: float = 0.0
    bytes_per_node_s: float = 0.0
    traffic: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.broken

    def as_json(self) -> dict[str, Any]:
        """One object for programs."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "nodes": self.nodes,
            "ok": self.ok,
            "digest": self.digest,
            "virtual_s": self.virtual_s,
            "events": self.events,
            "events_per_s": round(self.events / self.wall_s) if self.wall_s else 0,
            "broken": [
                {"invariant": b.invariant, "time": seconds(b.at_us), "detail": b.detail}
                for b in self.broken
            ],
            "detected_s": self.detected_s,
            "converged_s": self.converged_s,
            "false_faulty": self.false_faulty,
            "messages_per_node_s": round(self.messages_per_node_s, 2),
            "bytes_per_node_s": round(self.bytes_per_node_s, 1),
            "traffic": self.traffic,
        }


class Run:
    """A run that can be looked at while it is under way: `advance`, look, `finish`.

    What *watch* makes is told of all that happens, before the oracles are.
    """

    def __init__(
        self,
        plan: Plan,
        seed: int,
        checks: Sequence[type[Check]] | None = None,
        *,
        keep_trace: bool = False,
        watch: Callable[[World], Watcher] | None = None,
    ) -> None:
        self._began = time.perf_counter()
        kinds = ALL if checks is None else checks
        self.world = world = World(
            plan,
            seed,
            lambda w: [*([watch(w)] if watch else ()), *self._checks(w, kinds)],
            keep_trace=keep_trace,
        )
        self._crash: Broken | None = None
        schedule(world)
        self.traffic = TrafficSource(world, self.rings) if plan.traffic is not None else None

    def _checks(self, world: World, kinds: Sequence[type[Check]]) -> list[Check]:
        self.measures = Measures(world)
        self.rings = Rings(world)
        first: list[Check] = [self.measures]
        if world.plan.traffic is not None:
            first.append(self.rings)  # else nobody asks for a ring
        self._oracles = [kind(world) for kind in kinds]
        if world.plan.expect:
            self._oracles.append(Expected(world, self.measures))
        return first + self._oracles

    @property
    def broken(self) -> list[Broken]:
        """What has broken so far, in the order of time."""
        found = [] if self._crash is None else [self._crash]
        found += [broken for check in self._oracles for broken in check.broken]
        return sorted(found, key=lambda broken: broken.at_us)

    @property
    def crashed(self) -> bool:
        """Whether an exception has ended the run, which then goes no further."""
        return self._crash is not None

    def advance(self, until_us: int) -> None:
        """Let the time go on to that instant. An exception is broken, as an invariant is."""
        self._try(lambda: self.world.run(until_us))

    def _try(self, act: Callable[[], None]) -> None:
        if self._crash is not None:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - to be found and told of is what it is run for
            self._crash = crash(error, self.world.now)

    def _go_to_the_end(self) -> None:
        """To that of the plan, or to the calm before it."""
        world, plan = self.world, self.world.plan
        now = max(world.now, min(plan.quiet_at_us, plan.until_us))
        agreed = False
        while plan.calm_us and now < plan.until_us and not self.crashed:
            self.advance(now)
            agreed_before, agreed = agreed, agree(world.running, wholly=True)
            if agreed_before and agreed:
                return
            now += plan.calm_us if agreed else LOOK_US
        self.advance(plan.until_us)

    def finish(self) -> Result:
        """Run to the plan's end, and say what came of it."""
        world = self.world
        plan = world.plan
        self._go_to_the_end()
        for check in world.checks:
            self._try(check.finish)
        measures = self.measures
        mean_bytes = world.body_bytes / world.encoded_count if world.encoded_count else 0.0
        node_s = measures.node_s or 1.0
        return Result(
            plan.name,
            world.seed,
            plan.nodes,
            world.trace.digest,
            seconds(world.now),
            world.event_count,
            time.perf_counter() - self._began,
            self.broken,
            measures.detected_s,
            measures.converged_s,
            measures.false_faulty,
            world.message_count / node_s,
            world.message_count * (mean_bytes + FRAME_BYTES) / node_s if mean_bytes else 0.0,
            dict(self.traffic.counts) if self.traffic is not None else {},
        )


def run(plan: Plan, seed: int, checks: Sequence[type[Check]] | None = None) -> Result:
    """Run *plan* with *seed* to its end, under all oracles or just *checks*."""
    return Run(plan, seed, checks).finish()
