"""Which partitions of a durable keyspace this node has: gains them, holds them, gives them up.

Whoever should own a partition does the work. While its owner is alive, that is a handoff: follow
the log as far as it goes while the owner serves, ask the owner to release it, read the rest,
claim. If the owner is gone, or there was none, it is a take-over. The log decides who is the owner
in the end; views that differ cost time here, and nothing else.
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

    from ringpop_py.catalog.assignments import Assignments
    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.config.settings import StateConfig
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.slotlog.slots import Claim, Slot
    from ringpop_py.steward.view import NodeView

LOOK_S: Final = 1.0
"""How often who should own what is looked at without a reason."""
MICROSECONDS: Final = 1_000_000
RETRY_S: Final = 0.1
FAILED_S: Final = 1.0
DAMAGED_S: Final = 5.0
"""From one look at a damaged log to the next: somebody may have repaired it."""
RELEASE_S: Final = 5.0
STRANGERS_MAX: Final = 16
"""So many processes of other clusters are warned of, in each keyspace."""

_ALIVE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)

SEALED: Final = "sealed"
NOT_MINE: Final = "not mine"
NOT_YET: Final = "not yet"
"""What an owner says to who asks it to release a partition."""


class ReleaseRequest(KeyspaceRequest, frozen=True):
    """Release the partition *number*, taken to be yours in *epoch*, for *to* to claim it."""

    number: Natural
    epoch: Natural
    to: Text


class PartitionMaker(Protocol):
    """Makes the partition of that number; *lost* as in `Partition`."""

    def __call__(self, number: int, lost: Callable[[Partition, str], None]) -> Partition:
        """The partition, not acquired yet."""


class Ownership:
    """The partitions of one durable keyspace at one node.

    Args:
        members: the names of those who may own partitions of it, sorted.
        spread: has rows of the table told to others, soon.
        is_over: whether this generation was dropped, as the store says. Raises StoreUnavailable.

    Attributes:
        table: who owns what, as far as is known.
        partitions: those that are here: online, or sealed and not yet claimed by another.
        changed: is set, and replaced, when something in the table or here changes.
        dropped: the keyspace was; nothing of it will be served here.
        failure: why nothing of it is served here any longer; empty while all is well.
        may_leave: asked before a partition is given up to another; see `Stage.may_leave`.
        waits_for: why nothing was assigned yet; None if it was.
        handoffs: how long the last partitions that came from living owners were served by nobody,
            in seconds.
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
        """Whom to ask about a partition; empty if there is nobody."""
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
        why = str(self.waits_for) if self.waits_for else "it was assigned to nobody yet"
        return PartitionUnavailable(f"partition {number}: {why}")

    def _why_waiting(self, number: int) -> KeyspaceError:
        """Return which members were missing at the last look, or that they are here by now."""
        try:
            self._assignments.owners(self._members(), assigned=self.table.assigned)
        except NotEnoughMembers as error:
            return error
        return PartitionUnavailable(f"partition {number}: it is being assigned")

    def learn(self, plain: list[Any]) -> None:
        """Merge rows that somebody else sent. Raises BodyError."""
        self.merge(from_rows(plain, len(self.table)))

    def merge(self, rows: Iterable[TableRow]) -> list[TableRow]:
        """Take in *rows*; those that were news."""
        news = self.table.merge(rows)
        for row in news:
            partition = self.partitions.get(row.partition)
            if partition is not None and row.epoch > partition.log.epoch:
                # Somebody else has claimed it. Perhaps we had sealed it for them; if not, the next
                # commit here would find out.
                self._let_go(partition)
        if news:
            self._tell_change()
        return news

    def row_of(self, number: int) -> list[Any]:
        """What `learn` takes, of one partition."""
        return to_rows([self.table[number]])

    @property
    def gaining(self) -> frozenset[int]:
        """Partitions that are on their way here."""
        return frozenset(self._gaining)

    def damage(self, number: int) -> StateDamaged | None:
        """Why a partition that is to come here cannot be read; None if it can, for all we know."""
        partition = self._coming.get(number)
        return partition.damage if partition is not None else None

    def troubles(self) -> list[tuple[int, KeyspaceError]]:
        """Partitions here, or on their way here, for which the store does not do what it is asked.

        With what it says; by number.
        """
        partitions = {**self._coming, **self.partitions}
        found = ((number, partitions[number].trouble) for number in sorted(partitions))
        return [(number, trouble) for number, trouble in found if trouble is not None]

    def online(self) -> list[Partition]:
        """The partitions that this node serves, by number."""
        found = [p for p in self.partitions.values() if p.presence is Presence.ONLINE]
        return sorted(found, key=lambda partition: partition.number)

    def already(self) -> list[RescaleEvent]:
        """What a listener to events that begins now has missed."""
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
        """There is a checkpoint of a partition of ours; who reads the table may see it."""
        self.table.put(self.table[number].checkpointed(slot))

    # Gaining.

    def look(self) -> None:
        """See who should own what, and begin to gain what this node should and does not."""
        if self._closing or not self._node.ready:  # alone, as far as a node knows that joins
            return
        try:
            owners = self._assignments.owners(self._members(), assigned=self.table.assigned)
            self.waits_for = None
        except (NoOwner, NotEnoughMembers) as error:
            self.waits_for = error
            return
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
        """Bring a partition here; give up when somebody else should own it."""
        try:
            partition = self._coming[number] = self._make_partition(number, self._lost)
            while self._is_wanted(number):
                changed = self.changed
                try:
                    if await self._try_to_gain(partition):
                        return
                except StateDamaged:
                    partition.leave()
                    self._tell_change()  # requests need not wait for it
                    await trio.sleep(DAMAGED_S)
                    continue
                except KeyspaceError as error:
                    # The store has been in trouble for long, or the disk here is full. Others had
                    # to wait for us meanwhile; now they have their turn.
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
        """Whether it is here now."""
        number = partition.number
        row = self.table[number]
        served = row.status is PartitionStatus.ONLINE and row.owner != self._node.name
        if not served or not self._is_there(row.owner):
            if self._truces.left_us(number, _now_us()):
                return False
            async with self._takeovers:
                if await self._acquire(partition, {self._node.name}):
                    return True
            row = self.table[number]
            given_up = row.status in (PartitionStatus.MIGRATING, PartitionStatus.OFFLINE)
            if not given_up or row.owner == self._node.name or not self._is_there(row.owner):
                return False
            # Its owner serves it no more, yet the log has no seal: it could not put one, perhaps.
        async with self._handoffs:
            if not self._is_wanted(number):
                return False
            await partition.follow()  # most of the way, while the owner still serves
            said, sealed_after_s = await self._ask_to_release(row.owner, number, row.epoch)
            if said == NOT_YET:
                return False
            asked_at = trio.current_time()
            gained = await self._acquire(partition, {row.owner} if said == NOT_MINE else set())
            if gained and said == SEALED:
                pause_s = sealed_after_s + trio.current_time() - asked_at
                self.handoff_pauses_s = [*self.handoff_pauses_s[-999:], pause_s]
            return gained

    async def _acquire(self, partition: Partition, given_up: set[str]) -> bool:
        """Acquire it, unless its owner is there and not one of *given_up*."""

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
        # While we asked, another may have claimed the next epoch already, and been heard of.
        if not await self._may_serve() or self.table[partition.number].epoch > fact.epoch:
            partition.leave()
            return False
        self._hold(partition, fact.epoch)
        return True

    async def _may_serve(self) -> bool:
        """Whether this generation goes on. Asked after each claim.

        Whoever drops it first marks it so, and then fences each partition. We may have claimed
        after that, without having heard of it; then the mark is there.
        """
        try:
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
            self._let_go(before)
        self.partitions[number] = partition
        self.events.tell(_gained(partition))
        if epoch > row.epoch:
            self._put(row.claimed(self._node.name, epoch))
        self._tell_change()
        if self._closing:
            self._spawn(self._seal, partition)

    async def _ask_to_release(self, owner: str, number: int, epoch: int) -> tuple[str, float]:
        """What *owner* says, and how long ago it sealed the partition, if it did."""
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
            # Whoever has left is not watched any more, so nobody will say that it is gone.
            left = self._node.status_of(owner) is Status.LEAVE
            return (NOT_MINE if left else NOT_YET), 0.0
        except (CallError, BodyError):
            return NOT_YET, 0.0
        return said, trio.current_time() - began_at

    # Giving up.

    async def release(self, number: int, epoch: int, to: str) -> str:
        """*to* wants a partition that it takes to be ours in *epoch*: what we say to that."""
        if not 0 <= number < len(self.table):
            raise BodyError(f"keyspace {self.table.keyspace!r} has no partition {number}")
        partition = self.partitions.get(number)
        if self.failure:
            return NOT_MINE
        if partition is None or partition.presence is not Presence.ONLINE:
            # What we do not want any more may be on its way for long, if our store is in trouble.
            return NOT_YET if number in self._gaining and self._is_wanted(number) else NOT_MINE
        if partition.log.epoch > epoch:
            return NOT_YET  # it has not heard of our last claim
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
        """Say so in the table, unless it knows already who has claimed the partition since."""
        row = self.table[partition.number]
        ours = row.owner == self._node.name and row.epoch == partition.log.epoch
        if ours and row.status is PartitionStatus.ONLINE:
            self._put(row.sealed(to))

    def _lost(self, partition: Partition, to: str) -> None:
        """Somebody else has sealed the partition."""
        if self.partitions.get(partition.number) is not partition:
            return  # we had let go of it already, and may have it again by now
        self._truces.fenced(partition.number, _now_us())
        row = self.table[partition.number]
        log.warning(
            "partition-lost",
            text=f"partition {partition.number} of {self.table.keyspace} is served here no more"
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
        """Warn, once a name, if *name* took a partition over and was never a member here."""
        known = not name or self._node.status_of(name) is not None
        if known or name in self._strangers or len(self._strangers) >= STRANGERS_MAX:
            return
        self._strangers.add(name)
        keyspace, cluster = self.table.keyspace, self._node.config.cluster
        log.warning(
            "store-shared",
            text=f"{name} takes over partitions of {keyspace}, and is no member of this cluster: "
            f"if two clusters named {cluster!r} use this store, give one of them another name "
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
        """The keyspace was dropped: as `close`, and whoever waits for a partition is told."""
        self.dropped = True
        self._tell_change()
        await self.close()

    def fail(self, why: str) -> None:
        """Serve nothing from now on; what is here may still be sealed."""
        self.failure = why
        self._closing = True
        self._tell_change()

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        for partition in list(self.partitions.values()):
            self._let_go(partition)
        self._tell_change()

    async def close(self) -> None:
        """Seal all that is here, so that others need not find out that we are gone."""
        self._closing = True
        async with trio.open_nursery() as nursery:
            for partition in self.online():
                nursery.start_soon(self._seal, partition)

    async def _seal(self, partition: Partition) -> None:
        try:
            await partition.release(NOBODY)
        except KeyspaceError:
            return
        self._mark_sealed(partition, NOBODY)


def _now_us() -> int:
    return round(trio.current_time() * MICROSECONDS)


def _gained(partition: Partition) -> Gained:
    return Gained(partition.number, partition.log.epoch, partition.state.offsets)
