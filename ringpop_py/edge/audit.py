"""The audit log: who, other than members, asked for which keys, and what came of it.

Calls are seen where they are answered (`AuditedCalls`), requests over HTTP around their routes
(`AuditLog.of_http`). What is asked for is decoded a second time for this, and only if there is an
audit log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import decode
from ringpop_py.base.values.packed import decode_value
from ringpop_py.base.values.requests import ApplyRequest, ReadRequest, ScanRequest, first_error
from ringpop_py.net.http.stream_calls import STREAM_ENDPOINT
from ringpop_py.net.security.identity import Role
from ringpop_py.net.transport.serving import IncomingCalls
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer
from ringpop_py.net.wire.init import NO_LISTENER
from ringpop_py.node.audit import AuditFile
from ringpop_py.route.proxy.entry import (
    ALL_ENDPOINT,
    FOLLOW_ENDPOINT,
    FORWARD_ENDPOINT,
    AllHead,
    ForwardHead,
)
from ringpop_py.route.proxy.head import MANY_ENDPOINT, RELAY_ENDPOINT, Head, RelayHead
from ringpop_py.route.proxy.http import FLOW_ENDPOINT, PROXY_ENDPOINT, decode_http_head
from ringpop_py.state.actors.mail import Mail
from ringpop_py.state.jobs import messages as jobs
from ringpop_py.state.messages import (
    CLIENT_WATCH,
    DESCRIBE,
    OWNERS,
    ROUTED,
    TELL,
    WATCH,
    results_in,
)
from ringpop_py.state.rows.pages import COLUMNS, ColumnsRequest
from ringpop_py.state.watch.messages import WatchRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from ringpop_py.net.transport.serving import Served, ServingHost
    from ringpop_py.net.transport.writer import LinkWriter
    from ringpop_py.net.wire.calls import CallReceived
    from ringpop_py.net.wire.connection import Connection
    from ringpop_py.net.wire.frames import ErrorCode
    from ringpop_py.node.ringpop import Ringpop

    HttpEndpoint = Callable[[Request], Awaitable[Response]]

KEYS_MAX: Final = 10
"""The most keys that a line names; if there are more, it says how many."""
TEXT_CHARACTERS_MAX: Final = 1_024
"""Longer texts are cut off: keys that the ring owns may have 65,536 characters."""
DONE: Final = "done"
FORBIDDEN: Final = "Forbidden"
FAILED: Final = "failed"
QUIET: Final = frozenset({DESCRIBE, OWNERS, FOLLOW_ENDPOINT, STREAM_ENDPOINT})
"""These say where keys are, or go on with a request that has its line."""
REFUSALS: Final = frozenset({401, 403})
ERRORS: Final = 400
"""From which status of HTTP on a request has failed."""


class Want(NamedTuple):
    """What a call asks for."""

    keyspace: str = ""
    operation: str = ""
    keys: Sequence[str] = ()


def _apply(event: CallReceived) -> Want:
    request = ApplyRequest.decode(event.arg3)
    changes = [c for _, writes in request.parts for w in writes for c in w.changes]
    operations = _names(change.aggregation for change in changes)
    return Want(request.keyspace, operations, [change.key for change in changes])


def _read(event: CallReceived) -> Want:
    request = decode(ReadRequest, event.arg3)
    return Want(request.keyspace, "read", [key for _, keys in request.parts for key in keys])


def _scan(event: CallReceived) -> Want:
    request = decode(ScanRequest, event.arg3)
    return Want(request.keyspace, "scan", [f"{request.prefix}*"] if request.prefix else ())


def _watch(event: CallReceived) -> Want:
    request = decode(WatchRequest, event.arg3)
    key = request.prefix if request.exact else f"{request.prefix}*"
    return Want(request.keyspace, "watch", [key] if request.prefix else ())


def _columns(event: CallReceived) -> Want:
    request = decode(ColumnsRequest, event.arg3)
    if request.scans:
        return Want(request.keyspace, "scan")
    return Want(request.keyspace, "read", [key for _, keys in request.parts for key in keys])


def _mail(event: CallReceived) -> Want:
    mail = decode(Mail, event.arg3)
    return Want(mail.keyspace, mail.kind, [mail.key])


def _job(event: CallReceived) -> Want:
    job = decode(jobs.JobId, event.arg2 if event.head.endpoint == jobs.STAGE else event.arg3)
    return Want(job.keyspace, job.job)


def _handler(event: CallReceived) -> Want:
    head = Head.decode(event.arg2)
    keyspace = head.keyspace.name if head.keyspace is not None else ""
    return Want(keyspace, head.endpoint, head.keys)


def _http(event: CallReceived) -> Want:
    request, head = decode_http_head(event.arg2, b"")
    keyspace = head.keyspace.name if head.keyspace is not None else ""
    return Want(keyspace, request.method, head.keys)


def _forward(event: CallReceived) -> Want:
    head = decode(ForwardHead, event.arg2)
    return Want(head.keyspace, head.method, [head.key])


def _all(event: CallReceived) -> Want:
    head = decode(AllHead, event.arg2)
    return Want("", head.endpoint or head.method, head.keys)


def _relay(event: CallReceived) -> Want:
    return Want("", decode(RelayHead, event.arg2).endpoint)


def _admin(event: CallReceived) -> Want:
    asked = decode_value("msgpack" if event.head.scheme == "msgpack" else "json", event.arg3)
    name = asked.get("name") if isinstance(asked, dict) else None
    return Want(name if isinstance(name, str) else "")


_READERS: Final[Mapping[str, Callable[[CallReceived], Want]]] = {
    **dict.fromkeys((messages.APPLY, ROUTED[messages.APPLY]), _apply),
    **dict.fromkeys((messages.READ, ROUTED[messages.READ]), _read),
    **dict.fromkeys((messages.SCAN, ROUTED[messages.SCAN]), _scan),
    **dict.fromkeys((COLUMNS, ROUTED[COLUMNS]), _columns),
    **dict.fromkeys((WATCH, CLIENT_WATCH), _watch),
    **dict.fromkeys((messages.ACTOR, ROUTED[messages.ACTOR], TELL), _mail),
    **dict.fromkeys((PROXY_ENDPOINT, FLOW_ENDPOINT), _http),
    MANY_ENDPOINT: _handler,
    RELAY_ENDPOINT: _relay,
    FORWARD_ENDPOINT: _forward,
    ALL_ENDPOINT: _all,
}
_WRITES: Final = frozenset({messages.APPLY, ROUTED[messages.APPLY]})


def _reader_of(service: str, endpoint: str) -> Callable[[CallReceived], Want] | None:
    if service != NODE_SERVICE:
        return _handler
    if endpoint.startswith("/keyspace/job/"):
        return _job
    return _admin if endpoint.startswith("/admin/keyspaces") else _READERS.get(endpoint)


def want_of(event: CallReceived) -> Want:
    """Return what a call asks for, as far as that can be read."""
    reader = _reader_of(event.head.service, event.head.endpoint)
    try:
        return Want() if reader is None else reader(event)
    except (BodyError, ConfigError):
        return Want()


def outcome_of(event: CallReceived, answer: Answer) -> str:
    """Return `DONE`, or the name of the first error in *answer*."""
    of_node, endpoint = event.head.service == NODE_SERVICE, event.head.endpoint
    try:
        if not answer.ok and of_node and endpoint.startswith("/admin/"):
            scheme = "msgpack" if event.head.scheme == "msgpack" else "json"
            return _error_in(decode_value(scheme, answer.arg3)) or FAILED
        if answer.ok and of_node and endpoint.startswith("/keyspace/"):
            results = results_in(answer.arg3) if endpoint in ROUTED.values() else answer.arg3
            return first_error(results, of_writes=endpoint in _WRITES) or DONE
    except BodyError:  # an answer without results
        pass
    return DONE if answer.ok else FAILED


def _error_in(value: object) -> str:
    return str(value.get("error", "")) if isinstance(value, dict) else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


class AuditLog:
    """Makes the lines of *file*."""

    def __init__(self, file: AuditFile) -> None:
        self._file = file

    def tell(self, who: str, what: str, want: Want, outcome: str) -> None:
        """Write a line; what *want* does not say is left out."""
        line: dict[str, object] = {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"}
        texts = {"who": who, "what": what, "operation": want.operation, "keyspace": want.keyspace}
        line |= {name: text[:TEXT_CHARACTERS_MAX] for name, text in texts.items() if text}
        if want.keys:
            line["keys"] = [key[:TEXT_CHARACTERS_MAX] for key in want.keys[:KEYS_MAX]]
        if len(want.keys) > KEYS_MAX:
            line["keys_count"] = len(want.keys)
        self._file.write(line | {"outcome": outcome})

    def of_http(self, path: str, endpoint: HttpEndpoint) -> HttpEndpoint:
        """Return *endpoint*, which answers all requests of *path*, with a line for each of them.

        Those that only look have none: they show no values and no rows.
        """

        @wraps(endpoint)
        async def audited(request: Request) -> Response:
            response = await endpoint(request)
            method = request.method
            if _is_telling(method, path) or response.status_code in REFUSALS:
                client, identity = request.client, request.state.identity
                who = "" if client is None else str(Address(*client))
                want, outcome = _http_want(request), _http_outcome(path, response)
                self.tell(str(identity or who), f"{method} {path}", want, outcome)
            return response

        return audited


def _is_telling(method: str, path: str) -> bool:
    """Return whether it changes something, or shows values or rows."""
    shows = "{keyspace}/keys" in path or path.endswith("/changes")
    looks = method in ("GET", "HEAD") and not shows
    return not looks or "/intervals/" in path


def _http_want(request: Request) -> Want:
    given = request.path_params
    changes = getattr(request.state, "changes", ())
    keys = getattr(request.state, "keys", ()) or [change.key for change in changes]
    if "key" in given:
        keys = [unquote(given["key"])]
    operation = unquote(given.get("operation", "")) or _names(each.aggregation for each in changes)
    return Want(unquote(given.get("keyspace", "")), operation, keys)


def _http_outcome(path: str, response: Response) -> str:
    is_done = response.status_code < ERRORS
    if is_done and not path.endswith("/update-many"):
        return DONE
    scheme = "msgpack" if "msgpack" in response.headers.get("content-type", "") else "json"
    try:
        said = decode_value(scheme, bytes(response.body))
    except BodyError:
        said = None
    rows = said.get("outcomes", [said]) if isinstance(said, dict) else []
    return next(filter(None, map(_error_in, rows)), DONE if is_done else FAILED)


class AuditedCalls(IncomingCalls):
    """The calls of one peer, each with a line when it ends, unless the peer is a member.

    Without keys, nobody proves to be one: who says that it listens somewhere is taken for one.
    """

    def __init__(
        self,
        audit: AuditLog,
        host: ServingHost,
        connection: Connection,
        writer: LinkWriter,
        peer_name: Callable[[], str],
    ) -> None:
        super().__init__(host, connection, writer, peer_name)
        self._audit = audit
        self._asked: dict[int, CallReceived] = {}
        self._send_answer, self._send_error = connection.send_answer, connection.send_error
        connection.send_answer = self._answered
        connection.send_error = self._failed

    def serve(self, event: CallReceived, now: float) -> None:
        """See `IncomingCalls`."""
        if self._is_audited(event):
            self._asked[event.id] = event
        super().serve(event, now)

    def cancel(self, call_id: int) -> None:
        """See `IncomingCalls`."""
        super().cancel(call_id)
        self._ended(call_id, lambda _event: "cancelled")

    def _is_audited(self, event: CallReceived) -> bool:
        identity = self.identity
        if identity is None and self._connection.peer_host_port not in ("", NO_LISTENER):
            return False
        if identity is not None and identity.role is Role.MEMBER:
            return False
        service, endpoint = event.head.service, event.head.endpoint
        served = self._host.handlers.served.get((service, endpoint))
        if service != NODE_SERVICE or served is None:
            return True
        if identity is not None and identity.role < served.role:
            return True  # it is refused
        looks = endpoint == "/health" or (
            endpoint.startswith("/admin/") and served.role <= Role.READER
        )
        return not looks and endpoint not in QUIET

    def _refuse(self, event: CallReceived, served: Served | None, now: float) -> None:
        if served is not None and self.identity is not None and self.identity.role < served.role:
            self._ended(event.id, lambda _event: FORBIDDEN)
        super()._refuse(event, served, now)

    def _answered(self, call_id: int, answer: Answer) -> bool:
        self._ended(call_id, lambda event: outcome_of(event, answer))
        return self._send_answer(call_id, answer)

    def _failed(self, call_id: int, code: ErrorCode, message: str) -> bool:
        self._ended(call_id, lambda _event: code.name.lower())
        return self._send_error(call_id, code, message)

    def _ended(self, call_id: int, outcome: Callable[[CallReceived], str]) -> None:
        event = self._asked.pop(call_id, None)
        if event is None:
            return
        head = event.head
        what = head.endpoint if head.service == NODE_SERVICE else f"{head.service} {head.endpoint}"
        who = str(self.identity or self.peer_name())
        self._audit.tell(who, what, want_of(event), outcome(event))


def audited(ringpop: Ringpop, path: str, endpoint: HttpEndpoint) -> HttpEndpoint:
    """Return *endpoint*, with `AuditLog.of_http` if the node has an audit log."""
    file = ringpop.reporter.audit
    return endpoint if file is None else AuditLog(file).of_http(path, endpoint)


def begin_audit(ringpop: Ringpop, path: str) -> None:
    """Have each access have a line in the file at *path*.

    Raises:
        ConfigError: it cannot be opened.
    """
    ringpop.reporter.audit = file = AuditFile(path)
    ringpop.channel.handlers.new_incoming = partial(AuditedCalls, AuditLog(file))
