"""Keyspaces of one process without a cluster: for tests, and for what is small yet.

No socket is opened, nothing is gossiped, and there is no node. The same program runs on a cluster
when it takes its keyspaces from `open_ringpop` instead; with a store, on the same data.
"""

from __future__ import annotations

import random
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import trio

from ringpop_py.config.settings import Config
from ringpop_py.errors import ConfigError, ConnectFailed, KeyspaceConflict, KeyspaceUnknown
from ringpop_py.keyspaces.keyspace import Keyspace
from ringpop_py.keyspaces.local_host import LocalHost, LocalKeyspace
from ringpop_py.keyspaces.states import States
from ringpop_py.placing.definition import Definition, Settings
from ringpop_py.proxy.application import Application
from ringpop_py.proxy.forward import Proxy
from ringpop_py.proxy.owners import RingOwners

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ringpop_py.catalog.catalog import CatalogEntry
    from ringpop_py.keyed.aggregations import Aggregation
    from ringpop_py.proxy.request import Handler
    from ringpop_py.ring.hashring import HashRing
    from ringpop_py.shares.host import Host
    from ringpop_py.steward.view import NodeView
    from ringpop_py.stores.store import Store
    from ringpop_py.swim.member import Member, Status
    from ringpop_py.transport.channel import Channel

NAME: Final = "local"


@asynccontextmanager
async def open_local_keyspaces(
    store: Store | None = None, *, config: Config | None = None
) -> AsyncIterator[LocalKeyspaces]:
    """Keyspaces in this process; without *store* they end with it.

    Args:
        store: where the partitions are kept, as a cluster of that `Config.cluster` would keep them;
            the caller closes it. One process at a time: of two, each takes from the other.
        config: for its limits of keyspaces (`Config.state`), `Config.proxy` and `Config.cluster`.
    """
    async with trio.open_nursery() as nursery:
        local = LocalKeyspaces(config or Config(), store, nursery.start_soon)
        yield local
        await local.close()
        nursery.cancel_scope.cancel()


