"""What is told of a job afterwards, at a real node and without a session of Spark."""

from __future__ import annotations

from functools import partial

import pytest
import trio

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py import Client, Config, open_ringpop
from ringpop_py.base.errors import BadOperation, JobAborted
from ringpop_py.client.jobs import JobClient
from ringpop_py.spark import write_report
from ringpop_py.state.stores.memory import MemoryStore


def abort(peer: str, job: str) -> None:
    with Client(peer) as client, JobClient(client, "k", job) as aborting:
        assert aborting.abort()


async def test_a_job_that_was_aborted_is_told_by_its_own_name() -> None:
    async with open_ringpop(Config(name="a", store="memory:"), store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        peer = str(node.address)
        report = partial(write_report, "k", "monday", peers=peer)

        with pytest.raises(BadOperation, match="job 'monday' of keyspace 'k' was not committed"):
            await trio.to_thread.run_sync(report)
        await trio.to_thread.run_sync(abort, peer, "monday")
        with pytest.raises(JobAborted, match="job 'monday' was aborted"):
            await trio.to_thread.run_sync(report)


async def test_a_successor_tells_what_came_of_a_job_that_was_given_up() -> None:
    def commit(peer: str) -> None:
        with Client(peer) as client, JobClient(client, "k", "monday~1") as successor:
            assert successor.commit([], note={"rows": 3})

    async with open_ringpop(Config(name="a", store="memory:"), store=MemoryStore()) as node:
        await node.open_keyspace("k", partitions=4)
        peer = str(node.address)
        await trio.to_thread.run_sync(abort, peer, "monday")
        await trio.to_thread.run_sync(commit, peer)

        report = await trio.to_thread.run_sync(partial(write_report, "k", "monday", peers=peer))

    assert (report.job, report.rows, report.applied) == ("monday~1", 3, True)
