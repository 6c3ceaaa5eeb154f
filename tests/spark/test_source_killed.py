"""Drivers that are killed with all that belongs to them: no row is lost, and none counts twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py.spark import RingpopDataSource
from tests.spark.doomed_driver import DECIDED, SCHEMA, STAGED, STREAMED, options_of, rows
from tests.spark.writes import contents, staged_in, totals_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]

REACHED_S = 180
SWEPT_S = 90.0
POLL_S = 0.05


@pytest.fixture(scope="module")
def killed(
    spark: SparkSession, durable_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a driver that was killed when it had come as far as it gets."""
    spark.dataSource.register(RingpopDataSource)
    folder = tmp_path_factory.mktemp("doomed")
    rows(spark).write.parquet(str(folder / "in"))
    peers = ",".join(durable_cluster.addresses)
    command = [sys.executable, "-m", "tests.spark.doomed_driver", str(folder), peers]
    with (folder / "log").open("wb") as log:
        # A session of its own: its JVM and all are killed together.
        driver = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + REACHED_S
        while not all((folder / name).exists() for name in (STAGED, DECIDED, STREAMED)):
            assert driver.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(POLL_S)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return folder


@pytest.mark.usefixtures("killed")
def test_a_job_whose_driver_was_killed_once_all_was_staged_has_no_effect_until_it_is_repeated(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    df, options = rows(spark), options_of(STAGED, ",".join(durable_cluster.addresses))
    assert staged_in(durable_cluster, STAGED) != []
    assert contents(durable_cluster, STAGED) == {}

    df.write.format("ringpop").options(**options, job=STAGED).mode("append").save()

    assert contents(durable_cluster, STAGED) == totals_of(df)
    assert staged_in(durable_cluster, STAGED) == []


def test_a_stream_whose_driver_was_killed_before_it_had_noted_its_batch_goes_on(
    spark: SparkSession, durable_cluster: Cluster, killed: Path
) -> None:
    reading = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    writing = reading.parquet(str(killed / "in")).writeStream.format("ringpop")
    options = options_of(STREAMED, ",".join(durable_cluster.addresses))
    assert list((killed / "checkpoint" / "offsets").glob("0"))
    assert not list((killed / "checkpoint").glob("commits/0"))

    query = writing.options(**options, checkpointLocation=str(killed / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(REACHED_S)

    assert contents(durable_cluster, STREAMED) == totals_of(rows(spark))


@pytest.mark.usefixtures("killed")
def test_a_job_whose_driver_was_killed_once_it_was_decided_is_applied_without_it(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    totals = totals_of(rows(spark))

    until = time.monotonic() + SWEPT_S  # the sweep: the tests before this have been part of it
    while contents(durable_cluster, DECIDED) != totals and time.monotonic() < until:
        time.sleep(1)

    assert contents(durable_cluster, DECIDED) == totals
