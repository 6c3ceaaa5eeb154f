"""Sends what changes in the partitions of a keyspace in memory mode to their backups."""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import BodyError, CallError, PartitionUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.copies.calls import (
    COPIES_ASKED,
    COPY,
    CopiesAsked,
    CopyGroup,
    CopyPart,
    CopyReply,
    CopyStep,
)
from ringpop_py.state.copies.log import FAR_US, CopyLog
from ringpop_py.state.memory.hand_over import BLANK
from ringpop_py.state.memory.versioned import PIECE_BYTES, row_bytes
from ringpop_py.state.placement.assignment import backups_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ringpop_py.state.memory.mergeable import Part
    from ringpop_py.state.memory.partition import MemoryPartition
    from ringpop_py.state.memory.steward import MemorySteward
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.tasks import Spawn

COPY_S: Final = 2.0
ANSWER_S: Final = 2.0
SENDING_S: Final = 60.0
RETRY_S: Final = 0.1
_PART_BYTES: Final = 128


class Feeder:
    """The copies of the partitions that this node serves.

    Args:
        partitions: those that are here.
        members: returns the members that may own partitions.

    Attributes:
        logs: of the partitions that are served here.
        at: when `advance` is due, in microseconds.
    """

    def __init__(
        self,
        steward: MemorySteward,
        node: NodeView,
        spawn: Spawn,
        partitions: dict[int, MemoryPartition],
        members: Callable[[], Sequence[str]],
    ) -> None:
        self.logs: dict[int, CopyLog] = {}
        self.at = FAR_US
        self._holders: defaultdict[int, set[str]] = defaultdict(set)
        self._steward, self._node, self._spawn = steward, node, spawn
        self._partitions = partitions
        self._members = members
        self._known: Sequence[str] = ()
        self._backups: Sequence[tuple[str, ...]] = ()
        self._incarnations: dict[str, int] = {}
        # By member, and whether the whole of them is to be sent: a large one does not delay others.
        self._ready: defaultdict[tuple[str, bool], dict[int, None]] = defaultdict(dict)
        self._sending: set[tuple[str, bool]] = set()
        self._told: set[str] = set()

    @property
    def missing_count(self) -> int:
        """The number of partitions here of which copies are missing."""
        return sum(copies.missing_count > 0 for copies in self.logs.values())

    # What is served.

    def begin(self, partition: MemoryPartition) -> None:
        """Begin to feed the backups of a partition, which is served here from now on."""
        definition, number = self._steward.assignments.definition, partition.number
        if definition.copies == 1:
            return
        holders = self._holders.pop(number, set())
        run = secrets.token_hex(8)
        copies = CopyLog(run, definition.copies, definition.copies_min, holders)
        self.logs[number] = partition.mergeable.log = copies
        if not self._backups:
            self.follow(now_us())
        copies.follow(self._backups[number], self._there(), now_us())
        self.changed(partition)

    def end(self, partition: MemoryPartition, *, given: bool) -> None:
        """Feed the backups of a partition no more; *given* if another member has all of it."""
        partition.mergeable.log = None
        copies = self.logs.pop(partition.number, None)
        if copies is not None:
            why = None if given else PartitionUnavailable("the partition has gone from here")
            for done, result in copies.end(why):
                done(result)

    def learn_holders(self, number: int, names: Iterable[str]) -> None:
        """Note that *names* have copies of a partition that this node serves, or will serve."""
        others = [name for name in names if name != self._node.name]
        copies = self.logs.get(number)
        if copies is None:
            self._holders[number].update(others)
            return
        for name in others:
            copies.add_former(name)
        self.changed(self._partitions[number])

    def changed(self, partition: MemoryPartition) -> None:
        """Send what has changed in a partition."""
        copies = self.logs.get(partition.number)
        if copies is None:
            return
        for name in copies.changed(now_us()):
            self._kick(name, partition.number, copies)
        self.at = min(self.at, copies.next_deadline)

    def follow(self, now: int) -> None:
        """Choose the backups anew if the members have changed, and ask those that may have lost it.

        It costs little if nothing has changed.
        """
        definition = self._steward.assignments.definition
        if definition.copies == 1:
            return
        members = tuple(self._members())
        changed, self._known = members != self._known, members
        if changed:
            self._backups = backups_of(definition, members, self._node.name)
            self._tell_few(len({*members, self._node.name}), definition.copies)
        incarnations = {member.name: member.incarnation for member in self._node.members}
        # One that was restarted may have come back with nothing before anybody missed it.
        again = [n for n, i in incarnations.items() if self._incarnations.get(n, i) != i]
        self._incarnations = incarnations
        if not changed and not again:
            return
        there = self._there()
        for number, copies in self.logs.items():
            copies.follow(self._backups[number], there, now)
            for name in again:
                copies.ask(name)
            self.changed(self._partitions[number])
            self._settle(copies)

    def _there(self) -> set[str]:
        return {*self._known} - {self._node.name}

    def advance(self, now: int) -> None:
        """Wait no longer for backups that are late."""
        if now < self.at:
            return
        late: set[str] = set()
        self.at = FAR_US
        for copies in self.logs.values():
            late.update(copies.advance(now))
            self._settle(copies)
            self.at = min(self.at, copies.next_deadline)
        if news := sorted(late - self._told):
            self._told.update(news)
            text = (
                f"{', '.join(news)} did not take copies in time, so writes go on without; it is"
                " sent what it lacks"
            )
            log.warning(
                "copies-missing", keyspace=self._steward.table.keyspace, members=news, text=text
            )

    def _tell_few(self, members_count: int, copies: int) -> None:
        few = f"{members_count} members"
        if members_count >= copies:
            self._told = {name for name in self._told if not name.endswith(" members")}
        elif few not in self._told:
            self._told.add(few)
            text = f"there are {few} for copies={copies}, so partitions have {members_count}"
            log.warning(
                "copies-missing", keyspace=self._steward.table.keyspace, members=[], text=text
            )

    def _settle(self, copies: CopyLog) -> None:
        for done, result in copies.settled():
            done(result)

    # What is sent.

    def _kick(self, name: str, number: int, copies: CopyLog) -> None:
        to = name, copies.due(name) is CopyStep.WHOLE
        self._ready[to][number] = None
        if to not in self._sending:
            self._sending.add(to)
            self._spawn(self._send, to)

    async def _send(self, to: tuple[str, bool]) -> None:
        """Send a member what it lacks, until that is nothing."""
        name, numbers = to[0], self._ready[to]
        while numbers:
            items = self._items(name, numbers)
            while batch := _batch(items):
                answers = await self._answers(name, batch)
                now, again = now_us(), set[int]()
                for part, said in zip(batch, answers, strict=True):
                    copies = self.logs.get(part.number)
                    if copies is None or copies.run != part.run:
                        continue
                    copies.answered(name, part, said, now)
                    if said is not CopyReply.TAKEN:
                        again.add(part.number)
                    elif part.last:
                        self._told.discard(name)
                        self._settle(copies)
                        again.add(part.number)
                if any(said is not CopyReply.TAKEN for said in answers):
                    await trio.sleep(RETRY_S)
                for number in again:
                    if number in self.logs:
                        self.changed(self._partitions[number])
        self._sending.discard(to)

    def _items(self, name: str, numbers: dict[int, None]) -> Iterator[CopyPart]:
        while numbers:
            number = next(iter(numbers))
            del numbers[number]
            copies = self.logs.get(number)
            step = None if copies is None else copies.due(name)
            if copies is None or step is None:
                continue
            backup, partition = copies.backups[name], self._partitions[number]
            run = copies.run
            if step is CopyStep.FORGET:
                yield CopyPart(number, run, step, 0, copies.count, True, True, *BLANK)  # noqa: FBT003
            elif step is CopyStep.WHOLE:
                base = copies.begin_whole(name)
                for index, (part, last) in enumerate(_with_last(partition.parts())):
                    if backup.copying != base:  # it was refused, or there was no answer
                        break
                    yield CopyPart(number, run, step, index, base, last, backup.known, *part)
            else:
                acked, count = backup.acked or 0, copies.count
                parts = partition.mergeable.parts_since(copies, acked)
                for part, last in _with_last(parts):
                    yield CopyPart(number, run, step, acked, count, last, backup.known, *part)

    async def _answers(self, name: str, batch: list[CopyPart]) -> Sequence[CopyReply | None]:
        none, table, address = [None] * len(batch), self._steward.table, self._node.address_of(name)
        if address is None:
            return none
        request = CopyGroup(table.keyspace, table.generation, self._node.name, batch)
        try:
            body = encode(request)
        except (ValueError, TypeError, OverflowError) as error:
            self._tell_not_sent(error)
            return none
        call = Call(NODE_SERVICE, COPY, b"", body, ttl_s=COPY_S)
        try:
            answer = await self._node.channel.call(address, call)
            said = decode(list[CopyReply], answer.arg3)
        except (CallError, BodyError, ValueError):
            return none
        return said if len(said) == len(batch) else none

    def _tell_not_sent(self, error: Exception) -> None:
        text = f"what changed cannot be encoded, so it has no copies: {one_line(error)}"
        log.error("copies-not-sent", keyspace=self._steward.table.keyspace, text=text)

    # What is asked for.

    async def recover(self, numbers: Sequence[int]) -> None:
        """Have other members send what they have of partitions; return when they have."""
        there = self._steward.is_there
        names = [m.name for m in self._node.members if m.name != self._node.name and there(m.name)]
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._ask, name, numbers)

    async def _ask(self, name: str, numbers: Sequence[int]) -> None:
        found = await self._asked(name, numbers, sends=False)
        if found:
            for number in found:
                self.learn_holders(number, [name])
            await self._asked(name, found, sends=True)

    async def _asked(self, name: str, numbers: Iterable[int], *, sends: bool) -> list[int]:
        table, position = self._steward.table, self._steward.kept.position
        rows = [(number, *position(number)) for number in numbers]
        request = CopiesAsked(table.keyspace, table.generation, self._node.name, rows, sends)
        ttl_s = SENDING_S if sends else ANSWER_S
        call = Call(NODE_SERVICE, COPIES_ASKED, b"", encode(request), ttl_s=ttl_s)
        address = self._node.address_of(name)
        if address is None:
            return []
        try:
            answer = await self._node.channel.call(address, call)
            found = decode(list[int], answer.arg3)
        except (CallError, BodyError, ValueError):
            return []  # it may have gone meanwhile; what it has it hands over later
        return [number for number in found if 0 <= number < len(table)]


def _with_last(parts: Iterator[Part]) -> Iterator[tuple[Part, bool]]:
    """Yield each of *parts*, and whether it is the last."""
    part = next(parts)
    for following in parts:
        yield part, False
        part = following
    yield part, True


def _batch(items: Iterator[CopyPart]) -> list[CopyPart]:
    """Return the next of *items* that go into one message."""
    found: list[CopyPart] = []
    size = 0
    for part in items:
        found.append(part)
        size += sum(map(row_bytes, part.entries)) + _PART_BYTES
        if size >= PIECE_BYTES:
            break
    return found
