"""A value of each kind of message, with all that it may and may not say, and how it is written.

A kind's last sample says the most: the malformed bytes are made of it. All that is imported of the
product for the golden files is imported here.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import random
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import xxhash

from ringpop_py.base.address import Address
from ringpop_py.base.errors import (
    ApplicationError,
    BodyError,
    OutcomeUnknown,
    PartitionFull,
    PartitionUnavailable,
    StateDamaged,
)
from ringpop_py.base.values import operations
from ringpop_py.base.values.checksum import CHECKSUM_BYTES, HEAD, wrap
from ringpop_py.base.values.declared import (
    Declared,
    Named,
    convert,
    decode,
    encode,
    replace,
)
from ringpop_py.base.values.operations import Outcome, Value, Write
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.base.values.requests import (
    ApplyRequest,
    Moved,
    ReadRequest,
    Scanned,
    ScanRequest,
    decode_results,
    encode_results,
    outcomes_of,
    packed_values_of,
)
from ringpop_py.member.swim.member import DAMPING_MAX, Member, Status
from ringpop_py.member.swim.messages import (
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
)
from ringpop_py.route.proxy import entry
from ringpop_py.route.proxy.failures import decode_failure, encode_failure
from ringpop_py.route.proxy.head import Head, KeyspaceBelief, Tries
from ringpop_py.route.proxy.http import (
    decode_http_head,
    decode_http_reply,
    encode_http_head,
    encode_http_reply_head,
)
from ringpop_py.route.proxy.request import HttpReply, HttpRequest
from ringpop_py.state.actors import mailboxes
from ringpop_py.state.actors.mail import Mail, MailAnswered
from ringpop_py.state.actors.reminders import Armed
from ringpop_py.state.catalog import checkpoints
from ringpop_py.state.catalog.assignments import read_newest, record
from ringpop_py.state.catalog.catalog import Catalog, CatalogEntry
from ringpop_py.state.catalog.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.catalog.manifests import EpochFile, Manifest, read_manifest
from ringpop_py.state.copies.calls import CopiesAsked, CopyGroup, CopyPart, CopyStep
from ringpop_py.state.durable.snapshots import SnapshotRequest
from ringpop_py.state.jobs import store as job_store
from ringpop_py.state.jobs.messages import (
    ApplyJobRequest,
    AttemptManifest,
    DecideRequest,
    Decision,
    FinishRequest,
    JobId,
    JobProgress,
    Refusals,
    RowRefusal,
    SchemasRequest,
    StagedFile,
    StageHead,
    TryJobRequest,
)
from ringpop_py.state.jobs.plan import JobPlan
from ringpop_py.state.jobs.record import JobRecord
from ringpop_py.state.jobs.store import JobStore
from ringpop_py.state.journal import codec as journal_codec
from ringpop_py.state.journal import records as journal_is
from ringpop_py.state.journal.records import Slot
from ringpop_py.state.memory.hand_over import BLANK, HandOver, HandOverStep
from ringpop_py.state.memory.mergeable import Part
from ringpop_py.state.messages import (
    KNOWS_HASH_TAGS,
    Description,
    Routes,
    decode_answer,
    encode_answer,
)
from ringpop_py.state.placement import table
from ringpop_py.state.placement.assignment import Assignment
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.gossip import Known, TableGossip, _Offer
from ringpop_py.state.placement.keys import Placing
from ringpop_py.state.rows.pages import MISSING, Columns, ColumnsRequest, columns_in
from ringpop_py.state.rows.stagefile import MAGIC, Chunk, Index, encode_stage, index_of
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.table.bodies import Group, ReadBody, parts_of
from ringpop_py.state.table.entries import FrozenEntries
from ringpop_py.state.table.keyed import Snapshot
from ringpop_py.state.table.sessions import Session, record_of
from ringpop_py.state.watch.course import WatchPosition
from ringpop_py.state.watch.messages import Watched, WatchPart, WatchRequest, watched_of
from ringpop_py.state.watch.recent import RecentChanges, WatchCounts

if TYPE_CHECKING:
    from collections.abc import Callable

INTEGER_MAX: Final = (1 << 63) - 1
CHECKSUM_MAX: Final = (1 << 64) - 1


def as_it_is(said: Any) -> Any:  # noqa: ANN401 - anything
    """*said*: most kinds have nothing around them."""
    return said


@dataclass(frozen=True)
class Kind:
    """A kind of message, or of what a store holds.

    Attributes:
        refusal: what its decoder raises for most that is malformed.
        scheme: of what is inside: ``msgpack``, ``json``, or empty for a form of its own.
        strip: the bytes of the scheme in those of a sample; *dress* puts around them what was
            there, such as a checksum that is right.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], object]
    samples: dict[str, object]
    refusal: type[Exception] = BodyError
    scheme: str = "msgpack"
    strip: Callable[[bytes], bytes] = as_it_is
    dress: Callable[[bytes], bytes] = as_it_is


# Membership, in both dialects.

A, B = Address("127.0.0.1", 3000), Address("fe80::1%eth0", 65_535)
BARE = Member("n-é-中", *A, 0)
FULL = Member(
    "n" * 255, *B, INTEGER_MAX, Status.TOMBSTONE, (("__identity", "ïd"), ("k", "")), DAMPING_MAX
)
LABELLED = Member("b", *B, 7, Status.LEAVE, tuple((f"k{n:02}", "v" * n) for n in range(16)))
DAMPED = Member("c", *B, 7, Status.FAULTY, (), 3)
CHANGES = (
    MemberChange(member=BARE),
    MemberChange(member=LABELLED, source="söurce", source_incarnation=5),
    MemberChange(member=DAMPED, source="s", source_incarnation=INTEGER_MAX),
    MemberChange(member=FULL, source="s" * 40, source_incarnation=1 << 40),
)
MEMBERS = (BARE, LABELLED, DAMPED, FULL)

