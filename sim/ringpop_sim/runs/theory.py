"""The figures that theory predicts for the protocol, beside those of simulated clusters.

This is an oracle for figures, as the invariants are for events: a protocol that still converges,
but probes each member half as often as it should, breaks no invariant. Each function measures one
law on clusters of the product's own nodes and returns rows. A row is within its bound or not.

Sources: A. Das, I. Gupta, A. Motivala, "SWIM" (2002), sections 3 and 4, for the first four;
A. Dadgar, J. Phillips, J. Currey, "Lifeguard" (2017), section IV-B, for suspicions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.messages import Asked, MemberChange, Ping, PingReq
from ringpop_sim.checks import Check
from ringpop_sim.plans.plan import Cut, Link, Plan, fixed, uniform
from ringpop_sim.runs.run import Run
from ringpop_sim.units import ms, s
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.messages import Input
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

HELPERS: Final = 3
PLAIN: Final = (
    ("quiet", False),
    ("local_health", False),
    ("confirmations", False),
    ("tells_suspects", False),
    ("evidence", False),
    ("damping", False),
    ("fast_heal", False),
)
"""Settings without extensions: the laws are SWIM's, and extensions are measured separately."""
PERIOD_S: Final = 1.0
PERIOD_US: Final = int(PERIOD_S * s)
TIMING: Final = (
    ("period_s", PERIOD_S),
    ("ping_timeout_s", 0.2),
    ("ping_req_timeout_s", 0.6),
    ("suspect_s", 30.0),
)
"""Settings with which a probe ends within its period, and a suspect has time to refute."""


@dataclass(frozen=True, slots=True)
class TheoryRow:
    """One figure: *measured* from *samples*, the value of theory, and the allowed difference.

    Attributes:
        bound: the allowed difference as a share of *theory*; it includes chance.
        is_limit: whether *theory* is an upper limit, so that *measured* may be any amount below.
    """

    law: str
    at: str
    theory: float
    measured: float
    bound: float
    samples: int
    is_limit: bool = False

    @property
    def ratio(self) -> float:
        """The ratio of *measured* to *theory*."""
        return self.measured / self.theory

    @property
    def ok(self) -> bool:
        """Whether *measured* is within its bound."""
        off = self.ratio - 1
        return off <= self.bound if self.is_limit else abs(off) <= self.bound

    def as_json(self) -> dict[str, object]:
        """Return the row as one JSON object for programs."""
        figures = {name: round(getattr(self, name), 5) for name in ("theory", "measured")}
        return asdict(self) | figures | {"ratio": round(self.ratio, 4), "ok": self.ok}


class Probes(Check):
    """Records when which node began a probe of which: pings not sent on behalf of another."""

    def begin(self) -> None:
        self.begun: list[tuple[int, str, str]] = []
        self.of_alive_count = 0
        self.suspected_count = 0
        self.counting = False
        self._helping_at: dict[int, int] = {}
        self._names: dict[object, str] = {}

    def started(self, process: Process) -> None:
        self._names[process.address] = process.name

    def input(self, process: Process, message: Input) -> None:
        if isinstance(message, Asked) and isinstance(message.request, PingReq):
            self._helping_at[process.serial] = self.world.now

    def duty(self, process: Process, effect: Effect) -> None:
        if not self.counting or not isinstance(effect, fx.CallPeer):
            return
        if not isinstance(effect.request, Ping):
            return
        # This ping is sent for the node that asked for help.
        if self._helping_at.get(process.serial) == self.world.now:
            return
        target = self._names[effect.to]
        self.begun.append((self.world.now, process.name, target))
        row = process.node.members.get(target)
        # Only these probes can make a member suspect; that of a suspect changes nothing.
        self.of_alive_count += row is not None and row.status is Status.ALIVE

    def fact(self, _process: Process, effect: Effect) -> None:
        if self.counting and isinstance(effect, fx.StatusChanged) and effect.via == "probe":
            self.suspected_count += 1


