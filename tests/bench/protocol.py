"""What each part of the protocol beyond Ringpop's is worth: the same clusters with it and without.

In virtual time, on the simulator, with fixed seeds: so the figures are the same on every machine,
loaded or not. Only the part in question is off; all others stay on. What is compared: a row's
value is with the part, its peer without, and a ratio above 1 speaks for the part. Progress goes
to standard error.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import PRESETS
from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.values.declared import replace
from ringpop_py.edge.cli.commands import count
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Answered, Asked
from ringpop_py.member.swim.node import Node
from ringpop_py.net.wire.codec import codec_for
from ringpop_sim.checks import Check
from ringpop_sim.plans.plan import Crash, Cut, Impair, Link, Operation, Pause, Plan, Slow
from ringpop_sim.runs.run import Run
from ringpop_sim.units import minutes, ms, s, seconds
from tests.bench.report import smaller_is_better

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World
    from tests.bench.report import Row

Settings = tuple[tuple[str, float | int | bool], ...]
Figures = dict[str, float]
Experiment = Callable[[Settings, int], Figures]
"""Runs with settings and a seed; says what was measured. Infinite is what did not come about."""

Aggregates = dict[str, Callable[[list[float]], float]]

SEEDS_DEFAULT: Final = 10
NODES: Final = 30
SICK: Final = tuple(range(8))
FORMED_US: Final = 20 * s
NEVER_S: Final = 1e9


class Watch(Check):
    """What is said of those who live, and how often the flapper's place in the rings changes.

    Attributes:
        accused: pairs of a living member and its incarnation that some probe made suspect, and
            when first.
        dead: those of them that some timer made faulty.
        refuted_us: how long after that its member refuted it.
        turns: how often each observer's ring took *flapper* in or left it out.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.flapper = ""
        self.accused: dict[tuple[str, int], int] = {}
        self.dead: set[tuple[str, int]] = set()
        self.refuted_us: list[int] = []
        self.turns: dict[str, int] = {}
        self._held: dict[Process, bool] = {}

    def fact(self, process: Process, effect: Effect) -> None:
        """See `Check.fact`."""
        if isinstance(effect, fx.Refuted):
            at = self.accused.get((process.name, effect.accusation.incarnation))
            if at is not None:
                self.refuted_us.append(self.world.now - at)
        elif isinstance(effect, fx.StatusChanged) and effect.after is not None:
            if effect.after.name == self.flapper != process.name:
                self._look(process, effect.after)
            if effect.via in ("probe", "timer") and effect.after.status <= Status.FAULTY:
                self._count(effect.after)

    def _count(self, row: Member) -> None:
        version = row.name, row.incarnation
        if not any(process.name == row.name for process in self.world.at.values()):
            return
        if row.status is Status.FAULTY:
            self.dead.add(version)
        else:
            self.accused.setdefault(version, self.world.now)

    def _look(self, process: Process, row: Member) -> None:
        held = process.node.members.in_ring(row)
        if held != self._held.get(process, held):
            self.turns[process.name] = self.turns.get(process.name, 0) + 1
        self._held[process] = held


# Experiments.


def _run(
    settings: Settings,
    seed: int,
    until_us: int,
    *operations: Operation,
    nodes: int = NODES,
    loss: float = 0.0,
) -> tuple[Run, Watch]:
    plan = Plan(
        nodes=nodes,
        until_us=until_us,
        settings=settings,
        link=Link(loss=loss),
        codec_share=0.0,
        operations=operations,
    )
    run = Run(plan, seed, (Watch,))
    watch = next(check for check in run.world.checks if isinstance(check, Watch))
    return run, watch


def _known_after_s(run: Run) -> float:
    """Until all know of the crash; the run goes no further than that."""
    measures, world = run.measures, run.world
    while measures.detected_s is None and world.now < world.plan.until_us:
        run.advance(min(world.now + s, world.plan.until_us))
    return inf if measures.detected_s is None else measures.detected_s


def killed(settings: Settings, seed: int) -> Figures:
    """One of 30 is killed; its machine refuses connections."""
    run, _ = _run(settings, seed, 2 * minutes, Crash(at_us=FORMED_US, nodes=(1,)))
    return {"killed": _known_after_s(run)}


def lost_power(settings: Settings, seed: int) -> Figures:
    """One of 30 loses its power: nothing but silence."""
    crash = Crash(at_us=FORMED_US, nodes=(1,), silent=True)
    run, _ = _run(settings, seed, 2 * minutes, crash)
    return {"silent": _known_after_s(run)}


def lossy(settings: Settings, seed: int) -> Figures:
    """A minute of a network between 30 nodes that loses every fifth message."""
    run, watch = _run(settings, seed, 80 * s, loss=0.2)
    run.advance(run.world.plan.until_us)
    refuted = [seconds(us) for us in watch.refuted_us]
    return {"loss.dead": len(watch.dead), "loss.refuted": median(refuted) if refuted else inf}


