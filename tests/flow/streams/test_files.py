"""Files as a source: whole lines, their keys, and what is wrong with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import ConfigError, SourceFailed
from ringpop_py.flow.streams.files import LINE_BYTES_MAX, READ_BYTES
from ringpop_py.streams import BadRecord, Files, Record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def read(path: Path, after: int = 0, limit: int = 100, **options: Any) -> Any:  # noqa: ANN401
    source = Files(str(path), **{"key": "k", **options})
    split = next(iter(source.splits()), str(path))
    return source.read(split, after, limit)


def labels(source: Files) -> list[str]:
    return [split.label for split in source.splits()]


def test_a_position_is_the_end_of_a_line_and_reading_goes_on_there(path: Path) -> None:
    path.write_text('{"k": "é"}\n\n{"k": 7}\r\n{"k": "c"}\n')

    first, second, third = read(path)

    assert first == Record(12, "é", {"k": "é"}, 12)
    assert second == Record(23, "7", {"k": 7}, 10)
    assert third.position == path.stat().st_size
    assert read(path, limit=2) == [first, second]
    assert read(path, after=12) == [second, third]
    assert read(path, after=third.position) == []


def test_a_line_without_its_end_is_not_read_until_it_has_one(path: Path) -> None:
    path.write_text('{"k": "a"}\n{"k": "b"}')
    assert [record.key for record in read(path)] == ["a"]

    with path.open("a") as file:
        file.write("\n")
    assert [record.key for record in read(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "JSON"),
        ('{"x": 1}', "it has no field 'k'"),
        ("[1]", "it has no field 'k'"),
        ('{"k": ""}', "its key is ''"),
        ('{"k": true}', "its key is True"),
        ('{"k": 1.5}', "its key is 1.5"),
    ],
)
def test_a_line_that_cannot_be_used_says_why(path: Path, line: str, why: str) -> None:
    path.write_text(f'{line}\n{{"k": "a"}}\n')

    bad, good = read(path)

    assert isinstance(bad, BadRecord)
    assert why in bad.why
    assert (bad.position, bad.text) == (len(line) + 1, line)
    assert good.key == "a"


def test_lines_of_text_have_a_key_by_a_function(path: Path) -> None:
    path.write_bytes(b"GET /a\nPUT\n\xff\n")

    records = read(path, key=lambda line: line.split()[1], lines="text")

    assert records[0] == Record(7, "/a", "GET /a", 7)
    assert records[1].why == "the key cannot be found: IndexError: list index out of range"
    assert "utf-8" in records[2].why


def test_only_so_much_is_read_at_a_time(path: Path) -> None:
    line = json.dumps({"k": "a", "x": "x" * 900_000}) + "\n"
    path.write_text(line * 9)

    first = read(path)

    assert len(first) == READ_BYTES // len(line) + 1
    assert len(read(path, after=first[-1].position)) == 9 - len(first)


def test_files_are_found_when_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Files(f"{tmp_path}/**/*.jsonl", key="k")
    assert source.splits() == []
    (tmp_path / "x").mkdir()
    for name in ("b.jsonl", "x/a.jsonl", "c.txt"):
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "d.jsonl").mkdir()
    assert labels(source) == [f"{tmp_path}/b.jsonl", f"{tmp_path}/x/a.jsonl"]

    monkeypatch.chdir(tmp_path)
    assert labels(Files("*.jsonl", key="k")) == ["b.jsonl"]


def test_a_file_without_a_line_is_awaited_and_no_split_yet(path: Path) -> None:
    source = Files(str(path), key="k")
    for text, awaits in (("", True), ("{", True), ("{}\n", False)):
        path.write_text(text)
        assert (len(source.splits()), source.awaits) == (0 if awaits else 1, awaits)
    (path.parent / "a.jsonl.tmp").touch()  # beside those that match
    source.splits()
    assert not source.awaits
    path.write_text("")
    bounded = source.bounded()
    assert (bounded.splits(), bounded.awaits) == ([], False)


def test_an_error_says_what_is_wrong_with_a_file(path: Path) -> None:
    with pytest.raises(SourceFailed, match="No such file"):
        read(path)
    path.write_text('{"k": "a"}\n')
    with pytest.raises(SourceFailed, match="less than the 12 bytes that were read before"):
        read(path, after=12)
    with pytest.raises(SourceFailed, match="no end of a line at 3"):
        read(path, after=3)


def test_a_line_that_is_too_long_is_left_out(path: Path) -> None:
    path.write_text("x" * (LINE_BYTES_MAX + 9))
    assert read(path) == []
    path.write_text("x" * (LINE_BYTES_MAX + 9) + '\n{"k": "a"}\n')
    bad, good = read(path)
    assert bad.why == f"the line has {LINE_BYTES_MAX + 10} bytes, of at most {LINE_BYTES_MAX}"
    assert (bad.position, good.key) == (LINE_BYTES_MAX + 10, "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lines": "csv"}, "json or text"),
        ({"lines": "text"}, "a line of text has no fields"),
        ({"key": 1}, "the name of a field, or a function"),
        ({"pattern": ""}, "is empty"),
    ],
)
def test_wrong_options_of_a_source_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Files(**{"pattern": "*", "key": "k", **options})
