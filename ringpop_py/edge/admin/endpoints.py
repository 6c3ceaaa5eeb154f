"""The node's endpoints besides the protocol: health, statistics, lookups, changes by an operator.

Ringpop's own endpoints reply as its programs expect. `/admin/members`, `/admin/ring` and
`/admin/node` are ours and have more fields. So are `/admin/damp/…` and `/admin/member/drain`, which
only the native dialect has, `/admin/cluster`, which asks all members (`admin.census`), and
`/admin/keyspaces/…` (`admin.keyspaces`). A reply is in the caller's scheme, JSON or msgpack.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.base.config.settings import NAME_CHARACTERS_MAX
from ringpop_py.base.errors import BodyError, ConfigError, KeyspaceError, NoOwner
from ringpop_py.base.logs import log
from ringpop_py.base.values.declared import Meta, Named, Natural, T, Text, convert, converter
from ringpop_py.base.values.go_json import GoObject, decode_go_json, go_reader
from ringpop_py.base.values.packed import a_map, decode_value, encode_value
from ringpop_py.base.version import package_version
from ringpop_py.edge.admin import checkup
from ringpop_py.edge.admin.census import Census
from ringpop_py.edge.admin.series import series
from ringpop_py.edge.admin.traces import Traces
from ringpop_py.member.swim.member import STORE_LABEL, Status
from ringpop_py.net.security.identity import Role
from ringpop_py.net.security.permits import signed
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer
from ringpop_py.node.events import log_change

if TYPE_CHECKING:
    from ringpop_py.member.swim.damper import DampState
    from ringpop_py.member.swim.member import Member
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

KEY_CHARACTERS_MAX: Final = 1 << 16
EVENTS_SHOWN: Final = 100
NAMES: Final = converter(list[str], "names of settings")
GOSSIP_SETTINGS_LIVE: Final = (
    "period_s",
    "ping_timeout_s",
    "ping_req_timeout_s",
    "ping_req_size",
    "join_timeout_s",
    "reverse_full_syncs_max",
)
"""The settings that `/admin/config/set` can change; all others stay fixed from the start."""


class _LookupBody(GoObject, frozen=True):
    key: Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)] | None = None
    n: Natural | None = None


_read_lookup: Final = go_reader(_LookupBody, "lookup")
Endpoint = Callable[["Ringpop", Any], object]
"""Takes the decoded body of a request; returns the value of the reply, or an awaitable of it."""


class _OfMember(Named, frozen=True):
    name: Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]


class _ForceLeave(_OfMember, frozen=True):
    dry_run: bool = False


class _DampShow(Named, frozen=True):
    name: Text | None = None


class _Events(Named, frozen=True):
    after: Natural | None = None
    wait_ms: Natural = 0


class _Drain(Named, frozen=True):
    end: bool = False


class _Failure(Exception):
    """An endpoint understood the request and refuses it."""


REFUSALS: Final = (_Failure, ConfigError, KeyspaceError, NoOwner)
"""The errors by which an endpoint refuses a request."""


def serve_admin(ringpop: Ringpop) -> None:
    """Register all endpoints on the node's channel; those of keyspaces once these are loaded."""
    traces = Traces(ringpop)
    for path, read in READS.items():
        _serve(ringpop, {path: read}, reads=True, role=LEAST.get(path, Role.READER))
    cluster = {"/admin/cluster": Census(ringpop, READS).answer}
    _serve(ringpop, cluster, reads=True, role=Role.READER)
    _serve(ringpop, CHANGES | {"/trace/remove": traces.remove}, role=Role.ADMIN)
    _serve(ringpop, {"/trace/add": traces.add}, of_caller=True, role=Role.ADMIN)

    def serve_keyspaces() -> None:
        from ringpop_py.edge.admin import keyspaces, leaders, ticks  # noqa: PLC0415 - on demand

        _serve(ringpop, keyspaces.READS, reads=True, role=Role.READER)
        _serve(ringpop, {ticks.LIST: ticks.listed}, reads=True, role=Role.READER)
        _serve(ringpop, keyspaces.CREATES, signs=True)
        _serve(ringpop, keyspaces.CHANGES, role=Role.ADMIN)
        for path, act in leaders.LeaderEndpoints(ringpop).by_path.items():
            # Beats are no changes for a log; `Leaders` logs elections.
            reads = path != leaders.RESIGN
            role = leaders.ROLES[path]
            _serve(ringpop, {path: act}, of_caller=True, reads=reads, role=role)

    ringpop.keyspaces_on_demand.on_load(serve_keyspaces)


