"""A plan: a cluster and what happens to it, as data.

A plan determines nothing that is random: the same plan is run with many seeds. Nodes are numbers,
counted from 0. Instants and durations are microseconds here, and seconds in files and tables.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Final, Literal, get_args

from ringpop_py.base.config.settings import PRESETS, Consistency, DialectName, GossipConfig
from ringpop_py.base.errors import ConfigError
from ringpop_py.member.swim.member import STATUS_BY_LABEL
from ringpop_py.state.placement.definition import Mode
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.expect import parse_expectation
from ringpop_sim.units import hours, minutes, ms, s

if TYPE_CHECKING:
    from collections.abc import Iterator

Nodes = tuple[int, ...]
DelayKind = Literal["uniform", "exponential", "long-tail"]
Memory = Literal["lost", "kept"]
Lies = Literal["claim", "raise", "invent", "accuse", "replay"]
ShufflerTrouble = Literal["killed", "paused", "full", "slow", "deleted"]
StoreTrouble = Literal["unknown", "full", "read-only", "slow", "cut", "disk"]

NODES_MAX: Final = 20_000
UNTIL_US_MAX: Final = 1000 * hours
DRIFT_PPM_MAX: Final = 500_000  # less than PPM, so that every clock moves on
SETTLE_US: Final = 60 * s
FOR_EVER: Final = 0
"""The duration of a fault that is never undone."""


def _require(*, ok: bool, message: str) -> None:
    if not ok:
        raise PlanError(message)


def _require_share(name: str, share: float) -> None:
    _require(ok=0.0 <= share <= 1.0, message=f"{name} must be from 0 to 1, not {share!r}")


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a message takes one way.

    ``uniform``: from *low_us* to *high_us*. ``exponential``: *low_us* plus an exponential
    distribution with mean *high_us* - *low_us*. ``long-tail``: the same with a Pareto
    distribution (shape 1.5), whose rare values are a hundred times its mean.
    """

    kind: DelayKind = "uniform"
    low_us: int = 200
    high_us: int = 900

    def __post_init__(self) -> None:
        _require(
            ok=self.kind in get_args(DelayKind),
            message=f"a delay must be {', '.join(get_args(DelayKind))}, not {self.kind!r}",
        )
        ok = 0 <= self.low_us <= self.high_us <= minutes
        _require(ok=ok, message="a delay must go from low to high, and be at most a minute")


def fixed(delay_us: int) -> Delay:
    """Return a delay that is always the same."""
    return Delay("uniform", delay_us, delay_us)


def uniform(low_us: int, high_us: int) -> Delay:
    """Return a delay that takes any value in the range equally often."""
    return Delay("uniform", low_us, high_us)


def exponential(mean_us: int) -> Delay:
    """Return a delay that is mostly short, and sometimes many times the mean."""
    return Delay("exponential", 0, mean_us)


def long_tail(mean_us: int) -> Delay:
    """Return a delay that is mostly short, and seldom very long."""
    return Delay("long-tail", 0, mean_us)


