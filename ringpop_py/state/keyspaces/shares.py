"""Shares of keyspaces at one node. The tasks of a share fail together, and no others with them.

A bug in one of them, or in the code of a store, stops the share: its partitions are given up,
requests to it are refused, and other members learn of it. The node and all other keyspaces go on.
The share comes back only if the node is restarted: the state that the bug left behind is unknown.
"""

from __future__ import annotations

import random
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.member.drain import ENDED, Work
from ringpop_py.member.swim.member import FAILED_LABEL, LABEL_VALUE_BYTES_MAX
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.keyspaces.keyspace import Keyspace
from ringpop_py.state.memory.host import MemoryHost
from ringpop_py.state.placement.table import PartitionStatus
from ringpop_py.state.shares.driver import Peers
from ringpop_py.state.shares.spawner import Spawner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from ringpop_py.member.swim.member import Member
    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.catalog.stored import StoredKeyspaces
    from ringpop_py.state.keyspaces.states import States
    from ringpop_py.state.memory.merge_rules import MergeRules
    from ringpop_py.state.shares.gossip import GossipDriver
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.tasks import Spawn

ALL_FAILED: Final = "*"
"""The value of the label if the names would be too long for it."""
GIVE_UP_S: Final = 5.0
"""The most seconds in which a share that has failed gives up its partitions in good order."""


class Share:
    """This node's share of one keyspace.

    Args:
        make: makes the host and the keyspace, given the function that starts their tasks.
        on_failed: called once, when the share has failed.

    Attributes:
        failure: why it has failed; empty while it has not.
        spawn: see `Spawn`; an error in the task fails the share. Raises PartitionUnavailable once
            the share, or the node, has ended.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Spawn], tuple[DurableHost | MemoryHost, Keyspace]],
        on_failed: Callable[[], None],
    ) -> None:
        self.failure = ""
        self._name = name
        self._on_failed = on_failed
        self._tasks = Spawner(self._contain, lambda: self.failure or ENDED)
        self.spawn: Spawn = self._tasks.spawn
        # Last: what it makes may begin tasks, which need all of the above.
        self.host, self.keyspace = make(self.spawn)

    async def run(self) -> None:
        """Run the share until it fails or is stopped; then give up what is left of it."""
        await self._run(self.host.run)
        if self.failure:
            # Others would take durable partitions over anyway, but only after a while; in memory
            # mode there is no other copy.
            with trio.move_on_after(GIVE_UP_S):
                await self._run(self.host.driver.close)
            # Also after the time is over: a share that failed must not serve anything.
            self.host.driver.let_go()

    async def _run(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._tasks.open(nursery)
                await self._contain(function)
                self.stop()
        except Exception as error:  # noqa: BLE001 - raised by a task that was being cancelled
            self.fail(error)

    def stop(self) -> None:
        """End all tasks of the share."""
        self._tasks.stop()

    async def _contain(
        self, function: Callable[..., Awaitable[object]], *arguments: object
    ) -> None:
        try:
            await function(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop the share because of *error*, a bug; only the first error is reported."""
        if not self.failure:
            name, what = self._name, one_line(error)
            self.failure = f"this node's share of keyspace {name!r} has failed: {what}"
            log.error("keyspace-failed", text=self.failure, keyspace=name, exc_info=error)
            # Before the tasks end: requests that they leave behind find the reason.
            self.host.driver.fail(self.failure)
            self.keyspace.stage.fail(self.failure)
            self._on_failed()
        self.stop()


