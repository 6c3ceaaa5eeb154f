"""The keyspaces that are written into, by the data source and by what stands beside it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import options
from ringpop_py.spark.arrow.columns import unpack_rows
from ringpop_py.spark.snapshot import keyspace_snapshot
from ringpop_py.spark.source.reader import KeyspaceReader
from ringpop_py.state.placement.keys import NOBODY
from tests.bench.dataframes.inputs import TOTALS, check, ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from tests.bench.dataframes.inputs import Input

SERVED_S: Final = 60.0
POLL_S: Final = 0.05
BATCH_ROWS: Final = 1_000
CALL_S: Final = 30.0
SUMS: Final = "minutes=add,miles=add"


class Target:
    """One durable keyspace, of 256 partitions as by default, and how often it was written."""

    def __init__(self, peers: Sequence[str], name: str) -> None:
        self.peers = tuple(peers)
        self.name = name
        self.times = 0
        with Client(peers[0], timeout_s=SERVED_S) as client:
            client.admin("/admin/keyspaces/create", {"name": name})
        until = time.monotonic() + SERVED_S
        while any(NOBODY in keyspace_snapshot(peer, name).owners for peer in peers):
            assert time.monotonic() < until, "not all partitions are served"
            time.sleep(POLL_S)

    def write(self, rows: DataFrame, operation: str = SUMS, **options: str) -> None:
        """All of *rows*, exactly once; returns when they can be read."""
        given = {"keyspace": self.name, "key": "key", "operation": operation}
        given["peers"] = ",".join(self.peers)
        rows.write.format("ringpop").options(**given, **options).mode("append").save()

    def totals(self) -> pa.Table:
        """What is there, read without Spark."""
        with KeyspaceReader(options.Target(self.name, tuple(self.peers))) as reader:
            batches = [unpack_rows(*rows, TOTALS, key="key") for rows in reader.scan()]
        return ordered(pa.Table.from_batches(batches, TOTALS))

    def written(self, rows: Input, *, adds: bool = True) -> None:
        """Check that it has what *rows* come to, written once more than at the last time."""
        self.times += 1
        check(self.totals(), rows.totals, self.times if adds else 1, self.name)


def in_batches(target: Target) -> Callable[[Iterable[Row]], None]:
    """For `foreachPartition`: rows one by one into lists, which are sent to owners as messages."""
    peer, name = target.peers[0], target.name

    def send(rows: Iterable[Row]) -> None:
        with Client(peer, timeout_s=CALL_S) as client, KeyspaceClient(client, name) as keyspace:
            changes: list[tuple[str, str, Any]] = []
            for row in rows:
                changes.append((row.key, "fields", _argument(row)))
                if len(changes) == BATCH_ROWS:
                    _all_done(keyspace.update_many(changes))
                    changes = []
            _all_done(keyspace.update_many(changes))

    return send


def one_by_one(target: Target) -> Callable[[Iterable[Row]], None]:
    """For `foreachPartition`: a call a row."""
    peer, name = target.peers[0], target.name

    def send(rows: Iterable[Row]) -> None:
        with Client(peer, timeout_s=CALL_S) as client, KeyspaceClient(client, name) as keyspace:
            for row in rows:
                keyspace.update(row.key, "fields", _argument(row))

    return send


def _argument(row: Row) -> dict[str, Any]:
    return {"minutes": ["add", row.minutes], "miles": ["add", row.miles]}


def _all_done(outcomes: Iterable[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def register(spark: SparkSession) -> None:
    """Have Spark know the data source."""
    from ringpop_py.spark import RingpopDataSource

    spark.dataSource.register(RingpopDataSource)
