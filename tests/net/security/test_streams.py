"""Who gets a connection to a process for shuffles, and whom its calls go to."""

from __future__ import annotations

import datetime as dt
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.errors import BodyError, ShuffleUnavailable
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.server.server import Server, _check_caller
from ringpop_py.flow.shuffle.server.wire import Line, Peer
from ringpop_py.net.security.authority import bundle_of
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.credentials import LASTS_S, KeyCredentials
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import ClusterKey, new_key, write_keys, write_secret
from ringpop_py.net.security.proof import REVOKED
from ringpop_py.net.security.revocations import NOTHING, holders_of, revoking
from ringpop_py.net.security.streams import Accepted, Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

KEY, OTHER = new_key(), new_key()
CALL = c.Describe("any")


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have callers wait as long as a handshake takes where all else runs, too."""
    monkeypatch.setattr("ringpop_py.flow.shuffle.server.wire.CONNECT_S", 30.0)


@pytest.fixture
def keys(tmp_path: Path) -> Callable[..., Keys]:
    def make(name: str, key: ClusterKey = KEY, cluster: str = "c", plain: str = "") -> Keys:
        path = tmp_path / f"{name}-{cluster}.key"
        write_keys(path, (key,), replace=True)
        return Keys(
            str(path), cluster, name, accept_plain="accept" in plain, dial_plain="dial" in plain
        )

    return make


@asynccontextmanager
async def process(keys: Keys) -> AsyncIterator[tuple[str, list[Identity | None]]]:
    """Serve each connection once, with a body of 300,000 bytes; yield where, and who came."""
    came: list[Identity | None] = []

    async def serve(stream: trio.SocketStream) -> None:
        try:
            accepted = await keys.accept(stream)
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(stream)
            return
        came.append(accepted.proof.identity)
        line = Line(accepted.stream)
        message = await line.receive()
        assert message is not None
        body = await line.body(message.body_bytes)
        await line.send(message.number, c.Said(200), body)
        await line.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}", came
        nursery.cancel_scope.cancel()


async def asked(address: str, keys: Keys | None, name: str = "b", size: int = 0) -> int:
    """Return how many bytes come back of a call with *size* bytes."""
    async with trio.open_nursery() as nursery:
        peer = Peer(name, address, nursery, keys)
        why = None
        try:
            with trio.fail_after(20):
                _, body = await peer.call(CALL, bytes(size), timeout_s=10)
        except ShuffleUnavailable as error:
            why = error
        nursery.cancel_scope.cancel()
    if why is not None:
        raise why
    return len(body)


async def test_members_with_the_same_key_speak_with_tls(keys: Callable[..., Keys]) -> None:
    async with process(keys("b")) as (address, came):
        assert await asked(address, keys("a"), size=3_000_000) == 3_000_000
    [identity] = came
    assert identity is not None
    assert str(identity) == "ringpop://c/shuffles/a"


@pytest.mark.parametrize(
    "caller",
    [{"key": OTHER}, {"cluster": "d"}, {"plain": "dial"}],
    ids=["another-key", "another-cluster", "plain"],
)
async def test_nobody_else_gets_a_connection(
    keys: Callable[..., Keys], caller: dict[str, object]
) -> None:
    async with process(keys("b")) as (address, came):
        with pytest.raises(ShuffleUnavailable):
            await asked(address, keys("a", **caller))
        assert came == []


async def test_a_call_goes_to_the_member_that_it_is_meant_for(keys: Callable[..., Keys]) -> None:
    async with process(keys("b")) as (address, _):
        with pytest.raises(ShuffleUnavailable, match="not c"):
            await asked(address, keys("a"), name="c")


async def test_while_keys_are_rolled_out_both_ways_work(keys: Callable[..., Keys]) -> None:
    async with process(keys("b", plain="accept")) as (address, came):
        await asked(address, None)
        await asked(address, keys("a", plain="dial"))
        await asked(address, keys("a"))
        assert [identity is None for identity in came] == [True, True, False]


async def test_nothing_is_answered_to_whose_certificate_has_expired_and_a_caller_connects_anew(
    keys: Callable[..., Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = wall_s()
    monkeypatch.setattr("ringpop_py.net.security.clock.wall_s", lambda: now_s)
    none: Any = None
    server = Server(none, 1 << 20, keys("b"))

    async def all_shuffles() -> c.Listed:
        return c.Listed(())

    monkeypatch.setattr(
        server, "_host", SimpleNamespace(all=all_shuffles, has_member_at=lambda _host: False)
    )
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        peer = Peer("b", f"127.0.0.1:{listeners[0].socket.getsockname()[1]}", nursery, keys("a"))
        await peer.call(c.List(), timeout_s=10)
        before = peer._line
        await peer.call(c.List(), timeout_s=10)
        assert peer._line is before

        now_s += LASTS_S
        assert before is not None
        with pytest.raises(ShuffleUnavailable):  # the server's end of the new one has expired, too
            await peer.call(c.List(), timeout_s=10)
        assert peer._line is not before
        nursery.cancel_scope.cancel()


async def test_a_client_whose_certificate_is_revoked_is_answered_no_more(
    keys: Callable[..., Keys], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ringpop_py.net.security.credentials.LOOK_S", 0.0)
    job, of_server = Identity("", Role.CLIENT, "a job"), keys("b")
    bundle = bundle_of([KEY], job, dt.timedelta(days=1))
    write_secret(tmp_path / "job.pem", bundle, replace=False)
    context = KeyCredentials(str(tmp_path / "job.pem"), job).context(server=False)

    async def connect() -> Accepted:
        """Return the server's end of a new connection of the client."""
        here, there = (trio.SocketStream(end) for end in trio.socket.socketpair())
        with here.socket, there.socket:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.SSLStream(here, context).do_handshake)
                return await of_server.accept(there)

    accepted = await connect()
    _check_caller(CALL, accepted.proof)
    revoked = revoking(NOTHING, holders_of("a job", None), wall_s())
    write_keys(tmp_path / "b-c.key", (KEY,), replace=True, revoked=revoked)

    with pytest.raises(BodyError, match=f"ringpop:///client/a%20job: {REVOKED}"):
        _check_caller(CALL, accepted.proof)
    with pytest.RaisesGroup(pytest.RaisesExc(trio.BrokenResourceError, match=REVOKED)):
        await connect()


async def test_a_reader_gets_no_rows(keys: Callable[..., Keys], tmp_path: Path) -> None:
    bundle = bundle_of([KEY], Identity("", Role.READER, "rita"), dt.timedelta(days=1))
    write_secret(tmp_path / "rita.pem", bundle, replace=False)
    reader = Keys(str(tmp_path / "rita.pem"), "c", "rita", accept_plain=False, dial_plain=False)
    wanted = "its role is reader, not shuffles or client or admin or member"
    here, there = (trio.SocketStream(end) for end in trio.socket.socketpair())
    with here.socket, there.socket:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.connect, here, "b")
            with pytest.raises(trio.BrokenResourceError, match=wanted):
                await keys("b").accept(there)
            nursery.cancel_scope.cancel()


async def test_why_a_connection_is_refused_is_told(keys: Callable[..., Keys]) -> None:
    async with process(keys("b")) as (address, _):
        with pytest.raises(ShuffleUnavailable, match="not of a key that is trusted here"):
            await asked(address, keys("a", key=OTHER))
