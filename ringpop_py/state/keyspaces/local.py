"""Keyspaces of one process without a cluster: for tests, and for small applications.

No socket is opened, nothing is gossiped, and there is no node. The same program runs on a cluster
when it takes its keyspaces from `open_ringpop` instead; with a store, on the same data.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

import trio

from ringpop_py.base.config.settings import Config
from ringpop_py.base.errors import (
    ConfigError,
    ConnectFailed,
    KeyspaceError,
    KeyspaceUnknown,
    PartitionUnavailable,
)
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import check_trio
from ringpop_py.base.values.operations import are_plain
from ringpop_py.net.security.permits import check_name
from ringpop_py.route.proxy.application import Application
from ringpop_py.route.proxy.forward import Proxy
from ringpop_py.route.proxy.owners import RingOwners
from ringpop_py.state.keyspaces.keyspace import Keyspace
from ringpop_py.state.keyspaces.states import States
from ringpop_py.state.memory.direct import change_each
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.placement.definition import Definition, Settings
from ringpop_py.state.placement.table import Table
from ringpop_py.state.requests import changes_in
from ringpop_py.state.rows.pages import Room
from ringpop_py.state.shares.rescale_events import Gained, RescaleEvents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from ringpop_py.base.values.operations import Change, OperationId, Outcome, Value, Write
    from ringpop_py.base.values.requests import ScanRequest
    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.member.swim.member import Member, Status
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.net.transport.deadlines import Wheel
    from ringpop_py.route.proxy.request import Handler
    from ringpop_py.state.memory.direct import DirectState
    from ringpop_py.state.requests import Fence
    from ringpop_py.state.rows.pages import ColumnsRequest
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.rescale_events import RescaleEvent
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.table.aggregations import Aggregation
    from ringpop_py.state.table.keyed import KeyedState

F = TypeVar("F")

NAME: Final = "local"
_GENERATION: Final = 1
_EPOCH: Final = 1


@asynccontextmanager
async def open_local_keyspaces(
    store: Store | None = None, *, config: Config | None = None
) -> AsyncIterator[LocalKeyspaces]:
    """Yield keyspaces in this process; without *store* they end with it.

    Args:
        store: holds the partitions, as for a cluster of that `Config.cluster`; the caller closes
            it. One process at a time may use it: two would take partitions from each other.
        config: for its limits of keyspaces (`Config.state`), `Config.proxy` and `Config.cluster`.
    """
    check_trio("open_local_keyspaces")
    async with trio.open_nursery() as nursery:
        local = LocalKeyspaces(config or Config(), store, nursery.start_soon)
        yield local
        await local.close()
        # Hosts and actors run for ever; after `close` they have nothing left to do.
        nursery.cancel_scope.cancel()


class LocalKeyspaces:
    """All keyspaces of this process. Made by `open_local_keyspaces`."""

    def __init__(self, config: Config, store: Store | None, spawn: Callable[..., None]) -> None:
        self._states = States(NAME, _WallClock())
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
        """As `Ringpop.open_keyspace`; placement and the minimum of members have no effect here.

        Raises:
            ConfigError: if a setting cannot be used.
            KeyspaceConflict: if it exists, and was created with other settings.
            KeyspaceUnknown: if it does not exist, and no settings were given.
            StoreUnavailable: if the store does not answer.
        """
        check_name(name)
        async with self._opening:  # a second caller finds what the first one has opened
            return await self._open(name, settings)

    async def _open(self, name: str, settings: Settings) -> Keyspace:
        keyspace = self._keyspaces.get(name)
        definition = Definition.of_record({"name": name, **settings})
        if keyspace is not None:
            if settings:
                keyspace.definition.check_same(definition)
            return keyspace
        node = cast("NodeView", self._node)
        if self._store is not None:
            host = await self._durable(self._store, definition, create=bool(settings))
            keyspace = Keyspace(node, host, self._rng, self._spawn)
        elif settings:
            keyspace = _LocalKeyspace(
                node, _LocalHost(definition, self._states), self._rng, self._spawn
            )
        else:
            raise KeyspaceUnknown(f"no keyspace {name!r} in this process")
        keyspace.aggregations = self.aggregations
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
        """Give up the partitions in the store, so that the next process need not take them over."""
        for close in self._closing:
            await close()

    def _owners_of(self, name: str) -> Any:  # noqa: ANN401 - KeyOwners
        keyspace = self._keyspaces.get(name)
        return keyspace.owners if keyspace is not None else None

    async def _durable(self, store: Store, definition: Definition, *, create: bool) -> Host:
        # Its logs are those of a cluster of one member that cannot grow.
        from ringpop_py.net.transport.deadlines import Wheel  # noqa: PLC0415
        from ringpop_py.state.catalog.catalog import Catalog  # noqa: PLC0415 - not for the other kind
        from ringpop_py.state.durable.host import DurableHost  # noqa: PLC0415
        from ringpop_py.state.shares.driver import Peers  # noqa: PLC0415
        from ringpop_py.state.tasks import Worker  # noqa: PLC0415

        if definition.mode != "durable":
            raise ConfigError(f"keyspace {definition.name!r}: with a store, keyspaces are durable")
        config, channel = self._node.config, self._node.channel
        if not hasattr(channel, "wheel"):
            channel.wheel = Wheel()
            self._spawn(channel.wheel.run)
        worker = Worker(store, config.state.store_threads)
        catalog = Catalog(store, config.cluster)
        if create:
            entry = await worker.run(catalog.create, definition)
        else:
            found = await worker.run(catalog.find, definition.name)
            if found is None or found.dropped:
                raise KeyspaceUnknown(
                    f"no keyspace {definition.name!r} in cluster {config.cluster!r}"
                )
            entry = found
        host = DurableHost(
            cast("NodeView", self._node),
            entry,
            worker,
            make_state=self._states.keyed,
            peers=Peers(lambda: [NAME], lambda _rows: None, trio.lowlevel.checkpoint),
            spawn=self._spawn,
            on_over=lambda: None,
        )
        self._spawn(host.run)
        self._closing.append(host.driver.close)
        return host


class _WallClock:
    def set_ms(self) -> int:
        return int(time.time() * 1_000)

    due_ms = set_ms


class _LocalPartition:
    """A partition that is always here. See `ringpop_py.state.shares.server.Held`."""

    presence = Presence.OWNED

    def __init__(self, number: int, state: DirectState) -> None:
        self.number = number
        self._state = state

    @property
    def state(self) -> DirectState:
        self._state.expire()
        return self._state

    async def write(
        self, writes: Sequence[Write], _deadline: float = inf
    ) -> list[Outcome | KeyspaceError]:
        await trio.lowlevel.checkpoint()
        return self.write_now(writes)

    def write_now(self, writes: Sequence[Write]) -> list[Outcome | KeyspaceError]:
        state = self.state
        body, outcomes = state.stage(writes)
        if body is not None:
            state.apply(body)
        return outcomes

    async def read(
        self,
        look: Callable[[KeyedState], F],
        _deadline: float = inf,
        *,
        stale: bool = False,  # noqa: ARG002 - nothing here ever is
    ) -> F:
        await trio.lowlevel.checkpoint()
        return look(self.state)


class _LocalHost:
    """All partitions of a keyspace, in memory. See `ringpop_py.state.shares.host.Host`."""

    def __init__(self, definition: Definition, states: States) -> None:
        self.definition = definition
        self.generation = _GENERATION
        self.events = RescaleEvents()
        self.changed = trio.Event()
        self.ending = False
        self.copies = None
        self.table = Table(definition.name, _GENERATION, definition.partitions)
        # Claimed as on a cluster, so that `table` and events look the same to the application.
        self.table.desire([NAME] * definition.partitions)
        for row in self.table:
            self.table.put(row.claimed(NAME, _EPOCH))
        self._states = [states.direct(definition) for _ in range(definition.partitions)]
        self._partitions_of = definition.placing.partitions_of
        self._parts = [_LocalPartition(*each) for each in enumerate(self._states)]

    def members(self) -> Sequence[str]:
        return [NAME]

    def already(self) -> list[RescaleEvent]:
        return [Gained(part.number, _EPOCH, part.state.offsets) for part in self._parts]

    def destination(self, _partition: int) -> str:
        return NAME

    def why_nobody(self, partition: int) -> KeyspaceError:
        return PartitionUnavailable(f"partition {partition} is at {NAME}")

    def learn(self, _row: list[Any]) -> None:
        pass

    def served(self, partition: int) -> _LocalPartition:
        return self._parts[partition]

    async def apply(
        self,
        parts: Sequence[tuple[int, Sequence[Write]]],
        *,
        counts: bool = True,  # noqa: ARG002 - nobody looks at the counts
    ) -> list[Any]:
        await trio.lowlevel.checkpoint()
        return [self._parts[number].write_now(writes) for number, writes in parts]

    def change(self, changes: Sequence[Change]) -> list[Outcome | KeyspaceError]:
        """Make *changes* independently, without a yield point; nobody will ever repeat them."""
        # All numbers first: a key that is no text raises, and then nothing has changed.
        numbers = self._partitions_of([change[0] for change in changes])
        return change_each(self._states, numbers, changes)

    async def read(
        self,
        parts: Sequence[tuple[int, Sequence[str]]],
        *,
        stale: bool = False,  # noqa: ARG002 - nothing here ever is
        stored: bool = False,
        counts: bool = True,  # noqa: ARG002
    ) -> list[Any]:
        await trio.lowlevel.checkpoint()
        return [self._parts[n].state.packed(keys, stored=stored) for n, keys in parts]

    async def scan(self, request: ScanRequest) -> list[Any]:
        await trio.lowlevel.checkpoint()
        return [self._parts[number].state.page(request) for number in request.partitions]

    async def each(
        self, numbers: Sequence[int], serve: Callable[[Any], Awaitable[object]]
    ) -> list[Any]:
        return [await serve(self._parts[number]) for number in numbers]

    async def columns(self, request: ColumnsRequest) -> list[Any]:
        await trio.lowlevel.checkpoint()
        room = Room(request.bytes_max)
        states = [(self._parts[number].state, wanted) for number, wanted in request.parts]
        return [room.columns_of(state, wanted) for state, wanted in states]


class _LocalKeyspace(Keyspace):
    """A keyspace with all of its partitions at hand: many changes are made without detours."""

    def __init__(
        self, node: NodeView, local: _LocalHost, rng: random.Random, spawn: Callable[..., None]
    ) -> None:
        self._local = local
        super().__init__(node, local, rng, spawn)

    async def update_many(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
        fence: Fence | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome | KeyspaceError]:
        # A named write may be repeated by the caller; offsets belong to a partition's write.
        if operation_id is not None or offsets is not None or fence is not None:
            return await super().update_many(
                changes,
                operation_id=operation_id,
                offsets=offsets,
                fence=fence,
                timeout_s=timeout_s,
            )
        await trio.lowlevel.checkpoint()
        # Mostly plain tuples, which stay as they are: to make a `Change` of each takes a while.
        given = list(changes) if isinstance(changes, Iterable) else []
        if given and are_plain(given):
            return self._local.change(cast("list[Change]", given))
        return self._local.change(changes_in(given or changes, None))


class _LocalNode:
    """The node of local keyspaces, which has no peers. See `NodeView`."""

    name = NAME
    ready = True
    reporter = log

    def __init__(self, config: Config) -> None:
        self.config = config
        self.channel = cast("Channel", _NoChannel())
        self.application = Application(NAME, config.proxy, config.app_url)
        self.proxying = Proxy(
            self.channel,
            self.application,
            RingOwners(NAME, lambda: self.holders, _no_other_views, config.proxy.consistency),
            service=config.service,
            address_of=self.address_of,
        )

    @property
    def placement(self) -> _LocalNode:
        return self

    @property
    def holders(self) -> HashRing:
        from ringpop_py.member.ring.hashring import HashRing  # noqa: PLC0415 - loads NumPy

        return HashRing([NAME])

    @property
    def members(self) -> tuple[Member, ...]:
        from ringpop_py.base.address import Address  # noqa: PLC0415
        from ringpop_py.member.swim.member import Member  # noqa: PLC0415

        return (Member(NAME, *Address(NAME, 0), 1),)  # nothing listens, so no port is real

    def status_of(self, name: str) -> Status | None:
        from ringpop_py.member.swim.member import Status  # noqa: PLC0415

        return Status.ALIVE if name == NAME else None

    def is_silent(self, _name: str) -> bool:
        return False

    def doubt(self, _name: str) -> None:
        """Do nothing: there is nobody else."""

    def address_of(self, _name: str) -> None:
        return None

    def observe(self, _observer: object) -> None:
        """Do nothing: nothing ever happens to others."""


class _NoChannel:
    host_port = None

    wheel: Wheel  # for the deadlines of writes to a store; set with the first durable keyspace

    async def call(self, to: object, _call: object) -> None:
        # As an unreachable peer: callers know that nothing was sent.
        raise ConnectFailed(f"{to}: there is no cluster here")


async def _no_other_views(_owner: str, _keys: Sequence[str]) -> None:
    pass
