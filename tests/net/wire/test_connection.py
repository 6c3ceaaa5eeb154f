"""Two ends talk through bytes; whatever a peer sends, only a `WireError` can come of it."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    BadRequest,
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    TooManyInFlight,
    WireError,
)
from ringpop_py.net.wire import frames
from ringpop_py.net.wire.calls import (
    Answer,
    AnswerReceived,
    Call,
    CallFailed,
    CallReceived,
    CallUnreadable,
    CancelReceived,
    Ended,
    Event,
    Initialised,
)
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.frames import ErrorCode, frame, u16
from ringpop_py.net.wire.init import NO_LISTENER, init_frame
from ringpop_py.net.wire.outbound import call_error

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = WireLimits()
VECTOR = bytes.fromhex(
    "0068 03 00 00000002 0000000000000000 00 00000bb8" + "00" * 25 + "07 72696e67706f70 02 02 6173"
    "03 726177 02 636e 05 70726f6265 00 000d 2f61646d696e2f6c6f6f6b7570 0000 000d"
    "7b226b6579223a22616263227d"
)
NAMES = (("host_port", "127.0.0.1:1"), ("process_name", "peer"))


def make(
    *,
    initiates: bool = False,
    limits: WireLimits = LIMITS,
    **options: Any,  # noqa: ANN401 - as Connection takes them
) -> Connection:
    return Connection(
        host_port=NO_LISTENER,
        process_name="probe",
        initiates=initiates,
        limits=limits,
        **options,
    )


def make_served(limits: WireLimits = LIMITS) -> Connection:
    """An end that has been dialed and has heard who the peer is."""
    connection = make(limits=limits)
    connection.receive(init_frame(frames.INIT_REQ, 1, NAMES))
    connection.take_outgoing()
    return connection


def make_pair(limits: WireLimits = LIMITS) -> tuple[Connection, Connection]:
    client, server = make(initiates=True, limits=limits), make(limits=limits)
    server.receive(client.take_outgoing())
    client.receive(server.take_outgoing())
    return client, server


def call(**options: Any) -> Call:  # noqa: ANN401 - as Call takes them
    defaults: dict[str, Any] = {"service": "app", "endpoint": "/echo", "ttl_s": 1.0}
    return Call(**(defaults | options))


def call_payload(
    *,
    ttl: int = 1_000,
    headers: tuple[tuple[bytes, bytes], ...] = ((b"as", b"raw"), (b"cn", b"x")),
    end: bytes = b"\0" + u16(1) + b"e" + u16(0) * 2,
    flags: int = 0,
) -> bytes:
    packed = b"".join(bytes((len(k),)) + k + bytes((len(v),)) + v for k, v in headers)
    head = bytes((flags,)) + ttl.to_bytes(4, "big") + bytes(25) + b"\x03app"
    return head + bytes((len(headers),)) + packed + end


def test_the_documented_call_is_read_and_written_as_documented() -> None:
    server = make_served()

    events = server.receive(VECTOR)

    head = ("ringpop", "/admin/lookup", "raw", {"as": "raw", "cn": "probe"})
    assert events == [CallReceived(2, head, b"", b'{"key":"abc"}', 3000, 0)]  # type: ignore[arg-type]
    client, _ = make_pair()
    sent = Call("ringpop", "/admin/lookup", b"", b'{"key":"abc"}', ttl_s=3, scheme="raw")
    assert client.send_call(sent) == 2
    assert client.take_outgoing() == VECTOR


def test_both_ends_introduce_themselves_first() -> None:
    client = make(initiates=True, init_headers={"cluster": "east"})
    server = make()

    (met,) = server.receive(client.take_outgoing())
    (welcomed,) = client.receive(server.take_outgoing())

    assert isinstance(met, Initialised)
    assert met.headers["cluster"] == "east"
    assert met.headers.keys() >= {"host_port", "process_name", "tchannel_language"}
    assert isinstance(welcomed, Initialised)
    assert repr(client) == "<Connection to 0.0.0.0:0 open>"


def test_an_unwelcome_peer_is_told_why() -> None:
    client = make(initiates=True)
    server = make(accept=lambda _: "another cluster")

    assert server.receive(client.take_outgoing()) == [Ended("another cluster", refused=True)]
    assert client.receive(server.take_outgoing()) == [Ended("another cluster", refused=True)]
    assert client.closed
    assert server.closed


def test_an_end_that_dialed_may_refuse_too() -> None:
    client = make(initiates=True, accept=lambda _: "another cluster")
    server = make()
    server.receive(client.take_outgoing())

    assert client.receive(server.take_outgoing()) == [Ended("another cluster", refused=True)]
    assert server.receive(client.take_outgoing()) == [Ended("another cluster", refused=False)]


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (frame(frames.CALL_REQ, 1, call_payload()), "out of place"),
        (frame(frames.INIT_RES, 1), "out of place"),
        (frame(frames.INIT_REQ, 1, u16(1) + u16(0)), "speaks version 2"),
        (frame(frames.INIT_REQ, 1, u16(2) + u16(65)), "more than 64"),
        (init_frame(frames.INIT_REQ, 1, NAMES[:1]), "process_name is missing"),
        (init_frame(frames.INIT_REQ, 1, (*NAMES, *NAMES)), "there twice"),
    ],
)
def test_a_peer_that_does_not_introduce_itself_is_closed(raw: bytes, match: str) -> None:
    connection = make()

    with pytest.raises(WireError, match=match):
        connection.receive(raw)

    assert connection.closed
    assert connection.take_outgoing()[16] == ErrorCode.FATAL


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (frame(0x77, 1), "out of place"),
        (frame(frames.INIT_REQ, 1), "out of place"),
        (frame(frames.CALL_REQ, 1, call_payload(ttl=0)), "ttl of 0"),
        (frame(frames.CALL_REQ, 1), "before its service"),
        (frame(frames.CALL_REQ, frames.NO_ID, call_payload()), "cannot be used"),
        (frame(frames.CALL_REQ, 1, call_payload(headers=((b"as", b"a"),) * 2)), "there twice"),
        (frame(frames.CALL_REQ, 1, call_payload(headers=((b"k" * 17, b""),))), "1 to 16 bytes"),
        (frame(frames.CALL_REQ, 1, call_payload(headers=((b"", b""),))), "1 to 16 bytes"),
        (frame(frames.CALL_REQ, 1, call_payload(headers=((b"a", b""),) * 129)), "more than 128"),
        (frame(frames.CALL_REQ, 1, call_payload(end=b"\x07")), "no checksum type"),
        (frame(frames.CALL_REQ, 1, call_payload(end=b"\0")), "3 arguments"),
        (frame(frames.CANCEL, 1), "middle of a field"),
        (frame(frames.ERROR, 1), "middle of a field"),
    ],
)
def test_a_violation_is_fatal(raw: bytes, match: str) -> None:
    connection = make_served()

    with pytest.raises(WireError, match=match):
        connection.receive(raw)

    assert connection.closed
    assert connection.receive(VECTOR) == []


def test_calls_before_a_violation_are_delivered() -> None:
    connection = make_served()

    first, second = connection.receive(VECTOR + frame(0x77, 1))

    assert isinstance(first, CallReceived)
    assert isinstance(second, Ended)
    assert not second.refused


@pytest.mark.parametrize("missing", ["as", "cn"])
def test_a_call_without_a_required_header_is_a_bad_request(missing: str) -> None:
    connection = make_served()
    header = (b"as", b"raw") if missing == "cn" else (b"cn", b"x")

    events = connection.receive(frame(frames.CALL_REQ, 1, call_payload(headers=(header,))))

    assert events == [CallUnreadable("app", f"no {missing} header")]
    answer = connection.take_outgoing()
    assert answer == frames.error_frame(1, ErrorCode.BAD_REQUEST, f"no {missing} header")
    assert not connection.closed


@pytest.mark.parametrize("checksum_type", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, 60_000, 65_400, 65_500, 200_000])
def test_calls_and_answers_of_every_size_arrive(size: int, checksum_type: int) -> None:
    client, server = make_pair()
    body = bytes(range(256)) * (size // 256 + 1)

    for _ in range(2):  # the second time, heads are known
        client.send_call(call(arg2=b"h", arg3=body[:size], checksum_type=checksum_type))
        (asked,) = server.receive(client.take_outgoing())
        assert isinstance(asked, CallReceived)
        server.send_answer(asked.id, Answer(ok=False, arg2=b"r", arg3=asked.arg3))
        (answered,) = client.receive(server.take_outgoing())

        assert asked.head[:3] == ("app", "/echo", "msgpack")
        assert (asked.arg2, asked.arg3, asked.ttl_ms) == (b"h", body[:size], 1_000)
        assert asked.checksum_type == checksum_type
        expected = Answer(ok=False, arg2=b"r", arg3=body[:size], scheme="msgpack")
        assert answered == AnswerReceived(asked.id, expected)
    assert len(client.calls) == len(server.served) == 0
    assert client.served._budget.used_bytes == server.served._budget.used_bytes == 0


def traced(work: Callable[[], object]) -> tuple[int, int]:
    """Run *work*; return by how many bytes memory grew, and by how many at most meanwhile."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = work()
        found = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return found


