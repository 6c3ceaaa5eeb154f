"""Stores by their URL, and what is wrong with those that name none."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.state.stores import open_store
from ringpop_py.state.stores.folder import FolderStore
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.stores.pieces import PiecedStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("{path}/a b", FolderStore),
        ("folder://{path}/a%20b", FolderStore),
        ("folder://{path}/a%20b?quick=false", FolderStore),
        ("folder:{path}/a%20b", FolderStore),
        ("sqlite://{path}/a%20b", PiecedStore),
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
        ("folder://data/store", "'data' is not a host: a path has three slashes"),
        ("folder:", "a path is missing"),
        ("folder:///", "a path is missing"),
        ("sqlite:///%00", "a path is missing"),
        ("folder:///nowhere?quik=true", "no option 'quik'; there are: quick"),
        ("folder:///nowhere?quick=yes", "quick is true or false, not 'yes'"),
        ("folder:///nowhere?quick", "store 'folder:///nowhere"),
        ("folder:///nowhere?quick=true&quick=false", "given twice"),
        ("folder:///nowhere#here", "a #"),
        ("folder://[/", "store 'folder://"),
        ("s3:///prefix", "a bucket is missing"),
        ("s3://bucket/a b", "'a b' is not a prefix of keys"),
        ("s3://bucket/?allow_http=1", "allow_http is true or false, not '1'"),
        ("s3://bucket/?timeout=1", "no option 'timeout'; there are: endpoint, region, allow_http"),
        ("etcd://127.0.0.1/prefix", "127.0.0.1"),
        ("etcd:///prefix", "store 'etcd:///prefix'"),
        ("etcd://127.0.0.1:1", "a prefix is missing"),
        ("etcd://127.0.0.1:1,/prefix", "store 'etcd://127.0.0.1:1,/prefix'"),
        ("etcd://127.0.0.1:1/a/../b", "'a/../b' is not a prefix of keys"),
    ],
)
def test_a_wrong_url_is_refused_with_those_that_are_possible(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)

    assert reason in str(caught.value)
    assert "; it may be one of memory:, /path, " in str(caught.value)


def test_an_extra_that_is_missing_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ringpop_py.state.stores.s3", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(ConfigError, match=r"obstore.*: pip install 'ringpop_py\[s3\]'"):
        open_store("s3://bucket/prefix")


def test_opening_a_folder_loads_no_client_of_a_network() -> None:
    program = "import ringpop_py.state.stores, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert not set(done.stdout.split()) & {"httpx", "obstore", "trio"}


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="come from the environment") as caught:
        open_store("folder://user:hunter2@host/path")

    assert "hunter2" not in str(caught.value)
