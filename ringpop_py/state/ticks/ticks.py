"""Schedules at a node: their records, and the handlers of their ticks."""

from __future__ import annotations

import inspect
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol, TypeVar

import trio

from ringpop_py.base.arguments import wrong
from ringpop_py.base.errors import ConfigError, LeadershipLost
from ringpop_py.base.faults import is_fault
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running, one_line
from ringpop_py.state.leaders.election import Candidate, SwapRecord
from ringpop_py.state.leaders.lead import leading
from ringpop_py.state.leaders.leaders import Leaders, Surroundings
from ringpop_py.state.leaders.record import checked_name
from ringpop_py.state.ticks.record import (
    ATTEMPTS_MAX,
    KEYSPACE,
    TTL_S,
    TickElection,
    TickRecord,
    defined,
    number_and_attempt,
    tick_record_in,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.leaders.lead import Lead
    from ringpop_py.state.leaders.record import LeaderRecord
    from ringpop_py.state.table.due import DueClock
    from ringpop_py.state.ticks.record import Plan

    Handler = Callable[["Tick"], Awaitable[object]]

H = TypeVar("H", bound="Handler")
CATCH_UP: Final = ("last", "all")
ON_FAILURE: Final = ("retry", "skip")
OVERDUE_S_MIN: Final = 60.0


class Tick(NamedTuple):
    """A tick of a schedule, as its handler gets it.

    Attributes:
        name: the schedule's.
        fence: for writes into durable keyspaces, as their ``fence``. Its term grows with the number
            and, of one tick, with the attempt; its `check` raises LeadershipLost if another process
            has taken the tick over.
    """

    name: str
    fence: Lead

    @property
    def number(self) -> int:
        """What tells the tick from all others of its schedule: `due`. It grows; there are gaps."""
        return number_and_attempt(self.fence.term)[0]

    @property
    def due(self) -> int:
        """When it was due, in seconds of Unix time."""
        return self.number

    @property
    def attempt(self) -> int:
        """How often it was begun, this time included."""
        return number_and_attempt(self.fence.term)[1]

    def id(self, effect: object) -> str:
        """Return an ``operation_id`` for *effect*, such as 0, 1 or a key: each attempt has it."""
        return f"tick:{self.name}:{self.number}:{effect}"


class TickOptions(NamedTuple):
    """What a schedule does if ticks were missed, and if its handler fails; see `Ringpop.every`."""

    catch_up: str = "last"
    on_failure: str = "retry"


class TickRecords(Leaders):
    """The records of a cluster's schedules, as one node reads and changes them."""

    keyspace: ClassVar[str] = KEYSPACE

    def _record_in(self, value: Value, name: str) -> LeaderRecord | None:
        return tick_record_in(value, name)

    def _check(self, before: LeaderRecord | None, after: LeaderRecord) -> None:
        pass  # only members have them, and `TickElection` takes the steps

    def _tell(self, name: str, before: LeaderRecord | None, after: LeaderRecord) -> None:
        assert isinstance(after, TickRecord)
        if before is None or after.term == before.term:
            return
        assert isinstance(before, TickRecord)
        log.debug("tick-begins", schedule=name, due=after.due, attempt=after.attempt)
        if after.due != before.due:
            text = f"schedule {name!r}: its ticks from {_utc(before.due)} to {_utc(after.due)}"
            log.info("ticks-skipped", text=f"{text} were missed, and only the last one runs")


class SchedulingNode(Surroundings, Protocol):
    """What schedules need of their node. It is `ringpop_py.node.ringpop.Ringpop`."""

    schedules: dict[str, Schedule]

    def before_end(self, hook: Callable[[], Awaitable[None]]) -> object:
        """Call *hook* before the node ends."""


class ScheduleShown(NamedTuple):
    """A schedule, as operators see it.

    Attributes:
        number: of the tick that was begun last; 0 if none was.
        attempt: how often the tick *due* was begun.
        holder: who runs it; empty if nobody does.
    """

    name: str
    plan: str
    tz: str
    due: int
    number: int
    attempt: int
    holder: str
    is_gone: bool
    overdue_s: float


class Schedule(TickRecords):
    """A schedule that this node has a handler for.

    Args:
        clock: by which ticks are due, so that one wrong clock brings none forward.

    Attributes:
        record: as it was last read.
        ended_count, failed_count: the ticks that have ended here, and the attempts that failed.
    """

    def __init__(
        self,
        node: Surroundings,
        clock: DueClock,
        name: str,
        plan: Plan,
        options: TickOptions,
        handler: Handler,
    ) -> None:
        super().__init__(node)
        self.name = name
        self.plan = plan
        self.record: TickRecord | None = None
        self.ended_count = 0
        self.failed_count = 0
        self._clock = clock
        self._options = options
        self._handler = handler
        self._election: TickElection | None = None
        self._waiting = trio.CancelScope()
        self._ends = False
        self._over = trio.Event()
        self._redefines = True  # a process that starts brings its own plan

    def overdue_s(self) -> float:
        """Return for how many seconds the tick has been due that has not ended; 0 if it is not."""
        return 0.0 if self.record is None else max(self._wall_s() - self.record.due, 0.0)

    def trouble(self) -> str:
        """Return what to tell an operator if no tick ends; empty if all is well."""
        if self.record is None or not self.record.follows(self.plan):
            return ""
        due = self.record.due
        if self.overdue_s() <= max(OVERDUE_S_MIN, self.plan.after(due) - due):
            return ""
        return f"schedule {self.name}: the tick that was due at {_utc(due)} has not ended"

    async def read(self, _name: str, timeout_s: float) -> tuple[LeaderRecord | None, bool]:
        """Return the record, which is defined by then, and whether its holder is gone."""
        while True:
            record, is_gone = await super().read(self.name, timeout_s)
            assert record is None or isinstance(record, TickRecord)
            wall_s = self._wall_s()
            after = defined(record, self.plan, wall_s, redefines=self._redefines)
            if after is None:
                break
            await self.swap(self.name, SwapRecord(record, after), timeout_s)
        assert record is not None
        if record.follows(self.plan):
            self._redefines = False
        elif not self._redefines and (self.record is None or self.record.follows(self.plan)):
            text = (
                f"schedule {self.name!r} is {record.plan!r} ({record.tz}) since another process has"
                f" started; this one has {self.plan.text!r} ({self.plan.tz}), and runs no ticks"
            )
            log.error("schedule-redefined", text=text, schedule=self.name)
        self.record = record
        assert self._election is not None
        self._election.wall_offset_s = wall_s - trio.current_time()
        return record, is_gone

    async def swap(self, _name: str, swap: SwapRecord, timeout_s: float) -> bool:
        """See `Leaders.swap`."""
        is_done = await super().swap(self.name, swap, timeout_s)
        if is_done:
            assert isinstance(swap.after, TickRecord)
            self.record = swap.after
        return is_done

    async def run(self) -> None:
        """Run ticks, until `stop`."""
        try:
            with trio.CancelScope() as self._waiting:
                while not self._ends:
                    await self._next_tick()
        finally:
            self._over.set()

    async def stop(self) -> None:
        """Begin no further tick, and return when the one that runs here has ended."""
        self._ends = True
        if self._election is None or not self._election.leads:
            self._waiting.cancel()
        await self._over.wait()

    async def _next_tick(self) -> None:
        nonce = secrets.token_hex(12)
        me = Candidate(holder=self._node.name, is_member=True, nonce=nonce, ttl_s=TTL_S)
        skips = self._options.catch_up == "last"
        election = self._election = TickElection(me, self.plan, skips=skips)
        try:
            async with leading(f"tick:{self.name}", election, self, is_patient=True) as lead:
                election.is_over = await self._has_run(Tick(self.name, lead))
        except LeadershipLost as error:
            log.warning("tick-lost", text=str(error), schedule=self.name)
        else:
            self.ended_count += election.is_over

    async def _has_run(self, tick: Tick) -> bool:
        """Return whether the tick is over."""
        try:
            await self._handler(tick)
        except BaseException as error:
            if not is_fault(error, trio.Cancelled):
                raise
            self.failed_count += 1
            is_over = self._options.on_failure == "skip" or tick.attempt == ATTEMPTS_MAX
            then = "it is skipped" if is_over else "there will be another attempt"
            text = (
                f"schedule {self.name!r}: attempt {tick.attempt} of the tick that was due at"
                f" {_utc(tick.due)} failed, and {then}: {one_line(error)}"
            )
            log.exception("tick-failed", text=text, schedule=self.name, due=tick.due)
            return is_over
        return True

    def _wall_s(self) -> float:
        return self._clock.due_ms() / 1_000


def every_at(
    node: SchedulingNode, clock: DueClock, name: str, plan: Plan, options: TickOptions
) -> Callable[[H], H]:
    """Return what registers a handler; see `Ringpop.every`."""
    checked_name(name, "the name of a schedule")
    for what, given, known in (
        ("catch_up", options.catch_up, CATCH_UP),
        ("on_failure", options.on_failure, ON_FAILURE),
    ):
        if given not in known:
            raise wrong(what, " or ".join(map(repr, known)), given)
    node.keyspaces.durable(KEYSPACE)  # raises ConfigError without a store

    def add(handler: H) -> H:
        given: object = handler
        if not inspect.iscoroutinefunction(given):
            raise wrong(f"the handler of schedule {name!r}", "a coroutine function", handler)
        if name in node.schedules:
            raise ConfigError(f"this node has a schedule {name!r} already: each has its own name")
        schedule = node.schedules[name] = Schedule(node, clock, name, plan, options, handler)
        node.before_end(schedule.stop)
        node.keyspaces.spawn(keep_running, f"schedule {name!r}", schedule.run)
        return handler

    return add


async def all_schedules(node: Surroundings, wall_s: float) -> list[ScheduleShown]:
    """Return all schedules of the cluster, by name. Raises ConfigError, KeyspaceError."""
    records, found = TickRecords(node), []
    async for name, record in records.records():
        assert isinstance(record, TickRecord)
        number, _ = number_and_attempt(record.term)
        shown = name, record.plan, record.tz, record.due, number, record.attempt, record.holder
        overdue_s = max(wall_s - record.due, 0.0)
        found.append(ScheduleShown(*shown, records.is_gone(record), overdue_s))
    return found


def _utc(instant: int) -> str:
    return f"{datetime.fromtimestamp(instant, UTC):%F %T} UTC"
