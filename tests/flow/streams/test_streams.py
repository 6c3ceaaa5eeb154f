"""Streams over a cluster, in virtual time: each record counts once, whoever reads it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py.base.errors import ConfigError
from ringpop_py.state.keyspaces.local import open_local_keyspaces
from ringpop_py.state.stores.memory import StoreFault
from ringpop_py.streams import BadRecord, Files, Record, start_stream
from tests.edge.web.test_metrics import value as value_of
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ringpop_py.state.keyspaces.keyspace import Keyspace
    from ringpop_py.streams import Source, SplitStatus, Stream

pytestmark = pytest.mark.virtual_time

LONG_S = 1e7
"""Virtual time runs on while a thread reads, so it bounds nothing: the limit of pytest does."""
FILES = 3
USERS = [f"user-{number}" for number in range(20)]


def one(_value: object) -> int:
    return 1


class Clicks:
    """Files of clicks, and how often each user has clicked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()

    def add(self, count: int, *, ends: bool = True) -> None:
        """Add clicks to each file; if not *ends*, its last line is not complete."""
        for number in range(FILES):
            with (self.folder / f"{number}.jsonl").open("a") as file:
                for click in range(count):
                    user = USERS[(click * 7 + number) % len(USERS)]
                    self.counts[user] += 1
                    end = "\n" if ends or click < count - 1 else ""
                    file.write(json.dumps({"user": user, "click": click}) + end)

    def end_lines(self) -> None:
        for number in range(FILES):
            with (self.folder / f"{number}.jsonl").open("a") as file:
                file.write("\n")

    def source(self) -> Files:
        return Files(f"{self.folder}/*.jsonl", key="user")


async def counted(keyspace: Keyspace, counts: Counter[str], within_s: float = LONG_S) -> None:
    """Wait until the keyspace has exactly *counts*; it never has more."""
    with trio.fail_after(within_s):
        while True:
            found: Counter[str] = Counter()
            async for key, value in keyspace.scan():
                assert isinstance(value, int)
                found[key] = value
            assert found <= counts, found - counts
            if found == counts:
                return
            await trio.sleep(0.5)


async def until(condition: Callable[[], bool], within_s: float = LONG_S) -> None:
    """Wait in real time as well: sources are read in threads."""
    with trio.fail_after(within_s):
        while not condition():
            await trio.sleep(0.1)


def counting(keyspace: Keyspace, source: Source, **options: Any) -> Stream:  # noqa: ANN401
    return start_stream(keyspace, source, "add", name="clicks", argument=one, **options)


async def test_lines_of_files_that_grow_count_once_each(tmp_path: Path) -> None:
    clicks = Clicks(tmp_path)
    clicks.add(2_500)
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "abc"]
        keyspaces = [await node.open_keyspace("visits", partitions=8) for node in nodes]
        await all_online(keyspaces[0], *"abc")
        streams = [counting(keyspace, clicks.source()) for keyspace in keyspaces]
        await counted(keyspaces[0], clicks.counts)

        before = Counter(clicks.counts)
        clicks.add(1, ends=False)
        await trio.sleep(20)
        await counted(keyspaces[1], before)  # a line without its end is none yet
        clicks.end_lines()
        await counted(keyspaces[2], clicks.counts)

        def statuses() -> list[SplitStatus]:
            return [status for stream in streams for status in stream.status()]

        await until(lambda: [s.counted for s in statuses()] == [s.read for s in statuses()])
        assert len(statuses()) == FILES
        assert {status.trouble for status in statuses()} == {""}
        assert sum(status.records for status in statuses()) == clicks.counts.total()
        assert sum(stream.records_count for stream in streams) == clicks.counts.total()
        node = nodes[0]
        assert value_of(node, "ringpop_stream_splits", keyspace="visits") == len(streams[0].rows())
        records = value_of(node, "ringpop_stream_records_total", keyspace="visits")
        assert records == streams[0].records_count
        assert node.proxying.operations.stream.done == records


