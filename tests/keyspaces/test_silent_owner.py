"""Requests whose owner hangs: they go on when membership has declared it faulty."""

from __future__ import annotations

import pytest
import trio

from ringpop_py.swim.effects import StatusChanged
from ringpop_py.swim.member import Status
from tests.keyspaces.clusters import a_cluster, all_online, key_at

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("writes", [False, True], ids=["a read", "a write"])
async def test_a_request_does_not_wait_for_an_owner_that_was_declared_faulty(
    writes: bool,  # noqa: FBT001
) -> None:
    declared_at: list[float] = []

    def note(effect: object) -> None:
        match effect:
            case StatusChanged(_, after) if after is not None and after.status is Status.FAULTY:
                declared_at.append(trio.current_time())

    async with a_cluster() as cluster:
        node = await cluster.start("a")
        await cluster.start("b")
        await cluster.start("c")
        keyspace = await node.open_keyspace("k", partitions=8)
        await all_online(keyspace, "a", "b", "c")
        key = key_at(keyspace, "c")
        await keyspace.put(key, 1)
        node.observe(note)

        cluster.hang("c")
        if writes:
            assert await keyspace.update(key, "add", 1, timeout_s=60) == 2
        else:
            assert await keyspace.get(key, timeout_s=60) == 1

        assert trio.current_time() - declared_at[0] < 1
        cluster.resume("c")