def overloaded(settings: Settings, seed: int) -> Figures:
    """All 30 share a machine that is too small: each stands still for two thirds of a minute.

    For 1.2 to 4 s at a time, and runs for 0.6 to 2 s in between.
    """
    draw = random.Random(seed)
    pauses = []
    for node in range(NODES):
        at_us = FORMED_US + draw.randrange(2 * s)
        while at_us < FORMED_US + minutes:
            for_us = draw.randrange(1200 * ms, 4 * s)
            pauses.append(Pause(at_us=at_us, for_us=for_us, nodes=(node,)))
            at_us += for_us + draw.randrange(600 * ms, 2 * s)
    run, watch = _run(settings, seed, FORMED_US + 70 * s, *pauses)
    run.advance(run.world.plan.until_us)
    return {"overloaded.accused": len(watch.accused), "overloaded.dead": len(watch.dead)}


def bad_links(settings: Settings, seed: int) -> Figures:
    """8 of 30 lose half of all messages, in and out, for a minute."""
    bad = Impair(at_us=FORMED_US, for_us=minutes, nodes=SICK, loss_in=0.5, loss_out=0.5)
    run, watch = _run(settings, seed, FORMED_US + 70 * s, bad)
    run.advance(run.world.plan.until_us)
    healthy = [name for name, _ in watch.accused if name not in {f"n{node}" for node in SICK}]
    return {"bad_links.accused": len(healthy), "bad_links.dead": len(watch.dead)}


def slow(settings: Settings, seed: int) -> Figures:
    """8 of 30 do everything 0.6 s late, for a minute; a ping's time-out is 0.5 s."""
    late = Slow(at_us=FORMED_US, for_us=minutes, nodes=SICK, by_us=600 * ms)
    run, watch = _run(settings, seed, FORMED_US + 70 * s, late)
    run.advance(run.world.plan.until_us)
    return {"slow.dead": len(watch.dead)}


def flapping(settings: Settings, seed: int) -> Figures:
    """One of 10 is killed every 20 s and is back 5 s later, for ten minutes."""
    crashes = [
        Crash(at_us=FORMED_US + 20 * s * turn, for_us=5 * s, nodes=(1,)) for turn in range(30)
    ]
    run, watch = _run(settings, seed, FORMED_US + 10 * minutes, *crashes, nodes=10)
    watch.flapper = "n1"
    run.advance(run.world.plan.until_us)
    return {"flap.turns": fmean(watch.turns.values())}


def healed(settings: Settings, seed: int) -> Figures:
    """A cluster of 10 is cut into halves; how long it takes to be one after the cut."""
    figures = {}
    for lasts_s in (15, 40, 75):
        cut = Cut(at_us=FORMED_US, for_us=lasts_s * s, left=(0, 1, 2, 3, 4), right=(5, 6, 7, 8, 9))
        run, _ = _run(settings, seed, FORMED_US + lasts_s * s + 10 * minutes, cut, nodes=10)
        world, measures = run.world, run.measures
        while measures.converged_s is None and world.now < world.plan.until_us:
            run.advance(world.now + s)
        found = measures.converged_s
        figures[f"cut_{lasts_s}"] = inf if found is None else found
    return figures


def resting(settings: Settings, seed: int) -> Figures:
    """What 30 nodes send while nothing happens."""
    run, _ = _run(settings, seed, FORMED_US + 40 * s)
    run.advance(FORMED_US + 10 * s)
    before = run.world.exchange.message_count
    run.advance(run.world.plan.until_us)
    sent = run.world.exchange.message_count - before
    return {"rest.messages": sent / 30 / NODES}


def compared(settings: Settings, _seed: int) -> Figures:
    """Two lists of 1,000 of which five rows differ become one: what is sent for it."""
    wire = Wire(settings, 1000, 5)
    wire.exchange()
    return {"differ.bytes": sum(wire.sizes), "differ.largest": max(wire.sizes)}


