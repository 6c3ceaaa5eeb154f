"""The factory of partitions' states: their operations, their clock, and where entries are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.actors.mailboxes import register_saving
from ringpop_py.state.memory.mergeable import MergeableState
from ringpop_py.state.memory.versioned import HybridClock
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.conditions import register_conditions
from ringpop_py.state.table.direct import DirectState
from ringpop_py.state.table.entries import MemoryEntries
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.table.entries import Entries


class States:
    """Makes empty states of partitions.

    Args:
        name: the node's name, which orders versions that were made at the same time.

    Attributes:
        aggregations: the operations that can change keys.
        make_entries: makes the container of a durable partition's entries; in memory by default.
    """

    def __init__(self, name: str) -> None:
        self.aggregations = Aggregations()
        register_conditions(self.aggregations)
        register_saving(self.aggregations)
        self.make_entries: Callable[[], Entries] = MemoryEntries
        self._clock = HybridClock(name)
        self._pack = make_packer()

    def keyed(self, definition: Definition) -> KeyedState:
        """Return the state of a partition of a durable keyspace."""
        return KeyedState(
            self._pack,
            self.aggregations,
            keys_max=definition.max_keys_per_partition,
            entries=self.make_entries(),
        )

    def direct(self, definition: Definition) -> DirectState:
        """Return the state of a partition of a keyspace in this process alone."""
        keys_max = definition.max_keys_per_partition
        return DirectState(self._pack, self.aggregations, keys_max=keys_max)

    def mergeable(self, definition: Definition) -> MergeableState:
        """Return the state of a partition of a keyspace in memory mode."""
        keys_max = definition.max_keys_per_partition
        return MergeableState(self._clock, self._pack, self.aggregations, keys_max=keys_max)
