"""The messages of the `ringpop` dialect as JSON, as Ringpop's other implementations have them.

Read as leniently as the Go implementation reads (`go_json`), for a peer that is refused over a
field stays outside for good. What Go takes and this node cannot use does not refuse the message
either: a row with an address or a status that makes no sense is left out, and so is a label
beyond the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from ringpop_py.address import NOWHERE, Address
from ringpop_py.errors import BodyError, ConfigError
from ringpop_py.swim.member import STATUS_BY_LABEL, Labels, Member, Status, labels_of_peer
from ringpop_py.swim.messages import (
    Ack,
    DampAck,
    DampReq,
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
from ringpop_py.values.go_json import Fields, Struct, decode_go_json
from ringpop_py.values.packed import TEXT_CHARACTERS_MAX, encode_value

PING: Final = "/protocol/ping"
PING_REQ: Final = "/protocol/ping-req"
JOIN: Final = "/protocol/join"
NANOSECONDS: Final = 1_000_000
"""In a millisecond."""
NATIVE_ONLY: Final = "the ringpop dialect has no such message"

_JOIN: Final = Struct("join", "app", "source", "incarnationNumber", "timeout", "labels")
_PING: Final = Struct("ping", "app", "source", "sourceIncarnationNumber", "checksum", "changes")
_PING_REQ: Final = Struct(
    "ping-req", "app", "source", "sourceIncarnationNumber", "checksum", "changes", "target"
)
_ACK: Final = Struct(
    "answer to a ping", "app", "source", "sourceIncarnationNumber", "checksum", "changes"
)
_PING_REQ_ACK: Final = Struct("answer to a ping-req", "pingStatus", "target", "changes")
_JOIN_ACK: Final = Struct(
    "answer to a join", "app", "coordinator", "membership", "membershipChecksum"
)
_CHANGE: Final = Struct(
    "row",
    "source",
    "sourceIncarnationNumber",
    "address",
    "incarnationNumber",
    "status",
    "tombstone",
    "labels",
    "timestamp",
    "id",
)


LeftOut = Callable[[str], None]
"""Told, in a phrase, of each part of a body that its message, as it is read, does not have."""


def nobody_asks(_what: str) -> None:
    """A `LeftOut` for those who need not know."""


def labels_left_out(count: int, member: object) -> str:
    """The phrase for labels beyond the limits."""
    return f"{count} labels of {member}, which are more or longer than this node keeps"


class JsonCodec:
    """The ringpop dialect's `Codec`; a member's name is its address."""

    endpoints = (PING, PING_REQ, JOIN)

    def __init__(self, left_out: LeftOut = nobody_asks) -> None:
        self._left_out = left_out

    def encode_request(self, request: Request) -> bytes:
        """See `Codec`."""
        body: dict[str, object]
        match request:
            case Ping():
                body = {"app": request.cluster, **_gossip_map(request)}
            case PingReq():
                body = {**_gossip_map(request), "target": request.target}
            case Join():
                body = {
                    "app": request.cluster,
                    "source": request.source,
                    "incarnationNumber": request.incarnation,
                    "timeout": request.timeout_ms * NANOSECONDS,
                }
            case DampReq() | Sync() | NameReq():
                raise AssertionError(NATIVE_ONLY)
            case _:
                assert_never(request)
        return encode_value("json", body)

    def decode_request(self, endpoint: str, body: bytes) -> Request:
        """See `Codec`."""
        value = decode_go_json(body)
        if endpoint == JOIN:
            fields = _JOIN.read(value)
            fields.texts("labels")  # of no use to us; but Go refuses a join whose labels are none
            source = fields.text("source")
            return Join(
                fields.text("app"),
                None,
                source,
                *_address_of(source, "source"),
                fields.int64("incarnationNumber"),
                fields.int64("timeout") // NANOSECONDS,
            )
        fields = (_PING if endpoint == PING else _PING_REQ).read(value)
        source = fields.text("source")
        said = (
            source,
            *_address_of(source, "source"),
            fields.int64("sourceIncarnationNumber"),
            fields.uint32("checksum"),
        )
        cluster = fields.text("app") or None
        changes = self._changes(fields.items("changes"))
        if endpoint == PING:
            return Ping(cluster, None, *said, changes)
        assert endpoint == PING_REQ
        target = fields.text("target")
        return PingReq(cluster, *said, target, *_address_of(target, "target"), changes)

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
                        _change_map(
                            MemberChange(
                                member=member, source=source, source_incarnation=incarnation
                            )
                        )
                        for member in members
                    ],
                    "membershipChecksum": checksum,
                }
            case Refusal(kind, message):
                body = {"type": f"ringpop.{kind}", "message": message}
            case DampAck() | SyncAck() | NameAck():
                raise AssertionError(NATIVE_ONLY)
            case _:
                assert_never(response)
        return encode_value("json", body)

    def decode_response(self, request: Request, body: bytes, *, ok: bool) -> Response:
        """See `Codec`."""
        if not ok:
            return _refusal_in(body)
        value = decode_go_json(body)
        match request:
            case Ping():
                fields = _ACK.read(value)
                fields.text("app")  # its zero, from every implementation; another type is refused
                return Ack(
                    fields.text("source"),
                    fields.int64("sourceIncarnationNumber"),
                    fields.uint32("checksum"),
                    self._changes(fields.items("changes")),
                )
            case PingReq():
                fields = _PING_REQ_ACK.read(value)
                ping_ok = fields.flag("pingStatus")
                return PingReqAck(
                    fields.text("target"),
                    ping_ok,
                    self._changes(fields.items("changes")),
                    "" if ping_ok else "timeout",  # it does not say how the ping failed
                )
            case Join():
                fields = _JOIN_ACK.read(value)
                return JoinAck(
                    fields.text("app"),
                    fields.text("coordinator"),
                    0,
                    fields.uint32("membershipChecksum"),
                    tuple(c.member for c in self._changes(fields.items("membership"))),
                )
            case DampReq() | Sync() | NameReq():
                raise AssertionError(NATIVE_ONLY)
            case _:
                assert_never(request)

    def _changes(self, rows: list[Any]) -> tuple[MemberChange, ...]:
        changes = (self._change(_CHANGE.read(row)) for row in rows)
        return tuple(change for change in changes if change is not None)

    def _change(self, fields: Fields) -> MemberChange | None:
        """The change in a row; None if it speaks of no member that there could be."""
        fields.int64("timestamp")  # of no use to us; but Go refuses one that is no whole number
        name, status_label = fields.text("address"), fields.text("status")
        incarnation, tombstone = fields.int64("incarnationNumber"), fields.flag("tombstone")
        source, said_at = fields.text("source"), fields.int64("sourceIncarnationNumber")
        labels = fields.texts("labels")
        try:
            address = Address.parse(name, what="its address")
        except ConfigError as error:
            self._left_out(f"a row: {error}")
            return None
        status = STATUS_BY_LABEL.get(status_label)
        if status is None:
            known = ", ".join(STATUS_BY_LABEL)
            self._left_out(f"the row of {address}: its status {status_label!r} is none of {known}")
            return None
        if status is Status.FAULTY and tombstone:
            status = Status.TOMBSTONE
        kept = self._labels(labels, address) if labels else ()
        return MemberChange(
            member=Member(str(address), *address, incarnation, status, kept),
            source=source,
            source_incarnation=said_at,
        )

    def _labels(self, labels: dict[str, str], address: Address) -> Labels:
        kept, dropped_count = labels_of_peer(labels)
        if dropped_count:
            self._left_out(labels_left_out(dropped_count, address))
        return kept


def _address_of(name: str, what: str) -> Address:
    """Where the peer *name* listens: its name says so, unless it does not say who it is."""
    if not name:
        return NOWHERE
    try:
        return Address.parse(name, what=what)
    except ConfigError as error:
        raise BodyError(str(error)) from None


def _refusal_in(body: bytes) -> Refusal:
    """The error in *body*, in whatever form: some peers answer with bare text."""
    try:
        value = decode_go_json(body)
    except BodyError:
        value = body.decode("utf-8", "replace")
    kind, message = "error", value
    if isinstance(value, dict):
        kind, message = value.get("type") or kind, value.get("message")
    return Refusal(_as_text(kind).removeprefix("ringpop."), _as_text(message))


def _as_text(value: object) -> str:
    text = value if isinstance(value, str) else encode_value("json", value).decode()
    return "" if value is None else text[:TEXT_CHARACTERS_MAX]


def _gossip_map(request: Ping | PingReq) -> dict[str, object]:
    return {
        "checksum": request.checksum,
        "changes": [_change_map(change) for change in request.changes],
        "source": request.source,
        "sourceIncarnationNumber": request.source_incarnation,
    }


def _change_map(change: MemberChange) -> dict[str, object]:
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
