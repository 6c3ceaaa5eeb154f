"""A dataflow at one node: takes part in its runs, and leads if that falls to this node."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from ringpop_py.base.arguments import checked_callable
from ringpop_py.base.errors import BodyError, CallError, ConfigError, NoOwner, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import end_process, first_line, keep_running, one_line
from ringpop_py.base.values.declared import Declared, Natural, Text, decode, encode
from ringpop_py.flow.dataflow.channels import ELEMENT, ElementReply, bring_to, element_of
from ringpop_py.flow.dataflow.checkpoints import Checkpoints
from ringpop_py.flow.dataflow.part import Part, Plan
from ringpop_py.flow.dataflow.stage import checked_stage
from ringpop_py.flow.exchange.epochs import Worker
from ringpop_py.flow.exchange.leader import Leader, Put, Tell, WorkerReport
from ringpop_py.flow.exchange.router import KEY_GROUPS
from ringpop_py.flow.streams.source import label_of
from ringpop_py.flow.streams.stream import check_stream
from ringpop_py.flow.streams.times import EventTime, event_time
from ringpop_py.member.swim.member import Status
from ringpop_py.net.security.identity import Role
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.state.placement.keys import PARTITIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.base.address import Address
    from ringpop_py.base.values.operations import Value
    from ringpop_py.flow.dataflow.sinks import Sink
    from ringpop_py.flow.dataflow.stage import Process, Stage
    from ringpop_py.flow.exchange.elements import Element, Hop
    from ringpop_py.flow.exchange.epochs import EpochRecord
    from ringpop_py.flow.streams.source import BadRecord, Record, Source
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

TELL: Final = "/dataflow/tell"


class LeaderMessage(Declared, frozen=True):
    """A leader's message to a worker, which answers with a `WorkerReport`.

    Attributes:
        seen: the newest record that the leader knows; None before the first.
        leader: the name of the leader.
        epoch, last: see `Tell`.
    """

    flow: Text
    leader: Worker
    seen: Natural | None = None
    epoch: Natural | None = None
    last: bool = False

    @property
    def tell(self) -> Tell:
        """The act that the leader wants."""
        return Tell(self.epoch, self.last)


LOOK_S: Final = 0.1
"""The seconds between two rounds of questions of a leader to the workers."""
OTHERS_S: Final = 1.0
"""The seconds between two questions to other members whether they are to be workers."""
CALL_S: Final = 1.0
READ_S: Final = 5.0
"""The seconds between two looks for a newer record: a leader's, and those of a worker."""
TIDY_EPOCHS: Final = 8


