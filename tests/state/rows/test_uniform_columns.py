"""Values that are alike, read as columns: as they are read one by one, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra: pip install 'ringpop_py[spark]'")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ringpop_py.base.values.packed import decode_value, encode_value  # noqa: E402
from ringpop_py.state.rows.uniform_columns import column_of, columns_of  # noqa: E402

pa.array([""])  # with the first array, pyarrow imports pandas: no hypothesis should wait for it

EDGES = [edge for bits in (5, 7, 8, 15, 16, 31, 32) for edge in (1 << bits, -(1 << bits))]
LONGS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [edge + more for edge in EDGES for more in (-1, 0, 1)]
)
LENGTHS = st.sampled_from([0, 31, 32, 255, 256, 65_535, 65_536])
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "null": (pa.null(), st.none()),
    "bool": (pa.bool_(), st.booleans()),
    "long": (pa.int64(), LONGS),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.large_string(), st.text(max_size=9) | LENGTHS.map(lambda n: "x" * n)),
    "bytes": (pa.large_binary(), st.binary(max_size=9) | LENGTHS.map(bytes)),
}
NAMES = st.sampled_from(["", "n", "eightlong", "ü" * 20, "of several words, and 32 bytes !"])


def packed(rows: list[Any]) -> Any:  # noqa: ANN401 - pyarrow has no types
    return pa.array([encode_value("msgpack", row) for row in rows], pa.large_binary())


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_values_of_one_kind_are_a_column(kind: str, data: st.DataObject) -> None:
    stored, values = KINDS[kind]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=9))
    start = data.draw(st.integers(0, len(rows) - 1))

    column = column_of(packed(rows).slice(start), stored)

    assert column is not None
    assert column.type == stored
    assert column.to_pylist() == rows[start:]


@given(data=st.data())
def test_maps_of_the_same_fields_are_columns(data: st.DataObject) -> None:
    fields = data.draw(st.dictionaries(NAMES, st.sampled_from(sorted(KINDS)), max_size=4))
    asked = data.draw(st.sets(st.sampled_from([*fields, "another"])))
    count = data.draw(st.integers(1, 5))
    rows = [
        {name: data.draw(st.none() | KINDS[kind][1]) for name, kind in fields.items()}
        for _ in range(count)
    ]

    found = columns_of(
        packed(rows), {name: KINDS[fields.get(name, "long")][0] for name in sorted(asked)}
    )

    assert found is not None
    for name in asked:
        assert found[name].to_pylist() == [row.get(name) for row in rows]


@pytest.mark.parametrize("count", [1, 15, 16, 1_000])
def test_maps_may_have_many_fields(count: int) -> None:
    rows = [{str(n): n * row for n in range(count)} for row in range(3)]

    found = columns_of(packed(rows), {str(count - 1): pa.int64()})

    assert found is not None
    assert found[str(count - 1)].to_pylist() == [0, count - 1, 2 * (count - 1)]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{"n": 1}, {"n": 1.5}], pa.int64()),
        ([{"n": 1}, {"n": True}], pa.int64()),
        ([{"n": 1.5}, {"n": 1}], pa.float64()),
        ([{"n": 1 << 63}], pa.int64()),
        ([{"n": "x"}, {"n": b"x"}], pa.large_string()),
        ([{"n": 1}, {"m": 1}], pa.int64()),
        ([{"n" * 90: 1}, {"m": 1}], pa.int64()),
        ([{"n": 1}, {"n": 1, "m": 1}], pa.int64()),
        ([{"n": 1, "m": 1}, {"m": 1, "n": 1}], pa.int64()),
        ([{"n": 1}, None], pa.int64()),
        ([{"n": 1}, 7], pa.int64()),
        ([7], pa.int64()),
        ([{"n": 1, "m": [1]}], pa.int64()),
        ([{str(n): n for n in range(1_001)}], pa.int64()),
        ([], pa.int64()),
    ],
)
def test_maps_that_are_not_alike_are_left_to_others(rows: list[Any], kind: Any) -> None:  # noqa: ANN401
    assert columns_of(packed(rows), {"n": kind}) is None


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4), st.sampled_from(sorted(KINDS)))
def test_any_bytes_are_read_or_left_to_others(rows: list[bytes], kind: str) -> None:
    column_of(pa.array(rows, pa.large_binary()), KINDS[kind][0])
    columns_of(pa.array(rows, pa.large_binary()), {"n": KINDS[kind][0]})


@given(data=st.data())
def test_damaged_maps_are_left_to_others_or_still_maps(data: st.DataObject) -> None:
    whole = encode_value("msgpack", {"n": 300, "t": "text"})
    at, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    damaged = whole[:at] + bytes([byte]) + whole[at + 1 :]

    kinds = {"n": pa.int64(), "t": pa.large_string()}
    found = columns_of(pa.array([whole, damaged, whole], pa.large_binary()), kinds)

    if found is not None:
        row = {name: column[1].as_py() for name, column in found.items()}
        assert row == decode_value("msgpack", damaged)


@pytest.mark.parametrize(
    "broken", [b"\xa1\xff", b"\xc1", b"\xd9\x05x", b"\xcb\x00", b"\x01\x02", b""]
)
def test_a_malformed_value_is_left_to_others(broken: bytes) -> None:
    for kind, _ in KINDS.values():
        assert column_of(pa.array([broken, broken], pa.large_binary()), kind) is None
