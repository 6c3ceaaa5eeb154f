"""Requests whose owner hangs: they go on when it neither answers this node nor others."""

from __future__ import annotations

import pytest
import trio

from ringpop_py.member.swim.member import Status
from tests.state.keyspaces.clusters import a_cluster, all_online, key_at

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("writes", [False, True], ids=["a read", "a write"])
async def test_a_request_does_not_wait_until_its_owner_is_declared_faulty(
    writes: bool,  # noqa: FBT001
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        await cluster.start("b")
        await cluster.start("c")
        keyspace = await node.open_keyspace("k", partitions=8)
        await all_online(keyspace, "a", "b", "c")
        key = key_at(keyspace, "c")
        await keyspace.put(key, 1)
        await trio.sleep(1)

        cluster.hang("c")
        hung_at = trio.current_time()
        if writes:
            assert await keyspace.update(key, "add", 1, timeout_s=60) == 2
        else:
            assert await keyspace.get(key, timeout_s=60) == 1

        assert trio.current_time() - hung_at < 2
        assert node.status_of("c") is Status.SUSPECT
        assert node.is_silent("c")
        cluster.resume("c")
        await all_online(keyspace, "a", "b", "c")  # it has its share back
        assert await keyspace.get(key) == (2 if writes else 1)
