"""Stores by their URL, and what is wrong with those that name none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ringpop_py.errors import ConfigError
from ringpop_py.state.stores import open_store
from ringpop_py.state.stores.folder import FolderStore
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("{path}/a b", FolderStore),
        ("folder://{path}/a%20b", FolderStore),
        ("folder://{path}/a%20b?quick=false", FolderStore),
        ("folder:{path}/a%20b", FolderStore),
        ("sqlite://{path}/a%20b", SqliteStore),
    ],
)
def test_a_url_opens_the_store_at_its_path(tmp_path: Path, form: str, kind: type) -> None:
    store = open_store(form.format(path=tmp_path))

    assert type(store) is kind
    assert store.put_if_absent("a", b"1")
    store.close()
    assert (tmp_path / "a b").exists()


def test_a_relative_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    for path in ("state", "./state", "a/b:c"):
        store = open_store(path)
        monkeypatch.chdir("/")
        store.put_if_absent("a", b"1")
        monkeypatch.chdir(tmp_path)
        assert os.listdir(path)  # noqa: PTH208


def test_each_store_in_memory_is_a_new_one() -> None:
    one, other = open_store("memory:"), open_store("memory:")

    one.put_if_absent("a", b"1")

    assert isinstance(one, MemoryStore)
    assert other.get("a") is None


def test_a_folder_behind_a_network_can_be_told_to_be_slow(tmp_path: Path) -> None:
    assert open_store(f"folder://{tmp_path}").quick
    assert open_store(f"folder://{tmp_path}?quick=true").quick
    assert not open_store(f"folder://{tmp_path}?quick=false").quick


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "empty"),
        ("postgres://host/table", "there is no 'postgres' among the stores"),
        ("memory:name", "nothing after it"),
        ("memory:?a=b", "no option 'a'; there are: none"),
        ("folder://data/store", "'data' is no host: a path has three slashes"),
        ("folder:", "a path is missing"),
        ("folder:///", "a path is missing"),
        ("sqlite:///%00", "a path is missing"),
        ("folder:///nowhere?quik=true", "no option 'quik'; there are: quick"),
        ("folder:///nowhere?quick=yes", "quick is true or false, not 'yes'"),
        ("folder:///nowhere?quick", "store 'folder:///nowhere"),
        ("folder:///nowhere?quick=true&quick=false", "given twice"),
        ("folder:///nowhere#here", "a #"),
        ("folder://[/", "store 'folder://"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_possible(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)

    assert reason in str(caught.value)
    assert "It may be one of\n  memory:\n" in str(caught.value)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="come from the environment") as caught:
        open_store("folder://user:hunter2@host/path")

    assert "hunter2" not in str(caught.value)
