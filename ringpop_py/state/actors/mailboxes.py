"""Actors at the node that owns them: the next step of each (pure).

The effect of a message on an actor's state is in the keyspace before the message is answered. An
actor in memory is only a copy of its record there. Each save names the version that it follows. If
an actor did not change its state, or failed, its answer is given only if its record is still the
same. So an actor that was superseded while its partition was elsewhere does no harm.

`Mailboxes` knows neither clock nor tasks. A driver runs a loop for each actor that has messages:

    while (duty := mailboxes.next(seat, now)) is not None:
        while isinstance(duty, Work):
            duty = mailboxes.done(seat, result)  # of *duty*, when it was carried out
        # give the `AnswerMail`, or wait until *duty*
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import (
    ActorBusy,
    BadOperation,
    BodyError,
    ConditionFailed,
    ConfigError,
    KeyspaceError,
    OperationIdReused,
    OperationTooOld,
    OutcomeUnknown,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.base.values.operations import ACTOR_VERSION, OperationId
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.base.values.requests import Moved, PartResult
from ringpop_py.state.actors.mail import MailAnswered, pack
from ringpop_py.state.actors.reminders import (
    Reminders,
    Turn,
    instant_before,
    next_turn,
    reminders_in,
)
from ringpop_py.state.table.aggregations import Expiring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.actors.mail import Mail
    from ringpop_py.state.table.aggregations import Absent, Aggregations

SAVE: Final = "ringpop.actor"
"""The aggregation that replaces an actor's record by the next version of it."""
REPLIES_MAX: Final = 32
"""The most replies kept with an actor's state, for repeated messages; the oldest goes first."""
REPLIES_BYTES_MAX: Final = 64 << 10
WAITING_MAX: Final = 20_000
"""The most messages in all mailboxes of a keyspace at a node; more are refused."""
HOLD_US: Final = 300_000
"""The microseconds after a node has asked for a partition in which its actors begin no message."""
FINISH_US_MAX: Final = 5_000_000
"""The most microseconds that a partition, asked for repeatedly, waits for actors at work."""
NOTHING_DUE: Final = MailAnswered(pack(None))


def register_saving(aggregations: Aggregations) -> None:
    """Register the aggregation `SAVE`."""

    def save(there: Value | Absent, record: Value) -> Expiring:
        assert isinstance(record, dict), "only this module writes it"
        version = there.get(ACTOR_VERSION) if isinstance(there, dict) else 0
        if record.get(ACTOR_VERSION) != (version + 1 if isinstance(version, int) else 1):
            raise ConditionFailed("the actor has gone on elsewhere")
        return Expiring(record, instant_before(reminders_in(record)))

    aggregations.register_own(SAVE, save)


@dataclass(slots=True)
class Record:
    """The record of an actor in the keyspace.

    Attributes:
        packed: the record as stored; None before the first save.
        digests: of the messages that *replies* belong to, if their callers chose the ids.
        reminders: those that are not over.
        state: packed; before the first save the default of the class, once that was needed.
    """

    packed: bytes | None = None
    version: int = 0
    state: bytes | None = None
    replies: dict[OperationId, bytes] = field(default_factory=dict)
    digests: dict[OperationId, bytes] = field(default_factory=dict)
    reminders: Reminders = field(default_factory=dict)

    @classmethod
    def of(cls, packed: bytes | None) -> Record:
        """Decode the record in *packed*. Raises StateDamaged."""
        if packed is None:
            return cls()
        try:
            value = decode_value("msgpack", packed)
            replies = {
                OperationId(source, number): reply for source, number, reply in value["replies"]
            }
            digests = dict(zip(replies, value.get("digests", ()), strict=False))
            version, state = value[ACTOR_VERSION], pack(value["state"])
            return cls(packed, version, state, replies, digests, reminders_in(value))
        except (BodyError, TypeError, KeyError, ValueError, AttributeError) as error:
            raise StateDamaged(
                "the key of the actor holds something other than an actor's record"
            ) from error

    def answer_to(self, mail: Mail) -> MailAnswered | OperationIdReused | None:
        """Return the answer to *mail* if its id was used before, and the reply is still known."""
        known = self.digests.get(mail.id)
        if known and mail.digest and known != mail.digest:
            return OperationIdReused(
                f"operation id {mail.id.source!r} was used before, for another message to actor "
                f"{mail.stored_under!r}; use a new id for each message"
            )
        reply = self.replies.get(mail.id)
        return None if reply is None else MailAnswered(reply)

    def followed_by(self, ran: Ran, mail: Mail | None) -> tuple[Record, Value]:
        """Return the record after *mail*, or after a reminder, and the value to save."""
        replies = {**self.replies, **({} if mail is None else {mail.id: ran.reply})}
        size = sum(map(len, replies.values()))  # the newest reply stays, however large it is
        while len(replies) > REPLIES_MAX or (size > REPLIES_BYTES_MAX and len(replies) > 1):
            size -= len(replies.pop(next(iter(replies))))
        digests = {**self.digests, **({} if mail is None else {mail.id: mail.digest})}
        digests = {known: digests.get(known, b"") for known in replies}
        rows: list[Value] = [[*known, reply] for known, reply in replies.items()]
        value = {ACTOR_VERSION: self.version + 1, "state": ran.state, "replies": rows}
        if any(digests.values()):  # mostly, callers do not choose ids
            value["digests"] = list(digests.values())
        if ran.reminders:
            value["reminders"] = {name: list(armed) for name, armed in ran.reminders.items()}
        saved = encode_value("msgpack", value)
        after = Record(saved, self.version + 1, ran.packed, replies, digests, ran.reminders)
        return after, value


