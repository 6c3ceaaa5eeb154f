"""Pipelines at work: batches, streams, and what is told of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import functions as F  # noqa: N812

from ringpop_demo.cluster import Cluster
from ringpop_py.base.errors import ConfigError, PipelineFailed
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.edge.cli.pipeline import dry_run_text, summary_text
from ringpop_py.spark.pipeline.dryrun import dry_run
from ringpop_py.spark.pipeline.interrupts import Interrupted, Interrupts
from ringpop_py.spark.pipeline.progress import Display
from ringpop_py.spark.pipeline.run import run_pipeline
from ringpop_py.spark.pipeline.session import open_session
from ringpop_py.spark.pipeline.settings import load_pipeline
from ringpop_py.spark.pipeline.target import PipelineTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ringpop_py.spark.pipeline.progress import Reading
    from ringpop_py.spark.pipeline.run import PipelineSummary
    from ringpop_py.spark.pipeline.settings import Pipeline

    Make = Callable[..., Pipeline]

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

ROWS = 6_000
TOML = """
hosts = "${HOSTS}"
key = "tailnum"
on_null_key = "count"
[source]
format = "parquet"
path = "${FLIGHTS}"
[keyspace]
name = "${NAME}"
partitions = 12
[columns]
flights = "count"
minutes = { value = "coalesce(delay, 0)", by = "add" }
farthest = { value = "distance", by = "max" }
[report]
every_s = 0.1
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")
    with Cluster(folder, 3, store=folder / "store") as started:
        yield started


@pytest.fixture(scope="module")
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of flights; every eleventh row has no key, every seventh no delay."""
    folder = tmp_path_factory.mktemp("source") / "flights"
    row = F.col("id")
    spark.range(ROWS, numPartitions=4).select(
        F.when(row % 11 > 0, F.concat(F.lit("N"), row % 97)).alias("tailnum"),
        F.when(row % 7 > 0, row % 50).alias("delay"),
        (row * 31 % 5_000).alias("distance"),
    ).write.parquet(str(folder))
    return folder


@pytest.fixture
def pipeline(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster, flights: Path
) -> Make:
    """Makes pipelines into a keyspace of this test's own."""
    path = tmp_path / "job.toml"
    path.write_text(TOML)
    environment = {
        "HOSTS": str(cluster.hosts),
        "FLIGHTS": str(flights),
        "NAME": request.node.name[:80],
    }

    def make(*overrides: str) -> Pipeline:
        return load_pipeline(str(path), overrides, environment)

    return make


def run(spark: SparkSession, pipeline: Pipeline) -> tuple[PipelineSummary, str]:
    told = io.StringIO()
    return run_pipeline(spark, pipeline, display=Display(told)), told.getvalue()


def held_in(cluster: Cluster, pipeline: Pipeline) -> dict[str, Any]:
    with (
        Client(cluster.addresses[0]) as client,
        KeyspaceClient(client, pipeline.keyspace.name) as keyspace,
    ):
        return dict(keyspace.scan())


def totals_by_spark(spark: SparkSession, flights: Path) -> dict[str, Any]:
    rows = spark.read.parquet(str(flights)).where("tailnum IS NOT NULL").groupBy("tailnum")
    totals = rows.agg(
        F.count("*").alias("flights"),
        F.sum(F.coalesce("delay", F.lit(0))).alias("minutes"),
        F.max("distance").alias("farthest"),
    )
    return {
        row.tailnum: {"flights": row.flights, "minutes": row.minutes, "farthest": row.farthest}
        for row in totals.collect()
    }