async def test_records_count_once_while_nodes_come_and_go(tmp_path: Path) -> None:
    clicks = Clicks(tmp_path)
    clicks.add(1_500)
    streams: dict[str, Stream] = {}
    async with a_cluster() as cluster:

        async def start(name: str) -> Keyspace:
            node = await cluster.start(name)
            keyspace = await node.open_keyspace("visits", partitions=8)
            streams[name] = counting(keyspace, clicks.source())
            return keyspace

        first = await start("a")
        await start("b")
        await trio.sleep(1)
        await start("c")
        clicks.add(500)
        cluster.hang("b")  # it goes on, and nobody hears of it
        await trio.sleep(3)
        clicks.add(500)
        await trio.sleep(30)
        cluster.resume("b")
        clicks.add(500)
        await cluster.stop("c")
        await start("d")
        await counted(first, clicks.counts)
        # In the end each split has one reader: those whose turn is over have stopped.
        there = [streams[name] for name in "abd"]
        await until(lambda: sum(len(stream.status()) for stream in there) == FILES)


class Rows:
    """A source with the rows of a list."""

    def __init__(self, rows: Sequence[Record | BadRecord]) -> None:
        self.rows = rows

    def splits(self) -> list[str]:
        return ["rows"]

    def read(self, split: str, after: int, limit: int) -> list[Record | BadRecord]:
        del split
        return [row for row in self.rows if row.position > after][:limit]


MIXED = Rows(
    [
        Record(1, "a", 1),
        Record(2, "a", "no number"),
        BadRecord(3, "it is no JSON", "{"),
        Record(4, "a", 10),
        Record(9, "b", 100),
    ]
)


async def test_records_that_cannot_be_used_are_handed_out_and_the_rest_counts() -> None:
    refused: list[tuple[int, str]] = []
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        stream = start_stream(
            totals,
            MIXED,
            "add",
            name="rows",
            refused=lambda record, why: refused.append((record.position, why)),
        )
        await counted(totals, Counter(a=11, b=100))
        [status] = stream.status()
        await until(lambda: status.counted == 9)

    assert [position for position, _ in refused] == [3, 2]
    assert refused[0][1] == "it is no JSON"
    assert "add" in refused[1][1]
    assert (status.refused, status.counted, status.trouble) == (2, 9, "")


async def test_a_source_that_ends_with_what_cannot_be_used_is_read_once_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringpop_py.flow.streams.stream.READ_RECORDS", 10)
    refused: list[int] = []
    bad = [BadRecord(position, "it is no JSON", "{") for position in range(2, 27)]
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        stream = start_stream(
            totals,
            Rows([Record(1, "a", 1), *bad, Record(27, "b", 2), BadRecord(28, "no", "")]),
            "add",
            name="rows",
            refused=lambda record, _why: refused.append(record.position),
        )
        await counted(totals, Counter(a=1, b=2))
        [status] = stream.status()
        await until(lambda: status.counted == 28)

    assert refused == [*range(2, 27), 28]


async def test_a_failure_that_is_not_the_fault_of_a_record_is_retried_and_reported() -> None:
    refused: list[object] = []
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=1)
        local.aggregation("sum", lambda _there, argument: argument)
        stream = start_stream(
            totals,
            Rows([Record(1, "a", 1)]),
            "sum",
            name="rows",
            refused=lambda *record: refused.append(record),
        )
        del local.aggregations._registered["sum"]  # as an owner that was not told of it
        await until(lambda: any(status.trouble for status in stream.status()))
        [status] = stream.status()
        assert status.trouble.startswith("partition 0: there is no aggregation 'sum', perhaps ")
        local.aggregation("sum", lambda _there, argument: argument)
        await counted(totals, Counter(a=1))
        await until(lambda: not status.trouble)

    assert refused == []


async def test_an_error_of_the_application_is_in_the_status_and_it_goes_on_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[int] = []

    def refused(record: Record | BadRecord, _why: str) -> None:
        calls.append(record.position)
        if len(calls) == 1:
            raise OSError("no room")

    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=1)
        stream = start_stream(totals, MIXED, "add", name="rows", refused=refused)
        await until(lambda: any(status.trouble for status in stream.status()))
        assert stream.status()[0].trouble == "it has failed: OSError: no room"
        await counted(totals, Counter(a=11, b=100))

    assert calls[0] == calls[1] == 3
    assert "is started again" in caplog.text


