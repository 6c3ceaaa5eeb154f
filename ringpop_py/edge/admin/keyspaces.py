"""The endpoints under ``/admin/keyspaces``: first those that read, then those that change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.base.errors import (
    BodyError,
    CallError,
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
    PartitionUnavailable,
)
from ringpop_py.base.values.declared import Meta, Named, Natural, convert
from ringpop_py.base.values.packed import a_map, decode_value, encode_value
from ringpop_py.base.values.requests import PartFailed
from ringpop_py.edge.admin.answers import (
    here_of,
    keys_here,
    manifest_map,
    members_there,
    row_map,
    summary_of,
)
from ringpop_py.member.swim.member import STORE_LABEL
from ringpop_py.net.security.permits import check_name
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.backups.epochs import KEPT_COUNT, checkpoint_now
from ringpop_py.state.backups.restore import bring_back, restore
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.catalog.manifests import read_manifests
from ringpop_py.state.durable.rebalance import rebalance, restore_assignment
from ringpop_py.state.placement.definition import NAME_CHARACTERS_MAX, Definition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ringpop_py.member.swim.member import Member
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.catalog.catalog import CatalogEntry

    Endpoint = Callable[[Ringpop, dict[str, Any]], Awaitable[object]]

KEY_CHARACTERS_MAX: Final = 1 << 16
LIST: Final = "/admin/keyspaces"
CREATE: Final = "/admin/keyspaces/create"
DROP: Final = "/admin/keyspaces/drop"
REBALANCE: Final = "/admin/keyspaces/rebalance"
ASKED_INSTEAD_MAX: Final = 3  # the caller waits for one after the other
INSTEAD_S: Final = 3600.0
"""The time limit of a request to another member. The caller's own is shorter, and ends both."""

_Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]


class _Lookup(Named, frozen=True):
    name: _Name
    key: Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]


class _OfKeyspace(Named, frozen=True):
    """The fields of all other requests. Those that are Any are checked where they are used."""

    name: _Name
    dry_run: bool = False
    max_moves: Any = None
    to_version: Natural | None = None
    keep: Any = KEPT_COUNT
    number: Any = "latest"
    into: _Name | None = None
    min_cluster_size: Any = None
    generation: Natural | None = None


async def _list(ringpop: Ringpop, value: object) -> object:
    here = _list_here(ringpop)
    others = _members_with_a_store(ringpop)
    if ringpop.keyspaces.store_id is not None or not others:
        return here
    theirs = await _ask_instead(ringpop, LIST, _body(value), others)
    # This node may serve keyspaces in memory mode that members with a store do not know.
    found = {keyspace["name"]: keyspace for keyspace in theirs["keyspaces"] + here["keyspaces"]}
    return {**theirs, "keyspaces": [found[name] for name in sorted(found)]}


def _list_here(ringpop: Ringpop) -> dict[str, Any]:
    keyspaces = ringpop.keyspaces
    return {
        "source": ringpop.name,
        "store": keyspaces.store_id,
        "keyspaces": [summary_of(ringpop, keyspace.name) for keyspace in keyspaces.all()],
        "dropped": [
            {"name": name, "generation": known.generation}
            for name, known in sorted(keyspaces.known().items())
            if known.dropped
        ],
    }


