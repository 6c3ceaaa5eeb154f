"""Recorded assignments at one node: it follows those in the store, and records new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.state.placement.assignment import Assignment
from ringpop_py.state.placement.duties import ReadAssignment, RecordAssignment, Tell, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.duties import Task

SETTLE_US: Final = 1_000_000
"""An assignment is recorded once the members have been the same for this long."""


class Keeper:
    """Keeps *assignments* equal to those in the store, for one keyspace at one node.

    Args:
        owners: returns the members that may own partitions.
        acts: returns whether this node records for all members.

    Attributes:
        next_deadline: when `advance` is due; None while there is nothing to keep.
    """

    def __init__(
        self,
        assignments: Assignments,
        owners: Callable[[], Sequence[str]],
        acts: Callable[[], bool],
    ) -> None:
        self._assignments = assignments
        self._owners = owners
        self._acts = acts
        self._read_at: int | None = 0  # None while it is being read
        self._keep_at: int | None = 0  # None while one is being recorded
        self._seen: Sequence[str] = ()

    @property
    def next_deadline(self) -> int | None:
        """When `advance` is due; None if not before something else has happened."""
        if not self._assignments.recorded:
            return None
        return min((at for at in (self._read_at, self._keep_at) if at is not None), default=None)

    @property
    def version(self) -> int:
        """The version of the newest recorded assignment known here; 0 if there is none."""
        newest = self._assignments.newest
        return newest.version if newest is not None else 0

    def hint(self, version: int, now: int) -> None:
        """Read the store soon if *version*, which another node knows, is newer than ours."""
        if self._read_at is not None and version > self.version:
            self._read_at = now

    def learn(self, assignment: Assignment) -> list[Task]:
        """Follow *assignment*, which is in the store, if it is newer than ours."""
        # Gossip carries the version, so that others read the store.
        return [Tell()] if self._assignments.learn(assignment) else []

    def advance(self, now: int) -> list[Task]:
        """Read the newest assignment, and record the next one, when that is due."""
        tasks: list[Task] = []
        if self._read_at is not None and now >= self._read_at:
            self._read_at = None
            tasks.append(ReadAssignment())
        if self._keep_at is not None and now >= self._keep_at:
            members = self._owners()
            wanted = self._wanted(members) if members == self._seen else None
            self._seen = members
            self._keep_at = now + SETTLE_US
            if wanted is not None:
                self._keep_at = None
                tasks.append(RecordAssignment(wanted))
        return tasks

    def _wanted(self, members: Sequence[str]) -> Assignment | None:
        """Return the assignment that follows from *members*, if this node is to record it."""
        is_first = self._assignments.newest is None
        too_few = len(members) < self._assignments.definition.min_cluster_size
        if not self._acts() or (is_first and too_few):
            return None
        return self._assignments.wanted(members)

    def done(
        self,
        duty: ReadAssignment | RecordAssignment,
        result: Assignment | Trouble | bool | None,  # noqa: FBT001 - one of several results
        now: int,
    ) -> list[Task]:
        """Go on after *duty*, which ended with *result*."""
        if isinstance(duty, ReadAssignment):
            self._read_at = now + SETTLE_US
            return self.learn(result) if isinstance(result, Assignment) else []
        # If another node was faster, the next reading finds what it has recorded.
        self._keep_at = now + SETTLE_US
        return self.learn(duty.assignment) if result is True else []
