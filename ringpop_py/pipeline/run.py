"""A pipeline at work: its keyspace is made, its rows are written exactly once, and counted."""

from __future__ import annotations

import secrets
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.errors import PipelineFailed, RingpopError, RowsRefused
from ringpop_py.pipeline.frames import rows_of
from ringpop_py.pipeline.interrupts import Interrupts
from ringpop_py.pipeline.progress import Display, Reading, Watch, meanwhile
from ringpop_py.pipeline.reasons import reason_of
from ringpop_py.pipeline.settings import AVAILABLE_NOW
from ringpop_py.pipeline.target import PipelineTarget, TargetOwnership
from ringpop_py.spark.options import is_job, quoted, write_options
from ringpop_py.spark.source.patience import Patience, job_client
from ringpop_py.spark.source.reports import stream_job, write_report
from ringpop_py.spark.source.source import RingpopDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ringpop_py.pipeline.settings import Pipeline
    from ringpop_py.spark.options import Target

POLL_S: Final = 0.2
ROWS: Final = "ringpop-rows"
"""The node of a plan where all rows that are written pass by, see `DataFrame.observe`."""
_OUTPUT: Final = "number of output rows"
_DEPTH_MAX: Final = 200
NAME_SHOWN_MAX: Final = 60
SPARKS_OWN: Final = (PySparkException, Py4JError)
"""What Spark raises: some of it from Java as it was."""


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """What a pipeline did.

    Attributes:
        job: under which a batch was applied; of a stream the id of its query.
        rows: that were read, as Spark counted them in this run.
        null_keys: of these, those without a key.
        changes: that were applied: as many as rows with a key, less what was combined in tasks.
        retries: calls to daemons that tasks repeated.
        repeated: the job had been committed before this run, which wrote nothing.
        readings: how it went.
    """

    name: str
    keyspace: str
    job: str
    rows: int
    null_keys: int
    changes: int
    batches: int
    tasks_failed: int
    retries: int
    repeated: bool
    stopped: bool
    seconds: float
    ownership: TargetOwnership
    readings: tuple[Reading, ...]

    def as_value(self) -> dict[str, Any]:
        """For programs."""
        names = [each.name for each in fields(self) if each.name not in ("ownership", "readings")]
        value = {name: getattr(self, name) for name in names}
        value["partitions"] = self.ownership.partitions
        value["keys"] = dict(self.ownership.keys)
        return value


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    display: Display | None = None,
    interrupts: Interrupts | None = None,
    heed: Callable[[Reading], None] | None = None,
) -> PipelineSummary:
    """Do what *pipeline* says, once; a stream that has no end goes on until an interrupt.

    Args:
        display: where progress goes; standard error, unless said.
        heed: is handed each reading, in a thread of its own; to be quick is up to it.

    Raises:
        ConfigError: it asks for what is not there.
        ConnectFailed: no daemon answers.
        Interrupted: a batch was interrupted; a stream just ends.
        PipelineFailed: Spark, or one of its tasks, has failed.
        RingpopError: the cluster says no.
    """
    display = display or Display(sys.stderr)
    rows = rows_of(spark, pipeline, stream=pipeline.stream is not None)
    target = PipelineTarget.of(pipeline)
    made = "was made" if target.prepare() else "is there"
    display.note(f"{pipeline.name}: keyspace {pipeline.keyspace.name!r} {made}")
    spark.dataSource.register(RingpopDataSource)
    run = _StreamRun if pipeline.stream is not None else _BatchRun
    return run(spark, pipeline, display, interrupts or Interrupts(), heed).summary(target, rows)


