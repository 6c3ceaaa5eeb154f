"""Files that are rotated while a stream reads them: each line counts once, whatever their names."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import trio

from ringpop_py.base.errors import SourceFailed, SpanRefused
from ringpop_py.base.values.operations import MARK_CLOSED, Outcome, Span, Write
from ringpop_py.dataflow import Tumbling, run_alone, start_dataflow
from ringpop_py.edge.admin.checkup import checkup
from ringpop_py.flow.streams import files
from ringpop_py.flow.streams.source import original_of
from ringpop_py.flow.streams.stream import CLOSED
from ringpop_py.streams import Files
from tests.flow.dataflow.test_dataflow import count
from tests.flow.streams.test_streams import counted, counting, until
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINES = 250
pytestmark = pytest.mark.virtual_time


class Log:
    """A log of numbered lines of the same width, and how often each key is in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.counts: Counter[str] = Counter()
        self._number = 0

    def add(self, lines: int, end: str = "\n") -> None:
        """Add lines, the last of which has *end* as its end."""
        with self.path.open("a") as file:
            for line in range(lines):
                key = f"key-{self._number % 7}"
                self.counts[key] += 1
                self._number += 1
                text = json.dumps({"key": key, "number": f"{self._number:06}", "at": 1})
                file.write(text + (end if line == lines - 1 else "\n"))

    def create(self) -> None:
        """As logrotate's ``create``."""
        self.path.rename(f"{self.path}.1")
        self.path.touch()

    def copytruncate(self) -> None:
        """As logrotate's ``copytruncate``."""
        shutil.copyfile(self.path, f"{self.path}.1")
        os.truncate(self.path, 0)

    def dateext(self) -> None:
        """As logrotate's ``dateext`` with ``compress``."""
        rotated = self.path.with_name("app.log-20260101")
        self.path.rename(rotated)
        self.path.touch()
        packed(rotated, ".gz").with_name(rotated.name)
        rotated.unlink()

    def dateext_zst(self) -> None:
        """As ``dateext``, with ``compresscmd zstd``."""
        rotated = self.path.with_name("app.log-20260101")
        self.path.rename(rotated)
        self.path.touch()
        packed(rotated, ".zst")
        rotated.unlink()

    def rename(self) -> None:
        """Renamed within the pattern, and nothing follows."""
        self.path.rename(f"{self.path}.old")


def packed(path: Path, ending: str) -> Path:
    """Compress the file at *path*, which stays; return the path of the result."""
    found = path.with_name(path.name + ending)
    if ending == ".gz":
        found.write_bytes(gzip.compress(path.read_bytes()))
    else:
        with pa.CompressedOutputStream(str(found), "zstd") as file:
            file.write(path.read_bytes())
    return found


def source(log: Log, pattern: str) -> Files:
    return Files(str(log.path.with_name(pattern)), key="key")


WAYS = [Log.create, Log.copytruncate, Log.dateext, Log.dateext_zst]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["lives", "restarts"])
async def test_each_line_counts_once_through_a_rotation(
    tmp_path: Path, way: Callable[[Log], None], pattern: str, *, is_restarted: bool
) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("visits", partitions=4)
        await all_online(keyspace, "a")
        stream = counting(keyspace, source(log, pattern))
        await counted(keyspace, log.counts)
        if is_restarted:
            await cluster.stop("a")
        log.add(LINES)
        way(log)
        log.add(LINES)
        if is_restarted:
            keyspace = await (await cluster.start("a")).open_keyspace("visits")
            await all_online(keyspace, "a")
            stream = counting(keyspace, source(log, pattern))
        await counted(keyspace, log.counts)
        log.add(LINES)
        await counted(keyspace, log.counts)
        await trio.sleep(30)  # nothing counts again
        await counted(keyspace, log.counts)
        troubles = [row["trouble"] for row in stream.rows() if row["trouble"]]
        assert all("may be lost" in text for text in troubles)
        assert bool(troubles) is (way is Log.copytruncate and not is_restarted)


