"""Ringpop: one member of a cluster inside this process, as an application sees it."""

from __future__ import annotations

import inspect
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import trio

from ringpop_py.base.arguments import checked_callable, checked_text
from ringpop_py.base.errors import ConfigError, HostsFileError
from ringpop_py.base.faults import is_fault
from ringpop_py.base.logs import log
from ringpop_py.member.discovery.seeds import Seeds
from ringpop_py.member.ring.placement import Placement
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_py.net.security.permits import check_name
from ringpop_py.node.driver import NodeDriver
from ringpop_py.node.end import Ending
from ringpop_py.node.labels import OwnLabels
from ringpop_py.node.mark import ReplayMark
from ringpop_py.node.readiness import Readiness
from ringpop_py.node.reporter import Reporter
from ringpop_py.node.signals.disks import Disks
from ringpop_py.node.signals.knocks import Knocks
from ringpop_py.node.signals.signals import Signals
from ringpop_py.node.signals.strain import Strain
from ringpop_py.node.stream import UNREAD_MAX, EventStreams
from ringpop_py.route.proxy.application import Application
from ringpop_py.route.proxy.forward import Proxy
from ringpop_py.route.proxy.key_groups import KEYS_MAX, checked_many, checked_request
from ringpop_py.route.proxy.owners import RingOwners
from ringpop_py.route.proxy.receive import ProxyServer
from ringpop_py.route.proxy.request import Handler, ManyHandler
from ringpop_py.route.proxy.web_entry import EntryServer
from ringpop_py.route.quorum.quorum import most_given
from ringpop_py.route.quorum.replication import Replication
from ringpop_py.state.keyspaces.on_demand import KeyspacesOnDemand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import Config
    from ringpop_py.base.errors import RingpopError
    from ringpop_py.member.discovery.seeds import Resolver
    from ringpop_py.member.swim.member import Labels, Member
    from ringpop_py.member.swim.node import Node
    from ringpop_py.net.security.credentials import KeyCredentials
    from ringpop_py.net.transport.channel import Channel
    from ringpop_py.node.end import EndHook
    from ringpop_py.node.sidecars import DataflowsBeside, ShufflesBeside
    from ringpop_py.node.stream import RingpopEvent
    from ringpop_py.route.proxy.request import (
        AnyReply,
        AnyRequest,
        Headers,
        OwnerReply,
        Reply,
        Request,
        RequestOptions,
    )
    from ringpop_py.route.quorum.quorum import Repair, Resolve
    from ringpop_py.state.catalog.stored import OpenedStore
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.keyspaces.registry import Keyspaces
    from ringpop_py.state.leaders.lead import Lead
    from ringpop_py.state.placement.definition import Settings
    from ringpop_py.state.rows.batches import BatchFunction
    from ringpop_py.state.table.aggregations import Aggregation
    from ringpop_py.state.ticks.ticks import Handler as TickHandler
    from ringpop_py.state.ticks.ticks import Schedule

H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=ManyHandler)
A = TypeVar("A", bound="Aggregation")
E = TypeVar("E", bound="EndHook")
T = TypeVar("T", bound="TickHandler")
F = TypeVar("F")
RECONCILE_S_MAX: Final = 0.1
NO_DEBUG: Final = "this process does not let its log level be changed"


@dataclass(frozen=True, slots=True)
class HealReport:
    """The result of `Ringpop.heal`.

    Attributes:
        targets: the addresses that answered, of those at which we know no reachable member.
        merged: those of them whose list and ours are one now; the others have to refute first.
        failed: the addresses that were tried and did not send a list.
        hosts_trouble: why the hosts could not be read, so that those known before were tried;
            empty if they were read.
        silent: the hosts that did not answer when they were last asked, and why.
    """

    targets: tuple[Address, ...]
    merged: tuple[Address, ...]
    failed: tuple[Address, ...]
    hosts_trouble: str
    silent: Mapping[str, str]


