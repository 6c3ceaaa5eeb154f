"""Rules: one place says what a value must be, for settings, options and queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.rules import SWITCH, Checked, Rule, one_of, ruled, seconds_above_0, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Checked):
    size: int = ruled(3, whole(0, 1_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Checked):
    count: int = 1
    share: float = 1.0
    on: bool = False
    path: str | None = None
    part: Part = Part()
    free: int = ruled(0, None)
    text: str = "unchecked"


def test_a_field_without_a_rule_has_that_of_its_default() -> None:
    wrong: dict[str, Any] = {"count": 0, "share": "x", "on": 1, "path": 5, "part": 5, "text": 5}

    with pytest.raises(ConfigError) as caught:
        Outer(**wrong, free=-1)

    assert str(caught.value).splitlines() == [
        "count is a whole number from 1 to 1,099,511,627,776, not 0",
        "share is a number above 0, not 'x'",
        "on is true or false, not 1",
        "path is text, not 5",
        "part is a Part, not 5",
    ]


def test_what_is_replaced_is_checked() -> None:
    with pytest.raises(ConfigError, match="size is a whole number from 0 to 1,000, not 1001"):
        replace(Part(), size=1_001)


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        (whole(1, 64), "064", 64),
        (whole(0), "0", 0),
        (seconds_above_0(), "1e3", 1_000.0),
        (SWITCH, "false", False),
        (one_of(("keys", "none")), "none", "none"),
    ],
)
def test_a_text_is_read_as_a_value(rule: Rule, text: str, value: object) -> None:
    assert rule.parsed(text) == value


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (whole(1, 64), "65"),
        (whole(0), "1_0"),
        (whole(0), "٣"),
        (whole(0), "-1"),
        (whole(0), "1" * 19),
        (seconds_above_0(60), "60.1"),
        (seconds_above_0(), "inf"),
        (seconds_above_0(), "nan"),
        (seconds_above_0(), "soon"),
        (SWITCH, "yes"),
        (one_of(("keys", "none")), "all"),
        (SWITCH.or_none(), "perhaps"),
    ],
)
def test_a_text_that_stands_for_no_value_is_refused_in_the_words_of_the_rule(
    rule: Rule, text: str
) -> None:
    with pytest.raises(ValueError, match="^" + rule.text):
        rule.parsed(text)
