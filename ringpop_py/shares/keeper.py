"""Recorded assignments at one node: what the store has is followed, what is missing recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.catalog.assignments import read_newest, record
from ringpop_py.errors import KeyspaceError
from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.catalog.assignments import Assignments
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.placing.assignment import Assignment
    from ringpop_py.shares.host import Peers
    from ringpop_py.stores.layout import KeyspaceKeys

SETTLE_S: Final = 1.0
"""An assignment is recorded once the members have been the same for so long."""


class AssignmentKeeper:
    """Keeps *assignments* and what the store has the same, for one keyspace at one node.

    Args:
        acts: whether it is this node that records for all members.
        changed: called when an assignment was learnt.
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
        definition = assignments.definition
        self._name = definition.name
        self._partitions_count = definition.partitions
        self._first_size = definition.min_cluster_size
        self._assignments = assignments
        self._keys = keys
        self._worker = worker
        self._peers = peers
        self._acts = acts
        self._changed = changed
        self._hinted = trio.Event()

    @property
    def version(self) -> int:
        """Of the newest recorded assignment that is known here; 0 if there is none."""
        newest = self._assignments.newest
        return newest.version if newest is not None else 0

    def hint(self, version: int) -> None:
        """Somebody knows of an assignment of that *version*: see whether the store has it."""
        if self._assignments.recorded and version > self.version:
            self._hinted.set()

    def learn(self, assignment: Assignment) -> None:
        """The store has *assignment*; if that is news, follow it, and have others look, too."""
        if self._assignments.learn(assignment):
            self._changed()
            self._peers.spread([])

    async def follow(self) -> None:
        """See what is recorded: when somebody hints at it, and from time to time."""
        while True:
            self._hinted = trio.Event()
            try:
                newest = await self._worker.run(
                    read_newest, self._worker.store, self._keys, self._partitions_count
                )
                if newest is not None:
                    self.learn(newest)
            except KeyspaceError as error:
                log.warning("assignment-not-read", keyspace=self._name, text=str(error))
            with trio.move_on_after(SETTLE_S):
                await self._hinted.wait()

    async def keep(self) -> None:
        """Record what follows from who is there."""
        seen: Sequence[str] = ()
        while True:
            members = self._peers.members()
            if members == seen:
                try:
                    await self._record_what_follows(members)
                except KeyspaceError as error:
                    log.warning("assignment-not-recorded", keyspace=self._name, text=str(error))
            seen = members
            await trio.sleep(SETTLE_S)

    async def _record_what_follows(self, members: Sequence[str]) -> None:
        is_first = self._assignments.newest is None
        if not self._acts() or (is_first and len(members) < self._first_size):
            return
        wanted = self._assignments.wanted(members)
        if wanted is None:
            return
        if await self._worker.run(record, self._worker.store, self._keys, wanted):
            self.learn(wanted)
            log.info("assignment-recorded", keyspace=self._name, version=wanted.version)
