"""Carries out what the steward of a durable keyspace decides, on the logs of its partitions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.base.errors import (
    BodyError,
    CallError,
    KeyspaceError,
    PartitionUnavailable,
    StoreUnavailable,
)
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import Natural, Text, decode, encode
from ringpop_py.base.values.requests import RELEASE, KeyspaceRequest
from ringpop_py.member.swim.member import Status
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.catalog.assignments import read_newest, record
from ringpop_py.state.catalog.fence import FENCE
from ringpop_py.state.durable.partition import Partition, damage_of
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.partition.record import (
    AskToRelease,
    Came,
    FoundDamage,
    JournalLost,
    LookDropped,
    NotGained,
    Perform,
    TakenOver,
)
from ringpop_py.state.placement import duties as do
from ringpop_py.state.placement.duties import ReleaseSaid
from ringpop_py.state.shares.driver import StewardDriver
from ringpop_py.state.shares.rescale_events import Lost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.durable.writer import Writer
    from ringpop_py.state.partition.machine import Machine
    from ringpop_py.state.placement.assignment import Assignment
    from ringpop_py.state.placement.keeper import Keeper
    from ringpop_py.state.shares.driver import Peers
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.tasks import Spawn, Worker

RELEASE_S: Final = 5.0
STRANGER_S: Final = 60.0
"""The seconds within which a process that took a partition over has to become a member. After that
a warning says that it may be a stranger."""
STRANGERS_MAX: Final = 16
"""The most processes of other clusters that are warned of, in each keyspace."""


class ReleaseRequest(KeyspaceRequest, frozen=True):
    """Asks the owner in *epoch* to release partition *number*, which *to* wants to claim.

    Attributes:
        journal: the one that the claim of that epoch names; empty if it is not known.
    """

    number: Natural
    epoch: Natural
    to: Text
    journal: Text = ""

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return (self.number,)


class KeyspaceLogs(Protocol):
    """The logs of a generation of a keyspace, and its assignments, in a store."""

    worker: Worker
    keys: KeyspaceKeys
    writer: Writer

    def forget_records(self) -> None:
        """Drop the records that were kept for recoveries, if there are no recoveries."""

    async def is_over(self) -> bool:
        """Return whether this generation was dropped, by the store. Raises StoreUnavailable."""


class DurableDriver(StewardDriver["Machine[Partition]", Partition]):
    """The partitions of one durable keyspace at one node: does what its `Machine` says.

    Args:
        keeper: follows and records the assignments in the store.

    Attributes:
        seals_met: how often the journal of this node was sealed by another.
    """

    def __init__(
        self,
        steward: Machine[Partition],
        keeper: Keeper,
        node: NodeView,
        peers: Peers,
        spawn: Spawn,
        logs: KeyspaceLogs,
    ) -> None:
        super().__init__(steward, node, peers, spawn)
        self.keeper = keeper
        self.seals_met = 0
        self._has_ended = False
        self._logs = logs
        self._strangers: set[str] = set()
        self.partitions = steward.parts
        steward.releases.may_leave = self._may_leave_now
        logs.writer.carry_out = self._do

    def _may_leave_now(self, number: int) -> bool:
        return self.may_leave(number)  # which is set later

    def obstacle(self, number: int) -> KeyspaceError | None:
        """See `Holder`."""
        partition = self.partitions.get(number)
        return None if partition is None or partition.coming is None else partition.trouble

    def troubles(self) -> list[tuple[int, KeyspaceError]]:
        """Return the partitions here, or on their way here, whose store fails, with its errors.

        They are in the order of their numbers.
        """
        found = ((number, self.partitions[number].trouble) for number in sorted(self.partitions))
        return [(number, trouble) for number, trouble in found if trouble is not None]

    # Assignments.

    def _advance(self, now: int) -> None:
        super()._advance(now)
        if self.keeper.next_deadline is not None:
            self._do(self.keeper.advance(now))

    def _next_deadline(self) -> int:
        keeper_at = self.keeper.next_deadline
        at = super()._next_deadline()
        return at if keeper_at is None else min(at, keeper_at)

    def hint(self, version: int) -> None:
        """Read the store soon if another node's *version* of the assignment is newer than ours."""
        self.keeper.hint(version, now_us())
        self._do(())

    def learn_assignment(self, assignment: Assignment) -> None:
        """Follow *assignment*, which is in the store, if it is newer than ours."""
        self._follow(self.keeper.learn(assignment))

    def _follow(self, tasks: list[do.Task]) -> None:
        self._do(tasks)
        if tasks:
            self.look()

    # What there is to do.

    def _do(self, tasks: Iterable[Any]) -> None:
        super()._do(tasks)
        self._carry_out_all()

    def _carry_out_all(self) -> None:
        machine = self.steward
        while machine.tasks or machine.ended:
            super()._do(machine.take(now_us()))
        if not machine.desk.empty:
            try:
                self._logs.writer.begin_work()
            except PartitionUnavailable:  # the share has ended
                self._has_ended = True
                machine.desk.stop()
                self._carry_out_all()

    def _begin(self, task: Any) -> None:  # noqa: ANN401, C901, PLR0912 - one case a kind
        match task:
            case Perform():
                self._logs.writer.ask(task)
            case Came(partition, epoch):
                self.events.tell(self._gained(partition, epoch))
                self._logs.forget_records()
            case do.Drop(number):
                self.events.tell(Lost(number))
            case do.Abandon():
                self._logs.forget_records()
            case do.ReadAssignment() | do.RecordAssignment():
                self._start(self._keep, task)
            case AskToRelease():
                self._start(self._ask_to_release, task)
            case LookDropped(partition):
                self._start(self._look_dropped, partition)
            case FoundDamage(partition, damage):
                damage_of(damage, partition.store)  # it logs what is damaged
            case NotGained(partition, error):
                self._log_not_gained(partition.number, error)
            case fx.Sealed():
                self._tell_sealed(task)
            case JournalLost():
                self._tell_journal_lost(task)
            case TakenOver():
                self._log_lost(task)
            case _:
                pass  # what only a simulator looks at

    def _start(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        with suppress(PartitionUnavailable):  # the share has ended
            self._spawn(function, *arguments)

    async def _keep(self, duty: do.ReadAssignment | do.RecordAssignment) -> None:
        worker, keys, name = self._logs.worker, self._logs.keys, self.table.keyspace
        result: Assignment | bool | do.Trouble | None
        try:
            if isinstance(duty, do.RecordAssignment):
                result = await worker.run(record, worker.store, keys, duty.assignment)
                if result:
                    log.info("assignment-recorded", keyspace=name, version=duty.assignment.version)
            else:
                result = await worker.run(read_newest, worker.store, keys, len(self.table))
        except KeyspaceError as error:
            recorded = isinstance(duty, do.RecordAssignment)
            event = "assignment-not-recorded" if recorded else "assignment-not-read"
            log.warning(event, keyspace=name, text=str(error))
            result = do.Trouble()
        self._follow(self.keeper.done(duty, result, now_us()))

    async def _look_dropped(self, partition: Partition) -> None:
        try:
            dropped: bool | None = await self._logs.is_over()
        except StoreUnavailable:
            dropped = None
        self._do(self.steward.looked(partition, now_us(), dropped=dropped))

    def _log_not_gained(self, number: int, error: KeyspaceError | None) -> None:
        name = self.table.keyspace
        log.warning(
            "partition-not-gained",
            text=f"partition {number} of {name} cannot come here yet: {error}",
            keyspace=name,
            partition=number,
        )

    async def _ask_to_release(self, asked: AskToRelease) -> None:
        number, owner, epoch = asked
        journal = self.partitions[number].recovery.journal_of(epoch)
        keyspace, generation = self.table.keyspace, self.table.generation
        request = ReleaseRequest(keyspace, generation, number, epoch, self._node.name, journal)
        said = await self._answer_of(owner, request)
        self._do(self.steward.asked(number, said, now_us()))

    async def _answer_of(self, owner: str, request: ReleaseRequest) -> ReleaseSaid:
        address = self._node.address_of(owner)
        if address is None:
            return ReleaseSaid.UNREACHABLE
        call = Call(NODE_SERVICE, RELEASE, b"", encode(request), ttl_s=RELEASE_S)
        try:
            answer = await self._node.channel.call(address, call)
            return decode(ReleaseSaid, answer.arg3)
        except (CallError, BodyError) as error:
            return ReleaseSaid.of(error)

    async def release(self, request: ReleaseRequest) -> ReleaseSaid:
        """Release a partition to the node that asks, if that is right; return the answer."""
        said: list[ReleaseSaid] = []
        # The release goes on even if the node that asks hangs up.
        self.steward.releases.ask(
            request.number, request.epoch, request.journal, request.to, said.append
        )
        self._carry_out_all()
        while not said and not self.failure:
            await self.changed.wait()
        # A share that has ended releases nothing any more.
        return said[0] if said and not self._has_ended else ReleaseSaid.NOT_MINE

    # Reports to the operator.

    def _tell_sealed(self, seal: fx.Sealed) -> None:
        owner, name, keyspace = seal.holder.owner, self._node.name, self.table.keyspace
        status = self._node.status_of(owner)
        if owner == name:
            why = "that was an earlier process of this node"
        elif status is None:
            why = "it is not a member"
        elif status is Status.ALIVE:
            why = "it is alive, and has answered that it does not have this partition"
        elif self._node.is_silent(owner):
            why = "it answers neither this node nor those that it asked"
        else:
            why = f"it is {status.label}"
        text = (
            f"{owner}: its journal {seal.journal} of {keyspace} was sealed by {name}, which takes"
            f" partition {seal.partition} over: {why}"
        )
        self._node.reporter.warning(
            "journal-sealed",
            member=owner,
            by=name,
            keyspace=keyspace,
            journal=seal.journal,
            slot=seal.slot,
            text=text,
        )

    def _tell_journal_lost(self, lost: JournalLost) -> None:
        fence, count = lost
        by, name, keyspace = fence.by, self._node.name, self.table.keyspace
        self.seals_met += 1
        text = f"{name}: its journal {fence.name} of {keyspace} was sealed by {by}; " + (
            f"what it had is read again: {len(fence.lost)} partitions"
            if fence.outcome_open
            else f"{count} partitions are claimed again"
        )
        self._node.reporter.warning(
            "journal-lost",
            member=name,
            by=by,
            keyspace=keyspace,
            journal=fence.name,
            partitions=count,
            text=text,
        )
        self._warn_of_stranger(by)

    def _log_lost(self, lost: TakenOver) -> None:
        number, to = lost
        log.warning(
            "partition-lost",
            text=f"partition {number} of {self.table.keyspace} is no longer served here"
            + (f": it was taken over by {to}" if to else ""),
            keyspace=self.table.keyspace,
            partition=number,
            taken_by=to,
        )
        self._warn_of_stranger(to)

    def _warn_of_stranger(self, name: str) -> None:
        """Warn once for each *name* that took a partition over and does not become a member."""
        known = name in ("", FENCE) or self._node.status_of(name) is not None
        if known or name in self._strangers or len(self._strangers) >= STRANGERS_MAX:
            return
        self._strangers.add(name)
        self._start(self._warn_if_strange, name)

    async def _warn_if_strange(self, name: str) -> None:
        # A node that has just started may not know its cluster yet.
        await trio.sleep(STRANGER_S)
        if self._node.status_of(name) is not None:
            self._strangers.discard(name)
            return
        keyspace, cluster = self.table.keyspace, self._node.config.cluster
        log.warning(
            "store-shared",
            text=f"{name} takes over partitions of {keyspace}, and is not a member of this cluster:"
            f" if two clusters named {cluster!r} use this store, give one of them another name "
            "(--cluster) or a store of its own; if they are one, the network between them is"
            " cut",
            keyspace=keyspace,
            taken_by=name,
        )