class _Run:
    """What batches and streams have in common."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        display: Display,
        interrupts: Interrupts,
        heed: Callable[[Reading], None] | None,
    ) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.display = display
        self.interrupts = interrupts
        self.job = ""
        self.rows = self.null_keys = self.batches = self.tasks_failed = 0
        self.changes = self.retries = 0
        self.repeated = self.stopped = False
        self.watch = Watch(pipeline, display, self.reading, heed)

    def summary(self, target: PipelineTarget, rows: DataFrame) -> PipelineSummary:
        """Write *rows*, and say what came of it."""
        started_at = time.monotonic()
        try:
            self.run(rows)
        except SPARKS_OWN as error:
            self.display.clear()
            self.interrupts.check()
            raise PipelineFailed(reason_of(error)) from None
        seconds = time.monotonic() - started_at
        self.watch.look()
        self.display.clear()
        ownership = TargetOwnership(())
        with suppress(RingpopError):  # the job is done, whoever answers now
            ownership = target.ownership(with_keys=True)
        return PipelineSummary(
            name=self.pipeline.name,
            keyspace=self.pipeline.keyspace.name,
            job=self.job,
            rows=self.rows,
            null_keys=self.null_keys,
            changes=self.changes,
            batches=self.batches,
            tasks_failed=self.tasks_failed,
            retries=self.retries,
            repeated=self.repeated,
            stopped=self.stopped,
            seconds=seconds,
            ownership=ownership,
            readings=self.watch.history.readings,
        )

    def run(self, rows: DataFrame) -> None:
        """Write *rows*."""
        raise NotImplementedError

    def reading(self) -> Reading:
        """What is known now."""
        raise NotImplementedError

    def observed(self) -> list[Any]:
        """What is counted of all rows that are written."""
        key = F.col(quoted(self.pipeline.key))
        return [F.count(F.lit(1)).alias("rows"), F.count_if(key.isNull()).alias("null_keys")]

    def add_report(self, job: str) -> None:
        """Add what the driver's commit has counted, which the cluster keeps with the decision."""
        name = self.pipeline.keyspace.name
        with suppress(RingpopError):  # it is done, whoever answers now
            report = write_report(name, job, peers=self.pipeline.peers)
            self.changes += report.staged_rows
            self.retries += report.retries

    def look(self, act: Callable[[], None]) -> None:
        """Take a reading, and call *act* once there is an interrupt."""
        if self.interrupts.came:
            act()
        else:
            with suppress(*SPARKS_OWN):  # it ends; whoever waits for it hears why
                self.watch.look()


class _BatchRun(_Run):
    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as `_Run`
        super().__init__(*arguments)
        self.job = self.pipeline.job or fresh_job(self.pipeline.name)
        self.group = f"ringpop-pipeline {self.job}"
        self.target = write_options(self.pipeline.sink_options()).target

    def run(self, rows: DataFrame) -> None:
        if self.pipeline.job is not None:
            self.repeated = was_committed(self.target, self.job, self.display.note)
            if self.repeated:
                return
        observation = Observation(ROWS)
        options = self.pipeline.sink_options() | {"job": self.job}
        observed = rows.observe(observation, *self.observed())
        writer = observed.write.format("ringpop").options(**options).mode("append")
        self.spark.sparkContext.setJobGroup(self.group, self.group, interruptOnCancel=True)
        with meanwhile(lambda: self.look(self._cancel), self.pipeline.every_s):
            try:
                writer.save()
            except SPARKS_OWN:
                self._abort()
                raise
        found = observation.get
        self.rows, self.null_keys = found["rows"], found["null_keys"]
        self.add_report(self.job)

    def reading(self) -> Reading:
        tasks = task_counts(self.spark, self.group)
        self.tasks_failed = tasks.failed
        rows = self.rows or rows_so_far(self.spark, self.group)
        applying = 0 < tasks.total == tasks.done and not self.changes
        return Reading(0.0, rows, 0, tasks.done, tasks.total, tasks.failed, applying)

    def _cancel(self) -> None:
        with suppress(Exception):  # the JVM has ended, by the same signal
            self.spark.sparkContext.cancelJobGroup(self.group)

    def _abort(self) -> None:
        """Give the job up, unless somebody may want to repeat it by its name."""
        # There is a better reason to tell than that this cannot be done, too.
        with suppress(RingpopError):
            if self.pipeline.job is None:
                with job_client(self.target, self.job, follow=True) as jobs:
                    jobs.abort()


class _StreamRun(_Run):
    query: StreamingQuery | None = None
    seen = -1
    """The last batch that is counted."""

    def run(self, rows: DataFrame) -> None:
        stream = self.pipeline.stream
        assert stream is not None
        writer = rows.observe(ROWS, *self.observed()).writeStream.format("ringpop")
        writer = writer.options(**self.pipeline.sink_options()).queryName(self.pipeline.name)
        writer = writer.option("checkpointLocation", stream.checkpoint)
        if stream.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=stream.trigger)
        self.query = query = writer.start()
        self.job = str(query.id)
        with meanwhile(lambda: self.look(lambda: None), self.pipeline.every_s):
            while query.isActive:
                time.sleep(POLL_S)
                if self.interrupts.came:
                    self.stopped = True
                    query.stop()
        query.awaitTermination()  # raises what ended it
        self._count()

    def reading(self) -> Reading:
        self._count()
        query = self.query
        assert query is not None
        tasks = task_counts(self.spark, str(query.runId))
        self.tasks_failed = tasks.failed
        return Reading(0.0, self.rows, self.batches, tasks.done, tasks.total, tasks.failed)

    def _count(self) -> None:
        """Add the batches that have ended since the last time; Spark remembers the last 100."""
        assert self.query is not None
        for progress in self.query.recentProgress:
            # An idle query tells of the batch to come again and again.
            if progress.batchId <= self.seen or "addBatch" not in progress.durationMs:
                continue
            self.seen = progress.batchId
            self.batches += 1
            observed = progress.observedMetrics.get(ROWS)
            if observed is not None:
                self.rows += observed["rows"]
                self.null_keys += observed["null_keys"]
            self.add_report(stream_job(self.job, progress.batchId))


