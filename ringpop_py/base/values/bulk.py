"""Values of msgpack, many at a time: NumPy steps through all rows together.

Written bytes equal those of `ringpop_py.base.values.packed.encode_value`. A block has a place for
every byte that a row may need. Reading has a cursor in each row, and raises no error: a row that is
malformed, or of another kind than expected, is reported as not sound, and left to `decode_value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NIL: Final = 0xC0
FALSE, TRUE = 0xC2, 0xC3
_DOUBLE: Final = 0xCB
_DOUBLE_BYTES: Final = 9
_UINT_8_MAX: Final = 0xFF
_UINT_16_MAX: Final = 0xFFFF
# By the number of bytes that follow: the first bytes of integers, not negative and negative.
_UNSIGNED: Final = np.array([0, 0xCC, 0xCD, 0, 0xCE, 0, 0, 0, 0xCF], np.uint8)
_SIGNED: Final = np.array([0, 0xD0, 0xD1, 0, 0xD2, 0, 0, 0, 0xD3], np.uint8)
_PADDING: Final = bytes(16)
"""Bytes after the data, so that reads of a few bytes past its end stay within the array."""
_WORD: Final = 8

# Writing.


@dataclass(frozen=True, slots=True)
class Lengths:
    """How texts, bytes, lists and maps begin.

    Attributes:
        short: the first byte of a length in itself, up to *short_max*.
        after: the first byte, by the number of length bytes that follow.
    """

    short: int
    short_max: int
    after: NDArray[np.uint8]


TEXT: Final = Lengths(0xA0, 31, np.array([0, 0xD9, 0xDA, 0, 0xDB], np.uint8))
BYTES: Final = Lengths(0, -1, np.array([0, 0xC4, 0xC5, 0, 0xC6], np.uint8))
LIST: Final = Lengths(0x90, 15, np.array([0, 0, 0xDC, 0, 0xDD], np.uint8))
MAP: Final = Lengths(0x80, 15, np.array([0, 0, 0xDE, 0, 0xDF], np.uint8))


@dataclass(frozen=True, slots=True)
class Block:
    """Some bytes of each row.

    Attributes:
        keep: the bytes that count; None: all of them.
    """

    rows: NDArray[np.uint8]
    keep: NDArray[np.bool_] | None = None

    def kept(self) -> NDArray[np.bool_]:
        """Return *keep*, never None."""
        return np.ones(self.rows.shape, np.bool_) if self.keep is None else self.keep

    def only(self, there: NDArray[np.bool_]) -> Block:
        """Return the block without bytes in the rows that are not *there*."""
        return self if there.all() else Block(self.rows, self.kept() & there[:, None])

    def with_nil(self, nulls: NDArray[np.bool_] | None) -> Block:
        """Return the block with None in the rows of *nulls*."""
        if nulls is None:
            return self
        rows = self.rows.copy()
        rows[nulls, 0] = NIL
        if rows.shape[1] == 1:
            return Block(rows)
        keep = self.kept().copy()
        keep[nulls, 1:] = False
        return Block(rows, keep)


def joined(blocks: Sequence[Block]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the bytes of *blocks* row by row: where rows start and the last one ends, and all."""
    rows = np.hstack([block.rows for block in blocks])
    if all(block.keep is None for block in blocks):
        return np.arange(len(rows) + 1) * rows.shape[1], rows.reshape(-1)
    keep = np.hstack([block.kept() for block in blocks])
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(keep.view(np.uint8).sum(axis=1, dtype=np.int64), out=offsets[1:])
    return offsets, np.compress(keep.reshape(-1), rows.reshape(-1))  # twice as fast as rows[keep]


def constant(content: bytes, rows_count: int) -> Block:
    """Return *content* in each row."""
    row = np.frombuffer(content, np.uint8)
    return Block(np.broadcast_to(row, (rows_count, len(row))))


def booleans(values: NDArray[np.bool_]) -> Block:
    """Return packed *values*."""
    return Block((FALSE + values.astype(np.uint8)).reshape(-1, 1))


def doubles(values: NDArray[np.float64]) -> Block:
    """Return packed *values*."""
    rows = np.empty((len(values), _DOUBLE_BYTES), np.uint8)
    rows[:, 0] = _DOUBLE
    rows[:, 1:] = values.astype(">f8").view(np.uint8).reshape(-1, 8)
    return Block(rows)


