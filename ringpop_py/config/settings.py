"""What an operator tunes, in seconds and bytes, with presets for the usual networks.

Rules for this file: values only; each is checked when it is made, so that nothing below has
to doubt it; a number carries its unit in its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard
from urllib.parse import urlsplit

from ringpop_py.address import Address
from ringpop_py.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Consistency = Literal["keys", "checksum", "none"]
DialectName = Literal["native", "ringpop"]

CLUSTERS: Final[dict[str, str]] = {"native": "default", "ringpop": "ringpop"}
"""The name of a cluster that is given none, by dialect; Ringpop's programs have theirs, too."""
CLUSTER_CHARACTERS_MAX: Final = 128
NAME_CHARACTERS_MAX: Final = 255
RING_POINTS_MAX: Final = 10_000
SYNC_ROWS_RANGE: Final = (128, 4096)
"""Rows a message: some buckets fit into the smallest (`membership.buckets`)."""
NUMBER_MAX: Final = 1 << 40
"""Of bytes, of things, and of seconds: so many are still exact as microseconds."""
ANY_LOOPBACK_PORT: Final = Address("127.0.0.1", 0)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_delay(value: object) -> bool:
    sound = _is_whole(value) or isinstance(value, float)
    return sound and 0 <= value < math.inf  # type: ignore[operator] # it is a number


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


def _rule(text: str, sound: Callable[[Any], bool]) -> dict[str, Any]:
    """Metadata of a field: *sound* decides about its value, and *text* says what it must be."""
    return {"text": text, "sound": sound}


SWITCH: Final = _rule("is true or false", lambda value: type(value) is bool)
NUMBER: Final = _rule("must be a number above 0", lambda v: _is_delay(v) and 0 < v <= NUMBER_MAX)
WHOLE: Final = _rule(
    "must be a number above 0, and whole",
    lambda value: _is_whole(value) and 0 < value <= NUMBER_MAX,
)
SHARE: Final = _rule("must be a number above 0, 1 at most", lambda v: _is_delay(v) and 0 < v <= 1)
DELAY: Final = _rule("holds seconds, 0 or more", lambda v: _is_delay(v) and v <= NUMBER_MAX)
TEXT: Final = _rule("is text", lambda value: isinstance(value, str | None))
HTTP_URL: Final = _rule("is http://HOST:PORT", _is_http_url)
SERVICE: Final = _rule(
    # It travels in one length byte, and `ringpop` is the node's own.
    "is 1 to 255 bytes and not 'ringpop'",
    lambda v: isinstance(v, str) and 0 < len(v.encode()) <= 255 and v != "ringpop",  # noqa: PLR2004
)
RETRIES: Final = _rule("is 0 or more, and whole", lambda v: _is_whole(v) and v >= 0)
_OF_KIND: Final = {bool: SWITCH, int: WHOLE, float: NUMBER}
"""The rules of fields that declare none, by the kind of their defaults."""


def between(least: int, most: int) -> dict[str, Any]:
    """A whole number in this range."""
    text = f"is {least} to {most}, and whole"
    return _rule(text, lambda value: _is_whole(value) and least <= value <= most)


def printable(characters_max: int, *, or_none: bool = False) -> dict[str, Any]:
    """A text that people can read."""

    def sound(value: object) -> bool:
        if value is None:
            return or_none
        return isinstance(value, str) and 0 < len(value) <= characters_max and value.isprintable()

    return _rule(f"is 1 to {characters_max} printable characters", sound)


DIALECT: Final = _rule("is 'native' or 'ringpop'", list(CLUSTERS).__contains__)
CONSISTENCY: Final = _rule(
    "is 'keys', 'checksum' or 'none'", ["keys", "checksum", "none"].__contains__
)