class Wire:
    """Two nodes whose lists of *size* members differ in *count* rows, and all they send."""

    def __init__(self, settings: Settings, size: int, count: int) -> None:
        config = dataclasses.replace(PRESETS["lan"], **dict(settings))  # type: ignore[arg-type]
        rows = [Member(f"n{i}", *Address("10.0.0.1", 1024 + i), 1_700_000_000_000) for i in
                range(size)]  # fmt: skip
        newer = [replace(row, incarnation=row.incarnation + 1) for row in rows[-count:]]
        self.nodes = [
            Node(
                rows[index],
                cluster="bench",
                ring_points=100,
                dialect=NATIVE,
                config=config,
                rng=random.Random(index),
                now=0,
            )
            for index in (0, 1)
        ]
        self._codec = codec_for(NATIVE)
        self.sizes: list[int] = []
        for node, lacking in zip(self.nodes, ((), newer), strict=True):
            node.start([], 0)
            node.stop_gossip(0)
            # Known for long, so that nothing of it rides: only lists can tell.
            node._rows.merge([*rows, *lacking], 0, told_by="the benchmark")
            node._rows.dissemination.forget(node.local.name)
            node._core.take_effects()

    def exchange(self) -> None:
        """The first asks the second what it knows, and all that follows comes about."""
        one, other = self.nodes
        left = deque((0, effect) for effect in one.exchange(other.local.name, 0))
        while left:
            index, effect = left.popleft()
            if isinstance(effect, fx.CallPeer):
                left.extend((index, e) for e in self._call(index, effect, left))
        assert one.members.checksum == other.members.checksum

    def _call(
        self, index: int, call: fx.CallPeer, left: deque[tuple[int, Effect]]
    ) -> Sequence[Effect]:
        caller, other = self.nodes[index], self.nodes[1 - index]
        assert call.to == other.local.address
        self.sizes.append(len(self._codec.encode_request(call.request)))
        effects = other.receive(Asked(0, call.request), 0)
        (answer,) = (effect for effect in effects if isinstance(effect, fx.AnswerPeer))
        self.sizes.append(len(self._codec.encode_response(answer.response)))
        left.extend((1 - index, effect) for effect in effects if effect is not answer)
        return caller.receive(Answered(call.call_id, answer.response), 0)


@dataclass(frozen=True, slots=True)
class Part:
    """What is compared: an experiment with the preset as it is, and with *off*."""

    name: str
    off: Settings
    experiments: tuple[Experiment, ...]


PARTS: Final = (
    Part("evidence", (("evidence", False),), (killed,)),
    Part("confirmations", (("confirmations", False),), (lost_power, lossy, overloaded, bad_links)),
    Part("local_health", (("local_health", False),), (overloaded, bad_links, slow)),
    Part("stall", (("stall_s", NEVER_S),), (overloaded,)),
    Part("tells_suspects", (("tells_suspects", False),), (lossy, bad_links)),
    Part("damping", (("damping", False),), (flapping,)),
    Part("fast_heal", (("fast_heal", False),), (healed,)),
    Part("quiet", (("quiet", False),), (resting, killed, lost_power)),
    Part("delta_sync", (("delta_sync", False),), (compared,)),
)

UNITS: Final = {
    "killed": "s",
    "silent": "s",
    "loss.dead": "living members",
    "loss.refuted": "s",
    "overloaded.accused": "living members",
    "overloaded.dead": "living members",
    "bad_links.accused": "healthy members",
    "bad_links.dead": "living members",
    "slow.dead": "living members",
    "flap.turns": "turns an observer",
    "cut_15": "s",
    "cut_40": "s",
    "cut_75": "s",
    "rest.messages": "messages/s a node",
    "differ.bytes": "bytes",
    "differ.largest": "bytes",
}
"""Of each figure. Seconds are told as the median and the worst, all others as the mean."""


DURATIONS: Final[Aggregates] = {"median": median, "max": max}
COUNTS: Final[Aggregates] = {"mean": fmean}

# Rows.


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen on the command line."""
    parser.add_argument(
        "--seeds", type=count, default=SEEDS_DEFAULT, metavar="N", help="of protocol (%(default)s)"
    )
    names = [part.name for part in PARTS]
    parser.add_argument(
        "--parts", nargs="+", choices=names, default=names, metavar="PART",
        help=f"of protocol: {', '.join(names)}",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    """Each part that was chosen, with and without it."""
    seeds = range(1, arguments.seeds + 1)
    for part in PARTS:
        if part.name in arguments.parts:
            for experiment in part.experiments:
                yield from _rows(part, experiment, seeds)


def _rows(part: Part, experiment: Experiment, seeds: Sequence[int]) -> Iterator[Row]:
    runs = []
    for off, settings in (("", ()), (" without it", part.off)):
        _tell(f"{part.name}: {experiment.__name__}{off}, {len(seeds)} seeds")
        runs.append([experiment(settings, seed) for seed in seeds])
    yield from rows_of(part.name, *runs)


def rows_of(name: str, with_it: list[Figures], without: list[Figures]) -> Iterator[Row]:
    """The figures of both sides, seed by seed, as rows."""
    for figure in with_it[0]:
        sides = [[figures[figure] for figures in side] for side in (with_it, without)]
        unit = UNITS[figure]
        kinds = DURATIONS if unit == "s" else COUNTS
        for kind, of in kinds.items():
            ours, theirs = (float(of(side)) for side in sides)
            yield smaller_is_better(f"protocol.{name}.{figure}.{kind}", ours, unit, "off", theirs)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