def test_a_large_message_is_copied_once_to_be_sent_and_once_to_be_received() -> None:
    client, server = make_pair()
    body = bytes(4 << 20)
    some_frames = 4 * frames.FRAME_BYTES_MAX
    events: list[Event] = []

    def send() -> None:
        client.send_call(call(arg3=body))

    def bring() -> None:
        while client.outgoing:
            events.extend(server.receive(client.queue.take_piece()))

    held, peak = traced(send)
    assert len(body) < held <= peak < len(body) + some_frames
    held, peak = traced(bring)

    (asked,) = events
    assert isinstance(asked, CallReceived)
    assert asked.arg3 == body
    # It grows with what arrives, so it has some room to grow before the last frame.
    assert len(body) < held < len(body) + some_frames
    assert peak < len(body) * 9 // 8 + some_frames


@pytest.mark.parametrize("small", [b"", bytes(100)])
def test_a_small_argument_that_is_kept_does_not_keep_the_large_one(small: bytes) -> None:
    client, server = make_pair()
    client.send_call(call(arg2=small, arg3=bytes(4 << 20)))
    raw = client.take_outgoing()

    def receive() -> bytes:
        (asked,) = server.receive(raw)
        assert isinstance(asked, CallReceived)
        assert server.send_error(asked.id, ErrorCode.BUSY, "")
        return asked.arg2

    held, _ = traced(receive)

    assert held < frames.FRAME_BYTES_MAX