def _serve(
    ringpop: Ringpop,
    endpoints: Mapping[str, Callable[[Any, Any], object]],
    *,
    reads: bool = False,
    of_caller: bool = False,
    signs: bool = False,
    role: Role = Role.CLIENT,
) -> None:
    """Serve *endpoints*, each an `Endpoint`, for callers of *role*.

    Args:
        reads: whether they change nothing; calls of others are logged with their callers.
        of_caller: whether they take the `IncomingCall` in place of the node.
        signs: whether they are told who asks (`permits.signed`).
    """

    async def handle(incoming: IncomingCall) -> Answer:
        scheme = "msgpack" if incoming.scheme == "msgpack" else "json"
        # Ringpop's tools may write JSON that only Go's reader accepts.
        lenient = scheme == "json" and not ringpop.node.dialect.extends
        asked = decode_go_json(incoming.arg3) if lenient else decode_value(scheme, incoming.arg3)
        # The caller may know that a peer has just sent this node something: the reply must show it.
        await ringpop.driver.catch_up()
        try:
            if signs:
                asked = signed(a_map({} if asked is None else asked, "body"), incoming.identity)
            if not reads:
                log_change(incoming.endpoint, incoming.caller, asked, incoming.identity)
            result = endpoints[incoming.endpoint](incoming if of_caller else ringpop, asked)
            value = await result if inspect.isawaitable(result) else result
        except REFUSALS as error:
            body = {"type": "error", "error": type(error).__name__, "message": str(error)}
            return Answer(ok=False, arg3=encode_value(scheme, body))
        return Answer(ok=True, arg3=encode_value(scheme, value))

    for path in endpoints:
        ringpop.channel.serve(NODE_SERVICE, path, handle, role=role)


def body_of(kind: type[T], value: object) -> T:
    """Return *value* as a *kind*; no body means one without fields. Raises BodyError."""
    return convert(kind, {} if value is None else value, "request")


# Reads.


def _health(ringpop: Ringpop, _value: object) -> object:
    # Programs of the ringpop dialect expect an empty reply.
    return None if ringpop.node.dialect.ordered_checksum else {"ok": True, "ready": ringpop.ready}


def _stats(ringpop: Ringpop, _value: object) -> object:
    node = ringpop.node
    now = time.time()
    uptime_s = max(now - ringpop.reporter.started_at, 1e-3)  # the rates are divided by it
    client_rate = (node.counts.pings_sent + node.counts.ping_reqs_sent) / uptime_s
    server_rate = (node.counts.pings_received + node.counts.ping_reqs_received) / uptime_s
    ring: dict[str, object] = {
        "checksum": ringpop.ring.checksum,
        "servers": list(ringpop.ring.owners),
    }
    if node.dialect.ordered_checksum:
        ring["checksums"] = {"replica": ringpop.ring.replica_checksum}
    return {
        "hooks": None,
        "membership": {
            "checksum": ringpop.checksum,
            "members": [_member_stats(member) for member in ringpop.members],
        },
        # Ringpop reports the heap of Node.js; CPython does not measure its own.
        "process": {
            "memory": dict.fromkeys(("rss", "heapTotal", "heapUsed"), checkup.memory_bytes()),
            "pid": os.getpid(),
        },
        "protocol": {
            "timing": node.timing(),
            "protocolRate": node.period_us / 1000,
            "clientRate": client_rate,
            "serverRate": server_rate,
            "totalRate": client_rate + server_rate,
        },
        "ring": ring,
        "version": package_version(),
        "timestamp": int(now * 1000),
        "uptime": int(uptime_s * 1000),
        "tchannelVersion": "2",  # of the protocol: there is no library of that name here
    }


def _member_stats(member: Member) -> dict[str, object]:
    value: dict[str, object] = {
        "address": str(member.address),
        "status": member.status.label,
        "incarnationNumber": member.incarnation,
    }
    if member.labels:
        value["labels"] = dict(member.labels)
    return value


