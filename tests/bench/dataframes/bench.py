"""What all parts of `bench spark` share: a session, a cluster with a store, and what was chosen."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_demo.cluster import Cluster
from ringpop_py.spark.pipeline.session import open_session
from tests.bench.dataframes.instead import jars
from tests.bench.dataframes.ours import Target

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

NODES: Final = 4
CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
}


@dataclass(frozen=True, slots=True)
class Bench:
    """What a part gets.

    Attributes:
        folder: of this part alone.
    """

    spark: SparkSession
    cluster: Cluster
    folder: Path
    options: argparse.Namespace

    def target(self, name: str) -> Target:
        """A new keyspace."""
        return Target(self.cluster.addresses, f"{self.folder.name}-{name}")


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Two cores, and the drivers of databases that this machine has."""
    conf = CONF | {"spark.jars": ",".join(map(str, jars()))}
    with open_session("bench", master="local[2,3]", conf=conf, folder=folder) as spark:
        yield spark


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Four nodes, which add up the flights that are routed to them, and keep keyspaces."""
    app = "ringpop_demo.app:create"
    with Cluster(folder, NODES, app=app, store=folder / "store") as nodes:
        yield nodes
