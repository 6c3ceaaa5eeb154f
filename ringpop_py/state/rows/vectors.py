"""Aggregations of numbers for many keys at a time: in NumPy, what `Evaluator` does row by row.

The rows of a job mostly have one shape: a number each, or a map of the same fields to numbers.
They are read into columns, and the new values are written from columns. A row with anything else
(another kind of value, a sum out of range, NaN) is left to the evaluator: only that refuses rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, overload

import numpy as np

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.bulk import (
    MAP,
    Block,
    Cursors,
    Numbers,
    constant,
    heads,
    joined,
    numbers,
)
from ringpop_py.base.values.operations import ArgumentRows
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.state.table.aggregations import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ringpop_py.base.values.operations import Value

ROWS_MIN: Final = 128
"""The fewest rows that are done together: fewer are as quick one by one."""
FIELDS_MAX: Final = MAP.short_max
"""The most fields of a map; maps with more are left to the evaluator."""
_ADD, _MAX, _MIN, _PUT = "add", "max", "min", "put"
_OPERATIONS: Final = frozenset({_ADD, _MAX, _MIN, _PUT})
_NAMES_BYTES_MAX: Final = 1_024
"""The most bytes of all names of fields and operations: each row has room for them."""
_HEAD: Final = 0x80
_PAIR: Final = b"\x92"


class NumberRows(ArgumentRows):
    """The arguments of many changes, which are numbers, or maps of fields to numbers."""

    def __init__(
        self, data: bytes, offsets: NDArray[np.int64], fields: Sequence[_Field], *, are_maps: bool
    ) -> None:
        self._data = data
        self._offsets = offsets
        self._fields = fields
        self._are_maps = are_maps

    @property
    def size_bytes(self) -> int:
        """How many bytes all rows have when packed."""
        return int(self._offsets[-1] - self._offsets[0])

    def part(self, start: int, end: int) -> NumberRows:
        """Return the rows from *start* on, before *end*."""
        fields = [replace(field, column=field.column.part(start, end)) for field in self._fields]
        offsets = self._offsets[start : end + 1]
        return NumberRows(self._data, offsets, fields, are_maps=self._are_maps)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, at: int) -> Value: ...
    @overload
    def __getitem__(self, at: slice) -> list[Value]: ...
    def __getitem__(self, at: int | slice) -> Value | list[Value]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        place = range(len(self))[at]  # raises IndexError
        start, end = self._offsets[place : place + 2]
        value: Value = decode_value("msgpack", self._data[start:end])
        return value

    def applied(self, before: Sequence[bytes | None]) -> list[bytes | None]:
        """See `ArgumentRows`."""
        filled = [packed or b"" for packed in before]
        offsets = np.zeros(len(before) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, filled), np.int64, len(filled)), out=offsets[1:])
        cursors = Cursors(b"".join(filled), offsets)
        exist = offsets[1:] > offsets[:-1]
        prefixes = [field.name for field in self._fields]
        there = _columns(cursors, prefixes, exist, are_maps=self._are_maps)
        fits = cursors.sound | ~exist
        after = []
        with np.errstate(all="ignore"):  # what is out of range is left over
            for field, old in zip(self._fields, there, strict=True):
                new, are_sound = _COMBINED[field.operation](old, field.column)
                fits &= are_sound
                after.append(new)
        fits &= ~self._reordered(there)
        offsets, data = joined(self._blocks(after))
        packed = data.tobytes()
        rows: list[bytes | None] = [packed[a:b] for a, b in pairwise(offsets.tolist())]
        for place in np.flatnonzero(~fits).tolist():
            rows[place] = None
        return rows

    def _reordered(self, there: Sequence[Numbers]) -> NDArray[np.bool_]:
        # A field that is new comes last in its map.
        found = np.zeros(len(self), np.bool_)
        later = np.zeros(len(self), np.bool_)
        for field, old in zip(reversed(self._fields), reversed(there), strict=True):
            found |= later & field.column.there & ~old.there
            later |= old.there
        return found

    def _blocks(self, columns: Sequence[Numbers]) -> list[Block]:
        if not self._are_maps:
            return [numbers(columns[0])]
        counts = np.sum([column.there for column in columns], axis=0)
        blocks = [heads(counts, MAP)]
        for field, column in zip(self._fields, columns, strict=True):
            blocks.append(constant(field.name, len(self)).only(column.there))
            blocks.append(numbers(column).only(column.there))
        return blocks


@dataclass(frozen=True, slots=True)
class _Field:
    name: bytes
    """Packed; empty if the values are not maps."""
    operation: str
    column: Numbers


def number_rows(
    operation: str, data: bytes | memoryview, offsets: NDArray[np.int64]
) -> NumberRows | None:
    """Return the packed arguments in *data* by their *offsets*; None if one is of another shape."""
    data = bytes(data)
    if operation == FIELDS:
        firsts = np.frombuffer(data, np.uint8)[offsets[:-1]]
        largest = int(np.argmax(firsts))  # which has all fields, if they are alike
        named = _operations_in(data[offsets[largest] : offsets[largest + 1]])
    elif operation == _PUT:
        return None  # whose arguments are stored as they are
    else:
        named = {"": operation}
    if not (0 < len(named) <= FIELDS_MAX and _OPERATIONS.issuperset(named.values())):
        return None
    are_maps = operation == FIELDS
    names = [encode_value("msgpack", name) if are_maps else b"" for name in named]
    prefixes = [
        b"".join([name, _PAIR, encode_value("msgpack", how)]) if are_maps else b""
        for name, how in zip(names, named.values(), strict=True)
    ]
    if sum(map(len, prefixes)) > _NAMES_BYTES_MAX:
        return None
    cursors = Cursors(data, offsets)
    everywhere = np.ones(len(offsets) - 1, np.bool_)
    columns = _columns(cursors, prefixes, everywhere, are_maps=are_maps)
    if not cursors.sound.all():
        return None
    fields = list(map(_Field, names, named.values(), columns))
    return NumberRows(data, offsets, fields, are_maps=are_maps)


def _operations_in(packed: bytes) -> dict[str, str]:
    try:
        argument = decode_value("msgpack", packed)
    except BodyError:
        return {}
    if not isinstance(argument, dict):
        return {}
    pairs = argument.values()
    if not all(isinstance(pair, list) and pair and isinstance(pair[0], str) for pair in pairs):
        return {}
    return {name: pair[0] for name, pair in argument.items()}


def _columns(
    cursors: Cursors, prefixes: Sequence[bytes], exist: NDArray[np.bool_], *, are_maps: bool
) -> list[Numbers]:
    """Read the number that follows each of *prefixes*, in the rows that *exist* and have it."""
    if not are_maps:
        found = [cursors.numbers(exist, 0)]
        cursors.finish()
        return found
    counts = np.where(exist, cursors.ahead().first, 0)
    cursors.move(cursors.at + exist)
    columns = []
    for prefix in prefixes:
        column = cursors.numbers(cursors.have(prefix) & exist, len(prefix))
        counts = counts - column.there
        columns.append(column)
    cursors.finish()
    cursors.sound &= ~exist | (counts == _HEAD)
    return columns


# The aggregations: the new column, and the rows for which it is right.


def _added(old: Numbers, more: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    both = old.there & more.there
    ints = old.ints + more.ints
    fits = ((old.ints ^ ints) & (more.ints ^ ints)) >= 0
    if not (old.are_real.any() or more.are_real.any()):
        new = _chosen(both, Numbers(ints, more.reals, more.are_real, both), old, more)
        return new, fits | ~both
    are_real = old.are_real | more.are_real
    reals = _as_reals(old) + _as_reals(more)
    new = _chosen(both, Numbers(ints, reals, are_real, both), old, more)
    is_nan = new.are_real & more.there & np.isnan(new.reals)
    return new, (fits | are_real | ~both) & ~is_nan


def _best(better: np.ufunc, old: Numbers, more: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    both = old.there & more.there
    reals = better(more.reals, old.reals)
    is_better = np.where(more.are_real, reals, better(more.ints, old.ints))
    nan = more.are_real & np.isnan(more.reals) | both & old.are_real & np.isnan(old.reals)
    # A whole number beside a real one has more digits than a comparison of reals would see.
    fits = (old.are_real == more.are_real) | ~both
    new = _chosen(both & ~is_better, old, old, more)
    return new, fits & ~(nan & more.there)


def _replaced(old: Numbers, more: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    nowhere = np.zeros(len(old.there), np.bool_)
    return _chosen(nowhere, old, old, more), ~nowhere


def _chosen(here: NDArray[np.bool_], this: Numbers, old: Numbers, more: Numbers) -> Numbers:
    """Return *this* in the rows *here*; in others *more* where it is there, and *old* elsewhere."""
    if here.all():
        return Numbers(this.ints, this.reals, this.are_real, here)
    there = old.there | more.there
    which = np.where(here, 0, np.where(more.there, 1, 2))
    return Numbers(
        np.choose(which, (this.ints, more.ints, old.ints)),
        np.choose(which, (this.reals, more.reals, old.reals)),
        np.choose(which, (this.are_real, more.are_real, old.are_real)),
        there,
    )


def _as_reals(column: Numbers) -> NDArray[np.float64]:
    return np.where(column.are_real, column.reals, column.ints.astype(np.float64))


_COMBINED: Final = {
    _ADD: _added,
    _MAX: lambda old, more: _best(np.greater, old, more),
    _MIN: lambda old, more: _best(np.less, old, more),
    _PUT: _replaced,
}
