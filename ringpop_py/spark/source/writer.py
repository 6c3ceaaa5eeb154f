"""Write rows into a keyspace exactly once: the parts of tasks and of the driver.

A task stages its rows, invisibly, under a name of its own: an attempt. Spark chooses one attempt
for each partition, and passes their results to the driver, whose commit names these attempts. The
commit is one record, put if absent; so a repeated task, a speculative one, or a stage that is
computed again only leave files that do not count.

A stream's job is named by query and batch, so if Spark sends a batch again, its job is found to be
committed; other rows under its name are refused. Such a job is never aborted, nor is one that the
user named: the name of an aborted job cannot be used again for the same rows. The cluster cleans up
what its tasks have staged.
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

from ringpop_py.base.errors import (
    JobAborted,
    OperationIdReused,
    RingpopError,
    RowsRefused,
    StoreFull,
)
from ringpop_py.spark.arrow.columns import chunks_of
from ringpop_py.spark.arrow.merging import changes_in
from ringpop_py.spark.arrow.packing import keyed
from ringpop_py.spark.arrow.stored import fingerprint
from ringpop_py.spark.keys import refuse_null_keys
from ringpop_py.spark.source.kept import keep_types
from ringpop_py.spark.source.patience import Patience, job_client
from ringpop_py.spark.source.reports import COMBINE, READ, STAGE, Stopwatch
from ringpop_py.state.placement.keys import hash_text
from ringpop_py.state.rows.fingerprint import added
from ringpop_py.state.rows.stagefile import FILE_BYTES_MAX, Chunk, encode_stage
from ringpop_py.state.table.aggregations import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ringpop_py.client.jobs import Attempt, JobClient
    from ringpop_py.spark.arrow.columns import Changes
    from ringpop_py.spark.options import WriteOptions
    from ringpop_py.state.jobs.messages import JobProgress
    from ringpop_py.state.placement.keys import Placing

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""Spark's names of local properties that tell a task of a stream its query and batch."""
APPLY_TIMEOUT_S: Final = 600.0
FINGERPRINT: Final = "fingerprint"
"""The count that tells the rows of a named job or batch from others. See `fingerprint`."""
OPERATION: Final = "operation"
"""Where the note of a job says what was done with its rows."""
OPERATION_CHARACTERS_MAX: Final = 500
ANEW: Final = "Start the stream with a new checkpointLocation, at the first row that is not written"
STREAM_ADVICE: Final = (
    "the checkpoint is older than the keyspace, or the source returns other rows for the same"
    f" offsets. {ANEW}"
)
FILE_ROOM_BYTES: Final = FILE_BYTES_MAX - (64 << 10)
"""The limit for keys, values and their offsets in one file."""
OFFSET_BYTES: Final = 8
CHUNK_HEAD_BYTES: Final = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The result of a task, for the driver.

    Attributes:
        attempt: its attempt; None if it had nothing to stage.
        known: whether the job was committed before, so that the task did nothing.
        counts: see `ringpop_py.spark.source.reports.WriteReport`; without those that are 0.
    """

    job: str
    partition: int
    attempt: str | None = None
    known: bool = False
    counts: Counter[str] = field(default_factory=Counter)


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame: made on the driver, with a copy in each task.

    Args:
        named: whether the user has chosen the name *job*.
    """

    def __init__(self, options: WriteOptions, job: str, *, named: bool) -> None:
        self._options = options
        self._job = job
        self._named = named

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage rows. Called in a task."""
        return stage(self._options, self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the job. Called on the driver, after all tasks have succeeded."""
        again = f"to make sure, write them again with option('job', {self._job!r})"
        settle(self._options, self._job, messages, again=again)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """Abort the job. Called on the driver, if a task or the commit has failed."""
        if self._named:
            return
        try:
            patience = Patience(self._options.target)
            with job_client(self._options.target, self._job, patience=patience) as client:
                if not client.abort():  # a commit that failed may have been decided
                    _log.warning("job %r is committed, so its rows will be there", self._job)
        except RingpopError as error:
            # Spark raises the error that matters; the cluster cleans up in any case.
            _log.warning("job %r could not be aborted: %s", self._job, error)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a batch of a stream; made again for each batch and for each commit."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage rows. Called in a task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_PROPERTY)
        batch = context.getLocalProperty(BATCH_PROPERTY)
        assert query, "Spark sets the query"
        assert batch, "Spark sets the batch"
        return stage(self._options, f"{query}/{batch}", iterator, follow=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit the batch. Called on the driver, after all its tasks have succeeded."""
        jobs = sorted({each.job for each in messages if isinstance(each, Staged)})
        if len(jobs) > 1:
            # The first job was aborted between two tasks. If Spark sends the batch again, all tasks
            # use its successor.
            raise JobAborted(f"batch {batchId} was staged under two names: {', '.join(jobs)}")
        if jobs:
            again = "start the stream again to make sure"
            settle(self._options, jobs[0], messages, again=again, stream=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: Spark sends the batch again, under the same name."""


# A task.


def stage(
    options: WriteOptions,
    job: str,
    batches: Iterator[pa.RecordBatch],
    *,
    follow: bool = False,
) -> Staged:
    """Stage the rows of *batches* for *job*.

    Args:
        follow: it is a batch of a stream, which a successor of *job* may write, see `job_client`.
    """
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    patience = Patience(options.target)
    with job_client(
        options.target, job, follow=follow, in_flight=options.in_flight, patience=patience
    ) as client:
        counts: Counter[str] = Counter()
        watch = Stopwatch(COMBINE)
        rows = _keyed(options, watch.timed(READ, batches), counts, stream=follow)
        decision = patience(client.decision)
        if decision:
            for _ in rows:  # Spark waits until its rows are read
                pass
            return Staged(client.job, partition, known=True, counts=counts)
        if decision is False:
            raise JobAborted(f"job {client.job!r} was aborted")
        # Spark's ids repeat if the application is run again; the random part does not.
        name = f"{partition}-{context.taskAttemptId()}-{secrets.token_hex(6)}"
        attempt: Attempt | None = None  # begun only if a row has a key
        for changes in changes_in(options, rows):
            if _is_refused(options, counts):
                continue  # only to count further such rows
            if attempt is None:
                attempt = patience(partial(client.attempt, name))
            watch.turn(STAGE)
            # Cached since the task's start; the owners in it are only a hint.
            description = client.dispatcher.described(client.deadline())
            owners = {n: name for n, (name, _) in description.routes.destinations.items()}
            for file in staged_files(changes, description.placing, owners):
                patience(partial(attempt.stage, file))
            watch.turn(COMBINE)
        if attempt is None or _is_refused(options, counts):
            return Staged(client.job, partition, counts=counts)
        watch.turn(STAGE)
        summary = patience(attempt.finish)
        counts.update(watch.counts())
        counts.update(
            staged_rows=summary.rows_count,
            files=summary.files_count,
            size_bytes=summary.size_bytes,
            retries=patience.retries_count,
        )
        return Staged(client.job, partition, name, counts=counts)


def _keyed(
    options: WriteOptions,
    batches: Iterable[pa.RecordBatch],
    counts: Counter[str],
    *,
    stream: bool,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, null_keys = keyed(options, batch)
        counts.update(rows=batch.num_rows)
        if options.on_null_key != "skip":
            counts.update(null_keys=null_keys)
        if options.job is not None or stream:  # other rows may come under the name
            # Sums of a stream's state may differ in their last digits if Spark computes them anew.
            used = [
                field.name
                for field in rows.schema
                if _is_used(options, field.name)
                and not (stream and pa.types.is_floating(field.type))
            ]
            counts.update({FINGERPRINT: fingerprint(rows.select(used))})
        yield rows


def _is_used(options: WriteOptions, column: str) -> bool:
    if column in (options.key, options.expires_at):
        return True
    if options.operation == FIELDS:
        return column in options.fields
    if options.value is not None:
        return column == options.value
    return options.operation not in ("count", "delete")


def _is_refused(options: WriteOptions, counts: Mapping[str, int]) -> bool:
    # By the driver, which knows the rows of all tasks. Spark would repeat a task that fails.
    return options.on_null_key == "fail" and counts.get("null_keys", 0) > 0


# The driver.


def settle(
    options: WriteOptions,
    job: str,
    messages: Sequence[WriterCommitMessage | None],
    *,
    again: str,
    stream: bool = False,
    apply_timeout_s: float = APPLY_TIMEOUT_S,
) -> None:
    """Commit the attempts in *messages*, and wait until all partitions have their rows.

    Args:
        again: advice for errors: how to wait again.
        stream: whether the job is a batch of a stream.

    Raises:
        BadKey: rows have no key, and the options refuse such rows; the job is not committed.
        ConfigError: another job has kept other types meanwhile; the job is not committed.
        OperationIdReused: the job was committed before, with other rows or another operation.
        RowsRefused: no row would take effect, and the job is not committed; or it is, and some rows
            had no effect. A batch that is repeated under its name raises it again. A stream raises
            it once if other rows took effect: otherwise it could never go on.
        PartitionUnavailable: the job is committed, but not all rows are applied yet; or it is not
            known whether it is committed.
        JobAborted: the job was aborted before.
    """
    staged = [each for each in messages if isinstance(each, Staged)]
    staged.sort(key=attrgetter("partition"))
    counts: Counter[str] = Counter()
    for each in staged:
        counts.update(each.counts)
    if _is_refused(options, counts):
        refuse_null_keys(counts["null_keys"], options.key)
    if options.job is not None or stream:
        counts[FINGERPRINT] = added([counts[FINGERPRINT]])
    started_at = time.monotonic()
    patience = Patience(options.target)
    decided = False
    with job_client(options.target, job, patience=patience) as client:
        if not any(each.known for each in staged):
            attempts = [each.attempt for each in staged if each.attempt is not None]
            note = {**counts, OPERATION: operation_text(options)}
            keep_types(options, client, patience)
            decided = _commit(client, attempts, note, patience, again)
        if not decided:
            note = patience(client.note)
            _check_same(job, counts, operation_text(options), note, stream=stream)
        try:
            done = client.settled(timeout_s=apply_timeout_s)
        except RingpopError as error:
            if not (error.passes or isinstance(error, StoreFull)):  # later there may be room
                raise
            raise type(error)(
                f"job {job!r} is committed: its rows will be applied, so do not write them as"
                f" another job ({error}); {again}"
            ) from None
    _tell_refused(job, done, raises=decided or not stream, stream=stream)
    seconds = time.monotonic() - started_at
    what = "committed" if decided else "had been committed before"
    _log.info("job %r %s; %s; applied in %.1f s", job, what, dict(counts), seconds)


def _tell_refused(job: str, done: JobProgress, *, raises: bool, stream: bool) -> None:
    if not done.refused.count:
        return
    text = done.refused_text(job)
    if done.in_vain and stream:
        raise RowsRefused(f"{text}. {ANEW}")
    if raises:
        raise RowsRefused(text)
    _log.warning("%s", text)


def _commit(
    client: JobClient,
    attempts: Sequence[str],
    note: Mapping[str, object],
    patience: Patience,
    again: str,
) -> bool:
    """Commit the job; return False if it was committed before."""
    try:
        return patience(partial(client.commit, attempts, note=dict(note)))
    except RingpopError as error:
        if not error.passes:
            raise
        # The commit may still arrive. Under its own name the job can be repeated in either case.
        raise type(error)(
            f"it is not known whether job {client.job!r} was committed ({error}); {again}"
        ) from None


def operation_text(options: WriteOptions) -> str:
    """Return what is done with the rows of a job, for people; equal texts mean the same."""
    if options.expires_in is not None:
        return f"{options.operation},expiresIn={options.expires_in:g}"
    if options.expires_at is not None:
        return f"{options.operation},expiresAtField={options.expires_at}"[:OPERATION_CHARACTERS_MAX]
    if options.operation != FIELDS:
        return options.operation
    fields = ",".join(f"{column}={what}" for column, what in sorted(options.fields.items()))
    if len(fields) <= OPERATION_CHARACTERS_MAX:
        return fields
    digest = f"{hash_text(fields):016x}"
    return f"{fields[: OPERATION_CHARACTERS_MAX - len(digest) - 1]}…{digest}"


def _check_same(
    job: str, counts: Mapping[str, int], operation: str, note: object, *, stream: bool
) -> None:
    """Raise OperationIdReused unless *job* was committed with these rows and this *operation*.

    Args:
        note: the counts and the operation of that time.
    """
    if not isinstance(note, dict):
        return
    before = note.get(OPERATION, operation)
    if before != operation:
        raise OperationIdReused(
            f"job {job!r} was committed before with the operation {before}, and this is"
            f" {operation}. Nothing was written: another operation needs another job name. (A"
            " stream: start it once more with the former operation and trigger(once=True), which"
            " ends this batch alone)"
        )
    if FINGERPRINT not in counts or FINGERPRINT not in note:
        return
    then, now = note.get("rows", 0), counts["rows"]
    if (then, note[FINGERPRINT]) != (now, counts[FINGERPRINT]):
        rows = f"{then:,} rows, and these are {now:,}" if then != now else f"{then:,} other rows"
        raise OperationIdReused(
            f"job {job!r} was committed before with {rows}. Nothing was written:"
            f" {STREAM_ADVICE if stream else 'other rows need another job name'}"
        )


# Packed rows as stage files, each for the partitions of one owner, so that the node that receives
# the file is the one that needs it. A later owner has to read the file from the store.


def staged_files(changes: Changes, placing: Placing, owners: Mapping[int, str]) -> Iterator[bytes]:
    """Yield *changes* as files, by the known *owners* of partitions. Raises BadOperation.

    The rows of one partition keep their order.
    """
    by_owner: dict[str, list[Chunk]] = {}
    for chunk in chunks_of(changes, placing):
        by_owner.setdefault(owners.get(chunk.partition, ""), []).append(chunk)
    for _, theirs in sorted(by_owner.items()):
        for group in _groups(theirs):
            yield encode_stage(changes.operation, group)


def _groups(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    # As many in one file as it has room for, in their order.
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
