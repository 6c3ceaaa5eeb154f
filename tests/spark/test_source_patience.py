"""What the data source does on the driver while its daemon is away, without a session of Spark."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.types import LongType, StringType, StructType

from ringpop_demo.cluster import free_addresses
from ringpop_py import Config, open_ringpop
from ringpop_py.base.address import Address
from ringpop_py.base.errors import CallCancelled, ConnectFailed, ConnectionLost
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.admin.keyspaces import CREATE
from ringpop_py.spark import RingpopDataSource
from ringpop_py.state.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = StructType().add("key", StringType()).add("value", LongType())


def batch(options: dict[str, str]) -> object:
    return RingpopDataSource(options).writer(SCHEMA, overwrite=False)


def named_batch(options: dict[str, str]) -> object:
    return batch(options | {"job": "monday"})


def stream(options: dict[str, str]) -> object:
    """What Spark does for each batch of a stream, and for each commit."""
    return RingpopDataSource(options).streamWriter(SCHEMA, overwrite=False)


@pytest.mark.parametrize("look", [batch, named_batch, stream])
async def test_a_daemon_that_is_away_for_a_moment_is_waited_for(
    look: Callable[[dict[str, str]], object],
) -> None:
    (daemon,) = free_addresses(1)
    nobody_answered = trio.Event()

    async def turn_away(connection: trio.SocketStream) -> None:
        nobody_answered.set()
        with suppress(trio.BrokenResourceError):
            await connection.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listeners[0].socket.getsockname()
    options = {
        "keyspace": "k",
        "createKeyspace": "true",
        "peers": f"{daemon},{host}:{port}",
        "retrySchedule": "0.05",
        "maxRetries": "200",
    }
    made: list[object] = []

    async def look_and_keep() -> None:
        made.append(await trio.to_thread.run_sync(look, options))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, turn_away, listeners))
        async with trio.open_nursery() as looking:
            looking.start_soon(look_and_keep)
            await nobody_answered.wait()
            config = Config(name="a", listen=Address.parse(daemon), store="memory:")
            async with open_ringpop(config, store=MemoryStore()):
                with trio.fail_after(20):
                    while not made:
                        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert len(made) == 1


@pytest.mark.parametrize("look", [batch, stream])
async def test_a_daemon_that_ends_while_it_creates_the_keyspace_is_asked_again(
    look: Callable[[dict[str, str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    (daemon,) = free_addresses(1)
    options = {
        "keyspace": "k",
        "createKeyspace": "true",
        "peers": daemon,
        "retrySchedule": "0",
        "maxRetries": "2",
    }
    trouble = [CallCancelled("this node has ended"), ConnectionLost("broken")]
    whole = Client.admin

    def cut(client: Client, endpoint: str, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        if endpoint == CREATE and trouble:
            raise trouble.pop()
        return whole(client, endpoint, *args, **settings)

    monkeypatch.setattr(Client, "admin", cut)
    config = Config(name="a", listen=Address.parse(daemon), store="memory:")
    async with open_ringpop(config, store=MemoryStore()) as ringpop:
        await trio.to_thread.run_sync(look, options)

        assert not trouble
        assert [keyspace.definition.name for keyspace in ringpop.keyspaces.all()] == ["k"]


@pytest.mark.parametrize("look", [batch, stream])
def test_where_nobody_ever_answers_the_schedule_ends_it_with_all_peers(
    look: Callable[[dict[str, str]], object],
) -> None:
    options = {
        "keyspace": "k",
        "peers": "127.0.0.1:1,127.0.0.1:2",
        "retrySchedule": "0",
        "maxRetries": "2",
    }

    with pytest.raises(ConnectFailed, match=r"(?s)no daemon answers:.*127.0.0.1:1: .*127.0.0.1:2:"):
        look(options)