JSON_BARE = Member(str(A), *A, 0, Status.SUSPECT)
JSON_FULL = Member(str(B), *B, INTEGER_MAX, Status.TOMBSTONE, (("ké", "中"), ("load", "0.5")))
JSON_CHANGES = (
    MemberChange(member=JSON_BARE),
    MemberChange(member=JSON_FULL, source=str(A), source_incarnation=5),
)
UINT32_MAX: Final = (1 << 32) - 1

PING_SAID = Ping("c", None, "s", *A, 1, 0)
PING_REQ_SAID = PingReq("c", "s", *A, 1, 0, "t", *B)
JOIN_SAID = Join("c", None, "s", *A, 1, 1500)


def _asked(codec: Codec, endpoint: str, scheme: str, **samples: object) -> Kind:
    return Kind(
        codec.encode_request, partial(codec.decode_request, endpoint), samples, scheme=scheme
    )


def _answered(
    codec: Codec, request: Request, scheme: str, *, ok: bool = True, **samples: object
) -> Kind:
    decode = partial(codec.decode_response, request, ok=ok)
    return Kind(codec.encode_response, decode, samples, scheme=scheme)


def _native() -> dict[str, Kind]:
    asked = partial(_asked, MsgpackCodec(), scheme="msgpack")
    answered = partial(_answered, MsgpackCodec(), scheme="msgpack")
    damp_req = DampReq("c", "s", *A, 1, tuple("abcdefghijklmnop"))
    sync = Sync("ç", 100, "s", *B, 1, 2, 1, packed_sums((CHECKSUM_MAX, 0, 7)), MEMBERS)
    name_req = NameReq("c", "s", *B, 1, INTEGER_MAX, joined=True)
    return {
        "native.ping": asked(
            PING,
            rest=PING_SAID,
            unsaid=Ping("c", None, "s", *A, 1, None, (), None),
            full=Ping("ç", 100, "s", *B, 1, CHECKSUM_MAX, CHANGES, 1 << 63),
        ),
        "native.ping-req": asked(
            PING_REQ,
            bare=PING_REQ_SAID,
            unsaid=replace(PING_REQ_SAID, checksum=None),
            full=PingReq("ç", "s", *B, 1, CHECKSUM_MAX, "t", *A, CHANGES),
        ),
        "native.join": asked(
            JOIN, bare=JOIN_SAID, full=Join("ç", 100, "s", *B, INTEGER_MAX, 4096125)
        ),
        "native.damp-req": asked(DAMP_REQ, bare=DampReq("c", "s", *A, 1, ()), full=damp_req),
        "native.sync": asked(
            SYNC,
            bare=Sync("c", 1, "s", *A, 0, 0, 0, b""),
            whole=replace(sync, first=4, sums=b""),
            full=sync,
        ),
        "native.name-req": asked(
            NAME_REQ, bare=NameReq("c", "s", *A, 1, 0, joined=False), full=name_req
        ),
        "native.ack": answered(
            PING_SAID,
            rest=Ack("s", 1, 0),
            unsaid=Ack("", 0, None),
            full=Ack("s", 1, CHECKSUM_MAX, CHANGES),
        ),
        "native.ping-req-ack": answered(
            PING_REQ_SAID,
            ok_=PingReqAck("t", ping_ok=True),
            full=PingReqAck("t", ping_ok=False, changes=CHANGES, failure="refused"),
        ),
        "native.join-ack": answered(
            JOIN_SAID,
            bare=JoinAck("c", "s", 1, None),
            full=JoinAck("ç", "s", 1, CHECKSUM_MAX, MEMBERS, more=True),
        ),
        "native.damp-ack": answered(
            damp_req, bare=DampAck(()), full=DampAck((("a", 0), ("é", INTEGER_MAX)))
        ),
        "native.sync-ack": answered(
            sync,
            bare=SyncAck("s", 0, 0, 0),
            full=SyncAck("s", CHECKSUM_MAX, 4, 16, (0, 3, 15), MEMBERS),
        ),
        "native.name-ack": answered(
            name_req,
            bare=NameAck("s", *A, 0, 0, joined=False),
            full=NameAck("é", *B, 1, 2, joined=True),
        ),
        "native.refusal": answered(PING_SAID, ok=False, full=Refusal("wrong-cluster", "it is “ç”")),
    }


def _ringpop() -> dict[str, Kind]:
    asked = partial(_asked, JsonCodec(), scheme="json")
    answered = partial(_answered, JsonCodec(), scheme="json")
    return {
        "ringpop.ping": asked(
            PING,
            bare=Ping(None, None, str(A), *A, 0, 0),
            full=Ping("ç", None, str(B), *B, INTEGER_MAX, UINT32_MAX, JSON_CHANGES),
        ),
        "ringpop.ping-req": asked(
            PING_REQ,
            bare=PingReq(None, str(A), *A, 0, 0, str(B), *B),
            full=PingReq(None, str(B), *B, 1, UINT32_MAX, str(A), *A, JSON_CHANGES),
        ),
        "ringpop.join": asked(
            JOIN,
            bare=Join("c", None, str(A), *A, 0, 0),
            full=Join("ç", None, str(B), *B, INTEGER_MAX, 1500),
        ),
        "ringpop.ack": answered(
            PING_SAID, bare=Ack("", 0, 0), full=Ack(str(A), 1, UINT32_MAX, JSON_CHANGES)
        ),
        "ringpop.ping-req-ack": answered(
            PING_REQ_SAID,
            ok_=PingReqAck(str(A), ping_ok=True),
            full=PingReqAck(str(B), ping_ok=False, changes=JSON_CHANGES, failure="timeout"),
        ),
        "ringpop.join-ack": answered(
            JOIN_SAID,
            bare=JoinAck("c", str(A), 0, 0),
            full=JoinAck("ç", str(A), 0, UINT32_MAX, (JSON_BARE, JSON_FULL)),
        ),
        "ringpop.refusal": answered(PING_SAID, ok=False, full=Refusal("self-join", "it is “ç”")),
    }


