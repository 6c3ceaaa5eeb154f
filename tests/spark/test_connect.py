"""Spark Connect, in a process of its own: a process has sessions of one kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")

if TYPE_CHECKING:
    from ringpop_demo.cluster import Cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.timeout(360),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
]
ROOT = Path(__file__).parents[2]


def test_owners_partitions_and_the_data_source_are_the_same_there(
    durable_cluster: Cluster, cluster: Cluster, tmp_path: Path
) -> None:
    peers = [",".join(each.addresses) for each in (durable_cluster, cluster)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "demo")])
    # Spark Connect takes a free port only for tests.
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_TESTING": "1"}

    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_app", *peers],
        env=environment,
        cwd=tmp_path,  # where Spark makes its warehouse
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(f"owners of {count} members: 2,000 keys" for count in ("1", "5", "100", "1,000")),
        "written and read",
        "combined first",
        "partitions and their owners",
        "routed",
    ]