def test_a_message_in_tiny_pieces_holds_little_more_than_its_bytes() -> None:
    server = make_served()
    count = 50_000
    first = call_payload(flags=1, end=b"\0" + u16(1) + b"e" + u16(0) + u16(0))
    rest = b"".join(
        frame(frames.CALL_REQ_CONTINUE, 1, b"\1\0" + u16(2) + b"xy") for _ in range(count)
    )
    server.receive(frame(frames.CALL_REQ, 1, first))

    held, _ = traced(lambda: server.receive(rest))

    assert server.served._budget.used_bytes == 1 + 2 * count
    assert held < 4 * 2 * count  # as objects of their own, they would have 28 times their bytes


@pytest.mark.parametrize("size", [1, 70_000])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"scheme": "raw"}, {"scheme": "json"}),
        ({"endpoint": "/echo"}, {"endpoint": "/other"}),
        ({"service": "app"}, {"service": "ringpop"}),
        ({"headers": (("rd", "one"),)}, {"headers": (("rd", "two"),)}),
        ({"headers": (("rd", "one"),)}, {}),
    ],
)
def test_calls_that_differ_in_one_thing_keep_it(
    first: dict[str, Any], second: dict[str, Any], size: int
) -> None:
    client, server = make_pair()

    for options in (first, second, first, second):
        client.send_call(call(arg3=bytes(size), **options))
        (asked,) = server.receive(client.take_outgoing())
        assert isinstance(asked, CallReceived)
        expected = call(**options)
        headers = {"as": expected.scheme, "cn": "probe", **dict(expected.headers)}
        assert asked.head == (expected.service, expected.endpoint, expected.scheme, headers)


