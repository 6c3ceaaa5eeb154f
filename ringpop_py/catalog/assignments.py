"""Who should own which partition: a pure function of the members, or as it was recorded.

Strategies that look at the members alone need no record, if partitions may move by themselves. For
the others somebody computes an assignment and puts it into the store under the next version, if
absent. It is the ring owner of the keyspace's name, among members with the store, that does so, and
if views differ and there are two of them, one wins, and all follow that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.errors import BodyError, StateDamaged
from ringpop_py.placing.assignment import (
    Assignment,
    assignment_from_plain,
    check_cluster_size,
    effective_owners,
)
from ringpop_py.placing.strategies import assign, strategy_named
from ringpop_py.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.placing.definition import Definition
    from ringpop_py.stores.layout import KeyspaceKeys
    from ringpop_py.stores.store import Store


class Assignments:
    """The assignments of one keyspace.

    Attributes:
        newest: the newest recorded one that is known of.
        recorded: whether they are those in the store.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self._count = definition.partitions
        strategy = strategy_named(definition.strategy)
        self.recorded = strategy.recorded or not definition.automatic
        self.newest: Assignment | None = None

    def learn(self, assignment: Assignment) -> bool:
        """Somebody knew *assignment*. Whether it is news."""
        if self.newest is not None and assignment.version <= self.newest.version:
            return False
        self.newest = assignment
        return True

    def owners(self, members: Sequence[str], *, assigned: bool) -> tuple[str, ...] | None:
        """Who should own each partition while *members* are there; None if that is to be recorded.

        Args:
            assigned: partitions were assigned before.

        Raises:
            NoOwner: there are no members.
            NotEnoughMembers: there are too few for a first assignment.
        """
        check_cluster_size(members, self.definition.min_cluster_size, assigned=assigned)
        if not self.recorded:
            return assign(self.definition.strategy, self._count, members)
        return effective_owners(self.newest, members) if self.newest is not None else None

    def wanted(self, members: Sequence[str]) -> Assignment | None:
        """What should be recorded next by itself; None if nothing.

        That is the first assignment; a new one when members have come, where partitions move by
        themselves; and the heirs of members that are gone, so that these do not get their
        partitions back with all the moves that this takes.
        """
        if not self.recorded or not members:
            return None
        if self.newest is None:
            return Assignment(1, assign(self.definition.strategy, self._count, members))
        owners = effective_owners(self.newest, members)
        if self.definition.automatic:
            owners = self.target(members, owners)
        if owners == self.newest.owners:
            return None
        return Assignment(self.newest.version + 1, owners)

    def target(self, members: Sequence[str], current: Sequence[str]) -> tuple[str, ...]:
        """Where a rebalance should lead, from *current* owners."""
        # Round robin is for the first time; afterwards its moves would be many for no gain.
        strategy = self.definition.strategy
        strategy = "average" if strategy == "round_robin" else strategy
        return assign(strategy, self._count, members, current)


def read_newest(store: Store, keys: KeyspaceKeys, partitions_count: int) -> Assignment | None:
    """The newest recorded assignment in *store*. Blocking.

    Raises:
        StoreUnavailable: the store did not answer.
        StateDamaged: what is there is no assignment.
    """
    listed = store.list(keys.assignments)
    return _read(store, listed[-1], partitions_count) if listed else None


def read_assignment(
    store: Store, keys: KeyspaceKeys, version: int, partitions_count: int
) -> Assignment | None:
    """The recorded assignment of that *version*; None if there is none. As `read_newest`."""
    return _read(store, keys.assignment(version), partitions_count)


def _read(store: Store, key: str, partitions_count: int) -> Assignment | None:
    value = store.get(key)
    if value is None:
        return None
    try:
        return assignment_from_plain(decode_value("msgpack", value), partitions_count)
    except BodyError as error:
        message = f"{key} holds no assignment: {error}"
        raise StateDamaged(message) from None


def record(store: Store, keys: KeyspaceKeys, assignment: Assignment) -> bool:
    """Put *assignment* into *store*, if its version is free. Whether it was. Blocking."""
    value = encode_value("msgpack", assignment.to_plain())
    return store.put_if_absent(keys.assignment(assignment.version), value)
