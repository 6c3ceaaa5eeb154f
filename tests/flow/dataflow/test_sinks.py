"""Sinks that fail, and what arrives in spite of that."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.errors import SinkFailed
from ringpop_py.base.values.packed import encode_value
from ringpop_py.dataflow import FileSink, KeyspaceSink, Sent
from ringpop_py.flow.dataflow import sinks
from ringpop_py.flow.dataflow.sinks import GROUP_ROWS, deliver
from ringpop_py.state.stores.memory import StoreFault
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import Callable

SENT = Sent("f", 7, 2, [("k", 1), ("l", 2)])
LINES = b'{"key":"k","value":1}\n{"key":"l","value":2}\n'


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / f"{SENT.id}.jsonl", list[str]()
    fsync, replace = os.fsync, Path.replace

    def synced(number: int) -> None:
        what = Path(f"/proc/self/fd/{number}").readlink()
        content = what.read_bytes() if what.is_file() else b""
        assert content in (b"", LINES)
        steps.append("file" if content else f"folder, {path.exists()}")
        fsync(number)

    def renamed(self: Path, to: Path) -> Path:
        steps.append("name")
        return replace(self, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    FileSink(tmp_path)(SENT)

    assert path.read_bytes() == LINES
    assert steps == ["file", "name", "folder, True"]


@pytest.mark.parametrize(
    "fail",
    [
        lambda patch: patch.setattr(os, "fsync", no_room),
        lambda patch: patch.setattr(Path, "replace", no_room),
    ],
    ids=["while it is written", "while it is named"],
)
def test_a_full_disk_leaves_no_file_and_the_next_try_writes_it(
    fail: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(tmp_path)
    with monkeypatch.context() as patch:
        fail(patch)
        with pytest.raises(SinkFailed, match=f"{SENT.id}.jsonl: No space left on device"):
            sink(SENT)
    assert list(tmp_path.iterdir()) == []

    sink(SENT)

    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == LINES


async def test_an_asynchronous_sink_is_waited_for_and_fails_as_others_do() -> None:
    done: list[str] = []

    async def sink(sent: Sent) -> None:
        await trio.lowlevel.checkpoint()
        if not done:
            done.append("refused")
            raise OSError("not now")
        done.append(sent.id)

    limiter = trio.CapacityLimiter(1)
    with pytest.raises(OSError, match="not now"):
        await deliver(sink, SENT, limiter)
    await deliver(sink, SENT, limiter)

    assert done == ["refused", SENT.id]


@pytest.mark.virtual_time
@pytest.mark.parametrize("fault", [StoreFault.FAILS, StoreFault.LOSES_REPLY, StoreFault.LATE])
async def test_results_change_a_keyspace_once_though_the_store_fails_half_way(
    fault: StoreFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some groups of them are written, and the others are not: all are brought again."""
    monkeypatch.setattr(sinks, "GROUP_ROWS", 3)
    rows = [(f"k{number % 5}", 1) for number in range(20)]
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("totals", partitions=2)
        await all_online(keyspace, "a")
        sink, tries = KeyspaceSink(keyspace, "add"), 0
        for epoch in (1, 2):
            for skipped in range(4):
                cluster.store.inject(fault, count=skipped)
                for _ in range(20):
                    tries += 1
                    with trio.move_on_after(60):
                        try:
                            await sink(Sent("f", epoch, 0, rows))
                        except SinkFailed:
                            continue
                        break
                else:
                    raise AssertionError("it never arrives")
                cluster.store.land_late()
        await sink(Sent("f", 2, 1, rows))  # of another worker
        found = {key: value async for key, value in keyspace.scan()}

    assert found == dict.fromkeys(["k0", "k1", "k2", "k3", "k4"], 3 * 4)


@pytest.mark.virtual_time
async def test_more_results_than_fit_are_refused_before_any_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "ROWS_MAX", 3)
    async with a_cluster() as cluster:
        node = await cluster.start("a")
        keyspace = await node.open_keyspace("totals", partitions=2)
        await all_online(keyspace, "a")
        sink = KeyspaceSink(keyspace, "add")
        with pytest.raises(SinkFailed, match="an epoch has 4 results, of at most 3"):
            await sink(Sent("f", 1, 0, [("k", 1)] * 4))
        assert [row async for row in keyspace.scan()] == []
        for epoch in (1, 2):  # the last position of one is below the first one of the next
            await sink(Sent("f", epoch, 0, [("k", 1)] * 3))
        assert await keyspace.get("k") == 6


@pytest.mark.parametrize("count", [0, 1, GROUP_ROWS, GROUP_ROWS + 1, 3 * GROUP_ROWS])
def test_groups_are_all_rows_in_order_and_fit_into_messages(count: int) -> None:
    rows = [(str(number), b"x" * 50_000 * (number < 200)) for number in range(count)]

    groups = list(sinks._groups(rows))

    assert [row for group in groups for row in group] == rows
    assert all(0 < len(group) <= GROUP_ROWS for group in groups)
    sizes = [len(encode_value("msgpack", group)) for group in groups]
    assert all(size < 2 * sinks.GROUP_BYTES for size in sizes)