@pytest.mark.parametrize("size", [1, 70_000])
def test_answers_that_differ_in_one_thing_keep_it(size: int) -> None:
    client, server = make_pair()
    answers = [
        Answer(ok=ok, arg3=bytes(size), scheme=scheme)
        for ok in (True, False)
        for scheme in ("raw", "json", "msgpack")
    ]

    for answer in answers * 2:
        call_id = client.send_call(call())
        server.receive(client.take_outgoing())
        server.send_answer(call_id, answer)
        assert client.receive(server.take_outgoing()) == [AnswerReceived(call_id, answer)]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.data())
def test_a_stream_of_calls_may_be_cut_anywhere(bodies: list[bytes], data: st.DataObject) -> None:
    client, server = make_pair()
    for body in bodies:
        client.send_call(call(arg3=body, headers=(("sk", "shard"),)))
    stream = client.take_outgoing()

    events: list[Event] = []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        events += server.receive(stream[:count])
        stream = stream[count:]

    assert [event.arg3 for event in events if isinstance(event, CallReceived)] == bodies


def test_answers_may_come_out_of_order_and_fragments_between_each_other() -> None:
    client, server = make_pair()
    ids = [client.send_call(call(arg3=bytes(70_000))) for _ in range(2)]
    streams = [client.take_outgoing()]
    events = server.receive(streams[0])
    assert [event.id for event in events if isinstance(event, CallReceived)] == ids

    for call_id in reversed(ids):
        server.send_answer(call_id, Answer(ok=True, arg3=bytes(70_000)))
    first = server.queue.chunks[:2]
    second = server.queue.chunks[2:]
    mixed = b"".join(chunk for pair in zip(first, second, strict=True) for chunk in pair)

    answers = client.receive(mixed)
    assert [event.id for event in answers if isinstance(event, AnswerReceived)] == ids[::-1]


def test_a_wrong_checksum_ends_only_its_call() -> None:
    client, server = make_pair()
    client.send_call(call(arg3=b"truth", checksum_type=1))

    events = server.receive(client.take_outgoing().replace(b"truth", b"trust"))
    (failed,) = client.receive(server.take_outgoing())

    assert events == [CallUnreadable("app", "the checksum does not match")]
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, BadRequest)
    assert not server.closed


@pytest.mark.parametrize("checksum_type", [1, 2, 3])
def test_a_frame_whose_checksum_is_zero_is_checked_like_any_other(checksum_type: int) -> None:
    server = make_served()
    arguments = u16(1) + b"e" + u16(0) + u16(5) + b"truth"
    stamped = bytes((checksum_type,)) + bytes(4) + arguments

    events = server.receive(frame(frames.CALL_REQ, 1, call_payload(end=stamped)))

    assert events == [CallUnreadable("app", "the checksum does not match")]


def test_an_answer_with_a_wrong_checksum_fails_its_call() -> None:
    client, server = make_pair()
    call_id = client.send_call(call(checksum_type=3))
    server.receive(client.take_outgoing())
    server.send_answer(call_id, Answer(ok=True, arg3=b"truth"))

    (failed,) = client.receive(server.take_outgoing().replace(b"truth", b"trust"))

    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, PeerFailed)


