"""What a cut does to a keyspace of each mode: one has one writer, the other two and a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import KeyspaceError, OperationIdReused, StoreUnavailable
from ringpop_py.base.values.operations import Outcome
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.keyspaces.memory_clusters import a_cluster, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.placement.definition import Settings
    from ringpop_py.state.stores.store import Store

pytestmark = pytest.mark.virtual_time


class StoreOfOneSide:
    """One store as seen from a node; the other side of a cut from it while it is *away*."""

    quick = in_memory = True

    def __init__(self, store: Store) -> None:
        self.away = False
        self._store = store

    def put_if_absent(self, key: str, value: bytes) -> bool:
        return self._reached().put_if_absent(key, value)

    def get(self, key: str) -> bytes | None:
        return self._reached().get(key)

    def list(self, prefix: str) -> list[str]:
        return self._reached().list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        self._reached().delete(keys)

    def close(self) -> None:
        self._store.close()

    def _reached(self) -> Store:
        if self.away:
            message = "the store is on the other side"
            raise StoreUnavailable(message)
        return self._store


async def test_durable_has_one_writer_and_refuses_on_the_side_without_the_store() -> None:
    store = MemoryStore()
    near, far = StoreOfOneSide(store), StoreOfOneSide(store)
    async with a_cluster({"a": near, "b": near, "c": far}) as cluster:
        nodes = await cluster.start("a", "b", "c")
        here, _, there = [await n.open_keyspace("state", partitions=8) for n in nodes]
        await serving(here, "a", "b", "c")
        await here.put("k", "before")

        cluster.cut("ab", "c")
        far.away = True
        await serving(here, "a", "b")
        await here.put("k", "here")
        with pytest.raises(KeyspaceError):
            await there.put("k", "there", timeout_s=5)
        with pytest.raises(KeyspaceError):
            await there.get("k", timeout_s=5)
        far.away = False
        await cluster.heal()
        await trio.sleep(10)

        assert await there.get("k") == await here.get("k") == "here"


async def test_memory_has_a_writer_on_both_sides_and_they_become_one_by_the_rule() -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b", "c")
        settings: Settings = {"mode": "memory", "partitions": 8, "merge": "union"}
        here, _, there = [await n.open_keyspace("state", **settings) for n in nodes]
        await serving(here, "a", "b", "c")
        await here.put("k", ["before"])

        cluster.cut("ab", "c")
        await serving(here, "a", "b")
        await serving(there, "c")
        await here.put("k", ["here"])
        await there.put("k", ["there"])
        assert await here.get("k") == ["here"]
        assert await there.get("k") == ["there"]
        await cluster.heal()
        await trio.sleep(10)

        assert await there.get("k") == await here.get("k") == ["here", "there"]


async def test_an_id_that_was_used_on_one_side_is_compared_on_both_when_they_are_one() -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b", "c")
        settings: Settings = {"mode": "memory", "partitions": 8}
        here, _, there = [await n.open_keyspace("state", **settings) for n in nodes]
        await serving(here, "a", "b", "c")

        cluster.cut("ab", "c")
        await serving(here, "a", "b")
        await serving(there, "c")
        await here.put("k1", 1, operation_id="here")
        await there.put("k2", 2, operation_id="there")
        await cluster.heal()
        await trio.sleep(10)

        for keyspace in (here, there):
            for key, value, name in (("k1", 1, "here"), ("k2", 2, "there")):
                (same,) = await keyspace.update_many([(key, "put", value)], operation_id=name)
                (other,) = await keyspace.update_many([(key, "put", 3)], operation_id=name)
                assert same == Outcome((value,), repeated=True)
                assert isinstance(other, OperationIdReused)


@pytest.mark.parametrize("merge", ["last_writer_wins", "max", "union"])
async def test_a_delete_of_a_key_that_only_the_other_side_has_is_not_undone(merge: str) -> None:
    async with a_cluster() as cluster:
        nodes = await cluster.start("a", "b", "c")
        settings: Settings = {"mode": "memory", "partitions": 8, "merge": merge}
        here, _, there = [await n.open_keyspace("state", **settings) for n in nodes]
        await serving(here, "a", "b", "c")
        keys = [f"k{n}" for n in range(24)]
        await here.update_many([(key, "put", 1) for key in keys])
        assert {here.owner_of(key) for key in keys} == {"a", "b", "c"}

        cluster.cut("ab", "c")
        await serving(here, "a", "b")
        await serving(there, "c")
        for key in keys:
            await there.delete(key)
        await here.put("kept", 1)
        await cluster.heal()
        await trio.sleep(10)

        assert [key async for key, _ in here.scan()] == ["kept"]
        assert [key async for key, _ in there.scan()] == ["kept"]
