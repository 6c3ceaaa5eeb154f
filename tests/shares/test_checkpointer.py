"""`ringpop_py.shares.checkpointer`: when partitions write checkpoints, and what is then deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.config.settings import StateConfig
from ringpop_py.errors import PartitionUnavailable
from ringpop_py.keyed.entries import FrozenEntries, MemoryEntries
from ringpop_py.stores.memory import MemoryStore, StoreFault
from tests.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.keyed.entries import Piece
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.shares.checkpointer import CheckpointCounts

pytestmark = pytest.mark.virtual_time


def counts_at(node: Ringpop) -> CheckpointCounts:
    return node.keyspaces.durable_host("counts").checkpointer.counts


def keys_of(store: MemoryStore, kind: str) -> list[str]:
    """The keys of journals (``j``), claims (``s``) or checkpoints (``ck``)."""
    return [key for key in store.list("") if f"/{kind}/" in key]


async def test_partitions_with_changes_write_one_each_interval_and_not_all_at_once() -> None:
    """R13: every ten seconds, jittered. R14: one after the other, with no barrier."""
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=16, checkpoint_interval_s=10)
        await keyspace.update_many([(f"k{n}", "put", n) for n in range(200)])

        written = []
        for _ in range(110):
            written.append(len(keys_of(cluster.store, "ck")))
            await trio.sleep(0.1)

        assert written[40] == 0
        assert written[-1] == 16
        assert len(set(written)) > 8, "they come one by one"


async def test_a_partition_without_changes_writes_none() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=8)
        await keyspace.put("k", 1)

        await trio.sleep(60)

        assert len(keys_of(cluster.store, "ck")) == 1


async def test_what_a_checkpoint_covers_is_deleted_but_claims_and_the_mark() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1)
        for number in range(30):
            await keyspace.put("k", number)
        assert len(keys_of(cluster.store, "j")) == 30

        await trio.sleep(16)

        (claim,) = keys_of(cluster.store, "s")
        (mark,) = keys_of(cluster.store, "j")
        assert claim.endswith("/0000000001/0000000000")
        assert mark.endswith("/mark/0000000031")
        assert len(keys_of(cluster.store, "ck")) == 1


async def test_many_commits_make_a_checkpoint_due_before_its_time() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a", state=StateConfig(checkpoint_slots_max=20))
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=3600)
        for number in range(20):
            await keyspace.put("k", number)

        await trio.sleep(1)

        assert counts_at(node).whole_count == 1


async def test_the_next_ones_hold_what_has_changed_since_and_a_successor_reads_them_all() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1)
        await keyspace.update_many([(f"k{n:04}", "put", "x" * 100) for n in range(1_000)])
        await trio.sleep(12)
        for number in range(3):
            await keyspace.put(f"k{number:04}", number)
            await trio.sleep(12)

        counts = counts_at(node)
        assert (counts.whole_count, counts.incremental_count) == (1, 3)
        await cluster.stop("a")
        successor = await (await cluster.start("b")).open_keyspace("counts")
        found = [value async for _, value in successor.scan(limit=4)]
        assert found == [0, 1, 2, "x" * 100]


async def test_a_store_that_fails_costs_a_checkpoint_and_nothing_else() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1)
        await keyspace.put("k", 1)
        cluster.store.inject(StoreFault.LOSES_REPLY)
        await trio.sleep(12)
        failed = counts_at(node).failed_count

        await keyspace.put("k", 2)
        await trio.sleep(24)

        assert failed == 1
        assert counts_at(node).whole_count >= 1
        await cluster.stop("a")
        successor = await (await cluster.start("b")).open_keyspace("counts")
        assert await successor.get("k") == 2


class Unreadable(MemoryEntries):
    """On a disk that is broken: what was written is read from memory, and nothing else."""

    def freeze(self, _keys: Sequence[str] | None = None) -> FrozenEntries:
        return UnreadableRows({})


class UnreadableRows(FrozenEntries):
    def pieces(self, _bytes_max: int) -> Iterator[Piece]:
        message = "the disk is broken"
        raise PartitionUnavailable(message)


async def test_a_state_that_cannot_be_read_costs_a_checkpoint_and_nothing_else() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        node.keyspaces.states.make_entries = Unreadable
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=1)
        await keyspace.put("k", 1)

        await trio.sleep(10)

        assert 5 < counts_at(node).failed_count < 15
        assert await keyspace.get("k") == 1
