"""The synchronous client, against a peer that does what each test says."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base import errors
from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    CallError,
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    PeerDeclined,
    PeerFailed,
    RingpopError,
)
from ringpop_py.base.values.packed import encode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.net.wire.calls import Answer, Call, CallReceived
from ringpop_py.net.wire.connection import Connection
from ringpop_py.net.wire.frames import ErrorCode
from ringpop_py.route.proxy.failures import encode_failure
from ringpop_py.route.proxy.head import Head
from ringpop_py.route.proxy.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Behaviour = Callable[[Connection, CallReceived], bytes | None]

GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n"
END = b""
"""What a behaviour returns to have the connection closed once all is sent."""


class Peer:
    """Accepts one connection after another and answers by *behaviour*; ends with its block."""

    def __init__(self, behaviour: Behaviour, listener: socket.socket) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self.calls: list[CallReceived] = []
        self.connections_count = 0
        self._behaviour = behaviour
        self._listener = listener
        self._stream: socket.socket | None = None

    def run(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                self._stream, _ = self._listener.accept()
                self.connections_count += 1
                with self._stream, suppress(OSError):
                    self._serve(self._stream)

    def close(self) -> None:
        for sock in (self._listener, self._stream):
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()

    def _serve(self, stream: socket.socket) -> None:
        connection = Connection(
            host_port=str(self.address), process_name="peer", initiates=False, limits=WireLimits()
        )
        while data := stream.recv(65_536):
            rests = []
            for event in connection.receive(data):
                if isinstance(event, CallReceived):
                    self.calls.append(event)
                    rests.append(self._behaviour(connection, event))
            stream.sendall(connection.take_outgoing())
            for rest in rests:
                if rest == END:
                    return
                stream.sendall(rest or b"")


@contextmanager
def peer_that(behaviour: Behaviour, port: int = 0) -> Iterator[Peer]:
    with socket.create_server(("127.0.0.1", port)) as listener:
        peer = Peer(behaviour, listener)
        thread = threading.Thread(target=peer.run)
        thread.start()
        try:
            yield peer
        finally:
            peer.close()
            thread.join()


@contextmanager
def raw_peer(says: bytes) -> Iterator[Address]:
    """Says *says* to the first that connects, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            stream, _ = listener.accept()
            with stream:
                stream.recv(65_536)
                stream.sendall(says)

        thread = threading.Thread(target=run)
        thread.start()
        yield Address(*listener.getsockname()[:2])
        thread.join()


def echo(connection: Connection, call: CallReceived) -> None:
    connection.send_answer(call.id, Answer(ok=True, arg3=call.arg3))


def silence(_connection: Connection, _call: CallReceived) -> None:
    """A peer that has other things to do."""


def a_call(body: bytes = b"", *, ttl_s: float = 5.0) -> Call:
    return Call("app", "/x", b"", body, ttl_s=ttl_s, scheme="raw")


def test_a_list_of_peers_is_refused() -> None:
    with pytest.raises(ConfigError, match="one address"):
        Client(["127.0.0.1:3000"])  # type: ignore[arg-type]


def test_one_connection_is_made_when_needed_and_kept() -> None:
    with peer_that(echo) as peer, Client(peer.address) as client:
        before = peer.connections_count
        bodies = [client.call(a_call(body)).arg3 for body in (b"a", b"b", bytes(300_000))]

        assert (before, peer.connections_count) == (0, 1)
        assert bodies == [b"a", b"b", bytes(300_000)]


def test_answers_find_their_calls_in_whatever_order_they_are_asked_for() -> None:
    held: list[CallReceived] = []

    def in_reverse(connection: Connection, call: CallReceived) -> None:
        held.append(call)
        while len(held) >= 3:
            for earlier in reversed(held):
                echo(connection, earlier)
            held.clear()

    with peer_that(in_reverse) as peer, Client(peer.address) as client:
        first, second, third = (client.begin(a_call(body)) for body in (b"1", b"2", b"3"))

        assert [p.result().arg3 for p in (second, first, third)] == [b"2", b"1", b"3"]


def test_a_late_answer_is_no_answer_to_the_next_call() -> None:
    late: list[CallReceived] = []

    def late_once(connection: Connection, call: CallReceived) -> None:
        if not late:
            late.append(call)
        else:
            connection.send_answer(late[0].id, Answer(ok=True, arg3=b"late"))
            echo(connection, call)

    with peer_that(late_once) as peer, Client(peer.address) as client:
        with pytest.raises(CallTimeout) as caught:
            client.call(a_call(b"1", ttl_s=0.05))
        answer = client.call(a_call(b"2"))

        assert caught.value.took_effect == "unknown"
        assert answer.arg3 == b"2"
        assert peer.connections_count == 1


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan")])
def test_without_time_nothing_is_sent(ttl_s: float) -> None:
    with peer_that(echo) as peer, Client(peer.address) as client:
        with pytest.raises(CallTimeout):
            client.call(a_call(ttl_s=ttl_s))
        with pytest.raises(CallTimeout):
            client.admin("/admin/node", timeout_s=min(ttl_s, 0.0))

        assert not peer.calls


