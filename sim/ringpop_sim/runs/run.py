"""One run: from a plan and a seed to a result."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ringpop_sim.checks import Broken
from ringpop_sim.checks.damped import DampingIsFair
from ringpop_sim.checks.forgotten import EvictedForgotten
from ringpop_sim.checks.lies import LiarsRemoveNobody
from ringpop_sim.checks.liveness import LOOK_US, Converges, CrashesFound, HealsGently, agree
from ringpop_sim.checks.load import MessagesBounded, RestIsQuiet
from ringpop_sim.checks.names import NamesKept
from ringpop_sim.checks.placement import EqualListsEqualRings
from ringpop_sim.checks.probes import NobodySuspected, PausesEndWell, ProbesFail
from ringpop_sim.checks.rows import IncarnationsIssued, Refutations, RowsRise, StatusesLast
from ringpop_sim.errors import PlanError
from ringpop_sim.runs.expected import Expected
from ringpop_sim.runs.measures import Measures
from ringpop_sim.runs.rest import left_at_rest
from ringpop_sim.units import seconds
from ringpop_sim.world.operations import schedule
from ringpop_sim.world.world import FRAME_BYTES, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_sim.checks import Check
    from ringpop_sim.plans.plan import Plan
    from ringpop_sim.world.watcher import Watcher


ALL: Final[tuple[type[Check], ...]] = (
    RowsRise,
    IncarnationsIssued,
    Refutations,
    StatusesLast,
    NamesKept,
    ProbesFail,
    NobodySuspected,
    PausesEndWell,
    EqualListsEqualRings,
    MessagesBounded,
    RestIsQuiet,
    Converges,
    CrashesFound,
    HealsGently,
    DampingIsFair,
    EvictedForgotten,
    LiarsRemoveNobody,
)
"""All oracles, in the order of their invariants."""
CRASH: Final = "X"
"""The name of the invariant that no node raises, whatever it receives; it needs no oracle."""
CODING: Final = "S14"
REAL_S: Final = time.perf_counter  # also while whole daemons see another clock
WHOLE: Final = "ringpop_sim.whole.run"
"""By name, because it is an extra, and is loaded for the plans that want it."""
PLACES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run, also of one that an exception ended.

    Attributes:
        digests: see `ringpop_sim.world.trace.Trace`; the last one is of all events.
        kinds: of the plan's faults.
        detected_s: from the first crash until all others that were left alone knew; None if no
            process crashed for good, or not all came to know.
        converged_s: from the end of the last fault until all nodes agreed; None if they did not.
        false_faulty: how often a member that had been left alone was declared faulty.
        wall_s: how long the run took in real time.
    """

    scenario: str
    seed: int
    nodes: int = 0
    digests: tuple[str, ...] = ("",)
    virtual_s: float = 0.0
    events: int = 0
    wall_s: float = 0.0
    broken: list[Broken] = field(default_factory=list)
    kinds: tuple[str, ...] = ()
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

    @property
    def digest(self) -> str:
        """Equal for equal courses of events, in any process."""
        return self.digests[-1]

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that broke, each once, sorted by name."""
        return tuple(sorted({broken.invariant for broken in self.broken}))

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object for programs."""
        broken = [
            {"invariant": b.invariant, "time": seconds(b.at_us), "detail": b.detail}
            for b in self.broken
        ]
        return {
            **{name: getattr(self, name) for name in _IN_JSON},
            "events_per_s": round(self.events / self.wall_s) if self.wall_s else 0,
            "broken": broken,
            "messages_per_node_s": round(self.messages_per_node_s, 2),
            "bytes_per_node_s": round(self.bytes_per_node_s, 1),
        }


_IN_JSON: Final = (
    *("scenario", "seed", "nodes", "ok", "digest", "virtual_s", "events"),
    *("detected_s", "converged_s", "false_faulty", "traffic"),
)


