"""handle_or_proxy by a keyspace: requests go where the state of their key lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.errors import NoOwner
from ringpop_py.placing.keys import partition_of
from ringpop_py.placing.table import PartitionStatus
from ringpop_py.proxy.head import Head, KeyspaceBelief
from ringpop_py.proxy.schedule import REFUSED_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.placing.table import TableRow
    from ringpop_py.shares.host import Host
    from ringpop_py.steward.view import NodeView

RECONCILE_S_MAX: Final = 0.5


class KeyspaceOwners:
    """The owners of a keyspace's partitions own its keys. See `ringpop_py.proxy.owners.KeyOwners`.

    This node is an owner only while it serves the partition: whoever handles a request finds the
    state of its key at this very node.
    """

    def __init__(self, node: NodeView, host: Host) -> None:
        self._node = node
        self._host = host

    def _row(self, key: str) -> TableRow:
        return self._host.table[partition_of(key, len(self._host.table))]

    def _is_here(self, row: TableRow) -> bool:
        return row.status is PartitionStatus.ONLINE and row.owner == self._node.name

    def lookup(self, key: str) -> str:
        """Who serves the partition of *key*; or soon will, but for this node. Raises NoOwner."""
        row = self._row(key)
        owner = self._host.destination(row.partition)
        if not owner:
            raise NoOwner(str(self._host.why_nobody(row.partition)))
        if owner == self._node.name and not self._is_here(row):
            raise NoOwner(f"partition {row.partition} is on its way to {owner}, and not there yet")
        return owner

    def _knows(self, key: str) -> bool:
        try:
            self.lookup(key)
        except NoOwner:
            return False
        return True

    async def settle(self, keys: Sequence[str], deadline_at: float) -> None:
        """Wait for partitions that come here, or to anybody, as long as other requests do."""
        wait_s = self._node.config.state.wait_s
        with trio.move_on_at(min(deadline_at, trio.current_time() + wait_s)):
            while not all(map(self._knows, keys)):
                await self._host.changed.wait()

    def head(self, keys: tuple[str, ...]) -> Head:
        """See `KeyOwners`."""
        name, generation = self._host.definition.name, self._host.generation
        epochs = tuple(self._row(key).epoch for key in keys)
        return Head(keys, sender=self._node.name, keyspace=KeyspaceBelief(name, generation, epochs))

    def refusal(self, head: Head) -> str:
        """Refuse what is not here, and what the sender knows more of than we: we have lost it."""
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
            if not self._is_here(row) or epoch > row.epoch:
                return (
                    f"{REFUSED_KEYS}: {local} does not serve partition {row.partition} of "
                    f"{belief.name!r}; {row.owner or 'nobody'} owned it in epoch {row.epoch}"
                )
        return ""

    async def reconcile(self, owner: str, keys: Sequence[str]) -> None:
        """Wait for the table to name somebody else; tables are gossiped when they change."""
        with trio.move_on_after(RECONCILE_S_MAX):
            while all(self._knows(key) and self.lookup(key) == owner for key in keys):
                await self._host.changed.wait()
