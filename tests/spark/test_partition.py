"""Partitions of a keyspace and their owners, against a keyspace at work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ringpop_py.base.errors import ApplicationError, ConnectFailed
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import RingpopDataSource, keyspace_snapshot, partition_owner, ring_partition
from ringpop_py.spark.snapshot import KeyspaceSnapshot
from ringpop_py.state.placement.keys import NOBODY, partition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(360)]

KEYS = ["", "a", "Ä", "A\u0308", "😀", *map(str, range(200))]


@pytest.mark.e2e
def test_partitions_and_their_owners_are_those_of_a_daemon(
    spark: SparkSession, cluster: Cluster, memory_keyspace: str
) -> None:
    snapshot = keyspace_snapshot(cluster.addresses, memory_keyspace)
    df = spark.createDataFrame(pa.table({"key": KEYS}))

    places = df.select(
        "key", ring_partition("key", len(snapshot.owners)), partition_owner("key", snapshot)
    )

    found = {key: (partition, owner) for key, partition, owner in places.collect()}
    with Client(cluster.addresses[0]) as client:
        for key in KEYS:
            row = client.admin("/admin/keyspaces/lookup", {"name": memory_keyspace, "key": key})
            assert found[key] == (row["partition"], row["owner"])
    assert {owner for _, owner in found.values()} == {"node-1", "node-2", "node-3"}


@pytest.mark.e2e
def test_rows_of_a_keyspace_with_hash_tags_are_written_and_found_where_daemons_look(
    spark: SparkSession, durable_cluster: Cluster
) -> None:
    keys = [f"{{user:{number}}}/{what}" for number in range(60) for what in ("cart", "orders")]
    rows = [(key, len(key)) for key in keys]
    spark.dataSource.register(RingpopDataSource)
    options = {"keyspace": "tagged", "peers": str(durable_cluster.addresses[0]), "value": "value"}
    df = spark.createDataFrame(rows, "key string, value long")
    with Client(durable_cluster.addresses[0]) as client:
        client.admin("/admin/keyspaces/create", {"name": "tagged", "hash_tags": True})
        df.write.format("ringpop").options(**options).mode("append").save()
        with KeyspaceClient(client, "tagged") as keyspace:
            by_client = keyspace.get_many(keys)
        wanted = json.dumps(keys[:9])
        loaded = spark.read.format("ringpop").options(**options, keys=wanted)
        found = loaded.schema("key string, value long").load().collect()
        snapshot = keyspace_snapshot(durable_cluster.addresses, "tagged")
        placed = df.select("key", partition_owner("key", snapshot)).collect()
        for key, owner in placed[:20]:
            row = client.admin("/admin/keyspaces/lookup", {"name": "tagged", "key": key})
            assert owner == row["owner"]

    assert by_client == dict(rows)
    assert sorted(map(tuple, found)) == sorted(rows[:9])
    assert snapshot.hash_tags


def test_the_owner_of_a_partition_without_one_is_null(spark: SparkSession) -> None:
    keys = ["a", "b", "c", "d", None]
    df = spark.createDataFrame(pa.table({"key": keys})).coalesce(1)
    served = KeyspaceSnapshot("k", 1, ("x", NOBODY, "y"))
    dark = KeyspaceSnapshot("k", 1, (NOBODY,))

    rows = df.select(partition_owner("key", served), partition_owner("key", dark)).collect()

    owners = {0: "x", 1: None, 2: "y"}
    assert [row[0] for row in rows] == [key and owners[partition_of(key, 3)] for key in keys]
    assert [row[1] for row in rows] == [None] * 5


@pytest.mark.e2e
def test_a_keyspace_that_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(ApplicationError, match="'nothing'"):
        keyspace_snapshot(cluster.addresses, "nothing")


def test_no_peer_at_all_is_said_with_a_reason() -> None:
    with pytest.raises(ConnectFailed, match=r"(?s)no peer sends a keyspace.*127.0.0.1:1: "):
        keyspace_snapshot("127.0.0.1:1", "flights")