def _node(ringpop: Ringpop, _value: object) -> object:
    node, loaded = ringpop.node, ringpop.keyspaces_on_demand.loaded
    return {
        "name": ringpop.name,
        "address": str(ringpop.address),
        "cluster": node.cluster,
        "dialect": node.dialect.name,
        "ring_points": node.ring_points,
        "version": package_version(),
        "pid": os.getpid(),
        "ready": node.ready,
        "expected": ringpop.config.expect,
        "silent_hosts": ringpop.silent_hosts(),
        "http_port": _http_port(ringpop),
        "store": dict(node.local.labels).get(STORE_LABEL),
        "keys": [] if ringpop.credentials is None else list(ringpop.credentials.key_ids),
        "gossiping": node.gossiping,
        "keyspaces": loaded,
        "aggregations": ringpop.keyspaces.aggregations.own if loaded else [],
        "checksum": ringpop.checksum,
        "ring_checksum": ringpop.ring.checksum,
        "service": ringpop.config.service,
        "uptime_s": time.time() - ringpop.reporter.started_at,
        "gossip": asdict(node.counts),
        "proxy": asdict(ringpop.proxying.counts),
    }


def _http_port(ringpop: Ringpop) -> int | None:
    """Return where HTTP is served at the host that other members know; None if not there."""
    served, host = ringpop.http_address, ringpop.address.host
    return served.port if served is not None and served.host in (host, "0.0.0.0", "::") else None  # noqa: S104 - it is compared


def _members(ringpop: Ringpop, _value: object) -> object:
    return {
        "source": ringpop.name,
        "checksum": ringpop.checksum,
        "members": [_member_row(ringpop, member) for member in ringpop.members],
    }


def _member_row(ringpop: Ringpop, member: Member) -> dict[str, object]:
    return {
        "name": member.name,
        "address": str(member.address),
        "status": member.status.label,
        "incarnation": member.incarnation,
        "labels": dict(member.labels),
        "damped": member.damped,
        "draining": member.draining,
        "in_ring": ringpop.node.members.in_ring(member),
    }


def _ring(ringpop: Ringpop, _value: object) -> object:
    """Return what a client needs to build the same ring, and to reach its owners."""
    shares = ringpop.ring.weights()  # of all members together: it scans all points
    return {
        "dialect": ringpop.node.dialect.name,
        "points_count": ringpop.node.ring_points,
        "checksum": ringpop.ring.checksum,
        "service": ringpop.config.service,
        "owners": [
            {
                "name": owner,
                "identity": identity,
                "address": str(ringpop.address_of(owner)),
                "share": shares[owner],
            }
            for owner, identity in ringpop.ring.members.items()
        ],
    }


def _lookup(ringpop: Ringpop, value: object) -> object:
    asked = _read_lookup(value)
    key = asked.key
    if key is None:
        if ringpop.node.dialect.extends:  # otherwise it may be missing, as in Go, and is empty
            raise BodyError("lookup: key is missing")
        key = ""
    if asked.n is None:
        return {"dest": ringpop.lookup(key)}
    return {"dests": list(ringpop.lookup_n(key, asked.n))}


def _damp_show(ringpop: Ringpop, value: object) -> object:
    """Return the scores of all members that flap or did, or of one member."""
    node, config, now = ringpop.node, ringpop.node.config, now_us()
    _require_native(ringpop)
    name = body_of(_DampShow, value).name
    if name is not None:
        states = [node.damp_state(_member_named(ringpop, name), now)]
    else:
        states = node.damp_states(now)
    return {
        "source": ringpop.name,
        "damping": config.damping,
        "suppress": config.damp_suppress,
        "reuse": config.damp_reuse,
        "damped_max": node.members.damped_max,
        "members": [_damp_state(ringpop, state) for state in states],
    }


def _damp_state(ringpop: Ringpop, state: DampState) -> dict[str, object]:
    return {
        "name": state.member.name,
        "status": state.member.status.label,
        "score": state.score,
        "flapper": state.flapper,
        "damped": state.member.damped,
        "verdict": state.member.damping,
        "in_ring": ringpop.node.members.in_ring(state.member),
        "reuse_in_s": state.reuse_in_s,
    }


def _member_named(ringpop: Ringpop, name: str) -> Member:
    member = ringpop.node.members.get(name)
    if member is None:
        raise _Failure(f"no member is called {name!r}")
    return member


def _require_no_end(ringpop: Ringpop) -> None:
    if ringpop.ending.begun:
        raise _Failure("this node is ending, which cannot be undone")


def _require_native(ringpop: Ringpop) -> None:
    if not ringpop.node.dialect.extends:
        raise _Failure("the ringpop dialect has neither damping nor draining")


def _why(ringpop: Ringpop, value: object) -> object:
    """Return this node's records of one member. They name the members that may know more."""
    name = body_of(_OfMember, value).name
    row = ringpop.node.members.get(name)
    records = ringpop.reporter.events.about(name, is_own=name == ringpop.name)
    if row is None and not records:
        raise _Failure(f"{ringpop.name} knows no member {name!r}")
    return {
        "source": ringpop.name,
        "member": _member_row(ringpop, row) if row is not None else None,
        "records": records,
    }


