"""The store in a folder: what is durable when, and what is left where something went wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from ringpop_py.base.errors import ConfigError, StoreFull, StoreRefused, StoreUnavailable
from ringpop_py.state.stores import folder
from ringpop_py.state.stores.folder import LEFTOVER_S, FolderStore
from tests.state.stores.conformance import CHECKS, URL_CHECKS, Check, name_of, process
from tests.state.stores.disks import small_disk

if TYPE_CHECKING:
    from collections.abc import Callable


class Calls:
    """The system calls that matter, in their order, by what they were about."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self._root = str(root)
        fsync, link, unlink, mkdir = os.fsync, os.link, os.unlink, os.mkdir

        def watched_fsync(descriptor: int) -> None:
            self._add("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            fsync(descriptor)

        def watched_link(source: str, target: str) -> None:
            self._add("link", target)
            link(source, target)

        def watched_unlink(path: str) -> None:
            self._add("unlink", path)
            unlink(path)

        def watched_mkdir(path: str, mode: int) -> None:
            self._add("mkdir", path)
            mkdir(path, mode)

        monkeypatch.setattr(os, "fsync", watched_fsync)
        monkeypatch.setattr(os, "link", watched_link)
        monkeypatch.setattr(os, "unlink", watched_unlink)
        monkeypatch.setattr(os, "mkdir", watched_mkdir)

    def _add(self, verb: str, path: str) -> None:
        name = path.removeprefix(self._root)
        self.seen.append(f"{verb} {'NEW' if name.startswith('/+new/') else name or '/'}")


def leftovers(root: Path) -> list[Path]:
    return sorted((root / "+new").iterdir())


def crash_after_link(store: FolderStore, key: str, value: bytes, crash: pytest.MonkeyPatch) -> None:
    """Put as a process does that ends between the link and the sync of the folder."""
    sync = folder._sync

    def end(path: str) -> None:
        if path.endswith(os.path.dirname(key)):  # noqa: PTH120
            raise KeyboardInterrupt
        sync(path)

    with crash.context() as patch:
        patch.setattr(folder, "_sync", end)
        with pytest.raises(KeyboardInterrupt):
            store.put_if_absent(key, value)


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_it_is_a_store(check: Check, tmp_path: Path) -> None:
    check(lambda: FolderStore(tmp_path / "store"))


@pytest.mark.parametrize("check", URL_CHECKS, ids=name_of)
def test_it_outlives_processes(check: Callable[[str], None], tmp_path: Path) -> None:
    check(f"folder://{tmp_path}/store")


def test_nothing_has_its_place_before_it_is_durable_nor_one_name_before_the_place_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    calls = Calls(tmp_path, monkeypatch)

    store.put_if_absent("a/b/c", b"1")

    assert calls.seen == [
        "sync NEW",
        *("mkdir /a", "sync /", "mkdir /a/b", "sync /a"),
        "link /a/b/c+",
        "sync /a/b",
        "unlink NEW",
    ]


def test_a_known_folder_costs_no_further_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    store.put_if_absent("a/b/c", b"1")
    calls = Calls(tmp_path, monkeypatch)

    store.put_if_absent("a/b/d", b"1")

    assert calls.seen == ["sync NEW", "link /a/b/d+", "sync /a/b", "unlink NEW"]


def test_a_refused_put_and_a_read_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    store.put_if_absent("a", b"1")
    calls = Calls(tmp_path, monkeypatch)

    store.put_if_absent("a", b"2")
    store.get("a")
    store.list("")

    assert calls.seen == []


@pytest.mark.parametrize(
    "look",
    [
        lambda store: store.get("a/b"),
        lambda store: store.put_if_absent("a/b", b"2"),
        lambda store: store.list(""),
    ],
    ids=["get", "put", "list"],
)
def test_a_reader_that_sees_a_value_whose_writer_crashed_makes_it_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[FolderStore], object]
) -> None:
    crash_after_link(FolderStore(tmp_path), "a/b", b"1", monkeypatch)
    store = FolderStore(tmp_path)
    calls = Calls(tmp_path, monkeypatch)

    seen = look(store)

    assert seen in (b"1", False, ["a/b"])
    assert calls.seen == ["mkdir /a", "sync /", "sync /a"]


