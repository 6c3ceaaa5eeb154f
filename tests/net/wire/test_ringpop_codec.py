"""`wire.ringpop_codec`: each field of each message is read as Go's encoding/json reads it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from ringpop_py.base.address import NOWHERE, Address
from ringpop_py.base.errors import BodyError
from ringpop_py.member.swim.member import (
    LABEL_CHARACTERS_MAX,
    LABELS_RECEIVED_MAX,
    Member,
    Status,
    label_sum,
)
from ringpop_py.member.swim.messages import (
    Ack,
    Join,
    JoinAck,
    MemberChange,
    Ping,
    PingReq,
    Refusal,
    Request,
)
from ringpop_py.net.wire.ringpop_codec import JOIN, PING, PING_REQ, JsonCodec

A, B, C = (Address("127.0.0.1", port) for port in (3000, 3001, 3002))
ASKED: Final[dict[str, Request]] = {
    "ping": Ping("test", None, str(A), *A, 1, 7),
    "ping-req": PingReq("test", str(A), *A, 1, 7, str(B), *B),
    "join": Join("test", None, str(A), *A, 1, 1000),
}

ROW: Final = {
    "source": str(C),
    "sourceIncarnationNumber": 5,
    "address": str(B),
    "incarnationNumber": 6,
    "status": "faulty",
    "tombstone": True,
    "labels": {"zone": "a"},
    "timestamp": 1_414_142_122,
    "id": "8a9a8a76-5a44-4b0b-8d86-4a6f02ee4a27",
}
GOSSIP: Final = {
    "app": "test",
    "source": str(A),
    "sourceIncarnationNumber": 1,
    "checksum": 7,
    "changes": [ROW],
}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "ping": GOSSIP,
    "ping-req": {**GOSSIP, "target": str(B)},
    "join": {
        "app": "test",
        "source": str(A),
        "incarnationNumber": 1,
        "timeout": 1_000_000_000,
        "labels": {"zone": "a"},
    },
    "answer to ping": GOSSIP,
    "answer to ping-req": {"pingStatus": True, "target": str(B), "changes": [ROW]},
    "answer to join": {
        "app": "test",
        "coordinator": str(A),
        "membership": [ROW],
        "membershipChecksum": 7,
    },
}
ROWS_IN: Final = {
    "ping": "changes",
    "ping-req": "changes",
    "answer to ping": "changes",
    "answer to ping-req": "changes",
    "answer to join": "membership",
}


LIST: Final = "answer to join"


def read(message: str, body: object, left_out: Callable[[str], None] = lambda _: None) -> Any:  # noqa: ANN401 - one of many
    """The *message* in *body*, as this node reads it."""
    codec = JsonCodec(left_out)
    data = json.dumps(body).encode()
    if message.startswith("answer to "):
        return codec.decode_response(ASKED[message.removeprefix("answer to ")], data, ok=True)
    endpoint = {"ping": PING, "ping-req": PING_REQ, "join": JOIN}[message]
    return codec.decode_request(endpoint, data)


def row_of(message: Any) -> MemberChange:  # noqa: ANN401 - one of many
    """The only row of *message*."""
    rows = (
        [MemberChange(member=m) for m in message.members]
        if isinstance(message, JoinAck)
        else message.changes
    )
    (row,) = rows
    assert isinstance(row, MemberChange)
    return row


Get = Callable[[Any], object] | None


@dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes:
        kind: its type in Go.
        get: gets what is read of it from the message; None for all that this node does not use.
        full: what is read of it in `BODIES`.
        zero: what is read of it where it is missing.
    """

    message: str
    name: str
    kind: str
    get: Get = None
    full: object = None
    zero: object = None
    in_row: bool = False

    def __str__(self) -> str:
        return f"{self.message}: {'row.' if self.in_row else ''}{self.name}"

    def read_from(self, body: object) -> object:
        message = read(self.message, body)
        return None if self.get is None else self.get(message)

    def body_after(self, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The message's body, after *change* of the object that has the field."""
        body = copy.deepcopy(BODIES[self.message])
        change(body[ROWS_IN[self.message]][0] if self.in_row else body)
        return body

    def body_with(self, value: object) -> dict[str, Any]:
        return self.body_after(lambda fields: fields.update({self.name: value}))


def source(message: Any) -> object:  # noqa: ANN401 - one of many
    return message.source, message.source_address


def target(message: Any) -> object:  # noqa: ANN401 - one of many
    return message.target, message.target_address


def fields_of_rows(message: str) -> tuple[Field, ...]:
    """The fields that a row may lack; those it may not lack have tests of rows left out."""

    def field(
        name: str, kind: str, get: Get = None, full: object = None, zero: object = None
    ) -> Field:
        return Field(message, name, kind, get, full, zero, in_row=True)

    read = (
        field("incarnationNumber", "int64", lambda m: row_of(m).member.incarnation, 6, 0),
        field(
            "tombstone",
            "bool",
            lambda m: row_of(m).member.status,
            Status.TOMBSTONE,
            Status.FAULTY,
        ),
        field("labels", "texts", lambda m: row_of(m).member.labels, (("zone", "a"),), ()),
        field("timestamp", "int64"),
    )
    if message == LIST:  # all of it is said by the coordinator
        return (*read, field("source", "text"), field("sourceIncarnationNumber", "int64"))
    return (
        *read,
        field("source", "text", lambda m: row_of(m).source, str(C), ""),
        field("sourceIncarnationNumber", "int64", lambda m: row_of(m).source_incarnation, 5, 0),
    )


def fields_of_gossip(message: str) -> tuple[Field, ...]:
    return (
        Field(message, "app", "text", lambda m: m.cluster, "test", None),
        Field(message, "source", "text", source, (str(A), A), ("", NOWHERE)),
        Field(message, "sourceIncarnationNumber", "int64", lambda m: m.source_incarnation, 1, 0),
        Field(message, "checksum", "uint32", lambda m: m.checksum, 7, 0),
        Field(message, "changes", "list", lambda m: len(m.changes), 1, 0),
    )


FIELDS: Final = (
    *fields_of_gossip("ping"),
    *fields_of_gossip("ping-req"),
    Field("ping-req", "target", "text", target, (str(B), B), ("", NOWHERE)),
    Field("join", "app", "text", lambda m: m.cluster, "test", ""),
    Field("join", "source", "text", source, (str(A), A), ("", NOWHERE)),
    Field("join", "incarnationNumber", "int64", lambda m: m.incarnation, 1, 0),
    Field("join", "timeout", "int64", lambda m: m.timeout_ms, 1000, 0),
    Field("join", "labels", "texts"),
    Field("answer to ping", "app", "text"),
    Field("answer to ping", "source", "text", lambda m: m.source, str(A), ""),
    Field(
        "answer to ping", "sourceIncarnationNumber", "int64", lambda m: m.source_incarnation, 1, 0
    ),
    Field("answer to ping", "checksum", "uint32", lambda m: m.checksum, 7, 0),
    Field("answer to ping", "changes", "list", lambda m: len(m.changes), 1, 0),
    Field("answer to ping-req", "pingStatus", "bool", lambda m: m.ping_ok, full=True, zero=False),
    Field("answer to ping-req", "target", "text", lambda m: m.target, str(B), ""),
    Field("answer to ping-req", "changes", "list", lambda m: len(m.changes), 1, 0),
    Field(LIST, "app", "text", lambda m: m.cluster, "test", ""),
    Field(LIST, "coordinator", "text", lambda m: m.source, str(A), ""),
    Field(LIST, "membershipChecksum", "uint32", lambda m: m.checksum, 7, 0),
    Field(LIST, "membership", "list", lambda m: len(m.members), 1, 0),
    *(field for message in ROWS_IN for field in fields_of_rows(message)),
)
WRONG: Final[dict[str, list[object]]] = {
    "text": [1, 1.5, True, [], {}],
    "int64": ["1", 1.0, 1e3, True, [], {}, 1 << 63, -(1 << 63) - 1],
    "uint32": ["1", 1.0, True, [], {}, -1, 1 << 32],
    "bool": ["true", 0, 1, [], {}],
    "list": ["", 1, True, {}],
    "texts": ["", 1, True, [], {"zone": 1}, {"zone": ["a"]}, {"zone": {}}],
}
every_field = pytest.mark.parametrize("field", FIELDS, ids=str)


@every_field
def test_a_field_that_is_there_is_read(field: Field) -> None:
    assert field.read_from(BODIES[field.message]) == field.full


@every_field
def test_a_field_that_is_missing_is_its_zero(field: Field) -> None:
    body = field.body_after(lambda fields: fields.pop(field.name))

    assert field.read_from(body) == field.zero


@every_field
def test_a_field_that_is_null_is_its_zero(field: Field) -> None:
    assert field.read_from(field.body_with(None)) == field.zero


@every_field
@pytest.mark.parametrize("case", [str.upper, str.lower, str.title])
def test_a_field_is_found_whatever_the_case_of_its_name(
    field: Field, case: Callable[[str], str]
) -> None:
    body = field.body_after(
        lambda fields: fields.update({case(field.name): fields.pop(field.name)})
    )

    assert field.read_from(body) == field.full


@every_field
def test_fields_that_we_do_not_know_are_ignored_beside_a_field(field: Field) -> None:
    unknown = {"new": [{"a": 1e3}], field.name + "s": 1, "": None}

    assert field.read_from(field.body_after(lambda fields: fields.update(unknown))) == field.full


@every_field
def test_a_field_of_another_type_is_refused_and_named(field: Field) -> None:
    for value in WRONG[field.kind]:
        with pytest.raises(BodyError, match=field.name):
            read(field.message, field.body_with(value))


@pytest.mark.parametrize("message", BODIES)
@pytest.mark.parametrize("body", [b"", b"null", b"{}", b" {} \n"])
def test_a_message_without_any_field_is_read(message: str, body: bytes) -> None:
    codec = JsonCodec()

    if message.startswith("answer to "):
        codec.decode_response(ASKED[message.removeprefix("answer to ")], body, ok=True)
    else:
        codec.decode_request({"ping": PING, "ping-req": PING_REQ, "join": JOIN}[message], body)


@pytest.mark.parametrize("message", BODIES)
@pytest.mark.parametrize("body", [[], [{}], "{}", 1, True])
def test_a_message_that_is_no_object_is_refused(message: str, body: object) -> None:
    with pytest.raises(BodyError, match="Expected `object`, got"):
        read(message, body)


@pytest.mark.parametrize("message", ROWS_IN)
@pytest.mark.parametrize("row", [[], "row", 1, True])
def test_a_row_that_is_no_object_refuses_its_message(message: str, row: object) -> None:
    body = {**BODIES[message], ROWS_IN[message]: [ROW, row]}

    with pytest.raises(BodyError, match="row: Expected `object`, got"):
        read(message, body)


def test_of_a_field_that_occurs_twice_the_last_counts() -> None:
    body = b'{"app":"a","source":"127.0.0.1:3000","app":"b","APP":"c"}'

    ping = JsonCodec().decode_request(PING, body)

    assert isinstance(ping, Ping)
    assert ping.cluster == "c"


def test_the_names_of_labels_keep_their_case() -> None:
    body = {**BODIES["ping"], "changes": [{**ROW, "labels": {"Zone": "a", "zone": None}}]}

    assert row_of(read("ping", body)).member.labels == (("Zone", "a"), ("zone", ""))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"caf\xc3\xa9", "caf\u00e9"),
        (b"\xff-", "\ufffd-"),
        (b"\xe4\xbd-", "\ufffd\ufffd-"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\\ud800-\\udfff", "\ufffd-\ufffd"),
        (b"\\ud83d\\ude00", "\U0001f600"),
    ],
)
def test_invalid_utf_8_is_replaced_byte_by_byte_so_that_checksums_agree(
    raw: bytes, text: str
) -> None:
    row = json.dumps({**ROW, "labels": {"zone": "TEXT"}}).encode().replace(b"TEXT", raw)

    ack = JsonCodec().decode_response(ASKED["ping"], b'{"changes":[%s]}' % row, ok=True)

    assert row_of(ack).member.labels == (("zone", text),)
    assert label_sum(row_of(ack).member.labels)  # it can be written again


