"""Small worlds in which nothing is left to chance: a scene says what happens, one step a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.state.journal.effects import PutSlot, StoreAnswer
from ringpop_py.state.journal.records import Seal
from ringpop_sim.state.journal.owners import SERVED, AskedWrite
from ringpop_sim.state.journal.promises import LIVE
from ringpop_sim.state.journal.road import Road
from ringpop_sim.state.journal.world import JournalWorld

if TYPE_CHECKING:
    from ringpop_py.state.journal import effects as fx
    from ringpop_py.state.journal.records import Claim
    from ringpop_sim.state.journal.process import JournalProcess, Line, Part
    from ringpop_sim.state.journal.promises import Op
    from ringpop_sim.state.journal.shelf import Shelf
    from ringpop_sim.state.journal.world import Node

NODES: Final = 2
PARTITIONS: Final = 2
WAIT_EVENTS_MAX: Final = 3000
"""The number of events within which a scene's condition has to come true."""
TRY_EVENTS_MAX: Final = 60
PAUSE_EVENTS: Final = 20
AWAY: Final = 150
"""How long a node that is sent away handles no event."""
CLIENT: Final = 9

Scene = Callable[["Script"], None]


@dataclass(slots=True, eq=False)
class Gate:
    """Holds up the first request of *node* that *matches*, or the first reply to one."""

    node: str
    matches: Callable[[Any], bool]
    _go_on: Callable[[], None] | None = None
    _fail: Callable[[], None] | None = None

    def stops(self, sender: Line | None, request: fx.Request) -> bool:
        """Return whether the gate holds up *request* of *sender*."""
        if self.has() or sender is None or sender.process.name != self.node:
            return False
        return self.matches(request)

    def keep(self, go_on: Callable[[], None], fail: Callable[[], None]) -> None:
        """Hold up a call, which *go_on* carries out, and which *fail* reports as failed."""
        self._go_on, self._fail = go_on, fail

    def has(self) -> bool:
        """Return whether something was held up."""
        return self._go_on is not None

    def open(self) -> None:
        """Carry out the call that is held up."""
        assert self._go_on is not None
        self._go_on()

    def fail(self) -> None:
        """Report the call that is held up as failed."""
        assert self._fail is not None
        self._fail()


class ScriptRoad(Road):
    """A road with gates on the way to the store and on the way back, and without other faults."""

    def __init__(self, shelf: Shelf, world: Script) -> None:
        super().__init__(shelf, world)
        self.there: list[Gate] = []
        self.back: list[Gate] = []

    def carry(self, delay: int, sender: Any, request: fx.Request, body: Any) -> None:  # noqa: ANN401
        for gate in self.there:
            if gate.stops(sender, request):
                go_on = partial(super().carry, 1, sender, request, body)
                gate.keep(go_on, partial(self.fail, sender, request, 0))
                return
        super().carry(delay, sender, request, body)

    def answer(self, sender: Any, request: Any, reply: Any) -> None:  # noqa: ANN401
        answer = super().answer
        for gate in self.back:
            if gate.stops(sender, request):
                failed = partial(answer, sender, request, StoreAnswer.FAILED)
                gate.keep(partial(answer, sender, request, reply), failed)
                return
        answer(sender, request, reply)


