"""Rules for values: type, bounds, and the words of the error are said once, for all who check.

A class derived from `Checked` checks its fields when it is made. A text of a command line, a query
or an option is read by `Rule.parsed`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, fields
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, TypeVar

from ringpop_py.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from dataclasses import Field

T = TypeVar("T")

NUMBER_MAX: Final = 1 << 40
"""The greatest number that a setting can have: in microseconds it is still exact."""


class Rule(NamedTuple):
    """What a value must be.

    Attributes:
        text: the words for it, which follow "is" in an error.
        sound: returns whether a value, of any type, is that.
        read: returns the value that a text stands for. A text stands for none if the value is not
            sound, or if there is a ValueError or a LookupError.
    """

    text: str
    sound: Callable[[Any], object]
    read: Callable[[str], Any] = str

    def or_none(self) -> Rule:
        """Return the rule that accepts None as well."""
        return self._replace(sound=lambda value: value is None or self.sound(value))

    def problem(self, name: str, value: object) -> str:
        """Return what is wrong with the *value* of *name*; empty if nothing is."""
        return "" if self.sound(value) else f"{name} is {self.text}, not {value!r}"

    def parsed(self, text: str) -> Any:  # noqa: ANN401 - of the type that the rule is for
        """Return the value in *text*. Raises a ValueError that says what it must be."""
        with suppress(ValueError, LookupError):
            value = self.read(text)
            if self.sound(value):
                return value
        raise ValueError(self.text)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether *value* is a whole number."""
    # In Python a bool is an int, and a file may have true where a number belongs.
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether *value* is a number, which may be infinite or NaN."""
    return is_whole(value) or isinstance(value, float)


def _digits(text: str) -> int:
    # `int` alone also takes "1_000" and digits of all scripts, and is slow for long texts.
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else -1


def whole(least: int, most: float = inf) -> Rule:
    """Return the rule for a whole number from *least* to *most*."""
    bounds = f", {least} or more" if most == inf else f" from {least:,} to {most:,}"
    text = f"a whole number{bounds}"
    return Rule(text, lambda v: is_whole(v) and least <= v <= most, _digits)


def seconds(least: float, most: float) -> Rule:
    """Return the rule for a time from *least* to *most* seconds."""
    text = f"a number of seconds from {least:g} to {most:g}"
    return Rule(text, lambda v: is_number(v) and least <= v <= most, float)


def seconds_above_0(most: float = inf) -> Rule:
    """Return the rule for a time of *most* seconds, or of any that is finite."""
    text = "a number of seconds above 0" + (f", {most:g} at most" if most < inf else "")
    return Rule(text, lambda v: is_number(v) and 0 < v <= most and v < inf, float)


def one_of(choices: Collection[str]) -> Rule:
    """Return the rule for one of *choices*, which are texts."""
    *most, last = map(repr, choices)
    text = f"{', '.join(most)} or {last}" if most else last
    # A list, unlike sets and maps, can be searched for any value, even an unhashable one.
    return Rule(text, list(choices).__contains__)


def printable(characters_max: int) -> Rule:
    """Return the rule for a text without control characters."""
    return Rule(
        f"1 to {characters_max} printable characters",
        lambda v: isinstance(v, str) and 0 < len(v) <= characters_max and v.isprintable(),
    )


def tuple_of(text: str, sound: Callable[[Any], object]) -> Rule:
    """Return the rule for a tuple of values that are each *sound*."""
    return Rule(text, lambda value: isinstance(value, tuple) and all(map(sound, value)))


SWITCH: Final = Rule(
    "true or false", lambda value: type(value) is bool, {"true": True, "false": False}.__getitem__
)
TEXT: Final = Rule("text", lambda value: isinstance(value, str))
SECONDS: Final = Rule(
    "a number of seconds, 0 or more", lambda v: is_number(v) and 0 <= v < inf, float
)
NUMBER: Final = Rule("a number above 0", lambda v: is_number(v) and 0 < v <= NUMBER_MAX, float)
_OF_DEFAULT: Final = {
    bool: SWITCH,
    int: whole(1, NUMBER_MAX),
    float: NUMBER,
    type(None): TEXT.or_none(),
}


def ruled(default: T, rule: Rule | None) -> T:
    """Return a field of a `Checked` class with this *default* and *rule*; None to check nothing."""
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True, slots=True)
class Checked:
    """Settings that raise ConfigError with a line for each field that is wrong.

    A field without a rule has one by its default: for numbers above 0, true or false, text or
    None, or settings of the same class. Otherwise its value is not checked here.
    """

    def __post_init__(self) -> None:
        problems = []
        for declared in fields(self):
            rule = _rule_of(declared)
            problem = rule and rule.problem(declared.name, getattr(self, declared.name))
            if problem:
                problems.append(problem)
        if found := "\n".join(problems) or self._problem():
            raise ConfigError(found)

    def _problem(self) -> str:
        """Return what is wrong with fields that are each valid alone; empty if nothing is."""
        return ""


def _rule_of(declared: Field[Any]) -> Rule | None:
    if declared.metadata:
        rule: Rule | None = declared.metadata["rule"]
        return rule
    kind = type(declared.default)
    if issubclass(kind, Checked):
        return Rule(f"a {kind.__name__}", lambda value: isinstance(value, kind))
    return _OF_DEFAULT.get(kind)
