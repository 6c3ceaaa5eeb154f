"""The asynchronous client: its connections, and how many calls it has under way."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

from ringpop_py import (
    AsyncClient,
    AsyncKeyspaceClient,
    Client,
    Config,
    Request,
    open_ringpop,
)
from ringpop_py.base.errors import RingpopError, TooManyInFlight
from ringpop_py.base.values.requests import READ
from ringpop_py.client.aio.client import MESSAGES_MAX
from ringpop_py.client.lines import concurrent
from ringpop_py.client.lines.trust import KEY_VARIABLE
from tests.client.loops import BACKENDS, run_on
from tests.client.test_keyspace_client import nodes

if TYPE_CHECKING:
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.net.wire.calls import Answer
    from ringpop_py.node.ringpop import Ringpop


class Slow:
    """A handler that takes a while; it counts how many of its calls are under way."""

    def __init__(self, node: Ringpop, seconds: float) -> None:
        self.now = self.most = 0
        self._seconds = seconds
        node.handler("/slow")(self)

    async def __call__(self, call: Any) -> bytes:  # noqa: ANN401
        self.now += 1
        self.most = max(self.most, self.now)
        await trio.sleep(self._seconds)
        self.now -= 1
        return bytes(call.body)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_more_calls_than_there_may_be_wait_for_their_turn(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "CALLS_MAX", 3)
    async with open_ringpop(Config()) as node:
        slow, bodies = Slow(node, 0.05), [b"%d" % number for number in range(12)]

        async def ask() -> list[bytes]:
            answers = dict[bytes, bytes]()
            async with AsyncClient(node.address) as client:

                async def one(body: bytes) -> None:
                    answers[body] = (await client.proxy("k", Request("/slow", body))).body

                async with anyio.create_task_group() as group:
                    for body in bodies:
                        group.start_soon(one, body)
            return [answers[body] for body in bodies]

        assert await run_on(backend, ask) == bodies
        assert slow.most == 3


async def test_a_call_that_waits_for_too_long_was_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrent, "CALLS_MAX", 1)
    async with open_ringpop(Config()) as node:
        slow = Slow(node, 0.4)
        ends = list[object]()
        async with AsyncClient(node.address) as client:

            async def one() -> None:
                try:
                    reply = await client.proxy("k", Request("/slow", b"x"), deadline_s=0.6)
                    ends.append(reply.body)
                except RingpopError as error:
                    ends.append(type(error))

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(one)
        # The second has the rest of its time, which is not enough; the third has none.
        assert ends[0] == b"x"
        assert TooManyInFlight in ends[1:]
        assert slow.most == 1


@pytest.mark.parametrize("backend", BACKENDS)
async def test_requests_of_many_keys_that_are_cancelled_leave_no_call(backend: str) -> None:
    async with open_ringpop(Config()) as node:
        slow = Slow(node, 30.0)

        async def ask() -> list[int]:
            async with AsyncClient(node.address) as client:
                with anyio.move_on_after(20) as scope:
                    async with anyio.create_task_group() as group:
                        many = partial(client.proxy_many, keys_max=1)
                        group.start_soon(many, "/slow", list("abcdefgh"), [b"x"] * 8)
                        while slow.now < MESSAGES_MAX:
                            await anyio.sleep(0.01)
                        group.cancel_scope.cancel()
                line: Any = client._mine().line
                return [len(line._pending), int(scope.cancelled_caught)]

        assert await run_on(backend, ask) == [0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_read_of_many_owners_that_is_cancelled_leaves_no_call(backend: str) -> None:
    async with nodes("a", "b", "c") as found:
        reads: list[IncomingCall] = []

        async def hang(incoming: IncomingCall) -> Answer:
            reads.append(incoming)
            await trio.sleep_forever()

        async def ask() -> list[int]:
            keys = [f"k{number}" for number in range(64)]
            async with (
                AsyncClient(found[0].address) as client,
                AsyncKeyspaceClient(client, "k") as keyspace,
            ):
                await keyspace.get_many(keys)
                for node in found:
                    node.channel.serve("ringpop", READ, hang)
                async with anyio.create_task_group() as group:
                    group.start_soon(keyspace.get_many, keys)
                    while len(reads) < 3:
                        await anyio.sleep(0.01)
                    group.cancel_scope.cancel()
                clients = [client, *keyspace.dispatcher._clients.values()]
                lines: list[Any] = [each._mine().line for each in clients]
                return [len(line._pending) for line in lines if line is not None]

        assert await run_on(backend, ask) == [0, 0, 0]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_without_a_key_has_none_in_its_copies_either(
    kind: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind("127.0.0.1:1", cluster_key="")
    monkeypatch.setenv(KEY_VARIABLE, "somebody's file")

    assert client.to("127.0.0.1:2").cluster_key is None
    assert pickle.loads(pickle.dumps(client)).cluster_key is None  # noqa: S301 - our own