def test_a_batch_has_the_totals_of_spark_and_counts_what_it_did(
    spark: SparkSession, cluster: Cluster, flights: Path, pipeline: Make
) -> None:
    job = pipeline("combine=false")  # so that there is something for tasks to combine

    summary, told = run(spark, job)

    assert held_in(cluster, job) == totals_by_spark(spark, flights)
    without_key = -(-ROWS // 11)
    assert (summary.rows, summary.null_keys) == (ROWS, without_key)
    assert 97 <= summary.changes <= ROWS - without_key
    assert (summary.tasks_failed, summary.repeated, summary.stopped) == (0, False, False)
    assert sum(summary.ownership.partitions.values()) == 12
    assert sum(summary.ownership.keys.values()) == 97
    assert summary.readings[-1].rows == ROWS
    assert "was made\n" in told
    assert f"{ROWS:,} rows, {without_key:,} without a key" in summary_text(summary)
    assert json.loads(json.dumps(summary.as_value()))["rows"] == ROWS
    assert list(summary.times) == ["read", "combine", "stage", "apply"]
    assert min(summary.times[name] for name in ("read", "combine", "stage")) > 0
    assert "  time      read " in summary_text(summary)


def test_a_batch_with_a_name_takes_effect_once(
    spark: SparkSession, cluster: Cluster, flights: Path, pipeline: Make
) -> None:
    job = pipeline("job=the only one")

    first, _ = run(spark, job)
    again, _ = run(spark, job)

    assert (first.repeated, again.repeated) == (False, True)
    assert "nothing to do" in summary_text(again)
    assert held_in(cluster, job) == totals_by_spark(spark, flights)


def test_a_stream_goes_on_where_it_ended(
    spark: SparkSession, cluster: Cluster, flights: Path, pipeline: Make, tmp_path: Path
) -> None:
    stream = f"stream.checkpoint={tmp_path}/checkpoint"
    job = pipeline(stream, "source.options.maxFilesPerTrigger=2")

    first, _ = run(spark, job)
    again, _ = run(spark, job)

    assert (first.batches, first.rows) == (2, ROWS)
    assert (again.batches, again.rows) == (0, 0)
    assert held_in(cluster, job) == totals_by_spark(spark, flights)


def test_a_stream_without_end_is_stopped_by_a_signal_and_loses_nothing(
    spark: SparkSession, cluster: Cluster, flights: Path, pipeline: Make, tmp_path: Path
) -> None:
    stream = f"stream={{ checkpoint = '{tmp_path}/checkpoint', trigger = '1 second' }}"
    job = pipeline(stream)
    interrupts = Interrupts()

    def heed(reading: Reading) -> None:
        interrupts.came = interrupts.came or reading.batches > 0

    summary = run_pipeline(
        spark, job, display=Display(io.StringIO()), interrupts=interrupts, heed=heed
    )

    assert summary.stopped
    assert "stopped in" in summary_text(summary)
    assert held_in(cluster, job) == totals_by_spark(spark, flights)


def test_an_interrupted_batch_leaves_nothing(
    spark: SparkSession, cluster: Cluster, pipeline: Make
) -> None:
    slow = "sql=SELECT *, java_method('java.lang.Thread', 'sleep', 20L) AS s FROM source"
    job = pipeline(f"source.{slow}", "columns={ s = 'put' }", "report.every_s=0.2")
    interrupts = Interrupts()

    def heed(reading: Reading) -> None:
        interrupts.came = interrupts.came or reading.tasks_count > 0

    with pytest.raises(Interrupted):
        run_pipeline(spark, job, display=Display(io.StringIO()), interrupts=interrupts, heed=heed)

    assert held_in(cluster, job) == {}


def test_a_job_that_fails_says_why_in_a_line_and_leaves_nothing(
    spark: SparkSession, cluster: Cluster, pipeline: Make
) -> None:
    job = pipeline("on_null_key=fail")

    with pytest.raises(PipelineFailed, match=r"^BadKey: .* no key in column 'tailnum'"):
        run(spark, job)

    assert held_in(cluster, job) == {}


def test_rows_that_the_keyspace_refuses_fail_the_job_and_are_named(
    spark: SparkSession, cluster: Cluster, pipeline: Make
) -> None:
    numbers = pipeline("columns=[]", "value=int(1)", "operation=add", "job=numbers")
    name = numbers.keyspace.name
    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, name) as keyspace:
        client.admin("/admin/keyspaces/create", {"name": name, "partitions": 12})
        keyspace.put("N1", "none")

    with pytest.raises(PipelineFailed, match=r"^RowsRefused: .*'N1': BadOperation"):
        run(spark, numbers)
    again, told = run(spark, numbers)

    held = held_in(cluster, numbers)
    assert held["N1"] == "none"
    assert len(held) == 97
    assert again.repeated, "whoever repeats it until it is done comes to an end"
    assert "job 'numbers' was applied, but" in told


def test_other_types_than_those_of_the_keyspace_are_refused_before_the_job(
    spark: SparkSession, pipeline: Make
) -> None:
    run(spark, pipeline("columns=[]", "value=string('none')"))
    numbers = pipeline("columns=[]", "value=int(1)", "operation=add")

    for attempt in (dry_run, run):
        with pytest.raises(ConfigError, match="'value': operation add would leave bigint"):
            attempt(spark, numbers)


