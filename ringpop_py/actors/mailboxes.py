"""Actors at the node that owns them: each handles one message after the other from its mailbox.

The effect of a message on an actor's state is in the keyspace before the message is answered. An
actor in memory is only a copy of its record there. Each save names the version that it follows. If
an actor did not change its state, its answer is given only if its record is still the same. So an
actor that was superseded while its partition was elsewhere does no harm.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import trio

from ringpop_py.actors.mail import MailAnswered
from ringpop_py.errors import (
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
    RingpopError,
    StateDamaged,
)
from ringpop_py.keyed.aggregations import check_value
from ringpop_py.logs import log
from ringpop_py.placing.table import to_rows
from ringpop_py.shares.rescale_events import Lost
from ringpop_py.values.operations import Change, OperationId, Write
from ringpop_py.values.packed import decode_value, encode_value
from ringpop_py.values.requests import Moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.actors.mail import Mail
    from ringpop_py.keyed.aggregations import Absent, Aggregations
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.shares.host import Host
    from ringpop_py.shares.rescale_events import RescaleEvent
    from ringpop_py.values.operations import Value
    from ringpop_py.values.requests import PartResult

SAVE: Final = "ringpop.actor"
"""The aggregation that replaces an actor's record by the next version of it."""
REPLIES_MAX: Final = 32
"""How many replies are kept with an actor's state, for repeated messages; the oldest goes first."""
REPLIES_BYTES_MAX: Final = 64 << 10
WAITING_MAX: Final = 20_000
"""The most messages in all mailboxes of a keyspace at a node; more are refused."""
HOLD_S: Final = 0.3
"""After a node has asked for a partition, its actors begin no message for this many seconds."""
FINISH_S_MAX: Final = 5.0
"""The most seconds that a partition, asked for repeatedly, waits for actors at work."""


def register_saving(aggregations: Aggregations) -> None:
    """Register the aggregation `SAVE`."""

    def save(there: Value | Absent, record: Value) -> Value:
        assert isinstance(record, dict), "only this module writes it"
        version = there.get("version") if isinstance(there, dict) else 0
        if record.get("version") != _number(version) + 1:
            raise ConditionFailed("the actor has gone on elsewhere")
        return record

    aggregations.register(SAVE, save)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


class Receiver(Protocol):
    """An actor, seen from here; `ringpop_py.actors.actors.Actor` is what applications see."""

    state: Any

    async def receive(self, message: Any) -> Any:  # noqa: ANN401 - the application's
        """Answer *message*."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of actors as it was registered.

    Attributes:
        make: returns a new actor with that key and the default state of its class.
        mailbox_max: the most messages that wait for one actor; more are refused.
        actors_max: the most actors in memory; the one that was idle longest goes first.
    """

    name: str
    make: Callable[[str], Receiver]
    mailbox_max: int
    actors_max: int


@dataclass(slots=True, eq=False)
class _Waiting:
    """A message, and the task that waits for the actor's answer."""

    mail: Mail
    done: trio.Event = field(default_factory=trio.Event)
    abandoned: bool = False  # the caller was cancelled: skip the message if it has not begun
    result: MailAnswered | PartResult | None = None

    def finish(self, result: MailAnswered | PartResult) -> None:
        self.result = result
        self.done.set()