def test_a_cancelled_call_ends_with_an_error_and_its_handler_is_told() -> None:
    client, server = make_pair()
    call_id = client.send_call(call())
    server.receive(client.take_outgoing())

    assert client.send_cancel(call_id, "enough")
    assert server.receive(client.take_outgoing()) == [CancelReceived(call_id, "enough")]

    assert not server.send_answer(call_id, Answer(ok=True))
    assert client.receive(server.take_outgoing()) == []
    assert not client.send_cancel(call_id, "again")


def test_a_call_that_was_cancelled_between_fragments_is_forgotten() -> None:
    client, server = make_pair()
    call_id = client.send_call(call(arg3=bytes(200_000)))
    fragments = list(client.queue.chunks)
    client.take_outgoing()

    assert server.receive(fragments[0]) == []
    assert server.receive(frames.cancel_frame(call_id, 1, "")) == []
    assert server.receive(b"".join(fragments[1:])) == []

    assert server.served._budget.used_bytes == 0


def half_an_answer() -> tuple[Connection, int, bytes]:
    """A client that has read the first frame of an answer, its call, and the other frames."""
    client, server = make_pair()
    call_id = client.send_call(call())
    server.receive(client.take_outgoing())
    server.send_answer(call_id, Answer(ok=True, arg3=bytes(200_000)))
    first, *rest = server.queue.chunks
    assert client.receive(first) == []
    assert client.served._budget.used_bytes > 60_000
    return client, call_id, b"".join(rest)


def _cancel(client: Connection, call_id: int) -> None:
    assert client.send_cancel(call_id, "enough")


def _take_an_error(client: Connection, call_id: int) -> None:
    (failed,) = client.receive(frames.error_frame(call_id, ErrorCode.TIMEOUT, "too late"))
    assert isinstance(failed, CallFailed)


@pytest.mark.parametrize("end", [_cancel, Connection.forget_call, _take_an_error])
def test_a_call_that_ends_between_fragments_of_its_answer_holds_nothing(
    end: Callable[[Connection, int], None],
) -> None:
    client, call_id, rest = half_an_answer()

    end(client, call_id)

    assert client.served._budget.used_bytes == 0
    assert client.receive(rest) == []
    assert client.served._budget.used_bytes == 0
    assert len(client.calls) == 0


def test_a_connection_that_ends_between_fragments_of_an_answer_holds_nothing() -> None:
    client, _, _ = half_an_answer()

    client.close()

    assert client.served._budget.used_bytes == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, CallTimeout),
        (2, CallCancelled),
        (3, PeerBusy),
        (4, PeerDeclined),
        (5, PeerFailed),
        (6, BadRequest),
        (7, ConnectionLost),
        (8, PeerBusy),
        (99, PeerFailed),
    ],
)
def test_an_error_frame_is_an_exception_of_its_kind(code: int, kind: type[Exception]) -> None:
    assert type(call_error(code, "why")) is kind
    client, server = make_pair()
    call_id = client.send_call(call())
    server.receive(client.take_outgoing())

    assert server.send_error(call_id, code, "why")  # type: ignore[arg-type]
    (failed,) = client.receive(server.take_outgoing())

    assert isinstance(failed, CallFailed)
    assert type(failed.error) is kind
    assert str(failed.error) == "why"


def test_a_peer_says_why_it_closes() -> None:
    client, server = make_pair()
    server.send_fatal("going home")

    assert client.receive(server.take_outgoing()) == [Ended("going home", refused=False)]


def test_a_peer_that_ends_in_good_order_has_run_nothing_that_it_did_not_answer() -> None:
    client, server = make_pair()
    server.send_goodbye("the node has ended")

    assert client.receive(server.take_outgoing()) == [Ended("the node has ended", refused=True)]
    assert client.closed


