"""The messages of the `ringpop` dialect as JSON, as Ringpop's other implementations have them.

They are read as leniently as the Go implementation reads (`go_json`): a peer that is refused over
a field stays outside for good. What Go accepts and this node cannot use is left out of its message:
a row whose address or status makes no sense, and labels beyond the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ringpop_py.base.address import NOWHERE, Address
from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values.declared import Text
from ringpop_py.base.values.go_json import GoObject, Int64, Texts, Uint32, decode_go_json, go_reader
from ringpop_py.base.values.packed import TEXT_CHARACTERS_MAX, encode_value
from ringpop_py.member.swim.member import STATUS_BY_LABEL, Member, Status, labels_of_peer
from ringpop_py.member.swim.messages import (
    Ack,
    Join,
    JoinAck,
    MemberChange,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
    Request,
    Response,
)

PING: Final = "/protocol/ping"
PING_REQ: Final = "/protocol/ping-req"
JOIN: Final = "/protocol/join"
NANOSECONDS: Final = 1_000_000
"""How many nanoseconds a millisecond has."""
NATIVE_ONLY: Final = "the ringpop dialect has no such message"


class _JoinBody(GoObject, frozen=True):
    app: Text = ""
    source: Text = ""
    incarnation_number: Int64 = 0
    timeout: Int64 = 0
    labels: Texts | None = None  # of no use to us; but Go refuses a join whose labels are not text


class _GossipBody(GoObject, frozen=True):
    app: Text = ""
    source: Text = ""
    source_incarnation_number: Int64 = 0
    checksum: Uint32 = 0
    changes: tuple[Any, ...] = ()


class _PingReqBody(_GossipBody, frozen=True):
    target: Text = ""


class _PingReqAnswer(GoObject, frozen=True):
    ping_status: bool = False
    target: Text = ""
    changes: tuple[Any, ...] = ()


class _JoinAnswer(GoObject, frozen=True):
    app: Text = ""
    coordinator: Text = ""
    membership: tuple[Any, ...] = ()
    membership_checksum: Uint32 = 0


class _ChangeRow(GoObject, frozen=True):
    source: Text = ""
    source_incarnation_number: Int64 = 0
    address: Text = ""
    incarnation_number: Int64 = 0
    status: Text = ""
    tombstone: bool = False
    labels: Texts | None = None
    id: Any = None  # of no use either; Go sends it, and to skip an unknown field takes longer
    timestamp: Int64 = 0  # of no use to us; but Go refuses one that is not a whole number


_read_join: Final = go_reader(_JoinBody, "join")
_read_ping: Final = go_reader(_GossipBody, "ping")
_read_ping_req: Final = go_reader(_PingReqBody, "ping-req")
_read_ack: Final = go_reader(_GossipBody, "answer to a ping")
_read_ping_req_ack: Final = go_reader(_PingReqAnswer, "answer to a ping-req")
_read_join_ack: Final = go_reader(_JoinAnswer, "answer to a join")
_read_row: Final = go_reader(_ChangeRow, "row")

LeftOut = Callable[[str], None]
"""Called with a phrase for each part of a body that was left out of the message."""


def nobody_asks(_what: str) -> None:
    """Do nothing: a `LeftOut` for callers that do not report it."""


def labels_left_out(count: int, member: object) -> str:
    """Return the phrase for *count* labels of *member* beyond the limits."""
    return f"{count} labels of {member}, which are more or longer than this node keeps"


class JsonCodec:
    """The ringpop dialect's `Codec`; a member's name is its address."""

    endpoints = (PING, PING_REQ, JOIN)

    def __init__(self, left_out: LeftOut = nobody_asks) -> None:
        self._left_out = left_out

    def encode_request(self, request: Request) -> bytes:
        """See `MsgpackCodec`."""
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
            case _:
                raise AssertionError(NATIVE_ONLY)
        return encode_value("json", body)

    def decode_request(self, endpoint: str, body: bytes) -> Request:
        """See `MsgpackCodec`."""
        value = decode_go_json(body)
        if endpoint == JOIN:
            join = _read_join(value)
            address = _address_of(join.source, "source")
            timeout_ms = join.timeout // NANOSECONDS
            return Join(join.app, None, join.source, *address, join.incarnation_number, timeout_ms)
        said = _read_ping(value) if endpoint == PING else _read_ping_req(value)
        cluster, changes = said.app or None, self._changes(said.changes)
        address = _address_of(said.source, "source")
        sender = said.source, *address, said.source_incarnation_number, said.checksum
        if not isinstance(said, _PingReqBody):
            return Ping(cluster, None, *sender, changes)
        target = _address_of(said.target, "target")
        return PingReq(cluster, *sender, said.target, *target, changes)

    def encode_response(self, response: Response) -> bytes:
        """See `MsgpackCodec`."""
        body: dict[str, object]
        match response:
            case Ack():
                body = {**_gossip_map(response), "app": ""}
            case PingReqAck(target, ping_ok, changes, _):
                body = {"changes": _row_maps(changes), "pingStatus": ping_ok, "target": target}
            case JoinAck(cluster, source, incarnation, checksum, members):
                body = {
                    "app": cluster,
                    "coordinator": source,
                    "membership": [_row_map(member, source, incarnation) for member in members],
                    "membershipChecksum": checksum,
                }
            case Refusal(kind, message):
                body = {"type": f"ringpop.{kind}", "message": message}
            case _:
                raise AssertionError(NATIVE_ONLY)
        return encode_value("json", body)

    def decode_response(self, request: Request, body: bytes, *, ok: bool) -> Response:
        """See `MsgpackCodec`."""
        if not ok:
            return _refusal_in(body)
        value = decode_go_json(body)
        match request:
            case Ping():
                ack = _read_ack(value)
                incarnation, changes = ack.source_incarnation_number, self._changes(ack.changes)
                return Ack(ack.source, incarnation, ack.checksum, changes)
            case PingReq():
                found = _read_ping_req_ack(value)
                # It does not say how the ping failed.
                failure = "" if found.ping_status else "timeout"
                changes = self._changes(found.changes)
                return PingReqAck(found.target, found.ping_status, changes, failure)
            case Join():
                list_ = _read_join_ack(value)
                members = tuple(change.member for change in self._changes(list_.membership))
                return JoinAck(list_.app, list_.coordinator, 0, list_.membership_checksum, members)
            case _:
                raise AssertionError(NATIVE_ONLY)

    def _changes(self, rows: tuple[Any, ...]) -> tuple[MemberChange, ...]:
        changes = [self._change(_read_row(row)) for row in rows]
        return tuple(change for change in changes if change is not None)

    def _change(self, row: _ChangeRow) -> MemberChange | None:
        """Return the change in *row*; None if there can be no such member."""
        try:
            address = Address.parse(row.address, what="its address")
        except ConfigError as error:
            self._left_out(f"a row: {error}")
            return None
        status = STATUS_BY_LABEL.get(row.status)
        if status is None:
            known = ", ".join(STATUS_BY_LABEL)
            self._left_out(f"the row of {address}: its status {row.status!r} is not one of {known}")
            return None
        if status is Status.FAULTY and row.tombstone:
            status = Status.TOMBSTONE
        labels, dropped_count = labels_of_peer(
            {key: value or "" for key, value in (row.labels or {}).items()}
        )
        if dropped_count:
            self._left_out(labels_left_out(dropped_count, address))
        return MemberChange(
            member=Member(str(address), *address, row.incarnation_number, status, labels),
            source=row.source,
            source_incarnation=row.source_incarnation_number,
        )


def _address_of(name: str, what: str) -> Address:
    """Return the address that *name* is; `NOWHERE` if it is empty."""
    if not name:
        return NOWHERE
    try:
        return Address.parse(name, what=what)
    except ConfigError as error:
        raise BodyError(str(error)) from None


def _refusal_in(body: bytes) -> Refusal:
    # In whatever form it comes: some peers answer with bare text.
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


def _gossip_map(message: Ping | PingReq | Ack) -> dict[str, object]:
    return {
        "checksum": message.checksum,
        "changes": _row_maps(message.changes),
        "source": message.source,
        "sourceIncarnationNumber": message.source_incarnation,
    }


def _row_maps(changes: tuple[MemberChange, ...]) -> list[dict[str, object]]:
    return [_row_map(c.member, c.source, c.source_incarnation) for c in changes]


def _row_map(member: Member, source: str, source_incarnation: int) -> dict[str, object]:
    value: dict[str, object] = {}
    if source:
        value["source"] = source
        value["sourceIncarnationNumber"] = source_incarnation
    value["address"] = str(member.address)
    value["incarnationNumber"] = member.incarnation
    if member.status is Status.TOMBSTONE:
        # Older peers do not know tombstones: for them it is a faulty member with a mark.
        value["status"] = Status.FAULTY.label
        value["tombstone"] = True
    else:
        value["status"] = member.status.label
    if member.labels:
        value["labels"] = dict(member.labels)
    return value
