"""Rows as keys with packed values, and back, without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra: pip install 'ringpop_py[spark]'")
pytest.importorskip("pyspark", reason="pyspark is an extra: pip install 'ringpop_py[spark]'")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ringpop_py.base.errors import (  # noqa: E402
    BadKey,
    BadOperation,
    ConfigError,
    SchemaMismatch,
    StateDamaged,
)
from ringpop_py.base.values.packed import decode_value, encode_value  # noqa: E402
from ringpop_py.spark.arrow import columns  # noqa: E402
from ringpop_py.spark.arrow.columns import (  # noqa: E402
    Changes,
    chunks_of,
    codes_after,
    packed_puts,
    partitions_of,
    unpack_rows,
)
from ringpop_py.spark.arrow.packing import check_columns  # noqa: E402
from ringpop_py.spark.source.scan import infer_schema  # noqa: E402
from ringpop_py.state.placement.keys import Placing, partition_of  # noqa: E402
from ringpop_py.state.rows.stagefile import decode_stage, encode_stage  # noqa: E402

pa.array([""])  # with the first array, pyarrow imports pandas: no hypothesis should wait for it

KEYS = st.text(min_size=1, max_size=8)
NOON = datetime(2013, 1, 1, 12, 30, 0, 1, tzinfo=UTC)
OF_ALL_TYPES = {
    "truth": (pa.bool_(), True),
    "byte": (pa.int8(), -3),
    "long": (pa.int64(), 1 << 62),
    "real": (pa.float32(), 0.5),
    "double": (pa.float64(), 0.1),
    "text": (pa.string(), "ü"),
    "bytes": (pa.binary(), b"\xff"),
    "day": (pa.date32(), date(2013, 12, 31)),
    "moment": (pa.timestamp("us", "UTC"), NOON),
    "on_the_wall": (pa.timestamp("us"), NOON.replace(tzinfo=None)),
    "clock": (pa.time64("us"), time(23, 59)),
    "while_": (pa.duration("us"), timedelta(days=-1)),
    "money": (pa.decimal128(20, 2), Decimal("-12.50")),
    "several": (pa.list_(pa.int32()), [1, None]),
    "days": (pa.list_(pa.date32()), [date(1969, 12, 31)]),
    "struct": (pa.struct([("a", pa.decimal128(5, 1)), ("b", pa.string())]), {"a": None, "b": "x"}),
    "map": (pa.map_(pa.string(), pa.timestamp("us", "UTC")), [("x", NOON), ("y", None)]),
}
SCHEMA = pa.schema(
    [("key", pa.string()), *((name, kind) for name, (kind, _) in OF_ALL_TYPES.items())]
)


def batch(**values: list[Any]) -> Any:  # noqa: ANN401 - pyarrow has no types
    return pa.RecordBatch.from_pydict(values)


def unpacked(changes: Changes) -> dict[str, Any]:
    values = [decode_value("msgpack", packed) for packed in changes.values.to_pylist()]
    return dict(zip(changes.keys.to_pylist(), values, strict=True))


@given(known=st.lists(KEYS, unique=True), texts=st.lists(KEYS))
def test_texts_that_are_known_keep_their_places(known: list[str], texts: list[str]) -> None:
    kind = pa.large_string()

    codes, distinct = codes_after(pa.array(known, kind), pa.array(texts, kind))

    assert distinct.type == kind
    assert distinct.to_pylist() == list(dict.fromkeys([*known, *texts]))
    assert distinct.take(pa.array(codes)).to_pylist() == texts


def test_rows_of_all_types_come_back_as_they_were() -> None:
    full = {"key": "full", **{name: value for name, (_, value) in OF_ALL_TYPES.items()}}
    rows = pa.RecordBatch.from_pylist([full, {"key": "empty"}], schema=SCHEMA)

    changes = packed_puts(rows, "key")
    back = unpack_rows(changes.keys, changes.values, SCHEMA, key="key")

    assert back == rows
    assert back.schema == SCHEMA


def test_rows_without_nested_columns_are_read_the_quick_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = [field for field in SCHEMA if not pa.types.is_nested(field.type)]
    full = {field.name: OF_ALL_TYPES[field.name][1] for field in plain[1:]}
    rows = pa.RecordBatch.from_pylist([{"key": "a", **full}, {"key": "b"}], pa.schema(plain))
    monkeypatch.setattr(columns, "unpack_column", None)

    changes = packed_puts(rows, "key")

    assert unpack_rows(changes.keys, changes.values, rows.schema, key="key") == rows


def test_types_that_msgpack_lacks_are_kept_as_numbers_and_text() -> None:
    rows = batch(key=["k"], day=[date(1970, 1, 2)], moment=[NOON], money=[Decimal("1.50")])

    value = unpacked(packed_puts(rows, "key"))["k"]

    assert value == {"day": 1, "moment": int(NOON.timestamp()) * 10**6 + 1, "money": "1.50"}


def test_one_column_can_be_the_value_as_a_whole() -> None:
    rows = batch(key=["a", "b"], n=[1, None], other=[7, 8])

    changes = packed_puts(rows, "key", "n")
    back = unpack_rows(changes.keys, changes.values, rows.schema.remove(2), key="key", value="n")

    assert unpacked(changes) == {"a": 1, "b": None}
    assert back.to_pylist() == [{"key": "a", "n": 1}, {"key": "b", "n": None}]


@given(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9))))
def test_of_several_rows_of_one_key_the_last_is_put(rows: list[tuple[str, int | None]]) -> None:
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    given_rows = [{"key": key, "n": n} for key, n in rows]

    changes = packed_puts(pa.RecordBatch.from_pylist(given_rows, schema=schema), "key")

    assert len(changes.keys) == len(dict(rows))
    assert unpacked(changes) == {key: {"n": n} for key, n in rows}


def test_a_table_of_several_batches_is_packed_as_one() -> None:
    table = pa.Table.from_batches([batch(key=["a", "b"], n=[1, 2]), batch(key=["a"], n=[3])])

    assert unpacked(packed_puts(table, "key")) == {"a": {"n": 3}, "b": {"n": 2}}


def test_integers_and_bytes_are_keys_as_the_texts_that_they_stand_for() -> None:
    for keys, back in (
        (pa.array([7, -1], pa.int32()), pa.int64()),
        (pa.array([b"7", b"-1"]), None),
    ):
        changes = packed_puts(batch(key=keys, n=[1, 2]), "key")

        assert unpacked(changes) == {"7": {"n": 1}, "-1": {"n": 2}}
        if back is not None:
            schema = pa.schema([("key", back)])
            rows = unpack_rows(changes.keys, changes.values, schema, key="key")
            assert rows.column("key").to_pylist() == [7, -1]


def test_a_key_that_is_no_number_does_not_become_one() -> None:
    keys, schema = pa.array(["x"]), pa.schema([("key", pa.int64())])

    with pytest.raises(SchemaMismatch, match="a key does not fit column 'key' of type int64"):
        unpack_rows(keys, packed({}), schema, key="key")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"key": ["a", None], "n": [1, 2]}, "a row without a key: column 'key' is NULL"),
        ({"key": ["a", ""], "n": [1, 2]}, "a key has 1 to 1024 bytes, not 0: ''"),
        ({"key": ["ü" * 513], "n": [1]}, "a key has 1 to 1024 bytes, not 1026: 'üü"),
        ({"key": ["a", "b"], "n": ["", "x" * (1 << 20)]}, "the value of key 'b' has 10485"),
    ],
)
def test_rows_that_no_keyspace_accepts_are_refused_before_they_are_sent(
    rows: dict[str, list[Any]], words: str
) -> None:
    with pytest.raises((BadKey, BadOperation), match=words):
        packed_puts(batch(**rows), "key")


def test_a_nanosecond_is_not_lost_in_silence() -> None:
    rows = batch(key=["a"], t=pa.array([1], pa.timestamp("ns")))

    with pytest.raises(BadOperation, match=r"column 't' cannot be kept: .* would lose data"):
        packed_puts(rows, "key")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([("key", pa.string()), ("n", pa.int64()), ("n", pa.int64())], "two columns 'n'"),
        ([("key", pa.string()), ("m", pa.map_(pa.int32(), pa.string()))], "'m' is of type map<"),
        ([("key", pa.string()), ("i", pa.month_day_nano_interval())], "which no value can hold"),
        ([("key", pa.string()), ("l", pa.list_(pa.null()))], "whose items have no type"),
        (
            [("key", pa.string()), ("m", pa.map_(pa.string(), pa.struct([("a", pa.null())])))],
            "whose items have no type",
        ),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(schema: list[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_columns(pa.schema(schema), "key")


@given(st.lists(st.text(max_size=20)), st.integers(1, 1 << 16))
def test_keys_are_in_the_partitions_that_everybody_knows(texts: list[str], count: int) -> None:
    found = partitions_of(pa.array(texts, pa.large_string()), Placing(count))

    assert found.tolist() == [partition_of(text, count) for text in texts]


@given(st.lists(st.tuples(KEYS, st.binary(min_size=1, max_size=9)), min_size=1))
def test_chunks_make_a_stage_file_in_which_each_partition_has_its_rows_in_order(
    rows: list[tuple[str, bytes]],
) -> None:
    keys, values = zip(*rows, strict=True)
    changes = Changes("x", pa.array(keys, pa.large_string()), pa.array(values, pa.large_binary()))

    stage = decode_stage(encode_stage("x", chunks_of(changes, Placing(3))))

    for number in range(3):
        found = [
            row
            for chunk in stage.chunks(number)
            for row in zip(chunk.keys.to_pylist(), chunk.values.to_pylist(), strict=True)
        ]
        assert found == [row for row in rows if partition_of(row[0], 3) == number]


def test_chunks_are_as_large_as_they_may_be_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK_BYTES_MAX", 10)
    monkeypatch.setattr(columns, "CHUNK_ROWS_MAX", 3)
    values = [b"x", b"x", b"x", b"x", b"x" * 20, b"x" * 4, b"x" * 4]
    keys = pa.array(["k"] * 7, pa.large_string())

    chunks = chunks_of(Changes("append", keys, pa.array(values, pa.large_binary())), Placing(8))

    sizes = [[len(value) for value in chunk.values.to_pylist()] for chunk in chunks]
    assert sizes == [[1, 1, 1], [1], [20], [4, 4]]


# Reading.


def packed(*values: object) -> Any:  # noqa: ANN401 - pyarrow has no types
    found = [None if value is ... else encode_value("msgpack", value) for value in values]
    return pa.array(found, pa.large_binary())


def read(values: list[Any], *fields: tuple[str, Any], value: str | None = None) -> Any:  # noqa: ANN401
    keys = pa.array([f"k{number}" for number in range(len(values))])
    schema = pa.schema([("key", pa.string()), *fields])
    return unpack_rows(keys, packed(*values), schema, key="key", value=value)


def test_missing_fields_are_null_and_fields_not_asked_for_are_ignored() -> None:
    values = [{"n": 1, "x": 2}, {}, None, ..., {"n": None}, {"m": 5, "l": [1]}]

    rows = read(values, ("n", pa.int64()), ("l", pa.list_(pa.int64())))

    assert rows.column("n").to_pylist() == [1, None, None, None, None, None]
    assert rows.column("l").to_pylist() == [None, None, None, None, None, [1]]
    assert rows.column("key").to_pylist() == [f"k{number}" for number in range(6)]


def test_only_keys_can_be_read() -> None:
    assert read([{"n": 1}, None]).to_pylist() == [{"key": "k0"}, {"key": "k1"}]
    assert read([]).num_rows == 0


def test_whole_numbers_can_be_read_as_doubles() -> None:
    assert read([{"x": 1}, {"x": 1.5}], ("x", pa.float64())).column("x").to_pylist() == [1, 1.5]


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        ({"n": 1.5}, pa.int64(), "value of key 'k2' does not fit column 'n' of type int64: 1.5"),
        ({"n": 2.0}, pa.int64(), "column 'n' of type int64: 2.0"),
        ({"n": True}, pa.int64(), "column 'n' of type int64: True"),
        ({"n": 300}, pa.int8(), r"column 'n' of type int8: 300 \(.*"),
        ({"n": 1 << 63}, pa.int64(), "column 'n' of type int64: 9223372036854775808"),
        ({"n": True}, pa.float64(), "column 'n' of type double: True"),
        ({"n": (1 << 60) + 1}, pa.float64(), "column 'n' of type double: 1152921504606846977"),
        ({"n": 1}, pa.string(), "column 'n' of type string: 1"),
        ({"n": b"x"}, pa.string(), "column 'n' of type string: b'x'"),
        ({"n": "x"}, pa.binary(), "column 'n' of type binary: 'x'"),
        ({"n": "1.234"}, pa.decimal128(5, 2), r"column 'n' of type decimal128\(5, 2\): '1.234'"),
        ({"n": "x"}, pa.decimal128(5, 2), "'x'"),
        ({"n": "2013"}, pa.date32(), "'2013'"),
        (
            {"n": [1, 1.5]},
            pa.list_(pa.int64()),
            r"list<.*>: \[1, 1.5\] \(1.5 in it does not fit int64",
        ),
        ({"n": [1]}, pa.struct([("a", pa.int64())]), r"\[1\]"),
        ({"n": {"a": "x"}}, pa.map_(pa.string(), pa.int64()), "{'a': 'x'}"),
        ([1], pa.int64(), r"the value of key 'k2' is not a map of columns: \[1\]"),
        (7, pa.int64(), "is not a map of columns: 7"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_key_and_column(
    bad: object,
    kind: Any,  # noqa: ANN401 - pyarrow has no types
    words: str,
) -> None:
    with pytest.raises(SchemaMismatch, match=words):
        read([{"n": None}, ..., bad, {}], ("other", pa.int64()), ("n", kind))


# Inference.


def test_a_malformed_value_is_named_with_its_key() -> None:
    keys, values = pa.array(["a", "b", "bad"]), pa.array([b"\xa1x", None, b"\xa2\xff\xfe"])

    with pytest.raises(StateDamaged, match="the value of key 'bad' cannot be read"):
        unpack_rows(keys, values, SCHEMA, key="key", value="text")


def test_a_schema_is_what_a_sample_has_in_common() -> None:
    first = {"n": 1, "x": 1, "t": "a", "b": b"", "f": False, "l": [{"a": 1}], "s": {"q": [1]}}
    second = {"x": 0.5, "l": [], "s": {"r": None}, "nothing": None, "last": 1}

    schema = infer_schema(packed(first, ..., None, second), key="id")

    assert schema == pa.schema(
        [
            ("id", pa.string()),
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("t", pa.string()),
            ("b", pa.binary()),
            ("f", pa.bool_()),
            ("l", pa.list_(pa.struct([("a", pa.int64())]))),
            ("s", pa.struct([("q", pa.list_(pa.int64())), ("r", pa.string())])),
            ("nothing", pa.string()),
            ("last", pa.int64()),
        ]
    )
    assert infer_schema(packed(1, 2.5), key="id", value="v").field("v").type == pa.float64()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([{"a": 1}, {"a": "x"}], "column 'a' has values of int and str: give a schema without it"),
        ([{"a": {"b": [1, [2]]}}], r"column 'a.b\[\]' has values of int and list"),
        (
            [{"a": 1}, 7],
            "values are not maps of columns .such as 7.: name the column .* option value",
        ),
    ],
)
def test_a_sample_with_nothing_in_common_is_refused(values: list[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        infer_schema(packed(*values), key="id")
