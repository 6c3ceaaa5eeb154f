"""The ring and the tables of keyspaces, from whichever daemon answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.address import Address
from ringpop_py.client.client import Client
from ringpop_py.errors import BodyError, CallError, ConfigError, ConnectFailed, WireError
from ringpop_py.placing.keys import NOBODY, PARTITIONS_READ_MAX
from ringpop_py.values.packed import a_bool, a_list, a_map, a_text, an_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ringpop_py.client.client import RingSnapshot

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


@dataclass(frozen=True, slots=True)
class KeyspaceSnapshot:
    """Who served the partitions of a keyspace when a daemon was asked.

    Attributes:
        owners: a name for each partition; `NOBODY` where nobody served it.
    """

    name: str
    generation: int
    owners: tuple[str, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """Those who served at least one, sorted."""
        return tuple(sorted(set(self.owners) - {NOBODY}))


def ring_snapshot(peers: str | Address | Sequence[str | Address]) -> RingSnapshot:
    """The ring as the first of *peers* that answers sees it; a peer is ``host:port``.

    Raises:
        ConnectFailed: none of them answers; the message says why, peer by peer.
        ConfigError: no peer is given, or one is malformed.
    """
    return from_first(peers, Client.ring, what="its ring")


def keyspace_snapshot(
    peers: str | Address | Sequence[str | Address], keyspace: str
) -> KeyspaceSnapshot:
    """Who serves which partition, as the first of *peers* that answers sees it.

    Raises:
        ApplicationError: there is no such keyspace.
        ConnectFailed: none of them answers; the message says why, peer by peer.
        ConfigError: no peer is given, or one is malformed.
    """
    return from_first(peers, lambda client: _keyspace(client, keyspace), what="a keyspace")


def _keyspace(client: Client, name: str) -> KeyspaceSnapshot:
    table = partition_table(client, name)
    rows = [a_map(row, "row") for row in a_list(table.get("rows"), "rows")]
    owners = [NOBODY] * len(rows)
    for row in rows:
        at = an_integer(row.get("partition"), "partition", maximum=len(rows) - 1)
        if a_bool(row.get("served"), "served"):
            owners[at] = a_text(row.get("owner"), "owner")
    generation = an_integer(table.get("generation"), "generation")
    return KeyspaceSnapshot(name, generation, tuple(owners))


def partition_table(client: Client, keyspace: str) -> dict[str, Any]:
    """All partitions of *keyspace*, as `ringpopctl partitions` shows them. Raises BodyError."""
    table = a_map(client.admin("/admin/keyspaces/table", {"name": keyspace}), "table")
    if not 0 < len(a_list(table.get("rows"), "rows")) <= PARTITIONS_READ_MAX:
        raise BodyError(f"keyspace {keyspace!r} cannot have {len(table['rows'])} partitions")
    return table


def from_first(
    peers: str | Address | Sequence[str | Address], ask: Callable[[Client], T], *, what: str
) -> T:
    """What *ask* comes to with the first of *peers* that answers.

    Raises:
        ConnectFailed: none of them tells *what*; the message says why, peer by peer.
        ConfigError: no peer is given, or one is malformed.
    """
    reasons = []
    for peer in peer_list(peers):
        try:
            with Client(peer, timeout_s=SNAPSHOT_TIMEOUT_S) as client:
                return ask(client)
        except (CallError, WireError) as error:
            reasons.append(f"{peer}: {error}")
    message = f"no peer tells {what}:\n  " + "\n  ".join(reasons)
    raise ConnectFailed(message)


def peer_list(peers: str | Address | Sequence[str | Address]) -> tuple[str, ...]:
    """*peers* as texts.

    Raises:
        ConfigError: there is none.
    """
    # An address is a sequence as well, of a host and a port.
    listed = [peers] if isinstance(peers, str | Address) else list(peers)
    if not listed:
        raise ConfigError("name at least one peer, as host:port")
    return tuple(str(peer) for peer in listed)


# The same and more as DataFrames, to join with, to plot, or to look at. Each is what one daemon
# sees, whose name is in ``seen_by``; it is fetched once, when the function is called.


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
