"""Clusters of whole daemons: processes that run `open_ringpop`, and what a plan does to them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.config.settings import Config, ProxyConfig, ShuffleConfig, StateConfig
from ringpop_py.base.errors import ConfigError, NameLost, RingpopError
from ringpop_py.base.logs import NAME as LOGGER
from ringpop_py.edge.daemon import open_ringpop
from ringpop_py.flow.streams.files import Files
from ringpop_py.flow.streams.stream import start_stream
from ringpop_sim.errors import PlanError
from ringpop_sim.plans import plan as p
from ringpop_sim.units import s
from ringpop_sim.whole.actors import ACTORS_MAX, KIND, ListKeeper
from ringpop_sim.whole.stage.folder import SharedFolder
from ringpop_sim.whole.stage.scheduling import Processes, TrioProcess
from ringpop_sim.whole.stage.store import SharedObjects, SimulatedStore
from ringpop_sim.whole.stage.streams import Links, SimulatedNetwork
from ringpop_sim.whole.stage.threads import Threads
from ringpop_sim.world.process import Life, Process
from ringpop_sim.world.watcher import Watchers
from ringpop_sim.world.world import CLUSTER, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.node import Node
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.actors.actors import Actors
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_sim.plans.plan import KeyspacePlan, Plan
    from ringpop_sim.world.watcher import Watcher

KEYSPACE: Final = "state"
FLOW: Final = "flow-"
"""What the keys begin with to which the dataflow brings lines."""
DRAIN_S: Final = 5.0
END_US_MAX: Final = 20 * s
"""A daemon that has not ended in order so long after it was asked to is killed."""
START_AGAIN_S: Final = 1.0
INTERVAL_US: Final = 4 * s
"""The time between two checkpoints of a partition."""
SLOTS_MAX: Final = 24
"""A checkpoint is due if the oldest change without one is so many slots back."""
GROUP_WRITES_MAX: Final = 3
"""So few writes are in a group that some wait for the next one."""
UNABLE: Final = (p.Rumour, p.Lie)
"""Operations that send messages which no daemon sends."""


@dataclass(slots=True, eq=False)
class Daemon(Process):
    """One run of a daemon.

    Attributes:
        body: the process that runs it.
        ringpop: its node, from when that was made until it has ended.
        keyspace, actors: the keyspace of the plan, once it is open, and its actors.
        nursery: for what clients begin here.
    """

    body: TrioProcess = field(init=False)
    ringpop: Ringpop | None = None
    keyspace: Keyspace | None = None
    actors: Actors[list[int], list[int]] | None = None
    nursery: trio.Nursery | None = None
    asked_to_end: bool = False
    stop: trio.Event = field(default_factory=trio.Event)

    __repr__ = Process.__repr__

    @property
    def serves(self) -> bool:
        """Whether clients can use its keyspace."""
        is_open = self.keyspace is not None and not self.asked_to_end
        return is_open and self.life is Life.RUNNING

    def slow(self, by_us: int) -> None:
        self.slow_us += by_us
        self.body.slow_us = self.slow_us

    def set_wall(self, off_us: int) -> None:
        self.body.wall_us = off_us

    def drift(self, ppm: int, now: int) -> None:
        Process.drift(self, ppm, now)
        self.body.drift(ppm)


def number_in(line: Any) -> int:
    """Return the number of a *line* of a log."""
    number: int = line["number"]
    return number


class Complaints(logging.Handler):
    """What daemons log: an error with a traceback is a bug."""

    def __init__(self, cluster: WholeCluster) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        """Report *record*, if it is of a bug."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._cluster.report(record.getMessage(), error)


@contextmanager
def heard(cluster: WholeCluster) -> Iterator[None]:
    """Hear what the daemons of *cluster* log in the block, instead of all other handlers."""
    logger = logging.getLogger(LOGGER)
    before = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [Complaints(cluster)], False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


