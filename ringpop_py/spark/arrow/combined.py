"""Combine rows of one batch that change the same key: the owner's result stays the same.

| operation | what is sent for the rows of a key |
|---|---|
| put | the last one |
| count | their number, as ``add`` |
| add | their sum (of doubles: see below) |
| max, min | the greatest, the least |
| union | all items, once each |
| last, top | those that can be among the *n* (where *n* is the same in all rows) |
| delete | one |
| all others, such as append | each, in their order |

Sums of whole numbers are exact, and refused beyond 64 bits. Doubles are added in the order of their
rows, and their sum is then added to the owner's value. That may differ in the last digits from
adding one by one.

NULL is skipped, as in SQL's aggregates: a row whose argument is NULL changes nothing (for ``last``
and ``top`` also a row whose item or score is NULL), and ``count`` of a column counts rows that have
a value there. In a ``put``, NULL is a value like others, and ``delete`` has no argument.

Each argument comes from a column: for ``last`` a struct of ``n`` and ``item``, for ``top`` one of
``n``, ``item`` and ``score``, for ``union`` a list (or a single item).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.values.packed import encode_value
from ringpop_py.spark.arrow.columns import (
    Changes,
    Rows,
    argument_of,
    checked,
    codes_of,
    key_column,
    last_of_each,
    packed_puts,
    placed,
    shown,
)
from ringpop_py.spark.arrow.stored import stored_type
from ringpop_py.state.rows.packed import pack_column, pack_lists, pack_maps, places_of_valid
from ringpop_py.state.table.aggregations import DIGITS_MAX, FIELDS, ITEMS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

COUNT: Final = "count"
OF_DECIMALS: Final = {"add": "add_decimal", "max": "max_decimal", "min": "min_decimal"}
"""The operations that are sent for decimals, which are kept as text."""
_KEEP_NULLS: Final = frozenset({"put", "put_if_absent", "compare_and_set", "delete"})
_FIELDS_OF: Final = {"last": ("n", "item"), "top": ("n", "item", "score")}
_LOW: Final = (1 << 32) - 1
_HIGH_MAX: Final = 1 << 31


class Given(NamedTuple):
    """The arguments of rows."""

    codes: NDArray[np.int64]  # the key of each argument, as an index among *keys*
    column: pa.Array  # in the form that is kept, not packed
    kind: pa.DataType  # the type before it was converted to that form
    name: str  # of the column, for messages
    keys: pa.Array  # the distinct ones

    def only(self, chosen: NDArray[Any]) -> Given:
        """Return the *chosen* rows, by their places."""
        return self._replace(codes=self.codes[chosen], column=self.column.take(pa.array(chosen)))

    def refuse(self, code: int, why: str) -> BadOperation:
        """Return the error for a key whose rows cannot be combined."""
        return BadOperation(f"column {self.name!r}, key {shown(self.keys[code].as_py())}: {why}")


def check_operation(operation: str, kind: pa.DataType, column: str) -> None:
    """Raise ConfigError if *operation* cannot take a *column* of type *kind*."""
    stored, kind = stored_type(kind, column), _plain(kind)
    problem = None if pa.types.is_null(kind) else _problem_of(operation, kind, stored)
    if problem is not None:
        raise ConfigError(f"{operation} takes {problem}; column {column!r} is of type {kind}")


def _problem_of(operation: str, kind: pa.DataType, stored: pa.DataType) -> str | None:
    """Return what *operation* takes if it refuses a *kind*, which is kept as *stored*; or None."""
    if operation in _FIELDS_OF:
        return _problem_of_fields(operation, kind)
    is_decimal = _is_decimal(kind)
    if operation == "add":
        fits, what = _is_number(kind) or is_decimal, "numbers"
    elif operation in ("max", "min"):
        fits, what = _is_ranked(kind) or is_decimal, "numbers, text, bytes or times"
    elif operation in OF_DECIMALS.values():
        fits, what = is_decimal, "decimals"
    elif operation == "union":
        item = kind.value_type if pa.types.is_large_list(stored) else kind
        fits, what = _is_ranked(item), "numbers, text, bytes or times, or a list of these"
    else:
        return None
    return None if fits else what


def combined(rows: Rows, key: str, operation: str, value: str | None = None) -> Changes:
    """Return the changes that *rows* make to their keys by one *operation*.

    Args:
        value: the column of arguments. None: the argument is a map of all columns but the key,
            and ``count`` counts rows.

    Raises:
        BadKey: if a row has no key, or one that a keyspace refuses.
        BadOperation: if an argument is invalid (NaN, or a sum beyond 64 bits), has no form that
            can be kept, or is too large for a keyspace.
        ConfigError: see `check_operation`.
    """
    if operation == "put":
        return packed_puts(rows, key, value)
    codes, distinct = codes_of(key_column(rows, key))
    sent, left = left_of(operation, given_of(rows, value, codes, distinct, key))
    return changes_of(sent, left, distinct)


def changes_of(sent: str, left: Given, keys: pa.Array) -> Changes:
    """Return the arguments *left* as changes of *keys*. Raises BadOperation if one is too large."""
    packed = pack_column(left.column)
    return checked(Changes(sent, keys.take(pa.array(left.codes)), packed))


def combined_fields(rows: Rows, key: str, fields: Mapping[str, str]) -> Changes:
    """Return the changes that *rows* make to fields of their keys' values.

    *fields* has an operation for each column; ``count`` of a column that does not exist counts
    rows. Every key of *rows* gets a change, even if it is empty. Raises as `combined` does.
    """
    codes, distinct = codes_of(key_column(rows, key))
    parts: dict[str, tuple[str, Given]] = {}
    for name, operation in fields.items():
        counted = operation == COUNT and name not in rows.schema.names
        column = None if counted else name
        parts[name] = left_of(operation, given_of(rows, column, codes, distinct, key))
    return changes_of_fields(parts, distinct)


def changes_of_fields(parts: Mapping[str, tuple[str, Given]], distinct: pa.Array) -> Changes:
    """Return the arguments that are left of each field as changes of the keys *distinct*.

    Raises:
        BadOperation: a value is too large.
    """
    firsts, places = _layout([left.codes for _, left in parts.values()], len(distinct))
    packed: dict[str, pa.LargeBinaryArray] = {}
    for (name, (sent, left)), at in zip(parts.items(), places, strict=True):
        by = pa.scalar(encode_value("msgpack", sent), pa.large_binary())
        pairs = pack_lists(by, pack_column(left.column))
        packed[name] = placed(pairs, at, firsts[-1])
    owners = np.repeat(np.arange(len(distinct)), np.diff(firsts))
    maps = pack_maps(packed, int(firsts[-1]))
    return checked(Changes(FIELDS, distinct.take(pa.array(owners)), maps))


def _layout(
    parts: list[NDArray[np.int64]], keys_count: int
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return where the rows of each key begin so that all *parts* fit, and the row of each code."""
    most = np.ones(keys_count, np.int64)
    for codes in parts:
        np.maximum(most, np.bincount(codes, minlength=keys_count), out=most)
    firsts = np.zeros(keys_count + 1, np.int64)
    np.cumsum(most, out=firsts[1:])
    return firsts, [firsts[codes] + _ranks(codes) for codes in parts]


