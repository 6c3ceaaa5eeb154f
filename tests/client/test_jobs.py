"""The synchronous client of jobs, in a thread, against real daemons on loopback."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio

from ringpop_py import Client, Config, open_ringpop
from ringpop_py.base.errors import (
    BadOperation,
    BadRequest,
    ConfigError,
    JobAborted,
    KeyspaceUnknown,
    OutcomeUnknown,
    PartitionUnavailable,
    RowsRefused,
    StateDamaged,
)
from ringpop_py.base.values.packed import encode_value
from ringpop_py.base.values.requests import encode_results
from ringpop_py.client.jobs import IN_FLIGHT_MAX, JobClient
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.state.jobs import applier
from ringpop_py.state.jobs import messages as jobs_messages
from ringpop_py.state.messages import DESCRIBE
from ringpop_py.state.rows.vectors import NumberRows
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from ringpop_py.state.table.due import at_ms_of
from tests.state.jobs.jobs_staged import JOB, NAME, PARTITIONS, a_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from ringpop_py.base.values.operations import Value
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

T = TypeVar("T")
ONES: dict[str, Value] = {f"key-{n}": 1 for n in range(100)}


async def in_thread(
    node: Ringpop, work: Callable[[JobClient], T], *, direct: bool = True, timeout_s: float = 10
) -> T:
    """What *work* does with a client of the job at *node*."""

    def run() -> T:
        with (
            Client(node.address, timeout_s=timeout_s) as client,
            JobClient(client, NAME, JOB, direct=direct, timeout_s=timeout_s) as job,
        ):
            return work(job)

    return await trio.to_thread.run_sync(run)


@asynccontextmanager
async def nodes(*names: str, mode: str = "durable") -> AsyncIterator[list[Ringpop]]:
    """Members of one cluster, all of which serve a share of the keyspace."""
    store = MemoryStore()
    found: list[Ringpop] = []
    async with AsyncExitStack() as stack:
        for name in names:
            hosts = tuple(node.address for node in found)
            node = open_ringpop(Config(name=name, hosts=hosts, store="memory:"), store=store)
            found.append(await stack.enter_async_context(node))
        keyspace = await found[0].open_keyspace(NAME, partitions=PARTITIONS, mode=mode)  # type: ignore[arg-type]
        with trio.fail_after(20):
            while set(keyspace.table.counts()) != set(names) or keyspace.table.moving:
                await trio.sleep(0.01)
        yield found


def stage(job: JobClient, attempt: str, *files: bytes) -> None:
    begun = job.attempt(attempt)
    for file in files:
        begun.stage(file)
    begun.finish()


async def contents(node: Ringpop) -> dict[str, Value]:
    keyspace = await node.open_keyspace(NAME)
    return {key: value async for key, value in keyspace.scan()}


async def test_rows_of_a_job_can_say_when_their_keys_expire() -> None:
    in_2100_ms = 4_102_444_800_000
    async with nodes("a", "b") as found:

        def work(job: JobClient) -> None:
            later, past = a_file(ONES, at_ms=in_2100_ms), a_file({"past": 1, "old": 2}, at_ms=1)
            stage(job, "t0", later, past, a_file({"never": 1}))
            with pytest.raises(BadOperation, match="it cannot be staged"):
                stage(job, "t1", a_file({"x": 1}, operation="add", at_ms=in_2100_ms))
            job.commit(["t0"])
            job.apply()

        await in_thread(found[0], work)
        with trio.fail_after(20):
            while (there := await contents(found[1])) != {**ONES, "never": 1}:
                assert there.keys() <= {*ONES, "never", "past", "old"}
                await trio.sleep(0.01)
        keyspace = await found[1].open_keyspace(NAME)
        rows = (await keyspace.get_packed(ONES, stored=True)).rows
        assert {at_ms_of(stored) for _, stored in rows} == {in_2100_ms}
        assert await keyspace.ttl("never") is None


@pytest.mark.parametrize("direct", [True, False])
async def test_a_job_is_staged_committed_and_applied(*, direct: bool) -> None:
    async with nodes("a", "b") as found:

        def work(job: JobClient) -> None:
            files = [a_file({f"f{n}-{key}": 1 for key in ONES}) for n in range(10)]
            attempt = job.attempt("t0")
            for file in files:
                attempt.stage(file)
            summary = attempt.finish()
            assert (summary.attempt, summary.files_count, summary.rows_count) == ("t0", 10, 1_000)
            assert summary.size_bytes == sum(map(len, files))
            seen: list[tuple[int, int]] = []
            assert job.decision() is None
            assert job.commit(["t0"])
            assert job.decision() is True
            done = job.apply(lambda *progress: seen.append(progress))
            assert done.rows_count == 1_000
            assert seen[-1] == (PARTITIONS, PARTITIONS)

        await in_thread(found[0], work, direct=direct)

        assert len(await contents(found[1])) == 1_000


async def test_to_commit_again_is_no_error_and_changes_nothing() -> None:
    async with nodes("a", "b") as found:

        def first(job: JobClient) -> None:
            stage(job, "t0", a_file(ONES, operation="add"))
            assert job.commit(["t0"])
            assert job.commit(["t0"])  # as after a lost answer: by the same who decided
            stage(job, "t2", a_file(ONES, operation="add"))
            assert not job.commit(["t2"])
            job.apply()

        def second(job: JobClient) -> None:
            stage(job, "t1", a_file(ONES, operation="add"))
            assert not job.commit(["t1"])
            assert not job.abort()
            job.apply()

        await in_thread(found[0], first)
        await in_thread(found[1], second)

        assert await contents(found[0]) == ONES


async def test_the_note_of_who_decided_is_kept_with_the_decision() -> None:
    async with nodes("a", "b") as found:

        def first(job: JobClient) -> None:
            stage(job, "t0", a_file(ONES))
            assert job.note() is None
            with pytest.raises(BadOperation, match="4096 bytes"):
                job.commit(["t0"], note="n" * 5_000)
            job.commit(["t0"], note={"rows": 100})

        def second(job: JobClient) -> None:
            job.commit([], note={"rows": 0})
            assert job.note() == {"rows": 100}

        await in_thread(found[0], first)
        await in_thread(found[1], second)


async def test_what_was_aborted_is_neither_committed_nor_applied() -> None:
    async with nodes("a") as found:

        def work(job: JobClient) -> None:
            stage(job, "t0", a_file(ONES))
            assert job.abort()
            assert job.abort()
            assert job.decision() is False
            with pytest.raises(JobAborted, match="'job 1' was aborted"):
                job.commit(["t0"])
            with pytest.raises(JobAborted):
                job.apply()

        await in_thread(found[0], work)

        assert await contents(found[0]) == {}


async def test_what_is_not_finished_or_named_twice_is_not_committed() -> None:
    async with nodes("a") as found:

        def work(job: JobClient) -> None:
            job.attempt("t0").stage(a_file(ONES))
            with pytest.raises(BadOperation, match="not finished"):
                job.commit(["t0"])
            with pytest.raises(BadOperation, match="each once"):
                job.commit(["t0", "t0"])
            with pytest.raises(BadOperation, match="not committed"):
                job.apply()

        await in_thread(found[0], work)


async def test_refused_rows_are_an_error_after_all_others_were_applied() -> None:
    async with nodes("a") as found:
        keyspace = await found[0].open_keyspace(NAME)
        await keyspace.put("key-1", "text")

        def work(job: JobClient) -> None:
            stage(job, "t0", a_file(ONES, operation="add"))
            job.commit(["t0"])
            with pytest.raises(RowsRefused, match="1 rows were refused: 'key-1': BadOperation"):
                job.apply()

        await in_thread(found[0], work)

        assert await contents(found[0]) == {**ONES, "key-1": "text"}


@pytest.mark.parametrize("way", ["of one number", "of maps"])
async def test_chunks_of_many_numbers_are_applied_and_refuse_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    keys = [f"key-{n}" for n in range(8 * PARTITIONS * PARTITIONS)]
    one: Value = 1 if way == "of one number" else {"n": ["add", 1]}
    two: Value = 2 if way == "of one number" else {"n": 2}
    file = a_file(
        dict.fromkeys(keys, one),
        operation="add" if way == "of one number" else "fields",
        chunk_rows=1_000,
    )
    applied_count = 0

    def applied(rows: NumberRows, before: Sequence[bytes | None]) -> list[bytes | None]:
        nonlocal applied_count
        applied_count += len(rows)
        return apply(rows, before)

    apply = NumberRows.applied
    monkeypatch.setattr(NumberRows, "applied", applied)
    monkeypatch.setattr(applier, "ROWS_MIN", PARTITIONS)
    async with nodes("a") as found:
        keyspace = await found[0].open_keyspace(NAME)
        await keyspace.put("key-1", "text")

        def work(job: JobClient) -> None:
            stage(job, "t0", file, file)
            job.commit(["t0"])
            with pytest.raises(RowsRefused, match="2 rows were refused: 'key-1': BadOperation"):
                job.apply()

        await in_thread(found[0], work)

        assert await contents(found[0]) == {**dict.fromkeys(keys, two), "key-1": "text"}
    assert applied_count > len(keys)


async def test_chunks_of_many_numbers_are_put_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applier, "ROWS_MIN", PARTITIONS)
    rows: dict[str, Value] = {f"key-{n}": n for n in range(8 * PARTITIONS * PARTITIONS)}
    async with nodes("a") as found:

        def work(job: JobClient) -> None:
            stage(job, "t0", a_file(rows, chunk_rows=1_000))
            job.commit(["t0"])
            job.apply()

        await in_thread(found[0], work)

        assert await contents(found[0]) == rows


async def test_a_keyspace_in_memory_mode_is_refused_with_what_to_do() -> None:
    async with nodes("a", mode="memory") as found:

        def work(job: JobClient) -> None:
            with pytest.raises(BadOperation, match=r"memory mode.*write with route\(\), or create"):
                job.describe()
            with pytest.raises(BadOperation, match="memory mode"):
                stage(job, "t0", a_file(ONES))

        await in_thread(found[0], work)


async def test_a_keyspace_that_is_not_there_is_unknown() -> None:
    async with nodes("a") as found:

        def work(job: JobClient) -> None:
            with pytest.raises(KeyspaceUnknown):
                job.describe()

        await found[0].keyspaces.drop(NAME)
        await in_thread(found[0], work)


async def test_a_keyspace_that_was_dropped_and_made_again_takes_nothing_of_the_job() -> None:
    async with nodes("a") as found:

        def begin(job: JobClient) -> None:
            attempt = job.attempt("t0")
            trio.from_thread.run(found[0].keyspaces.drop, NAME)
            trio.from_thread.run(make)
            attempt.stage(a_file(ONES))
            with pytest.raises(KeyspaceUnknown, match="generation 2, not 1"):
                attempt.finish()

        async def make() -> None:
            await found[0].open_keyspace(NAME, partitions=PARTITIONS)

        await in_thread(found[0], begin)


async def test_what_is_no_stage_file_is_not_sent() -> None:
    async with nodes("a") as found:

        def work(job: JobClient) -> None:
            with pytest.raises(StateDamaged):
                job.attempt("t0").stage(b"nothing")

        await in_thread(found[0], work)


async def test_a_file_that_the_store_does_not_take_at_first_is_sent_again() -> None:
    async with nodes("a", "b") as found:
        store = found[0].keyspaces.durable_host(NAME).store
        assert isinstance(store, MemoryStore)
        await trio.sleep(0.1)
        store.inject(StoreFault.LOSES_REPLY, count=3)
        store.inject(StoreFault.FAILS, count=3)

        def work(job: JobClient) -> None:
            stage(job, "t0", *[a_file(ONES, operation="add")] * 5)
            job.commit(["t0"])
            job.apply()

        await in_thread(found[0], work)

        assert await contents(found[1]) == dict.fromkeys(ONES, 5)


async def test_an_owner_that_is_silent_is_waited_for_once_and_then_avoided() -> None:
    async with nodes("a", "b") as found:
        asked_count = 0

        async def say_nothing(_: IncomingCall) -> Answer:
            nonlocal asked_count
            asked_count += 1
            await trio.sleep_forever()

        found_describe = found[0].channel.handlers.find(NODE_SERVICE, DESCRIBE)
        assert found_describe is not None
        describe = found_describe.handler
        described_count = 0

        async def describe_and_count(incoming: IncomingCall) -> Answer:
            nonlocal described_count
            described_count += 1
            return await describe(incoming)  # type: ignore[misc, no-any-return]

        found[0].channel.serve(NODE_SERVICE, DESCRIBE, describe_and_count)
        found[1].channel.serve(NODE_SERVICE, jobs_messages.STAGE, say_nothing)
        table = found[0].keyspaces.durable_host(NAME).table
        near = table.owned_by("b")[0]

        def work(job: JobClient) -> None:
            attempt = job.attempt("t0")
            for _ in range(20):
                attempt.stage(a_file(ONES, operation="add"), near=near)
            attempt.finish()
            assert described_count > 1, "it may own nothing any more"
            job.commit(["t0"])
            job.apply()

        await in_thread(found[0], work, timeout_s=0.5)

        assert asked_count == IN_FLIGHT_MAX
        assert await contents(found[0]) == dict.fromkeys(ONES, 20)


async def test_an_attempt_is_finished_again_when_nobody_knows_whether_it_was() -> None:
    async with nodes("a") as found:

        def work(job: JobClient) -> None:
            attempt = job.attempt("t0")
            attempt.stage(a_file(ONES, operation="add"))
            first = attempt.finish()
            time.sleep(0.002)  # a manifest tells the millisecond
            assert attempt.finish() == first
            job.commit(["t0"])
            job.apply()

        await in_thread(found[0], work)

        assert await contents(found[0]) == ONES


async def test_a_daemon_that_ends_in_mid_job_is_replaced_by_others() -> None:
    async with nodes("a", "b") as found, AsyncExitStack() as stack:
        hosts = (found[0].address,)
        store = found[0].keyspaces.durable_host(NAME).store
        third = await stack.enter_async_context(
            open_ringpop(Config(name="c", hosts=hosts, store="memory:"), store=store)
        )
        keyspace = await third.open_keyspace(NAME)
        with trio.fail_after(20):
            while set(keyspace.table.counts()) != {"a", "b", "c"} or keyspace.table.moving:
                await trio.sleep(0.01)

        def work(job: JobClient) -> None:
            attempt = job.attempt("t0")
            for number in range(10):
                attempt.stage(a_file(ONES, operation="add"))
                if number == 5:
                    trio.from_thread.run(stack.aclose)
            attempt.finish()
            job.commit(["t0"])
            job.apply()

        await in_thread(third, work)

        assert await contents(found[0]) == dict.fromkeys(ONES, 10)


@pytest.mark.parametrize("direct", [True, False])
async def test_the_only_owner_that_ends_is_replaced_by_one_that_owns_nothing(
    *, direct: bool
) -> None:
    async with nodes("a") as (stays,), AsyncExitStack() as stack:
        store = stays.keyspaces.durable_host(NAME).store
        config = Config(name="0", hosts=(stays.address,), store="memory:")
        ends = await stack.enter_async_context(open_ringpop(config, store=store))
        with trio.fail_after(20):
            while len(stays.ring) < 2:
                await trio.sleep(0.01)
            keyspace = await ends.open_keyspace("one", partitions=1)  # for the first by name
            while keyspace.destination(0) != "0":
                await trio.sleep(0.01)

        def work() -> None:
            peers = [] if direct else [str(stays.address)]
            with (
                Client(ends.address, timeout_s=10) as client,
                JobClient(
                    client, keyspace.name, JOB, direct=direct, timeout_s=5, peers=peers
                ) as job,
            ):
                job.describe()
                trio.from_thread.run(stack.aclose)
                assert job.decision() is None

        await trio.to_thread.run_sync(work)


async def test_a_commit_that_may_have_got_through_is_not_said_to_be_of_no_keyspace() -> None:
    async with nodes("a") as found:
        found_decide = found[0].channel.handlers.find(NODE_SERVICE, jobs_messages.DECIDE)
        assert found_decide is not None
        decide = found_decide.handler
        answers_count = 0

        async def lose_the_first(incoming: IncomingCall) -> Answer:
            nonlocal answers_count
            answers_count += 1
            if answers_count > 1:
                return Answer(ok=True, arg3=encode_results([KeyspaceUnknown("no such keyspace")]))
            await decide(incoming)  # type: ignore[misc]
            message = "the answer is lost"
            raise RuntimeError(message)

        found[0].channel.serve(NODE_SERVICE, jobs_messages.DECIDE, lose_the_first)

        def work(job: JobClient) -> None:
            stage(job, "t0", a_file(ONES))
            with pytest.raises(OutcomeUnknown, match="may have taken effect: no such keyspace"):
                job.commit(["t0"])
            assert job.decision() is True

        await in_thread(found[0], work)


async def test_where_nobody_answers_that_is_said_in_time() -> None:
    async with nodes("a") as found:
        address = found[0].address
    with (
        Client(address) as client,
        JobClient(client, NAME, JOB, timeout_s=0.2) as job,
        pytest.raises(PartitionUnavailable),
    ):
        job.describe()


def test_names_and_limits_are_checked_at_once() -> None:
    with Client("127.0.0.1:1") as client:
        with pytest.raises(BadOperation, match="name of a job"):
            JobClient(client, NAME, "")
        with pytest.raises(BadOperation, match="100 printable characters, at most 200 when perc"):
            JobClient(client, NAME, "ü" * 34)
        with pytest.raises(ConfigError, match="timeout_s"):
            JobClient(client, NAME, JOB, timeout_s=0)
        with pytest.raises(ConfigError, match="in_flight_max"):
            JobClient(client, NAME, JOB, in_flight_max=0)


async def test_bodies_that_make_no_sense_are_refused() -> None:
    endpoints = (
        *(jobs_messages.STAGE, jobs_messages.FINISH, jobs_messages.DECIDE),
        *(jobs_messages.STATUS, jobs_messages.SETTLE, jobs_messages.APPLY_JOB),
        jobs_messages.TRY_JOB,
    )
    packed = (encode_value("msgpack", each) for each in (["k", 1], ["k", 1, "", [], [], []]))
    bodies = (b"", b"\xc1", *packed)
    async with nodes("a") as found:

        def work() -> None:
            with Client(found[0].address) as client:
                for endpoint, body in product(endpoints, bodies):
                    with pytest.raises(BadRequest):
                        client.call(Call(NODE_SERVICE, endpoint, body, body, ttl_s=5))

        await trio.to_thread.run_sync(work)
