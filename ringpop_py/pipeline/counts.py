"""What Spark can tell of a job that runs. Nothing here ends a job: what cannot be told is None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = "ringpop-rows"
"""The node of a plan where all rows that are written pass by, see `DataFrame.observe`."""
_OUTPUT: Final = "number of output rows"
_DEPTH_MAX: Final = 200


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
    nodes = {}
    listed = graph.allNodes()
    for index in range(listed.size()):
        node = listed.apply(index)
        nodes[node.id()] = node
    below: dict[int, list[int]] = {}
    edges = graph.edges()
    for index in range(edges.size()):
        edge = edges.apply(index)
        below.setdefault(edge.toId(), []).append(edge.fromId())
    counted = {number: _output_of(node, metrics) for number, node in nodes.items()}
    start = [number for number, node in nodes.items() if ROWS in node.desc()]
    return _sum_below(start[:1], below, counted, _DEPTH_MAX) if start else None


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
    listed = node.metrics()
    for index in range(listed.size()):
        metric = listed.apply(index)
        if metric.name() == _OUTPUT:
            value = metrics.get(metric.accumulatorId())
            return int(value.get().replace(",", "")) if value.isDefined() else 0
    return None
