"""The ring and the tables of keyspaces, from whichever daemon answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.address import Address
from ringpop_py.client.client import Client
from ringpop_py.errors import BodyError, CallError, ConfigError, ConnectFailed, WireError
from ringpop_py.placing.keys import NOBODY, PARTITIONS_MAX
from ringpop_py.values.packed import a_bool, a_list, a_map, a_text, an_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.client.client import RingSnapshot

SNAPSHOT_TIMEOUT_S: Final = 3.0

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
    if not 0 < len(a_list(table.get("rows"), "rows")) <= PARTITIONS_MAX:
        message = f"keyspace {keyspace!r} cannot have {len(table['rows'])} partitions"
        raise BodyError(message)
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
        message = "name at least one peer, as host:port"
        raise ConfigError(message)
    return tuple(str(peer) for peer in listed)