# The job in the cluster, which is what counts.


def fresh_job(name: str) -> str:
    """A job that nobody else has, called after as much of the pipeline's *name* as fits."""
    token = secrets.token_hex(6)
    begin = "".join(each for each in name[:NAME_SHOWN_MAX] if each.isprintable())
    while not is_job(f"{begin} {token}"):
        begin = begin[:-1]
    return f"{begin} {token}".strip()


def was_committed(target: Target, job: str, tell: Callable[[str], None]) -> bool:
    """Whether an earlier run has committed *job*; then it is applied everywhere, too.

    Args:
        tell: is told if rows were refused. That is an error for who has decided the job only, so
            that whoever repeats it until it is done comes to an end.
    """
    with job_client(target, job, follow=True, patience=Patience(target)) as jobs:
        if not jobs.decision():
            return False
        try:
            jobs.apply()
        except RowsRefused as error:
            tell(str(error))
    return True


# What Spark can tell of a job that runs. Nothing here ends a job: what cannot be told is None.


class TaskCounts(NamedTuple):
    """Of all jobs of a group that Spark remembers."""

    done: int
    total: int
    failed: int


def task_counts(spark: SparkSession, group: str) -> TaskCounts:
    """How many tasks there are. One that failed is run again, unless it failed too often."""
    tracker = spark.sparkContext.statusTracker()
    done = total = failed = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage_id in info.stageIds if info is not None else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
                failed += stage.numFailedTasks
    return TaskCounts(done, total, failed)


def rows_so_far(spark: SparkSession, description: str) -> int | None:
    """The rows that tasks of the query *description* have taken in, as Spark's own pages show it.

    Known at the end of a task, and with every heartbeat of its executor (ten seconds by default).
    Rows of a task that failed count, too.
    """
    # Spark has no public call for this outside of its web pages.
    session: Any = spark
    try:
        store = session._jsparkSession.sharedState().statusStore()  # noqa: SLF001
        executions = store.executionsList()
        for index in reversed(range(executions.size())):
            execution = executions.apply(index)
            if execution.description() == description:
                number = execution.executionId()
                return _rows_below(store.planGraph(number), store.executionMetrics(number))
    except (Py4JError, AttributeError, ValueError):
        pass
    return None


def _rows_below(graph: Any, metrics: Any) -> int | None:  # noqa: ANN401 - of the JVM
    """The rows that reach `ROWS`: the output of the nodes below that say so."""
    nodes = {node.id(): node for node in _items_of(graph.allNodes())}
    below: dict[int, list[int]] = {}
    for edge in _items_of(graph.edges()):
        below.setdefault(edge.toId(), []).append(edge.fromId())
    counted = {number: _output_of(node, metrics) for number, node in nodes.items()}
    start = [number for number, node in nodes.items() if ROWS in node.desc()]
    return _sum_below(start[:1], below, counted, _DEPTH_MAX) if start else None


def _items_of(listed: Any) -> Iterator[Any]:  # noqa: ANN401 - of the JVM
    return map(listed.apply, range(listed.size()))


def _sum_below(
    starts: list[int], below: dict[int, list[int]], counted: dict[int, int | None], depth: int
) -> int | None:
    total: int | None = None
    for start in starts if depth else []:
        rows = counted.get(start)
        if rows is None:
            rows = _sum_below(below.get(start, []), below, counted, depth - 1)
        if rows is not None:
            total = (total or 0) + rows
    return total


def _output_of(node: Any, metrics: Any) -> int | None:  # noqa: ANN401 - of the JVM
    for metric in _items_of(node.metrics()):
        if metric.name() == _OUTPUT:
            value = metrics.get(metric.accumulatorId())
            return int(value.get().replace(",", "")) if value.isDefined() else 0
    return None