class Script(JournalWorld):
    """Plays *scene*, without faults but those of the scene.

    Attributes:
        dead: the nodes that others believe to be dead.
        true: the nodes that want to own what they own, whatever others want.
        disturb: called before each event of the scene, with its number.
    """

    road: ScriptRoad

    def __init__(
        self,
        scene: Scene,
        disturb: Callable[[Script, int], None] = lambda _script, _event: None,
        *,
        traced: bool = False,
    ) -> None:
        super().__init__(0, NODES, PARTITIONS, 0, traced=traced)
        self.road = ScriptRoad(self.road.shelf, self)
        self.dead: set[str] = set()
        self.true: set[str] = set()
        self.disturb = disturb
        self.scene_count = 0
        self._scene = scene
        self._op = 0

    def play(self) -> None:
        self.calm = True  # for the road: the scene has all the faults
        self.desired = [0] * len(self.desired)
        for node in self.nodes:
            self.start(node)
        self._scene(self)
        self.scene_count = self.event_count
        self.dead.clear()
        self.true.clear()

    def wants(self, node: Node, part: Part) -> bool:
        return (node.name in self.true and part.online) or super().wants(node, part)

    def step(self) -> None:
        if not self.scene_count:
            self.disturb(self, self.event_count)
        super().step()

    def may_take(self, claim: Claim) -> bool:
        return claim.owner in self.dead or super().may_take(claim)

    # What a scene waits for, and asks for.

    def until(self, condition: Callable[[], bool], most: int = WAIT_EVENTS_MAX) -> bool:
        """Go on until *condition* holds; return whether it does after at most so many events."""
        end = self.event_count + most
        while not condition():
            if self.event_count == end or self.truth.broken is not None:
                return False
            self.step()
        return True

    def needs(self, condition: Callable[[], bool]) -> None:
        """Go on until *condition* holds; it must."""
        if not self.until(condition):
            self.truth.breaks(LIVE, f"the scene waits in vain after {self.event_count} events")

    def node(self, name: str) -> Node:
        """Return the node *name*."""
        return next(node for node in self.nodes if node.name == name)

    def process(self, name: str) -> JournalProcess:
        """Return the process of the node *name*, as soon as there is one."""
        node = self.node(name)
        self.needs(lambda: node.process is not None)
        assert node.process is not None
        return node.process

    def server(self, partition: int) -> Part | None:
        """Return *partition* at its newest owner that is up."""
        parts = [node.process.parts[partition] for node in self.nodes if node.process is not None]
        serving = [part for part in parts if part.online]
        return max(serving, key=lambda part: part.position.epoch) if serving else None

    def own(self, partition: int, name: str) -> None:
        """Let the node *name* own *partition*."""
        node = self.node(name)
        place = self.nodes.index(node)

        def owned() -> bool:
            if name not in self.dead:  # a disturbance may have made another node the desired one
                self.desired[partition] = place
            return node.process is not None and node.process.parts[partition].online

        self.needs(owned)

    def steal(self, partition: int, name: str) -> None:
        """Let *name* own *partition*, although its present owner lives and does not let go."""
        self.contend(partition, name)
        self.own(partition, name)
        self.dead.clear()

    def contend(self, partition: int, name: str) -> None:
        """Let *name* begin to do so."""
        owners = [node.name for node in self.nodes if node.name != name]
        self.dead.update(owners)
        self.true.update(owners)
        self.desired[partition] = self.nodes.index(self.node(name))

    def write(self, partition: int) -> None:
        """Write to *partition*, wherever it is served, until that is acknowledged."""
        self._op += 1
        op = (CLIENT, self._op)
        end = self.event_count + WAIT_EVENTS_MAX
        said: list[str] = []
        self.truth.partitions[partition].begins(op)
        while SERVED not in said and self.truth.broken is None:
            if self.event_count > end:
                self.truth.breaks(LIVE, f"{op} is not acknowledged in {WAIT_EVENTS_MAX} events")
            server = self.server(partition)
            if server is not None:
                self._try(server, op, said)
            self.until(lambda: SERVED in said, TRY_EVENTS_MAX)

    def _try(self, part: Part, op: Op, said: list[str]) -> None:
        def done(answer: str) -> None:
            said.append(answer)
            if answer == SERVED:
                part.truth.acknowledges(op)

        part.write(AskedWrite(op, done))

    def begin_write(self, partition: int, name: str) -> None:
        """Begin to write to *partition* at the node *name*."""
        self._op += 1
        op = (CLIENT, self._op)
        part = self.process(name).parts[partition]
        part.truth.begins(op)
        self._try(part, op, [])

    def read(self, partition: int, name: str) -> None:
        """Begin to read *partition* at the node *name*."""
        part = self.process(name).parts[partition]
        part.read(part.truth.sure_count, lambda _said: None)

    def checkpoint(self, partition: int, *, whole: bool = True) -> None:
        """Put a checkpoint of *partition*, whoever owns it, and wait for the end of that."""
        self.needs(lambda: self.server(partition) is not None)
        part = self.server(partition)
        if part is not None:
            part.checkpoint(whole=whole, lag=False)
            self.until(lambda: not part.snapshots.putting, TRY_EVENTS_MAX)

    def trim(self, name: str) -> None:
        """Let the node *name* trim its journal."""
        process = self.process(name)
        process.trim()
        self.until(lambda: not process.journal.trimming, TRY_EVENTS_MAX)

    def sweep(self, name: str, journal: str) -> None:
        """Let the node *name* trim *journal*."""
        process = self.process(name)
        process.sweep(journal)
        self.until(lambda: not process.sweeping, TRY_EVENTS_MAX)

    # Faults.

    def send_away(self, name: str) -> None:
        """Let the node *name* handle no event for a while, and others take it for dead."""
        process = self.node(name).process
        if process is None:
            return
        self.note(process.label, "handles no event from here on")
        process.frozen_until = self.now + AWAY
        self.dead.add(name)
        self.after(AWAY, lambda: self.dead.discard(name))

    def requests(self, name: str, matches: Callable[[Any], bool]) -> Gate:
        """Hold up the next request of the node *name* that *matches*."""
        self.road.there.append(Gate(name, matches))
        return self.road.there[-1]

    def answers(self, name: str, matches: Callable[[Any], bool]) -> Gate:
        """Hold up the next answer to the node *name* whose request *matches*."""
        self.road.back.append(Gate(name, matches))
        return self.road.back[-1]

    def late_seal(self, partition: int, name: str) -> Gate:
        """Let *name* try to seal the journal of *partition*, and then stop; its seal is late."""
        seal = self.requests(name, _seals)
        former = self.desired[partition]
        self.contend(partition, name)
        self.needs(seal.has)
        self.desired[partition] = former
        self.process(name).parts[partition].drop()
        self.dead.clear()
        return seal

    def passes(self) -> None:
        """Let a while pass."""
        self.until(lambda: False, PAUSE_EVENTS)


def _seals(request: fx.Request) -> bool:
    return isinstance(request, PutSlot) and isinstance(request.record, Seal)
