"""Dataflows over a cluster: each record counts once, whoever processes it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import PRESETS
from ringpop_py.base.errors import BadOperation, ConfigError, SinkFailed
from ringpop_py.dataflow import (
    Context,
    FileSink,
    KeyspaceSink,
    Row,
    Sent,
    Tumbling,
    start_dataflow,
)
from ringpop_py.edge.admin.checkup import checkup
from ringpop_py.flow.dataflow import part
from ringpop_py.flow.dataflow.stage import StageRunner, checked_stage
from ringpop_py.flow.exchange.state import StageState
from ringpop_py.streams import BadRecord, Files, Record
from tests.logged import events_in
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ringpop_py.dataflow import Dataflow
    from ringpop_py.node.ringpop import Ringpop

LONG_S = 60.0
FILES = 3
USERS = [f"user-{number}" for number in range(20)]
EVERY_S = 0.2


def count(state: int | None, rows: Sequence[Row], context: Context) -> int:
    """How often a key has come; each change is sent on."""
    total = (state or 0) + len(rows)
    context.emit(context.key, total)
    return total


class Clicks:
    """Files of clicks, and what they come to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.windows: Counter[tuple[str, int]] = Counter()
        self._time = 0
        folder.mkdir(exist_ok=True)

    def add(self, clicks: int) -> None:
        """Add clicks to each file, one a second, hardly out of order."""
        for number in range(FILES):
            with (self.folder / f"{number}.jsonl").open("a") as file:
                for click in range(clicks):
                    user, time = USERS[(click * 7 + number) % len(USERS)], self._time + click
                    time -= click % 3
                    self.counts[user] += 1
                    self.windows[user, time // 60 * 60] += 1
                    file.write(json.dumps({"user": user, "at": time}) + "\n")
        self._time += clicks

    def source(self) -> Files:
        return Files(f"{self.folder}/*.jsonl", key="user")


class Totals:
    """A sink that drops what it has, and refuses a result twice in a while."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.seen: dict[str, Sequence[tuple[str, Any]]] = {}
        self.again = self.refusals = 0

    def __call__(self, sent: Sent) -> None:
        if len(self.seen) % 5 == 3 and self.refusals < 2:
            self.refusals += 1
            raise OSError("not now")
        if sent.id in self.seen:
            assert self.seen[sent.id] == sent.rows
            self.again += 1
            return
        self.seen[sent.id] = sent.rows
        for key, total in sent.rows:
            assert total > self.totals.get(key, 0)
            self.totals[key] = total


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(LONG_S):
        while not condition():
            await trio.sleep(0.02)


def counting(node: Ringpop, clicks: Clicks, sink: Totals) -> Dataflow:
    return start_dataflow(node, clicks.source(), count, name="clicks", sink=sink, every_s=EVERY_S)


async def test_each_record_counts_once_while_workers_come_and_go(tmp_path: Path) -> None:
    clicks, totals = Clicks(tmp_path / "in"), Totals()
    clicks.add(500)
    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        flows = {name: counting(await cluster.start(name), clicks, totals) for name in "ab"}
        await until(lambda: totals.totals == clicks.counts)
        clicks.add(500)
        flows["c"] = counting(await cluster.start("c"), clicks, totals)
        await until(lambda: flows["a"].status()["workers"] == ["a", "b", "c"])
        clicks.add(500)
        await until(lambda: totals.totals == clicks.counts)
        groups = [flows[name].status()["key_groups"] for name in "abc"]
        assert groups == [[0, 86], [86, 171], [171, 256]]
        assert {split for flow in flows.values() for split in flow.status()["splits"]} == {
            str(tmp_path / "in" / f"{number}.jsonl") for number in range(FILES)
        }

        clicks.add(500)
        cluster.isolate(
            "b"
        )  # the others take it for dead, and it knows of no new epoch but by the store
        await until(lambda: flows["a"].status()["workers"] == ["a", "c"])
        clicks.add(300)
        await until(lambda: totals.totals == clicks.counts)
        await cluster.stop("c")
        assert flows["a"].record is not None
        assert "gone" not in flows["a"].record.why  # it has left at the end of an epoch
        clicks.add(200)
        await until(lambda: totals.totals == clicks.counts)
        state = flows["a"].state()
    assert state == clicks.counts
    assert totals.refusals == 2


async def test_records_behind_the_watermark_are_counted_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clicks = Clicks(tmp_path / "in")
    clicks.add(200)

    def windows(node: Ringpop) -> Dataflow:
        stage = Tumbling(60, lambda total, _: (total or 0) + 1)
        return start_dataflow(
            node, clicks.source(), stage, name="clicks", time="at", lateness=2, every_s=EVERY_S
        )

    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        flow = windows(await cluster.start("a"))
        await until(lambda: (flow.status()["watermark"] or 0) > 120)
        (tmp_path / "in" / "late.jsonl").write_text('{"user": "user-1", "at": 5}\n')
        await until(lambda: bool(events_in(caplog, "dataflow-late")))
        other = windows(await cluster.start("b"))
        await until(lambda: [*flow.status()["workers"], *other.status()["workers"]] == [*"abab"])
        counts = flow.status()

    (told,) = events_in(caplog, "dataflow-late")
    assert told.fields["count"] == 1
    assert "'user-1' at 5, and the watermark is 1" in str(told)
    assert (counts["late"], counts["rows"]) == (1, 601)  # also after the workers have changed


async def test_windows_end_by_the_time_of_records(tmp_path: Path) -> None:
    clicks, found = Clicks(tmp_path / "in"), FileSink(tmp_path / "out")
    clicks.add(400)

    def windows() -> Counter[tuple[str, int]]:
        rows = [
            json.loads(line)
            for path in sorted((tmp_path / "out").glob("*.jsonl"))
            for line in path.read_text("utf-8").splitlines()
        ]
        counts: Counter[tuple[str, int]] = Counter()
        for row in rows:
            window = row["key"], row["value"]["start"]
            assert window not in counts
            counts[window] = row["value"]["value"]
        return counts

    def ended(before: int) -> Counter[tuple[str, int]]:
        return Counter({key: n for key, n in clicks.windows.items() if key[1] + 60 <= before})

    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        for name in "ab":
            flow = start_dataflow(
                await cluster.start(name),
                clicks.source(),
                Tumbling(60, lambda total, _: (total or 0) + 1),
                name="clicks",
                sink=found,
                time="at",
                lateness=2,
                idle_after_s=1e9,
                every_s=EVERY_S,
            )
        await until(lambda: windows() == ended(399 - 2))
        clicks.add(400)
        await cluster.stop("b")
        await until(lambda: windows() == ended(799 - 2))
        assert flow.status()["late"] == 0


async def test_results_go_into_a_keyspace_once(tmp_path: Path) -> None:
    clicks = Clicks(tmp_path)
    clicks.add(300)

    def each(_state: object, rows: Sequence[Row], context: Context) -> None:
        context.emit(context.key, len(rows))

    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("totals", partitions=4)
        other = await cluster.start("b")
        await other.open_keyspace("totals", partitions=4)
        for each_node in (node, other):
            sink = KeyspaceSink(await each_node.open_keyspace("totals"), "add")
            flow = start_dataflow(
                each_node, clicks.source(), each, name="clicks", sink=sink, every_s=EVERY_S
            )
        await until(lambda: sorted(flow.status()["workers"]) == ["a", "b"])
        clicks.add(300)
        with trio.fail_after(LONG_S):
            while True:
                totals = {key: value async for key, value in keyspace.scan()}
                assert all(clicks.counts[key] >= value for key, value in totals.items())  # type: ignore[operator]
                if totals == clicks.counts:
                    break
                await trio.sleep(0.02)
        assert flow.state() == {}  # the stage keeps none


async def test_an_unusable_record_is_handed_out_or_stops_its_split(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text('{"user": "u", "at": 1}\n')
    (tmp_path / "bad.jsonl").write_text('{"user": "v", "at": 1}\nrubbish\n{"user": "w", "at": 2}\n')
    (tmp_path / "time.jsonl").write_text('{"user": "x", "at": "noon"}\n{"user": "y"}\n')
    source = Files(f"{tmp_path}/*.jsonl", key="user")
    refused: list[tuple[Record | BadRecord, str]] = []
    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        node = await cluster.start("a")
        stops = start_dataflow(node, source, count, name="stops", time="at", every_s=EVERY_S)
        await until(lambda: stops.state() == {"u": 1, "v": 1})
        await until(lambda: "it stops at position" in stops.status()["trouble"])

        goes_on = start_dataflow(
            node,
            source,
            count,
            name="goes on",
            time="at",
            every_s=EVERY_S,
            refused=lambda record, why: refused.append((record, why)),
        )
        await until(lambda: goes_on.state() == {"u": 1, "v": 1, "w": 1})
        await until(lambda: goes_on.status()["refused"] == 3)
        assert goes_on.status()["trouble"] == ""
    assert sorted(why.partition(":")[0] for _, why in refused) == [
        "its time cannot be found",
        "its time is 'noon', not a whole number of 64 bits",
        "not a json value",
    ]


async def test_a_record_far_ahead_is_refused_and_moves_no_watermark(tmp_path: Path) -> None:
    now = int(time.time())
    rows = [(now - 100, "a"), (now + 365 * 86_400, "b"), (now - 50, "c"), (now + 600, "d")]
    lines = [json.dumps({"user": user, "at": at}) for at, user in rows]
    (tmp_path / "clicks.jsonl").write_text("\n".join(lines) + "\n")
    source = Files(f"{tmp_path}/*.jsonl", key="user")
    refused: list[str] = []
    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        node = await cluster.start("a")
        options: Any = {"time": "at", "every_s": EVERY_S}
        stops = start_dataflow(node, source, count, name="stops", **options)
        await until(lambda: "s ahead of the clock" in stops.status()["trouble"])
        assert f"{tmp_path}/clicks.jsonl: it stops at position" in stops.status()["trouble"]
        options["refused"] = lambda _, why: refused.append(why)
        flow = start_dataflow(node, source, count, name="goes on", **options)
        await until(lambda: flow.state() == {"a": 1, "c": 1, "d": 1})
        await until(lambda: flow.status()["watermark"] == now + 600)
        assert [str(rows[1][0]) in why for why in refused] == [True]
        assert flow.status()["late"] == 0
        windows = start_dataflow(
            node, source, Tumbling(60, lambda total, _: (total or 0) + 1), name="w", **options
        )
        await until(lambda: windows.status()["watermark"] == now + 600)
        with (tmp_path / "clicks.jsonl").open("a") as file:
            file.write(lines[0] + "\n")
        await until(lambda: windows.status()["late"] == 1)
        answer: Any = await checkup(node, None)
        assert any("w: 1 records came too late" in text for text in answer["flow_troubles"])


async def test_options_that_make_no_sense_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "a/b"}, "dataflow's name"),
        ({"name": ""}, "dataflow's name"),
        ({"source": 5}, "has no splits"),
        ({"stage": 5}, "a stage is a function"),
        ({"sink": 5}, "sink"),
        ({"lateness": -1}, "lateness"),
        ({"lateness": 0.5}, "lateness"),
        ({"every_s": 0}, "every_s"),
        ({"idle_after_s": "x"}, "idle_after_s"),
        ({"key_groups": 0}, "key_groups"),
        ({"time": 5}, "time"),
    ]
    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        node = await cluster.start("a")
        for options, why in wrong:
            given = {"source": Files("*.jsonl", key="user"), "stage": count, "name": "f", **options}
            with pytest.raises(ConfigError, match=why):
                start_dataflow(node, given.pop("source"), given.pop("stage"), **given)


async def test_a_dataflow_needs_a_store_and_starts_once() -> None:
    source = Files("*.jsonl", key="user")
    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        node = await cluster.start("a", has_store=False)
        with pytest.raises(ConfigError, match="no store"):
            start_dataflow(node, source, count, name="f")
        other = await cluster.start("b")
        start_dataflow(other, source, count, name="f")
        with pytest.raises(ConfigError, match="already"):
            start_dataflow(other, source, count, name="f")


def test_windows_are_of_a_whole_size() -> None:
    with pytest.raises(ConfigError, match="size"):
        Tumbling(0, lambda total, _: total)
    with pytest.raises(ConfigError, match="add"):
        Tumbling(60, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "why"),
    [({5: 1}, "text"), ((1,), "tuple"), ({"a": {2}}, "set"), (1 << 70, "64 bits")],
    ids=["keys", "tuple", "set", "number"],
)
def test_a_state_that_would_not_come_back_equal_is_refused(state: object, why: str) -> None:
    runner = StageRunner(checked_stage(lambda *_: state), StageState(), None)
    with pytest.raises(BadOperation, match=f"state of key 'k'.*{why}"):
        runner.process([Row("k", 1, None)])


def test_a_result_that_nobody_could_read_is_refused() -> None:
    context = Context()
    for key, value in (("k", {5: 1}), (5, 1), ("\ud800", 1), ("k", float)):
        with pytest.raises(BadOperation):
            context.emit(key, value)  # type: ignore[arg-type]
    context.emit("k", {"bytes": [b"x", None, 1.5]})


def test_a_key_that_is_woken_at_once_again_does_not_hold_the_others_up() -> None:
    class Restless:
        def process(self, state: int | None, rows: Sequence[Row], context: Context) -> int:
            context.wake_at(5)
            return (state or 0) + len(rows)

        def wake(self, state: int, context: Context) -> int:
            context.wake_at(5)
            return state + 1

    runner = StageRunner(Restless(), StageState(), None)
    runner.process([Row("a", 1, None), Row("b", 1, None)])
    for at in (5, 6):
        runner.advance(at)
    assert runner.state.values == {"a": 3, "b": 3}


def test_a_file_of_results_is_whole_and_written_once(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out")
    sent = Sent("a b", 7, 2, [("k", {"b": [b"\x00\xff", 1]})])
    sink(sent)
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "a%20b-000000000007-0002.jsonl"
    assert json.loads(path.read_text("utf-8")) == {"key": "k", "value": {"b": ["AP8=", 1]}}
    there = path.stat()
    sink(sent)
    sink(sent._replace(flow="other"))
    assert path.stat() == there
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        path.name,
        "other-000000000007-0002.jsonl",
    ]
    (tmp_path / "out" / "other-000000000009-0002.jsonl").mkdir()
    with pytest.raises(ConfigError, match="is not a folder"):
        FileSink(path)


async def test_a_result_that_a_keyspace_never_takes_is_handed_out() -> None:
    async with a_cluster(gossip=PRESETS["local"]) as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("totals", partitions=2)
        await all_online(keyspace, "a")
        rows = [("a", 1), ("b", "text"), ("c", 2), ("a", 3)]
        with pytest.raises(SinkFailed):
            await KeyspaceSink(keyspace, "add")(Sent("f", 1, 0, rows))
        refused: list[tuple[str, Any]] = []
        sink = KeyspaceSink(
            keyspace, "add", refused=lambda key, value, _: refused.append((key, value))
        )
        for _ in range(2):  # delivered again, it changes nothing
            await sink(Sent("f", 1, 0, rows))
        await sink(Sent("f", 2, 0, [("a", 10)]))
        assert {key: value async for key, value in keyspace.scan()} == {"a": 14, "c": 2}
        assert set(refused) == {("b", "text")}


async def test_a_stage_that_hangs_is_told_and_does_not_keep_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "SLOW_S", 0.2)
    clicks, may_end = Clicks(tmp_path), threading.Event()
    clicks.add(1)

    def hangs(*_: object) -> None:
        may_end.wait(LONG_S)

    try:
        async with a_cluster(gossip=PRESETS["local"]) as cluster:
            node = await cluster.start("a")
            flow = start_dataflow(node, clicks.source(), hangs, name="f", every_s=EVERY_S)
            await until(lambda: "the stage has not returned" in flow.status()["trouble"])
            began_at = trio.current_time()
            await cluster.stop("a")
            assert trio.current_time() - began_at < LONG_S / 2  # it has not waited for the stage
    finally:
        may_end.set()
