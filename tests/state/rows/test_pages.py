"""Columns of keys and values at their owner, without a network."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.base.values.operations import Change, Write
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.state.rows.pages import (
    MISSING,
    PART_BYTES_MAX,
    Columns,
    ColumnsOf,
    ColumnsRequest,
    Room,
    columns_in,
    fitting,
)
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState

KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


def state_of(rows: dict[str, bytes]) -> KeyedState:
    pack = lambda value: encode_value("msgpack", value)  # noqa: E731
    state = KeyedState(pack, Aggregations())
    changes = tuple(Change(key, "put", value) for key, value in rows.items())
    state.apply(state.stage([Write("test", 0, changes)])[0])
    return state


def sizes_in(numbers: bytes) -> list[int]:
    return array("I", numbers).tolist()


def rows_in(columns: Columns) -> list[tuple[str, bytes]]:
    rows, key_at, value_at = [], 0, 0
    sizes = zip(sizes_in(columns.key_sizes), sizes_in(columns.value_sizes), strict=True)
    for key_size, value_size in sizes:
        key = columns.keys[key_at : key_at + key_size].decode()
        value = decode_value("msgpack", columns.values[value_at : value_at + value_size])
        rows.append((key, value))
        key_at, value_at = key_at + key_size, value_at + value_size
    return rows


@given(st.dictionaries(KEYS, st.binary(max_size=9)), st.integers(1, 100))
def test_a_scan_goes_on_where_it_stopped_until_all_was_seen(
    rows: dict[str, bytes], bytes_max: int
) -> None:
    state = state_of(rows)

    start, more = "", True
    seen: list[tuple[str, bytes]] = []
    while more:
        columns = columns_in(list(Room(bytes_max).columns_of(state, start)), start)
        found, more = rows_in(columns), columns.more
        assert len(found) <= 1 or sum(len(k.encode()) for k, _ in found) <= bytes_max
        seen += found
        start = seen[-1][0] + "\0" if seen else ""

    assert sorted(seen) == sorted(rows.items())


def test_named_keys_have_their_values_in_order_and_a_mark_where_there_is_none() -> None:
    state = state_of({"a": b"1", "b": b"22"})
    wanted = ("b", "none", "a")

    columns = Room(PART_BYTES_MAX).columns_of(state, wanted)

    assert sizes_in(columns.value_sizes) == [4, MISSING, 3]
    assert columns.values == encode_value("msgpack", b"22") + encode_value("msgpack", b"1")
    assert (columns.keys, columns.key_sizes) == (b"", b"")


def test_of_named_keys_only_those_are_answered_for_that_there_is_room_for() -> None:
    state = state_of(dict.fromkeys("abc", b"x" * 8))

    some = Room(25).columns_of(state, ("a", "none", "b", "c"))
    one = Room(1).columns_of(state, ("a", "b"))

    assert sizes_in(some.value_sizes) == [10, MISSING, 10]
    assert sizes_in(one.value_sizes) == [10]


def test_rows_that_an_answer_has_no_room_for_have_to_be_asked_for_again() -> None:
    state = state_of(dict.fromkeys("abc", b"x" * 8))
    room = Room(100, 60)

    first, second, named, last = [room.columns_of(state, w) for w in ("", "", ("a", "b"), "b")]

    assert (len(rows_in(first)), first.more) == (3, False)
    assert second == Columns(b"", b"", b"", b"", more=True)
    assert named == last._replace(more=False) == Columns(b"", b"", b"", b"", more=False)


def test_the_first_part_has_a_row_however_large_it_is() -> None:
    state = state_of({"a": b"x" * 1_000, "b": b""})

    assert Room(10, 10).columns_of(state, "").more
    assert len(Room(10, 10).columns_of(state, "").values) > 1_000
    assert len(Room(2_000, 10).columns_of(state, "").values) > 1_000


def test_parts_that_an_answer_has_no_room_for_are_to_be_asked_for_again() -> None:
    large = Columns(b"k", bytes(4), bytes(90), bytes(4), more=False)
    named = Columns(b"", b"", bytes(90), bytes(4), more=False)
    small = Columns(b"", b"", b"x", bytes(4), more=False)
    error = ValueError("kept as it is")

    kept = fitting([large, error, named, large, small], ["", "", ("k",), "a", ("k",)], 110)

    assert kept[:2] == [large, error]
    assert kept[2] == Columns(b"", b"", b"", b"", more=False)
    assert kept[3] == Columns(b"", b"", b"", b"", more=True)
    assert kept[4] == small


def test_the_first_part_is_answered_however_large_it_is() -> None:
    large = Columns(b"", b"", bytes(90), bytes(4), more=False)

    assert fitting([large], [("k",)], 10) == [large]


def test_requests_survive_the_wire() -> None:
    request = ColumnsRequest("k", 3, ((0, ""), (7, ("a", "ü"))), 1_000, stale=True)

    assert decode(ColumnsRequest, encode(request)) == request
    part = ColumnsOf(request).only([7])
    assert part == ColumnsRequest("k", 3, ((7, ("a", "ü")),), 1_000, stale=True)


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ([b"", bytes(4), b"", bytes(8), False], ""),
        ([b"", bytes(3), b"", bytes(3), False], ""),
        ([b"", bytes(4), b"", bytes(4), False], ("a",)),
        ([b"", b"", b"", bytes(8), False], ("a",)),
        ([b"", b"", b"", "", False], ("a",)),
        ([b"", b"", b""], ("a",)),
    ],
)
def test_columns_of_different_lengths_are_refused(
    result: list[object], wanted: str | tuple[str, ...]
) -> None:
    with pytest.raises(BodyError):
        columns_in(result, wanted)
