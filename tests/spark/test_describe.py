"""What there is of a cluster, as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ApplicationError, ConnectFailed
from ringpop_py.client.sync.client import Client
from ringpop_py.spark import (
    describe_keyspace,
    describe_ring,
    keyspace_snapshot,
    ring_snapshot,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

NAMES = ["node-1", "node-2", "node-3"]


def test_the_ring_has_a_row_a_member(
    spark: SparkSession, cluster: Cluster, memory_keyspace: str
) -> None:
    rows = describe_ring(spark, cluster.addresses).collect()

    shares = ring_snapshot(cluster.addresses).ring.weights()
    assert [row.name for row in rows] == NAMES
    assert [row.address for row in rows] == cluster.addresses
    assert [row.share for row in rows] == [shares[name] for name in NAMES]
    assert {(row.status, row.in_ring, row.points, row.seen_by) for row in rows} == {
        ("alive", True, 100, "node-1")
    }
    assert [row.partitions[memory_keyspace] for row in rows] == [4, 4, 4]


def test_a_member_that_is_not_in_the_ring_has_no_share(
    spark: SparkSession, mortal_cluster: Cluster
) -> None:
    with Client(mortal_cluster.addresses[2]) as client:
        client.admin("/admin/member/leave")

    rows = describe_ring(spark, mortal_cluster.addresses[2]).collect()

    gone = rows[2]
    assert (gone.status, gone.in_ring, gone.points, gone.share) == ("leave", False, 0, 0.0)
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_a_keyspace_has_a_row_a_partition(
    spark: SparkSession, cluster: Cluster, memory_keyspace: str
) -> None:
    rows = describe_keyspace(spark, cluster.addresses, memory_keyspace).collect()

    assert [row.partition for row in rows] == list(range(12))
    owners = [row.owner for row in rows]
    assert owners == list(keyspace_snapshot(cluster.addresses, memory_keyspace).owners)
    address_of = dict(zip(NAMES, cluster.addresses, strict=True))
    assert [row.address for row in rows] == [address_of[owner] for owner in owners]
    assert {(row.keyspace, row.status, row.served) for row in rows} == {
        (memory_keyspace, "online", True)
    }
    assert min(row.epoch for row in rows) > 0


def test_a_missing_keyspace_or_ring_is_reported(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(ApplicationError, match="'nothing'"):
        describe_keyspace(spark, cluster.addresses, "nothing")
    with pytest.raises(ConnectFailed, match="no peer sends its ring"):
        describe_ring(spark, "127.0.0.1:1")
