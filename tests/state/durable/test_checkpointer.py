"""`state.durable.checkpointer`: when partitions write checkpoints, and what goes then."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pytest
import trio

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import PartitionUnavailable, StoreFull, StoreUnavailable
from ringpop_py.state.catalog.checkpoints import encode_checkpoint
from ringpop_py.state.catalog.layout import slot_in
from ringpop_py.state.durable.checkpointer import LOOK_S, TRIM_S
from ringpop_py.state.journal.codec import encode_record
from ringpop_py.state.journal.records import Seal
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.table.entries import FrozenEntries, MemoryEntries
from ringpop_py.state.tasks import Worker
from tests.logged import events_in
from tests.state.durable.benches import RecordingStore, release_unknown, until
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.durable.checkpointer import CheckpointCounts
    from ringpop_py.state.durable.partition import Partition
    from ringpop_py.state.journal.records import Reached
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.table.entries import Piece

P = ParamSpec("P")
T = TypeVar("T")

pytestmark = pytest.mark.virtual_time


def counts_at(node: Ringpop) -> CheckpointCounts:
    return node.keyspaces.durable_host("counts").checkpointer.counts


def keys_of(store: MemoryStore, kind: str) -> list[str]:
    """The keys of journals (``j``), ``claims`` or checkpoints (``ck``)."""
    return [key for key in store.list("") if f"/{kind}/" in key]


def key_in(keyspace: Keyspace, number: int) -> str:
    """A key of partition *number*."""
    return next(key for n in range(10_000) if keyspace.partition_of(key := f"k{n}") == number)


async def test_files_of_all_keyspaces_are_made_in_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_by: list[Worker] = []
    run = Worker.run

    async def noted(
        worker: Worker, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if function is encode_checkpoint:
            made_by.append(worker)
        return await run(worker, function, *args, **kwargs)

    monkeypatch.setattr(Worker, "run", noted)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        for name in ("counts", "others"):
            keyspace = await node.open_keyspace(name, partitions=2, checkpoint_interval_s=1)
            await keyspace.update_many([(f"k{n}", "put", n) for n in range(20)])
        await trio.sleep(2)
        host = node.keyspaces.durable_host("counts")
        await host.snapshots.take(1, [0])

        assert made_by == [host.worker.maker] * 5
        assert host.worker.maker is not host.worker


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


async def test_many_commits_make_a_checkpoint_due_before_its_time() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a", state=StateConfig(checkpoint_slots_max=20))
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=3600)
        for number in range(20):
            await keyspace.put("k", number)

        await trio.sleep(1)

        assert counts_at(node).whole_count == 1


async def test_the_journal_stays_short_though_some_of_many_partitions_are_rarely_written() -> None:
    """Half of them keep an entry each that nothing but a checkpoint of theirs can cover."""
    async with a_cluster() as cluster:
        node = await cluster.start("a", state=StateConfig(checkpoint_slots_max=50))
        keyspace = await node.open_keyspace("counts", partitions=32, checkpoint_interval_s=3600)
        await all_online(keyspace, "a")
        writer = node.keyspaces.durable_host("counts").writer
        keys = [key_in(keyspace, number) for number in range(32)]
        hot, cold = keys[:16], keys[16:]
        lengths, slots = [], []

        for number in range(600):
            await keyspace.put(hot[number % 16], number)
            if number % 40 == 0:
                await keyspace.put(cold[number // 40 % 16], number)
            await trio.sleep(0.02)
            lengths.append(writer.journal.length)
            slots.append(len(keys_of(cluster.store, "j")))

        # So many are put between two looks, and while checkpoints are written.
        slack = 2 * (LOOK_S / 0.02)
        assert writer.journal.next_slot > 600
        assert max(lengths) < 50 + slack
        assert max(slots) < 50 + slack + 2  # with marks
        # Most of those that are due are due together: not each look writes some.
        assert counts_at(node).whole_count + counts_at(node).incremental_count < 32 * 600 / 50
        await cluster.stop("a")
        successor = await (await cluster.start("b")).open_keyspace("counts")
        assert await successor.get(cold[1]) == 40
        assert await successor.get(hot[0]) == 592


async def test_a_partition_that_was_written_once_is_covered_when_it_holds_the_journal_back() -> (
    None
):
    async with a_cluster() as cluster:
        node = await cluster.start("a", state=StateConfig(checkpoint_slots_max=20))
        keyspace = await node.open_keyspace("counts", partitions=2, checkpoint_interval_s=3600)
        await all_online(keyspace, "a")
        first, second = (key_in(keyspace, number) for number in range(2))
        await keyspace.put(first, 1)
        for number in range(12):
            await keyspace.put(second, number)
        await trio.sleep(1)
        before = keys_of(cluster.store, "ck")

        for number in range(7):
            await keyspace.put(second, number)
        await trio.sleep(TRIM_S + 1)

        (checkpoint,) = keys_of(cluster.store, "ck")
        assert before == []
        assert "/p/00000/" in checkpoint  # only that of the first one, which is furthest back
        host = node.keyspaces.durable_host("counts")
        assert host.writer.journal.length == 19


async def test_a_checkpoint_that_fails_again_and_again_keeps_the_journal_and_nothing_else() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a", state=StateConfig(checkpoint_slots_max=10))
        node.keyspaces.states.make_entries = Unreadable
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=3600)
        for number in range(50):
            await keyspace.put("k", number)
            await trio.sleep(0.1)

        assert len(keys_of(cluster.store, "j")) == 50
        assert 2 < counts_at(node).failed_count < 6  # once a second, however long it is
        assert await keyspace.get("k") == 49


async def test_an_unchanged_partition_claimed_again_after_a_fence_has_a_checkpoint_soon() -> None:
    """Its earlier writes stand in a journal that no other node would cover."""
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=10)
        await keyspace.put("k", 1)
        host = node.keyspaces.durable_host("counts")
        journal = host.keys.journal(host.writer.journal.name)
        key = journal.slot(2)
        cluster.store.put_if_absent(key, encode_record(Seal("z"), key))
        await keyspace.get("k")  # which meets it, and is repeated

        await trio.sleep(12)

        assert host.driver.online()[0].epoch == 2
        (checkpoint,) = keys_of(cluster.store, "ck")
        assert slot_in(checkpoint) == (2, 0)
        assert await keyspace.get("k") == 1


@pytest.mark.parametrize("watched", [False, True])
async def test_the_next_ones_hold_what_has_changed_since_and_a_successor_reads_them_all(
    *, watched: bool
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1)
        if watched:  # what is kept for watchers makes no increment a large one
            assert [change async for change in keyspace.watch(idle_s=1)] == []
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


class Unreadable(MemoryEntries):
    """On a disk that is broken: what was written is read from memory, and nothing else."""

    def freeze(self, _keys: Sequence[str] | None = None) -> FrozenEntries:
        return UnreadableRows({})


class UnreadableRows(FrozenEntries):
    def pieces(self, _bytes_max: int) -> Iterator[Piece]:
        message = "the disk is broken"
        raise PartitionUnavailable(message)


async def test_why_checkpoints_fail_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with a_cluster(WithoutCheckpoints()) as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=4, checkpoint_interval_s=1)
        await keyspace.update_many([(f"k{n}", "put", n) for n in range(50)])

        await trio.sleep(10)

        assert counts_at(node).failed_count > 10
        (said,) = events_in(caplog, "checkpoint-failed")
        assert "it takes no large objects" in str(said.fields["text"])


async def test_a_journal_that_cannot_be_trimmed_is_tried_rarely() -> None:
    """A released partition that no node claims keeps what it released."""
    store = RecordingStore()
    async with a_cluster(store) as cluster:
        node = await cluster.start("a", state=StateConfig(checkpoint_slots_max=10))
        keyspace = await node.open_keyspace("counts", partitions=2, checkpoint_interval_s=3600)
        await all_online(keyspace, "a")
        host = node.keyspaces.durable_host("counts")
        await release_unknown(host.writer, host.driver.partitions[0])
        key = key_in(keyspace, 1)
        store.said.clear()
        for number in range(100):
            await keyspace.put(key, number)
            await trio.sleep(1)

        assert host.writer.journal.length > 90
        looks = [key for verb, key in store.said if verb == "list" and "/p/00000/" in key]
        assert 5 < len(looks) < 30


class Broken(MemoryEntries):
    """On a disk that can no longer be read, as soon as the test says so."""

    def break_down(self) -> None:
        self.failed = True


async def test_a_partition_whose_local_disk_has_failed_is_given_up_and_comes_anew() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        made: list[Broken] = []

        def make() -> Broken:
            made.append(Broken())
            return made[-1]

        node.keyspaces.states.make_entries = make
        keyspace = await node.open_keyspace("counts", partitions=1)
        await keyspace.put("k", 1)
        epoch = keyspace.table[0].epoch

        made[-1].break_down()
        await trio.sleep(2 * LOOK_S)
        assert await keyspace.get("k") == 1

        assert keyspace.table[0].epoch > epoch
        assert len(made) > 1


class SlowWorker(Worker):
    """The first file that it makes is ready once *meanwhile* has returned."""

    def __init__(self, store: Store, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(store, 1)
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As any worker's."""
        done = await super().run(function, *args, **kwargs)
        if self._meanwhile is not None and function is encode_checkpoint:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return done