# Requests for owners.

BELIEF = KeyspaceBelief("k-é", 1 << 33, (0, INTEGER_MAX))
ROUTED = Head(("k", "é"), CHECKSUM_MAX, keyspace=BELIEF)


def _error_in(body: bytes) -> tuple[str, str]:
    error = decode_failure(body)
    assert isinstance(error, ApplicationError)
    return error.kind, error.message


def _bodiless(reply: HttpReply) -> bytes:
    return encode_http_reply_head(reply.status, reply.headers)


def _proxy() -> dict[str, Kind]:
    headers = (("accept", "a"), ("accept", "b"), ("x-é", "中"))
    return {
        "proxy.head": Kind(
            Head.encode,
            Head.decode,
            {
                "empty": Head(),
                "keys": Head(("k",)),
                "checked": Head(("k",), 0),
                "forwarded": Head(("é" * 300,), CHECKSUM_MAX, "sénder"),
                "client": Head(("k",), route=True, idempotent=True),
                "full": Head(
                    ("k", "é"),
                    7,
                    "s",
                    route=True,
                    idempotent=True,
                    keyspace=BELIEF,
                    headers=(("a", "é"), ("a", "")),
                    failover=2,
                    tries=Tries(0, (0.0, 1.5)),
                    endpoint="/x",
                ),
            },
        ),
        "proxy.error": Kind(
            lambda said: encode_failure(ApplicationError(*said)),
            _error_in,
            {"empty": ("", ""), "full": ("k.é", "中" * 100)},
        ),
        "proxy.http-head": Kind(
            lambda said: encode_http_head(*said),
            lambda body: decode_http_head(body, b""),
            {
                "bare": (HttpRequest("GET", "/"), Head()),
                "failover": (HttpRequest("GET", "/"), Head(("k",), failover=2)),
                "full": (HttpRequest("POST", "/p?q=%20", headers), ROUTED),
            },
            scheme="json",
        ),
        "proxy.http-reply-head": Kind(
            _bodiless,
            lambda body: decode_http_reply(body, b"", "o"),
            {"bare": HttpReply(204, (), b"", "o"), "full": HttpReply(599, headers, b"", "o")},
            scheme="json",
        ),
    }


def _entry() -> dict[str, Kind]:
    """What web applications and clients say to their daemon."""
    headers, tries = (("a", "é"), ("a", "")), Tries(2, (0.5,))
    return {
        "entry.follow": _declared(entry.Follow, first=entry.Follow(), later=entry.Follow(7)),
        "entry.ring": _declared(
            entry.RingReply,
            empty=entry.RingReply("n", "m", "native", 100, 0, ()),
            full=entry.RingReply(
                "é", "m", "native", 1, CHECKSUM_MAX, (entry.RingOwner("n", "10.0.0.1:1"),)
            ),
        ),
        "entry.forward": _declared(
            entry.ForwardHead,
            bare=entry.ForwardHead("k", "GET", "/", ()),
            full=entry.ForwardHead(
                "é",
                "PUT",
                "/x?y",
                headers,
                may_be_here=True,
                idempotent=True,
                failover=2,
                tries=tries,
                keyspace="k-é",
            ),
        ),
        "entry.reply": _declared(
            entry.ReplyHead,
            here=entry.ReplyHead("n", entry.HERE),
            full=entry.ReplyHead("é", 599, headers),
        ),
        "entry.all": _declared(
            entry.AllHead,
            call=entry.AllHead(("k",), "/x", headers=headers),
            full=entry.AllHead(
                ("k", "é"),
                "",
                "GET",
                "/",
                headers,
                may_be_here=True,
                idempotent=True,
                tries=tries,
            ),
        ),
        "entry.answers": Kind(
            encode,
            partial(decode, list[entry.OwnerAnswer]),
            {
                "failed": [entry.OwnerAnswer("", (0,), encode_failure(ApplicationError("k", "m")))],
                "full": [entry.OwnerAnswer("é", (0, 1), b"", 200, headers, b"x")],
            },
        ),
    }


# Keyspaces.

DIGEST: Final = bytes(range(8))
VALUES: Final[list[Value]] = [
    None,
    True,
    -1,
    INTEGER_MAX,
    0.5,
    "é",
    b"\0\xff",
    [1, ["x"]],
    {"a": {"b": None}},
]
PLAIN_WRITE = Write("s", 0, (operations.Change("k", "put", 1),))
FULL_WRITE = Write(
    "s" * 256,
    INTEGER_MAX,
    (operations.Change("é" * 1024, "put", VALUES), operations.Change("", "delete")),
    {"topic/é": {"0": 12}},
    DIGEST,
)
SPAN_WRITE = Write(
    "",
    0,
    (operations.Change("k", "add", 1), operations.Change("k2", "put", b"\0")),
    span=operations.Span("clicks/é.jsonl", 3, INTEGER_MAX, (4, 9)),
)
AGAIN_WRITE = Write("s", 0, (operations.Change("k", "put", 1),), repeats=True)
FAILED = PartitionUnavailable("nobody serves it: “é”")
EPOCH_FILE = EpochFile(3, 1, 2, INTEGER_MAX, 9, {"é": {"0": [1, None]}})
TABLE_ROWS = [
    table.TableRow(0),
    table.TableRow(3, "a", "b", "é", INTEGER_MAX - 1, table.PartitionStatus.MIGRATING, Slot(2, 9)),
]


