"""What a change does to a key's value: named functions from the value and an argument.

They run once, at the partition's owner, before the commit; the log holds only their results. So an
application can register its own, and a node that replays the log need not know them.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.arguments import checked_callable, checked_text
from ringpop_py.base.errors import (
    ApplicationError,
    BadOperation,
    ConditionFailed,
    ConfigError,
    KeyspaceError,
    OperationRefused,
)
from ringpop_py.base.faults import is_fault, text_of
from ringpop_py.base.values.operations import SCALARS
from ringpop_py.base.values.packed import cannot_be_stored
from ringpop_py.base.values.unknown import unknown_text

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from ringpop_py.base.values.operations import Value

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 64) - 1
"""The smallest and the largest whole number that msgpack can hold."""
NESTING_MAX: Final = 64
ITEMS_MAX: Final = 10_000
"""The most items that `top` and `last` keep: each change rewrites the whole list."""
NAME_CHARACTERS_MAX: Final = 64
DIGITS_MAX: Final = 38
"""The most digits of a decimal, as in SQL."""
_IS_DECIMAL: Final = re.compile(
    r"(?=.{1,128}\Z)[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII
).fullmatch
FIELDS: Final = "fields"
"""The aggregation that applies others to the fields of a map."""


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""Stands for no value, unlike None, which is a value like any other."""

Aggregation = Callable[["Value | Absent", "Value"], "Value | Absent"]
"""From a key's value and the argument of a change to the key's new value; `ABSENT` deletes it."""


class Registered(NamedTuple):
    """A function of the registry.

    Attributes:
        reads: whether the function uses the present value; if not, it is given `ABSENT`.
    """

    function: Aggregation
    reads: bool = True


class Expiring(NamedTuple):
    """What an operation returns after which the key expires at another instant, or never.

    Attributes:
        at_ms: in milliseconds since 1970; None if it never expires.
    """

    value: Value
    at_ms: int | None


class Aggregations:
    """The aggregations of a process by their names: the built-in ones and an application's own.

    Attributes:
        get: as `find`, but None for an unknown name.
    """

    def __init__(self) -> None:
        self._unlisted: set[str] = set()
        self._registered = {**BUILT_IN, FIELDS: Registered(self._update_fields)}
        self.get = self._registered.get  # the method of the dict itself, for the hot path

    def register(self, name: str, function: Aggregation) -> None:
        """Register *function* as *name* in this process.

        The function gets its own copy of the value, and may change it. If it raises anything other
        than `KeyspaceError`, or its result cannot be stored, the write is refused with
        `BadOperation`.

        Raises:
            ConfigError: if the name is taken, empty or too long, or *function* cannot be called.
        """
        checked_callable(function, f"the aggregation {name!r}")
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"the aggregation {name!r} is a plain function, not `async def`")
        if not 0 < len(checked_text(name, "an aggregation's name")) <= NAME_CHARACTERS_MAX:
            raise ConfigError(f"an aggregation's name has 1 to {NAME_CHARACTERS_MAX} characters")
        if name in self._registered:
            raise ConfigError(f"there is an aggregation {name!r} already")
        self._registered[name] = Registered(_guarded(name, function))

    def register_own(self, name: str, function: Aggregation) -> None:
        """Register an operation of this library, which no text names. Clients can send it, too."""
        self._registered[name] = Registered(_guarded(name, function))
        self._unlisted.add(name)

    @property
    def own(self) -> list[str]:
        """The names of an application's own."""
        return sorted(self._registered.keys() - BUILT_IN.keys() - {FIELDS} - self._unlisted)

    def find(self, name: str) -> Registered:
        """Return the aggregation *name*. Raises BadOperation if there is none."""
        registered = self._registered.get(name)
        if registered is None:
            text = unknown_text(name, self._registered.keys() - self._unlisted)
            raise BadOperation(f"there is no aggregation {text}")
        return registered

    def _update_fields(self, current: Value | Absent, argument: Value) -> Value | Absent:
        if not isinstance(argument, dict):
            raise BadOperation(
                f"{FIELDS} needs a map of [aggregation, argument], not {kind_of(argument)}"
            )
        if current is not ABSENT and not isinstance(current, dict):
            raise BadOperation(f"{FIELDS} needs a map, the value is {kind_of(current)}")
        fields: dict[str, Value] = {} if current is ABSENT else dict(current)
        for name, pair in argument.items():
            if not isinstance(pair, list) or len(pair) != _PAIR or not isinstance(pair[0], str):
                raise BadOperation(
                    f"{FIELDS} needs a map of [aggregation, argument]; {name!r} has none"
                )
            value = self.find(pair[0]).function(fields.get(name, ABSENT), pair[1])
            if type(value) is Expiring:
                raise BadOperation(f"keys expire, and {name!r} is a field of one")
            if value is not ABSENT:
                fields[name] = value
            else:
                fields.pop(name, None)
        return fields


