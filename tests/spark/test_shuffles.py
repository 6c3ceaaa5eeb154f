"""DataFrames into shuffles: each row once, whatever happens to tasks and nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ShuffleConflict, ShuffleEnded, ShuffleRefused
from ringpop_py.flow.shuffle.client.client import ShuffleClient, random_order
from ringpop_py.spark import RingpopDataSource, shuffle
from tests.e2e.shuffle.cluster import ShuffleCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 40_000


@pytest.fixture(scope="module")
def shuffles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShuffleCluster]:
    with ShuffleCluster(tmp_path_factory.mktemp("shuffles"), 3) as cluster:
        cluster.wait_ready(3)
        yield cluster
        print(cluster.logs())  # shown if a test fails


def test_a_frame_comes_out_in_order_each_row_once(
    spark: SparkSession, shuffles: ShuffleCluster
) -> None:
    df = spark.range(ROWS, numPartitions=4).selectExpr(
        "id", "cast(id % 97 as string) as text", "timestamp_seconds(id * 1000) as at"
    )

    report = shuffle(df, by=["text", "id"], name="frame", peers=shuffles.addresses, intervals=16)

    assert (report.rows, report.attempts, report.intervals) == (ROWS, 4, 16)
    assert "40,000 rows of 4 tasks" in str(report)
    with ShuffleClient.open(shuffles.addresses, "frame") as client:
        rows = client.reader().read_all()
        found = [(row["text"], row["id"]) for row in rows.to_pylist()]
        assert found == sorted((str(number % 97), number) for number in range(ROWS))
        assert rows.column("at")[0].as_py().timestamp() == rows.column("id")[0].as_py() * 1000
        with pytest.raises(ShuffleEnded, match="it was ended"):
            shuffle(df, by=["text", "id"], name="frame", peers=shuffles.addresses, intervals=16)
        with pytest.raises(ShuffleConflict, match="delete it first"):
            shuffle(df, by=["id"], name="frame", peers=shuffles.addresses, intervals=16)
        client.delete()


def test_a_random_order_is_the_same_each_time(
    spark: SparkSession, shuffles: ShuffleCluster
) -> None:
    df = spark.range(ROWS, numPartitions=4)
    orders = []
    for name in ("one", "two"):
        shuffle(df, by=random_order(3), name=name, peers=shuffles.addresses, intervals=8)
        with ShuffleClient.open(shuffles.addresses, name) as client:
            orders.append(client.reader().read_all().column("id").to_pylist())
            client.delete()

    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(ROWS))
    assert orders[0][:100] != sorted(orders[0])[:100]


def test_a_column_without_an_order_is_refused_before_a_task_runs(
    spark: SparkSession, shuffles: ShuffleCluster
) -> None:
    df = spark.range(10).selectExpr("array(id) as ids")

    with pytest.raises(ShuffleRefused, match="which has no order"):
        shuffle(df, by="ids", name="refused", peers=shuffles.addresses)


def test_a_task_that_is_tried_again_puts_its_rows_once(
    spark: SparkSession, shuffles: ShuffleCluster, tmp_path: Path
) -> None:
    marks = str(tmp_path)

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mark = f"{marks}/{context.partitionId()}"
        yield from batches
        if not os.path.exists(mark):  # noqa: PTH110 - in a task
            open(mark, "w").close()  # noqa: PTH123
            raise RuntimeError("this task fails once, after all of its rows")

    df = spark.range(ROWS, numPartitions=3).mapInArrow(fails_once, "id bigint")

    report = shuffle(df, by="id", name="again", peers=shuffles.addresses, intervals=8)

    assert report.rows == ROWS
    with ShuffleClient.open(shuffles.addresses, "again") as client:
        assert client.reader().read_all().column("id").to_pylist() == list(range(ROWS))
        assert client.record.next_attempt > 4  # of three tasks, and one that checks
        client.delete()


def test_a_node_is_killed_in_the_midst_of_a_job(
    spark: SparkSession, shuffles: ShuffleCluster, tmp_path: Path
) -> None:
    pids = str(shuffles[1].process.pid) if shuffles[1].process is not None else ""
    mark = str(tmp_path / "killed")

    def kills(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import signal

        for batch in batches:
            yield batch
            if not os.path.exists(mark):  # noqa: PTH110
                open(mark, "w").close()  # noqa: PTH123
                os.kill(int(pids), signal.SIGKILL)

    df = spark.range(20 * ROWS, numPartitions=4).mapInArrow(kills, "id bigint")

    shuffle(df, by="id", name="killed", peers=shuffles.addresses, intervals=8)

    with ShuffleClient.open(shuffles.addresses, "killed") as client:
        assert client.reader().read_all().column("id").to_pylist() == list(range(20 * ROWS))
        client.delete()
    assert shuffles[1].process is not None
    shuffles[1].process.wait(10)
    shuffles[1].start()
    shuffles.wait_ready(3)


def test_the_data_source_ends_a_shuffle_with_a_batch(
    spark: SparkSession, shuffles: ShuffleCluster
) -> None:
    spark.dataSource.register(RingpopDataSource)
    df = spark.range(ROWS, numPartitions=3).selectExpr("id % 100 as user", "id as time")
    options = {"shuffle": "batch", "by": "user, time", "peers": ",".join(shuffles.addresses)}

    df.write.format("ringpop").options(**options, intervals=8).mode("append").save()

    with ShuffleClient.open(shuffles.addresses, "batch") as client:
        table = client.reader().read_all()
        found = list(
            zip(*(table.column(name).to_pylist() for name in ("user", "time")), strict=True)
        )
        assert found == sorted((number % 100, number) for number in range(ROWS))
        client.delete()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "id", "flushRows": "3"}, "there is no option 'flushrows' of a shuffle; there are:"),
        ({}, "give option by, the key columns, or option seed"),
        ({"by": "id", "seed": "1"}, "give option by, the key columns, or option seed"),
        ({"seed": "x"}, "option seed is a whole number, 0 or more, not 'x'"),
        ({"by": "user"}, "there is no column 'user' to sort by"),
        ({"by": "id", "intervals": "0"}, "a shuffle has 1 to 4096 intervals, not 0"),
    ],
)
def test_options_that_cannot_be_are_refused(
    spark: SparkSession, shuffles: ShuffleCluster, options: dict[str, str], said: str
) -> None:
    spark.dataSource.register(RingpopDataSource)
    write = spark.range(3).write.format("ringpop").mode("append")

    with pytest.raises(Exception, match=said):
        write.options(shuffle="no", peers=shuffles.addresses[0], **options).save()


def test_batches_of_a_stream_count_once_though_they_are_sent_again(
    spark: SparkSession, shuffles: ShuffleCluster, tmp_path: Path
) -> None:
    spark.dataSource.register(RingpopDataSource)
    source, checkpoint = str(tmp_path / "source"), tmp_path / "checkpoint"
    options = {"shuffle": "stream", "by": "id", "peers": shuffles.addresses[0], "intervals": "4"}

    def run() -> None:
        stream = spark.readStream.schema("id bigint").parquet(source)
        query = (
            stream.writeStream.format("ringpop")
            .options(**options, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        assert query.exception() is None

    for first in (0, 1000):
        spark.range(first, first + 1000, numPartitions=2).write.mode("append").parquet(source)
        run()
    # As if the driver had died after the commit, and before it noted that.
    newest = max(
        int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()
    )
    for path in (checkpoint / "commits").iterdir():
        if path.name.strip(".").removesuffix(".crc") == str(newest):
            path.unlink()
    run()
    with ShuffleClient.open(shuffles.addresses, "stream") as client:
        assert client.state == "put"
        client.end([])
        assert client.reader().read_all().column("id").to_pylist() == list(range(2000))
        assert client.record.next_attempt > len(client.record.winners)
        client.delete()
