"""Jobs on real processes that are killed in the middle: every row of a committed one, once."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ringpop_py import Client, JobClient, KeyspaceClient
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.rows.stagefile import Chunk, encode_stage
from tests.e2e.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PARTITIONS = 16
KEYS = [f"key-{n}" for n in range(4_000)]
FILES = 12


def a_file() -> bytes:
    """Adds 1 to each key, in small chunks."""
    parts: dict[int, list[str]] = {}
    for key in KEYS:
        parts.setdefault(partition_of(key, PARTITIONS), []).append(key)
    one = encode_value("msgpack", 1)
    chunks = [
        Chunk(number, pa.array(keys[at : at + 20]), pa.array([one] * len(keys[at : at + 20])))
        for number, keys in parts.items()
        for at in range(0, len(keys), 20)
    ]
    return encode_stage("add", chunks)


def kill_and_restart(cluster: LocalCluster, stop: threading.Event, rng: random.Random) -> None:
    """Every now and then another node than the first; it comes back a moment later."""
    while not stop.wait(rng.uniform(0.05, 0.6)):
        victim = cluster[rng.choice([1, 2])]
        victim.kill()
        stop.wait(rng.uniform(0.1, 1.0))
        victim.start()


def test_rows_of_committed_jobs_are_there_once_whoever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    flags = ("--preset", "local", "--store", str(tmp_path / "store"))
    with LocalCluster(tmp_path, 3, *flags) as cluster:
        cluster.wait_converged()
        with Client(cluster[1].address) as client:
            client.admin("/admin/keyspaces/create", {"name": "k", "partitions": PARTITIONS})
        stop = threading.Event()
        killer = threading.Thread(target=kill_and_restart, args=(cluster, stop, rng))
        killer.start()
        file = a_file()
        try:
            for name in ("first", "second"):
                commit(cluster, name, file)
                if name == "first":
                    apply(cluster, name)
        finally:
            stop.set()
            killer.join()
        apply(cluster, "second")  # its driver is gone; this is another

        with Client(cluster[0].address) as client, KeyspaceClient(client, "k") as keyspace:
            assert dict(keyspace.scan(timeout_s=30)) == dict.fromkeys(KEYS, 2 * FILES)


def commit(cluster: LocalCluster, name: str, file: bytes) -> None:
    with Client(cluster[0].address) as client, JobClient(client, "k", name) as job:
        for attempt_id in ("winner", "loser"):
            attempt = job.attempt(attempt_id)
            for _ in range(FILES):
                attempt.stage(file)
            attempt.finish()
        assert job.commit(["winner"])


def apply(cluster: LocalCluster, name: str) -> None:
    with Client(cluster[0].address) as client, JobClient(client, "k", name) as job:
        job.apply(timeout_s=60)