async def _events(ringpop: Ringpop, value: object) -> object:
    """Return the events after number *after*, once there are some; without it the last 100."""
    asked, events = body_of(_Events, value), ringpop.reporter.events
    if asked.after is None:
        records = events.last(EVENTS_SHOWN)
    else:
        await events.wait_after(asked.after, asked.wait_ms / 1000)
        records = events.after(asked.after)
    return {"source": ringpop.name, "last": events.last_number, "records": records}


def _versions(ringpop: Ringpop, value: object) -> object:
    from ringpop_py.edge.admin.versions import versions  # noqa: PLC0415 - 1.4 MB a node

    return versions(ringpop, value)


# Changes.


async def _leave(ringpop: Ringpop, _value: object) -> object:
    await ringpop.driver.perform(ringpop.node.leave)
    return {"status": "ok"}


async def _join(ringpop: Ringpop, _value: object) -> object:
    _require_no_end(ringpop)
    await ringpop.driver.perform(ringpop.node.rejoin)
    return {"status": "rejoined"}


async def _drain(ringpop: Ringpop, value: object) -> object:
    """Take all keys from this node; with *end* also finish open requests, and end the process."""
    if body_of(_Drain, value).end:
        if ringpop.on_end is None:
            raise _Failure("this node is part of a program that ends it; end that program")
        ringpop.on_end()  # the reply is still sent: the node waits for open requests before it ends
    else:
        _require_native(ringpop)
        ringpop.drain()
        await ringpop.driver.perform(lambda _now: [])  # answered when it has taken effect
    return {"status": "ok", **_drain_status(ringpop, None)}


def _drain_status(ringpop: Ringpop, _value: object) -> dict[str, object]:
    """Return how far this node is with its drain, and how many requests are still open."""
    left = {work.value: count for work, count in ringpop.ending.left().items() if count}
    return {"source": ringpop.name, "phase": ringpop.ending.phase, "under_way": left}


async def _undrain(ringpop: Ringpop, _value: object) -> object:
    _require_native(ringpop)
    _require_no_end(ringpop)
    await ringpop.driver.perform(ringpop.node.undrain)
    return {"status": "ok"}


async def _damp_clear(ringpop: Ringpop, value: object) -> object:
    _require_native(ringpop)
    member = _member_named(ringpop, body_of(_OfMember, value).name)
    await ringpop.driver.perform(lambda now: ringpop.node.clear_damping(member.name, now))
    return {"status": "ok", "was_damped": member.damped}


async def _reap(ringpop: Ringpop, _value: object) -> object:
    gone = ringpop.node.reapable  # counted first: it is 0 afterwards
    await ringpop.driver.perform(ringpop.node.reap)
    return {"status": "ok", "reaped": len(gone)}


def _reapable(ringpop: Ringpop, _value: object) -> object:
    """Return the members that `_reap` would turn into tombstones."""
    rows = [_member_row(ringpop, member) for member in ringpop.node.reapable]
    return {"source": ringpop.name, "cluster": ringpop.node.cluster, "members": rows}


async def _force_leave(ringpop: Ringpop, value: object) -> object:
    """Turn one member that is gone, or suspected to be, into a tombstone.

    This is not an option of `_reap`: a node of an older version would ignore it, and reap all.
    """
    asked, node = body_of(_ForceLeave, value), ringpop.node
    member = _member_named(ringpop, asked.name)
    if member.status is Status.ALIVE:
        raise _Failure(
            f"{member.name} is alive and would come back; `ringpopctl leave {member.name}` takes "
            "it out of the ring"
        )
    if member.status is not Status.SUSPECT and member not in node.reapable:
        raise _Failure(f"{member.name} no longer counts: its status is {member.status.label}")
    if not asked.dry_run:
        await ringpop.driver.perform(lambda now: node.reap(now, member))
    return {"status": "ok", "member": _member_row(ringpop, member)}


async def _heal(ringpop: Ringpop, _value: object) -> object:
    report = await ringpop.heal()
    return {
        "targets": [str(address) for address in report.targets],
        "healed": bool(report.merged),
        "merged": [str(address) for address in report.merged],
        "failed": [str(address) for address in report.failed],
        "error": report.hosts_trouble,
        "silent_hosts": dict(report.silent),
    }


