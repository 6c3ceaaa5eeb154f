"""The settings of a node, with presets for the usual networks.

Rules for this file: values only; each is checked when it is created, so that no other code has to;
a number has its unit in its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from ipaddress import ip_network
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from ringpop_py.base import rules
from ringpop_py.base.address import HOST_PATTERN, Address, DnsLookup, Host
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.rules import SECONDS, Checked, Rule, ruled

Consistency = Literal["keys", "checksum", "none"]
DialectName = Literal["native", "ringpop"]

CLUSTERS: Final[dict[str, str]] = {"native": "default", "ringpop": "ringpop"}
"""The default name of a cluster, by dialect; Ringpop's own programs use `ringpop`."""
CLUSTER_CHARACTERS_MAX: Final = 128
NAME_CHARACTERS_MAX: Final = 255
RING_POINTS_MAX: Final = 10_000
CHANGES_MAX: Final = 4_096
"""The most changes in a message of the native dialect: half a second of work for a node."""
SYNC_ROWS_RANGE: Final = (128, 4096)
"""The bounds of `sync_rows_max`: even the lower one holds several buckets (`swim.buckets`)."""
ANY_LOOPBACK_PORT: Final = Address("127.0.0.1", 0)

PERIOD: Final = rules.seconds(0.001, 60)
"""Less often, probes detect nothing in time; more often, a node would do nothing but probe."""
WAIT: Final = rules.seconds(0.001, 600)
"""The rule for how long an answer may take."""
SHARE: Final = Rule("a number above 0, 1 at most", lambda v: rules.is_number(v) and 0 < v <= 1)
DELAY: Final = Rule(SECONDS.text, lambda v: SECONDS.sound(v) and v <= rules.NUMBER_MAX)
TIME_LIMIT: Final = rules.seconds(0.001, rules.NUMBER_MAX)
RETRIES: Final = rules.whole(0)
SCHEDULE: Final = rules.tuple_of("a tuple of seconds, each 0 or more", SECONDS.sound)
SERVICE: Final = Rule(
    # On the wire its length is one byte, and `ringpop` is the node's own service.
    "1 to 255 bytes and not 'ringpop'",
    lambda v: isinstance(v, str) and 0 < len(v.encode()) <= 255 and v != "ringpop",  # noqa: PLR2004
)


