"""A job of which every row would be refused is not committed, and can be mended under its name."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import RowsRefused, StateDamaged
from ringpop_py.state.jobs import trial
from ringpop_py.state.jobs.trial import SLICES
from tests.client.test_jobs import ONES, contents, nodes
from tests.state.jobs.jobs_staged import (
    JOB,
    NAME,
    a_file,
    committed,
    decided,
    jobs_of,
    settled,
    staged,
)


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
async def test_a_job_of_an_unknown_operation_is_not_committed_and_takes_effect_once_mended(
    names: tuple[str, ...],
) -> None:
    async with nodes(*names) as found:
        jobs = jobs_of(found[0])
        await staged(jobs, "t0", a_file(ONES, operation="sum"))

        for _ in range(2):
            with pytest.raises(RowsRefused) as caught:
                await decided(jobs, "t0")
        undecided = await jobs.decision(JOB)
        await staged(jobs, "t1", a_file(ONES, operation="add"))
        await decided(jobs, "t1")
        await settled(jobs)

        assert "'job 1' was not committed, as all of its 100 rows were refused" in str(caught.value)
        assert "there is no aggregation 'sum', perhaps 'add' is meant; there are add," in str(
            caught.value
        )
        assert undecided is None
        assert await contents(found[0]) == ONES


async def test_one_row_that_would_take_effect_is_enough() -> None:
    async with nodes("a") as found:
        keyspace = await found[0].open_keyspace(NAME)
        rows = {f"key-{n}": 1 for n in range(8 * (sum(SLICES) + 2))}
        last = f"key-{len(rows) - 1}"
        await keyspace.update_many((key, "put", "text") for key in rows if key != last)

        await committed(jobs_of(found[0]), a_file(rows, operation="add", chunk_rows=1_000))
        await settled(jobs_of(found[0]))

        assert await keyspace.get(last) == 1


async def test_a_job_is_committed_if_an_owner_cannot_tell_and_is_then_no_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_arguments: object) -> None:
        raise StateDamaged("it is gone")

    monkeypatch.setattr(trial, "loaded_from", damaged)
    async with nodes("a") as found:
        jobs = jobs_of(found[0])

        await committed(jobs, a_file(ONES, operation="sum"))
        await settled(jobs)

        done = await jobs.settle(JOB)
        assert done.in_vain
        assert "'job 1' had no effect: all of its 100 rows" in done.refused_text(JOB)


async def test_a_job_without_rows_is_committed() -> None:
    async with nodes("a") as found:
        jobs = jobs_of(found[0])

        assert (await decided(jobs)).committed