def check_value(value: object, depth: int = NESTING_MAX) -> None:
    """Check that *value* is a `Value`, nested at most *depth* deep; its size is not checked.

    Raises:
        BadOperation: if it is not a `Value`.
    """
    kind = type(value)  # exactly: a member of an enum, or NumPy's number, would not come back equal
    if kind in SCALARS:
        return
    if kind is not list and kind is not dict:
        raise BadOperation(cannot_be_stored(kind))
    if not depth:
        raise BadOperation(f"a value is nested at most {NESTING_MAX} deep")
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                raise BadOperation(f"the keys of a map are text; one is a {type(key).__name__}")
        value = list(value.values())
    assert isinstance(value, list)
    if not set(map(type, value)) <= SCALARS:  # most lists hold scalars only: no call for each item
        for item in value:
            check_value(item, depth - 1)


def kind_of(value: Value | Absent) -> str:
    """Return the kind of *value* as error messages call it."""
    return "absent" if value is ABSENT else _KINDS.get(type(value), type(value).__name__)


_KINDS: Final = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    bytes: "bytes",
    list: "a list",
    dict: "a map",
}


def _guarded(name: str, function: Aggregation) -> Aggregation:
    """Return *function* with its errors translated and its results checked."""

    def guarded(current: Value | Absent, argument: Value) -> Value | Absent:
        try:
            result = function(current, argument)
        except KeyspaceError:
            raise
        except ApplicationError as error:
            raise OperationRefused(error.kind, error.message) from error
        except BaseException as error:
            if not is_fault(error):
                raise
            raise BadOperation(
                f"aggregation {name!r} failed: {type(error).__name__}: {text_of(error)}"
            ) from error
        if result is not ABSENT and type(result) is not Expiring:
            check_value(result)
        return result

    return guarded


# The built-in ones, from the present value and an argument, both of which are `Value`s.


def _put(_current: Value | Absent, argument: Value) -> Value | Absent:
    return argument


def _delete(_current: Value | Absent, _argument: Value) -> Value | Absent:
    return ABSENT


def _put_if_absent(current: Value | Absent, argument: Value) -> Value | Absent:
    if current is not ABSENT:
        raise ConditionFailed(f"there is a value already: {kind_of(current)}")
    return argument


def _compare_and_set(current: Value | Absent, argument: Value) -> Value | Absent:
    # Without "expected" the key has to be absent; without "new" it is deleted.
    fields = _fields("compare_and_set", argument, {"expected", "new"})
    if not _same(current, fields.get("expected", ABSENT)):
        raise ConditionFailed(f"the value is not the expected one; it is {kind_of(current)}")
    return fields.get("new", ABSENT)


def _add(current: Value | Absent, argument: Value) -> Value | Absent:
    if type(argument) is int and type(current) is int:  # mostly: without calls
        total = current + argument
        if INTEGER_MIN <= total <= INTEGER_MAX:
            return total
    more = _number("add", argument, "the argument")
    if current is ABSENT:
        return _in_range(more)
    return _in_range(_number("add", current, "the value") + more)


def _count(current: Value | Absent, _argument: Value) -> Value | Absent:
    return 1 if current is ABSENT else _in_range(_number("count", current, "the value") + 1)


def _best(name: str, is_better: Callable[[Rank, Rank], bool]) -> Aggregation:
    """Return the aggregation *name*, which keeps the value unless the argument *is_better*."""

    def best(current: Value | Absent, argument: Value) -> Value | Absent:
        rank = _rank(name, argument, "the argument")
        if current is ABSENT:
            return argument
        if kind_of(current) != kind_of(argument):
            raise BadOperation(
                f"{name} compares like with like; the value is {kind_of(current)}, "
                f"the argument {kind_of(argument)}"
            )
        return argument if is_better(rank, _rank(name, current, "the value")) else current

    return best


def _add_decimal(current: Value | Absent, argument: Value) -> Value | Absent:
    more = _decimal("add_decimal", argument, "the argument")
    if current is ABSENT:
        return _decimal_text(more)
    with localcontext(_EXACT):
        return _decimal_text(_decimal("add_decimal", current, "the value") + more)


def _best_decimal(name: str, is_better: Callable[[Decimal, Decimal], bool]) -> Aggregation:
    """Return the aggregation *name*, as `_best` of decimals."""

    def best(current: Value | Absent, argument: Value) -> Value | Absent:
        new = _decimal(name, argument, "the argument")
        if current is ABSENT or is_better(new, _decimal(name, current, "the value")):
            return _decimal_text(new)
        return current

    return best


def _append(current: Value | Absent, argument: Value) -> Value | Absent:
    return [*_items("append", current), argument]


def _last(current: Value | Absent, argument: Value) -> Value | Absent:
    """Append an item, and keep only the last *n* items."""
    fields = _fields("last", argument, {"n", "item"}, {"n", "item"})
    count = _item_count("last", fields["n"])
    return [*_items("last", current), fields["item"]][-count:]


def _union(current: Value | Absent, argument: Value) -> Value | Absent:
    """Return a set of numbers, text and bytes, as a list in that order, without duplicates."""
    if not isinstance(argument, list):
        raise BadOperation(f"union needs a list, the argument is {kind_of(argument)}")
    # If two items are equal (1 and 1.0), the one that was there stays.
    ranked = {_rank("union", item, "an item"): item for item in reversed(argument)}
    ranked |= {_rank("union", item, "an item"): item for item in _items("union", current)}
    return [ranked[rank] for rank in sorted(ranked)]


