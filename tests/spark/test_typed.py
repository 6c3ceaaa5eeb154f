"""Kept columns, and how they are read if another writer has left other things there."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.types import LongType, StructType

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.options import write_options
from ringpop_py.spark.schemas import struct_of
from ringpop_py.spark.typed import covers, kept_in, kept_schema, refuse_other_types, unkept

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]  # which reads DDL

SCHEMA = "tailnum string, n int, price decimal(9,2), day date, tags array<string>, x float, b byte"


WITH_UDT = (
    '{"key": "string", "single": false, "columns": {"type": "struct", "fields": [{"name": "u",'
    ' "nullable": true, "metadata": {}, "type": {"type": "udt", "pyClass": "no_such_module.X"}}]}}'
)


def kept(ddl: str, *, key: str = "string", single: bool = False) -> str:
    says = "true" if single else "false"
    return f'{{"key":"{key}","single":{says},"columns":{StructType.fromDDL(ddl).json()}}}'


def left(operation: str, schema: str = SCHEMA, **more: str) -> dict[str, str]:
    options = write_options(
        {"keyspace": "k", "key": "tailnum", "peers": "a:1", "operation": operation, **more}
    )
    types = kept_in([kept_schema(options, struct_of(schema))]).types(options.value)
    return {name: kind.simpleString() for name, kind in types.items()}


def test_an_operation_says_what_is_left_of_a_type() -> None:
    assert left("put") == {
        "n": "int",
        "price": "decimal(9,2)",
        "day": "date",
        "tags": "array<string>",
        "x": "float",
        "b": "tinyint",
    }
    assert left("n=add,day=max,tags=union,x=add,b=append,rows=count,price=add") == {
        "n": "bigint",
        "day": "date",
        "tags": "array<string>",
        "x": "double",
        "b": "array<tinyint>",
        "rows": "bigint",
        "price": "decimal(38,2)",
    }
    assert left("max_decimal", value="price") == {"price": "decimal(9,2)"}
    assert left("add", value="n") == {"n": "bigint"}


@pytest.mark.parametrize("operation", ["delete", "count", "compare_and_set", "n=last,day=top"])
def test_of_others_nothing_is_kept(operation: str) -> None:
    assert left(operation) == {}


@pytest.mark.parametrize(
    "schema",
    [
        *("", "{", "[]", "7", '{"columns": 1}', '{"columns": {}, "single": false}', "\ud800x"),
        '{"key": "string", "columns": {"type": "struct", "fields": []}, "single": true}',
        WITH_UDT,
    ],
)
def test_a_text_that_is_not_a_schema_is_ignored(schema: str) -> None:
    assert list(kept_in([schema, kept("n date"), schema]).columns) == ["n"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["bigint", "int"], "bigint"),
        (["tinyint", "smallint"], "smallint"),
        (["float", "double", "float"], "double"),
        (["decimal(9,2)", "decimal(5,4)"], "decimal(11,4)"),
        (["decimal(38,2)", "decimal(38,10)"], "decimal(38,10)"),
        (["bigint", "date"], "bigint"),
        (["date", "string"], "date"),
        (["int", "float"], "double"),
        (["bigint", "double"], "bigint"),  # of which a double does not hold each
        (["void", "date"], "date"),
        (["struct<a: int>", "struct<b: date, a: bigint>"], "struct<a:bigint,b:date>"),
        (["array<int>", "array<bigint>"], "array<bigint>"),
        (["map<string, int>", "map<string, date>"], "map<string,int>"),
    ],
)
def test_of_several_numbers_the_widest_counts_and_of_others_the_first(
    kinds: list[str], expected: str
) -> None:
    found = kept_in([kept(f"n {kind}") for kind in kinds])

    assert found.columns["n"].simpleString() == expected


def refused(there: list[str], schema: str, operation: str = "put", **more: str) -> str:
    """Return why a write is refused; empty if it is not."""
    options = write_options(
        {"keyspace": "k", "key": "id", "peers": "a:1", "operation": operation, **more}
    )
    mine = kept_schema(options, struct_of(schema))
    try:
        refuse_other_types(options, mine, kept_in(there))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("there", "schema", "operation"),
    [
        ("n int", "n bigint", "put"),
        ("n bigint", "n tinyint", "put"),
        ("n float", "n double", "put"),
        ("n double", "n int", "max"),
        ("n decimal(9,2)", "n decimal(12,4)", "n=add"),
        ("n decimal(38,2)", "n decimal(12,4)", "n=add"),
        ("n date", "m string", "put"),
        ("n date", "n void", "put"),
        ("n struct<a: int>", "n struct<b: date>", "put"),
        ("n bigint", "n string", "n=last"),  # nobody knows what it leaves
        ("n bigint", "n string", "delete"),
    ],
)
def test_columns_that_can_be_read_together_are_written(
    there: str, schema: str, operation: str
) -> None:
    assert refused([kept(there)], f"id string, {schema}", operation) == ""


@pytest.mark.parametrize(
    ("there", "schema", "operation", "why"),
    [
        ("n int", "n string", "put", "leave string, and keyspace 'k' has it as int"),
        ("n bigint", "n decimal(9,2)", "n=add", "leave decimal.38,2., and .* as bigint"),
        ("n bigint", "n timestamp", "n=max", "operation max would leave timestamp"),
        ("n timestamp", "n timestamp_ntz", "put", "leave timestamp_ntz"),
        ("n bigint", "n double", "n=add", "leave double, and .* as bigint"),
        ("n decimal(20,20)", "n decimal(30,0)", "put", r"CAST\(`n` AS decimal\(20,20\)\)"),
        ("n array<int>", "n string", "n=append", "leave array<string>"),
        ("n struct<a: int>", "n struct<a: string>", "put", "leave struct<a:string>"),
        ("n struct<a: int>", "n map<string, int>", "put", "leave map<string,int>"),
    ],
)
def test_columns_that_no_schema_could_read_are_refused(
    there: str, schema: str, operation: str, why: str
) -> None:
    text = refused([kept("n void"), kept(there)], f"id string, {schema}", operation)

    assert re.search(f"^column 'n': .*{why}", text)
    assert "Nothing was written: cast it, such as CAST(`n` AS " in text


def test_keys_have_the_type_of_the_first_or_a_wider_one() -> None:
    assert refused([kept("n int", key="integer")], "id bigint, n int") == ""
    assert kept_in([kept("", key="integer"), kept("", key="long")]).key == LongType()

    text = refused([kept("n int", key="long"), kept("n int")], "id string, n int")

    assert text.startswith("key column 'id' is of type string, and the keys of keyspace 'k' were")
    assert "written as bigint" in text
    assert "CAST(`id` AS bigint)" in text
    assert "key column" in refused([kept("n int")], "id int, n int", "n=count")


def test_single_values_and_maps_are_not_mixed() -> None:
    single, maps = kept("n date", single=True), kept("n date")

    assert "are one column each" in refused([single], "id string, n date")
    assert "are maps of columns" in refused([maps], "id string, n date", value="n")
    assert "are maps of columns" in refused([maps], "id string", "count")
    assert "column 'n': operation put would leave" in refused(
        [single], "id string, n int", value="n"
    )
    assert refused([single], "id string, m date", value="m") == ""


def test_only_what_is_new_is_kept() -> None:
    there = kept_in([kept("n bigint, d date")])

    assert not unkept(kept("d date, n int"), there)
    assert not unkept("", there)
    assert unkept(kept("more int"), there)
    assert unkept(kept("n bigint"), kept_in([kept("n int")]))


def test_null_may_be_anywhere() -> None:
    strict = struct_of("tailnum string, n array<struct<a: map<string, int> not null>> not null")
    strict.fields[1].dataType.containsNull = False  # type: ignore[attr-defined]
    options = write_options({"keyspace": "k", "key": "tailnum", "peers": "a:1"})

    kind = kept_in([kept_schema(options, strict)]).columns["n"]

    assert kind == struct_of("n array<struct<a: map<string, int>>>")["n"].dataType


@pytest.mark.parametrize(
    ("there", "found", "covered"),
    [
        ("struct<a: int, b: int>", "struct<b: bigint>", True),
        ("struct<b: int>", "struct<a: bigint, b: bigint>", False),
        ("array<struct<b: int>>", "array<struct<a: bigint>>", False),
        ("map<string, struct<b: int>>", "struct<k: struct<a: bigint>>", False),
        ("map<string, date>", "struct<k: bigint>", True),
        ("date", "bigint", True),
    ],
)
def test_a_type_that_would_hide_fields_is_not_used(
    there: str, found: str, *, covered: bool
) -> None:
    one, other = (struct_of(f"n {kind}")["n"].dataType for kind in (there, found))

    assert covers(one, other) == covered


def test_a_single_value_and_maps_are_told_apart() -> None:
    single = kept("n date", single=True)

    assert kept_in([single]).types(None) == {}
    assert list(kept_in([single]).types("v")) == ["v"]
    assert kept_in([kept("n date")]).types("v") == {}