def test_leftovers_are_no_values_and_go_when_they_are_old(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for name, age_s in (("old", LEFTOVER_S + 60), ("young", LEFTOVER_S - 60)):
        file = tmp_path / "+new" / name
        file.write_bytes(b"half a val")
        at_s = file.stat().st_mtime - age_s
        os.utime(file, (at_s, at_s))
    assert store.list("") == []

    FolderStore(tmp_path)

    assert [file.name for file in leftovers(tmp_path)] == ["young"]


def test_leftovers_go_while_a_store_is_at_work_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "TIDY_EVERY_PUTS", 3)
    store = FolderStore(tmp_path)
    (tmp_path / "+new" / "old").touch()
    os.utime(tmp_path / "+new" / "old", (1, 1))

    for number in range(2):
        store.put_if_absent(f"{number}", b"")
    assert len(leftovers(tmp_path)) == 1
    store.put_if_absent("3", b"")

    assert leftovers(tmp_path) == []


def test_a_link_that_was_done_though_it_was_refused_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    link = os.link

    def repeated_by_the_network(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", repeated_by_the_network)

    assert store.put_if_absent("a", b"1") is True
    assert leftovers(tmp_path) == []


def test_a_link_that_failed_after_it_was_done_leaves_the_outcome_open_and_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    link = os.link

    def done_and_failed(source: str, target: str) -> None:
        link(source, target)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", done_and_failed)
        with pytest.raises(StoreUnavailable, match=r"/a\+: Input/output error"):
            store.put_if_absent("a", b"1")

    assert store.get("a") == b"1"
    assert [file.stat().st_nlink for file in leftovers(tmp_path)] == [2]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EROFS, StoreRefused),
        (errno.EACCES, StoreRefused),
        (errno.EPERM, StoreRefused),
        (errno.EIO, StoreUnavailable),
    ],
)
def test_a_link_that_was_not_done_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StoreUnavailable]
) -> None:
    store = FolderStore(tmp_path)

    def fails(source: str, target: str) -> None:
        raise OSError(code, os.strerror(code), source, None, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fails)
        with pytest.raises(StoreUnavailable) as caught:
            store.put_if_absent("a", b"1")

    assert type(caught.value) is kind
    assert leftovers(tmp_path) == []
    assert store.put_if_absent("a", b"2")


def test_a_folder_that_cannot_be_synced_leaves_the_outcome_open_even_if_it_says_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)

    def fails(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(folder, "_sync", fails)
    with pytest.raises(StoreUnavailable) as caught:
        store.put_if_absent("a", b"1")
    with pytest.raises(StoreUnavailable):
        store.get("a")

    assert not isinstance(caught.value, StoreFull)


def test_a_full_disk_is_named_and_takes_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=2) as disk:
        store = FolderStore(disk / "store")
        store.put_if_absent("before", b"1")
        disk.fill()

        with pytest.raises(StoreFull, match=r"/store/a\+: No space left"):
            store.put_if_absent("a", bytes(1 << 19))

        assert store.get("a") is None
        assert leftovers(disk / "store") == []
        assert FolderStore(disk / "store").get("before") == b"1"
        disk.free()
        assert store.put_if_absent("a", b"2")
        assert store.list("") == ["a", "before"]


LIMITED = """
import resource, sys
from ringpop_py.base.errors import StoreFull
from ringpop_py.state.stores import open_store
store = open_store(sys.argv[1])
store.put_if_absent("before", b"1")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    store.put_if_absent("a", bytes(200_000))
except StoreFull as error:
    print(error)
print(store.list(""))
"""


def test_a_value_that_is_larger_than_files_may_be_is_named_and_takes_nothing(
    tmp_path: Path,
) -> None:
    with process(LIMITED, str(tmp_path)) as limited:
        said, _ = limited.communicate(timeout=30)

    assert said == f"folder store: {tmp_path}/a+: File too large\n['before']\n"
    assert leftovers(tmp_path) == []


def test_folders_that_somebody_removed_are_made_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put_if_absent("a/b/c", b"1")
    (tmp_path / "a/b/c+").unlink()
    (tmp_path / "a/b").rmdir()
    (tmp_path / "a").rmdir()

    assert store.put_if_absent("a/b/c", b"2")
    assert store.get("a/b/c") == b"2"


