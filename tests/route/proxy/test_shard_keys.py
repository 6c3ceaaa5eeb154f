"""Plain calls of TChannel with a shard key (``sk``), of programs that know nothing of us."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import Config
from ringpop_py.base.errors import ApplicationError, BadRequest
from ringpop_py.edge.daemon import open_ringpop
from ringpop_py.net.wire.calls import Answer, Call
from ringpop_py.route.proxy.failures import decode_failure
from tests.bench.rpc_npm import npm_call, npm_tchannel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Ringpop, Ringpop]]:
    """Two nodes with a handler that says where it is."""
    listen = Address("127.0.0.1", 0)
    async with (
        open_ringpop(Config(listen=listen)) as first,
        open_ringpop(Config(listen=listen, hosts=(first.address,))) as second,
    ):
        for node in (first, second):
            _add_echo(node)
        await first.wait_until(lambda node: len(node.ring.owners) == 2)
        yield first, second


def _add_echo(node: Ringpop) -> None:
    @node.handler("/echo")
    def echo(call: AppCall) -> bytes:
        if call.body == b"fail":
            raise ApplicationError("bad", "it fails")
        return f"{node.name} {call.keys[0]} {call.body.decode()}".encode()


def keys_of(node: Ringpop) -> dict[str, str]:
    """A key of each owner."""
    return {node.lookup(f"key {number}"): f"key {number}" for number in range(100)}


def call_of(key: str, body: bytes, endpoint: str = "/echo") -> Call:
    headers = (("sk", key),)
    # What another program has in its arg2 is none of ours.
    return Call("app", endpoint, b"any", body, ttl_s=5, scheme="raw", headers=headers)


async def test_a_call_with_a_shard_key_goes_to_the_owner_whoever_is_asked() -> None:
    async with two_nodes() as nodes:
        for asked, asking in (nodes, reversed(nodes)):
            for owner, key in keys_of(asked).items():
                answer = await asking.channel.call(asked.address, call_of(key, b"abc"))
                assert answer == Answer(ok=True, arg3=f"{owner} {key} abc".encode(), scheme="raw")


async def test_an_error_of_the_owners_handler_is_an_answer_that_is_not_ok() -> None:
    async with two_nodes() as (first, second):
        for key in keys_of(first).values():
            answer = await second.channel.call(first.address, call_of(key, b"fail"))
            assert not answer.ok
            assert "it fails" in str(decode_failure(answer.arg2))


async def test_a_call_that_no_handler_can_have_is_refused() -> None:
    async with two_nodes() as (first, second):
        for endpoint in ("echo", "/none"):
            for key in keys_of(first).values():
                with pytest.raises(BadRequest):
                    await second.channel.call(first.address, call_of(key, b"abc", endpoint))


@pytest.mark.e2e
async def test_npms_tchannel_has_us_route_its_calls() -> None:
    home = npm_tchannel()
    if home is None:
        pytest.skip("node, npm, or npm's tchannel is not to be had here")
    async with two_nodes() as (first, second):

        async def said(key: str, body: str) -> dict[str, object]:
            return await trio.to_thread.run_sync(
                npm_call, home, first.address.port, body, 0, "app", key
            )

        for owner, key in keys_of(first).items():
            assert await said(key, "abc") == {"ok": True, "body": f"{owner} {key} abc"}
        assert (await said(keys_of(first)[second.name], "fail"))["ok"] is False
