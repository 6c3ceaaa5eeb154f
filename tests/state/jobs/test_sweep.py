"""Jobs whose drivers are gone, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import StateDamaged
from ringpop_py.state.jobs import record as jobs_recorded
from ringpop_py.state.jobs.jobs import SWEEP_S
from ringpop_py.state.jobs.messages import Decision
from ringpop_py.state.jobs.record import DAY_US, REMEMBERED_DAYS
from ringpop_py.state.stores.memory import StoreFault
from ringpop_py.state.table.sessions import SOURCES_MAX, Sessions
from tests.state.jobs.jobs_staged import (
    DRIVER,
    JOB,
    NAME,
    PARTITIONS,
    a_file,
    committed,
    decided,
    jobs_of,
    now_ms,
    settled,
    staged,
)
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.jobs.jobs import Jobs
    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time

ONES: dict[str, Value] = {f"key-{n}": 1 for n in range(100)}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers have no time of their own: what is kept goes by the clock on the wall."""
    monkeypatch.setattr(jobs_recorded, "DRIVER_US", -1)


async def a_keyspace(cluster: Cluster, *names: str) -> tuple[Keyspace, Jobs]:
    nodes = [await cluster.start(name) for name in names]
    keyspace = await nodes[0].open_keyspace(NAME, partitions=PARTITIONS)
    await all_online(keyspace, *names)
    return keyspace, jobs_of(nodes[0])


def take_second_file(cluster: Cluster, jobs: Jobs) -> tuple[str, bytes]:
    """The second file of an attempt is gone: its key, and what it was."""
    staged_keys = cluster.store.list(jobs.store.keys.job(JOB).staged)
    (second,) = [key for key in staged_keys if "/000001-" in key]
    file = cluster.store.get(second) or b""
    cluster.store.delete([second])
    return second, file


async def contents(keyspace: Keyspace) -> dict[str, Value]:
    return {key: value async for key, value in keyspace.scan()}


@pytest.mark.usefixtures("impatient")
async def test_a_committed_job_is_applied_without_its_driver() -> None:
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a", "b")
        await committed(jobs, a_file(ONES, operation="add"))

        await trio.sleep(2 * SWEEP_S)

        assert await contents(keyspace) == ONES
        assert jobs.store.applied(JOB) is not None
        assert cluster.store.list(jobs.store.keys.staged_jobs) == []


@pytest.mark.usefixtures("impatient")
async def test_when_the_sweeping_node_is_gone_another_sweeps() -> None:
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a", "b")
        await cluster.stop("b")
        await all_online(keyspace, "a")
        await committed(jobs, a_file(ONES))

        await trio.sleep(2 * SWEEP_S)

        assert await contents(keyspace) == ONES


@pytest.mark.usefixtures("impatient")
async def test_a_member_without_the_store_has_another_sweep() -> None:
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a")
        for name in "bcd":
            await cluster.start(name, has_store=False)
        await trio.sleep(5)
        assert jobs.node.placement.holders.lookup(f"keyspace/{NAME}/jobs") != "a"
        await committed(jobs, a_file(ONES))

        await trio.sleep(2 * SWEEP_S)

        assert await contents(keyspace) == ONES


@pytest.mark.usefixtures("impatient")
async def test_a_store_that_fails_is_swept_the_next_time() -> None:
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a")
        await committed(jobs, a_file(ONES))
        cluster.store.inject(StoreFault.FAILS, verb="list")

        await trio.sleep(2.5 * SWEEP_S)

        assert await contents(keyspace) == ONES


@pytest.mark.usefixtures("impatient")
async def test_one_job_that_is_damaged_keeps_no_other_from_being_applied() -> None:
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a")
        cluster.store.put_if_absent(jobs.store.keys.job("a damaged one").decision, b"\xc1")
        await staged(jobs, "t0", a_file({"lost": 1}), job="a damaged one")
        await committed(jobs, a_file(ONES))

        await jobs.sweep()

        assert await contents(keyspace) == ONES


async def test_of_a_job_that_is_forgotten_no_partition_is_known_as_done() -> None:
    async with a_cluster() as cluster:
        _keyspace, jobs = await a_keyspace(cluster, "a")
        old_us = now_ms() * 1_000 - (REMEMBERED_DAYS + 2) * DAY_US
        jobs.store.decide(JOB, Decision((), DRIVER, old_us))
        keys = jobs.store.keys.job(JOB)
        # By a node that died before it had deleted these, too.
        jobs.store.mark(keys.done_by, [0, 3])

        jobs.store.retire(old_us // DAY_US, jobs.store.staged())

        assert await jobs.decision(JOB) is None
        assert jobs.store.marked(keys.done) == set()


async def test_of_a_job_that_takes_long_it_is_kept_which_partitions_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringpop_py.state.jobs.applier.LONG_US", -1)
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a")
        await committed(jobs, a_file({"key-1": 1}), a_file({"key-2": 1, "key-3": 1}))
        second, file = take_second_file(cluster, jobs)
        monkeypatch.setattr("ringpop_py.state.jobs.applier.WINDOW_FIRST_BYTES", 1)

        with pytest.raises(StateDamaged, match="is gone"):
            await jobs.settle(JOB)
        marked = jobs.store.marked(jobs.store.keys.job(JOB).done)
        cluster.store.put_if_absent(second, file)
        await settled(jobs)

        assert marked == {keyspace.partition_of("key-1")}
        assert await contents(keyspace) == {"key-1": 1, "key-2": 1, "key-3": 1}


async def test_a_job_that_is_stuck_is_not_begun_again_once_it_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringpop_py.state.jobs.applier.WINDOW_FIRST_BYTES", 1)
    monkeypatch.setattr(Sessions.__init__, "__defaults__", (SOURCES_MAX, 3))
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a")
        await committed(jobs, *[a_file({"x": 1}, operation="add")] * 2)
        take_second_file(cluster, jobs)
        with pytest.raises(StateDamaged, match="is gone"):
            await jobs.settle(JOB)
        for number in range(4):
            later = f"later {number}"
            await staged(jobs, "t0", a_file({"x": 0}, operation="add"), job=later)
            await decided(jobs, "t0", job=later, by=later)
            await settled(jobs, later)
        monkeypatch.setattr("ringpop_py.state.jobs.applier.LONG_US", -1)

        for _ in range(2):
            with pytest.raises(StateDamaged, match=f"has a part of job '{JOB}', and no longer"):
                await jobs.settle(JOB)

        assert await contents(keyspace) == {"x": 1}


async def test_a_long_job_goes_on_where_it_has_begun_and_leaves_no_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringpop_py.state.jobs.applier.LONG_US", -1)
    monkeypatch.setattr("ringpop_py.state.jobs.applier.WINDOW_FIRST_BYTES", 1)
    async with a_cluster() as cluster:
        keyspace, jobs = await a_keyspace(cluster, "a")
        await committed(jobs, *[a_file({"x": 1}, operation="add")] * 2)
        second, file = take_second_file(cluster, jobs)
        with pytest.raises(StateDamaged, match="is gone"):
            await jobs.settle(JOB)
        marked = jobs.store.marked(jobs.store.keys.job(JOB).begun)

        cluster.store.put_if_absent(second, file)
        await settled(jobs)
        await trio.sleep(1)

        assert await contents(keyspace) == {"x": 2}
        assert (marked, jobs.store.marked(jobs.store.keys.job(JOB).done)) == (
            {keyspace.partition_of("x")},
            set(),
        )
        assert cluster.store.list(jobs.store.keys.job(JOB).done) == []