# Where this node is stricter than Go, on purpose.


@pytest.mark.parametrize("message", ROWS_IN)
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"address": ""}, "a row: its address '' is not HOST:PORT"),
        ({"address": None}, "a row: its address '' is not HOST:PORT"),
        ({"address": "nowhere"}, "a row: its address 'nowhere' is not HOST:PORT"),
        ({"address": "127.0.0.1:99999"}, "a row: its address '127.0.0.1:99999': the port"),
        ({"status": ""}, "the row of 127.0.0.1:3001: its status '' is not one of alive, suspect"),
        ({"status": None}, "the row of 127.0.0.1:3001: its status ''"),
        ({"status": "asleep"}, "the row of 127.0.0.1:3001: its status 'asleep'"),
        ({"status": "ALIVE"}, "the row of 127.0.0.1:3001: its status 'ALIVE'"),
    ],
)
def test_a_row_of_no_member_is_left_out_and_told_and_the_others_are_read(
    message: str, wrong: dict[str, object], told: str
) -> None:
    left_out: list[str] = []
    good = {**ROW, "address": str(C)}
    body = {**BODIES[message], ROWS_IN[message]: [None, {**ROW, **wrong}, good]}

    decoded = read(message, body, left_out.append)

    assert row_of(decoded).member.address == C
    assert len(left_out) == 2
    assert left_out[1].startswith(told)


