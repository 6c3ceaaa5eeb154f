"""TOML into tables: overrides, the environment, and what is said about mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.config.document import TomlTable, read_document
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.rules import SWITCH, seconds_above_0, whole

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = {"": ("name", "key", "source"), "source": ("format", "options")}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text(
        'name = "job of ${WHO}"\n[source]\nformat = "csv"\n[source.options]\nsep = ","\n'
    )
    return str(path)


def unknown_in(values: dict[str, Any], path: str = "") -> list[str]:
    table = TomlTable(values, path, [])
    table.check_names(KNOWN)
    return table.problems


def test_variables_are_filled_in_from_the_environment(file: str) -> None:
    document = read_document(file, [], {"WHO": "Ada"})

    assert document["name"] == "job of Ada"


def test_a_variable_that_is_not_set_is_told_by_the_place_that_needs_it(file: str) -> None:
    with pytest.raises(ConfigError, match=r"^name: the environment variable WHO is not set$"):
        read_document(file, [], {})


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("source.format=parquet", {"format": "parquet", "options": {"sep": ","}}),
        ("source.options.header=true", {"format": "csv", "options": {"sep": ",", "header": True}}),
        ("source.rows = 7", {"format": "csv", "options": {"sep": ","}, "rows": 7}),
        (
            'source.options."a.b"=s3://x/y',
            {"format": "csv", "options": {"sep": ",", "a.b": "s3://x/y"}},
        ),
        ('source.format="a=b"', {"format": "a=b", "options": {"sep": ","}}),
        (
            "source.options.day=2024-01-01",
            {"format": "csv", "options": {"sep": ",", "day": "2024-01-01"}},
        ),
        ("source={ format = 'orc' }", {"format": "orc", "options": {"sep": ","}}),
    ],
)
def test_an_override_goes_over_what_the_file_says(
    file: str, override: str, expected: dict[str, Any]
) -> None:
    assert read_document(file, [override], {"WHO": ""})["source"] == expected


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("source", "is not KEY=VALUE"),
        ("=1", "is not a name such as"),
        ("a b=1", "is not a name such as"),
        ("name.first=Ada", "'name' is not a table in the file"),
    ],
)
def test_an_override_that_means_nothing_is_refused(file: str, override: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_document(file, [override], {"WHO": ""})


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"name = ", "not TOML"), (b"\xff", "not TOML"), (b"#" * 2_000_000, "larger than")],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=problem):
        read_document(str(path), [], {})


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_document(str(tmp_path / "none.toml"), [], {})


@pytest.mark.parametrize(
    ("values", "path", "problem"),
    [
        ({"nmae": 1}, "", "nmae: unknown; did you mean name?"),
        ({"formt": 1}, "source", "source.formt: unknown; did you mean source.format?"),
        ({"format": 1}, "", "format: unknown; did you mean source.format?"),
        ({"optoins": 1}, "", "optoins: unknown; did you mean source.options?"),
        ({"zzz": 1}, "", "zzz: unknown; there are key, name, source"),
        (
            {"key": 1},
            "source",
            "source.key: unknown; key stands at the top of the file, before the first [table]",
        ),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_known_one(
    values: dict[str, Any], path: str, problem: str
) -> None:
    assert unknown_in(values, path) == [problem]


def test_options_of_others_are_texts_whether_their_dotted_names_are_nested_or_not() -> None:
    values = {"conf": {"spark": {"sql": {"ansi": True, "n": 2}}, "spark.x": 0.5}}
    table = TomlTable(values, "spark", [])

    assert table.options("conf") == {"spark.sql.ansi": "true", "spark.sql.n": "2", "spark.x": "0.5"}
    assert table.problems == []


def test_each_value_of_the_wrong_kind_is_told() -> None:
    table = TomlTable(
        {"a": 1, "b": "", "c": "x", "d": True, "e": -1.0, "f": [1], "g": "one"}, "t", []
    )

    table.text("a")
    table.text("b")
    table.ruled("c", SWITCH, default=False)
    table.ruled("d", whole(1), 1)
    table.ruled("e", seconds_above_0(), 1.0)
    table.texts("f")
    table.choice("g", ("once", "twice"), "once")
    table.table("a")

    assert table.problems == [
        "t.a: is text, not 1",
        "t.b: is empty",
        "t.c: is true or false, not 'x'",
        "t.d: is a whole number, 1 or more, not True",
        "t.e: is a number of seconds above 0, not -1.0",
        "t.f: is a list of texts, not [1]",
        "t.g: is 'once' or 'twice', not 'one'; did you mean 'once'?",
        "t.a: is a table, not 1",
    ]
