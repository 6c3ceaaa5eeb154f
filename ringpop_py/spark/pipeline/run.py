"""A run of a pipeline: creates its keyspace, writes its rows exactly once, and counts them."""

from __future__ import annotations

import secrets
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documents call it

from ringpop_py.base.errors import PipelineFailed, RingpopError, RowsRefused
from ringpop_py.spark.options import JOB, quoted
from ringpop_py.spark.pipeline.frames import combined_rows, rows_of
from ringpop_py.spark.pipeline.interrupts import Interrupts
from ringpop_py.spark.pipeline.progress import Display, Reading, Watch, meanwhile
from ringpop_py.spark.pipeline.session import reason_of
from ringpop_py.spark.pipeline.settings import AVAILABLE_NOW
from ringpop_py.spark.pipeline.target import PipelineTarget, TargetOwnership
from ringpop_py.spark.source.patience import Patience, job_client
from ringpop_py.spark.source.reports import TIMES, stream_job, write_report
from ringpop_py.spark.source.source import RingpopDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ringpop_py.spark.options import Target
    from ringpop_py.spark.pipeline.settings import Pipeline

POLL_S: Final = 0.2
ROWS: Final = "ringpop-rows"
"""The name of the node of a plan that counts all rows to write; see `DataFrame.observe`."""
_OUTPUT: Final = "number of output rows"
NAME_SHOWN_MAX: Final = 60
OTHER_NAME: Final = "mend what is named here, and run the rows under another job name"
SPARKS_OWN: Final = (PySparkException, Py4JError)
"""The errors of Spark. Some come from Java without a class of PySpark's own."""


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """The result of a run.

    Attributes:
        job: the name under which a batch was applied; for a stream, the id of its query.
        rows: the number of rows that were read in this run, as counted by Spark.
        null_keys: the number of these rows that have no key.
        changes: the number of applied changes: the rows with a key, less those combined in tasks.
        retries: the number of calls to daemons that tasks repeated.
        repeated: whether the job had been committed before this run, which then wrote nothing.
        readings: the counts over time.
        times: seconds by what they went to: of all tasks together, ``read`` (waiting for Spark's
            rows), ``combine`` (making changes of them) and ``stage`` (sending these); and of a
            batch ``apply``, from the first look after the last task to the end of the job.
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
    times: Mapping[str, float] = field(default_factory=dict)

    def as_value(self) -> dict[str, Any]:
        """Return the summary as plain values, for JSON; without the readings."""
        value = {each.name: getattr(self, each.name) for each in fields(self)}
        del value["ownership"], value["readings"]
        return value | {"partitions": self.ownership.partitions, "keys": dict(self.ownership.keys)}


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    display: Display | None = None,
    interrupts: Interrupts | None = None,
    heed: Callable[[Reading], None] | None = None,
) -> PipelineSummary:
    """Run *pipeline* once; a stream without an end runs until an interrupt.

    Args:
        display: shows the progress; by default on standard error.
        heed: called with each reading, in a thread of its own; the next reading waits for it.

    Raises:
        ConfigError: if the pipeline names something that does not exist.
        ConnectFailed: if no daemon answers.
        Interrupted: if a batch was interrupted; an interrupted stream ends without an error.
        PipelineFailed: if Spark, or one of its tasks, fails.
        RingpopError: if the cluster refuses.
    """
    display = display or Display(sys.stderr)
    rows = rows_of(spark, pipeline, stream=pipeline.stream is not None)
    target = PipelineTarget(pipeline.target, pipeline.keyspace)
    made = "was made" if target.prepare() else "is there"
    display.note(f"{pipeline.name}: keyspace {pipeline.keyspace.name!r} {made}")
    spark.dataSource.register(RingpopDataSource)
    run = _StreamRun if pipeline.stream is not None else _BatchRun
    return run(spark, pipeline, display, interrupts or Interrupts(), heed).summary(target, rows)


class _Run:
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
        self.times: dict[str, float] = {}
        self.watch = Watch(pipeline, display, self.reading, heed)

    def summary(self, target: PipelineTarget, rows: DataFrame) -> PipelineSummary:
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
        with suppress(RingpopError):  # the job is done, whether a daemon answers now or not
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
            times={name: round(seconds, 6) for name, seconds in self.times.items()},
        )

    def run(self, rows: DataFrame) -> None:
        raise NotImplementedError

    def reading(self) -> Reading:
        raise NotImplementedError

    def observed(self) -> list[Any]:
        key = F.col(quoted(self.pipeline.key))
        return [F.count(F.lit(1)).alias("rows"), F.count_if(key.isNull()).alias("null_keys")]

    def add_report(self, job: str) -> None:
        # The commit has counted them, and the cluster keeps the counts with its decision.
        name = self.pipeline.keyspace.name
        with suppress(RingpopError):  # the job is done, whether a daemon answers now or not
            report = write_report(
                name, job, peers=self.pipeline.peers, cluster_key=self.pipeline.target.cluster_key
            )
            self.changes += report.staged_rows
            self.retries += report.retries
            for what in TIMES:
                self.times[what] = self.times.get(what, 0.0) + getattr(report, f"{what}_s")

    def look(self, act: Callable[[], None]) -> None:
        if self.interrupts.came:
            act()
        else:
            with suppress(*SPARKS_OWN):  # Spark is ending; the thread of the job reports why
                self.watch.look()


class _BatchRun(_Run):
    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as `_Run`
        super().__init__(*arguments)
        self.job = self.pipeline.job or fresh_job(self.pipeline.name)
        self.group = f"ringpop-pipeline {self.job}"
        self.target = self.pipeline.target
        self.applying_at: float | None = None

    def run(self, rows: DataFrame) -> None:
        if self.pipeline.job is not None:
            self.repeated = was_committed(self.target, self.job, self.display.note)
            if self.repeated:
                return
        observation = Observation(ROWS)
        options = self.pipeline.sink_options() | {"job": self.job}
        observed, _ = combined_rows(rows.observe(observation, *self.observed()), self.pipeline)
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
        done_at = time.monotonic()
        self.add_report(self.job)
        # If no look came after the last task, that took no time worth reporting.
        self.times["apply"] = done_at - (self.applying_at or done_at)

    def reading(self) -> Reading:
        tasks = task_counts(self.spark, self.group)
        self.tasks_failed = tasks.tasks_failed
        rows = self.rows or rows_so_far(self.spark, self.group)
        applying = 0 < tasks.tasks_count == tasks.tasks_done and not self.changes
        # After a shuffle the tasks of its other side come, and only the last of all are followed.
        self.applying_at = (self.applying_at or time.monotonic()) if applying else None
        return replace(tasks, rows=rows, applying=applying)

    def _cancel(self) -> None:
        with suppress(Exception):  # the same signal may have ended the JVM
            self.spark.sparkContext.cancelJobGroup(self.group)

    def _abort(self) -> None:
        # A job with a name of its own stays: the user may repeat it under that name. An error here
        # must not hide the one that has ended the job.
        with suppress(RingpopError):
            if self.pipeline.job is None:
                with job_client(self.target, self.job, follow=True) as jobs:
                    jobs.abort()


class _StreamRun(_Run):
    query: StreamingQuery | None = None
    seen = -1  # the last batch that was counted

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
        query.awaitTermination()  # raises the error that ended the query, if any
        self._count()

    def reading(self) -> Reading:
        self._count()
        query = self.query
        assert query is not None
        tasks = task_counts(self.spark, str(query.runId))
        self.tasks_failed = tasks.tasks_failed
        return replace(tasks, rows=self.rows, batches=self.batches)

    def _count(self) -> None:
        assert self.query is not None
        for progress in self.query.recentProgress:  # of the last 100 batches only
            # While a query is idle, it reports the next batch again and again.
            if progress.batchId <= self.seen or "addBatch" not in progress.durationMs:
                continue
            self.seen = progress.batchId
            self.batches += 1
            observed = progress.observedMetrics.get(ROWS)
            if observed is not None:
                self.rows += observed["rows"]
                self.null_keys += observed["null_keys"]
            self.add_report(stream_job(self.job, progress.batchId))


# The job in the cluster.


def fresh_job(name: str) -> str:
    """Return a unique name of a job, which begins with as much of *name* as fits."""
    token = secrets.token_hex(6)
    begin = "".join(each for each in name[:NAME_SHOWN_MAX] if each.isprintable())
    while not JOB.sound(f"{begin} {token}"):
        begin = begin[:-1]
    return f"{begin} {token}".strip()


def was_committed(target: Target, job: str, tell: Callable[[str], None]) -> bool:
    """Return whether an earlier run has committed *job*; if so, wait until it is applied.

    Args:
        tell: called with a message if some rows were refused. That is an error only in the run that
            committed the job: otherwise a caller that repeats the job would never be done.

    Raises:
        RowsRefused: if every row was refused: nothing was done under that name.
    """
    with job_client(target, job, follow=True, patience=Patience(target)) as jobs:
        if not jobs.decision():
            return False
        done = jobs.settled()
    if done.in_vain:
        raise RowsRefused(f"{done.refused_text(job)}; {OTHER_NAME}")
    if done.refused.count:
        tell(done.refused_text(job))
    return True


# Spark's reports on a running job. No error here ends a job: an unknown count is None.


def task_counts(spark: SparkSession, group: str) -> Reading:
    """Return the counts of tasks, of all jobs of *group* that Spark remembers."""
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
    return Reading(0.0, tasks_done=done, tasks_count=total, tasks_failed=failed)


def rows_so_far(spark: SparkSession, description: str) -> int | None:
    """Return the rows that tasks of the query *description* have read, as Spark's web pages do.

    It changes at the end of a task, and with each heartbeat of an executor (ten seconds by
    default). Rows of a failed task count, too.
    """
    # Spark has no public call for this besides its web pages.
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
    # The rows that reach `ROWS`: the sum of the nearest nodes below it that count their output.
    nodes = {node.id(): node for node in _items_of(graph.allNodes())}
    below: dict[int, list[int]] = {}
    for edge in _items_of(graph.edges()):
        below.setdefault(edge.toId(), []).append(edge.fromId())
    waiting = [number for number, node in nodes.items() if ROWS in node.desc()][:1]
    total: int | None = None
    while waiting:  # ends, because a plan has no cycle
        number = waiting.pop()
        rows = _output_of(nodes[number], metrics) if number in nodes else None
        if rows is None:
            waiting += below.get(number, [])
        else:
            total = (total or 0) + rows
    return total


def _items_of(listed: Any) -> Iterator[Any]:  # noqa: ANN401 - of the JVM
    return map(listed.apply, range(listed.size()))


def _output_of(node: Any, metrics: Any) -> int | None:  # noqa: ANN401 - of the JVM
    for metric in _items_of(node.metrics()):
        if metric.name() == _OUTPUT:
            value = metrics.get(metric.accumulatorId())
            return int(value.get().replace(",", "")) if value.isDefined() else 0
    return None
