"""The state of this node, and of the cluster as this node sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.swim.member import Status

if TYPE_CHECKING:
    from ringpop_py.keyspaces.keyspace import Keyspace
    from ringpop_py.node.ringpop import Ringpop


def is_ready(ringpop: Ringpop) -> bool:
    """Whether to send requests here: the node has joined, and is neither draining nor leaving."""
    alive = ringpop.ready and ringpop.node.local.status is Status.ALIVE
    return alive and not ringpop.ending.draining


def health_of(ringpop: Ringpop) -> dict[str, Any]:
    """Return counts of members, and of partitions, of all keyspaces together and of each."""
    members = ringpop.members
    keyspaces = {
        keyspace.name: {
            **summary_of(keyspace),
            "failure": ringpop.keyspaces.here(keyspace.name).failure or None,
        }
        for keyspace in ringpop.keyspaces.all()
    }
    return {
        "name": ringpop.name,
        "address": str(ringpop.address),
        "cluster": ringpop.config.cluster,
        "ready": is_ready(ringpop),
        "members": {
            "active": sum(member.status is Status.ALIVE for member in members),
            "total": len(members),
            "checksum": ringpop.checksum,
        },
        "partitions": {
            what: sum(keyspace[what] for keyspace in keyspaces.values())
            for what in ("partitions", "online", "here")
        },
        "epoch": max((keyspace["epoch"] for keyspace in keyspaces.values()), default=0),
        "keyspaces": keyspaces,
    }


def summary_of(keyspace: Keyspace) -> dict[str, Any]:
    """Return the mode of *keyspace*, and counts of its partitions."""
    table = keyspace.table
    counts = table.counts()
    return {
        "mode": keyspace.definition.mode,
        "generation": keyspace.generation,
        "partitions": keyspace.partitions,
        "online": counts.total(),
        "here": counts[keyspace.node_name],
        "epoch": max(row.epoch for row in table),
    }


def details_of(keyspace: Keyspace) -> dict[str, Any]:
    """Return the definition of *keyspace*, and how its partitions are; none of its rows."""
    return {
        **summary_of(keyspace),
        "definition": keyspace.definition.as_record(),
        "statuses": keyspace.table.statuses(),
        "owners": dict(sorted(keyspace.table.counts().items())),
    }
