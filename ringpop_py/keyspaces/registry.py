"""All keyspaces at one node: which there are, their shares here, and the endpoints they serve."""

from __future__ import annotations

import random
import secrets
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ringpop_py.actors.mail import ACTOR, Mail, MailAnswered
from ringpop_py.actors.mailboxes import register_saving
from ringpop_py.catalog.catalog import Catalog, CatalogEntry
from ringpop_py.catalog.memory_catalog import created
from ringpop_py.columns.pages import COLUMNS, ColumnsRequest
from ringpop_py.drain import Work
from ringpop_py.errors import (
    BadOperation,
    BadRequest,
    ConfigError,
    KeyspaceConflict,
    KeyspaceError,
    KeyspaceUnknown,
    PartitionUnavailable,
    StoreUnavailable,
)
from ringpop_py.keyed.aggregations import Aggregations
from ringpop_py.keyed.conditions import register_conditions
from ringpop_py.keyed.entries import Entries, MemoryEntries
from ringpop_py.keyed.keyed import KeyedState
from ringpop_py.keyed.mergeable import MergeableState
from ringpop_py.keyed.versioned import HybridClock
from ringpop_py.keyspaces.client_server import ClientServer, Elsewhere
from ringpop_py.keyspaces.job_server import JobServer
from ringpop_py.keyspaces.keyspace import Keyspace
from ringpop_py.keyspaces.shares import Share, failed_label, has_failed
from ringpop_py.logs import log
from ringpop_py.partition.fence import fence_at_once
from ringpop_py.partition.tasks import Worker
from ringpop_py.placing.strategies import strategy_named
from ringpop_py.shares.host import DurableHost, Host
from ringpop_py.shares.memory_host import MemoryHost, check_settings
from ringpop_py.shares.merge_rules import MergeRules
from ringpop_py.shares.snapshots import SNAPSHOT, SnapshotRequest
from ringpop_py.steward import hand_over as handing_over
from ringpop_py.steward.table_gossip import Known, TableGossip
from ringpop_py.stores.layout import KeyspaceKeys
from ringpop_py.stores.store import Store  # noqa: TC001 - read at run time
from ringpop_py.supervision import keep_running, one_line
from ringpop_py.swim import effects as fx
from ringpop_py.swim.member import FAILED_LABEL
from ringpop_py.values import requests as messages
from ringpop_py.values.packed import (
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
    make_packer,
)
from ringpop_py.values.requests import ApplyRequest, ReadRequest, ScanRequest, encode_results
from ringpop_py.wire.calls import Answer
from ringpop_py.wire.connection import NODE_SERVICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.jobs.messages import JobId
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.placing.definition import Definition
    from ringpop_py.placing.table import Table, TableRow
    from ringpop_py.proxy.owners import KeyOwners
    from ringpop_py.steward.view import NodeView
    from ringpop_py.stores.rocks import RocksDatabase
    from ringpop_py.transport.calls import Handler
    from ringpop_py.transport.channel import IncomingCall
    from ringpop_py.values.operations import Value

STORE_LABEL: Final = "ringpop.store"
"""Of members that have a store: which one. Partitions go to members of the same store alone."""


CATALOG_S: Final = 1.0
"""How long to wait before a store that did not answer is read again."""
CATALOG_WAIT_S: Final = 2.0
"""How long a node that starts waits for its store to say which keyspaces there are."""
MISSED_S: Final = 1.0
MISSED_MAX: Final = 1_000
"""Peers that ask for keyspaces which do not exist do not have the store asked each time."""


class OpenedStore(NamedTuple):
    """A store, what tells it from others, and where entries of its partitions are: memory if None.

    Who opened them closes them.
    """

    store: Store
    id: str
    rocks: RocksDatabase | None = None

    @property
    def label(self) -> tuple[str, str]:
        """What members say who have it."""
        return STORE_LABEL, self.id