def _ranks(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many equal codes come before each."""
    order = np.argsort(codes, kind="stable")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = _places_in_runs(codes[order])
    return ranks


def _places_in_runs(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, 2, … in each run of equal numbers."""
    places = np.arange(len(ordered))
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    return places - np.repeat(begins, np.diff(begins, append=len(ordered)))


def given_of(
    rows: Rows, value: str | None, codes: NDArray[np.int64], distinct: pa.Array, key: str
) -> Given:
    """Return the arguments of *rows*; *codes* says which of the keys *distinct* each has."""
    column = argument_of(rows, key, value)
    if value is not None:
        return Given(codes, column, rows.schema.field(value).type, value, distinct)
    fields = [field for field in rows.schema if field.name != key]
    name = ", ".join(field.name for field in fields)
    return Given(codes, column, pa.struct(fields), name, distinct)


def left_of(operation: str, given: Given) -> tuple[str, Given]:
    """Return the operation that is sent, and the arguments that are left of *given*."""
    if operation == "delete":
        left = given.only(last_of_each(given.codes))
        return operation, left._replace(column=pa.nulls(len(left.codes)))
    present = present_of(operation, given)
    if operation == COUNT:
        # A key whose rows are all NULL has a count as well: 0.
        counts = np.bincount(present.codes, minlength=len(given.keys))
        return "add", given._replace(
            codes=np.arange(len(counts)), column=pa.array(counts.astype(np.int64))
        )
    sent = OF_DECIMALS.get(operation, operation) if _is_decimal(given.kind) else operation
    combine = _COMBINE.get(sent)
    if combine is None or not len(present.codes):
        return sent, present
    return sent, combine(present)


def present_of(operation: str, given: Given) -> Given:
    """Return the arguments of *given* that are not NULL. Raises ConfigError."""
    if operation != COUNT:
        check_operation(operation, given.kind, given.name)
    if operation in _KEEP_NULLS or not given.column.null_count:
        return given
    return given.only(places_of_valid(given.column))


def combined_again(sent: str, given: Given) -> Given:
    """Return the arguments that *sent* leaves of *given*, some of which it has left before."""
    if sent == "delete":
        return given.only(last_of_each(given.codes))
    combine = _COMBINE.get(sent)
    return given if combine is None or not len(given.codes) else combine(given)


# By operation. Each function gets one or more rows without NULL, and returns those that are left.


def _put(given: Given) -> Given:
    return given.only(last_of_each(given.codes))


def _add(given: Given) -> Given:
    values = _numbers(given)
    present, codes = _present(given)
    if values.dtype == np.float64:
        sums = np.zeros(len(present))
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(sums, codes, values)  # one after the other, in the order of rows
        if np.isnan(sums).any():
            at = int(np.flatnonzero(np.isnan(sums))[0])
            raise given.refuse(present[at], "the sum of infinities of both signs is not a number")
        return given._replace(codes=present, column=pa.array(sums))
    largest = max(abs(int(values.min())), abs(int(values.max())))  # Python's integers: exact
    if largest * len(values) <= np.iinfo(np.int64).max:
        sums = np.zeros(len(present), np.int64)
        np.add.at(sums, codes, values.astype(np.int64))
        return given._replace(codes=present, column=pa.array(sums))
    return given._replace(codes=present, column=_long_sums(given, values, codes, present))


def _long_sums(
    given: Given, values: NDArray[Any], codes: NDArray[np.int64], present: NDArray[np.int64]
) -> pa.Array:
    # Sums of halves cannot overflow: a batch has fewer than 2**31 rows.
    upper, lower = np.zeros(len(present), np.int64), np.zeros(len(present), np.int64)
    np.add.at(upper, codes, (values >> 32).astype(np.int64))
    np.add.at(lower, codes, (values & values.dtype.type(_LOW)).astype(np.int64))
    upper += lower >> 32
    unsigned = values.dtype == np.uint64
    low, high = (0, _LOW) if unsigned else (-_HIGH_MAX, _HIGH_MAX - 1)
    beyond = np.flatnonzero((upper < low) | (upper > high))
    if len(beyond):
        raise given.refuse(present[beyond[0]], "the sum does not fit into 64 bits")
    sums = (upper << 32) | (lower & _LOW)
    return pa.array(sums.view(np.uint64) if unsigned else sums)


def _extreme(choose: np.ufunc, given: Given) -> Given:
    present, codes = _present(given)
    if _is_number(given.column.type):
        values, distinct = _numbers(given), None
    else:
        values, distinct = _ranked(given)
    best = np.empty(len(present), values.dtype)
    best[codes] = values  # start with any value of each key
    choose.at(best, codes, values)
    found = pa.array(best)
    return given._replace(codes=present, column=found if distinct is None else distinct.take(found))


def _of_decimals(how: str, given: Given) -> Given:
    kind = pa.decimal128(DIGITS_MAX, _plain(given.kind).scale)
    # In twice as many bits: so many rows of 38 digits cannot overflow there.
    wide = given.column.cast(kind).cast(pa.decimal256(2 * DIGITS_MAX, kind.scale))
    rows = pa.table({"code": pa.array(given.codes), "number": wide})
    found = rows.group_by("code", use_threads=False).aggregate([("number", how)])
    codes = found.column("code").to_numpy()
    numbers = found.column(f"number_{how}").combine_chunks()
    try:
        column = numbers.cast(kind).cast(pa.large_string())
    except pa.ArrowInvalid:
        largest = pc.index(pc.abs(numbers), pc.max(pc.abs(numbers))).as_py()
        raise given.refuse(codes[largest], f"the sum has more than {DIGITS_MAX} digits") from None
    return given._replace(codes=codes, column=column)


def _last(given: Given, count: int) -> Given:
    # The last *n* of each key are its first *n*, counted from the end.
    chosen = np.flatnonzero(_ranks(given.codes[::-1])[::-1] < count)
    return given.only(chosen)


def _top(given: Given, count: int) -> Given:
    items = given._replace(column=_field(given.column, "item"))
    scores = _numbers(given._replace(column=_field(given.column, "score")))
    ranks, _ = _ranked(items)
    # The best row of each item (the first of several), then the best items of each key.
    order = np.lexsort((_descending(scores), ranks, given.codes))
    codes, ordered = given.codes[order], ranks[order]
    first = (np.diff(codes, prepend=-1) != 0) | (np.diff(ordered, prepend=-1) != 0)
    best = order[first]
    order = best[np.lexsort((ranks[best], _descending(scores[best]), given.codes[best]))]
    chosen = np.sort(order[_places_in_runs(given.codes[order]) < count])
    return given.only(chosen)


def _union(given: Given) -> Given:
    present, codes = _present(given)
    items = given
    if pa.types.is_large_list(given.column.type):
        lengths = pc.list_value_length(given.column).to_numpy(zero_copy_only=False)
        owners = np.repeat(codes, lengths)
        items = given._replace(codes=owners, column=given.column.flatten())
        valid = places_of_valid(items.column)
        items, codes = items.only(valid), owners[valid]
    if not len(items.codes):
        empty = pa.array([[]] * len(present), pa.large_list(pa.null()))
        return given._replace(codes=present, column=empty)
    ranks, values = _ranked(items)
    pairs = np.unique(codes * len(values) + ranks)
    counts = np.bincount(pairs // len(values), minlength=len(present))
    offsets = np.zeros(len(present) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    chosen = values.take(pa.array(pairs % len(values)))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), chosen)
    return given._replace(codes=present, column=lists)


def _limited(operation: str, given: Given) -> Given:
    valid = np.ones(len(given.codes), np.bool_)
    for name in _FIELDS_OF[operation]:
        valid &= _field(given.column, name).is_valid().to_numpy(zero_copy_only=False)
    if not valid.all():
        given = given.only(np.flatnonzero(valid))
    numbers = _field(given.column, "n").to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((numbers < 1) | (numbers > ITEMS_MAX))
    if len(wrong):
        raise given.refuse(
            given.codes[wrong[0]], f"n of {operation} is a whole number from 1 to {ITEMS_MAX}"
        )
    distinct = np.unique(numbers)
    if len(distinct) != 1:  # rows of different *n* are all sent, each for its own effect
        return given
    return (_last if operation == "last" else _top)(given, int(distinct[0]))


_COMBINE: Final[dict[str, Callable[[Given], Given]]] = {
    "put": _put,
    "add": _add,
    "max": partial(_extreme, np.maximum),
    "min": partial(_extreme, np.minimum),
    "add_decimal": partial(_of_decimals, "sum"),
    "max_decimal": partial(_of_decimals, "max"),
    "min_decimal": partial(_of_decimals, "min"),
    "last": partial(_limited, "last"),
    "top": partial(_limited, "top"),
    "union": _union,
}


# Shared by the operations.


def _present(given: Given) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which keys have arguments, and the place among them of each argument's key."""
    # As `np.unique`, but without sorting, because these numbers are small.
    there = np.zeros(len(given.keys), np.bool_)
    there[given.codes] = True
    present = np.flatnonzero(there)
    if len(present) == len(there):
        return present, given.codes
    places = np.cumsum(there) - 1
    return present, places[given.codes]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(_plain(kind)))


