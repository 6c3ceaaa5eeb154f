"""Asynchronous clients of a cluster with keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from ringpop_py import Address, AppCall, AsyncClient, Config, Request, open_ringpop
from ringpop_py.base.errors import CallError, ConnectFailed
from ringpop_py.client.lines import anyio_line, asyncio_line
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.keys import new_key, write_keys
from tests.client.loops import BACKENDS, run_on

if TYPE_CHECKING:
    from pathlib import Path

HERE = Address("127.0.0.1", 0)


def a_key(path: Path) -> str:
    write_keys(str(path), (new_key(),), replace=False)
    return str(path)


async def asked(peer: Address, key: str, count: int = 1) -> list[object]:
    """What becomes of *count* calls at the same time."""
    found = list[object]()
    async with AsyncClient(peer, cluster_key=key, timeout_s=5) as client:

        async def one() -> None:
            try:
                found.append((await client.proxy("k", Request("/echo", b"x" * 100_000))).body)
            except CallError as error:
                found.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(one)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
async def test_calls_with_the_key_share_a_connection(backend: str, tmp_path: Path) -> None:
    key = a_key(tmp_path / "key")
    async with open_ringpop(Config(listen=HERE, cluster_key=key)) as node:

        @node.handler("/echo")
        async def echo(call: AppCall) -> bytes:
            return call.body

        assert await run_on(backend, partial(asked, node.address, key, 20)) == [b"x" * 100_000] * 20


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_caller_with_another_key_or_with_none_is_told_so(
    backend: str, tmp_path: Path
) -> None:
    key, other = a_key(tmp_path / "key"), a_key(tmp_path / "other")
    async with open_ringpop(Config(listen=HERE, cluster_key=key)) as node:
        (with_another,) = await run_on(backend, partial(asked, node.address, other))
        (with_none,) = await run_on(backend, partial(asked, node.address, ""))

    assert isinstance(with_another, ConnectFailed)
    assert "its certificate is not of a key that is trusted here" in str(with_another)
    assert isinstance(with_none, ConnectFailed)
    assert "it wants TLS (RINGPOP_CLUSTER_KEY)" in str(with_none)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_connection_ends_with_the_certificate_of_the_member(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = a_key(tmp_path / "key")
    module = anyio_line if backend == "trio" else asyncio_line
    times = [wall_s()]
    monkeypatch.setattr(module, "wall_s", lambda: times[0])

    async def connections(peer: Address) -> list[object]:
        lines = list[object]()
        async with AsyncClient(peer, cluster_key=key, timeout_s=5) as client:
            for later_s in (0, 10, 10 * 365 * 86_400):
                times[0] += later_s
                await client.lookup("k")
                lines.append(client._mine().line)
        return lines

    async with open_ringpop(Config(listen=HERE, cluster_key=key)) as node:
        first, second, third = await run_on(backend, partial(connections, node.address))

    assert first is second
    assert second is not third
