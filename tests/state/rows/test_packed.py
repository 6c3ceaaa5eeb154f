"""Columns packed together equal, byte by byte, the rows packed one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra: pip install 'ringpop_py[spark]'")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ringpop_py.base.errors import BodyError  # noqa: E402
from ringpop_py.base.values.packed import encode_value  # noqa: E402
from ringpop_py.state.rows import packed as columns  # noqa: E402
from ringpop_py.state.rows.packed import pack_column, unpack_column  # noqa: E402

pa.array([""])  # with the first array, pyarrow imports pandas: no hypothesis should wait for it

EDGES = [edge for bits in (5, 7, 8, 15, 16, 31, 32, 63) for edge in (1 << bits, -(1 << bits))]
LONGS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [edge + more for edge in EDGES for more in (-1, 0, 1) if -(1 << 63) <= edge + more < 1 << 63]
)
LENGTHS = st.sampled_from([0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
TEXTS = st.text(max_size=40) | LENGTHS.map(lambda length: "x" * length)
BYTES = st.binary(max_size=40) | LENGTHS.map(bytes)
SCALARS = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int64(), LONGS),
    (pa.uint64(), st.integers(0, (1 << 64) - 1) | LONGS.filter(lambda n: n >= 0)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.large_string(), TEXTS),
    (pa.large_binary(), BYTES),
]


def nested(inner: tuple[Any, Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Kinds that have the kind *inner* in them, and their values."""
    kind, values = inner
    nullable = st.none() | values
    fields = pa.struct([("a", kind), ("ü" * 20, pa.int64())])
    return st.sampled_from(
        [
            (pa.large_list(kind), st.lists(nullable, max_size=20)),
            (
                pa.map_(pa.large_string(), kind),
                st.dictionaries(st.text(max_size=4), nullable, max_size=20),
            ),
            (
                fields,
                st.tuples(nullable, st.none() | LONGS).map(
                    lambda row: {"a": row[0], "ü" * 20: row[1]}
                ),
            ),
        ]
    )


KINDS = st.recursive(st.sampled_from(SCALARS), lambda inner: inner.flatmap(nested), max_leaves=3)


@st.composite
def some_columns(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A column, and its rows."""
    kind, values = draw(KINDS)
    rows = draw(st.lists(st.none() | values, max_size=12))
    column = pa.array(rows, kind)
    start = draw(st.integers(0, len(rows)))
    return column.slice(start), rows[start:]


@given(some_columns())
def test_a_column_is_packed_as_its_rows_are(sample: tuple[Any, list[Any]]) -> None:
    column, rows = sample

    packed = pack_column(column)

    assert packed.to_pylist() == [encode_value("msgpack", row) for row in rows]
    assert unpack_column(packed) == rows


def test_maps_that_hold_maps_of_nothing_but_null_are_packed_from_the_middle() -> None:
    kind = pa.map_(pa.large_string(), pa.map_(pa.large_string(), pa.null()))
    rows = [{"a": {"x": None, "y": None}}, {"b": {"x": None}}, None, {"c": None, "d": {"z": None}}]
    column = pa.array(
        [row and [(k, v and list(v.items())) for k, v in row.items()] for row in rows], kind
    )

    packed = pack_column(column.slice(1))

    assert packed.to_pylist() == [encode_value("msgpack", row) for row in rows[1:]]


def test_slices_that_are_packed_by_themselves_come_to_one_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "SLICE_ROWS", 7)
    rows = [{"n": n * 37, "s": "x" * (n % 40) if n % 3 else None} for n in range(50)]
    column = pa.array(rows, pa.struct([("n", pa.int64()), ("s", pa.large_string())]))

    packed = pack_column(column)

    assert unpack_column(packed) == rows
    assert unpack_column(packed.slice(5, 20)) == rows[5:25]


def test_not_a_number_is_packed_as_it_is() -> None:
    (value,) = unpack_column(pack_column(pa.array([math.nan])))

    assert math.isnan(value)


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x91", b"\x01\x02", b"\x81\x01\x01"])
def test_a_row_that_is_not_one_value_is_refused(packed: bytes) -> None:
    with pytest.raises(BodyError, match="not msgpack values"):
        unpack_column(pa.array([packed], pa.large_binary()))