class Leading:
    """Carries out what the leader of *flow* decides, at the node that is its leader."""

    def __init__(
        self, ringpop: Ringpop, flow: Dataflow, plan: Plan, *, every_s: float, key_groups: int
    ) -> None:
        self._ringpop = ringpop
        self._flow = flow
        self._me = plan.me
        self._checkpoints = plan.checkpoints
        self._settings = every_s, key_groups
        self._next = Tell()
        self._lives: dict[str, Worker] = {}
        self._untold: set[str] = set()
        self._asked_others_at = float("-inf")
        self._read_at = float("-inf")

    def leads(self) -> bool:
        """Return whether this node is the leader, as far as it sees.

        That is the first of the workers in the ring's order for the name of the dataflow.
        """
        record, ringpop = self._flow.record, self._ringpop
        there = [name for name in (() if record is None else record.names) if self._is_there(name)]
        if not there:
            return True  # a first worker has to begin; several may try
        try:
            # Those whose web application is away work on.
            holders = ringpop.placement.holders
            order = holders.lookup_n(f"dataflow/{self._flow.name}", len(ringpop.members))
        except NoOwner:
            return False
        return next((name for name in order if name in there), there[0]) == self._me.name

    async def run(self) -> None:
        """Lead whenever this node is the leader, until cancelled."""
        leader: Leader | None = None
        while True:
            # The node that put a record tells its workers, even if one of them leads from now on.
            if not self.leads() and not self._untold:
                leader = None
            else:
                if leader is None:
                    every_s, key_groups = self._settings
                    leader = Leader(every_s=every_s, key_groups=key_groups)
                    self._lives, self._next = {}, Tell()
                try:
                    await self._look(leader)
                except StoreUnavailable as error:
                    log.info("dataflow-retries", dataflow=self._flow.name, why=str(error))
            await trio.sleep(LOOK_S)

    async def _look(self, leader: Leader) -> None:
        """Ask all workers, tell them what to do, and decide what comes next."""
        said, leaving = await self._ask_all()
        record = self._flow.record
        epoch = -1 if record is None else record.epoch
        for name, answer in said.items():
            self._lives[name] = Worker(name, answer.life)
            if answer.seen is not None and answer.seen >= epoch:
                self._untold.discard(name)
        self._untold = {name for name in self._untold if self._is_there(name)}
        present = [
            worker
            for name, worker in self._lives.items()
            if name not in leaving and self._is_there(name)
        ]
        now = trio.current_time()
        seen = max((answer.seen for answer in said.values() if answer.seen is not None), default=-1)
        read_s = LOOK_S if leader.waits else READ_S
        if record is None or seen > record.epoch or now - self._read_at >= read_s:
            await self._read()
            record = self._flow.record
        step = leader.decide(
            record, sorted(present), said, trio.current_time(), at_ms=int(time.time() * 1_000)
        )
        if isinstance(step, Tell):
            self._next = step
            return
        self._next = Tell()
        was_put = await self._checkpoints.put(step.record)
        if was_put:
            self._log(step)
            self._untold = set(step.record.names)
        await self._read()
        if was_put and step.record.epoch % TIDY_EPOCHS == 0:
            await self._checkpoints.tidy(step.record)

    def _log(self, put: Put) -> None:
        record = put.record
        if record.epoch == record.run:
            log.info(
                "dataflow-begins",
                dataflow=self._flow.name,
                epoch=record.epoch,
                workers=", ".join(record.names),
                why=record.why,
            )

    async def _read(self) -> None:
        self._read_at = trio.current_time()
        newest = await self._checkpoints.newest(self._flow.record)
        if newest is not None:
            self._flow.saw(newest)

    async def _ask_all(self) -> tuple[dict[str, WorkerReport], set[str]]:
        """Return the answers of workers, by name, and the names of those that are to leave."""
        record, now = self._flow.record, trio.current_time()
        workers = set(self._lives) | set(() if record is None else record.names)
        asked = {name for name in workers if self._is_there(name)}
        if now - self._asked_others_at >= OTHERS_S:
            self._asked_others_at = now
            asked |= {member.name for member in self._ringpop.members if _is_live(member.status)}
        seen = None if record is None else record.epoch
        told = LeaderMessage(self._flow.name, self._me, seen, self._next.epoch, self._next.last)
        said = {self._me.name: self._flow.tell(told)}
        async with trio.open_nursery() as nursery:
            for name in sorted(asked - {self._me.name}):
                nursery.start_soon(self._ask, name, told, said)
        return said, {name for name, answer in said.items() if answer.leaves}

    async def _ask(self, name: str, told: LeaderMessage, said: dict[str, WorkerReport]) -> None:
        address = self._ringpop.address_of(name)
        if address is None:
            return
        call = Call(NODE_SERVICE, TELL, b"", encode(told), ttl_s=CALL_S)
        try:
            answer = await self._ringpop.channel.call(address, call)
            if answer.ok:  # otherwise this dataflow was not started there
                said[name] = decode(WorkerReport, answer.arg3)
        except (CallError, BodyError):
            pass  # it is asked again

    def _is_there(self, name: str) -> bool:
        status = self._ringpop.status_of(name)
        return status is not None and _is_live(status)


def _is_live(status: Status) -> bool:
    return status in (Status.ALIVE, Status.SUSPECT)


PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 30.0
"""The longest pause, in seconds, before a part that fails repeatedly is begun again."""
LEAVE_S: Final = 5.0
"""The most seconds that an ending node waits until the others go on without it."""
RUNS_S: Final = 60.0
"""The seconds of run after which a failure of a part counts as the first one again."""