def test_a_decline_that_belongs_to_no_known_call_ends_nothing() -> None:
    client, _ = make_pair()

    assert client.receive(frames.error_frame(7, ErrorCode.DECLINED, "late")) == []
    assert not client.closed


def test_pings_are_answered_and_claims_and_unknown_ids_ignored() -> None:
    connection = make_served()
    noise = b"".join(
        (
            frame(frames.PING_RES, 1),
            frame(frames.CLAIM, 1, bytes(29)),
            frame(frames.CALL_RES, 9, b"whatever"),
            frame(frames.CALL_RES_CONTINUE, 9, b"whatever"),
            frame(frames.CALL_REQ_CONTINUE, 9, b"whatever"),
            frames.error_frame(9, 5, "late"),
            frames.cancel_frame(9, 1, "late"),
        )
    )

    assert connection.receive(noise + frame(frames.PING_REQ, 7)) == []
    assert connection.take_outgoing() == frame(frames.PING_RES, 7)


# Limits.


def test_calls_in_flight_are_bounded_at_both_ends() -> None:
    client, _ = make_pair(WireLimits(calls_in_flight_max=1))
    client.send_call(call())
    with pytest.raises(TooManyInFlight):
        client.send_call(call())

    eager, _ = make_pair()
    server = make_served(WireLimits(calls_in_flight_max=1))
    for _ in range(2):
        eager.send_call(call())
    (received,) = server.receive(eager.take_outgoing())
    assert isinstance(received, CallReceived)
    (failed,) = eager.receive(server.take_outgoing())
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, PeerBusy)


@pytest.mark.parametrize("service", ["app", "ringpop"])
def test_a_message_over_its_limit_is_refused_by_both_ends(service: str) -> None:
    small = WireLimits(message_bytes_max=100_000, control_bytes_max=70_000)
    size_max = 70_000 if service == "ringpop" else 100_000
    large = call(service=service, endpoint="/admin/x", arg3=bytes(size_max))
    client, _ = make_pair(small)
    with pytest.raises(BadRequest, match=f"at most {size_max}"):
        client.send_call(large)

    eager, _ = make_pair(WireLimits())
    server = make_served(small)
    eager.send_call(large)
    (refused,) = server.receive(eager.take_outgoing())
    (failed,) = eager.receive(server.take_outgoing())
    assert isinstance(refused, CallUnreadable)
    assert refused.service == service
    assert f"at most {size_max}" in refused.why or f"more than {size_max}" in refused.why
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, BadRequest)
    assert server.served._budget.used_bytes == 0
    assert not server.closed


def test_a_small_limit_holds_for_heads_that_are_known() -> None:
    server = make_served(WireLimits(message_bytes_max=100))
    eager, _ = make_pair()
    for body in (b"", b"", bytes(200)):
        eager.send_call(call(arg3=body))

    kinds = [type(event) for event in server.receive(eager.take_outgoing())]

    assert kinds == [CallReceived, CallReceived, CallUnreadable]


def test_an_answer_over_the_limit_is_an_error_at_either_end() -> None:
    client, server = make_pair(WireLimits(message_bytes_max=70_000))
    for _ in range(2):
        client.send_call(call())
    events = server.receive(client.take_outgoing())
    server.send_answer(events[0].id, Answer(ok=True, arg3=bytes(70_001)))  # type: ignore[union-attr]
    server.served._limits = WireLimits()
    server.send_answer(events[1].id, Answer(ok=True, arg3=bytes(70_001)))  # type: ignore[union-attr]

    failures = client.receive(server.take_outgoing())

    assert [type(event.error) for event in failures if isinstance(event, CallFailed)] == [
        PeerFailed,
        PeerFailed,
    ]
    assert client.served._budget.used_bytes == 0