def _is_ranked(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):  # their texts sort in another order than the numbers
        return False
    stored = stored_type(kind, "")
    return _is_number(stored) or stored in (pa.large_string(), pa.large_binary(), pa.null())


def _problem_of_fields(operation: str, kind: pa.DataType) -> str | None:
    names = _FIELDS_OF[operation]
    expected = f"a struct of {', '.join(names)}"
    if not pa.types.is_struct(kind) or {field.name for field in kind} != set(names):
        return expected
    kinds = {field.name: field.type for field in kind}
    if not pa.types.is_integer(kinds["n"]):
        return f"{expected}, with a whole number n"
    if operation == "top" and not _is_number(kinds["score"]):
        return f"{expected}, with a number as score"
    if operation == "top" and not _is_ranked(kinds["item"]):
        return f"{expected}, with a number, text, bytes or a time as item"
    return None


def _field(structs: pa.StructArray, name: str) -> pa.Array:
    return structs.flatten()[structs.type.get_field_index(name)]


def _numbers(given: Given) -> NDArray[Any]:
    # As int64, uint64 or float64.
    values: NDArray[Any] = given.column.to_numpy(zero_copy_only=False)
    if values.dtype == np.float64:
        if np.isnan(values).any():
            at = int(np.flatnonzero(np.isnan(values))[0])
            raise given.refuse(given.codes[at], "it is NaN, which no operation but put can take")
        return values
    return values if values.dtype == np.uint64 else values.astype(np.int64)


def _descending(numbers: NDArray[Any]) -> NDArray[Any]:
    # ~n is -n - 1: unlike negation, it works for the least integer and for unsigned ones.
    return -numbers if numbers.dtype == np.float64 else ~numbers


def _ranked(given: Given) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the rank of each argument, a number or a text, among the distinct ones, and these."""
    if _is_number(given.column.type):
        values, ranks = np.unique(_numbers(given), return_inverse=True)
        return ranks, pa.array(values)
    codes, distinct = codes_of(given.column)
    order = pc.sort_indices(distinct).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[codes], distinct.take(pa.array(order))