def _is_network(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(ip_network(text))
    except ValueError:
        return False


def _is_http_url(url: object) -> bool:
    if not isinstance(url, str):
        return url is None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    printable = url.isprintable() and " " not in url
    return printable and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def _is_address(value: object) -> bool:
    return isinstance(value, Address) and type(value.host) is str and type(value.port) is int


def _is_label(pair: object) -> bool:
    # Their lengths are checked when the node is made.
    return isinstance(pair, tuple) and [type(part) for part in pair] == [str, str]


HTTP_URL: Final = Rule("http://HOST:PORT", _is_http_url)
HTTP_PATH: Final = Rule(
    "a path that begins with one /",
    lambda v: isinstance(v, str) and re.fullmatch(r"/(?!/)[!-~]*", v),
)
ADDRESS: Final = Rule("an Address (Address.parse reads 'HOST:PORT')", _is_address)
ADDRESSES: Final = rules.tuple_of(
    f"a tuple, each {ADDRESS.text}", lambda v: _is_address(v) or isinstance(v, DnsLookup)
)
HOST_NAMES: Final = rules.tuple_of(
    "a tuple of host names, each without a port",
    lambda name: isinstance(name, str) and re.fullmatch(HOST_PATTERN, name),
)
LABELS: Final = rules.tuple_of("a tuple of (key, value), each text", _is_label)


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipConfig(Checked):
    """The timing of the membership protocol, and which parts beyond Ringpop's are on.

    The defaults are Ringpop's timing with all parts on; see `PRESETS`. In a cluster of the ringpop
    dialect these parts are off, whatever is set here (`plain`). See `docs/protocol.md` for each.

    Attributes:
        suspect_s: how long a suspect has to refute. With *confirmations*, this times
            ``max(1, log10(n))`` is the shortest time, if enough members accuse the suspect.
        quiet: while a node has no news, suspects no member and is healthy, its period is
            *quiet_period_s*. The first news wakes it within half a *period_s*.
        heal_share: how many nodes try to heal the cluster every *heal_period_s*, on average; with
            *fast_heal*, on each side of a split, every turn.
        local_health: while there are signs that this node is slow, its periods and time-outs are
            up to *local_health_max* + 1 times as long (Lifeguard, section IV-A).
        stall_s: if the node is called this much later than due, it was not running; none of its
            timers counts that time.
        confirmations: a suspicion ends sooner if more members accuse independently (Lifeguard,
            section IV-B): with one accuser it lasts *suspect_factor* times as long as with
            *confirmations_max* more.
        tells_suspects: each ping to a suspect carries the accusation (Lifeguard, section IV-C).
        evidence: if our connection to a member is refused or lost, and two helpers (or all, if
            there are fewer) find the same, the suspect is faulty after *evidence_s*.
        damping: members that change too often leave the ring for a while. Each change costs
            *damp_penalty*. At *damp_suppress* up to *damp_vote_size* members are asked, and the
            first *damp_quorum* answers have to agree. At *damp_reuse* the member comes back.
        damp_share: the share of the members that damping may leave out at the same time. It must
            be the same on all nodes of a cluster; otherwise their rings differ.
        fast_heal: each turn of healing tries one address: a host, a faulty member, or one that was
            evicted since. Turns come every *heal_fast_s* while *heal_fast_share* of the members
            or hosts are gone, while the node is alone, and for two minutes after a member became
            faulty; otherwise every *heal_period_s*.
        delta_sync: lists that differ are compared in buckets, and not sent whole. No message has
            more than *changes_max* changes or *sync_rows_max* rows. It must be the same on all
            nodes of a cluster.
    """

    period_s: float = ruled(0.2, PERIOD)
    quiet: bool = False
    quiet_period_s: float = ruled(2.0, PERIOD)
    ping_timeout_s: float = ruled(1.5, WAIT)
    ping_req_timeout_s: float = ruled(5.0, WAIT)
    ping_req_size: int = ruled(3, rules.whole(1, 100))
    join_timeout_s: float = ruled(1.0, WAIT)
    join_size: int = 3
    join_parallelism: int = 2
    join_delay_min_s: float = 0.1
    join_delay_max_s: float = 60.0
    suspect_s: float = 5.0
    faulty_s: float = 24 * 3600.0
    tombstone_s: float = 60.0
    piggyback_factor: int = 15
    reverse_full_syncs_max: int = ruled(5, rules.whole(1, 1_000))
    eviction_ping_ratio: float = 0.4
    heal_period_s: float = 30.0
    heal_share: float = 3.0
    heal_timeout_s: float = 1.0
    members_max: int = 100_000
    local_health: bool = True
    local_health_max: int = 8
    stall_s: float = 0.5
    confirmations: bool = True
    confirmations_max: int = 3
    suspect_factor: float = 6.0
    tells_suspects: bool = True
    evidence: bool = True
    evidence_s: float = 0.5
    damping: bool = True
    damp_penalty: int = 500
    damp_score_max: int = 10_000
    damp_half_life_s: float = 300.0
    damp_suppress: int = 5000
    damp_reuse: int = 2500
    damp_vote_size: int = 6
    damp_quorum: int = 3
    damp_vote_timeout_s: float = 1.0
    damp_vote_period_s: float = 10.0
    damp_share: float = ruled(0.1, SHARE)
    fast_heal: bool = True
    heal_fast_s: float = 2.0
    heal_fast_share: float = 0.25
    delta_sync: bool = True
    changes_max: int = ruled(256, rules.whole(1, CHANGES_MAX))
    sync_rows_max: int = ruled(512, rules.whole(*SYNC_ROWS_RANGE))

    def _problem(self) -> str:
        ordered = self.damp_reuse < self.damp_suppress <= self.damp_score_max
        return "" if ordered else "damp_reuse < damp_suppress <= damp_score_max must hold"

    def plain(self) -> GossipConfig:
        """Return this configuration with all parts off that go beyond Ringpop."""
        parts = [part.name for part in fields(self) if isinstance(part.default, bool)]
        return replace(self, **dict.fromkeys(parts, False))

    def dead_after(self, seconds: float) -> GossipConfig:
        """Return this configuration, changed so that a silent member is faulty after *seconds*.

        The time is approximate: it is the time of a probe, and the rest is for the suspect to
        refute. With ``evidence``, a member whose machine refuses connections is declared faulty
        sooner.

        Raises:
            ConfigError: if the time is shorter than a probe.
        """
        probe_s = self.period_s + self.ping_timeout_s + self.ping_req_timeout_s
        if seconds <= probe_s:
            raise ConfigError(
                f"a member cannot be declared faulty after {seconds:g} s of silence: a"
                f" probe takes up to {probe_s:g} s here; allow more, or shorten the timeouts"
            )
        # Confirmations by other members would shorten the time, or lengthen it if they are missing.
        return replace(self, suspect_s=seconds - probe_s, confirmations=False)


_LAN: Final = GossipConfig(
    quiet=True,
    ping_timeout_s=0.5,
    ping_req_timeout_s=1.0,
    suspect_s=2.5,
    # The small side of a split gets few answers, which lower its score: with 8 it would take twice
    # as long to declare the others faulty.
    local_health_max=3,
)

PRESETS: Final[dict[str, GossipConfig]] = {
    "local": replace(
        _LAN, quiet_period_s=1.0, ping_timeout_s=0.3, ping_req_timeout_s=0.7, suspect_s=2.0
    ),
    "lan": _LAN,
    "wan": GossipConfig(
        quiet=True,
        quiet_period_s=3.0,
        period_s=0.5,
        ping_timeout_s=3.0,
        ping_req_timeout_s=6.0,
        suspect_s=10.0,
    ),
    "ringpop": GossipConfig().plain(),
}
"""Settings for the usual networks, by name. ``ringpop`` is for clusters of that dialect: the plain
protocol with the timing of the Go implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig(Checked):
    """How requests are forwarded to the owners of their keys.

    Attributes:
        replays_max: how many forwarded HTTP requests the application at `Config.app_url` may have
            under way; more are declined immediately, and tried again on the sender's schedule.
        body_bytes_max: the largest part of an HTTP request or response that is in one message; from
            the web entry, longer ones come in pieces. Also the largest message of a websocket.
        streams_max: how many answers of the application at `Config.app_url` may be under way in
            pieces, websockets included.
    """

    max_retries: int = ruled(3, RETRIES)
    retry_schedule_s: tuple[float, ...] = (0.0, 1.0, 3.5)  # Ringpop's
    timeout_s: float = 30.0
    in_flight_max: int = 5_000
    body_bytes_max: int = 1 << 20
    replays_max: int = 1_000
    streams_max: int = 1_000
    consistency: Consistency = ruled("keys", rules.one_of(get_args(Consistency)))

    def _problem(self) -> str:
        # Under the name that it has as an option of a request, too.
        if problem := SCHEDULE.problem("retry_schedule", self.retry_schedule_s):
            return problem
        empty = self.max_retries != 0 and not self.retry_schedule_s
        return "retry_schedule is empty, but max_retries is not 0" if empty else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryConfig(Checked):
    """How requests of HTTP are taken for the owners of their keys (`Config.http_in`).

    Attributes:
        timeout_s: the time limit until an answer begins.
        idle_timeout_s: how long nothing may come of an answer that has begun.
        total_timeout_s: the time limit until the end of an answer; None if it has none.
        body_bytes_max: the most bytes of a request's body.
        trusted: the networks of the proxies before this node, whose headers about their callers
            are believed.
    """

    timeout_s: float = ruled(10.0, TIME_LIMIT)
    idle_timeout_s: float = ruled(120.0, TIME_LIMIT)
    total_timeout_s: float | None = ruled(None, TIME_LIMIT.or_none())
    body_bytes_max: int = ruled(1 << 30, rules.whole(0, 1 << 50))
    trusted: tuple[str, ...] = ruled(
        # Loopback, and what nobody routes: the same machine, and one's own networks.
        (
            *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
            *("::1/128", "fc00::/7", "fe80::/10"),
        ),
        rules.tuple_of("a tuple of networks, as '10.0.0.0/8'", _is_network),
    )


_USUAL_SCHEDULE_S: Final = ProxyConfig().retry_schedule_s


def check_schedule(max_retries: int, schedule_s: tuple[float, ...]) -> None:
    """Check *max_retries* together with its schedule.

    Raises:
        ConfigError: a value is not a number, negative or not finite, or the schedule is empty
            although there are retries.
    """
    if schedule_s is not _USUAL_SCHEDULE_S or not RETRIES.sound(max_retries):
        ProxyConfig(max_retries=max_retries, retry_schedule_s=schedule_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig(Checked):
    """How a node keeps its share of the keyspaces.

    Attributes:
        handoffs_max: how many planned moves of partitions to this node, and how many away from
            it, run at the same time.
        takeovers_max: how many partitions without an owner this node takes over at the same time.
        wait_s: how long a request waits at a node for a partition that is moving there.
        timeout_s: the default time limit of a request, retries included.
        group_writes_max: how many writes one commit holds at most; *group_bytes_max*: how many
            bytes of keys and values, not counting the first write.
        queue_writes_max: how many writes may wait for commits of a partition; more are refused.
        checkpoint_slots_max: a checkpoint of a partition is due once its oldest change that none
            covers is this many commits of the node back, whatever the time. A node that takes over
            reads at most about this many slots.
        store_threads: how many calls of the store run at the same time.
        keyspaces_max: how many keyspaces the cluster may have for this node to create another one;
            *partitions_max*: how many partitions these may have in all;
            *client_keyspaces_max*, *client_partitions_max*: those of one client with keys.
    """

    handoffs_max: int = 2
    takeovers_max: int = 16
    wait_s: float = 5.0
    timeout_s: float = 10.0
    group_writes_max: int = 1_000
    group_bytes_max: int = 1 << 20
    queue_writes_max: int = 10_000
    checkpoint_slots_max: int = 4_096
    store_threads: int = 32
    keyspaces_max: int = 1_000
    partitions_max: int = 65_536
    client_keyspaces_max: int = 250
    client_partitions_max: int = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleConfig(Checked):
    """How a node holds rows of shuffles, in a process beside it.

    Attributes:
        folder: the local folder for them; by default this node holds none. No other process may
            use the folder, which is emptied at each start. The node needs a store for records.
        memory_bytes: how much memory that process uses for rows; further rows wait.
        disk_bytes: how much of the disk it uses at most for rows; further rows are refused.
    """

    folder: str | None = None
    memory_bytes: int = ruled(1 << 30, rules.whole(64 << 20, 1 << 50))
    disk_bytes: int = ruled(1 << 50, rules.whole(1 << 20, 1 << 50))


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits(Checked):
    """Limits on what peers can make a node store or wait for; at a limit, only its cause ends.

    Attributes:
        client_requests_max, client_bytes_max: what each client and each reader may have a second,
            if it has proved who it is; None for no limit.
    """

    message_bytes_max: int = 8 << 20
    control_bytes_max: int = 1 << 20
    headers_max: int = 128
    header_key_bytes_max: int = 16
    init_headers_max: int = 64
    assembling_max: int = 256
    assembling_bytes_max: int = 64 << 20
    calls_in_flight_max: int = 10_000
    outgoing_bytes_max: int = 64 << 20
    connections_max: int = 4_096
    connections_per_address_max: int = 256
    init_timeout_s: float = 5.0
    frame_timeout_s: float = 5.0
    connect_timeout_s: float = 3.0
    idle_timeout_s: float = 600.0
    client_requests_max: int | None = ruled(None, rules.whole(1, 1 << 40).or_none())
    client_bytes_max: int | None = ruled(None, rules.whole(1, 1 << 40).or_none())


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """One node: its identity, its addresses, its seeds, and how it behaves.

    Attributes:
        listen: the address to accept connections at; port 0 picks a free one.
        advertise: the address that others use; by default the bound one.
        name: the member's name; by default the advertised address.
        cluster: the cluster's name; nodes of other clusters are refused. By default that of
            `CLUSTERS` for the dialect.
        hosts: the seeds, besides those in *hosts_file*, which is read again while the node runs:
            addresses, or `DnsLookup` for hosts that DNS knows.
        service: the name under which the application's handlers are called.
        app_url: where forwarded HTTP requests are replayed, if the application speaks HTTP. While
            it does not answer there, other members own its keys.
        app_health: a path below *app_url* that answers with a status below 400 while the
            application can serve. By default it can if it accepts connections.
        store: the store of durable keyspaces: a folder or a URL (`ringpop_py.state.stores`), the
        same
            for all members. Without a store, a node has no part in durable keyspaces.
        create_store: make the store if it does not exist, or has nothing of this cluster. Without
            it, a node does not start then: a folder that is not mounted looks like a new store.
        entries_folder: keep keys and values of durable partitions in RocksDB in this local folder,
            not in memory. No other process may use the folder; it is emptied at each start.
        drain_timeout_s: how long a node that ends waits for open requests before it aborts them; 0
            aborts them immediately.
        expect: how many members the cluster should have, for `ringpopctl check` and the console: a
            side of a split then knows what it has lost. No decision of nodes depends on it.
        http_in: the address at which requests for the application come in, to be answered by the
            owners of their keys; port 0 picks a free one. It needs *app_url* and *http_in_key*.
        http_in_key: where the key of such a request is (`ringpop_py.edge.entry.keys.KINDS`).
        socket: the path of a Unix socket at which programs of this user on this host reach the
            node, besides its address; its mode is 0600.
        cluster_key: the file with the cluster's keys (`ringpopctl keygen`). All connections then
            use TLS, and peers without one of the keys are refused.
        accept_plain, dial_plain: accept connections without TLS as well, or make them without,
            while not all members have keys yet.
        lease: ``NAMESPACE/NAME`` of a Lease in Kubernetes that is to show who leads the dataflow of
            that name, or otherwise who owns that key. No decision depends on it.
        tracing: make spans of OpenTelemetry for calls that belong to a trace, with the tracer
            provider of this process.
        statsd: where counts are sent each second, by UDP, under Ringpop's names.
        audit: append a line of JSON for each access to data by others than members to this file
            (`ringpop_py.edge.audit`).
        insecure: serve without keys where other machines may reach this node.
        http: the address at which to serve keyspaces over HTTP; port 0 picks a free one. By default
            keyspaces are not served over HTTP.
        http_hosts: the names under which they are served there, besides this node's addresses: a
            request for another `Host` is refused, since a web page may have had it sent.
        http_cert, http_key: files with the certificate that *http* and *http_in* show, followed by
            those of its authorities, and with its private key, in PEM. By default *http* shows one
            that the cluster's key issues.
    """

    listen: Address = ruled(ANY_LOOPBACK_PORT, ADDRESS)
    advertise: Address | None = ruled(None, ADDRESS.or_none())
    name: str | None = ruled(None, rules.printable(NAME_CHARACTERS_MAX).or_none())
    cluster: str = ruled(None, rules.printable(CLUSTER_CHARACTERS_MAX))  # type: ignore[assignment] # never once it is made
    dialect: DialectName = ruled("native", rules.one_of(CLUSTERS))
    hosts: tuple[Host, ...] = ruled((), ADDRESSES)
    hosts_file: str | None = None
    labels: tuple[tuple[str, str], ...] = ruled((), LABELS)
    ring_points: int = ruled(100, rules.whole(1, RING_POINTS_MAX))
    service: str = ruled("app", SERVICE)
    app_url: str | None = ruled(None, HTTP_URL)
    app_health: str | None = ruled(None, HTTP_PATH.or_none())
    http: Address | None = ruled(None, ADDRESS.or_none())
    http_hosts: tuple[str, ...] = ruled((), HOST_NAMES)
    http_cert: str | None = None
    http_key: str | None = None
    http_in: Address | None = ruled(None, ADDRESS.or_none())
    http_in_key: str | None = None
    socket: str | None = None
    cluster_key: str | None = None
    accept_plain: bool = False
    dial_plain: bool = False
    lease: str | None = None
    insecure: bool = False
    tracing: bool = False
    statsd: Address | None = ruled(None, ADDRESS.or_none())
    audit: str | None = None
    store: str | None = None
    create_store: bool = False
    entries_folder: str | None = None
    drain_timeout_s: float = ruled(30.0, DELAY)
    expect: int | None = ruled(None, rules.whole(1).or_none())
    gossip: GossipConfig = _LAN
    proxy: ProxyConfig = ProxyConfig()
    entry: EntryConfig = EntryConfig()
    state: StateConfig = StateConfig()
    shuffle: ShuffleConfig = ShuffleConfig()
    wire: WireLimits = WireLimits()

    def __post_init__(self) -> None:
        if self.cluster is None:
            # The default depends on another field, so the field cannot declare it.
            known = self.dialect in list(CLUSTERS)  # of any type, even an unhashable one
            object.__setattr__(self, "cluster", CLUSTERS[self.dialect if known else "native"])
        Checked.__post_init__(self)  # `super()` fails in a class that `slots` made anew
