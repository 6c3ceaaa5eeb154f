"""The routes of the HTTP API. See docs/http.md."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.base.rules import NUMBER_MAX
from ringpop_py.base.values.operations import Change, Outcome, Value
from ringpop_py.base.values.packed import a_list, a_map, a_text
from ringpop_py.base.values.requests import value_of as unpacked
from ringpop_py.edge.admin.checkup import flowing_through
from ringpop_py.edge.admin.keyspaces import CHANGES, CREATE, CREATES, DROP
from ringpop_py.edge.audit import audited
from ringpop_py.edge.web.callers import caller_of, check_role
from ringpop_py.edge.web.changes import ChangeStreams
from ringpop_py.edge.web.forms import JSON, OF_VALUES, VARY, Wanted
from ringpop_py.edge.web.metrics import NodeMetrics
from ringpop_py.edge.web.pages import ConsoleRoutes
from ringpop_py.edge.web.parameters import (
    EXPIRY,
    Conditions,
    Query,
    body_of,
    checked_key,
    etag,
    expiring_by,
    fields_of,
    key_in,
    name_in,
    operation_id_of,
    refuse_conditions,
    sent_in,
    value_of,
)
from ringpop_py.edge.web.refusals import HttpRefusal, bad_request, error_fields
from ringpop_py.edge.web.shuffles import ShuffleRoutes
from ringpop_py.member.swim.member import Status
from ringpop_py.net.security.identity import Role
from ringpop_py.net.security.permits import NOBODY, check_use, signed
from ringpop_py.node.events import log_change
from ringpop_py.state.placement.definition import Settings
from ringpop_py.state.table.due import at_ms_of, plain

if TYPE_CHECKING:
    from ringpop_py.edge.web.overview import Overview
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.requests import PackedRows

Endpoint = Callable[[Request], Awaitable[Response]]
ROWS_MAX: Final = 1_000
MANY_MAX: Final = 10_000
EXPIRES_MAX_S: Final = 253_402_300_799
"""The end of the year 9999, the last that a date of HTTP can have."""
SETTINGS: Final = tuple(Settings.__annotations__)
"""The settings that a keyspace can be created with."""
_OK, _CREATED, _NO_CONTENT, _NOT_MODIFIED, _NOT_FOUND, _UNAVAILABLE = 200, 201, 204, 304, 404, 503


class HttpRoutes:
    """The endpoints of one node."""

    def __init__(self, ringpop: Ringpop, overview: Overview) -> None:
        self._ringpop = ringpop
        self._console = ConsoleRoutes(ringpop, overview)
        self._node_metrics = NodeMetrics(ringpop)
        self._streams_of_changes = ChangeStreams(ringpop)

    def all(self, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
        """Return all routes, each endpoint wrapped by *guard*."""
        of = "/keyspaces/{keyspace}"
        table: dict[str, dict[str, Endpoint]] = {
            "/alive": {"GET": self._alive},
            "/ready": {"GET": self._ready},
            "/health": {"GET": self._health},
            "/metrics": {"GET": self._metrics},
            "/streams": {"GET": self._streams},
            "/keyspaces": {"GET": self._keyspaces},
            of: {"GET": self._keyspace, "PUT": self._create, "DELETE": self._drop},
            f"{of}/owners": {"GET": self._owners},
            f"{of}/keys": {"GET": self._scan},
            f"{of}/changes": {"GET": self._changes},
            f"{of}/get-many": {"POST": self._get_many},
            f"{of}/update-many": {"POST": self._update_many},
            f"{of}/keys/{{key}}": {"GET": self._get, "PUT": self._put, "DELETE": self._delete},
            f"{of}/keys/{{key}}/{{operation}}": {"POST": self._update},
        }
        table |= ShuffleRoutes(self._ringpop).table() | self._console.table()
        # One route for each path, so that the `Allow` of a 405 names all its methods.
        return [
            Route(path, audited(self._ringpop, path, guard(_by_method(path, by))), methods=[*by])
            for path, by in table.items()
        ]

    async def _open(self, request: Request) -> Keyspace:
        name, caller = name_in(request, "keyspace"), request.state.identity or NOBODY
        return await self._ringpop.keyspaces.get_for_client(name, caller)

    # The node. These accept any `Accept` and any parameter, as load balancers may add some: after a
    # refused probe, a healthy process would be restarted.

    async def _alive(self, request: Request) -> Response:
        return Wanted(request, otherwise=JSON).answer({"alive": True})

    async def _ready(self, request: Request) -> Response:
        wanted = Wanted(request, otherwise=JSON)
        if not is_ready(self._ringpop):
            message = "this node has not joined its cluster yet, or is draining or leaving"
            trouble = self._ringpop.readiness.application_trouble
            message = f"the application of this node is away: {trouble}" if trouble else message
            raise HttpRefusal(_UNAVAILABLE, "NotReady", message)
        silent = self._ringpop.silent_hosts()
        return wanted.answer({"ready": True} | ({"silent_hosts": silent} if silent else {}))

    async def _health(self, request: Request) -> Response:
        return Wanted(request, otherwise=JSON).answer(health_of(self._ringpop))

    async def _metrics(self, request: Request) -> Response:
        body, media_type = self._node_metrics.exposed(request.headers.get("accept", ""))
        return Response(body, media_type=media_type)

    async def _streams(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        return wanted.answer(flowing_through(self._ringpop))

    # Keyspaces.

    async def _keyspaces(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        found = {keyspace.name: summary_of(keyspace) for keyspace in self._ringpop.keyspaces.all()}
        return wanted.answer(found)

    async def _keyspace(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        keyspace = await self._open(request)
        counts = {
            "definition": keyspace.definition.as_record(),
            "statuses": keyspace.table.statuses(),
            "owners": dict(sorted(keyspace.table.counts().items())),
        }
        return wanted.answer(summary_of(keyspace) | counts)

    async def _owners(self, request: Request) -> Response:
        wanted, query = Wanted(request), Query(request, "after", "timeout_s")
        keyspace = await self._open(request)
        # Each epoch is above -1: without the parameter nothing is waited for.
        after = query.number("after", default=-1, minimum=0, maximum=NUMBER_MAX)
        found = await keyspace.partition_owners(after=after, timeout_s=query.timeout_s)
        by_member = {name: found.of(name) for name in sorted({*found.members} - {""})}
        unserved = found.of("")
        return wanted.answer({"epoch": found.epoch, "owners": by_member, "unserved": unserved})

    async def _create(self, request: Request) -> Response:
        wanted, _ = Wanted(request), Query(request)
        refuse_conditions(request)
        given = await value_of(request, required=False)
        settings = fields_of({} if given is None else given, "the body", SETTINGS)
        definition = {**settings, "name": name_in(request, "keyspace")}
        asked = signed(definition, request.state.identity)
        made = a_map(await self._administer(request, CREATE, asked), "answer")
        return wanted.answer(made, status=_CREATED if made["created"] else _OK)

    async def _drop(self, request: Request) -> Response:
        wanted, query = Wanted(request), Query(request, "confirm")
        refuse_conditions(request)
        await body_of(request)
        name = name_in(request, "keyspace")
        query.check_confirmed(name, f"this drops keyspace {name!r:.100} and its contents")
        return wanted.answer(await self._administer(request, DROP, {"name": name}))

    async def _administer(self, request: Request, path: str, asked: dict[str, Any]) -> object:
        """Call the admin endpoint at *path* with *asked*, and log the caller."""
        check_use(asked["name"], request.state.identity or NOBODY)
        if path in CHANGES:
            check_role(request, Role.ADMIN)
        log_change(path, caller_of(request), asked, request.state.identity)
        return await (CREATES | CHANGES)[path](self._ringpop, asked)

    # Keys.

    async def _get(self, request: Request) -> Response:
        wanted, query = Wanted(request, OF_VALUES), Query(request, "stale", "timeout_s")
        conditions, key = Conditions(request), key_in(request)
        keyspace = await self._open(request)
        found = await keyspace.get_packed(
            [key], stale=query.flag("stale"), stored=True, timeout_s=query.timeout_s
        )
        if not found.rows:
            message = f"keyspace {keyspace.name!r} has no such key"
            raise HttpRefusal(_NOT_FOUND, "KeyUnknown", message, _age(found))
        ((_, stored),) = found.rows
        value, at_ms = unpacked(key, plain(stored)), at_ms_of(stored)
        form = wanted.form_of(value)
        # A cache must revalidate the value before it uses it again.
        headers = {"etag": etag(value, form), "cache-control": "no-cache", **_age(found)}
        if at_ms is not None:
            at = min(math.ceil(at_ms / 1_000), EXPIRES_MAX_S)
            headers["expires"] = formatdate(at, usegmt=True)
        if conditions.says_unchanged(value, form):
            return Response(status_code=_NOT_MODIFIED, headers={**VARY, **headers})
        return wanted.answer(value, headers=headers)

    async def _put(self, request: Request) -> Response:
        sent = await sent_in(request)
        outcome = await self._change(request, "put", sent.value)
        headers = _headers(outcome)
        # RFC 9110, 9.3.4: a tag says that a GET now returns the body as it was sent. After a
        # repetition the key may hold another value.
        if not outcome.repeated and sent.form.encode(sent.value) == sent.body:
            headers["etag"] = etag(sent.value, sent.form)
        return Response(status_code=_NO_CONTENT, headers=headers)

    async def _delete(self, request: Request) -> Response:
        await body_of(request)
        outcome = await self._change(request, "delete", None)
        return Response(status_code=_NO_CONTENT, headers=_headers(outcome))

    async def _update(self, request: Request) -> Response:
        wanted, operation = Wanted(request, OF_VALUES), name_in(request, "operation")
        outcome = await self._change(request, operation, await value_of(request, required=False))
        (value,), headers = outcome.values, _headers(outcome)
        try:
            form = wanted.form_of(value)
        except HttpRefusal:  # only the value is refused: the write took effect
            return Response(status_code=_NO_CONTENT, headers=headers)
        # The value of a deleted key is None, too, and a deleted key has no tag.
        if value is not None:
            headers["etag"] = etag(value, form)
        return wanted.answer(value, headers=headers)

    async def _change(self, request: Request, operation: str, argument: Value) -> Outcome:
        # A key that is deleted does not expire, so then the query has no time for it.
        query = Query(request, "timeout_s", *(EXPIRY if operation != "delete" else ()))
        key, conditions = key_in(request), Conditions(request)
        change = Change(key, *query.expiring(*conditions.applied(operation, argument)))
        keyspace = await self._open(request)
        (outcome,) = await keyspace.update_many(
            [change], operation_id=operation_id_of(request), timeout_s=query.timeout_s
        )
        if isinstance(outcome, KeyspaceError):
            raise outcome
        return outcome

    # Many keys.

    async def _scan(self, request: Request) -> Response:
        wanted = Wanted(request)
        query = Query(request, "prefix", "start", "end", "limit", "stale", "timeout_s")
        keyspace = await self._open(request)
        page = await keyspace.page_packed(
            query.text("prefix") or "",
            start=query.text("start"),
            end=query.text("end"),
            limit=query.number("limit", default=ROWS_MAX, maximum=ROWS_MAX),
            stale=query.flag("stale"),
            timeout_s=query.timeout_s,
        )
        listed = [{"key": key, **wanted.row(key, packed)} for key, packed in page.rows]
        return wanted.answer({"rows": listed, "next": page.following}, headers=_age(page))

    async def _changes(self, request: Request) -> Response:
        query = Query(request, "prefix", "key", "after", "existing")
        return await self._streams_of_changes.answer(request, query, await self._open(request))

    async def _get_many(self, request: Request) -> Response:
        wanted, query = Wanted(request), Query(request, "stale", "timeout_s")
        refuse_conditions(request)
        body = fields_of(await value_of(request), "the body", ("keys",))
        request.state.keys = keys = [checked_key(key) for key in _many(body, "keys")]
        keyspace = await self._open(request)
        found = await keyspace.get_packed(
            keys, stale=query.flag("stale"), timeout_s=query.timeout_s
        )
        rows = {key: wanted.row(key, packed) for key, packed in found.rows}
        values = {key: row["value"] for key, row in rows.items() if "value" in row}
        errors = {key: row for key, row in rows.items() if "value" not in row}
        reply = {"values": values, "errors": errors} if errors else {"values": values}
        return wanted.answer(reply, headers=_age(found))

    async def _update_many(self, request: Request) -> Response:
        wanted, query = Wanted(request), Query(request, "timeout_s")
        refuse_conditions(request, "for update-many, use the operation 'conditional'")
        body = fields_of(await value_of(request), "the body", ("changes", "offsets"))
        request.state.changes = changes = [_change_of(row) for row in _many(body, "changes")]
        offsets = None if body.get("offsets") is None else a_map(body["offsets"], "offsets")
        keyspace = await self._open(request)
        outcomes = await keyspace.update_many(
            changes,
            operation_id=operation_id_of(request),
            offsets=offsets,
            timeout_s=query.timeout_s,
        )
        listed = [_outcome_fields(wanted, outcome) for outcome in outcomes]
        return wanted.answer({"outcomes": listed})


def _by_method(path: str, endpoints: dict[str, Endpoint]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        # HEAD is answered as GET; the server leaves the body out.
        method = "GET" if request.method == "HEAD" else request.method
        if not is_for_readers(method, path):
            check_role(request, Role.CLIENT)
        return await endpoints[method](request)

    return endpoint


def is_for_readers(method: str, path: str) -> bool:
    """Return whether a reader may use a route: it reads, and no rows of shuffles."""
    return path.endswith("/get-many") or (method == "GET" and "/intervals/" not in path)


def _many(body: dict[str, Any], what: str) -> list[Any]:
    """Return the list *what* in *body*. Raises BodyError, or Refusal if it is too long."""
    found = a_list(body.get(what), what)
    if what not in body or len(found) > MANY_MAX:
        raise bad_request(f"the body is a map with {what!r}, a list of at most {MANY_MAX}")
    return found


def _change_of(row: object) -> Change:
    change = fields_of(row, "a change", ("key", "operation", "argument", *EXPIRY))
    operation = a_text(change.get("operation"), "operation")
    when = (change.get(name) for name in EXPIRY)
    return Change(
        checked_key(change.get("key")), *expiring_by(operation, change.get("argument"), *when)
    )


def _outcome_fields(wanted: Wanted, outcome: Outcome | KeyspaceError) -> dict[str, Any]:
    if isinstance(outcome, KeyspaceError):
        return error_fields(outcome)
    try:
        value = {"value": wanted.part(outcome.values[0])}
    except HttpRefusal as error:  # only the value is refused: the change took effect
        value = {"value_error": error_fields(error)}
    return {**value, "repeated": outcome.repeated}


def _age(found: PackedRows) -> dict[str, str]:
    return {} if found.age_s is None else {"age": str(math.ceil(found.age_s))}


def _headers(outcome: Outcome) -> dict[str, str]:
    return {"operation-repeated": "true"} if outcome.repeated else {}


# The state of this node, and of the cluster as this node sees it.


def is_ready(ringpop: Ringpop) -> bool:
    """Return whether the node takes requests: it has joined, and neither drains nor leaves.

    Its application, if there is one, must not be away.
    """
    alive = ringpop.ready and ringpop.node.local.status is Status.ALIVE
    away = ringpop.readiness.application_trouble
    return alive and not ringpop.ending.draining and not away


def health_of(ringpop: Ringpop) -> dict[str, Any]:
    """Return counts of members, and of partitions of all keyspaces together and of each."""
    members = ringpop.members
    keyspaces: dict[str, dict[str, Any]] = {}
    for keyspace in ringpop.keyspaces.all():
        failure = ringpop.keyspaces.here(keyspace.name).failure or None
        keyspaces[keyspace.name] = {**summary_of(keyspace), "failure": failure}
    return {
        "name": ringpop.name,
        "address": str(ringpop.address),
        "cluster": ringpop.config.cluster,
        "ready": is_ready(ringpop),
        "application_trouble": ringpop.readiness.application_trouble,
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
        "here": counts[keyspace.owners.node_name],
        "epoch": table.epoch,
    }