async def _show(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Return all about one keyspace except its rows, and this node's share of it."""
    name = await _existing(ringpop, body)
    host = ringpop.keyspaces.here(name).host
    return {
        **summary_of(ringpop, name),
        "definition": host.definition.as_record(),
        "revision": host.definition.revision,
        "here": here_of(ringpop, host),
    }


async def _table(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Return a row for each partition, with the number of keys of those online at this node."""
    name = await _existing(ringpop, body)
    host = ringpop.keyspaces.here(name).host
    there, keys = members_there(ringpop), keys_here(host)
    return {
        "source": ringpop.name,
        "name": name,
        "generation": host.generation,
        "rows": [{**row_map(row, there), "keys": keys.get(row.partition)} for row in host.table],
        **({"hash_tags": True} if host.definition.hash_tags else {}),
    }


async def _lookup(ringpop: Ringpop, body: dict[str, Any]) -> object:
    asked = convert(_Lookup, body, "request")
    keyspace = await ringpop.keyspaces.get(asked.name)
    row = keyspace.table[keyspace.partition_of(asked.key)]
    return {"source": ringpop.name, "key": asked.key, **row_map(row, members_there(ringpop))}


async def _create(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Create a keyspace, unless it exists with the same definition."""
    definition = Definition.of_record(body)
    try:  # only for the reply: `open` below creates it or compares the definitions
        await ringpop.keyspaces.get(definition.name)
        created = False
    except KeyspaceUnknown:
        created = True
    await ringpop.keyspaces.open(definition)
    return {"created": created, **summary_of(ringpop, definition.name)}


async def _set(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Change how many members a durable keyspace waits for."""
    name, keyspaces = await _existing(ringpop, body), ringpop.keyspaces
    if keyspaces.here(name).host.definition.mode == "memory":
        raise ConfigError(
            f"keyspace {name!r} is in memory mode: no store would keep what is set. While it waits"
            " for members it holds nothing, so drop it, and create it with another min_cluster_size"
        )
    catalog, worker = keyspaces.durable(name)
    wanted = convert(_OfKeyspace, body, "request").min_cluster_size
    entry, former = await worker.run(catalog.change, name, wanted)
    keyspaces.learn(entry)
    return {
        "source": ringpop.name,
        "name": name,
        "min_cluster_size": entry.definition.min_cluster_size,
        "before": former.min_cluster_size,
        "revision": entry.definition.revision,
    }


async def _drop(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Drop a keyspace; the data of a durable one stay in the store."""
    name = convert(_OfKeyspace, body, "request").name
    check_name(name)  # with its leaders, for example, the cluster would lose their terms
    entry = await ringpop.keyspaces.drop(name)
    durable = entry.definition.mode == "durable"
    keys = KeyspaceKeys(ringpop.config.cluster, entry.name, entry.generation)
    return {
        "source": ringpop.name,
        "name": entry.name,
        "generation": entry.generation,
        "kept_under": keys.root if durable else None,
    }


async def _rebalance(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Spread the partitions over the members, or restore an older assignment."""
    asked = convert(_OfKeyspace, body, "request")
    host = ringpop.keyspaces.durable_host(await _existing(ringpop, body))
    if asked.to_version is None:
        plan = await rebalance(host, max_moves=asked.max_moves, dry_run=asked.dry_run)
    else:
        plan = await restore_assignment(host, asked.to_version, dry_run=asked.dry_run)
    return {
        "source": ringpop.name,
        "name": asked.name,
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
    """Make a checkpoint of the whole keyspace; return when it is complete."""
    host = ringpop.keyspaces.durable_host(await _existing(ringpop, body))
    manifest = await checkpoint_now(host, keep=convert(_OfKeyspace, body, "request").keep)
    return {"source": ringpop.name, **manifest_map(manifest)}


async def _checkpoints(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Return the complete checkpoints of a keyspace, dropped or not, the oldest first."""
    name = convert(_OfKeyspace, body, "request").name
    catalog, worker = ringpop.keyspaces.durable(name)
    manifests = await worker.run(read_manifests, catalog, name)
    if not manifests and not await worker.run(catalog.generations, name):
        raise KeyspaceUnknown(f"no keyspace {name!r} in cluster {catalog.cluster!r}")
    return {
        "source": ringpop.name,
        "name": name,
        "checkpoints": [manifest_map(manifest) for manifest in manifests],
    }


async def _restore(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Restore a keyspace from a checkpoint, in place or under the name *into*."""
    asked = convert(_OfKeyspace, body, "request")
    entry = await restore(ringpop.keyspaces, asked.name, asked.number, into=asked.into)
    return {"origin": entry.origin, **await _summary_soon(ringpop, entry)}


async def _bring_back(ringpop: Ringpop, body: dict[str, Any]) -> object:
    """Undo a drop, or a restoration in place."""
    asked = convert(_OfKeyspace, body, "request")
    entry = await bring_back(ringpop.keyspaces, asked.name, asked.generation)
    return {"origin": entry.origin, **await _summary_soon(ringpop, entry)}


async def _summary_soon(ringpop: Ringpop, entry: CatalogEntry) -> dict[str, object]:
    await ringpop.keyspaces.get(entry.name)  # which opens it here
    return summary_of(ringpop, entry.name)


async def _existing(ringpop: Ringpop, body: dict[str, Any]) -> str:
    """Return the name in *body*, once the keyspace is open here. Raises KeyspaceUnknown."""
    return (await ringpop.keyspaces.get(convert(_OfKeyspace, body, "request").name)).name


def _body(value: object) -> dict[str, Any]:
    return a_map({} if value is None else value, "body")


# A node without a store has a member with a store reply for it.


async def _answer_by_any(path: str, endpoint: Endpoint, ringpop: Ringpop, value: object) -> object:
    body = _body(value)
    names_here = [keyspace.name for keyspace in ringpop.keyspaces.all()]
    if ringpop.keyspaces.store_id is None and body.get("name") not in names_here:
        others = _members_with_a_store(ringpop)
        if others:
            return await _ask_instead(ringpop, path, body, others)
    return await endpoint(ringpop, body)


def _members_with_a_store(ringpop: Ringpop) -> list[Member]:
    there = members_there(ringpop).values()
    return [member for member in there if STORE_LABEL in dict(member.labels)]


async def _ask_instead(
    ringpop: Ringpop, path: str, body: dict[str, Any], others: Sequence[Member]
) -> dict[str, Any]:
    """Return the reply of the first of *others* that can be reached.

    Raises:
        KeyspaceError, ConfigError: the member refused the request.
        PartitionUnavailable: none of *others* can be reached.
    """
    call = Call(NODE_SERVICE, path, b"", encode_value("msgpack", body), ttl_s=INSTEAD_S)
    silence = ""
    for member in others[:ASKED_INSTEAD_MAX]:
        try:
            answer = await ringpop.channel.call(member.address, call)
            value = a_map(decode_value("msgpack", answer.arg3), "answer")
        except (CallError, BodyError) as error:
            silence = silence or f"{member.name} has a store, but does not answer: {error}"
            if error.took_effect == "unknown":  # another member might do it a second time
                break
            continue
        if not answer.ok:
            raise _refusal(value)
        return value
    raise PartitionUnavailable(silence)


def _refusal(value: dict[str, Any]) -> KeyspaceError | ConfigError:
    message = str(value.get("message", ""))
    if value.get("error") == ConfigError.__name__:
        return ConfigError(message)
    return PartFailed(str(value.get("error", KeyspaceError.__name__)), message).error()


def _by_any(
    endpoints: Mapping[str, Endpoint],
) -> dict[str, Callable[[Ringpop, object], Awaitable[object]]]:
    return {path: partial(_answer_by_any, path, endpoint) for path, endpoint in endpoints.items()}


READS: Final = {LIST: _list} | _by_any(
    {
        "/admin/keyspaces/show": _show,
        "/admin/keyspaces/table": _table,
        "/admin/keyspaces/lookup": _lookup,
        "/admin/keyspaces/checkpoints": _checkpoints,
    }
)
"""The endpoints that change nothing."""
CREATES: Final = _by_any({CREATE: _create})
"""The endpoint that changes something but is open to clients, too: it drops nothing."""
CHANGES: Final = _by_any(
    {
        DROP: _drop,
        "/admin/keyspaces/set": _set,
        REBALANCE: _rebalance,
        "/admin/keyspaces/checkpoint": _checkpoint,
        "/admin/keyspaces/restore": _restore,
        "/admin/keyspaces/bring-back": _bring_back,
    }
)