def _top(current: Value | Absent, argument: Value) -> Value | Absent:
    """Return the *n* items with the highest scores, each with its best: ``[[item, score], …]``.

    Of items with equal scores the lesser one is first.
    """
    fields = _fields("top", argument, {"n", "item", "score"}, {"n", "item", "score"})
    count = _item_count("top", fields["n"])
    best: dict[Rank, tuple[Value, int | float]] = {}
    for pair in [*_items("top", current), [fields["item"], fields["score"]]]:
        if not isinstance(pair, list) or len(pair) != _PAIR:
            raise BadOperation(
                "top needs a list of [item, score], the value has something else in it"
            )
        item, score = pair[0], _number("top", pair[1], "a score")
        rank = _rank("top", item, "an item")
        if rank not in best or score > best[rank][1]:
            best[rank] = (item, score)
    ordered = sorted(best, key=lambda rank: (-best[rank][1], rank))
    return [list(best[rank]) for rank in ordered[:count]]


_PAIR: Final = 2

BUILT_IN: Final = {
    "put": Registered(_put, reads=False),
    "delete": Registered(_delete, reads=False),
    "put_if_absent": Registered(_put_if_absent),
    "compare_and_set": Registered(_compare_and_set),
    "add": Registered(_add),
    "count": Registered(_count),
    "max": Registered(_best("max", operator.gt)),
    "min": Registered(_best("min", operator.lt)),
    "add_decimal": Registered(_add_decimal),
    "max_decimal": Registered(_best_decimal("max_decimal", operator.gt)),
    "min_decimal": Registered(_best_decimal("min_decimal", operator.lt)),
    "append": Registered(_append),
    "last": Registered(_last),
    "union": Registered(_union),
    "top": Registered(_top),
}

# Checks of values. For Python, True is a number and equal to 1; for these it is neither.

Rank = tuple[int, int | float | str | bytes]
"""The place of a scalar among others: numbers before text before bytes."""


def _number(name: str, value: Value | Absent, what: str) -> int | float:
    if type(value) is int:
        return value
    if type(value) is not float:
        raise BadOperation(f"{name} needs a number, {what} is {kind_of(value)}")
    if value != value:  # noqa: PLR0124 - nothing else is unequal to itself
        raise BadOperation(f"{name} needs a number, {what} is NaN")
    return value


def _in_range(number: float) -> int | float:
    if type(number) is not int:
        return _number("add", number, "the sum")  # infinities may have cancelled out
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise BadOperation("the sum would not fit into 64 bits")
    return number


_EXACT: Final = Context(prec=2 * DIGITS_MAX + 1, traps=[Inexact])
"""For sums of two decimals, which have no more digits than that."""


def _decimal(name: str, value: Value | Absent, what: str) -> Decimal:
    found = Decimal("NaN")
    if type(value) is int:
        found = Decimal(value)
    elif isinstance(value, str) and _IS_DECIMAL(value):
        with suppress(InvalidOperation):  # an exponent beyond all limits
            found = Decimal(value)
    if not found.is_finite():
        shown = f"{value!r:.60}" if isinstance(value, str) else kind_of(value)
        raise BadOperation(f"{name} needs a decimal, such as '12.50', {what} is {shown}")
    if max(found.adjusted() + 1, 0) + max(-int(found.as_tuple().exponent), 0) > DIGITS_MAX:
        raise BadOperation(f"{name} takes decimals of up to {DIGITS_MAX} digits; {what} has more")
    return found or found.copy_abs()  # SQL has no negative zero


def _decimal_text(number: Decimal) -> str:
    text = f"{number:f}"
    if sum(map(str.isdigit, text.lstrip("-0"))) > DIGITS_MAX:
        raise BadOperation(f"the sum would have more than {DIGITS_MAX} digits")
    return text


def _rank(name: str, value: Value | Absent, what: str) -> Rank:
    if isinstance(value, str):
        return 1, value
    if isinstance(value, bytes):
        return 2, value
    if type(value) is int or type(value) is float:
        return 0, _number(name, value, what)
    raise BadOperation(f"{name} needs a number, text or bytes, {what} is {kind_of(value)}")


def _items(name: str, current: Value | Absent) -> list[Value]:
    if current is ABSENT:
        return []
    if not isinstance(current, list):
        raise BadOperation(f"{name} needs a list, the value is {kind_of(current)}")
    return current


def _item_count(name: str, value: Value) -> int:
    if type(value) is not int or not 0 < value <= ITEMS_MAX:
        raise BadOperation(f"n of {name} is a whole number from 1 to {ITEMS_MAX}")
    return value


def _fields(
    name: str, argument: Value, known: set[str], needed: AbstractSet[str] = frozenset()
) -> dict[str, Value]:
    if not isinstance(argument, dict) or not needed <= argument.keys() <= known:
        raise BadOperation(f"{name} needs a map of {', '.join(sorted(known))}")
    return argument


def _same(one: Value | Absent, other: Value | Absent) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one == other
