"""What there is of a cluster, as DataFrames: to join with, to plot, or to look at.

Each is what one daemon sees, the first of the peers that answers; its name is in ``seen_by``. It
is fetched once, when the function is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.spark.snapshot import from_first, partition_table
from ringpop_py.values.packed import a_list, a_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ringpop_py.address import Address
    from ringpop_py.client.client import Client

RING_SCHEMA: Final = (
    "name string, address string, status string, incarnation long, in_ring boolean,"
    " points int, share double, partitions map<string, int>,"
    " draining boolean, damped boolean, labels map<string, string>, seen_by string"
)
KEYSPACE_SCHEMA: Final = (
    "keyspace string, generation long, partition int, status string, owner string, address string,"
    " epoch long, served boolean, settled boolean, desired string, previous string,"
    " checkpoint struct<epoch: long, sequence: long>, seen_by string"
)


def describe_ring(spark: SparkSession, peers: str | Address | Sequence[str | Address]) -> DataFrame:
    """A row for each member that is known, in order of names.

    ``share`` is of all positions of the ring: 0 for who is not in it. ``partitions`` says how many
    partitions of each keyspace the member serves.

    Raises:
        ConnectFailed: no peer answers.
    """
    return spark.createDataFrame(from_first(peers, _members, what="its ring"), RING_SCHEMA)


def describe_keyspace(
    spark: SparkSession, peers: str | Address | Sequence[str | Address], keyspace: str
) -> DataFrame:
    """A row for each partition of *keyspace*, in their order; names are NULL where nobody is.

    ``served``: its owner is there, and serves it. ``settled``: and is who should.

    Raises:
        ApplicationError: there is no such keyspace.
        ConnectFailed: no peer answers.
    """
    rows = from_first(peers, lambda client: _partitions(client, keyspace), what="a keyspace")
    return spark.createDataFrame(rows, KEYSPACE_SCHEMA)


def _members(client: Client) -> list[dict[str, Any]]:
    seen = a_map(client.admin("/admin/members"), "members")
    ring = client.ring().ring
    shares = ring.weights()
    partitions = _partitions_by_member(client)
    return [
        {
            **member,
            "points": ring.points_count if member["name"] in ring else 0,
            "share": shares.get(member["name"], 0.0),
            "partitions": partitions.get(member["name"], {}),
            "seen_by": seen["source"],
        }
        for member in sorted(a_list(seen.get("members"), "members"), key=lambda row: row["name"])
    ]


def _partitions_by_member(client: Client) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for keyspace in a_list(
        a_map(client.admin("/admin/keyspaces"), "keyspaces")["keyspaces"], "all"
    ):
        for member in keyspace["members"]:
            found.setdefault(member["name"], {})[keyspace["name"]] = member["partitions"]
    return found


def _partitions(client: Client, keyspace: str) -> list[dict[str, Any]]:
    table = partition_table(client, keyspace)
    members = a_list(a_map(client.admin("/admin/members"), "members")["members"], "members")
    addresses = {member["name"]: member["address"] for member in members}
    return [
        {
            **row,
            **{name: row[name] or None for name in ("owner", "desired", "previous")},
            "keyspace": keyspace,
            "generation": table["generation"],
            "address": addresses.get(row["owner"]),
            "checkpoint": row["checkpoint"] and tuple(row["checkpoint"]),
            "seen_by": table["source"],
        }
        for row in table["rows"]
    ]
