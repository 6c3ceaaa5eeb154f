"""A program for spark-submit: a batch, a stream and a route, each of which halts in its middle.

``standalone_app.py FOLDER PEERS``. Tasks of the step NAME halt at half of their rows until the
file FOLDER/NAME-go is there; FOLDER/NAME-half says that one of them has come so far.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.taskcontext import TaskContext

from ringpop_py.spark import RingpopDataSource, route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    Mapped = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ROWS, KEYS, TASKS = 40_000, 500, 4
BATCH_ROWS = 1_000
HALT_S = 60.0
POLL_S = 0.02
SCHEMA = "tailnum string, arr_delay bigint, distance bigint"
OPERATION = "arr_delay=add,distance=max"


def flights(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=TASKS).select(
        F.concat(F.lit("N"), (F.col("id") * 7 % KEYS).cast("string")).alias("tailnum"),
        (F.col("id") % 60).alias("arr_delay"),
        (F.col("id") % 1_000).alias("distance"),
    )


def wait_for(file: Path) -> None:
    until = time.monotonic() + HALT_S
    while not file.exists() and time.monotonic() < until:
        time.sleep(POLL_S)


def halting(
    folder: str, name: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    half, go = Path(folder, f"{name}-half"), Path(folder, f"{name}-go")

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == ROWS // TASKS // BATCH_ROWS // 2:
                half.touch()
                wait_for(go)
            yield batch

    return wait


def slow_at_first(folder: str) -> Mapped:
    """The first attempt at one task waits until there is a second one beside it."""
    second = Path(folder, "second-attempt")

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            if context.partitionId() == 0:
                if context.attemptNumber():
                    second.touch()
                wait_for(second)
            yield batch

    return wait


def main(folder: str, peers: str) -> None:
    spark = SparkSession.builder.config(
        "spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS
    ).getOrCreate()
    spark.dataSource.register(RingpopDataSource)
    rows = flights(spark)
    options = {
        "key": "tailnum",
        "peers": peers,
        "operation": OPERATION,
        "createKeyspace": "true",
        "partitions": "8",
        "flushBytes": "1k",
    }

    def halted(df: DataFrame, name: str) -> DataFrame:
        return df.mapInArrow(halting(folder, name), SCHEMA)

    batch = halted(rows, "batch").write.format("ringpop").mode("append")
    batch.options(**options, keyspace="batch").save()

    rows.write.parquet(f"{folder}/in")
    read = spark.readStream.schema(SCHEMA).parquet(f"{folder}/in")
    stream = halted(read, "stream").writeStream.format("ringpop").trigger(availableNow=True)
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint")
    stream.options(**options, keyspace="stream").start().awaitTermination()

    report = route(
        halted(rows, "route"),
        key="tailnum",
        endpoint="/flights",
        peers=peers.split(","),
        batch_rows=BATCH_ROWS,
        job="r",
    )
    print(f"routed {report.rows_sent}")

    beside = rows.mapInArrow(slow_at_first(folder), SCHEMA).write.format("ringpop").mode("append")
    beside.options(**options, keyspace="beside").save()
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
