"""The composition root: builds a node from its configuration, and runs it in one nursery."""

from __future__ import annotations

import random
import secrets
import signal
import threading
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import DnsLookup
from ringpop_py.base.config.settings import CLUSTERS
from ringpop_py.base.dialect import dialect_named
from ringpop_py.base.errors import ConfigError, PeerFailed, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import check_trio, keep_running
from ringpop_py.base.version import package_version
from ringpop_py.edge.admin import series
from ringpop_py.edge.admin.endpoints import serve_admin
from ringpop_py.member.discovery.hosts import read_hosts_file
from ringpop_py.member.discovery.names import resolver_for
from ringpop_py.member.discovery.seeds import Resolver
from ringpop_py.member.swim.member import (
    IDENTITY_LABEL,
    Member,
    applications_labels,
    checked_labels,
)
from ringpop_py.member.swim.node import Node
from ringpop_py.net.security.users import is_this_machine
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.transport.cuts import CutNetwork
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.transport.link import CONNECTION
from ringpop_py.net.transport.tcp import TcpNetwork
from ringpop_py.net.transport.unix import UnixListener
from ringpop_py.net.wire.init import HOST_PORT, PROTOCOL, PROTOCOL_VERSION, protocol_refusal
from ringpop_py.node.ringpop import Ringpop
from ringpop_py.node.signals.disks import Disks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from ringpop_py.base.address import Address, Host
    from ringpop_py.base.config.settings import Config
    from ringpop_py.edge.web.server import HttpApp, HttpServer
    from ringpop_py.member.discovery.lease import LeaseMirror
    from ringpop_py.net.security.credentials import KeyCredentials
    from ringpop_py.net.security.site import SiteCertificate
    from ringpop_py.net.transport.network import Listener, Network
    from ringpop_py.net.transport.tracing import Tracing
    from ringpop_py.state.catalog.catalog import Catalog
    from ringpop_py.state.catalog.stored import OpenedStore
    from ringpop_py.state.stores.rocks import RocksDatabase
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.tasks import Worker

    _Http = tuple[HttpServer, Callable[[Ringpop], HttpApp]]

TIME_HEADER: Final = "time_ms"
NO_DNS: Final = "dns:// and srv:// need dnspython: pip install 'ringpop_py[dns]'"
NO_KEYS: Final = (
    "other machines may reach {}, and could do everything: give the cluster keys "
    "(ringpopctl keygen FILE, and --cluster-key FILE at each node), or permit it with --insecure"
)
NO_HTTP_KEYS: Final = (
    "--http {}: other machines may reach this address, and could change keyspaces: give the "
    "cluster keys (ringpopctl keygen FILE, and --cluster-key FILE at each node), use 127.0.0.1, "
    "or permit it with --insecure"
)
HTTP_FLAG: Final = "--http"
HTTP_IN_FLAG: Final = "--http-in"
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - to refuse them


@asynccontextmanager
async def open_ringpop(
    config: Config,
    *,
    network: Network | None = None,
    store: Store | None = None,
    wait_ready: bool = True,
    signals: bool = False,
) -> AsyncIterator[Ringpop]:
    """Run a member of a cluster; at the end of the block the node ends gracefully (`Ringpop.end`).

    An exception that leaves the block, or a cancellation, cuts open requests.

    Args:
        network: where to listen and connect; TCP by default (tests use `ringpop_py.testing`).
        store: used instead of the one that `Config.store` names; the caller closes it.
        wait_ready: enter the block only when the first join is done.
        signals: SIGTERM or SIGINT cancels the block, and the node ends gracefully; a second one
            cuts open requests. The program goes on after the block. In the main thread only.

    Raises:
        ConfigError: something in *config* cannot be used, for example a port in use; or trio
            does not run this program.
        JoinRefused: the cluster refuses a node with this configuration.
        NameLost: the name belongs to another running process. If that is found out after the join,
            the block is cancelled, and this is raised out of it.
    """
    check_trio("open_ringpop")
    if signals and threading.current_thread() is not threading.main_thread():
        raise ConfigError("only the main thread gets signals: open the node there, or without them")
    _check_addresses(config)
    _check_keys(config)
    if config.shuffle.folder is not None:
        _check_shuffles(config.shuffle.folder, has_store=(store or config.store) is not None)
    if config.lease is not None:
        _lease_mirror(config.lease, "", lambda: None)
    applications_labels(config.labels)  # refuses those that are the node's own
    hosts = config.hosts
    if config.hosts_file is not None:
        hosts = tuple(dict.fromkeys([*hosts, *read_hosts_file(config.hosts_file)]))

    if any(isinstance(host, DnsLookup) for host in hosts) and find_spec("dns") is None:
        raise ConfigError(NO_DNS)
    with ExitStack() as closing:
        opened = await _open_store(config, store, closing)
        http = _http_for(config, closing)
        watch = _Signals() if signals else None
        beside = None
        if config.socket is not None:
            beside = UnixListener(Path(config.socket))
            closing.callback(beside.close)
        running = _running(
            config, hosts, network, opened, http, watch, wait_ready=wait_ready, beside=beside
        )
        async with running as ringpop:
            closing.callback(ringpop.reporter.close)
            yield ringpop