async def _gossip(ringpop: Ringpop, *, on: bool) -> object:
    node = ringpop.node
    await ringpop.driver.perform(node.start_gossip if on else node.stop_gossip)
    return {}


def _gossip_status(ringpop: Ringpop, _value: object) -> object:
    return {"status": "running" if ringpop.node.gossiping else "stopped"}


async def _tick(ringpop: Ringpop, _value: object) -> object:
    await ringpop.driver.perform(ringpop.node.tick)
    return {"checksum": ringpop.checksum}


def _reload(ringpop: Ringpop, value: object) -> object:
    file = value.get("file") if isinstance(value, dict) else None
    if file is not None and file != ringpop.config.hosts_file:
        raise _Failure("another hosts file needs a restart; only the present one is read again")
    return {"status": "ok", "hosts": ringpop.reload_hosts()}


def _config_get(ringpop: Ringpop, value: object) -> object:
    proxy = asdict(ringpop.config.proxy)
    settings = asdict(ringpop.node.config) | {f"proxy.{name}": proxy[name] for name in proxy}
    extends = ringpop.node.dialect.extends
    named = value if isinstance(value, list) or extends else None  # otherwise all, as in Ringpop
    wanted = NAMES([] if named is None else named)
    unknown = [key for key in wanted if key not in settings]
    if unknown:
        raise _Failure(f"no such setting: {', '.join(unknown)}")
    return {key: settings[key] for key in wanted or settings}


async def _config_set(ringpop: Ringpop, value: object) -> object:
    changes = a_map(value, "body")
    fixed = [key for key in changes if key not in GOSSIP_SETTINGS_LIVE]
    if fixed:
        raise _Failure(
            f"cannot be set while the node runs: {', '.join(fixed)}; "
            f"these can: {', '.join(GOSSIP_SETTINGS_LIVE)}"
        )
    config = replace(ringpop.node.config, **changes)  # which checks the values
    await ringpop.driver.perform(lambda now: ringpop.node.configure(config, now))
    log.warning("settings changed", **changes)
    return {"status": "ok"}


def _debug(ringpop: Ringpop, *, on: bool) -> object:
    ringpop.on_debug(on)
    return {"status": "ok"}


READS: Final[dict[str, Endpoint]] = {
    "/health": _health,
    "/admin/stats": _stats,
    "/admin/lookup": _lookup,
    "/admin/gossip/tick": _tick,  # what a timer does as well
    "/admin/gossip/status": _gossip_status,
    "/admin/tick": _tick,
    "/admin/member/drain/status": _drain_status,
    "/admin/damp/show": _damp_show,
    "/admin/config/get": _config_get,
    "/admin/node": _node,
    "/admin/members": _members,
    "/admin/ring": _ring,
    "/admin/why": _why,
    "/admin/events": _events,
    "/admin/reapable": _reapable,
    "/admin/log": checkup.recent,
    "/admin/versions": _versions,
    "/admin/reach": checkup.reach,
    "/admin/checkup": checkup.checkup,
    "/admin/work": checkup.work,
    "/admin/series": series,
}
"""The endpoints that change nothing. A call of any other endpoint is logged with its caller."""
TICKS: Final = ("/admin/gossip/tick", "/admin/tick")
LEAST: Final = dict.fromkeys((*TICKS, "/admin/log", "/admin/versions"), Role.ADMIN) | {
    "/admin/members": Role.SHUFFLES
}
"""The least roles for those of `READS` that are not for readers and all above."""
CHANGES: Final[dict[str, Endpoint]] = {
    "/admin/gossip": lambda ringpop, _value: _gossip(ringpop, on=not ringpop.node.gossiping),
    "/admin/gossip/start": lambda ringpop, _value: _gossip(ringpop, on=True),
    "/admin/gossip/stop": lambda ringpop, _value: _gossip(ringpop, on=False),
    "/admin/member/leave": _leave,
    "/admin/member/join": _join,
    "/admin/leave": _leave,
    "/admin/join": _join,
    "/admin/member/drain": _drain,
    "/admin/member/undrain": _undrain,
    "/admin/member/force-leave": _force_leave,
    "/admin/damp/clear": _damp_clear,
    "/admin/reap": _reap,
    "/admin/healpartition/disco": _heal,
    "/admin/reload": _reload,
    "/admin/config/set": _config_set,
    "/admin/debugSet": lambda ringpop, _value: _debug(ringpop, on=True),
    "/admin/debugClear": lambda ringpop, _value: _debug(ringpop, on=False),
}
