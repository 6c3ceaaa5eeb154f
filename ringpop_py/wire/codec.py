"""The node's own messages as bytes, in the two dialects.

`JsonCodec` writes what the existing implementations read; `MsgpackCodec` writes rows without
field names, the fields in the order of the classes in `membership.messages`.
"""

from __future__ import annotations

import functools
import itertools
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never, get_args

from ringpop_py.address import PORT_MAX
from ringpop_py.config import NAME_CHARACTERS_MAX, SYNC_ROWS_RANGE
from ringpop_py.errors import BodyError
from ringpop_py.membership.buckets import BITS_MAX
from ringpop_py.membership.member import IDENTITY_LABEL, STATUS_BY_LABEL, Labels, Member, Status
from ringpop_py.membership.messages import (
    DAMP_NAMES_MAX,
    Ack,
    Change,
    DampAck,
    DampReq,
    FailureReason,
    Join,
    JoinAck,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
    Request,
    Response,
    Sync,
    SyncAck,
)
from ringpop_py.wire.values import (
    INTEGER_MAX,
    a_bool,
    a_list,
    a_map,
    a_row,
    a_text,
    address_from,
    an_address,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.address import Address
    from ringpop_py.dialect import Dialect

PING: Final = "/protocol/ping"
PING_REQ: Final = "/protocol/ping-req"
JOIN: Final = "/protocol/join"
DAMP_REQ: Final = "/protocol/damp-req"
SYNC: Final = "/protocol/sync"
RINGPOP_ENDPOINTS: Final = (PING, PING_REQ, JOIN)
NATIVE_ENDPOINTS: Final = (*RINGPOP_ENDPOINTS, DAMP_REQ, SYNC)

CHECKSUM_MAX: Final = (1 << 64) - 1
LABELS_RECEIVED_MAX: Final = 16
LABEL_CHARACTERS_MAX: Final = 256
FAILURE_REASONS: Final = frozenset(get_args(FailureReason))
NANOSECONDS: Final = 1_000_000_000
NATIVE_ONLY: Final = "the ringpop dialect has no such message"


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


def codec_for(dialect: Dialect) -> Codec:
    """The codec of *dialect*."""
    return MsgpackCodec() if dialect.scheme == "msgpack" else JsonCodec()


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
        case _:
            assert_never(request)


# msgpack


class MsgpackCodec:
    """The native dialect's."""

    endpoints = NATIVE_ENDPOINTS

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
                _changes_from_rows(row[7]),
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
                _changes_from_rows(row[9]),
            )
        if endpoint == DAMP_REQ:
            return _damp_req_from_row(a_row(value, 6, "damp-req"))
        if endpoint == SYNC:
            return _sync_from_row(a_row(value, 10, "sync"))
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
            case Refusal(kind, message):
                body = [kind, message]
            case _:
                assert_never(response)
        return encode_value("msgpack", body)

    def decode_response(self, request: Request, body: bytes, *, ok: bool) -> Response:
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
                    _changes_from_rows(row[3]),
                )
            case PingReq():
                row = a_row(value, 3, "ping-req ack")
                ping_ok = a_bool(row[1], "ping status")
                said = a_text(row[3], "failure") if len(row) > 3 else ""  # noqa: PLR2004 - optional
                return PingReqAck(
                    a_text(row[0], "target"),
                    ping_ok,
                    _changes_from_rows(row[2]),
                    _failure(said, ping_ok=ping_ok),
                )
            case Join():
                row = a_row(value, 5, "join ack")
                return JoinAck(
                    a_text(row[0], "cluster"),
                    a_text(row[1], "source"),
                    an_integer(row[2], "incarnation"),
                    _checksum(row[3]),
                    tuple(_member_from_row(m) for m in a_list(row[4], "members")),
                    len(row) > 5 and a_bool(row[5], "more"),  # noqa: PLR2004 - added later
                )
            case DampReq():
                return _damp_ack_from_row(a_row(value, 1, "damp ack"))
            case Sync():
                return _sync_ack_from_row(a_row(value, 6, "sync ack"))
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


def _few(value: object, what: str) -> list[Any]:
    items = a_list(value, what)
    if len(items) > DAMP_NAMES_MAX:
        message = f"{what} are more than {DAMP_NAMES_MAX}"
        raise BodyError(message)
    return items


def _sync_from_row(row: list[Any]) -> Sync:
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
        _rows(row[9]),
    )


def _sync_ack_from_row(row: list[Any]) -> SyncAck:
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
        _rows(row[5]),
    )


