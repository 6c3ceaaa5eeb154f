"""Shuffles whose second copies lie in the store."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ShuffleRefused
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_py.state.stores import open_store
from tests.e2e.shuffle.cluster import ShuffleCluster, child_of, until
from tests.e2e.shuffle.test_rows import SCHEMA, keys_of, put, rows

if TYPE_CHECKING:
    from pathlib import Path


def frames_in(folder: Path) -> set[str]:
    store = open_store(str(folder / "store"), create=False)
    try:
        return {key for key in store.list("") if "/shuffles/" in key}
    finally:
        store.close()


@pytest.mark.timeout(360)
def test_all_processes_may_die_while_rows_are_put(tmp_path: Path) -> None:
    tables = [rows(seed) for seed in range(3)]
    with ShuffleCluster(tmp_path, 2) as cluster:
        cluster.wait_ready(2)
        with ShuffleClient(cluster.addresses, "stored", timeout_s=60) as client:
            client.create(SCHEMA, ["key"], intervals=4, durability="store")
            unfinished = client.attempt()
            unfinished.put(tables[0])
            receipts = [put(client, tables[1])]
            before = set(client.refresh().members)
            for node in cluster.nodes:
                os.kill(child_of(node), signal.SIGKILL)
            until(lambda: len(set(client.refresh().members) - before) == 2, cluster.logs, 60)
            assert frames_in(tmp_path)

            receipts += [unfinished.finish(), put(client, tables[2])]
            client.end(receipts)
            assert client.reader().read_all().column("key").to_pylist() == keys_of(*tables)
            until(lambda: not frames_in(tmp_path), cluster.logs)
            client.delete()


@pytest.mark.timeout(240)
def test_a_node_may_be_alone_and_what_a_dead_one_has_left_in_the_store_goes(tmp_path: Path) -> None:
    with ShuffleCluster(tmp_path, 1) as cluster:
        cluster.wait_ready(1)
        with ShuffleClient(cluster.addresses, "alone") as client:
            client.create(SCHEMA, ["key"], intervals=2, durability="store")
            receipt = put(client, rows(1))
            needed = frames_in(tmp_path)
            store = open_store(str(tmp_path / "store"), create=False)
            root = min(needed).split("/shuffles/")[0]
            store.put_if_absent(f"{root}/shuffles/0123/77/0/0000000001-0000000000", b"frame")
            store.close()
            os.kill(child_of(cluster[0]), signal.SIGKILL)
            until(lambda: frames_in(tmp_path) == needed, cluster.logs)
            client.end([receipt])
            assert client.reader().read_all().column("key").to_pylist() == keys_of(rows(1))
            client.delete()
            until(lambda: not frames_in(tmp_path), cluster.logs)


def test_other_places_than_a_replica_and_the_store_are_refused() -> None:
    with (
        ShuffleClient("127.0.0.1:1", "refused") as client,
        pytest.raises(ShuffleRefused, match="durability is 'replica' or 'store', not 'disk'"),
    ):
        client.create(SCHEMA, ["key"], durability="disk")  # type: ignore[arg-type]
