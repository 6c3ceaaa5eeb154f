"""Committed jobs at the owners of partitions: chunk by chunk into their logs, each once.

The chunks of a job are a series of writes, so the state of a partition says how many it has. A new
owner continues where the last one stopped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import trio

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    KeyspaceError,
    OperationTooOld,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.base.values.operations import OperationId, PackedWrite
from ringpop_py.base.values.packed import decode_value
from ringpop_py.base.values.requests import Moved
from ringpop_py.state.jobs.messages import Refusals, RowRefusal
from ringpop_py.state.jobs.store import now_us
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.rows.vectors import ROWS_MIN, NumberRows, number_rows
from ringpop_py.state.shares.server import Held
from ringpop_py.state.table.sessions import JOBS_MAX
from ringpop_py.state.tasks import in_parallel

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ringpop_py.base.metering import Tally
    from ringpop_py.base.values.operations import Outcome, Value, Write
    from ringpop_py.state.jobs.messages import Decision
    from ringpop_py.state.jobs.plan import JobPlan, PlannedFile
    from ringpop_py.state.jobs.store import JobStore
    from ringpop_py.state.rows.stagefile import Chunk, StagedBatch
    from ringpop_py.state.shares.server import PartitionServer
    from ringpop_py.state.tasks import Worker

LOADS_SLOW_MAX: Final = 8
"""The most files that are read at a time from a slow store."""
LOADS_MAX: Final = 2
"""The most files that are read at a time from a fast store: there the interpreter is the limit."""
GROUP_BYTES_MAX: Final = 1 << 18
"""The most bytes of a commit. Larger commits are not faster, and delay all others at the node."""
WRITES_MAX: Final = 4
"""The most partitions that commit at a time; while they evaluate, all others at the node wait."""
WRITES_SMALL_MAX: Final = 16
"""The same limit if little is evaluated or the store is slow: commits then wait for the store."""
SMALL_BYTES: Final = 1 << 14
"""The average bytes of a partition in a window below which little is evaluated."""
WINDOW_BYTES: Final = 16 << 20
"""The most bytes of files that are in memory at a time."""
WINDOW_FIRST_BYTES: Final = 1 << 20
"""The same for the first window; each later window may have twice as many. A slow node that cannot
load a large window in its time would never write any of it."""
SLICE_S: Final = 1.5
"""After this many seconds the owner reports its progress."""
SLICE_S_MAX: Final = 4.0
"""After this many seconds it reports even if the store does not answer."""
LONG_US: Final = 60_000_000
"""The microseconds after which the store also keeps which partitions have begun a job and which are
done: meanwhile so many other jobs may write that the partitions forget it."""
REDUCTIONS_MAX: Final = 10
"""The most retries of a chunk, each without the rows that were refused the last time."""
CHANGE_BYTES: Final = 64
"""The bytes counted for a change that is evaluated, besides its own."""
NUMBERS_BYTES: Final = 16
"""The same for a change of numbers, of which many are evaluated together."""
_ARRAY: Final = b"\xdd"
"""The byte of msgpack that begins an array: its length in 32 bits and its items follow."""


class Partition(Held, Protocol):
    """A partition of a durable keyspace."""

    async def write(
        self, writes: Sequence[Write | PackedWrite], deadline: float = inf
    ) -> list[Outcome | KeyspaceError]:
        """Commit *writes*, in order; return the outcome of each. Raises KeyspaceError."""


class JobApplier:
    """Applies jobs to the partitions of one keyspace that are at this node; one job at a time."""

    def __init__(self, jobs: JobStore, worker: Worker, server: PartitionServer[Partition]) -> None:
        self._jobs = jobs
        self._worker = worker
        self._server = server
        self._lock = trio.Lock()

    async def apply(self, job: str, token: str, numbers: Sequence[int]) -> list[Any]:
        """Continue *job* for a while, and return each partition's chunk count or `PartResult`.

        Raises: as `JobStore.plan`.
        """
        plan = await self._worker.run(self._jobs.plan, job, token)
        found = dict(zip(numbers, await self._server.each(numbers, itself), strict=True))
        elsewhere = KeyspaceError, Moved
        here = {n: each for n, each in found.items() if not isinstance(each, elsewhere)}
        run = _Run(self._jobs, self._worker, job, plan, here, self._server.operations.job)
        long = is_long(plan.decision)
        keys, marked = self._jobs.keys.job(job), set[int]()
        if run.left:
            # All writes until then count: the state of each partition has its progress.
            with trio.move_on_after(SLICE_S_MAX):
                async with self._lock:  # the files of one job in memory at a time
                    until = trio.current_time() + SLICE_S
                    if long:
                        marked = await self._worker.run(self._jobs.marked, keys.begun)
                        run.refuse_forgotten(marked)
                    await run.go_on(until)
            new = [number for number in run.begun(long=long) if number not in marked]
            if new:
                await self._worker.run(self._jobs.mark, keys.begun_by, new)
        return [run.result(n) if n in here else _of_partition(found[n]) for n in numbers]


@dataclass(slots=True)
class _Run:
    """One job, applied for a while to the partitions *here*."""

    jobs: JobStore
    worker: Worker
    job: str
    plan: JobPlan
    here: Mapping[int, Partition]
    tally: Tally
    errors: dict[int, KeyspaceError] = field(default_factory=dict)

    @property
    def left(self) -> dict[int, int]:
        """For each partition that can have more chunks: how many it has."""
        counts = {number: self._count(number) for number in self.here}
        return {
            number: count
            for number, count in counts.items()
            if count < self.plan.chunk_counts.get(number, 0) and number not in self.errors
        }

    def _count(self, number: int) -> int:
        return self.here[number].state.series_count(self.plan.decision.source)

    def begun(self, *, long: bool) -> list[int]:
        """Return partitions with a part of the job; unless it is *long*, those that are stuck."""
        totals = self.plan.chunk_counts
        begun = [n for n in self.here if 0 < self._count(n) < totals.get(n, 0)]
        return [n for n in begun if long or isinstance(self.errors.get(n), StateDamaged)]

    def refuse_forgotten(self, begun: Collection[int]) -> None:
        """Skip partitions that have *begun* the job and forgotten it: they would begin again."""
        for number in self.left:
            if number in begun and not self._count(number):
                message = (
                    f"partition {number} has a part of job {self.job!r}, and no longer knows which:"
                    f" {JOBS_MAX} later jobs were applied to it"
                )
                self.errors[number] = StateDamaged(message)

    def result(self, number: int) -> int | KeyspaceError:
        """Return how many chunks a partition has, or why it cannot have more."""
        if self.here[number].presence is not Presence.OWNED:
            return PartitionUnavailable(f"partition {number} has left this node")
        count = self._count(number)
        is_done = count >= self.plan.chunk_counts.get(number, 0)
        return count if is_done else self.errors.get(number, count)

    async def go_on(self, until: float) -> None:
        """Apply window after window, until all are applied or the time is over."""
        files, room_bytes = deque(self.plan.files), WINDOW_FIRST_BYTES
        while files and (left := self.left) and trio.current_time() < until:
            window, size_bytes = list["PlannedFile"](), 0
            while files and (not window or size_bytes + files[0].size_bytes <= room_bytes):
                file = files.popleft()
                if any(count < sum(file.places.get(n, (0, 0))) for n, count in left.items()):
                    window.append(file)
                    size_bytes += file.size_bytes
            await self._apply(window)
            room_bytes = min(2 * room_bytes, WINDOW_BYTES)

    async def _apply(self, window: Sequence[PlannedFile]) -> None:
        left, is_quick = self.left, self.jobs.store.quick
        loaded: list[dict[int, list[Loaded]]] = [{}] * len(window)

        async def load(place: int) -> None:
            try:
                loaded[place] = await self._load(window[place], left)
            except KeyspaceError as error:  # other partitions than the file's go on
                self.errors |= dict.fromkeys(window[place].places, error)

        await in_parallel(load, len(window), LOADS_MAX if is_quick else LOADS_SLOW_MAX)
        left = self.left  # without those whose files could not be loaded
        size_bytes = sum(file.size_bytes for file in window)
        is_small = not is_quick or size_bytes < SMALL_BYTES * len(left)
        numbers = list(left)

        async def write(place: int) -> None:
            number = numbers[place]
            several = [each for found in loaded for each in found.get(number, ())]
            try:
                await self._write_all(self.here[number], several)
            except KeyspaceError as error:
                self.errors[number] = error

        await in_parallel(write, len(numbers), WRITES_SMALL_MAX if is_small else WRITES_MAX)

    async def _load(self, file: PlannedFile, wanted: Mapping[int, int]) -> dict[int, list[Loaded]]:
        source = self.plan.decision.source
        return await self.worker.run(loaded_from, self.jobs, source, file, wanted)

    async def _write_all(self, partition: Partition, loaded: Sequence[Loaded]) -> None:
        """Commit all of *loaded*, in order. Raises KeyspaceError if that cannot go on."""
        for each in loaded:
            if each.unfit:
                await self._say_refused(partition, each.write, each.unfit)
        left = deque(loaded)
        while left:
            # The first one has no size limit: otherwise a large chunk would never be
            # written.
            group = [left.popleft()]
            size_bytes = group[0].size_bytes
            while left and size_bytes + left[0].size_bytes <= GROUP_BYTES_MAX:
                size_bytes += left[0].size_bytes
                group.append(left.popleft())
            outcomes = await partition.write([each.write for each in group])
            for place, outcome in enumerate(outcomes):
                each = group[place]
                if not isinstance(outcome, KeyspaceError):
                    self._note(each, 0 if outcome.repeated else len(each.write.keys), 0)
                else:
                    # The later writes of the series were refused with it: try them again.
                    left.extendleft(reversed(group[place + 1 :]))
                    await self._write_reduced(partition, each, outcome)
                    break  # of the outcomes; the loop goes on with what is left

    async def _write_reduced(
        self, partition: Partition, loaded: Loaded, error: KeyspaceError
    ) -> None:
        """Commit *loaded* without the rows that the keyspace refuses, which are recorded first."""
        write = loaded.write
        for _ in range(REDUCTIONS_MAX):  # other clients may change the state between two tries
            # No row is to blame: the series itself is out of turn.
            if isinstance(error, OperationTooOld):
                raise error
            refused = await partition.read(lambda state: state.refusals(write))
            some = [RowRefusal.of(write.keys[place], why) for place, why in refused.items()]
            if some:
                await self._say_refused(partition, write, some)
            rows = zip(write.keys, write.arguments, strict=True)
            kept = [row for place, row in enumerate(rows) if place not in refused]
            reduced = write._replace(keys=[k for k, _ in kept], arguments=[v for _, v in kept])
            (outcome,) = await partition.write([reduced])
            if not isinstance(outcome, KeyspaceError):
                self._note(loaded, len(kept), len(refused))
                return
            error = outcome
        raise PartitionUnavailable(
            f"partition {partition.number} refuses other rows each time: {error}"
        )

    def _note(self, loaded: Loaded, done: int, refused: int) -> None:
        self.tally.done += done
        self.tally.refused += refused + len(loaded.unfit)

    async def _say_refused(
        self, partition: Partition, write: PackedWrite, rows: Sequence[RowRefusal]
    ) -> None:
        refusals = Refusals(len(rows), tuple(rows))
        put, sequence = self.jobs.put_refusals, write.sequence
        await self.worker.run(put, self.job, partition.number, sequence, refusals)


def is_long(decision: Decision) -> bool:
    """Return whether the job was decided long ago; see `LONG_US`."""
    return now_us() - decision.decided_us > LONG_US


def _of_partition(result: object) -> object:
    # The damage of a partition that is not here does not end the waiting job.
    return PartitionUnavailable(str(result)) if isinstance(result, StateDamaged) else result


async def itself(partition: Partition) -> object:
    """Return *partition*, for `PartitionServer.each`."""
    await trio.lowlevel.checkpoint()
    return partition


# Files as the writes that they become. Blocking, in threads.


class Loaded(NamedTuple):
    """A chunk as a write, without the *unfit* rows, whose arguments are not values."""

    write: PackedWrite
    size_bytes: int
    unfit: tuple[RowRefusal, ...] = ()


def loaded_from(
    jobs: JobStore, source: str, file: PlannedFile, wanted: Mapping[int, int]
) -> dict[int, list[Loaded]]:
    """Return the writes in *file* for the partitions *wanted*, from their next chunks on.

    Args:
        source: of the writes.

    Raises:
        StateDamaged: the file is gone or replaced.
        StoreUnavailable: the store does not answer.
    """
    from ringpop_py.state.rows.stagefile import decode_stage  # noqa: PLC0415 - pyarrow takes 60 MB

    data = jobs.store.get(file.key)
    if data is None:
        raise StateDamaged(f"{file.key} is gone")
    stage = decode_stage(data)
    operation, numbers = stage.index.operation, _numbers_in(stage)
    found = {}
    for partition, count in wanted.items():
        first, chunks_count = file.places.get(partition, (0, 0))
        if count >= first + chunks_count:
            continue
        chunks = list(zip(stage.chunks(partition), stage.places(partition), strict=True))
        if len(chunks) != chunks_count:
            raise StateDamaged(f"{file.key} has other chunks than its attempt says")
        found[partition] = [
            _loaded(
                operation,
                chunk,
                OperationId(source, sequence),
                numbers.part(at, at + rows_count) if numbers and rows_count >= ROWS_MIN else None,
            )
            for sequence, (chunk, (at, rows_count)) in enumerate(chunks, first)
            if sequence >= count
        ]
    return found


def _numbers_in(stage: StagedBatch) -> NumberRows | None:
    """Return the arguments in *stage* if they can be evaluated together, and faster so."""
    if max(count for _, count in stage.index.chunks) < ROWS_MIN:
        return None
    values = stage.values
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1)
    return number_rows(stage.index.operation, values.buffers()[2], offsets.astype(np.int64))


def _loaded(
    operation: str, chunk: Chunk, write_id: OperationId, numbers: NumberRows | None
) -> Loaded:
    keys = chunk.keys.to_pylist()
    if numbers is not None:
        size_bytes = sum(map(len, keys)) + numbers.size_bytes + NUMBERS_BYTES * len(keys)
        return Loaded(PackedWrite(*write_id, operation, keys, numbers), size_bytes)
    values = chunk.values.to_pylist()
    size_bytes = sum(map(len, keys)) + sum(map(len, values))
    if operation == "put":
        return Loaded(PackedWrite(*write_id, operation, keys, values), size_bytes)
    size_bytes += CHANGE_BYTES * len(keys)
    unfit: list[RowRefusal] = []
    try:  # all arguments as one array: one call for thousands of rows
        packed = b"".join([_ARRAY, len(values).to_bytes(4, "big"), *values])
        arguments = decode_value("msgpack", packed)
    except BodyError:
        fit, arguments = list[str](), list["Value"]()
        for key, each in zip(keys, values, strict=True):
            try:
                arguments.append(decode_value("msgpack", each))
                fit.append(key)
            except BodyError as error:
                refusal = BadOperation(f"its argument cannot be read: {error}")
                unfit.append(RowRefusal.of(key, refusal))
        keys = fit
    return Loaded(PackedWrite(*write_id, operation, keys, arguments), size_bytes, tuple(unfit))