def _sums(value: object, count: int) -> tuple[int, ...]:
    """*count* numbers of 8 bytes, or none."""
    data = some_bytes(value, "sums")
    if len(data) not in (0, 8 * count):
        message = f"sums are not {count} of 8 bytes"
        raise BodyError(message)
    return struct.unpack(f">{len(data) // 8}Q", data)


def _rows(value: object) -> tuple[Member, ...]:
    rows = a_list(value, "rows")
    if len(rows) > SYNC_ROWS_RANGE[1]:
        message = f"more than {SYNC_ROWS_RANGE[1]} rows"
        raise BodyError(message)
    return tuple(_member_from_row(row) for row in rows)


def _row(member: Member) -> list[object]:
    host, port = member.address
    row: list[object] = [member.name, host, port, member.incarnation, int(member.status)]
    if member.labels or member.damping:
        row.append(dict(member.labels))
    if member.damping:
        row.append(member.damping)
    return row


def _change_row(change: Change) -> list[object]:
    return [change.source, change.source_incarnation, _row(change.member)]


def _member_from_row(value: object) -> Member:
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
        _labels(row[5]) if len(row) > 5 else (),  # noqa: PLR2004 - the optional last fields
        an_integer(row[6], "damping") if len(row) > 6 else 0,  # noqa: PLR2004
    )


@functools.lru_cache(maxsize=4096)
def _address_of(host: str, port: int) -> Address:
    return an_address(host, port, "member address")


def _changes_from_rows(value: object) -> tuple[Change, ...]:
    changes = []
    for item in a_list(value, "changes"):
        row = a_row(item, 3, "change")
        source, incarnation = a_text(row[0], "source"), an_integer(row[1], "incarnation")
        changes.append(Change(_member_from_row(row[2]), source, incarnation))
    return tuple(changes)


# JSON


class JsonCodec:
    """The ringpop dialect's; a member's name is its address."""

    endpoints = RINGPOP_ENDPOINTS

    def encode_request(self, request: Request) -> bytes:
        """See `Codec`."""
        body: dict[str, object]
        match request:
            case Ping():
                body = {"app": request.cluster, **_gossip_map(request)}
            case PingReq():
                body = {**_gossip_map(request), "target": str(request.target_address)}
            case Join():
                body = {
                    "app": request.cluster,
                    "source": str(request.source_address),
                    "incarnationNumber": request.incarnation,
                    "timeout": round(request.timeout_s * NANOSECONDS),
                }
            case DampReq() | Sync():
                raise AssertionError(NATIVE_ONLY)
            case _:
                assert_never(request)
        return encode_value("json", body)

    def decode_request(self, endpoint: str, body: bytes) -> Request:
        """See `Codec`."""
        value = a_map(decode_value("json", body), "body")
        app = value.get("app")
        cluster = None if app in (None, "") else a_text(app, "app")
        source = address_from(value.get("source"), "source")
        if endpoint == JOIN:
            return Join(
                cluster or "",
                None,
                str(source),
                source,
                an_integer(value.get("incarnationNumber", 0), "incarnationNumber"),
                _number(value.get("timeout")) / NANOSECONDS,
            )
        incarnation = an_integer(
            value.get("sourceIncarnationNumber") or 0, "sourceIncarnationNumber"
        )
        checksum = _checksum(value.get("checksum"))
        changes = _changes_from_maps(value.get("changes"))
        if endpoint == PING:
            return Ping(cluster, None, str(source), source, incarnation, checksum, changes)
        assert endpoint == PING_REQ
        target = address_from(value.get("target"), "target")
        return PingReq(
            cluster, str(source), source, incarnation, checksum, str(target), target, changes
        )

    def encode_response(self, response: Response) -> bytes:
        """See `Codec`."""
        body: dict[str, object]
        match response:
            case Ack(source, incarnation, checksum, changes):
                body = {
                    "checksum": checksum,
                    "changes": [_change_map(change) for change in changes],
                    "source": source,
                    "sourceIncarnationNumber": incarnation,
                    "app": "",
                }
            case PingReqAck(target, ping_ok, changes, _):
                body = {
                    "changes": [_change_map(change) for change in changes],
                    "pingStatus": ping_ok,
                    "target": target,
                }
            case JoinAck(cluster, source, incarnation, checksum, members):
                body = {
                    "app": cluster,
                    "coordinator": source,
                    "membership": [
                        _change_map(Change(member, source, incarnation)) for member in members
                    ],
                    "membershipChecksum": checksum,
                }
            case Refusal(kind, message):
                body = {"type": f"ringpop.{kind}", "message": message}
            case DampAck() | SyncAck():
                raise AssertionError(NATIVE_ONLY)
            case _:
                assert_never(response)
        return encode_value("json", body)

    def decode_response(self, request: Request, body: bytes, *, ok: bool) -> Response:
        """See `Codec`."""
        value = decode_value("json", body)
        if not ok:
            error = value if isinstance(value, dict) else {}
            kind = a_text(error.get("type") or "error", "type").removeprefix("ringpop.")
            return Refusal(kind, a_text(error.get("message") or "", "message"))
        value = a_map(value, "body")
        match request:
            case Ping():
                if "changes" not in value:
                    message = "a ping's answer without changes"
                    raise BodyError(message)
                return Ack(
                    a_text(value.get("source") or "", "source"),
                    an_integer(value.get("sourceIncarnationNumber") or 0, "incarnation"),
                    _checksum(value.get("checksum")),
                    _changes_from_maps(value["changes"]),
                )
            case PingReq():
                ping_ok = a_bool(value.get("pingStatus"), "pingStatus")
                return PingReqAck(
                    a_text(value.get("target") or request.target, "target"),
                    ping_ok,
                    _changes_from_maps(value.get("changes")),
                    _failure("", ping_ok=ping_ok),
                )
            case Join():
                coordinator = a_text(value.get("coordinator") or "", "coordinator")
                changes = _changes_from_maps(value.get("membership"))
                return JoinAck(
                    a_text(value.get("app"), "app"),
                    coordinator,
                    0,
                    _checksum(value.get("membershipChecksum")),
                    tuple(change.member for change in changes),
                )
            case DampReq() | Sync():
                raise AssertionError(NATIVE_ONLY)
            case _:
                assert_never(request)