@dataclass(frozen=True, slots=True)
class Link:
    """What happens to each message between any two nodes, each way; shares are from 0 to 1."""

    loss: float = 0.0
    delay: Delay = Delay()
    duplicate: float = 0.0
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "corrupt"):
            _require_share(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests for random keys at random daemons; those of one key with one owner are half by HTTP.

    Attributes:
        keys_each: how many keys a caller asks for at a time.
        from_us: when the requests begin.
        service_us: how long a handler takes, in the mean.
        idempotent: whether a request that may have run is tried again; by HTTP, a GET always is.
        failover: how many members may handle a request (of one key): see `RequestOptions`.
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
    failover: int = 1

    def __post_init__(self) -> None:
        _require(
            ok=self.failover == 1
            or (
                1 < self.failover <= len(self.retry_schedule_us) + 1
                and self.idempotent
                and self.keys_each == 1
            ),
            message="failover is for requests of one key that are idempotent, up to as many "
            "members as there are attempts",
        )
        _require(ok=self.keys > 0, message="keys must be 1 or more")
        _require(ok=self.keys_each > 0, message="keys_each must be 1 or more")
        ok = 0 < self.per_second <= 100_000  # noqa: PLR2004
        _require(ok=ok, message="per_second must be above 0, and 100,000 at most")
        _require(ok=self.timeout_us > 0, message="the time-out of a request must be above 0")


@dataclass(frozen=True, slots=True)
class KeyspacePlan:
    """A keyspace, whose partitions all nodes may own, and clients that read and append to its keys.

    Attributes:
        keys_each: how many keys a client asks for at a time.
        from_us, after_us: when the first request is sent; how long after the last fault the last.
        timeout_us: how long a request may take in all.
        wait_us: how long an owner keeps a request for a partition that is on its way to it.
        store_read_us, store_write_us, store_list_us: how long a call of the store takes, a whole
            list of a log for example; 0: 0.5 to 3 ms, drawn.
        unserved_us: how long a partition may be unserved; 0: as long as it takes.
        actors: the share of requests that are messages to actors.
        busy_us: how long an actor works on a message at most.
        files: how many files grow that a stream reads into it; 0: there is no stream.
        rotated_us: the time between two rotations of such a file, in the mean; 0: they only grow.
        dataflow: whether a dataflow reads them as well, and writes their lines to other keys.
        expiring: the share of requests that are for keys that expire. In memory mode, copies are
            then merged by `last_writer_wins`, as these need it.
        watchers: how many programs watch it, if it is durable.
    """

    partitions: int = 8
    mode: Mode = "durable"
    strategy: str = "balanced"
    automatic: bool = True
    min_cluster_size: int = 1
    handoffs_max: int = 2
    takeovers_max: int = 16
    keys: int = 12
    keys_each: int = 2
    per_second: float = 10.0
    from_us: int = 500 * ms
    after_us: int = 5 * s
    timeout_us: int = 3 * s
    wait_us: int = 1 * s
    store_read_us: int = 0
    store_list_us: int = 0
    store_write_us: int = 0
    actors: float = 0.0
    busy_us: int = 0
    unserved_us: int = 0
    files: int = 0
    rotated_us: int = 0
    dataflow: bool = False
    expiring: float = 0.0
    watchers: int = 0

    def __post_init__(self) -> None:
        modes = ", ".join(get_args(Mode))
        _require(ok=self.mode in get_args(Mode), message=f"mode must be one of {modes}")
        for name in ("partitions", "keys", "keys_each", "handoffs_max", "takeovers_max"):
            _require(ok=getattr(self, name) > 0, message=f"{name} must be 1 or more")
        for field in fields(self):
            if field.name.endswith("_us"):
                ok = getattr(self, field.name) >= (field.name == "timeout_us")
                _require(ok=ok, message=f"{field.name} must be 0 or more, and timeout_us above 0")
        _require_share("actors", self.actors)
        _require_share("expiring", self.expiring)
        ok = 0 < self.per_second <= 100_000  # noqa: PLR2004
        _require(ok=ok, message="per_second must be above 0, and 100,000 at most")
        ok = self.files == 0 or (self.files > 0 and self.mode == "durable")
        _require(ok=ok, message="files must be 0 or more, and a stream has a durable keyspace")
        _require(ok=not self.dataflow or self.files > 0, message="a dataflow needs files")
        ok = self.watchers == 0 or (self.watchers > 0 and self.mode == "durable")
        _require(ok=ok, message="watchers must be 0 or more, and watch a durable keyspace")


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """Shuffles at all nodes: one stays, another is put, read and deleted again and again.

    Attributes:
        tasks, puts, rows: each of so many clients puts so many tables of so many rows.
        every_us: the time between two puts of a client.
        in_store: whether the second copy of each row lies in the store, and not at a replica.
    """

    intervals: int = 4
    tasks: int = 3
    puts: int = 8
    rows: int = 20
    every_us: int = 500 * ms
    in_store: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[:-1]:
            _require(ok=getattr(self, field.name) > 0, message=f"{field.name} must be above 0")


OPERATIONS: Final[dict[str, type[Operation]]] = {}
"""The operations by their kinds, in the order of this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation on the cluster *at_us*, which is undone *for_us* later (0: never).

    Its *kind* is the name of its class, unless that gives another.
    """

    kind: ClassVar[str]

    at_us: int
    for_us: int = FOR_EVER

    def __init_subclass__(cls, kind: str = "") -> None:
        """Add the kind, or replace it: a class with slots is made anew."""
        known = getattr(cls, "kind", None)
        cls.kind = kind or known or cls.__name__.lower()
        OPERATIONS[cls.kind] = cls

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith(("loss", "duplicate", "corrupt")):
                _require_share(f"{self.kind}: {field.name}", value)
            if field.name.endswith("_us") and field.name != "clock_us":  # a clock may be set back
                _require(ok=value >= 0, message=f"{self.kind}: {field.name} must be 0 or more")

    @property
    def until_us(self) -> int:
        """When the operation is undone; when it begins, if it is never undone."""
        return self.at_us + self.for_us

    @property
    def over_at_us(self) -> int:
        """When the operation is undone for the last of its nodes."""
        stagger_us = getattr(self, "stagger_us", 0)
        count = len(getattr(self, "nodes", ()))
        return self.until_us + stagger_us * max(0, count - 1)

    def nodes_named(self) -> Iterator[int]:
        """Yield all nodes that the operation names."""
        for field in fields(self):
            value = getattr(self, field.name)
            # Not `listed`: a hosts list does not disturb the nodes that it names.
            if field.name in ("nodes", "left", "right"):
                yield from value
            elif field.name == "about" or (field.name == "beside" and value is not None):
                yield value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Operation):
    """Block messages between *left* and *right*; *one_way*: only those from left to right.

    With *refuse*, connections are refused instead, as some firewalls do.
    """

    left: Nodes
    right: Nodes
    one_way: bool = False
    refuse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Impair(Operation):
    """Make the links of *nodes* bad; with *flip_us*, alternately on and off for that long."""

    nodes: Nodes
    loss_in: float = 0.0
    loss_out: float = 0.0
    delay_us: int = 0
    duplicate: float = 0.0
    corrupt: float = 0.0
    flip_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(Operation):
    """Make *nodes* act *by_us* late on all messages and timers."""

    nodes: Nodes
    by_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Operation):
    """Stop *nodes* as SIGSTOP does; messages that arrive meanwhile wait."""

    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(Operation):
    """Kill *nodes*, one each *stagger_us*; each is restarted *for_us* after it was killed.

    Attributes:
        silent: as by a loss of power: no connection is closed or refused.
        memory: ``kept``: the process continues with its memory, as a machine does that is
            restored from a snapshot.
        clock_us: how much the node's wall clock is off from then on.
        moves: whether the node is restarted at a new address.
    """

    nodes: Nodes
    silent: bool = False
    memory: Memory = "lost"
    clock_us: int = 0
    stagger_us: int = 0
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Operation):
    """End *nodes* gracefully, one each *stagger_us*; each is restarted *for_us* later."""

    nodes: Nodes
    stagger_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Operation):
    """Start *nodes* at that time, one each *stagger_us*, instead of at the beginning."""

    nodes: Nodes
    stagger_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover(Operation):
    """Kill *about*, and start a process with a new name at its address."""

    about: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin(Operation):
    """Start a second process with the name of *about* at a new address; end it *for_us* later.

    Attributes:
        again_us: how often a supervisor checks whether the process still runs, and restarts it at
            its address if not; 0: never.
        beside: the node whose cuts it shares: what is cut off from this node is cut off from it.
    """

    about: int
    again_us: int = 0
    beside: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(Operation):
    """Make *nodes* leave the ring by command, and come back *for_us* later."""

    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Operation):
    """Make *nodes* give their keys and partitions away, and take them back *for_us* later."""

    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Away(Operation):
    """Make the applications beside *nodes* be away, and come back *for_us* later."""

    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class FailStore(Operation, kind="store"):
    """Make the store of the keyspace fail for *nodes*, or for all if there are none.

    Attributes:
        how: ``unknown``: some calls fail, and their puts may still take place, also later.
            ``full``: it refuses puts. ``read-only``: puts fail. ``slow``. ``cut``: all calls fail.
            ``disk``: the store works, and the disk where a node has its states is full.
    """

    nodes: Nodes = ()
    how: StoreTrouble = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailShuffler(Operation, kind="shuffler"):
    """Have trouble with the processes for shuffles beside *nodes*, which go on.

    Attributes:
        how: ``killed``, and started again by the node; ``paused``; ``full`` or ``slow``: their
            disk is; ``deleted``: a file of theirs is.
    """

    nodes: Nodes
    how: ShufflerTrouble = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(Operation):
    """Have *nodes* spread the partitions of a keyspace whose partitions move by hand."""

    nodes: Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock(Operation):
    """Make the clocks of *nodes* run fast (or slow) by *drift_ppm* millionths."""

    nodes: Nodes
    drift_ppm: int

    def __post_init__(self) -> None:
        Operation.__post_init__(self)
        ok = abs(self.drift_ppm) <= DRIFT_PPM_MAX
        _require(ok=ok, message=f"drift_ppm must be {DRIFT_PPM_MAX} millionths at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump(Operation):
    """Set the wall clocks of *nodes* forward by *clock_us* (or back), which whole daemons see."""

    nodes: Nodes
    clock_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery(Operation):
    """Make *nodes* find only *listed* as seeds, and *strangers*: addresses without a process."""

    nodes: Nodes
    listed: Nodes = ()
    strangers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rumour(Operation):
    """Send *nodes* a forged row: *about* is *status* in its present incarnation.

    With *cluster* the sender is of another cluster of that name. With *elsewhere* the row says
    that *about* is at an address without a process (no effect where a name is an address).
    """

    nodes: Nodes
    about: int
    status: str = "faulty"
    cluster: str = ""
    elsewhere: bool = False

    def __post_init__(self) -> None:
        Operation.__post_init__(self)
        known = ", ".join(STATUS_BY_LABEL)
        ok = self.status in STATUS_BY_LABEL
        _require(ok=ok, message=f"status must be one of {known}, not {self.status!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie(Operation):
    """Have the member *about* tell *nodes* lies about all others, five times a second.

    ``claim``: they have moved, to the liar or to an address without a process. ``raise``: they are
    faulty, in incarnations ahead of theirs. ``invent``: there are members that no node has seen.
    ``accuse``: they are suspect, or faulty. ``replay``: rows that were true once.
    """

    nodes: Nodes
    about: int
    lie: Lies = "accuse"

    def __post_init__(self) -> None:
        Operation.__post_init__(self)
        known = ", ".join(get_args(Lies))
        _require(
            ok=self.lie in get_args(Lies), message=f"lie must be one of {known}, not {self.lie!r}"
        )


_NEEDED: Final = (
    (FailStore, "keyspace"),
    (FailStore, "shuffle"),
    (FailShuffler, "shuffle"),
    (Rebalance, "keyspace"),
)
"""The tables of a plan, of which an operation needs one to have an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A cluster and what happens to it.

    Attributes:
        seeds: how many of the first nodes are in every node's hosts file; 0: all.
        settings: those of `GossipConfig` that differ from *preset*.
        settle_us: how long the cluster may take to converge after the last fault, at least.
        calm_us: if not 0, the plan ends early, once the cluster has converged after the last fault
            and stayed so for that long: more time would show nothing new.
        codec_share: the share of messages that pass through the real codec.
        whole: whether whole daemons run it (`ringpop_sim.whole`), and not only their nodes; with
            traffic, a keyspace or shuffles they always do.
        expect: what must be true at the end beside the invariants, see `plans.expect`.
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
    whole: bool = False
    traffic: Traffic | None = None
    keyspace: KeyspacePlan | None = None
    shuffle: ShufflePlan | None = None
    expect: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        ok = 1 <= self.nodes <= NODES_MAX
        _require(ok=ok, message=f"a plan has 1 to {NODES_MAX} nodes, not {self.nodes!r}")
        ok = 0 < self.until_us <= UNTIL_US_MAX
        _require(ok=ok, message="a plan must last more than 0 s, and 1000 hours at most")
        _require(ok=self.preset in PRESETS, message=f"preset must be one of {', '.join(PRESETS)}")
        names = get_args(DialectName)
        _require(ok=self.dialect in names, message=f"dialect must be one of {', '.join(names)}")
        _require_share("codec_share", self.codec_share)
        self.gossip()  # for its errors: now, not in the middle of a run
        for number, operation in enumerate(self.operations):
            wrong = [node for node in operation.nodes_named() if not 0 <= node < self.nodes]
            where = f"operation {number} ({operation.kind})"
            _require(
                ok=not wrong,
                message=f"{where}: there is no node {wrong[:1]}; nodes are 0 to {self.nodes - 1}",
            )
            _require(
                ok=operation.at_us <= self.until_us,
                message=f"{where}: it begins after the plan has ended",
            )
            needed = [name for kind, name in _NEEDED if isinstance(operation, kind)]
            _require(
                ok=not needed or any(getattr(self, name) is not None for name in needed),
                message=f"{where}: it has an effect only in plans with a {' or '.join(needed)}",
            )
        self._check_expectations()

    def _check_expectations(self) -> None:
        for text in self.expect:
            wrong = [node for node in parse_expectation(text).nodes if node >= self.nodes]
            _require(ok=not wrong, message=f"expect: {text!r}: there is no node {wrong[:1]}")

    def gossip(self) -> GossipConfig:
        """Return the settings of the nodes. Raises PlanError."""
        known = {field.name for field in fields(GossipConfig)}
        unknown = [name for name, _ in self.settings if name not in known]
        _require(ok=not unknown, message=f"no such setting: {', '.join(unknown)}")
        try:
            return replace(PRESETS[self.preset], **dict(self.settings))  # type: ignore[arg-type]
        except ConfigError as error:
            raise PlanError(str(error)) from None

    @property
    def is_whole(self) -> bool:
        """Whether whole daemons run it."""
        more = self.keyspace, self.shuffle, self.traffic
        return self.whole or any(each is not None for each in more)

    @property
    def quiet_at_us(self) -> int:
        """When the last fault ends."""
        return max((o.over_at_us for o in self.operations), default=0)