class Run:
    """A run that can be examined while it is in progress: `advance`, examine, `finish`.

    The watchers that *watch* makes are called before the oracles.

    Attributes:
        ORACLES: those of membership that judge the run, unless it is given others.
        WORLD: the kind of its world.
    """

    ORACLES: ClassVar[tuple[type[Check], ...]] = ALL
    WORLD: ClassVar[type[World]] = World

    def __init__(
        self,
        plan: Plan,
        seed: int,
        checks: Sequence[type[Check]] | None = None,
        *,
        keep_trace: bool = False,
        watch: Callable[[World], Watcher] | None = None,
    ) -> None:
        self._began = REAL_S()
        kinds = self.ORACLES if checks is None else checks
        self.world = world = self.WORLD(
            plan,
            seed,
            lambda w: [*([watch(w)] if watch else ()), *self._checks(w, kinds)],
            keep_trace=keep_trace,
        )
        self._crash: Broken | None = None
        self._left: list[Broken] = []
        self._rests = checks is None
        schedule(world)

    def _checks(self, world: World, kinds: Sequence[type[Check]]) -> list[Check]:
        self.measures = Measures(world)
        self._oracles = [kind(world) for kind in kinds]
        if world.plan.expect:
            self._oracles.append(Expected(world, self.measures))
        return [self.measures, *self._oracles, *self._more_checks(world)]

    def _more_checks(self, _world: World) -> list[Check]:
        """Return what else judges the run, or keeps what it is judged by."""
        return []

    @property
    def broken(self) -> list[Broken]:
        """The violations so far, in the order of time."""
        found = [*self._left] if self._crash is None else [self._crash]
        found += [broken for check in self._oracles for broken in check.broken]
        return sorted(found, key=lambda broken: broken.at_us)

    @property
    def crashed(self) -> bool:
        """Whether an exception has ended the run, which then does not continue."""
        return self._crash is not None

    def advance(self, until_us: int) -> None:
        """Continue to the instant *until_us*. An exception counts as a broken invariant."""
        self._try(lambda: self.world.run(until_us))

    def _try(self, act: Callable[[], None]) -> None:
        # An event was cut short, so the state of the world says nothing about the protocol.
        if self._crash is not None:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a run is there to find and report these
            self._crash = _crash(error, self.world.now)

    def _go_to_the_end(self) -> None:
        """Continue to the end of the plan, or to the calm before it."""
        world, plan = self.world, self.world.plan
        now = max(world.now, min(plan.quiet_at_us, plan.until_us))
        agreed = False
        while plan.calm_us and now < plan.until_us and not self.crashed:
            self.advance(now)
            agreed_before, agreed = agreed, agree(world.running, wholly=True) and self._is_still()
            # Twice, with the time of calm between: nodes may agree for a moment by chance.
            if agreed_before and agreed:
                return
            now += plan.calm_us if agreed else LOOK_US
        self.advance(plan.until_us)

    def _is_still(self) -> bool:
        """Return whether what the nodes have is where it belongs, and nobody waits for it."""
        return True

    def finish(self) -> Result:
        """Continue to the plan's end, and return the result."""
        world = self.world
        plan = world.plan
        self._go_to_the_end()
        for check in world.checks:
            self._try(check.finish)
        ended_at = world.now
        if self._rests and not self.broken:
            self._try(self._rest)
        measures = self.measures
        messages_count, bytes_count = self._sent()
        node_s = measures.node_s or 1.0
        return Result(
            plan.name,
            world.seed,
            plan.nodes,
            (*world.trace.digests, world.trace.digest),
            seconds(ended_at),
            world.event_count,
            REAL_S() - self._began,
            self.broken,
            tuple(sorted({operation.kind for operation in plan.operations})),
            measures.detected_s,
            None if self.crashed else measures.converged_s,
            measures.false_faulty,
            messages_count / node_s,
            bytes_count / node_s,
            self._traffic_counts(),
        )

    def _rest(self) -> None:
        self._left = left_at_rest(self.world)

    def _sent(self) -> tuple[int, float]:
        """Return how many messages were sent, and about how many bytes."""
        count, mean_bytes = self.world.exchange.message_count, self.world.exchange.coding.mean_bytes
        return count, count * (mean_bytes + FRAME_BYTES) if mean_bytes else 0.0

    def _traffic_counts(self) -> dict[str, int]:
        """Return how many requests, and what else, users have made."""
        return {}


def run_of(
    plan: Plan,
    seed: int,
    checks: Sequence[type[Check]] | None = None,
    **more: Any,  # noqa: ANN401 - as `Run` has them
) -> Run:
    """Return a run of *plan* with *seed*: by nodes alone, or by whole daemons if it wants them.

    Raises:
        PlanError: what whole daemons need is not installed, or they cannot do what the plan says.
    """
    kind = whole_run() if plan.is_whole else Run
    return kind(plan, seed, checks, **more)


def whole_run() -> type[Run]:
    """Return the class of the runs of whole daemons.

    Raises:
        PlanError: what they need is not installed.
    """
    try:
        kind: type[Run] = import_module(WHOLE).WholeRun
    except ModuleNotFoundError as error:
        raise PlanError(f"whole daemons need {error.name}: pip install 'ringpop_py[sim]'") from None
    return kind


def run(plan: Plan, seed: int, checks: Sequence[type[Check]] | None = None) -> Result:
    """Run *plan* with *seed* to its end, under all oracles or just *checks*."""
    return run_of(plan, seed, checks).finish()


def _crash(error: Exception, at_us: int) -> Broken:
    """Return the violation for *error*, which ended a run: nothing that arrives may end a node.

    It is S14 if the exception was raised while bytes were read or written. A codec may raise only
    `BodyError`, and the world treats that as an error frame. Otherwise it is X: a node, an
    operation or an oracle raised it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    coding = any("/ringpop_py/net/wire/" in frame.filename for frame in frames)
    detail = f"{type(error).__name__}: {error} (in {places_of(error)})"
    return Broken(CODING if coding else CRASH, at_us, detail)


def places_of(error: BaseException) -> str:
    """Return the last places that *error* has passed, in the order of their calls."""
    frames = traceback.extract_tb(error.__traceback__)[-PLACES_MAX:]
    # File names without directories, so that the text is the same on every machine.
    places = [f"{f.filename.rpartition('/')[2]}:{f.lineno} {f.name}" for f in frames]
    return ", ".join(places)
