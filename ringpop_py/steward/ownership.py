"""The partitions of a durable keyspace that this node gains, serves and gives up.

The member that should own a partition does the work. While its owner is alive, that is a handoff:
follow the log while the owner serves, ask the owner to release the partition, read the rest, claim.
If the owner is gone, or there was none, it is a take-over. In the end the log decides which member
is the owner. Views that differ cost time here, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ringpop_py.errors import (
    BodyError,
    CallError,
    ConnectFailed,
    KeyspaceError,
    KeyspaceUnknown,
    NoOwner,
    NotEnoughMembers,
    PartitionUnavailable,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.logs import log
from ringpop_py.partition.partition import Partition, Presence
from ringpop_py.placing.keys import NOBODY
from ringpop_py.placing.table import PartitionStatus, Table, TableRow, from_rows, to_rows
from ringpop_py.slotlog import effects as log_is
from ringpop_py.steward.rescale_events import Gained, Lost, RescaleEvent, RescaleEvents
from ringpop_py.steward.truces import Truces
from ringpop_py.swim.member import Status
from ringpop_py.values.declared import Natural, Text, decode, encode
from ringpop_py.values.requests import RELEASE, KeyspaceRequest
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.config.settings import StateConfig
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.placing.assignment import Assignments
    from ringpop_py.slotlog.slots import Claim, Slot
    from ringpop_py.steward.view import NodeView

LOOK_S: Final = 1.0
"""The seconds after which a node looks again at the owners that partitions should have."""
MICROSECONDS: Final = 1_000_000
RETRY_S: Final = 0.1
FAILED_S: Final = 1.0
DAMAGED_S: Final = 5.0
"""The seconds from one look at a damaged log to the next: an operator may have repaired it."""
RELEASE_S: Final = 5.0
STRANGERS_MAX: Final = 16
"""The most processes of other clusters that are warned of, in each keyspace."""

_ALIVE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)

SEALED: Final = "sealed"
NOT_MINE: Final = "not mine"
NOT_YET: Final = "not yet"
"""The answers of an owner that is asked to release a partition."""


class ReleaseRequest(KeyspaceRequest, frozen=True):
    """Asks the owner in *epoch* to release partition *number*, which *to* wants to claim."""

    number: Natural
    epoch: Natural
    to: Text


class PartitionMaker(Protocol):
    """Makes the partition of a number; see `Partition` for *lost*."""

    def __call__(self, number: int, lost: Callable[[Partition, str], None]) -> Partition:
        """Return the partition, not acquired yet."""


class Ownership:
    """The partitions of one durable keyspace at one node.

    Args:
        members: returns the names of the members that may own partitions of it, sorted.
        spread: gossips rows of the table soon.
        is_over: returns whether this generation was dropped, by the store. Raises StoreUnavailable.

    Attributes:
        table: the owner of each partition, as far as this node knows.
        partitions: those that are here: online, or sealed and not yet claimed by another member.
        changed: an event that is set, and replaced, when the table or a partition here changes.
        dropped: whether the keyspace was dropped; then nothing of it will be served here.
        failure: why nothing of it is served here any longer; empty while the share has not failed.
        may_leave: called before a partition is released to another member; see `Stage.may_leave`.
        waits_for: why no partition was assigned at the last look; None if partitions were.
        handoff_pauses_s: for the last partitions that came from living owners, the seconds in
            which no member served them.
    """

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        assignments: Assignments,
        *,
        members: Callable[[], Sequence[str]],
        make_partition: PartitionMaker,
        spread: Callable[[Sequence[TableRow]], None],
        is_over: Callable[[], Awaitable[bool]],
        spawn: Spawn,
    ) -> None:
        definition = entry.definition
        self.table = Table(definition.name, entry.generation, definition.partitions)
        self.partitions: dict[int, Partition] = {}
        self.events = RescaleEvents()
        self.changed = trio.Event()
        self.waits_for: KeyspaceError | NoOwner | None = None
        self.handoff_pauses_s: list[float] = []
        self._node = node
        self._config: StateConfig = node.config.state
        self._assignments = assignments
        self._members = members
        self._make_partition = make_partition
        self._spread = spread
        self._is_over = is_over
        self._spawn = spawn
        self._gaining: set[int] = set()
        self._coming: dict[int, Partition] = {}
        self._releasing: set[int] = set()
        self._handoffs = trio.CapacityLimiter(self._config.handoffs_max)
        self._takeovers = trio.CapacityLimiter(self._config.takeovers_max)
        self._truces = Truces()
        self._strangers: set[str] = set()
        self._closing = False
        self.dropped = False
        self.failure = ""
        self.may_leave: Callable[[int], bool] = lambda _number: True

    # What is known.

    def destination(self, number: int) -> str:
        """Return the member to ask about a partition; empty if there is none."""
        row = self.table[number]
        if row.status is PartitionStatus.ONLINE and self._is_there(row.owner):
            return row.owner
        return row.desired

    def why_nobody(self, number: int) -> KeyspaceError:
        """Return why there is no member to ask about a partition."""
        if self.dropped:
            return KeyspaceUnknown(f"keyspace {self.table.keyspace!r} was dropped")
        if isinstance(self.waits_for, NotEnoughMembers):
            return self._why_waiting(number)
        why = str(self.waits_for) if self.waits_for else "no member was assigned to it yet"
        return PartitionUnavailable(f"partition {number}: {why}")

    def _why_waiting(self, number: int) -> KeyspaceError:
        """Return which members were missing at the last look, or that they are here by now."""
        try:
            self._assignments.owners(self._members(), assigned=self.table.assigned)
        except NotEnoughMembers as error:
            return error
        return PartitionUnavailable(f"partition {number}: it is being assigned")

    def learn(self, plain: list[Any]) -> None:
        """Merge rows that another node sent. Raises BodyError."""
        self.merge(from_rows(plain, len(self.table)))

    def merge(self, rows: Iterable[TableRow]) -> list[TableRow]:
        """Merge *rows*; return those that were news."""
        news = self.table.merge(rows)
        for row in news:
            partition = self.partitions.get(row.partition)
            if partition is not None and row.epoch > partition.log.epoch:
                # Another node has claimed it. Perhaps this node had sealed it for that; if not, the
                # next commit here would be fenced.
                self._let_go(partition)
        if news:
            self._tell_change()
        return news

    def row_of(self, number: int) -> list[Any]:
        """Return the row of one partition as `learn` reads it."""
        return to_rows([self.table[number]])

    @property
    def gaining(self) -> frozenset[int]:
        """The partitions that are on their way here."""
        return frozenset(self._gaining)

    def damage(self, number: int) -> StateDamaged | None:
        """Return why a partition on its way here cannot be read; None if no try has failed."""
        partition = self._coming.get(number)
        return partition.damage if partition is not None else None

    def troubles(self) -> list[tuple[int, KeyspaceError]]:
        """Return the partitions here, or on their way here, whose store fails, and its errors.

        They are in the order of their numbers.
        """
        partitions = {**self._coming, **self.partitions}
        found = ((number, partitions[number].trouble) for number in sorted(partitions))
        return [(number, trouble) for number, trouble in found if trouble is not None]

    def online(self) -> list[Partition]:
        """Return the partitions that this node serves, in the order of their numbers."""
        found = [p for p in self.partitions.values() if p.presence is Presence.ONLINE]
        return sorted(found, key=lambda partition: partition.number)

    def already(self) -> list[RescaleEvent]:
        """Return the events that a new listener has missed."""
        return [_gained(partition) for partition in self.online()]

    def _is_there(self, name: str) -> bool:
        return self._node.status_of(name) in _ALIVE

    def _tell_change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def _put(self, row: TableRow) -> None:
        self.table.put(row)
        self._spread([row])
        self._tell_change()

    def checkpointed(self, number: int, slot: Slot) -> None:
        """Note a checkpoint of a partition of this node, for readers of the table."""
        # Not spread: a row with a new checkpoint only is not news (`TableRow.checkpoint`).
        self.table.put(self.table[number].checkpointed(slot))

    # Gaining.

    def look(self) -> None:
        """Compute the owners, and begin to gain partitions that this node should own."""
        if self._closing or not self._node.ready:  # before its join a node seems to be alone
            return
        try:
            owners = self._assignments.owners(self._members(), assigned=self.table.assigned)
            self.waits_for = None
        except (NoOwner, NotEnoughMembers) as error:
            self.waits_for = error
            return
        # The strategy needs a record, which the keeper of one node puts: nothing to do until then.
        if owners is None:
            self.waits_for = PartitionUnavailable("the first assignment is not recorded yet")
            return
        if self.table.desire(owners):
            self._tell_change()
        for number, owner in enumerate(owners):
            if owner == self._node.name and number not in self._gaining:
                partition = self.partitions.get(number)
                if partition is None or partition.presence is not Presence.ONLINE:
                    self._gaining.add(number)
                    self._spawn(self._gain, number)

    def _is_wanted(self, number: int) -> bool:
        return self.table[number].desired == self._node.name and not self._closing

    async def _gain(self, number: int) -> None:
        """Bring a partition here; stop trying when another member should own it."""
        try:
            partition = self._coming[number] = self._make_partition(number, self._lost)
            while self._is_wanted(number):
                changed = self.changed
                try:
                    if await self._try_to_gain(partition):
                        return
                except StateDamaged:
                    partition.leave()
                    self._tell_change()  # requests that wait for it fail with the damage instead
                    await trio.sleep(DAMAGED_S)
                    continue
                except KeyspaceError as error:
                    # The store has failed for long, or the disk here is full. Partitions that wait
                    # for the limiter have their turn during this pause.
                    self._log_not_gained(number, error)
                    partition.leave()
                    await trio.sleep(FAILED_S)
                    continue
                with trio.move_on_after(RETRY_S):
                    await changed.wait()
        finally:
            self._gaining.discard(number)
            self._coming.pop(number, None)

    def _log_not_gained(self, number: int, error: KeyspaceError) -> None:
        name = self.table.keyspace
        log.warning(
            "partition-not-gained",
            text=f"partition {number} of {name} cannot come here yet: {error}",
            keyspace=name,
            partition=number,
        )

    async def _try_to_gain(self, partition: Partition) -> bool:
        """Return whether the partition is here now."""
        number = partition.number
        row = self.table[number]
        served = row.status is PartitionStatus.ONLINE and row.owner != self._node.name
        if not served or not self._is_there(row.owner):
            # Only take-overs wait: an owner that releases the partition is not fenced by us.
            if self._truces.left_us(number, _now_us()):
                return False
            async with self._takeovers:
                if await self._acquire(partition, {self._node.name}):
                    return True
            row = self.table[number]
            given_up = row.status in (PartitionStatus.MIGRATING, PartitionStatus.OFFLINE)
            if not given_up or row.owner == self._node.name or not self._is_there(row.owner):
                return False
            # Its owner no longer serves it, but the log has no seal: perhaps it could not put one.
        async with self._handoffs:
            if not self._is_wanted(number):  # after the wait for a place
                return False
            await partition.follow()  # most of the way, while the owner still serves
            said, sealed_after_s = await self._ask_to_release(row.owner, number, row.epoch)
            if said == NOT_YET:
                return False
            asked_at = trio.current_time()
            # After a seal there is no owner to replace. One that answers NOT_MINE must not stop us.
            gained = await self._acquire(partition, {row.owner} if said == NOT_MINE else set())
            if gained and said == SEALED:
                pause_s = sealed_after_s + trio.current_time() - asked_at
                self.handoff_pauses_s = [*self.handoff_pauses_s[-999:], pause_s]
            return gained

    async def _acquire(self, partition: Partition, given_up: set[str]) -> bool:
        """Acquire the partition, unless a living owner that is not in *given_up* has it."""

        def may_take(claim: Claim) -> bool:
            return claim.owner in given_up or not self._is_there(claim.owner)

        fact = await partition.acquire(may_take)
        if isinstance(fact, log_is.NotAcquired):
            holder = TableRow(
                partition.number,
                owner=fact.holder.owner,
                epoch=fact.position.epoch,
                status=PartitionStatus.ONLINE,
            )
            self.merge([holder])
            return False
        # While we asked, another member may have claimed the next epoch, and its row has come.
        if not await self._may_serve() or self.table[partition.number].epoch > fact.epoch:
            partition.leave()
            return False
        self._hold(partition, fact.epoch)
        return True

    async def _may_serve(self) -> bool:
        """Return whether this generation was not dropped; asked after each claim."""
        try:
            # A drop marks the generation first, and then fences each partition. If our claim came
            # after the fence, the mark is there, even if gossip of the drop has not come yet.
            over = await self._is_over()
        except StoreUnavailable:
            return False
        self._closing = self._closing or over
        return not over

    def _hold(self, partition: Partition, epoch: int) -> None:
        number = partition.number
        row = self.table[number]
        before = self.partitions.get(number)
        if before is not None:
            self._let_go(before)  # sealed for a member that never claimed it
        self.partitions[number] = partition
        self.events.tell(_gained(partition))
        if epoch > row.epoch:
            self._put(row.claimed(self._node.name, epoch))
        self._tell_change()
        if self._closing:  # `close` sealed what was here, and this came too late for it
            self._spawn(self._seal, partition)

    async def _ask_to_release(self, owner: str, number: int, epoch: int) -> tuple[str, float]:
        """Return the answer of *owner*, and at most how many seconds ago it has sealed."""
        address = self._node.address_of(owner)
        if address is None:
            return NOT_MINE, 0.0
        keyspace, generation = self.table.keyspace, self.table.generation
        body = encode(ReleaseRequest(keyspace, generation, number, epoch, self._node.name))
        began_at = trio.current_time()
        call = Call(NODE_SERVICE, RELEASE, b"", body, ttl_s=RELEASE_S)
        try:
            answer = await self._node.channel.call(address, call)
            said = decode(Text, answer.arg3)
        except ConnectFailed:
            # A member that left is no longer probed, so membership will not declare it faulty.
            left = self._node.status_of(owner) is Status.LEAVE
            return (NOT_MINE if left else NOT_YET), 0.0
        except (CallError, BodyError):
            return NOT_YET, 0.0
        return said, trio.current_time() - began_at

    # Giving up.

    async def release(self, number: int, epoch: int, to: str) -> str:
        """Release partition *number* to *to*, which knows our *epoch*; return the answer."""
        if not 0 <= number < len(self.table):
            raise BodyError(f"keyspace {self.table.keyspace!r} has no partition {number}")
        partition = self.partitions.get(number)
        if self.failure:
            return NOT_MINE
        if partition is None or partition.presence is not Presence.ONLINE:
            # A partition that we no longer want may be on its way for long, if the store fails.
            return NOT_YET if number in self._gaining and self._is_wanted(number) else NOT_MINE
        if partition.log.epoch > epoch:
            return NOT_YET  # *to* does not know our last claim yet
        # If the views differ, a release would move the partition to and fro.
        fits = self.table[number].desired == to and len(self._releasing) < self._config.handoffs_max
        if not fits or not self.may_leave(number):
            return NOT_YET
        self._releasing.add(number)
        try:
            await partition.release(to)
        except KeyspaceError:
            return NOT_MINE
        finally:
            self._releasing.discard(number)
        self._mark_sealed(partition, to)
        return SEALED

    def _mark_sealed(self, partition: Partition, to: str) -> None:
        """Put the seal into the table, unless the table has a later claim already."""
        row = self.table[partition.number]
        ours = row.owner == self._node.name and row.epoch == partition.log.epoch
        if ours and row.status is PartitionStatus.ONLINE:
            self._put(row.sealed(to))

    def _lost(self, partition: Partition, to: str) -> None:
        """Give up a partition that another node has sealed."""
        if self.partitions.get(partition.number) is not partition:
            return  # this node had given it up already, and may have gained it again by now
        self._truces.fenced(partition.number, _now_us())
        row = self.table[partition.number]
        log.warning(
            "partition-lost",
            text=f"partition {partition.number} of {self.table.keyspace} is no longer served here"
            + (f": it was taken over by {to}" if to else ""),
            keyspace=self.table.keyspace,
            partition=partition.number,
            taken_by=to,
        )
        self._warn_of_stranger(to)
        self._let_go(partition)
        if row.owner == self._node.name and row.status is PartitionStatus.ONLINE:
            self._put(row.sealed(to))
        self._tell_change()

    def _warn_of_stranger(self, name: str) -> None:
        """Warn once for each *name* that took a partition over and was never a member here."""
        known = not name or self._node.status_of(name) is not None
        if known or name in self._strangers or len(self._strangers) >= STRANGERS_MAX:
            return
        self._strangers.add(name)
        keyspace, cluster = self.table.keyspace, self._node.config.cluster
        log.warning(
            "store-shared",
            text=f"{name} takes over partitions of {keyspace}, and is not a member of this cluster:"
            f" if two clusters named {cluster!r} use this store, give one of them another name "
            "(--cluster) or a store of its own",
            keyspace=keyspace,
            taken_by=name,
        )

    def _let_go(self, partition: Partition) -> None:
        if self.partitions.get(partition.number) is partition:
            del self.partitions[partition.number]
            partition.leave()
            self.events.tell(Lost(partition.number))

    async def end(self) -> None:
        """As `close`, because the keyspace was dropped: requests that wait for a partition fail."""
        # Before the seals, which may take long if the store is slow.
        self.dropped = True
        self._tell_change()
        await self.close()

    def fail(self, why: str) -> None:
        """Serve nothing from now on; partitions that are here may still be sealed."""
        self.failure = why
        self._closing = True
        self._tell_change()

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        for partition in list(self.partitions.values()):
            self._let_go(partition)
        self._tell_change()

    async def close(self) -> None:
        """Seal all partitions here, so that others need not detect that this node is gone."""
        self._closing = True
        async with trio.open_nursery() as nursery:
            for partition in self.online():
                nursery.start_soon(self._seal, partition)

    async def _seal(self, partition: Partition) -> None:
        try:
            await partition.release(NOBODY)
        except KeyspaceError:  # it was lost meanwhile, or is being released already
            return
        self._mark_sealed(partition, NOBODY)


def _now_us() -> int:
    return round(trio.current_time() * MICROSECONDS)


def _gained(partition: Partition) -> Gained:
    return Gained(partition.number, partition.log.epoch, partition.state.offsets)
