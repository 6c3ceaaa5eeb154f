"""A program in a session of Spark Connect, whose driver's JVM it cannot reach.

``python -m tests.spark.connect_app PEERS TAKERS``: daemons with a store, and others whose batch
handler ``/rows`` takes all. Prints what it has compared.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.utils import is_remote

from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import (
    RingpopDataSource,
    combined,
    keyspace_snapshot,
    owner_index,
    partition_owner,
    ring_owner,
    ring_partition,
    route,
)
from ringpop_py.state.placement.keys import partition_of

KEYS = 2_000


def main(peers: str, takers: str) -> None:
    builder = SparkSession.builder.remote("local[2]")
    # Its port is a free one by itself.
    spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
    try:
        assert is_remote()
        keys = F.concat(F.lit("key-"), F.col("id").cast("string")).alias("key")
        frame = spark.range(KEYS).select(keys, F.col("id").alias("n"))
        for members_count in (1, 5, 100, 1_000):
            ring = HashRing([f"10.0.0.{index}:3000" for index in range(members_count)])
            rows = frame.select("key", ring_owner("key", ring), owner_index("key", ring)).collect()
            for key, owner, index in rows:
                assert (owner, ring.owners[index]) == (ring.lookup(key),) * 2
            print(f"owners of {members_count:,} members: {len(rows):,} keys")
        spark.dataSource.register(RingpopDataSource)
        options = {"keyspace": "connected", "key": "key", "value": "n", "peers": peers}
        writer = frame.write.format("ringpop").options(**options, operation="add")
        writer.option("createKeyspace", "true").mode("append").save()
        read = spark.read.format("ringpop").options(**options).load()
        assert read.agg(F.count("*"), F.sum("n")).collect() == [(KEYS, sum(range(KEYS)))]
        print("written and read")
        counts = combined(frame.selectExpr("concat('k', n % 3) AS key"), "key", {"n": "count"})
        options |= {"keyspace": "counted", "createKeyspace": "true", "operation": "n=count"}
        del options["value"]
        counts.write.format("ringpop").options(**options).mode("append").save()
        options = {"keyspace": "counted", "key": "key", "peers": peers}
        read = spark.read.format("ringpop").options(**options).load()
        assert sorted(read.collect()) == [("k0", 667), ("k1", 667), ("k2", 666)]
        print("combined first")
        snapshot = keyspace_snapshot(peers.split(",", maxsplit=1)[0], "connected")
        count = len(snapshot.owners)
        placed = frame.select("key", ring_partition("key", count), partition_owner("key", snapshot))
        for key, number, owner in placed.collect():
            assert number == partition_of(key, count)
            assert owner == snapshot.owners[number]
        print("partitions and their owners")
        report = route(frame, key="key", endpoint="/rows", peers=takers.split(","))
        assert report.rows_sent == KEYS
        print("routed")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
