"""Schedules in a cluster, in virtual time: who runs which tick, and what becomes of failures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import ConfigError
from ringpop_py.base.errors import StaleTerm
from ringpop_py.state.stores.memory import StoreFault
from ringpop_py.state.ticks.ticks import Tick, all_schedules
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from tests.state.keyspaces.clusters import Cluster

pytestmark = pytest.mark.virtual_time
NAME = "rollup"
BASE_S = 1_800_000_000  # of Unix time, and a whole number of days


def wall_s() -> float:
    return BASE_S + trio.current_time()


class Runs:
    """The ticks that were begun, by which node, and those that went to their end."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.done: list[int] = []
        self.begun_at: list[float] = []
        self.lasts_s = 0.0
        self.fails = 0

    def on(self, node: Ringpop, interval: str | None = "60s", **how: Any) -> None:  # noqa: ANN401
        @node.every(interval, name=NAME, **how)
        async def rollup(tick: Tick) -> None:
            assert (tick.name, tick.due) == (NAME, tick.number)
            self.begun.append((node.name, tick.number - BASE_S, tick.attempt))
            self.begun_at.append(trio.current_time())
            if self.fails:
                self.fails -= 1
                raise ValueError("mine")
            await trio.sleep(self.lasts_s)
            self.done.append(tick.number - BASE_S)

    async def wait_for(self, count: int, what: str = "done") -> list[Any]:
        found: list[Any] = getattr(self, what)
        with trio.fail_after(3_000):
            while len(found) < count:
                await trio.sleep(0.1)
        return found


async def started(cluster: Cluster, *names: str) -> list[Ringpop]:
    nodes = [await cluster.start(name) for name in names]
    for node in nodes:
        node.reporter.clocks.wall_s = wall_s
        node.reporter.clocks.told = lambda *_: None  # type: ignore[method-assign] # in true time
        node.reporter.clocks._ahead_ms.clear()
    return nodes


async def test_each_tick_runs_once_in_the_cluster() -> None:
    async with a_cluster() as cluster:
        runs = Runs()
        for node in await started(cluster, *"abc"):
            runs.on(node)

        await runs.wait_for(8)

        assert runs.done[:8] == [60 * n for n in range(1, 9)]
        assert [attempt for _, _, attempt in runs.begun] == [1] * len(runs.begun)
        late = [at - due for at, (_, due, _) in zip(runs.begun_at, runs.begun, strict=True)]
        assert max(late) < 1


async def test_a_tick_of_a_node_that_is_gone_is_run_again_and_its_writes_are_refused() -> None:
    async with a_cluster() as cluster:
        nodes = {node.name: node for node in await started(cluster, *"abc")}
        keyspace = await nodes["a"].open_keyspace("k", partitions=4)
        ticks: list[tuple[str, Tick]] = []
        for name, node in nodes.items():

            @node.every("60s", name=NAME)
            async def rollup(tick: Tick, name: str = name) -> None:
                ticks.append((name, tick))
                if tick.attempt == 1:
                    with trio.CancelScope(shield=True):  # it cannot be stopped
                        await trio.sleep(100)
                await keyspace.update("x", "add", 1, fence=tick.fence, operation_id=tick.id("x"))

        while not ticks:
            await trio.sleep(0.1)
        began = trio.current_time()
        cluster.isolate(ticks[0][0])
        while len(ticks) < 2:
            await trio.sleep(0.1)

        (first, dead), (second, again) = ticks[:2]
        assert trio.current_time() - began < 10
        assert first != second
        assert (again.number, again.attempt) == (dead.number, 2)
        assert again.fence.term == dead.fence.term + 1
        while await keyspace.get("x") is None:
            await trio.sleep(0.1)
        with pytest.raises(StaleTerm):
            await keyspace.update("x", "add", 7, fence=dead.fence)


async def test_a_tick_that_outlives_its_beat_stays_its_nodes() -> None:
    async with a_cluster() as cluster:
        runs = Runs()
        runs.lasts_s = 45
        for node in await started(cluster, *"ab"):
            runs.on(node)

        await runs.wait_for(5)

        assert runs.done == [60, 120, 180, 240, 300]
        assert len(runs.begun) == 5


async def test_a_tick_whose_beats_do_not_arrive_is_cancelled() -> None:
    async with a_cluster() as cluster:
        (node,) = await started(cluster, "a")
        runs = Runs()
        runs.lasts_s = 50
        runs.on(node)
        await runs.wait_for(1, "begun")
        cluster.store.inject(StoreFault.FAILS, count=40)

        await runs.wait_for(1)

        assert runs.begun[:2] == [("a", 60, 1), ("a", 60, 2)]
        assert runs.begun_at[1] - runs.begun_at[0] < 50


async def test_a_failure_is_retried_after_pauses_that_grow() -> None:
    async with a_cluster() as cluster:
        (node,) = await started(cluster, "a")
        runs = Runs()
        runs.fails = 4
        runs.on(node)

        await runs.wait_for(2)

        assert [attempt for _, due, attempt in runs.begun if due == 60] == [1, 2, 3, 4, 5]
        pauses = [after - at for at, after in zip(runs.begun_at, runs.begun_at[1:5], strict=False)]
        assert [round(pause) for pause in pauses] == [1, 2, 4, 8]
        schedule = node.schedules[NAME]
        assert (schedule.failed_count, schedule.ended_count) == (4, 2)