def _result(
    samples: dict[str, object],
    plain: Callable[[Any], object],
    read: Callable[[Any], object],
) -> Kind:
    """What comes as the one part of an answer; *plain* makes values for the wire of it."""
    return Kind(
        lambda value: encode_results([plain(value)]),
        lambda body: read(decode_results(body, 1)[0]),
        samples,
    )


def _declared(kind: type[Declared | Named], **samples: object) -> Kind:
    return Kind(encode, partial(decode, kind), samples)


def _declared_result(kind: type[Declared], **samples: object) -> Kind:
    return _result(samples, as_it_is, partial(convert, kind))


def _message(message: Any, **samples: object) -> Kind:  # noqa: ANN401 - any class with both
    return Kind(message.encode, message.decode, samples)


def _row_of(said: Any) -> object:  # noqa: ANN401 - the sample
    description = Description(said[0], said[1], Routes.of(*said[2:4]), hash_tags=len(said) > 4)
    return description.row_for(KNOWS_HASH_TAGS)


def _described(value: object) -> object:
    found = convert(Description, value)
    routes = found.routes
    about = found.generation, found.partitions_count, routes.destinations, routes.addresses
    return (*about, True) if found.hash_tags else about


def _keyspaces() -> dict[str, Kind]:
    outcomes = [Outcome(()), Outcome(tuple(VALUES), repeated=True), PartitionFull("é"), FAILED]
    results = [VALUES, Moved([["a"], [0, 0, 0, 0, 1, 2, 0, 0]]), FAILED, OutcomeUnknown("")]
    routes = {0: ("a", 0), 16_383: ("é", INTEGER_MAX), 2: ("", 1)}, {"a": A, "é": B, "x": A}
    columns = Columns(b"k1k2", bytes(8), b"v1", MISSING.to_bytes(4, "little") * 2, more=True)
    return {
        "keyspace.apply": _message(
            ApplyRequest,
            bare=ApplyRequest("k", 0, ()),
            one=ApplyRequest("k", 1, ((0, (PLAIN_WRITE,)),)),
            span=ApplyRequest("k", 1, ((0, (SPAN_WRITE,)),)),
            again=ApplyRequest("k", 1, ((0, (AGAIN_WRITE,)),)),
            full=ApplyRequest("k-é", 1 << 40, ((0, ()), (16_383, (PLAIN_WRITE, FULL_WRITE)))),
        ),
        "keyspace.read": Kind(
            ReadRequest.encode,
            partial(decode, ReadRequest),
            {
                "bare": ReadRequest("k", 0, ()),
                "stored": ReadRequest("k", 0, ((0, ("a",)),), stored=True),
                "full": ReadRequest("k-é", 1, ((0, ("a", "é" * 1024)), (1, ())), stale=True),
            },
        ),
        "keyspace.scan": _declared(
            ScanRequest,
            bare=ScanRequest("k", 0, ()),
            full=ScanRequest("k-é", 1, (0, 5), "p", "é", "z", INTEGER_MAX, stale=True),
        ),
        "keyspace.columns": _declared(
            ColumnsRequest,
            bare=ColumnsRequest("k", 0, ()),
            full=ColumnsRequest("é", 1, ((0, ""), (1, "é" * 1025), (2, ("a", "é"))), 1, stale=True),
        ),
        "keyspace.snapshot": _declared(
            SnapshotRequest,
            bare=SnapshotRequest("k", 0, 0, ()),
            full=SnapshotRequest("k-é", 1, INTEGER_MAX, (0, 16_383)),
        ),
        "keyspace.results": Kind(
            encode_results,
            lambda body: decode_results(body, 4),
            {"nothing": [None, None, None, None], "full": results},
        ),
        "keyspace.outcomes": _result(
            {"full": outcomes}, list, lambda result: outcomes_of(result, 4)
        ),
        "keyspace.values": _result(
            {"full": [None, b"", b"\xc0"]}, list, lambda result: packed_values_of(result, 3)
        ),
        "keyspace.scanned": _declared_result(
            Scanned,
            empty=Scanned([], more=False),
            full=Scanned([("a", b"\xc0"), ("é", b"")], more=True),
        ),
        "keyspace.watch": _declared(
            WatchRequest,
            bare=WatchRequest("k", 0, "", exact=False, wait_ms=0, parts=()),
            full=WatchRequest(
                "k-é",
                1,
                "é",
                exact=True,
                wait_ms=20_000,
                parts=(WatchPart(0, INTEGER_MAX), WatchPart(1, None, "é")),
            ),
        ),
        "keyspace.watched": _declared_result(
            Watched,
            empty=Watched((), 0),
            full=Watched(((1, "é", b"\xc0"), (INTEGER_MAX, "b", None)), INTEGER_MAX, "z"),
        ),
        "client.watched": _result(
            {"full": {0: Watched((), 7), 1: FAILED}}, lambda found: list(found.items()), watched_of
        ),
        "watch.position": _declared(
            WatchPosition,
            bare=WatchPosition(0, ()),
            full=WatchPosition(1, ((0, 0), (1, INTEGER_MAX))),
        ),
        "keyspace.columns-answer": _result(
            {"empty": Columns(b"", b"", b"", b"", more=False), "full": columns},
            list,
            lambda result: columns_in(result, "start"),
        ),
        "keyspace.columns-of-keys": _result(
            {"full": columns._replace(keys=b"", key_sizes=b"")},
            list,
            lambda result: columns_in(result, ("k1", "k2")),
        ),
        "keyspace.epoch-file": _declared_result(EpochFile, full=EPOCH_FILE),
        "client.answer": Kind(
            lambda said: encode_answer(said[0], Routes.of(*said[1:])),
            lambda body: decode_answer(body, 1),
            {"bare": ([None], {}, {}), "full": ([FAILED], *routes)},
        ),
        "client.description": _result(
            {
                "elsewhere": (0, 1, {}, {}),
                "tagged": (1, 2, *routes, True),
                "full": (1, 16_384, *routes),
            },
            _row_of,
            _described,
        ),
        "gossip.rows": Kind(
            lambda rows: encode_value("msgpack", table.to_rows(rows)),
            lambda body: table.from_rows(decode_value("msgpack", body), 4),
            {"empty": [], "full": TABLE_ROWS},
        ),
    }