@pytest.mark.parametrize("was_read", [False, True], ids=["rotated before", "was read"])
@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.__name__)
async def test_a_rotated_file_that_is_compressed_later_goes_on(
    tmp_path: Path, way: Callable[[Log], None], *, was_read: bool
) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("visits", partitions=4)
        await all_online(keyspace, "a")
        if not was_read:
            way(log)
        counting(keyspace, source(log, "app.log*"))
        await counted(keyspace, log.counts)
        if was_read:
            way(log)
            await trio.sleep(5)
        rotated = log.path.with_name("app.log.1")
        for copy in map(log.path.with_name, ("app.log.1.gz", "app.log.2.gz")):
            data = rotated.read_bytes()  # the second copy goes on where the first one was
            copy.write_bytes(data if rotated.suffix == ".gz" else gzip.compress(data))
            rotated.unlink()
            rotated = copy
            await trio.sleep(70)
            await counted(keyspace, log.counts)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["lives", "restarts"])
async def test_a_file_that_is_renamed_within_the_pattern_goes_on(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("visits", partitions=4)
        await all_online(keyspace, "a")
        stream = counting(keyspace, source(log, "*"))
        await counted(keyspace, log.counts)
        if is_restarted:
            await cluster.stop("a")
        log.path = log.path.rename(tmp_path / "other.txt")
        log.add(LINES)
        if is_restarted:
            keyspace = await (await cluster.start("a")).open_keyspace("visits")
            stream = counting(keyspace, source(log, "*"))
        await counted(keyspace, log.counts)
        await until(lambda: [s.split for s in stream.status()] == [str(tmp_path / "other.txt")])


async def test_a_file_that_is_moved_away_or_deleted_is_read_to_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("visits", partitions=4)
        counting(keyspace, source(log, "app.log"))
        await counted(keyspace, log.counts)
        with log.path.open("a") as writer:
            (tmp_path / "away").mkdir()
            log.path.rename(tmp_path / "away" / "x").unlink()
            await trio.sleep(5)
            writer.write('{"key": "key-0"}\n')
            log.counts["key-0"] += 1
        log.add(LINES)
        await counted(keyspace, log.counts)


async def test_a_source_is_closed_only_at_its_mark() -> None:
    async with a_cluster() as cluster:
        keyspace = await (await cluster.start("a")).open_keyspace("visits", partitions=1)
        await all_online(keyspace, "a")

        async def write(after: int, upto: int) -> object:
            return (await keyspace.write({0: [Write("", 0, (), span=Span("s/x", after, upto))]}))[
                0
            ][0]

        assert not isinstance(await write(0, 7), SpanRefused)
        assert isinstance(await write(5, MARK_CLOSED), SpanRefused)  # 7 would count again
        assert not isinstance(await write(7, MARK_CLOSED), SpanRefused)
        assert await write(7, 9) == Outcome((MARK_CLOSED,), repeated=True)


async def test_a_dataflow_follows_files_too(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        flow = start_dataflow(node, source(log, "app.log*"), count, name="f", every_s=0.1)
        await until(lambda: flow.state() == log.counts)
        for way in WAYS[:3]:
            log.add(LINES)
            way(log)
            log.add(LINES)
            await until(lambda: flow.state() == log.counts)
            log.path.with_name("app.log.1").rename(tmp_path / f"app.log.{way.__name__}")
            log.add(1)
            await until(lambda: flow.state() == log.counts)
            log.path.with_name("app.log.1").touch()
        await cluster.stop("a")
        log.add(LINES)
        log.dateext()
        node = await cluster.start("a")
        flow = start_dataflow(node, source(log, "app.log*"), count, name="f", every_s=0.1)
        await until(lambda: flow.state() == log.counts)


async def test_a_dataflow_says_that_it_reads_no_more_in_a_file_whose_copy_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ENDED_S", 0.0)
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        flow = start_dataflow(node, source(log, "app.log*"), count, name="f", every_s=0.1)
        await until(lambda: flow.state() == log.counts)
        kept = tmp_path / "kept"
        os.link(log.path, kept)
        log.dateext()
        log.add(LINES)
        await until(lambda: flow.state() == log.counts)
        await until(lambda: MARK_CLOSED in ((flow.record and flow.record.offsets) or {}).values())
        assert flow.status()["trouble"] == ""

        kept.rename(tmp_path / "app.logs")  # as a new file that has its number and first line
        with (tmp_path / "app.logs").open("a") as file:
            file.write('{"key": "key-0"}\n')
        await until(lambda: CLOSED in flow.status()["trouble"])
        assert "app.logs" in flow.status()["trouble"]
        assert flow.state() == log.counts

        (tmp_path / "app.logs").unlink()
        await until(lambda: flow.status()["trouble"] == "")


async def test_nothing_is_late_of_a_file_that_was_there_empty_from_the_beginning(
    tmp_path: Path,
) -> None:
    def add(name: str, *times: int) -> int:
        lines = "".join(json.dumps({"key": "k", "at": at}) + "\n" for at in times)
        with (tmp_path / name).open("a") as file:
            return file.write(lines)

    async def all_read(size: int) -> None:
        def read() -> int:
            offsets = flow.record.offsets.values() if flow.record else ()
            return sum(each for each in offsets if each < MARK_CLOSED)

        await until(lambda: read() == size)
        await another_epoch()
        await another_epoch()  # by now the sink has what there is to be sent

    async def another_epoch() -> None:
        before = flow.record
        await until(lambda: flow.record is not before)

    size = sum(add(name) for name in "abcd")
    hours: list[Any] = []
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name) for name in "ab"]
        for node in nodes:
            flow = start_dataflow(
                node,
                Files(f"{tmp_path}/*", key="key"),
                Tumbling(60, lambda number, _: (number or 0) + 1),
                name="hours",
                sink=lambda sent: hours.extend(value for _, value in sent.rows),
                time="at",
                idle_after_s=1_000.0,
                every_s=0.1,
            )
        await until(lambda: flow.record is not None and len(flow.record.workers) == 2)
        for name in "abc":
            size += add(name, 1, 70, 150)
            await all_read(size)
        assert hours == []
        add("d", 2, 71)
        for name in "abcd":
            add(name, 10_000)
        await until(lambda: len(hours) == 3)
    assert [(each["start"], each["value"]) for each in hours] == [(0, 4), (60, 4), (120, 3)]


