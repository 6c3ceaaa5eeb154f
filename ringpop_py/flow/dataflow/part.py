"""The part of this node in one run of a dataflow: carries out what `WorkerRun` decides."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ringpop_py.base.errors import SourceFailed, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.flow.dataflow.batches import Packer, rows_in
from ringpop_py.flow.dataflow.channels import Incoming, Outgoing
from ringpop_py.flow.dataflow.checkpoints import object_name, packed_rows, rows_of
from ringpop_py.flow.dataflow.sinks import Sent, deliver
from ringpop_py.flow.dataflow.stage import Row, StageRunner, row_of
from ringpop_py.flow.exchange.elements import Data
from ringpop_py.flow.exchange.epochs import Aligned, Output, StatePart
from ringpop_py.flow.exchange.run import Advance, Keep, Process, Send, WorkerRun
from ringpop_py.flow.exchange.state import StageState
from ringpop_py.flow.streams.source import NamedSplit, label_of, losses_of
from ringpop_py.flow.streams.stream import CLOSED
from ringpop_py.flow.streams.times import time_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ringpop_py.flow.dataflow.channels import Bring
    from ringpop_py.flow.dataflow.checkpoints import Checkpoints
    from ringpop_py.flow.dataflow.sinks import Sink
    from ringpop_py.flow.dataflow.stage import Stage
    from ringpop_py.flow.exchange.epochs import EpochRecord, Worker
    from ringpop_py.flow.exchange.leader import Tell
    from ringpop_py.flow.streams.source import BadRecord, Record, Source
    from ringpop_py.flow.streams.times import EventTime

T = TypeVar("T")
Step = Process | Advance | Keep

READ_RECORDS: Final = 4_000
LOOK_S: Final = 1.0
"""The seconds between two looks for splits."""
IDLE_S: Final = 0.02
IDLE_S_MAX: Final = 0.2
SLOW_S: Final = 10.0
"""The seconds after which a call of a stage or a sink is shown as a trouble."""
SOURCES: Final = frozenset({"source", "sink", "store"})
"""The places of troubles, besides splits."""
AGAIN_S: Final = 0.1
AGAIN_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The definition of a dataflow, at this node.

    Attributes:
        line_to: returns the way of elements to a worker.
        time: where records have their times; None if they have none.
        refused: see `ringpop_py.flow.dataflow.dataflow.start_dataflow`.
        read_limiter, stage_limiter, sink_limiter: limit threads; a stage runs in one at a time.
    """

    name: str
    source: Source
    stage: Stage
    sink: Sink | None
    time: EventTime | None
    lateness: int
    idle_after_s: float
    refused: Callable[[Record | BadRecord, str], object] | None
    me: Worker
    checkpoints: Checkpoints
    line_to: Callable[[str], Bring]
    read_limiter: trio.CapacityLimiter
    stage_limiter: trio.CapacityLimiter
    sink_limiter: trio.CapacityLimiter


