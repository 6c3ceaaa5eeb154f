"""A random life of actors with reminders at three nodes, whose partition has a log.

The nodes use `Mailboxes`, `Rounds` and the table as `ActorHost` does. Their clocks are apart, and
that of one is wrong. What each entry does is compared with the turn that it is the effect of.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgpack

from ringpop_py.base.errors import ActorBusy, KeyspaceError, OutcomeUnknown, PartitionUnavailable
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.state.actors import mailboxes, reminders
from ringpop_py.state.actors.mail import Mail, MailAnswered
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    import random

NODES: Final = 3
KEYS: Final = "abc"
NAMES: Final = "xyz"
HOUR_MS: Final = 3_600_000
SETTLE_S: Final = 400
Patch = tuple[str, str]


def patched(source: ModuleType, patch: Patch | None, **names: object) -> ModuleType:
    """The module *source* with a patch, whose text occurs once, and with other *names* in it."""
    text = Path(str(source.__file__)).read_text(encoding="utf-8")
    if patch is not None:
        if text.count(patch[0]) != 1:
            raise ValueError(f"it occurs {text.count(patch[0])} times: {patch[0]!r}")
        text = text.replace(*patch)
    module = ModuleType(source.__name__)
    exec(compile(text, str(source.__file__), "exec"), module.__dict__)  # noqa: S102
    module.__dict__.update(names)
    return module


@dataclass(frozen=True)
class Variant:
    """A wrong form: a patch of either module, or what the driver does otherwise."""

    reminders: Patch | None = None
    mailboxes: Patch | None = None
    driver: str = ""


class Listener:
    """An actor: what has taken effect on it."""

    def __init__(self) -> None:
        self.state: Any = []


@dataclass(eq=False)
class Loop:
    """The driver's loop of one actor at a node."""

    seat: Any
    duty: Any


@dataclass(eq=False)
class Wake:
    """An actor that was woken: its next reminder is under way."""

    due_ms: int
    message: Any = None
    failed: bool = False
    turns: set[tuple[int, str]] = field(default_factory=set)


@dataclass(eq=False)
class Effect:
    """What a turn has done, if it is saved."""

    fired: Any  # the name and the `Armed` that it is the turn of; None of a message
    acts: list[tuple[str, Any]] = field(default_factory=list)  # what it armed; None: it cancelled


class Node:
    """One that may own the partition; *epoch* is that of its last claim."""

    def __init__(self, room: ReminderRoom, number: int) -> None:
        self.room, self.number = room, number
        self.epoch, self.off_ms = -1, 0
        self.begin()

    def begin(self) -> None:
        """Begin anew, as a process does."""
        self.boxes = self.room.box.Mailboxes()
        self.boxes.register(self.room.box.Kind("L", lambda _key: Listener(), 5, 10))
        self.rounds = self.room.rem.Rounds()
        self.loops: list[Loop] = []
        self.wakes: dict[tuple[int, str], Wake] = {}
        self.state: KeyedState | None = None

    def _all_ms(self) -> list[int]:
        return sorted(self.room.now_ms + node.off_ms for node in self.room.nodes)

    def set_ms(self) -> int:
        own_ms = self.room.now_ms + self.off_ms
        return own_ms if self.room.does("own clock") else max(own_ms, self._all_ms()[1])

    def due_ms(self) -> int:
        own_ms = self.room.now_ms + self.off_ms
        return own_ms if self.room.does("own clock") else min(own_ms, self._all_ms()[1])


