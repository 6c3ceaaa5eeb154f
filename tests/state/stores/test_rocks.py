"""Entries in RocksDB: as those in memory, frozen as of a moment, and gone after a restart."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringpop_py.base.errors import ConfigError, PartitionUnavailable
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.state.table.aggregations import ABSENT, Aggregations
from ringpop_py.state.table.entries import Frozen, MemoryEntries
from ringpop_py.state.table.keyed import KeyedState

pytest.importorskip("rocksdict", reason="the extra `rocks` is not installed")

from ringpop_py.state.stores.rocks import RocksDatabase
from tests.state.table.reading import rows_in, value_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = st.text("aé\U0001f600\uffff", max_size=3)
STEPS = st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=2)), st.lists(KEYS)))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksDatabase]:
    database = RocksDatabase(tmp_path_factory.mktemp("rocks"))
    yield database
    database.close()


def contents(frozen: Frozen, bytes_max: int = 100) -> dict[str, bytes]:
    pieces = frozen.pieces(bytes_max)
    return {key: value for piece in pieces for key, value in zip(*piece, strict=True)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, KEYS, KEYS, KEYS | st.none(), st.integers(0, 4))
def test_entries_in_a_database_are_as_those_in_memory(
    database: RocksDatabase,
    steps: list[tuple[dict[str, bytes], list[str]]],
    prefix: str,
    start: str,
    end: str | None,
    limit: int,
) -> None:
    neighbour, entries, memory = database.entries(), database.entries(), MemoryEntries()
    neighbour.write({"a": b"neighbour"}, ())

    for changed, deleted in steps:
        gone = [key for key in deleted if key not in changed]
        for each in (entries, memory):
            each.write(changed, gone)
        assert len(entries) == len(memory)

    assert entries.scan(prefix, start, end, limit) == memory.scan(prefix, start, end, limit)
    assert contents(entries.freeze()) == contents(memory.freeze())
    assert {key: entries.get(key) for key in ["a", "aa", "é"]} == {
        key: memory.get(key) for key in ["a", "aa", "é"]
    }
    assert contents(neighbour.freeze()) == {"a": b"neighbour"}


def test_frozen_rows_are_of_their_moment_whatever_happens_before_they_are_read(
    database: RocksDatabase,
) -> None:
    entries = database.entries()
    values = {f"key-{n:03}": b"old" for n in range(100)}
    entries.write(values, ())
    whole, some = entries.freeze(), entries.freeze(["key-007", "key-003"])

    entries.write({"key-003": b"new", "key-1": b"new"}, ["key-007"])
    reading = whole.pieces(200)
    first_keys, _ = next(reading)
    entries.clear()
    database._database.flush()
    entries.write({"key-050": b"after"}, ())

    rest = {key: value for piece in reading for key, value in zip(*piece, strict=True)}
    assert {**dict.fromkeys(first_keys, b"old"), **rest} == values
    assert contents(some) == {"key-003": b"old", "key-007": b"old"}
    assert (len(whole), len(some)) == (100, 2)
    assert contents(entries.freeze()) == {"key-050": b"after"}


def test_frozen_rows_may_be_read_by_another_thread(database: RocksDatabase) -> None:
    entries = database.entries()
    entries.write({"a": b"1", "b": b"2"}, ())
    frozen = entries.freeze()
    found: list[dict[str, bytes]] = []

    thread = threading.Thread(target=lambda: found.append(contents(frozen)))
    thread.start()
    thread.join()

    assert found == [{"a": b"1", "b": b"2"}]


def test_pieces_are_of_bounded_size(database: RocksDatabase) -> None:
    entries = database.entries()
    entries.write({f"{n:02}": bytes(50) for n in range(20)} | {"large": bytes(500)}, ())

    counts = [len(keys) for keys, _ in entries.freeze().pieces(200)]

    assert counts == [2] * 10 + [1]


def test_entries_that_were_cleared_are_empty_and_go_on(database: RocksDatabase) -> None:
    entries = database.entries()
    entries.write({"a": b"1"}, ())

    entries.clear()
    emptied = (len(entries), entries.get("a"), entries.scan("", "", None, 5))
    entries.write({"b": b"2"}, ["a"])

    assert emptied == (0, None, [])
    assert (len(entries), entries.scan("", "", None, 5)) == (1, [("b", b"2")])


def test_a_keyed_state_in_a_database_is_as_one_in_memory(database: RocksDatabase) -> None:
    states = [
        KeyedState(msgpack.packb, Aggregations(), keys_max=9, entries=entries)
        for entries in (database.entries(), MemoryEntries())
    ]
    for state in states:
        for step in range(30):
            changes = (
                Change(f"key-{step % 7}", "add", step),
                Change(f"key-{step % 11}", "append" if step % 2 else "delete", step),
            )
            body, _ = state.stage([Write("client", step, changes)])
            if body is not None:
                state.apply(body)
    one, other = states

    assert rows_in(one) == rows_in(other)
    assert value_in(one, "\ud800") is ABSENT
    restored = KeyedState(msgpack.packb, Aggregations(), entries=database.entries())
    restored.restore([one.snapshot()])
    assert rows_in(restored) == rows_in(one)


def test_nothing_is_left_after_a_restart(tmp_path: Path) -> None:
    first = RocksDatabase(tmp_path)
    first.entries().write({"a": b"1"}, ())
    first._database.flush()
    first._lock.close()  # as if the process had ended

    second = RocksDatabase(tmp_path)

    assert second.entries().get("a") is None
    assert len(list(tmp_path.glob("entries-*"))) == 1
    second.close()
    first._database.close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_folder_is_used_once_at_a_time(tmp_path: Path) -> None:
    database = RocksDatabase(tmp_path)
    database.entries().write({"a": b"1"}, ())

    with pytest.raises(ConfigError, match="another process"):
        RocksDatabase(tmp_path)

    database.close()
    RocksDatabase(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="cannot keep entries"):
        RocksDatabase(tmp_path / "file" / "folder")


def test_a_database_that_does_not_open_leaves_the_folder_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "entries-taken").touch()
    with monkeypatch.context() as patch:
        patch.setattr("secrets.token_hex", lambda _: "taken")
        with pytest.raises(ConfigError, match="cannot open"):
            RocksDatabase(tmp_path)

    RocksDatabase(tmp_path).close()


def test_a_database_that_fails_says_so_in_our_words(tmp_path: Path) -> None:
    database = RocksDatabase(tmp_path)
    entries = database.entries()
    database.close()

    for failing in (
        lambda: entries.get("a"),
        lambda: entries.write({"a": b"1"}, ()),
        lambda: entries.scan("", "", None, 1),
        entries.freeze,
    ):
        entries.failed = False
        with pytest.raises(PartitionUnavailable, match="local database"):
            failing()
        assert entries.failed, "its partition cannot stay here"
    entries.clear()
    assert not entries.failed


def test_there_is_no_journal(tmp_path: Path) -> None:
    database = RocksDatabase(tmp_path)
    database.entries().write({f"{n}": bytes(1_000) for n in range(100)}, ())

    journals = [path.stat().st_size for path in tmp_path.glob("entries-*/*.log")]

    assert sum(journals) < 1_000
    database.close()


def test_entries_of_a_broken_database_can_be_given_up(tmp_path: Path) -> None:
    broken = RocksDatabase(tmp_path)
    entries = broken.entries()
    entries.write({"k": b"1"}, ())
    broken.close()

    entries.clear()

    assert len(entries) == 0
    with pytest.raises(PartitionUnavailable):
        entries.get("k")
