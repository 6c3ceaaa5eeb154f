"""Runs the actors of one keyspace at a node, as `Mailboxes` decides."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from ringpop_py.base.errors import (
    ActorBusy,
    BadOperation,
    ConfigError,
    KeyspaceError,
    PartitionUnavailable,
    RingpopError,
)
from ringpop_py.base.faults import is_fault
from ringpop_py.base.logs import log
from ringpop_py.base.metering import TIMED_MASK
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.packed import decode_value
from ringpop_py.base.values.requests import Moved, PartResult
from ringpop_py.route.errand import MICROSECONDS
from ringpop_py.state.actors.mail import ASKERS_MAX, Mail, MailAnswered, MailOf, pack
from ringpop_py.state.actors.mailboxes import (
    SAVE,
    ActorMessage,
    AnswerMail,
    Mailboxes,
    Ran,
    Read,
    RunMessage,
    Seat,
)
from ringpop_py.state.actors.reminders import (
    ActorDueTimes,
    Agenda,
    Rounds,
    reminder_of,
    without,
)
from ringpop_py.state.placement.table import to_rows
from ringpop_py.state.requests import MailIds, all_of
from ringpop_py.state.shares.rescale_events import Lost

if TYPE_CHECKING:
    from ringpop_py.base.metering import Operations
    from ringpop_py.state.actors.mailboxes import Kind, Work
    from ringpop_py.state.actors.reminders import WakeTimes
    from ringpop_py.state.shares.dispatcher import MemberRequest
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.rescale_events import RescaleEvent
    from ringpop_py.state.tasks import Spawn


TELLS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class _AtWork:
    """What an actor does: its *message*, the *task* in which it receives it, and its reminders."""

    message: ActorMessage
    task: trio.lowlevel.Task
    agenda: Agenda


_AT_WORK: Final = ContextVar[_AtWork | None]("at_work", default=None)


class ActorHost:
    """All actors of one keyspace that are in memory at one node.

    Attributes:
        deliveries: brings messages from this node to actors anywhere.
        tells_count: messages from this node to actors that have not arrived yet.
        operations: what this node has served, of all kinds.
        reminders: how many turns with reminders were done here, and how many have failed.
    """

    def __init__(self, host: Host, spawn: Spawn, ask: Ask, operations: Operations) -> None:
        self._host = host
        self.operations = operations
        self.deliveries = Deliveries(ask, spawn, self)
        self._spawn = spawn
        self.mailboxes = Mailboxes()
        self.tells_count = 0
        self.reminders = Counter[str]()
        self._rounds = Rounds()
        self._look_now: trio.Event | None = None  # None until there is a class of actors
        self._ids = MailIds()
        self._here = {event.partition for event in host.already()}
        host.events.watch(self._rescaled)

    @property
    def under_way(self) -> int:
        """The messages that wait or are at work here, and those from here that have not arrived."""
        return self.mailboxes.waiting_count + self.mailboxes.working_count + self.tells_count

    async def take(self, mail: Mail) -> MailAnswered | PartResult:
        """Return the actor's answer, or why it was not asked, or where it is; count the message."""
        tally, began_at = self.operations.message, trio.current_time()
        message = ActorMessage(mail, trio.Event())
        answer = await self._hand_in(message)
        if isinstance(answer, MailAnswered):
            if message.failure is not None:
                tally.fail(message.failure)
            elif answer.error is not None:  # of an earlier copy of this message
                tally.refused += 1
            else:
                tally.done += 1
        elif isinstance(answer, KeyspaceError) and answer.settles:
            tally.fail(answer)
        if tally.done & TIMED_MASK == 1:
            tally.seconds.observe(trio.current_time() - began_at)
        return answer

    async def _hand_in(self, message: ActorMessage) -> MailAnswered | PartResult:
        try:
            seat = self.mailboxes.receive(message)
            if seat is not None:
                self._spawn(self._work, seat)
        except KeyspaceError as error:  # mostly, it is brought again, or given up by its sender
            return error
        try:
            await message.answered.wait()
        finally:
            message.abandoned = True
        assert message.answer is not None
        return message.answer

    def may_leave(self, partition: int) -> bool:
        """See `Mailboxes.may_leave`."""
        return self.mailboxes.may_leave(partition, _now_us())

    def fail(self, why: str) -> None:
        """Refuse messages from now on; those that wait are answered with *why*."""
        _answer(self.mailboxes.fail(why))

    def _rescaled(self, event: RescaleEvent) -> None:
        if not isinstance(event, Lost):
            self._here.add(event.partition)
            return
        self._here.discard(event.partition)
        row = self._host.table[event.partition]
        why: PartResult = PartitionUnavailable(f"partition {event.partition} has left this node")
        if self._host.destination(event.partition) == row.owner:
            why = Moved(to_rows([row]))
        _answer(self.mailboxes.lost(event.partition, why))

    async def _work(self, seat: Seat) -> None:
        boxes = self.mailboxes
        try:
            while (duty := boxes.next(seat, _now_us())) is not None:
                if isinstance(duty, int):
                    await trio.sleep_until(duty / MICROSECONDS)
                    continue
                while not isinstance(duty, AnswerMail):
                    try:
                        result = await self._carry_out(seat, duty)
                    except KeyspaceError as error:
                        result = error
                    duty = boxes.done(seat, result)
                _answer(duty)
        except BaseException:  # cancelled with the node
            _answer(boxes.cancelled(seat))
            raise

    async def _carry_out(self, seat: Seat, duty: Work) -> object:
        if isinstance(duty, RunMessage):
            return await self._run(seat, duty.message)
        mail = duty.message.mail
        found: list[Any]
        if isinstance(duty, Read):
            found = await self._host.read([(mail.partition, [mail.stored_under])], counts=False)
        else:
            change = Change(mail.stored_under, SAVE, duty.value)
            write = Write(*mail.id, (change,), digest=mail.digest)
            found = await self._host.apply([(mail.partition, [write])], counts=False)
        (part,) = found
        return part if isinstance(part, PartResult) else part[0]

    async def _run(self, seat: Seat, message: ActorMessage) -> object:
        mail = message.mail
        agenda = self._agenda(seat, message)
        _AT_WORK.set(_AtWork(message, trio.lowlevel.current_task(), agenda))
        try:
            actor = seat.awake()
            value = await _received(actor, seat, message)
        except BaseException as error:
            if not is_fault(error, trio.Cancelled):
                raise
            if not isinstance(error, RingpopError):
                log.exception("an actor failed", actor=mail.stored_under)
            message.failure = error
            return MailAnswered.of_error(error)
        finally:
            agenda.close()
        what = "state"
        try:
            state = pack(actor.state)
            what = "reply"
            reply = pack(value)
        except BadOperation as error:
            text = f"the {what} of the actor {mail.stored_under} is not a value: {error}"
            log.error("an actor failed", actor=mail.stored_under, text=text)  # noqa: TRY400 - it says where
            raise BadOperation(text) from None
        return Ran(actor.state, state, reply, agenda.armed)

    # Reminders.

    def register(self, kind: Kind) -> None:
        """Register a class of actors. Raises ConfigError, too, if there can be no reminders."""
        definition = self._host.definition
        durable = definition.mode == "durable"
        if kind.reminds and not durable:
            raise ConfigError(
                f"{kind.name} has on_reminder, and reminders need a log: open keyspace "
                f"{definition.name!r} with mode='durable', and nodes with a store"
            )
        self.mailboxes.register(kind)
        if durable and self._look_now is None:
            self._look_now = trio.Event()
            self._spawn(self._look)

    def armed(self) -> list[tuple[int, WakeTimes]]:
        """Return the partitions here whose actors have reminders, and when these are due."""
        found = ((number, self._wakes(number)) for number in sorted(self._here))
        return [(number, wakes) for number, wakes in found if wakes]

    def reminders_overdue_s(self) -> float:
        """Return for how many seconds the oldest reminder here has been due; 0 if none is."""
        return max((wakes.overdue_s() for _, wakes in self.armed()), default=0.0)

    def _agenda(self, seat: Seat, message: ActorMessage) -> Agenda:
        assert seat.record is not None
        armed, wakes = seat.record.reminders, self._wakes(seat.partition)
        if wakes is None:
            if seat.kind.reminds:
                raise PartitionUnavailable(f"partition {seat.partition} is about to leave")
            return Agenda(armed, 0)
        if message.turn is not None and message.due_ms is not None:
            armed = without(armed, message.turn, message.due_ms)
        return Agenda(armed, wakes.clocks()[0])

    def _wakes(self, partition: int) -> WakeTimes | None:
        held = self._host.served(partition)
        due = None if held is None else held.state.due
        return due.wakes if isinstance(due, ActorDueTimes) else None

    async def _look(self) -> None:
        """Wake the actors here that have a reminder due, until cancelled."""
        rounds = self._rounds
        while True:
            self._look_now = trio.Event()
            there = self.armed()
            for actor in rounds.begin(there):
                self._spawn(self._wake, *actor)
            with trio.move_on_after(rounds.wait_s(there)):
                await self._look_now.wait()

    async def _wake(self, partition: int, stored: str) -> None:
        try:
            wakes = self._wakes(partition)
            if wakes is not None and not await self._remind(partition, stored, wakes.clocks()[1]):
                wakes.postpone(stored)  # the next owner, if it has gone, begins anew
        finally:
            if self._rounds.ended((partition, stored)) and self._look_now is not None:
                self._look_now.set()

    async def _remind(self, partition: int, stored: str, due_ms: int) -> bool:
        """Deliver the reminders of an actor that are due; return whether all turns are done."""
        kind, _, key = stored.partition("/")
        home, after, failed = self._host, None, False
        while True:
            to = home.definition.name, home.generation, partition, kind, key
            mail = Mail(*to, *self._ids.next(""), b"")
            message = ActorMessage(mail, trio.Event(), due_ms=due_ms, turn=after)
            answer = await self._hand_in(message)
            if not isinstance(answer, MailAnswered):
                return False
            if message.turn is None:
                return after is not None and not failed
            after = message.turn
            failed = failed or answer.error is not None
            self.reminders["done" if answer.error is None else "failed"] += 1
            if answer.error is not None:
                text = f"reminder {after[1]!r}: {': '.join(answer.error)}"
                log.warning("reminder-failed", actor=stored, text=text)