async def test_a_cut_that_may_have_lost_lines_is_told_and_begins_anew(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("visits", partitions=4)
        counting(keyspace, source(log, "app.log"))
        await counted(keyspace, log.counts)
        os.truncate(log.path, 0)
        log.add(LINES)
        await counted(keyspace, log.counts)
        answer: Any = await checkup(node, None)
        [text] = answer["flow_troubles"]
        assert f"{log.path} was cut or overwritten" in text


def names(source: Files) -> list[str]:
    return [str(split) for split in source.splits()]


def test_a_new_file_with_the_inode_of_an_old_one_is_another_split(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n2\n")
    [before] = names(Files(str(path), key=str, lines="text"))
    path.write_text("3\n4\n")  # in place: the inode is the same
    [after] = names(Files(str(path), key=str, lines="text"))
    assert before.partition("@")[2] == after.partition("@")[2]
    assert before != after
    path.write_text("3\n4\n5\n")
    assert names(Files(str(path), key=str, lines="text")) == [after]  # it has grown


def test_files_with_equal_heads_are_several_and_links_are_one(tmp_path: Path) -> None:
    for name in ("part-1", "part-10", "x.csv"):
        (tmp_path / name).write_text("head\n")
    os.link(tmp_path / "part-1", tmp_path / "link")
    assert len(names(Files(f"{tmp_path}/*", key=str, lines="text"))) == 3


def test_an_end_without_a_line_end_counts_once_the_file_is_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.add(3, end="")
    state, _ = run_alone(source(log, "app.log"), count)
    assert state == log.counts
    gz = packed(log.path, ".gz")
    log.path.unlink()
    growing = Files(str(gz), key="key")
    [split] = growing.splits()
    assert len(growing.read(split, 0, 9)) == 3
    gz.unlink()

    log.path.write_bytes(b'{"key": "a"}\n{"key": "b"}')
    growing = source(log, "app.log*")
    [split] = growing.splits()
    assert len(growing.read(split, 0, 9)) == 1
    log.create()
    growing.splits()
    assert len(growing.read(split, 0, 9)) == 1  # its writer may still have it open
    os.utime(f"{log.path}.1", (1, 1))  # by the clock of the file server, which may be wrong
    assert len(growing.read(split, 0, 9)) == 1
    monkeypatch.setattr(files, "ENDED_S", 0.0)
    records = growing.read(split, 0, 9)
    assert [record.position for record in records] == [13, 25]
    assert growing.read(split, 25, 9) == []


def test_a_file_that_was_rotated_before_its_first_line_had_an_end_is_read_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.path.write_bytes(b'{"key": "a"}')
    growing = source(log, "app.log*")
    assert growing.splits() == []
    log.create()
    assert growing.splits() == []  # its writer may still have it open
    monkeypatch.setattr(files, "ENDED_S", 0.0)

    [split] = growing.splits()
    records = growing.read(split, 0, 9)

    assert [record.position for record in records] == [12]
    assert growing.splits() == [split]


def test_a_file_that_is_read_elsewhere_by_now_does_not_hide_its_copy_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last line has no end, so it is not read to its end here, and its name is gone."""
    log = Log(tmp_path)
    log.path.write_bytes(b'{"key": "a"}\n{"key": "b"}')
    growing = source(log, "app.log*")
    [split] = growing.splits()
    assert len(growing.read(split, 0, 9)) == 1
    log.create()
    packed(tmp_path / "app.log.1", ".gz")
    (tmp_path / "app.log.1").unlink()
    assert growing.splits() == [split], "the copy waits"

    monkeypatch.setattr(files, "ENDED_S", 0.0)
    [copy] = growing.splits()

    assert copy.label.endswith("app.log.1.gz")
    assert [record.position for record in growing.read(copy, 13, 9)] == [25]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_bomb_takes_no_memory(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SKIP_BYTES_MAX", 16 << 20)
    path = tmp_path / "bomb"
    with path.open("wb") as file:
        file.write(b"x\n")
        file.truncate(64 << 20)
    packed(path, ending)
    path.unlink()
    bombs = Files(f"{tmp_path}/bomb*", key=str, lines="text")
    tracemalloc.start()
    [split] = bombs.splits()
    with pytest.raises(SourceFailed, match="a line has more than"):
        bombs.read(split, 0, 9)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_damaged_archive_says_so(tmp_path: Path, ending: str) -> None:
    log = Log(tmp_path)
    log.add(LINES)
    path = packed(log.path, ending)
    path.write_bytes(path.read_bytes()[:-20])
    archive = source(log, f"*{ending}")
    [split] = archive.splits()
    with pytest.raises(SourceFailed, match=path.name):
        archive.read(split, 0, 1_000)
    path.write_bytes(b"rubbish")
    [split] = archive.splits()
    with pytest.raises(SourceFailed, match=path.name):
        archive.read(split, 0, 9)


def test_a_copy_waits_while_its_original_is_there(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.add(3)
    both = source(log, "*")
    [original] = names(both)
    packed(log.path, ".gz")
    assert names(both) == [original]
    log.path.unlink()
    [copy] = both.splits()
    assert copy.is_copy
    assert original == original_of(copy.alias, int(original.partition("@")[2], 16))
