"""Nodes, clients and a store on a heap of events; and how it all has to end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.state.journal.recovery import Stage
from ringpop_sim.state.journal.clients import Habits, LogClient
from ringpop_sim.state.journal.odds import Odds
from ringpop_sim.state.journal.owners import SERVED, AskedWrite
from ringpop_sim.state.journal.process import JournalProcess, JournalSurroundings
from ringpop_sim.state.journal.promises import LIVE, REST
from ringpop_sim.state.journal.road import Road
from ringpop_sim.state.journal.shelf import Shelf
from ringpop_sim.state.journal.truth import Truth

if TYPE_CHECKING:
    from ringpop_py.state.journal import effects as fx
    from ringpop_py.state.journal.records import Claim
    from ringpop_sim.state.journal.owners import Checkpoint
    from ringpop_sim.state.journal.process import Line, Part
    from ringpop_sim.state.journal.promises import Op

READERS: Final = 2
"""How many of the clients only read."""
READS: Final = 20
BACK_OFF: Final = 40
"""How long a client waits after a refusal; it takes many steps until a partition has an owner."""
CALM_EVENTS_MAX: Final = 6000
"""The number of events after the faults within which the right nodes own the partitions."""


@dataclass(slots=True, eq=False)
class Node:
    """A node through all its lives.

    Attributes:
        contrary: by partition, whether the node is of another opinion than its view.
        desired: by partition, its view of which node should own it.
    """

    name: str
    life: int = 0
    process: JournalProcess | None = None
    contrary: list[bool] = field(default_factory=list)
    desired: list[int] = field(default_factory=list)


class JournalWorld(JournalSurroundings):
    """The world of a schedule; a subclass says what happens in it.

    Attributes:
        desired: by partition, the place of the node that should own it.
        clients: of which the schedule begins all.
    """

    def __init__(
        self,
        seed: int,
        nodes: int,
        partitions: int,
        clients: int,
        *,
        traced: bool = False,
    ) -> None:
        super().__init__(seed, traced=traced)
        self.truth = Truth(partitions)
        self.odds = Odds.drawn(self.rng)
        self.road = Road(Shelf(self.truth, self.rng), self)
        self.desired = [number % nodes for number in range(partitions)]
        names = "abcdefghijklmnopqrstuvwxyz"[:nodes]
        self.nodes = [Node(name, desired=[*self.desired]) for name in names]
        habits = Habits(self.odds.patience, pause=self.odds.pause, back_off=BACK_OFF)
        habits = replace(habits, conditions=seed % 4 == 3)  # noqa: PLR2004 - a share
        self.clients = [
            LogClient(self, number, habits.as_reader(READS) if number < READERS else habits)
            for number in range(clients)
        ]
        self._probes: dict[int, str] = {}
        """By partition, the state of the last write, which ends the calm: asked for, or SERVED."""
        self._probe_count = 0
        self._resting = False

    @property
    def size(self) -> int:
        return len(self.nodes)

    def counts(self) -> dict[str, int]:
        partitions = self.truth.partitions
        unmet = sum(len(partition.unmet) for partition in partitions)
        operations = sum(len(partition.items) for partition in partitions)
        return {**super().counts(), "unmet": unmet, "operations": operations}

    def act(self, part: Part) -> None:
        """Do what a node does for *part* on its own when nothing fails."""
        if part.reclaiming:
            return
        if part.online:
            if not part.wants:
                part.release(self.nodes[self.desired[part.number]].name)
        elif part.stage is Stage.IDLE and (part.wants or part.pursued):
            part.acquire()

    # The end.

    def end(self) -> None:
        self.calm = True
        self.note("world", "nothing fails from here on")
        if self.truth.harmed:
            self._settle(or_stopped=True)
            self.note("world", "what was damaged is repaired")
            self.road.shelf.repair()
        # A second owner has to find what the first one wrote.
        for _ in range(2):
            self._settle()
            self._drain()
            self.desired = [(place + 1) % len(self.nodes) for place in self.desired]
        self._settle()  # a seal that came late may have ended its epoch
        for process in [node.process for node in self.nodes if node.process is not None]:
            for name, slot in process.journal.ends.items():
                self.truth.knows(process.label, name, slot)
        if self.truth.broken is None:
            parts = self._desired_parts()
            self.truth.ended([part.fold.items for part in parts if part is not None])
        self._rest()

    def _rest(self) -> None:
        """Let nothing new begin: all that has begun has to end, and soon."""
        self._resting = True
        end = self.event_count + CALM_EVENTS_MAX
        while self.truth.broken is None and not self.is_over:
            if self.event_count == end:
                self.truth.breaks(REST, f"after {CALM_EVENTS_MAX} events something still goes on")
                return
            self.step()
        for node in self.nodes:
            under_way = node.process.under_way if node.process is not None else {}
            left = {what: count for what, count in under_way.items() if count}
            if left and self.truth.broken is None:
                self.truth.breaks(REST, f"{node.name} still has {left}")

    def _desired_parts(self) -> list[Part | None]:
        """Return each partition at the node that should own it; None if that has crashed."""
        processes = [self.nodes[place].process for place in self.desired]
        return [
            process.parts[number] if process is not None else None
            for number, process in enumerate(processes)
        ]

    def _settle(self, *, or_stopped: bool = False) -> None:
        """Require that the desired nodes own the partitions within a bounded number of steps.

        With *or_stopped*, a node may say instead that it cannot, because the store is damaged.
        """
        self._probes.clear()
        end = self.event_count + CALM_EVENTS_MAX
        while self.truth.broken is None and not self._settled():
            if or_stopped and self._stopped():
                return
            if self.event_count == end:
                open_ones = [number for number, said in self._probes.items() if said != SERVED]
                self.truth.breaks(LIVE, f"after {CALM_EVENTS_MAX} events: {open_ones}")
                return
            self.step()

    def _stopped(self) -> bool:
        processes = [node.process for node in self.nodes if node.process is not None]
        return any(
            process.damaged or any(part.damaged for part in process.parts) for process in processes
        )

    def _settled(self) -> bool:
        # After all clients, so that these writes come after all of theirs.
        if not all(client.done for client in self.clients):
            return False
        parts = self._desired_parts()
        if not all(part is not None and part.online for part in parts):
            return False
        for part in parts:
            if part is not None and part.number not in self._probes:
                self._probe(part)
        return all(self._probes.get(part.number) == SERVED for part in parts if part is not None)

    def _probe(self, part: Part) -> None:
        self._probe_count += 1
        op = (len(self.clients), self._probe_count)
        self._probes[part.number] = ""
        part.truth.begins(op)
        part.write(AskedWrite(op, partial(self._probed, part.number, op)))

    def _probed(self, number: int, op: Op, said: str) -> None:
        if said == SERVED:
            self._probes[number] = said
            self.truth.partitions[number].acknowledges(op)
        else:
            self._probes.pop(number, None)

    def _drain(self) -> None:
        """Let all that is on its way arrive."""
        # Fixed before the loop, because nodes push new events without end.
        ends_at = self.last_at
        while self.truth.broken is None and self.next_at <= ends_at:
            self.step()

    # Nodes.

    def start(self, node: Node) -> None:
        """Start *node*, for the first time or again."""
        node.life += 1
        node.process = JournalProcess(self, node.name, node.life, len(self.desired))
        node.contrary = [False] * len(self.desired)
        self.note(node.process.label, "starts")
        self.after(1 + int(self.rng.random() * 6), partial(self._tick, node, node.process))

    def _tick(self, node: Node, process: JournalProcess) -> None:
        """Do what *process* does on its own from time to time."""
        if self._resting:
            return
        self.when_awake(process, partial(self.live, node, process))
        if process.up:
            self.after(4 + int(self.rng.random() * 10), partial(self._tick, node, process))

    def live(self, node: Node, process: JournalProcess) -> None:
        """Let *process* act once."""
        for part in process.parts:
            part.wants = self.wants(node, part)
            self.act(part)

    def wants(self, node: Node, part: Part) -> bool:
        """Return whether *node* wants to own *part* when nothing fails."""
        return self.nodes[self.desired[part.number]] is node

    def crash(self, node: Node, process: JournalProcess) -> None:
        """Crash *process* of *node*, which starts again later."""
        self.note(process.label, "crashes")
        node.process, process.up = None, False
        self.after(1 + int(self.rng.random() * 40), partial(self.start, node))

    def crash_all(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                self.crash(node, node.process)

    def may_take(self, claim: Claim) -> bool:
        """See `JournalSurroundings`. In the calm, no seal takes a journal from a live node."""
        return not any(
            node.process is not None and node.process.journal.name == claim.journal
            for node in self.nodes
        )

    def some_partition(self, client: int) -> int:
        """See `JournalSurroundings`. Readers keep to one, where they find replaced owners."""
        loyal = client < READERS and self.rng.random() < 0.8  # noqa: PLR2004 - a share
        return 0 if loyal else int(self.rng.random() * len(self.desired))

    def some_server(self, partition: int, client: int) -> Part | None:
        """See `JournalSurroundings`. Mostly writers know the newest owner, and readers any.

        So there are reads where owners were replaced, and do not find out by writing.
        """
        if self.rng.random() < 0.7:  # noqa: PLR2004 - a share
            parts = [node.process.parts[partition] for node in self.nodes if node.process]
            serving = [part for part in parts if part.online]
            if serving:
                if client < READERS:
                    return serving[int(self.rng.random() * len(serving))]
                return max(serving, key=lambda part: part.position.epoch)
        process = self.nodes[int(self.rng.random() * len(self.nodes))].process
        return process.parts[partition] if process is not None else None

    def ask(self, line: Line, request: fx.Request, body: Checkpoint | None) -> None:
        self.road.ask(line, request, body)
