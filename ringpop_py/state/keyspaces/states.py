"""The factory of partitions' states: their operations, their clock, and where entries are."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.actors.mailboxes import register_saving
from ringpop_py.state.actors.reminders import ActorDueTimes
from ringpop_py.state.memory.direct import DirectState
from ringpop_py.state.memory.mergeable import MergeableState
from ringpop_py.state.memory.versioned import HybridClock
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.conditions import register_conditions
from ringpop_py.state.table.due import DueTimes, register_expiry
from ringpop_py.state.table.entries import MemoryEntries
from ringpop_py.state.table.joins import LAST_WRITER_WINS
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.watch.recent import RecentChanges, WatchCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.table.due import DueClock
    from ringpop_py.state.table.entries import Entries


class States:
    """Makes empty states of partitions.

    Args:
        name: the node's name, which orders versions that were made at the same time.
        clock: by which keys expire.

    Attributes:
        aggregations: the operations that can change keys.
        expired: how many keys have expired in partitions that were served here, by keyspace.
        watches: what watchers had from these, by keyspace.
        make_entries: makes the container of a durable partition's entries; in memory by default.
    """

    def __init__(self, name: str, clock: DueClock) -> None:
        self.aggregations = Aggregations()
        register_conditions(self.aggregations)
        register_expiry(self.aggregations, clock)
        register_saving(self.aggregations)
        self.make_entries: Callable[[], Entries] = MemoryEntries
        self._wall, self.expired = clock, Counter[str]()
        self.watches = defaultdict[str, WatchCounts](WatchCounts)
        self._clock = HybridClock(name)
        self._pack = make_packer()

    def keyed(self, definition: Definition) -> KeyedState:
        """Return the state of a partition of a durable keyspace."""
        keys_max = definition.max_keys_per_partition
        due = ActorDueTimes(self._wall, expired=self.expired, name=definition.name)
        entries = self.make_entries()
        return KeyedState(
            self._pack,
            self.aggregations,
            keys_max=keys_max,
            entries=entries,
            due=due,
            changes=RecentChanges(self.watches[definition.name]),
        )

    def direct(self, definition: Definition) -> DirectState:
        """Return the state of a partition of a keyspace in this process alone."""
        keys_max = definition.max_keys_per_partition
        due = ActorDueTimes(self._wall, expired=self.expired, name=definition.name)
        return DirectState(self._pack, self.aggregations, due, keys_max=keys_max)

    def mergeable(self, definition: Definition) -> MergeableState:
        """Return the state of a partition of a keyspace in memory mode."""
        keys_max, merge, refusal = definition.max_keys_per_partition, definition.merge, ""
        if merge != LAST_WRITER_WINS:
            refusal = (
                f"keys of keyspace {definition.name!r} cannot expire: its copies are merged by"
                f" {merge!r}, and only {LAST_WRITER_WINS!r} tells which instant is the later one"
            )
        due = DueTimes(self._wall, refusal, expired=self.expired, name=definition.name)
        return MergeableState(self._clock, self._pack, self.aggregations, due, keys_max=keys_max)
