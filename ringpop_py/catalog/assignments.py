"""Which member should own which partition: a pure function of the members, or a recorded choice.

If a strategy uses only the members, and partitions may move by themselves, no record is needed. For
the others, a node computes an assignment and puts it into the store under the next version, if that
is absent. The ring owner of the keyspace's name does so, among members with the store. If views
differ and two nodes do it, one put wins, and all nodes follow that assignment.

The functions here block, as the store does. They raise `StoreUnavailable` if it does not answer,
and `StateDamaged` if an object in it is not an assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.errors import BodyError, StateDamaged
from ringpop_py.placing.assignment import (
    Assignment,
    check_cluster_size,
    decode_assignment,
    effective_owners,
)
from ringpop_py.placing.strategies import assign, strategy_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.placing.definition import Definition
    from ringpop_py.stores.layout import KeyspaceKeys
    from ringpop_py.stores.store import Store


class Assignments:
    """The assignments of one keyspace.

    Attributes:
        newest: the newest recorded assignment that this node knows.
        recorded: whether assignments are those in the store.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self._count = definition.partitions
        strategy = strategy_named(definition.strategy)
        self.recorded = strategy.recorded or not definition.automatic
        self.newest: Assignment | None = None

    def learn(self, assignment: Assignment) -> bool:
        """Use *assignment*, which another node knew, if it is newer; return whether it is."""
        # Reads of the store may end out of order.
        if self.newest is not None and assignment.version <= self.newest.version:
            return False
        self.newest = assignment
        return True

    def owners(self, members: Sequence[str], *, assigned: bool) -> tuple[str, ...] | None:
        """Return the owner of each partition among *members*; None if it must be recorded first.

        Args:
            assigned: whether partitions were assigned before.

        Raises:
            NoOwner: if there are no members.
            NotEnoughMembers: if there are too few for a first assignment.
        """
        check_cluster_size(members, self.definition.min_cluster_size, assigned=assigned)
        if not self.recorded:
            return assign(self.definition.strategy, self._count, members)
        return effective_owners(self.newest, members) if self.newest is not None else None

    def wanted(self, members: Sequence[str]) -> Assignment | None:
        """Return the assignment to record now without an order; None if there is none.

        This is the first assignment; a new one when members have joined, if partitions move by
        themselves; and one with the heirs of members that are gone.
        """
        if not self.recorded or not members:
            return None
        if self.newest is None:
            return Assignment(1, assign(self.definition.strategy, self._count, members))
        # Heirs are recorded, too: otherwise members that return would get their partitions back,
        # with all the moves that this takes.
        owners = effective_owners(self.newest, members)
        if self.definition.automatic:
            owners = self.target(members, owners)
        if owners == self.newest.owners:
            return None
        return Assignment(self.newest.version + 1, owners)

    def target(self, members: Sequence[str], current: Sequence[str]) -> tuple[str, ...]:
        """Return the owners to which a rebalance from *current* owners should lead."""
        strategy = self.definition.strategy
        if strategy == "round_robin":
            # It is only for the first time: later it would move many partitions for no gain.
            strategy = "average"
        return assign(strategy, self._count, members, current)


def read_newest(store: Store, keys: KeyspaceKeys, partitions_count: int) -> Assignment | None:
    """Return the newest recorded assignment in *store*; None if there is none."""
    listed = store.list(keys.assignments)
    return read_assignment(store, listed[-1], partitions_count) if listed else None


def read_assignment(store: Store, key: str, partitions_count: int) -> Assignment | None:
    """Return the recorded assignment under *key*; None if there is none."""
    value = store.get(key)
    if value is None:
        return None
    try:
        return decode_assignment(value, partitions_count)
    except BodyError as error:
        raise StateDamaged(
            f"{key} does not hold an assignment: {error}; restore the object"
        ) from None


def record(store: Store, keys: KeyspaceKeys, assignment: Assignment) -> bool:
    """Put *assignment* into *store* if its version is free; return whether it was."""
    return store.put_if_absent(keys.assignment(assignment.version), assignment.encode())
