"""A random life of `Mailboxes`, with a keyspace that keeps count of what may have happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import (
    ActorBusy,
    BadOperation,
    ConditionFailed,
    KeyspaceError,
    OperationIdReused,
    OperationTooOld,
    OutcomeUnknown,
    PartitionUnavailable,
    StoreUnavailable,
)
from ringpop_py.base.values.operations import ACTOR_VERSION, OperationId, Outcome
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.base.values.requests import Moved
from ringpop_py.state.actors import mailboxes
from ringpop_py.state.actors.mail import Mail, MailAnswered
from ringpop_py.state.actors.mailboxes import Record

if TYPE_CHECKING:
    import random

MAILBOX_MAX: Final = 3
ACTORS_MAX: Final = 3
WAITING_MAX: Final = 7
KEYS: Final = "abcde"
WORK: Final = ("add", "add", "add", "look", "look", "fail", "bad")
MS: Final = 1_000
OTHER: Final = b"other"


def broken(old: str, new: str) -> ModuleType:
    """The module `mailboxes` with *new* in place of *old*, which occurs once."""
    source = Path(mailboxes.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"it occurs {source.count(old)} times: {old!r}"
    module = ModuleType(mailboxes.__name__)
    exec(compile(source.replace(old, new), mailboxes.__file__, "exec"), module.__dict__)  # noqa: S102
    return module


def partition_of(key: str) -> int:
    return ord(key) % 2


class Notes:
    """An actor: a list of the numbers of messages that changed it."""

    def __init__(self) -> None:
        self.state: Any = []


@dataclass(eq=False)
class Letter:
    """One sending of a message; *begun* while it is with the actor, *wrote* if it has effect."""

    mail: Mail
    work: str
    number: int
    message: Any = None
    begun: bool = False
    wrote: bool = False
    seen: list[Any] = field(default_factory=list)  # the state that was read last
    answer: Any = None


@dataclass(eq=False)
class Loop:
    """The driver's loop of one actor."""

    seat: Any
    duty: Any
    result: Any = None
    has_result: bool = False
    last: int = -1  # the last message that was begun


