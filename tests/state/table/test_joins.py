"""`ringpop_py.state.table.joins`: named rules are joins of any values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.state.table.joins import RULES, UNION_DEPTH_MAX, join_of

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.joins import Join, Rule

scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, -1, 0.0, -0.0, 1.0, 1.5, math.nan, -math.inf, 2**63, 2.0**63])
    | st.text("ab", max_size=3)
    | st.binary(max_size=2)
)
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
    ),
    max_leaves=8,
)
each_join = pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "last_writer_wins"])


def pack(value: Value) -> bytes:
    return encode_value("msgpack", value)


def unpack(packed: bytes) -> Value:
    value: Value = decode_value("msgpack", packed)
    return value


def merged(rule: Rule, *some: Value) -> Value:
    join = join_of(rule, pack)
    joined = pack(some[0])
    for value in some[1:]:
        joined = once(join, joined, pack(value))
    return unpack(joined)


def once(join: Join, one: bytes, other: bytes) -> bytes:
    """As states do: what is the same already is not joined."""
    return one if one == other else join(one, other)


@each_join
@given(a=values, b=values, c=values)
@example(a=[2, 1], b=[1], c=[2, 1, 1])
@example(a={"x": [2, 1]}, b={"x": [2, 1], "y": 0}, c={"x": 7})
def test_any_values_join_alike_in_any_order_and_however_often(
    rule: str, a: Value, b: Value, c: Value
) -> None:
    join = join_of(rule, pack)
    x, y, z = pack(a), pack(b), pack(c)

    xy, yz = once(join, x, y), once(join, y, z)

    assert xy == once(join, y, x)
    assert once(join, xy, z) == once(join, x, yz)
    assert once(join, xy, y) == xy
    assert once(join, x, xy) == xy


@pytest.mark.parametrize(
    ("rule", "some", "kept"),
    [
        ("last_writer_wins", (9, 3), 3),
        ("max", (3, 5, 4), 5),
        ("max", (3, 2.5), 3),
        ("max", (2**53, 2.0**53 + 2), 2.0**53 + 2),
        ("max", ("b", "a"), "b"),
        ("max", (7, "a"), "a"),
        ("max", (None, False), False),
        ("max", (math.nan, -5), -5),
        ("min", (3, 5, 4), 3),
        ("min", (None, 1), None),
        ("longest", ("aa", "b"), "aa"),
        ("longest", ([1], [1, 2]), [1, 2]),
        ("longest", ("ab", "ba"), "ba"),
        ("longest", (100, "a"), "a"),
        ("union", ([3, 1], [2, 1]), [1, 2, 3]),
        ("union", ([1], ["a", 1.5, None]), [None, 1, 1.5, "a"]),
        ("union", ({"x": 1}, {"y": 2}), {"x": 1, "y": 2}),
        ("union", ({"x": [1], "y": 5}, {"x": [2], "y": 4}), {"x": [1, 2], "y": 5}),
        ("union", (5, [1]), [1]),
        ("union", ([1], {"x": 1}), {"x": 1}),
        ("union", (4, 5), 5),
    ],
)
def test_a_rule_keeps_what_its_name_says(rule: str, some: tuple[Value, ...], kept: Value) -> None:
    assert merged(rule, *some) == kept


def test_a_function_is_given_the_older_value_first() -> None:
    def both(older: Value, newer: Value) -> Value:
        return [older, newer]

    assert merged(both, "old", "new") == ["old", "new"]


def test_maps_that_are_nested_too_deep_are_not_united() -> None:
    def nested(value: Value, depth: int) -> Value:
        for _ in range(depth):
            value = {"x": value}
        return value

    one, other = nested([1], UNION_DEPTH_MAX + 1), nested([2], UNION_DEPTH_MAX + 1)

    assert merged("union", one, other) == other
    one, other = nested([1], UNION_DEPTH_MAX), nested([2], UNION_DEPTH_MAX)
    assert merged("union", one, other) == nested([1, 2], UNION_DEPTH_MAX)


def test_an_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'most'.*last_writer_wins, max, min, union, longest"):
        join_of("most", pack)