@dataclass(slots=True)
class _Record:
    """The record of an actor in the keyspace.

    Attributes:
        packed: the record as stored; None before the first save.
        digests: of the messages that *replies* belong to, if their callers chose the ids.
        state: packed; before the first save the default of the class, once that was needed.
    """

    packed: bytes | None = None
    version: int = 0
    state: bytes | None = None
    replies: dict[OperationId, bytes] = field(default_factory=dict)
    digests: dict[OperationId, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, packed: bytes | None) -> _Record:
        """Decode the record in *packed*. Raises StateDamaged."""
        if packed is None:
            return cls()
        try:
            value = decode_value("msgpack", packed)
            replies = {
                OperationId(source, number): reply for source, number, reply in value["replies"]
            }
            digests = dict(zip(replies, value.get("digests", ()), strict=False))
            return cls(packed, value["version"], pack(value["state"]), replies, digests)
        except (BodyError, TypeError, KeyError, ValueError) as error:
            raise StateDamaged(
                "the key of the actor holds something other than an actor's record"
            ) from error

    def reply_to(self, mail: Mail) -> bytes | None:
        """Return the reply to an earlier copy of *mail*; None if none is known.

        Raises:
            OperationIdReused: if another message had that id.
        """
        known = self.digests.get(mail.id)
        if known and mail.digest and known != mail.digest:
            raise OperationIdReused(
                f"operation id {mail.id.source!r} was used before, for another message to actor "
                f"{mail.stored_under!r}; use a new id for each message"
            )
        return self.replies.get(mail.id)

    def followed_by(
        self, state: Value, packed: bytes, mail: Mail, reply: bytes
    ) -> tuple[_Record, Value]:
        """Return the record after a message, and the value to save."""
        replies = {**self.replies, mail.id: reply}
        size = sum(map(len, replies.values()))  # the newest reply stays, however large it is
        while len(replies) > REPLIES_MAX or (size > REPLIES_BYTES_MAX and len(replies) > 1):
            size -= len(replies.pop(next(iter(replies))))
        digests = {**self.digests, mail.id: mail.digest}
        digests = {known: digests.get(known, b"") for known in replies}
        rows: list[Value] = [[*known, reply] for known, reply in replies.items()]
        value = {"version": self.version + 1, "state": state, "replies": rows}
        if any(digests.values()):  # otherwise the record is as the first version wrote it
            value["digests"] = list(digests.values())
        saved = encode_value("msgpack", value)
        return _Record(saved, self.version + 1, packed, replies, digests), value


@dataclass(slots=True, eq=False)
class _Seat:
    """One actor in memory and its mailbox."""

    kind: Kind
    key: str
    partition: int
    mailbox: deque[_Waiting] = field(default_factory=deque)
    record: _Record | None = None  # None until the first message was handled
    actor: Receiver | None = None  # None before its next message, if it failed or is new
    working: bool = False  # a task empties the mailbox
    at_work: bool = False  # and a message is with the actor now
    gone: PartResult | None = None  # why the actor is no longer here

    def awake(self) -> Receiver:
        """Return the actor with its own copy of its state, as saved or as its class begins."""
        assert self.record is not None
        if self.actor is None:
            actor = self.kind.make(self.key)
            if self.record.state is None:
                self.record.state = pack(actor.state)
            # Copy the default, too: otherwise a map of the class would be shared by all its actors.
            actor.state = decode_value("msgpack", self.record.state)
            self.actor = actor
        return self.actor


class _Asked(NamedTuple):
    """When a partition was asked for: the first time, and the last."""

    first_at: float
    last_at: float