async def test_a_failure_is_skipped_if_it_is_wanted_so() -> None:
    async with a_cluster() as cluster:
        (node,) = await started(cluster, "a")
        runs = Runs()
        runs.fails = 2
        runs.on(node, on_failure="skip")

        await runs.wait_for(1)

        assert [due for _, due, _ in runs.begun] == [60, 120, 180]


@pytest.mark.parametrize(
    ("catch_up", "expected"), [("last", [60, 1200]), ("all", [60, *range(120, 1201, 60)])]
)
async def test_what_was_missed_is_caught_up(catch_up: str, expected: list[int]) -> None:
    async with a_cluster() as cluster:
        runs = Runs()
        await cluster.start("s")
        (node,) = await started(cluster, "a")
        runs.on(node, catch_up=catch_up)
        await runs.wait_for(1)
        await cluster.stop("a")
        await trio.sleep(1_140 - trio.current_time() + 70)

        (node,) = await started(cluster, "a")
        runs.on(node, catch_up=catch_up)
        await runs.wait_for(len(expected))

        assert runs.done[: len(expected)] == expected


async def test_a_node_that_ends_finishes_its_tick_and_begins_no_other() -> None:
    async with a_cluster() as cluster:
        await started(cluster, "s")
        (node,) = await started(cluster, "a")
        runs = Runs()
        runs.lasts_s = 20
        runs.on(node)
        await runs.wait_for(1, "begun")

        await cluster.stop("a")

        assert runs.done == [60]
        await trio.sleep(120)
        assert len(runs.begun) == 1


async def test_a_clock_that_jumps_brings_no_tick_forward_and_loses_none() -> None:
    async with a_cluster() as cluster:
        nodes = await started(cluster, *"abc")
        runs = Runs()
        for node in nodes:
            runs.on(node, catch_up="all")
        await runs.wait_for(2)
        for node in nodes:
            node.reporter.clocks._ahead_ms |= dict.fromkeys("xy", BASE_S * 1_000)
        nodes[0].reporter.clocks.wall_s = lambda: wall_s() + 3_600
        nodes[1].reporter.clocks.wall_s = lambda: wall_s() - 3_600

        await runs.wait_for(12)

        assert runs.done[:12] == [60 * n for n in range(1, 13)]
        assert Counter(runs.done).most_common(1)[0][1] == 1
        late = [at - due for at, (_, due, _) in zip(runs.begun_at, runs.begun, strict=True)]
        assert min(late) >= 0


async def test_the_plan_of_the_node_that_started_last_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_cluster() as cluster:
        a, b = await started(cluster, *"ab")
        runs = Runs()
        runs.on(a, "10m")
        await trio.sleep(30)
        runs.on(b, "60s")

        await runs.wait_for(12)

        assert {name for name, _, _ in runs.begun} == {"b"}
        assert runs.done[:12] == [60 * n for n in range(1, 13)]
        assert "since another process has started" in caplog.text
        (shown,) = await all_schedules(a, wall_s())
        assert (shown.name, shown.plan, shown.tz, shown.attempt) == (NAME, "60s", "UTC", 0)
        assert shown.due == shown.number + 60


async def test_what_does_not_end_is_told() -> None:
    async with a_cluster() as cluster:
        (node,) = await started(cluster, "a")
        runs = Runs()
        runs.on(node)
        await runs.wait_for(1)
        schedule = node.schedules[NAME]
        assert (schedule.trouble(), schedule.overdue_s()) == ("", 0)
        runs.lasts_s = 1_000

        await trio.sleep(200)

        assert schedule.trouble() == (
            "schedule rollup: the tick that was due at 2027-01-15 08:02:00 UTC has not ended"
        )
        assert 100 < schedule.overdue_s() < 200


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"interval": "5x"}, "a whole number and s, m, h or d"),
        ({"interval": "0s"}, "from 1s to 366d"),
        ({"interval": "-5m"}, "from 1s to 366d"),
        ({"interval": 5}, "is text, not int"),
        ({}, "an interval or cron"),
        ({"interval": "5m", "cron": "* * * * *"}, "an interval or cron"),
        ({"interval": "5m", "tz": "UTC"}, "tz goes with cron"),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, "a time zone that this machine knows"),
        ({"cron": "* * * * *", "tz": "../etc"}, "a time zone that this machine knows"),
        ({"cron": "0 0 30 2 *"}, "never fires"),
        ({"cron": "0 0 31 4,6 *"}, "never fires"),
        ({"cron": "0 0 1"}, "five fields"),
        ({"cron": "0 0 0 1 1 1"}, "five fields"),
        ({"cron": "0 25 * * *"}, "cannot be read: Bad hour"),
        ({"cron": "0 0 32 * *"}, "cannot be read: Bad day-of-month"),
        ({"interval": "5m", "name": ""}, "the name of a schedule is"),
        ({"interval": "5m", "catch_up": "none"}, "catch_up is 'last' or 'all'"),
        ({"interval": "5m", "on_failure": "ignore"}, "on_failure is 'retry' or 'skip'"),
    ],
)
async def test_wrong_arguments_are_refused(wrong: dict[str, Any], says: str) -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        with pytest.raises(ConfigError, match=says):
            node.every(**{"name": NAME, **wrong})


async def test_a_wrong_handler_and_a_second_one_are_refused() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        with pytest.raises(ConfigError, match="coroutine function"):
            node.every("5m", name=NAME)(lambda _tick: None)  # type: ignore[type-var]
        Runs().on(node)
        with pytest.raises(ConfigError, match="already"):
            Runs().on(node)


async def test_without_a_store_it_is_refused() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a", has_store=False)
        with pytest.raises(ConfigError, match="no store"):
            node.every("5m", name=NAME)