@dataclass(slots=True, eq=False)
class ActorMessage:
    """A message to an actor, or the occasion to deliver its next reminder.

    Attributes:
        answered: the driver's, to wake the caller when *answer* is set.
        waits_for: the actor that is asked for the sake of this message; empty if none is.
        abandoned: the caller no longer waits: the message is skipped if it has not begun.
        failure: what the actor has raised.
        due_ms: until when the reminder is due; None if this is a message.
        turn: the reminder to deliver: before it has begun, the one after this; None if none is due.
    """

    mail: Mail
    answered: Any
    due_ms: int | None = None
    turn: Turn | None = None
    waits_for: str = ""
    abandoned: bool = False
    answer: MailAnswered | PartResult | None = None
    failure: BaseException | None = None


class Read(NamedTuple):
    """Read the actor's record; the result is its bytes, or None. *answer*, if any, waits for it."""

    message: ActorMessage
    answer: MailAnswered | None = None


class RunMessage(NamedTuple):
    """Give the message to the actor; the result is a `Ran`, or the answer if the actor failed."""

    message: ActorMessage


class Ran(NamedTuple):
    """The effect of a message on an actor: its state, plain and packed, and the packed reply."""

    state: Value
    packed: bytes
    reply: bytes
    reminders: Reminders


class Save(NamedTuple):
    """Save *value*, which is *record*; the result is the `Outcome` of the write."""

    message: ActorMessage
    reply: bytes
    record: Record
    value: Value


class AnswerMail(NamedTuple):
    """Answer all *messages* with *answer*."""

    messages: Sequence[ActorMessage]
    answer: MailAnswered | PartResult


Work = Read | RunMessage | Save
"""A duty for a message; in place of the result there may be a `PartResult` that refuses it."""
Duty = Work | AnswerMail | int
"""The next act of a loop; an int is the time until which it waits for the partition to leave."""


@dataclass(slots=True)
class Kind:
    """A registered class of actors, and its actors in memory; the one used last is last.

    Attributes:
        make: returns a new actor with that key and the default state of its class.
        mailbox_max: the most messages that wait for one actor; more are refused.
        actors_max: the most actors in memory; the one that was idle longest goes first.
        reminds: whether they have a method for reminders.
    """

    name: str
    make: Callable[[str], Any]
    mailbox_max: int
    actors_max: int
    reminds: bool = False
    seats: OrderedDict[str, Seat] = field(default_factory=OrderedDict, repr=False)


@dataclass(slots=True, eq=False)
class Seat:
    """One actor in memory and its mailbox."""

    kind: Kind
    key: str
    partition: int
    mailbox: deque[ActorMessage] = field(default_factory=deque)
    record: Record | None = None  # None until the first message was handled
    actor: Any = None  # None before its next message, if it failed or is new
    duty: Duty | None = None  # of the driver's loop, while it runs
    gone: PartResult | None = None  # why the actor is no longer here

    def awake(self) -> Any:  # noqa: ANN401 - an `Actor`, of whatever messages
        """Return the actor with its own copy of its state, as saved or as the class's default."""
        assert self.record is not None
        if self.actor is None:
            actor = self.kind.make(self.key)
            if self.record.state is None:
                self.record.state = pack(actor.state)
            # Copy the default, too: otherwise a map of the class would be shared by all its actors.
            actor.state = decode_value("msgpack", self.record.state)
            self.actor = actor
        return self.actor


