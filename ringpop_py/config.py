"""What an operator tunes, in seconds and bytes, with presets for the usual networks.

Rules for this file: values only; each is checked when it is made, so that nothing below has
to doubt it; a number carries its unit in its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Final, Literal
from urllib.parse import urlsplit

from ringpop_py.address import Address
from ringpop_py.errors import ConfigError

Consistency = Literal["keys", "checksum", "none"]
DialectName = Literal["native", "ringpop"]

CLUSTER_CHARACTERS_MAX: Final = 128
NAME_CHARACTERS_MAX: Final = 255
RING_POINTS_MAX: Final = 10_000
NUMBER_MAX: Final = 1 << 40
"""Of bytes, of things, and of seconds: so many are still exact as microseconds."""
ANY_LOOPBACK_PORT: Final = Address("127.0.0.1", 0)


def _require(*, ok: bool, message: str) -> None:
    if not ok:
        raise ConfigError(message)


def _require_positive(config: object) -> None:
    """Every field of *config* is a number above zero; whole where its default is."""
    for f in fields(config):  # type: ignore[arg-type]
        value = getattr(config, f.name)
        kinds = (int,) if isinstance(f.default, int) else (int, float)
        ok = type(value) in kinds and 0 < value <= NUMBER_MAX
        whole = ", and whole" if kinds == (int,) else ""
        _require(ok=ok, message=f"{f.name} must be a number above 0{whole}, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipConfig:
    """The timing of the membership protocol; the defaults are Ringpop's own.

    Attributes:
        heal_share: how many nodes of a cluster try to heal it each `heal_period_s`, on average.
    """

    period_s: float = 0.2
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

    def __post_init__(self) -> None:
        _require_positive(self)


PRESETS: Final[dict[str, GossipConfig]] = {
    "local": GossipConfig(ping_timeout_s=0.5, ping_req_timeout_s=1.5, suspect_s=2.0),
    "lan": GossipConfig(),
    "wan": GossipConfig(period_s=0.5, ping_timeout_s=3.0, ping_req_timeout_s=8.0, suspect_s=15.0),
    "ringpop": GossipConfig(),
}
"""The usual networks by name; ``ringpop`` is the plain timing of the Go implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """How requests are brought to their owners."""

    max_retries: int = 3
    retry_schedule_s: tuple[float, ...] = (0.0, 1.0, 3.5)
    timeout_s: float = 30.0
    in_flight_max: int = 5_000
    body_bytes_max: int = 1 << 20
    consistency: Consistency = "keys"

    def __post_init__(self) -> None:
        check_schedule(self.max_retries, self.retry_schedule_s)
        _require(ok=self.timeout_s > 0, message="timeout_s must be above 0")
        _require(ok=self.in_flight_max > 0, message="in_flight_max must be above 0")
        _require(ok=self.body_bytes_max > 0, message="body_bytes_max must be above 0")
        _require(
            ok=self.consistency in ("keys", "checksum", "none"),
            message=f"consistency is 'keys', 'checksum' or 'none', not {self.consistency!r}",
        )


def check_schedule(max_retries: int, schedule_s: tuple[float, ...]) -> None:
    """Refuse a retry schedule that cannot be followed.

    Raises:
        ConfigError: on a negative or non-finite number, or an empty schedule with retries.
    """
    _require(ok=max_retries >= 0, message=f"max_retries is 0 or more, not {max_retries!r}")
    sound = all(math.isfinite(delay_s) and delay_s >= 0 for delay_s in schedule_s)
    _require(ok=sound, message=f"retry_schedule holds seconds, 0 or more: {list(schedule_s)!r}")
    usable = max_retries == 0 or len(schedule_s) > 0
    _require(ok=usable, message="retry_schedule is empty, but max_retries is not 0")


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
        _require_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One node: who it is, where it listens, whom it asks, and how it behaves.

    Attributes:
        listen: where to accept connections; port 0 picks a free one.
        advertise: what others call us; the bound address by default.
        name: the member's name; its advertised address by default.
        cluster: nodes of other clusters get nothing from us and give us nothing.
        hosts: the seeds; read again from *hosts_file* whenever that is set.
        service: the name under which the application's handlers are called.
        app_url: where forwarded HTTP requests are replayed, if the application speaks HTTP.
    """

    listen: Address = ANY_LOOPBACK_PORT
    advertise: Address | None = None
    name: str | None = None
    cluster: str = "default"
    dialect: DialectName = "native"
    hosts: tuple[Address, ...] = ()
    hosts_file: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    ring_points: int = 100
    service: str = "app"
    app_url: str | None = None
    gossip: GossipConfig = field(default_factory=GossipConfig)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    wire: WireLimits = field(default_factory=WireLimits)

    def __post_init__(self) -> None:
        for key in ("cluster", "service", "name", "app_url", "hosts_file"):
            value = getattr(self, key)
            sound = isinstance(value, str) or (value is None and key not in ("cluster", "service"))
            _require(ok=sound, message=f"{key} is text, not {value!r}")
        _require(
            ok=self.dialect in ("native", "ringpop"),
            message=f"dialect is 'native' or 'ringpop', not {self.dialect!r}",
        )
        _require(
            ok=0 < len(self.cluster) <= CLUSTER_CHARACTERS_MAX and self.cluster.isprintable(),
            message=f"cluster is 1 to {CLUSTER_CHARACTERS_MAX} printable characters",
        )
        if self.name is not None:
            _require(
                ok=0 < len(self.name) <= NAME_CHARACTERS_MAX and self.name.isprintable(),
                message=f"name is 1 to {NAME_CHARACTERS_MAX} printable characters",
            )
        _require(
            ok=0 < self.ring_points <= RING_POINTS_MAX,
            message=f"ring_points is 1 to {RING_POINTS_MAX}, not {self.ring_points!r}",
        )
        # The name of a service travels in one length byte, and `ringpop` is the node's own.
        service_ok = 0 < len(self.service.encode()) <= 255 and self.service != "ringpop"  # noqa: PLR2004
        _require(ok=service_ok, message="service is 1 to 255 bytes and not 'ringpop'")
        if self.app_url is not None:
            ok = _is_http_url(self.app_url)
            _require(ok=ok, message=f"app_url is http://HOST:PORT, not {self.app_url!r}")


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    printable = url.isprintable() and " " not in url
    return printable and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