class Keyspaces:
    """The keyspaces of a cluster, at one node.

    Args:
        store: where durable keyspaces live; None if this node has no store.

    Attributes:
        aggregations: what changes of keys can be.
        merge_rules: how keyspaces in memory mode are merged after a cut.
    """

    def __init__(self, node: NodeView, store: OpenedStore | None) -> None:
        self.aggregations = Aggregations()
        self.merge_rules = MergeRules()
        self._clock = HybridClock(node.name)
        self._pack = make_packer()
        register_conditions(self.aggregations)
        register_saving(self.aggregations)
        self._node = node
        self._store = store
        self._catalog: Catalog | None = None
        if store is not None:
            self._catalog = Catalog(store.store, node.config.cluster)
            self._worker = Worker(store.store, node.config.state.store_threads)
        self._rng = random.Random(secrets.randbits(64))
        self._entries: dict[str, CatalogEntry] = {}
        self._shares: dict[str, Share] = {}
        self._nursery: trio.Nursery | None = None
        self._spawned_early: list[tuple[Callable[..., Awaitable[object]], tuple[object, ...]]] = []
        self._missed_until: dict[str, float] = {}
        store_id = store.id if store is not None else ""
        self._gossip = TableGossip(node, self, self._rng, self._spawn, store_id=store_id)
        self._changed = trio.Event()
        for work, endpoints in self._endpoints().items():
            for endpoint, handler in endpoints.items():
                node.channel.serve(NODE_SERVICE, endpoint, handler, work=work)
        node.proxying.owners_of_keyspace = self._owners_of
        node.observe(self._observed)

    # For applications.

    async def open(self, definition: Definition) -> Keyspace:
        """The keyspace of this *definition*, created unless it is there.

        Raises:
            KeyspaceConflict: there is one of this name that is defined otherwise.
            KeyspaceUnknown: it is being dropped.
            ConfigError: this node cannot have a part in it.
            StoreUnavailable: nobody knows.
        """
        strategy_named(definition.strategy)
        if definition.mode == "memory":
            return await self._open_in_memory(definition)
        catalog = self._catalog_for(definition.name)
        known = self._entries.get(definition.name)
        if known is not None and known.definition.mode == "memory" and not known.dropped:
            created(known, definition)  # refuses it
        entry = await self._worker.run(catalog.create, definition)
        self._learn(entry)
        return self.here(definition.name).keyspace

    async def _open_in_memory(self, definition: Definition) -> Keyspace:
        check_settings(definition, self.merge_rules)
        with suppress(StoreUnavailable):  # which it does not need
            await self._find(definition.name)
        known = self._entries.get(definition.name)
        entry = created(known, definition)
        if entry is not known:
            self.learn(entry)
        return self._shares[definition.name].keyspace

    async def get(self, name: str) -> Keyspace:
        """The keyspace *name*, which exists.

        Raises:
            KeyspaceUnknown: it does not, or was dropped.
            StoreUnavailable: nobody knows.
        """
        await self._find(name)
        return self.here(name).keyspace

    async def get_for_client(self, name: str) -> Keyspace:
        """As `get`, for somebody who can ask another member as well.

        Raises:
            PartitionUnavailable: others have it, but this node has no store, so no part in it.
        """
        try:
            return await self.get(name)
        except KeyspaceUnknown:
            self._check_not_elsewhere(name)
            raise

    def elsewhere(self, name: str) -> Elsewhere | None:
        """The durable keyspace *name*, if others have it, and this node has no store."""
        entry = self._entries.get(name)
        if self._store is not None or entry is None or entry.dropped:
            return None
        if entry.definition.mode == "memory":
            return None
        ring, members = self._node.ring, self._node.members
        able = [m.name for m in members if m.name in ring and STORE_LABEL in dict(m.labels)]
        return Elsewhere(entry.generation, entry.definition.partitions, able)

    def _check_not_elsewhere(self, name: str) -> None:
        if self.elsewhere(name) is not None:
            message = (
                f"{self._node.name!r} has no store, so it has no part in the durable keyspace "
                f"{name!r}: ask a member that has one"
            )
            raise PartitionUnavailable(message)

    async def _find(self, name: str) -> None:
        """Learn of the keyspace *name*, if the store or others know it. Raises StoreUnavailable."""
        if name not in self._shares and self._catalog is not None:
            entry = await self._worker.run(self._catalog.find, name)
            if entry is not None:
                self._learn(entry)
        if name not in self._shares and self.elsewhere(name) is None:
            await self._gossip.ask()

    def here(self, name: str) -> Share:
        """This node's share of the keyspace *name*. Raises KeyspaceUnknown."""
        share = self._shares.get(name)
        if share is None:
            message = f"no keyspace {name!r} in cluster {self._node.config.cluster!r}"
            raise KeyspaceUnknown(message)
        return share

    def durable_host(self, name: str) -> DurableHost:
        """This node's share of the durable keyspace *name*.

        Raises:
            KeyspaceUnknown: it does not exist, as far as this node knows.
            ConfigError: it is in memory mode.
        """
        host = self.here(name).host
        if not isinstance(host, DurableHost):
            message = f"keyspace {name!r} is in memory mode, this takes a durable one"
            raise ConfigError(message)
        return host

    async def drop(self, name: str) -> CatalogEntry:
        """Drop the keyspace *name*: nobody serves it any more. Its data stay in the store.

        When this returns nobody can acknowledge a write to it any more, heard of it or not.

        Raises:
            KeyspaceUnknown: there is none.
            StoreUnavailable: whether it was dropped is open; try again.
        """
        if name not in self._shares or isinstance(self._shares[name].host, MemoryHost):
            await self._find(name)
        known = self._entries.get(name)
        if known is not None and known.definition.mode == "memory":
            self.here(name)  # or it was dropped already
            entry = known._replace(dropped=True)
            self.learn(entry)
            return entry
        catalog = self._catalog_for(name)
        entry = await self._worker.run(catalog.drop, name)
        self.learn(entry)
        keys = KeyspaceKeys(catalog.cluster, name, entry.generation)
        await fence_at_once(self._worker, catalog.store, keys, entry.definition.partitions)
        return entry

    def durable(self, name: str) -> tuple[Catalog, Worker]:
        """What there is to know of the durable keyspace *name*, and what asks for it.

        Raises:
            ConfigError: this node has no store.
        """
        return self._catalog_for(name), self._worker

    def learn(self, entry: CatalogEntry) -> None:
        """Have what *entry* says, which is the truth by now, and tell others at once."""
        self._learn(entry)
        self._gossip.spread(entry.name, entry.generation, [])

    @property
    def store_id(self) -> str | None:
        """What tells this node's store from others; None if it has none."""
        return self._store.id if self._store is not None else None

    def all(self) -> list[Keyspace]:
        """The keyspaces that are known here, by name."""
        return [self._shares[name].keyspace for name in sorted(self._shares)]

    # Life.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve keyspaces until cancelled.

        Those in the store are known when this has started, unless the store is slow or away: then
        they come later, and nobody waits for them longer than `CATALOG_WAIT_S`.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for function, arguments in self._spawned_early:
                nursery.start_soon(_contain, function, *arguments)
            self._spawned_early.clear()
            if self._catalog is not None:
                tried = trio.Event()
                nursery.start_soon(self._read_catalog_until_done, self._catalog, tried)
                with trio.move_on_after(CATALOG_WAIT_S):
                    await tried.wait()
            task_status.started()
            await keep_running("the gossip of keyspaces", self._gossip.run)

    async def _read_catalog(self, catalog: Catalog) -> bool:
        """Learn of all keyspaces in the store. Whether it answered."""
        try:
            for name in await self._worker.run(catalog.names):
                try:
                    entry = await self._worker.run(catalog.find, name)
                except KeyspaceConflict as error:  # this one alone
                    log.warning("keyspace-not-read", keyspace=name, text=str(error))
                    continue
                if entry is not None:
                    self._learn(entry)
        except StoreUnavailable as error:
            log.warning("keyspaces-not-read", text=str(error))
            return False
        return True

    async def _read_catalog_until_done(self, catalog: Catalog, tried: trio.Event) -> None:
        """Nobody else may be there to tell us."""
        while not await self._read_catalog(catalog):
            tried.set()
            await trio.sleep(CATALOG_S)
        tried.set()

    def under_way(self) -> dict[Work, int]:
        """What a node that ends has to wait for, besides calls that are being served.

        Partitions are left out that no other member can take.
        """
        shares = self._shares.values()
        return {
            Work.ACTOR_MESSAGES: sum(share.keyspace.stage.under_way for share in shares),
            Work.PARTITIONS: sum(share.host.partitions_to_give for share in shares),
        }

    async def close(self) -> None:
        """Give up all partitions, so that others need not find out that this node is gone."""
        async with trio.open_nursery() as nursery:
            for share in self._shares.values():
                nursery.start_soon(_contain, share.host.close)

    def _learn(self, entry: CatalogEntry) -> None:
        """Have what *entry* says, unless something later is known."""
        name = entry.name
        known = self._entries.get(name)
        if known is not None and known.order >= entry.order:
            return
        in_memory = entry.definition.mode == "memory"  # else it was restored in place
        if in_memory and known is not None and not known.dropped and not entry.dropped:
            difference = entry.definition.difference_from(known.definition)
            text = f"keyspace {name!r} was created twice; the other one is kept: {difference}"
            log.warning("keyspace-replaced", keyspace=name, text=text)
        self._entries[name] = entry
        share = self._shares.pop(name, None)
        if share is not None:
            self._spawn(self._end, share)
        if not entry.dropped:
            self._begin(entry)
        self._changed.set()
        self._changed = trio.Event()

    def _begin(self, entry: CatalogEntry) -> None:
        if entry.definition.mode == "durable" and self._store is None:
            return

        def make(spawn: Spawn) -> tuple[DurableHost | MemoryHost, Keyspace]:
            host = self._host_for(entry, spawn)
            keyspace = Keyspace(self._node, host, self._rng, spawn)
            host.ownership.may_leave = keyspace.stage.may_leave
            return host, keyspace

        try:
            share = Share(entry.name, make, self._tell_failures)
        except ConfigError as error:
            # A newer version knows how; this node is no worse at all else for that.
            log.warning("keyspace-not-understood", keyspace=entry.name, text=str(error))
            return
        self._shares[entry.name] = share
        self._spawn(share.run)

    def _host_for(self, entry: CatalogEntry, spawn: Spawn) -> DurableHost | MemoryHost:
        name = entry.name
        if entry.definition.mode == "memory":
            return MemoryHost(
                self._node,
                entry,
                make_state=self._make_mergeable,
                members=partial(self._members, name),
                find_rule=lambda: self.merge_rules.find(entry.definition.merge),
                ask=self._gossip.ask,
                spread=lambda rows: self._gossip.spread(name, entry.generation, rows),
                spawn=spawn,
            )
        assert self._store is not None
        host = DurableHost(
            self._node,
            entry,
            self._store.store,
            worker=self._worker,
            make_state=self._make_state,
            members=partial(self._members, name, self._store.label),
            spread=lambda rows: self._gossip.spread(name, entry.generation, rows),
            spawn=spawn,
        )
        host.ask = self._gossip.ask
        host.on_over = lambda: self._spawn(self._look_up, name)
        return host

    async def _look_up(self, name: str) -> None:
        """A generation is over: see what came after it."""
        assert self._catalog is not None
        with suppress(StoreUnavailable, KeyspaceConflict):  # then somebody else tells us
            entry = await self._worker.run(self._catalog.find, name)
            if entry is not None:
                self._learn(entry)

    def _make_state(self, definition: Definition) -> KeyedState:
        """The state of a partition, empty."""
        return KeyedState(
            self._pack,
            _unpack,
            self.aggregations,
            keys_max=definition.max_keys_per_partition,
            entries=self._make_entries(),
        )

    def _make_mergeable(self, definition: Definition) -> MergeableState:
        """The state of a partition in memory mode, empty."""
        return MergeableState(
            self._clock,
            self._pack,
            _unpack,
            self.aggregations,
            keys_max=definition.max_keys_per_partition,
        )

    def _make_entries(self) -> Entries:
        assert self._store is not None
        rocks = self._store.rocks
        return rocks.entries() if rocks is not None else MemoryEntries()

    async def _end(self, share: Share) -> None:
        await share.host.end()
        share.stop()
        self._tell_failures()

    def _tell_failures(self) -> None:
        """Have others know which shares have failed here, so that they own their partitions."""
        failed = [name for name, share in self._shares.items() if share.failure]
        self._node.set_own_label(FAILED_LABEL, failed_label(failed))

    def _members(self, name: str, store_label: tuple[str, str] | None = None) -> Sequence[str]:
        """Who may own partitions of *name*: members in the ring, of that store if there is one.

        Those are left out whose share of the keyspace has failed.
        """
        ring = self._node.ring
        return [
            m.name
            for m in self._node.members
            if m.name in ring
            and (store_label is None or store_label in m.labels)
            and not has_failed(m, name)
        ]

    def _observed(self, effect: fx.Effect) -> None:
        match effect:
            case fx.StatusChanged() | fx.Ready():
                for share in self._shares.values():
                    share.host.wake()
            case fx.DigestDiffers(peer, digest):
                self._gossip.differs(peer, digest)
            case _:
                pass

    def _owners_of(self, name: str) -> KeyOwners | None:
        share = self._shares.get(name)
        return share.keyspace.owners if share is not None else None

    def _catalog_for(self, name: str) -> Catalog:
        if self._catalog is None:
            message = (
                f"this node has no store, so it has no part in the durable keyspace {name!r}: "
                "give it one with --store (or Config.store)"
            )
            raise ConfigError(message)
        return self._catalog

    def _spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        if self._nursery is None:  # `run` is about to begin
            self._spawned_early.append((function, arguments))
            return
        try:
            self._nursery.start_soon(_contain, function, *arguments)
        except RuntimeError:  # it is closed
            message = "this node has ended"
            raise PartitionUnavailable(message) from None

    # Gossip.

    @property
    def digest(self) -> int:
        """Equal on two nodes that know the same of all keyspaces; 0 while none is known."""
        return self._gossip.digest

    def known(self) -> dict[str, Known]:
        """See `GossipTarget`."""
        return {
            name: Known(
                entry.definition,
                entry.generation,
                entry.dropped,
                *self._known_here(name),
            )
            for name, entry in self._entries.items()
        }

    def _known_here(self, name: str) -> tuple[Table | None, int]:
        share = self._shares.get(name)
        return (share.host.table, share.host.assignment_version) if share else (None, 0)

    def learn_keyspace(self, definition: Definition, generation: int, *, dropped: bool) -> None:
        """See `GossipTarget`."""
        self._learn(CatalogEntry(definition, generation, dropped))

    def learn_rows(self, name: str, rows: list[TableRow]) -> None:
        """See `GossipTarget`."""
        share = self._shares[name]
        try:
            share.host.merge(rows)
        except Exception as error:  # noqa: BLE001 - a bug, and of this keyspace alone
            share.fail(error)

    def hint_assignment(self, name: str, version: int) -> None:
        """See `GossipTarget`."""
        self._shares[name].host.hint_assignment(version)

    # Endpoints.

    def _endpoints(self) -> dict[Work | None, dict[str, Handler]]:
        """What is served, by what a node that ends takes it for."""
        return {
            Work.CLIENT_REQUESTS: {
                **ClientServer(self._node, self.get_for_client, self.elsewhere).endpoints()
            },
            Work.KEYSPACE_REQUESTS: {
                messages.APPLY: self._apply,
                messages.READ: self._read,
                messages.SCAN: self._scan,
                COLUMNS: self._columns,
                SNAPSHOT: self._snapshot,
            },
            Work.ACTOR_MESSAGES: {ACTOR: self._ask_actor},
            Work.JOB_REQUESTS: {**JobServer(self._job_host).endpoints()},
            None: {
                messages.RELEASE: self._release,
                handing_over.HAND_OVER: self._take,
                messages.GOSSIP: self._answer_gossip,
            },
        }

    async def _apply(self, incoming: IncomingCall) -> Answer:
        request = ApplyRequest.decode(incoming.arg3)
        count = len(request.parts)
        results = await self._at_host(
            request.keyspace, request.generation, count, lambda host: host.apply(request.parts)
        )
        rows = [messages.outcome_rows(r) if isinstance(r, list) else r for r in results]
        return Answer(ok=True, arg3=encode_results(rows))

    async def _read(self, incoming: IncomingCall) -> Answer:
        request = ReadRequest.decode(incoming.arg3)
        results = await self._at_host(
            request.keyspace,
            request.generation,
            len(request.parts),
            lambda host: host.read(request.parts, stale=request.stale),
        )
        return Answer(ok=True, arg3=encode_results(results))

    async def _scan(self, incoming: IncomingCall) -> Answer:
        request = ScanRequest.decode(incoming.arg3)
        count = len(request.partitions)
        results = await self._at_host(
            request.keyspace, request.generation, count, lambda host: host.scan(request)
        )
        return Answer(ok=True, arg3=encode_results(results))

    async def _columns(self, incoming: IncomingCall) -> Answer:
        request = ColumnsRequest.decode(incoming.arg3)
        results = await self._at_host(
            request.keyspace,
            request.generation,
            len(request.parts),
            lambda host: host.columns(request),
        )
        return Answer(ok=True, arg3=encode_results(results))

    async def _ask_actor(self, incoming: IncomingCall) -> Answer:
        mail = Mail.decode(incoming.arg3)
        result: object
        try:
            share = await self._share(mail.keyspace, mail.generation)
            result = await share.keyspace.stage.take(mail)
        except KeyspaceError as error:
            result = error
        row = result.as_row() if isinstance(result, MailAnswered) else result
        return Answer(ok=True, arg3=encode_results([row]))

    async def _snapshot(self, incoming: IncomingCall) -> Answer:
        request = SnapshotRequest.decode(incoming.arg3)

        async def take(host: Host) -> list[Any]:
            if not isinstance(host, DurableHost):
                message = f"keyspace {request.keyspace!r} is not durable"
                raise BadRequest(message)
            return await host.snapshots.take(request.number, request.partitions)

        count = len(request.partitions)
        results = await self._at_host(request.keyspace, request.generation, count, take)
        return Answer(ok=True, arg3=encode_results(results))

    async def _job_host(self, job: JobId) -> DurableHost:
        """The share that *job* writes into. Raises KeyspaceError."""
        try:
            host = (await self._share(job.keyspace, job.generation)).host
        except KeyspaceUnknown:
            self._check_not_elsewhere(job.keyspace)
            raise
        if not isinstance(host, DurableHost):
            message = (
                f"keyspace {job.keyspace!r} is in memory mode, in which nothing can be staged:"
                " write with route(), or create a durable one (which takes a store)"
            )
            raise BadOperation(message)
        return host

    async def _at_host(
        self,
        name: str,
        generation: int,
        count: int,
        serve: Callable[[Host], Awaitable[list[Any]]],
    ) -> list[Any]:
        """The results of *count* parts; that the keyspace is not here is the result of each."""
        try:
            host = (await self._share(name, generation)).host
        except KeyspaceError as error:
            return [error] * count
        return await serve(host)

    async def _share(self, name: str, generation: int) -> Share:
        """The share of that generation; looked for in the store, if it is not known yet."""
        if name in self._shares or trio.current_time() >= self._missed_until.get(name, 0.0):
            try:
                await self.get(name)
            except KeyspaceUnknown:
                if len(self._missed_until) >= MISSED_MAX:
                    self._missed_until.clear()
                self._missed_until[name] = trio.current_time() + MISSED_S
                raise
        share = self.here(name)
        if share.host.generation != generation:
            message = (
                f"keyspace {name!r} is in generation {share.host.generation}, not {generation}"
            )
            raise KeyspaceUnknown(message)
        return share

    async def _release(self, incoming: IncomingCall) -> Answer:
        row = a_row(decode_value("msgpack", incoming.arg3), 5, "release")
        name, generation = a_text(row[0], "keyspace"), an_integer(row[1], "generation")
        number, epoch = an_integer(row[2], "partition"), an_integer(row[3], "epoch")
        try:
            share = await self._share(name, generation)
        except KeyspaceError as error:
            raise BadRequest(str(error)) from None
        if not isinstance(share.host, DurableHost):
            message = f"partitions of keyspace {name!r} are not released, but handed over"
            raise BadRequest(message)
        said = await share.host.ownership.release(number, epoch, a_text(row[4], "to"))
        return Answer(ok=True, arg3=encode_value("msgpack", said))

    async def _take(self, incoming: IncomingCall) -> Answer:
        request = handing_over.decode(incoming.arg3)
        try:
            host = (await self._share(request.keyspace, request.generation)).host
        except KeyspaceError as error:
            raise BadRequest(str(error)) from None
        if not isinstance(host, MemoryHost):
            message = f"keyspace {request.keyspace!r} is not in memory mode"
            raise BadRequest(message)
        said = host.ownership.take(request)
        return Answer(ok=True, arg3=encode_value("msgpack", said.value))

    def _answer_gossip(self, incoming: IncomingCall) -> Answer:
        try:
            return Answer(ok=True, arg3=self._gossip.answer(incoming.arg3))
        except ConfigError as error:
            raise BadRequest(str(error)) from None


async def _contain(function: Callable[..., Awaitable[object]], *arguments: object) -> None:
    """Run ``function(*arguments)``, whose bugs do not end the node."""
    try:
        await function(*arguments)
    except Exception as error:
        text = f"a task of keyspaces failed: {one_line(error)}"
        log.exception("task-failed", text=text, task="keyspaces")


def _unpack(packed: bytes) -> Value:
    value: Value = decode_value("msgpack", packed)
    return value
