"""What is in the state of a partition, unpacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.table.aggregations import ABSENT, Absent
from ringpop_py.state.table.keyed import SCAN_ENTRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.keyed import KeyedState


def values_in(state: KeyedState, keys: Iterable[str]) -> dict[str, Value]:
    """The values of those of *keys* that are there."""
    wanted = list(keys)
    found = zip(wanted, state.packed(wanted), strict=True)
    return {key: decode_value("msgpack", packed) for key, packed in found if packed is not None}


def value_in(state: KeyedState, key: str) -> Value | Absent:
    """The value of *key*."""
    return values_in(state, [key]).get(key, ABSENT)


def rows_in(
    state: KeyedState,
    prefix: str = "",
    start: str | None = None,
    end: str | None = None,
    limit: int = SCAN_ENTRIES_MAX,
) -> list[tuple[str, Value]]:
    """Keys with *prefix*, from *start* on, before *end*, in their order, with their values."""
    found = state.scan_packed(prefix, start, end, limit)
    return [(key, decode_value("msgpack", packed)) for key, packed in found]