@pytest.mark.parametrize("name", ["source", "target"])
def test_the_source_and_the_target_of_a_ping_req_are_addresses(name: str) -> None:
    with pytest.raises(BodyError, match=f"{name} 'here' is not HOST:PORT"):
        read("ping-req", {**BODIES["ping-req"], name: "here"})


def test_labels_beyond_the_limits_are_left_out_and_told_and_the_row_still_counts() -> None:
    left_out: list[str] = []
    labels = {f"key{number:03}": "value" for number in range(LABELS_RECEIVED_MAX + 3)}
    labels |= {"long": "x" * (LABEL_CHARACTERS_MAX + 1), "__identity": "me", "zone": "a"}
    body = {**BODIES["ping"], "changes": [{**ROW, "labels": labels}]}

    row = row_of(read("ping", body, left_out.append)).member

    assert row.identity == "me"
    assert len(row.labels) == LABELS_RECEIVED_MAX
    assert left_out == ["6 labels of 127.0.0.1:3001, which are more or longer than this node keeps"]


@pytest.mark.parametrize(
    "body", [b"{}{}", b"{}]", b"{", b"nan", b'{"checksum":NaN}', b"\xef\xbb\xbf{}", b"[" * 5000]
)
def test_a_body_that_is_not_one_value_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError, match="not a json value"):
        JsonCodec().decode_request(PING, body)