class Mailboxes:
    """All actors of one keyspace that are in memory at one node.

    Attributes:
        waiting_count: messages in all mailboxes.
        working_count: actors whose loops run.
    """

    def __init__(self) -> None:
        self.waiting_count = 0
        self.working_count = 0
        self._kinds: dict[str, Kind] = {}
        self._by_partition: dict[int, dict[Seat, None]] = {}
        self._asked: dict[int, tuple[int, int]] = {}  # the first and the last time
        self._failure = ""

    def __repr__(self) -> str:
        in_memory = {name: list(kind.seats) for name, kind in self._kinds.items()}
        return f"<Mailboxes of {in_memory}, {self.waiting_count} wait, {self.working_count} work>"

    def register(self, kind: Kind) -> None:
        """Register a class of actors at this node. Raises ConfigError if the name is taken."""
        if kind.name in self._kinds:
            raise ConfigError(
                f"a class of actors {kind.name!r} is registered already; use another name"
            )
        self._kinds[kind.name] = kind

    def receive(self, message: ActorMessage) -> Seat | None:
        """Put *message* into the mailbox of its actor; return it if the driver must begin its loop.

        Raises:
            PartitionUnavailable: if this node has failed, or does not know the class.
            ActorBusy: if too many messages wait, or all actors that may be in memory are at work.
            BadOperation: if the actor waits for one that waits for the answer to this message.
        """
        mail = message.mail
        kind = self._kinds.get(mail.kind)
        if self._failure or kind is None:
            raise PartitionUnavailable(
                self._failure
                or f"no class of actors {mail.kind!r} is registered at this node, or not yet"
            )
        seat = kind.seats.get(mail.key)
        if seat is None:
            self._make_room(kind)
            seat = kind.seats[mail.key] = Seat(kind, mail.key, mail.partition)
            self._by_partition.setdefault(mail.partition, {})[seat] = None
        kind.seats.move_to_end(mail.key)
        if len(seat.mailbox) >= kind.mailbox_max or self.waiting_count >= WAITING_MAX:
            raise ActorBusy(
                f"{len(seat.mailbox)} messages wait for {kind.name} {seat.key!r} already"
            )
        if mail.askers and isinstance(seat.duty, Work):
            _refuse_circle(mail, seat.duty.message)
        seat.mailbox.append(message)
        self.waiting_count += 1
        if seat.duty is not None:
            return None
        seat.duty = 0
        self.working_count += 1
        return seat

    def next(self, seat: Seat, now: int) -> Duty | None:
        """Return what to do for the next message of *seat*; None ends its loop."""
        seat.duty = None
        while seat.mailbox:
            _, asked_at = self._asked.get(seat.partition, (0, -HOLD_US))
            if now < asked_at + HOLD_US:
                seat.duty = asked_at + HOLD_US  # the node may ask again until then
                return seat.duty
            message = seat.mailbox.popleft()
            self.waiting_count -= 1
            if not message.abandoned:
                record = seat.record
                seat.duty = Read(message) if record is None else _run(seat, record, message)
                return seat.duty
        self.working_count -= 1
        return None

    def done(self, seat: Seat, result: Any) -> Work | AnswerMail:  # noqa: ANN401 - see `Work`
        """Return what to do for *seat* after the *result* of its last duty."""
        duty = seat.duty
        assert isinstance(duty, Work)
        try:
            if isinstance(result, PartResult):
                seat.duty = self._refused(seat, duty.message, result)
            else:
                seat.duty = _after(seat, duty, result)
        except KeyspaceError as error:
            seat.duty = self._refused(seat, duty.message, error)
        return seat.duty

    def cancelled(self, seat: Seat) -> AnswerMail:
        """Note that the loop of *seat* was cancelled; return what to answer."""
        messages = [seat.duty.message] if isinstance(seat.duty, Work) else []
        seat.duty = None
        self.working_count -= 1
        return AnswerMail(messages, OutcomeUnknown("the actor was stopped while it was at work"))

    def may_leave(self, partition: int, now: int) -> bool:
        """Return whether a partition that another node asks for may leave now, or must wait.

        Its actors first finish their messages, so that a planned move runs no message twice.
        """
        first_at, last_at = self._asked.get(partition, (now, now))
        if now - last_at > FINISH_US_MAX:  # it is a new move, with its own time to finish
            first_at = now
        self._asked[partition] = first_at, now
        seats = self._by_partition.get(partition, ())
        at_work = any(isinstance(seat.duty, Work) for seat in seats)
        return not at_work or now - first_at >= FINISH_US_MAX

    def lost(self, partition: int, why: PartResult) -> AnswerMail:
        """Stop the actors of a partition that has left this node; return what to answer."""
        self._asked.pop(partition, None)  # it may come back, and be asked for again
        return self._stop(list(self._by_partition.get(partition, ())), why)

    def fail(self, why: str) -> AnswerMail:
        """Refuse messages from now on; return what to answer those that wait."""
        self._failure = why
        seats = [seat for kind in self._kinds.values() for seat in kind.seats.values()]
        return self._stop(seats, PartitionUnavailable(why))

    def in_memory(self, kind: str) -> list[str]:
        """Return the keys of actors that are in memory; the one used last is last."""
        return list(self._kinds[kind].seats)

    def _make_room(self, kind: Kind) -> None:
        if len(kind.seats) < kind.actors_max:
            return
        idle = next((seat for seat in kind.seats.values() if seat.duty is None), None)
        if idle is None:
            raise ActorBusy(
                f"all {kind.actors_max} actors {kind.name} that may be in memory are at work"
            )
        self._vacate(idle)

    def _vacate(self, seat: Seat) -> None:
        del seat.kind.seats[seat.key]
        others = self._by_partition[seat.partition]
        del others[seat]
        if not others:
            del self._by_partition[seat.partition]

    def _stop(self, seats: Sequence[Seat], why: PartResult) -> AnswerMail:
        """Let actors begin no more messages here; a message at work sees it when it is done."""
        waiting: list[ActorMessage] = []
        for seat in seats:
            if seat.gone is None:
                seat.gone = why
                self._vacate(seat)
            waiting += seat.mailbox
            seat.mailbox.clear()
        self.waiting_count -= len(waiting)
        return AnswerMail(waiting, why)

    def _refused(self, seat: Seat, message: ActorMessage, why: PartResult) -> AnswerMail:
        seat.actor = None  # it is made again, as saved
        if isinstance(why, ConditionFailed):  # another owner has written the actor's record
            why = PartitionUnavailable(str(why))
        if isinstance(why, Moved) or why.passes:  # the copy in memory may be out of date
            return AnswerMail([message, *self._stop([seat], why).messages], why)
        return AnswerMail([message], why)


