"""Recorded assignments in the store.

A node puts an assignment under the next version, if that is absent. Of the members with the store,
the ring owner of the keyspace's name does so. If views differ and two nodes do it, one put wins,
and all nodes follow that assignment.

The functions here block, as the store does. They raise `StoreUnavailable` if it does not answer,
and `StateDamaged` if an object in it is not an assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.checksum import unwrap, wrap
from ringpop_py.state.placement.assignment import Assignment, decode_assignment

if TYPE_CHECKING:
    from ringpop_py.state.catalog.layout import KeyspaceKeys
    from ringpop_py.state.stores.store import Store


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
        return decode_assignment(unwrap(value, key), partitions_count)
    except BodyError as error:
        raise StateDamaged(
            f"{key} does not hold an assignment: {error}; restore the object"
        ) from None


def record(store: Store, keys: KeyspaceKeys, assignment: Assignment) -> bool:
    """Put *assignment* into *store* if its version is free; return whether it was."""
    key = keys.assignment(assignment.version)
    return store.put_if_absent(key, wrap(assignment.encode(), key))
