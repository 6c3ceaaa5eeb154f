"""Jobs while members come and go and the store fails, in virtual time: totals stay right."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.errors import PartitionUnavailable, StoreUnavailable
from ringpop_py.state.jobs import applier as jobs_applying
from ringpop_py.state.jobs import record as jobs_recorded
from ringpop_py.state.jobs.jobs import SWEEP_S
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from tests.state.jobs.jobs_staged import (
    NAME,
    PARTITIONS,
    a_file,
    committed,
    decided,
    jobs_of,
    settled,
    staged,
)
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.jobs.jobs import Jobs
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time

JOBS_COUNT = 4
ONES: dict[str, Value] = {f"key-{n}": 1 for n in range(60)}


async def until_done(step: Callable[[], Awaitable[object]]) -> None:
    """As a client does: again, with the same names."""
    while True:
        try:
            await step()
        except (PartitionUnavailable, StoreUnavailable):
            await trio.sleep(0.2)
        else:
            return


async def run_job(jobs: Jobs, job: str, rng: random.Random, done: list[str]) -> None:
    """Stage two attempts, of which one counts; some drivers are gone after the decision."""
    files = [a_file(ONES, operation="add", chunk_rows=rng.randint(1, 4)) for _ in range(3)]
    for attempt in ("t0", "loser"):
        number = 0

        async def stage(attempt: str = attempt) -> None:
            nonlocal number
            number += 1  # a task that failed is another attempt
            await staged(jobs, f"{attempt}/{number}", *files, job=job)
            await trio.sleep(rng.random())

        await until_done(stage)
        if attempt == "t0":
            winner = f"t0/{number}"
    await until_done(lambda: decided(jobs, winner, job=job, by=job))
    if rng.random() < 0.7:
        await settled(jobs, job)
    done.append(job)


async def inject_faults(cluster: Cluster, rng: random.Random) -> None:
    for _ in range(5):
        verb = rng.choice(["put_if_absent", "get", "list", "delete"])
        faults = [StoreFault.FAILS, StoreFault.LOSES_REPLY]
        faults += [StoreFault.LATE, StoreFault.FULL] if verb == "put_if_absent" else []
        cluster.store.inject(rng.choice(faults), verb=verb, count=rng.randint(1, 5))
        await trio.sleep(rng.random())
        cluster.store.land_late()
    cluster.store.heal()  # no node starts without its store


async def make_trouble(cluster: Cluster, rng: random.Random) -> None:
    """Faults of the store, and members that come and go."""
    await inject_faults(cluster, rng)
    await cluster.start("c")
    await inject_faults(cluster, rng)
    await cluster.stop("c")
    await inject_faults(cluster, rng)
    await cluster.start("d")


@pytest.mark.parametrize("seed", range(4))
async def test_no_trouble_loses_or_doubles_a_row(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_recorded, "DRIVER_US", -1)
    monkeypatch.setattr(jobs_applying, "GROUP_BYTES_MAX", 600)
    rng = random.Random(seed)
    store = MemoryStore()
    store.quick = seed % 2 == 0
    async with a_cluster(store) as cluster:
        nodes = [await cluster.start("a"), await cluster.start("b")]
        keyspace = await nodes[0].open_keyspace(NAME, partitions=PARTITIONS)
        await all_online(keyspace, "a", "b")
        done: list[str] = []
        for number in range(JOBS_COUNT):
            jobs = jobs_of(nodes[number % 2])
            jobs._spawn(run_job, jobs, f"job {number}", random.Random(rng.random()), done)

        await make_trouble(cluster, rng)
        with trio.fail_after(600):
            while len(done) < JOBS_COUNT:
                await trio.sleep(1)
        cluster.store.heal()
        await trio.sleep(3 * SWEEP_S)

        found = {key: value async for key, value in keyspace.scan()}
        assert found == dict.fromkeys(ONES, 3 * JOBS_COUNT)
        assert cluster.store.list(jobs.store.keys.staged_jobs) == []


async def test_a_node_that_loads_files_slowly_gets_on_nonetheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = jobs_applying._Run._load

    async def slow(*args: Any) -> Any:  # noqa: ANN401 - as load has them
        await trio.sleep(1)
        return await load(*args)

    monkeypatch.setattr(jobs_applying._Run, "_load", slow)
    monkeypatch.setattr(jobs_applying, "WINDOW_FIRST_BYTES", 1)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace(NAME, partitions=PARTITIONS)
        await all_online(keyspace, "a")
        jobs = jobs_of(node)
        files = [a_file({f"key-{n}": 1}) for n in range(50)]  # together they take too long
        await committed(jobs, *files)

        with trio.fail_after(300):
            await settled(jobs)

        assert len([row async for row in keyspace.scan()]) == len(files)