async def test_a_partition_that_is_lost_while_its_checkpoint_is_made_costs_that_one_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=2, checkpoint_interval_s=1)
        await all_online(keyspace, "a")
        host = node.keyspaces.durable_host("counts")
        partitions = host.driver.online()
        lost: list[Partition] = []

        async def lose() -> None:
            (partition,) = [each for each in partitions if each.behind]
            await release_unknown(host.writer, partition)
            lost.append(partition)

        host.checkpointer._worker = SlowWorker(cluster.store, lose)
        await keyspace.put(key_in(keyspace, 0), 1)
        await until(lambda: lost)
        await keyspace.put(key_in(keyspace, 1), 1)
        await until(lambda: keys_of(cluster.store, "ck") or host.driver.failure)

        (checkpoint,) = keys_of(cluster.store, "ck")
        assert not host.driver.failure
        assert lost == partitions[:1]
        assert "/p/00001/" in checkpoint
        assert counts_at(node).failed_count == 0  # nothing is wrong with it
        assert not [record for record in caplog.records if record.exc_info]


class WithoutCheckpoints(MemoryStore):
    def put_if_absent(self, key: str, value: bytes) -> bool:
        if "/ck/" in key:
            message = "it takes no large objects"
            raise StoreFull(message)
        return super().put_if_absent(key, value)


