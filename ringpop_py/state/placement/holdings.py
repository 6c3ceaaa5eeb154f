"""What a node knows and has of the partitions of one keyspace: the part that both modes share."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.base.errors import (
    KeyspaceError,
    KeyspaceUnknown,
    NoOwner,
    NotEnoughMembers,
    PartitionUnavailable,
)
from ringpop_py.base.metering import Histogram
from ringpop_py.member.swim.member import Status
from ringpop_py.state.placement.duties import Changed, Tell
from ringpop_py.state.placement.table import (
    PartitionStatus,
    ServedElsewhere,
    Table,
    TableRow,
    to_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringpop_py.state.placement.assignment import Assignments
    from ringpop_py.state.placement.duties import Task

LOOK_US: Final = 1_000_000
"""The microseconds after which a node looks again at the owners that partitions should have."""
RETRY_US: Final = 100_000
PAUSES_MAX: Final = 1_000
_THERE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)


class Sight(Protocol):
    """The members, as membership sees them at this moment."""

    @property
    def name(self) -> str:
        """The name of this node."""

    @property
    def ready(self) -> bool:
        """Whether the first join is done; before it a node seems to be alone."""

    def owners(self) -> Sequence[str]:
        """Return the names of the members that may own partitions of the keyspace, sorted."""

    def status_of(self, name: str) -> Status | None:
        """Return the status of the member *name*; None if there is no such member."""

    def is_silent(self, name: str) -> bool:
        """Return whether the member *name* is suspect, and neither we nor others reach it."""


class Holdings:
    """The partitions of one generation of a keyspace, as one node knows and has them.

    Attributes:
        table: the owner of each partition, as far as this node knows.
        holding: the partitions that are here, served or not.
        serving: the partitions that this node serves.
        dropped: whether the keyspace was dropped; then nothing of it will be served here.
        failure: why nothing of it is served here any longer; empty while the share has not failed.
        waits_for: why no partition was assigned at the last look; None if partitions were.
        handoff_pauses_us: for the last partitions that were handed over, from or to here, the
            longest that no member can have served each.
        handoff_seconds: the same for all that were handed over.
    """

    _coming: Mapping[int, object]

    def __init__(
        self, keyspace: str, generation: int, assignments: Assignments, sight: Sight
    ) -> None:
        self.table = Table(keyspace, generation, assignments.definition.partitions)
        self.holding: set[int] = set()
        self.serving: set[int] = set()
        self.dropped = False
        self.failure = ""
        self.waits_for: KeyspaceError | NoOwner | None = None
        self.handoff_pauses_us: list[int] = []
        self.handoff_seconds = Histogram()
        self.assignments = assignments
        self.sight = sight
        self.name = sight.name
        self.tasks: list[Any] = []
        self._timers: list[tuple[int, int]] = []
        self._look_at = 0

    # What is known.

    def destination(self, number: int) -> str:
        """Return the member to ask about a partition; empty if there is none."""
        row = self.table[number]
        # This node need not look itself up: each request at its owner asks.
        owner = row.owner
        if row.status is PartitionStatus.ONLINE and (owner == self.name or self.is_there(owner)):
            return owner
        return row.desired

    def why_nobody(self, number: int) -> KeyspaceError:
        """Return why there is no member to ask about a partition."""
        if self.dropped:
            return KeyspaceUnknown(f"keyspace {self.table.keyspace!r} was dropped")
        why: object = self.waits_for
        if isinstance(why, NotEnoughMembers):
            # Ask again: other members may be missing by now, or none.
            why = "it is being assigned"
            try:
                self._owners()
            except NotEnoughMembers as error:
                return error
            except NoOwner as error:
                why = error
        return PartitionUnavailable(
            f"partition {number}: {why or 'no member was assigned to it yet'}"
        )

    def is_coming(self, number: int) -> bool:
        """Return whether a request should wait for a partition that this node does not serve.

        Raises:
            ServedElsewhere: if another member serves it.
            KeyspaceUnknown: if the keyspace was dropped.
            PartitionUnavailable: if the share of this node has failed.
        """
        if self.dropped:
            raise KeyspaceUnknown(f"keyspace {self.table.keyspace!r} was dropped")
        row = self.table[number]
        elsewhere = row.status is PartitionStatus.ONLINE and row.owner != self.name
        # As in `destination`: requests come here if the owner is gone, and must not go back to it.
        if elsewhere and (row.desired != self.name or self.is_there(row.owner)):
            raise ServedElsewhere(to_rows([row]))
        if self.failure:
            raise PartitionUnavailable(self.failure)
        return row.desired == self.name or self._is_here(number)

    def _is_here(self, number: int) -> bool:
        return number in self.holding

    @property
    def coming(self) -> frozenset[int]:
        """The partitions that are on their way here."""
        return frozenset(self._coming)

    @property
    def under_way(self) -> dict[str, int]:
        """How many tasks of each kind are under way; all 0 once nothing is left to do."""
        return {"coming": len(self.coming)}

    def is_there(self, name: str) -> bool:
        """Return whether the member *name* may answer: membership has not declared it faulty."""
        return self.sight.status_of(name) in _THERE

    def _owners(self) -> Sequence[str] | None:
        return self.assignments.owners(self.sight.owners(), assigned=self.table.assigned)

    # What happens, in either mode.

    def members_changed(self, now: int) -> list[Task]:
        """Decide anew which member should own what: the members or the assignment changed."""
        self.look_soon(now)
        return self.advance(now)

    def look_soon(self, now: int) -> None:
        """Look anew which member should own what, at the next `advance`."""
        self._look_at = now

    @property
    def next_deadline(self) -> int:
        """When `advance` is due, in microseconds."""
        return min(self._look_at, self._timers[0][0]) if self._timers else self._look_at

    def advance(self, now: int) -> list[Task]:
        """Do what is due."""
        if now >= self._look_at:
            self._look_at = now + LOOK_US
            self._look(now)
        timers = self._timers
        while timers and timers[0][0] <= now:
            self._due(heappop(timers)[1], now)
        return self._out(now)

    def heard(self, rows: Iterable[TableRow], now: int) -> list[Task]:
        """Merge rows that another node sent, of partitions that this keyspace has."""
        self.merge(rows, now)
        return self._out(now)

    def failed(self, why: str, now: int) -> list[Task]:
        """Serve nothing from now on; partitions that are here may still be given up in order."""
        self.failure = why
        self.tasks.append(Changed())
        return self._out(now)

    def _look(self, now: int) -> None:
        """Compute the owners; gain and give accordingly."""
        if not self._acts or not self.sight.ready:
            return
        try:
            owners = self._owners()
        except (NoOwner, NotEnoughMembers) as error:
            self.waits_for = error
            return
        # The strategy needs a record, which the keeper of one node puts: nothing to do until then.
        if owners is None:
            self.waits_for = PartitionUnavailable("the first assignment is not recorded yet")
            return
        self.waits_for = None
        if self.table.desire(owners):
            self.tasks.append(Changed())
        for number, owner in enumerate(owners):
            self._follow_desire(number, owner, now)

    @property
    def _acts(self) -> bool:
        """Whether this node gains partitions at all."""
        raise NotImplementedError

    def is_wanted(self, number: int) -> bool:
        """Return whether this node should own a partition."""
        return self._acts and self.table[number].desired == self.name

    def _follow_desire(self, number: int, owner: str, now: int) -> None:
        """Begin to gain or to give a partition that *owner* should have, if that is necessary."""
        raise NotImplementedError

    def _due(self, number: int, now: int) -> None:
        """Go on with a partition whose time has come."""
        raise NotImplementedError

    def merge(self, rows: Iterable[TableRow], now: int) -> None:
        """Merge rows that another node sent, or that the store has."""
        news = self.table.merge(rows)
        for row in news:
            self._learnt(row, now)
        if news:
            self.tasks.append(Changed())

    def _learnt(self, row: TableRow, now: int) -> None:
        """Go on with a partition of which another node knew later facts."""
        raise NotImplementedError

    def _fill(self, now: int) -> None:
        """Begin what has waited for a place, while there are places."""
        raise NotImplementedError

    def put(self, row: TableRow) -> None:
        """Put a row of a partition of this node into the table, and tell others."""
        self.table.put(row)
        self.tasks += Tell((row,)), Changed()

    def paused(self, pause_us: int) -> None:
        """Note for how long no member can have served a partition that was handed over."""
        self.handoff_pauses_us = [*self.handoff_pauses_us[1 - PAUSES_MAX :], pause_us]
        self.handoff_seconds.observe(pause_us / 1e6)

    def wake_at(self, at: int, number: int) -> None:
        """Go on with a partition at that instant, or later."""
        heappush(self._timers, (at, number))

    def _out(self, now: int) -> list[Task]:
        self._fill(now)
        tasks, self.tasks = self.tasks, []
        return tasks
