"""Changes of many numbers do what they do one by one: to the last byte, refusals included."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.base.values.operations import Outcome, PackedWrite
from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.rows.vectors import FIELDS_MAX, NumberRows, number_rows
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.bodies import Body
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Sequence

INT_63 = 1 << 63
EDGES = [
    edge + step
    for edge in (
        0,
        -32,
        1 << 7,
        -(1 << 7),
        1 << 8,
        1 << 16,
        -(1 << 15),
        1 << 32,
        -(1 << 31),
        1 << 53,
    )
    for step in (-1, 0, 1)
]
INTS = st.sampled_from([*EDGES, INT_63 - 1, -INT_63]) | st.integers(-INT_63, INT_63 - 1)
REALS = st.floats(width=64) | st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 1e300])
NUMBERS = st.integers(-5, 300) | INTS | REALS
NAMES = ("minutes", "m", "a name of more than eight bytes, and of more than thirty-one")
OPERATIONS = st.sampled_from(["add", "max", "min", "put"])
ODD = st.sampled_from([None, True, "text", b"bytes", [1], {"x": 1}, INT_63, 2 * INT_63 - 1])
GARBAGE = st.sampled_from([b"\xc1", b"\x01\x02", b"\x81\xa1m", b"\xd9", b"\x82\xa1m\x01\xa1m\x02"])


def rows_of(operation: str, arguments: Sequence[Any]) -> NumberRows | None:
    packed = [msgpack.packb(argument) for argument in arguments]
    offsets = np.array([0, *accumulate(map(len, packed))], np.int64)
    return number_rows(operation, b"".join(packed), offsets)


def staged(
    operation: str,
    arguments: Sequence[Any],
    before: Sequence[bytes | None],
    *,
    keys_max: int | None,
) -> tuple[Body | None, Outcome | KeyspaceError, dict[int, KeyspaceError]]:
    """What comes of it, to a state of *before* with as many keys as there are arguments."""
    state = KeyedState(make_packer(), Aggregations(), keys_max=keys_max)
    keys = [f"key-{n}" for n in range(len(before))]
    there = {key: packed for key, packed in zip(keys, before, strict=True) if packed}
    state.apply(Body(there, [], {"before": [0]}, {}))
    write = PackedWrite("job/j", 0, operation, keys, arguments)
    body, (outcome,) = state.stage([write])
    return body, outcome, state.refusals(write)


def check_alike(
    operation: str,
    arguments: Sequence[Any],
    before: Sequence[bytes | None],
    keys_max: int | None = None,
) -> None:
    rows = rows_of(operation, arguments)
    event(f"together: {rows is not None}")
    if rows is None:
        return
    assert len(rows) == len(arguments)
    assert list(map(repr, rows)) == list(map(repr, arguments))  # NaN is not equal to itself
    body, outcome, refusals = staged(operation, rows, before, keys_max=keys_max)
    expected = staged(operation, arguments, before, keys_max=keys_max)
    if keys_max is None:
        assert (type(outcome), str(outcome)) == (type(expected[1]), str(expected[1]))
    else:  # of several errors, one or another one is said
        assert isinstance(outcome, KeyspaceError) == isinstance(expected[1], KeyspaceError)
    assert body == expected[0]
    if body is not None and expected[0] is not None:
        assert list(body.changed.items()) == list(expected[0].changed.items())
    assert {n: str(why) for n, why in refusals.items()} == {
        n: str(why) for n, why in expected[2].items()
    }
    event(f"refused: {isinstance(outcome, KeyspaceError)}")
    if 0 < len(refusals) < len(arguments):  # the others are written without them
        kept = [place for place in range(len(arguments)) if place not in refusals]
        check_alike(operation, [arguments[n] for n in kept], [before[n] for n in kept])


def packed_or_none(value: object) -> bytes | None:
    return None if value is None else msgpack.packb(value)


MAPS_THERE = st.lists(st.tuples(st.sampled_from([*NAMES, "other"]), NUMBERS), max_size=4).map(dict)
ORDERED = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, NUMBERS))


@given(
    OPERATIONS.filter(lambda operation: operation != "put"),
    st.lists(st.tuples(NUMBERS, st.none() | NUMBERS), min_size=1, max_size=12),
    st.lists(ODD, max_size=2),
    st.lists(GARBAGE, max_size=1),
)
def test_numbers_are_as_one_by_one(
    operation: str, rows: list[tuple[Any, Any]], odd: list[Any], garbage: list[bytes]
) -> None:
    before = [*(packed_or_none(value) for _, value in rows), *map(msgpack.packb, odd), *garbage]
    arguments = [argument for argument, _ in rows]
    arguments += [1] * (len(before) - len(arguments))
    check_alike(operation, arguments, before)


@given(
    st.data(),
    st.lists(OPERATIONS, min_size=3, max_size=3),
    st.lists(ORDERED | MAPS_THERE | ODD, min_size=1, max_size=12),
    st.lists(GARBAGE, max_size=1),
    st.none() | st.integers(0, 20),
)
def test_maps_of_numbers_are_as_one_by_one(
    data: st.DataObject,
    operations: list[str],
    values: list[Any],
    garbage: list[bytes],
    keys_max: int | None,
) -> None:
    before = [*map(packed_or_none, values), *garbage]
    how = dict(zip(NAMES, operations, strict=True))
    arguments = [
        {name: [how[name], number] for name, number in data.draw(ORDERED).items()} for _ in before
    ]
    if data.draw(st.booleans()):  # whose shape is the one that is looked for
        arguments[0] = {name: [how[name], 1] for name in NAMES}
    if keys_max is not None:  # those that are there have room
        keys_max += sum(packed is not None for packed in before)
    check_alike("fields", arguments, before, keys_max)


@given(
    st.lists(NUMBERS, min_size=40, max_size=60),
    st.lists(NUMBERS, min_size=60, max_size=60),
    OPERATIONS,
    OPERATIONS,
)
def test_many_rows_of_one_shape_are_evaluated_together(
    more: list[Any], old: list[Any], first: str, second: str
) -> None:
    more = [min(max(number, -1e200), 1e200) if number == number else 0.5 for number in more]  # noqa: PLR0124 - NaN
    arguments = [{"a": [first, number], "b": [second, number]} for number in more]
    rows = rows_of("fields", arguments)
    assert rows is not None
    before = [msgpack.packb({"a": there, "b": there}) for there in old[: len(more)]]

    after = rows.applied(before)

    quiet = [
        place
        for place, (number, there) in enumerate(zip(more, old, strict=False))
        if type(number) is type(there) and abs(number) < 1 << 60 and abs(there) < 1 << 60
    ]
    assert all(after[place] for place in quiet)  # none of them is left over
    check_alike("fields", arguments, before)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("add", [1, "text"]),
        ("add", [1, None]),
        ("add", [1, True]),
        ("add", [1, INT_63]),
        ("put", [1, 2]),  # its arguments are stored as they are
        ("append", [1, 2]),
        ("count", [1, 2]),
        ("no such", [1, 2]),
        ("fields", [1, 2]),
        ("fields", [{"a": ["add", 1]}, {"b": ["add", 1]}]),
        ("fields", [{"a": ["add", 1]}, {"a": ["max", 1]}]),
        ("fields", [{"a": ["add", 1]}, {"a": ["add", "text"]}]),
        ("fields", [{"a": ["add", 1], "b": ["add", 1]}, {"b": ["add", 1], "a": ["add", 1]}]),
        ("fields", [{"a": ["add"]}]),
        ("fields", [{"a": []}]),
        ("fields", [{"a": [1, 1]}]),
        ("fields", [{"a": "add"}]),
        ("fields", [{}]),
        ("fields", [{"n" * 1_025: ["add", 1]}, {}]),
        ("fields", [{f"f{n}": ["add", 1] for n in range(FIELDS_MAX + 1)}]),
    ],
)
def test_arguments_of_another_shape_are_left_as_they_are(
    operation: str, arguments: list[Any]
) -> None:
    assert rows_of(operation, arguments) is None


def test_a_new_field_stands_last_as_one_by_one() -> None:
    before = [msgpack.packb({"b": 1}), msgpack.packb({"a": 1}), None]
    arguments = [{"a": ["add", 1], "b": ["add", 1]}] * 3
    rows = rows_of("fields", arguments)
    assert rows is not None

    after = rows.applied(before)

    assert after == [None, msgpack.packb({"a": 2, "b": 1}), msgpack.packb({"a": 1, "b": 1})]
    one_by_one = staged("fields", arguments, before, keys_max=None)[0]
    assert one_by_one is not None
    assert list(one_by_one.changed.values())[1:] == after[1:]
    assert staged("fields", rows, before, keys_max=None)[0] == one_by_one


def test_a_part_is_some_of_the_rows() -> None:
    rows = rows_of("add", [1, 2.5, 3, 4])
    assert rows is not None

    part = rows.part(1, 3)

    assert list(part) == [2.5, 3]
    assert part[0:1] == [2.5]
    assert part.size_bytes == len(msgpack.packb(2.5)) + 1
    assert part.applied([None, msgpack.packb(1)]) == [msgpack.packb(2.5), msgpack.packb(4)]


def test_keys_that_are_there_twice_are_evaluated_one_after_the_other() -> None:
    rows = rows_of("add", [1, 2])
    assert rows is not None
    state = KeyedState(make_packer(), Aggregations())

    body, _ = state.stage([PackedWrite("job/j", 0, "add", ["a", "a"], rows)])

    assert body is not None
    assert body.changed == {"a": msgpack.packb(3)}


def test_an_earlier_write_of_the_group_is_read() -> None:
    state = KeyedState(make_packer(), Aggregations())
    writes = [PackedWrite("job/j", n, "add", ["a", "b"], rows_of("add", [1, 2])) for n in range(3)]  # type: ignore[arg-type]

    body, _ = state.stage(writes)

    assert body is not None
    assert body.changed == {"a": msgpack.packb(3), "b": msgpack.packb(6)}
