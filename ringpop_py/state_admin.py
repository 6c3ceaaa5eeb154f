"""What a node tells of keyspaces, and what may be done with them by hand; any node will do.

A node without a store has one that has a store answer for it. What *here* says is of the answering
node alone; all else is of the cluster, as far as that node knows.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.errors import (
    BodyError,
    CallError,
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
    NoOwner,
    PartitionUnavailable,
)
from ringpop_py.membership.member import Status
from ringpop_py.partitions.definition import NAME_CHARACTERS_MAX, Definition
from ringpop_py.partitions.table import PartitionStatus
from ringpop_py.state.epochs import KEPT_COUNT, checkpoint_now, list_checkpoints
from ringpop_py.state.host import DurableHost
from ringpop_py.state.keyspaces import STORE_LABEL
from ringpop_py.state.layout import KeyspaceKeys
from ringpop_py.state.rebalancing import rebalance, restore_assignment
from ringpop_py.wire.calls import Call
from ringpop_py.wire.connection import NODE_SERVICE
from ringpop_py.wire.values import (
    a_bool,
    a_map,
    a_text,
    an_integer,
    decode_value,
    encode_value,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from ringpop_py.membership.member import Member
    from ringpop_py.partitions.table import Row
    from ringpop_py.ringpop import Ringpop
    from ringpop_py.state.host import Host
    from ringpop_py.state.manifests import Manifest

    Endpoint = Callable[[Ringpop, dict[str, Any]], Awaitable[object]]

KEY_CHARACTERS_MAX: Final = 1 << 16
TROUBLES_SHOWN: Final = 10
ASKED_INSTEAD_MAX: Final = 3
INSTEAD_S: Final = 3600.0
"""The caller's own time is shorter, and ends ours."""
NO_CHECKPOINTS: Final = "it has no checkpoints"

_THERE: Final = (Status.ALIVE, Status.SUSPECT, Status.LEAVE)


async def _list(ringpop: Ringpop, _body: dict[str, Any]) -> object:
    """All keyspaces: those that are served, and those that were dropped."""
    keyspaces = ringpop.keyspaces
    return {
        "source": ringpop.name,
        "store": keyspaces.store_id,
        "keyspaces": [_summary(ringpop, keyspace.name) for keyspace in keyspaces.all()],
        "dropped": [
            {"name": name, "generation": known.generation}
            for name, known in sorted(keyspaces.known().items())
            if known.dropped
        ],
    }


