"""Nodes in the simulator's world, with what tests of the protocol do to them and look at."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import TYPE_CHECKING

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE, Dialect
from ringpop_py.member.swim.effects import CallPeer, Effect
from ringpop_py.member.swim.member import Status
from ringpop_sim.plans.plan import Cut, Plan
from ringpop_sim.units import ms, s
from ringpop_sim.world import world as simulated
from ringpop_sim.world.network import address_of
from ringpop_sim.world.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.node import Node
    from ringpop_sim.world.process import Process

MACHINES = 100


def advance_to(node: Node, until: int) -> list[Effect]:
    """Let time pass for *node* alone, each deadline when it comes; what it does meanwhile."""
    effects: list[Effect] = []
    while (at := node.next_deadline) is not None and at < until:
        effects += node.advance(at)
    return effects + node.advance(until)


class World(Watcher):
    """The simulator's world `sim`, where node *index* is at that machine; `trace`: all effects."""

    def __init__(
        self, dialect: Dialect = NATIVE, seed: int = 0, config: GossipConfig | None = None
    ) -> None:
        settings = tuple(asdict(config or GossipConfig()).items())
        plan = Plan(nodes=MACHINES, dialect=dialect.name, settings=settings, codec_share=1.0)
        self.trace: list[tuple[int, Address, Effect]] = []
        self.sim = simulated.World(plan, seed, lambda _sim: [self])
        self.config = self.sim.config
        self._cuts: list[Cut] = []
        for machine in range(MACHINES):  # which refuses connections while no process runs there
            self.sim.network.connect(machine)

    def fact(self, process: Process, effect: Effect) -> None:
        self.trace.append((self.sim.now, process.address, effect))

    def duty(self, process: Process, effect: Effect) -> None:
        self.fact(process, effect)

    def start(
        self,
        index: int,
        seeds: Iterable[int] = (),
        *,
        name: str | None = None,
        cluster: str = "test",
        ring_points: int = simulated.RING_POINTS,
        clock_ms: int = 0,
    ) -> Node:
        """Start a process, whose discovery lists *seeds*; its wall clock is off by *clock_ms*."""
        self.sim.hosts_of[index] = tuple(seeds)
        self.sim.wall_offset_us[index] = clock_ms * ms
        return self.sim.start(index, index, name, cluster=cluster, ring_points=ring_points).node

    def start_cluster(self, count: int) -> list[Node]:
        """Start *count* nodes at once, each with all of them as hosts; run until they agree."""
        nodes = [self.start(index, range(count)) for index in range(count)]
        self.run_until(self.converged, within_s=20)
        return nodes

    def crash(self, index: int, *, silently: bool = False) -> None:
        self.sim.end(self.sim.at[index], silent=silently)

    def do(self, index: int, act: Callable[[Node, int], list[Effect]]) -> None:
        self.sim.do(self.sim.at[index], act)

    def split(self, *sides: Iterable[int], **how: bool) -> None:
        """Cut any two of *sides* off from each other until `heal`; for *how*, see `Cut`."""
        for left, right in itertools.combinations(map(tuple, sides), 2):
            self._cuts.append(Cut(at_us=0, left=left, right=right, **how))
            self.sim.network.cut(self._cuts[-1])

    def heal(self) -> None:
        while self._cuts:
            self.sim.network.mend(self._cuts.pop())

    def run(self, seconds: float) -> None:
        self.sim.run(self.now + round(seconds * s))

    def run_until(self, condition: Callable[[], bool], *, within_s: float) -> float:
        """Run until *condition* holds. Returns: the seconds it took."""
        begin = self.now
        while not condition():
            at = self.sim._events[0][0]
            assert at <= begin + within_s * s, f"not within {within_s} s"
            self.sim.run(at)
        return (self.now - begin) / s

    @property
    def now(self) -> int:
        return self.sim.now

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all running processes, in the order of their starts."""
        return [process.node for process in self.sim.running]

    def converged(self) -> bool:
        """Whether all running nodes see exactly each other alive, with one checksum."""
        rows = (member for node in self.nodes for member in node.members)
        return self.sim.converged() and all(m.status is not Status.SUSPECT for m in rows)

    def status(self, observer: int, subject: int) -> Status | None:
        """What the node at *observer* believes of the one at *subject*."""
        rows = self.sim.at[observer].node.members
        return next((m.status for m in rows if m.address == address_of(subject)), None)

    def all_see(self, subject: int, status: Status | None) -> Callable[[], bool]:
        """Whether all other running nodes believe *status* of the one at *subject*."""
        others = [index for index in self.sim.at if index != subject]
        return lambda: all(self.status(other, subject) is status for other in others)

    def effects(self, index: int, *kinds: type) -> list[tuple[int, Effect]]:
        """When which effects of *kinds* came from the address of *index*."""
        address = address_of(index)
        return [(at, e) for at, who, e in self.trace if who == address and isinstance(e, kinds)]

    def calls(self, index: int, kind: type) -> list[tuple[int, CallPeer]]:
        """When which requests of *kind* were sent by the address of *index*."""
        calls = [(at, e) for at, e in self.effects(index, CallPeer) if isinstance(e, CallPeer)]
        return [(at, call) for at, call in calls if isinstance(call.request, kind)]