class ReminderRoom:
    """Turns, moves and ends of nodes in any order; each entry of the log is checked."""

    def __init__(self, rng: random.Random, variant: Variant) -> None:
        self.rng, self.variant = rng, variant
        self.rem = patched(reminders, variant.reminders)
        used = ("Reminders", "Turn", "instant_before", "next_turn", "reminders_in")
        names = {name: getattr(self.rem, name) for name in used}
        self.box = patched(mailboxes, variant.mailboxes, **names)
        self.now_ms = 1_000_000_000
        self.aggregations = Aggregations()
        self.box.register_saving(self.aggregations)
        self.log: list[object] = []
        self.epoch = 0
        self.nodes: list[Node] = []
        self.nodes += [Node(self, number) for number in range(NODES)]
        self.wrong = rng.randrange(NODES)
        self.count = 0
        self.truth: dict[str, tuple[list[Any], dict[str, Any]]] = {k: ([], {}) for k in KEYS}
        self.effects: dict[int, Effect] = {}  # by the turn's ActorMessage
        self.asked: dict[bytes, str] = {}  # for each reminder by its message: the actor
        self.over: set[bytes] = set()  # those that were cancelled or replaced
        self.calm = False
        self.claim(self.nodes[0])

    def does(self, what: str) -> bool:
        return self.variant.driver == what

    @property
    def owner(self) -> Node:
        (found,) = [node for node in self.nodes if node.epoch == self.epoch]
        return found

    def run(self, steps: int) -> None:
        acts = [self.send, self.send, self.look, self.look, self.move, self.set_clock]
        acts += [self.work] * 8 + [self.pass_time] * 2
        for _ in range(steps):
            self.rng.choice(acts)()
        self.settle()

    def settle(self) -> None:
        """With right clocks and turns that do not fail, all that is due is delivered."""
        self.calm = True
        for node in self.nodes:
            node.off_ms = 0
        self.now_ms += HOUR_MS
        for _ in range(SETTLE_S):
            self.now_ms += 1_000
            self.look()
            for _ in range(30):
                self.work()
        for _, armed in self.truth.values():
            late = [row for row in armed.values() if row.at_ms < self.now_ms - 100_000]
            assert not late, "it is never delivered"
        self.check_all()

    # What happens.

    def send(self) -> None:
        self.count += 1
        key = self.rng.choice(KEYS)
        message = self.message(key, encode_value("msgpack", self.count))
        self.hand_in(self.owner, message)

    def message(self, key: str, packed: bytes, **due: Any) -> Any:  # noqa: ANN401 - of either module
        self.count += 1
        mail = Mail("k", 1, 0, "L", key, "s", self.count, packed)
        return self.box.ActorMessage(mail, self.count, **due)

    def hand_in(self, node: Node, message: Any) -> None:  # noqa: ANN401
        try:
            seat = node.boxes.receive(message)
        except ActorBusy as error:
            self.answered(node, self.box.AnswerMail([message], error))
            return
        if seat is not None:
            node.loops.append(loop := Loop(seat, None))
            self.go_on(node, loop)

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice([10, 300, 2_000, 20_000])

    def set_clock(self) -> None:
        """That of most is right to a tenth of a second."""
        for node in self.nodes:
            most = HOUR_MS if node.number == self.wrong else 0
            node.off_ms = self.rng.choice([-most, most, 0])

    def move(self) -> None:
        if self.rng.random() < 0.5:
            return
        before, after = self.owner, self.rng.choice(self.nodes)
        if self.rng.random() < 0.3:
            before.begin()
        elif self.rng.random() < 0.6 or before is after:
            self.lose(before)  # otherwise it hears of that when it writes
        if after is not before:
            self.lose(after)
        self.claim(after)

    def claim(self, node: Node) -> None:
        self.epoch += 1
        node.epoch = self.epoch
        due = self.rem.ActorDueTimes(node, expired=Counter(), name="k")
        node.state = KeyedState(msgpack.packb, self.aggregations, due=due)
        bodies = [msgpack.unpackb(packed, strict_map_key=False) for packed in self.log]
        middle = self.rng.randrange(len(bodies) + 1)
        older = KeyedState(msgpack.packb, self.aggregations)
        for body in bodies[:middle]:
            older.apply(body)
        if middle:
            node.state.restore([older.snapshot()])
        for body in bodies[middle:]:
            node.state.apply(body)

    def lose(self, node: Node) -> None:
        node.state = None
        self.answered(node, node.boxes.lost(0, PartitionUnavailable("it has left")))

    def look(self) -> None:
        node = self.owner
        state = node.state
        if state is None or not state.due.wakes:  # type: ignore[attr-defined]
            return
        wakes = state.due.wakes  # type: ignore[attr-defined]
        for actor in node.rounds.begin([(0, wakes)]):
            node.wakes[actor] = Wake(node.due_ms())
            self.next_reminder(node, actor, None)
        assert node.rounds.wait_s([(0, wakes)]) <= 1

    def next_reminder(self, node: Node, actor: tuple[int, str], after: Any) -> None:  # noqa: ANN401
        wake = node.wakes[actor]
        wake.message = self.message(actor[1][2:], b"", due_ms=wake.due_ms, turn=after)
        self.hand_in(node, wake.message)

    def woken(self, node: Node, message: Any, answer: object) -> None:  # noqa: ANN401
        """Go on as `ActorHost` does."""
        actor = (0, f"L/{message.mail.key}")
        wake = node.wakes[actor]
        assert wake.message is message
        if isinstance(answer, MailAnswered) and message.turn is not None:
            wake.failed = wake.failed or answer.error is not None
            assert message.turn not in wake.turns, "others wait for one that fails"
            wake.turns.add(message.turn)
            self.next_reminder(node, actor, message.turn)
            return
        del node.wakes[actor]
        node.rounds.ended(actor)
        if (wake.failed or not isinstance(answer, MailAnswered)) and node.state is not None:
            node.state.due.wakes.postpone(actor[1])  # type: ignore[attr-defined]

    # The driver.

    def work(self) -> None:
        loops = [(node, loop) for node in self.nodes for loop in node.loops]
        if loops:
            self.carry_out(*self.rng.choice(loops))

    def go_on(self, node: Node, loop: Loop) -> None:
        loop.duty = node.boxes.next(loop.seat, 0)
        if loop.duty is None:
            node.loops.remove(loop)
        elif isinstance(loop.duty, self.box.AnswerMail):
            self.take_up(node, loop)

    def carry_out(self, node: Node, loop: Loop) -> None:
        act = {self.box.Read: self.read, self.box.RunMessage: self.give, self.box.Save: self.save}
        try:
            result = act[type(loop.duty)](node, loop)
        except KeyspaceError as error:
            result = error
        loop.duty = node.boxes.done(loop.seat, result)
        self.take_up(node, loop)

    def take_up(self, node: Node, loop: Loop) -> None:
        if isinstance(loop.duty, self.box.AnswerMail):
            self.answered(node, loop.duty)
            self.go_on(node, loop)

    def answered(self, node: Node, answer: Any) -> None:  # noqa: ANN401
        for message in answer.messages:
            if message.due_ms is not None and node.wakes:
                self.woken(node, message, answer.answer)

    def state_of(self, node: Node) -> KeyedState:
        if node.state is not None and node.epoch != self.epoch:
            self.lose(node)
        if node.state is None:
            raise PartitionUnavailable("not here")
        return node.state

    def read(self, node: Node, loop: Loop) -> object:
        (packed,) = self.state_of(node).packed([f"L/{loop.seat.key}"])
        return packed

    def give(self, node: Node, loop: Loop) -> object:
        message, rng = loop.duty.message, self.rng
        if node.state is None:
            raise PartitionUnavailable("about to leave")
        before, fired = loop.seat.record.reminders, None
        if message.turn is not None:
            fired = message.turn[1], before[message.turn[1]]
            if not self.does("taken off at the end"):
                before = self.rem.without(before, message.turn, message.due_ms)
            if self.does("taken off first"):
                self.take_off(node, loop, before)
        agenda = self.rem.Agenda(before, node.set_ms())
        effect = self.effects[id(message)] = Effect(fired)
        for _ in range(rng.choice([0, 0, 1, 2]) if not self.calm else 0):
            self.act(agenda, effect)
        if rng.random() < 0.15 and not self.calm:
            return MailAnswered(None, "Boom", "as it happens")
        armed = agenda.armed
        if fired is not None and self.does("taken off at the end"):
            armed = self.rem.without(armed, message.turn, message.due_ms)
        actor = loop.seat.awake()
        if fired is None:
            actor.state.append([0, message.mail.sequence])
        else:
            said = self.rem.reminder_of(dict([fired]), message.turn).message
            actor.state.append([fired[1].at_ms, said])
        packed = encode_value("msgpack", actor.state)
        return self.box.Ran(list(actor.state), packed, b"\xc0", armed)

    def act(self, agenda: Any, effect: Effect) -> None:  # noqa: ANN401 - of either module
        name = self.rng.choice(NAMES)
        if self.rng.random() < 0.2:
            agenda.cancel(name)
            effect.acts.append((name, None))
            return
        self.count += 1
        in_s = self.rng.choice([0.2, 3.0, 30.0])
        every_s = self.rng.choice([None, None, None, 7.0])
        agenda.remind(name, self.count, in_s, None, every_s)
        row = agenda.armed[name]
        assert row.at_ms >= self.now_ms + in_s * 1_000, "it would come early"
        effect.acts.append((name, row))

    def save(self, node: Node, loop: Loop) -> object:
        duty, message = loop.duty, loop.duty.message
        outcome = self.write(node, loop.seat.key, duty.value, message.mail.sequence)
        if isinstance(outcome, KeyspaceError):
            return outcome
        self.check(loop.seat.key, message, duty.value)
        self.check_index(self.state_of(node), loop.seat.key)
        return OutcomeUnknown("slow") if self.rng.random() < 0.1 else outcome

    def take_off(self, node: Node, loop: Loop, left: dict[str, Any]) -> None:
        """What is wrong: an entry before the turn says that it was delivered."""
        record = loop.seat.record
        ran = self.box.Ran(decode_value("msgpack", record.state), record.state, b"\xc0", left)
        after, value = record.followed_by(ran, None)
        self.count += 1
        outcome = self.write(node, loop.seat.key, value, self.count)
        if isinstance(outcome, KeyspaceError):
            raise outcome
        loop.seat.record = after
        self.truth[loop.seat.key] = (self.truth[loop.seat.key][0], left)

    def write(self, node: Node, key: str, value: Any, number: int) -> object:  # noqa: ANN401
        state = self.state_of(node)
        write = Write("s", number, (Change(f"L/{key}", self.box.SAVE, value),))
        staged, (outcome,) = state.stage([write])
        if isinstance(outcome, KeyspaceError):
            return outcome
        body = state.expired(staged) if state.due.used else staged
        state.apply(body)
        self.log.append(msgpack.packb(body))
        return outcome

    # What must hold.

    def check(self, key: str, message: Any, value: Any) -> None:  # noqa: ANN401
        """An entry does what its turn did, to what there was before it."""
        (state, armed), effect = self.truth[key], self.effects[id(message)]
        left = dict(armed)
        assert value["state"][:-1] == state, "it is not the effect on what was there"
        if effect.fired is not None:
            name, row = effect.fired
            assert left.pop(name, None) == row, "another reminder is over"
            assert row.at_ms <= self.now_ms, "it comes early"
            if row.every_ms:
                next_ms = row.at_ms
                while next_ms <= message.due_ms:
                    next_ms += row.every_ms
                left[name] = row._replace(at_ms=next_ms)
        for name, armed_row in effect.acts:
            gone = left.pop(name, None)
            if gone is not None:
                self.over.add(gone.message)
            if armed_row is not None:
                left[name] = armed_row
                self.asked.setdefault(armed_row.message, key)
        rows = {name: self.rem.Armed(*row) for name, row in value.get("reminders", {}).items()}
        assert rows == left, "other reminders than the turn has left"
        self.truth[key] = (value["state"], rows)

    def check_index(self, state: KeyedState, key: str) -> None:
        (stored,) = state.packed([f"L/{key}"], stored=True)
        first = min((row.at_ms for row in self.truth[key][1].values()), default=None)
        assert stored is not None, "the actor has expired"
        assert self.rem.wakes_at_ms(stored) == first, "it is not found when the first one is due"

    def check_all(self) -> None:
        """Each reminder has come once, or was cancelled, or repeats."""
        for packed, key in self.asked.items():
            state, armed = self.truth[key]
            said = decode_value("msgpack", packed)
            came = Counter(at_ms for at_ms, what in state if what == said)
            assert max(came.values(), default=1) == 1, "it took effect twice"
            is_armed = any(row.message == packed for row in armed.values())
            assert came or is_armed or packed in self.over, "it is lost"
