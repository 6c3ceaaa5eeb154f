"""Jobs that write into a keyspace exactly once, in virtual time, with faults."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import trio

from ringpop_py.base.errors import (
    BadOperation,
    KeyspaceError,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.state.actors.actors import Actor
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.rows.stagefile import Chunk, encode_stage
from ringpop_py.state.stores.memory import StoreFault
from tests.state.jobs.jobs_staged import (
    JOB,
    NAME,
    PARTITIONS,
    a_file,
    committed,
    decided,
    head_at,
    jobs_of,
    now_ms,
    settled,
    staged,
)
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ringpop_py.base.values.operations import Value
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time

ROWS: dict[str, Value] = {f"key-{n}": n for n in range(200)}
ONES: dict[str, Value] = {f"key-{n}": 1 for n in range(200)}
NO_VALUE = b"\xa2\xff\xfe"
"""Text of two bytes that are no UTF-8."""
TWICE = b"\x82\xa1a\x01\xa1a\x02"
"""A map with a key twice."""
ONE = b"\x01"


A, B, BAD, *_ = (key for key in ONES if partition_of(key, PARTITIONS) == 0)


def file_of_packed(operation: str, rows: Mapping[str, bytes]) -> bytes:
    """*rows* of the first partition in one chunk: only of the first is it looked at the value."""
    keys, values = pa.array(rows.keys()), pa.array(rows.values(), pa.binary())
    return encode_stage(operation, [Chunk(0, keys, values)])


@asynccontextmanager
async def members(
    *names: str, **settings: int
) -> AsyncIterator[tuple[Cluster, list[Ringpop], Keyspace]]:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in names]
        keyspace = await nodes[0].open_keyspace(NAME, partitions=PARTITIONS, **settings)  # type: ignore[arg-type]
        await all_online(keyspace, *names)
        yield cluster, nodes, keyspace


async def contents(keyspace: Keyspace) -> dict[str, Value]:
    return {key: value async for key, value in keyspace.scan()}


async def test_staged_rows_are_seen_once_they_were_committed_and_applied() -> None:
    async with members("a", "b") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await staged(jobs, "t0", a_file({"x": 1}), a_file({"y": 2}))
        await staged(jobs_of(nodes[1]), "t1", a_file(ROWS))
        assert await contents(keyspace) == {}

        await decided(jobs, "t0", "t1")
        progress = await jobs.settle(JOB)

        assert await contents(keyspace) == {"x": 1, "y": 2, **ROWS}
        assert progress.applied
        assert progress.rows_count == 202
        assert progress.partitions_done == progress.partitions_count


async def test_of_attempts_and_files_and_chunks_the_later_ones_win() -> None:
    async with members("a") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await staged(jobs, "second", a_file({"k": 3}), a_file({"k": 4}))
        await staged(jobs, "first", a_file({"k": 1, "only": 2}))
        await staged(jobs, "loser", a_file({"k": 5, "lost": 5}))

        await decided(jobs, "first", "second")
        await settled(jobs)

        assert await contents(keyspace) == {"k": 4, "only": 2}


async def test_an_attempt_that_is_not_finished_cannot_be_committed() -> None:
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        await jobs.stage(head_at(jobs, "t0", 0, now_ms()), a_file(ROWS))

        with pytest.raises(BadOperation, match="'t0' of job 'job 1' is not finished"):
            await decided(jobs, "t0")

        assert await jobs.decision(JOB) is None


async def test_a_job_without_attempts_is_applied_at_once() -> None:
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])

        await decided(jobs)

        assert (await jobs.settle(JOB)).applied


async def test_a_job_that_is_not_decided_is_not_applied() -> None:
    async with members("a") as (_, nodes, _keyspace):
        with pytest.raises(BadOperation, match="not committed"):
            await jobs_of(nodes[0]).settle(JOB)


# Sent again.


async def test_a_file_that_is_staged_again_after_a_lost_answer_is_there_once() -> None:
    async with members("a", "b") as (cluster, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        head = head_at(jobs, "t0", 0, now_ms())
        file = a_file(ONES, operation="add")
        cluster.store.inject(StoreFault.LOSES_REPLY)
        with pytest.raises(StoreUnavailable):
            await jobs.stage(head, file)

        await jobs_of(nodes[1]).stage(head, file)
        assert len(cluster.store.list(jobs.store.keys.staged_jobs)) == 1


async def test_another_file_under_the_same_name_is_refused() -> None:
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        head = head_at(jobs, "t0", 0, now_ms())
        await jobs.stage(head, a_file({"x": 1}))

        with pytest.raises(BadOperation, match="with other contents"):
            await jobs.stage(head, a_file({"x": 2}))


async def test_an_attempt_that_is_finished_again_otherwise_is_refused() -> None:
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        await staged(jobs, "t0", a_file({"x": 1}))

        with pytest.raises(BadOperation, match="with other contents"):
            await staged(jobs, "t0")


# What dies.


async def test_a_keyspace_that_is_dropped_meanwhile_has_no_job() -> None:
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        await committed(jobs, a_file(ROWS))

        await nodes[0].keyspaces.drop(NAME)

        assert not (await jobs.settle(JOB)).applied


# What makes no sense.


async def test_rows_that_the_keyspace_refuses_are_kept_apart_and_all_others_applied() -> None:
    async with members("a", "b") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await keyspace.put("key-3", "text")
        await committed(jobs, *[a_file(ONES, operation="add")] * 2)

        progress = await jobs.settle(JOB)

        assert await contents(keyspace) == {**dict.fromkeys(ONES, 2), "key-3": "text"}
        assert progress.refused.count == 2
        assert [(each.key, each.kind) for each in progress.refused.some] == [
            ("key-3", "BadOperation")
        ] * 2
        assert "2 rows were refused: 'key-3': BadOperation: add needs a number" in str(
            progress.refused
        )
        tallies = [node.proxying.operations.job for node in nodes]
        assert sum(tally.done for tally in tallies) == 2 * (len(ONES) - 1)
        assert sum(tally.refused for tally in tallies) == 2
        writes = [node.proxying.operations.write.done for node in nodes]
        assert sum(writes) == 1  # that of the text


async def test_arguments_that_are_no_values_are_refused_and_all_other_rows_applied() -> None:
    async with members("a") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await keyspace.put(A, "text")
        file = file_of_packed("add", {A: ONE, BAD: NO_VALUE, B: ONE})
        await committed(jobs, file, file)

        progress = await jobs.settle(JOB)

        assert await contents(keyspace) == {A: "text", B: 2}
        assert (progress.applied, progress.refused.count) == (True, 4)
        tally = nodes[0].proxying.operations.job
        assert (tally.done, tally.refused) == (2, 4)
        assert {each.key: each.text for each in progress.refused.some} == {
            A: "add needs a number, the value is text",
            BAD: "its argument cannot be read: not a msgpack value: UnicodeDecodeError",
        }


@pytest.mark.parametrize("value", [NO_VALUE, TWICE])
async def test_an_unreadable_value_refuses_requests_and_rows_of_later_jobs(
    value: bytes,
) -> None:
    async with members("a", "b") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await committed(jobs, file_of_packed("put", {A: ONE, BAD: value}))
        await settled(jobs)

        with pytest.raises(BadOperation, match=f"the value of key '{BAD}' cannot be read"):
            await keyspace.update(BAD, "max", 2)
        with pytest.raises(StateDamaged, match=f"the value of key '{BAD}' cannot be read"):
            await keyspace.get(BAD)
        with pytest.raises(StateDamaged, match=f"the value of key '{BAD}' cannot be read"):
            await contents(keyspace)
        await staged(jobs, "t1", a_file({A: 2, BAD: 2}, operation="max"), job="later")
        await decided(jobs, "t1", job="later", by="another")
        later = await jobs.settle("later")

        assert (later.applied, [each.key for each in later.refused.some]) == (True, [BAD])
        await keyspace.put(BAD, 3)
        assert await contents(keyspace) == {A: 2, BAD: 3}


class Echo(Actor[int, int]):
    async def receive(self, message: int) -> int:
        self.state = message
        return message


async def test_an_actor_whose_record_is_no_value_fails_alone() -> None:
    async with members("a") as (_, nodes, keyspace):
        jobs, actors = jobs_of(nodes[0]), keyspace.actor(Echo)
        key = next(key for key in ONES if partition_of(f"Echo/{key}", PARTITIONS) == 0)
        await committed(jobs, file_of_packed("put", {A: ONE, f"Echo/{key}": NO_VALUE}))
        await settled(jobs)

        with pytest.raises(StateDamaged, match="holds something other than an actor's record"):
            await actors.ask(key, 1)

        assert await actors.ask("another", 1) == 1


async def test_a_full_partition_refuses_what_is_new_and_takes_the_rest() -> None:
    async with members("a", max_keys_per_partition=5) as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await committed(jobs, a_file(ROWS))

        progress = await jobs.settle(JOB)

        assert len(await contents(keyspace)) == 5 * PARTITIONS
        assert progress.refused.count == len(ROWS) - 5 * PARTITIONS


async def test_each_column_may_have_its_aggregation() -> None:
    async with members("a") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        rows: dict[str, Value] = {"ada": {"n": ["count", None], "sum": ["add", 2.5]}}
        await committed(jobs, *[a_file(rows, operation="fields")] * 2)

        await settled(jobs)

        assert await keyspace.get("ada") == {"n": 2, "sum": 5.0}


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "not a stage file"),
        (a_file({"x": 1})[:-1], "not a stage file"),
        (a_file({"x": 1}).replace(b"put", b"pot"), "checksum"),
    ],
)
async def test_a_malformed_stage_file_is_not_kept(file: bytes, why: str) -> None:
    async with members("a") as (cluster, nodes, _keyspace):
        jobs = jobs_of(nodes[0])

        with pytest.raises(BadOperation, match=why):
            await jobs.stage(head_at(jobs, "t0", 0, now_ms()), file)

        assert cluster.store.list(jobs.store.keys.staged_jobs) == []


async def test_rows_in_the_wrong_partition_are_not_kept() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        await node.open_keyspace(NAME, partitions=3)
        jobs = jobs_of(node)

        with pytest.raises(BadOperation, match="is not of partition"):
            await jobs.stage(head_at(jobs, "t0", 0, now_ms()), a_file(ROWS))


async def test_a_task_whose_clock_is_far_off_is_told_so() -> None:
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])

        with pytest.raises(BadOperation, match="clock"):
            await jobs.stage(head_at(jobs, "t0", 0, now_ms() - 7_200_000), a_file(ROWS))


async def test_a_committed_job_whose_files_are_gone_says_so() -> None:
    async with members("a") as (cluster, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        await committed(jobs, a_file(ROWS))
        keys = cluster.store.list(jobs.store.keys.staged_jobs)
        cluster.store.delete([key for key in keys if not key.endswith("manifest")])

        with pytest.raises(StateDamaged, match="is gone"):
            await jobs.settle(JOB)


async def test_a_decision_that_cannot_be_read_is_damage() -> None:
    async with members("a") as (cluster, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        cluster.store.put_if_absent(jobs.store.keys.job(JOB).decision, b"\xc1")

        with pytest.raises(StateDamaged):
            await jobs.decision(JOB)


async def test_too_many_files_at_once_are_refused_to_be_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringpop_py.state.jobs.jobs.STAGING_QUEUE_MAX", 0)
    async with members("a") as (_, nodes, _keyspace):
        jobs = jobs_of(nodes[0])
        found: list[KeyspaceError] = []

        async def stage(number: int) -> None:
            try:
                await jobs.stage(head_at(jobs, "t0", number, now_ms()), a_file(ROWS))
            except KeyspaceError as error:
                found.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(stage, number)

        assert {type(error).__name__ for error in found} <= {"PartitionUnavailable"}


async def test_names_of_jobs_have_any_characters_that_can_be_printed() -> None:
    job = "../ü query/7"
    async with members("a") as (_, nodes, keyspace):
        jobs = jobs_of(nodes[0])
        await staged(jobs, "0/1/../manifest", a_file(ROWS), job=job)

        await decided(jobs, "0/1/../manifest", job=job)
        await settled(jobs, job)

        assert await contents(keyspace) == ROWS