def test_all_the_time_of_the_world_is_allowed() -> None:
    with peer_that(echo) as peer, Client(peer.address) as client:
        assert client.call(a_call(b"x", ttl_s=float("inf"))).arg3 == b"x"


def test_a_daemon_that_was_restarted_between_calls_costs_no_call() -> None:
    with peer_that(echo) as peer:
        client = Client(peer.address)
        client.call(a_call())
    with peer_that(echo, peer.address.port) as again, client:
        assert client.call(a_call(b"again")).arg3 == b"again"
        assert len(again.calls) == 1


def test_a_call_that_a_daemon_took_along_may_have_run() -> None:
    with peer_that(lambda _connection, _call: END) as peer, Client(peer.address) as client:
        with pytest.raises(ConnectionLost) as caught:
            client.call(a_call())

        assert caught.value.took_effect == "unknown"


def test_a_call_that_crosses_a_goodbye_did_not_run_and_the_next_is_served() -> None:
    def goodbye_once(connection: Connection, call: CallReceived) -> bytes | None:
        if call.arg3 != b"crossing":
            echo(connection, call)
            return None
        connection.send_goodbye("the node has ended")
        return END

    with peer_that(goodbye_once) as peer, Client(peer.address) as client:
        with pytest.raises(PeerDeclined, match="the node has ended") as caught:
            client.call(a_call(b"crossing"))

        assert caught.value.took_effect == "no"
        assert client.call(a_call(b"x")).arg3 == b"x"


def test_what_was_lost_is_not_taken_for_declined_because_a_later_connection_was() -> None:
    def goodbye(connection: Connection, call: CallReceived) -> bytes | None:
        if call.arg3 != b"goodbye":
            return None
        connection.send_goodbye("the node has ended")
        return END

    with peer_that(goodbye) as peer, Client(peer.address) as client:
        pending = client.begin(a_call())
        client.close()
        with pytest.raises(PeerDeclined):
            client.call(a_call(b"goodbye"))

        with pytest.raises(ConnectionLost):
            pending.result()


def test_an_answer_that_came_before_the_end_is_still_given() -> None:
    held: list[CallReceived] = []

    def answer_one_and_end(connection: Connection, call: CallReceived) -> bytes | None:
        held.append(call)
        if len(held) == 1:
            return None
        echo(connection, held[1])
        connection.send_fatal("going away")
        return END

    with peer_that(answer_one_and_end) as peer, Client(peer.address) as client:
        lost, answered = client.begin(a_call(b"1")), client.begin(a_call(b"2"))

        with pytest.raises(ConnectionLost, match="going away"):
            lost.result()
        assert answered.result().arg3 == b"2"


def test_pending_calls_of_a_closed_client_are_lost() -> None:
    with peer_that(silence) as peer, Client(peer.address) as client:
        pending = client.begin(a_call())
        client.close()

        with pytest.raises(ConnectionLost):
            pending.result()


@pytest.mark.parametrize("says", [GARBAGE, b"", b"\0\x10\x02\0", bytes(64)])
def test_a_peer_that_does_not_speak_tchannel_was_never_reached(says: bytes) -> None:
    with raw_peer(says) as address, Client(address) as client:
        with pytest.raises(ConnectFailed) as caught:
            client.call(a_call())

        assert caught.value.took_effect == "no"


def test_garbage_after_the_handshake_ends_the_connection_and_the_next_call_makes_another() -> None:
    calls = 0

    def garbage_once(connection: Connection, call: CallReceived) -> bytes | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            return bytes(64)  # a frame shorter than its own head
        echo(connection, call)
        return None

    with peer_that(garbage_once) as peer, Client(peer.address) as client:
        with pytest.raises(ConnectionLost, match="does not speak TChannel"):
            client.call(a_call())

        assert client.call(a_call(b"x")).arg3 == b"x"


def test_a_peer_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringpop_py.client.lines.blocking.CONNECT_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(Address(*listener.getsockname()[:2]))

        with pytest.raises(ConnectFailed, match="says nothing: its process is paused or hangs"):
            client.call(a_call())


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_be_no_name_is_not_reached(host: str) -> None:
    with pytest.raises(ConnectFailed, match="cannot reach"):
        Client(Address(host, 3000)).call(a_call())


