"""One schedule: nodes, clients and a store on a heap of events, with all chance from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from ringpop_py.slotlog.slotlog import Stage
from ringpop_sim.slotlog.clients import LogClient
from ringpop_sim.slotlog.process import SERVED, LogProcess
from ringpop_sim.slotlog.road import Odds, Road
from ringpop_sim.slotlog.shelf import Shelf
from ringpop_sim.slotlog.truth import ERROR, LIVE, LogBroken, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.slotlog.effects import Request
    from ringpop_py.slotlog.slots import Claim
    from ringpop_sim.slotlog.shelf import Checkpoint
    from ringpop_sim.slotlog.truth import Op

FAULTY_UNTIL: Final = 500
"""From this instant on nothing fails, except what is already on its way."""
CALM_EVENTS_MAX: Final = 3000
"""Within this many events after that, the node that should own the partition must own it."""
TRACE_STEPS: Final = 60
CLIENTS: Final = 3
SIZES: Final = (3, 5)
HARM_SHARE: Final = 0.3
"""The share of schedules in which something in the store is damaged."""


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The result of a schedule.

    Attributes:
        trace: its last steps, if a trace was asked for.
    """

    seed: int
    nodes: int
    event_count: int
    epoch_count: int
    written_count: int
    broken: LogBroken | None
    trace: tuple[str, ...] = ()


@dataclass(slots=True)
class _Node:
    name: str
    life: int = 0
    process: LogProcess | None = None
    contrary: bool = False
    heir: int = 0


class _Agenda:
    """A heap of actions, each due at an instant; actions of one instant run in order."""

    def __init__(self) -> None:
        self.now = 0
        self._pushed = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0

    def after(self, delay: int, what: Callable[[], None]) -> None:
        """Call *what* after *delay*; calls for the same instant run in the order of requests."""
        self._pushed += 1
        heappush(self._heap, (self.now + delay, self._pushed, what))

    def _step(self) -> None:
        self.now, _, what = heappop(self._heap)
        self._event_count += 1
        what()