class Dataflow:
    """A dataflow, as far as this node takes part in it. Made by `start_dataflow`.

    Attributes:
        record: the newest epoch that is known here; None before the first.
        leader: the name of the node that leads, by its last message; empty before the first.
    """

    def __init__(self, plan: Plan, ringpop: Ringpop, *, every_s: float, key_groups: int) -> None:
        self.name = plan.name
        self.record: EpochRecord | None = None
        self.leader = ""
        self._plan = plan
        self._me = plan.me
        self._ringpop = ringpop
        self._leading = Leading(ringpop, self, plan, every_s=every_s, key_groups=key_groups)
        self._part: Part | None = None
        self._counts_before = {"rows": 0, "late": 0, "refused": 0}
        """The counts of the parts before this one."""
        self._leaves_at = 0.0
        self._changed = trio.Event()
        self._look = trio.Event()

    # For applications.

    def status(self) -> dict[str, Any]:
        """Return its progress here, as plain values."""
        record, part = self.record, self._part
        offsets = {} if part is None else part.exchange.splits
        return {
            "dataflow": self.name,
            "worker": str(self._me),
            "leader": self.leader,
            "epoch": None if record is None else record.epoch,
            "run": None if part is None else part.record.run,
            "workers": [] if record is None else list(record.names),
            "key_groups": []
            if part is None
            else [part.exchange.groups.start, part.exchange.groups.stop],
            "splits": {label_of(each): at for each, at in offsets.items()},
            "watermark": None if part is None else part.exchange.watermark,
            **self._counts(),
            "trouble": "" if part is None else part.trouble(),
        }

    def _counts(self) -> dict[str, int]:
        """Return how many rows were processed, late and refused here since the node began."""
        before, part = self._counts_before, self._part
        if part is None:
            return before
        return {
            "rows": before["rows"] + part.runner.rows_count,
            "late": before["late"] + part.runner.context.late_count,
            "refused": before["refused"] + part.refused_count,
        }

    def state(self) -> dict[str, Value]:
        """Return the state of the keys of this worker as it is now, ahead of the last epoch."""
        return {} if self._part is None else dict(self._part.runner.state.values)

    # For other workers.

    def tell(self, told: LeaderMessage) -> WorkerReport:
        """Follow a message of a leader; return the answer of this worker."""
        self.leader = told.leader.name
        record, part = self.record, self._part
        if told.seen is not None and (record is None or told.seen > record.epoch):
            self._look.set()
        life, leaves = self._me.life, self._ringpop.ending.begun
        seen = None if record is None else record.epoch
        if part is None or record is None or part.record.run != record.run:
            return WorkerReport(life, seen=seen, leaves=leaves)
        if told.seen == record.epoch:
            part.tell(told.tell)
        return WorkerReport(life, record.run, *part.aligned(), part.failure, seen, leaves)

    def goes_on(self) -> bool:
        """Return whether this node ends, and has yet to hand its part over to other workers.

        If they all end, no worker takes it over: the next start begins from the last epoch.
        """
        part, now = self._part, trio.current_time()
        if not self._ringpop.ending.begun or part is None or part.has_ended:
            return False
        self._leaves_at = self._leaves_at or now
        return len(part.record.workers) > 1 and now - self._leaves_at < LEAVE_S

    async def element(self, hop: Hop, element: Element[bytes]) -> ElementReply:
        """Take an element of another worker. Raises BadElement."""
        part, record = self._part, self.record
        if part is not None and part.record.run == hop.run and not part.failure:
            return await part.incoming.take(hop, element)
        return ElementReply(taken=False, over=record is not None and record.run > hop.run)

    # Life.

    async def run(self) -> None:
        """Take part until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_running, f"records of dataflow {self.name}", self._follow)
            nursery.start_soon(keep_running, f"leader of dataflow {self.name}", self._leading.run)
            await self._take_parts()

    async def _follow(self) -> None:
        """Look for newer records, until cancelled."""
        while True:
            try:
                newest = await self._plan.checkpoints.newest(self.record)
            except StoreUnavailable as error:
                log.info("dataflow-retries", dataflow=self.name, why=str(error))
            else:
                if newest is not None:
                    self.saw(newest)
            with trio.move_on_after(READ_S):
                await self._look.wait()
            self._look = trio.Event()

    def saw(self, record: EpochRecord) -> None:
        """Act on *record*, if it is newer than the known one."""
        if self.record is not None and record.epoch <= self.record.epoch:
            return
        self.record = record
        part = self._part
        if part is not None and part.record.run == record.run:
            part.saw(record)
        elif part is not None:
            part.scope.cancel()
        self._changed.set()
        self._changed = trio.Event()

    async def _take_parts(self) -> None:
        former: Part | None = None
        pause_s, run_before = PAUSE_S_MIN, -1
        while True:
            record = self.record
            is_mine = record is not None and self._me in record.workers
            begins = is_mine and record is not None and record.epoch == record.run != run_before
            if record is None or not begins:
                await self._changed.wait()
                continue
            run_before = record.run
            self._counts_before = self._counts()
            part = self._part = Part(self._plan, record, _with_state(former, record))
            former = part
            began = trio.current_time()
            try:
                await part.run()
            except Exception as error:
                has_run = trio.current_time() - began > RUNS_S
                pause_s = PAUSE_S_MIN if has_run else pause_s
                text = f"dataflow {self.name} fails here, and begins again in {pause_s:g} s"
                log.exception("dataflow-failed", text=f"{text}: {one_line(error)}")
                part.clean_at = None  # its state is uncertain
                with trio.move_on_after(pause_s):
                    while self.record is not None and self.record.run == record.run:
                        await self._changed.wait()
                part.failure = one_line(error)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)


def _with_state(former: Part | None, record: EpochRecord) -> Part | None:
    """Return *former*, if it still has the state of the cut from which *record* goes on."""
    return former if former is not None and former.clean_at == record.cut else None


class Dataflows:
    """The dataflows of a node, and their endpoints for other nodes."""

    def __init__(self, ringpop: Ringpop) -> None:
        self.flows: dict[str, Dataflow] = {}
        self._ringpop = ringpop
        self._serves_flight = False
        serve = partial(ringpop.channel.serve, NODE_SERVICE, role=Role.MEMBER)
        serve(TELL, self._tell)
        serve(ELEMENT, self._element)

    def rows(self) -> list[dict[str, Any]]:
        """See `DataflowsBeside`."""
        return [flow.status() for _, flow in sorted(self.flows.items())]

    def leader_of(self, name: str) -> str | None:
        """See `DataflowsBeside`."""
        flow = self.flows.get(name)
        return None if flow is None else flow.leader

    def left(self) -> int:
        """See `DataflowsBeside`."""
        return sum(flow.goes_on() for flow in self.flows.values())

    def _tell(self, call: IncomingCall) -> Answer:
        told = decode(LeaderMessage, call.arg3)
        flow = self.flows.get(told.flow)
        if flow is None:
            return Answer(ok=False)
        return Answer(ok=True, arg3=encode(flow.tell(told)))

    async def _element(self, call: IncomingCall) -> Answer:
        hop, element = element_of(call.arg2, call.arg3)
        flow = self.flows.get(hop.flow)
        taken = ElementReply(taken=False) if flow is None else await flow.element(hop, element)
        return Answer(ok=True, arg3=encode(taken))

    def serve_flight(self) -> None:
        """Accept elements over Arrow Flight as well from now on. Raises ConfigError."""
        if self._serves_flight:
            return
        ringpop = self._ringpop
        if ringpop.credentials is not None:
            raise ConfigError(
                "Arrow Flight does not use the cluster's keys: use wire='calls', which does"
            )
        run = partial(run_flight, ringpop.address)
        ringpop.keyspaces.spawn(keep_running, "the process for Arrow Flight", run)
        self._serves_flight = True


def start_dataflow(  # noqa: PLR0913 - options of one dataflow, by name
    ringpop: Ringpop,
    source: Source,
    stage: Stage | Process,
    *,
    name: str,
    sink: Sink | None = None,
    time: str | Callable[[Any], int] | EventTime | None = None,
    lateness: int = 0,
    idle_after_s: float = 30.0,
    every_s: float = 1.0,
    key_groups: int = KEY_GROUPS,
    wire: Literal["calls", "flight"] = "calls",
    refused: Callable[[Record | BadRecord, str], object] | None = None,
) -> Dataflow:
    """Take part in the dataflow *name* from now on; return immediately.

    Every node that is to be a worker starts the same dataflow, under the same name.

    Args:
        source: the input; see `ringpop_py.streams.Source`.
        stage: the processing of a key's records: a function of its state (None at first), its
            rows and the `Context`, which returns the new state; or see `Stage`.
        sink: where the stage sends results: `FileSink`, `KeyspaceSink`, or a function of `Sent`.
        time: the field of a record's value that is its time in seconds, or a function that returns
            it; or an `EventTime`, for other units. Without it there are no watermarks.
        lateness: by how much a record may be earlier than others before it in its split, in the
            unit of *time*.
        idle_after_s: the seconds without records after which a split, or a worker, no longer holds
            up the watermark.
        every_s: about how many seconds an epoch lasts. After a failure the workers begin again
            from the last one; results arrive at its end.
        key_groups: the number of groups of keys; fixed by the first start. At most this many
            workers have work.
        wire: how this worker accepts elements: as calls of other nodes, or with ``flight`` from
            clients of Arrow Flight as well, by a process beside this node. Workers send calls.
        refused: is called, in a thread, with each record that cannot be used, and why, and the
            dataflow goes on without it. After a failure it may be called again for the same record.
            If it is None, a split stops at such a record.

    Raises:
        ConfigError: an argument cannot be used, the dataflow was started here before, or this node
            has no store.
    """
    check_stream(name, source, refused, "dataflow")
    if sink is not None:
        checked_callable(sink, "sink")
    if wire not in ("calls", "flight"):
        raise ConfigError(f"wire is calls or flight, not {wire!r}")
    _check_numbers(lateness, {"idle_after_s": idle_after_s, "every_s": every_s}, key_groups)
    if ringpop.keyspaces.store_id is None:
        raise ConfigError(
            "this node has no store, in which a dataflow keeps its epochs: give it one with "
            "--store (or Config.store)"
        )
    if ringpop.dataflows is None:
        ringpop.dataflows = Dataflows(ringpop)
    flows = ringpop.dataflows
    assert isinstance(flows, Dataflows)
    if name in flows.flows:
        raise ConfigError(f"this node has started a dataflow {name!r} already")
    catalog, worker = ringpop.keyspaces.durable(name)
    me = Worker(ringpop.name, secrets.token_hex(4))
    if wire == "flight":
        flows.serve_flight()
    checkpoints = Checkpoints(catalog.store, worker, catalog.cluster, name)
    plan = Plan(
        name=name,
        source=source,
        stage=checked_stage(stage),
        sink=sink,
        time=event_time(time),
        lateness=lateness,
        idle_after_s=idle_after_s,
        refused=refused,
        me=me,
        checkpoints=checkpoints,
        line_to=lambda to: bring_to(to, ringpop.channel, ringpop.address_of),
        read_limiter=trio.CapacityLimiter(1),
        stage_limiter=trio.CapacityLimiter(1),
        sink_limiter=trio.CapacityLimiter(1),
    )

    flow = Dataflow(plan, ringpop, every_s=every_s, key_groups=key_groups)
    ringpop.keyspaces.spawn(keep_running, f"dataflow {name}", flow.run)
    flows.flows[name] = flow
    return flow


def _check_numbers(lateness: int, seconds: Mapping[str, float], key_groups: int) -> None:
    if not isinstance(lateness, int) or lateness < 0:
        raise ConfigError(f"lateness is a whole number of 0 or more, not {lateness!r}")
    for what, value in seconds.items():
        if not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"{what} is a number above 0, not {value!r}")
    if not isinstance(key_groups, int) or not 0 < key_groups <= PARTITIONS_MAX:
        raise ConfigError(f"key_groups is 1 to {PARTITIONS_MAX}, not {key_groups!r}")


READY_S: Final = 30.0
"""A process that does not listen after this long is started again."""


async def run_flight(node: Address) -> None:
    """Run the process once, to its end.

    Args:
        node: the address of this node, to which the process brings elements.

    Raises:
        RuntimeError: the process has ended.
    """
    command = [sys.executable, "-P", "-m", "ringpop_py.flow.dataflow.relay", str(node)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        where = await first_line(process, READY_S)
        if where:
            log.info("flight-served", where=where)
            await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            await end_process(process)
    raise RuntimeError(f"the process for Arrow Flight has ended with {process.returncode}")
