"""Ringpop: one member of a cluster inside this process, as an application sees it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar, Unpack, assert_never

import trio

from ringpop_py.discovery.seeds import Seeds
from ringpop_py.errors import HostsFileError, JoinRefused, NameLost
from ringpop_py.keyspaces.on_demand import KeyspacesOnDemand
from ringpop_py.logs import log
from ringpop_py.node.driver import NodeDriver
from ringpop_py.node.end import Ending
from ringpop_py.node.events import EventLog, Told
from ringpop_py.node.load import LoadReport
from ringpop_py.proxy.application import Application
from ringpop_py.proxy.forward import Proxy
from ringpop_py.proxy.owners import RingOwners
from ringpop_py.proxy.receive import ProxyServer
from ringpop_py.proxy.request import Handler
from ringpop_py.ring.placement import Placement
from ringpop_py.swim import effects as fx
from ringpop_py.swim.member import (
    DRAINING,
    LOAD_LABEL,
    Labels,
    Member,
    Status,
    checked_labels,
    relabelled,
)
from ringpop_py.swim.records import (
    is_fact,
    printable,
    record_of,
    record_of_burst,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.address import Address
    from ringpop_py.columns.batches import BatchFunction
    from ringpop_py.config.settings import Config
    from ringpop_py.keyed.aggregations import Aggregation
    from ringpop_py.keyspaces.keyspace import Keyspace
    from ringpop_py.keyspaces.registry import Keyspaces
    from ringpop_py.keyspaces.stored import OpenedStore
    from ringpop_py.placing.definition import Settings
    from ringpop_py.proxy.request import AnyReply, AnyRequest, OwnerReply, RequestOptions
    from ringpop_py.swim.node import Node
    from ringpop_py.swim.records import Record
    from ringpop_py.transport.channel import Channel

H = TypeVar("H", bound=Handler)
A = TypeVar("A", bound="Aggregation")
RECONCILE_S_MAX: Final = 0.1
STRANGER: Final = "stranger"
CHANGES_LOGGED_MAX: Final = 50
"""More changes of members than this that come together are logged as one line."""
CLOCK_DIFFERS_S: Final = 10.0
"""A difference of clocks, in seconds, from which on a peer is warned of."""
TIME_CHARACTERS_MAX: Final = 16

_LEVELS: Final[dict[type, str]] = {
    fx.Refuted: "warning",
    fx.Stalled: "warning",
    fx.NameTaken: "warning",
    fx.DampVoted: "info",
    fx.Ready: "info",
}
"""How loud facts are; those that are not here are for debugging."""


@dataclass(frozen=True, slots=True)
class HealReport:
    """What `Ringpop.heal` has done.

    Attributes:
        targets: the addresses that were reached, of those at which we know no reachable member.
        merged: those of them whose list and ours are one now; the others have to refute first.
        failed: the addresses that were tried and gave no list.
        hosts_trouble: why the hosts could not be read, so that those known before were tried;
            empty if they were read.
    """

    targets: tuple[Address, ...]
    merged: tuple[Address, ...]
    failed: tuple[Address, ...]
    hosts_trouble: str


class Ringpop:
    """One member of a cluster, inside this process. Made by `open_ringpop`.

    Attributes:
        on_debug: called to log more, or as much as before (`ringpopd` sets it).
        on_end: called when an operator wants this process to end; while it is None,
            operators cannot end the process.
    """

    def __init__(
        self, config: Config, channel: Channel, node: Node, store: OpenedStore | None = None
    ) -> None:
        self.config = config
        self.channel = channel
        self.node = node
        self.started_at = time.time()
        self.http_address: Address | None = None
        self._placement = Placement(node)
        self.ring = self._placement.ring
        self.events = EventLog()
        self.driver = NodeDriver(node, channel, self._observe)
        self.seeds = Seeds(config.hosts, config.hosts_file, self._hosts_read)
        self.application = Application(node.local.name, config.proxy, config.app_url)
        self.proxying = Proxy(
            channel,
            self.application,
            RingOwners(self.name, lambda: self.ring, self._reconcile, config.proxy.consistency),
            service=config.service,
            address_of=self.address_of,
        )
        ProxyServer(channel, self.proxying)
        self.load = LoadReport(self._tell_load)
        self.on_debug: Callable[[bool], None] = _ignore_debug
        self.on_end: Callable[[], None] | None = None
        self._observers: list[Callable[[fx.Effect], None]] = []
        self._changed = trio.Event()
        self._ready = trio.Event()
        self._healed: deque[fx.Healed] = deque(maxlen=1)
        self._refused: JoinRefused | None = None
        self.name_lost: NameLost | None = None
        self.on_name_lost: Callable[[], None] = _do_nothing
        self._told = Told()
        self.keyspaces_on_demand = KeyspacesOnDemand(self, store)
        self.driver.digest = lambda: self.keyspaces_on_demand.digest
        self.ending = Ending(
            node,
            self.driver,
            channel,
            proxying=self.proxying,
            keyspaces=self.keyspaces_on_demand,
            timeout_s=config.drain_timeout_s,
        )
        self._observers.append(self.ending.observe)

    # Who is there.

    @property
    def name(self) -> str:
        """Our name; in the ringpop dialect, our address."""
        return self.node.local.name

    @property
    def address(self) -> Address:
        """Where others reach us."""
        return self.node.local.address

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self.node.ready

    @property
    def members(self) -> tuple[Member, ...]:
        """All rows of the member list, ourselves among them, by name."""
        return tuple(sorted(self.node.members, key=lambda member: member.name))

    @property
    def checksum(self) -> int:
        """The membership checksum: equal on two nodes that see the same cluster."""
        return self.node.members.checksum

    def status_of(self, name: str) -> Status | None:
        """The status of the member *name*, if there is such a member."""
        member = self.node.members.get(name)
        return member.status if member is not None else None

    def address_of(self, name: str) -> Address | None:
        """Where the member *name* listens, if there is such a member."""
        member = self.node.members.get(name)
        return member.address if member is not None else None

    def lookup(self, key: str) -> str:
        """The name of the member that owns *key*. Raises NoOwner."""
        return self.ring.lookup(key)

    def lookup_n(self, key: str, n: int) -> tuple[str, ...]:
        """The names of up to *n* members, the owner of *key* first, then its successors."""
        return self.ring.lookup_n(key, n)

    async def wait_until(self, condition: Callable[[Ringpop], bool]) -> None:
        """Return once *condition* holds; it is looked at after each change of a member."""
        while not condition(self):
            await self._changed.wait()

    def observe(self, observer: Callable[[fx.Effect], None]) -> None:
        """Have *observer* told each fact of the protocol, as it happens.

        It must not block. What it raises is logged, and disturbs nobody. When it is told of a
        change, the member list and the ring have all changes that came with the same message.
        """
        self._observers.append(observer)

    # Requests.

    def handler(self, endpoint: str) -> Callable[[H], H]:
        """Decorate a function or coroutine function to serve *endpoint*."""

        def add(handler: H) -> H:
            self.application.add_handler(endpoint, handler)
            return handler

        return add

    def batch_handler(
        self, endpoint: str, *, key: str, answers: bool = False
    ) -> Callable[[BatchFunction], BatchFunction]:
        """Decorate a function to take in Arrow batches routed by the column *key*.

        It is called with a `pyarrow.RecordBatch` of the rows that this node owns and has not
        had before (see `ringpop_py.columns.batches`), and returns nothing.

        With *answers* it returns a `pyarrow.RecordBatch` to these rows, of any length, and is
        called as often as it is asked (`ringpop_py.spark.route_answers`): it should change nothing,
        or nothing that matters twice.
        """
        from ringpop_py.columns.batches import BatchReceiver  # noqa: PLC0415 - pyarrow is an extra

        def add(function: BatchFunction) -> BatchFunction:
            receiver = BatchReceiver(
                function, key, local=self.name, ring=lambda: self.ring, answers=answers
            )
            self.application.add_handler(endpoint, receiver)
            return function

        return add

    async def handle_or_proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> AnyReply | None:
        """None: this node owns *key*, handle it here. Else the owner's reply.

        See `ringpop_py.proxy.forward.Proxy.handle_or_proxy`, also for what it raises.
        """
        return await self.proxying.handle_or_proxy(key, request, **options)

    async def handle_or_proxy_all(
        self,
        keys: Iterable[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> list[OwnerReply]:
        """`handle_or_proxy` for each owner of some of *keys*, all at once."""
        return await self.proxying.handle_or_proxy_all(keys, request, **options)

    async def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """The owner's reply, also where the owner is this node."""
        return await self.proxying.proxy(key, request, **options)

    # Keyed state.

    @property
    def keyspaces(self) -> Keyspaces:
        """All keyspaces, as this node knows them; their code is loaded when this is first used."""
        return self.keyspaces_on_demand.get()

    async def open_keyspace(self, name: str, **settings: Unpack[Settings]) -> Keyspace:
        """The keyspace *name*, created with these *settings* unless it is there.

        Without *settings* it is the one that exists, however it was created.

        Args:
            settings: see `ringpop_py.placing.definition.Definition`.

        Raises:
            ConfigError: a setting cannot be used, or this node has no store for a durable one.
            KeyspaceConflict: it exists, and was created with other settings.
            KeyspaceUnknown: it does not exist, and no settings were given.
            StoreUnavailable: the store did not answer.
        """
        if not settings:
            return await self.keyspaces.get(name)
        from ringpop_py.placing.definition import Definition  # noqa: PLC0415 - on demand

        return await self.keyspaces.open(Definition(name=name, **settings))

    def aggregation(self, name: str) -> Callable[[A], A]:
        """Decorate a function of the value of a key (or ABSENT) and an argument to be *name*.

        `Keyspace.update` can then name it, for keys that this node owns: so register it on all. It
        runs once, at the owner; what it returns is kept. See `ringpop_py.keyed.aggregations`.

        Raises:
            ConfigError: there is one of that name.
        """

        def add(function: A) -> A:
            self.keyspaces.aggregations.register(name, function)
            return function

        return add

    # Membership, by hand.

    def leave(self) -> None:
        """Leave the ring; go on serving and gossiping until `rejoin`."""
        self.driver.submit(self.node.leave)

    def rejoin(self) -> None:
        """Come back after `leave`; without effect once the node ends."""
        if not self.ending.begun:
            self.driver.submit(self.node.rejoin)

    def drain(self) -> None:
        """Own nothing any longer, but go on serving, until `undrain`. A label of ours says so.

        Unlike after `leave`, we stay a member whose failure is noticed. In the ringpop dialect the
        label would mean nothing to others, so there this is `leave`.
        """
        self.ending.drain()

    def undrain(self) -> None:
        """Own keys again after `drain`; without effect once the node ends."""
        self.ending.undrain()

    def set_labels(self, labels: Labels) -> None:
        """Replace the application's labels, also those of `drain` and `set_load`.

        Those that are the node's own stay: keys that begin with ``__`` or ``ringpop.``.

        Raises:
            ConfigError: beyond their limits, or one has such a key (and is not as it is held).
        """
        if self.ending.begun and self.node.dialect.extends:
            labels = (*(label for label in labels if label[0] != DRAINING[0]), DRAINING)
        checked = relabelled(self.node.local.labels, labels)
        self.driver.submit(lambda now: self.node.set_labels(checked, now))

    def set_own_label(self, key: str, value: str | None) -> None:
        """Set a label that is the node's own, or take it away; of *key* see `OWN_PREFIXES`."""

        def set_it(now: int) -> list[fx.Effect]:
            held = self.node.local.labels
            labels = tuple(label for label in held if label[0] != key)
            if value is not None:
                labels = tuple(sorted([*labels, (key, value)]))
            return self.node.set_labels(labels, now) if labels != held else []

        self.driver.submit(set_it)

    def set_load(self, load: float) -> None:
        """Say how busy the application is, from 0 (idle) to 1 (busy); `Member.load` shows it.

        It travels as a label, ``load``, in hundredths, and changes once in ten seconds at most.

        Raises:
            ConfigError: it is out of range, or there are as many labels as there may be.
        """
        checked_labels(self._labels_with_load("0"))
        self.load.set(load)

    def _labels_with_load(self, text: str) -> Labels:
        others = [(key, value) for key, value in self.node.local.labels if key != LOAD_LABEL]
        return tuple(sorted([*others, (LOAD_LABEL, text)]))

    def _tell_load(self, text: str) -> None:
        self.driver.submit(lambda now: self.node.set_labels(self._labels_with_load(text), now))

    def reload_hosts(self) -> int:
        """Read the hosts file again and ask who is new there. Returns how many hosts there are.

        It is also read by itself, before each later round of joins and each try to heal.

        Raises:
            HostsFileError: it cannot be used; the hosts known before stay in force.
        """
        if self.config.hosts_file is None:
            message = "this node was started without a hosts file"
            raise HostsFileError(message)
        hosts = self.seeds.read()
        self._hosts_read(hosts)
        return len(hosts)

    def _hosts_read(self, hosts: tuple[Address, ...]) -> None:
        self.driver.submit(lambda now: self.node.hosts_read(hosts, now))

    async def heal(self) -> HealReport:
        """Read the hosts, look for sides of a split among them, and merge with those found.

        Two runs may be needed for a full split: the first has each side refute what the other
        believes, the second exchanges the lists. It also runs by itself, from time to time.
        """
        trouble = await self.seeds.refresh()
        # A run that is open began with the hosts as they were.
        await self.wait_until(lambda ringpop: not ringpop.node.healing)
        self._healed.clear()
        self.driver.submit(self.node.heal)
        await self.wait_until(lambda ringpop: bool(ringpop._healed))  # noqa: SLF001 - our own
        run = self._healed[-1]
        return HealReport(run.targets, run.merged, run.failed, trouble)

    async def end(self) -> None:
        """End this member in good order; leaving the block of `open_ringpop` does so, too.

        It leaves the ring, hands its partitions over, and goes on serving and forwarding. Then it
        declines new work (callers go elsewhere), waits for what is under way, tells the others
        that it leaves, and closes all connections. After `Config.drain_timeout_s` it waits no
        longer, and logs what it cuts; it does so immediately if this is cancelled. Leaving the
        block then ends the member without waiting for what is under way.

        A second call waits for the first. Afterwards nothing can be asked of this node.
        """
        await self.ending.run()

    async def wait_ready(self) -> None:
        """Return once the first join is done.

        Raises:
            JoinRefused: every host that answered refuses this node as it is configured.
            NameLost: another process has our name.
        """
        await self._ready.wait()
        if self.name_lost is not None:
            raise self.name_lost
        if self._refused is not None:
            raise self._refused

    def debug(self, *, on: bool) -> None:
        """Log more, or as much as before; how, is up to whoever set up logging (`on_debug`)."""
        self.on_debug(on)

    async def _reconcile(self, owner: str, keys: Sequence[str]) -> None:
        """*owner* refused *keys*, so our views differ: exchange them, and wait a moment for it.

        Without this the first retry, which comes at once, would meet the same refusal.
        """
        if not self.node.dialect.pings_out_of_turn:
            return
        self.driver.submit(lambda now: self.node.exchange(owner, now))

        def moved(ringpop: Ringpop) -> bool:
            ring = ringpop.ring
            return not len(ring) or any(ring.lookup(key) != owner for key in keys)

        with trio.move_on_after(RECONCILE_S_MAX):
            await self.wait_until(moved)

    # Facts.

    def _observe(self, effects: Sequence[fx.Effect]) -> None:
        """Take in what came of one message, or of one instant.

        The member list has all of it already. So has the ring, before an observer gets the
        first change.
        """
        changes = [effect for effect in effects if isinstance(effect, fx.StatusChanged)]
        if changes:
            self._placement.follow([change.member.name for change in changes])
            self.ring = self._placement.ring
        is_burst = len(changes) > CHANGES_LOGGED_MAX
        if is_burst:
            self._log_burst(changes)
        for effect in effects:
            self._follow(effect)
            self._tell(effect, is_burst=is_burst)
            for observer in self._observers:
                try:
                    observer(effect)
                except Exception:
                    log.exception("an observer failed", effect=type(effect).__name__)
        self._changed.set()
        self._changed = trio.Event()

    def _follow(self, effect: fx.Effect) -> None:
        """Do what *effect* asks for, here."""
        match effect:
            case fx.Ready():
                self._ready.set()
            case fx.JoinRejected(address, reason, fatal=True):
                self._refused = JoinRefused(f"{address} refuses this node: {reason}")
                self._ready.set()
            case fx.NameTaken(lost=True):
                self.name_lost = NameLost(_how_lost(effect, joined=self.ready))
                self._ready.set()
                self.on_name_lost()
            case fx.Healed(is_run=True):
                self._healed.append(effect)
            case fx.HostsWanted():
                self.seeds.want()
            case _:
                pass

    def _tell(self, effect: fx.Effect, *, is_burst: bool) -> None:
        """Keep *effect* if it is a fact, and log it: loud, if an operator should know immediately.

        Of a burst of changes, which has a line as a whole, only those to warn of have their own.
        """
        if not is_fact(effect):
            return
        level = self._level_of(effect)
        if level != "debug" or not isinstance(effect, fx.StrangerRefused | fx.PeerTrouble):
            self.events.note(effect)  # but for strangers and others that call again and again
        if level == "warning" or not (is_burst and isinstance(effect, fx.StatusChanged)):
            record = record_of(effect)
            assert record is not None
            _log(level, record)

    def _log_burst(self, changes: Sequence[fx.StatusChanged]) -> None:
        levels = {self._level_of(change) for change in changes}
        _log("info" if "info" in levels else "debug", record_of_burst(changes))

    def _level_of(self, effect: fx.Effect) -> str:
        """How loud *effect* is; a cluster in a steady state says nothing above debug."""
        match effect:
            case fx.JoinRejected() | fx.StrangerRefused() | fx.PeerTrouble():
                return "warning" if self._first_time(*_trouble_of(effect)) else "debug"
            case fx.StatusChanged(before, after):
                if before and after and before.damping != after.damping:
                    return "warning" if after.damped else "info"
                same = before and after and before.status is after.status
                ours = effect.member.name == self.name
                return "debug" if same or ours else "info"
            case fx.Healed(targets):
                return "info" if targets else "debug"
            case _:
                return _LEVELS.get(type(effect), "debug")

    def tell_stranger(self, address: str, cluster: str) -> None:
        """Log that a node of another cluster was refused, once an address."""
        if self._first_time(address, STRANGER):
            record = {"address": address, "cluster": cluster, "ours": self.config.cluster}
            text = text_of({"event": "stranger-refused", **record})
            log.warning("stranger-refused", text=text, **record)

    def tell_time(self, address: str, said_ms: str, *, dialed_ms: int) -> None:
        """Log, once an address, that a peer's clock differs from ours by `CLOCK_DIFFERS_S` or more.

        Args:
            said_ms: what the peer said that the time is, in milliseconds, when it was dialed.
            dialed_ms: what our own clock said before that.
        """
        if not (said_ms.isdecimal() and len(said_ms) <= TIME_CHARACTERS_MAX):
            return
        read_ms = round(time.time() * 1000)
        ahead_s = clock_ahead_ms(int(said_ms), dialed_ms=dialed_ms, read_ms=read_ms) / 1000
        if abs(ahead_s) >= CLOCK_DIFFERS_S and self._first_time(address, "clock"):
            how = "ahead of" if ahead_s > 0 else "behind"
            log.warning(
                "clock-differs",
                text=printable(
                    f"the clock of {address} is {abs(ahead_s):.0f} s {how} this node's: correct "
                    "one of them; incarnations and last_writer_wins go by clocks"
                ),
                address=address,
                ahead_s=round(ahead_s, 1),
            )

    def _first_time(self, address: str, what: str) -> bool:
        """Whether this is new of *address*, so that what repeats itself is logged once."""
        return self._told.first_time(address, what, trio.current_time())


