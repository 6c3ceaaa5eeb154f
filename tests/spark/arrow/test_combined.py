"""A combined batch has the same effect at its owner as its rows sent one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra: pip install 'ringpop_py[spark]'")
pytest.importorskip("pyspark", reason="pyspark is an extra: pip install 'ringpop_py[spark]'")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ringpop_py.base.errors import BadOperation, ConfigError  # noqa: E402
from ringpop_py.base.values.operations import Change, Outcome, Write  # noqa: E402
from ringpop_py.base.values.packed import decode_value, encode_value  # noqa: E402
from ringpop_py.spark.arrow.combined import (  # noqa: E402
    OF_DECIMALS,
    check_operation,
    combined,
    combined_fields,
)
from ringpop_py.spark.arrow.merging import changes_in  # noqa: E402
from ringpop_py.spark.options import write_options  # noqa: E402
from ringpop_py.state.table.aggregations import FIELDS, Aggregations  # noqa: E402
from ringpop_py.state.table.keyed import KeyedState  # noqa: E402
from tests.state.table.reading import rows_in  # noqa: E402

if TYPE_CHECKING:
    from ringpop_py.spark.arrow.columns import Changes

# With the first array, pyarrow imports pandas, and with the first group 19 modules of its own. That
# took a third of a second in a new environment: no hypothesis should wait for it.
pa.table({"key": [""]}).group_by("key").aggregate([])

KEYS = st.sampled_from(["a", "b", "ü"])
LONGS = st.integers(-5, 5) | st.integers(-(1 << 58), 1 << 58)  # 24 of them have a sum of 64 bits
# Sums of these are exact, in whatever order.
DOUBLES = st.integers(-(1 << 20), 1 << 20).map(lambda n: n / 4) | st.just(math.inf)
TEXTS = st.sampled_from(["", "a", "aa", "b", "ÿ", "Ā", "\ud7ff", "\ue000", "\U00010000"])
ITEMS = st.sampled_from(["x", "y", "z", "ü"])
MONEY = st.decimals(min_value=-999, max_value=999, places=2)
TOP = pa.struct([("n", pa.int32()), ("item", pa.string()), ("score", pa.int64())])
LAST = pa.struct([("n", pa.int32()), ("item", pa.int64())])


def tops(n: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    scores = st.integers(-3, 3) | st.just(-(1 << 63))
    return st.fixed_dictionaries({"n": n, "item": ITEMS, "score": scores})


def lasts(n: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"n": n, "item": st.integers(0, 9)})


CASES = {
    "put": ("put", pa.int64(), LONGS),
    "add longs": ("add", pa.int64(), LONGS),
    "add unsigned": ("add", pa.uint64(), st.integers(0, 1 << 58)),
    "add ints": ("add", pa.int8(), st.integers(-128, 127)),
    "add doubles": ("add", pa.float64(), DOUBLES),
    "max longs": ("max", pa.int64(), LONGS),
    "max doubles": ("max", pa.float64(), st.floats(allow_nan=False)),
    "max text": ("max", pa.string(), TEXTS),
    "min bytes": ("min", pa.binary(), st.binary(max_size=2)),
    "min unsigned": ("min", pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "add decimals": ("add", pa.decimal128(5, 2), MONEY),
    "max decimals": ("max", pa.decimal128(5, 2), MONEY),
    "min decimals": ("min_decimal", pa.decimal128(5, 2), MONEY),
    "count": ("count", pa.string(), TEXTS),
    "append": ("append", pa.int64(), LONGS),
    "last": ("last", LAST, lasts(st.just(2))),
    "last of several n": ("last", LAST, lasts(st.integers(1, 3))),
    "top": ("top", TOP, tops(st.just(2))),
    "top of several n": ("top", TOP, tops(st.integers(1, 3))),
    "union of text": ("union", pa.list_(pa.string()), st.lists(TEXTS, max_size=3)),
    "union of numbers": ("union", pa.list_(pa.float64()), st.lists(DOUBLES, max_size=3)),
    "delete": ("delete", pa.int64(), LONGS),
}
NULL_IS_A_VALUE = ("put", "delete")


class State:
    """Keys and values at an owner."""

    def __init__(self) -> None:
        pack = lambda value: encode_value("msgpack", value)  # noqa: E731
        self._keyed = KeyedState(pack, Aggregations())
        self._sequence = 0

    def change(self, changes: list[tuple[str, str, Any]]) -> None:
        for change in changes:
            write = Write("test", self._sequence, (Change(*change),))
            self._sequence += 1
            body, (outcome,) = self._keyed.stage([write])
            assert isinstance(outcome, Outcome), outcome
            self._keyed.apply(body)

    def apply(self, changes: Changes) -> None:
        keys, values = changes.keys.to_pylist(), changes.values.to_pylist()
        rows = zip(keys, values, strict=True)
        self.change([(k, changes.operation, decode_value("msgpack", v)) for k, v in rows])

    @property
    def values(self) -> dict[str, Any]:
        return dict(rows_in(self._keyed))


def rows_of(rows: list[tuple[str, Any]], kind: Any, name: str = "x") -> Any:  # noqa: ANN401
    schema = pa.schema([("key", pa.string()), (name, kind)])
    return pa.RecordBatch.from_pylist([{"key": k, name: v} for k, v in rows], schema=schema)


def one_by_one(rows: list[tuple[str, Any]], operation: str) -> list[tuple[str, str, Any]]:
    """The changes that all of *rows* would be, without those that have no argument."""
    kept = [row for row in rows if row[1] is not None or operation in NULL_IS_A_VALUE]
    if any(isinstance(value, Decimal) for _, value in kept):
        return [(key, OF_DECIMALS.get(operation, operation), f"{value:f}") for key, value in kept]
    return [(key, operation, value) for key, value in kept]


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
def test_combined_rows_do_what_each_row_would(case: str, data: st.DataObject) -> None:
    """At once, after others; and as they come."""
    operation, kind, arguments = CASES[case]
    some = st.lists(st.tuples(KEYS, st.none() | arguments), max_size=12)
    rows_before, rows = data.draw(some), data.draw(some)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    expected, found = State(), State()
    for state in (expected, found):
        state.change(one_by_one(rows_before, operation))

    expected.change(one_by_one(rows, operation))
    found.apply(combined(rows_of(rows, kind), "key", operation, "x"))

    counts = {key: 0 for key, _ in rows} if operation == "count" else {}
    assert found.values == counts | expected.values

    options = write_options({"keyspace": "k", "key": "key"})
    options = replace(options, operation=operation, value="x")
    if operation == "count":  # which takes no column, but may name one as a field
        options = replace(options, operation=FIELDS, fields={"x": "count"}, value=None)
    options = replace(options, flush_rows=data.draw(st.integers(1, 5)), flush_bytes=1 << 20)
    expected, found = State(), State()
    changes = [(k, "fields", {"x": [o, v]}) for k, o, v in one_by_one(rows, operation)]
    expected.change(changes if operation == "count" else one_by_one(rows, operation))

    batches = [rows_of(rows[start:end], kind) for start, end in pairwise([0, *cuts, len(rows)])]
    for changed in changes_in(options, batches):
        found.apply(changed)

    counted = {key: {"x": 0} for key in counts}
    assert found.values == counted | expected.values


@given(
    rows=st.lists(st.tuples(KEYS, st.none() | LONGS, st.none() | TEXTS), max_size=12),
    flush_rows=st.integers(1, 5),
)
def test_each_field_is_combined_as_it_comes(
    rows: list[tuple[str, int | None, str | None]], flush_rows: int
) -> None:
    fields = {"n": "add", "t": "max", "rows": "count", "p": "put"}
    schema = pa.schema([("key", pa.string()), ("n", pa.int64()), ("p", pa.int64())])
    schema = schema.append(pa.field("t", pa.string()))
    whole = [{"key": k, "n": n, "t": t, "p": n} for k, n, t in rows]
    batches = [pa.RecordBatch.from_pylist([row], schema=schema) for row in whole]
    options = write_options({"keyspace": "k", "key": "key"})
    options = replace(options, operation=FIELDS, fields=fields, flush_rows=flush_rows)
    expected, found = State(), State()
    if batches:
        expected.apply(combined_fields(pa.Table.from_batches(batches), "key", fields))

    for changed in changes_in(options, batches):
        found.apply(changed)

    assert found.values == expected.values


def test_of_many_rows_of_few_keys_one_change_a_key_is_left() -> None:
    batches = [rows_of([(f"k{n % 7}", n) for n in range(100)], pa.int64()) for _ in range(50)]
    options = write_options({"keyspace": "k", "key": "key", "operation": "add", "value": "x"})
    few = list(changes_in(replace(options, flush_rows=100), batches))
    assert [len(each.keys) for each in few] == [7]
    often = list(changes_in(replace(options, flush_rows=100, flush_bytes=1), batches))
    assert [len(each.keys) for each in often] == [7] * 50
    # Rows that have little in common are sent as they come.
    apart = [rows_of([(f"{n}-{m}", n) for n in range(100)], pa.int64()) for m in range(5)]
    sent = list(changes_in(replace(options, flush_rows=100), apart))
    assert [len(each.keys) for each in sent] == [100] * 5


@given(rows=st.lists(st.tuples(KEYS, st.none() | LONGS, st.none() | TEXTS), max_size=12))
def test_each_field_is_combined_by_its_own_operation(
    rows: list[tuple[str, int | None, str | None]],
) -> None:
    operations = {"n": "add", "t": "max", "rows": "count", "all": "append", "p": "put"}
    schema = pa.schema([("key", pa.string()), *((n, pa.int64()) for n in ("n", "all", "p"))])
    whole = [{"key": k, "n": n, "t": t, "all": n, "p": n} for k, n, t in rows]
    batch = pa.RecordBatch.from_pylist(whole, schema=schema.append(pa.field("t", pa.string())))
    expected, found = State(), State()

    for row in whole:
        arguments = {
            name: [operation, row.get(name)]
            for name, operation in operations.items()
            if row.get(name) is not None or operation in ("count", "put")
        }
        expected.change([(str(row["key"]), "fields", arguments)])
    found.apply(combined_fields(batch, "key", operations))

    assert found.values == expected.values


@pytest.mark.parametrize("operation", ["put", "add", "count", "max", "union", "top", "delete"])
def test_a_key_is_sent_once(operation: str) -> None:
    kind, value = (TOP, {"n": 1, "item": "x", "score": 1}) if operation == "top" else (pa.int8(), 1)

    changes = combined(rows_of([("a", value), ("b", value)] * 50, kind), "key", operation, "x")

    assert sorted(changes.keys.to_pylist()) == ["a", "b"]


def test_single_items_are_a_union_too() -> None:
    changes = combined(
        rows_of([("a", "y"), ("a", "x"), ("a", "y")], pa.string()), "key", "union", "x"
    )

    assert decode_value("msgpack", changes.values[0].as_py()) == ["x", "y"]


def test_rows_are_counted_where_no_column_is_named() -> None:
    changes = combined(rows_of([("a", None), ("a", 1)], pa.int64()), "key", "count")

    assert (changes.operation, changes.values.to_pylist()) == ("add", [b"\x02"])


def test_all_other_columns_together_are_an_argument() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [2, 2], "key": ["a", "a"], "item": ["x", "y"]})
    state = State()

    state.apply(combined(batch, "key", "last"))

    assert state.values == {"a": ["x", "y"]}


def test_items_and_scores_that_are_null_are_passed_over() -> None:
    rows = [
        ("a", {"n": 2, "item": item, "score": score}) for item, score in [("x", None), (None, 1)]
    ]

    assert len(combined(rows_of(rows, TOP), "key", "top", "x").keys) == 0


def test_times_are_compared() -> None:
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    rows = rows_of([("a", noon), ("a", noon.replace(hour=13))], pa.timestamp("us", "UTC"))

    (packed,) = combined(rows, "key", "max", "x").values.to_pylist()

    assert decode_value("msgpack", packed) == int(noon.timestamp() + 3600) * 1_000_000


LONG_MAX, UNSIGNED_MAX = (1 << 63) - 1, (1 << 64) - 1


@pytest.mark.parametrize(
    ("kind", "values", "total"),
    [
        (pa.int64(), [LONG_MAX, 1, -1], LONG_MAX),
        (pa.int64(), [LONG_MAX] * 3 + [-LONG_MAX] * 3 + [-LONG_MAX - 1], -LONG_MAX - 1),
        (pa.uint64(), [UNSIGNED_MAX - 1, 1], UNSIGNED_MAX),
    ],
)
def test_sums_up_to_64_bits_are_exact(kind: Any, values: list[int], total: int) -> None:  # noqa: ANN401
    changes = combined(rows_of([("a", value) for value in values], kind), "key", "add", "x")

    assert decode_value("msgpack", changes.values[0].as_py()) == total


@pytest.mark.parametrize(
    ("operation", "kind", "values", "words"),
    [
        ("add", pa.int64(), [LONG_MAX, 1], "the sum does not fit into 64 bits"),
        ("add", pa.int64(), [-LONG_MAX, -2], "the sum does not fit into 64 bits"),
        ("add", pa.uint64(), [UNSIGNED_MAX, 1], "the sum does not fit into 64 bits"),
        ("add", pa.float64(), [math.inf, -math.inf], "infinities of both signs"),
        ("add", pa.float64(), [1.0, math.nan], "it is NaN"),
        ("max", pa.float64(), [math.nan], "it is NaN"),
        ("last", LAST, [{"n": 0, "item": 1}], "n of last is a whole number from 1 to"),
    ],
)
def test_values_that_an_owner_would_refuse_are_refused_with_their_key_and_column(
    operation: str,
    kind: Any,  # noqa: ANN401 - pyarrow has no types
    values: list[Any],
    words: str,
) -> None:
    rows = rows_of([("fine", None), *(("bad", value) for value in values)], kind)

    with pytest.raises(BadOperation, match=f"column 'x', key 'bad': .*{words}"):
        combined(rows, "key", operation, "x")


@pytest.mark.parametrize(
    ("operation", "kind", "words"),
    [
        ("add", pa.string(), "add takes numbers; column 'x' is of type string"),
        ("add", pa.timestamp("us"), "add takes numbers"),
        ("add_decimal", pa.float64(), "add_decimal takes decimals; column 'x' is of type double"),
        ("max", pa.bool_(), "max takes numbers, text, bytes or times"),
        ("min_decimal", pa.string(), "min_decimal takes decimals"),
        ("union", pa.list_(pa.bool_()), "union takes numbers, text, bytes or times, or a list"),
        ("union", pa.list_(pa.decimal128(5, 2)), "union takes numbers"),
        ("last", pa.int64(), "last takes a struct of n, item"),
        ("top", LAST, "top takes a struct of n, item, score"),
        (
            "top",
            pa.struct([("n", pa.int8()), ("item", pa.bool_()), ("score", pa.int8())]),
            "with a number, text, bytes or a time as item",
        ),
        (
            "top",
            pa.struct([("n", pa.int8()), ("item", pa.int8()), ("score", pa.string())]),
            "with a number as score",
        ),
        (
            "last",
            pa.struct([("n", pa.float64()), ("item", pa.int8())]),
            "with a whole number n",
        ),
    ],
)
def test_an_operation_that_cannot_take_a_column_is_refused_beforehand(
    operation: str,
    kind: Any,  # noqa: ANN401 - pyarrow has no types
    words: str,
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_operation(operation, kind, "x")


def test_an_application_s_own_operation_may_take_anything() -> None:
    check_operation("mine", pa.decimal128(5, 2), "x")
    rows = rows_of(
        [("a", Decimal("1.50")), ("a", None), ("a", Decimal("2.00"))], pa.decimal128(5, 2)
    )

    changes = combined(rows, "key", "mine", "x")

    values = [decode_value("msgpack", packed) for packed in changes.values.to_pylist()]
    assert (changes.operation, values) == ("mine", ["1.50", "2.00"])