class LocalKeyspaces:
    """All keyspaces of this process. Made by `open_local_keyspaces`."""

    def __init__(self, config: Config, store: Store | None, spawn: Callable[..., None]) -> None:
        self._states = States(NAME)
        self.aggregations = self._states.aggregations
        self._node = _LocalNode(config)
        self._node.proxying.owners_of_keyspace = self._owners_of
        self._store = store
        self._spawn = spawn
        self._rng = random.Random(secrets.randbits(64))
        self._keyspaces: dict[str, Keyspace] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._opening = trio.Lock()

    async def open_keyspace(self, name: str, **settings: Unpack[Settings]) -> Keyspace:
        """As `Ringpop.open_keyspace`; placement and the minimum of members mean nothing here.

        Raises:
            ConfigError: a setting cannot be used.
            KeyspaceConflict: it exists, and was created with other settings.
            KeyspaceUnknown: it does not exist, and no settings were given.
            StoreUnavailable: the store did not answer.
        """
        async with self._opening:  # the second to open it finds what the first has opened
            return await self._open(name, settings)

    async def _open(self, name: str, settings: Settings) -> Keyspace:
        keyspace = self._keyspaces.get(name)
        definition = Definition(name=name, **settings)
        if keyspace is not None:
            difference = keyspace.definition.difference_from(definition) if settings else ""
            if difference:
                raise KeyspaceConflict(
                    f"keyspace {name!r} exists and was created with {difference}"
                )
            return keyspace
        node = cast("NodeView", self._node)
        if self._store is not None:
            host = await self._durable(self._store, definition, create=bool(settings))
            keyspace = Keyspace(node, host, self._rng, self._spawn)
        elif settings:
            all_here = LocalHost(definition, NAME, self._states.keyed)
            keyspace = LocalKeyspace(node, all_here, self._rng, self._spawn)
        else:
            raise KeyspaceUnknown(f"no keyspace {name!r} in this process")
        self._keyspaces[name] = keyspace
        return keyspace

    def handler(self, endpoint: str) -> Callable[[Handler], Handler]:
        """As `Ringpop.handler`; for `Keyspace.proxy`."""

        def add(handler: Handler) -> Handler:
            self._node.application.add_handler(endpoint, handler)
            return handler

        return add

    def aggregation(self, name: str, function: Aggregation) -> None:
        """Make *function* known as an operation of `Keyspace.update`. Raises ConfigError."""
        self.aggregations.register(name, function)

    async def close(self) -> None:
        """Give up what is in the store, so that whoever comes next need not take it over."""
        for close in self._closing:
            await close()

    def _owners_of(self, name: str) -> Any:  # noqa: ANN401 - KeyOwners
        keyspace = self._keyspaces.get(name)
        return keyspace.owners if keyspace is not None else None

    async def _durable(self, store: Store, definition: Definition, *, create: bool) -> Host:
        """The keyspace in *store*: its logs are those of a cluster of one that cannot grow."""
        from ringpop_py.catalog.catalog import Catalog  # noqa: PLC0415 - not for the other kind
        from ringpop_py.partition.tasks import Worker  # noqa: PLC0415
        from ringpop_py.shares.durable_host import DurableHost  # noqa: PLC0415
        from ringpop_py.shares.host import Peers  # noqa: PLC0415

        if definition.mode != "durable":
            raise ConfigError(f"keyspace {definition.name!r}: with a store, keyspaces are durable")
        config = self._node.config
        worker = Worker(store, config.state.store_threads)
        catalog = Catalog(store, config.cluster)
        entry: CatalogEntry | None
        if create:
            entry = await worker.run(catalog.create, definition)
        else:
            entry = await worker.run(catalog.find, definition.name)
        if entry is None or entry.dropped:
            raise KeyspaceUnknown(f"no keyspace {definition.name!r} in cluster {config.cluster!r}")
        host = DurableHost(
            cast("NodeView", self._node),
            entry,
            worker,
            make_state=self._states.keyed,
            peers=Peers(self._node.names, lambda _rows: None, trio.lowlevel.checkpoint),
            spawn=self._spawn,
            on_over=lambda: None,
        )
        self._spawn(host.run)
        self._closing.append(host.ownership.close)
        return host


class _LocalNode:
    """Stands where keyspaces look for their node (`ringpop_py.steward.view`): all by itself."""

    name = NAME
    ready = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self.channel = cast("Channel", _NoChannel())
        self.application = Application(NAME, config.proxy, config.app_url)
        all_here = RingOwners(
            NAME, lambda: self.ring, _nobody_to_reconcile_with, config.proxy.consistency
        )
        self.proxying = Proxy(
            self.channel,
            self.application,
            all_here,
            service=config.service,
            address_of=self.address_of,
        )

    @property
    def ring(self) -> HashRing:
        """All is ours."""
        from ringpop_py.ring.hashring import HashRing  # noqa: PLC0415 - loads NumPy

        return HashRing([NAME])

    @property
    def members(self) -> tuple[Member, ...]:
        """Ourselves."""
        from ringpop_py.address import Address  # noqa: PLC0415
        from ringpop_py.swim.member import Member  # noqa: PLC0415

        return (Member(NAME, *Address(NAME, 0), 1),)

    def names(self) -> Sequence[str]:
        """Who may own partitions."""
        return [NAME]

    def status_of(self, name: str) -> Status | None:
        """We are there, and nobody else."""
        from ringpop_py.swim.member import Status  # noqa: PLC0415

        return Status.ALIVE if name == NAME else None

    def address_of(self, _name: str) -> None:
        """Nobody listens."""

    def observe(self, _observer: object) -> None:
        """Nothing ever happens to others."""


class _NoChannel:
    """Where nobody calls and nobody is called."""

    host_port = None

    async def call(self, to: object, _call: object) -> None:
        """Raises ConnectFailed."""
        raise ConnectFailed(f"{to}: there is no cluster here")


async def _nobody_to_reconcile_with(_owner: str, _keys: Sequence[str]) -> None:
    """There are no other views."""
