"""One schedule: nodes, clients and a store on a heap of events, with all chance from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.slotlog.slotlog import Stage
from ringpop_sim.schedules.clients import Habits, LogClient
from ringpop_sim.schedules.odds import Odds
from ringpop_sim.schedules.owners import SERVED
from ringpop_sim.schedules.sweep import Checker, ScheduleOutcome
from ringpop_sim.schedules.truth import ERROR, LIVE
from ringpop_sim.schedules.world import World
from ringpop_sim.slotlog.process import LogProcess
from ringpop_sim.slotlog.road import LogRoad
from ringpop_sim.slotlog.shelf import Shelf
from ringpop_sim.slotlog.truth import INVARIANTS, Truth

if TYPE_CHECKING:
    from ringpop_py.slotlog.effects import Request
    from ringpop_py.slotlog.slots import Claim
    from ringpop_sim.schedules.owners import Checkpoint
    from ringpop_sim.schedules.truth import Op

FAULTY_UNTIL: Final = 500
"""From this instant on nothing fails, except what is already on its way."""
CALM_EVENTS_MAX: Final = 3000
"""Within this many events after that, the node that should own the partition must own it."""
CLIENTS: Final = 3
SIZES: Final = (3, 5)
HARM_SHARE: Final = 0.3
"""The share of schedules in which something in the store is damaged."""


@dataclass(slots=True)
class _Node:
    name: str
    life: int = 0
    process: LogProcess | None = None
    contrary: bool = False
    heir: int = 0


class Schedule(World):
    """The world of one schedule."""

    def __init__(self, seed: int, nodes: int | None = None, *, traced: bool = False) -> None:
        super().__init__(traced=traced)
        self.rng = random.Random(seed)
        self.truth = Truth()
        self._seed = seed
        self.odds = Odds.drawn(self.rng)
        self._road = LogRoad(Shelf(self.truth, self.rng), self)
        count = nodes or SIZES[seed % len(SIZES)]
        self._nodes = [_Node("abcdefghijklmnopqrstuvwxyz"[place]) for place in range(count)]
        self._heir = 0
        self._probe: str | None = None
        """The state of the last write, which ends the calm: not asked for, asked for, or SERVED."""
        self._probes = 0
        # Uniform over so long a time that it is early enough in `HARM_SHARE` of the schedules.
        self._harm_at = int(self.rng.random() * FAULTY_UNTIL / HARM_SHARE)
        habits = Habits(self.odds.patience)
        self._clients = [
            LogClient(self, number, habits if number else habits.as_reader())
            for number in range(CLIENTS)
        ]

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
            self.event_count,
            {"epochs": epochs, "operations": len(self.truth.items)},
            self.truth.broken,
            self.told(),
        )

    def _run(self) -> None:
        for node in self._nodes:
            self._start(node)
        for client in self._clients:
            self.after(5 + int(self.rng.random() * 30), client.begin)
        if self._harm_at < FAULTY_UNTIL:
            self.after(self._harm_at, self._harm)
        truth = self.truth
        while truth.broken is None and self.next_at < FAULTY_UNTIL:
            self.step()
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
        end = self.event_count + CALM_EVENTS_MAX
        while self.truth.broken is None and not self._settled():
            if or_stopped and any(node.process and node.process.damaged for node in self._nodes):
                return
            if self.event_count == end:
                stages = [
                    f"{node.process.label} {node.process.log.stage.name}"
                    for node in self._nodes
                    if node.process is not None
                ]
                self.truth.breaks(LIVE, f"after {CALM_EVENTS_MAX} events: {', '.join(stages)}")
                return
            self.step()

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
        ends_at = self.last_at
        while self.truth.broken is None and self.next_at <= ends_at:
            self.step()

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
        """See `LogSurroundings`."""
        for node in self._nodes:
            if node.process is not None:
                self._crash(node, node.process)

    def lives(self, process: object) -> bool:
        """See `LogSurroundings`."""
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

    def some_partition(self, _client: int) -> int:
        """See `ClientSurroundings`. This log is of one partition."""
        return 0

    def truth_of(self, _partition: int) -> Truth:
        """See `ClientSurroundings`."""
        return self.truth

    def some_server(self, _partition: int, _client: int) -> LogProcess | None:
        """See `ClientSurroundings`. Mostly a node that serves, so that much is written."""
        serving = [node for node in self._nodes if node.process is not None and node.process.online]
        nodes = serving if serving and self.rng.random() < 0.7 else self._nodes  # noqa: PLR2004
        return nodes[int(self.rng.random() * len(nodes))].process

    def ask(self, process: LogProcess, request: Request, body: Checkpoint | None) -> None:
        """See `ProcessSurroundings`."""
        self._road.ask(process, request, body)


def run_schedule(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed*; without *nodes*, the number of nodes follows from the seed."""
    return Schedule(seed, nodes, traced=traced).run()


SLOTLOG: Final = Checker(run_schedule, INVARIANTS)