class Schedule(_Agenda):
    """The world of one schedule.

    Attributes:
        calm: whether nothing fails any longer, except what is already on its way.
    """

    def __init__(self, seed: int, nodes: int | None = None, *, traced: bool = False) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.truth = Truth()
        self._seed = seed
        self.odds = Odds.drawn(self.rng)
        self._road = Road(Shelf(self.truth, self.rng), self)
        self.calm = False
        self._trace: list[tuple[int, str, object]] | None = [] if traced else None
        count = nodes or SIZES[seed % len(SIZES)]
        self._nodes = [_Node("abcdefghijklmnopqrstuvwxyz"[place]) for place in range(count)]
        self._heir = 0
        self._probe: str | None = None
        """The state of the last write, which ends the calm: not asked for, asked for, or SERVED."""
        self._probes = 0
        # Uniform over so long a time that it is early enough in `HARM_SHARE` of the schedules.
        self._harm_at = int(self.rng.random() * FAULTY_UNTIL / HARM_SHARE)
        self._clients = [LogClient(self, number, self.odds.patience) for number in range(CLIENTS)]

    def run(self) -> ScheduleOutcome:
        """Run the schedule to its end, or until an invariant breaks."""
        try:
            self._run()
        except (AssertionError, LookupError) as error:
            self.truth.breaks(ERROR, f"{type(error).__name__}: {error}")
        epochs = max((slot.epoch for slot in self.truth.first), default=0)
        return ScheduleOutcome(
            self._seed,
            len(self._nodes),
            self._event_count,
            epochs,
            len(self.truth.items),
            self.truth.broken,
            self._told(),
        )

    def _run(self) -> None:
        for node in self._nodes:
            self._start(node)
        for client in self._clients:
            self.after(5 + int(self.rng.random() * 30), client.begin)
        if self._harm_at < FAULTY_UNTIL:
            self.after(self._harm_at, self._harm)
        truth = self.truth
        while truth.broken is None and self._heap[0][0] < FAULTY_UNTIL:
            self._step()
        self.calm = True
        self.note("world", "nothing fails from here on")
        if truth.harmed:
            self._settle(self._heir, or_stopped=True)
            self.note("world", "what was damaged is repaired")
            self._road.shelf.repair()
        # A second owner has to find what the first one wrote.
        for heir in (self._heir, (self._heir + 1) % len(self._nodes)):
            self._settle(heir)
            self._drain()
        self._settle(self._heir)  # a seal that came late may have ended its epoch
        process = self._nodes[self._heir].process
        if truth.broken is None and process is not None:
            truth.ended(process.fold.items)

    def _harm(self) -> None:
        """Damage or lose something in the store."""
        if not self.calm:
            shelf = self._road.shelf
            harms = [shelf.flip, shelf.lose, shelf.lose_checkpoint, self._lose_soon]
            self.rng.choice(harms)()

    def _lose_soon(self) -> None:
        """Crash the nodes, and lose the checkpoint, when all records are next deleted."""
        self._road.loses_next = True

    def _settle(self, heir: int, *, or_stopped: bool = False) -> None:
        """Require that *heir* owns the partition within a bounded number of steps.

        With *or_stopped*, a node may say instead that it cannot, because the store is damaged.
        """
        self._heir = heir
        self._probe = None
        end = self._event_count + CALM_EVENTS_MAX
        while self.truth.broken is None and not self._settled():
            if or_stopped and any(node.process and node.process.damaged for node in self._nodes):
                return
            if self._event_count == end:
                stages = [
                    f"{node.process.label} {node.process.log.stage.name}"
                    for node in self._nodes
                    if node.process is not None
                ]
                self.truth.breaks(LIVE, f"after {CALM_EVENTS_MAX} events: {', '.join(stages)}")
                return
            self._step()

    def _settled(self) -> bool:
        process = self._nodes[self._heir].process
        if process is None or not process.online:
            return False
        # After all clients, so that this write comes after all of theirs.
        if self._probe is None and all(client.done for client in self._clients):
            self._probe = ""
            self._probes += 1
            op = (CLIENTS, self._probes)
            self.truth.begins(op)
            process.write(op, partial(self._probed, op))
        return self._probe == SERVED

    def _probed(self, op: Op, said: str) -> None:
        self._probe = said if said == SERVED else None
        if said == SERVED:
            self.truth.acknowledges(op)

    def _drain(self) -> None:
        """Let all that is on its way arrive."""
        # Fixed before the loop, because nodes push new events without end.
        ends_at = max((at for at, _, _ in self._heap), default=0)
        while self.truth.broken is None and self._heap and self._heap[0][0] <= ends_at:
            self._step()

    # Nodes.

    def _start(self, node: _Node) -> None:
        node.life += 1
        node.process = LogProcess(self, node.name, node.life)
        self.note(node.process.label, "starts")
        self.after(1 + int(self.rng.random() * 6), partial(self._tick, node, node.process))

    def _tick(self, node: _Node, process: LogProcess) -> None:
        """Do what *process* does by itself from time to time."""
        if node.process is not process:  # an event of a former life
            return
        if not self.calm and self.rng.random() < self.odds.crash:
            self._crash(node, process)
            return
        heir = self._nodes[self._heir]
        if self.calm:
            process.wants = node is heir
        else:
            self._change_mind(node, process)
            if self.rng.random() < self.odds.stall:
                self.note(process.label, "has a bad road from here on")
                process.stalled_until = self.now + 40 + int(self.rng.random() * 120)
        self._act(process, heir.name)
        self.after(3 + int(self.rng.random() * 8), partial(self._tick, node, process))

    def _crash(self, node: _Node, process: LogProcess) -> None:
        self.note(process.label, "crashes")
        node.process = None
        self.after(1 + int(self.rng.random() * 40), partial(self._start, node))

    def crash_all(self) -> None:
        """See `RoadSurroundings`."""
        for node in self._nodes:
            if node.process is not None:
                self._crash(node, node.process)

    def lives(self, process: LogProcess) -> bool:
        """See `RoadSurroundings`."""
        return any(node.process is process for node in self._nodes)

    def _change_mind(self, node: _Node, process: LogProcess) -> None:
        """Change, at random, the views of which node should own the partition."""
        rng = self.rng
        if rng.random() < 0.04:  # noqa: PLR2004 - a share
            self._heir = int(rng.random() * len(self._nodes))
        if rng.random() < 0.15:  # noqa: PLR2004 - a share
            node.contrary = rng.random() < self.odds.whim
        if rng.random() < self.odds.hears:
            node.heir = self._heir
        process.wants = (node is self._nodes[node.heir]) is not node.contrary

    def _act(self, process: LogProcess, heir: str) -> None:
        rng, odds = self.rng, self.odds
        stage = process.log.stage
        if process.snapshot_waits:
            process.put_checkpoint()
        if stage is Stage.IDLE:
            if process.wants:
                process.acquire()
            elif rng.random() < odds.follow:
                process.follow()
        elif stage is Stage.ONLINE:
            if not process.wants and (self.calm or rng.random() < odds.leaves):
                process.release(heir)
            elif rng.random() < odds.checkpoint:
                process.checkpoint(whole=rng.random() < odds.whole, lag=rng.random() < 0.4)  # noqa: PLR2004
        elif stage is Stage.REPLAYING and process.wants and rng.random() < 0.3:  # noqa: PLR2004
            process.acquire()
        elif not self.calm and rng.random() < odds.drop:
            process.drop()

    def may_take(self, process: LogProcess, claim: Claim) -> bool:
        """See `ProcessSurroundings`. It is right in the calm; before that, it is a node's view."""
        # A wrong view may cost progress, but must never cost data.
        if not self.calm and self.rng.random() < self.odds.takes:
            return True
        for node in self._nodes:
            owner = node.process
            if owner is not None and owner is not process and owner.holds(claim):
                return False
        return True

    def some_process(self) -> LogProcess | None:
        """See `ClientSurroundings`. Mostly a node that serves, so that much is written."""
        serving = [node for node in self._nodes if node.process is not None and node.process.online]
        nodes = serving if serving and self.rng.random() < 0.7 else self._nodes  # noqa: PLR2004
        return nodes[int(self.rng.random() * len(nodes))].process

    def ask(self, process: LogProcess, request: Request, body: Checkpoint | None) -> None:
        """See `ProcessSurroundings`."""
        self._road.ask(process, request, body)

    # The trace.

    def note(self, who: str, what: object) -> None:
        """Add *what* to the trace, if there is one."""
        if self._trace is not None:
            self._trace.append((self.now, who, what))

    def _told(self) -> tuple[str, ...]:
        if self._trace is None:
            return ()
        return tuple(f"{at:5} {who:8} {what}" for at, who, what in self._trace[-TRACE_STEPS:])


def run_schedule(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed*; without *nodes*, the number of nodes follows from the seed."""
    return Schedule(seed, nodes, traced=traced).run()