class WholeCluster(World):
    """See the module.

    Attributes:
        stage: what runs the processes.
        store: the store of all daemons.
        folder: the files that a stream of all daemons reads.
        shuffle_folder: where processes for shuffles have their files, if there are some.
        application: called with each daemon whose node is made, to register its handlers.
        on_bug: called with a text and an exception that only a bug raises.
    """

    PROCESS = Daemon

    def __init__(
        self,
        plan: Plan,
        seed: int,
        checks: Callable[[World], Sequence[Watcher]] | None = None,
        *,
        keep_trace: bool = False,
    ) -> None:
        self._check(plan)
        self.application: Callable[[Daemon], None] = lambda _: None
        self.on_bug: Callable[[str, BaseException], None] = lambda *_: None
        super().__init__(plan, seed, None, keep_trace=keep_trace)
        self.stage = Processes(self, self.trace, seed)
        self.stage.failed = self._failed
        self.threads = Threads(self.stage)
        self.links = Links(self.stage, self.network)
        self.folder = SharedFolder(self.stage, self.threads)
        self.store = SharedObjects(self.stage, self.threads, plan.keyspace or p.KeyspacePlan())
        self.shuffle_folder: Path | None = None
        self.farewell = self._end_in_order
        self._daemons: dict[TrioProcess, Daemon] = {}
        # Stores differ in whether a `get` of nothing is quick enough for an event loop.
        self._is_quick = seed % 2 == 0
        if plan.keyspace is not None and plan.keyspace.dataflow:
            from ringpop_sim.whole.lines import start_lines  # noqa: PLC0415 - loads pyarrow

            self._start_lines = start_lines
        if checks is not None:
            self.checks = Watchers(checks(self))

    @staticmethod
    def _check(plan: Plan) -> None:
        unable = [operation.kind for operation in plan.operations if isinstance(operation, UNABLE)]
        if unable:
            raise PlanError(f"whole daemons cannot do this: {unable[0]}")

    def report(self, text: str, error: BaseException) -> None:
        """Report a bug of the process whose code runs."""
        current = self.stage.current
        self.on_bug(f"{current.name if current else 'nobody'}: {text}", error)

    @property
    def is_wide(self) -> bool:
        """Whether the pattern of the files matches those that were rotated, too."""
        return self.seed % 3 != 0

    # Processes.

    @property
    def current(self) -> Daemon:
        """The daemon whose code runs now."""
        assert self.stage.current is not None
        return self._daemons[self.stage.current]

    def begin(
        self, daemon: Daemon, act: Callable[[Daemon], Awaitable[object]], *, drains: bool = False
    ) -> None:
        """Run *act* in a task of *daemon*, as its application would, if it serves.

        Args:
            drains: whether it goes on while the daemon drains.
        """
        if daemon.nursery is None:
            return
        with daemon.body.entered():
            if drains:
                trio.lowlevel.spawn_system_task(act, daemon)
            else:
                daemon.nursery.start_soon(act, daemon)

    def _begin(self, process: Process) -> None:
        assert isinstance(process, Daemon)
        process.body = TrioProcess(self.stage, process.name, lambda _: self._main(process))
        self._daemons[process.body] = process
        process.body.wall_us = self.wall_offset_us.get(process.number, 0)
        process.body.on_end[lambda: self._body_ended(process)] = None

    async def _main(self, daemon: Daemon) -> None:
        """Run *daemon*, and start it again while it cannot use the store, as a supervisor does."""
        is_over = False
        while not is_over:
            try:
                await self._run(daemon)
            except ConfigError:
                await trio.sleep(START_AGAIN_S)
                is_over = daemon.stop.is_set()
            except NameLost:
                is_over = True
            else:
                is_over = True
            finally:
                daemon.ringpop = daemon.keyspace = daemon.actors = daemon.nursery = None

    async def _run(self, daemon: Daemon) -> None:
        plan = self.plan.keyspace
        config = Config(
            listen=daemon.address,
            name=None if self.dialect.names_are_addresses else daemon.name,
            dialect=self.dialect.name,
            cluster=CLUSTER,
            hosts=tuple(self._hosts(daemon.number)),
            gossip=self.config,
            drain_timeout_s=DRAIN_S,
            state=self._state_config(plan),
            shuffle=self._shuffle_config(daemon),
            **self._entry_config(),
        )
        network = SimulatedNetwork(self.links, daemon.body, daemon.machine)
        store = None
        if plan is not None or self.shuffle_folder is not None:
            store = SimulatedStore(self.store, daemon.body, daemon.number, quick=self._is_quick)
        opened = open_ringpop(config, network=network, store=store, wait_ready=False)
        async with opened as ringpop:
            daemon.ringpop, daemon.node = ringpop, ringpop.node
            self.application(daemon)
            ringpop.observe(lambda effect: self._observed(daemon, effect))
            async with trio.open_nursery() as nursery:
                daemon.nursery = nursery
                if plan is not None:
                    nursery.start_soon(self._open_keyspace, daemon, plan)
                await daemon.stop.wait()
                daemon.nursery = None
                nursery.cancel_scope.cancel()

    def _entry_config(self) -> dict[str, Any]:
        traffic = self.plan.traffic
        if traffic is None:
            return {}
        proxy = ProxyConfig(
            max_retries=len(traffic.retry_schedule_us),
            retry_schedule_s=tuple(each / s for each in traffic.retry_schedule_us),
            timeout_s=traffic.timeout_us / s,
            consistency=traffic.consistency,
        )
        return {"proxy": proxy, "app_url": "http://127.0.0.1:1"}

    def _shuffle_config(self, daemon: Daemon) -> ShuffleConfig:
        folder = self.shuffle_folder
        return ShuffleConfig(folder=None if folder is None else str(folder / daemon.name))

    @staticmethod
    def _state_config(plan: KeyspacePlan | None) -> StateConfig:
        if plan is None:
            return StateConfig()
        return StateConfig(
            handoffs_max=plan.handoffs_max,
            takeovers_max=plan.takeovers_max,
            wait_s=plan.wait_us / s,
            timeout_s=plan.timeout_us / s,
            group_writes_max=GROUP_WRITES_MAX,
            checkpoint_slots_max=SLOTS_MAX,
        )

    async def _open_keyspace(self, daemon: Daemon, plan: KeyspacePlan) -> None:
        assert daemon.ringpop is not None
        await daemon.ringpop.wait_ready()
        while True:
            try:
                keyspace = await daemon.ringpop.open_keyspace(
                    KEYSPACE,
                    partitions=plan.partitions,
                    mode=plan.mode,
                    strategy=plan.strategy,
                    automatic=plan.automatic,
                    min_cluster_size=plan.min_cluster_size,
                    merge="last_writer_wins" if plan.expiring else "union",
                    checkpoint_interval_s=INTERVAL_US / s,
                )
            except RingpopError:  # of the store; an application tries again
                await trio.sleep(START_AGAIN_S / 2)
            else:
                if plan.actors:
                    daemon.actors = keyspace.actor(ListKeeper, name=KIND, actors_max=ACTORS_MAX)
                daemon.keyspace = keyspace
                break
        if plan.files:
            start_stream(keyspace, self._files(), "append", name="logs", argument=number_in)
        if plan.dataflow:
            self._start_lines(daemon.ringpop, self._files(), keyspace, FLOW)

    def _files(self) -> Files:
        return Files("logs/*.log*" if self.is_wide else "logs/*.log", key="key")

    def _observed(self, daemon: Daemon, effect: Effect) -> None:
        self.trace.fact(self.now, daemon, effect)
        for check in self.checks.facts:
            check.fact(daemon, effect)

    def _failed(self, body: TrioProcess, error: BaseException) -> None:
        self.on_bug(f"{body.name} ended: {error!r}", error)

    def _body_ended(self, daemon: Daemon) -> None:
        if daemon.life is not Life.ENDED:
            World.end(self, daemon)

    def end(self, process: Process, *, silent: bool = False) -> None:
        super().end(process, silent=silent)  # first: a silent machine tells nobody
        assert isinstance(process, Daemon)
        process.body.kill()

    def revive(self, process: Process) -> None:
        assert isinstance(process, Daemon)
        process.life = Life.RUNNING
        self.at[process.machine] = process
        self.network.connect(process.machine)
        for check in self.checks:
            check.started(process)
        process.body.revive()

    def pause(self, process: Process) -> None:
        super().pause(process)
        assert isinstance(process, Daemon)
        process.body.pause()

    def resume(self, process: Process) -> None:
        if process.life is Life.PAUSED:
            assert isinstance(process, Daemon)
            process.life = Life.RUNNING
            process.body.resume()

    def do(self, process: Process, act: Callable[[Node, int], list[Effect]]) -> None:
        assert isinstance(process, Daemon)
        ringpop = process.ringpop
        if process.running and ringpop is not None:
            with process.body.entered():
                ringpop.driver.submit(lambda now: act(ringpop.node, now))

    def _end_in_order(self, process: Process, _done: Callable[[], None]) -> None:
        """Have a daemon end as it does after a SIGTERM."""
        assert isinstance(process, Daemon)
        process.asked_to_end = True
        with process.body.entered():
            process.stop.set()
        self.push(self.now + END_US_MAX, lambda _: self.end(process))

    def close(self) -> None:
        """Free everything; nothing can be examined any more but what was kept."""
        # Code of the product runs once more, as its coroutines are closed, and all of it fails.
        self.on_bug = lambda *_: None
        self.stage.close(self._forget)

    def _forget(self) -> None:
        self._events.clear()
        self._daemons.clear()
        self.links.listeners.clear()
        for process in self.processes:
            assert isinstance(process, Daemon)
            process.ringpop = process.keyspace = process.actors = process.nursery = None
            del process.body, process.stop