async def test_without_a_place_for_them_a_split_stops_and_says_where() -> None:
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        stream = start_stream(totals, MIXED, "add", name="rows")
        await counted(totals, Counter(a=1))
        [status] = stream.status()
        # Two cannot be used, and the first one of them is told.
        await until(lambda: status.trouble.startswith("it stops at position 2: "))
        await trio.sleep(10)
        assert await totals.get_many(["a", "b"]) == {"a": 1}

    assert status.trouble.startswith("it stops at position 2: ")


async def test_an_argument_that_cannot_be_made_is_a_bad_record() -> None:
    refused: list[object] = []
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=1)
        start_stream(
            totals,
            Rows([Record(1, "a", {"n": 1}), Record(2, "a", {}), Record(3, "a", {"n": 3})]),
            "add",
            name="rows",
            argument=lambda value: value["n"],  # type: ignore[index, call-overload]
            refused=lambda record, why: refused.append((record, why)),
        )
        await counted(totals, Counter(a=4))

    why = "the argument cannot be made: KeyError: 'n'"
    assert refused == [(BadRecord(2, why, "{}"), why)]


async def test_a_slow_keyspace_holds_its_source_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringpop_py.flow.streams.stream.HELD_MAX", 3_000)
    source = Rows([Record(position, "a", 1) for position in range(1, 20_001)])
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        totals = await node.open_keyspace("totals", partitions=1)
        await all_online(totals, "a")
        cluster.store.inject(StoreFault.FULL, count=1_000_000)
        stream = start_stream(totals, source, "add", name="rows")
        await until(lambda: any(status.held >= 3_000 for status in stream.status()))
        await trio.sleep(20)
        [status] = stream.status()
        assert 3_000 <= status.held < 8_000
        assert status.counted == 0
        assert "partition 0: " in status.trouble

        cluster.store.heal()
        await counted(totals, Counter(a=20_000))
        await until(lambda: not status.trouble)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "a stream's name has 1 to 64"),
        ({"name": "a/b"}, "and no '/'"),
        ({"name": "a", "argument": 1}, "argument"),
        ({"name": "a", "refused": 1}, "refused"),
        ({"name": "a", "refused": until}, "refused is called in a thread"),
        ({"name": "a\n"}, "printable"),
    ],
)
async def test_wrong_options_of_a_stream_are_refused(options: dict[str, Any], message: str) -> None:
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        with pytest.raises(ConfigError, match=message):
            start_stream(totals, MIXED, "add", **options)


async def test_an_operation_that_this_node_does_not_know_is_refused_at_the_start() -> None:
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        with pytest.raises(ConfigError, match=r"'sum', perhaps 'add' is meant; .*Register"):
            start_stream(totals, MIXED, "sum", name="rows")
        local.aggregation("sum", lambda _there, argument: argument)

        assert start_stream(totals, MIXED, "sum", name="rows").name == "rows"


async def test_a_source_has_two_methods() -> None:
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        with pytest.raises(ConfigError, match="has no splits"):
            start_stream(totals, object(), "add", name="a")  # type: ignore[arg-type]


async def test_a_split_whose_name_cannot_be_printed_is_left_out_and_told() -> None:
    rows = Rows([Record(1, "a", 1)])
    rows.splits = lambda: ["a\udcff.jsonl", "b"]  # type: ignore[method-assign]
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        stream = start_stream(totals, rows, "add", name="rows")
        await counted(totals, Counter(a=1))
        [split, left_out] = stream.rows()

    assert (split["split"], split["trouble"]) == ("b", "")
    assert "'a\\udcff.jsonl'" in left_out["trouble"]


async def test_a_stream_is_started_once_in_a_process() -> None:
    async with open_local_keyspaces() as local:
        totals = await local.open_keyspace("totals", partitions=2)
        start_stream(totals, MIXED, "add", name="rows")
        with pytest.raises(ConfigError, match="has started a stream 'rows' into 'totals' already"):
            start_stream(totals, MIXED, "add", name="rows")


async def test_a_keyspace_in_memory_mode_is_refused() -> None:
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        totals = await node.open_keyspace("totals", partitions=2, mode="memory")
        with pytest.raises(ConfigError, match="in memory mode"):
            start_stream(totals, MIXED, "add", name="a")