def _run(plan: Plan, seed: int, kinds: Sequence[type[Check]] = (Probes,)) -> tuple[Run, Probes]:
    run = Run(plan, seed, kinds)
    probes = next(check for check in run.world.checks if isinstance(check, Probes))
    return run, probes


def _plan(nodes: int, until_us: int, link: Link, *settings: tuple[str, float]) -> Plan:
    return Plan(
        name="theory",
        nodes=nodes,
        until_us=until_us,
        link=link,
        settings=PLAIN + TIMING + settings,
        codec_share=0.0,
    )


# The laws.


Law = Callable[..., list[TheoryRow]]


def law(*sizes: int) -> Callable[[Callable[[int, float, int], Iterator[TheoryRow]]], Law]:
    """Make a law of what yields the rows for a seed, an effort, and a number of nodes.

    A law returns the rows for clusters of *sizes*, unless it is given others. An effort of 1 is
    seconds to a minute.
    """

    def made(measure: Callable[[int, float, int], Iterator[TheoryRow]]) -> Law:
        def rows(seed: int, effort: float = 1.0, sizes: Sequence[int] = sizes) -> list[TheoryRow]:
            return [row for nodes in sizes for row in measure(seed, effort, nodes)]

        return rows

    return made


@law(HELPERS + 3)
def false_suspicion(seed: int, effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure how often a probe suspects a live member: (1 - q^2)((1 - q^4)^k - (1 - q^2)^k).

    q is the probability that a message arrives, and k the number of helpers. SWIM's
    (1 - q^2)(1 - q^4)^k also counts that no helper answers at all. That says nothing about the
    member, and for us the probe is then inconclusive.
    """
    for loss in (0.05, 0.1, 0.2):
        periods = int(30_000 * effort) // nodes
        link = Link(loss=loss, delay=fixed(1 * ms))
        run, found = _run(_plan(nodes, (periods + 60) * PERIOD_US, link), seed)
        run.advance(60 * PERIOD_US)
        found.counting = True
        run.finish()
        q = 1 - loss
        theory = (1 - q**2) * ((1 - q**4) ** HELPERS - (1 - q**2) ** HELPERS)
        measured = found.suspected_count / found.of_alive_count
        # With so few suspicions, chance alone makes a difference; that is added to the bound.
        chance = 2.5 / math.sqrt(theory * found.of_alive_count)
        where = f"loss {loss:.0%}"
        count = found.of_alive_count
        yield TheoryRow("false suspicion a probe", where, theory, measured, 0.05 + chance, count)


@law(10, 30, 100)
def first_detection(seed: int, effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure the first detection of a crash, which takes 2 T - T/n on average.

    Nodes are out of phase, and each probes every member once a round. So the first probe of the
    crashed member comes after T (n - 1)/n, and ends a period later. (The paper's 1.58 T is for
    rounds in step, in which members are chosen anew each time.)
    """
    runs = max(3, int(40 * effort))
    waits = []
    run, found = _run(_plan(nodes, 3600 * s, Link(delay=uniform(100, 300))), seed)
    run.advance(30 * PERIOD_US)
    for index in range(runs):
        victim = run.world.numbered[index % nodes]
        crashed_at = run.world.now
        # Broken connections would have it probed immediately, out of turn (decision 9).
        run.world.end(victim, silent=True)
        found.begun.clear()  # probes from before the crash
        found.counting = True
        while not any(target == victim.name for _, _, target in found.begun):
            run.advance(run.world.now + PERIOD_US // 50)
        at = next(at for at, _, target in found.begun if target == victim.name)
        waits.append((at - crashed_at + PERIOD_US) / PERIOD_US)
        found.counting = False
        run.world.start(victim.number, victim.machine)
        # Until the victim is a member again, and half periods more or less, so that the next
        # crash comes in another phase of the others' periods.
        run.advance(run.world.now + (2 * nodes + 7 * index % 13) * PERIOD_US // 2)
    theory = 2 - 1 / nodes
    # A wait is about uniform over a period; its standard error is added to the bound.
    bound = 0.1 + 2.5 * 0.6 / math.sqrt(runs) / theory
    yield TheoryRow(
        "first detection / T", f"n = {nodes}", theory, statistics.fmean(waits), bound, runs
    )


@law(5, 10, 30)
def rotation(seed: int, effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure how often a member probes a given other: every n - 1 periods, 2n - 3 at most."""
    periods = int(12 * nodes * max(0.5, effort))
    run, found = _run(_plan(nodes, (60 + periods) * PERIOD_US, Link()), seed)
    run.advance(60 * PERIOD_US)
    found.counting = True
    run.finish()
    last: dict[tuple[str, str], int] = {}
    gaps = []
    for at, prober, target in found.begun:
        before = last.get((prober, target))
        if before is not None:
            gaps.append(round((at - before) / PERIOD_US))
        last[prober, target] = at
    mean = statistics.fmean(gaps)
    where = f"n = {nodes}"
    yield TheoryRow("periods between probes", where, nodes - 1, mean, 0.05, len(gaps))
    limit, longest = 2 * (nodes - 1) - 1, max(gaps)
    count = len(gaps)
    yield TheoryRow("most periods between", where, limit, longest, 0.0, count, is_limit=True)


@law(10, 30, 100, 300)
def spread(seed: int, effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure how a change on pings and their answers spreads: in 0.88 ln n + 0.38 periods.

    This is the line through measurements of a prototype of the protocol: 2.4, 3.5, 4.3 and 5.4
    periods for 10, 30, 100 and 300 nodes.
    """
    runs = max(3, int(12 * effort))
    run, _ = _run(_plan(nodes, 3600 * s, Link(delay=uniform(100, 300))), seed)
    run.advance(40 * PERIOD_US)
    lasted = []
    for index in range(runs):
        teller = run.world.numbered[(7 * index) % nodes]
        began = run.world.now
        labels = (("rumour", str(index)),)  # a change that disturbs nothing else
        run.world.do(teller, lambda node, now, labels=labels: node.set_labels(labels, now))  # type: ignore[misc]
        while not _all_know(run.world, teller.name, labels):
            run.advance(run.world.now + PERIOD_US // 20)
        lasted.append((run.world.now - began) / PERIOD_US)
        # 30 periods, after which no node repeats the change; a tenth more each time, so that
        # changes begin in different phases of a period.
        run.advance(run.world.now + (30 * 10 + index) * PERIOD_US // 10)
    theory = 0.88 * math.log(nodes) + 0.38
    mean = statistics.fmean(lasted)
    bound = 0.15 + 2.5 * statistics.stdev(lasted) / math.sqrt(runs) / theory
    yield TheoryRow("spread / T", f"n = {nodes}", theory, mean, bound, runs)


def _all_know(world: World, name: str, labels: object) -> bool:
    for process in world.at.values():
        row = process.node.members.get(name)
        if row is None or row.labels != labels:
            return False
    return True


@law(4, 12, 60)
def suspicion(seed: int, _effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure Lifeguard's time to refute: max - (max - min) ln(c + 1) / ln(K + 1), at least min.

    min is `suspect_s` times max(1, log10 n), and max is `suspect_factor` times that. c is the
    number of accusers besides the first, and K is how many count. Only one node is awake and
    receives accusations, so no other node adds any.
    """
    settings = ("confirmations", True), ("faulty_s", 3600.0)
    for others in range(min(3, nodes - 2) + 1):
        run, _ = _run(_plan(nodes, 3600 * s, Link(), *settings), seed)
        run.advance(60 * PERIOD_US)
        waited_us = _time_to_refute(run.world, others + 1)
        config, most = run.world.config, min(run.world.config.confirmations_max, nodes - 2)
        shortest = config.suspect_s * max(1.0, math.log10(nodes))
        longest = config.suspect_factor * shortest
        share = math.log(others + 1) / math.log(most + 1)
        theory = max(shortest, longest - (longest - shortest) * share)
        where = f"n = {nodes}, c = {others}"
        yield TheoryRow("time to refute (s)", where, theory, waited_us / s, 0.01, 1)


def _time_to_refute(world: World, accusers: int) -> int:
    observer, suspect = world.numbered[0], world.numbered[1]
    _pause_all_but(world, observer)
    row = replace(suspect.node.local, status=Status.SUSPECT)
    for index in range(accusers):
        # From n2 on: n0 observes, and n1 is the suspect.
        _tell(world, MemberChange(member=row, source=f"n{index + 2}", source_incarnation=1))
    began = world.now
    while (found := observer.node.members.get(suspect.name)) and found.status is Status.SUSPECT:
        # Steps far below the bound, which is 1 % of half a minute or more.
        world.run(world.now + s // 20)
    return world.now - began


def _pause_all_but(world: World, observer: Process) -> None:
    """Pause all other nodes, so that *observer* receives no accusations but forged ones."""
    # Nor may it probe them itself: a paused process does not answer.
    world.do(observer, lambda node, now: node.stop_gossip(now))
    for process in world.running:
        if process is not observer:
            world.pause(process)


def _tell(world: World, change: MemberChange) -> None:
    """Send *change* to node 0 in a forged ping."""
    observer = world.numbered[0]
    ping = Ping(CLUSTER, None, "somebody", *change.member.address, 0, None, (change,))
    world.exchange.forge(observer, ping)


@law(5)
def flapping(seed: int, _effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure where a score settles with a penalty every P s: penalty * d / (1 - d), d = 2^(-P/h).

    h is the half-life. The score is measured just before the next penalty, at a node that receives
    a new incarnation each time.
    """
    for every_s in (60, 120, 300):
        run, _ = _run(_plan(nodes, 4 * 3600 * s, Link(), ("damping", True)), seed)
        run.advance(60 * PERIOD_US)
        world, observer = run.world, run.world.numbered[0]
        row = world.numbered[1].node.local
        _pause_all_but(world, observer)
        times = 3000 // every_s  # ten half-lives: the score has settled
        for index in range(times):
            newer = replace(row, incarnation=row.incarnation + index + 1)
            _tell(world, MemberChange(member=newer, source=row.name, source_incarnation=1))
            world.run(world.now + every_s * s)
        member = observer.node.members.get(row.name)
        assert member is not None
        score = observer.node.damp_state(member, world.now).score
        config = world.config
        decay = 2 ** (-every_s / config.damp_half_life_s)
        theory = config.damp_penalty * decay / (1 - decay)
        where = f"a penalty every {every_s} s"
        yield TheoryRow("score of a flapper", where, theory, score, 0.02, times)


@law(2, 10, 30)
def healing(seed: int, effort: float, nodes: int) -> Iterator[TheoryRow]:
    """Measure how soon the halves of a cut merge: within 5 s of its end, however long it was.

    This holds with the timing of a LAN and all extensions on: each side looks for the other every
    2 s.
    """
    runs = max(1, int(4 * effort))
    left, right = tuple(range(nodes // 2)), tuple(range(nodes // 2, nodes))
    for cut_s in (15, 40, 75):
        worst = 0.0
        cut = Cut(at_us=20 * s, for_us=cut_s * s, left=left, right=right)
        plan = Plan(nodes=nodes, until_us=(80 + cut_s) * s, operations=(cut,), codec_share=0.0)
        for index in range(runs):
            took_s = Run(plan, seed + index, ()).finish().converged_s
            # Halves that never merge are beyond any limit.
            worst = max(worst, math.inf if took_s is None else took_s)
        where = f"n = {nodes}, cut for {cut_s} s"
        yield TheoryRow("healed (s)", where, 5.0, worst, 0.0, runs, is_limit=True)


LAWS: Final = {
    "false-suspicion": false_suspicion,
    "first-detection": first_detection,
    "rotation": rotation,
    "spread": spread,
    "suspicion": suspicion,
    "flapping": flapping,
    "healing": healing,
}
"""The laws by name."""
