"""A Spark session that suits a laptop: two cores, quiet, quick to start."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringpop_py.spark.pipeline.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def open_spark(
    name: str,
    *,
    folder: Path | None = None,
    driver_memory: str = "1g",
    quick_start: bool = True,
) -> Iterator[SparkSession]:
    """Yield a session on two cores whose tasks are tried three times; it ends with the block.

    Args:
        folder: for Spark's scratch files and its log; by default Spark's own places.
        quick_start: do without the JVM's second compiler; off for jobs that take longer.
    """
    conf = {
        "spark.sql.shuffle.partitions": "2",  # 200 by default, far more than the data needs
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if quick_start else ""
        ),
    }
    if folder is not None:
        conf |= {"spark.local.dir": str(folder)}
        # By default Spark makes this folder where the command was run.
        conf |= {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    with open_session(name, master="local[2,3]", conf=conf, folder=folder) as session:
        yield session
