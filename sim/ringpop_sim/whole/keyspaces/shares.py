"""The keyspace at each daemon of a world, as the oracles of keyspaces see it.

What they look at stands in the product's
own objects, and what they hear of is what the product's driver is told to do.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ringpop_py.base.errors import PartitionUnavailable, RingpopError
from ringpop_py.state.catalog.journalstore import JournalStore
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.durable.driver import DurableDriver
from ringpop_py.state.durable.rebalance import rebalance
from ringpop_py.state.durable.writer import Writer
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.codec import decode_claim
from ringpop_py.state.memory.driver import MemoryDriver
from ringpop_py.state.memory.mergeable import MergeableState
from ringpop_py.state.partition.desk import Desk, WriteJob
from ringpop_py.state.partition.record import Came, CameBack, JournalLost, Replaces
from ringpop_py.state.placement import duties
from ringpop_py.state.table.entries import MemoryEntries
from ringpop_py.state.tasks import Worker
from ringpop_sim.checks import Check
from ringpop_sim.plans.plan import Rebalance
from ringpop_sim.whole.cluster import KEYSPACE, Daemon
from ringpop_sim.world.process import Life
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Status
    from ringpop_py.state.journal.records import Claim
    from ringpop_sim.plans.plan import KeyspacePlan, Operation
    from ringpop_sim.whole.cluster import WholeCluster
    from ringpop_sim.world.process import Process

GENERATION: Final = 1
PART_BYTES: Final = 200


class DaemonShare:
    """What one daemon has of the keyspace."""

    def __init__(self, daemon: Daemon, driver: Any, mode: str) -> None:
        self.process = daemon
        self.name = daemon.name
        self.number = daemon.number
        self.driver = driver
        self.steward = driver.steward
        self.table = driver.table
        self.partitions: Mapping[int, Any] = driver.partitions
        self.is_durable = mode == "durable"
        if self.is_durable:
            self.writer = driver._logs.writer
            self.machine = self.writer.machine
            self.journal = self.machine.journal

    def __repr__(self) -> str:
        return f"<share of {self.process}: {self.steward!r}>"

    @property
    def ready(self) -> bool:
        """Whether the first join is done."""
        return self.process.node.ready

    def owners(self) -> Sequence[str]:
        """Return the members that may own partitions, as far as the daemon knows."""
        owners: Sequence[str] = self.driver._peers.members()
        return owners

    def status_of(self, name: str) -> Status | None:
        """Return the status of the member *name*."""
        row = self.process.node.members.get(name)
        return None if row is None else row.status

    @property
    def under_way(self) -> dict[str, int]:
        """How much of each kind has begun and not ended."""
        found = dict(self.steward.under_way)
        if self.process.keyspace is not None:
            found["messages of actors"] = self.process.keyspace.stage.under_way
        if self.is_durable:
            found |= {
                "jobs": self.machine.desk.jobs_count,
                "jobs of partitions": sum(len(p.waiting) for p in self.partitions.values()),
                "writes": sum(p.writes_count for p in self.partitions.values()),
                "steps of the writer": int(self.writer.working),
            }
        return found


class DaemonShares(Check):
    """The keyspace at all daemons.

    Attributes:
        shelf: what is in the store.
        moves_count, moved_at: how often a partition began to be served, and when the last time.
        members_max: the most members that any daemon has seen at a time.
        duties: how often each daemon was given tasks of each kind, about each partition.
        watchers: those that hear what daemons do.
        on_end: called with each process that has ended.
    """

    def begin(self) -> None:
        assert self.world.plan.keyspace is not None
        self.plan: KeyspacePlan = self.world.plan.keyspace
        self.cluster: WholeCluster = self.world  # type: ignore[assignment]
        self.shelf = StoreView(self.cluster)
        self.moves_count = 0
        self.moved_at = 0
        self.members_max = 0
        self.watchers: list[ShareWatcher] = []
        self.duties: Counter[tuple[str, str, int | None]] = Counter()
        self.on_end: list[Callable[[Process], None]] = []
        self._shares: dict[Daemon, DaemonShare] = {}

    def __iter__(self) -> Iterator[DaemonShare]:
        """Yield what all daemons have that run, in the order of their starts."""
        for daemon in self.world.running:
            assert isinstance(daemon, Daemon)
            if daemon.keyspace is not None:
                host: Any = daemon.keyspace._host
                yield self._share_of(daemon, host.driver)

    @property
    def settled(self) -> bool:
        """Whether each partition is served by one daemon, and all tables say so."""
        shares = list(self)
        if len(shares) < len(self.world.running):
            return False
        served = sorted((n, share.name) for share in shares for n in share.steward.serving)
        if [number for number, _ in served] != list(range(self.plan.partitions)):
            return False
        same = len({share.table.digest for share in shares}) == 1
        true = shares[0].table.owners() == tuple([name for _, name in served])
        return same and true and not any(share.steward.coming for share in shares)

    def under_way(self) -> list[tuple[str, dict[str, int]]]:
        """Return how much of each kind has begun and not ended, by daemon; see `runs.rest`."""
        return [(share.name, share.under_way) for share in self]

    # Hooks of the world.

    def ended(self, process: Process) -> None:
        for call in self.on_end:
            call(process)

    def fact(self, _process: Process, _effect: Effect) -> None:
        self._look()

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        if isinstance(operation, Rebalance):
            for number in nodes:
                daemon = self.world.numbered.get(number)
                if isinstance(daemon, Daemon) and daemon.serves and self.plan.mode == "durable":
                    self._rebalance(daemon)

    def _rebalance(self, daemon: Daemon) -> None:
        """Have an operator rebalance the keyspace at *daemon*."""
        self.cluster.begin(daemon, self._rebalanced)

    @staticmethod
    async def _rebalanced(daemon: Daemon) -> None:
        assert daemon.keyspace is not None
        with suppress(RingpopError):  # an operator would try again
            host: Any = daemon.keyspace._host
            await rebalance(host)

    # What the product's drivers are told to do.

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Look on, in the block, whenever a driver of any daemon is told to do something."""
        ended, trim = Desk.ended, Writer.trim

        async def trimmed(writer: Writer) -> fx.Trimmed:
            fact = await trim(writer)
            share = self._shares.get(self.cluster.current)
            if share is not None and share.is_durable and share.writer is writer:
                self.report(ShareWatcher.told, share, fact)
            return fact

        def watched(begin: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
            def begins(driver: Any, task: Any) -> None:
                self._begins(self._share_of(self.cluster.current, driver), task)
                begin(driver, task)

            return begins

        def step_ended(desk: Desk, fact: fx.Fact, why: Any = None) -> None:
            if isinstance(fact, fx.Committed):
                self._committed(desk)
            ended(desk, fact, why)

        with (
            self._hindering(),
            patch.object(DurableDriver, "_begin", watched(DurableDriver._begin)),
            patch.object(MemoryDriver, "_begin", watched(MemoryDriver._begin)),
            patch.object(Desk, "ended", step_ended),
            patch.object(Writer, "trim", trimmed),
            ExitStack() as stack,
        ):
            for watcher in self.watchers:
                stack.enter_context(watcher.observing())
            yield

    @contextmanager
    def _hindering(self) -> Iterator[None]:
        """Have disks be full, in the block, as the plan says."""
        write, parts = MemoryEntries.write, MergeableState.parts

        def write_to_disk(entries: MemoryEntries, changed: Any, deleted: Any) -> None:
            if (changed or deleted) and self._is_disk_full():
                entries.failed = True
                raise PartitionUnavailable("no space left on the disk")
            write(entries, changed, deleted)

        with (
            patch.object(MemoryEntries, "write", write_to_disk),
            # So few bytes that most copies are sent in several parts.
            patch.object(MergeableState, "parts", partialmethod(parts, part_bytes=PART_BYTES)),
        ):
            yield

    def _is_disk_full(self) -> bool:
        """Return whether the machine whose code runs has no room for entries."""
        process = self.cluster.stage.current
        return process is not None and "disk" in self.cluster.store.troubles(
            self.cluster.current.number
        )

    def _share_of(self, daemon: Daemon, driver: Any) -> DaemonShare:
        share = self._shares.get(daemon)
        if share is None or share.driver is not driver:
            share = self._shares[daemon] = DaemonShare(daemon, driver, self.plan.mode)
        return share

    def _begins(self, share: DaemonShare, task: Any) -> None:
        match task:
            case Came(part, epoch):
                self.serves(share, part.number, epoch)
            case CameBack(part, epoch):
                self.serves_again(share, part.number, epoch)
            case Replaces(number, claim):
                self.report(ShareWatcher.replaces, share, number, claim)
            case fx.Reclaimed() | fx.Lost() | fx.Sealed():
                self.report(ShareWatcher.told, share, task)
            case JournalLost(fact):
                self.report(ShareWatcher.told, share, fact)
            case duties.Serve(number, epoch) if not share.is_durable:
                self.serves(share, number, epoch)
            case _:
                pass
        world = self.world
        world.trace.note(world.now, share.process.serial, type(task).__name__)
        self.duties[share.name, type(task).__name__, getattr(task, "number", None)] += 1

    def _committed(self, desk: Desk) -> None:
        """Report the writes of the group that is committed now, before anybody learns of it."""
        share = self._shares[self.cluster.current]
        assert share.machine.desk is desk, "a process has one keyspace"
        for job in desk._in_hand:
            if isinstance(job, WriteJob):
                number = job.partition.number
                epoch = share.journal.held[number].epoch
                self.report(ShareWatcher.acknowledged, share, number, epoch)

    def forget(self) -> None:
        """Free what daemons have."""
        self._shares.clear()

    # What the shares report.

    def _look(self) -> None:
        for share in self:
            if share.process.life is Life.RUNNING:
                self.members_max = max(self.members_max, len(share.owners()))

    def serves(self, share: DaemonShare, number: int, epoch: int) -> None:
        self._look()
        self.moves_count += 1
        self.moved_at = self.world.now
        self.report(ShareWatcher.serves, share, number, epoch)

    def serves_again(self, share: DaemonShare, number: int, epoch: int) -> None:
        self.moved_at = self.world.now
        self.report(ShareWatcher.serves_again, share, number, epoch)

    def report(self, hook: Callable[..., None], share: DaemonShare, *what: object) -> None:
        """Call *hook*, one of `ShareWatcher`, of all watchers."""
        for watcher in self.watchers:
            getattr(watcher, hook.__name__)(share, *what)


class ShareWatcher:
    """What hears of the keyspace at daemons, beside the facts of membership."""

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Look on in the block."""
        yield

    def serves(self, share: DaemonShare, number: int, epoch: int) -> None:
        """*share* serves a partition from now on."""

    def serves_again(self, share: DaemonShare, number: int, epoch: int) -> None:
        """*share* serves a partition again, which it has claimed again after a fence."""

    def acknowledged(self, share: DaemonShare, number: int, epoch: int) -> None:
        """*share* is about to acknowledge writes of a partition in *epoch*."""

    def replaces(self, share: DaemonShare, number: int, claim: Claim) -> None:
        """*share* is about to replace the owner that made *claim* of a partition."""

    def told(self, share: DaemonShare, fact: fx.Fact) -> None:
        """The journal of *share* has reported *fact*: a fence, or what has followed it."""


class StoreView:
    """What is in the store, decoded."""

    def __init__(self, cluster: WholeCluster) -> None:
        self.may_give_up = cluster.store.may_give_up
        self._kept = cluster.store.kept
        self._objects = cluster.store.objects
        self._keys = KeyspaceKeys(CLUSTER, KEYSPACE, GENERATION)

    def slots_counts(self) -> Counter[str]:
        """Return how many slots each journal has that has any."""
        found: Counter[str] = Counter()
        for key in self._objects:
            if key.startswith(self._keys.journals):
                name = key.removeprefix(self._keys.journals).partition("/")[0]
                slots, _ = self._keys.journal(name).numbers([key])
                found[name] += len(slots)
        return +found

    def claim(self, number: int, epoch: int) -> Claim | None:
        """Return the claim of an epoch of a partition, or None before anyone has claimed it."""
        key = self._keys.partition(number).claim(epoch)
        value = self._objects.get(key)
        return None if value is None else decode_claim(value, key)

    def perform(self, request: fx.Request) -> fx.Reply:
        """Return the store's reply to *request*, which changes nothing."""
        return JournalStore(self._keys, Worker(self._kept, 1)).perform_now(request)