def _now_us() -> int:
    return round(trio.current_time() * MICROSECONDS)


def _answer(answer: AnswerMail) -> None:
    for message in answer.messages:
        message.answer = answer.answer
        message.answered.set()


@contextmanager
def asking(mail: Mail) -> Iterator[Mail]:
    """Note for the time of the block that this task waits for the answer to *mail*.

    Yields:
        The mail with the actors that wait for what this task does.
    """
    at_work = _AT_WORK.get()
    if at_work is None:
        yield mail
        return
    asker = at_work.message
    askers = (*asker.mail.askers[1 - ASKERS_MAX :], asker.mail.as_asker)
    # The actor itself waits only in its own task: others may go on when it has answered.
    is_its_own = at_work.task is trio.lowlevel.current_task()
    asker.waits_for = mail.actor if is_its_own else ""
    try:
        yield replace(mail, askers=askers)
    finally:
        asker.waits_for = ""


def agenda_of_now() -> Agenda:
    """Return the reminders of the actor in whose turn this is called. Raises BadOperation."""
    at_work = _AT_WORK.get()
    if at_work is None or at_work.agenda.closed:
        raise BadOperation("reminders are armed and cancelled only in a turn of their actor")
    return at_work.agenda


def _received(actor: Any, seat: Seat, message: ActorMessage) -> Awaitable[Any]:  # noqa: ANN401 - of the application
    assert seat.record is not None
    if message.turn is None:
        method, given = "receive", decode_value("msgpack", message.mail.message)
    else:
        method, given = "on_reminder", reminder_of(seat.record.reminders, message.turn)
    received = getattr(actor, method)(given)
    if not inspect.isawaitable(received):
        raise TypeError(f"{method} of {seat.kind.name} is not `async def`")
    return received