def test_known_folders_are_forgotten_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "FOLDERS_KNOWN_MAX", 4)
    store = FolderStore(tmp_path)

    for number in range(20):
        assert store.put_if_absent(f"{number}/a", b"1")

    assert len(store._known) <= 4
    assert len(store.list("")) == 20


def test_a_folder_in_the_place_of_a_value_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    (tmp_path / "a+").mkdir()

    with pytest.raises(StoreUnavailable, match=r"/a\+: Is a directory"):
        store.get("a")


def test_a_store_that_went_away_is_unavailable(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    (tmp_path / "store/+new").rmdir()
    (tmp_path / "store").rmdir()

    with pytest.raises(StoreUnavailable, match="No such file"):
        store.put_if_absent("a", b"1")


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file/store"):
        with pytest.raises(ConfigError, match=f"folder store {path}: "):
            FolderStore(path)


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(os, "link", fails)

    with pytest.raises(ConfigError, match="hard links"):
        FolderStore(tmp_path)
    assert leftovers(tmp_path) == []


def test_no_file_stays_open(tmp_path: Path) -> None:
    def open_count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    store = FolderStore(tmp_path)
    before = open_count()

    for number in range(50):
        store.put_if_absent(f"a/{number}", b"1")
        store.put_if_absent(f"a/{number}", b"1")
        store.get(f"a/{number}")
        store.get(f"b/{number}")
        store.list("")
    store.delete(store.list(""))

    assert open_count() == before


def test_a_folder_that_is_gone_is_trouble_and_not_empty(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "mounted")
    store.put_if_absent("a/k", b"1")
    (tmp_path / "mounted").rename(tmp_path / "away")

    for ask in (
        lambda: store.get("a/k"),
        lambda: store.list("a/"),
        lambda: store.put_if_absent("a/k", b"2"),
    ):
        with pytest.raises(StoreUnavailable):
            ask()

    (tmp_path / "away").rename(tmp_path / "mounted")
    assert store.get("a/k") == b"1"


def test_another_folder_in_the_place_of_the_store_is_not_taken_for_it(tmp_path: Path) -> None:
    FolderStore(tmp_path / "beneath")  # somebody has used the point of mounting as a store
    store = FolderStore(tmp_path / "mounted")
    (tmp_path / "mounted").rename(tmp_path / "away")
    (tmp_path / "beneath").rename(tmp_path / "mounted")

    for ask in (
        lambda: store.get("a/k"),
        lambda: store.list("a/"),
        lambda: store.put_if_absent("a/k", b"2"),
    ):
        with pytest.raises(StoreUnavailable, match="no longer the folder that was opened"):
            ask()

    assert leftovers(tmp_path / "mounted") == []


class Scanned(list["os.DirEntry[str]"]):
    """What `os.scandir` found, kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_list_shows_a_key_or_the_one_put_behind_it_before_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As checkpoints do: the newer one is put, in a folder of its own, and the older deleted."""
    store = FolderStore(tmp_path)
    store.put_if_absent("ck/1/9", b"old")
    scan = os.scandir

    def scan_while_others_write(path: str) -> object:
        entries = scan(path)
        if path.endswith("ck/"):
            monkeypatch.setattr(os, "scandir", scan)
            found = Scanned(entries)
            store.put_if_absent("ck/2/5", b"new")
            store.delete(["ck/1/9"])
            return found
        return entries

    monkeypatch.setattr(os, "scandir", scan_while_others_write)

    assert store.list("ck/") == ["ck/2/5"]


def modes_in(folder: Path) -> set[int]:
    """The modes of all that is below *folder*, each without what a folder has beyond a file."""
    return {path.stat().st_mode & 0o666 for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("asked", "modes"),
    [(None, {0o600}), (0o755, {0o640}), (0o700, {0o600}), (0o770, {0o660}), (0o777, {0o666})],
)
def test_a_store_is_read_by_whom_its_folder_was_made_for(
    tmp_path: Path, asked: int | None, modes: set[int]
) -> None:
    before = os.umask(0)
    try:
        folder = tmp_path / "above" / "store"
        if asked is not None:
            folder.mkdir(parents=True)
            folder.chmod(asked)
        FolderStore(folder).put_if_absent("a/b", b"1")
    finally:
        os.umask(before)

    assert folder.stat().st_mode & 0o777 == (0o700 if asked is None else asked)
    assert modes_in(folder) == modes