class Part:
    """See the module.

    Args:
        former: the part before, if it still has the state at the cut from which the run begins.

    Attributes:
        exchange: decides what follows from what comes.
        runner: the stage, with its state.
        incoming: the channels for elements of other workers.
        scope: cancelled to end the part.
        troubles: the texts of present troubles, by place.
        refused_count: how many records were left out.
        has_ended: whether it no longer takes part.
        failure: the reason, if it has failed.
        clean_at: the epoch at whose end the state is; None if it has changed since, or is not
            complete.
    """

    def __init__(self, plan: Plan, record: EpochRecord, former: Part | None) -> None:
        self.record = record
        self.incoming = Incoming(record, plan.me)
        self.scope = trio.CancelScope()
        self.troubles: dict[str, str] = {}
        self.refused_count = 0
        self.failure = ""
        self.has_ended = False
        self.clean_at: int | None = None
        self._plan = plan
        self.exchange: WorkerRun[Row] = WorkerRun(
            record,
            plan.me.name,
            key_of=attrgetter("key"),
            lateness=plan.lateness,
            idle_after=plan.idle_after_s,
        )
        self._number = record.names.index(plan.me.name)
        kept = StageState() if former is None else former.runner.state
        self._had = range(0) if former is None else former.exchange.groups
        self.runner: StageRunner = StageRunner(plan.stage, kept, record.watermark)
        self._outgoing = {
            name: Outgoing(plan.name, record, plan.me, plan.line_to(name))
            for name in record.names
            if name != plan.me.name
        }
        self._is_whole_due = True
        self._aligned: tuple[int, Aligned] | None = None
        self._delivered: int | None = None
        self._barrier: Tell | None = None
        self._wake = trio.Event()
        self._unblocked = trio.Event()
        self._turn = trio.Lock()
        self._packer = Packer()
        self._stopped: set[str] = set()
        self._called_at: dict[str, float] = {}
        self._nursery: trio.Nursery | None = None

    # What others see.

    def aligned(self) -> tuple[int, Aligned | None]:
        """Return the epoch after the newest record, and our part of it, once it may end."""
        epoch = self.record.epoch + 1
        if self._aligned is None or self._aligned[0] != epoch:
            return 0, None
        # The results of the epoch before must have arrived: its record is deleted soon.
        return (epoch, self._aligned[1]) if self._delivered == epoch - 1 else (0, None)

    def tell(self, tell: Tell) -> None:
        """Follow a message of a leader."""
        if tell.epoch is not None and tell.epoch > self.exchange.epoch:
            self._barrier = tell
            self._rouse()

    def saw(self, record: EpochRecord) -> None:
        """Go on with a newer record of this run."""
        self.record = record
        self.exchange.resume()
        self._rouse()
        if self._nursery is not None:
            mine = [output for output in record.outputs if output.number == self._number]
            self._nursery.start_soon(self._deliver, record.epoch, mine)

    def _rouse(self) -> None:
        self._wake.set()
        self._wake = trio.Event()

    # Life.

    async def run(self) -> None:
        """Take part, until the scope is cancelled. Raises what the stage or the store raises."""
        try:
            with self.scope:
                await self._take_part(self.record)
        finally:
            self.has_ended = True

    async def _take_part(self, record: EpochRecord) -> None:
        workers = len(record.workers)
        await self._load(record)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._read)
            for name in record.names:
                nursery.start_soon(self._consume, name)
            for outgoing in self._outgoing.values():
                nursery.start_soon(outgoing.run)
            mine = [each for each in record.outputs if each.number % workers == self._number]
            nursery.start_soon(self._deliver, record.epoch, mine)

    async def _load(self, record: EpochRecord) -> None:
        """Load the state of the key groups that this worker has now, and had not."""
        state, run, checkpoints = self.runner.state, self.exchange, self._plan.checkpoints

        def is_mine(key: str) -> bool:
            return run.router.group_of(key) in run.groups

        had = self._had
        await self._in_stage(lambda: state.restrict(is_mine))
        missing = [group for group in run.groups if group not in had]

        def is_missing(key: str) -> bool:
            return is_mine(key) and run.router.group_of(key) not in had

        for part in record.state:
            if any(part.first <= group < part.end for group in missing):
                for name in part.objects:
                    payload = await self._stored(partial(checkpoints.get_object, name))
                    await self._in_stage(partial(state.load, payload, is_missing))
        self.clean_at = record.cut  # not before: a part that ends while it loads lacks some

    async def _in_stage(self, function: Callable[[], T]) -> T:
        # A stage that hangs must not keep the node from ending. Its later work is lost: its state
        # is not used again, and the next part waits for its thread.
        with self._call_of("stage"):
            return await trio.to_thread.run_sync(
                function, abandon_on_cancel=True, limiter=self._plan.stage_limiter
            )

    @contextmanager
    def _call_of(self, what: str) -> Iterator[None]:
        """Note that the application's *what* is called, in case it does not return."""
        self._called_at[what] = trio.current_time()
        try:
            yield
        finally:
            del self._called_at[what]

    async def _stored(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *call*, retried until the store answers. Raises StateDamaged."""
        return await self._retried("store", call, StoreUnavailable, str)

    async def _retried(
        self,
        where: str,
        call: Callable[[], Awaitable[T]],
        kind: type[Exception],
        text_of: Callable[[Exception], str],
    ) -> T:
        """Return the result of *call*; while it raises *kind*, that is the trouble of *where*."""
        pause_s = AGAIN_S
        while True:
            try:
                found = await call()
            except kind as error:
                self._note(where, text_of(error))
            else:
                self._note(where, "")
                return found
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    def trouble(self) -> str:
        """Return the present trouble of this part; empty if it has none."""
        if self.failure:
            return self.failure
        now = trio.current_time()
        for what, since in self._called_at.items():
            if now - since > SLOW_S:
                return f"the {what} has not returned for {now - since:.0f} s"
        texts = [f"{label_of(where)}: {text}" for where, text in self.troubles.items()]
        return next(iter(texts + losses_of(self._plan.source)), "")

    def _note(self, where: str, trouble: str) -> None:
        if trouble == self.troubles.get(where, ""):
            return
        if trouble:
            self.troubles[where] = trouble
            where = label_of(where)
            text = f"dataflow {self._plan.name}, {where}: {trouble}"
            log.warning("dataflow-trouble", dataflow=self._plan.name, where=where, text=text)
        else:
            del self.troubles[where]

    # Sources.

    async def _read(self) -> None:
        """Read the splits of this worker in turns, and send barriers between, until cancelled."""
        await self._find_splits()  # former names are known before an epoch can end
        look_at, pause_s = trio.current_time() + LOOK_S, IDLE_S
        while True:
            wake, told = self._wake, self._barrier
            if told is not None and told.epoch is not None:
                self._barrier = None
                await self._send(self.exchange.end_epoch(told.epoch, last=told.last))
            if self.exchange.paused:
                await wake.wait()
                continue
            if trio.current_time() >= look_at:
                await self._find_splits()
                look_at = trio.current_time() + LOOK_S
            if await self._read_all():
                pause_s = IDLE_S
            else:
                if "source" not in self.troubles:
                    await self._send(self.exchange.look(trio.current_time()))
                with trio.move_on_after(pause_s):
                    await wake.wait()
                pause_s = min(2 * pause_s, IDLE_S_MAX)

    async def _find_splits(self) -> None:
        try:
            splits = await self._in_reader(self._plan.source.splits)
        except SourceFailed as error:
            self._note("source", f"the splits cannot be listed: {error}")
        else:
            self._note("source", "")
            now, awaits = trio.current_time(), getattr(self._plan.source, "awaits", False)
            wanted = wanted_of(self.exchange, splits, now)
            await self._send(self.exchange.find(wanted, now, awaits=awaits))
            # The rest of a file that has an end was read in its copy.
            grows = [split for split in splits if not getattr(split, "is_ended", False)]
            closed = self.exchange.closed(grows)
            for split in closed:
                self._note(split, CLOSED)
            for split in self.troubles.keys() - SOURCES - self.exchange.splits.keys() - closed:
                self._note(split, "")  # it is gone, or another worker's

    async def _read_all(self) -> bool:
        """Read each split once, or up to the next barrier; return whether records came."""
        was_any = False
        for split, after in self.exchange.splits.items():
            if self._barrier is not None or self.exchange.paused:
                return True
            if split in self._stopped:
                continue
            try:
                now = trio.current_time()
                sends = await self._in_reader(partial(self._read_some, split, after, now))
            except SourceFailed as error:
                self._note(split, str(error))
                await self._send(self.exchange.unread(split))
                continue
            if sends is not None:
                was_any = True
                await self._send(sends)
            if split in self._stopped:
                await self._send(self.exchange.unread(split))
                continue
            self._note(split, "")
            if sends is None:
                self.exchange.quiet(split, trio.current_time())
        return was_any

    async def _in_reader(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(
            function, abandon_on_cancel=True, limiter=self._plan.read_limiter
        )

    def _read_some(self, split: str, after: int, now: float) -> list[Send] | None:
        """Read and pack the next records of *split*; None if it has none."""
        rows: list[Row] = []
        upto = after
        time_of, is_told, wall_s = time_function(self._plan.time), False, time.time()
        for record in self._plan.source.read(split, after, READ_RECORDS):
            row, why = row_of(record, time_of)
            if row is not None and self._plan.time is not None:
                why = self._plan.time.why_refused(row.time, wall_s)
                if why and not is_told:  # one for all that are read together
                    is_told, where = True, f"{label_of(split)} at position {record.position}"
                    text = f"dataflow {self._plan.name}, {where}: {why}"
                    log.warning("dataflow-ahead", dataflow=self._plan.name, text=text)
            if row is not None and not why:
                rows.append(row)
            elif not self._refuse(split, record, why):
                break
            upto = record.position
        if upto == after:
            return None
        times = [row.time for row in rows if row.time is not None]
        sends = self.exchange.read(split, rows, upto, max(times, default=None), now)
        return [each for send in sends for each in self._packed(send)]

    def _refuse(self, split: str, record: Record | BadRecord, why: str) -> bool:
        """Give the application a record that cannot be used; return whether to go on."""
        if self._plan.refused is None:
            self._stopped.add(split)
            self._note(split, f"it stops at position {record.position}: {why}")
            return False
        self._plan.refused(record, why)
        self.refused_count += 1
        return True

    def _packed(self, send: Send) -> list[Send]:
        """Return *send* with its rows as batches of Arrow, unless it stays here."""
        if send.worker == self._plan.me.name or not isinstance(send.element, Data):
            return [send]
        return [Send(send.worker, Data(b)) for b in self._packer.pack(send.element.batch)]

    async def _send(self, sends: Sequence[Send]) -> None:
        for worker, element in sends:
            if worker == self._plan.me.name:
                await self.incoming.put(worker, element)
            else:
                await self._outgoing[worker].put(element)

    # The stage.

    async def _consume(self, worker: str) -> None:
        """Process the elements of *worker*, in order, until cancelled."""
        receiver = self.incoming.receiver(worker)
        async for element in receiver:
            while worker in self.exchange.blocked:
                await self._unblocked.wait()
            async with self._turn:
                await self._do(self.exchange.receive(worker, element, trio.current_time()))

    async def _do(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        if isinstance(steps[0], Keep):
            await self._keep(steps[0].barrier.epoch)
        else:
            self.clean_at = None
            await self._in_stage(partial(self._process, steps))

    def _process(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Process):
                batch = step.batch
                self.runner.process(batch if isinstance(batch, list) else rows_in(batch))
            elif isinstance(step, Advance):
                self.runner.advance(step.time)

    async def _keep(self, epoch: int) -> None:
        """Keep the present state and the results; go on while they are put."""
        runner, run = self.runner, self.exchange
        whole = self._is_whole_due
        (state, is_whole), emitted = await self._in_stage(
            lambda: (runner.state.keep(whole=whole), runner.take_emitted())
        )
        count, one = runner.take_late()
        if count:
            name = self._plan.name
            text = f"{count} records of epoch {epoch}, which came too late: {one}"
            text = f"dataflow {name} has left out {text}"
            log.warning("dataflow-late", text=text, dataflow=name, count=count)
        self._is_whole_due = False
        self.clean_at = epoch
        named = partial(object_name, epoch, number=self._number, life=self._plan.me.life)
        objects = {named(kind="state"): state} if state else {}
        groups = run.groups
        part = StatePart(groups.start, groups.stop, tuple(objects))
        output = None
        if emitted and self._plan.sink is not None:
            output = Output(epoch, self._number, named(kind="output"))
            objects[output.place] = packed_rows(emitted)
        aligned = Aligned(part, is_whole, run.offsets, run.watermark, output, run.times)
        assert self._nursery is not None
        self._nursery.start_soon(self._put, epoch, objects, aligned)
        self._unblocked.set()
        self._unblocked = trio.Event()

    async def _put(self, epoch: int, objects: dict[str, bytes], aligned: Aligned) -> None:
        for name, payload in objects.items():
            await self._stored(partial(self._plan.checkpoints.put_object, name, payload))
        self._aligned = epoch, aligned

    # Results.

    async def _deliver(self, epoch: int, outputs: Sequence[Output]) -> None:
        """Deliver *outputs*, those of this worker in the record of *epoch*."""
        plan = self._plan
        if plan.sink is not None:
            for output in outputs:
                payload = await self._stored(partial(plan.checkpoints.get_object, output.place))
                sent = Sent(plan.name, output.epoch, output.number, rows_of(payload))
                bring = partial(self._deliver_one, plan.sink, sent)
                await self._retried("sink", bring, Exception, one_line)
        self._delivered = epoch

    async def _deliver_one(self, sink: Sink, sent: Sent) -> None:
        with self._call_of("sink"):
            await deliver(sink, sent, self._plan.sink_limiter)


def wanted_of(run: WorkerRun[Row], splits: Sequence[str], now: float) -> list[str]:
    """Return those of *splits* that a dataflow's *run* is to read, once it has former names."""
    present = set(splits)
    wanted: list[str] = []
    for split in splits:
        formers: list[str] = []
        if isinstance(split, NamedSplit) and split.is_copy and split.alias:
            formers = run.known_like(split.alias)
        was_read = run.take_over(split, [each for each in formers if each not in present], now)
        if was_read or not isinstance(split, NamedSplit) or not split.is_spare:
            wanted.append(split)
    return wanted
