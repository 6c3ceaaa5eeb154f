"""Leaders at a node: the keyspace of their records, and who in it is gone."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import trio

from ringpop_py.base.errors import ConditionFailed, ConfigError, KeyspaceUnknown
from ringpop_py.base.logs import log
from ringpop_py.member.swim.member import Status
from ringpop_py.state.leaders.election import Candidate, Election, SwapRecord
from ringpop_py.state.leaders.lead import leading
from ringpop_py.state.leaders.record import (
    KEYSPACE,
    PARTITIONS,
    LeaderRecord,
    check_step,
    checked_above,
    checked_name,
    checked_ttl_s,
    record_in,
)
from ringpop_py.state.placement.definition import Definition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.keyspaces.registry import Keyspaces
    from ringpop_py.state.leaders.lead import Lead


class Surroundings(Protocol):
    """What leaders need of their node. It is `ringpop_py.node.ringpop.Ringpop`."""

    @property
    def name(self) -> str:
        """The name of this node."""

    @property
    def keyspaces(self) -> Keyspaces:
        """The keyspaces."""

    def status_of(self, name: str) -> Status | None:
        """Return the status of the member *name*; None if there is no such member."""

    def is_silent(self, name: str) -> bool:
        """Return whether the member *name* is suspect, and neither we nor others reach it."""

    def doubt(self, name: str) -> None:
        """Find out soon whether the member *name* lives."""

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""

    async def next_change(self) -> None:
        """Return after the next change of a member."""


class LeaderShown(NamedTuple):
    """A leader, as operators see it."""

    name: str
    holder: str
    term: int
    since: float
    beat_age_s: float
    is_gone: bool


class Leaders:
    """The records of a cluster's leaders, as one node reads and changes them.

    Attributes:
        keyspace: the name of the cluster's own keyspace in which they are.
    """

    keyspace: ClassVar[str] = KEYSPACE

    def __init__(self, node: Surroundings) -> None:
        self._node = node

    def _record_in(self, value: Value, name: str) -> LeaderRecord | None:
        return record_in(value, name)

    def _check(self, before: LeaderRecord | None, after: LeaderRecord) -> None:
        check_step(before, after)

    def _tell(self, name: str, before: LeaderRecord | None, after: LeaderRecord) -> None:
        if before is None or after.term != before.term:
            log.info("leader-elected", leader=name, holder=after.holder, term=after.term)

    async def read(self, name: str, timeout_s: float) -> tuple[LeaderRecord | None, bool]:
        """See `Records`. Raises ConfigError, if this node has no store, and KeyspaceError."""
        keyspace = await self._keyspace()
        record = self._record_in(await keyspace.get(name, timeout_s=timeout_s), name)
        return record, self.is_gone(record)

    async def swap(self, name: str, swap: SwapRecord, timeout_s: float) -> bool:
        """See `Records`. Raises BadOperation for a step that is not allowed, too."""
        before, after = swap.before, swap.after
        self._check(before, after)
        argument = {"new": after.as_value()}
        if before is not None:
            argument["expected"] = before.as_value()
        keyspace = await self._keyspace()
        try:
            await keyspace.update(name, "compare_and_set", argument, timeout_s=timeout_s)
        except ConditionFailed:
            return False
        self._tell(name, before, after)
        return True

    async def gone(self, record: LeaderRecord | None) -> None:
        """See `Records`."""
        while not self.is_gone(record):
            await self._node.next_change()

    async def all(self) -> list[LeaderShown]:
        """Return all leaders, by name. Raises ConfigError, KeyspaceError."""
        now, found = time.time(), []
        async for name, record in self.records():
            age_s = max(now - record.beat_at, 0.0)  # as far as the clocks agree
            shown = name, record.holder, record.term, record.since, age_s
            found.append(LeaderShown(*shown, self.is_gone(record)))
        return found

    async def records(self) -> AsyncIterator[tuple[str, LeaderRecord]]:
        """Yield all records, by name. Raises ConfigError, KeyspaceError."""
        self._node.keyspaces.durable(self.keyspace)  # raises ConfigError without a store
        with suppress(KeyspaceUnknown):
            keyspace = await self._node.keyspaces.get(self.keyspace)
            async for name, value in keyspace.scan():
                record = self._record_in(value, name)
                assert record is not None
                yield name, record

    async def take_away(self, name: str, timeout_s: float) -> LeaderRecord:
        """Release *name* in its holder's place, and return the record before.

        Raises:
            ConfigError: nobody holds it, or this node has no store.
            KeyspaceError: whether it was released is open.
        """
        while True:
            record, _ = await self.read(name, timeout_s)
            if record is None or not record.holder:
                raise ConfigError(
                    f"nobody holds {name!r}; `ringpopctl leaders` lists who holds what"
                )
            if await self.swap(name, SwapRecord(record, record.released()), timeout_s):
                return record

    async def _keyspace(self) -> Keyspace:
        keyspaces, name = self._node.keyspaces, self.keyspace
        if (share := keyspaces.shares.get(name)) is not None:
            keyspaces.durable(name)  # raises ConfigError without a store
            return share.keyspace
        return await keyspaces.open(Definition(name=name, partitions=PARTITIONS), is_own=True)

    def is_gone(self, record: LeaderRecord | None) -> bool:
        """Return whether the holder in *record* is a member that is gone."""
        # Before the join this node knows no other member.
        if record is None or not record.is_member or not record.holder or not self._node.ready:
            return False
        status = self._node.status_of(record.holder)
        if status is Status.SUSPECT:
            self._node.doubt(record.holder)
        return status in (None, Status.FAULTY, Status.TOMBSTONE) or self._node.is_silent(
            record.holder
        )


def lead_at(
    node: Surroundings, name: str, ttl_s: float, above: int
) -> AbstractAsyncContextManager[Lead]:
    """Return what holds *name* for a member; see `Ringpop.leader`."""
    me = Candidate(
        holder=node.name,
        is_member=True,
        nonce=secrets.token_hex(12),
        ttl_s=checked_ttl_s(ttl_s),
        above=checked_above(above),
        wall_offset_s=time.time() - trio.current_time(),
    )
    return leading(checked_name(name), Election(me), Leaders(node))
