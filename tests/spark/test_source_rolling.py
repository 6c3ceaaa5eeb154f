"""A stream while all daemons are restarted, one after the other: each row counts once."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py.spark import RingpopDataSource
from tests.e2e.local_cluster import LocalCluster
from tests.soak.spark import RollingRestart
from tests.spark.writes import TOTALS, contents, flights, options_for, totals_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(480)]

FILES = 24
RESTARTS = 3
"""Each daemon once, the last one by kill -9."""
RESTARTS_S = 150.0


def test_a_stream_goes_on_while_all_daemons_are_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = flights(spark, FILES * 100, tasks=1)
    df.repartition(FILES).write.parquet(str(tmp_path / "in"))
    reading = spark.readStream.schema(df.schema).option("maxFilesPerTrigger", 1)
    stream = reading.parquet(str(tmp_path / "in"))
    spark.dataSource.register(RingpopDataSource)
    flags = ("--preset", "local", "--store", str(tmp_path / "store"))
    with LocalCluster(tmp_path / "nodes", 3, *flags) as cluster:
        cluster.wait_converged()
        options = options_for(cluster, "live", operation=TOTALS)
        options["checkpointLocation"] = str(tmp_path / "checkpoint")

        with RollingRestart(cluster, random.Random(1), pause_s=0.3) as roll:
            writing = stream.writeStream.format("ringpop").options(**options)
            query = writing.trigger(processingTime="500 milliseconds").start()
            until = time.monotonic() + RESTARTS_S
            while roll.restarts_count < RESTARTS and query.isActive:
                assert roll.error is None, roll.error
                assert time.monotonic() < until, "so many restarts take longer"
                time.sleep(0.05)
        query.processAllAvailable()
        query.stop()

        assert roll.kills_count > 0
        assert query.lastProgress is not None
        assert query.lastProgress.batchId >= FILES - 1
        assert contents(cluster, "live") == totals_of(df)