@dataclass(frozen=True, slots=True)
class _Ask(MailOf):
    """See `ringpop_py.state.shares.dispatcher.MemberRequest`."""

    stage: ActorHost

    kind = "message"

    def size(self, _number: int) -> int:
        return 1

    async def serve_here(self, _numbers: Sequence[int]) -> list[Any]:
        return [await self.stage.take(self.mail)]


Ask = Callable[["MemberRequest", Iterable[int], float | None], Awaitable[dict[int, Any]]]


class Deliveries:
    """Brings messages from this node to the actors of one keyspace, wherever these are."""

    def __init__(self, ask: Ask, spawn: Spawn, stage: ActorHost) -> None:
        self._ask = ask
        self._spawn = spawn
        self._stage = stage
        self._tells = trio.Semaphore(TELLS_MAX)

    async def bring(self, mail: Mail, timeout_s: float | None) -> MailAnswered:
        """Return what the actor has answered. Raises KeyspaceError."""
        found = await self._ask(_Ask(mail, self._stage), (mail.partition,), timeout_s)
        return cast(MailAnswered, all_of(found)[mail.partition])

    async def wait_for_room(self) -> None:
        """Wait until there is room for a message that nobody waits for."""
        await self._tells.acquire()

    def take_room(self) -> None:
        """Take room for such a message, without waiting. Raises ActorBusy if all is taken."""
        try:
            self._tells.acquire_nowait()
        except trio.WouldBlock:
            text = f"{TELLS_MAX} messages from this node are under way, which nobody waits for"
            raise ActorBusy(text) from None

    def begin(self, mail: Mail, timeout_s: float | None) -> None:
        """Bring a message for which there is room, in a task of its own; a failure is logged."""
        self._stage.tells_count += 1
        self._spawn(self._tell, mail, timeout_s)

    async def _tell(self, mail: Mail, timeout_s: float | None) -> None:
        try:
            answered = await self.bring(mail, timeout_s)
            trouble = None if answered.error is None else ": ".join(answered.error)
        except RingpopError as error:
            trouble = f"{type(error).__name__}: {error}"
        finally:
            self._tells.release()
            self._stage.tells_count -= 1
        if trouble is not None:
            log.warning("message-failed", actor=mail.stored_under, text=trouble)
