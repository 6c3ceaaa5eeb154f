"""Recorded assignments at one node: it follows those in the store, and records new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.catalog.assignments import read_newest, record
from ringpop_py.errors import KeyspaceError
from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.partition.tasks import Worker
    from ringpop_py.placing.assignment import Assignment, Assignments
    from ringpop_py.shares.host import Peers
    from ringpop_py.stores.layout import KeyspaceKeys

SETTLE_S: Final = 1.0
"""An assignment is recorded once the members have been the same for this many seconds."""


class AssignmentKeeper:
    """Keeps *assignments* equal to those in the store, for one keyspace at one node.

    Args:
        acts: returns whether this node records for all members.
        changed: called when a newer assignment was read.
    """

    def __init__(
        self,
        assignments: Assignments,
        keys: KeyspaceKeys,
        worker: Worker,
        peers: Peers,
        *,
        acts: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._definition = assignments.definition
        self._assignments = assignments
        self._keys = keys
        self._worker = worker
        self._peers = peers
        self._acts = acts
        self._changed = changed
        self._hinted = trio.Event()

    @property
    def version(self) -> int:
        """The version of the newest recorded assignment known here; 0 if there is none."""
        newest = self._assignments.newest
        return newest.version if newest is not None else 0

    def hint(self, version: int) -> None:
        """Read the store soon if *version*, which another node knows, is news."""
        if self._assignments.recorded and version > self.version:
            self._hinted.set()

    def learn(self, assignment: Assignment) -> None:
        """Follow *assignment*, which is in the store, if it is news."""
        if self._assignments.learn(assignment):
            self._changed()
            self._peers.spread([])  # gossip carries the version, so that others read the store

    async def follow(self) -> None:
        """Read the newest assignment: after each hint, and every `SETTLE_S`."""
        while True:
            self._hinted = trio.Event()
            try:
                newest = await self._worker.run(
                    read_newest, self._worker.store, self._keys, self._definition.partitions
                )
                if newest is not None:
                    self.learn(newest)
            except KeyspaceError as error:
                log.warning("assignment-not-read", keyspace=self._definition.name, text=str(error))
            with trio.move_on_after(SETTLE_S):
                await self._hinted.wait()

    async def keep(self) -> None:
        """Record the assignment that follows from the members, once they have settled."""
        seen: Sequence[str] = ()
        while True:
            members = self._peers.members()
            if members == seen:
                try:
                    await self._record_what_follows(members)
                except KeyspaceError as error:
                    name = self._definition.name
                    log.warning("assignment-not-recorded", keyspace=name, text=str(error))
            seen = members
            await trio.sleep(SETTLE_S)

    async def _record_what_follows(self, members: Sequence[str]) -> None:
        is_first = self._assignments.newest is None
        if not self._acts() or (is_first and len(members) < self._definition.min_cluster_size):
            return
        wanted = self._assignments.wanted(members)
        if wanted is None:
            return
        # If another node was faster, `follow` reads what it has recorded.
        if await self._worker.run(record, self._worker.store, self._keys, wanted):
            self.learn(wanted)
            name, version = self._definition.name, wanted.version
            log.info("assignment-recorded", keyspace=name, version=version)
