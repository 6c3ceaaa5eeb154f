"""A daemon's Unix socket: how clients find it, who may use it, and what becomes of the file."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

from ringpop_py import AsyncClient, Client, Config, KeyspaceClient, Request, open_ringpop
from ringpop_py.base.address import Address, SocketPath, parse_peer
from ringpop_py.base.config import places
from ringpop_py.base.errors import ConfigError, ConnectFailed, ConnectRefused
from ringpop_py.client.lines import local_daemon
from ringpop_py.client.lines.local_daemon import LOCAL_DAEMON, default_peer, peer_of
from ringpop_py.edge.entry.owners import Follower
from tests.client.loops import run_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BIG = b"x" * 3_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.sock"


def mode_of(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def in_thread(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    return trio.to_thread.run_sync(partial(function, *arguments))


async def test_clients_of_all_kinds_reach_the_node_and_the_file_is_its_users_alone(
    path: Path,
) -> None:
    async with open_ringpop(Config(socket=str(path))) as node:

        @node.handler("/len")
        def length(call: Any) -> bytes:  # noqa: ANN401
            return b"%d" % len(call.body)

        assert mode_of(path) == 0o600
        peer = f"unix:{path}"
        with Client(peer) as client:
            assert str(client.peer) == peer
            assert await in_thread(client.lookup, "k") == node.name
            reply = await in_thread(client.proxy, "k", Request("/len", BIG))
            assert reply.body == b"%d" % len(BIG)
        async with AsyncClient(SocketPath(str(path))) as other:
            reply = await other.proxy("k", Request("/len", BIG))
            assert reply.body == b"%d" % len(BIG)
        await node.open_keyspace("counts", mode="memory", partitions=2)
        with Client(str(path)) as client, KeyspaceClient(client, "counts") as counts:
            await in_thread(counts.put, "k", 7)
            assert await in_thread(counts.get, "k") == 7
        follower = Follower(peer, "")
        follower.start()
        ring = await in_thread(follower.wait, 10)
        assert ring is not None
        assert ring.local == node.name
    assert mode_of(path) is None


async def test_a_file_that_was_left_is_replaced_and_that_of_a_live_node_is_not(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # and closed without a trace of it removed
    async with open_ringpop(Config(socket=str(path))):
        with pytest.raises(ConfigError, match=r"^--socket: another process listens at \S+; end it"):
            async with open_ringpop(Config(socket=str(path))):
                pass
        assert await in_thread(Client(f"unix:{path}").lookup, "k")


async def test_the_file_of_another_is_not_removed_at_the_end(path: Path) -> None:
    async with open_ringpop(Config(socket=str(path))):
        path.with_name("another").touch()
        path.with_name("another").replace(path)
    assert mode_of(path) is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", r"^--socket: \S+/file exists, and is not a socket; choose another path$"),
        ("nowhere/node.sock", "No such file or directory"),
        ("x" * 200, "AF_UNIX path too long"),
        ("a\0b", "null"),
    ],
)
async def test_what_cannot_be_a_socket_is_told_at_the_start(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ConfigError, match=message):
        async with open_ringpop(Config(socket=str(tmp_path / name))):
            pass
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_a_node_that_is_gone_is_refused_as_by_tcp(path: Path, kind: type[Any]) -> None:
    async def look() -> object:
        client = kind(f"unix:{path}")
        if kind is Client:
            return await in_thread(client.proxy, "k", Request("/x"))
        return await client.proxy("k", Request("/x"))

    with pytest.raises(ConnectRefused, match=r"cannot reach unix:.*node.sock"):
        await look()  # there is no such file
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(ConnectRefused, match=r"cannot reach unix:.*refused"):
        await look()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(path))
        path.chmod(0o600)
        server.listen()
        for folder in path.parents:
            if folder.stat().st_uid == 0 and folder != folder.parent:
                stack.callback(folder.chmod, stat.S_IMODE(folder.stat().st_mode))
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o055)
        pid = os.fork()
        if pid == 0:  # no pytest in here
            code = 1
            try:
                os.setuid(65534)
                Client(f"unix:{path}").lookup("k")
            except ConnectFailed as error:
                code = 0 if "Permission denied" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
async def test_many_may_connect_at_the_same_time(path: Path, backend: str) -> None:
    async with open_ringpop(Config(socket=str(path))) as node:
        node.handler("/x")(lambda _call: b"")

        async def ask() -> int:
            answered = 0
            async with AsyncClient(f"unix:{path}") as client:

                async def one() -> None:
                    nonlocal answered
                    await client.proxy("k", Request("/x"))
                    answered += 1

                async with anyio.create_task_group() as group:
                    for _ in range(400):
                        group.start_soon(one)
            return answered

        assert await run_on(backend, ask) == 400


async def test_a_full_backlog_is_waited_for(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as stack:
        server.bind(str(path))
        server.listen(0)
        while True:  # until it is full
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)  # noqa: FBT003 - its only argument
            if one.connect_ex(str(path)):
                break
        with pytest.raises(BlockingIOError):
            local_daemon.connected(SocketPath(str(path)), 0.05)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, connect_and_close, SocketPath(str(path)))
            await trio.sleep(0.05)
            while await in_thread(accepted, server):
                pass


def connect_and_close(peer: SocketPath) -> None:
    local_daemon.connected(peer, 10).close()


def accepted(server: socket.socket) -> bool:
    server.settimeout(0.2)
    try:
        server.accept()[0].close()
    except TimeoutError:
        return False
    return True


# Which one is called.


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    for module in (local_daemon, places):
        monkeypatch.setattr(module, "SYSTEM_SOCKET", tmp_path / "system.sock")
    with ExitStack() as stack:

        def listen(name: str) -> Path:
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.bind(str(tmp_path / name))
            sock.listen()
            return tmp_path / name

        yield listen


def test_without_a_name_it_is_the_one_of_this_host(
    tmp_path: Path, sockets: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert default_peer({}) == default_peer(users) == LOCAL_DAEMON
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "system.sock"))  # of a daemon that was killed
    assert default_peer({}) == LOCAL_DAEMON
    (tmp_path / "system.sock").unlink()
    system = sockets("system.sock")
    assert default_peer({}) == default_peer(users) == SocketPath(str(system))
    user = sockets("ringpop.sock")
    assert default_peer(users) == SocketPath(str(user))
    assert default_peer({}) == SocketPath(str(system))
    named = {**users, "RINGPOP_PEER": "10.0.0.1:3000"}
    assert default_peer(named) == Address("10.0.0.1", 3000)
    with pytest.raises(ConfigError, match="RINGPOP_PEER 'nobody' is not HOST:PORT"):
        default_peer({"RINGPOP_PEER": "nobody"})

    monkeypatch.delenv("RINGPOP_PEER", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert Client().peer == AsyncClient().peer == SocketPath(str(system))


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("unix:/a/b", SocketPath("/a/b")),
        ("unix:b", SocketPath("b")),
        ("/a/b", SocketPath("/a/b")),
    ],
)
def test_a_peer_is_read_as_it_is_written(text: str, peer: Address | SocketPath) -> None:
    assert parse_peer(text) == peer
    assert parse_peer(str(peer)) == peer
    assert peer_of(peer) is peer


@pytest.mark.parametrize("text", ["", "unix:", "a", "unix:\0", "a/b"])
def test_what_is_no_peer_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="peer"):
        parse_peer(text)


@pytest.mark.parametrize("given", [7, b"a", ["10.0.0.1:1"]])
def test_what_is_no_text_is_refused(given: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="peer is one address, HOST:PORT or unix:PATH"):
        Client(given)