# What nodes tell each other of keyspaces.

SMALL = Definition(name="k-é", partitions=4)


class _Heard:
    """A node's keyspaces, and all that it was told of them."""

    def __init__(self, *known: Known) -> None:
        self.told: list[object] = []
        self._known = {each.definition.name: each for each in known}
        self.gossip = TableGossip(self, lambda: ("other",), random.Random(1), store_id="s-é")

    def known(self) -> dict[str, Known]:
        return self._known

    def learn_keyspace(self, definition: Definition, generation: int, *, dropped: bool) -> None:
        self.told.append((definition, generation, dropped))
        empty = table.Table(definition.name, generation, definition.partitions)
        self._known.setdefault(definition.name, Known(definition, generation, dropped, empty))

    def learn_rows(self, name: str, rows: list[table.TableRow]) -> None:
        self.told.append((name, rows))

    def hint_assignment(self, name: str, version: int) -> None:
        self.told.append((name, version))


def _told(told: list[Any]) -> bytes:
    if not told:
        return _Heard().gossip._encode()
    (definition, generation, dropped), (name, rows), (_, version) = told
    gossip = _Heard(Known(definition, generation, dropped, None, version)).gossip
    return gossip._encode(gossip._sheets({(name, generation): rows}))


def _heard(body: bytes) -> list[object]:
    heard = _Heard()
    heard.gossip.heard(body)
    return heard.told


def _owned() -> table.Table:
    owned = table.Table("k-é", 1, 4)
    owned.merge(TABLE_ROWS)
    return owned


def _gossip_answer(_: object) -> bytes:
    """What a node with a table says to one that shows an empty one, and a keyspace besides."""
    empty = table.Table("k-é", 1, 4)
    offers = [
        _Offer("k-é", True, 1, False, empty.digest, tuple(empty.fingerprints())),  # noqa: FBT003
        _Offer("x", True, 1, False),  # noqa: FBT003
    ]
    answering, asking = _Heard(Known(SMALL, 1, False, _owned(), 9)), _Heard()  # noqa: FBT003
    return answering.gossip.heard(asking.gossip._encode(offers=offers))


def _heard_answer(body: bytes) -> object:
    heard = _Heard()
    answer = heard.gossip._told_back(body)
    return heard.told, (answer.wants, answer.fingerprints)


def _gossip() -> dict[str, Kind]:
    rows = [dataclasses.replace(row, desired="") for row in TABLE_ROWS[1:]]
    told = [(SMALL, 1, False), ("k-é", rows), ("k-é", 9)]
    revised = dataclasses.replace(SMALL, revision=INTEGER_MAX)
    everything = [(revised, 1 << 40, True), ("k-é", TABLE_ROWS), ("k-é", INTEGER_MAX)]
    marks = (("k-é", tuple(_owned().fingerprints())),)
    return {
        "gossip.told": Kind(_told, _heard, {"nothing": [], "full": everything}),
        "gossip.answer": Kind(_gossip_answer, _heard_answer, {"full": (told, (("x",), marks))}),
    }


# Jobs and actors.

JOB = JobId("k-é", 1 << 40, "night é")
FILES = (StagedFile(0, 1, 0, 0, ()), StagedFile(4_095, INTEGER_MAX, 7, 9, ((0, 1), (16_383, 2))))
MANIFEST = AttemptManifest(FILES, INTEGER_MAX)
ABORTED = Decision(None, "t")
DECIDED = Decision(("a", "é"), "t" * 64, INTEGER_MAX, bytes(4_096))
REFUSED = Refusals(3, (RowRefusal.of("é", PartitionFull("f")),))
DONE = JobProgress(2, 2, 3, 3, 7, applied=True, refused=REFUSED)


def _finished(body: bytes) -> object:
    request = decode(FinishRequest, body)
    decode(AttemptManifest, request.manifest)
    return request