async def test_those_that_hold_the_journal_back_most_are_written_first_and_the_steward_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=4, checkpoint_interval_s=3600)
        await all_online(keyspace, "a")
        host = node.keyspaces.durable_host("counts")
        order, told = [3, 1, 0, 2], list[int]()
        steward = host.driver.steward
        monkeypatch.setattr(steward, "checkpointed", lambda number, _: told.append(number))
        for number in order:
            await keyspace.put(key_in(keyspace, number), 1)

        monkeypatch.setattr(host.checkpointer, "_is_due", lambda each: each.behind)
        await until(lambda: len(told) == 4 or host.driver.failure)

        assert told == order


async def test_rows_frozen_for_a_checkpoint_are_closed_though_they_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[UnreadableRows] = []

    def close(rows: UnreadableRows) -> None:
        closed.append(rows)

    monkeypatch.setattr(UnreadableRows, "close", close)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        node.keyspaces.states.make_entries = Unreadable
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=1)
        await keyspace.put("k", 1)
        await until(lambda: counts_at(node).failed_count == 3)

    assert len(closed) >= 3


async def test_how_far_a_journal_is_noted_now_and_then_and_a_store_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("counts", partitions=1, checkpoint_interval_s=1)
        host = node.keyspaces.durable_host("counts")
        notes: list[int] = []

        def note(_name: str, reached: Reached) -> None:
            notes.append(reached.slot)
            if len(notes) < 4:
                raise StoreUnavailable("not now")

        monkeypatch.setattr(host.checkpointer._reached, "note", note)
        for number in range(60):
            await keyspace.put("k", number)
            await trio.sleep(1)

        assert 60 / TRIM_S - 1 <= len(notes) <= 60 / TRIM_S + 1
        assert notes == sorted(set(notes))
        assert not host.driver.failure
        assert counts_at(node).failed_count == 0
