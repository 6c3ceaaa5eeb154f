"""The partitions of a keyspace in memory mode that this node serves and hands over.

The owner that a partition should have follows from the members in the ring, and that member serves
it. A member with a copy of a partition that another should own hands the copy over. It offers the
copy, and once the other is willing, seals it, sends it part by part, and forgets it when the last
part was taken. The taker merges each part with its own state. It does not serve before the last
part has come, while there is an owner that is about to hand over. So planned moves lose nothing.
After a cut, during which both sides have served, the copies become one by the same path.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.errors import (
    BodyError,
    CallError,
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
    NoOwner,
    NotEnoughMembers,
    PartitionUnavailable,
)
from ringpop_py.logs import log
from ringpop_py.partition.partition import Presence
from ringpop_py.placing.keys import NOBODY
from ringpop_py.placing.table import PartitionStatus, Table, TableRow, from_rows, to_rows
from ringpop_py.steward.hand_over import BLANK, HAND_OVER, HandOver, HandOverStep, Said
from ringpop_py.steward.rescale_events import Gained, Lost, RescaleEvent, RescaleEvents
from ringpop_py.supervision import one_line
from ringpop_py.swim.member import Status
from ringpop_py.values.declared import decode, encode
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.keyed.joins import Rule
    from ringpop_py.keyed.mergeable import Content, Part
    from ringpop_py.partition.memory_partition import MemoryPartition
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.placing.assignment import Assignments
    from ringpop_py.steward.view import NodeView

HANDOVER_S: Final = 5.0
"""The seconds for which a member waits for an owner that sends nothing of the keyspace."""
RETRY_S: Final = 0.1
STEP_S: Final = 5.0

_ALIVE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)


class MemoryOwnership:
    """The partitions of one keyspace in memory mode at one node.

    Args:
        members: returns the names of the members that may own partitions of it, sorted.
        find_rule: returns the rule by which copies are merged. Raises ConfigError if this node
            does not know it.
        spread: gossips rows of the table soon.

    Attributes:
        table: the owner of each partition, as far as this node knows.
        partitions: those that are here: served, coming, or going.
        changed: an event that is set, and replaced, when the table or a partition here changes.
        dropped: whether the keyspace was dropped; then nothing of it will be served here.
        failure: why nothing of it is served here any longer; empty while the share has not failed.
        may_leave: called before a partition is given to another member; see `Stage.may_leave`.
        waits_for: why no partition was assigned at the last look; None if partitions were.
        handoff_pauses_s: for the last partitions that went to other members, the seconds in which
            no member served them.
    """

    def __init__(
        self,
        node: NodeView,
        entry: CatalogEntry,
        assignments: Assignments,
        *,
        members: Callable[[], Sequence[str]],
        make_partition: Callable[[int], MemoryPartition],
        find_rule: Callable[[], Rule],
        spread: Callable[[Sequence[TableRow]], None],
        spawn: Spawn,
    ) -> None:
        definition = entry.definition
        self.table = Table(definition.name, entry.generation, definition.partitions)
        self.partitions: dict[int, MemoryPartition] = {}
        self.events = RescaleEvents()
        self.changed = trio.Event()
        self.waits_for: KeyspaceError | NoOwner | None = None
        self.handoff_pauses_s: list[float] = []
        self._node = node
        self._assignments = assignments
        self._members = members
        self._make_partition = make_partition
        self._find_rule = find_rule
        self._spread = spread
        self._spawn = spawn
        self._gaining: set[int] = set()
        self._giving: set[int] = set()
        self._gives = trio.CapacityLimiter(node.config.state.handoffs_max)
        self._not_sent: set[int] = set()  # those that were logged
        self._heard_at: dict[str, float] = {}
        self._heirs: Sequence[str] | None = None  # only while this node leaves
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
        # If another member claims what is served here, nothing is given up: it may be the other
        # side of a cut. `look` decides by the owner that the partition should have.
        if news:
            self._tell_change()
        return news

    def row_of(self, number: int) -> list[Any]:
        """Return the row of one partition as `learn` reads it."""
        return to_rows([self.table[number]])

    def damage(self, _number: int) -> None:
        """Return None: nothing is read from a store here."""

    @property
    def gaining(self) -> frozenset[int]:
        """The partitions that are on their way here."""
        return frozenset(self._gaining)

    def online(self) -> list[MemoryPartition]:
        """Return the partitions that this node serves, in the order of their numbers."""
        found = [p for p in self.partitions.values() if p.presence is Presence.ONLINE]
        return sorted(found, key=lambda partition: partition.number)

    def already(self) -> list[RescaleEvent]:
        """Return the events that a new listener has missed."""
        return [self._gained(partition) for partition in self.online()]

    def _gained(self, partition: MemoryPartition) -> Gained:
        row = self.table[partition.number]
        return Gained(partition.number, row.epoch, partition.state.offsets)

    def _is_there(self, name: str) -> bool:
        return self._node.status_of(name) in _ALIVE

    def _tell_change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def _put(self, row: TableRow) -> None:
        self.table.put(row)
        self._spread([row])
        self._tell_change()

    # Serving.

    def look(self) -> None:
        """Compute the owners, and begin to gain and to give partitions accordingly."""
        if self.dropped or self.failure or self._heirs is not None or not self._node.ready:
            return
        try:
            owners = self._assignments.owners(self._members(), assigned=self.table.assigned)
            self.waits_for = None
        except (NoOwner, NotEnoughMembers) as error:
            self.waits_for = error
            return
        assert owners is not None, "nothing is recorded in memory mode"
        if self.table.desire(owners):
            self._tell_change()
        for number, owner in enumerate(owners):
            partition = self.partitions.get(number)
            if owner != self._node.name:
                if partition is not None:
                    self._begin_to_give(number)
            elif partition is not None and partition.presence is Presence.ONLINE:
                self._insist(number)
            elif number not in self._gaining:
                self._gaining.add(number)
                self._spawn(self._gain, number)

    def _is_wanted(self, number: int) -> bool:
        leaves = self.dropped or self._heirs is not None
        return self.table[number].desired == self._node.name and not leaves

    async def _gain(self, number: int) -> None:
        """Serve a partition once its owner has handed it over, or there is no owner to wait for."""
        try:
            began_at = trio.current_time()
            while self._is_wanted(number):
                partition = self.partitions.get(number)
                if partition is not None and partition.presence is Presence.ONLINE:
                    return
                if not self._is_expected(number, began_at):
                    self._serve(number)
                    return
                changed = self.changed
                with trio.move_on_after(RETRY_S):
                    await changed.wait()
        finally:
            self._gaining.discard(number)

    def _is_expected(self, number: int, since: float) -> bool:
        """Return whether to wait for an owner that may hand over, waited for *since* then."""
        if number in self._giving:  # a transfer has to end before it is served here again
            return True
        row = self.table[number]
        known = row.status in (PartitionStatus.ONLINE, PartitionStatus.MIGRATING)
        if not known or row.owner == self._node.name or not self._is_there(row.owner):
            return False
        # An owner with many transfers offers each again while it waits, which counts as a sign.
        heard_at = self._heard_at.get(row.owner, since)
        return trio.current_time() - max(since, heard_at) < HANDOVER_S

    def _serve(self, number: int) -> None:
        partition = self._partition(number)
        partition.presence = Presence.ONLINE
        self._claim(number)
        self.events.tell(self._gained(partition))

    def _partition(self, number: int) -> MemoryPartition:
        partition = self.partitions.get(number)
        if partition is None:
            partition = self.partitions[number] = self._make_partition(number)
        return partition

    def _claim(self, number: int) -> None:
        row = self.table[number]
        if row.status is PartitionStatus.UNASSIGNED:
            row = row.assigned(self._node.name)
        self._put(row.claimed(self._node.name, row.epoch + 1))

    def _insist(self, number: int) -> None:
        """Have the table name this node as the owner of a partition that it serves.

        After a cut the table names another member, if the claim of the other side was later.
        """
        row = self.table[number]
        # Two members that each should own it, in their own views, claim it in turn, once a look,
        # until the views agree. Epochs fence no member here, so both go on to serve.
        if row.owner != self._node.name or row.status is not PartitionStatus.ONLINE:
            self._claim(number)

    # Taking.

    def take(self, request: HandOver) -> Said:
        """Take one step of a transfer to this node; return the answer.

        Raises:
            BodyError: if there is no such partition.
        """
        number = request.number
        if number >= len(self.table):
            raise BodyError(f"keyspace {self.table.keyspace!r} has no partition {number}")
        content = request.content  # checked before anything is changed
        self.learn(request.row)
        self._heard_at[request.giver] = trio.current_time()
        if self.dropped or self.failure or self._heirs is not None or number in self._giving:
            return Said.NOT_NOW
        try:
            rule = self._find_rule()
        except ConfigError as error:
            log.warning("rule-unknown", keyspace=self.table.keyspace, text=str(error))
            return Said.NOT_NOW
        if request.step is HandOverStep.OFFER:
            # The copy of a giver that leaves must not be lost: this node hands it on to the member
            # that should have it.
            is_ours = self.table[number].desired == self._node.name
            return Said.YES if is_ours or request.leaving else Said.NOT_NOW
        self._take_in(request, content, rule)
        return Said.YES

    def _take_in(self, request: HandOver, content: Content, rule: Rule) -> None:
        partition = self._partition(request.number)
        partition.merge(content, rule, request.transfer)
        # Not if the copy is from the other side of a cut: then the owner is another member.
        owned = self.table[request.number].owner == request.giver
        if (
            request.step is HandOverStep.LAST
            and owned
            and partition.presence is not Presence.ONLINE
        ):
            self._serve(request.number)
        self._tell_change()

    # Giving.

    def _begin_to_give(self, number: int) -> None:
        if number not in self._giving:
            self._giving.add(number)
            self._spawn(self._give, number)

    def _taker(self, number: int) -> str:
        """Return the member to hand a partition to; `NOBODY` if it stays, or is not here."""
        if self.dropped or number not in self.partitions:
            return NOBODY
        desired = self.table[number].desired if self._heirs is None else self._heirs[number]
        return desired if desired != self._node.name else NOBODY

    async def _give(self, number: int) -> None:
        """Hand a partition over to the member that should have it, however long that takes."""
        try:
            while (to := self._taker(number)) != NOBODY:
                changed = self.changed
                await self._wait_for_turn(to, number)
                try:
                    # Checked again after the wait: the members may have changed.
                    if self._taker(number) == to and await self._hand_over(number, to):
                        return
                finally:
                    self._gives.release()
                with trio.move_on_after(RETRY_S):
                    await changed.wait()
        finally:
            self._giving.discard(number)

    async def _wait_for_turn(self, to: str, number: int) -> None:
        """Return when there are not too many other transfers; offer this one to *to* meanwhile."""
        while True:
            # A quarter: some offers may be lost before *to* no longer waits for this node.
            with trio.move_on_after(HANDOVER_S / 4):
                await self._gives.acquire()
                return
            await self._step(to, number, HandOverStep.OFFER)

    async def _hand_over(self, number: int, to: str) -> bool:
        """Return whether *to* has it now. If not, it may be sealed nevertheless; try again."""
        partition = self.partitions[number]
        # It was never served here, so there is nothing to merge, and no claim to pass on.
        if partition.empty and partition.presence is Presence.COMING:
            self._forget(partition)
            return True
        ends = self._heirs is not None  # then a partition that stays here is lost soon
        if partition.presence is Presence.ONLINE and not ends and not self.may_leave(number):
            return False
        if (
            await self._step(to, number, HandOverStep.OFFER) is not Said.YES
            or self._taker(number) != to
        ):
            return False
        self._seal(partition, to)
        sealed_at = trio.current_time()
        transfer, count = secrets.token_hex(8), 0
        parts = partition.parts()
        part = next(parts)
        while True:
            # One part ahead, because the last one has to say that it is the last.
            following = next(parts, None)
            step = HandOverStep.PART if following is not None else HandOverStep.LAST
            count += 1
            said = await self._step(to, number, step, f"{transfer}/{count}", part)
            if said is not Said.YES:
                return False
            if following is None:
                break
            if self._taker(number) != to:
                return False
            part = following
        self.handoff_pauses_s = [*self.handoff_pauses_s[-999:], trio.current_time() - sealed_at]
        self._forget(partition)
        return True

    def _seal(self, partition: MemoryPartition, to: str) -> None:
        if partition.presence is Presence.ONLINE:
            self.events.tell(Lost(partition.number))
        partition.presence = Presence.GOING
        row = self.table[partition.number]
        if row.owner == self._node.name and row.status is PartitionStatus.ONLINE:
            self._put(row.sealed(to))

    def _forget(self, partition: MemoryPartition) -> None:
        if self.partitions.get(partition.number) is partition:
            del self.partitions[partition.number]
            partition.presence = Presence.LOST
            self._tell_change()

    async def _step(
        self, to: str, number: int, step: HandOverStep, transfer: str = "", part: Part | None = None
    ) -> Said:
        address = self._node.address_of(to)
        if address is None:
            return Said.NOT_NOW
        try:
            request = HandOver(
                self.table.keyspace,
                self.table.generation,
                number,
                self._node.name,
                self._heirs is not None,
                self.row_of(number),
                step,
                transfer,
                *(part or BLANK),
            )
            body = encode(request)
        except (ValueError, TypeError, OverflowError) as error:
            self._tell_not_sent(number, error)
            return Said.NOT_NOW
        call = Call(NODE_SERVICE, HAND_OVER, b"", body, ttl_s=STEP_S)
        try:
            answer = await self._node.channel.call(address, call)
            return decode(Said, answer.arg3)
        except (CallError, BodyError, ValueError):
            return Said.NOT_NOW  # it is tried again, with the member that should have it then

    def _tell_not_sent(self, number: int, error: Exception) -> None:
        """Log once for each partition what keeps it here; other partitions still move."""
        if number in self._not_sent:
            return
        self._not_sent.add(number)
        text = f"a part of it cannot be encoded, so it stays here, sealed: {one_line(error)}"
        log.error("partition-not-sent", keyspace=self.table.keyspace, partition=number, text=text)

    # Ends.

    async def close(self) -> None:
        """Hand all partitions here over to the members that should own them without this node."""
        others = [name for name in self._members() if name != self._node.name]
        try:
            heirs = self._assignments.owners(others, assigned=True)
        except (NoOwner, NotEnoughMembers):
            return  # there is no member left to hand them to
        self._heirs = heirs
        for number in tuple(self.partitions):
            self._begin_to_give(number)
        while self.partitions:
            await self.changed.wait()

    def fail(self, why: str) -> None:
        """Serve nothing from now on; partitions that are here may still be handed over."""
        self.failure = why
        self._tell_change()

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        for partition in self.online():
            self.events.tell(Lost(partition.number))
        for partition in self.partitions.values():
            partition.presence = Presence.LOST
        self.partitions.clear()
        self._tell_change()
