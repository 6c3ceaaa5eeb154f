"""What is kept of columns, and what is made of it, if somebody else has left other things there."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.types import StructType

from ringpop_py.spark.options import write_options
from ringpop_py.spark.schemas import struct_of
from ringpop_py.spark.typed import covers, kept_schema, kept_types

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]  # which reads DDL

SCHEMA = "tailnum string, n int, price decimal(9,2), day date, tags array<string>, x float, b byte"


WITH_UDT = (
    '{"single": false, "columns": {"type": "struct", "fields": [{"name": "u", "nullable": true,'
    ' "metadata": {}, "type": {"type": "udt", "pyClass": "no_such_module.X"}}]}}'
)


def left(operation: str, schema: str = SCHEMA, **more: str) -> dict[str, str]:
    options = write_options(
        {"keyspace": "k", "key": "tailnum", "peers": "a:1", "operation": operation, **more}
    )
    kept = kept_schema(options, struct_of(schema))
    types = kept_types([kept], options.value)
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
        '{"columns": {"type": "struct", "fields": []}, "single": true}',
        WITH_UDT,
    ],
)
def test_what_is_no_schema_is_passed_over(schema: str) -> None:
    kept = '{"single":false,"columns":' + StructType.fromDDL("n date").json() + "}"

    assert list(kept_types([schema, kept, schema], None)) == ["n"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["bigint", "int"], "bigint"),
        (["tinyint", "smallint"], "smallint"),
        (["float", "double", "float"], "double"),
        (["decimal(9,2)", "decimal(5,4)"], "decimal(11,4)"),
        (["decimal(38,2)", "decimal(38,10)"], "decimal(38,10)"),
        (["bigint", "date"], "date"),
        (["date", "string"], "string"),
    ],
)
def test_of_several_numbers_the_widest_counts_and_of_others_the_last(
    kinds: list[str], expected: str
) -> None:
    kept = [
        '{"single":false,"columns":' + StructType.fromDDL(f"n {kind}").json() + "}"
        for kind in kinds
    ]

    assert kept_types(kept, None)["n"].simpleString() == expected


def test_null_may_be_anywhere() -> None:
    strict = struct_of("n array<struct<a: map<string, int> not null>> not null")
    strict.fields[0].dataType.containsNull = False  # type: ignore[attr-defined]
    options = write_options({"keyspace": "k", "key": "tailnum", "peers": "a:1"})

    kind = kept_types([kept_schema(options, strict)], None)["n"]

    assert kind == struct_of("n array<struct<a: map<string, int>>>")["n"].dataType


@pytest.mark.parametrize(
    ("kept", "found", "covered"),
    [
        ("struct<a: int, b: int>", "struct<b: bigint>", True),
        ("struct<b: int>", "struct<a: bigint, b: bigint>", False),
        ("array<struct<b: int>>", "array<struct<a: bigint>>", False),
        ("map<string, struct<b: int>>", "struct<k: struct<a: bigint>>", False),
        ("map<string, date>", "struct<k: bigint>", True),
        ("date", "bigint", True),
    ],
)
def test_a_type_that_would_hide_fields_is_not_used(kept: str, found: str, *, covered: bool) -> None:
    one, other = (struct_of(f"n {kind}")["n"].dataType for kind in (kept, found))

    assert covers(one, other) == covered


def test_a_single_value_and_maps_are_told_apart() -> None:
    single = '{"single":true,"columns":' + StructType.fromDDL("n date").json() + "}"

    assert kept_types([single], None) == {}
    assert list(kept_types([single], "v")) == ["v"]
    assert kept_types([single.replace("true", "false")], "v") == {}
