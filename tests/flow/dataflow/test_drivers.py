"""Parts of dataflows in trouble: sinks that fail for long, splits that cannot be read, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.flow.dataflow import checkpoints, dataflow
from ringpop_py.state.stores.memory import StoreFault
from tests.flow.dataflow.benches import (
    EVERY_S,
    Results,
    Rows,
    a_flow,
    passed_on,
    until,
    without_threads,
)
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.dataflow import Context, Row

pytestmark = pytest.mark.virtual_time


@pytest.fixture(autouse=True)
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


KEYS = [f"k{number}" for number in range(12)]


@pytest.mark.parametrize("is_half", [False, True], ids=["refuses", "takes, and says no"])
async def test_no_epoch_ends_while_a_sink_lacks_the_results_before(
    is_half: bool,  # noqa: FBT001
) -> None:
    source, sink = Rows("one"), Results(refusing=True)
    sink.is_half = is_half
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink)
        source.add("one", *KEYS)
        await until(lambda: sink.asked)
        epoch = flow.status()["epoch"]
        for _ in range(10):
            source.add("one", *KEYS)
            await trio.sleep(EVERY_S)

        assert flow.status()["epoch"] == epoch
        assert flow.status()["trouble"] == "sink: SinkFailed: not now"
        assert set(sink.asked) == {sink.asked[0]}
        assert len(sink.asked) < 15  # not as fast as it refuses

        sink.refusing = False
        await until(lambda: len(sink.rows) == 11 * len(KEYS))
        await until(lambda: flow.status()["epoch"] > epoch + 2)
        assert sorted(sink.rows) == sorted((key, at + 1) for key in KEYS for at in range(11))
        assert flow.status()["trouble"] == ""


async def test_each_worker_brings_its_own_results_and_each_is_brought_once() -> None:
    source, sink = Rows("one", "two"), Results()
    async with a_cluster() as cluster:
        flows = [a_flow(await cluster.start(name), source, sink) for name in "ab"]
        await until(lambda: flows[0].status()["workers"] == flows[1].status()["workers"] == [*"ab"])
        for _ in range(5):
            source.add("one", *KEYS)
            await trio.sleep(2 * EVERY_S)
        await until(lambda: len(sink.rows) == 5 * len(KEYS))

    assert len(sink.asked) == len(set(sink.asked))
    numbers = {each.rpartition("-")[2] for each in sink.asked}
    assert numbers == {"0000", "0001"}


async def test_the_results_of_a_worker_that_is_gone_are_brought_by_those_that_are_left() -> None:
    source, sinks = Rows("one", "two"), {name: Results(refusing=True) for name in "abc"}
    async with a_cluster() as cluster:
        flows = {
            name: a_flow(await cluster.start(name), source, sink) for name, sink in sinks.items()
        }
        await until(lambda: all(flow.status()["workers"] == [*"abc"] for flow in flows.values()))
        source.add("one", *KEYS)
        await until(lambda: all(sink.asked for sink in sinks.values()))
        cluster.isolate("c")
        cluster.hang("c")
        await until(lambda: flows["a"].status()["workers"] == ["a", "b"])
        for name in "ab":
            sinks[name].refusing = False

        await until(lambda: len(sinks["a"].rows + sinks["b"].rows) == len(KEYS))
        assert sorted(sinks["a"].rows + sinks["b"].rows) == sorted((key, 1) for key in KEYS)
        assert len(sinks["a"].taken) == 2  # its own, and those of the third


async def test_a_state_that_has_gone_on_is_not_that_of_the_epoch_from_which_a_run_begins() -> None:
    """Otherwise records behind that epoch would count twice."""
    source, sink = Rows("one"), Results()
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink, every_s=3_600.0)
        await until(lambda: flow.status()["epoch"] is not None)
        source.add("one", *KEYS)
        await until(lambda: flow.status()["rows"] == len(KEYS))
        assert sink.asked == []

        other = a_flow(await cluster.start("b"), source, sink, every_s=3_600.0)
        await until(lambda: other.status()["workers"] == ["a", "b"])
        await until(lambda: len(sink.rows) == len(KEYS))
        source.add("one", *KEYS)
        await trio.sleep(5)
        cluster.isolate("b")
        cluster.hang("b")
        await until(lambda: flow.status()["workers"] == ["a"])
        await trio.sleep(5)
        state = flow.state()

    assert state == dict.fromkeys(KEYS, 2)


async def test_a_split_that_cannot_be_read_is_shown_until_it_can_or_is_gone() -> None:
    source, sink = Rows("one", "two"), Results()
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink)
        source.failing = {"one"}
        source.add("two", *KEYS)
        await until(lambda: len(sink.rows) == len(KEYS))  # the other one goes on
        assert flow.status()["trouble"] == "one: one cannot be read"
        source.failing = set()
        await until(lambda: flow.status()["trouble"] == "")

        source.failing = {"one"}
        await until(lambda: flow.status()["trouble"])
        del source.splits_now["one"]
        await until(lambda: flow.status()["trouble"] == "")

        source.failing = {""}
        text = "source: the splits cannot be listed: nobody answers"
        await until(lambda: flow.status()["trouble"] == text)
        source.add("two", *KEYS)
        await until(lambda: len(sink.rows) == 2 * len(KEYS))  # those that are known go on
        source.failing = set()
        await until(lambda: flow.status()["trouble"] == "")


@pytest.mark.parametrize("is_quiet", [False, True], ids=["at once", "after it was read"])
@pytest.mark.parametrize("trouble", ["it stops at position 2: its time is 'not", "cannot be read"])
async def test_a_split_in_trouble_holds_up_the_watermark_and_no_records_of_others(
    trouble: str,
    is_quiet: bool,  # noqa: FBT001
) -> None:
    """What follows in it may be earlier, once somebody has mended it."""
    source, sink = Rows("one", "two"), Results()
    async with a_cluster() as cluster:
        flow = a_flow(
            await cluster.start("a"), source, sink, time=lambda value: value, idle_after_s=5.0
        )
        source.add("one", "k", value=10)
        source.add("two", "k", value=9)
        await until(lambda: flow.status()["watermark"] == 9)
        await trio.sleep(3 * is_quiet)
        if "stops" in trouble:
            source.add("one", "k", value="not a time")
        else:
            source.failing = {"one"}
        for value in range(20, 80):
            source.add("two", "k", value=value)
            await trio.sleep(1)
        await until(lambda: len(sink.rows) == 62)

        assert flow.status()["watermark"] == 10
        assert trouble in flow.status()["trouble"]


async def test_a_worker_that_was_idle_is_waited_for_once_its_split_cannot_be_read() -> None:
    source, broken, sink = Rows(*"012345"), Rows(*"012345"), Results()
    options = {"time": lambda value: value, "idle_after_s": 5.0}
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink, **options)
        other = a_flow(await cluster.start("b"), broken, sink, **options)
        await until(lambda: flow.status()["workers"] == other.status()["workers"] == [*"ab"])
        mine, others = flow.status()["splits"], other.status()["splits"]

        async def go_on(values: range) -> None:
            for value in values:
                for split in mine:
                    source.add(split, "k", value=value)
                await trio.sleep(1)

        await go_on(range(20))
        await until(lambda: flow.status()["watermark"] == 19)  # the other one has nothing
        broken.failing = set(others)
        await trio.sleep(1)
        await go_on(range(20, 40))
        assert flow.status()["watermark"] <= 20
        broken.failing = set()
        await go_on(range(40, 60))
        await until(lambda: flow.status()["watermark"] == 59)


async def test_an_epoch_keeps_what_has_changed_in_it_and_not_all_again() -> None:
    source, sink = Rows("one"), Results()
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink)
        source.add("one", *(f"k{number}" for number in range(1_000)))
        await until(lambda: len(sink.rows) == 1_000)
        source.add("one", "k7")
        await until(lambda: len(sink.rows) == 1_001)
        assert flow.record is not None
        (part,) = flow.record.state
        root = "default/dataflows/flow/objects/"
        sizes = [len(cluster.store.get(root + name) or b"") for name in part.objects]

    assert len(sizes) == 2
    assert sizes[1] < sizes[0] / 100


async def test_a_worker_that_cannot_list_its_splits_is_not_taken_for_idle() -> None:
    """They may bring records that are earlier than those of the others."""
    source, silent, sink = Rows(*"012345"), Rows(), Results()
    silent.failing = {""}
    options = {"time": lambda value: value, "idle_after_s": 5.0}
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink, **options)
        other = a_flow(await cluster.start("b"), silent, sink, **options)
        await until(lambda: flow.status()["workers"] == other.status()["workers"] == [*"ab"])
        mine = list(flow.status()["splits"])
        for value in range(60):
            for split in mine:
                source.add(split, "k", value=value)
            await trio.sleep(1)
        assert flow.status()["watermark"] is None

        silent.failing = set()
        await until(lambda: flow.status()["watermark"] == 59)


async def test_a_stage_that_fails_begins_again_from_the_last_epoch() -> None:
    source, sink, failures = Rows("one", "two"), Results(), list[str]()

    def fragile(state: int | None, rows: Sequence[Row], context: Context) -> int:
        if context.key == KEYS[3] and len(failures) < 3:
            failures.append(context.key)
            raise ZeroDivisionError("of the application")
        return passed_on(state, rows, context)

    async with a_cluster() as cluster:
        for name in "ab":
            flow = a_flow(await cluster.start(name), source, sink, stage=fragile)
        for split in ("one", "two"):
            source.add(split, *KEYS)
        await until(lambda: len(sink.rows) == 2 * len(KEYS))

    assert sorted(sink.rows) == sorted((key, number) for key in KEYS for number in (1, 2))
    assert len(failures) == 3
    assert flow.status()["trouble"] == ""


async def test_more_workers_than_key_groups_go_on() -> None:
    source, sink = Rows("one"), Results()
    async with a_cluster() as cluster:
        flows = [a_flow(await cluster.start(name), source, sink, key_groups=2) for name in "abc"]
        await until(lambda: flows[0].status()["workers"] == [*"abc"])
        epoch = flows[0].status()["epoch"]
        source.add("one", *KEYS)
        await until(lambda: len(sink.rows) == len(KEYS))
        await until(lambda: flows[0].status()["epoch"] > epoch + 3)
        assert {str(flow.status()["key_groups"]) for flow in flows} >= {"[0, 1]", "[1, 2]"}


async def test_a_store_that_is_away_for_a_while_makes_nobody_begin_again() -> None:
    source, sink = Rows("one"), Results()
    async with a_cluster() as cluster:
        flow = a_flow(await cluster.start("a"), source, sink)
        source.add("one", *KEYS)
        await until(lambda: len(sink.rows) == len(KEYS))
        run = flow.status()["run"]
        for verb in ("put_if_absent", "get", "list"):
            cluster.store.inject(StoreFault.FAILS, verb=verb, count=4)
        cluster.store.inject(StoreFault.LOSES_REPLY, count=3)
        source.add("one", *KEYS)
        await until(lambda: len(sink.rows) == 2 * len(KEYS))
        assert flow.status()["run"] == run


async def test_all_of_it_is_there_after_every_node_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "EPOCHS_KEPT", 3)
    monkeypatch.setattr(dataflow, "TIDY_EPOCHS", 2)
    source, sink = Rows("one", "two", "three"), Results()
    async with a_cluster() as cluster:
        first = a_flow(await cluster.start("a"), source, sink)
        source.add("one", *KEYS)
        await until(lambda: len(sink.rows) == len(KEYS))
        await until(lambda: first.status()["epoch"] >= 6)  # former epochs are deleted by now
        await cluster.stop("a")
        source.add("two", *KEYS)
        for name in "abcd":
            flow = a_flow(await cluster.start(name), source, sink)
        await until(lambda: len(sink.rows) == 2 * len(KEYS))
        await until(lambda: flow.status()["workers"] == [*"abcd"])
        epochs = cluster.store.list("default/dataflows/flow/epochs/")
        objects = cluster.store.list("default/dataflows/flow/objects/")

    assert sorted(sink.rows) == sorted((key, number) for key in KEYS for number in (1, 2))
    assert 3 <= len(epochs) < 7
    assert len(objects) < 7 * 4 * 2