def _check(config: object, together: Callable[[], str] = str) -> None:
    """Refuse *config* with all that is wrong in it, a line each.

    Args:
        together: says what is wrong with values that are sound each for itself.
    """
    problems = []
    for declared in fields(config):  # type: ignore[arg-type] # it is a dataclass
        value = getattr(config, declared.name)
        rule = declared.metadata or _OF_KIND.get(type(declared.default))
        if rule and not rule["sound"](value):
            problems.append(f"{declared.name} {rule['text']}, not {value!r}")
    if problem := "\n".join(problems) or together():
        raise ConfigError(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipConfig:
    """The timing of the membership protocol, and which parts beyond Ringpop's are on.

    The defaults are Ringpop's timing with all parts on; see `PRESETS`. A cluster of the ringpop
    dialect has those parts off, whatever stands here (`plain`).

    Attributes:
        suspect_s: how long a suspect has to refute. With *confirmations* the shortest time,
            times ``max(1, log10(n))``, when enough members accuse it independently.
        quiet: while a node has nothing to tell, doubts nobody and is healthy, its period is
            *quiet_period_s*; the first news has it go on at once, every *period_s*.
        heal_share: how many nodes of a cluster try to heal it each `heal_period_s`, on average.
        local_health: slow down, and accuse later, while there are signs that it is we who are
            slow (Lifeguard, section IV-A): up to *local_health_max* + 1 times.
        stall_s: whoever is called so much later than due was not running; that time is not
            counted by any of our timers.
        confirmations: a suspicion ends the sooner, the more members accuse independently
            (Lifeguard, section IV-B): one alone waits *suspect_factor* times as long as
            *confirmations_max* besides it.
        tells_suspects: whoever is suspected hears so with each ping (Lifeguard, section IV-C).
        evidence: a connection refused or reset, and seen so by two helpers (or all there are),
            makes a suspect faulty after *evidence_s*.
        damping: members that change too often leave the ring for a while: each change costs
            *damp_penalty*; at *damp_suppress* others are asked, and *damp_quorum* of
            *damp_vote_size* have to agree; at *damp_reuse* the member comes back. At most
            *damp_share* of the members at once; it must be the same on all nodes of a cluster, or
            their rings differ.
        fast_heal: each side of a split makes *heal_share* tries of one address each: of the hosts,
            of members that were given up, and of those that were evicted since. Every
            *heal_fast_s* while at least *heal_fast_share* of the members or hosts are gone, while
            we are alone, and for two minutes after a member was given up.
        delta_sync: views that differ are compared in buckets, instead of sent whole; no message
            holds more than *changes_max* changes or *sync_rows_max* rows. All nodes of a cluster
            must have it alike.
    """

    period_s: float = 0.2
    quiet: bool = False
    quiet_period_s: float = 2.0
    ping_timeout_s: float = 1.5
    ping_req_timeout_s: float = 5.0
    ping_req_size: int = 3
    join_timeout_s: float = 1.0
    join_size: int = 3
    join_parallelism: int = 2
    join_delay_min_s: float = 0.1
    join_delay_max_s: float = 60.0
    suspect_s: float = 5.0
    faulty_s: float = 24 * 3600.0
    tombstone_s: float = 60.0
    piggyback_factor: int = 15
    reverse_full_syncs_max: int = 5
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
    damp_share: float = field(default=0.1, metadata=SHARE)
    fast_heal: bool = True
    heal_fast_s: float = 2.0
    heal_fast_share: float = 0.25
    delta_sync: bool = True
    changes_max: int = 256
    sync_rows_max: int = field(default=512, metadata=between(*SYNC_ROWS_RANGE))

    def __post_init__(self) -> None:
        _check(self, self._problem)

    def _problem(self) -> str:
        ordered = self.damp_reuse < self.damp_suppress <= self.damp_score_max
        return "" if ordered else "damp_reuse < damp_suppress <= damp_score_max must hold"

    def plain(self) -> GossipConfig:
        """The same timing with every part off that goes beyond Ringpop."""
        return replace(
            self,
            quiet=False,
            local_health=False,
            confirmations=False,
            tells_suspects=False,
            evidence=False,
            damping=False,
            fast_heal=False,
            delta_sync=False,
        )


_LAN: Final = GossipConfig(
    quiet=True,
    ping_timeout_s=0.5,
    ping_req_timeout_s=1.0,
    suspect_s=2.5,
    # A small side of a split has few answers to be healthy by: at 8 it takes twice as long to
    # give up the others.
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
"""The usual networks by name; ``ringpop`` is the plain protocol with the timing of the Go
implementation, and what a cluster of that dialect should have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """How requests are brought to their owners."""

    max_retries: int = field(default=3, metadata=RETRIES)
    retry_schedule_s: tuple[float, ...] = (0.0, 1.0, 3.5)
    timeout_s: float = 30.0
    in_flight_max: int = 5_000
    body_bytes_max: int = 1 << 20
    consistency: Consistency = field(default="keys", metadata=CONSISTENCY)

    def __post_init__(self) -> None:
        _check(self, lambda: _problem_of_schedule(self.max_retries, self.retry_schedule_s))


def check_schedule(max_retries: int, schedule_s: tuple[float, ...]) -> None:
    """Refuse a retry schedule that cannot be followed.

    Raises:
        ConfigError: on what is no number, a negative or non-finite one, or an empty schedule with
            retries.
    """
    if not RETRIES["sound"](max_retries):
        message = f"max_retries {RETRIES['text']}, not {max_retries!r}"
        raise ConfigError(message)
    if problem := _problem_of_schedule(max_retries, schedule_s):
        raise ConfigError(problem)


def _problem_of_schedule(max_retries: int, schedule_s: object) -> str:
    if not isinstance(schedule_s, tuple) or not all(map(_is_delay, schedule_s)):
        return f"retry_schedule holds seconds, 0 or more, not {schedule_s!r}"
    empty = max_retries != 0 and not schedule_s
    return "retry_schedule is empty, but max_retries is not 0" if empty else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig:
    """How a node keeps its share of the keyspaces.

    Attributes:
        handoffs_max: planned moves of partitions to this node at a time, and away from it.
        takeovers_max: partitions without an owner that this node takes on at a time.
        wait_s: how long a request waits at a node for a partition that is on its way there.
        timeout_s: for a request as a whole, retries included, where its caller does not say.
        group_writes_max: how many writes one commit takes along; *group_bytes_max*: of how many
            bytes of keys and values, beyond the first write.
        queue_writes_max: how many may wait for a commit of one partition; more are refused.
        checkpoint_slots_max: a checkpoint is due after so many commits, whatever the time.
        store_threads: calls of the store at a time.
    """

    handoffs_max: int = 2
    takeovers_max: int = 16
    wait_s: float = 5.0
    timeout_s: float = 10.0
    group_writes_max: int = 1_000
    group_bytes_max: int = 1 << 20
    queue_writes_max: int = 10_000
    checkpoint_slots_max: int = 1_000
    store_threads: int = 32

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """What a peer may make us hold. Reaching one has a named error and ends only its cause."""

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

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One node: who it is, where it listens, whom it asks, and how it behaves.

    Attributes:
        listen: where to accept connections; port 0 picks a free one.
        advertise: what others call us; the bound address by default.
        name: the member's name; its advertised address by default.
        cluster: nodes of other clusters get nothing from us and give us nothing. By default what
            `CLUSTERS` has for the dialect.
        hosts: the seeds; read again from *hosts_file* whenever that is set.
        service: the name under which the application's handlers are called.
        app_url: where forwarded HTTP requests are replayed, if the application speaks HTTP.
        store: where the partitions of durable keyspaces outlive nodes: a folder or a URL
            (`ringpop_py.stores`), the same for all members. Without it a node has no part in
            durable keyspaces.
        entries_folder: keep keys and values of durable partitions in a RocksDB in this local
            folder, not in memory. It is this process's alone, and emptied at each start.
        drain_timeout_s: how long a node that ends waits for what is under way before it cuts it; 0
            cuts immediately.
        http: where to serve keyspaces over HTTP; nowhere by default. Port 0 picks a free one.
    """

    listen: Address = ANY_LOOPBACK_PORT
    advertise: Address | None = None
    name: str | None = field(default=None, metadata=printable(NAME_CHARACTERS_MAX, or_none=True))
    cluster: str = field(default=None, metadata=printable(CLUSTER_CHARACTERS_MAX))  # type: ignore[assignment] # never once it is made
    dialect: DialectName = field(default="native", metadata=DIALECT)
    hosts: tuple[Address, ...] = ()
    hosts_file: str | None = field(default=None, metadata=TEXT)
    labels: tuple[tuple[str, str], ...] = ()
    ring_points: int = field(default=100, metadata=between(1, RING_POINTS_MAX))
    service: str = field(default="app", metadata=SERVICE)
    app_url: str | None = field(default=None, metadata=HTTP_URL)
    http: Address | None = None
    store: str | None = field(default=None, metadata=TEXT)
    entries_folder: str | None = field(default=None, metadata=TEXT)
    drain_timeout_s: float = field(default=30.0, metadata=DELAY)
    gossip: GossipConfig = _LAN
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    state: StateConfig = field(default_factory=StateConfig)
    wire: WireLimits = field(default_factory=WireLimits)

    def __post_init__(self) -> None:
        if self.cluster is None:
            known = self.dialect in list(CLUSTERS)  # of any type, even one that cannot be a key
            object.__setattr__(self, "cluster", CLUSTERS[self.dialect if known else "native"])
        _check(self)
