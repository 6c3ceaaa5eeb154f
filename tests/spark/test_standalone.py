"""On Spark's own cluster: two workers, of which one is killed in the middle of each step."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_demo.cluster import Cluster
from ringpop_py.base.values.packed import decode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.route.proxy.request import Request
from tests.spark import standalone_app as app
from tests.spark.standalone import Standalone
from tests.spark.writes import contents

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.timeout(480),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
]

STEP_S = 90.0
POLL_S = 0.05
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # A task that is slower than another one is run a second time beside it.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
}


def expected() -> dict[str, Any]:
    """What the rows of the program come to."""
    totals: dict[str, dict[str, int]] = {}
    for number in range(app.ROWS):
        row = totals.setdefault(f"N{number * 7 % app.KEYS}", {"arr_delay": 0, "distance": 0})
        row["arr_delay"] += number % 60
        row["distance"] = max(row["distance"], number % 1_000)
    return totals


def wait_for(path: Path, program: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STEP_S
    while not path.exists():
        assert program.poll() is None, "the program has ended before that"
        assert time.monotonic() < until, f"there is no {path.name}"
        time.sleep(POLL_S)


def test_all_rows_count_once_while_workers_are_killed_and_tasks_are_repeated(
    tmp_path: Path,
) -> None:
    (tmp_path / "spark").mkdir()
    with (
        Cluster(tmp_path, 2, app="ringpop_demo.app:create", store=tmp_path / "store") as cluster,
        Standalone(tmp_path / "spark", workers=2) as spark,
    ):
        folder, peers = str(tmp_path), ",".join(cluster.addresses)
        program = spark.submit(app.__file__, folder, peers, conf=CONF)
        try:
            for step in ("batch", "stream", "route"):
                wait_for(tmp_path / f"{step}-half", program)
                spark.kill_worker()
                (tmp_path / f"{step}-go").touch()
                spark.add_worker()
            assert program.wait(STEP_S) == 0
        finally:
            print(spark.said())

        assert f"\nrouted {app.ROWS}\n" in spark.said()
        assert (tmp_path / "second-attempt").exists()
        totals = expected()
        for keyspace in ("batch", "stream", "beside"):
            assert contents(cluster, keyspace) == totals, keyspace
        arrived = 0
        for node in cluster.nodes:
            with Client(node.address) as client:
                rows_count, _ = decode_value("msgpack", client.invoke(Request("/arrived", b"")))
                arrived += rows_count
        assert arrived == app.ROWS
