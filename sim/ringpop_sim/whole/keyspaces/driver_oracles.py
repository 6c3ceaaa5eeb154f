"""W1 to W6: what must hold of whole daemons, beside what holds of keyspaces (K1 to K13).

Lost wake-ups, forgotten waiters and answers that reach the wrong task all end in one of these.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final
from unittest.mock import patch

from ringpop_py.base.errors import ActorBusy
from ringpop_py.state.actors.mail import stored_under
from ringpop_py.state.durable.partition import Partition
from ringpop_py.state.partition.chart import GIVEN_UP
from ringpop_py.state.placement.keys import partition_of
from ringpop_sim.plans.plan import FOR_EVER, Crash, Drain, Leave, Rebalance, Start, Stop
from ringpop_sim.units import ms, s, seconds
from ringpop_sim.whole.actors import KIND, ListKeeper
from ringpop_sim.whole.cluster import Daemon
from ringpop_sim.whole.keyspaces.oracle import HinderedCheck, KeyspaceOracle
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_sim.whole.keyspaces.clients import DaemonRequest
    from ringpop_sim.whole.keyspaces.shares import DaemonShare

LATE_US: Final = 300 * ms
"""How much later than its deadline a request may end: the wheel of deadlines turns slowly."""
CALM_US: Final = 250 * ms
"""How long a request may take in calm, on a quick network and store."""
ENDLESS_AND_CALM: Final = (Drain, Leave, Rebalance, Start, Stop)


class NothingReadAfterwards(KeyspaceOracle):
    """W1: nobody looks at the state of a partition that this node has given up.

    What it had is reset then, so a read would find nothing, or what a recovery has read so far.
    """

    invariants: ClassVar = ("W1",)

    @contextmanager
    def observing(self) -> Iterator[None]:
        def watched(read: Callable[..., Any]) -> Callable[..., Any]:
            def reads(part: Partition, look: Callable[..., Any], *rest: Any, **named: Any) -> Any:
                return read(part, self._watched(part, look), *rest, **named)

            return reads

        with (
            patch.object(Partition, "read", watched(Partition.read)),
            patch.object(Partition, "begin_read", watched(Partition.begin_read)),
        ):
            yield

    def _watched(self, part: Partition, look: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def looks(state: Any) -> Any:
            if part.presence in GIVEN_UP:
                name = self.shares.cluster.current.name
                self.broke("W1", f"{name} reads {part!r}")
            return look(state)

        return looks


class RequestsInTime(HinderedCheck, KeyspaceOracle):
    """W2: a request ends by its deadline, unless something hindered the daemon that it was sent to.

    K6 finds those that never end; here is where one ends late.
    """

    invariants: ClassVar = ("W2",)

    def begin(self) -> None:
        super().begin()
        self.clients.on_end.append(self._ended)

    def _ended(self, request: DaemonRequest, _results: Sequence[Any]) -> None:
        daemon = request.process
        well_since = self.well_since(daemon.number)
        if not request.outside and (well_since is None or well_since > request.sent_at):
            return
        took_us = self.world.now - request.sent_at
        if took_us > self.clients.plan.timeout_us + LATE_US:
            text = f"'{request.errand}' at {daemon.name} ended after {seconds(took_us):.3f} s"
            self.broke("W2", text)


class CalmIsQuick(KeyspaceOracle):
    """W3: each request of the calm at the end succeeds at once.

    The requests come in bursts, because a wake-up is lost only in company. Nothing is claimed of
    plans whose network or store is slow, in which a fault never ends, or in which a member has gone
    from an address that no longer answers: clients that know it there wait for it once.
    """

    invariants: ClassVar = ("W3",)

    def begin(self) -> None:
        self.clients.on_end.append(self._ended)
        self.since: int | None = None
        """When the calm has begun; it is set from outside."""
        plan = self.world.plan
        keyspace = self.shares.plan
        endless = [
            o
            for o in plan.operations
            if o.for_us == FOR_EVER and not isinstance(o, ENDLESS_AND_CALM)
        ]
        gone = any(isinstance(o, Crash) and o.moves and o.silent for o in plan.operations)
        quick = max(keyspace.store_read_us, keyspace.store_write_us, plan.link.delay.high_us)
        self.applies = not endless and not gone and plan.link.loss == 0 and quick <= 5 * ms

    def _ended(self, request: DaemonRequest, results: Sequence[Any]) -> None:
        if self.since is None or request.began_at < self.since:
            return
        took_us = self.world.now - request.began_at
        # So few actors may be in memory that all of them may be at work.
        failed = [r for r in results if isinstance(r, Exception) and not isinstance(r, ActorBusy)]
        if failed or took_us > CALM_US:
            text = f"'{request.errand}' at {request.process.name} ended after"
            self.broke("W3", f"{text} {seconds(took_us):.3f} s {failed or ''}")

    def finish(self) -> None:
        if self.since is None:
            return
        for request in self.clients.open:
            if request.began_at >= self.since and self.world.now - request.began_at > CALM_US:
                self.broke("W3", f"in calm, '{request.errand}' does not end")


class ServedInTime(KeyspaceOracle):
    """W4: no partition is unserved for longer than the plan permits (`unserved_us`).

    It is served while requests of clients for it succeed, wherever they are sent. A member that
    has a partition and cannot use the store serves nothing.
    """

    invariants: ClassVar = ("W4",)

    def begin(self) -> None:
        self.longest_us = 0
        """The longest time between two requests for one partition that succeeded."""
        self._served_at: dict[int, int] = {}
        self.clients.on_end.append(self._ended)

    @property
    def _until(self) -> int:
        """When clients send their last requests, but for those of `CalmIsQuick`."""
        return self.world.plan.quiet_at_us + self.shares.plan.after_us

    def _ended(self, request: DaemonRequest, results: Sequence[Any]) -> None:
        for key, result in zip(request.keys, results, strict=True):
            if not isinstance(result, Exception) and request.began_at <= self._until:
                self._served(partition_of(key, self.shares.plan.partitions))

    def _served(self, number: int) -> None:
        now = min(self.world.now, self._until)
        took_us = now - self._served_at.get(number, now)
        self._served_at[number] = now
        self.longest_us = max(self.longest_us, took_us)
        bound_us = self.shares.plan.unserved_us
        if bound_us and took_us > bound_us:
            self.broke("W4", f"partition {number} was unserved for {seconds(took_us):.1f} s")

    def finish(self) -> None:
        for number in self._served_at:
            self._served(number)


class NothingLeftOver(KeyspaceOracle):
    """W5: at rest no call is open after its deadline, and no task of a request is left."""

    invariants: ClassVar = ("W5",)

    def finish(self) -> None:
        for process in self.world.running:
            if isinstance(process, Daemon) and process.life is Life.RUNNING and process.ringpop:
                self._look_at(process)

    def _look_at(self, daemon: Daemon) -> None:
        assert daemon.ringpop is not None
        now_s = daemon.body.clock.current_time() - LATE_US / s
        for link in daemon.ringpop.channel.links:
            for call in (*link._waiting, *link._pending.values()):
                if call.deadline < now_s:
                    self.broke("W5", f"{daemon.name} waits for {call} after its deadline")
        tasks = Counter(task.name for task in daemon.body.runner.tasks)
        waiting = sum(count for name, count in tasks.items() if "DaemonClients" in name)
        known = sum(request.process is daemon for request in self.clients.open)
        if waiting > known:
            self.broke("W5", f"{daemon.name} has {waiting - known} tasks of requests that ended")


class OneMessageAtATime(KeyspaceOracle):
    """W6: an actor has one message at a time, and begins it where its partition is.

    Where a partition comes back, a message that had begun before may still run: it is not saved.
    """

    invariants: ClassVar = ("W6",)

    def begin(self) -> None:
        self._at_work: set[tuple[int, int, str]] = set()

    def serves(self, share: DaemonShare, number: int, _epoch: int) -> None:
        there = share.process.serial, number
        self._at_work = {place for place in self._at_work if place[:2] != there}

    @contextmanager
    def observing(self) -> Iterator[None]:
        receive = ListKeeper.receive

        async def receives(actor: ListKeeper, message: list[int]) -> list[int]:
            place = self._begins(actor.key)
            try:
                return await receive(actor, message)
            finally:
                self._at_work.discard(place)

        with patch.object(ListKeeper, "receive", receives):
            yield

    def _begins(self, key: str) -> tuple[int, int, str]:
        daemon = self.shares.cluster.current
        number = partition_of(stored_under(KIND, key), self.shares.plan.partitions)
        place = daemon.serial, number, key
        if place in self._at_work:
            self.broke("W6", f"{key} at {daemon.name} has two messages at a time")
        self._at_work.add(place)
        share = next((share for share in self.shares if share.process is daemon), None)
        part = None if share is None else share.partitions.get(number)
        if part is None or part.presence in GIVEN_UP:
            self.broke("W6", f"{key} at {daemon.name} begins a message; its partition is {part!r}")
        return place


DRIVER_ORACLES: Final[tuple[type[KeyspaceOracle], ...]] = (
    NothingReadAfterwards,
    RequestsInTime,
    CalmIsQuick,
    ServedInTime,
    NothingLeftOver,
    OneMessageAtATime,
)