def integers(values: NDArray[Any]) -> Block:
    """Return packed *values* in the shortest form, as msgpack's own packers do."""
    if values.dtype == np.uint64:
        bits, negative = values, None
    else:
        signed = values.astype(np.int64)
        bits = signed.view(np.uint64)
        negative = signed < 0
        if not negative.any():
            negative = None
    sizes = _sizes(bits, 0x7F, 0xFF, 0xFFFF, 0xFFFF_FFFF)
    first = _UNSIGNED[sizes]
    if negative is not None:
        below = _sizes(~bits, 0x1F, 0x7F, 0x7FFF, 0x7FFF_FFFF)  # ~bits is -n - 1
        sizes = np.where(negative, below, sizes)
        first = np.where(negative, _SIGNED[below], first)
    first = np.where(sizes == 0, bits.astype(np.uint8), first)
    return _with_number(first, bits, sizes)


def numbers(values: Numbers) -> Block:
    """Return packed *values*; a row that is not there has some bytes, too."""
    if not values.are_real.any():
        return integers(values.ints)
    reals = doubles(values.reals)
    if values.are_real.all():
        return reals
    ints = integers(values.ints)
    width = ints.rows.shape[1]
    rows, keep = reals.rows, np.zeros(reals.rows.shape, np.bool_)
    ints_at = np.flatnonzero(~values.are_real)
    rows[ints_at, :width] = ints.rows[ints_at]
    keep[:, :width] = ints.kept()
    keep[values.are_real] = True
    return Block(rows, keep)


def heads(lengths: NDArray[Any], form: Lengths) -> Block:
    """Return how values of these *lengths* begin."""
    lengths = lengths.astype(np.int64)
    sizes = 2 * (lengths > form.short_max) + 2 * (lengths > _UINT_16_MAX)
    if form.after[1]:  # lists and maps have no form with one length byte
        sizes -= (lengths > form.short_max) & (lengths <= _UINT_8_MAX)
    first = np.where(sizes == 0, form.short | (lengths & _UINT_8_MAX), form.after[sizes])
    return _with_number(first, lengths.view(np.uint64), sizes)


def _sizes(bits: NDArray[np.uint64], none: int, one: int, two: int, four: int) -> NDArray[np.int64]:
    # How many bytes follow the first: by the greatest number for each count, or 8.
    highest = int(bits.max(initial=0))
    sizes = (bits > np.uint64(none)).astype(np.int64)
    for limit, more in ((one, 1), (two, 2), (four, 4)):
        if highest > limit:  # most columns are small: spare a pass over all rows
            sizes += (bits > np.uint64(limit)) * more
    return sizes


def _with_number(first: NDArray[Any], bits: NDArray[np.uint64], sizes: NDArray[np.int64]) -> Block:
    # Each row is its *first* byte, and the low *sizes* bytes of its number.
    widest = int(sizes.max(initial=0))
    rows = np.empty((len(first), 1 + widest), np.uint8)
    rows[:, 0] = first
    if not widest:
        return Block(rows)
    big_endian = bits.astype(">u8").view(np.uint8).reshape(-1, 8)
    rows[:, 1:] = big_endian[:, 8 - widest :]
    if int(sizes.min()) == widest:
        return Block(rows)
    keep = np.arange(widest, -1, -1) < sizes[:, None]
    keep[:, 0] = True
    return Block(rows, keep)


# Reading.

OTHER, NULL, BOOLEAN, INTEGER, REAL, STRING, BINARY = range(7)
"""Kinds of values, by their first byte."""
KINDS_COUNT: Final = 7


def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    # By first byte: the kind, the bytes of the length, and the least that follow.
    kinds, length_sizes, sizes = (np.zeros(256, np.uint8) for _ in range(3))
    kinds[:0x80] = kinds[0xE0:] = INTEGER
    kinds[0xA0:0xC0] = STRING
    sizes[0xA0:0xC0] = np.arange(32)
    kinds[NIL] = NULL
    kinds[[FALSE, TRUE]] = BOOLEAN
    kinds[_DOUBLE], sizes[_DOUBLE] = REAL, 8
    for first in (0xCC, 0xD0):  # unsigned, signed
        kinds[first : first + 4] = INTEGER
        sizes[first : first + 4] = 1, 2, 4, 8
    for first, kind in ((0xC4, BINARY), (0xD9, STRING)):
        kinds[first : first + 3] = kind
        length_sizes[first : first + 3] = 1, 2, 4
    return kinds, length_sizes, sizes


