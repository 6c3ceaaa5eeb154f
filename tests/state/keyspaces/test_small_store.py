"""A keyspace in a store that takes small values only: its large objects are put in pieces."""

from __future__ import annotations

import random

import pytest
import trio

from ringpop_py.base.errors import StoreFull
from ringpop_py.base.values.declared import convert
from ringpop_py.edge.admin.accounts import KeyspacesAccount
from ringpop_py.edge.admin.answers import summary_of
from ringpop_py.edge.web.metrics import NodeMetrics
from ringpop_py.state.backups.epochs import checkpoint_now
from ringpop_py.state.backups.restore import restore
from ringpop_py.state.durable.checkpointer import TRIM_S
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.stores.pieces import PIECES, PiecedStore
from tests.state.keyspaces.clusters import a_cluster, all_online

pytestmark = pytest.mark.virtual_time

BYTES_MAX = 1_000
FIRST = {f"k{n:03}": f"{n}" * 800 for n in range(40)}  # a record, too, is larger than that


class SmallStore(MemoryStore):
    """It takes small values, and no piece of a checkpoint while it is `full`."""

    def __init__(self, value_bytes_max: int = BYTES_MAX) -> None:
        super().__init__(value_bytes_max=value_bytes_max)
        self.full = False

    def put_if_absent(self, key: str, value: bytes) -> bool:
        if self.full and f"/{PIECES}/" in key and "/ck/" in key:
            raise StoreFull("no room for a piece")
        return super().put_if_absent(key, value)


def pieces_of(store: MemoryStore, kind: str) -> set[str]:
    """The values of journals (``j``), checkpoints (``ck``)… that are in pieces."""
    places = (key.rpartition("/")[0] for key in store.list("") if f"/{PIECES}/" in key)
    return {place for place in places if f"/{kind}/" in place}


async def test_large_partitions_have_checkpoints_move_and_outlive_a_crash() -> None:
    async with a_cluster(SmallStore()) as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2, checkpoint_interval_s=5)
        for key, value in FIRST.items():
            await keyspace.put(key, value)
        assert pieces_of(cluster.store, "j")

        await trio.sleep(5 + 2 * TRIM_S)
        assert len(pieces_of(cluster.store, "ck")) == 2
        assert not pieces_of(cluster.store, "j"), "they were deleted with the records"

        b = await cluster.start("b")
        there = await b.open_keyspace("counts")
        await all_online(there, "a", "b")
        assert await there.get_many(FIRST) == FIRST

        await there.put("k000", "later")
        cluster.hang("a")
        await all_online(there, "b")
        assert await there.get_many(FIRST) == {**FIRST, "k000": "later"}


async def test_a_backup_of_large_partitions_is_restored_and_deleted_as_a_whole() -> None:
    async with a_cluster(SmallStore()) as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2)
        await keyspace.update_many([(key, "put", value) for key, value in FIRST.items()])
        host = a.keyspaces.durable_host("counts")
        await checkpoint_now(host)
        await keyspace.put("k000", "later")

        await restore(a.keyspaces, "counts", into="copy")
        copy = await a.open_keyspace("copy")

        assert await copy.get_many(FIRST) == FIRST
        assert len(pieces_of(cluster.store, "epoch-1")) == 2
        await checkpoint_now(host, keep=1)
        assert not pieces_of(cluster.store, "epoch-1")
        assert len(pieces_of(cluster.store, "epoch-2")) == 2


async def test_why_checkpoints_fail_is_in_the_account_of_the_keyspace_until_one_succeeds() -> None:
    store = SmallStore(20_000)
    async with a_cluster(store) as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=2, checkpoint_interval_s=1)
        await node.open_keyspace("seen", partitions=1, mode="memory")
        counts = node.keyspaces.durable_host("counts").checkpointer.counts
        keys = {
            number: [k for k in FIRST if keyspace.partition_of(k) == number] for number in (0, 1)
        }

        def trouble(name: str = "counts") -> object:
            summary = summary_of(node, name)
            convert(KeyspacesAccount, {"keyspaces": [summary]}, "the account")
            if name == "counts":
                failing = bool(summary["checkpoint_trouble"])
                figure = f'ringpop_checkpoints_in_trouble{{keyspace="counts"}} {failing:.1f}'
                assert figure.encode() in NodeMetrics(node).exposed("")[0]
            return summary["checkpoint_trouble"]

        assert trouble() == trouble("seen") == ""
        store.full = True
        value = random.Random(0).randbytes(3_000).hex()
        await keyspace.update_many([(key, "put", value + key) for key in keys[0]])
        await trio.sleep(3)
        assert trouble() == "no room for a piece"
        assert counts.whole_count == 0
        assert not pieces_of(store, "ck"), "what was put of it is removed"

        await keyspace.put(keys[1][0], 1)
        await trio.sleep(3)
        assert counts.whole_count == 1
        assert trouble() == "no room for a piece", "a small partition does not hide it"

        store.full = False
        await trio.sleep(3)
        assert trouble() == ""
        assert counts.whole_count == 2
        assert isinstance(node.keyspaces.durable_host("counts").store, PiecedStore)