async def _show(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """All about one keyspace but its rows, and what this node has of it."""
    name = await _existing(ringpop, body)
    host = ringpop.keyspaces.here(name).host
    return {
        **_summary(ringpop, name),
        "definition": host.definition.as_record(),
        "here": _here(ringpop, host),
    }


async def _table(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """A row a partition; *keys* is how many a partition has that is online at this node."""
    name = await _existing(ringpop, body)
    host = ringpop.keyspaces.here(name).host
    there, keys = _names_there(ringpop), _keys_here(host)
    return {
        "source": ringpop.name,
        "name": name,
        "generation": host.generation,
        "rows": [{**_row(row, there), "keys": keys.get(row.partition)} for row in host.table],
    }


async def _lookup(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Where a key belongs."""
    name = await _existing(ringpop, body)
    key = a_text(body.get("key"), "key", length_max=KEY_CHARACTERS_MAX)
    keyspace = await ringpop.keyspaces.get(name)
    row = keyspace.table[keyspace.partition_of(key)]
    return {"source": ringpop.name, "key": key, **_row(row, _names_there(ringpop))}


async def _create(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Create a keyspace; one that is there already, defined like this, will do."""
    definition = Definition.of_record(body)
    try:
        await ringpop.keyspaces.get(definition.name)
        created = False
    except KeyspaceUnknown:
        created = True
    await ringpop.keyspaces.open(definition)
    return {"created": created, **_summary(ringpop, definition.name)}


async def _drop(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Have nobody serve a keyspace any more; its data stay where they are."""
    entry = await ringpop.keyspaces.drop(_name_in(body))
    keys = KeyspaceKeys(ringpop.config.cluster, entry.name, entry.generation)
    return {
        "source": ringpop.name,
        "name": entry.name,
        "generation": entry.generation,
        "kept_under": keys.root,
    }


async def _rebalance(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Have partitions spread over those who are there; or as they were in an older assignment."""
    name = await _existing(ringpop, body)
    host = _durable(ringpop, name, "its partitions move by themselves")
    dry_run = a_bool(body.get("dry_run", False), "dry_run")
    if body.get("to_version") is None:
        plan = await rebalance(host, max_moves=body.get("max_moves"), dry_run=dry_run)
    else:
        version = an_integer(body["to_version"], "to_version")
        plan = await restore_assignment(host, version, dry_run=dry_run)
    return {
        "source": ringpop.name,
        "name": name,
        "assignment_version": host.assignment_version,
        "moves": [
            {"partition": move.partition, "from": move.source, "to": move.target}
            for move in plan.moves
        ],
        "left": plan.left_count,
        "before": plan.before,
        "after": plan.after,
        "note": plan.note,
        "lines": plan.lines(),
    }


async def _checkpoint(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Make a checkpoint of the keyspace as a whole; answers when it is complete."""
    host = _durable(ringpop, await _existing(ringpop, body), NO_CHECKPOINTS)
    manifest = await checkpoint_now(host, keep=body.get("keep", KEPT_COUNT))
    return {"source": ringpop.name, **_manifest(manifest)}


async def _checkpoints(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """The complete checkpoints of a keyspace as a whole, the oldest first."""
    host = _durable(ringpop, await _existing(ringpop, body), NO_CHECKPOINTS)
    manifests = await list_checkpoints(host)
    return {
        "source": ringpop.name,
        "name": host.definition.name,
        "checkpoints": [_manifest(manifest) for manifest in manifests],
    }


# Parts of answers.


def _durable(ringpop: Ringpop, name: str, otherwise: str) -> DurableHost:
    """This node's part in a durable keyspace. Raises ConfigError for one in memory."""
    host = ringpop.keyspaces.here(name).host
    if not isinstance(host, DurableHost):
        message = f"keyspace {name!r} is in memory: {otherwise}"
        raise ConfigError(message)
    return host


def _manifest(manifest: Manifest) -> dict[str, object]:
    return {
        "name": manifest.name,
        "number": manifest.number,
        "keyspace": manifest.keyspace,
        "generation": manifest.generation,
        "partitions": len(manifest.files),
        "keys": manifest.keys_count,
        "bytes": manifest.size_bytes,
        "members": list(manifest.members),
        "made_by": manifest.made_by,
        "made_at": manifest.made_at_us / 1_000_000,
    }


def _name_in(body: dict[str, Any]) -> str:
    return a_text(body.get("name"), "name of a keyspace", length_max=NAME_CHARACTERS_MAX)


async def _existing(ringpop: Ringpop, body: dict[str, Any]) -> str:
    """The name in *body*, of a keyspace that this node has a part in. Raises KeyspaceUnknown."""
    return (await ringpop.keyspaces.get(_name_in(body))).name


def _names_there(ringpop: Ringpop) -> frozenset[str]:
    return frozenset(member.name for member in ringpop.members if member.status in _THERE)


def _is_served(row: Row, there: Collection[str]) -> bool:
    return row.status is PartitionStatus.ONLINE and row.owner in there


def _row(row: Row, there: Collection[str]) -> dict[str, object]:
    served = _is_served(row, there)
    return {
        "partition": row.partition,
        "status": row.status.label,
        "owner": row.owner,
        "desired": row.desired,
        "previous": row.previous,
        "epoch": row.epoch,
        "checkpoint": list(row.checkpoint) if row.checkpoint.epoch else None,
        "served": served,
        "settled": served and row.owner == row.desired,
    }


def _summary(ringpop: Ringpop, name: str) -> dict[str, object]:
    """One keyspace in figures."""
    host = ringpop.keyspaces.here(name).host
    table, there = host.table, _names_there(ringpop)
    served = [row for row in table if _is_served(row, there)]
    members = _may_own(host)
    counts = dict.fromkeys(sorted({*members, *table.counts()}), 0)
    desired = dict(counts)
    for row in served:
        counts[row.owner] += 1
    for row in table:
        if row.desired:
            desired[row.desired] = desired.get(row.desired, 0) + 1
    return {
        "source": ringpop.name,
        "name": name,
        "mode": host.definition.mode,
        "strategy": host.definition.strategy,
        "generation": host.generation,
        "partitions": len(table),
        "epoch": max(row.epoch for row in table),
        "assignment_version": host.assignment_version,
        "statuses": table.statuses(),
        "served": len(served),
        "settled": sum(row.owner == row.desired for row in served),
        "moving": len(table.moving),
        "members": [
            {"name": member, "partitions": counts[member], "desired": desired[member]}
            for member in sorted(counts)
        ],
        "busiest_over_mean": table.busiest_over_mean(len(members)),
        "waits_for": _waits_for(host),
    }


def _may_own(host: Host) -> Collection[str]:
    return host.members() if isinstance(host, DurableHost) else host.table.counts()


def _waits_for(host: Host) -> str | None:
    """Why nothing was assigned yet."""
    why = host.ownership.waits_for if isinstance(host, DurableHost) else None
    if why is not None:
        return str(why)
    return None if host.table.assigned else "it was opened here just now"


def _keys_here(host: Host) -> dict[int, int]:
    """How many keys each partition has that is online here."""
    if not isinstance(host, DurableHost):
        return {}
    return {partition.number: len(partition.state) for partition in host.ownership.online()}


def _here(ringpop: Ringpop, host: Host) -> dict[str, object]:
    """What only this node knows, for lack of anybody else who needs it."""
    keys = _keys_here(host)
    value: dict[str, object] = {
        "name": ringpop.name,
        "partitions": len(keys),
        "keys": sum(keys.values()),
    }
    if isinstance(host, DurableHost):
        value |= _durable_here(host)
    return value


def _durable_here(host: DurableHost) -> dict[str, object]:
    pauses_s, written = host.ownership.handoff_pauses_s, host.checkpointer.counts
    troubles = host.ownership.troubles()
    return {
        "gaining": len(host.ownership.gaining),
        "handoffs": {
            "count": len(pauses_s),
            "pause_s_p50": median(pauses_s) if pauses_s else None,
            "pause_s_max": max(pauses_s, default=None),
        },
        "checkpoints": {
            "whole": written.whole_count,
            "incremental": written.incremental_count,
            "failed": written.failed_count,
            "bytes": written.bytes_count,
        },
        "troubles_count": len(troubles),
        "troubles": [
            {"partition": number, "text": str(trouble)}
            for number, trouble in troubles[:TROUBLES_SHOWN]
        ],
    }


# Who answers.


def _by_any(path: str, endpoint: Endpoint) -> Callable[[Ringpop, object], Awaitable[object]]:
    """*endpoint*, or what a member with a store answers there if this node has none."""

    async def answer(ringpop: Ringpop, value: object) -> object:
        body = a_map({} if value is None else value, "body")
        if ringpop.keyspaces.store_id is None and body.get("name") not in _names_here(ringpop):
            others = [member for member in ringpop.members if _has_store(member)]
            if others:
                return await _ask_instead(ringpop, path, body, others[:ASKED_INSTEAD_MAX])
        return await endpoint(ringpop, body)

    return answer


def _names_here(ringpop: Ringpop) -> list[str]:
    return [keyspace.name for keyspace in ringpop.keyspaces.all()]


def _has_store(member: Member) -> bool:
    return member.status in _THERE and any(key == STORE_LABEL for key, _ in member.labels)


async def _ask_instead(
    ringpop: Ringpop, path: str, body: dict[str, Any], others: list[Member]
) -> object:
    """What the first of *others* says that can be reached."""
    call = Call(NODE_SERVICE, path, b"", encode_value("msgpack", body), ttl_s=INSTEAD_S)
    silence = ""
    for member in others:
        try:
            answer = await ringpop.channel.call(member.address, call)
            value = decode_value("msgpack", answer.arg3)
        except (CallError, BodyError) as error:
            silence = silence or f"{member.name} has a store, but does not answer: {error}"
            if isinstance(error, CallError) and not error.may_have_run:
                continue
            break
        if not answer.ok:
            raise KeyspaceError(str(a_map(value, "refusal").get("message", "")))
        return value
    raise PartitionUnavailable(silence)


ENDPOINTS: Final[dict[str, Callable[[Ringpop, object], Awaitable[object]]]] = {
    path: _by_any(path, endpoint)
    for path, endpoint in {
        "/admin/keyspaces": _list,
        "/admin/keyspaces/show": _show,
        "/admin/keyspaces/table": _table,
        "/admin/keyspaces/lookup": _lookup,
        "/admin/keyspaces/create": _create,
        "/admin/keyspaces/drop": _drop,
        "/admin/keyspaces/rebalance": _rebalance,
        "/admin/keyspaces/checkpoint": _checkpoint,
        "/admin/keyspaces/checkpoints": _checkpoints,
    }.items()
}
REFUSALS: Final = (ConfigError, KeyspaceError, NoOwner)
"""What they raise when they say no."""
