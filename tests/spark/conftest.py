"""One Spark session for all tests that need one; without Java or pyspark they are skipped."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_demo.cluster import Cluster
from ringpop_py.client.sync.client import Client
from ringpop_py.state.placement.keys import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")
    from ringpop_demo.session import open_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with open_spark("ringpop_py tests", driver_memory="1g") as session:
        yield session


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that nobody breaks."""
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, 3, app="tests.spark.batch_app:create") as started:
        yield started


@pytest.fixture(scope="session")
def durable_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with a store that is the folder ``store``, beside their hosts file."""
    folder = tmp_path_factory.mktemp("durable")
    with Cluster(folder, 3, store=folder / "store") as started:
        yield started


@pytest.fixture(scope="session")
def memory_keyspace(cluster: Cluster) -> str:
    """A keyspace of `cluster` with 12 partitions, all of which are served, and nothing in it."""
    from ringpop_py.spark import keyspace_snapshot

    name = "in-memory"
    with Client(cluster.addresses[0]) as client:
        settings = {"name": name, "mode": "memory", "partitions": 12}
        client.admin("/admin/keyspaces/create", settings)
    until = time.monotonic() + 30
    while any(NOBODY in keyspace_snapshot(peer, name).owners for peer in cluster.addresses):
        assert time.monotonic() < until, "not all partitions are served"
        time.sleep(0.05)
    return name


@pytest.fixture
def mortal_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test, which may kill some."""
    with Cluster(tmp_path, 3, app="tests.spark.batch_app:create") as started:
        yield started