class Shares:
    """The shares of one node, by the names of their keyspaces.

    Args:
        stored: the keyspaces in this node's store; None if it has no store.
        spawn: runs the tasks of shares.
    """

    def __init__(
        self,
        node: NodeView,
        states: States,
        merge_rules: MergeRules,
        gossip: GossipDriver,
        *,
        stored: StoredKeyspaces | None,
        spawn: Spawn,
    ) -> None:
        self._node = node
        self._states = states
        self._merge_rules = merge_rules
        self._gossip = gossip
        self._stored = stored
        self._spawn = spawn
        # One generator for all keyspaces: the pauses of their retries only have to differ.
        self._rng = random.Random(secrets.randbits(64))
        self._shares: dict[str, Share] = {}

    def __iter__(self) -> Iterator[Share]:
        """Yield all shares, in the order of names."""
        return iter([self._shares[name] for name in sorted(self._shares)])

    def get(self, name: str) -> Share | None:
        """Return the share of the keyspace *name*, if there is one."""
        return self._shares.get(name)

    def begin(self, entry: CatalogEntry) -> None:
        """Begin a share of the keyspace of *entry*, if this node can serve it."""
        if entry.definition.mode == "durable" and self._stored is None:
            return

        def make(spawn: Spawn) -> tuple[DurableHost | MemoryHost, Keyspace]:
            host = self._host_for(entry, spawn)
            keyspace = Keyspace(self._node, host, self._rng, spawn)
            keyspace.aggregations = self._states.aggregations
            host.driver.may_leave = keyspace.stage.may_leave
            return host, keyspace

        try:
            share = Share(entry.name, make, self._tell_failures)
        except ConfigError as error:
            # A newer version has created it. This node cannot serve it, but all other keyspaces.
            log.warning("keyspace-not-understood", keyspace=entry.name, text=str(error))
            return
        self._shares[entry.name] = share
        self._spawn(share.run)

    def _host_for(self, entry: CatalogEntry, spawn: Spawn) -> DurableHost | MemoryHost:
        name, stored = entry.name, self._stored
        in_memory = entry.definition.mode == "memory"
        store_label = None if in_memory or stored is None else stored.opened.label
        peers = Peers(
            members=partial(self._members, name, store_label),
            spread=lambda rows: self._gossip.spread(name, entry.generation, rows),
            ask=self._gossip.ask,
        )
        if in_memory:
            return MemoryHost(
                self._node,
                entry,
                make_state=self._states.mergeable,
                peers=peers,
                find_rule=lambda: self._merge_rules.find(entry.definition.merge, name),
                spawn=spawn,
            )
        assert stored is not None, "durable keyspaces begin with a store only"
        host = DurableHost(
            self._node,
            entry,
            stored.worker,
            make_state=self._states.keyed,
            peers=peers,
            spawn=spawn,
            on_over=lambda: self._spawn(stored.look_up, name),  # it may have been created again
        )
        host.watch.on_change = self._tell_failures
        return host

    def _members(self, name: str, store_label: tuple[str, str] | None) -> Sequence[str]:
        # Members that may hold partitions, of that store if there is one, whose share has not
        # failed.
        holders = self._node.placement.holders
        return [
            m.name
            for m in self._node.members
            if m.name in holders
            and (store_label is None or store_label in m.labels)
            and not has_failed(m, name)
        ]

    def end(self, name: str) -> None:
        """End the share of the keyspace *name*, which was dropped."""
        # Removed first: a share of the next generation may take the name immediately.
        share = self._shares.pop(name, None)
        if share is not None:
            self._spawn(self._end, share)

    async def _end(self, share: Share) -> None:
        # Before its tasks are cancelled: seals need the workers of the partitions.
        await share.host.driver.drop()
        share.stop()
        self._tell_failures()

    def _tell_failures(self) -> None:
        # By this label, other members know that they should own the partitions.
        failed = [
            name
            for name, share in self._shares.items()
            if share.failure or (isinstance(share.host, DurableHost) and share.host.watch.away)
        ]
        self._node.labels.set_own(FAILED_LABEL, failed_label(failed))

    def serves_durably(self, name: str) -> bool:
        """Return whether the member *name* serves a partition of a durable keyspace."""
        hosts = (share.host for share in self._shares.values())
        return any(
            row.owner == name and row.status is PartitionStatus.ONLINE
            for host in hosts
            if isinstance(host, DurableHost)
            for row in host.table
        )

    def wake(self) -> None:
        """Have all shares look at who should own what: the members have changed."""
        for share in self._shares.values():
            share.host.driver.wake()

    def end_waits(self) -> None:
        """Have those go on who wait for news: the node is about to end."""
        for share in self._shares.values():
            share.host.driver.end_waits()

    def under_way(self) -> dict[Work, int]:
        """Return what the end of a node has to wait for, besides calls that are being served."""
        shares = self._shares.values()
        return {
            Work.ACTOR_MESSAGES: sum(share.keyspace.stage.under_way for share in shares),
            Work.PARTITIONS: sum(share.host.partitions_to_give for share in shares),
        }

    async def close(self) -> None:
        """Give up all partitions, so that others need not detect that this node is gone."""
        async with trio.open_nursery() as nursery:
            for share in self._shares.values():
                # Contained: a bug in one keyspace must not keep the others from their hand-over.
                nursery.start_soon(contain, share.host.driver.close)


async def contain(function: Callable[..., Awaitable[object]], *arguments: object) -> None:
    """Run ``function(*arguments)``; log its errors, which are bugs, instead of ending the node."""
    try:
        await function(*arguments)
    except Exception as error:
        text = f"a task of keyspaces failed: {one_line(error)}"
        log.exception("task-failed", text=text, task="keyspaces")


def failed_label(names: Iterable[str]) -> str | None:
    """Return the value of `FAILED_LABEL` for these keyspaces; None if there are none."""
    # Quoted, so that a name with a comma is still one name.
    value = ",".join(quote(name, safe="") for name in sorted(names))
    return (value if len(value) <= LABEL_VALUE_BYTES_MAX else ALL_FAILED) or None


def has_failed(member: Member, name: str) -> bool:
    """Return whether the share of the keyspace *name* at *member* has failed, by its label."""
    for key, value in member.labels:
        if key == FAILED_LABEL:
            return value == ALL_FAILED or quote(name, safe="") in value.split(",")
    return False
