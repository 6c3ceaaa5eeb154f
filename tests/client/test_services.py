"""What clients do with keys that expire, and with several keys together."""

from __future__ import annotations

import pytest
import trio

from ringpop_py import (
    AsyncClient,
    AsyncKeyspaceClient,
    Change,
    Client,
    ConditionFailed,
    Config,
    ConfigError,
    KeyspaceClient,
    expiring,
    open_ringpop,
    tag_of,
)
from ringpop_py.state.stores.memory import MemoryStore

CART, ORDERS = "{a}/cart", "{a}/orders"


def use(peer: str) -> None:
    with Client(peer) as through, KeyspaceClient(through, "k") as client:
        client.put(CART, ["tea"], expires_in=600)
        assert 590 < (client.ttl(CART) or 0) <= 600
        client.persist(CART)
        assert client.ttl(CART) is None
        assert client.ttl("unknown") == 0
        changes = [(ORDERS, "append", "tea"), (CART, "delete", None)]
        conditions = {CART: tag_of(["tea"]), ORDERS: None}
        assert client.transaction(changes, if_tags=conditions) == [["tea"], None]
        with pytest.raises(ConditionFailed):
            client.transaction(changes, if_tags=conditions)
        with pytest.raises(ConfigError, match="common hash tag"):
            client.transaction([(CART, "put", 1), ("{b}/cart", "put", 1)])
        client.update_many([("short", *expiring("put", 1, expires_in=0.05))])
        while client.get("short") is not None:
            pass


async def test_a_client_uses_instants_and_transactions() -> None:
    async with open_ringpop(Config(store="memory:"), store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=8, hash_tags=True)
        await trio.to_thread.run_sync(use, str(node.address))
        async with AsyncClient(node.address) as through:
            client = AsyncKeyspaceClient(through, "k")
            changes = [Change(CART, "put", 1), Change(ORDERS, "delete")]
            assert await client.transaction(changes) == [1, None]
