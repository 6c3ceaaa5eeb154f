"""The asynchronous client: its connections, and how many calls it has under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

from ringpop_py import AsyncClient, Config, Request, open_ringpop
from ringpop_py.base.errors import RingpopError, TooManyInFlight
from ringpop_py.client import aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


async def run_on(backend: str, function: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Run *function* here, or under asyncio in a thread of its own."""
    if backend == "trio":
        return await function()

    async def main() -> Any:  # noqa: ANN401
        return await function()

    return await trio.to_thread.run_sync(lambda: asyncio.run(main()))


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
async def test_more_calls_than_there_may_be_wait_for_their_turn(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "CALLS_MAX", 3)
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
    monkeypatch.setattr(aio, "CALLS_MAX", 1)
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