def clock_ahead_ms(said_ms: int, *, dialed_ms: int, read_ms: int) -> int:
    """Return by how much, at least, a peer's clock is ahead of ours; negative if it is behind.

    The peer read *said_ms* some time after we dialed it and before we read its answer. Either of
    us may have been held up between, so what lies between the two proves no difference.
    """
    return said_ms - min(max(said_ms, dialed_ms), read_ms)


def _trouble_of(effect: fx.JoinRejected | fx.StrangerRefused | fx.PeerTrouble) -> tuple[str, str]:
    """The peer that the trouble is with, and the trouble; each is logged once."""
    match effect:
        case fx.JoinRejected(address, reason):
            return str(address), reason
        case fx.StrangerRefused(address):
            return str(address), STRANGER
        case fx.PeerTrouble(peer, endpoint, reason):
            return peer, f"{endpoint}: {reason}"
        case _:
            assert_never(effect)


def _log(level: str, record: Record) -> None:
    fields = {key: value for key, value in record.items() if key != "event"}
    getattr(log, level)(record["event"], text=text_of(record), **fields)


def _do_nothing() -> None:
    """Nobody wants to know yet."""


def _how_lost(effect: fx.NameTaken, *, joined: bool) -> str:
    ours, theirs = effect.ours, effect.theirs
    has_run = "" if effect.since_ms is None else _has_run_since(effect.since_ms)
    what = "stopped, for it is the later of the two" if joined else "did not join"
    return (
        f"the name {ours.name} belongs to the process at {theirs.address}{has_run}; "
        f"this one, at {ours.address}, {what}. Give this one another --name, or stop that one first"
    )


def _has_run_since(since_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(since_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""  # the peer's word: it may be no time that a calendar has
    return f", which has run since {at:%Y-%m-%d %H:%M:%S} UTC"


def _ignore_debug(_on: bool) -> None:  # noqa: FBT001 - a callback has one argument
    log.warning("this process does not let its log level be changed")
