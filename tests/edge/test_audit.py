"""The audit log of real nodes, line by line."""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from ringpop_py import (
    Address,
    AppCall,
    AsyncClient,
    AsyncKeyspaceClient,
    Config,
    ConfigError,
    Request,
    open_ringpop,
)
from ringpop_py.base.errors import BadOperation, BadRequest, KeyspaceForbidden
from ringpop_py.base.logs import log
from ringpop_py.edge.audit import KEYS_MAX
from ringpop_py.edge.cli.process import _reload
from ringpop_py.net.security.authority import authority_of
from ringpop_py.net.security.credentials import KeyCredentials
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.security.tokens import issue_token
from ringpop_py.net.transport.channel import Channel
from ringpop_py.net.transport.serving import IncomingCalls
from ringpop_py.net.transport.tcp import TcpNetwork
from ringpop_py.net.transport.tls import TlsNetwork
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.net.wire.codec import PING
from ringpop_py.node import audit
from ringpop_py.node.audit import AuditFile
from ringpop_py.state.stores.memory import MemoryStore
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ringpop_py.node.ringpop import Ringpop

KEY, HERE, HOUR = new_key(), Address("127.0.0.1", 0), dt.timedelta(hours=1)
CLIENT, READER = "ringpop://c/client/shop", "ringpop://c/reader/report"


@asynccontextmanager
async def a_node(folder: Path, **settings: Any) -> AsyncIterator[Ringpop]:  # noqa: ANN401
    """A node with keys, its keyspace "k" and its handler, that has an audit log."""
    path = folder / "cluster.key"
    write_keys(str(path), (KEY,), replace=True)
    config = Config(
        listen=HERE, http=HERE, cluster="c", cluster_key=str(path), accept_plain=False,
        audit=str(folder / "audit"), **settings,
    )  # fmt: skip
    async with open_ringpop(config, store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)

        @node.handler("/echo")
        async def echo(call: AppCall) -> bytes:
            return call.body

        yield node


def certificate(folder: Path, role: Role, name: str) -> str:
    issued = authority_of(KEY).issue(Identity("c", role, name), HOUR)
    path = folder / f"{name}.pem"
    path.write_bytes(issued.certificate + issued.private_key + authority_of(KEY).certificate)
    path.chmod(0o600)
    return str(path)