def test_a_peer_that_asks_us_is_told_that_we_serve_nothing() -> None:
    asked: list[int] = []

    def ask_back(connection: Connection, call: CallReceived) -> None:
        asked.append(connection.send_call(a_call()))
        echo(connection, call)

    with peer_that(ask_back) as peer, Client(peer.address) as client:
        client.call(a_call())

        assert client.call(a_call(b"x")).arg3 == b"x"


@pytest.mark.parametrize(
    "kind",
    ["MaxRetriesExceeded", "KeysDiverged", "Refused", "MayHaveRun", "DeadlineExceeded", "NoOwner"],
)
def test_what_the_daemon_met_on_our_behalf_comes_back_as_its_own_class(kind: str) -> None:
    expected: type[RingpopError] = getattr(errors, kind)

    def fail(connection: Connection, call: CallReceived) -> None:
        error = encode_failure(expected("what happened"))
        connection.send_answer(call.id, Answer(ok=False, arg2=error))

    with peer_that(fail) as peer, Client(peer.address) as client:
        with pytest.raises(expected, match="what happened") as caught:
            client.proxy("key", Request("/x"))

        assert type(caught.value) is expected


def test_an_application_error_comes_back_whole() -> None:
    def fail(connection: Connection, call: CallReceived) -> None:
        error = encode_failure(ApplicationError("kind", "m" * 10_000))
        connection.send_answer(call.id, Answer(ok=False, arg2=error))

    with peer_that(fail) as peer, Client(peer.address) as client:
        for ask in (
            lambda: client.proxy("key", Request("/x")),
            lambda: client.invoke(Request("/x")),
        ):
            with pytest.raises(ApplicationError) as caught:
                ask()

            assert (caught.value.kind, caught.value.message) == ("kind", "m" * 10_000)


@pytest.mark.parametrize(
    ("code", "expected", "may_have_run"),
    [
        (ErrorCode.BAD_REQUEST, BadRequest, False),
        (ErrorCode.BUSY, errors.PeerBusy, False),
        (ErrorCode.DECLINED, errors.PeerDeclined, False),
        (ErrorCode.TIMEOUT, CallTimeout, True),
        (ErrorCode.UNEXPECTED, PeerFailed, True),
    ],
)
def test_an_error_frame_says_whether_it_may_have_run(
    code: ErrorCode,
    expected: type[CallError],
    may_have_run: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    def fail(connection: Connection, call: CallReceived) -> None:
        connection.send_error(call.id, code, "why")

    with peer_that(fail) as peer, Client(peer.address) as client:
        with pytest.raises(expected, match="why") as caught:
            client.call(a_call())

        assert (caught.value.took_effect == "unknown") is may_have_run


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_that_cannot_be_read_is_the_peers_failure(ok: bool) -> None:  # noqa: FBT001 - a parameter
    def nonsense(connection: Connection, call: CallReceived) -> None:
        connection.send_answer(call.id, Answer(ok=ok, arg2=b"\xc1", arg3=b"\xc1"))

    with peer_that(nonsense) as peer, Client(peer.address) as client:
        with pytest.raises(PeerFailed):
            client.proxy("key", Request("/x"))
        with pytest.raises(PeerFailed):
            client.admin("/admin/node")


def test_a_request_to_be_routed_says_so() -> None:
    def own(connection: Connection, call: CallReceived) -> None:
        head = encode_value("msgpack", {"owner": "b"})
        connection.send_answer(call.id, Answer(ok=True, arg2=head, arg3=call.arg3))

    with peer_that(own) as peer, Client(peer.address) as client:
        reply = client.proxy(["k1", "k2"], Request("/x", b"body"), idempotent=True)

        assert (reply.owner, reply.body) == ("b", b"body")
        assert Head.decode(peer.calls[0].arg2) == Head(("k1", "k2"), route=True, idempotent=True)


def test_a_peer_that_ends_is_told_from_one_that_never_was_a_ringpopd() -> None:
    with (
        peer_that(lambda _connection, _call: END) as peer,
        Client(peer.address) as client,
        pytest.raises(ConnectionLost, match="its process has ended"),
    ):
        client.call(a_call())

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept_and_close() -> None:
            listener.accept()[0].close()

        closing = threading.Thread(target=accept_and_close)
        closing.start()
        client = Client(Address(*listener.getsockname()[:2]))
        with pytest.raises(ConnectFailed, match="before it said what it is"):
            client.call(a_call())
        closing.join()