class Mailroom:
    """Mail comes, partitions come and go, and duties end in any order; each step is checked."""

    def __init__(self, rng: random.Random, module: ModuleType = mailboxes) -> None:
        self.rng, self.module = rng, module
        self.boxes = module.Mailboxes()
        self.kind = module.Kind("Notes", lambda _key: Notes(), MAILBOX_MAX, ACTORS_MAX)
        self.boxes.register(self.kind)
        self.now = 0
        self.letters: list[Letter] = []
        self.loops: list[Loop] = []
        self.here = {0, 1}
        self.asked: dict[int, list[int]] = {}  # since it came: when the other node asked
        self.records: dict[str, bytes] = {}
        self.effects: dict[OperationId, bytes] = {}

    def run(self, steps: int) -> None:
        acts = [self.send, self.send, self.work, self.work, self.work, self.work, self.pass_time]
        acts += [self.ask, self.lose, self.come, self.give_up]
        for _ in range(steps):
            self.rng.choice(acts)()
            self.check()
        if self.rng.random() < 0.3:
            self.fail()
        self.finish()

    # What happens.

    def send(self) -> None:
        rng, number = self.rng, len(self.letters)
        key, work, sequence, digest = rng.choice(KEYS), rng.choice(WORK), number, b""
        old = rng.choice(self.letters) if self.letters and rng.random() < 0.4 else None
        if old is not None:  # a repetition, or another message with its id
            key, work, sequence, digest = old.mail.key, old.work, old.mail.sequence, old.mail.digest
            if digest and rng.random() < 0.3:
                work, digest = "look", OTHER
        elif rng.random() < 0.5:
            digest = b"own"
        mail = Mail("k", 1, partition_of(key), "Notes", key, "s", sequence, b"\xc0", digest)
        letter = Letter(mail, work, number)
        letter.message = self.module.ActorMessage(mail, letter)
        self.letters.append(letter)
        waiting = sum(letter.message in loop.seat.mailbox for loop in self.loops)
        try:
            seat = self.boxes.receive(letter.message)
        except ActorBusy as error:
            seats = self.kind.seats
            full = key in seats and len(seats[key].mailbox) == MAILBOX_MAX
            busy = len(seats) == ACTORS_MAX and key not in seats
            assert full or busy or self.boxes.waiting_count == WAITING_MAX
            letter.answer = error
            return
        assert waiting == 0
        assert partition_of(key) == self.kind.seats[key].partition
        if seat is not None:
            assert all(loop.seat is not seat for loop in self.loops), "two loops for one actor"
            self.loops.append(loop := Loop(seat, seat.duty))
            self.go_on(loop)

    def work(self) -> None:
        if self.loops:
            self.carry_out(self.rng.choice(self.loops))

    def pass_time(self) -> None:
        self.now += self.rng.choice([1, 20, 100, 400, 2_000]) * MS

    def ask(self) -> None:
        partition = self.rng.randrange(2)
        if partition not in self.here:
            return
        may_leave = self.boxes.may_leave(partition, self.now)
        asked = self.asked.setdefault(partition, [])
        if asked and self.now - asked[-1] > mailboxes.FINISH_US_MAX:
            asked.clear()
        asked.append(self.now)
        seats = [loop for loop in self.loops if self.is_with_actor(loop, partition)]
        late = self.now - asked[0] >= mailboxes.FINISH_US_MAX
        assert may_leave == (not seats or late)
        if may_leave and self.rng.random() < 0.5:
            self.leave(partition)

    def lose(self) -> None:
        if self.here and self.rng.random() < 0.2:
            self.leave(self.rng.choice(sorted(self.here)))

    def leave(self, partition: int) -> None:
        self.here.discard(partition)
        self.asked.pop(partition, None)
        why = self.rng.choice([Moved([partition]), PartitionUnavailable("it has left")])
        self.answered(self.boxes.lost(partition, why))
        for letter in self.open():
            at_work = any(letter.message is self.message_of(loop) for loop in self.loops)
            assert letter.mail.partition != partition or at_work, "it waits for an actor that left"

    def come(self) -> None:
        for partition in sorted({0, 1} - self.here):
            for letter in self.rng.sample(self.letters, min(2, len(self.letters))):
                if letter.mail.partition == partition and letter.work == "add":
                    self.run_elsewhere(letter.mail, letter.number)
            if self.rng.random() < 0.6:
                self.here.add(partition)

    def run_elsewhere(self, mail: Mail, number: int) -> None:
        record = Record.of(self.records.get(mail.key))
        if mail.id in self.effects or record.answer_to(mail) is not None:
            return
        state = [*decode_value("msgpack", record.state or b"\x90"), number]
        packed = encode_value("msgpack", state)
        ran = mailboxes.Ran(state, packed, packed, {})
        after, _ = record.followed_by(ran, mail)
        assert after.packed is not None
        self.records[mail.key], self.effects[mail.id] = after.packed, ran.reply

    def give_up(self) -> None:
        found = self.open()
        if found and self.rng.random() < 0.5:
            self.rng.choice(found).message.abandoned = True

    def fail(self) -> None:
        self.answered(self.boxes.fail("a bug"))
        for loop in self.loops:
            self.answered(self.boxes.cancelled(loop.seat))
        self.loops.clear()
        try:
            self.boxes.receive(self.letters[0].message)
        except PartitionUnavailable:
            return
        raise AssertionError("a node that has failed goes on")

    def finish(self) -> None:
        for _ in range(10_000):
            if not self.loops:
                break
            self.now += 10 * MS
            self.work()
            self.check()
        assert not self.loops
        assert not self.open()
        assert (self.boxes.waiting_count, self.boxes.working_count) == (0, 0)

    # The driver.

    def carry_out(self, loop: Loop) -> None:
        duty, module = loop.duty, self.module
        if isinstance(duty, int):
            if self.now >= duty:
                self.go_on(loop)
            return
        if not loop.has_result:  # others may act between a result and its return
            letter = duty.message.answered
            result_of = {
                module.Read: self.read,
                module.RunMessage: self.give,
                module.Save: self.save,
            }
            loop.result, loop.has_result = result_of[type(duty)](loop, letter), True
            return
        loop.has_result = False
        self.take_up(loop, self.boxes.done(loop.seat, loop.result))

    def go_on(self, loop: Loop) -> None:
        partition = loop.seat.partition
        duty = self.boxes.next(loop.seat, self.now)
        asked = self.asked.get(partition)
        held_until = asked[-1] + mailboxes.HOLD_US if asked else 0
        if duty is None:
            assert not loop.seat.mailbox
            self.loops.remove(loop)
        elif isinstance(duty, int):
            assert duty == held_until > self.now
            loop.duty = duty
        else:
            assert self.now >= held_until, "a message begins though its partition is to leave"
            self.take_up(loop, duty)

    def take_up(self, loop: Loop, duty: Any) -> None:  # noqa: ANN401 - of either module
        loop.duty = duty
        if isinstance(duty, self.module.AnswerMail):
            self.answered(duty)
            if isinstance(duty.answer, Moved) or getattr(duty.answer, "passes", False):
                assert loop.seat.gone is not None, "a copy that may be old stays"
            self.go_on(loop)
            return
        letter = duty.message.answered
        assert letter.answer is None
        if not letter.begun:
            assert not duty.message.abandoned, "nobody waits for it"
            assert letter.number > loop.last, "not in the order of arrival"
            assert not any(
                self.message_of(other) is duty.message for other in self.loops if other is not loop
            )
            letter.begun, loop.last = True, letter.number
        if isinstance(duty, self.module.RunMessage):
            assert loop.seat.gone is None, "the actor has left"
            record = Record.of(loop.seat.record.packed)
            assert letter.mail.id not in record.replies, "it took effect before"

    def read(self, _loop: Loop, letter: Letter) -> object:
        if (why := self.trouble(letter)) is not None:
            return why
        packed = self.records.get(letter.mail.key)
        letter.seen = decode_value("msgpack", packed)["state"] if packed is not None else []
        return packed

    def give(self, loop: Loop, letter: Letter) -> object:
        actor = loop.seat.awake()
        if letter.work != "look":
            actor.state.append(letter.number)
        if letter.work == "fail":
            return MailAnswered(None, "Boom", "as always")
        if letter.work == "bad":
            return BadOperation("no value")
        packed = encode_value("msgpack", actor.state)
        return self.module.Ran(list(actor.state), packed, packed, {})

    def save(self, loop: Loop, letter: Letter) -> object:
        if (why := self.trouble(letter)) is not None:
            return why
        mail, duty = letter.mail, loop.duty
        if mail.id in self.effects:
            return Outcome((None,), repeated=True)
        before = Record.of(self.records.get(mail.key))
        if duty.value[ACTOR_VERSION] != before.version + 1:
            return ConditionFailed("gone on elsewhere")
        state = decode_value("msgpack", before.state or b"\x90")
        assert duty.value["state"] == [*state, letter.number], "its state is not what was saved"
        assert letter.work == "add"
        self.records[mail.key], self.effects[mail.id] = duty.record.packed, duty.reply
        letter.wrote = True
        return OutcomeUnknown("slow") if self.rng.random() < 0.1 else Outcome((None,))

    def trouble(self, letter: Letter) -> object:
        partition = letter.mail.partition
        if partition not in self.here:
            return self.rng.choice([Moved([partition]), PartitionUnavailable("not here")])
        return StoreUnavailable("slow") if self.rng.random() < 0.05 else None

    # What must hold.

    def answered(self, answer: mailboxes.AnswerMail) -> None:
        for message in answer.messages:
            letter, result = message.answered, answer.answer
            assert letter.answer is None, "it was answered before"
            letter.answer = result
            if isinstance(result, MailAnswered):
                self.check_reply(letter, result)
            elif isinstance(result, OperationIdReused):
                assert letter.mail.digest
            elif isinstance(result, OperationTooOld):
                assert letter.mail.id in self.effects
            elif isinstance(result, BadOperation):
                assert letter.work == "bad"
            elif isinstance(result, KeyspaceError):
                assert not (letter.wrote and result.took_effect == "no")

    def check_reply(self, letter: Letter, result: MailAnswered) -> None:
        effect = self.effects.get(letter.mail.id)
        if result.reply is None:
            assert letter.work == "fail"
            assert not letter.wrote
        elif letter.mail.digest == OTHER:
            assert result.reply != effect, "the reply to another message"
        elif effect is not None:
            assert result.reply == effect, "another reply than the first time"
        else:
            assert letter.work == "look"
            assert decode_value("msgpack", result.reply) == letter.seen, "not the state of now"

    def check(self) -> None:
        seats = self.kind.seats
        assert len(seats) <= ACTORS_MAX
        assert all(len(seat.mailbox) <= MAILBOX_MAX for seat in seats.values())
        waiting = sum(len(loop.seat.mailbox) for loop in self.loops)
        assert self.boxes.waiting_count == waiting <= WAITING_MAX
        assert self.boxes.working_count == len(self.loops)
        for loop in self.loops:
            assert loop.seat.gone is not None or seats.get(loop.seat.key) is loop.seat
        for letter in self.open():
            held = [loop for loop in self.loops if letter.message in loop.seat.mailbox]
            held += [loop for loop in self.loops if self.message_of(loop) is letter.message]
            assert len(held) == 1, "it is lost, or there twice"

    def open(self) -> list[Letter]:
        """Those for whose answer somebody waits."""
        return [
            letter
            for letter in self.letters
            if letter.answer is None and not letter.message.abandoned
        ]

    def message_of(self, loop: Loop) -> object:
        return getattr(loop.duty, "message", None)

    def is_with_actor(self, loop: Loop, partition: int) -> bool:
        gone = loop.seat.gone is not None
        return self.message_of(loop) is not None and loop.seat.partition == partition and not gone
