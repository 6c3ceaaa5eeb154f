"""Writes that depend on what their key holds, identified by a tag of the value.

A condition is an operation like others, which carries the operation that it guards. So it is
checked where that operation runs: at the owner, in the order of the log, and not again if the write
is repeated. An owner that does not know conditions refuses the write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import xxhash

from ringpop_py.base.errors import BadOperation, ConditionFailed
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.table.aggregations import ABSENT

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.aggregations import Absent, Aggregations

CONDITIONAL: Final = "conditional"
"""The operation that runs another one if its conditions hold."""
KEEP: Final = "keep"
"""The operation that changes nothing: for a condition on a key beside those that change."""
ANY: Final = "*"
"""In place of tags: any value of the key, whatever its tag."""

Tags = Sequence[str] | Literal["*"]

_FIELDS: Final = ("if_match", "if_none_match", "operation", "argument")


def tag_of(value: Value) -> str:
    """Return the tag of *value*: 32 hexadecimal digits, which are the same for equal values.

    Equal values have the same types, and the fields of their maps are in the same order. The tag is
    a hash (xxh3, 128 bits) of the value in msgpack, the same in every process.

    Raises:
        TypeError, ValueError, OverflowError: if *value* cannot be stored.
    """
    digest: str = xxhash.xxh3_128_hexdigest(encode_value("msgpack", value))
    return digest


def conditional(
    operation: str,
    argument: Value = None,
    *,
    if_match: Tags | None = None,
    if_none_match: Tags | None = None,
) -> tuple[str, Value]:
    """Return *operation* and *argument* under conditions, as another operation and argument.

    Args:
        if_match: there is a value, and its tag is one of these (or, for `ANY`, any tag).
        if_none_match: there is no value (for `ANY`), or its tag is not one of these.
    """
    if if_match is None and if_none_match is None:
        return operation, argument
    return CONDITIONAL, {
        "if_match": _plain(if_match),
        "if_none_match": _plain(if_none_match),
        "operation": operation,
        "argument": argument,
    }


def conditional_on(
    operation: str, argument: Value, if_tag: str | None, *, if_absent: bool
) -> tuple[str, Value]:
    """As `conditional`, with conditions as `Keyspace.update` takes them. Raises BadOperation."""
    if if_tag is not None and if_absent:
        raise BadOperation("if_tag and if_absent exclude each other: give one of them")
    if_match = None if if_tag is None else [if_tag]
    return conditional(
        operation, argument, if_match=if_match, if_none_match=ANY if if_absent else None
    )


def replaces(operation: Value, argument: Value) -> bool:
    """Return whether an operation sets a value whatever was there, perhaps under a condition."""
    if operation == CONDITIONAL and isinstance(argument, dict):
        operation = argument.get("operation")
    return operation == "put"


def register_conditions(aggregations: Aggregations) -> None:
    """Register `CONDITIONAL`."""

    def check_and_apply(there: Value | Absent, argument: Value) -> Value | Absent:
        fields, operation = _checked(argument)
        tag = None if there is ABSENT else tag_of(there)
        wanted, unwanted = fields.get("if_match"), fields.get("if_none_match")
        if wanted is not None and not _matches(tag, "if_match", wanted):
            has = "there is no value" if tag is None else f"the tag of the value is {tag!r}"
            raise ConditionFailed(f"if_match: {has}")
        if unwanted is not None and _matches(tag, "if_none_match", unwanted):
            raise ConditionFailed(f"if_none_match: there is a value, and its tag is {tag!r}")
        return aggregations.find(operation).function(there, fields.get("argument"))

    aggregations.register_own(CONDITIONAL, check_and_apply)
    aggregations.register_own(KEEP, lambda there, _argument: there)


def _matches(tag: str | None, condition: str, tags: Value) -> bool:
    if tags == ANY:
        return tag is not None
    if not isinstance(tags, list) or not {str}.issuperset(map(type, tags)):
        raise BadOperation(f"{condition} of {CONDITIONAL} is a list of tags, or {ANY!r}")
    return tag in tags


def _checked(argument: Value) -> tuple[dict[str, Value], str]:
    operation = argument.get("operation") if isinstance(argument, dict) else None
    if not isinstance(argument, dict) or not isinstance(operation, str):
        raise BadOperation(f"{CONDITIONAL} needs a map with the operation that it makes")
    # A condition that a newer client knows must not be skipped: refuse the write.
    unknown = next((name for name in argument if name not in _FIELDS), None)
    if unknown is not None:
        raise BadOperation(
            f"{CONDITIONAL} has no field {unknown!r:.100}; it has: {', '.join(_FIELDS)}"
        )
    return argument, operation


def _plain(tags: Tags | None) -> Value:
    return tags if tags is None or isinstance(tags, str) else list(tags)
