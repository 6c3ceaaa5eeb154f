"""Leaders that are no members: names held through daemons, by programs of either kind."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

from ringpop_py import AsyncClient, Client, Config, ConfigError, LeadershipLost, open_ringpop
from ringpop_py.client.leading import leading
from ringpop_py.state.leaders.leaders import Leaders
from ringpop_py.state.leaders.record import READ
from ringpop_py.state.stores.memory import MemoryStore
from tests.client.loops import BACKENDS, run_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringpop_py.node.ringpop import Ringpop

NAME = "mailer"


@asynccontextmanager
async def a_node(*, has_store: bool = True) -> AsyncIterator[Ringpop]:
    store = MemoryStore() if has_store else None
    async with open_ringpop(Config(store="memory:" if has_store else None), store=store) as node:
        yield node


async def holder_of(node: Ringpop) -> str:
    rows = {row.name: row.holder for row in await Leaders(node).all()}
    return rows.get(NAME, "")


async def until_held(node: Ringpop) -> None:
    with trio.fail_after(20):
        while not await holder_of(node):
            await trio.sleep(0.01)


async def test_a_synchronous_program_holds_a_name_and_releases_it() -> None:
    async with a_node() as node:

        def hold() -> list[int]:
            terms = []
            with Client(node.address) as client:
                for above in (0, 0, 30):
                    with client.leader(NAME, above=above) as lead:
                        lead.check()
                        terms.append(lead.term)
            return terms

        assert await trio.to_thread.run_sync(hold) == [1, 2, 31]
        async with node.leader(NAME) as lead:
            assert lead.term == 32


async def test_a_synchronous_program_beats_and_learns_that_it_has_lost() -> None:
    async with a_node() as node:

        def hold() -> int:
            with Client(node.address) as client, client.leader(NAME, ttl_s=1) as lead:
                assert lead.lost.wait(20)
                with pytest.raises(LeadershipLost, match="held by nobody now"):
                    lead.check()
                return lead.term

        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def held() -> None:
                with pytest.raises(LeadershipLost, match="held by nobody now"):
                    await trio.to_thread.run_sync(hold)

            await until_held(node)
            beat = (await Leaders(node).read(NAME, 5))[0]
            assert beat is not None
            with trio.fail_after(20):
                while (await Leaders(node).read(NAME, 5))[0] == beat:
                    await trio.sleep(0.01)
            await Leaders(node).take_away(NAME, 5)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_block_of_an_asynchronous_program_is_cancelled(backend: str) -> None:
    async with a_node() as node:

        async def hold() -> int:
            async with AsyncClient(node.address) as client:
                async with client.leader(NAME, ttl_s=1) as first:
                    pass
                with pytest.raises(LeadershipLost):
                    async with client.leader(NAME, ttl_s=1):
                        await anyio.sleep_forever()
                with pytest.raises(KeyError):
                    async with client.leader(NAME, ttl_s=1):
                        raise KeyError("mine")
                return first.term

        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def take_away() -> None:
                with trio.fail_after(20):
                    while True:
                        record, _ = await Leaders(node).read(NAME, 5)
                        if record is not None and record.holder and record.term == 2:
                            break
                        await trio.sleep(0.01)
                await Leaders(node).take_away(NAME, 5)

            assert await run_on(backend, hold) == 1


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_daemon_without_a_store_refuses_it(backend: str) -> None:
    async with a_node(has_store=False) as node:

        async def hold() -> None:
            async with AsyncClient(node.address) as client:
                with pytest.raises(ConfigError, match="no store"):
                    async with client.leader(NAME):
                        pass

        def held() -> None:
            with (
                Client(node.address) as client,
                pytest.raises(ConfigError, match="no store"),
                client.leader(NAME),
            ):
                pass

        await run_on(backend, hold)
        await trio.to_thread.run_sync(held)


class _Record:
    """A daemon with one record."""

    def __init__(self) -> None:
        self.record: Any = None

    def admin(self, endpoint: str, body: Any, *, timeout_s: float) -> Any:  # noqa: ANN401
        assert timeout_s > 0
        if endpoint == READ:
            return {"record": self.record, "is_gone": False}
        is_done = body["before"] == self.record
        self.record = body["after"] if is_done else self.record
        return {"is_done": is_done}


def test_a_block_that_ends_after_a_pause_says_that_the_name_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that beats has not run yet."""
    clock, late_s, daemon = time.monotonic, 0.0, _Record()
    monkeypatch.setattr(time, "monotonic", lambda: clock() + late_s)
    with pytest.raises(LeadershipLost), leading(daemon, NAME, 5.0, 0):
        late_s = 31.0