class ActorHost:
    """All actors of one keyspace that are in memory at one node.

    Attributes:
        tells_count: messages from this node to actors that have not arrived yet.
    """

    def __init__(self, host: Host, spawn: Spawn) -> None:
        self._host = host
        self._spawn = spawn
        self._kinds: dict[str, Kind] = {}
        self._seats: dict[str, OrderedDict[str, _Seat]] = {}
        self._by_partition: dict[int, dict[_Seat, None]] = {}
        self._waiting_count = 0
        self._working_count = 0
        self.tells_count = 0
        self._failure = ""
        self._asked: dict[int, _Asked] = {}
        host.events.watch(self._rescaled)

    def register(self, kind: Kind) -> None:
        """Register a class of actors at this node. Raises ConfigError if the name is taken."""
        if kind.name in self._kinds:
            raise ConfigError(
                f"a class of actors {kind.name!r} is registered already; use another name"
            )
        self._kinds[kind.name] = kind
        self._seats[kind.name] = OrderedDict()

    @property
    def under_way(self) -> int:
        """The messages that wait or are at work here, and those from here that did not arrive."""
        return self._waiting_count + self._working_count + self.tells_count

    def in_memory(self, kind: str) -> list[str]:
        """Return the keys of actors that are in memory; the one used last is last."""
        return list(self._seats[kind])

    async def take(self, mail: Mail) -> MailAnswered | PartResult:
        """Return the actor's answer, or why the actor was not asked, or where it is."""
        if self._failure:
            return PartitionUnavailable(self._failure)
        waiting = _Waiting(mail)
        try:
            seat = self._seat_for(mail)
            self._queue(seat, waiting)
        except KeyspaceError as error:
            return error
        try:
            await waiting.done.wait()
        finally:
            waiting.abandoned = True
        assert waiting.result is not None
        return waiting.result

    def may_leave(self, partition: int) -> bool:
        """Return whether a partition that another node asks for may leave now, or must wait.

        Its actors first finish their messages, so that a planned move runs no message twice.
        """
        now = trio.current_time()
        asked = self._asked.get(partition)
        # A request long after the last one is a new move, with its own time to finish.
        is_new = asked is None or now - asked.last_at > FINISH_S_MAX
        first_at = now if asked is None or is_new else asked.first_at
        self._asked[partition] = _Asked(first_at, now)
        at_work = any(seat.at_work for seat in self._by_partition.get(partition, ()))
        return not at_work or now - first_at >= FINISH_S_MAX

    def fail(self, why: str) -> None:
        """Refuse messages from now on; those that wait are answered with *why*."""
        self._failure = why
        for seats in self._seats.values():
            for seat in list(seats.values()):
                self._stop(seat, PartitionUnavailable(why))

    # Seats.

    def _seat_for(self, mail: Mail) -> _Seat:
        kind = self._kinds.get(mail.kind)
        if kind is None:
            raise PartitionUnavailable(
                f"no class of actors {mail.kind!r} is registered at this node, or not yet"
            )
        seats = self._seats[kind.name]
        seat = seats.get(mail.key)
        if seat is None:
            if len(seats) >= kind.actors_max:
                self._passivate_one(kind)
            seat = seats[mail.key] = _Seat(kind, mail.key, mail.partition)
            self._by_partition.setdefault(mail.partition, {})[seat] = None
        seats.move_to_end(mail.key)
        return seat

    def _passivate_one(self, kind: Kind) -> None:
        """Remove the actor that was idle longest. Raises ActorBusy if none is idle."""
        for seat in self._seats[kind.name].values():
            if not seat.working:
                self._vacate(seat)
                return
        raise ActorBusy(
            f"all {kind.actors_max} actors {kind.name} that may be in memory are at work"
        )

    def _queue(self, seat: _Seat, waiting: _Waiting) -> None:
        if len(seat.mailbox) >= seat.kind.mailbox_max or self._waiting_count >= WAITING_MAX:
            raise ActorBusy(
                f"{len(seat.mailbox)} messages wait for {seat.kind.name} {seat.key!r} already"
            )
        seat.mailbox.append(waiting)
        self._waiting_count += 1
        if not seat.working:
            seat.working = True
            self._spawn(self._work, seat)

    def _vacate(self, seat: _Seat) -> None:
        seats = self._seats[seat.kind.name]
        if seats.get(seat.key) is seat:
            del seats[seat.key]
        others = self._by_partition.get(seat.partition, {})
        others.pop(seat, None)
        if not others:
            self._by_partition.pop(seat.partition, None)

    def _stop(self, seat: _Seat, why: PartResult) -> None:
        """Let the actor handle no more messages here; answer those in its mailbox with *why*."""
        self._vacate(seat)
        seat.gone = seat.gone or why  # a message with the actor now sees this when it is done
        while seat.mailbox:
            self._waiting_count -= 1
            seat.mailbox.popleft().finish(seat.gone)

    def _rescaled(self, event: RescaleEvent) -> None:
        if not isinstance(event, Lost):
            return
        self._asked.pop(event.partition, None)  # it may come back, and be asked for again
        seats = list(self._by_partition.get(event.partition, ()))
        if not seats:
            return
        row = self._host.table[event.partition]
        why: PartResult = PartitionUnavailable(f"partition {event.partition} has left this node")
        if self._host.destination(event.partition) == row.owner:
            why = Moved(to_rows([row]))
        for seat in seats:
            self._stop(seat, why)

    # Messages, one after the other.

    async def _work(self, seat: _Seat) -> None:
        self._working_count += 1
        try:
            while seat.mailbox:
                asked = self._asked.get(seat.partition)
                held_until = asked.last_at + HOLD_S if asked is not None else 0.0
                if trio.current_time() < held_until:
                    await trio.sleep_until(held_until)
                    continue  # the node may have asked again, or the mailbox was emptied
                waiting = seat.mailbox.popleft()
                self._waiting_count -= 1
                if not waiting.abandoned:
                    await self._answer(seat, waiting)
        finally:
            seat.working = False
            self._working_count -= 1

    async def _answer(self, seat: _Seat, waiting: _Waiting) -> None:
        seat.at_work = True
        try:
            waiting.finish(await self._handle(seat, waiting.mail))
        except BaseException:  # cancelled with the node
            waiting.finish(OutcomeUnknown("the actor was stopped while it was at work"))
            raise
        finally:
            seat.at_work = False

    async def _handle(self, seat: _Seat, mail: Mail) -> MailAnswered | PartResult:
        try:
            if seat.record is None:
                seat.record = _Record.of(await self._read(mail))
            known = seat.record.reply_to(mail)
            if known is not None:
                return MailAnswered(known)
            if seat.gone is not None:  # since the record was read
                return seat.gone
            return await self._run(seat, seat.record, mail)
        except _Refused as refused:
            return self._refused(seat, refused.why)
        except KeyspaceError as error:
            return self._refused(seat, error)

    def _refused(self, seat: _Seat, why: PartResult) -> PartResult:
        seat.actor = None  # it is made again, with its state before the message
        if isinstance(why, ConditionFailed):  # another owner has written the actor's record
            why = PartitionUnavailable(str(why))
        if isinstance(why, Moved) or why.passes:  # the copy in memory may be out of date
            self._stop(seat, why)
        return why

    async def _run(self, seat: _Seat, record: _Record, mail: Mail) -> MailAnswered:
        try:
            actor = seat.awake()
            before = record.state
            value = await actor.receive(decode_value("msgpack", mail.message))
        except RingpopError as error:
            seat.actor = None
            return MailAnswered.of_error(error)
        except Exception as error:
            seat.actor = None
            log.exception("an actor failed", actor=mail.stored_under)
            return MailAnswered.of_error(error)
        state, reply = pack(actor.state), pack(value)
        if state == before:  # no write, but another owner may have gone on: read the record
            await self._confirm(record, mail)
        else:
            after, value = record.followed_by(actor.state, state, mail, reply)
            await self._save(value, mail)
            seat.record = after
        return MailAnswered(reply)

    # The keyspace.

    async def _read(self, mail: Mail) -> bytes | None:
        (found,) = await self._host.read([(mail.partition, [mail.stored_under])])
        if isinstance(found, Moved | KeyspaceError):
            raise _Refused(found)
        packed: bytes | None = found[0]
        return packed

    async def _confirm(self, record: _Record, mail: Mail) -> None:
        if await self._read(mail) != record.packed:
            raise ConditionFailed("the actor has gone on elsewhere")

    async def _save(self, value: Value, mail: Mail) -> None:
        change = Change(mail.stored_under, SAVE, value)
        write = Write(*mail.id, (change,), digest=mail.digest)
        (outcomes,) = await self._host.apply([(mail.partition, [write])])
        if isinstance(outcomes, Moved | KeyspaceError):
            raise _Refused(outcomes)
        (outcome,) = outcomes
        if isinstance(outcome, KeyspaceError):
            raise outcome
        if outcome.repeated:  # but not in the record's replies, or it would not have been run
            raise OperationTooOld(
                "the message took effect before, so long ago that its reply is not known"
            )


class _Refused(Exception):
    def __init__(self, why: PartResult) -> None:
        super().__init__()
        self.why = why


def pack(value: Value) -> bytes:
    """Encode *value*. Raises BadOperation if it is not a value."""
    check_value(value)
    try:
        return encode_value("msgpack", value)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadOperation(f"the value cannot be stored: {type(error).__name__}: {error}") from None
