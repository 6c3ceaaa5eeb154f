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
from ringpop_py.state.memory.hand_over import (
    BLANK,
    HAND_OVER,
    HandOver,
    HandOverReply,
    HandOverStep,
)
from ringpop_py.state.memory.partition import MemoryPartition
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.partition.expiry import Expiry
from ringpop_py.state.placement import duties as do
from ringpop_py.state.placement.table import to_rows
from ringpop_py.state.shares.driver import StewardDriver
from ringpop_py.state.shares.rescale_events import Lost

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._expiry = Expiry(self.online, lambda partition: partition.mergeable.expire())

    def _partition(self, number: int) -> MemoryPartition:
        partition = self.partitions.get(number)
        if partition is None:
            partition = self.partitions[number] = self._make_partition(number)
            partition.on_expiring = self._look_if_sooner
        return partition

    def _look_if_sooner(self, partition: MemoryPartition) -> None:
        if partition.presence is Presence.OWNED and self._expiry.is_sooner((partition,)):
            self._expiry.look(now_us())
            self._wake_if_sooner()

    def _advance(self, now: int) -> None:
        super()._advance(now)
        if now >= self._expiry.at:
            self._expiry.look(now)

    def _next_deadline(self) -> int:
        return min(super()._next_deadline(), self._expiry.at)

    def _begin(self, task: do.Duty | do.Fact) -> None:
        match task:
            case do.Serve(number, epoch):
                partition = self._partition(number)
                partition.presence = Presence.OWNED
                if partition.state.due:
                    self._expiry.look(now_us())
                self.events.tell(self._gained(partition, epoch))
            case do.Withhold(number):
                self.partitions[number].presence = Presence.RELEASING
                self.events.tell(Lost(number))
            case do.Drop(number):
                partition = self.partitions.pop(number)
                if partition.presence is Presence.OWNED:
                    self.events.tell(Lost(number))
                partition.presence = Presence.GONE
            case do.Remind(number, to):
                self._spawn(self._step, to, number, HandOverStep.OFFER)
            case do.Offer() | do.Send():
                self._spawn(self._carry_out, task)
            case _:
                raise AssertionError(task)

    async def _carry_out(self, duty: do.Offer | do.Send) -> None:
        result = await self._perform(duty)
        self._do(self.steward.done(duty, result, now_us()))

    async def _perform(self, duty: do.Offer | do.Send) -> object:
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

    def take(self, request: HandOver) -> HandOverReply:
        """Take one step of a transfer to this node; return the answer. Raises BodyError."""
        content = request.content  # checked before anything is changed
        try:
            rule = self._find_rule()
        except ConfigError as error:
            log.warning("rule-unknown", keyspace=self.table.keyspace, text=str(error))
            rule = None
        said, tasks = self.steward.take(request, now_us(), able=rule is not None)
        if said is HandOverReply.YES and request.step is not HandOverStep.OFFER:
            assert rule is not None
            self._partition(request.number).merge(content, rule, request.transfer)
        self._do(tasks)
        return said
