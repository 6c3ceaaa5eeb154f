"""What each aggregation makes of a value and an argument, and what it refuses."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import (
    ApplicationError,
    BadOperation,
    ConditionFailed,
    ConfigError,
    KeyspaceError,
    OperationRefused,
)
from ringpop_py.base.values.operations import Change, Outcome, Write
from ringpop_py.base.values.requests import PartFailed
from ringpop_py.node.signals.clocks import Clocks
from ringpop_py.state.actors.mailboxes import SAVE
from ringpop_py.state.keyspaces.states import States
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.table.aggregations import (
    ABSENT,
    BUILT_IN,
    INTEGER_MAX,
    INTEGER_MIN,
    ITEMS_MAX,
    NESTING_MAX,
    Absent,
    Aggregations,
    check_value,
)
from ringpop_py.state.table.conditions import CONDITIONAL

if TYPE_CHECKING:
    import random

    from ringpop_py.base.values.operations import Value

AGGREGATIONS = Aggregations()
SCALARS = st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary()


def aggregate(name: str, current: Value | Absent, argument: Value = None) -> Value | Absent:
    return AGGREGATIONS.find(name).function(current, argument)


@pytest.mark.parametrize(
    ("name", "current", "argument", "expected"),
    [
        ("put", 1, "x", "x"),
        ("put", ABSENT, None, None),
        ("delete", 1, None, ABSENT),
        ("delete", ABSENT, None, ABSENT),
        ("put_if_absent", ABSENT, 5, 5),
        ("compare_and_set", 1, {"expected": 1, "new": 2}, 2),
        ("compare_and_set", ABSENT, {"new": 2}, 2),
        ("compare_and_set", 1, {"expected": 1}, ABSENT),
        ("compare_and_set", None, {"expected": None, "new": 0}, 0),
        ("compare_and_set", {"a": 1, "b": [2]}, {"expected": {"b": [2], "a": 1}, "new": 0}, 0),
        ("add", ABSENT, 5, 5),
        ("add", 1, -3, -2),
        ("add", 1, 0.5, 1.5),
        ("add", INTEGER_MAX - 1, 1, INTEGER_MAX),
        ("add", INTEGER_MIN + 1, -1, INTEGER_MIN),
        ("count", ABSENT, "whatever", 1),
        ("count", 1, None, 2),
        ("max", ABSENT, 1, 1),
        ("max", 1, 2.5, 2.5),
        ("max", (1 << 53) + 1, float(1 << 53), (1 << 53) + 1),
        ("max", "a", "b", "b"),
        ("min", 1, 2, 1),
        ("min", b"b", b"a", b"a"),
        ("add_decimal", ABSENT, "1.50", "1.50"),
        ("add_decimal", "1.50", "-2.5", "-1.00"),
        ("add_decimal", "0.10", 2, "2.10"),
        ("add_decimal", "9" * 37, "1", "1" + "0" * 37),
        ("add_decimal", "0." + "0" * 37 + "1", "0." + "0" * 37 + "1", "0." + "0" * 37 + "2"),
        ("max_decimal", "9.50", "10.00", "10.00"),
        ("max_decimal", "10.00", "9.50", "10.00"),
        ("max_decimal", "1.0", "1.00", "1.0"),
        ("min_decimal", "9.50", "-10", "-10"),
        ("min_decimal", ABSENT, "1E+2", "100"),
        ("min_decimal", "0.00", "-0.0", "0.00"),
        ("add_decimal", ABSENT, "-0.00", "0.00"),
        ("append", ABSENT, 1, [1]),
        ("append", [1], [2], [1, [2]]),
        ("last", [1, 2], {"n": 2, "item": 3}, [2, 3]),
        ("last", ABSENT, {"n": 2, "item": None}, [None]),
        ("union", ABSENT, ["b", "a", "b"], ["a", "b"]),
        ("union", ["b"], [1, b"x", "a"], [1, "a", "b", b"x"]),
        ("union", [1], [1.0, 2.0, 2], [1, 2.0]),
        ("top", ABSENT, {"n": 2, "item": "a", "score": 1}, [["a", 1]]),
        ("top", [["a", 1]], {"n": 2, "item": "a", "score": 0}, [["a", 1]]),
        ("top", [["a", 1]], {"n": 2, "item": "a", "score": 3}, [["a", 3]]),
        ("top", [["b", 1]], {"n": 2, "item": "a", "score": 1}, [["a", 1], ["b", 1]]),
        ("top", [["a", 3], ["b", 1]], {"n": 2, "item": "c", "score": 2}, [["a", 3], ["c", 2]]),
        ("top", [["a", 3], ["b", 1]], {"n": 1, "item": "c", "score": 2}, [["a", 3]]),
    ],
)
def test_an_aggregation_makes_a_value_of_the_old_one_and_an_argument(
    name: str, current: Value | Absent, argument: Value, expected: Value | Absent
) -> None:
    result = aggregate(name, current, argument)

    assert (type(result), result) == (type(expected), expected)


@pytest.mark.parametrize(
    ("name", "current", "argument"),
    [
        ("put_if_absent", None, 1),
        ("compare_and_set", 1, {"expected": 2, "new": 3}),
        ("compare_and_set", 1, {"new": 3}),
        ("compare_and_set", ABSENT, {"expected": None, "new": 3}),
        ("compare_and_set", 1, {"expected": True, "new": 3}),
        ("compare_and_set", 1, {"expected": 1.0, "new": 3}),
        ("compare_and_set", [1], {"expected": [True], "new": 3}),
        ("compare_and_set", {"a": 1}, {"expected": {"a": 1, "b": 1}, "new": 3}),
    ],
)
def test_a_condition_that_does_not_hold_is_told_from_a_mistake(
    name: str, current: Value | Absent, argument: Value
) -> None:
    with pytest.raises(ConditionFailed):
        aggregate(name, current, argument)


@pytest.mark.parametrize(
    ("name", "current", "argument", "message"),
    [
        ("add", "x", 1, "add needs a number, the value is text"),
        ("add", 1, True, "add needs a number, the argument is true or false"),
        ("add", None, 1, "add needs a number, the value is null"),
        ("add", INTEGER_MAX, 1, "64 bits"),
        ("add", INTEGER_MIN, -1, "64 bits"),
        ("add", ABSENT, INTEGER_MAX + 1, "64 bits"),
        ("add", ABSENT, math.nan, "NaN"),
        ("add", math.inf, -math.inf, "NaN"),
        ("count", INTEGER_MAX, None, "64 bits"),
        ("count", [1], None, "count needs a number, the value is a list"),
        ("max", 1, math.nan, "NaN"),
        ("max", ABSENT, math.nan, "NaN"),
        ("min", math.nan, 1, "NaN"),
        ("max", 1, "x", "the value is a number, the argument text"),
        ("min", ABSENT, False, "the argument is true or false"),
        ("max", [1], 1, "the value is a list"),
        ("add_decimal", 1.5, "1", "add_decimal needs a decimal, such as '12.50', the value is a n"),
        ("add_decimal", "1", "x", "add_decimal needs a decimal, .*, the argument is 'x'"),
        ("add_decimal", "1", "NaN", "the argument is 'NaN'"),
        ("add_decimal", "1", "1_0", "the argument is '1_0'"),
        ("add_decimal", "1", " 2", "the argument is ' 2'"),
        ("add_decimal", "1", "\u0661", "needs a decimal"),
        ("add_decimal", "1", "1\n", "needs a decimal"),
        ("add_decimal", "1", True, "the argument is true or false"),
        ("add_decimal", "1", "1" * 129, "needs a decimal"),
        ("add_decimal", "1", "1E+38", "up to 38 digits; the argument has more"),
        ("add_decimal", "1", "1E-39", "up to 38 digits; the argument has more"),
        ("add_decimal", "1", "1E-999999", "up to 38 digits; the argument has more"),
        ("add_decimal", "9" * 38, "1", "the sum would have more than 38 digits"),
        ("add_decimal", "9" * 20, "0." + "1" * 20, "the sum would have more than 38 digits"),
        ("max_decimal", [], "1", "the value is a list"),
        ("append", {}, 1, "append needs a list, the value is a map"),
        ("last", [1], 1, "last needs a map of item, n"),
        ("last", [1], {"n": 0, "item": 1}, "n of last"),
        ("last", [1], {"n": True, "item": 1}, "n of last"),
        ("union", [], 1, "union needs a list, the argument is a number"),
        ("union", [], [None], "an item is null"),
        ("union", [math.nan], [1], "NaN"),
        ("union", 3, [1], "union needs a list, the value is a number"),
        ("top", [], {"n": ITEMS_MAX + 1, "item": 1, "score": 1}, "n of top"),
        ("top", [], {"n": 1, "item": 1, "score": "high"}, "a score is text"),
        ("top", [], {"n": 1, "item": [], "score": 1}, "an item is a list"),
        ("top", [1], {"n": 1, "item": 1, "score": 1}, "something else"),
        ("top", [], {"n": 1, "item": 1}, "top needs a map of item, n, score"),
        ("compare_and_set", 1, 1, "compare_and_set needs a map of expected, new"),
        ("compare_and_set", 1, {"new": 1, "old": 2}, "compare_and_set needs a map"),
    ],
)
def test_a_mistake_says_what_the_value_is_and_what_was_expected(
    name: str, current: Value | Absent, argument: Value, message: str
) -> None:
    with pytest.raises(BadOperation, match=message):
        aggregate(name, current, argument)


@given(st.lists(st.lists(SCALARS, max_size=4), max_size=6), st.randoms(use_true_random=False))
def test_the_union_is_the_same_in_whatever_order_it_comes_about(
    parts: list[list[Value]], rng: random.Random
) -> None:
    one: Value | Absent = []
    for part in parts:
        one = aggregate("union", one, part)
    rng.shuffle(parts)

    other: Value | Absent = []
    for part in parts:
        other = aggregate("union", other, part)

    assert one == other


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 4)), min_size=1))
def test_the_top_is_that_of_all_items_by_their_best_score(scored: list[tuple[str, int]]) -> None:
    value: Value | Absent = ABSENT
    for item, score in scored:
        value = aggregate("top", value, {"n": 3, "item": item, "score": score})

    best = {item: max(s for i, s in scored if i == item) for item, _ in scored}
    ordered = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
    assert value == [list(pair) for pair in ordered[:3]]


def test_a_function_of_the_applications_own_is_found_by_its_name() -> None:
    aggregations = Aggregations()

    aggregations.register("twice", lambda current, _: [current, current])  # type: ignore[list-item]

    assert aggregations.find("twice").function(4, None) == [4, 4]
    assert aggregations.get("twice") is not None
    assert AGGREGATIONS.get("twice") is None


@pytest.mark.parametrize("name", ["put", "", "x" * 65])
def test_a_name_that_is_taken_or_none_is_not_registered(name: str) -> None:
    with pytest.raises(ConfigError):
        Aggregations().register(name, lambda _current, argument: argument)


def test_an_unknown_aggregation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        BadOperation, match="no aggregation 'sum', perhaps 'add' is meant; there are add, add_d"
    ):
        AGGREGATIONS.find("sum")


def test_an_error_of_an_applications_function_is_named_with_its_type() -> None:
    def fails(_current: Value | Absent, _argument: Value) -> Value:
        raise ZeroDivisionError("by zero")

    aggregations = Aggregations()
    aggregations.register("fails", fails)

    with pytest.raises(BadOperation, match="'fails' failed: ZeroDivisionError: by zero"):
        aggregations.find("fails").function(1, 1)


def test_an_applications_function_may_refuse_with_an_error_of_ours() -> None:
    def refuses(_current: Value | Absent, _argument: Value) -> Value:
        raise ConditionFailed("not today")

    aggregations = Aggregations()
    aggregations.register("refuses", refuses)

    with pytest.raises(ConditionFailed, match="not today"):
        aggregations.find("refuses").function(1, 1)


def test_the_result_of_an_applications_function_must_be_storable() -> None:
    aggregations = Aggregations()
    aggregations.register("pair", lambda current, argument: (current, argument))  # type: ignore[arg-type, return-value]

    with pytest.raises(BadOperation, match="a tuple cannot be stored"):
        aggregations.find("pair").function(1, 1)


def nested(depth: int) -> Value:
    value: Value = 1
    for level in range(depth):
        value = [value] if level % 2 else {"x": value}
    return value


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", b"x", [], {}, nested(NESTING_MAX)])
def test_values_can_be_stored(value: Value) -> None:
    check_value(value)


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        (1,),
        {1},
        object(),
        bytearray(b"x"),
        Colour.RED,
        np.int64(1),
        {1: 2},
        {b"x": 2},
        [[1, {"x": (1,)}]],
        nested(NESTING_MAX + 1),
    ],
)
def test_a_value_that_would_come_back_as_something_else_is_not_stored(value: object) -> None:
    with pytest.raises(BadOperation):
        check_value(value)


def test_fields_have_an_aggregation_each() -> None:
    value = aggregate("fields", ABSENT, {"sum": ["add", 3], "n": ["count", None]})

    value = aggregate("fields", value, {"sum": ["add", 4], "last": ["put", "x"]})

    assert value == {"sum": 7, "n": 1, "last": "x"}


def test_a_field_that_is_deleted_is_gone_and_the_map_stays() -> None:
    assert aggregate("fields", {"a": 1, "b": 2}, {"a": ["delete", None]}) == {"b": 2}
    assert aggregate("fields", {"a": 1}, {"a": ["delete", None], "c": ["delete", None]}) == {}


def test_fields_take_what_an_application_has_registered() -> None:
    aggregations = Aggregations()
    aggregations.register("twice", lambda _, argument: [argument, argument])

    found = aggregations.find("fields").function({"word": "tea"}, {"word": ["twice", "coffee"]})

    assert found == {"word": ["coffee", "coffee"]}


@pytest.mark.parametrize(
    ("current", "argument", "why"),
    [
        (1, {"a": ["add", 1]}, "the value is a number"),
        (ABSENT, 1, "not a number"),
        (ABSENT, {"a": 1}, "'a' has none"),
        (ABSENT, {"a": ["add"]}, "'a' has none"),
        (ABSENT, {"a": [1, 1]}, "'a' has none"),
        (ABSENT, {"a": ["sum", 1]}, "no aggregation 'sum'"),
        ({"a": "text"}, {"a": ["add", 1]}, "the value is text"),
    ],
)
def test_fields_refuse_what_is_no_aggregation_of_a_field(
    current: Value | Absent, argument: Value, why: str
) -> None:
    with pytest.raises(BadOperation, match=why):
        aggregate("fields", current, argument)


def test_registered_aggregations_are_told_from_built_in_ones() -> None:
    aggregations = Aggregations()
    assert aggregations.own == []

    aggregations.register("twice", lambda _, argument: argument)
    aggregations.register("mine", lambda _, argument: argument)

    assert aggregations.own == ["mine", "twice"]


def test_our_own_are_found_and_in_no_list() -> None:
    aggregations = States("node", Clocks()).aggregations

    assert aggregations.own == []
    for name in (CONDITIONAL, SAVE):
        assert aggregations.find(name)
    with pytest.raises(BadOperation) as caught:
        aggregations.find("conditiona")
    assert "conditional" not in str(caught.value)
    assert SAVE not in str(caught.value)


def test_an_error_of_an_applications_function_keeps_its_kind_on_its_way() -> None:
    def refuses(_current: Value | Absent, _argument: Value) -> Value:
        raise ApplicationError("overdrawn", "there are: only 5")

    aggregations = Aggregations()
    aggregations.register("refuses", refuses)
    with pytest.raises(BadOperation) as refused:
        aggregations.find("refuses").function(1, 1)

    came = PartFailed.of(refused.value).error()

    assert isinstance(came, OperationRefused)
    assert isinstance(came, ApplicationError)
    assert (came.kind, came.message) == ("overdrawn", "there are: only 5")
    assert came.took_effect == "no"


@pytest.mark.parametrize("argument", [None, 3, "x", [], {}, {"operation": 1}, ["put", 1, 1, None]])
def test_what_a_client_sends_to_an_operation_of_the_library_ends_nothing(argument: Value) -> None:
    states = States("node", Clocks())
    state = states.keyed(Definition(name="k", partitions=1))
    unlisted = sorted(states.aggregations._unlisted)
    assert len(unlisted) >= 5
    names = [*unlisted, *BUILT_IN, "fields"]
    nested: list[tuple[str, Value]] = [
        *((name, argument) for name in names),
        *(("conditional", {"operation": name, "argument": argument}) for name in names),
        *(("expiring", [name, argument, 1_000, None]) for name in names),
        *(("fields", {"f": [name, argument]}) for name in names),
    ]
    for number, (name, sent) in enumerate(nested):
        body, (outcome,) = state.stage([Write("w", number, (Change("a", name, sent),))])
        assert isinstance(outcome, Outcome | KeyspaceError), name
        if body is not None:
            state.apply(body)
            state.packed(["a"])