def _refuse_circle(mail: Mail, at_work: ActorMessage) -> None:
    """Raise BadOperation if the actor, *at_work*, waits for an actor that waits for *mail*."""
    chain = [asker.rpartition("#")[0] for asker in mail.askers]
    if at_work.mail.as_asker in mail.askers:  # it has begun what leads here
        circle = chain[chain.index(mail.actor) :]
    elif at_work.waits_for in chain:  # two messages that have nothing to do with each other
        circle = [mail.actor, *chain[chain.index(at_work.waits_for) :]]
    else:
        return
    text = " asks ".join([*circle, mail.actor])
    raise BadOperation(f"actors would wait for each other: {text}")


def _run(seat: Seat, record: Record, message: ActorMessage) -> RunMessage | AnswerMail:
    """Run *message*, unless its answer is known, or the actor has gone meanwhile."""
    answer: MailAnswered | PartResult | None = record.answer_to(message.mail) or seat.gone
    if answer is None and message.due_ms is not None:
        message.turn = next_turn(record.reminders, message.turn, message.due_ms)
        answer = NOTHING_DUE if message.turn is None else None
    return RunMessage(message) if answer is None else AnswerMail([message], answer)


def _after(seat: Seat, duty: Work, result: Any) -> Work | AnswerMail:  # noqa: ANN401 - see `Work`
    message = duty.message
    if seat.record is None:
        seat.record = Record.of(result)
        return _run(seat, seat.record, message)
    match duty:
        case RunMessage():
            if isinstance(result, MailAnswered):
                seat.actor = None  # it is made again, as saved
                return Read(message, result)  # the error, too, may follow from what is outdated
            if (result.packed, result.reminders) != (seat.record.state, seat.record.reminders):
                mail = message.mail if message.due_ms is None else None
                after = seat.record.followed_by(result, mail)
                return Save(message, result.reply, *after)
            # No write is needed, but another owner may have gone on.
            return Read(message, MailAnswered(result.reply))
        case Read():
            if result != seat.record.packed:
                raise ConditionFailed("the actor has gone on elsewhere")
            assert duty.answer is not None
            return AnswerMail([message], duty.answer)
        case Save():
            if result.repeated:  # but not in the record's replies, or it had not been run
                raise OperationTooOld(
                    "the message took effect before, so long ago that its reply is not known"
                )
            seat.record = duty.record
            return AnswerMail([message], MailAnswered(duty.reply))
