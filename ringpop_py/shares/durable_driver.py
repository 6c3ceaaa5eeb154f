"""Carries out what the steward of a durable keyspace decides, on the logs of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from ringpop_py.catalog.assignments import read_newest, record
from ringpop_py.errors import (
    BodyError,
    CallError,
    KeyspaceError,
    StateDamaged,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from ringpop_py.journal import effects as fx
from ringpop_py.journal.desk import Presence
from ringpop_py.logs import log
from ringpop_py.partition.fence import FENCE
from ringpop_py.partition.partition import Partition
from ringpop_py.shares.driver import StewardDriver
from ringpop_py.shares.rescale_events import Lost
from ringpop_py.steward import duties as do
from ringpop_py.steward.duties import ReleaseSaid
from ringpop_py.swim.member import Status
from ringpop_py.transport.deadlines import now_us
from ringpop_py.values.declared import Natural, Text, decode, encode
from ringpop_py.values.requests import RELEASE, KeyspaceRequest
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.journal.records import Claim
    from ringpop_py.partition.tasks import Spawn, Worker
    from ringpop_py.partition.view import NodeView
    from ringpop_py.partition.writer import Writer, Written
    from ringpop_py.placing.assignment import Assignment
    from ringpop_py.shares.driver import Peers
    from ringpop_py.steward.durable import DurableSteward
    from ringpop_py.steward.keeper import Keeper
    from ringpop_py.stores.layout import KeyspaceKeys

RELEASE_S: Final = 5.0
STRANGER_S: Final = 60.0
"""How long a process that took a partition over has to become a member, before it is a stranger."""
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


class KeyspaceLogs(Protocol):
    """The logs of a generation of a keyspace, and its assignments, in a store."""

    worker: Worker
    keys: KeyspaceKeys
    writer: Writer

    def make_partition(self, number: int) -> Partition:
        """Return a partition, not acquired yet."""

    def forget_records(self) -> None:
        """Drop the records that were kept for heirs, if there are no heirs."""

    async def is_over(self) -> bool:
        """Return whether this generation was dropped, by the store. Raises StoreUnavailable."""


class DurableDriver(StewardDriver["DurableSteward", Partition]):
    """The partitions of one durable keyspace at one node.

    Args:
        keeper: follows and records the assignments in the store.

    Attributes:
        seals_met: how often the journal of this node was sealed by another.
    """

    def __init__(
        self,
        steward: DurableSteward,
        keeper: Keeper,
        node: NodeView,
        peers: Peers,
        spawn: Spawn,
        logs: KeyspaceLogs,
    ) -> None:
        super().__init__(steward, node, peers, spawn)
        self.keeper = keeper
        self._logs = logs
        self._coming: dict[int, Partition] = {}
        self._strangers: set[str] = set()
        self.seals_met = 0
        logs.writer.keeper = self

    def obstacle(self, number: int) -> KeyspaceError | None:
        """See `Holder`."""
        partition = self._coming.get(number)
        return partition.trouble if partition is not None else None

    @property
    def coming_count(self) -> int:
        """How many partitions are on their way here."""
        return len(self._coming)

    def troubles(self) -> list[tuple[int, KeyspaceError]]:
        """Return the partitions here, or on their way here, whose store fails, and its errors.

        They are in the order of their numbers.
        """
        partitions = {**self._coming, **self.partitions}
        found = ((number, partitions[number].trouble) for number in sorted(partitions))
        return [(number, trouble) for number, trouble in found if trouble is not None]

    # Assignments.

    def _advance(self, now: int) -> None:
        super()._advance(now)
        if self.keeper.next_deadline is not None:
            self._do(self.keeper.advance(now))

    def _next_deadline(self) -> int:
        keeper_at = self.keeper.next_deadline
        at = self.steward.next_deadline
        return at if keeper_at is None else min(at, keeper_at)

    def hint(self, version: int) -> None:
        """Read the store soon if *version* of the assignment, which another node knows, is news."""
        self.keeper.hint(version, now_us())
        self._do(())

    def learn_assignment(self, assignment: Assignment) -> None:
        """Follow *assignment*, which is in the store, if it is news."""
        self._follow(self.keeper.learn(assignment))

    def _follow(self, tasks: list[do.Task]) -> None:
        self._do(tasks)
        if tasks:
            self.look()

    # Duties.

    def _begin(self, task: do.Duty | do.Fact) -> None:
        match task:
            case do.Serve(number, epoch):
                partition = self.partitions[number] = self._coming.pop(number)
                self.events.tell(self._gained(partition, epoch))
                self._logs.forget_records()
            case do.Drop(number):
                self.partitions.pop(number).leave()
                self.events.tell(Lost(number))
            case do.Abandon(number):
                # None if its try had not begun, for want of a place.
                abandoned = self._coming.pop(number, None)
                if abandoned is not None:
                    abandoned.leave()
                self._logs.forget_records()
            case do.ReadAssignment() | do.RecordAssignment():
                self._spawn(self._keep, task)
            case _:
                self._spawn(self._carry_out, task)

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

    async def _perform(self, duty: do.Duty) -> object:
        match duty:
            case do.Follow(number) | do.Acquire(number):
                partition = self._make_coming(number)
                try:
                    if isinstance(duty, do.Acquire):
                        return await self._acquire(partition, duty)
                    await partition.follow()
                except KeyspaceError as error:
                    damaged = isinstance(error, StateDamaged)
                    if not damaged:
                        self._log_not_gained(number, error)
                    partition.leave()
                    return do.Trouble(damaged)
                return do.Got()
            case do.AskToRelease(number, owner, epoch):
                return await self._ask_to_release(number, owner, epoch)
            case do.SealFor(number, to):
                return await self._seal(number, to)
            case _:
                raise AssertionError(duty)

    def _make_coming(self, number: int) -> Partition:
        """Return a partition that may come: a new one, unless its last try was not given up."""
        former = self._coming.get(number)
        # A try that was given up may have ended with a claim: the journal may still call its state,
        # and resets it once that claim is released.
        if former is not None and former.presence is not Presence.LOST:
            return former
        partition = self._coming[number] = self._logs.make_partition(number)
        if former is not None:
            partition.damage = former.damage  # requests fail with it until the partition is read
        return partition

    async def _acquire(
        self, partition: Partition, duty: do.Acquire
    ) -> do.Taken | do.HeldBy | do.Over | do.Trouble:
        def may_take(claim: Claim, epoch: int) -> bool:
            return self.steward.may_replace(duty, claim.owner, epoch)

        fact = await partition.acquire(may_take)
        if isinstance(fact, fx.NotAcquired):
            return do.HeldBy(fact.holder.owner, fact.epoch)
        try:
            # A drop marks the generation first, and then fences each partition. If our claim came
            # after the fence, the mark is there, even if gossip of the drop has not come yet.
            over = await self._logs.is_over()
        except StoreUnavailable:
            partition.leave()
            return do.Trouble()
        if over:
            partition.leave()
            return do.Over()
        await self._logs.writer.claimed(partition.number)  # the journal may have been sealed since
        if partition.presence is not Presence.ONLINE:
            partition.leave()
            return do.Trouble()
        return do.Taken(partition.epoch)

    def _log_not_gained(self, number: int, error: KeyspaceError) -> None:
        name = self.table.keyspace
        log.warning(
            "partition-not-gained",
            text=f"partition {number} of {name} cannot come here yet: {error}",
            keyspace=name,
            partition=number,
        )

    async def _ask_to_release(self, number: int, owner: str, epoch: int) -> ReleaseSaid:
        address = self._node.address_of(owner)
        if address is None:
            return ReleaseSaid.UNREACHABLE
        keyspace, generation = self.table.keyspace, self.table.generation
        coming = self._coming.get(number)
        journal = "" if coming is None else coming.journal_of(epoch)
        request = ReleaseRequest(keyspace, generation, number, epoch, self._node.name, journal)
        body = encode(request)
        call = Call(NODE_SERVICE, RELEASE, b"", body, ttl_s=RELEASE_S)
        try:
            answer = await self._node.channel.call(address, call)
            return decode(ReleaseSaid, answer.arg3)
        except (CallError, BodyError) as error:
            return ReleaseSaid.of(error)

    async def release(self, request: ReleaseRequest) -> ReleaseSaid:
        """Release a partition to the node that asks, if that is right; return the answer."""
        number = request.number
        if not 0 <= number < len(self.table):
            raise BodyError(f"keyspace {self.table.keyspace!r} has no partition {number}")
        answer = self.steward.release(number, request.epoch, request.to)
        if isinstance(answer, ReleaseSaid):
            mine = self._logs.writer.is_settled(number, request.journal)
            # Who hears NOT_MINE may seal the journal, and with it all partitions of this node. So
            # a claim or a release that is on its way here is waited for.
            wait = answer is ReleaseSaid.NOT_MINE and not mine and not self.failure
            return ReleaseSaid.NOT_YET if wait else answer
        said: list[ReleaseSaid] = []
        try:
            if not self.may_leave(number):
                said = [ReleaseSaid.NOT_YET]
            else:
                # In a task of its own: the seal goes on if the one who asks hangs up.
                self._spawn(self._seal_for, answer, said)
        except KeyspaceError:  # the share has ended
            said = [ReleaseSaid.NOT_MINE]
        if said:
            self._end(answer, said[0])
        while not said and not self.failure:
            await self.changed.wait()
        return said[0] if said else ReleaseSaid.NOT_MINE

    async def _seal_for(self, duty: do.SealFor, said: list[ReleaseSaid]) -> None:
        result = await self._seal(*duty)
        said.append(result)
        self._end(duty, result)

    async def _seal(self, number: int, to: str) -> ReleaseSaid:
        partition = self.partitions.get(number)
        if partition is None:  # it was lost before this task began
            return ReleaseSaid.NOT_MINE
        try:
            await partition.release(to)
        except StoreRefused as error:
            # It is here as before. Who hears NOT_MINE may seal the journal, and with it all
            # partitions here: that is right if this node cannot write, and another perhaps can.
            return ReleaseSaid.NOT_YET if isinstance(error, StoreFull) else ReleaseSaid.NOT_MINE
        except KeyspaceError:  # it was lost meanwhile, or is claimed again
            here = partition.epoch != 0 or self._logs.writer.journal.reclaims(number)
            return ReleaseSaid.NOT_YET if here else ReleaseSaid.NOT_MINE
        return ReleaseSaid.SEALED

    # As `Keeper` of the writer.

    def has_sealed(self, seal: fx.Sealed) -> None:
        """See `Keeper`."""
        owner, name, keyspace = seal.holder.owner, self._node.name, self.table.keyspace
        status = self._node.status_of(owner)
        if owner == name:
            why = "that was an earlier process of this node"
        elif status is None:
            why = "it is no member"
        elif status is Status.ALIVE:
            why = "it is alive, and has answered that it does not have it"
        elif self._node.is_silent(owner):
            why = "it answers neither this node nor those that it asked"
        else:
            why = f"it is {status.label}"
        text = (
            f"{owner}: its journal {seal.journal} of {keyspace} was sealed by {name}, which takes"
            f" partition {seal.partition} over: {why}"
        )
        log.warning("journal-sealed", text=text, keyspace=keyspace, journal=seal.journal, by=name)
        self._node.note(
            {
                "event": "journal-sealed",
                "member": owner,
                "by": name,
                "keyspace": keyspace,
                "journal": seal.journal,
                "slot": seal.slot,
                "text": text,
            }
        )

    def fenced(self, fence: fx.Fenced, partitions: Sequence[Written]) -> None:
        """See `Keeper`."""
        by, name, keyspace = fence.by, self._node.name, self.table.keyspace
        self.seals_met += 1
        text = f"{name}: its journal {fence.name} of {keyspace} was sealed by {by}; " + (
            f"what it had is read again: {len(fence.lost)} partitions"
            if fence.outcome_open
            else f"{len(partitions)} partitions are claimed again"
        )
        log.warning("journal-lost", text=text, keyspace=keyspace, journal=fence.name, by=by)
        self._node.note(
            {
                "event": "journal-lost",
                "member": name,
                "by": by,
                "keyspace": keyspace,
                "journal": fence.name,
                "partitions": len(partitions),
                "text": text,
            }
        )
        self._warn_of_stranger(by)
        here = [p.number for p in partitions if self.partitions.get(p.number) is p]
        self._do(self.steward.fenced(here, now_us()))

    def claimed_again(self, partition: Written, epoch: int) -> None:
        """*partition* is served again, in *epoch*."""
        if self.partitions.get(partition.number) is partition:
            self._do(self.steward.claimed_again(partition.number, epoch, now_us()))
        elif self._coming.get(partition.number) is not partition:
            partition.leave()

    def lost(self, partition: Written, to: str) -> None:
        """Give up a partition that another node has taken over."""
        number = partition.number
        if self.partitions.get(number) is not partition:
            return  # this node had given it up already, and may have gained it again by now
        log.warning(
            "partition-lost",
            text=f"partition {number} of {self.table.keyspace} is no longer served here"
            + (f": it was taken over by {to}" if to else ""),
            keyspace=self.table.keyspace,
            partition=number,
            taken_by=to,
        )
        self._warn_of_stranger(to)
        self._do(self.steward.lost(number, to, now_us()))

    def _warn_of_stranger(self, name: str) -> None:
        """Warn once for each *name* that took a partition over and does not become a member."""
        known = name in ("", FENCE) or self._node.status_of(name) is not None
        if known or name in self._strangers or len(self._strangers) >= STRANGERS_MAX:
            return
        self._strangers.add(name)
        self._spawn(self._warn_if_strange, name)

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
