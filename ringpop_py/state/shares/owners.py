"""`handle_or_proxy` by a keyspace: requests go to the node that has the state of their key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import NoOwner
from ringpop_py.route.proxy.head import Head, KeyspaceBelief
from ringpop_py.route.proxy.owners import REFUSED_KEYS, grouped
from ringpop_py.state.placement.table import PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.placement.table import TableRow
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.view import NodeView

RECONCILE_S_MAX: Final = 0.5
"""The seconds to wait for gossip of a new owner, after a node has refused a request."""


class KeyspaceOwners:
    """The owners of partitions as owners of keys. See `ringpop_py.route.proxy.owners.KeyOwners`.

    This node is an owner only while it serves the partition, so that a handler finds the state of
    the request's key at its own node.

    Attributes:
        node_name: the name of this node.
    """

    def __init__(self, node: NodeView, host: Host) -> None:
        self.node_name = node.name
        self._node = node
        self._host = host
        self._partition_of = host.definition.placing.partition_of

    def _row(self, key: str) -> TableRow:
        return self._host.table[self._partition_of(key)]

    def _is_here(self, row: TableRow) -> bool:
        return row.status is PartitionStatus.ONLINE and row.owner == self._node.name

    def destination(self, key: str) -> str:
        """Return the member that serves the partition of *key*, or will soon; empty if none."""
        row = self._row(key)
        owner = self._host.destination(row.partition)
        # Another node makes requests wait for a partition that comes to it; this one would handle
        # them, without the state.
        return "" if owner == self._node.name and not self._is_here(row) else owner

    @property
    def owned_by(self) -> object:
        """See `KeyOwners`. Each look may find another table."""
        return object()

    def owners_of(self, keys: Sequence[str]) -> list[str]:
        """See `KeyOwners`."""
        return [*map(self.destination, keys)]

    def grouped(self, keys: Sequence[str]) -> dict[str, list[int]]:
        """See `KeyOwners`."""
        return grouped(self.owners_of(keys))

    def why_nobody(self, key: str) -> NoOwner:
        """See `KeyOwners`."""
        number = self._row(key).partition
        owner = self._host.destination(number)
        if owner:
            return NoOwner(f"partition {number} is moving to {owner}, and not there yet")
        return NoOwner(str(self._host.why_nobody(number)))

    async def settle(self, keys: Sequence[str], deadline_at: float) -> None:
        """Wait up to `StateConfig.wait_s` for partitions that move here or have no owner."""
        wait_s = self._node.config.state.wait_s
        with trio.move_on_at(min(deadline_at, trio.current_time() + wait_s)):
            # All of them: a route needs one owner for its keys, so the first one found is not
            # enough.
            while not all(map(self.destination, keys)):
                await self._host.changed.wait()

    def head(self, keys: tuple[str, ...]) -> Head:
        """See `KeyOwners`."""
        # The owner compares epochs rather than checksums: only moves of these partitions matter.
        name, generation = self._host.definition.name, self._host.generation
        epochs = tuple(self._row(key).epoch for key in keys)
        return Head(keys, sender=self._node.name, keyspace=KeyspaceBelief(name, generation, epochs))

    def refusal(self, head: Head) -> str:
        """Return why this node does not handle a request; empty if it does."""
        belief = head.keyspace
        assert belief is not None, "found by the name in it"
        local, host = self._node.name, self._host
        if belief.generation != host.generation:
            return (
                f"{REFUSED_KEYS}: keyspace {belief.name!r} is in generation {host.generation} "
                f"at {local}, not {belief.generation}"
            )
        for key, epoch in zip(head.keys, belief.epochs, strict=True):
            row = self._row(key)
            # If the sender knows a later epoch, another node has taken the partition from us.
            if not self._is_here(row) or epoch > row.epoch:
                return (
                    f"{REFUSED_KEYS}: {local} does not serve partition {row.partition} of "
                    f"{belief.name!r}; {row.owner or 'nobody'} owned it in epoch {row.epoch}"
                )
        return ""

    async def reconcile(self, owner: str, keys: Sequence[str]) -> None:
        """Wait until the table names another owner; tables are gossiped when they change."""
        with trio.move_on_after(RECONCILE_S_MAX):
            # One key that has moved is enough: the next look of the route finds it.
            while all(self.destination(key) == owner for key in keys):
                await self._host.changed.wait()