def _gossip_map(request: Ping | PingReq) -> dict[str, object]:
    return {
        "checksum": request.checksum,
        "changes": [_change_map(change) for change in request.changes],
        "source": str(request.source_address),
        "sourceIncarnationNumber": request.source_incarnation,
    }


def _change_map(change: Change) -> dict[str, object]:
    member = change.member
    value: dict[str, object] = {}
    if change.source:
        value["source"] = change.source
        value["sourceIncarnationNumber"] = change.source_incarnation
    value["address"] = str(member.address)
    value["incarnationNumber"] = member.incarnation
    if member.status is Status.TOMBSTONE:
        # Older peers do not know tombstones: to them it is a faulty member with a mark.
        value["status"] = Status.FAULTY.label
        value["tombstone"] = True
    else:
        value["status"] = member.status.label
    if member.labels:
        value["labels"] = dict(member.labels)
    return value


def _changes_from_maps(value: object) -> tuple[Change, ...]:
    return tuple(_change_from_map(item) for item in a_list(value, "changes"))


def _change_from_map(item: object) -> Change:
    value = a_map(item, "change")
    address = address_from(value.get("address"), "address")
    status = STATUS_BY_LABEL.get(a_text(value.get("status"), "status"))
    if status is None:
        message = "status is not one of " + ", ".join(STATUS_BY_LABEL)
        raise BodyError(message)
    if status is Status.FAULTY and value.get("tombstone") is True:
        status = Status.TOMBSTONE
    incarnation = an_integer(value.get("incarnationNumber"), "incarnationNumber")
    member = Member(str(address), address, incarnation, status, _labels(value.get("labels")))
    source = a_text(value.get("source") or "", "source")
    return Change(member, source, an_integer(value.get("sourceIncarnationNumber") or 0, "source"))


# Both


def _labels(value: object) -> Labels:
    labels: list[tuple[str, str]] = []
    for key, text in _items({} if value is None else a_map(value, "labels")):
        # One label too many or too long is dropped; the change itself still counts.
        if len(labels) < LABELS_RECEIVED_MAX or key == IDENTITY_LABEL:
            labels.append((key, text))
    return tuple(sorted(labels))


def _items(labels: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in sorted(labels.items()):
        sound = isinstance(value, str) and max(len(key), len(value)) <= LABEL_CHARACTERS_MAX
        if sound:
            yield key, value


def _failure(said: str, *, ping_ok: bool) -> str:
    """How a helper's ping failed; who does not say so has seen nothing but silence."""
    if ping_ok:
        return ""
    return said if said in FAILURE_REASONS else "failed" if said else "timeout"


def _checksum(value: object, what: str = "checksum") -> int | None:
    return None if value is None else an_integer(value, what, maximum=CHECKSUM_MAX)


def _number(value: object) -> float:
    """*value* if it is a number within the integers that we read, and else 0."""
    if not isinstance(value, int | float) or not 0 <= value <= INTEGER_MAX:
        return 0.0
    return float(value)
