"""Carries out, on trio, what a steward decides about the partitions of one keyspace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.placement.duties import Changed, Tell
from ringpop_py.state.placement.table import from_rows
from ringpop_py.state.shares.rescale_events import Gained, RescaleEvents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ringpop_py.base.errors import KeyspaceError
    from ringpop_py.member.swim.member import Status
    from ringpop_py.state.placement.duties import Duty, Fact, Task
    from ringpop_py.state.placement.table import Table, TableRow
    from ringpop_py.state.shares.rescale_events import RescaleEvent
    from ringpop_py.state.shares.server import Held
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.tasks import Spawn

MICROSECONDS: Final = 1_000_000
READY_S: Final = 1.0  # between two looks, if no member has changed

P = TypeVar("P", bound="Held")


class Steward(Protocol):
    """Decides which partitions are here, and says what to do about them; each method, what next."""

    table: Table

    @property
    def next_deadline(self) -> int:
        """When `advance` is due, in microseconds."""

    @property
    def settled(self) -> bool:
        """Whether nothing of what was given up is still on its way."""

    def is_coming(self, number: int, /) -> bool:
        """See `Holder`."""

    def destination(self, number: int, /) -> str:
        """Return the member to ask about a partition; empty if there is none."""

    def why_nobody(self, number: int, /) -> KeyspaceError:
        """Return why there is no member to ask."""

    def members_changed(self, now: int, /) -> list[Task]:
        """Look at who should own what."""

    def advance(self, now: int, /) -> list[Task]:
        """Do what is due."""

    def heard(self, rows: Iterable[TableRow], now: int, /) -> list[Task]:
        """Merge rows that another node sent."""

    def leave(self, now: int, /) -> list[Task]:
        """Give up all partitions."""

    def drop(self, now: int, /) -> list[Task]:
        """Give up all partitions: the keyspace was dropped."""

    def failed(self, why: str, now: int, /) -> list[Task]:
        """Serve nothing from now on."""

    def forget(self, now: int, /) -> list[Task]:
        """Forget all partitions that are here."""


S = TypeVar("S", bound=Steward)


class Peers(NamedTuple):
    """How one keyspace at this node sees the other members, and what it sends them.

    Attributes:
        members: returns the members that may own partitions now, as far as this node knows.
        spread: gossips these rows, and what else this node knows of the keyspace.
        ask: asks some other members what they know of keyspaces.
    """

    members: Callable[[], Sequence[str]]
    spread: Callable[[Sequence[TableRow]], None]
    ask: Callable[[], Awaitable[None]]


class MembersSeen:
    """See `ringpop_py.state.placement.holdings.Sight`."""

    def __init__(self, node: NodeView, owners: Callable[[], Sequence[str]]) -> None:
        self.name = node.name
        self.owners = owners
        self.status_of: Callable[[str], Status | None] = node.status_of
        self.is_silent = node.is_silent
        self._node = node

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self._node.ready


class ServersSeen(MembersSeen):
    """As `MembersSeen`, for what a store guards: a silent member owns nothing (`is_there`)."""

    def __init__(self, node: NodeView, owners: Callable[[], Sequence[str]]) -> None:
        super().__init__(node, owners)
        self.owners = lambda: [name for name in owners() if not node.is_silent(name)]


class StewardDriver(ABC, Generic[S, P]):
    """The partitions of one keyspace at one node, which come and go as *steward* decides.

    Attributes:
        partitions: those that are here, served or not.
        changed: an event that is set, and replaced, when the table or a partition here changes.
        failure: why nothing is served here any longer; empty while the share has not failed.
        ending: whether the node is about to end, so that nobody waits here for news any more.
        may_leave: called before a partition goes to another member; see `ActorHost.may_leave`.
    """

    def __init__(self, steward: S, node: NodeView, peers: Peers, spawn: Spawn) -> None:
        self.steward: S = steward
        self.table = steward.table
        self.is_coming = steward.is_coming
        self.partitions: dict[int, P] = {}
        self.events = RescaleEvents()
        self.changed = trio.Event()
        self.failure = ""
        self.ending = False
        self.may_leave: Callable[[int], bool] = lambda _number: True
        self._node = node
        self._peers = peers
        self._spawn = spawn
        self._wake = trio.Event()
        self._members_changed = True
        self._sleeps_until = 0

    # What is known.

    def online(self) -> list[P]:
        """Return the partitions that this node serves, in the order of their numbers."""
        found = [p for p in self.partitions.values() if p.presence is Presence.OWNED]
        return sorted(found, key=lambda partition: partition.number)

    def already(self) -> list[RescaleEvent]:
        """Return the events that a new listener has missed."""
        return [self._gained(p, self.table[p.number].epoch) for p in self.online()]

    def _gained(self, partition: P, epoch: int) -> Gained:
        return Gained(partition.number, epoch, partition.state.offsets)

    def obstacle(self, _number: int) -> KeyspaceError | None:
        """See `Holder`."""
        return None

    # What happens.

    async def run(self) -> None:
        """Gain and give partitions, until cancelled."""
        while True:
            self._wake = trio.Event()
            self._advance(now_us())
            self._sleeps_until = self._next_deadline()
            with trio.move_on_at(self._sleeps_until / MICROSECONDS):
                await self._wake.wait()

    async def wait_ready(self) -> None:
        """Return after the first join of this node; before it, nothing is gained."""
        while not self._node.ready:
            self._wake = trio.Event()
            with trio.move_on_after(READY_S):
                await self._wake.wait()

    def _advance(self, now: int) -> None:
        if self._members_changed:
            self._members_changed = False
            self._do(self.steward.members_changed(now))
        else:
            self._do(self.steward.advance(now))

    def _next_deadline(self) -> int:
        return self.steward.next_deadline

    def wake(self) -> None:
        """Look soon at who should own what: the members have changed."""
        self._members_changed = True
        self._wake.set()

    def look(self) -> None:
        """Look now at who should own what."""
        self._do(self.steward.members_changed(now_us()))

    def merge(self, rows: Iterable[TableRow]) -> None:
        """Merge rows that another node sent."""
        self._do(self.steward.heard(rows, now_us()))

    def learn(self, plain: list[Any]) -> None:
        """Merge rows as another node sent them. Raises BodyError."""
        self.merge(from_rows(plain, len(self.table)))

    async def close(self) -> None:
        """Give up all partitions, so that others need not detect that this node is gone."""
        self._do(self.steward.leave(now_us()))
        while not self.steward.settled:
            await self.changed.wait()

    async def drop(self) -> None:
        """Give up all partitions: the keyspace was dropped."""
        self._do(self.steward.drop(now_us()))
        while not self.steward.settled:
            await self.changed.wait()

    def fail(self, why: str) -> None:
        """Serve nothing from now on; partitions that are here may still be given up in order."""
        self.failure = why
        self._do(self.steward.failed(why, now_us()))

    def end_waits(self) -> None:
        """Have those go on who wait for news: the node is about to end."""
        self.ending = True
        self._do((Changed(),))

    def let_go(self) -> None:
        """Forget all partitions that are here."""
        self._do(self.steward.forget(now_us()))

    def _do(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            match task:
                case Tell(rows):
                    self._peers.spread(rows)
                case Changed():
                    self.changed.set()
                    self.changed = trio.Event()
                case _:
                    self._begin(task)
        self._wake_if_sooner()

    def _wake_if_sooner(self) -> None:
        if self._next_deadline() < self._sleeps_until:
            self._wake.set()

    @abstractmethod
    def _begin(self, task: Duty | Fact) -> None:
        """Carry a fact out, or begin with a duty."""