def _jobs() -> dict[str, Kind]:
    stuck = JobProgress(0, 1, 0, INTEGER_MAX, 0, why="é" * 100)
    return {
        "job.id": _declared(JobId, full=JOB),
        "job.stage-head": _declared(
            StageHead,
            bare=StageHead("k", 0, "j", "a", 0, 0),
            full=StageHead(*JOB.head, "é", 1, 2),
        ),
        "job.manifest": _declared(AttemptManifest, bare=AttemptManifest((), 0), full=MANIFEST),
        "job.finish": Kind(
            encode, _finished, {"full": FinishRequest(*JOB.head, "é", encode(MANIFEST))}
        ),
        "job.decision": Kind(
            lambda decision: encode(job_store._Decided(decision)),
            lambda body: decode(job_store._Decided, body).decision,
            {"aborted": ABORTED, "nothing": Decision((), "t"), "full": DECIDED},
        ),
        "job.decide": _declared(
            DecideRequest,
            aborted=DecideRequest(*JOB.head, ABORTED),
            full=DecideRequest(*JOB.head, DECIDED),
        ),
        "job.schemas": _declared(
            SchemasRequest,
            ask=SchemasRequest("k", 1),
            keep=SchemasRequest("k", 1, '{"columns": "é"}'),
        ),
        "job.progress": _declared_result(JobProgress, stuck=stuck, full=replace(DONE, why="é")),
        "job.apply": _declared(
            ApplyJobRequest,
            bare=ApplyJobRequest(*JOB.head, "t", ()),
            full=ApplyJobRequest(*JOB.head, "é", (0, 3)),
        ),
        "job.try": _declared(
            TryJobRequest,
            bare=TryJobRequest(*JOB.head, "t", 0, 0, ()),
            full=TryJobRequest(*JOB.head, "é", 3, 9, ((0, 1), (3, 2))),
        ),
    }


def _recorded(replies_count: int, digest: bytes) -> mailboxes.Record:
    """The record of an actor after that many messages."""
    found = mailboxes.Record()
    for number in range(replies_count):
        mail = Mail("k", 1, 0, "kind", "key", "é", number, b"\x01", digest)
        state: Value = {"n": number, "é": [None]}
        found, _ = found.followed_by(
            mailboxes.Ran(state, encode_value("msgpack", state), b"\xc0", {}), mail
        )
    return found if digest else dataclasses.replace(found, digests={})


def _reminding() -> mailboxes.Record:
    """The record of an actor with a reminder that repeats, after one that is over."""
    armed = {"é": Armed(INTEGER_MAX >> 2, b"\xc0", 1_000)}
    found, _ = mailboxes.Record().followed_by(mailboxes.Ran(1, b"\x01", b"\xc0", armed), None)
    return found


def _packed(found: mailboxes.Record) -> bytes:
    assert found.packed is not None
    return found.packed


def _actors() -> dict[str, Kind]:
    mail = Mail("k", 0, 0, "c", "", "s", 0, b"")
    full = Mail(
        "k-é", 1, 16_383, "c", "é" * 1024, "é", INTEGER_MAX, b"\xc0", DIGEST, ("k/c/a#s/1",)
    )
    return {
        "actor.mail": Kind(Mail.encode, partial(decode, Mail), {"bare": mail, "full": full}),
        "actor.replied": _result(
            {"empty": MailAnswered(b""), "full": MailAnswered(b"\xc0")},
            MailAnswered.as_row,
            partial(convert, MailAnswered),
        ),
        "actor.failed": _result(
            {"full": MailAnswered(None, "é", "m" * 200)},
            MailAnswered.as_row,
            partial(convert, MailAnswered),
        ),
        "actor.record": Kind(
            _packed,
            mailboxes.Record.of,
            {"bare": _recorded(1, b""), "full": _recorded(2, DIGEST), "reminding": _reminding()},
            refusal=StateDamaged,
        ),
    }


def _handed_over_in(body: bytes) -> object:
    request = decode(HandOver, body)
    assert request.content
    return request


def _handing_over() -> dict[str, Kind]:
    row = table.to_rows(TABLE_ROWS[:1])
    life = (5, 0, "n")
    part = Part(
        [
            ["k", b"\xc0", INTEGER_MAX, 3, "é"],
            ["é", None, *life, *life],
            ["", b"", INTEGER_MAX, 3, "é", *life],
        ],
        [["s", 0, b""], ["é", INTEGER_MAX, b"\x80" + bytes(511)]],
        {"o": b"\x01"},
        [["é", record_of(5, DIGEST)]],
    )
    to_us, from_us = ("k", 0, 0, "g", True, row), ("k-é", 1, 2, "g", False, row)
    return {
        "memory.hand-over": Kind(
            encode,
            _handed_over_in,
            {
                "offer": HandOver(*to_us, HandOverStep.OFFER, "", *BLANK, []),
                "full": HandOver(*from_us, HandOverStep.LAST, "t" * 64, *part, []),
                "copied": HandOver(*from_us, HandOverStep.LAST, "t", *BLANK, ["a", "é"]),
            },
        ),
        "memory.copy": Kind(
            encode,
            partial(decode, CopyGroup),
            {
                "none": CopyGroup("k", 0, "o", []),
                "full": CopyGroup(
                    "k-é",
                    1,
                    "é",
                    [
                        CopyPart(0, "r", CopyStep.CHANGES, 3, 5, True, False, *part),  # noqa: FBT003
                        CopyPart(1, "r", CopyStep.WHOLE, 0, INTEGER_MAX, False, True, *part),  # noqa: FBT003
                        CopyPart(2, "r", CopyStep.FORGET, 0, 0, True, True, *BLANK),  # noqa: FBT003
                    ],
                ),
            },
        ),
        "memory.copies-asked": Kind(
            encode,
            partial(decode, CopiesAsked),
            {
                "none": CopiesAsked("k", 0, "a", [], False),  # noqa: FBT003
                "full": CopiesAsked("k-é", 1, "é", [(0, "", 0), (2, "r", INTEGER_MAX)], True),  # noqa: FBT003
            },
        ),
    }


# What a store holds.

