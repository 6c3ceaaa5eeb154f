"""A pipeline's jobs in the cluster, at a real node and without a session of Spark."""

from __future__ import annotations

import pytest
import trio

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ringpop_py import Client, Config, open_ringpop
from ringpop_py.base.errors import RowsRefused
from ringpop_py.client.jobs import JobClient
from ringpop_py.spark.options import Target, write_options
from ringpop_py.spark.pipeline.run import fresh_job, was_committed
from ringpop_py.state.jobs import server
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.jobs.jobs_staged import JOB, NAME, PARTITIONS, a_file


async def test_a_job_whose_rows_were_refused_is_done_whoever_repeats_it() -> None:
    said: list[str] = []

    def write(peer: str) -> bool:
        with Client(peer) as client, JobClient(client, NAME, JOB) as job:
            attempt = job.attempt("t0")
            attempt.stage(a_file({"a": 1, "b": 1}, operation="add"))
            attempt.finish()
            job.commit(["t0"])
            with pytest.raises(RowsRefused):
                job.apply()
        return was_committed(Target(NAME, (peer,)), JOB, said.append)

    async with open_ringpop(Config(name="a", store="memory:"), store=MemoryStore()) as node:
        keyspace = await node.open_keyspace(NAME, partitions=PARTITIONS)
        await keyspace.put("a", "text")
        done = await trio.to_thread.run_sync(write, str(node.address))

    assert done
    assert len(said) == 1
    assert "1 rows were refused: 'a': BadOperation" in said[0]


async def test_a_job_of_which_every_row_was_refused_is_never_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "TRIAL_S", 0.0)

    def write(peer: str) -> None:
        with Client(peer) as client, JobClient(client, NAME, JOB) as job:
            attempt = job.attempt("t0")
            attempt.stage(a_file({"a": 1, "b": 1}, operation="sum"))
            attempt.finish()
            job.commit(["t0"])
        for _ in range(2):
            with pytest.raises(
                RowsRefused, match=r"had no effect: all of its 2 rows .* another job"
            ):
                was_committed(Target(NAME, (peer,)), JOB, pytest.fail)

    async with open_ringpop(Config(name="a", store="memory:"), store=MemoryStore()) as node:
        await node.open_keyspace(NAME, partitions=PARTITIONS)
        await trio.to_thread.run_sync(write, str(node.address))


async def test_a_job_that_nobody_has_committed_is_still_to_be_done() -> None:
    async with open_ringpop(Config(name="a", store="memory:"), store=MemoryStore()) as node:
        await node.open_keyspace(NAME, partitions=PARTITIONS)
        target = Target(NAME, (str(node.address),))

        assert not await trio.to_thread.run_sync(was_committed, target, JOB, pytest.fail)


@pytest.mark.parametrize(
    "name", ["", "flights", "f" * 300, "Übersee-Flüge, täglich " * 5, "航班" * 40, "a\nb\udcff"]
)
def test_a_job_that_nobody_named_has_a_name_that_fits(name: str) -> None:
    job = fresh_job(name)

    assert write_options({"keyspace": "k", "job": job}).job == job
    assert name[:1] in job
    assert fresh_job(name) != job
