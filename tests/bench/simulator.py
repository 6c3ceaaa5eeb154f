"""The simulator itself: how fast it is, and how large a cluster it carries.

Durations of this machine, one core; take them while it is quiet. The oracles are on unless a row
says otherwise. Each measurement ends after ``--limit`` seconds at the latest, and a row of what was
not reached by then is infinite. Progress goes to standard error.

Where a row says ``formed``, the nodes did not join: each began with the list of all (at 10,000
nodes, where that would be 100 million rows, with that of `KNOWN_MAX` members, and room for no
more), so that what is measured is the steady state alone.
"""

from __future__ import annotations

import sys
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.node import Node
from ringpop_sim.commands import positive_seconds
from ringpop_sim.plans.plan import Plan
from ringpop_sim.runs.random_plans import random_plan
from ringpop_sim.runs.run import ALL, Run
from ringpop_sim.runs.run import run as run_plan
from ringpop_sim.units import hours, ms, s, seconds
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import FRAME_BYTES, WALL_MS
from tests.bench.report import Row, larger_is_better

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_sim.checks import Check

LIMIT_S: Final = 300.0
EVENTS_GOALS: Final = {20: 110_000.0, 1000: 55_000.0}
EVENTS_COUNTED: Final = {20: 600_000, 1000: 600_000, 10_000: 200_000}
PLANS: Final = 300
PLANS_GOAL: Final = 50.0
LARGE: Final = 1000
HUGE: Final = 10_000
KNOWN_MAX: Final = 100
SEEDS: Final = 5
STEP_US: Final = 20 * ms
LOOK_AT_CLOCK_US: Final = 100
CHANGES: Final = 10
ALWAYS_ON: Final = (("quiet", False),)
"""So that a second has as many events as a cluster at rest ever has: a period each 0.2 s."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be chosen on the command line."""
    parser.add_argument(
        "--limit", type=positive_seconds, default=LIMIT_S, metavar="S",
        help="seconds that one measurement of simulator may take (%(default)s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    """All of it, the quickest first."""
    limit_s = arguments.limit
    yield from random_plans(limit_s)
    for nodes in (20, LARGE):
        yield from events(nodes, limit_s)
    yield from at_rest(limit_s)
    yield from change_and_crash(limit_s)
    yield from join_storm(limit_s)
    yield from events(HUGE, limit_s)


# Measurements.


def random_plans(limit_s: float) -> Iterator[Row]:
    """Plans of 8 nodes and five faults or more, a second."""
    _tell(f"random plans: {PLANS}")
    count, until = 0, perf_counter() + limit_s
    began = perf_counter()
    while count < PLANS and perf_counter() < until:
        run_plan(random_plan(count), count)
        count += 1
    rate = count / (perf_counter() - began)
    yield larger_is_better("simulator.random_plans", rate, "plans/s", "goal", PLANS_GOAL, 1.0)


def events(nodes: int, limit_s: float) -> Iterator[Row]:
    """Events a second in a steady state, with all oracles and with none."""
    kinds: dict[str, Sequence[type[Check]]] = {"oracles": ALL, "bare": ()}
    for kind, checks in kinds.items():
        _tell(f"events a second: {nodes} nodes, {kind}")
        found = formed(nodes, checks, ALWAYS_ON)
        found.advance(1 * s)
        world, began = found.world, perf_counter()
        first = world.event_count
        until, enough = began + limit_s, first + EVENTS_COUNTED[nodes]
        while world.event_count < enough and perf_counter() < until:
            found.advance(world.now + STEP_US)
        rate = (world.event_count - first) / (perf_counter() - began)
        _complain(found)
        name = f"simulator.events.{kind}.{nodes}.formed"
        goal = EVENTS_GOALS.get(nodes) if kind == "oracles" else None
        if goal is None:
            yield Row(name, rate, "events/s")
        else:
            yield larger_is_better(name, rate, "events/s", "goal", goal, 1.0)


def at_rest(limit_s: float) -> Iterator[Row]:
    """What a node of a thousand sends while nothing happens, in messages and bytes."""
    _tell(f"steady state: {LARGE} nodes")
    found = formed(LARGE, (), (), codec_share=0.02)
    _until(found, lambda: found.world.now >= 5 * s, limit_s)
    world = found.world
    coding = world.exchange.coding
    messages, body = world.exchange.message_count, coding.body_bytes
    encoded = coding.encoded_count
    began_us = world.now
    _until(found, lambda: world.now >= began_us + 20 * s, limit_s)
    lasted_s = seconds(world.now - began_us)
    rate = (world.exchange.message_count - messages) / lasted_s / LARGE
    mean_bytes = (coding.body_bytes - body) / max(1, coding.encoded_count - encoded)
    yield Row(f"simulator.rest.{LARGE}.messages", rate, "messages/s a node")
    sent_bytes = rate * (mean_bytes + FRAME_BYTES)
    yield Row(f"simulator.rest.{LARGE}.bytes", sent_bytes, "bytes/s a node")


def change_and_crash(limit_s: float) -> Iterator[Row]:
    """Until all of a thousand know of a change, and of a crash, in virtual seconds."""
    _tell(f"spread and detection: {LARGE} nodes")
    found = formed(LARGE, (), ())
    found.advance(5 * s)
    world = found.world
    lasted = []
    for index in range(CHANGES):
        teller, labels = world.numbered[index * 97 % LARGE], (("change", str(index)),)
        world.do(teller, lambda node, now, labels=labels: node.set_labels(labels, now))  # type: ignore[misc]
        name = teller.name

        def all_know(name: str = name, labels: object = labels) -> bool:
            return all(
                (row := process.node.members.get(name)) is not None and row.labels == labels
                for process in world.at.values()
            )

        lasted.append(_until(found, all_know, limit_s / CHANGES))
        _tell(f"  change {index + 1}: {lasted[-1]:.2f} s")
        if lasted[-1] == inf:
            break
        found.advance(world.now + 5 * s)  # until it rides no more
    yield Row(f"simulator.spread.{LARGE}.mean", sum(lasted) / len(lasted), "virtual s")
    for silent in (False, True):
        victim = world.numbered[5 + silent]
        world.end(victim, silent=silent)
        name = victim.name

        def all_gave_up(name: str = name) -> bool:
            return all(
                (row := process.node.members.get(name)) is None or not row.status.reachable
                for process in world.at.values()
            )

        kind = "silent" if silent else "killed"
        yield Row(
            f"simulator.crash.{kind}.{LARGE}", _until(found, all_gave_up, limit_s / 2), "virtual s"
        )


def join_storm(limit_s: float) -> Iterator[Row]:
    """A thousand nodes start at once and know five hosts: until all have one list."""
    _tell(f"join storm: {LARGE} nodes")
    plan = Plan(nodes=LARGE, until_us=1 * hours, seeds=SEEDS, codec_share=0.0)
    found, began = Run(plan, 1, ()), perf_counter()
    found.advance(0)
    lasted = _until(found, found.world.converged, limit_s)
    yield Row(f"simulator.join_storm.{LARGE}", lasted, "virtual s")
    yield Row(f"simulator.join_storm.{LARGE}.took", perf_counter() - began, "s")


# Clusters.


def formed(
    nodes: int,
    checks: Sequence[type[Check]],
    settings: tuple[tuple[str, float | int | bool], ...],
    codec_share: float = 0.0,
) -> Run:
    """A run at its beginning, whose nodes know each other already, and have no hosts to ask."""
    known = nodes if nodes <= LARGE else KNOWN_MAX
    plan = Plan(
        nodes=nodes,
        until_us=1 * hours,
        settings=(*settings, ("members_max", max(known, 1))),
        codec_share=codec_share,
    )
    rows = [Member(f"n{index}", *address_of(index), WALL_MS) for index in range(nodes)]

    class Formed(Node):
        """A node that has known those of its neighbourhood for long."""

        def __init__(self, local: Member, **rest: Any) -> None:  # noqa: ANN401 - as Node's
            super().__init__(local, **rest)
            first = int(local.name[1:]) // known * known
            neighbours = rows[first : first + known]
            self._rows.merge(neighbours, 0, told_by="the benchmark")
            self._rows.dissemination.forget(local.name)
            self._core.take_effects()

    found = Run(plan, 1, checks)
    for number in range(nodes):
        found.world.hosts_of[number] = ()
    with patch("ringpop_sim.world.world.Node", Formed):
        found.advance(0)
    return found


def _until(found: Run, done: Callable[[], bool], limit_s: float) -> float:
    """Virtual seconds until *done*; infinite if that takes longer than *limit_s* real ones."""
    world, began_us = found.world, found.world.now
    until = perf_counter() + limit_s
    while not done():
        for _ in range(STEP_US // LOOK_AT_CLOCK_US):  # a storm has a million events in one step
            if perf_counter() > until or found.crashed:
                return inf
            found.advance(world.now + LOOK_AT_CLOCK_US)
    return seconds(world.now - began_us)


def _complain(found: Run) -> None:
    for broken in found.broken[:3]:
        _tell(f"  broken: {broken.invariant} at {seconds(broken.at_us):.3f} s: {broken.detail}")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
