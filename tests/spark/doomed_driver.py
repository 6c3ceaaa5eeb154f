"""A driver that is to be killed: what it begins and never ends, in a process of its own.

``python -m tests.spark.doomed_driver FOLDER PEERS``. It makes a file in FOLDER when it has come as
far as it gets: `STAGED`, `DECIDED` and `STREAMED`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from ringpop_demo.session import open_spark
from ringpop_py.spark import RingpopDataSource
from ringpop_py.spark.source.patience import job_client
from ringpop_py.spark.source.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGED, DECIDED, STREAMED = "staged", "decided", "streamed"
"""Keyspaces, and the names of batches: all tasks have ended; and it is decided that they count."""
OPERATION = "delay=add,distance=max,flights=count"
SCHEMA = "tailnum string, delay bigint, distance double"
ROWS = 6_000
FOREVER_S = 120.0


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=2).select(
        F.concat(F.lit("N"), (F.col("id") * 11 % 300).cast("string")).alias("tailnum"),
        (F.col("id") % 60).alias("delay"),
        (F.col("id") % 1_000).cast("double").alias("distance"),
    )


def options_of(keyspace: str, peers: str) -> dict[str, str]:
    return {
        "keyspace": keyspace,
        "key": "tailnum",
        "peers": peers,
        "operation": OPERATION,
        "createKeyspace": "true",
        "partitions": "8",
        "flushRows": "1000",
        "flushBytes": "1k",
    }


def main(folder: str, peers: str) -> None:
    spark_dir = Path(folder) / "spark"
    spark_dir.mkdir()
    with open_spark("doomed", folder=spark_dir) as spark:
        spark.dataSource.register(doomed(folder))

        reading = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writing = reading.parquet(f"{folder}/in").writeStream.format("doomed")
        writing = writing.option("checkpointLocation", f"{folder}/checkpoint")
        writing.options(**options_of(STREAMED, peers)).start()

        # Python's sources are those of the session, which another thread of the JVM does not know.
        jvm_session = spark._jsparkSession

        def batch(keyspace: str) -> None:
            jvm_session.setActiveSession(jvm_session)
            writing = rows(spark).write.format("doomed").mode("append")
            writing.options(**options_of(keyspace, peers), job=keyspace).save()

        threading.Thread(target=batch, args=(STAGED,), daemon=True).start()
        batch(DECIDED)


def doomed(folder: str) -> type[RingpopDataSource]:
    """The source, but that its commits stop half-way; pickled whole, as workers have no tests."""

    def halt(reached: str) -> None:
        Path(folder, reached).touch()
        time.sleep(FOREVER_S)
        os._exit(1)

    class DoomedBatch(BatchWriter):
        def commit(self, messages: Any) -> None:  # noqa: ANN401 - Spark's
            if self._job == DECIDED:
                with job_client(self._options.target, self._job) as client:
                    client.commit([each.attempt for each in messages])
            halt(self._job)

    class DoomedStream(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: ANN401, ARG002, N803 - Spark's
            job = messages[0].job
            with job_client(self._options.target, job) as client:
                client.commit([each.attempt for each in messages])
            halt(STREAMED)

    class Doomed(RingpopDataSource):
        @classmethod
        def name(cls) -> str:
            return "doomed"

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ANN401, FBT001 - Spark's
            made = super().writer(schema, overwrite)
            assert isinstance(made, BatchWriter)
            return DoomedBatch(made._options, made._job, named=True)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802 - Spark's
            return DoomedStream(super().streamWriter(schema, overwrite)._options)

    return Doomed


if __name__ == "__main__":
    main(*sys.argv[1:])
