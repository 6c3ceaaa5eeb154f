"""Runs the actors of one keyspace at a node, as `Mailboxes` decides."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from ringpop_py.base.errors import (
    ActorBusy,
    BadOperation,
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
from ringpop_py.state.actors.mail import ASKERS_MAX, MailAnswered, MailOf, pack
from ringpop_py.state.actors.mailboxes import (
    SAVE,
    ActorMessage,
    AnswerMail,
    Mailboxes,
    Ran,
    Read,
    RunMessage,
    Save,
    Seat,
)
from ringpop_py.state.placement.table import to_rows
from ringpop_py.state.requests import all_of
from ringpop_py.state.shares.rescale_events import Lost

if TYPE_CHECKING:
    from ringpop_py.base.metering import Operations
    from ringpop_py.state.actors.mail import Mail
    from ringpop_py.state.shares.dispatcher import MemberRequest
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.rescale_events import RescaleEvent
    from ringpop_py.state.tasks import Spawn


TELLS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class _AtWork:
    """What an actor does: its *message*, and the *task* in which it receives it."""

    message: ActorMessage
    task: trio.lowlevel.Task


_AT_WORK: Final = ContextVar[_AtWork | None]("at_work", default=None)


class ActorHost:
    """All actors of one keyspace that are in memory at one node.

    Attributes:
        deliveries: brings messages from this node to actors anywhere.
        tells_count: messages from this node to actors that have not arrived yet.
        operations: what this node has served, of all kinds.
    """

    def __init__(self, host: Host, spawn: Spawn, ask: Ask, operations: Operations) -> None:
        self._host = host
        self.operations = operations
        self.deliveries = Deliveries(ask, spawn, self)
        self._spawn = spawn
        self.mailboxes = Mailboxes()
        self.tells_count = 0
        host.events.watch(self._rescaled)

    @property
    def under_way(self) -> int:
        """The messages that wait or are at work here, and those from here that have not arrived."""
        return self.mailboxes.waiting_count + self.mailboxes.working_count + self.tells_count

    async def take(self, mail: Mail) -> MailAnswered | PartResult:
        """Return the actor's answer, or why it was not asked, or where it is; count the message."""
        tally, began_at, answered = self.operations.message, trio.current_time(), trio.Event()
        message = ActorMessage(mail, answered)
        try:
            seat = self.mailboxes.receive(message)
            if seat is not None:
                self._spawn(self._work, seat)
        except KeyspaceError as error:
            if error.settles:  # otherwise it is brought again, or given up by its sender
                tally.fail(error)
            return error
        try:
            await answered.wait()
        finally:
            message.abandoned = True
        answer = message.answer
        assert answer is not None
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

    def may_leave(self, partition: int) -> bool:
        """See `Mailboxes.may_leave`."""
        return self.mailboxes.may_leave(partition, _now_us())

    def fail(self, why: str) -> None:
        """Refuse messages from now on; those that wait are answered with *why*."""
        _answer(self.mailboxes.fail(why))

    def _rescaled(self, event: RescaleEvent) -> None:
        if not isinstance(event, Lost):
            return
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
                        work = _run(seat, duty) if isinstance(duty, RunMessage) else self._ask(duty)
                        result = await work
                    except KeyspaceError as error:
                        result = error
                    duty = boxes.done(seat, result)
                _answer(duty)
        except BaseException:  # cancelled with the node
            _answer(boxes.cancelled(seat))
            raise

    async def _ask(self, duty: Read | Save) -> object:
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


async def _run(seat: Seat, duty: RunMessage) -> object:
    mail = duty.message.mail
    _AT_WORK.set(_AtWork(duty.message, trio.lowlevel.current_task()))
    try:
        actor = seat.awake()
        value = await _awaitable(actor.receive(decode_value("msgpack", mail.message)), mail.kind)
    except BaseException as error:
        if not is_fault(error, trio.Cancelled):
            raise
        if not isinstance(error, RingpopError):
            log.exception("an actor failed", actor=mail.stored_under)
        duty.message.failure = error
        return MailAnswered.of_error(error)
    what = "state"
    try:
        state = pack(actor.state)
        what = "reply"
        return Ran(actor.state, state, pack(value))
    except BadOperation as error:
        text = f"the {what} of the actor {mail.stored_under} is not a value: {error}"
        log.error("an actor failed", actor=mail.stored_under, text=text)  # noqa: TRY400 - it says where
        raise BadOperation(text) from None


def _awaitable(received: Any, kind: str) -> Awaitable[Any]:  # noqa: ANN401 - of the application
    if not inspect.isawaitable(received):
        raise TypeError(f"receive of {kind} is not `async def`")
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
