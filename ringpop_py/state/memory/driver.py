"""Carries out what the steward of a keyspace in memory mode decides, on copies of partitions."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import BodyError, CallError, ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.copies.calls import CopyReply
from ringpop_py.state.memory.feeder import Feeder
from ringpop_py.state.memory.hand_over import (
    BLANK,
    HAND_OVER,
    HandOver,
    HandOverReply,
    HandOverStep,
)
from ringpop_py.state.memory.mergeable import content_of
from ringpop_py.state.memory.partition import MemoryPartition
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.expiry import Expiry
from ringpop_py.state.placement import duties as do
from ringpop_py.state.placement.table import to_rows
from ringpop_py.state.shares.driver import StewardDriver
from ringpop_py.state.shares.rescale_events import Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.copies.calls import CopiesAsked, CopyGroup
    from ringpop_py.state.memory.mergeable import Part
    from ringpop_py.state.memory.steward import MemorySteward
    from ringpop_py.state.shares.driver import Peers
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.table.joins import Rule
    from ringpop_py.state.tasks import Spawn

STEP_S: Final = 5.0


class MemoryDriver(StewardDriver["MemorySteward", MemoryPartition]):
    """The partitions of one keyspace in memory mode at one node.

    Args:
        find_rule: returns the rule by which copies are merged. Raises ConfigError if this node
            does not know it.

    Attributes:
        feeder: sends copies of what is served here.
    """

    def __init__(
        self,
        steward: MemorySteward,
        node: NodeView,
        peers: Peers,
        spawn: Spawn,
        *,
        make_partition: Callable[[int], MemoryPartition],
        find_rule: Callable[[], Rule],
    ) -> None:
        super().__init__(steward, node, peers, spawn)
        self._make_partition = make_partition
        self._find_rule = find_rule
        self._not_sent: set[int] = set()  # the partitions for which that was logged
        self._expiry = Expiry(self.online, MemoryPartition.expire)
        self.feeder = Feeder(steward, node, spawn, self.partitions, peers.members)

    def _partition(self, number: int) -> MemoryPartition:
        partition = self.partitions.get(number)
        if partition is None:
            partition = self.partitions[number] = self._make_partition(number)
            partition.on_expiring = self._look_if_sooner
            partition.on_changed = self._feed
        return partition

    def _feed(self, partition: MemoryPartition) -> None:
        self.feeder.changed(partition)
        self._wake_if_sooner()

    def _look_if_sooner(self, partition: MemoryPartition) -> None:
        if partition.presence is Presence.OWNED and self._expiry.is_sooner((partition,)):
            self._expiry.look(now_us())
            self._wake_if_sooner()

    def _advance(self, now: int) -> None:
        super()._advance(now)
        if now >= self._expiry.at:
            self._expiry.look(now)
        self.feeder.follow(now)
        self.feeder.advance(now)

    def _next_deadline(self) -> int:
        return min(super()._next_deadline(), self._expiry.at, self.feeder.at)

    def _begin(self, task: do.Duty | do.Fact) -> None:
        match task:
            case do.Serve(number, epoch):
                partition = self._partition(number)
                partition.presence = Presence.OWNED
                if partition.state.due:
                    self._expiry.look(now_us())
                self.feeder.begin(partition)
                self.events.tell(self._gained(partition, epoch))
            case do.Withhold(number):
                self.partitions[number].presence = Presence.RELEASING
                self.events.tell(Lost(number))
            case do.Drop(number):
                self._drop(number)
            case do.Remind(number, to):
                self._spawn(self._step, to, number, HandOverStep.OFFER)
            case do.Offer() | do.Send() | do.Recover():
                self._spawn(self._carry_out, task)
            case _:
                raise AssertionError(task)

    def _drop(self, number: int) -> None:
        partition = self.partitions.get(number)
        if partition is None:  # a copy of which nothing had come yet
            return
        if partition.presence is Presence.OWNED:
            self.events.tell(Lost(number))
        is_kept = number in self.steward.kept
        self.feeder.end(partition, given=is_kept or self.steward.leaving)
        if is_kept:
            partition.presence = Presence.PENDING
        else:
            del self.partitions[number]
            partition.presence = Presence.GONE

    async def _carry_out(self, duty: do.Offer | do.Send | do.Recover) -> None:
        result = await self._perform(duty)
        self._do(self.steward.done(duty, result, now_us()))

    async def _perform(self, duty: do.Offer | do.Send | do.Recover) -> object:
        if isinstance(duty, do.Recover):
            await self.feeder.recover(duty.numbers)
            return None
        number, to = duty
        partition = self.partitions.get(number)
        if partition is None:  # the keyspace was dropped before this task began
            return HandOverReply.NOT_NOW
        if isinstance(duty, do.Send):
            return await self._send(partition, to)
        if partition.mergeable.empty and partition.presence is Presence.PENDING:
            return do.NOTHING_TO_GIVE
        # If this node ends, a partition that stays here is lost.
        stays = partition.presence is Presence.OWNED and not self.steward.leaving
        if stays and not self.may_leave(number):
            return HandOverReply.NOT_NOW
        return await self._step(to, number, HandOverStep.OFFER)

    async def _send(self, partition: MemoryPartition, to: str) -> bool:
        transfer, count = secrets.token_hex(8), 0
        parts = partition.parts()
        part = next(parts)
        while self.steward.taker(partition.number) == to:
            # One part ahead, because the last one has to say that it is the last.
            following = next(parts, None)
            step = HandOverStep.PART if following is not None else HandOverStep.LAST
            count += 1
            said = await self._step(to, partition.number, step, f"{transfer}/{count}", part)
            if said is not HandOverReply.YES or following is None:
                return said is HandOverReply.YES
            part = following
        return False

    async def _step(
        self, to: str, number: int, step: HandOverStep, transfer: str = "", part: Part | None = None
    ) -> HandOverReply:
        address = self._node.address_of(to)
        if address is None:
            return HandOverReply.NOT_NOW
        copies = self.feeder.logs.get(number) if step is HandOverStep.LAST else None
        try:
            request = HandOver(
                self.table.keyspace,
                self.table.generation,
                number,
                self._node.name,
                self.steward.leaving,
                to_rows([self.table[number]]),
                step,
                transfer,
                *(part or BLANK),
                [*copies.backups] if copies is not None else [],
            )
            body = encode(request)
        except (ValueError, TypeError, OverflowError) as error:
            self._tell_not_sent(number, error)
            return HandOverReply.NOT_NOW
        call = Call(NODE_SERVICE, HAND_OVER, b"", body, ttl_s=STEP_S)
        try:
            answer = await self._node.channel.call(address, call)
            return decode(HandOverReply, answer.arg3)
        except (CallError, BodyError, ValueError):
            return (
                HandOverReply.NOT_NOW
            )  # it is tried again, with the member that should have it then

    def _tell_not_sent(self, number: int, error: Exception) -> None:
        """Log, once for each partition, why it stays here; other partitions still move."""
        if number in self._not_sent:
            return
        self._not_sent.add(number)
        text = f"a part of it cannot be encoded, so it stays here, sealed: {one_line(error)}"
        log.error("partition-not-sent", keyspace=self.table.keyspace, partition=number, text=text)

    def _rule(self) -> Rule | None:
        try:
            return self._find_rule()
        except ConfigError as error:
            log.warning("rule-unknown", keyspace=self.table.keyspace, text=str(error))
            return None

    def take_copies(self, request: CopyGroup) -> list[CopyReply]:
        """Take what an owner feeds this node; return the answers. Raises BodyError."""
        contents = [  # checked before anything is changed
            content_of(part.entries, part.sessions, part.offsets, part.digests)
            for part in request.parts
        ]
        rule = self._rule()
        said, tasks = self.steward.take_copies(
            request.owner, request.parts, now_us(), able=rule is not None
        )
        for part, content, reply in zip(request.parts, contents, said, strict=True):
            if reply is CopyReply.TAKEN and part.number in self.steward.kept:
                assert rule is not None
                self._partition(part.number).merge(content, rule, "")
        self._do(tasks)
        return said

    async def send_copies(self, request: CopiesAsked) -> list[int]:
        """Return which partitions of *request* are here, once they were sent if it wants that."""
        found = []
        for number, run, count in request.rows:
            partition = self.partitions.get(number)
            if partition is None:
                continue
            found.append(number)
            if not request.sends:
                continue
            if partition.presence is Presence.OWNED:  # it is handed over, if it is to move
                await self._step(request.asker, number, HandOverStep.OFFER)
            elif self.steward.kept.has_more(number, run, count):
                for part in partition.parts():
                    transfer = secrets.token_hex(8)
                    step = HandOverStep.PART
                    if (
                        await self._step(request.asker, number, step, transfer, part)
                        is not HandOverReply.YES
                    ):
                        break
        return found

    def take(self, request: HandOver) -> HandOverReply:
        """Take one step of a transfer to this node; return the answer. Raises BodyError."""
        content = request.content  # checked before anything is changed
        rule = self._rule()
        if request.step is HandOverStep.LAST:
            self.feeder.learn_holders(request.number, [request.giver, *request.copies])
        said, tasks = self.steward.take(request, now_us(), able=rule is not None)
        if said is HandOverReply.YES and request.step is not HandOverStep.OFFER:
            assert rule is not None
            self._partition(request.number).merge(content, rule, request.transfer)
        self._do(tasks)
        return said
