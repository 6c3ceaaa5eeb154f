"""Files of keys: their readers, their mistakes, and what an error never shows."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.keys import (
    KEYS_MAX,
    PREFIX,
    ClusterKey,
    is_open,
    new_key,
    read_keys,
    write_keys,
)

if TYPE_CHECKING:
    from pathlib import Path

KEY = ClusterKey(bytes(range(32)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    write_keys(path, (KEY,), replace=False)
    return path


def test_a_written_file_can_be_read_by_its_owner_alone(file: Path) -> None:
    assert read_keys(file) == (KEY,)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["key"]


def test_a_key_is_not_overwritten_unless_that_is_asked_for(file: Path) -> None:
    other = new_key()
    with pytest.raises(ConfigError, match="exists already"):
        write_keys(file, (other,), replace=False)

    assert read_keys(file) == (KEY,)
    write_keys(file, (other, KEY), replace=True)
    assert read_keys(file) == (other, KEY)
    assert [path.name for path in file.parent.iterdir()] == ["key"]


def test_a_key_has_a_name_and_does_not_show_itself() -> None:
    assert KEY.id == ClusterKey(bytes(range(32))).id != new_key().id
    assert repr(KEY) == f"<ClusterKey {KEY.id}>"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_read_is_refused_with_what_to_do(file: Path, mode: int) -> None:
    file.chmod(mode)

    with pytest.raises(ConfigError, match=f"do: chmod 600 {file}"):
        read_keys(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no key is in it"),
        ("# nothing\n\n", "no key is in it"),
        ("# a\nsecret\n", "line 2 is not a key"),
        (f"{PREFIX}c2hvcnQ=\n", "line 1 is not a key"),
        (f"{KEY.line}x\n", "line 1 is not a key"),
        (f"{KEY.line[:-4]}é=\n", "line 1 is not a key"),
        ("".join(f"{new_key().line}\n" for _ in range(KEYS_MAX + 1)), "more than 16 keys"),
    ],
    ids=("empty", "remarks", "word", "short", "long", "not base64", "many"),  # not the random keys
)
def test_a_file_that_is_wrong_says_where_and_shows_nothing_of_it(
    file: Path, content: str, message: str
) -> None:
    file.write_text(content)

    with pytest.raises(ConfigError, match=message) as caught:
        read_keys(file)

    assert "secret" not in str(caught.value)
    assert PREFIX not in str(caught.value).replace(f"{PREFIX}…", "")


def test_no_file_and_a_folder_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_keys(tmp_path / "none")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_keys(tmp_path)


US, ROOT, OURS, THEIRS = 1_000, 0, 2_000, 3_000


@pytest.mark.parametrize(
    ("mode", "owner", "group", "refused"),
    [
        (0o600, US, THEIRS, False),
        (0o400, US, OURS, False),
        (0o640, US, OURS, True),
        (0o604, US, OURS, True),
        (0o440, ROOT, OURS, False),  # as a Secret of Kubernetes has it
        (0o640, ROOT, OURS, False),
        (0o600, ROOT, ROOT, False),
        (0o440, ROOT, THEIRS, True),  # who has it by another way
        (0o660, ROOT, OURS, True),
        (0o450, ROOT, OURS, True),
        (0o444, ROOT, OURS, True),
        (0o442, ROOT, OURS, True),
    ],
)
def test_a_key_is_for_its_owner_or_for_root_and_our_group(
    mode: int, owner: int, group: int, *, refused: bool
) -> None:
    def file(kind: int) -> os.stat_result:
        return os.stat_result((kind | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))

    assert is_open(file(stat.S_IFREG), US, {OURS}) is refused
    assert not is_open(file(stat.S_IFIFO), US, {OURS})  # of a shell: <(…)
    if owner == ROOT:  # for root itself, it is a file like any other
        assert is_open(file(stat.S_IFREG), ROOT, {OURS}) is bool(mode & 0o77)


@pytest.mark.skipif(os.geteuid() != ROOT, reason="only root gives files to root")
def test_a_secret_of_kubernetes_is_read_by_the_group_of_the_pod(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: US)
    monkeypatch.setattr(os, "getgroups", lambda: [OURS])
    for mode, group, refused in (
        (0o440, OURS, False),
        (0o444, OURS, True),
        (0o440, THEIRS, True),
    ):
        os.chown(file, ROOT, group)
        file.chmod(mode)
        if refused:
            with pytest.raises(ConfigError, match="if it is root's, and this process is not"):
                read_keys(file)
        else:
            assert read_keys(file) == (KEY,)
