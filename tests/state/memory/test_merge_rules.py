"""`ringpop_py.state.memory.merge_rules`: rules of merging that an application brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.state.memory.merge_rules import MergeRules
from tests.logged import events_in

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value


def registered(function: object) -> object:
    rules = MergeRules()
    rules.register("ours", function)  # type: ignore[arg-type]
    return rules.find("ours", "k")


def test_the_rules_that_are_built_in_are_found() -> None:
    assert MergeRules().find("union", "k") == "union"


def test_a_registered_function_decides() -> None:
    rule = registered(lambda older, newer: older + newer)

    assert rule(1, 2) == 3  # type: ignore[operator]


def test_where_a_function_fails_the_newer_value_is_kept() -> None:
    rule = registered(lambda older, newer: older + newer)

    assert rule(1, "two") == "two"  # type: ignore[operator]


def test_where_a_function_gives_what_cannot_be_kept_the_newer_value_is() -> None:
    rule = registered(lambda _older, _newer: {1, 2})

    assert rule(1, 2) == 2  # type: ignore[operator]


def test_a_function_that_changes_what_it_is_given_and_fails_changes_nothing() -> None:
    def fails(_older: Value, newer: Value) -> Value:
        assert isinstance(newer, list)
        newer.append("changed")
        raise ValueError(newer)

    rule = registered(fails)

    assert rule([1], [2]) == [2]  # type: ignore[operator]


@pytest.mark.parametrize("name", ["", "x" * 65, "union", 5, None, ["ours"]])
def test_a_name_that_is_none_or_taken_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        MergeRules().register(name, lambda older, _newer: older)


@pytest.mark.parametrize("function", [None, "union", 5])
def test_a_rule_that_cannot_be_called_is_refused_where_it_is_registered(function: object) -> None:
    with pytest.raises(ConfigError, match="the merge rule 'ours' is a function, not "):
        registered(function)


def test_an_error_of_ours_that_a_rule_raises_is_not_taken_for_one_of_its_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_older: Value, _newer: Value) -> Value:
        raise BadOperation("no two alike")

    rule = registered(fails)

    assert rule(1, 2) == 2  # type: ignore[operator]
    (event,) = events_in(caplog, "merge-failed")
    assert str(event).endswith("the newer value is kept: BadOperation: no two alike")


def test_a_rule_that_nobody_registered_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="last_writer_wins"):
        MergeRules().find("sum", "k")