@asynccontextmanager
async def _running(
    config: Config,
    hosts: Sequence[Host],
    network: Network | None,
    opened: OpenedStore | None,
    http: Sequence[_Http],
    signals: _Signals | None,
    *,
    wait_ready: bool,
    beside: Listener | None,
) -> AsyncIterator[Ringpop]:
    def refused(address: str, cluster: str) -> None:
        ringpop.reporter.tell_stranger(address, cluster)

    def met(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
        if TIME_HEADER in theirs:
            at = int(ours[TIME_HEADER]) if TIME_HEADER in ours else None
            ringpop.reporter.tell_time(theirs["host_port"], theirs[TIME_HEADER], dialed_ms=at)

    secured, credentials = _secured(config, network)
    channel = _channel_for(config, secured, refused=refused)
    channel.on_met = met
    channel.tracing = _tracing() if config.tracing else None
    by_tcp = network is None or isinstance(network, CutNetwork)
    bound, advertised = await _listening(channel, config, credentials, by_tcp=by_tcp)
    channel.listeners += [] if beside is None else [beside]
    channel.host_port = advertised
    # A network that the caller passed has its own names, which DNS does not know.
    resolver = _hosts_resolver(advertised.host) if by_tcp else None
    node = _node_for(config, advertised, opened)
    ringpop = Ringpop(config, channel, node, opened, resolver, credentials)
    ringpop.signals.disks = _disks_of(config)
    channel.knows_host = lambda host: (
        is_this_machine(host) or any(member.host == host for member in node.members)
    )
    channel.owns = lambda name, address: name == str(address) or ringpop.address_of(name) == address
    _serve_beside(ringpop, http)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            await _begin_tasks(nursery, ringpop, signals)
            found = await ringpop.seeds.resolved(tuple(hosts))
            _tell_hosts(config, advertised, bound, found)
            await nursery.start(ringpop.keyspaces_on_demand.run)
            for server, app_of in http:
                await nursery.start(server.run, app_of(ringpop))
            # Last: no member calls a node that has not joined. So a block entered before the join
            # (*wait_ready*) can add its handlers before the first call comes.
            ringpop.driver.submit(lambda now: ringpop.node.start(found, now))
            try:
                with _until_signalled(signals):
                    if wait_ready:
                        await ringpop.wait_ready()
                # Also after a signal: the caller's block begins, and is cancelled immediately.
                with _until_signalled(signals):
                    yield ringpop
                await ringpop.end()
            except Exception as error:  # noqa: BLE001 - raised below: the nursery would wrap it
                failure = error  # in a group, which no caller expects
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await ringpop.application.aclose()
    lost = ringpop.readiness.name_lost
    if lost is not None:
        raise lost from (failure if failure is not lost else None)
    if failure is not None:
        raise failure


def _lease_mirror(lease: str, me: str, leader: Callable[[], str | None]) -> LeaseMirror:
    from ringpop_py.member.discovery.lease import LeaseMirror  # noqa: PLC0415 - loads httpx

    return LeaseMirror(lease, me, leader)


def _leader(ringpop: Ringpop, lease: str) -> str | None:
    """Return the leader of the dataflow that *lease* names; without one, the owner of its key."""
    name = lease.partition("/")[2]
    flows = ringpop.dataflows
    found = None if flows is None else flows.leader_of(name)
    if found is not None:
        return found
    return ringpop.lookup(name) if len(ringpop.ring) else None


async def _begin_tasks(nursery: trio.Nursery, ringpop: Ringpop, signals: _Signals | None) -> None:
    ringpop.readiness.on_name_lost = nursery.cancel_scope.cancel
    if ringpop.config.shuffle.folder is not None:
        from ringpop_py.flow.shuffle.server.child import run_child  # noqa: PLC0415 - only for shuffles

        what = "the process for shuffles"
        nursery.start_soon(keep_running, what, partial(run_child, ringpop))
    lease = ringpop.config.lease
    if lease is not None:
        mirror = _lease_mirror(lease, ringpop.name, partial(_leader, ringpop, lease))
        nursery.start_soon(keep_running, f"lease {lease}", mirror.run)
    if signals is not None:
        await nursery.start(signals.watch, nursery.cancel_scope)
    await nursery.start(ringpop.channel.run)
    nursery.start_soon(ringpop.driver.run, partial(series.follow, ringpop))
    # Channel and driver are the member itself: a bug in them ends the node. A member with half of
    # them would answer some requests, and others would not take over its keys.
    nursery.start_soon(keep_running, "the reading of hosts", ringpop.seeds.run)
    nursery.start_soon(keep_running, "the report of load", ringpop.labels.load.run)
    statsd = ringpop.config.statsd
    if statsd is not None:
        from ringpop_py.edge.statsd import Statsd  # noqa: PLC0415 - few have one

        nursery.start_soon(keep_running, "the sending to statsd", Statsd(ringpop, statsd).run)
    app_url = ringpop.config.app_url
    if app_url is not None:
        from ringpop_py.node.probes import ApplicationProbes  # noqa: PLC0415 - few have one

        probes = ApplicationProbes(ringpop, app_url, ringpop.config.app_health)
        await probes.begin()  # before the join: others learn of both at the same time
        nursery.start_soon(keep_running, "the probes of the application", probes.run)
        nursery.start_soon(keep_running, "the end of streams", ringpop.application.streams.run)


class _Signals:
    """Cancels what runs `_until_signalled` at the first signal, and everything at the second."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.came = False

    async def watch(
        self,
        everything: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self.came:
                    everything.cancel()
                    return
                self.came = True
                self.scope.cancel()


def _until_signalled(signals: _Signals | None) -> trio.CancelScope:
    if signals is None:
        return trio.CancelScope()
    signals.scope = trio.CancelScope()
    if signals.came:
        signals.scope.cancel()
    return signals.scope


def _disks_of(config: Config) -> Disks:
    store = None
    if config.store is not None:
        from ringpop_py.state.stores.urls import path_here  # noqa: PLC0415 - only for a store

        store = path_here(config.store)
    paths = {"store": store, "entries": config.entries_folder, "shuffles": config.shuffle.folder}
    return Disks({what: path for what, path in paths.items() if path is not None})


def _serve_beside(ringpop: Ringpop, http: Sequence[_Http]) -> None:
    """Serve what is not the protocol: administration, and HTTP and an audit if they are wanted."""
    if ringpop.config.audit is not None:
        _begin_audit(ringpop, ringpop.config.audit)
    serve_admin(ringpop)
    for server, _ in http:
        ringpop.ending.http.append(server)
        server.links = ringpop.channel.links
        if server.flag == HTTP_FLAG:
            server.credentials = ringpop.credentials
            ringpop.http_address = server.address
        else:
            ringpop.http_in_address = server.address


def _begin_audit(ringpop: Ringpop, path: str) -> None:
    from ringpop_py.edge.audit import begin_audit  # noqa: PLC0415 - few have one

    try:
        begin_audit(ringpop, path)
    except ConfigError:
        ringpop.channel.close()
        raise


def _check_shuffles(folder: str, *, has_store: bool) -> None:
    if find_spec("pyarrow") is None:
        raise ConfigError("--shuffle-folder needs pyarrow: pip install 'ringpop_py[state]'")
    from ringpop_py.flow.shuffle.server.child import check_folder  # noqa: PLC0415 - only for shuffles

    check_folder(folder, has_store=has_store)


def _check_keys(config: Config) -> None:
    if config.cluster_key is None:
        if config.accept_plain or config.dial_plain:
            raise ConfigError("--accept-plain and --dial-plain need --cluster-key FILE")
        return
    if config.dialect != "native":
        raise ConfigError("--cluster-key: the ringpop dialect has no keys; use --insecure instead")


def _secured(
    config: Config, network: Network | None
) -> tuple[Network | None, KeyCredentials | None]:
    """Return *network* with TLS, and the node's credentials, if it has keys. Raises ConfigError."""
    if config.cluster_key is None:
        return network, None
    # Loads ssl, and a library for certificates.
    from ringpop_py.net.security.credentials import member_credentials  # noqa: PLC0415
    from ringpop_py.net.transport.tls import TlsNetwork  # noqa: PLC0415

    credentials = member_credentials(
        config.cluster_key, config.cluster, config.name or "", _hosts_over_http(config)
    )
    secured = TlsNetwork(
        network or TcpNetwork(),
        credentials,
        accept_plain=config.accept_plain,
        dial_plain=config.dial_plain,
    )
    return secured, credentials


def _hosts_over_http(config: Config) -> list[str]:
    """Return the hosts by which HTTP callers may know this machine, for its certificate."""
    if config.http is None:
        return []
    own = [address.host for address in (config.http, config.advertise or config.listen)]
    names = [*LOCAL_HOSTS, *config.http_hosts, *own]
    return [name for name in dict.fromkeys(names) if name not in WILDCARDS]


def _tracing() -> Tracing:
    from ringpop_py.net.transport.tracing import Tracing  # noqa: PLC0415 - only with tracing

    try:
        return Tracing(package_version())
    except ModuleNotFoundError:
        text = "--tracing needs opentelemetry-api: pip install 'ringpop_py[otel]'"
        raise ConfigError(text) from None


def _check_addresses(config: Config) -> None:
    host = (config.advertise or config.listen).host
    if host in WILDCARDS:
        raise ConfigError(
            f"{host} stands for all addresses of this machine: "
            "name the one that others use with --advertise HOST:PORT"
        )
    if config.app_health is not None and config.app_url is None:
        raise ConfigError("--app-health needs --app-url URL, the application to ask")


def _hosts_resolver(own: str) -> Resolver:
    async def look_up(lookup: DnsLookup) -> Sequence[Address]:
        try:
            # In a thread: it takes a tenth of a second, in which the node would not answer.
            look_up = await trio.to_thread.run_sync(_dns_lookups, own)
        except ModuleNotFoundError:
            raise OSError(NO_DNS) from None
        return await look_up(lookup)

    return Resolver(resolver_for(own), look_up)


def _dns_lookups(own: str) -> Callable[[DnsLookup], Awaitable[Sequence[Address]]]:
    from ringpop_py.member.discovery.lookups import lookups_for  # noqa: PLC0415 - an extra

    return lookups_for(own)


def _channel_for(
    config: Config, network: Network | None, *, refused: Callable[[str, str], None]
) -> Channel:
    """Return the channel; it calls *refused* with address and cluster of each stranger."""

    def accept(headers: Mapping[str, str]) -> str | None:
        theirs = headers.get("cluster")
        if theirs not in (None, config.cluster):
            refused(headers[HOST_PORT], theirs)
            return "this is another cluster"  # whose name a stranger does not learn
        why = protocol_refusal(headers) if config.dialect == "native" else None
        if why is not None:
            channel.on_trouble(headers[HOST_PORT], CONNECTION, f"it was refused: {why}")
        return why

    def introduce() -> Mapping[str, str]:
        if config.dialect != "native":
            return {}
        return {
            "cluster": config.cluster,
            TIME_HEADER: str(round(time.time() * 1000)),
            PROTOCOL: str(PROTOCOL_VERSION),
        }

    def failed(endpoint: str, error: Exception) -> None:
        if isinstance(error, PeerFailed):  # an application beside the node: it is no bug of ours
            log.error("a handler failed", endpoint=endpoint, reason=str(error))
        else:
            log.error("a handler failed", endpoint=endpoint, exc_info=error)

    channel = Channel(
        host_port=config.advertise,
        process_name="ringpopd",
        limits=config.wire,
        network=network,
        init_headers=introduce,
        accept=accept,
    )
    channel.on_handler_error = failed
    return channel


def _http_for(config: Config, closing: ExitStack) -> list[_Http]:
    """Return the HTTP servers beside the node, which *closing* closes. Raises ConfigError."""
    site = _site_for(config)
    if config.http is None and config.http_in is None and config.http_in_key is None:
        return []
    try:
        from ringpop_py.edge.door.app import EntryApp  # noqa: PLC0415 - an extra
        from ringpop_py.edge.entry.keys import rule_of  # noqa: PLC0415 - only for these
        from ringpop_py.edge.web.server import App, HttpServer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        flag = HTTP_FLAG if config.http is not None else HTTP_IN_FLAG
        raise ConfigError(f"{flag} needs {error.name}: pip install 'ringpop_py[http]'") from None
    rule = rule_of(config)
    served: list[_Http] = []
    if config.http is not None:
        served.append((HttpServer(config.http, HTTP_FLAG, site), App))
        closing.callback(served[-1][0].close)
        is_open = config.cluster_key is None or config.accept_plain
        if is_open and not served[-1][0].address.is_loopback:
            if not config.insecure:
                raise ConfigError(NO_HTTP_KEYS.format(served[-1][0].address))
            text = "no authentication: anybody who reaches the HTTP port can change keyspaces"
            log.warning("no-authentication", text=text, address=str(served[-1][0].address))
    if config.http_in is not None and rule is not None:
        server = HttpServer(config.http_in, HTTP_IN_FLAG, site)
        served.append((server, partial(EntryApp, rule=rule)))
        closing.callback(served[-1][0].close)
    return served


def _site_for(config: Config) -> SiteCertificate | None:
    if config.http_cert is None and config.http_key is None:
        return None
    from ringpop_py.net.security.site import site_of  # noqa: PLC0415 - loads ssl

    has_port = config.http is not None or config.http_in is not None
    return site_of(config.http_cert, config.http_key, has_port=has_port)


async def _listening(
    channel: Channel, config: Config, credentials: KeyCredentials | None, *, by_tcp: bool
) -> tuple[Address, Address]:
    """Have *channel* listen; return where, and the address at which others reach it.

    Raises:
        ConfigError: it cannot listen there, or must not without keys.
    """
    bound = await channel.listen(config.listen)
    if by_tcp and credentials is None and not (bound.is_loopback or config.insecure):
        channel.close()
        raise ConfigError(NO_KEYS.format(bound))
    advertised = config.advertise or bound
    if not advertised.port:
        advertised = advertised._replace(port=bound.port)
    if credentials is not None:
        credentials.rename(config.name or str(advertised))
    return bound, advertised


async def _open_store(
    config: Config, given: Store | None, closing: ExitStack
) -> OpenedStore | None:
    """Return the store *given* or that of *config*, and its database of entries.

    *closing* closes what was not given. Raises ConfigError if one of the two cannot be used.
    """
    store = given
    try:
        if given is None and config.store is not None:
            from ringpop_py.state.stores import open_store  # noqa: PLC0415 - some load slowly

            if find_spec("pyarrow") is None:
                raise ConfigError("a store needs pyarrow: pip install 'ringpop_py[state]'")
            create = config.create_store
            store = await _opened_in_thread(partial(open_store, create=create), config.store)
            closing.callback(store.close)
        if store is None:
            return None
        from ringpop_py.state import tasks  # noqa: PLC0415
        from ringpop_py.state.catalog import catalog, stored  # noqa: PLC0415
        from ringpop_py.state.stores.metered import MeteredStore  # noqa: PLC0415
        from ringpop_py.state.stores.pieces import in_pieces  # noqa: PLC0415

        store = in_pieces(store)  # one that was given may take small values only
        known = catalog.Catalog(store, config.cluster)
        if not store.in_memory:  # whose calls take no measurable time
            store = MeteredStore(store)
        store_id = await _store_id(
            tasks.Worker(store, 1), known, config, is_given=given is not None
        )
    except StoreUnavailable as error:
        raise ConfigError(f"the store {config.store or given!r} cannot be used: {error}") from None
    rocks = None
    if config.entries_folder is not None:
        rocks = await trio.to_thread.run_sync(_opened_rocks, Path(config.entries_folder))
        closing.callback(rocks.close)
    return stored.OpenedStore(store, store_id, rocks)


async def _store_id(worker: Worker, known: Catalog, config: Config, *, is_given: bool) -> str:
    """Return the store's id; make one only on request, because an unmounted store looks new."""
    found = await worker.run(partial(known.store_id, create=False))
    if found is not None:
        if not known.store.in_memory:
            await worker.run(known.try_to_write)
        return found
    if not (config.create_store or is_given or known.store.in_memory):
        from ringpop_py.state.stores.store import missing  # noqa: PLC0415 - only for a store

        raise missing(f"store {config.store} holds nothing of cluster {config.cluster!r}")
    made = await worker.run(partial(known.store_id, create=True))
    assert made is not None
    text = f"the store {config.store or 'given'} is new: it is made for cluster {config.cluster!r}"
    log.info("store-created", text=text, store=config.store, cluster=config.cluster)
    return made


async def _opened_in_thread(open_store: Callable[[str], Store], url: str) -> Store:
    """Return the store at *url*; a node that is asked to end does not wait for a slow store."""
    given_up = threading.Event()

    def opened() -> Store:
        store = open_store(url)
        if given_up.is_set():
            store.close()
        return store

    try:
        return await trio.to_thread.run_sync(opened, abandon_on_cancel=True)
    except trio.Cancelled:
        given_up.set()
        raise


def _opened_rocks(folder: Path) -> RocksDatabase:
    try:
        from ringpop_py.state.stores.rocks import RocksDatabase  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        text = "entries_folder needs rocksdict: pip install 'ringpop_py[rocks]'"
        raise ConfigError(text) from None
    return RocksDatabase(folder)


def _node_for(config: Config, advertised: Address, store: OpenedStore | None) -> Node:
    dialect = dialect_named(config.dialect)
    labels = config.labels if store is None else (*config.labels, store.label)
    name = str(advertised)
    if config.name is not None:
        if dialect.names_are_addresses:
            labels = (*labels, (IDENTITY_LABEL, config.name))
        else:
            name = config.name
    now = now_us()
    # An incarnation by the clock: after a restart it is above all that members know of this name.
    local = Member(name, *advertised, int(time.time() * 1000), labels=checked_labels(labels))
    return Node(
        local,
        cluster=config.cluster,
        ring_points=config.ring_points,
        dialect=dialect,
        config=config.gossip,
        rng=random.Random(secrets.randbits(64)),  # nodes of one seed would gossip in step
        now=now,
    )


def _tell_hosts(config: Config, local: Address, bound: Address, hosts: Sequence[Address]) -> None:
    beside = {} if config.socket is None else {"socket": config.socket}
    log.info("listening", address=str(local), cluster=config.cluster, hosts=len(hosts), **beside)
    if not bound.is_loopback and (config.cluster_key is None or config.accept_plain):
        text = f"no authentication: anybody who reaches {bound} can change the cluster"
        log.warning("no-authentication", text=text, address=str(bound))
        if config.cluster in CLUSTERS.values():
            text = f"two clusters that are both called {config.cluster!r} become one if they meet: "
            text += "give each a name (--cluster NAME)"
            log.warning("cluster-unnamed", text=text, cluster=config.cluster)
    file = config.hosts_file
    if not hosts:
        log.info("no host is listed: this node starts a cluster; others can join it", file=file)
    elif set(hosts) == {local}:
        log.info("the only host is this node: it starts a cluster; others can join it")
