"""All keyspaces that one node knows, and its shares of them."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceUnknown,
    PartitionUnavailable,
    StoreUnavailable,
)
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import keep_running
from ringpop_py.member.drain import ENDED, Work
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import STORE_LABEL, Status
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.permits import check_name, check_use
from ringpop_py.net.wire.calls import NODE_SERVICE
from ringpop_py.state.catalog.catalog import CatalogEntry, created
from ringpop_py.state.catalog.quota import Quota
from ringpop_py.state.catalog.stored import StoredKeyspaces
from ringpop_py.state.durable.host import DurableHost
from ringpop_py.state.keyspaces.client_server import ClientServer, Elsewhere
from ringpop_py.state.keyspaces.endpoints import MEMBERS_ONLY, KeyspaceServer
from ringpop_py.state.keyspaces.shares import Shares, contain
from ringpop_py.state.keyspaces.states import States
from ringpop_py.state.memory.host import MemoryHost, check_settings
from ringpop_py.state.memory.merge_rules import MergeRules
from ringpop_py.state.messages import role_for
from ringpop_py.state.placement.gossip import Known
from ringpop_py.state.placement.strategies import strategy_named
from ringpop_py.state.shares.gossip import GossipDriver
from ringpop_py.state.shares.other_stores import check_that_all_share
from ringpop_py.state.shares.spawner import Spawner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.member.swim.member import Member
    from ringpop_py.route.proxy.owners import KeyOwners
    from ringpop_py.state.catalog.catalog import Catalog
    from ringpop_py.state.catalog.stored import OpenedStore
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.keyspaces.shares import Share
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.placement.table import TableRow
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.table.due import DueClock
    from ringpop_py.state.tasks import Worker

CATALOG_WAIT_S: Final = 2.0
"""The most seconds for which the start of a node waits for the keyspaces in its store."""


class Keyspaces:
    """The keyspaces of a cluster, at one node.

    Args:
        store: where durable keyspaces live; None if this node has no store.
        clock: by which keys expire.

    Attributes:
        aggregations: the operations that can change keys.
        merge_rules: the rules by which keyspaces in memory mode are merged after a network cut.
        states: makes the states of partitions.
        shares: this node's shares of keyspaces.
        gossip: exchanges keyspaces and tables with other nodes.
    """

    def __init__(self, node: NodeView, store: OpenedStore | None, clock: DueClock) -> None:
        self.states = States(node.name, clock)
        if store is not None and store.rocks is not None:
            self.states.make_entries = store.rocks.entries
        self.aggregations = self.states.aggregations
        self.merge_rules = MergeRules()
        self._node = node
        self._entries: dict[str, CatalogEntry] = {}
        self._quota = Quota(node.config.state, self._entries)
        self._tasks = Spawner(contain, lambda: ENDED)
        spawn = self._tasks.spawn
        self._stored = StoredKeyspaces(store, node.config, self._learn) if store else None
        self.gossip = GossipDriver(node, self, store_id=self.store_id or "")
        self.shares = Shares(
            node, self.states, self.merge_rules, self.gossip, stored=self._stored, spawn=spawn
        )
        endpoints = KeyspaceServer(self, self.gossip, node.proxying.operations).endpoints()
        self._between_members = frozenset(name for served in endpoints.values() for name in served)
        endpoints[Work.CLIENT_REQUESTS] = ClientServer(
            node, self.get_for_client, self.elsewhere
        ).endpoints()
        for work, served in endpoints.items():
            for endpoint, handler in served.items():
                role = Role.MEMBER if endpoint in MEMBERS_ONLY else role_for(endpoint)
                node.channel.serve(NODE_SERVICE, endpoint, handler, work=work, role=role)
        # The proxy is older than this object, which is made when keyspaces are first needed.
        node.proxying.owners_of_keyspace = self._owners_of
        node.observe(self._observed)

    # For applications.

    async def open(self, definition: Definition, *, is_own: bool = False) -> Keyspace:
        """Return the keyspace of this *definition*; create it if it does not exist.

        Args:
            is_own: whether it is one of the cluster's own, named ``~…``, which no limit stops.

        Raises:
            KeyspaceConflict: if a keyspace of this name has another definition.
            KeyspaceUnknown: if it is being dropped.
            TooManyKeyspaces: if the cluster has as many as `StateConfig` permits.
            ConfigError: if this node cannot have a share of it, or the name is the cluster's.
            StoreUnavailable: if the store does not answer.
        """
        if not is_own:
            check_name(definition.name)
        strategy_named(definition.strategy)  # raises ConfigError
        if definition.mode == "memory":
            return await self._open_in_memory(definition)
        stored = self._stored_for(definition.name)
        known = self._entries.get(definition.name)
        if known is not None and known.definition.mode == "memory" and not known.dropped:
            created(known, definition)  # raises KeyspaceConflict, because the mode differs
        if known is None and not is_own:
            await stored.find(definition.name)
            if definition.name not in self._entries:
                check_that_all_share(self._node, stored.opened.label, definition.name)
        with nullcontext() if is_own else self._quota.creating(definition):
            await stored.create(definition)
        return self.here(definition.name).keyspace

    async def _open_in_memory(self, definition: Definition) -> Keyspace:
        check_settings(definition, self.merge_rules)
        # Without a store it works too; but one that answers may have a keyspace of this name.
        with suppress(StoreUnavailable):
            await self._look_for(definition.name)
        known = self._entries.get(definition.name)
        entry = created(known, definition)
        if entry is not known:
            with self._quota.creating(definition):
                self.learn(entry)
        return self.here(definition.name).keyspace

    async def get(self, name: str) -> Keyspace:
        """Return the existing keyspace *name*. Raises KeyspaceUnknown, StoreUnavailable."""
        return (await self.find(name)).keyspace

    async def get_for_client(self, name: str, caller: Identity | None) -> Keyspace:
        """As `get`, for *caller* (`check_use`); raise PartitionUnavailable if others serve it."""
        check_use(name, caller)
        try:
            return await self.get(name)
        except KeyspaceUnknown:
            self.check_not_elsewhere(name)
            raise

    def elsewhere(self, name: str) -> Elsewhere | None:
        """Return the durable keyspace *name*, if this node has no store but knows of it."""
        entry = self._entries.get(name)
        if self._stored or entry is None or entry.dropped or entry.definition.mode == "memory":
            return None
        holders, members = self._node.placement.holders, self._node.members
        able = [m.name for m in members if m.name in holders and STORE_LABEL in dict(m.labels)]
        return Elsewhere(entry.generation, entry.definition.partitions, able)

    def check_not_elsewhere(self, name: str) -> None:
        """Raise PartitionUnavailable if only other members can serve the keyspace *name*."""
        if self.elsewhere(name) is not None:
            raise PartitionUnavailable(
                f"{self._node.name!r} has no store, so it does not serve the durable keyspace "
                f"{name!r}: ask a member that has one"
            )

    async def find(self, name: str) -> Share:
        """As `here`, but ask the store and other members first. Raises StoreUnavailable, too."""
        if self.shares.get(name) is None:
            await self._look_for(name)
        return self.here(name)

    async def _look_for(self, name: str) -> None:
        if self.shares.get(name) is None and self._stored is not None:
            await self._stored.find(name)
        # Last, as it waits for peers: a keyspace in memory mode is in no store.
        if self.shares.get(name) is None and self.elsewhere(name) is None:
            await self.gossip.ask()

    def here(self, name: str) -> Share:
        """Return this node's share of the keyspace *name*. Raises KeyspaceUnknown."""
        share = self.shares.get(name)
        if share is None:
            raise KeyspaceUnknown(f"no keyspace {name!r} in cluster {self._node.config.cluster!r}")
        return share

    def durable_host(self, name: str) -> DurableHost:
        """Return this node's share of the durable keyspace *name*.

        Raises:
            KeyspaceUnknown: if it does not exist, as far as this node knows.
            ConfigError: if it is in memory mode.
        """
        host = self.here(name).host
        if not isinstance(host, DurableHost):
            raise ConfigError(f"keyspace {name!r} is in memory mode; this needs a durable keyspace")
        return host

    async def drop(self, name: str) -> CatalogEntry:
        """Drop the keyspace *name*. Its data stay in the store.

        When this returns, no node can acknowledge a write to it, even one that did not learn of it.

        Raises:
            KeyspaceUnknown: if it does not exist.
            StoreUnavailable: whether it was dropped is open; try again.
        """
        share = self.shares.get(name)
        # A durable keyspace needs no look: its drop reads the store anyway.
        if share is None or isinstance(share.host, MemoryHost):
            await self._look_for(name)
        known = self._entries.get(name)
        if known is not None and known.definition.mode == "memory":
            self.here(name)  # raises KeyspaceUnknown if it was dropped already
            # Nothing is fenced: without a store, a member stops serving when gossip brings this
            # entry.
            entry = known._replace(dropped=True)
            self.learn(entry)
            return entry
        return await self._stored_for(name).drop(name, self.learn)

    def durable(self, name: str) -> tuple[Catalog, Worker]:
        """Return the catalog of this node's store, and what calls it, for the keyspace *name*.

        Raises:
            ConfigError: if this node has no store.
        """
        stored = self._stored_for(name)
        return stored.catalog, stored.worker

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run *function* until this node ends. Raises PartitionUnavailable if it has ended."""
        self._tasks.spawn(function, *arguments)

    def learn(self, entry: CatalogEntry) -> None:
        """Learn *entry*, which is in force by now, and gossip it immediately."""
        self._learn(entry)
        self.gossip.spread(entry.name, entry.generation, [])

    @property
    def store_id(self) -> str | None:
        """The id of this node's store; None if it has none."""
        return self._stored.opened.id if self._stored is not None else None

    def all(self) -> list[Keyspace]:
        """Return the keyspaces of which this node has a share, in the order of names."""
        return [share.keyspace for share in self.shares]

    # Life.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve keyspaces until cancelled.

        Those in the store are known when this has started, unless the store does not answer in
        `CATALOG_WAIT_S`: then they are learnt later.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._tasks.open(nursery)
                nursery.start_soon(keep_running, "the gossip of keyspaces", self.gossip.run)
                if self._stored is not None:
                    tried = trio.Event()
                    nursery.start_soon(self._stored.read, tried)
                    with trio.move_on_after(CATALOG_WAIT_S):
                        await tried.wait()
                task_status.started()
        finally:
            for share in self.shares:
                share.keyspace.ended = True

    def _learn(self, entry: CatalogEntry) -> None:
        name = entry.name
        known = self._entries.get(name)
        # Gossip repeats itself, and brings entries in any order.
        if known is not None and known.order >= entry.order:
            return
        in_memory = entry.definition.mode == "memory"  # a durable one was restored in place
        if in_memory and known is not None and not known.dropped and not entry.dropped:
            difference = entry.definition.difference_from(known.definition)
            text = f"keyspace {name!r} was created twice; the other one is kept: {difference}"
            log.warning("keyspace-replaced", keyspace=name, text=text)
        self._entries[name] = entry
        if (share := self.shares.get(name)) is not None and share.host.redefine(entry):
            return
        self.shares.end(name)  # that of an older generation
        if not entry.dropped:
            self.shares.begin(entry)

    def _observed(self, effect: fx.Effect) -> None:
        match effect:
            # Owners follow from the members; the look each second would find that later.
            case fx.StatusChanged(_, after):
                self.shares.wake()
                if after is not None and after.status is Status.FAULTY:
                    self._give_up_calls(after, "membership has declared {} faulty")
                elif after is not None and after.status is Status.SUSPECT:
                    self._suspected(after)
            case fx.SuspicionConfirmed(member):
                self._suspected(member)
            case fx.Ready():
                self.shares.wake()
            case fx.DigestDiffers(peer, digest):
                self.gossip.differs(peer, digest)
            case _:
                pass

    def _suspected(self, member: Member) -> None:
        if not self.shares.serves_durably(member.name):
            return
        if self._node.is_silent(member.name):
            self.shares.wake()
            self._give_up_calls(member, "neither this node nor others reach {}")
        else:
            self._node.doubt(member.name)

    def _give_up_calls(self, gone: Member, why: str) -> None:
        # Others will own its partitions, and each of these calls may be repeated there. Otherwise a
        # caller would wait for a process that hangs until its connection is found to be dead.
        which = self._between_members
        text = why.format(gone.name)
        self._node.channel.give_up_calls(gone.address, lambda call: call.endpoint in which, text)

    def _owners_of(self, name: str) -> KeyOwners | None:
        share = self.shares.get(name)
        return share.keyspace.owners if share is not None else None

    def _stored_for(self, name: str) -> StoredKeyspaces:
        if self._stored is None:
            raise ConfigError(
                f"this node has no store, so it cannot serve the durable keyspace {name!r}: "
                "give it one with --store (or Config.store)"
            )
        return self._stored

    # Gossip.

    def known(self) -> dict[str, Known]:
        """See `GossipTarget`."""
        found: dict[str, Known] = {}
        for name, entry in self._entries.items():
            share = self.shares.get(name)
            # Without a share this node still passes on that the keyspace exists, or was dropped.
            here = (share.host.table, share.host.assignment_version) if share else (None, 0)
            found[name] = Known(entry.definition, entry.generation, entry.dropped, *here)
        return found

    def learn_keyspace(self, definition: Definition, generation: int, *, dropped: bool) -> None:
        """See `GossipTarget`."""
        self._learn(CatalogEntry(definition, generation, dropped))

    def learn_rows(self, name: str, rows: list[TableRow]) -> None:
        """See `GossipTarget`."""
        share = self.here(name)
        try:
            share.host.driver.merge(rows)
        except Exception as error:  # noqa: BLE001 - a bug, and of this keyspace alone
            share.fail(error)

    def hint_assignment(self, name: str, version: int) -> None:
        """See `GossipTarget`."""
        self.here(name).host.hint_assignment(version)