class Ringpop:
    """One member of a cluster, inside this process. Made by `open_ringpop`.

    Attributes:
        on_debug: called to log more (True) or as before (False); `ringpopd` sets it.
        credentials: the keys of the cluster, if it has any.
        placement: makes the ring.
        streams: those of `events`.
        shuffles: the process beside this one that runs them, if there is one.
        dataflows: those that were started here; None if none was.
        schedules: those of `every`, by name.
        replication: carries out `replicate` and `quorum_read`.
        signals: what an operator is told of this node's peers and of its machine.
        on_end: called when an operator ends this process; if it is None, operators cannot.
    """

    def __init__(
        self,
        config: Config,
        channel: Channel,
        node: Node,
        store: OpenedStore | None = None,
        resolver: Resolver | None = None,
        credentials: KeyCredentials | None = None,
    ) -> None:
        self.config = config
        self.channel = channel
        self.node: Node = node
        self.http_address: Address | None = None
        self.http_in_address: Address | None = None
        self.shuffles: ShufflesBeside | None = None
        self.dataflows: DataflowsBeside | None = None
        self.schedules: dict[str, Schedule] = {}
        self.credentials = credentials
        self.placement = Placement(node)
        self.ring = self.placement.ring
        self.reporter = Reporter(node.local.name, config.cluster, store and store.id)
        self.streams = EventStreams(self)
        self.readiness = Readiness(node)
        self.driver = NodeDriver(node, channel, self._observe)
        strain = Strain(self.driver.lateness, self.reporter.stalls)
        self.signals = Signals(self.driver.reach, strain, Knocks(channel), Disks({}))
        resolver = resolver and resolver._replace(
            is_member=lambda address: any(member.address == address for member in node.members)
        )
        self.seeds = Seeds(config.hosts, config.hosts_file, partial(_hosts_read, self), resolver)
        mark = ReplayMark(always=config.http_in is None)
        self.application = Application(
            node.local.name, config.proxy, config.app_url, config.wire.message_bytes_max, mark
        )
        owners = RingOwners(
            self.name,
            lambda: self.ring,
            partial(_reconcile, self),
            config.proxy.consistency,
            is_doubtful=lambda name: self.status_of(name) is not Status.ALIVE,
        )
        self.proxying = Proxy(
            channel, self.application, owners, service=config.service, address_of=self.address_of
        )
        self.replication = Replication(channel, self.proxying, owners)
        ProxyServer(channel, self.proxying)
        EntryServer(
            channel,
            self.proxying,
            mark=mark.told,
            ring=lambda: self.ring,
            wait_for_change=self.next_change,
        )
        self.labels = OwnLabels(self.driver)
        self.on_debug: Callable[[bool], None] = lambda _on: log.warning(NO_DEBUG)
        self.on_end: Callable[[], None] | None = None
        self._observers: list[Callable[[fx.Effect], None]] = [self.readiness.observe]
        self._changed = trio.Event()
        self._healed: deque[fx.Healed] = deque(maxlen=1)
        self.keyspaces_on_demand = KeyspacesOnDemand(self, store, self.reporter.clocks)
        self.driver.digest = lambda: self.keyspaces_on_demand.digest
        self.ending = Ending(
            node,
            self.driver,
            channel,
            proxying=self.proxying,
            keyspaces=self.keyspaces_on_demand,
            dataflows=lambda: 0 if self.dataflows is None else self.dataflows.left(),
            timeout_s=config.drain_timeout_s,
        )
        self._observers.append(self.ending.observe)

    # Members and the ring.

    @property
    def name(self) -> str:
        """This member's name; in the ringpop dialect, its address."""
        return self.node.local.name

    @property
    def address(self) -> Address:
        """The address where others reach this member."""
        return self.node.local.address

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self.node.ready

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, this one included, sorted by name."""
        return tuple(sorted(self.node.members, key=lambda member: member.name))

    @property
    def checksum(self) -> int:
        """The membership checksum: equal on two nodes that see the same cluster."""
        return self.node.members.checksum

    def status_of(self, name: str) -> Status | None:
        """Return the status of the member *name*; None if there is no such member."""
        member = self.node.members.get(name)
        return member.status if member is not None else None

    def is_silent(self, name: str) -> bool:
        """Return whether the member *name* is suspect, and neither we nor others reach it."""
        return self.node.is_silent(name)

    def doubt(self, name: str) -> None:
        """Find out soon whether the member *name* lives, because work here depends on it."""
        self.driver.submit(lambda now: self.node.doubt(name, now))

    def address_of(self, name: str) -> Address | None:
        """Return the address of the member *name*; None if there is no such member."""
        member = self.node.members.get(name)
        return member.address if member is not None else None

    def lookup(self, key: str) -> str:
        """Return the name of the member that owns *key*. Raises NoOwner."""
        return self.ring.lookup(key)

    def lookup_n(self, key: str, n: int) -> tuple[str, ...]:
        """Return the names of up to *n* members: the owner of *key*, then its successors."""
        return self.ring.lookup_n(key, n)

    async def wait_until(self, condition: Callable[[Ringpop], bool]) -> None:
        """Return once *condition* holds; it is checked after each change of a member."""
        while not condition(self):
            await self._changed.wait()

    async def next_change(self) -> None:
        """Return after the next change of a member."""
        await self._changed.wait()  # each change has an event of its own

    def events(
        self, *, lookups: bool = False, unread_max: int = UNREAD_MAX
    ) -> AbstractAsyncContextManager[AsyncIterator[RingpopEvent]]:
        """Return a block that gets an endless stream of what happens within it, for one task.

        It has each `StatusChanged`, and each `RingChanged` after the changes that led to it. When
        an event is read, the member list and the ring have it, and perhaps later ones.

        Args:
            lookups: have a `LookedUp` as well for each key that this node looks up on its ring, for
                the application, requests of members, or clients. Each costs some microseconds then.
            unread_max: how many events wait. Beyond that, the oldest are lost, and the next one
                read is `EventsLost`: look at `members` and `ring` again then.

        Raises:
            ConfigError: *unread_max* is no number above 0; on entering the block.
        """
        return self.streams.opened(unread_max, lookups=lookups)

    def observe(self, observer: Callable[[fx.Effect], None]) -> None:
        """Call *observer* with each fact of the protocol, as it happens.

        It must not block. Exceptions that it raises are logged, and have no other effect. When it
        gets a change, the member list and the ring have all changes of the same message.

        Raises:
            ConfigError: *observer* cannot be called, or is a coroutine function, which nobody would
                await.
        """
        checked_callable(observer, "observer")
        if inspect.iscoroutinefunction(observer):
            raise ConfigError(f"an observer is a plain function, and {observer!r} is asynchronous")
        self._observers.append(observer)

    # Requests.

    def handler(self, endpoint: str) -> Callable[[H], H]:
        """Decorate a function or coroutine function to serve *endpoint*.

        Raises:
            ConfigError: *endpoint* is not text, as in ``@ringpop.handler`` without parentheses.
        """
        checked_text(endpoint, "the endpoint of a handler")
        return _adding(partial(self.application.add_handler, endpoint))

    def many_handler(self, endpoint: str) -> Callable[[M], M]:
        """Decorate a function or coroutine function to serve *endpoint* for many keys at a time.

        It gets a `ManyCall` and returns a list of bytes, one for each key in it. Requests of single
        keys come to it as well. Raises ConfigError as `handler`.
        """
        checked_text(endpoint, "the endpoint of a handler")
        return _adding(partial(self.application.add_many_handler, endpoint))

    def batch_handler(
        self, endpoint: str, *, key: str, answers: bool = False, in_thread: bool = False
    ) -> Callable[[BatchFunction], BatchFunction]:
        """Decorate a function to receive Arrow batches routed by the column *key*.

        It is called with a `pyarrow.RecordBatch` of the rows that this node owns and has not
        received before (see `ringpop_py.state.rows.batches`), and returns nothing.

        With *answers* it returns a `pyarrow.RecordBatch` for these rows, of any length. It is then
        called for each request (`ringpop_py.spark.route_answers`), so it must be idempotent.

        A node answers nobody while the function runs, and logs it if that takes long. With
        *in_thread* it runs in a thread beside the node, for one batch at a time, in the order in
        which they came; what it shares with other handlers must then be safe to use from there.
        """
        from ringpop_py.state.rows.batches import BatchReceiver  # noqa: PLC0415 - pyarrow is an extra
        from ringpop_py.state.rows.handler import BatchHandler  # noqa: PLC0415 - as above

        def add(function: BatchFunction) -> BatchFunction:
            receiver = BatchReceiver(
                function, key, local=self.name, ring=lambda: self.ring, answers=answers
            )
            self.handler(endpoint)(BatchHandler(endpoint, receiver, in_thread=in_thread))
            return function

        return add

    def handle_or_proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> Coroutine[Any, Any, AnyReply | None]:
        """Return None if this node owns *key*, and the owner's reply otherwise.

        See `ringpop_py.route.proxy.forward.Proxy.handle_or_proxy`, also for what it raises.
        """
        # Passed on as it is: awaiting it here would cost each request.
        return self.proxying.handle_or_proxy(key, request, **options)

    async def handle_or_proxy_all(
        self,
        keys: Iterable[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> list[OwnerReply]:
        """Call `handle_or_proxy` for each owner of *keys*, all at the same time."""
        return await self.proxying.handle_or_proxy_all(keys, request, **options)

    async def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """Return the owner's reply, also if the owner is this node."""
        return await self.proxying.proxy(key, request, **options)

    async def proxy_many(
        self,
        endpoint: str,
        keys: Iterable[str],
        bodies: Iterable[bytes],
        *,
        headers: Headers = (),
        keys_max: int = KEYS_MAX,
        **options: Unpack[RequestOptions],
    ) -> list[bytes | RingpopError]:
        """Have the owner of each key, which may be this node, answer the request with its body.

        The requests of one owner travel together, up to *keys_max* in a message: that is many
        times faster than a call for each, most of all if a `many_handler` serves *endpoint*. They
        may arrive in any order.

        Args:
            keys, bodies: the requests: *bodies* has one for each of *keys*.
            headers: see `Request`; they are those of each request.
            keys_max: fewer keys permit larger answers: those of one message have together at most
                `WireLimits.message_bytes_max`, and answers beyond it are errors.

        Returns:
            The answer to each request, in their order: a body, or the error with which it ended
            (see `ringpop_py.route.proxy.forward.Proxy.handle_or_proxy`).

        Raises:
            ConfigError: an argument or an option is not what it has to be.
        """
        wanted, listed = checked_many(keys, bodies)
        request = checked_request(endpoint, listed, headers, keys_max)
        return await self.proxying.proxy_many(wanted, request, **options)

    async def replicate(
        self,
        key: str,
        request: Request,
        *,
        n: int = 3,
        w: int = 2,
        **options: Unpack[RequestOptions],
    ) -> dict[str, Reply]:
        """Have the first *n* members of *key* (`lookup_n`) handle *request*; return once *w* have.

        The replies are by member, in ring order. The other members go on in the background.

        Raises:
            NotEnoughReplies: fewer than *w* can answer. An error of a handler is not a reply.
            NoOwner: the ring is empty.
            ConfigError: an argument cannot be used.
        """
        return await self.replication.replicate(key, request, n, w, options)

    async def quorum_read(
        self,
        key: str,
        request: Request,
        *,
        n: int = 3,
        r: int = 2,
        resolve: Resolve = most_given,
        repair: Repair | None = None,
        **options: Unpack[RequestOptions],
    ) -> Reply:
        """As `replicate`, but return one reply, which *resolve* makes of the first *r*.

        Args:
            resolve: gets them in ring order. By default, it returns the reply whose body most
                members gave; of those given equally often, the first.
            repair: gets the reply that *resolve* makes of all replies, a second later at most, if
                bodies differ from it; returns the request that their members are sent, or None.
        """
        return await self.replication.quorum_read(key, request, n, r, resolve, repair, options)

    # Keyed state.

    @property
    def keyspaces(self) -> Keyspaces:
        """All keyspaces that this node knows; their code is loaded when this is first used."""
        return self.keyspaces_on_demand.get()

    async def open_keyspace(self, name: str, **settings: Unpack[Settings]) -> Keyspace:
        """Return the keyspace *name*, created with these *settings* if it does not exist.

        Without *settings*, return the one that exists, however it was created.

        Args:
            settings: see `ringpop_py.state.placement.definition.Definition`.

        Raises:
            ConfigError: the name is one of the cluster's own, a setting cannot be used, or this
                node has no store for a durable one.
            KeyspaceConflict: it exists, and was created with other settings.
            KeyspaceUnknown: it does not exist, and no settings were given.
            TooManyKeyspaces: the cluster has as many as `StateConfig` permits.
            StoreUnavailable: the store did not answer.
        """
        check_name(name)
        if not settings:
            return await self.keyspaces.get(name)
        from ringpop_py.state.placement.definition import Definition  # noqa: PLC0415 - on demand

        return await self.keyspaces.open(Definition.of_record({"name": name, **settings}))

    def leader(
        self, name: str, *, ttl_s: float = 10.0, above: int = 0
    ) -> AbstractAsyncContextManager[Lead]:
        """Hold *name* for the block of an ``async with``, which waits until nobody else does.

        The record of the name lies in a durable keyspace of the cluster, so this node needs a
        store. The block is cancelled when the name is another's, or when this node could not renew
        it for *ttl_s* by its own clock.

        Args:
            ttl_s: after so long without a beat another candidate takes the name; one whose holder
                is a member that is found faulty is taken sooner.
            above: the term will be above this one, which a fence has named.

        Raises:
            ConfigError: an argument cannot be used, or this node has no store.
            LeadershipLost: out of the block: the name was lost before its end.
            KeyspaceError: the records of leaders cannot be used.
        """
        from ringpop_py.state.leaders.leaders import lead_at  # noqa: PLC0415 - on demand

        return lead_at(self, name, ttl_s, above)

    def every(
        self,
        interval: str | None = None,
        *,
        name: str,
        cron: str | None = None,
        tz: str | None = None,
        catch_up: str = "last",
        on_failure: str = "retry",
    ) -> Callable[[T], T]:
        """Decorate a coroutine function to run at each tick of a schedule, once in the cluster.

        Each tick is done once, by one of the nodes that have the schedule. Its function may run
        more than once: if a node dies in it, or it fails. It gets a `Tick`.

        Args:
            interval: a number and ``s``, ``m``, ``h`` or ``d``: due whenever Unix time is a
                multiple of it.
            name: the schedule's. If the nodes differ in when it is due, the definition counts
                that the last node to start has brought; those with another one run no ticks.
            cron: in place of *interval*, five fields, as in ``0 3 * * *``.
            tz: the time zone for *cron*, as in ``Europe/Berlin``; UTC by default.
            catch_up: of the ticks that were due while no node ran them, run the ``last`` one, or
                ``all``.
            on_failure: if the function raises, ``retry`` the tick after a pause, which grows from a
                second to a minute, or ``skip`` it.

        Raises:
            ConfigError: an argument cannot be used, cron never fires, or this node has no store.
        """
        from ringpop_py.state.ticks.plan import plan_of  # noqa: PLC0415 - on demand
        from ringpop_py.state.ticks.ticks import TickOptions, every_at  # noqa: PLC0415 - on demand

        plan = plan_of(interval, cron, tz)
        return every_at(self, self.reporter.clocks, name, plan, TickOptions(catch_up, on_failure))

    def aggregation(self, name: str) -> Callable[[A], A]:
        """Register a function of a key's value (or ABSENT) and an argument as *name*.

        `Keyspace.update` can then name it, for keys that this node owns; register it on all nodes.
        It runs once, at the owner, and returns the new value. See
        `ringpop_py.state.table.aggregations`.

        Raises:
            ConfigError: an aggregation of that name exists, *name* is not text, or the function is
                asynchronous.
        """
        checked_text(name, "an aggregation's name")
        return _adding(partial(self.keyspaces.aggregations.register, name))

    # Operations on this member.

    def leave(self) -> None:
        """Leave the ring; go on serving and gossiping until `rejoin`."""
        self.driver.submit(self.node.leave)

    def rejoin(self) -> None:
        """Return to the ring after `leave`; this has no effect once the node ends."""
        if not self.ending.begun:
            self.driver.submit(self.node.rejoin)

    def drain(self) -> None:
        """Own no keys, but go on serving, until `undrain`; others see a label.

        Unlike after `leave`, a failure of this member is detected. In the ringpop dialect, whose
        members do not know the label, this is `leave`.
        """
        self.ending.drain()

    def undrain(self) -> None:
        """Own keys again after `drain`; this has no effect once the node ends."""
        self.ending.undrain()

    def set_labels(self, labels: Labels) -> None:
        """Replace the application's labels, also those of `drain` and `set_load`.

        The node's own labels stay: those whose keys begin with ``__`` or ``ringpop.``.

        Raises:
            ConfigError: a limit is exceeded, or *labels* would change one of the node's own.
        """
        self.labels.replace(labels, draining=self.ending.begun)

    def set_load(self, load: float) -> None:
        """Say how busy the application is, from 0 (idle) to 1 (busy); `Member.load` shows it.

        It travels as a label, ``load``, in hundredths, and changes once in ten seconds at most.

        Raises:
            ConfigError: it is out of range, or there is no room for another label.
        """
        self.labels.set_load(load)

    def reload_hosts(self) -> int:
        """Read the hosts file again, contact new hosts, and return how many hosts it has.

        It is also read automatically, before each later round of joins and each try to heal.

        Raises:
            HostsFileError: it cannot be used; the hosts known before stay in force.
        """
        if self.config.hosts_file is None:
            raise HostsFileError("this node was started without a hosts file")
        hosts = self.seeds.read()
        self.seeds.want()  # which also resolves them
        return len(hosts)

    def silent_hosts(self) -> dict[str, str]:
        """Return the hosts that did not answer when they were last asked, and why.

        Those at which a member has been seen since are left out.
        """
        there = {member.address for member in self.node.members if member.status.reachable}
        silent = {
            str(host): why for host, why in self.node.silent_hosts.items() if host not in there
        }
        return silent | dict(self.seeds.unknown)

    async def heal(self) -> HealReport:
        """Read the hosts, look for other sides of a split there, and merge with them.

        A full split may need two runs: in the first, each side refutes what the other believes;
        the second exchanges the lists. It also runs automatically, from time to time.
        """
        trouble = await self.seeds.refresh()
        # A run that has begun uses the hosts as they were before.
        await self.wait_until(lambda ringpop: not ringpop.node.healing)
        self._healed.clear()
        self.driver.submit(self.node.heal)
        await self.wait_until(lambda ringpop: bool(ringpop._healed))  # noqa: SLF001 - our own
        run = self._healed[-1]
        return HealReport(run.targets, run.merged, run.failed, trouble, self.silent_hosts())

    def before_end(self, hook: E) -> E:
        """Decorate a function or coroutine function to run when `end` is called.

        Such hooks run together, and the node serves as before until all have returned. Their time
        is part of `Config.drain_timeout_s`; then they are cancelled. Exceptions that they raise are
        logged, and the node ends. `leave` and `drain` run no hooks.

        Raises:
            ConfigError: *hook* cannot be called.
        """
        checked_callable(hook, "hook")
        self.ending.hooks.before.append(hook)
        return hook

    def after_end(self, hook: E) -> E:
        """As `before_end`, but once connections are closed: for 3 s, or longer if time is left."""
        checked_callable(hook, "hook")
        self.ending.hooks.after.append(hook)
        return hook

    async def end(self) -> None:
        """End this member in good order; leaving the block of `open_ringpop` does so, too.

        It leaves the ring, hands its partitions over, and goes on serving and forwarding. Then it
        declines new work (callers go elsewhere), waits for work under way, tells the others
        that it leaves, and closes all connections. After `Config.drain_timeout_s`, or when this is
        cancelled, it no longer waits, and logs what it cuts. After a cancellation, leaving the
        block ends the member without waiting for work under way.

        A second call waits for the first. Afterwards this node serves no requests.
        """
        await self.ending.run()

    async def wait_ready(self) -> None:
        """Return once the first join is done.

        Raises:
            JoinRefused: every host that answered refuses this node as it is configured.
            NameLost: another process has our name.
        """
        await self.readiness.wait()

    # Facts.

    def _observe(self, effects: Sequence[fx.Effect]) -> None:
        # The effects of one message, or of one instant. The member list has all changes already,
        # and the ring gets them before an observer gets the first one.
        changes = [effect for effect in effects if isinstance(effect, fx.StatusChanged)]
        if changes:
            self.placement.follow([change.member.name for change in changes])
            self.streams.follow(changes, self.placement.ring)
            for member in (change.member for change in changes):
                is_suspect = member.status is Status.SUSPECT
                if is_suspect or member.status is Status.FAULTY:
                    why = f"{member.name} is {member.status.label}"
                    self.proxying.doubt(member.address, why, is_owner=is_suspect)
        is_burst = self.reporter.is_burst(changes)
        for effect in effects:
            if isinstance(effect, fx.Healed) and effect.is_run:
                self._healed.append(effect)
            elif isinstance(effect, fx.HostsWanted):
                self.seeds.want()
            self.reporter.tell(effect, is_burst=is_burst)
            for observer in self._observers:
                try:
                    observer(effect)
                except BaseException as error:
                    if not is_fault(error):
                        raise
                    log.exception("an observer failed", effect=type(effect).__name__)
        self._changed.set()
        self._changed = trio.Event()


def _adding(add: Callable[[F], object]) -> Callable[[F], F]:
    """Return a decorator that calls *add* with each function, and leaves it as it is."""

    def added(function: F) -> F:
        add(function)
        return function

    return added


def _hosts_read(ringpop: Ringpop, hosts: tuple[Address, ...]) -> None:
    ringpop.driver.submit(lambda now: ringpop.node.hosts_read(hosts, now))


async def _reconcile(ringpop: Ringpop, owner: str, keys: Sequence[str], n: int = 1) -> None:
    # *owner*, one of the first *n* members of *keys*, refused them, so our views differ. Without
    # this exchange, the first retry, which comes immediately, would be refused again.
    if not ringpop.node.dialect.pings_out_of_turn:
        return
    ringpop.driver.submit(lambda now: ringpop.node.exchange(owner, now))

    def moved(ringpop: Ringpop) -> bool:
        ring = ringpop.ring
        return not len(ring) or any(owner not in ring.lookup_n(key, n) for key in keys)

    with trio.move_on_after(RECONCILE_S_MAX):
        await ringpop.wait_until(moved)
