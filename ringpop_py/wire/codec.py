"""The node's own messages as bytes, in the two dialects.

`JsonCodec` (`ringpop_codec`) writes what the existing implementations read; `MsgpackCodec` writes
rows without field names, the fields in the order of the classes in `membership.messages`.
"""

from __future__ import annotations

import functools
import itertools
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never, get_args

from ringpop_py.address import PORT_MAX
from ringpop_py.config.settings import NAME_CHARACTERS_MAX, SYNC_ROWS_RANGE
from ringpop_py.errors import BodyError
from ringpop_py.swim.buckets import BITS_MAX
from ringpop_py.swim.member import Labels, Member, Status, labels_of_peer
from ringpop_py.swim.messages import (
    DAMP_NAMES_MAX,
    Ack,
    DampAck,
    DampReq,
    FailureReason,
    Join,
    JoinAck,
    MemberChange,
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
from ringpop_py.values.packed import (
    a_bool,
    a_list,
    a_map,
    a_row,
    a_text,
    an_address,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)
from ringpop_py.wire.ringpop_codec import JOIN as JOIN
from ringpop_py.wire.ringpop_codec import PING as PING
from ringpop_py.wire.ringpop_codec import PING_REQ as PING_REQ
from ringpop_py.wire.ringpop_codec import JsonCodec as JsonCodec
from ringpop_py.wire.ringpop_codec import LeftOut, labels_left_out, nobody_asks

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.dialect import Dialect

DAMP_REQ: Final = "/protocol/damp-req"
SYNC: Final = "/protocol/sync"
NAME_REQ: Final = "/protocol/name-req"

CHECKSUM_MAX: Final = (1 << 64) - 1
FAILURE_REASONS: Final = frozenset(get_args(FailureReason))


class Codec(Protocol):
    """Requests and responses as the body of a call (arg3), and back.

    Both decoders raise `BodyError` on anything that is not what it should be.
    """

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where the dialect's requests are called."""

    def encode_request(self, request: Request) -> bytes:
        """The body of *request*; its endpoint is `endpoint_of`."""

    def decode_request(self, endpoint: str, body: bytes) -> Request:
        """The request in *body*, called at *endpoint* (one of `endpoints`)."""

    def encode_response(self, response: Response) -> bytes:
        """The body of *response*; a `Refusal` travels as an application error."""

    def decode_response(self, request: Request, body: bytes, *, ok: bool) -> Response:
        """The response to *request* in *body*."""


def codec_for(dialect: Dialect, left_out: LeftOut = nobody_asks) -> Codec:
    """The codec of *dialect*; for *left_out* see `LeftOut`."""
    return MsgpackCodec(left_out) if dialect.scheme == "msgpack" else JsonCodec(left_out)


def endpoint_of(request: Request) -> str:
    """Where *request* is called."""
    match request:
        case Ping():
            return PING
        case PingReq():
            return PING_REQ
        case Join():
            return JOIN
        case DampReq():
            return DAMP_REQ
        case Sync():
            return SYNC
        case NameReq():
            return NAME_REQ
        case _:
            assert_never(request)


# msgpack


class MsgpackCodec:
    """The native dialect's."""

    endpoints = (PING, PING_REQ, JOIN, DAMP_REQ, SYNC, NAME_REQ)

    def __init__(self, left_out: LeftOut = nobody_asks) -> None:
        self._left_out = left_out

    def encode_request(self, request: Request) -> bytes:
        """See `Codec`."""
        body: list[object]
        match request:
            case Ping(cluster, points, source, address, incarnation, checksum, changes, digest):
                body = [cluster, points, source, *address, incarnation, checksum]
                body += [[_change_row(change) for change in changes], digest]
            case PingReq(cluster, source, address, incarnation, checksum, target, at, changes):
                body = [cluster, source, *address, incarnation, checksum, target, *at]
                body.append([_change_row(change) for change in changes])
            case Join(cluster, points, source, address, incarnation, timeout_s):
                body = [cluster, points, source, *address, incarnation, round(timeout_s * 1000)]
            case DampReq(cluster, source, address, incarnation, names):
                body = [cluster, source, *address, incarnation, list(names)]
            case Sync(cluster, points, source, address, incarnation, bits, first, sums, rows):
                body = [cluster, points, source, *address, incarnation, bits, first]
                body += [struct.pack(f">{len(sums)}Q", *sums), [_row(row) for row in rows]]
            case NameReq(cluster, source, address, incarnation, since_ms, joined):
                body = [cluster, source, *address, incarnation, since_ms, joined]
            case _:
                assert_never(request)
        return encode_value("msgpack", body)

    def decode_request(self, endpoint: str, body: bytes) -> Request:
        """See `Codec`."""
        value = decode_value("msgpack", body)
        if endpoint == PING:
            row = a_row(value, 8, "ping")
            return Ping(
                a_text(row[0], "cluster"),
                None if row[1] is None else an_integer(row[1], "ring points"),
                a_text(row[2], "source"),
                an_address(row[3], row[4], "source address"),
                an_integer(row[5], "incarnation"),
                _checksum(row[6]),
                _changes_from_rows(row[7], self._left_out),
                _checksum(row[8], "digest") if len(row) > 8 else None,  # noqa: PLR2004 - added later
            )
        if endpoint == PING_REQ:
            row = a_row(value, 10, "ping-req")
            return PingReq(
                a_text(row[0], "cluster"),
                a_text(row[1], "source"),
                an_address(row[2], row[3], "source address"),
                an_integer(row[4], "incarnation"),
                _checksum(row[5]),
                a_text(row[6], "target"),
                an_address(row[7], row[8], "target address"),
                _changes_from_rows(row[9], self._left_out),
            )
        if endpoint == DAMP_REQ:
            return _damp_req_from_row(a_row(value, 6, "damp-req"))
        if endpoint == SYNC:
            return _sync_from_row(a_row(value, 10, "sync"), self._left_out)
        if endpoint == NAME_REQ:
            row = a_row(value, 7, "name-req")
            return NameReq(a_text(row[0], "cluster"), *_tenure_from_row(row[1:]))
        assert endpoint == JOIN
        row = a_row(value, 7, "join")
        return Join(
            a_text(row[0], "cluster"),
            None if row[1] is None else an_integer(row[1], "ring points"),
            a_text(row[2], "source"),
            an_address(row[3], row[4], "source address"),
            an_integer(row[5], "incarnation"),
            an_integer(row[6], "timeout") / 1000,
        )

    def encode_response(self, response: Response) -> bytes:
        """See `Codec`."""
        body: list[object]
        match response:
            case Ack(source, incarnation, checksum, changes):
                body = [source, incarnation, checksum, [_change_row(c) for c in changes]]
            case PingReqAck(target, ping_ok, changes, failure):
                body = [target, ping_ok, [_change_row(change) for change in changes], failure]
            case JoinAck(cluster, source, incarnation, checksum, members, more):
                body = [cluster, source, incarnation, checksum, [_row(m) for m in members], more]
            case DampAck(scores):
                body = [[list(score) for score in scores]]
            case SyncAck(source, checksum, bits, until, buckets, members):
                body = [source, checksum, bits, until, buckets, [_row(m) for m in members]]
            case NameAck(source, address, incarnation, since_ms, joined):
                body = [source, *address, incarnation, since_ms, joined]
            case Refusal(kind, message):
                body = [kind, message]
            case _:
                assert_never(response)
        return encode_value("msgpack", body)

    def decode_response(  # noqa: PLR0911 - one for each kind of message
        self, request: Request, body: bytes, *, ok: bool
    ) -> Response:
        """See `Codec`."""
        value = decode_value("msgpack", body)
        if not ok:
            row = a_row(value, 2, "refusal")
            return Refusal(a_text(row[0], "kind"), a_text(row[1], "message"))
        match request:
            case Ping():
                row = a_row(value, 4, "ack")
                return Ack(
                    a_text(row[0], "source"),
                    an_integer(row[1], "incarnation"),
                    _checksum(row[2]),
                    _changes_from_rows(row[3], self._left_out),
                )
            case PingReq():
                row = a_row(value, 3, "ping-req ack")
                ping_ok = a_bool(row[1], "ping status")
                said = a_text(row[3], "failure") if len(row) > 3 else ""  # noqa: PLR2004 - optional
                return PingReqAck(
                    a_text(row[0], "target"),
                    ping_ok,
                    _changes_from_rows(row[2], self._left_out),
                    _failure(said, ping_ok=ping_ok),
                )
            case Join():
                row = a_row(value, 5, "join ack")
                return JoinAck(
                    a_text(row[0], "cluster"),
                    a_text(row[1], "source"),
                    an_integer(row[2], "incarnation"),
                    _checksum(row[3]),
                    tuple(_member_from_row(m, self._left_out) for m in a_list(row[4], "members")),
                    len(row) > 5 and a_bool(row[5], "more"),  # noqa: PLR2004 - added later
                )
            case DampReq():
                return _damp_ack_from_row(a_row(value, 1, "damp ack"))
            case Sync():
                return _sync_ack_from_row(a_row(value, 6, "sync ack"), self._left_out)
            case NameReq():
                return NameAck(*_tenure_from_row(a_row(value, 6, "name ack")))
            case _:
                assert_never(request)


def _damp_req_from_row(row: list[Any]) -> DampReq:
    return DampReq(
        a_text(row[0], "cluster"),
        a_text(row[1], "source"),
        an_address(row[2], row[3], "source address"),
        an_integer(row[4], "incarnation"),
        tuple(a_text(name, "name") for name in _few(row[5], "names")),
    )


def _damp_ack_from_row(row: list[Any]) -> DampAck:
    scores = [a_row(item, 2, "score") for item in _few(row[0], "scores")]
    return DampAck(tuple((a_text(s[0], "name"), an_integer(s[1], "score")) for s in scores))


def _tenure_from_row(row: list[Any]) -> tuple[str, Address, int, int, bool]:
    return (
        a_text(row[0], "source"),
        an_address(row[1], row[2], "source address"),
        an_integer(row[3], "incarnation"),
        an_integer(row[4], "since"),
        a_bool(row[5], "joined"),
    )


def _few(value: object, what: str) -> list[Any]:
    items = a_list(value, what)
    if len(items) > DAMP_NAMES_MAX:
        message = f"{what} are more than {DAMP_NAMES_MAX}"
        raise BodyError(message)
    return items


def _sync_from_row(row: list[Any], left_out: LeftOut) -> Sync:
    bits = an_integer(row[6], "bits", maximum=BITS_MAX)
    first = an_integer(row[7], "first bucket", maximum=1 << bits)
    return Sync(
        a_text(row[0], "cluster"),
        an_integer(row[1], "ring points"),
        a_text(row[2], "source"),
        an_address(row[3], row[4], "source address"),
        an_integer(row[5], "incarnation"),
        bits,
        first,
        _sums(row[8], (1 << bits) - first),
        _rows(row[9], left_out),
    )


def _sync_ack_from_row(row: list[Any], left_out: LeftOut) -> SyncAck:
    bits = an_integer(row[2], "bits", maximum=BITS_MAX)
    until = an_integer(row[3], "until", maximum=1 << bits)
    buckets = tuple(an_integer(b, "bucket", maximum=until) for b in a_list(row[4], "buckets"))
    if any(b <= a for a, b in itertools.pairwise(buckets)) or until in buckets[-1:]:
        message = "buckets are not in order, or beyond their end"
        raise BodyError(message)
    return SyncAck(
        a_text(row[0], "source"),
        an_integer(row[1], "checksum", maximum=CHECKSUM_MAX),
        bits,
        until,
        buckets,
        _rows(row[5], left_out),
    )


def _sums(value: object, count: int) -> tuple[int, ...]:
    """*count* numbers of 8 bytes, or none."""
    data = some_bytes(value, "sums")
    if len(data) not in (0, 8 * count):
        message = f"sums are not {count} of 8 bytes"
        raise BodyError(message)
    return struct.unpack(f">{len(data) // 8}Q", data)


def _rows(value: object, left_out: LeftOut) -> tuple[Member, ...]:
    rows = a_list(value, "rows")
    if len(rows) > SYNC_ROWS_RANGE[1]:
        message = f"more than {SYNC_ROWS_RANGE[1]} rows"
        raise BodyError(message)
    return tuple(_member_from_row(row, left_out) for row in rows)


def _row(member: Member) -> list[object]:
    host, port = member.address
    row: list[object] = [member.name, host, port, member.incarnation, int(member.status)]
    if member.labels or member.damping:
        row.append(dict(member.labels))
    if member.damping:
        row.append(member.damping)
    return row


def _change_row(change: MemberChange) -> list[object]:
    return [change.source, change.source_incarnation, _row(change.member)]


def _member_from_row(value: object, left_out: LeftOut) -> Member:
    row = a_row(value, 5, "member")
    status = an_integer(row[4], "status", maximum=max(Status))
    name = a_text(row[0], "name", length_max=NAME_CHARACTERS_MAX)
    if not name.isprintable() or not name:
        message = "name is empty or not printable"
        raise BodyError(message)
    return Member(
        name,
        _address_of(
            a_text(row[1], "member host"),
            an_integer(row[2], "member port", maximum=PORT_MAX),
        ),
        an_integer(row[3], "incarnation"),
        Status(status),
        _labels(row[5], name, left_out) if len(row) > 5 else (),  # noqa: PLR2004 - the optional last fields
        an_integer(row[6], "damping") if len(row) > 6 else 0,  # noqa: PLR2004
    )


@functools.lru_cache(maxsize=4096)
def _address_of(host: str, port: int) -> Address:
    return an_address(host, port, "member address")


def _changes_from_rows(value: object, left_out: LeftOut) -> tuple[MemberChange, ...]:
    changes = []
    for item in a_list(value, "changes"):
        row = a_row(item, 3, "change")
        source, incarnation = a_text(row[0], "source"), an_integer(row[1], "incarnation")
        changes.append(MemberChange(_member_from_row(row[2], left_out), source, incarnation))
    return tuple(changes)


def _labels(value: object, name: str, left_out: LeftOut) -> Labels:
    kept, dropped_count = labels_of_peer({} if value is None else a_map(value, "labels"))
    if dropped_count:
        left_out(labels_left_out(dropped_count, name))
    return kept


def _failure(said: str, *, ping_ok: bool) -> str:
    """How a helper's ping failed; who does not say so has seen nothing but silence."""
    if ping_ok:
        return ""
    return said if said in FAILURE_REASONS else "failed" if said else "timeout"


def _checksum(value: object, what: str = "checksum") -> int | None:
    return None if value is None else an_integer(value, what, maximum=CHECKSUM_MAX)