def test_unfinished_messages_are_bounded_in_number_and_in_bytes() -> None:
    unfinished = call_payload(flags=1, end=b"\0" + u16(1) + b"e" + u16(100) + bytes(100))
    server = make_served(WireLimits(assembling_max=2, assembling_bytes_max=150))

    events = [
        event
        for call_id in range(1, 5)
        for event in server.receive(frame(frames.CALL_REQ, call_id, unfinished))
    ]

    assert [type(event) for event in events] == [CallUnreadable] * 3
    assert len(server.served._arriving) == 1  # no room for the second, so none for the rest
    assert server.served._budget.used_bytes == 101
    server.close()
    assert server.served._budget.used_bytes == 0


def test_the_number_of_unfinished_messages_is_bounded() -> None:
    unfinished = call_payload(flags=1, end=b"\0")
    server = make_served(WireLimits(assembling_max=2))

    for call_id in range(1, 5):
        server.receive(frame(frames.CALL_REQ, call_id, unfinished))

    assert len(server.served._arriving) == 2
    assert server.take_outgoing().count(b"too many unfinished messages") == 2


@pytest.mark.parametrize(
    "options",
    [
        {"service": "s" * 256},
        {"endpoint": "e" * 20_000},
        {"headers": (("k" * 17, ""),)},
        {"headers": (("cn", "again"),)},
        {"headers": (("k", "v" * 256),)},
        {"headers": tuple((f"k{i}", "") for i in range(128))},
    ],
)
def test_a_call_that_no_frame_can_carry_is_refused_here(options: dict[str, Any]) -> None:
    client, _ = make_pair()

    with pytest.raises(BadRequest):
        client.send_call(call(**options))

    assert len(client.calls) == 0
    assert not client.outgoing


def test_built_and_recognised_heads_are_bounded() -> None:
    client, server = make_pair()
    for number in range(600):
        client.send_call(call(endpoint=f"/{number}"))
        server.receive(client.take_outgoing())

    assert len(client.calls._prefixes) <= 256
    assert len(server.served._known._heads) <= 64


def test_ids_wrap_and_skip_those_in_flight() -> None:
    client, _ = make_pair()
    client.calls._next_id = frames.ID_MAX
    client.send_call(call())

    assert client.send_call(call()) == 0
    client.calls._next_id = frames.ID_MAX
    assert client.send_call(call()) == 1
    client.calls._next_id = 0
    assert client.send_call(call()) == 2


@given(st.data())
def test_mutated_frames_raise_nothing_but_a_wire_error(data: st.DataObject) -> None:
    client, server = make_pair()
    checksum_type = data.draw(st.integers(0, 3))
    for _ in range(3):
        client.send_call(call(arg3=bytes(data.draw(st.sampled_from([5, 70_000])))))
        client.send_call(call(checksum_type=checksum_type, arg2=b"x"))
    client.send_cancel(3, "why")
    stream = bytearray(client.take_outgoing())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, min(len(stream) - 1, 500)))
        stream[place] = data.draw(st.integers(0, 255))

    with contextlib.suppress(WireError):
        for event in server.receive(bytes(stream)):
            if isinstance(event, CallReceived):
                server.send_answer(event.id, Answer(ok=True, arg3=event.arg3))
    with contextlib.suppress(WireError):
        client.receive(server.take_outgoing())

    arriving = server.served._arriving.values()
    held = sum(len(each.assembly._current.getvalue()) for each in arriving)
    assert held <= len(stream)
    server.close()
    client.close()
    assert server.served._budget.used_bytes == client.served._budget.used_bytes == 0


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 0x13, 0x14, 0xC0, 0xFF]), st.binary())))
def test_garbage_in_sound_frames_raises_nothing_but_a_wire_error(
    payloads: list[tuple[int, bytes]],
) -> None:
    client, _ = make_pair()
    client.send_call(call())

    with contextlib.suppress(WireError):
        for kind, payload in payloads:
            client.receive(frame(kind, 2, payload))