def test_the_session_that_is_there_is_used_and_left_alone(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None

    with open_session("other", conf={"spark.sql.shuffle.partitions": before}) as session:
        assert session.sparkContext is spark.sparkContext

    assert spark.range(3).count() == 3


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("key=tail", "there is no column 'tail'; there are 'tailnum', 'delay', 'distance'"),
        ("source.path=/nowhere", "Path does not exist"),
        ("source.format=nonsense", "nonsense"),
        ("source.sql=SELEC", "syntax error"),
        ("columns.minutes.value=dely", "dely"),
        (
            "columns.minutes.by=sum",
            "column 'minutes': no member knows 'sum', perhaps 'add'",
        ),
        ("columns.farthest.value=array(distance)", "max takes .* 'farthest' is of type list"),
    ],
)
def test_a_mistake_in_a_pipeline_is_reported_before_anything_is_written(
    spark: SparkSession, pipeline: Make, override: str, problem: str
) -> None:
    job = pipeline(override)

    with pytest.raises(ConfigError, match=f"(?i){problem}"):
        run(spark, job)
    with pytest.raises((ConfigError, PipelineFailed), match=f"(?i){problem}"):
        dry_run(spark, job)

    assert PipelineTarget(job.target, job.keyspace).ownership().planned


def test_a_dry_run_tells_whose_the_rows_would_be_and_makes_nothing(
    spark: SparkSession, cluster: Cluster, pipeline: Make
) -> None:
    job = pipeline()

    found = dry_run(spark, job)
    text = dry_run_text(found)
    run(spark, job)

    assert found.ownership.planned
    assert found.sample is not None
    assert (found.sample.rows, found.sample.keys) == (ROWS, 97)
    held = held_in(cluster, job)
    assert sum(share.keys for share in found.sample.shares.values()) == len(held)
    assert sum(share.rows for share in found.sample.shares.values()) == sum(
        value["flights"] for value in held.values()
    )
    key, rows = found.sample.busiest or ("", 0)
    assert rows == held[key]["flights"] == max(value["flights"] for value in held.values())
    assert "  minutes   bigint  add, an entry of the map\n" in text
    assert "Scan parquet" in text
    assert text.endswith("Nothing was written.")


@pytest.mark.parametrize(
    ("overrides", "plan"),
    [
        ((), "Spark combines all rows of a key first"),
        (("columns=[]", "operation=count"), "Spark combines all rows of a key first"),
        (("columns=[]", "operation=max", "value=int(1)"), "Spark combines all rows of a key first"),
        (("combine=false",), "each task combines its own rows: combine is false"),
        (("columns=[]",), "each task combines its own rows: Spark cannot combine for put"),
        (
            ("columns={ t = { value = 'string(delay)', by = 'max' } }",),
            "each task combines its own rows: column 't': Spark would sort all rows for max",
        ),
        (("stream.checkpoint=/c",), "each task combines its own rows: it is a stream"),
    ],
    ids=["fields", "a count", "a value", "switched off", "a put", "text", "a stream"],
)
def test_a_dry_run_tells_whether_spark_combines_rows_first(
    spark: SparkSession, pipeline: Make, overrides: tuple[str, ...], plan: str
) -> None:
    text = dry_run_text(dry_run(spark, pipeline(*overrides)))

    assert f"\n\nPlan: {plan}" in text
    assert ("HashAggregate" in text) is plan.startswith("Spark")


@pytest.mark.parametrize("combine", ["true", "false"])
@pytest.mark.parametrize("operation", ["count", "add"])
def test_a_single_value_is_the_same_whoever_combines(
    spark: SparkSession,
    cluster: Cluster,
    flights: Path,
    pipeline: Make,
    operation: str,
    combine: str,
) -> None:
    job = pipeline(
        *("columns=[]", "value=int(1)", f"operation={operation}", f"combine={combine}"),
        "key=TAILNUM",
    )

    summary, _ = run(spark, job)

    totals = totals_by_spark(spark, flights)
    assert held_in(cluster, job) == {key: value["flights"] for key, value in totals.items()}
    assert (summary.rows, summary.null_keys) == (ROWS, -(-ROWS // 11))
    assert (summary.changes == 97) is (combine == "true")


def test_a_dry_run_of_a_stream_looks_at_what_it_would_read_now(
    spark: SparkSession, pipeline: Make
) -> None:
    files, rate = pipeline("stream.checkpoint=/c"), pipeline("stream.checkpoint=/c")
    source = replace(rate.source, format="rate", path=(), sql="SELECT value AS tailnum FROM source")

    found = dry_run(spark, files)
    unreadable = dry_run(spark, replace(rate, source=source, columns=(), operation="count"))

    assert found.sample is not None
    assert found.sample.rows == ROWS
    assert unreadable.sample is None
    assert "No sample: " in dry_run_text(unreadable)


def test_a_jvm_that_hangs_up_is_no_news_and_other_errors_are(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    server: Any = spark.sparkContext._accumulatorServer

    for error in (EOFError("the end"), ValueError("odd")):
        try:
            raise error
        except (EOFError, ValueError):
            server.handle_error(None, ("127.0.0.1", 1))

    told = capsys.readouterr().err
    assert "odd" in told
    assert "the end" not in told
