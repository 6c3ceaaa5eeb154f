"""One schedule: workers that come, go, die and are slow, with leaders that may be two."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import BadElement
from ringpop_py.flow.exchange.epochs import Aligned, Output, StatePart, Worker
from ringpop_py.flow.exchange.leader import Leader, Put, WorkerReport
from ringpop_py.flow.exchange.run import Advance, Keep, Process, WorkerRun
from ringpop_py.flow.exchange.state import StageState
from ringpop_sim.flow.exchange.truth import (
    EARLY,
    ERROR,
    INVARIANTS,
    LIVE,
    Delivered,
    check_counts,
)
from ringpop_sim.state.journal.promises import PromiseBroken, ScheduleVerdict
from ringpop_sim.state.journal.sweep import Checker, ScheduleWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.exchange.elements import Barrier, Element
    from ringpop_py.flow.exchange.epochs import EpochRecord
    from ringpop_py.flow.exchange.leader import Tell
    from ringpop_py.flow.exchange.run import Send
    from ringpop_sim.state.journal.sweep import ScheduleOutcome

SPLITS: Final = ("a", "b", "c", "d")
RECORDS_MAX: Final = 30
KEYS: Final = 12
KEY_GROUPS: Final = 16
WORKERS_MAX: Final = 4
TICKS_A_SECOND: Final = 10
EVERY_S: Final = 4.0
OF_LEADERS: Final = {"x": "w0", "y": "w1"}
"""For each leader, the worker that is on the same side of a cut."""
LATENESS: Final = 5
FAULTY_UNTIL: Final = 1_200
GROWS_UNTIL: Final = 1_400
OVER: Final = 12_000
"""The instant by which everything has long been sent on."""


class Row(NamedTuple):
    """A record."""

    name: str
    key: str
    time: int


class SimulatedWorker:
    """One life of a worker."""

    def __init__(self, world: DataflowSchedule, worker: Worker) -> None:
        self.worker = worker
        self.gone = False
        self.leaves = False
        self.run: WorkerRun[Row] | None = None
        self.record: EpochRecord | None = None
        self.inboxes: dict[tuple[int, str], deque[Element[Any]]] = {}
        self._world = world
        self._state = StageState()
        self._outputs: list[str] = []
        self._clean_at: int | None = None
        self._is_first = True
        self._groups = range(0)
        self._loading: list[str] = []
        self._loaded_run = -1
        self._aligned: tuple[int, Aligned] | None = None
        self._failure = ""
        self._read()
        self._look()

    @property
    def name(self) -> str:
        """The name of its node."""
        return self.worker.name

    def said(self) -> WorkerReport:
        """Return what it says to a leader."""
        record, run = self.record, self.run
        if record is None or run is None:
            return WorkerReport(self.worker.life)
        epoch, aligned = self._aligned or (0, None)
        if epoch != record.epoch + 1:  # that of the epoch before is not delivered yet
            epoch, aligned = 0, None
        return WorkerReport(self.worker.life, record.run, epoch, aligned, self._failure)

    def fail(self) -> None:
        """Have the worker report that it cannot go on in its run."""
        self._failure = "its stage has failed"

    def told(self, tell: Tell) -> None:
        """Act on what a leader says."""
        self.see()
        run = self.run
        if run is not None and self._is_loaded and not self.gone and tell.epoch is not None:
            self._send(run.end_epoch(tell.epoch, last=tell.last))

    def _look(self) -> None:
        if not self.gone:
            self.see()
            self._world.after(self._world.rng.randrange(10, 60), self._look)

    def see(self) -> None:
        """Act on the newest record."""
        world, newest = self._world, self._world.newest
        if self.gone or newest is None or newest is self.record:
            return
        former, self.record = self.record, newest
        if self.worker not in newest.workers:
            self.run = None
        elif newest.epoch == newest.run:
            self._begin(newest)
        elif former is not None and former.run == newest.run and self.run is not None:
            mine = newest.workers.index(self.worker)
            for output in newest.outputs:
                if output.number == mine:
                    world.deliver(output)
            self.run.resume()
        else:
            self.run = None

    def _begin(self, record: EpochRecord) -> None:
        world = self._world
        run = self.run = WorkerRun(
            record,
            self.name,
            key_of=lambda row: row.key,
            lateness=LATENESS,
            idle_after=world.idle_after,
        )
        world.note(str(self.worker), f"begins {record}")
        world.truth.tally["runs"] += 1

        def is_mine(key: str) -> bool:
            return run.router.group_of(key) in run.groups

        had = range(0)
        if self._clean_at == record.cut:
            world.truth.tally["kept"] += 1
            had = self._groups
            self._state.restrict(is_mine)
        else:
            self._state = StageState()
        self._outputs, self._clean_at, self._is_first = [], None, True
        self._groups = run.groups
        self._aligned, self._failure = None, ""
        self.inboxes = {key: box for key, box in self.inboxes.items() if key[0] >= record.run}
        self._loading = [place for part in record.state for place in part.objects]
        self._load(record, lambda key: is_mine(key) and run.router.group_of(key) not in had)

    def _load(self, record: EpochRecord, is_missing: Callable[[str], bool]) -> None:
        """Load one object after the other; a newer run may begin in the middle of it."""
        world = self._world
        if self.gone or self.record is None or self.record.run != record.run:
            return
        if self._loading:
            self._state.load(world.objects[self._loading.pop(0)], is_missing)
            world.after(world.rng.randrange(1, 15), partial(self._load, record, is_missing))
            return
        self._clean_at, self._loaded_run = record.cut, record.run
        mine = record.workers.index(self.worker)
        for output in record.outputs:
            if output.number % len(record.workers) == mine:
                world.deliver(output)
        self._drain()

    @property
    def _is_loaded(self) -> bool:
        return self.record is not None and self._loaded_run == self.record.run

    # Sources.

    def _read(self) -> None:
        world, run = self._world, self.run
        if self.gone:
            return
        if run is not None and self._is_loaded and not run.paused and not self._failure:
            self._send(run.find(world.there, world.seconds))
            for split, after in run.splits.items():
                if world.rng.random() < 0.3:  # noqa: PLR2004 - a share
                    continue  # it cannot be read now
                rows = world.there_are(split)[after : after + world.rng.randrange(4)]
                if rows:
                    time = max(row.time for row in rows)
                    self._send(run.read(split, rows, after + len(rows), time, world.seconds))
                else:
                    run.quiet(split, world.seconds)
            self._send(run.look(world.seconds))
        world.after(world.rng.randrange(1, 20), self._read)

    def _send(self, found: list[Send]) -> None:
        assert self.record is not None
        for worker, element in found:
            self._world.send(self.record.run, self.worker, worker, element)

    # The stage.

    def arrived(self, run: int, sender: str, element: Element[Any]) -> None:
        """Take what came on a channel, now or later."""
        if not self.gone:
            self.inboxes.setdefault((run, sender), deque()).append(element)
            self._drain()

    def _drain(self) -> None:
        """Process what may be processed."""
        run, record = self.run, self.record
        if run is None or record is None or self._failure or not self._is_loaded:
            return
        again = True
        while again:
            again = False
            for sender in record.names:
                box = self.inboxes.get((record.run, sender))
                if not box or sender in run.blocked:
                    continue
                again = True
                try:
                    for step in run.receive(sender, box.popleft(), self._world.seconds):
                        self._do(run, step)
                except BadElement as error:
                    raise PromiseBroken(ERROR, f"{self.worker}: {error}") from None

    def _do(self, run: WorkerRun[Row], step: Process | Advance | Keep) -> None:
        world = self._world
        if isinstance(step, Keep):
            self._keep(run, step.barrier)
        elif isinstance(step, Process):
            self._clean_at = None
            for row in step.batch:
                mark = run.watermark
                if mark is not None and row.time < mark and world.never_idle:
                    raise PromiseBroken(EARLY, f"{row} after {mark}")
                self._state.set(row.key, self._state.values.get(row.key, 0) + 1, None)
                self._outputs.append(row.name)

    def _keep(self, run: WorkerRun[Row], barrier: Barrier) -> None:
        world, record = self._world, self.record
        assert record is not None
        epoch = barrier.epoch
        kept, whole = self._state.keep(whole=self._is_first)
        self._is_first = False
        about = f"{epoch}-{self.worker}-{record.run}"
        if kept:
            world.objects[f"state-{about}"] = kept
        output = None
        if self._outputs:
            world.outputs[f"out-{about}"] = tuple(self._outputs)
            output = Output(epoch, record.workers.index(self.worker), f"out-{about}")
        first, end = (run.groups.start, run.groups.stop) if run.groups else (0, 0)
        part = StatePart(first, end, (f"state-{about}",) if kept else ())
        self._outputs, self._clean_at = [], epoch
        self._aligned = epoch, Aligned(part, whole, run.offsets, run.watermark, output, run.times)


class DataflowSchedule(ScheduleWorld):
    """The world of one schedule."""

    size = WORKERS_MAX

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        self.truth = ScheduleVerdict()
        rng = self.rng
        self.never_idle = rng.random() < 0.5  # noqa: PLR2004 - a share
        self.idle_after = 1e9 if self.never_idle else 3.0
        self.two_led = rng.random() < 0.5  # noqa: PLR2004 - a share
        self.there: tuple[str, ...] = SPLITS
        self.key_groups = rng.choice((2, KEY_GROUPS))  # fewer than workers, perhaps
        self.records = {split: self._rows(split) for split in SPLITS}
        self.objects: dict[str, bytes] = {}
        self.outputs: dict[str, tuple[str, ...]] = {}
        self.delivered = Delivered()
        self._total = sum(map(len, self.records.values()))
        self._epochs: dict[int, EpochRecord] = {}
        self._workers: dict[str, SimulatedWorker] = {}
        self._lives = 0
        self._arrives: dict[tuple[int, str, str], int] = {}
        self._under_way: dict[tuple[int, str, str], deque[Element[Any]]] = {}
        self._apart: frozenset[str] = frozenset()
        self._leaders: dict[str, Leader] = {}
        for number in range(rng.randrange(1, WORKERS_MAX)):
            self._start(f"w{number}")
        for leader in ("x", "y") if self.two_led else ("x",):
            self._lead(leader)
        for _ in range(rng.randrange(7)):
            self.after(rng.randrange(FAULTY_UNTIL), self._disturb)
        self.after(FAULTY_UNTIL, self._be_calm)

    def _rows(self, split: str) -> list[Row]:
        rng = self.rng
        return [
            Row(f"{split}{number}", f"key-{rng.randrange(KEYS)}", 10 * number + rng.randrange(5))
            for number in range(rng.randrange(RECORDS_MAX))
        ]

    def there_are(self, split: str) -> list[Row]:
        """Return the rows that *split* has by now; it grows until after the last fault."""
        return self.records[split][: self.now * RECORDS_MAX // GROWS_UNTIL]

    @property
    def seconds(self) -> float:
        """The time of workers."""
        return self.now / TICKS_A_SECOND

    @property
    def newest(self) -> EpochRecord | None:
        """The newest record in the store."""
        return self._epochs[max(self._epochs)] if self._epochs else None

    # Faults.

    def _start(self, name: str) -> None:
        self._lives += 1
        self._workers[name] = SimulatedWorker(self, Worker(name, f"life{self._lives}"))
        self.note(name, "starts")

    def _disturb(self) -> None:
        """Kill a worker, start one again, have one leave, or another come."""
        name = f"w{self.rng.randrange(WORKERS_MAX)}"
        if self.rng.random() < 0.2:  # noqa: PLR2004 - a share
            if self.rng.random() < 0.3:  # noqa: PLR2004 - a share
                self.there = SPLITS[self.rng.randrange(len(SPLITS)) :]
                self.never_idle = False  # what comes again is late
                self.truth.tally["hidden"] += 1
            else:
                self._apart = frozenset(self.rng.sample(list(self._workers), 1))
                self.truth.tally["cut"] += 1
            self.after(self.rng.randrange(600), self._heal)
            return
        there = self._workers.get(name)
        if there is None or there.gone:
            self._start(name)
        elif self.rng.random() < 0.2:  # noqa: PLR2004 - a share
            there.fail()
            self.truth.tally["failed"] += 1
        elif self.rng.random() < 0.5:  # noqa: PLR2004 - a share
            there.leaves = True
            self.truth.tally["leaves"] += 1
            if self.rng.random() < 0.5:  # noqa: PLR2004 - a share
                self.after(self.rng.randrange(1, 60), partial(self._stay, there))
        else:
            there.gone = True
            self.truth.tally["killed"] += 1
            self.note(str(there.worker), "is killed")
            if self.rng.random() < 0.5:  # noqa: PLR2004 - a share
                self.after(self.rng.randrange(1, 100), partial(self._start_again, name))

    def _heal(self) -> None:
        self._apart, self.there = frozenset(), SPLITS

    def _stay(self, worker: SimulatedWorker) -> None:
        """Have a worker that was to leave stay after all."""
        worker.leaves = False

    def _start_again(self, name: str) -> None:
        if self._workers[name].gone:
            self._start(name)

    def _be_calm(self) -> None:
        self.calm = True
        self._heal()
        if all(worker.gone or worker.leaves for worker in self._workers.values()):
            self._start("w9")
        # What is planned may change while nothing fails.
        there = self.rng.choice([each for each in self._workers.values() if not each.gone])
        if not there.leaves:
            there.leaves = True
            self.after(self.rng.randrange(1, 100), partial(self._stay, there))

    # Leaders.

    def _lead(self, name: str) -> None:
        """One look of a leader, which may be a new one that knows nothing."""
        if name not in self._leaders or (not self.calm and self.rng.random() < 0.05):  # noqa: PLR2004
            self._leaders[name] = Leader(every_s=EVERY_S, key_groups=self.key_groups)
        there = [
            worker
            for worker in self._workers.values()
            if not worker.gone and not self._are_apart(worker.name, OF_LEADERS[name])
        ]
        present = [worker.worker for worker in there if not worker.leaves]
        said = {worker.name: worker.said() for worker in there if not self._is_lost()}
        step = self._leaders[name].decide(
            self.newest, sorted(present), said, self.seconds, at_ms=self.now
        )
        if isinstance(step, Put):
            self.after(self.rng.randrange(1, 30), partial(self._put, step.record))
        else:
            for worker in there:
                if not self._is_lost():
                    self.after(self.rng.randrange(1, 10), partial(worker.told, step))
        if self.calm and self.delivered.count == self._total:
            return
        self.after(self.rng.randrange(5, 20), partial(self._lead, name))

    def _is_lost(self) -> bool:
        return not self.calm and self.rng.random() < 0.1  # noqa: PLR2004 - a share

    def _put(self, record: EpochRecord) -> None:
        if record.epoch in self._epochs:
            self.truth.tally["too late"] += 1
            return
        self._epochs[record.epoch] = record
        self.truth.tally[record.why if record.why == "complete" else "changes"] += 1
        self.note("store", record)

    # The traffic between workers, and to sinks.

    def send(self, run: int, sender: Worker, name: str, element: Element[Any]) -> None:
        """Bring *element* to the worker *name*, behind what was sent on the same channel."""
        target = self._workers.get(name)
        if target is None:
            return
        channel = run, str(sender), str(target.worker)
        at = max(self._arrives.get(channel, 0), self.now + self.rng.randrange(1, 40))
        self._arrives[channel] = at
        self._under_way.setdefault(channel, deque()).append(element)
        self.after(at - self.now, partial(self._arrive, channel, sender.name, target))

    def _arrive(self, channel: tuple[int, str, str], sender: str, to: SimulatedWorker) -> None:
        """Bring the next element of a channel, as soon as its ends are not cut off."""
        if self._are_apart(sender, to.name):
            self.after(30, partial(self._arrive, channel, sender, to))
        else:
            to.arrived(channel[0], sender, self._under_way[channel].popleft())

    def _are_apart(self, one: str, other: str) -> bool:
        return (one in self._apart) != (other in self._apart)

    def deliver(self, output: Output) -> None:
        """Bring what a stage has sent on to the sink."""
        self.delivered.deliver(output.epoch, output.number, self.outputs[output.place])

    def play(self) -> None:
        """See `ScheduleWorld`. It is over when everything has been sent on."""
        while self.next_at < OVER and not (self.calm and self.delivered.count == self._total):
            self.step()
        if self.delivered.count != self._total:
            raise PromiseBroken(LIVE, f"{self.delivered.count} of {self._total} were sent on")

    def end(self) -> None:
        """See `ScheduleWorld`."""
        self.truth.tally["records"] += self._total
        self._check_state()

    def _check_state(self) -> None:
        """Compare the state of the newest record with all records."""
        counts: dict[str, int] = {}
        newest = self.newest
        assert newest is not None
        for part in newest.state:
            state = StageState()
            for place in part.objects:
                state.load(self.objects[place], lambda _: True)
            for key, count in state.values.items():
                counts[key] = counts.get(key, 0) + count
        check_counts(counts, Counter(row.key for rows in self.records.values() for row in rows))


def run_schedule(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed*."""
    del nodes
    return DataflowSchedule(seed, traced=traced).run()


DATAFLOWS: Final = Checker(run_schedule, INVARIANTS)
