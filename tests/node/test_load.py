"""The load that an application tells the cluster."""

from __future__ import annotations

import math

import pytest
import trio

from ringpop_py.base.errors import ConfigError
from ringpop_py.node.labels import LoadReport
from tests.state.keyspaces.clusters import a_cluster

pytestmark = pytest.mark.virtual_time


async def test_others_see_the_load() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")

        a.set_load(0.375)
        await b.wait_until(lambda b: b.members[0].load == 0.38)

        assert b.members[1].load is None


async def test_the_load_leaves_other_labels_and_draining_alone() -> None:
    async with a_cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        a.drain()

        a.set_load(1)

        await b.wait_until(lambda b: b.members[0].load == 1 and b.members[0].draining)


async def test_the_load_is_told_once_in_ten_seconds_and_the_last_one_in_the_end() -> None:
    told: list[tuple[float, str]] = []
    report = LoadReport(lambda text: told.append((trio.current_time() - began_at, text)))
    began_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report.run)
        for number in range(100):
            report.set(number / 100)
            await trio.sleep(0.15)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()

    assert [text for _, text in told] == ["0.00", "0.66", "0.99"]
    assert [round(at) for at, _ in told] == [0, 10, 20]


async def test_a_load_that_rounds_to_the_same_is_not_told_again() -> None:
    told: list[str] = []
    report = LoadReport(told.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report.run)
        for load in (0.5, 0.504, 0.496):
            report.set(load)
            await trio.sleep(30)
        nursery.cancel_scope.cancel()

    assert told == ["0.50"]


@pytest.mark.parametrize("load", [-0.01, 1.01, math.nan, math.inf, "0.5", None])
async def test_a_load_out_of_range_is_refused(load: float) -> None:
    report = LoadReport(lambda _text: None)

    with pytest.raises(ConfigError, match="from 0 \\(idle\\) to 1"):
        report.set(load)
