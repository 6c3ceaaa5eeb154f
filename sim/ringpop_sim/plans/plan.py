"""A plan: what a cluster is, and what is done to it, as data.

A plan says nothing of chance: the same plan is run with many seeds. Nodes are numbers, counted
from 0; instants and durations are microseconds, in files and tables seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Final, Literal, get_args

from ringpop_py.config.settings import PRESETS, Consistency, DialectName, GossipConfig
from ringpop_py.errors import ConfigError
from ringpop_py.swim.member import STATUS_BY_LABEL
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.expect import parse_expectation
from ringpop_sim.units import hours, minutes, ms, s

if TYPE_CHECKING:
    from collections.abc import Iterator

Nodes = tuple[int, ...]
DelayKind = Literal["uniform", "exponential", "long-tail"]
Memory = Literal["lost", "kept"]

NODES_MAX: Final = 20_000
UNTIL_US_MAX: Final = 1000 * hours
DRIFT_PPM_MAX: Final = 500_000
SETTLE_US: Final = 60 * s
FOR_EVER: Final = 0
"""The duration of what is never undone."""


def _require(*, ok: bool, message: str) -> None:
    if not ok:
        raise PlanError(message)


def _require_share(name: str, share: float) -> None:
    _require(ok=0.0 <= share <= 1.0, message=f"{name} is from 0 to 1, not {share!r}")


@dataclass(frozen=True, slots=True)
class Delay:
    """How long one message takes on its way.

    ``uniform``: from *low_us* to *high_us*. ``exponential``: *low_us*, and beyond that an
    exponential distribution of mean *high_us* - *low_us*. ``long-tail``: the same with a Pareto
    distribution (shape 1.5), whose rare values are a hundred times its mean.
    """

    kind: DelayKind = "uniform"
    low_us: int = 200
    high_us: int = 900

    def __post_init__(self) -> None:
        _require(
            ok=self.kind in get_args(DelayKind),
            message=f"a delay is {', '.join(get_args(DelayKind))}, not {self.kind!r}",
        )
        ok = 0 <= self.low_us <= self.high_us <= minutes
        _require(ok=ok, message="a delay goes from low to high, at most a minute")


def fixed(delay_us: int) -> Delay:
    """Always the same."""
    return Delay("uniform", delay_us, delay_us)


def uniform(low_us: int, high_us: int) -> Delay:
    """Anything in between."""
    return Delay("uniform", low_us, high_us)


def exponential(mean_us: int) -> Delay:
    """Mostly short, sometimes many times the mean."""
    return Delay("exponential", 0, mean_us)


def long_tail(mean_us: int) -> Delay:
    """Mostly short, seldom very long."""
    return Delay("long-tail", 0, mean_us)


@dataclass(frozen=True, slots=True)
class Link:
    """What befalls each message between any two nodes, each way; shares are from 0 to 1."""

    loss: float = 0.0
    delay: Delay = Delay()
    duplicate: float = 0.0
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "corrupt"):
            _require_share(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests for random keys at random nodes, brought to their owners by the product's routes.

    Attributes:
        keys_each: how many keys a caller has at a time; those of one owner are one request.
        from_us: when they begin.
        service_us: how long an owner's handler takes.
        idempotent: whether what may have run is tried again.
    """

    keys: int = 1000
    keys_each: int = 1
    per_second: float = 100.0
    from_us: int = 0
    retry_schedule_us: tuple[int, ...] = (0, 1 * s, 3_500 * ms)
    timeout_us: int = 2 * s
    service_us: int = 0
    idempotent: bool = False
    consistency: Consistency = "keys"

    def __post_init__(self) -> None:
        _require(ok=self.keys > 0, message="traffic has one key or more")
        _require(ok=self.keys_each > 0, message="a request of the traffic has one key or more")
        ok = 0 < self.per_second <= 100_000  # noqa: PLR2004
        _require(ok=ok, message="traffic has 0 to 100,000 requests per second")
        _require(ok=self.timeout_us > 0, message="a request's time-out is above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something done to the cluster *at_us*, and undone *for_us* later (0: never)."""

    kind: ClassVar[str]
    disturbs: ClassVar[bool] = True

    at_us: int
    for_us: int = FOR_EVER

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith(("loss", "duplicate", "corrupt")):
                _require_share(f"{self.kind}: {field.name}", value)
            if field.name.endswith("_us") and field.name != "clock_us":
                _require(ok=value >= 0, message=f"{self.kind}: {field.name} is 0 or more")

    @property
    def until_us(self) -> int:
        """When it is undone, or, if it never is, when it begins."""
        return self.at_us + self.for_us

    @property
    def over_at_us(self) -> int:
        """When it is undone for the last of its nodes."""
        stagger_us = getattr(self, "stagger_us", 0)
        count = len(getattr(self, "nodes", ()))
        return self.until_us + stagger_us * max(0, count - 1)

    def nodes_named(self) -> Iterator[int]:
        """All nodes that it speaks of."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("nodes", "left", "right"):
                yield from value
            elif field.name == "about" or (field.name == "beside" and value is not None):
                yield value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Operation):
    """Let nothing through between *left* and *right*; *one_way*: from left to right only.

    With *refuse*, connections are refused instead, as some firewalls do.
    """

    kind: ClassVar[str] = "cut"
    left: Nodes
    right: Nodes
    one_way: bool = False
    refuse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Impair(Operation):
    """Make the links of *nodes* bad; with *flip_us*, on and off in turns of that length."""

    kind: ClassVar[str] = "impair"
    nodes: Nodes
    loss_in: float = 0.0
    loss_out: float = 0.0
    delay_us: int = 0
    duplicate: float = 0.0
    corrupt: float = 0.0
    flip_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(Operation):
    """Have *nodes* act on all that arrives, and on their timers, *by_us* late."""

    kind: ClassVar[str] = "slow"
    nodes: Nodes
    by_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Operation):
    """Stop *nodes* as SIGSTOP does; what arrives meanwhile waits."""

    kind: ClassVar[str] = "pause"
    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(Operation):
    """Kill *nodes*, one each *stagger_us*; each is started again *for_us* after it was killed.

    Attributes:
        silent: as a loss of power: nobody is told, connections are not refused.
        memory: ``kept``: it goes on as it was, as a machine restored from a snapshot does.
        clock_us: how much its wall clock is off from then on.
        moves: it is started again at a new address.
    """

    kind: ClassVar[str] = "crash"
    nodes: Nodes
    silent: bool = False
    memory: Memory = "lost"
    clock_us: int = 0
    stagger_us: int = 0
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Operation):
    """End *nodes* gracefully, one each *stagger_us*; each is started again *for_us* later."""

    kind: ClassVar[str] = "stop"
    nodes: Nodes
    stagger_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Operation):
    """Start *nodes* only then, one each *stagger_us*, instead of at the beginning."""

    kind: ClassVar[str] = "start"
    disturbs: ClassVar[bool] = True
    nodes: Nodes
    stagger_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover(Operation):
    """Kill *about* and start a process with a new name at its address; *nodes* is not used."""

    kind: ClassVar[str] = "takeover"
    about: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin(Operation):
    """Start a second process under the name of *about*, at a new address; end it *for_us* later.

    Attributes:
        again_us: so often somebody looks whether it still runs, and starts it again at its address
            if not, as a supervisor does; 0: never.
        beside: the node by which it stands: what is cut off from the one is cut off from the other.
    """

    kind: ClassVar[str] = "twin"
    about: int
    again_us: int = 0
    beside: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(Operation):
    """Have *nodes* leave the ring, and come back *for_us* later."""

    kind: ClassVar[str] = "leave"
    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock(Operation):
    """Have the clocks of *nodes* run fast (or slow) by *drift_ppm* millionths."""

    kind: ClassVar[str] = "clock"
    nodes: Nodes
    drift_ppm: int

    def __post_init__(self) -> None:
        Operation.__post_init__(self)
        ok = abs(self.drift_ppm) <= DRIFT_PPM_MAX
        _require(ok=ok, message=f"a clock drifts by {DRIFT_PPM_MAX} millionths at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery(Operation):
    """Have *nodes* find only *listed* as seeds, and *strangers* addresses of nobody."""

    kind: ClassVar[str] = "discovery"
    nodes: Nodes
    listed: Nodes = ()
    strangers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rumour(Operation):
    """Tell *nodes*, out of the blue, that *about* is *status* in its present incarnation.

    With *cluster* a node of another cluster of that name says so; with *elsewhere*, that it
    is at an address where no process is (without effect where a name is an address).
    """

    kind: ClassVar[str] = "rumour"
    nodes: Nodes
    about: int
    status: str = "faulty"
    cluster: str = ""
    elsewhere: bool = False

    def __post_init__(self) -> None:
        Operation.__post_init__(self)
        known = ", ".join(STATUS_BY_LABEL)
        ok = self.status in STATUS_BY_LABEL
        _require(ok=ok, message=f"a status is one of {known}, not {self.status!r}")


OPERATIONS: Final[dict[str, type[Operation]]] = {
    kind.kind: kind
    for kind in (
        Cut,
        Impair,
        Slow,
        Pause,
        Crash,
        Stop,
        Start,
        Takeover,
        Twin,
        Leave,
        Clock,
        Discovery,
        Rumour,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A cluster, and what is done to it.

    Attributes:
        seeds: how many of the first nodes are in everybody's hosts file; 0: all.
        settings: of `GossipConfig`, over those of *preset*.
        settle_us: how long after the last fault the cluster has to be one again.
        calm_us: if not 0, it ends as soon as the cluster has become one again after the last
            fault, and still is one so long after: what would come then is more of the same.
        codec_share: which share of the messages passes through the real codec.
        expect: what is to be true in the end besides the invariants, see `plans.expect`.
    """

    name: str = "plan"
    about: str = ""
    nodes: int = 8
    until_us: int = 60 * s
    settle_us: int = SETTLE_US
    calm_us: int = 0
    dialect: DialectName = "native"
    preset: str = "lan"
    settings: tuple[tuple[str, float | int | bool], ...] = ()
    seeds: int = 0
    link: Link = Link()
    codec_share: float = 0.05
    traffic: Traffic | None = None
    expect: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        ok = 1 <= self.nodes <= NODES_MAX
        _require(ok=ok, message=f"a plan has 1 to {NODES_MAX} nodes, not {self.nodes!r}")
        ok = 0 < self.until_us <= UNTIL_US_MAX
        _require(ok=ok, message="a plan lasts more than 0 s, and 1000 hours at most")
        _require(ok=self.preset in PRESETS, message=f"preset is one of {', '.join(PRESETS)}")
        names = get_args(DialectName)
        _require(ok=self.dialect in names, message=f"dialect is one of {', '.join(names)}")
        _require_share("codec_share", self.codec_share)
        self.gossip()
        for number, operation in enumerate(self.operations):
            wrong = [node for node in operation.nodes_named() if not 0 <= node < self.nodes]
            where = f"operation {number} ({operation.kind})"
            _require(
                ok=not wrong,
                message=f"{where}: there is no node {wrong[:1]}, they are 0 to {self.nodes - 1}",
            )
            _require(
                ok=operation.at_us <= self.until_us,
                message=f"{where}: it begins after the plan has ended",
            )
        self._check_expectations()

    def _check_expectations(self) -> None:
        for text in self.expect:
            wrong = [node for node in parse_expectation(text).nodes if node >= self.nodes]
            _require(ok=not wrong, message=f"expect: {text!r}: there is no node {wrong[:1]}")

    def gossip(self) -> GossipConfig:
        """The nodes' timing. Raises PlanError."""
        known = {field.name for field in fields(GossipConfig)}
        unknown = [name for name, _ in self.settings if name not in known]
        _require(ok=not unknown, message=f"no such setting: {', '.join(unknown)}")
        try:
            return replace(PRESETS[self.preset], **dict(self.settings))  # type: ignore[arg-type]
        except ConfigError as error:
            raise PlanError(str(error)) from None

    @property
    def quiet_at_us(self) -> int:
        """When the last of what disturbs the cluster is over."""
        return max((o.over_at_us for o in self.operations if o.disturbs), default=0)