def lines_in(path: Path) -> list[dict[str, Any]]:
    """All lines without their times, which are checked."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        at = dt.datetime.fromisoformat(line.pop("at"))
        assert abs(dt.datetime.now(dt.UTC) - at) < HOUR
    return lines


async def test_what_a_client_and_a_reader_ask_for_has_a_line_each(tmp_path: Path) -> None:
    shop = certificate(tmp_path, Role.CLIENT, "shop")
    report = certificate(tmp_path, Role.READER, "report")
    many = [f"key-{number:02}" for number in range(12)]
    async with a_node(tmp_path) as node:
        async with (
            AsyncClient(node.address, cluster_key=shop) as client,
            AsyncKeyspaceClient(client, "k", direct=False) as keyspace,
        ):
            await keyspace.put("a", 1)
            await keyspace.get_many(many)
            assert [row async for row in keyspace.scan("a")] == [("a", 1)]
            with pytest.raises(BadOperation):
                await keyspace.update("a", "append", 1)
            assert (await client.proxy("b", Request("/echo", b"x"))).body == b"x"
            await client.lookup("b")  # shows no data
        async with (
            AsyncClient(node.address, cluster_key=report) as client,
            AsyncKeyspaceClient(client, "k") as keyspace,
        ):
            assert await keyspace.get("a") == 1
            with pytest.raises(KeyspaceForbidden):
                await keyspace.put("a", 2)
            with pytest.raises(BadRequest):
                await client.proxy("b", Request("/echo", b"x"))
    page = {"what": "/keyspace/client/read", "operation": "read", "keys_count": 12}
    [read] = [line for line in lines_in(tmp_path / "audit") if line.get("keys_count")]
    keys = read.pop("keys")  # in the order of partitions
    assert read == {"who": CLIENT, "keyspace": "k", "outcome": "done"} | page
    assert len(set(keys)) == KEYS_MAX
    assert set(keys) < set(many)
    apply, of_k = "/keyspace/client/apply", {"keyspace": "k", "keys": ["a"]}
    scan = {"what": "/keyspace/client/scan", "operation": "scan", "keyspace": "k", "keys": ["a*"]}
    forbidden = {"what": "/keyspace/apply", "operation": "put", "outcome": "KeyspaceForbidden"}
    assert [line for line in lines_in(tmp_path / "audit") if "keys_count" not in line] == [
        {"who": CLIENT, "what": apply, "operation": "put", **of_k, "outcome": "done"},
        {"who": CLIENT, **scan, "outcome": "done"},
        {"who": CLIENT, "what": apply, "operation": "append", **of_k, "outcome": "BadOperation"},
        {"who": CLIENT, "what": "app /echo", "keys": ["b"], "outcome": "done"},
        {"who": READER, "what": "/keyspace/read", "operation": "read", **of_k, "outcome": "done"},
        {"who": READER, **forbidden, **of_k},
        {"who": READER, "what": "app /echo", "keys": ["b"], "outcome": "Forbidden"},
    ]
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o600


async def test_requests_over_http_have_lines_with_the_template_of_their_path(
    tmp_path: Path,
) -> None:
    token = issue_token(KEY, Identity("", Role.CLIENT, "ann"), HOUR)
    of, ann = "/keyspaces/{keyspace}", "ringpop:///client/ann"
    changes = [{"key": "b", "operation": "put", "argument": 1}, {"key": "a", "operation": "no"}]
    async with a_node(tmp_path) as node:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=f"http://{node.http_address}") as http:
            for method, path, body in (
                ("PUT", "/keyspaces/k/keys/a%2Fb", "1"),
                ("GET", "/keyspaces/k/keys/a%2Fb", ""),
                ("GET", "/keyspaces/k/keys/nobody", ""),
                ("GET", "/keyspaces/k/keys", ""),
                ("HEAD", "/keyspaces/k/changes?prefix=u", ""),
                ("GET", "/keyspaces/k/changes?key=a&after=x", ""),
                ("POST", "/keyspaces/k/get-many", json.dumps({"keys": ["a", "b"]})),
                ("POST", "/keyspaces/k/update-many", json.dumps({"changes": changes})),
                ("DELETE", "/keyspaces/k?confirm=k", ""),
                ("GET", "/keyspaces", ""),  # looks at no values
                ("GET", "/health", ""),
            ):
                await http.request(method, path, content=body, headers=headers)
            await http.get("/keyspaces", headers={})
    *lines, stranger = lines_in(tmp_path / "audit")

    assert {line.pop("who") for line in lines} == {ann}
    assert lines == [
        {"what": f"PUT {of}/keys/{{key}}", "keyspace": "k", "keys": ["a/b"], "outcome": "done"},
        {"what": f"GET {of}/keys/{{key}}", "keyspace": "k", "keys": ["a/b"], "outcome": "done"},
        {
            "what": f"GET {of}/keys/{{key}}",
            "keyspace": "k",
            "keys": ["nobody"],
            "outcome": "KeyUnknown",
        },
        {"what": f"GET {of}/keys", "keyspace": "k", "outcome": "done"},
        {"what": f"HEAD {of}/changes", "keyspace": "k", "keys": ["u*"], "outcome": "done"},
        {
            "what": f"GET {of}/changes",
            "keyspace": "k",
            "keys": ["a"],
            "outcome": "BadRequest",
        },
        {"what": f"POST {of}/get-many", "keyspace": "k", "keys": ["a", "b"], "outcome": "done"},
        {
            "what": f"POST {of}/update-many",
            "operation": "no, put",
            "keyspace": "k",
            "keys": ["b", "a"],
            "outcome": "BadOperation",
        },
        {"what": f"DELETE {of}", "keyspace": "k", "outcome": "Forbidden"},
    ]
    assert stranger.pop("who").startswith("127.0.0.1:")
    assert stranger == {"what": "GET /keyspaces", "outcome": "Unauthorized"}


async def test_changes_of_admins_have_lines_and_looks_have_none(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, trio.open_nursery() as nursery:
        holder = Identity("", Role.ADMIN, "ops")
        credentials = KeyCredentials(str(tmp_path / "cluster.key"), holder)
        channel = Channel(process_name="ops", network=TlsNetwork(TcpNetwork(), credentials))
        await nursery.start(channel.run)
        for path, asked in (
            ("/admin/members", b""),
            ("/admin/gossip/stop", b""),
            ("/admin/gossip/start", b""),
            ("/admin/keyspaces/set", b'{"name":"k","no":1}'),
            ("/admin/keyspaces/show", b'{"name":"k"}'),
        ):
            call = Call(NODE_SERVICE, path, b"", asked, ttl_s=5.0, scheme="json")
            await channel.call(node.address, call)
        with pytest.raises(BadRequest):
            await channel.call(node.address, Call(NODE_SERVICE, PING, b"", b"", ttl_s=5.0))
        nursery.cancel_scope.cancel()
    ops = {"who": str(holder)}
    assert lines_in(tmp_path / "audit") == [
        ops | {"what": "/admin/gossip/stop", "outcome": "done"},
        ops | {"what": "/admin/gossip/start", "outcome": "done"},
        ops | {"what": "/admin/keyspaces/set", "keyspace": "k", "outcome": "ConfigError"},
        ops | {"what": PING, "outcome": "Forbidden"},
    ]


async def test_without_keys_a_caller_has_the_name_of_its_host(tmp_path: Path) -> None:
    file, store = tmp_path / "audit", MemoryStore()
    async with (
        open_ringpop(Config(listen=HERE, audit=str(file)), store=store) as a,
        open_ringpop(Config(listen=HERE, hosts=(a.address,)), store=store) as b,
    ):
        await a.wait_until(lambda node: len(node.ring) == 2)
        keyspace = await b.open_keyspace("k", partitions=4)
        for number in range(20):
            await keyspace.put(f"key-{number}", 1)  # half of them at the other member
        async with (
            AsyncClient(a.address) as client,
            AsyncKeyspaceClient(client, "k", direct=False) as outside,
        ):
            await outside.put("a", 1)

    assert [(line["who"], line["keys"]) for line in lines_in(file)] == [("127.0.0.1", ["a"])]


async def test_without_a_file_nothing_is_looked_at() -> None:
    async with open_ringpop(Config(listen=HERE)) as node:
        assert node.channel.handlers.new_incoming is IncomingCalls
        assert node.reporter.audit is None


async def test_a_file_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    config = Config(listen=HERE, audit=str(tmp_path / "no" / "audit"))
    with pytest.raises(ConfigError, match=r"--audit .*: it cannot be opened: No such file"):
        async with open_ringpop(config):
            pass


async def test_sighup_goes_on_in_a_new_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ringpop")
    file, old = tmp_path / "audit", tmp_path / "audit.1"
    async with open_ringpop(Config(listen=HERE, audit=str(file))) as node:
        assert node.reporter.audit is not None
        node.reporter.audit.write({"number": 1})
        file.rename(old)
        node.reporter.audit.write({"number": 2})
        _reload(node)
        node.reporter.audit.write({"number": 3})
        file.rename(tmp_path / "audit.2")
        file.mkdir()  # a mistake: the file before goes on
        _reload(node)
        node.reporter.audit.write({"number": 4})

    assert old.read_text() == '{"number":1}\n{"number":2}\n'
    assert (tmp_path / "audit.2").read_text() == '{"number":3}\n{"number":4}\n'
    assert len(events_in(caplog, "opened the audit log again")) == 1
    assert len(events_in(caplog, "kept the old audit log")) == 1


def test_lines_that_cannot_be_written_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, file = log.lost_count, AuditFile("/dev/full")
    for number in range(3):
        file.write({"number": number})
    file.close()
    assert log.lost_count == before + 3
    assert len(events_in(caplog, "audit-not-written")) == 1

    monkeypatch.setattr(audit, "WAITING_MAX", 2)
    monkeypatch.setattr(AuditFile, "_run", lambda _self, file: os.close(file))  # a disk that waits
    waiting = AuditFile("/dev/null")
    for number in range(5):
        waiting.write({"number": number})
    assert log.lost_count == before + 6


def test_a_line_that_was_torn_ends_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, left = os.write, [4, -1]

    def torn(file: int, data: bytes) -> int:
        most = left.pop(0) if left else len(data)
        if most < 0:
            raise OSError(28, "No space left on device")
        return whole(file, data[:most])

    monkeypatch.setattr(os, "write", torn)
    file = AuditFile(str(tmp_path / "audit"))
    for number in range(2):
        file.write({"number": number})
    file.close()

    assert (tmp_path / "audit").read_text() == '{"nu\n{"number":1}\n'
