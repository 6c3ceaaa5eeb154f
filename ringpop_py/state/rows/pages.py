"""Many keys and values as columns: for reading whole partitions, and many keys.

A request has a part for each partition: keys to read, or the key from which to scan. The answer to
a part is all keys joined, and their sizes, and the same for values. So rows need no Python objects:
Arrow uses the columns as they are. A part has no more bytes than requested, unless it has a single
row, and an answer no more than a message can carry. The caller asks for the rest.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import Meta, Natural, convert, encode, replace
from ringpop_py.base.values.operations import KEY_BYTES_MAX, Key
from ringpop_py.base.values.requests import KeyspaceRequest
from ringpop_py.state.table.keyed import SCAN_ENTRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringpop_py.state.table.keyed import KeyedState

COLUMNS: Final = "/keyspace/columns"
PART_BYTES_MAX: Final = 2 << 20
ANSWER_BYTES_MAX: Final = 5 << 20
"""The most bytes of all parts of an answer, except that the first part has at least one row."""
ROWS_MAX: Final = SCAN_ENTRIES_MAX - 1
MISSING: Final = (1 << 32) - 1
"""The size of the value of an absent key."""
SIZE_BYTES: Final = 4

_Start = Annotated[str, Meta(max_length=KEY_BYTES_MAX + 1)]
Wanted = _Start | tuple[Key, ...]
"""The keys wanted of a partition: named keys, or all from this one on."""


class Columns(NamedTuple):
    """The answer to a part, as plain values for the wire. Sizes are 32-bit, little endian.

    Attributes:
        keys: joined, as UTF-8; empty if the request named keys.
        value_sizes: `MISSING` for an absent value; fewer than the named keys if there was no room.
        more: whether there are further keys.
    """

    keys: bytes
    key_sizes: bytes
    values: bytes
    value_sizes: bytes
    more: bool

    @property
    def size_bytes(self) -> int:
        """The size of all columns."""
        return sum(map(len, self[:4]))

    @property
    def rows_count(self) -> int:
        """The number of values, absent ones among them."""
        return len(self.value_sizes) // SIZE_BYTES


class ColumnsRequest(KeyspaceRequest, frozen=True):
    """A request for columns of partitions of one keyspace."""

    parts: tuple[tuple[Natural, Wanted], ...]
    bytes_max: Natural = PART_BYTES_MAX  # for each part
    stale: bool = False  # see `ringpop_py.base.values.requests.ReadRequest`

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [number for number, _ in self.parts]

    @property
    def scans(self) -> bool:
        """Whether it names no keys."""
        return any(isinstance(wanted, str) for _, wanted in self.parts)


class Room:
    """The room in an answer, while its parts are made one after the other.

    The first part has at least one row. A part without room is left empty, and the caller asks for
    it again.
    """

    def __init__(self, part_bytes_max: int, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._part_bytes_max = min(part_bytes_max, PART_BYTES_MAX)
        self._left = answer_bytes_max
        self._first = True

    def columns_of(self, state: KeyedState, wanted: Wanted) -> Columns:
        """Return the *wanted* columns of *state*, as far as there is room."""
        if self._left <= 0:
            return _nothing(wanted)
        if isinstance(wanted, str):
            columns = self._scanned(state, wanted)
        else:
            columns = _named(state, wanted, min(self._part_bytes_max, self._left))
        if columns.size_bytes > self._left and not self._first:
            return _nothing(wanted)
        self._first = False
        self._left -= columns.size_bytes
        return columns

    def _scanned(self, state: KeyedState, start: str) -> Columns:
        everything = None if start else state.all_packed(ROWS_MAX)
        if everything is not None:
            size = sum(map(len, everything[1])) + _bytes_of(everything[0])
            if size <= self._part_bytes_max:
                # A whole partition needs no order: no scan continues after it. It is not cut if
                # only the parts before it leave too little room: the next answer has it whole.
                return _joined(*everything) if self._first or size <= self._left else _NOT_NOW
        return _ordered(state, start, min(self._part_bytes_max, self._left))


def _bytes_of(keys: Sequence[str]) -> int:
    joined = "".join(keys)
    return len(joined) if joined.isascii() else len(joined.encode())


def _named(state: KeyedState, keys: tuple[str, ...], room: int) -> Columns:
    found = state.packed(keys)
    values = found[: _fitting([0 if value is None else len(value) for value in found], room)]
    sizes = _numbers([MISSING if value is None else len(value) for value in values])
    joined = b"".join([value for value in values if value is not None])
    return Columns(b"", b"", joined, sizes, more=False)


def _ordered(state: KeyedState, start: str, room: int) -> Columns:
    rows = state.scan_packed("", start, None, ROWS_MAX + 1)  # one more tells whether more follow
    sizes = [len(key.encode()) + len(value) for key, value in rows]
    found = rows[: min(ROWS_MAX, _fitting(sizes, room))]
    columns = _joined([key for key, _ in found], [value for _, value in found])
    return columns._replace(more=len(found) < len(rows))


_NOT_NOW: Final = Columns(b"", b"", b"", b"", more=True)


def _nothing(wanted: Wanted) -> Columns:
    return _NOT_NOW._replace(more=isinstance(wanted, str))


def _joined(keys: list[str], values: list[bytes]) -> Columns:
    joined = "".join(keys)
    if joined.isascii():  # sizes in bytes and in characters are the same: quicker
        key_bytes, key_sizes = joined.encode(), _numbers(map(len, keys))
    else:
        encoded = [key.encode() for key in keys]
        key_bytes, key_sizes = b"".join(encoded), _numbers(map(len, encoded))
    return Columns(key_bytes, key_sizes, b"".join(values), _numbers(map(len, values)), more=False)


def _fitting(sizes: Sequence[int], room: int) -> int:
    # From the first on, and at least one if there is one: each answer makes progress.
    total = list(accumulate(sizes))
    if not total or total[-1] <= room:
        return len(total)
    return max(1, bisect_right(total, room))


def _numbers(sizes: Iterable[int]) -> bytes:
    numbers = array("I", sizes)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def fitting(
    results: Sequence[Any], wanted: Sequence[Wanted], bytes_max: int = ANSWER_BYTES_MAX
) -> list[Any]:
    """Return *results* of parts, with empty ones where the answer has no room."""
    fitted: list[Any] = []
    left = bytes_max
    for result, asked in zip(results, wanted, strict=True):
        kept = result
        if isinstance(result, Columns):
            if result.size_bytes > left and fitted:
                kept = _nothing(asked)
            left -= kept.size_bytes
        fitted.append(kept)
    return fitted


def columns_in(result: object, wanted: Wanted) -> Columns:
    """Decode the answer to a part. Raises BodyError."""
    columns = convert(Columns, result)
    rows_count, rest = divmod(len(columns.value_sizes), SIZE_BYTES)
    if isinstance(wanted, str):
        fits = len(columns.key_sizes) == len(columns.value_sizes)
    else:
        fits = not columns.key_sizes and rows_count <= len(wanted)
    if rest or not fits:
        raise BodyError("the columns of an answer are not of one length")
    return columns


class ColumnsOf:
    """A request for columns, for dispatchers (see `ringpop_py.route.errand.PartitionRequest`)."""

    endpoint = COLUMNS
    changes_state = False

    def __init__(self, head: ColumnsRequest, host: Any = None) -> None:  # noqa: ANN401 - a `Host`
        self._head, self._host = head, host
        self._wanted: Mapping[int, Wanted] = dict(head.parts)
        self.kind = "scan" if head.scans else "read"

    def only(self, numbers: Sequence[int]) -> ColumnsRequest:
        """Return the request for the partitions *numbers* only."""
        parts = tuple((number, self._wanted[number]) for number in numbers)
        return replace(self._head, parts=parts)

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the request for *numbers* as a body."""
        return encode(self.only(numbers))

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """See `columns_in`."""
        return columns_in(result, self._wanted[number])

    def size(self, number: int) -> int:
        """See `ringpop_py.state.shares.dispatcher.MemberRequest`."""
        return len(self._wanted[number])

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `ringpop_py.state.shares.dispatcher.MemberRequest`."""
        found: list[Any] = await self._host.columns(self.only(numbers))
        return found