KEYS = KeyspaceKeys("prod", "k-é", 3)
JOURNAL_KEYS = KEYS.journal("n" * 24)


def _stored(
    key: str,
    put: Callable[[MemoryStore, Any], object],
    read: Callable[[MemoryStore], object],
    samples: dict[str, object],
    refusal: type[Exception] = StateDamaged,
) -> Kind:
    """What *put* leaves under *key* of a store, and *read* finds there."""

    def encode(value: object) -> bytes:
        store = MemoryStore()
        put(store, value)
        found = store.get(key)
        assert found is not None
        return found

    def decode(body: bytes) -> object:
        store = MemoryStore()
        store.put_if_absent(key, body)
        return read(store)

    return Kind(
        encode,
        decode,
        samples,
        refusal=refusal,
        strip=lambda value: value[len(HEAD) : -CHECKSUM_BYTES],
        dress=lambda payload: wrap(payload, key),
    )


def _put_entry(store: MemoryStore, entry: CatalogEntry) -> None:
    Catalog(store, "prod")._put(entry.definition, entry.generation, entry.origin)


def _put_applied(store: MemoryStore, done: JobProgress) -> None:
    found = JobStore(store, KEYS, Placing(4))
    if done.refused.count:
        found.put_refusals("j", 1, 2, done.refused)
    counts = {0: 1, 3: 2}
    plan = JobPlan(ABORTED, (), counts, 7)
    found.put_applied(JobRecord("j", plan=plan, found=dict(counts)))


def _body_of(parts: ReadBody) -> bytes:
    changed, deleted, ids, offsets = parts
    group = Group()
    group.changed = {**changed, **dict.fromkeys(deleted)}
    group.deleted = dict.fromkeys(deleted)
    group.ids, group.offsets = ids, offsets
    return encode_value("msgpack", group.body(mergeable=False))


def _store() -> dict[str, Kind]:
    definition = Definition(name="k-é")
    chosen = Definition(
        name="k-é",
        partitions=16_384,
        mode="memory",
        strategy="round_robin",
        automatic=False,
        min_cluster_size=3,
        max_keys_per_partition=1 << 40,
        checkpoint_interval_s=0.5,
        merge="max",
    )
    manifest = Manifest("k-é", 3, 7, (EPOCH_FILE,), ("a", "é"), "é", INTEGER_MAX)
    jobs_keys = KEYS.job("j")
    body = ReadBody({"é": b"\xc0"}, ["d"], {"s": [0, 5, DIGEST], "é": [INTEGER_MAX]}, {"o": b"\1"})
    return {
        "store.definition": _stored(
            KEYS.definition,
            _put_entry,
            lambda store: Catalog(store, "prod")._read("k-é", 3, dropped=False),
            {
                "plain": CatalogEntry(definition, 3),
                "chosen": CatalogEntry(chosen, 3),
                "tagged": CatalogEntry(dataclasses.replace(chosen, hash_tags=True), 3),
                "full": CatalogEntry(chosen, 3, origin="restored from é"),
            },
        ),
        "store.revision": _stored(
            KEYS.revised(2),
            _put_entry,
            lambda store: Catalog(store, "prod")._read("k-é", 3, dropped=False, revision=2),
            {"full": CatalogEntry(dataclasses.replace(chosen, revision=2), 3)},
        ),
        "store.assignment": _stored(
            KEYS.assignment(7),
            lambda store, assignment: record(store, KEYS, assignment),
            lambda store: read_newest(store, KEYS, 3),
            {"full": Assignment(7, ("é", "a", "é"))},
        ),
        "store.manifest": _stored(
            KEYS.manifest(7),
            lambda store, found: store.put_if_absent(
                KEYS.manifest(7), found.encode(KEYS.manifest(7))
            ),
            lambda store: read_manifest(store, KEYS, 7),
            {"bare": dataclasses.replace(manifest, files=(), members=()), "full": manifest},
        ),
        "store.applied": _stored(
            jobs_keys.applied,
            _put_applied,
            lambda store: JobStore(store, KEYS, Placing(4)).applied("j"),
            {"bare": replace(DONE, refused=Refusals()), "full": DONE},
        ),
        "store.schema": _stored(
            KEYS.schema(0),
            lambda store, schema: JobStore(store, KEYS, Placing(4)).keep_schema(schema),
            lambda store: "".join(JobStore(store, KEYS, Placing(4)).schemas()),
            {"full": '{"columns": "é"}'},
        ),
        "store.refusals": _stored(
            jobs_keys.refused_by(1, 2, 0),
            lambda store, refused: JobStore(store, KEYS, Placing(4)).put_refusals(
                "j", 1, 2, refused
            ),
            lambda store: JobStore(store, KEYS, Placing(4)).refusals("j"),
            {"full": REFUSED},
        ),
        "journal.body": Kind(
            _body_of,
            lambda packed: parts_of(decode_value("msgpack", packed)),
            {"empty": ReadBody({}, [], {}, {}), "full": body},
            refusal=StateDamaged,
        ),
    }


def _sealed(
    key: str,
    encode: Callable[[Any, str], bytes],
    decode: Callable[[bytes, str], object],
    **samples: object,
) -> Kind:
    """What has a checksum that is bound to *key*."""
    return Kind(
        lambda value: encode(value, key),
        lambda body: decode(body, key),
        samples,
        refusal=StateDamaged,
        strip=lambda value: value[len(HEAD) : -CHECKSUM_BYTES],
        dress=lambda payload: wrap(payload, key),
    )


