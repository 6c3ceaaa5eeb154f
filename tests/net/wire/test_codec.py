"""`wire.codec`: messages come back as they went, in the bytes that peers expect."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import SYNC_ROWS_RANGE
from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import astuple, encode, replace
from ringpop_py.member.swim.member import DAMPING_MAX, Member, Status
from ringpop_py.member.swim.messages import (
    DAMP_NAMES_MAX,
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
    packed_sums,
)
from ringpop_py.net.wire.codec import (
    DAMP_REQ,
    JOIN,
    NAME_REQ,
    PING,
    PING_REQ,
    SYNC,
    Codec,
    JsonCodec,
    MsgpackCodec,
    endpoint_of,
)

A, B = Address("127.0.0.1", 3000), Address("127.0.0.1", 3001)
MEMBER = Member(str(B), *B, 1414142122275)
JOIN_REQUEST = Join("test", None, str(A), *A, 1414142122274, 1000)
PING_REQUEST = Ping("test", None, str(A), *A, 1414142122274, 7)
PING_REQ_REQUEST = PingReq(None, str(A), *A, 1414142122274, 7, str(B), *B)
DAMP_REQUEST = DampReq("test", str(A), *A, 1414142122274, (str(B), "c"))
SYNC_REQUEST = Sync(
    "test", 100, str(A), *A, 1414142122274, 2, 1, packed_sums((2**64 - 1, 0, 7)), (MEMBER,)
)
NAME_REQUEST = NameReq("test", "n", *A, 1414142122274, 1414142122270, joined=False)
NAME_ACK = NameAck("n", *B, 1414142122274, 1414142122270, joined=True)
SYNC_ACK = SyncAck(str(B), 7, 2, 3, (0, 2), (MEMBER,))

incarnations = st.integers(0, 2**63 - 1)
checksums = st.none() | st.integers(0, 2**64 - 1)
ringpop_checksums = st.integers(0, 2**32 - 1)
printable = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), max_size=20)
addresses = st.builds(
    Address,
    st.sampled_from(["127.0.0.1", "db-1.example", "::1", "fe80::1%eth0"]),
    st.integers(0, 65535),
)
labels = st.dictionaries(printable, printable, max_size=4).map(lambda d: tuple(sorted(d.items())))
dampings = st.sampled_from([0, 0, 1, DAMPING_MAX])
native_members = st.builds(
    lambda name, address, *said: Member(name, *address, *said),
    printable.filter(bool),
    addresses,
    incarnations,
    st.sampled_from(Status),
    labels,
    dampings,
)
ringpop_members = native_members.map(lambda m: replace(m, name=str(m.address), damping=0))


def changes_of(members: st.SearchStrategy[Member]) -> st.SearchStrategy[tuple[MemberChange, ...]]:
    named = st.builds(
        MemberChange,
        member=members,
        source=printable.filter(bool),
        source_incarnation=incarnations,
    )
    anonymous = st.builds(MemberChange, member=members)
    return st.lists(named | anonymous, max_size=3).map(tuple)


def requests_of(
    members: st.SearchStrategy[Member], *, ringpop: bool
) -> st.SearchStrategy[Ping | PingReq | Join]:
    points = st.none() if ringpop else st.none() | st.integers(1, 10_000)
    clusters = printable.filter(bool)

    @st.composite
    def one(draw: st.DrawFn) -> Ping | PingReq | Join:
        source, target = draw(addresses), draw(addresses)
        source_name = str(source) if ringpop else draw(printable)
        target_name = str(target) if ringpop else draw(printable)
        cluster, incarnation = draw(clusters), draw(incarnations)
        checksum = draw(ringpop_checksums if ringpop else checksums)
        changes = draw(changes_of(members))
        match draw(st.sampled_from([PING, PING_REQ, JOIN])):
            case "/protocol/ping":
                named, digest = draw(points), None if ringpop else draw(checksums)
                return Ping(
                    cluster, named, source_name, *source, incarnation, checksum, changes, digest
                )
            case "/protocol/ping-req":
                said_cluster = None if ringpop else cluster
                return PingReq(
                    said_cluster,
                    source_name,
                    *source,
                    incarnation,
                    checksum,
                    target_name,
                    *target,
                    changes,
                )
            case _:
                timeout_ms = draw(st.integers(1, 100_000))
                return Join(cluster, draw(points), source_name, *source, incarnation, timeout_ms)

    return one()


def came(codec: Codec, request: Request) -> Request:
    return codec.decode_request(endpoint_of(request), codec.encode_request(request))


def came_back(codec: Codec, request: Request, response: Response) -> Response:
    ok = not isinstance(response, Refusal)
    return codec.decode_response(request, codec.encode_response(response), ok=ok)


def answer_of(response: Response) -> dict[str, Any]:
    value = json.loads(JsonCodec().encode_response(response))
    assert isinstance(value, dict)
    return value


# Round trips.


def test_each_request_has_its_endpoint() -> None:
    requests = (
        PING_REQUEST,
        PING_REQ_REQUEST,
        JOIN_REQUEST,
        DAMP_REQUEST,
        SYNC_REQUEST,
        NAME_REQUEST,
    )

    endpoints = [endpoint_of(request) for request in requests]

    assert endpoints == [PING, PING_REQ, JOIN, DAMP_REQ, SYNC, NAME_REQ]
    assert endpoints == list(MsgpackCodec().endpoints)


def test_too_many_names_or_scores_are_refused() -> None:
    codec = MsgpackCodec()
    names = ("n",) * (DAMP_NAMES_MAX + 1)

    with pytest.raises(BodyError, match="names: Expected `array` of length <= 16"):
        came(codec, replace(DAMP_REQUEST, names=names))
    with pytest.raises(BodyError, match="scores: Expected `array` of length <= 16"):
        came_back(codec, DAMP_REQUEST, DampAck(tuple((name, 1) for name in names)))


@given(requests_of(native_members, ringpop=False))
def test_native_requests_come_as_they_went(request: Request) -> None:
    assert came(MsgpackCodec(), request) == request


@given(requests_of(ringpop_members, ringpop=True))
def test_ringpop_requests_come_as_they_went(request: Request) -> None:
    assert came(JsonCodec(), request) == request


TOO_MANY = [[MEMBER.name, *A, 1, 0]] * (SYNC_ROWS_RANGE[1] + 1)


def said(message: Sync | SyncAck, **otherwise: object) -> bytes:
    """The row of *message*, which has no rows, with other values for some of its fields."""
    fields = zip(message.__struct_fields__, astuple(message), strict=True)
    return encode(list({**dict(fields), "rows": (), **otherwise}.values()))


@pytest.mark.parametrize(
    ("otherwise", "error"),
    [
        ({"bits": 17, "first": 0, "sums": b""}, "Sync: bits: Expected `int` <= 16"),
        ({"first": 5, "sums": b""}, "Sync: the sums are not those of -1 buckets"),
        ({"sums": bytes(16)}, "Sync: the sums are not those of 3 buckets"),
        ({"sums": bytes(32)}, "Sync: the sums are not those of 3 buckets"),
        ({"bits": 16, "first": 0, "sums": bytes(8)}, "not those of 65536 buckets"),
        ({"rows": TOO_MANY}, "Sync: rows: Expected `array` of length <= 4096"),
    ],
)
def test_a_sync_that_asks_too_much_or_for_what_there_is_not_is_refused(
    otherwise: dict[str, object], error: str
) -> None:
    with pytest.raises(BodyError, match=error):
        MsgpackCodec().decode_request(SYNC, said(SYNC_REQUEST, **otherwise))


@pytest.mark.parametrize(
    "otherwise",
    [
        {"bits": 17},
        {"until": 5},
        {"buckets": (2, 0)},
        {"buckets": (2, 2)},
        {"buckets": (3,)},
        {"buckets": (4,)},
        {"rows": TOO_MANY},
    ],
)
def test_an_answer_to_a_sync_that_contradicts_itself_is_refused(
    otherwise: dict[str, object],
) -> None:
    with pytest.raises(BodyError):
        MsgpackCodec().decode_response(SYNC_REQUEST, said(SYNC_ACK, **otherwise), ok=True)


def test_a_member_that_no_type_can_refuse_is_refused() -> None:
    for name, host in [("a\n", "10.0.0.1"), ("a", "10.0.0.1 "), ("a", "fe80::x")]:
        body = msgpack.packb(["test", None, "s", *A, 1, 7, [["", 0, [name, host, 1, 1, 0]]]])
        with pytest.raises(BodyError, match=r"not printable|is not a host"):
            MsgpackCodec().decode_request(PING, body)


def test_a_native_ping_says_its_cluster() -> None:
    with pytest.raises(BodyError, match="cluster"):
        MsgpackCodec().decode_request(PING, msgpack.packb([None, None, "s", *A, 1, 7, []]))


def test_a_ping_of_an_older_peer_has_no_digest_and_what_a_newer_one_adds_is_left_out() -> None:
    older: list[object] = ["test", None, str(A), *A, 1414142122274, 7, []]

    from_older = MsgpackCodec().decode_request(PING, msgpack.packb(older))
    from_newer = MsgpackCodec().decode_request(PING, msgpack.packb([*older, 9, "new", {}]))

    assert from_older == PING_REQUEST
    assert from_newer == replace(PING_REQUEST, digest=9)


def test_a_list_of_a_peer_that_says_nothing_of_more_is_whole() -> None:
    body = msgpack.packb(["test", "s", 1, 7, []])

    ack = MsgpackCodec().decode_response(JOIN_REQUEST, body, ok=True)

    assert ack == JoinAck("test", "s", 1, 7, (), more=False)


@pytest.mark.parametrize("codec", [MsgpackCodec(), JsonCodec()])
@pytest.mark.parametrize("request_", [PING_REQUEST, PING_REQ_REQUEST, JOIN_REQUEST])
def test_refusals_come_back_for_every_request(codec: Codec, request_: Request) -> None:
    refusal = Refusal("not-ready", "node is not ready to handle requests")

    assert came_back(codec, request_, refusal) == refusal


# The bytes of Ringpop.


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (["t", False, [], "lost"], "lost"),
        (["t", False, [], "something that a newer peer may say"], "failed"),
        (["t", False, []], "timeout"),
        (["t", True, [], "refused"], ""),
    ],
)
def test_a_nack_says_how_the_ping_failed_and_if_it_does_not_it_was_silence(
    body: list[object], failure: str
) -> None:
    response = MsgpackCodec().decode_response(PING_REQ_REQUEST, msgpack.packb(body), ok=True)

    assert isinstance(response, PingReqAck)
    assert response.failure == failure


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"status": "faulty", "tombstone": True}, Status.TOMBSTONE),
        ({"status": "faulty", "tombstone": False}, Status.FAULTY),
        ({"status": "faulty", "tombstone": None}, Status.FAULTY),
        ({"status": "tombstone"}, Status.TOMBSTONE),
        ({"status": "suspect", "tombstone": True}, Status.SUSPECT),
    ],
)
def test_both_forms_of_a_tombstone_are_read(fields: dict[str, object], status: Status) -> None:
    change = {"address": str(B), "incarnationNumber": 1, **fields}
    body = json.dumps({"source": str(A), "changes": [change]}).encode()

    ping = JsonCodec().decode_request(PING, body)

    assert isinstance(ping, Ping)
    assert ping.changes == (MemberChange(member=Member(str(B), *B, 1, status)),)


def test_the_messages_of_ringpop_have_no_damping() -> None:
    damped = JoinAck("test", str(A), 5, 7, (replace(MEMBER, damping=3),))

    assert answer_of(damped) == answer_of(replace(damped, members=(MEMBER,)))


# Hostile bodies.


def bodies() -> list[tuple[Codec, Request, Response]]:
    labelled = replace(MEMBER, labels=(("a", "b"),), status=Status.TOMBSTONE)
    changes = (
        MemberChange(member=MEMBER, source="s", source_incarnation=1),
        MemberChange(member=labelled, source="t", source_incarnation=2),
    )
    return [
        (codec, request, response)
        for codec in (JsonCodec(), MsgpackCodec())
        for request, response in (
            (replace(PING_REQUEST, changes=changes), Ack("s", 1, 7, changes)),
            (
                replace(PING_REQ_REQUEST, cluster="test", changes=changes),
                PingReqAck(str(B), ping_ok=True, changes=changes),
            ),
            (JOIN_REQUEST, JoinAck("test", "s", 1, 7, (MEMBER, labelled))),
            (PING_REQUEST, Refusal("kind", "message")),
        )
    ] + [
        (MsgpackCodec(), DAMP_REQUEST, DampAck(((str(B), 5000),))),
        (MsgpackCodec(), SYNC_REQUEST, SYNC_ACK),
        (MsgpackCodec(), NAME_REQUEST, NAME_ACK),
    ]
