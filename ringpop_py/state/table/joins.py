"""How two values of one key, written on two sides of a network partition, become one.

The named rules are joins: values give the same result in whatever order and however often they are
joined. That needs an order of all values, and ours is arbitrary: None, then booleans, not-a-number,
numbers, texts, bytes, lists, maps. Values that compare equal but differ (1 and 1.0), and all lists
and maps, are ordered by their packed bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.packed import decode_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.values.operations import Value

    Pack = Callable[[Value], bytes]
    Rule = str | Callable[[Value, Value], Value]
    Join = Callable[[bytes, bytes], bytes]

LAST_WRITER_WINS: Final = "last_writer_wins"
UNION_DEPTH_MAX: Final = 32
"""Maps that are nested deeper than this are not united: the greater one is taken."""


def join_of(rule: Rule, pack: Pack) -> Join:
    """Return the function that joins two packed values by *rule*, the older first.

    - ``last_writer_wins``: the newer one.
    - ``max``, ``min``: the greater or the smaller one.
    - ``longest``: the one with more characters, bytes, elements or keys; the greater of equals.
    - ``union``: the elements of both lists, once each and in order; the keys of both maps, and
      the union of the values under each; of anything else, and of unlike kinds, the greater one.
    - a function of the older and the newer value returns the value to keep. Copies become equal
      only if it is a join. It is not called with equal values.

    Raises:
        ConfigError: if no rule has that name.
    """
    if callable(rule):
        return lambda older, newer: pack(rule(_unpack(older), _unpack(newer)))
    if rule == LAST_WRITER_WINS:
        return lambda _older, newer: newer
    if rule == "union":
        return lambda one, other: pack(_union(_unpack(one), _unpack(other), pack, 0))
    if rule == "max":
        return lambda one, other: max(one, other, key=lambda packed: _rank(_unpack(packed), packed))
    if rule == "min":
        return lambda one, other: min(one, other, key=lambda packed: _rank(_unpack(packed), packed))
    if rule == "longest":
        return lambda one, other: max(one, other, key=lambda packed: _long(_unpack(packed), packed))
    raise ConfigError(f"no rule is called {rule!r}; there are {', '.join(RULES)}")


RULES: Final = (LAST_WRITER_WINS, "max", "min", "union", "longest")


_KINDS: Final = {type(None): 0, bool: 1, int: 3, float: 3, str: 4, bytes: 5, list: 6, dict: 7}
_NOT_A_NUMBER: Final = 2
_COMPARABLE: Final = frozenset({1, 3, 4, 5})


def _rank(value: Value, packed: bytes) -> tuple[Any, ...]:
    if isinstance(value, float) and math.isnan(value):
        return _NOT_A_NUMBER, 0, packed
    kind = _KINDS[type(value)]
    return kind, value if kind in _COMPARABLE else 0, packed


def _long(value: Value, packed: bytes) -> tuple[Any, ...]:
    length = len(value) if isinstance(value, (str, bytes, list, dict)) else 0
    return length, *_rank(value, packed)


def _unpack(packed: bytes) -> Value:
    value: Value = decode_value("msgpack", packed)
    return value


def _union(one: Value, other: Value, pack: Pack, depth: int) -> Value:
    packed_one, packed_other = pack(one), pack(other)  # equal values (1 and 1.0) may differ
    if packed_one == packed_other:
        return one
    if isinstance(one, list) and isinstance(other, list):
        elements = {pack(element): element for element in (*one, *other)}
        return [
            elements[packed] for packed in sorted(elements, key=lambda p: _rank(elements[p], p))
        ]
    if isinstance(one, dict) and isinstance(other, dict) and depth < UNION_DEPTH_MAX:
        united = {**one, **other}
        for key in one:
            if key in other:
                united[key] = _union(one[key], other[key], pack, depth + 1)
        return {key: united[key] for key in sorted(united)}  # equal unions need equal bytes
    return one if _rank(one, packed_one) > _rank(other, packed_other) else other