_KINDS, _LENGTH_SIZES, _SIZES = _tables()


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of whole numbers and floating-point numbers.

    Attributes:
        ints: the numbers that are whole; anything in other rows.
        reals: the others; anything in other rows.
        are_real: which of the two a row has.
        there: which rows have a number at all.
    """

    ints: NDArray[np.int64]
    reals: NDArray[np.float64]
    are_real: NDArray[np.bool_]
    there: NDArray[np.bool_]

    def part(self, start: int, end: int) -> Numbers:
        """Return the rows from *start* on, before *end*."""
        rows = slice(start, end)
        return Numbers(self.ints[rows], self.reals[rows], self.are_real[rows], self.there[rows])


@dataclass(frozen=True, slots=True)
class Ahead:
    """Values that come next: their first bytes, their kinds, and where the rest is."""

    first: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Cursors:
    """A place (*at*) in each of many packed values, which are stored one after the other.

    Attributes:
        sound: the rows that were as expected until now. Others are not read any further.
    """

    def __init__(self, data: bytes | memoryview, offsets: NDArray[np.int64]) -> None:
        self.buffer = b"".join([data, _PADDING])
        self._bytes = np.frombuffer(self.buffer, np.uint8)
        self.at = offsets[:-1]
        self._ends = offsets[1:]
        self.sound = np.ones(len(self.at), np.bool_)

    def read(self, kind: str, places: NDArray[np.int64]) -> NDArray[Any]:
        """Return the numbers of NumPy's *kind* at *places*."""
        # Strides of one byte make a number of every position, aligned or not.
        size = np.dtype(kind).itemsize
        count = len(self._bytes) - size + 1
        found: Any = np.ndarray((count,), kind, self.buffer, strides=(1,))
        numbers: NDArray[Any] = found[places]
        return numbers

    def move(self, places: NDArray[np.int64]) -> None:
        """Go on to *places*; a row that ends before that is not sound."""
        self.at = places
        beyond = places > self._ends
        if beyond.any():
            self.sound &= ~beyond
            self.at = np.where(beyond, 0, places)

    def finish(self) -> None:
        """End: a row that goes on is not sound."""
        self.sound &= self.at == self._ends

    def have(self, expected: bytes) -> NDArray[np.bool_]:
        """Return which rows go on with *expected*. Nothing moves."""
        there = self.sound & (self.at + len(expected) <= self._ends)
        if not there.any():
            return there
        before = np.where(there, self.at, 0)
        for start in range(0, len(expected), _WORD):  # compare eight bytes of all rows at a time
            word = expected[start : start + _WORD]
            unused = 8 * (_WORD - len(word))
            found = self.read(">u8", before + start) >> np.uint64(unused)
            there &= found == np.uint64(int.from_bytes(word, "big"))
        return there

    def ahead(self) -> Ahead:
        """Return what comes next, if it is not a list, a map or the like (`OTHER`)."""
        first = self._bytes[self.at]
        length_sizes, sizes = _LENGTH_SIZES[first], _SIZES[first].astype(np.int64)
        starts = self.at + 1 + length_sizes
        if length_sizes.any():
            for size in np.flatnonzero(np.bincount(length_sizes)[1:]) + 1:
                where = length_sizes == size
                sizes[where] = self.read(f">u{size}", self.at[where] + 1)
        return Ahead(first, _KINDS[first], starts, sizes)

    def integers_in(self, found: Ahead) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the integers of the rows that have one, and which do not fit into 64 bits."""
        sizes = np.where(found.kinds == INTEGER, found.sizes, 0)
        # Each row's number is at the upper end of the eight bytes from its start.
        words = self.read(">u8", found.starts).astype(np.uint64)
        signed = found.first >= 0xD0  # noqa: PLR2004 - of those with further bytes
        unused = 8 * (_WORD - np.maximum(sizes, 1))
        values = np.where(
            signed,
            words.view(np.int64) >> unused,
            (words >> unused.view(np.uint64)).view(np.int64),
        )
        too_large = (sizes == _WORD) & ~signed & (values < 0)
        return np.where(sizes, values, found.first.view(np.int8)), too_large

    def reals_in(self, found: Ahead) -> NDArray[np.float64]:
        """Return the floating-point numbers of the rows that have one."""
        # Other rows, with fewer bytes, read something harmless at 0.
        places = np.where(found.kinds == REAL, found.starts, 0)
        return self.read(">f8", places).astype(np.float64)

    def numbers(self, there: NDArray[np.bool_], before: int) -> Numbers:
        """Read the numbers that stand *before* bytes ahead in the rows *there*, and go on there.

        Such a row with anything else is not sound.
        """
        stay = self.at
        self.move(stay + before * there)
        found = self.ahead()
        ints, too_large = self.integers_in(found)
        are_real = found.kinds == REAL
        self.sound &= ~there | (are_real | (found.kinds == INTEGER)) & ~too_large
        self.move(np.where(there, found.starts + found.sizes, stay))
        reals = self.reals_in(found) if are_real.any() else np.zeros(len(ints))
        return Numbers(ints, reals, are_real, there)
