"""The keyspace at one simulated process, driven as in production."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ringpop_py.base.errors import (
    BodyError,
    ConnectFailed,
    KeyspaceError,
)
from ringpop_py.member.swim.member import Status
from ringpop_py.route.errand import Errand
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.memory.steward import MemorySteward
from ringpop_py.state.ownership.steward import DurableSteward
from ringpop_py.state.placement import duties
from ringpop_py.state.placement.assignment import (
    Assignment,
    Assignments,
    effective_owners,
    plan_moves,
)
from ringpop_py.state.placement.gossip import CALL_S, Known, TableGossip
from ringpop_py.state.placement.keeper import Keeper
from ringpop_py.state.placement.table import PartitionStatus
from ringpop_sim.state.keyspaces.copies import GENERATION, NAME, CopyDriver
from ringpop_sim.state.keyspaces.durable import DurableDriver
from ringpop_sim.state.keyspaces.errands import ErrandDriver, PartServer
from ringpop_sim.state.keyspaces.shelf import CHANGES, LISTS
from ringpop_sim.state.keyspaces.tidying import Tidier
from ringpop_sim.units import ms, s
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.route.errand import Ask, DeadlinePolicy
    from ringpop_py.state.journal.journal import Journal
    from ringpop_py.state.journal.records import Claim, Record
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.placement.gossip import GossipAsk
    from ringpop_py.state.placement.table import TableRow
    from ringpop_py.state.table.keyed import Snapshot
    from ringpop_sim.plans.plan import KeyspacePlan
    from ringpop_sim.state.keyspaces.calls import HomeCalls
    from ringpop_sim.state.keyspaces.errands import End, Parts
    from ringpop_sim.state.keyspaces.shelf import SharedStore
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

PAUSED_US: Final = 50 * ms
"""Microseconds between two looks whether a paused process runs again."""

FORGOTTEN_US: Final = 2 * s
"""A request this long after the partition could have gone may find it busy once more."""
_THERE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)


class Street(Protocol):
    """The surroundings that all homes of a keyspace share."""

    world: World
    plan: KeyspacePlan
    definition: Definition
    shelf: SharedStore
    calls: HomeCalls
    policies: dict[str, DeadlinePolicy]
    duties: Counter[tuple[str, str, int | None]]

    def serves(self, home: Home, number: int, epoch: int) -> None:
        """Note that *home* serves a partition from now on."""

    def serves_again(self, home: Home, number: int, epoch: int) -> None:
        """Note that *home* serves a partition again that it claimed again after a fence."""

    def acknowledged(self, home: Home, number: int, epoch: int) -> None:
        """Note that *home* is about to acknowledge writes of a partition in *epoch*."""

    def replaces(self, home: Home, number: int, claim: Claim) -> None:
        """Note that *home* is about to replace the owner that made *claim* of a partition."""

    def told(self, home: Home, fact: fx.Fact) -> None:
        """Note that the journal of *home* has reported *fact*."""


class Home:
    """The keyspace at one process: the product's steward and gossip, and their drivers.

    It is also what a steward sees of the members (`Sight`), what gossip reads (`GossipTarget`),
    and what carries out errands (`Requester`).
    """

    def __init__(self, homes: Street, process: Process) -> None:
        plan = homes.plan
        self.homes = homes
        self.process = process
        self.name = process.name
        self.number = process.number
        self.waiting: list[Callable[[], bool]] = []
        self.partitions: dict[int, Any] = {}
        self._nonces = 0
        self._wakes_at: int | None = None
        self._missed: list[Callable[[], None]] = []
        self.definition = homes.definition
        self._busy_until: dict[int, int] = {}
        self._rng = random.Random(f"actors {homes.world.seed} {process.serial}")
        assignments = Assignments(self.definition)
        self.steward: Any
        if plan.mode == "durable":
            self.steward = DurableSteward(
                NAME,
                GENERATION,
                assignments,
                self,
                handoffs_max=plan.handoffs_max,
                takeovers_max=plan.takeovers_max,
            )
        else:
            self.steward = MemorySteward(
                NAME, GENERATION, assignments, self, handoffs_max=plan.handoffs_max
            )
        self.assignments = assignments
        self.copies = CopyDriver(self)
        self.durable = DurableDriver(self)
        if plan.mode == "durable":
            self.partitions = self.durable.ownership.parts
        self._tidier = Tidier(
            self,
            self.durable,
            random.Random(f"tidying {homes.world.seed} {process.serial}"),
        )
        self._known: dict[tuple[str, int], Record] = {}
        """Records of journals that were read: nothing else ever stands in those slots."""
        self.parts = PartServer(self, plan.wait_us)
        self.keeper = Keeper(assignments, self.owners, self.acts)
        self.table = self.steward.table
        self.gossip = TableGossip(
            self,
            self._others,
            random.Random(f"gossip {homes.world.seed} {process.serial}"),
            store_id="store",
            every_us=None if homes.world.dialect.name == "native" else 500 * ms,
        )
        self.gossip.start(process.time(homes.world.now))
        self._begun = False
        self._asked_count = 0
        if plan.mode == "durable":
            self._tidier.begin()

    def __repr__(self) -> str:
        return f"<Home of {self.process}: {self.steward!r}>"

    @property
    def journal(self) -> Journal:
        """The journal of the process, for all its durable partitions."""
        return self.durable.journal

    # As `Sight`.

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self.process.node.ready

    def owners(self) -> Sequence[str]:
        """Return the members in the ring."""
        members = self.process.node.members
        return sorted(m.name for m in members if members.in_ring(m) and not self._is_gone(m.name))

    def status_of(self, name: str) -> Status | None:
        """Return the status of the member *name*."""
        row = self.process.node.members.get(name)
        return None if row is None else row.status

    def is_silent(self, name: str) -> bool:
        """Return whether the member *name* is suspect, and neither we nor others reach it."""
        return self.process.node.is_silent(name)

    def _is_gone(self, name: str) -> bool:
        # As `ServersSeen` in the product.
        return self.homes.plan.mode == "durable" and self.is_silent(name)

    def suspected(self, name: str) -> None:
        """Check whether the member *name*, which is suspect, is there, if that matters here."""
        online = PartitionStatus.ONLINE
        if self.homes.plan.mode != "durable" or not any(
            row.owner == name and row.status is online for row in self.table
        ):
            return
        if self._is_gone(name):
            self.wake()
        else:
            self.homes.world.do(self.process, lambda node, now: node.doubt(name, now))

    def _others(self) -> list[str]:
        members = self.process.node.members
        return sorted(m.name for m in members if m.name != self.name and m.status in _THERE)

    def acts(self) -> bool:
        """Return whether this member does what one does for all."""
        owners = self.owners()
        return bool(owners) and owners[0] == self.name

    @property
    def under_way(self) -> dict[str, int]:
        """How much of each kind has begun and not ended; see `runs.rest`."""
        found = {
            **self.steward.under_way,
            "waits": len(self.waiting),
            "gossip calls": self.gossip.calls_count,
        }
        if self.homes.plan.mode == "durable":
            ownership = self.durable.ownership
            pending = ownership.arrivals.pending.values()
            found |= {
                "tries": len(pending),
                "claims": sum(part.presence is Presence.ACQUIRING for part in pending),
                "jobs": ownership.desk.jobs_count,
                "jobs of partitions": sum(len(p.waiting) for p in self.partitions.values()),
                "writes": sum(p.writes_count for p in self.partitions.values()),
            }
        return found

    # As `GossipTarget`.

    def known(self) -> dict[str, Known]:
        """Return the keyspace."""
        version = self.keeper.version
        return {
            NAME: Known(
                self.definition, GENERATION, dropped=False, table=self.table, assignment=version
            )
        }

    def learn_keyspace(self, _definition: Definition, _generation: int, *, dropped: bool) -> None:
        """Do nothing: all members know the only keyspace."""

    def learn_rows(self, _name: str, rows: list[TableRow]) -> None:
        """See `GossipTarget`."""
        self.do(self.steward.heard(rows, self.now))

    def hint_assignment(self, _name: str, version: int) -> None:
        """See `GossipTarget`."""
        self.keeper.hint(version, self.now)
        self.keep_time()

    # As `LearningRoutes`.

    def destination(self, part: int) -> str:
        """Return the member to ask about a partition."""
        name: str = self.steward.destination(part)
        return name

    def why_nobody(self, part: int) -> KeyspaceError:
        """Return why there is no such member."""
        error: KeyspaceError = self.steward.why_nobody(part)
        return error

    def learn(self, row: list[Any]) -> None:
        """Merge a row that another node sent. Raises BodyError."""
        self.do(self.steward.heard(self.steward.read(row), self.now))

    # As `Requester`.

    def ask(self, ask: Ask[int], what: str, parts: Parts, end: End) -> None:
        """Carry out *ask*; *end* gets the results of *parts*, or an error."""
        if ask.to == self.name:
            self.parts.serve(what, parts, end)
        else:
            self.call(ask.to, what, parts, ask.wait_us, end)

    # Time.

    @property
    def now(self) -> int:
        """The time on the clock of the process."""
        return self.process.time(self.homes.world.now)

    def nonce(self) -> str:
        """Return a text that no process has used before."""
        self._nonces += 1
        return f"{self.process.serial}.{self._nonces}"

    def after(self, delay_us: int, act: Callable[[], None]) -> None:
        """Call *act* later, when the process runs."""
        world = self.homes.world
        world.push(world.now + delay_us + self.process.slow_us, self._later, act)

    def receiver(self, act: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function that passes what arrives to *act*, when the process runs."""
        return lambda value: self._later(lambda: act(value))

    def _later(self, act: Callable[[], None]) -> None:
        if self.process.life is Life.RUNNING:
            act()
        elif self.process.life is Life.PAUSED:
            world = self.homes.world
            world.push(world.now + PAUSED_US, self._later, act)
        else:
            self._missed.append(act)

    def revived(self) -> None:
        """Go on with what the process was doing when it ended: its machine was restored."""
        missed, self._missed = self._missed, []
        for act in missed:
            self.after(0, act)
        self.after(0, self.wake)

    def join(self) -> None:
        """Ask other members what they know, and then gain partitions; the node has joined."""
        asks = self.gossip.ask()
        self._asked_count = len(asks)
        self._ask_peers(asks, first=True)
        self._answered_first(0)

    def _answered_first(self, count: int) -> None:
        self._asked_count -= count
        if not self._asked_count and not self._begun:
            self._begun = True
            self.wake()

    def wake(self) -> None:
        """Do what is due, and look at the members."""
        if self._begun:
            self.do(self.steward.members_changed(self.now))

    def keep_time(self) -> None:
        due = [self._steward_at] if self._begun else [self.now + s]
        due += [at for at in (self.gossip.next_deadline, self._keeper_at) if at is not None]
        at = max(self.process.world_time(min(due)), self.homes.world.now + 1)
        if self._wakes_at is None or at < self._wakes_at:
            self._wakes_at = at
            self.homes.world.push(at, self._woken, at)

    @property
    def _steward_at(self) -> int:
        at: int = self.steward.next_deadline
        durable = self.homes.plan.mode == "durable"
        return self.durable.ownership.next_deadline if durable else at

    @property
    def _keeper_at(self) -> int | None:
        return self.keeper.next_deadline if self.homes.plan.mode == "durable" else None

    def _woken(self, at: int) -> None:
        if self._wakes_at == at:
            self._later(self._advance)

    def _advance(self) -> None:
        self._wakes_at = None
        now = self.now
        if self._keeper_at is not None and self._keeper_at <= now:
            self.do(self.keeper.advance(now))
        self._ask_peers(self.gossip.advance(now))
        if self._begun and self.homes.plan.mode == "durable":
            self.durable.advance()
        due = self._begun and self.steward.next_deadline <= now
        self.do(self.steward.advance(now) if due else ())

    # Duties.

    def do(self, tasks: Iterable[duties.Task]) -> None:
        """Carry *tasks* out."""
        if self.homes.plan.mode == "durable":
            self.durable.carry_out(tasks)
            return
        for task in tasks:
            self.begin(task)
        self.settled()

    def settled(self) -> None:
        """Note that all that was due has been carried out."""
        self._publish()
        self.keep_time()

    def _publish(self) -> None:
        self.process.node.digest = self.gossip.digest

    def begin(self, task: duties.Task) -> None:
        """Carry out *task*, or begin to; the partitions of a durable keyspace have done theirs."""
        world = self.homes.world
        world.trace.note(world.now, self.process.serial, task)
        self.homes.duties[self.name, type(task).__name__, getattr(task, "number", None)] += 1
        match task:
            case duties.Tell(rows):
                self.gossip.spread(NAME, GENERATION, rows, self.now)
            case duties.Changed():
                self.waiting = [look for look in self.waiting if not look()]
            case _ if self.homes.plan.mode == "durable":
                if isinstance(task, duties.ReadAssignment | duties.RecordAssignment):
                    self._keep(task)
            case duties.Serve(number, epoch):
                self.copies.at(number).presence = Presence.OWNED
                self.serves(number, epoch)
            case duties.Drop(number):
                self.partitions.pop(number).leave()
            case duties.Withhold(number):
                self.partitions[number].presence = Presence.RELEASING
            case _:
                self._begin(task)

    def _end(self, duty: duties.Duty) -> Callable[[Any], None]:
        return lambda result: self.do(self.steward.done(duty, result, self.now))

    def _begin(self, duty: duties.Task) -> None:
        match duty:
            case duties.Remind(number, to):
                self.copies.offer(number, to, lambda _said: None)
            case duties.Offer(number, to):
                if self.copies.has_nothing(number):
                    self.after(0, lambda: self._end(duty)(duties.NOTHING_TO_GIVE))
                else:
                    self.copies.offer(number, to, self._end(duty))
            case duties.Send():
                self.copies.send(duty, self._end(duty))
            case _:
                raise AssertionError(duty)

    # As `DurableHome` and `TidyHome`.

    def ask_store(
        self,
        request: fx.Request,
        answer: Callable[[fx.Reply], None],
        snapshot: Snapshot | None = None,
    ) -> None:
        """Send *request* to the store, and call *answer* with its reply."""
        if isinstance(request, fx.GetSlot):
            self._get_slot(request, answer)
            return
        shelf, kind = self.homes.shelf, type(request)
        act, answered = partial(shelf.perform, request, snapshot), self.receiver(answer)
        shelf.call(self.number, act, answered, puts=kind in CHANGES, lists=kind in LISTS)

    def _get_slot(self, request: fx.GetSlot, answer: Callable[[fx.Reply], None]) -> None:
        place = request.journal, request.slot
        known = self._known.get(place)
        if known is not None:
            self.after(0, lambda: answer(fx.Found(known)))
            return

        def answered(reply: fx.Reply) -> None:
            if isinstance(reply, fx.Found):
                self._known[place] = cast("Record", reply.value)
            answer(reply)

        act = partial(self.homes.shelf.perform, request, None)
        self.homes.shelf.call(self.number, act, self.receiver(answered), puts=False)

    def may_leave(self, number: int) -> bool:
        """Return whether a partition may go to another member now: its actors are not at work."""
        busy_us, now = self.homes.plan.busy_us, self.now
        if not busy_us:
            return True
        until = self._busy_until.get(number, 0)
        if now > until + FORGOTTEN_US:  # it is a new move
            until = self._busy_until[number] = now + self._rng.randrange(busy_us)
        return now >= until

    def is_disk_full(self) -> bool:
        """Return whether there is no room for the states of partitions."""
        return self.homes.shelf.is_disk_full(self.number)

    def ask_dropped(self, answer: Callable[[fx.StoreAnswer], None]) -> None:
        """Ask the store for the mark of a drop; *answer* gets ABSENT, or FAILED."""
        absent = fx.StoreAnswer.ABSENT
        self.homes.shelf.call(self.number, lambda: absent, self.receiver(answer), puts=False)

    def ask_journals(self, answer: Callable[[Any], None]) -> None:
        """Ask the store for the names of the journals with slots; *answer* gets them, or FAILED."""
        shelf = self.homes.shelf
        shelf.call(
            self.number,
            shelf.journals_with_slots,
            self.receiver(answer),
            puts=False,
            lists=True,
        )

    def serves(self, number: int, epoch: int) -> None:
        """Note that a partition is served from now on."""
        self.homes.serves(self, number, epoch)

    def serves_again(self, number: int, epoch: int) -> None:
        """Note that a partition, claimed again after a fence, is served again."""
        self.homes.serves_again(self, number, epoch)

    def acknowledges(self, number: int, epoch: int) -> None:
        """Note that writes of a partition are about to be acknowledged in *epoch*."""
        self.homes.acknowledged(self, number, epoch)

    def replaces(self, number: int, claim: Claim) -> None:
        """Note that the owner that made *claim* of a partition is about to be replaced."""
        self.homes.replaces(self, number, claim)

    def told(self, fact: fx.Fact) -> None:
        """Note that the journal has reported *fact*, or the recovery of a partition a seal."""
        world = self.homes.world
        world.trace.note(world.now, self.process.serial, fact)
        self.homes.told(self, fact)

    # Assignments.

    def _keep(self, duty: duties.ReadAssignment | duties.RecordAssignment) -> None:
        store = self.homes.shelf.assignments

        def act() -> object:
            if isinstance(duty, duties.RecordAssignment):
                wanted = duty.assignment
                return store.setdefault(wanted.version, wanted) is wanted
            return store[max(store)] if store else None

        def end(result: Any) -> None:
            failed = isinstance(result, fx.StoreAnswer)
            tasks = self.keeper.done(duty, duties.Trouble() if failed else result, self.now)
            self.do(tasks)
            if tasks:
                self.wake()

        self.homes.shelf.call(
            self.number, act, self.receiver(end), puts=isinstance(duty, duties.RecordAssignment)
        )

    def rebalance(self) -> None:
        """Spread the partitions by hand, as `ringpop_py.state.durable.rebalance` does."""
        newest, members = self.assignments.newest, self.owners()
        moving = any(row.moving or row.status is not PartitionStatus.ONLINE for row in self.table)
        if newest is None or moving or not members:
            return
        current = effective_owners(newest, members)
        owners = plan_moves(current, self.assignments.target(members, current)).owners
        self._keep(duties.RecordAssignment(Assignment(newest.version + 1, tuple(owners))))

    # Calls.

    def call(
        self, to: str, what: str, argument: Any, ttl_us: int, end: Callable[[Any], None]
    ) -> None:
        """Call the member *to*."""
        self.homes.calls.call(self, to, what, argument, ttl_us, end)

    def _ask_peers(self, asks: Iterable[GossipAsk], *, first: bool = False) -> None:
        for ask in asks:
            self._ask_peer(ask, first=first)

    def _ask_peer(self, ask: GossipAsk, *, first: bool) -> None:
        def end(answer: Any) -> None:
            body = answer if isinstance(answer, bytes) else None
            more = self.gossip.done(ask.token, body, self.now)
            self._ask_peers(more, first=first)
            if first and not more:
                self._answered_first(1)
            self.keep_time()

        self.call(ask.to, "gossip", ask.body, int(CALL_S * s), end)

    def serve(self, what: str, argument: Any, answer: Callable[[Any], None]) -> None:
        """Serve a call of another home."""
        match what:
            case "gossip":
                answer(self.gossip.heard(argument))
                self.keep_time()
            case "release":
                self.durable.release(argument, answer)
            case "take":
                try:
                    answer(self.copies.take(argument))
                except BodyError:
                    answer(ConnectFailed("refused"))
            case "write" | "read":
                self.parts.serve(what, argument, answer)
            case "relay":
                self._relay(argument, answer)
            case _:
                raise AssertionError(what)

    def _relay(self, request: tuple[str, Parts, int], answer: End) -> None:
        """Bring parts of a client to their owners; *answer* gets the results and the owners."""
        what, parts, time_us = request
        wanted = dict(parts)
        errand = Errand(tuple(wanted), self.homes.policies[what], self.now + time_us)

        def end() -> None:
            owners = {n: (self.destination(n), self.table[n].epoch) for n in wanted}
            answer(([errand.results[number] for number in wanted], owners))

        ErrandDriver(self, errand, what, wanted, end).go()
