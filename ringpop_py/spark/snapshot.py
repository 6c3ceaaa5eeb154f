"""The ring and the tables of keyspaces, as the first daemon that answers sees them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from ringpop_py.base.address import Address
from ringpop_py.base.errors import CallError, ConfigError, ConnectFailed, WireError
from ringpop_py.base.values.declared import Meta, Named, Natural, Text, convert
from ringpop_py.client.sync.client import Client
from ringpop_py.state.placement.keys import NOBODY, PARTITIONS_READ_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ringpop_py.client.calls import RingSnapshot

SNAPSHOT_TIMEOUT_S: Final = 3.0
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

T = TypeVar("T")


class _Row(Named, frozen=True):
    owner: Text
    served: bool


class _Table(Named, frozen=True):
    generation: Natural
    rows: Annotated[tuple[_Row, ...], Meta(min_length=1, max_length=PARTITIONS_READ_MAX)]
    hash_tags: bool = False


class _Members(Named, frozen=True):
    source: Text
    members: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class KeyspaceSnapshot:
    """The members that served the partitions of a keyspace when a daemon was asked.

    Attributes:
        owners: a name for each partition; `NOBODY` if no member served it.
        hash_tags: whether keys are placed by their part in braces.
    """

    name: str
    generation: int
    owners: tuple[str, ...]
    hash_tags: bool = False

    @property
    def members(self) -> tuple[str, ...]:
        """The members that served at least one partition, sorted."""
        return tuple(sorted(set(self.owners) - {NOBODY}))


def ring_snapshot(
    peers: str | Address | Sequence[str | Address], *, cluster_key: str | None = None
) -> RingSnapshot:
    """Return the ring as the first of *peers* that answers sees it; a peer is ``host:port``.

    Args:
        cluster_key: the file with the cluster's keys, if it has some; see `Client`.

    Raises:
        ConnectFailed: no peer answers; the message says why, for each peer.
        ConfigError: no peer is given, or one is malformed.
    """
    return _from_first(peers, Client.ring, what="its ring", cluster_key=cluster_key)


def keyspace_snapshot(
    peers: str | Address | Sequence[str | Address],
    keyspace: str,
    *,
    cluster_key: str | None = None,
) -> KeyspaceSnapshot:
    """Return the servers of all partitions, as the first of *peers* that answers sees them.

    Args:
        cluster_key: as for `ring_snapshot`.

    Raises:
        ApplicationError: the keyspace does not exist.
        ConnectFailed: no peer answers; the message says why, for each peer.
        ConfigError: no peer is given, or one is malformed.
    """
    ask = partial(_table, keyspace=keyspace)
    table = _from_first(peers, ask, what="a keyspace", cluster_key=cluster_key)
    owners = tuple(row["owner"] if row["served"] else NOBODY for row in table["rows"])
    return KeyspaceSnapshot(
        keyspace, table["generation"], owners, hash_tags=table.get("hash_tags", False)
    )


def _table(client: Client, keyspace: str) -> dict[str, Any]:
    table: dict[str, Any] = client.admin("/admin/keyspaces/table", {"name": keyspace})
    convert(_Table, table)  # for its checks; columns that it does not name are shown as they are
    return table


def _from_first(
    peers: str | Address | Sequence[str | Address],
    ask: Callable[[Client], T],
    *,
    what: str,
    cluster_key: str | None,
) -> T:
    reasons = []
    for peer in peer_list(peers):
        try:
            with Client(peer, timeout_s=SNAPSHOT_TIMEOUT_S, cluster_key=cluster_key) as client:
                return ask(client)
        except (CallError, WireError) as error:
            reasons.append(f"{peer}: {error}")
    message = f"no peer sends {what}:\n  " + "\n  ".join(reasons)
    raise ConnectFailed(message)


def peer_list(peers: str | Address | Sequence[str | Address]) -> tuple[str, ...]:
    """Return *peers* as texts. Raises ConfigError if there are none."""
    # An address is a sequence as well, of a host and a port.
    listed = [peers] if isinstance(peers, str | Address) else list(peers)
    if not listed:
        raise ConfigError("name at least one peer, as host:port")
    return tuple(str(peer) for peer in listed)


# The same and more as DataFrames, to join with, to plot, or to look at. Each is the view of one
# daemon, whose name is in ``seen_by``; it is fetched once, when the function is called.


def describe_ring(
    spark: SparkSession,
    peers: str | Address | Sequence[str | Address],
    *,
    cluster_key: str | None = None,
) -> DataFrame:
    """Return a row for each known member, in order of names.

    ``share`` is the member's part of all positions of the ring: 0 for one outside of it.
    ``partitions`` is how many partitions of each keyspace the member serves.

    Args:
        cluster_key: as for `ring_snapshot`.

    Raises:
        ConnectFailed: no peer answers.
    """
    rows = _from_first(peers, _members, what="its ring", cluster_key=cluster_key)
    return spark.createDataFrame(rows, RING_SCHEMA)


def describe_keyspace(
    spark: SparkSession,
    peers: str | Address | Sequence[str | Address],
    keyspace: str,
    *,
    cluster_key: str | None = None,
) -> DataFrame:
    """Return a row for each partition of *keyspace*, in order; missing names are NULL.

    ``served`` is true if the owner is reachable and serves the partition; ``settled`` if it also is
    the owner that the partition should have.

    Args:
        cluster_key: as for `ring_snapshot`.

    Raises:
        ApplicationError: the keyspace does not exist.
        ConnectFailed: no peer answers.
    """
    ask = partial(_partitions, keyspace=keyspace)
    rows = _from_first(peers, ask, what="a keyspace", cluster_key=cluster_key)
    return spark.createDataFrame(rows, KEYSPACE_SCHEMA)


def _members(client: Client) -> list[dict[str, Any]]:
    seen = convert(_Members, client.admin("/admin/members"))
    ring = client.ring().ring
    shares = ring.weights()
    partitions: dict[str, dict[str, int]] = {}
    for keyspace in client.admin("/admin/keyspaces")["keyspaces"]:
        for member in keyspace["members"]:
            partitions.setdefault(member["name"], {})[keyspace["name"]] = member["partitions"]
    return [
        {
            **member,
            "points": ring.points_count if member["name"] in ring else 0,
            "share": shares.get(member["name"], 0.0),
            "partitions": partitions.get(member["name"], {}),
            "seen_by": seen.source,
        }
        for member in sorted(seen.members, key=lambda row: row["name"])
    ]


def _partitions(client: Client, keyspace: str) -> list[dict[str, Any]]:
    table = _table(client, keyspace)
    members = convert(_Members, client.admin("/admin/members")).members
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
