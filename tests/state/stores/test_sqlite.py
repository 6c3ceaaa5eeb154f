"""The store in a file of SQLite."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ConfigError, StoreFull, StoreUnavailable
from ringpop_py.state.stores import sqlite
from ringpop_py.state.stores.sqlite import SqliteStore
from tests.state.stores.conformance import CHECKS, URL_CHECKS, Check, name_of, process
from tests.state.stores.disks import small_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_it_is_a_store(check: Check, tmp_path: Path) -> None:
    check(lambda: SqliteStore(tmp_path / "store.db"))


@pytest.mark.parametrize("check", URL_CHECKS, ids=name_of)
def test_it_outlives_processes(check: Callable[[str], None], tmp_path: Path) -> None:
    check(f"sqlite://{tmp_path}/store.db")


def test_a_full_disk_is_named_and_takes_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=4) as disk:
        store = SqliteStore(disk / "store.db")
        store.put_if_absent("before", b"1")
        disk.fill()

        with pytest.raises(StoreFull, match=r"store\.db: .*full"):
            store.put_if_absent("a", bytes(1 << 20))

        assert store.get("a") is None
        assert store.get("before") == b"1"
        disk.free()
        assert store.list("") == ["before"]
        assert store.put_if_absent("a", b"2")
        store.close()


def test_another_process_that_holds_the_lock_makes_it_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 0.02)
    store = SqliteStore(tmp_path / "store.db")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="locked"):
        store.put_if_absent("a", b"1")
    assert store.get("a") is None

    other.execute("ROLLBACK")
    other.close()
    assert store.put_if_absent("a", b"1")
    store.close()


def test_a_put_is_done_soon_after_another_process_has_released_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            other.execute("ROLLBACK")

    monkeypatch.setattr(time, "sleep", sleep)

    assert store.put_if_absent("a", b"1")

    assert slept == [sqlite.POLL_S] * 3
    other.close()
    store.close()


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database" * 100)

    with pytest.raises(ConfigError, match=r"store\.db: file is not a database"):
        SqliteStore(tmp_path / "store.db")


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unable to open"):
        SqliteStore(tmp_path)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_deleted_or_replaced_takes_and_shows_nothing(
    tmp_path: Path,
    replaced: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.put_if_absent("a", b"1")
    aside = tmp_path / "aside"
    (tmp_path / "store.db").rename(aside)
    if replaced:
        SqliteStore(tmp_path / "another.db").close()
        (tmp_path / "another.db").rename(tmp_path / "store.db")

    for call in (
        lambda: store.put_if_absent("b", b"1"),
        lambda: store.get("b"),
        lambda: store.list(""),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(StoreUnavailable, match=r"store\.db.*(No such file|no longer the file)"):
            call()

    aside.rename(tmp_path / "store.db")
    assert store.list("") == ["a"]
    store.close()


OPENER = """
import sys
from ringpop_py.state.stores import open_store
print("ready", flush=True)
for line in sys.stdin:
    store = open_store(line.strip())
    store.put_if_absent("a", b"1")
    store.close()
    print("done", flush=True)
"""


def test_processes_may_open_a_new_one_at_the_same_time(tmp_path: Path) -> None:
    with process(OPENER) as one, process(OPENER) as two:
        processes = [one, two]
        for each in processes:
            assert each.stdout
            assert each.stdout.readline() == "ready\n"

        for number in range(20):
            for each in processes:
                assert each.stdin
                each.stdin.write(f"sqlite://{tmp_path}/{number}.db\n")
                each.stdin.flush()
            for each in processes:
                assert each.stdout
                assert each.stdout.readline() == "done\n"


def test_a_database_is_its_owners_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    store.put_if_absent("a", b"1")

    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    store.close()
