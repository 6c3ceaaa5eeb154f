"""Rows that are put from Arrow, by two threads, and read again."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ringpop_py.flow.shuffle.client.client import ShuffleClient

if TYPE_CHECKING:
    from tests.e2e.shuffle.cluster import ShuffleCluster

INTERVALS: Final = 64
MB: Final = 1e6


def table_of(rows: int, kind: str) -> pa.Table:
    rng = np.random.default_rng(1)
    keys: Any = rng.integers(0, 1 << 62, rows)
    if kind == "text":
        keys = pa.array(keys).cast(pa.string())
    return pa.table({"key": keys, "number": np.arange(rows), "value": rng.random(rows)})


def through(cluster: ShuffleCluster, table: pa.Table, name: str) -> float:
    began = time.perf_counter()
    with ShuffleClient(cluster.addresses, name) as client:
        client.create(table.schema, ["key"], intervals=INTERVALS)
        client.end(put_by_threads(cluster, name, table))
        found = client.reader().read_all()
        seconds = time.perf_counter() - began
        client.delete()
    assert found.num_rows == table.num_rows
    return seconds


def put_by_threads(cluster: ShuffleCluster, name: str, table: pa.Table) -> list[Any]:
    """Put *table* from two threads, as a machine of two cores does."""
    receipts: list[Any] = []

    def put(first: int, rows: int) -> None:
        with (
            ShuffleClient.open(cluster.addresses, name) as client,
            client.attempt() as attempt,
        ):
            step = 1 << 19
            for at in range(first, first + rows, step):
                attempt.put(table.slice(at, min(step, first + rows - at)))
        receipts.append(attempt.receipt)

    half = table.num_rows // 2
    threads = [
        threading.Thread(target=put, args=(first, rows))
        for first, rows in ((0, half), (half, table.num_rows - half))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return receipts