def _journals() -> dict[str, Kind]:
    body = [{"k": b"\xc0"}, [], {"s": [0]}, {}]
    entry, release = (
        journal_is.Entry(3, 2, body),
        journal_is.Entry(16_383, INTEGER_MAX, journal_is.Release("é")),
    )
    return {
        "journal.claim": _sealed(
            KEYS.partition(3).claim(2),
            journal_codec.encode_claim,
            journal_codec.decode_claim,
            bare=journal_is.Claim("", "n", 1),
            full=journal_is.Claim("é", "n" * 24, INTEGER_MAX, Slot(INTEGER_MAX, 7)),
        ),
        "journal.record": _sealed(
            JOURNAL_KEYS.slot(5),
            journal_codec.encode_record,
            journal_codec.decode_record,
            seal=journal_is.Seal("é"),
            one=journal_is.Group((entry,)),
            full=journal_is.Group((entry, release)),
        ),
        "journal.mark": _sealed(
            JOURNAL_KEYS.mark(5),
            journal_codec.encode_mark,
            journal_codec.decode_mark,
            bare=journal_is.Mark({}),
            full=journal_is.Mark({0: Slot(0, 0), 16_383: Slot(INTEGER_MAX, 7)}),
        ),
    }


# Files of Arrow: only what they say beside the rows, for the rest is Arrow's.

STAGE_FIXED_BYTES: Final = 20


def _stage_head(index: Index) -> bytes:
    chunks = [
        Chunk(partition, pa.array(["k"] * count), pa.array([b"\xc0"] * count))
        for partition, count in index.chunks
    ]
    file = encode_stage(index.operation, chunks)
    return file[STAGE_FIXED_BYTES:][: int.from_bytes(file[16:20], "little")]


def _staged(head: bytes) -> Index:
    rest = len(head).to_bytes(4, "little") + head
    rest += bytes(-(16 + len(rest)) % 64)
    return index_of(MAGIC + xxhash.xxh64_digest(rest) + rest)


def _checkpoint(sessions: tuple[tuple[str, Session], ...], offsets: dict[str, bytes]) -> bytes:
    entries = FrozenEntries({"é": b"\xc0", "k": b"\x01"})
    snapshot = Snapshot(1, 0, entries, ("d",), sessions, offsets)
    slots = (Slot(1, 0), Slot(INTEGER_MAX, 7))
    return encode_checkpoint(Checkpoint("k-é", 3, 5, slots[1], slots[:1], snapshot))


def _saved_changes(found: tuple[int, tuple[tuple[str, bytes | None], ...]]) -> bytes:
    recent = RecentChanges(WatchCounts())
    recent.newest, recent._kept = found[0], deque(found[1])
    return recent.saved()


def _restored_changes(saved: bytes) -> object:
    recent = RecentChanges(WatchCounts())
    recent.restore(saved)
    return recent.newest, tuple(recent._kept)


def _metadata(file: bytes) -> dict[str, str]:
    schema = pa.ipc.open_file(pa.py_buffer(file)).schema
    return {name.decode(): text.decode() for name, text in schema.metadata.items()}


def _checkpoint_saying(**texts: str) -> Snapshot:
    """The snapshot in a checkpoint whose metadata are as usual but for *texts*."""
    file = _checkpoint((), {})
    reader = pa.ipc.open_file(pa.py_buffer(file))
    schema = reader.schema.with_metadata(_metadata(file) | texts)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema) as writer:
        for number in range(reader.num_record_batches):
            writer.write_batch(reader.get_batch(number))
    return decode_checkpoint(checkpoints._sealed(sink)).snapshot


def _said_in(metadata: bytes) -> object:
    snapshot = _checkpoint_saying(**json.loads(metadata))
    return snapshot.sessions, snapshot.offsets


def _base64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def _files() -> dict[str, Kind]:
    sessions = (
        ("s", (0, 0, b"")),
        ("é", (INTEGER_MAX, 1 << 4_095, record_of(INTEGER_MAX, DIGEST))),
    )
    return {
        "stage.head": Kind(
            _stage_head,
            _staged,
            {"one": Index("put", ((0, 1),)), "full": Index("é", ((0, 2), (0, 1), (16_383, 3)))},
            refusal=StateDamaged,
        ),
        "checkpoint.metadata": Kind(
            lambda of: json.dumps(_metadata(_checkpoint(*of)), sort_keys=True).encode(),
            _said_in,
            {"bare": ((), {}), "full": (sessions, {"é": b"\xc0"})},
            scheme="",
        ),
        "checkpoint.sessions": Kind(
            lambda found: base64.b64decode(_metadata(_checkpoint(found, {}))["sessions"]),
            lambda packed: _checkpoint_saying(sessions=_base64(packed)).sessions,
            {"full": sessions},
            refusal=StateDamaged,
        ),
        "checkpoint.changes": Kind(
            _saved_changes,
            _restored_changes,
            {"none": (0, ()), "full": (INTEGER_MAX, (("é", b"\xc0"), ("d", None)))},
            refusal=StateDamaged,
        ),
        "checkpoint.offsets": Kind(
            lambda offsets: base64.b64decode(_metadata(_checkpoint((), offsets))["offsets"]),
            lambda packed: _checkpoint_saying(offsets=_base64(packed)).offsets,
            {"full": {"é": b"\xc0"}},
            refusal=StateDamaged,
        ),
    }


KINDS: Final[dict[str, Kind]] = {
    **_native(),
    **_ringpop(),
    **_proxy(),
    **_entry(),
    **_keyspaces(),
    **_gossip(),
    **_jobs(),
    **_actors(),
    **_handing_over(),
    **_store(),
    **_journals(),
    **_files(),
}
