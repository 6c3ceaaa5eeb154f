"""`ringpop_py.state.backups.epochs`: checkpoints of a keyspace as a whole, in virtual time."""

from __future__ import annotations

import time

import pytest
import trio

from ringpop_py.base.errors import ConfigError, KeyspaceError, PartitionUnavailable
from ringpop_py.base.values.checksum import wrap_message
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.backups.epochs import checkpoint_now
from ringpop_py.state.catalog.checkpoints import decode_checkpoint
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.stores.memory import StoreFault
from tests.state.backups.hosts import host_of, listed_at
from tests.state.keyspaces.clusters import a_cluster, all_online

pytestmark = pytest.mark.virtual_time

KEYS = KeyspaceKeys("default", "counts", 1)


async def test_a_checkpoint_has_all_that_was_acknowledged_before_it() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=8)
        await all_online(keyspace, "a", "b")
        changes = [(f"k{n}", "put", n) for n in range(100)]
        await keyspace.update_many(changes, offsets={"topic": 42})

        manifest = await checkpoint_now(host_of(b))

        files = [cluster.store.get(KEYS.epoch_file(1, n)) or b"" for n in range(8)]
        found = [decode_checkpoint(file) for file in files]
        assert sum(len(checkpoint.snapshot.entries) for checkpoint in found) == 100
        assert [(f.partition, f.slot, f.size_bytes) for f in manifest.files] == [
            (n, found[n].slot, len(files[n])) for n in range(8)
        ]
        keys_count = sum(file.keys_count for file in manifest.files)
        assert (manifest.name, keys_count, manifest.members, manifest.made_by) == (
            *("epoch-1", 100),
            *(("a", "b"), "b"),
        )
        assert manifest.files[keyspace.partition_of("k1")].offsets == {"topic": 42}


async def test_all_nodes_list_the_same_checkpoints_and_the_same_latest() -> None:
    """V12."""
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        made = [await checkpoint_now(host_of(node)) for node in (a, b, a)]

        listed = [listed_at(node) for node in (a, b)]

        assert [m.number for m in made] == [1, 2, 3]
        assert listed == [made, made]


async def test_two_checkpoints_at_once_are_two() -> None:
    """V11."""
    async with a_cluster() as cluster:
        nodes = [await cluster.start("a"), await cluster.start("b")]
        keyspace = await nodes[0].open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")

        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(checkpoint_now, host_of(node))

        listed = listed_at(nodes[0])
        assert [(m.number, len(m.files)) for m in listed] == [(1, 4), (2, 4)]


async def test_the_log_deletes_none_of_its_files() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2, checkpoint_interval_s=1)
        manifest = await checkpoint_now(host_of(a))
        for n in range(50):
            await keyspace.put(f"k{n}", n)
            await trio.sleep(0.5)

        assert host_of(a).checkpointer.counts.whole_count > 0
        files = [cluster.store.get(KEYS.epoch_file(1, n)) or b"" for n in range(2)]
        assert [len(file) for file in files] == [file.size_bytes for file in manifest.files]


async def test_a_checkpoint_does_not_disturb_those_of_the_partitions() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=1, checkpoint_interval_s=1)
        await keyspace.update_many([(f"k{n}", "put", "x" * 50) for n in range(500)])
        await trio.sleep(5)
        await checkpoint_now(host_of(a))
        await keyspace.put("k1", 2)
        await trio.sleep(5)

        counts = host_of(a).checkpointer.counts

        assert (counts.whole_count, counts.incremental_count) == (1, 1)


async def test_it_goes_on_while_partitions_move() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=16)
        await keyspace.update_many([(f"k{n}", "put", n) for n in range(100)])
        await cluster.start("b")

        manifest = await checkpoint_now(host_of(a))

        assert sum(file.keys_count for file in manifest.files) == 100


async def test_one_that_fails_does_not_count_and_leaves_no_files() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        cluster.isolate("b")
        del b

        with pytest.raises(PartitionUnavailable):
            await checkpoint_now(host_of(a), timeout_s=0.5)

        assert listed_at(a) == []
        assert cluster.store.list(KEYS.epoch_files(1)) == []
        cluster.network.heal()
        await all_online(keyspace, "a", "b")
        assert (await checkpoint_now(host_of(a))).number == 2


async def test_a_cancelled_checkpoint_leaves_nothing_that_counts() -> None:
    async with a_cluster() as cluster:
        a, _ = await cluster.start("a"), await cluster.start("b")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a", "b")
        cluster.isolate("b")

        with trio.move_on_after(0.2) as scope:
            await checkpoint_now(host_of(a))

        assert scope.cancelled_caught
        assert cluster.store.list(KEYS.epoch_files(1)) == cluster.store.list(KEYS.begun) == []
        assert listed_at(a) == []


async def test_a_store_that_fails_now_and_then_does_not_stop_it() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=4)
        await all_online(keyspace, "a")
        key = KEYS.begun_epoch(1)
        cluster.store.put_if_absent(key, encode_value("msgpack", [0, "gone"]))
        task_done = trio.Event()

        async def make() -> None:
            await checkpoint_now(host_of(a))
            task_done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make)
            while cluster.store.get(KEYS.begun_epoch(2)) is None:
                await trio.lowlevel.checkpoint()
            cluster.store.inject(StoreFault.LOSES_REPLY, count=2)
            await task_done.wait()

        (manifest,) = listed_at(a)
        assert (manifest.number, len(manifest.files)) == (2, 4)


async def test_only_the_newest_are_kept() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2)
        await all_online(keyspace, "a")
        for _ in range(4):
            await checkpoint_now(host_of(a), keep=2)

        listed = listed_at(a)

        assert [manifest.number for manifest in listed] == [3, 4]
        assert cluster.store.list(KEYS.epoch_files(2)) == []
        assert len(cluster.store.list(KEYS.epoch_files(3))) == 2
        with pytest.raises(ConfigError, match="keep"):
            await checkpoint_now(host_of(a), keep=0)


async def test_a_checkpoint_that_was_begun_long_ago_is_deleted_and_never_counts() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2)
        await all_online(keyspace, "a")
        long_ago = encode_value("msgpack", [0, "gone"])
        cluster.store.put_if_absent(KEYS.begun_epoch(1), long_ago)
        cluster.store.put_if_absent(KEYS.epoch_file(1, 0), b"half of it")

        made = await checkpoint_now(host_of(a))

        assert cluster.store.list(KEYS.epoch_files(1)) == []
        assert not cluster.store.put_if_absent(KEYS.manifest(1), made.encode(KEYS.manifest(1)))
        assert listed_at(a) == [made]


async def test_a_checkpoint_that_was_begun_a_moment_ago_is_left_alone() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2)
        await all_online(keyspace, "a")
        now_us = time.time_ns() // 1_000
        key = KEYS.begun_epoch(1)
        cluster.store.put_if_absent(key, wrap_message([now_us, "b"], key))
        cluster.store.put_if_absent(KEYS.epoch_file(1, 0), b"half of it")

        await checkpoint_now(host_of(a))

        assert len(cluster.store.list(KEYS.epoch_files(1))) == 1


async def test_of_a_keyspace_that_was_dropped_none_is_made() -> None:
    async with a_cluster() as cluster:
        a = await cluster.start("a")
        keyspace = await a.open_keyspace("counts", partitions=2)
        await all_online(keyspace, "a")
        host = host_of(a)
        await a.keyspaces.drop("counts")

        with pytest.raises(KeyspaceError):
            await checkpoint_now(host, timeout_s=2)
