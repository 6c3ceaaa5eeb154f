"""Rows into a keyspace, exactly once: what a task does, and what the driver does with the tasks.

A task stages its rows under a name of its own, an attempt, and nobody sees them. Spark keeps one
attempt a partition, whichever it takes for the winner, and hands what they returned to the driver,
whose commit names these attempts. That is one record, put if absent: a task that is repeated, a
speculative one, or a stage that is computed anew only leave files behind that do not count.

The job of a stream is its query and its batch, so a batch that Spark sends again finds out that it
was committed. Such a job is never aborted, nor is one that the user named: its name would be spent,
and the same rows could not come again. What its tasks have staged is cleaned up by the cluster.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ringpop_py.errors import JobAborted, RingpopError, RowsRefused, StoreFull
from ringpop_py.jobs.stagefile import FILE_BYTES_MAX, Chunk, encode_stage
from ringpop_py.spark.arrow.columns import chunks_of, gathered
from ringpop_py.spark.arrow.packing import keyed, packed
from ringpop_py.spark.source.patience import Patience, job_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ringpop_py.jobs.client import Attempt, JobClient
    from ringpop_py.spark.arrow.columns import Changes
    from ringpop_py.spark.options import WriteOptions

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""Where a task of a stream finds whose it is; Spark's own names for it."""
APPLY_TIMEOUT_S: Final = 600.0
FILE_ROOM_BYTES: Final = FILE_BYTES_MAX - (64 << 10)
"""What keys, values and their offsets may come to in one file."""
OFFSET_BYTES: Final = 8
CHUNK_HEAD_BYTES: Final = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        attempt: under which it has staged; None if it had nothing to stage.
        known: the job was committed before, so nothing was done.
        counts: see `ringpop_py.spark.source.reports.WriteReport`; without those that are 0.
    """

    job: str
    partition: int
    attempt: str | None = None
    known: bool = False
    counts: Counter[str] = field(default_factory=Counter)


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame: made on the driver, a copy of it in each task.

    Args:
        named: the user has chosen the name *job*.
    """

    def __init__(self, options: WriteOptions, job: str, *, named: bool) -> None:
        self._options = options
        self._job = job
        self._named = named

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        return stage(self._options, self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, once all tasks have ended well."""
        again = f"to make sure, write them again with option('job', {self._job!r})"
        settle(self._options, self._job, messages, again=again)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """On the driver, if a task or the commit has failed; it may have been decided then."""
        if self._named:
            return
        try:
            patience = Patience(self._options.target)
            with job_client(self._options.target, self._job, patience=patience) as client:
                if not client.abort():
                    _log.warning("job %r is committed, so its rows will be there", self._job)
        except RingpopError as error:
            # Spark has an error already, the one that matters; the cluster cleans up by itself.
            _log.warning("job %r could not be aborted: %s", self._job, error)


class StreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream; made anew for each of them, and for each commit."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_PROPERTY)
        batch = context.getLocalProperty(BATCH_PROPERTY)
        assert query, "Spark says which query it is"
        assert batch, "Spark says which batch it is"
        return stage(self._options, f"{query}/{batch}", iterator, follow=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """On the driver, once all tasks of the batch have ended well."""
        jobs = sorted({each.job for each in messages if isinstance(each, Staged)})
        if len(jobs) > 1:
            # The first job was given up between two tasks. Sent again, all will see that.
            raise JobAborted(f"batch {batchId} was staged under two names: {', '.join(jobs)}")
        if jobs:
            settle(self._options, jobs[0], messages, again="start the stream again to make sure")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Nothing: the batch will come again, under the same name."""


# A task.


def stage(
    options: WriteOptions, job: str, batches: Iterator[pa.RecordBatch], *, follow: bool = False
) -> Staged:
    """Stage the rows of *batches* for *job*.

    Args:
        follow: if it was aborted, for its successor.
    """
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    patience = Patience(options.target)
    with job_client(
        options.target, job, follow=follow, in_flight=options.in_flight, patience=patience
    ) as client:
        decision = patience(client.decision)
        if decision:
            # Spark waits until somebody has taken its rows.
            for _ in batches:
                pass
            return Staged(client.job, partition, known=True)
        if decision is False:
            raise JobAborted(f"job {client.job!r} was aborted")
        name = f"{partition}-{context.taskAttemptId()}-{secrets.token_hex(6)}"
        task = _Task(options, client, patience)
        attempt = task.run(name, batches)
    return Staged(client.job, partition, attempt, counts=task.counts)


class _Task:
    """Gathers rows, and sends them when there are enough."""

    def __init__(self, options: WriteOptions, client: JobClient, patience: Patience) -> None:
        self._options = options
        self._client = client
        self._patience = patience
        self.counts: Counter[str] = Counter()

    def run(self, name: str, batches: Iterable[pa.RecordBatch]) -> str | None:
        """Have all of *batches* staged as the attempt *name*; None if no row had a key."""
        attempt: Attempt | None = None
        options = self._options
        for some in gathered(self._keyed(batches), options.flush_rows, options.flush_bytes):
            if attempt is None:
                attempt = self._patience(partial(self._client.attempt, name))
            self._send(attempt, pa.Table.from_batches(some))
        if attempt is None:
            return None
        summary = self._patience(attempt.finish)
        self.counts.update(
            staged_rows=summary.rows_count,
            files=summary.files_count,
            size_bytes=summary.size_bytes,
            retries=self._patience.retries_count,
        )
        return name

    def _keyed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that have keys, counted."""
        for batch in batches:
            rows, null_keys = keyed(self._options, batch)
            self.counts.update(rows=batch.num_rows, null_keys=null_keys)
            yield rows

    def _send(self, attempt: Attempt, rows: pa.Table) -> None:
        changes = packed(self._options, rows)
        # As of the task's begin: who serves what is a hint only.
        description = self._client.router.described(self._client.deadline())
        owners = {n: name for n, (name, _) in description.routes.destinations.items()}
        for file in staged_files(changes, description.partitions_count, owners):
            self._patience(partial(attempt.stage, file))


# The driver.


def settle(
    options: WriteOptions,
    job: str,
    messages: Sequence[WriterCommitMessage | None],
    *,
    again: str,
    apply_timeout_s: float = APPLY_TIMEOUT_S,
) -> None:
    """Have the attempts in *messages* count, and wait until all partitions have their rows.

    Args:
        again: how to wait for them again, if that takes too long.

    Raises:
        RowsRefused: all but some rows took effect. It is told once: to who decided it.
        PartitionUnavailable: it is decided, but not seen everywhere yet; or perhaps not decided.
        JobAborted: it was given up before.
    """
    staged = sorted(
        (each for each in messages if isinstance(each, Staged)), key=attrgetter("partition")
    )
    counts: Counter[str] = Counter()
    for each in staged:
        counts.update(each.counts)
    started_at = time.monotonic()
    patience = Patience(options.target)
    decided = False
    with job_client(options.target, job, patience=patience) as client:
        if not any(each.known for each in staged):
            attempts = [each.attempt for each in staged if each.attempt is not None]
            decided = _commit(client, attempts, counts, patience, again)
        try:
            client.apply(timeout_s=apply_timeout_s)
        except RowsRefused as error:
            if decided:
                raise
            _log.warning("%s", error)
        except RingpopError as error:
            if not (error.passes or isinstance(error, StoreFull)):  # later there may be room
                raise
            raise type(error)(
                f"job {job!r} is committed: its rows will be there, so do not write them as another"
                f" job ({error}); {again}"
            ) from None
    seconds = time.monotonic() - started_at
    what = "committed" if decided else "had been committed before"
    _log.info("job %r %s; %s; applied in %.1f s", job, what, dict(counts), seconds)


def _commit(
    client: JobClient, attempts: Sequence[str], counts: Counter[str], patience: Patience, again: str
) -> bool:
    """Whether the job was committed now, and not before."""
    try:
        return patience(partial(client.commit, attempts, note=dict(counts)))
    except RingpopError as error:
        if not error.passes:
            raise
        # It may get through yet. Under its own name the job comes out right either way.
        raise type(error)(
            f"whether job {client.job!r} was committed is not known ({error}); {again}"
        ) from None


# Packed rows as stage files, each for the partitions of one owner only: whoever has the file is
# then the one that needs it. If the owner is another by the time the job is committed, all that is
# lost is a way over the store.


def staged_files(
    changes: Changes, partitions_count: int, owners: Mapping[int, str]
) -> Iterator[bytes]:
    """*changes* as files, in the order of their owners; only the current one is held.

    Rows of one partition keep their order.

    Args:
        owners: who serves which partition, as far as that is known.

    Raises:
        BadOperation: a key or a value is too large.
    """
    by_owner: dict[str, list[Chunk]] = {}
    for chunk in chunks_of(changes, partitions_count):
        by_owner.setdefault(owners.get(chunk.partition, ""), []).append(chunk)
    for _, theirs in sorted(by_owner.items()):
        for group in _groups(theirs):
            yield encode_stage(changes.operation, group)


def _groups(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """*chunks* in their order, as many in one file as it holds."""
    group: list[Chunk] = []
    room = FILE_ROOM_BYTES
    for chunk in chunks:
        contents = chunk.keys.nbytes + chunk.values.nbytes
        # In a file, offsets have half the bytes that they have here.
        needed = CHUNK_HEAD_BYTES + contents - len(chunk.keys) * OFFSET_BYTES
        if group and needed > room:
            yield group
            group, room = [], FILE_ROOM_BYTES
        group.append(chunk)
        room -= needed
    if group:
        yield group
