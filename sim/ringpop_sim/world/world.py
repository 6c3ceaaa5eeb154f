"""The world: runs the product's own nodes on a heap of events, in virtual time.

The world does for a node what `ringpop_py.node.driver.NodeDriver` does: it passes messages and the
time to the node, and carries out the node's effects, on a network of its own. One run is a function
of its plan and its seed.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ringpop_py.base.dialect import dialect_named
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.node import Node
from ringpop_sim.units import s
from ringpop_sim.world.exchange import Exchange
from ringpop_sim.world.network import VirtualNetwork, address_of
from ringpop_sim.world.process import Life, Process
from ringpop_sim.world.trace import WOKEN, Trace
from ringpop_sim.world.watcher import Watchers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.messages import Input
    from ringpop_sim.plans.plan import Plan
    from ringpop_sim.world.watcher import Watcher

WALL_MS: Final = 1_700_000_000_000  # in November 2023: incarnations look like real ones
CLUSTER: Final = "simulated"
RING_POINTS: Final = 100
FAREWELL_US_MAX: Final = 3 * s  # that of a daemon, see `ringpop_py.node.end`
FRAME_BYTES: Final = 100
"""How many bytes a TChannel call or answer adds to its body: frame, headers, checksum (counted on
traces of real nodes, where it is 85 to 110)."""


class VirtualTime:
    """A heap of actions, each due at an instant; actions of one instant run in the order pushed.

    Attributes:
        now: the current instant, in microseconds.
        event_count: how many actions have run.
    """

    def __init__(self) -> None:
        self.now = 0
        self.event_count = 0
        self._events: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._pushed = 0

    def push(self, at: int, action: Callable[[Any], None], argument: object = None) -> None:
        """Schedule the call of *action* with *argument* at the instant *at*."""
        self._pushed += 1
        # The number decides between equal instants, so that the heap never compares functions.
        heapq.heappush(self._events, (at, self._pushed, action, argument))

    def run(self, until_us: int) -> None:
        """Run all actions that are due up to the instant *until_us*."""
        events, pop = self._events, heapq.heappop
        count = 0
        while events and events[0][0] <= until_us:
            self.now, _, action, argument = pop(events)
            action(argument)
            count += 1
        self.event_count += count
        self.now = until_us


class World(VirtualTime):
    """A cluster in progress.

    Attributes:
        at: the processes that have not ended, by machine.
        numbered: the present or latest process of each node number of the plan.
        processes: all processes that ever started, in order.
        lies: names and incarnations of rows that a `plan.Lie` has forged.
        disturbed: how many faults are active on each node of the plan; a node that is not in it
            has been left alone since its instant in `quiet_since`.
    """

    PROCESS: ClassVar[type[Process]] = Process

    def __init__(
        self,
        plan: Plan,
        seed: int,
        checks: Callable[[World], Sequence[Watcher]] | None = None,
        *,
        keep_trace: bool = False,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.seed = seed
        self.dialect = dialect_named(plan.dialect)
        config = plan.gossip()
        self.config = config if self.dialect.extends else config.plain()  # as nodes use it
        self.network = VirtualNetwork(plan.link, seed, plan.nodes)
        self.trace = Trace(keep=keep_trace)
        self.exchange = Exchange(self)
        self.at: dict[int, Process] = {}
        self.numbered: dict[int, Process] = {}
        self.processes: list[Process] = []
        self.hosts_of: dict[int, tuple[int, ...]] = {}
        self.wall_offset_us: dict[int, int] = {}
        self.lies: set[tuple[str, int]] = set()
        self.disturbed: Counter[int] = Counter()
        self.quiet_since: dict[int, int] = {}
        # What a process does before it leaves in order, with what to call when that is done.
        self.farewell: Callable[[Process, Callable[[], None]], None] | None = None
        # Last, because checks read the plan and push events when they are made.
        self.checks = Watchers(checks(self) if checks is not None else ())

    # Processes.

    @property
    def running(self) -> list[Process]:
        """The processes that have not ended, in the order in which they were started."""
        # A revived process stands at the end of `at`.
        return sorted(self.at.values(), key=lambda process: process.serial)

    def start(
        self,
        number: int,
        machine: int,
        name: str | None = None,
        *,
        second: bool = False,
        cluster: str = CLUSTER,
        ring_points: int = RING_POINTS,
    ) -> Process:
        """Start a process as node *number* of the plan at *machine*, where no process may run.

        With *second* the process is an additional one: while another process of that number runs,
        `numbered` keeps that one.
        """
        assert machine not in self.at, f"a process runs at {machine} already"
        address = self.network.connect(machine)
        wall_us = self.now + self.wall_offset_us.get(number, 0)
        serial = len(self.processes) + 1
        name = name or f"n{number}"
        if self.dialect.names_are_addresses:
            name = str(address)
        node = Node(
            Member(name, *address, WALL_MS + wall_us // 1000),
            cluster=cluster,
            ring_points=ring_points,
            dialect=self.dialect,
            config=self.config,
            # By process, not by node: a restarted process must not repeat the draws of its former
            # life. And each has a stream of its own, so that no other node's draws depend on it.
            rng=random.Random(f"node {self.seed} {serial}"),
            now=self.now,
        )
        process = self.PROCESS(serial, number, name, machine, address, node, self.now)
        self.at[machine] = process
        before = self.numbered.get(number)
        if not (second and before is not None and before.running):
            self.numbered[number] = process
        self.processes.append(process)
        # Before the first effects, which checks can attribute only to a process that they know.
        for check in self.checks:
            check.started(process)
        self._begin(process)
        return process

    def _begin(self, process: Process) -> None:
        self._carry_out(process, process.node.start(self._hosts(process.number), self.now))

    def end(self, process: Process, *, silent: bool = False) -> None:
        """End *process* as kill -9 does or, if *silent*, as a loss of power does."""
        if not process.running:
            return
        process.life = Life.ENDED
        del self.at[process.machine]
        if self.numbered[process.number] is process:
            # A twin that still runs is the process of that number now.
            successors = (other for other in self.running if other.number == process.number)
            self.numbered[process.number] = next(successors, process)
        if silent:
            self.network.silence(process.machine)
        else:
            self.exchange.break_off(process)
        process.answering.clear()  # last, because the callers learn of the end from it
        for check in self.checks:
            check.ended(process)

    def revive(self, process: Process) -> None:
        """Continue an ended process from its state, as a machine restored from a snapshot does."""
        assert not process.running
        process.life = Life.RUNNING
        # What had arrived was lost with the machine, and so were its connections. A wake-up from
        # before is void: `_woken` compares.
        process.inbox.clear()
        process.peers.clear()
        process.wakes_at = None
        self.at[process.machine] = process
        self.network.connect(process.machine)
        for check in self.checks:
            check.started(process)
        self._advance(process)

    def pause(self, process: Process) -> None:
        """Stop *process* as SIGSTOP does."""
        if process.life is Life.RUNNING:
            process.life = Life.PAUSED

    def resume(self, process: Process) -> None:
        """Continue *process*: like the driver, handle the messages that waited, then the timers."""
        if process.life is not Life.PAUSED:
            return
        process.life = Life.RUNNING
        inbox, process.inbox = process.inbox, []
        for message in inbox:
            if process.life is Life.RUNNING:
                self._receive(process, message)
        if process.life is Life.RUNNING:
            self._advance(process)

    def do(self, process: Process, act: Callable[[Node, int], list[Effect]]) -> None:
        """Make an operator's call *act* on the node, and carry out its effects."""
        if process.running:
            self._carry_out(process, act(process.node, process.time(self.now)))

    def give(self, process: Process, message: Input) -> None:
        """Deliver *message* to *process*: late if it is slow, after its pause if it is paused."""
        if process.life is Life.RUNNING and not process.slow_us:  # mostly
            self._receive(process, message)
        elif not process.running:
            return
        elif process.slow_us:
            self.push(self.now + process.slow_us, self._given_late, (process, message))
        else:
            self._take(process, message)

    def _given_late(self, argument: tuple[Process, Input]) -> None:
        self._take(*argument)

    def _take(self, process: Process, message: Input) -> None:
        if process.life is Life.RUNNING:
            self._receive(process, message)
        elif process.life is Life.PAUSED:
            process.inbox.append(message)

    def _receive(self, process: Process, message: Input) -> None:
        # Before the node acts, because the facts that follow rest on this input.
        for check in self.checks.inputs:
            check.input(process, message)
        self._carry_out(process, process.node.receive(message, process.time(self.now)))

    def _hosts(self, number: int) -> list[Address]:
        listed = self.hosts_of.get(number)
        if listed is None:
            listed = tuple(range(self.plan.seeds or self.plan.nodes))
        return [address_of(machine) for machine in listed]

    # The effects of a node.

    def _carry_out(self, process: Process, effects: list[Effect]) -> None:
        changed: list[str] = []
        for effect in effects:
            kind = type(effect)
            if kind is fx.CallPeer:
                self.exchange.call(process, effect)  # type: ignore[arg-type]
            elif kind is fx.AnswerPeer:
                self.exchange.answer(process, effect)  # type: ignore[arg-type]
            else:
                self._fact(process, effect)
                if kind is fx.StatusChanged:
                    changed.append(effect.member.name)  # type: ignore[union-attr]
        # After all facts of the call: in the product, too, the ring follows what changes together
        # as a whole.
        if changed:
            for check in self.checks.facts:
                check.members_changed(process, changed)
        deadline = process.node.next_deadline
        if deadline is not None and process.running:
            at = process.world_time(deadline) + process.slow_us
            # A later deadline needs no event: the wake-up that is pending finds it.
            if process.wakes_at is None or at < process.wakes_at:
                process.wakes_at = at
                # A deadline may be past after a pause.
                self.push(max(at, self.now), self._woken, (process, at))

    def _woken(self, argument: tuple[Process, int]) -> None:
        process, at = argument
        # A sooner wake-up has replaced this one, which stays on the heap.
        if process.wakes_at != at:
            return
        process.wakes_at = None
        if process.life is not Life.RUNNING:  # a paused process acts on its timers when it resumes
            return
        deadline = process.node.next_deadline
        if deadline is not None:
            later = process.world_time(deadline) + process.slow_us
            if later > self.now:  # this deadline was met or cancelled meanwhile
                process.wakes_at = later
                self.push(later, self._woken, (process, later))
                return
        self._advance(process)

    def _advance(self, process: Process) -> None:
        self.trace.event(self.now, WOKEN, process.serial, 0)
        self._carry_out(process, process.node.advance(process.time(self.now)))

    def _fact(self, process: Process, effect: Effect) -> None:
        self.trace.fact(self.now, process, effect)
        for check in self.checks.facts:
            check.fact(process, effect)
        # An event of its own: a node must not be called while its effects are being carried out.
        if isinstance(effect, fx.HostsWanted):
            hosts = self._hosts(process.number)
            self.push(self.now, self._hosts_read, (process, hosts))
        # Only after the other effects of this call, which may be its last messages.
        elif isinstance(effect, fx.Evicted) or (isinstance(effect, fx.NameTaken) and effect.lost):
            self.push(self.now, self.end, process)

    def _hosts_read(self, argument: tuple[Process, list[Address]]) -> None:
        process, hosts = argument
        self.do(process, lambda node, now: node.hosts_read(hosts, now))

    def transmit(self, a: int, b: int, action: Callable[[Any], None], argument: object) -> None:
        """Call *action* with *argument* when a message from *a* arrives at *b*, if it does."""
        now = self.now
        delays_us = self.network.delays_us(a, b, now)
        for delay_us in delays_us:
            self._pushed += 1
            # As `push`, but without a call for every message.
            heapq.heappush(self._events, (now + delay_us, self._pushed, action, argument))
        # Also for a message that is lost: it has no delays.
        for check in self.checks.messages:
            check.message(a, b, action.__name__.strip("_"), argument, delays_us)

    # What checks and reports read.

    def disturb(self, numbers: Iterable[int]) -> None:
        """Note that a fault on these nodes of the plan has begun."""
        self.disturbed.update(numbers)

    def leave_alone(self, numbers: Iterable[int]) -> None:
        """Note that a fault on these nodes of the plan has ended."""
        for number in numbers:
            self.disturbed[number] -= 1
            if self.disturbed[number] <= 0:
                del self.disturbed[number]  # a count of 0 would still be in the counter
                self.quiet_since[number] = self.now

    def left_alone_for_us(self, process: Process) -> int:
        """Return for how long no fault has affected *process*; 0 while one does."""
        if process.number in self.disturbed:
            return 0
        return self.now - max(process.started_at, self.quiet_since.get(process.number, 0))

    def converged(self) -> bool:
        """Return whether all that run see exactly each other alive, with one checksum."""
        found = list(self.at.values())
        # This is called after each fact, and mostly the first few checksums differ already.
        if any(o.node.members.checksum != found[0].node.members.checksum for o in found):
            return False
        names = {process.name for process in found}
        return all(
            process.node.ready and process.node.members.pingable_count == len(names) - 1
            for process in found
        )
