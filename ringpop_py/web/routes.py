"""The routes: what each takes, asks of a keyspace, and answers. See docs/http.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringpop_py.errors import KeyspaceError
from ringpop_py.partitions.operations import Change, Outcome
from ringpop_py.state.messages import value_of as unpacked
from ringpop_py.web.bodies import answer, body_of, part, value_of
from ringpop_py.web.health import details_of, health_of, is_ready, summary_of
from ringpop_py.web.parameters import (
    Query,
    checked_key,
    fields_of,
    key_in,
    name_in,
    operation_id_of,
)
from ringpop_py.web.refusals import REFUSALS, Refusal, bad_request, error_fields
from ringpop_py.wire.values import a_list, a_map, a_text

if TYPE_CHECKING:
    from ringpop_py.ringpop import Ringpop
    from ringpop_py.state.keyspace import Keyspace

Endpoint = Callable[[Request], Awaitable[Response]]
ROWS_MAX: Final = 1_000
MANY_MAX: Final = 10_000
_NO_CONTENT, _NOT_FOUND, _UNAVAILABLE = 204, 404, 503


class Routes:
    """What one node answers."""

    def __init__(self, ringpop: Ringpop) -> None:
        self._ringpop = ringpop

    def all(self, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
        """All of them, each endpoint as *guard* gives it back."""
        of = "/keyspaces/{keyspace}"
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/alive", self._alive),
            ("GET", "/ready", self._ready),
            ("GET", "/health", self._health),
            ("GET", "/keyspaces", self._keyspaces),
            ("GET", of, self._keyspace),
            ("GET", f"{of}/keys", self._scan),
            ("POST", f"{of}/get-many", self._get_many),
            ("POST", f"{of}/update-many", self._update_many),
            ("GET", f"{of}/keys/{{key}}", self._get),
            ("PUT", f"{of}/keys/{{key}}", self._put),
            ("DELETE", f"{of}/keys/{{key}}", self._delete),
            ("POST", f"{of}/keys/{{key}}/{{operation}}", self._update),
        ]
        return [Route(path, guard(endpoint), methods=[method]) for method, path, endpoint in table]

    async def _open(self, request: Request) -> Keyspace:
        return await self._ringpop.keyspaces.get_for_client(name_in(request, "keyspace"))

    # The node.

    async def _alive(self, request: Request) -> Response:
        return answer(request, {"alive": True})

    async def _ready(self, request: Request) -> Response:
        if not is_ready(self._ringpop):
            message = "this node has not joined its cluster yet, or leaves it"
            raise Refusal(_UNAVAILABLE, "NotReady", message)
        return answer(request, {"ready": True})

    async def _health(self, request: Request) -> Response:
        return answer(request, health_of(self._ringpop))

    # Keyspaces.

    async def _keyspaces(self, request: Request) -> Response:
        found = {keyspace.name: summary_of(keyspace) for keyspace in self._ringpop.keyspaces.all()}
        return answer(request, found)

    async def _keyspace(self, request: Request) -> Response:
        return answer(request, details_of(await self._open(request)))

    # Keys.

    async def _get(self, request: Request) -> Response:
        query = Query(request, "stale", "timeout_s")
        key = key_in(request)
        keyspace = await self._open(request)
        found = await keyspace.get_many([key], stale=query.flag("stale"), timeout_s=query.timeout_s)
        if key not in found:
            message = f"keyspace {keyspace.name!r} has no such key"
            raise Refusal(_NOT_FOUND, "KeyUnknown", message)
        return answer(request, found[key])

    async def _put(self, request: Request) -> Response:
        outcome = await self._change(request, "put", await value_of(request))
        return Response(status_code=_NO_CONTENT, headers=_headers(outcome))

    async def _delete(self, request: Request) -> Response:
        await body_of(request)
        outcome = await self._change(request, "delete", None)
        return Response(status_code=_NO_CONTENT, headers=_headers(outcome))

    async def _update(self, request: Request) -> Response:
        operation = name_in(request, "operation")
        outcome = await self._change(request, operation, await value_of(request, required=False))
        try:
            response = answer(request, outcome.values[0])
        except Refusal:  # of the value alone: the write took effect
            response = Response(status_code=_NO_CONTENT)
        response.headers.update(_headers(outcome))
        return response

    async def _change(self, request: Request, operation: str, argument: Any) -> Outcome:  # noqa: ANN401
        query = Query(request, "timeout_s")
        change = Change(key_in(request), operation, argument)
        keyspace = await self._open(request)
        (outcome,) = await keyspace.update_many(
            [change], operation_id=operation_id_of(request), timeout_s=query.timeout_s
        )
        if isinstance(outcome, KeyspaceError):
            raise outcome
        return outcome

    # Many keys.

    async def _scan(self, request: Request) -> Response:
        query = Query(request, "prefix", "start", "end", "limit", "stale", "timeout_s")
        keyspace = await self._open(request)
        rows, following = await keyspace.page_packed(
            query.text("prefix") or "",
            start=query.text("start"),
            end=query.text("end"),
            limit=query.number("limit", default=ROWS_MAX, maximum=ROWS_MAX),
            stale=query.flag("stale"),
            timeout_s=query.timeout_s,
        )
        listed = [{"key": key, **_row(request, key, packed)} for key, packed in rows]
        return answer(request, {"rows": listed, "next": following})

    async def _get_many(self, request: Request) -> Response:
        query = Query(request, "stale", "timeout_s")
        body = fields_of(await value_of(request), "the body", ("keys",))
        keys = [checked_key(key) for key in _many(body, "keys")]
        keyspace = await self._open(request)
        found = await keyspace.get_packed(
            keys, stale=query.flag("stale"), timeout_s=query.timeout_s
        )
        rows = {key: _row(request, key, packed) for key, packed in found.items()}
        values = {key: row["value"] for key, row in rows.items() if "value" in row}
        errors = {key: row for key, row in rows.items() if "value" not in row}
        return answer(request, {"values": values, **({"errors": errors} if errors else {})})

    async def _update_many(self, request: Request) -> Response:
        query = Query(request, "timeout_s")
        body = fields_of(await value_of(request), "the body", ("changes", "offsets"))
        changes = [_change_of(row) for row in _many(body, "changes")]
        offsets = None if body.get("offsets") is None else a_map(body["offsets"], "offsets")
        keyspace = await self._open(request)
        outcomes = await keyspace.update_many(
            changes,
            operation_id=operation_id_of(request),
            offsets=offsets,
            timeout_s=query.timeout_s,
        )
        listed = [_outcome_fields(request, outcome) for outcome in outcomes]
        return answer(request, {"outcomes": listed})


def _many(body: dict[str, Any], what: str) -> list[Any]:
    """The list of that name in *body*. Raises BodyError, or Refusal if it is too long."""
    found = a_list(body.get(what), what)
    if what not in body or len(found) > MANY_MAX:
        message = f"the body is a map with {what!r}, a list of at most {MANY_MAX}"
        raise bad_request(message)
    return found


def _change_of(row: object) -> Change:
    change = fields_of(row, "a change", ("key", "operation", "argument"))
    operation = a_text(change.get("operation"), "operation")
    return Change(checked_key(change.get("key")), operation, change.get("argument"))


def _row(request: Request, key: str, packed: bytes) -> dict[str, Any]:
    """The value of *key* in an answer of many; or why that cannot have it."""
    try:
        return {"value": part(request, unpacked(key, packed))}
    except REFUSALS as error:
        return error_fields(error)


def _outcome_fields(request: Request, outcome: Outcome | KeyspaceError) -> dict[str, Any]:
    if isinstance(outcome, KeyspaceError):
        return error_fields(outcome)
    try:
        value = {"value": part(request, outcome.values[0])}
    except Refusal as error:  # of the value alone: the change took effect
        value = {"value_error": error_fields(error)}
    return {**value, "repeated": outcome.repeated}


def _headers(outcome: Outcome) -> dict[str, str]:
    return {"operation-repeated": "true"} if outcome.repeated else {}