# Errors.


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b'{"type":"error","message":"no"}', Refusal("error", "no")),
        (b'{"type":"ringpop.not-ready","message":"wait"}', Refusal("not-ready", "wait")),
        (b'{"type":5,"message":{"why":1}}', Refusal("5", '{"why":1}')),
        (b'{"message":null}', Refusal("error", "")),
        (b"Pinged ringpop has a different app name", Refusal("error", "Pinged ringpop has a diff")),
        (b'"text"', Refusal("error", "text")),
        (b"", Refusal("error", "")),
        (b"null", Refusal("error", "")),
        (b"\xff", Refusal("error", "\ufffd")),
    ],
)
def test_an_error_of_any_form_is_told(body: bytes, refusal: Refusal) -> None:
    response = JsonCodec().decode_response(ASKED["ping"], body, ok=False)

    assert isinstance(response, Refusal)
    assert response.kind == refusal.kind
    assert response.message.startswith(refusal.message)


# The case that this began with.


def test_a_list_with_a_member_that_its_sender_has_not_met_is_read() -> None:
    unmet = {"address": str(C), "status": "alive"}
    body = {**BODIES[LIST], "membership": [ROW, unmet]}

    ack = read(LIST, body)

    assert ack.members[1] == Member(str(C), *C, 0)


def test_the_bare_ack_of_the_node_implementation_is_read() -> None:
    assert read("answer to ping", {"changes": []}) == Ack("", 0, 0)
