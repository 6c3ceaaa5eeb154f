"""The node's own messages as bytes, in the two dialects.

`JsonCodec` (`ringpop_codec`) writes what the existing implementations read; `MsgpackCodec` writes
rows without field names, the fields in the order of the classes in `swim.messages`.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final, get_args

from ringpop_py.base.address import HOST_PATTERN
from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import astuple, encode, reader, replace
from ringpop_py.member.swim.member import Labels, Member, labels_of_peer
from ringpop_py.member.swim.messages import (
    Ack,
    DampAck,
    DampReq,
    FailureReason,
    Join,
    JoinAck,
    NameAck,
    NameReq,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
    Request,
    Response,
    Sync,
    SyncAck,
)
from ringpop_py.net.wire.ringpop_codec import JOIN as JOIN
from ringpop_py.net.wire.ringpop_codec import PING as PING
from ringpop_py.net.wire.ringpop_codec import PING_REQ as PING_REQ
from ringpop_py.net.wire.ringpop_codec import JsonCodec as JsonCodec
from ringpop_py.net.wire.ringpop_codec import LeftOut, labels_left_out, nobody_asks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.base.dialect import Dialect

DAMP_REQ: Final = "/protocol/damp-req"
SYNC: Final = "/protocol/sync"
NAME_REQ: Final = "/protocol/name-req"

FAILURE_REASONS: Final = frozenset(get_args(FailureReason))


class MsgpackCodec:
    """The native dialect's `Codec`: a message is the row of its fields, in their order.

    The empty fields at the end of a member's row are omitted: most members have no labels.

    Attributes:
        endpoints: those of the dialect's requests.
    """

    endpoints = (PING, PING_REQ, JOIN, DAMP_REQ, SYNC, NAME_REQ)

    def __init__(self, left_out: LeftOut = nobody_asks) -> None:
        self._left_out = left_out
        self._cut: dict[int, int] = {}
        self._read: dict[type[Request | Response], Callable[[bytes], Any]] = {
            kind: reader(kind, self._labels_of) for kind in (*_ANSWERS, *_ANSWERS.values(), Refusal)
        }

    def encode_request(self, request: Request) -> bytes:
        """Return the body of *request*; its endpoint is `endpoint_of`."""
        return _encoded(request)

    def decode_request(self, endpoint: str, body: bytes) -> Request:
        """Return the request in *body*, called at *endpoint* (one of `endpoints`)."""
        request: Request = self._decoded(_REQUESTS[endpoint], body)
        if request.cluster is None:
            raise BodyError(f"{type(request).__name__}: cluster: Expected `str`, got `null`")
        return request

    def encode_response(self, response: Response) -> bytes:
        """Return the body of *response*; a `Refusal` travels as an application error."""
        return _encoded(response)

    def decode_response(self, request: Request, body: bytes, *, ok: bool) -> Response:
        """Return the response to *request* in *body*."""
        kind = _ANSWERS[type(request)] if ok else Refusal
        response: Response = self._decoded(kind, body)
        if isinstance(response, PingReqAck):
            return replace(response, failure=_failure(response))
        return response

    def _decoded(self, kind: type[Request | Response], body: bytes) -> Any:  # noqa: ANN401 - a *kind*
        message = self._read[kind](body)
        members = _members_in(message)
        for member in members:
            _check_place(member.name, member.host)
        if self._cut:
            for member in members:
                if count := self._cut.pop(id(member.labels), 0):
                    self._left_out(labels_left_out(count, member.name))
            self._cut.clear()
        return message

    def _labels_of(self, kind: type[Any], value: object) -> Labels:
        if value is not None and not isinstance(value, dict):
            raise TypeError("Expected `object`")
        kept, dropped_count = labels_of_peer(value or {})
        labels: Labels = kind(kept)
        if dropped_count:
            # A hook does not know whose labels these are; `_decoded` finds the member by them.
            self._cut[id(labels)] = dropped_count
        return labels


Codec = MsgpackCodec | JsonCodec
"""Requests and responses as the body of a call (arg3), and back; the decoders raise `BodyError`."""


def codec_for(dialect: Dialect, left_out: LeftOut = nobody_asks) -> Codec:
    """Return the codec of *dialect*; for *left_out* see `LeftOut`."""
    return MsgpackCodec(left_out) if dialect.scheme == "msgpack" else JsonCodec(left_out)


def endpoint_of(request: Request) -> str:
    """Return the endpoint where *request* is called."""
    return _ENDPOINTS[type(request)]


_ANSWERS: Final[dict[type[Request], type[Response]]] = {
    Ping: Ack,
    PingReq: PingReqAck,
    Join: JoinAck,
    DampReq: DampAck,
    Sync: SyncAck,
    NameReq: NameAck,
}
_REQUESTS: Final = dict(zip(MsgpackCodec.endpoints, _ANSWERS, strict=True))
_ENDPOINTS: Final = {kind: endpoint for endpoint, kind in _REQUESTS.items()}
_ROWS: Final = {
    kind: (place, name)
    for kind in (*_ANSWERS, *_ANSWERS.values())
    for place, name in enumerate(kind.__struct_fields__)
    if name in {"changes", "members", "rows"}
}
"""The place and the name of the field in which a message has members, or changes of members."""


def _encoded(message: Request | Response) -> bytes:
    place, name = _ROWS.get(type(message), (0, ""))
    if not name:
        return encode(message)
    fields: list[Any] = list(astuple(message))
    rows = fields[place]
    if name == "changes":
        fields[place] = [(c.source, c.source_incarnation, _row(c.member)) for c in rows]
    else:
        fields[place] = [_row(member) for member in rows]
    return encode(fields)


def _row(member: Member) -> tuple[object, ...]:
    row = member.name, member.host, member.port, member.incarnation, member.status
    if member.damping:
        return *row, dict(member.labels), member.damping
    return (*row, dict(member.labels)) if member.labels else row


def _members_in(message: Request | Response) -> Sequence[Member]:
    _, name = _ROWS.get(type(message), (0, ""))
    rows: Sequence[Any] = getattr(message, name, ())
    return [change.member for change in rows] if name == "changes" else rows


@functools.lru_cache(maxsize=4096)
def _check_place(name: str, host: str) -> None:
    # Types cannot express this. Cached, because the same rows come again and again.
    if not name.isprintable():
        raise BodyError(f"a member's name is not printable: {name!r:.100}")
    if not _is_host(host):
        raise BodyError(f"member {name}: {host!r:.100} is not a host")


_is_host: Final = re.compile(HOST_PATTERN).fullmatch


def _failure(ack: PingReqAck) -> str:
    # A helper that does not say how its ping failed has met only silence.
    if ack.ping_ok:
        return ""
    return ack.failure if ack.failure in FAILURE_REASONS else "failed" if ack.failure else "timeout"
