"""The partitions of many keys in one call: `Placing.partitions_of` for columns of text.

Texts of one length are hashed together, one step of XXH64 for all of them at a time. A text of up
to 31 bytes takes one step for each group of eight bytes, of four, and each single byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from ringpop_py.base.dialect import HASH_SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ringpop_py.state.placement.keys import Placing

    Hashes = NDArray[np.uint64]
    _Places = NDArray[np.int64]

TOGETHER_MIN: Final = 96
"""With fewer texts of one length, each is hashed alone: the vector steps would cost more."""
TOGETHER_ROWS: Final = 8_192
"""The most texts that are hashed together, so that their bytes and hashes fit into a cache."""
_P1: Final = np.uint64(11400714785074694791)
_P2: Final = np.uint64(14029467366897019727)
_P3: Final = np.uint64(1609587929392839161)
_P4: Final = np.uint64(9650029242287828579)
_P5: Final = np.uint64(2870177450012600261)
_STRIPE: Final = 32


def partitions_of(
    offsets: NDArray[Any], data: bytes | memoryview, placing: Placing
) -> NDArray[np.int64]:
    """Return the partition of each text; its bytes are between *offsets* of *data*."""
    spans = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    hashes = _hashes(*(_tagged(*spans, data) if placing.hash_tags else spans), data)
    # As in Spark, the hash is signed. NumPy's remainder is never negative, like Spark's pmod.
    return hashes.view(np.int64) % np.int64(placing.count)


def _tagged(firsts: _Places, ends: _Places, data: bytes | memoryview) -> tuple[_Places, _Places]:
    """Return where the hash tag of each text begins and ends; see `keys.hash_tag`."""
    low, high = firsts.min(initial=len(data)), ends.max(initial=0)  # *data* may have other texts
    octets = np.frombuffer(data, np.uint8)[low:high]
    # In UTF-8, no byte of a longer character is a brace. *high* stands for a brace that is missing.
    opens, closes = (np.append(np.flatnonzero(octets == ord(each)) + low, high) for each in "{}")
    inner = opens[np.searchsorted(opens, firsts)] + 1
    outer = closes[np.searchsorted(closes, np.minimum(inner, high))]
    has_tag = (inner < outer) & (outer < ends)
    return np.where(has_tag, inner, firsts), np.where(has_tag, outer, ends)


def hashes_of(offsets: NDArray[Any], data: bytes | memoryview) -> NDArray[np.uint64]:
    """Return XXH64 of each text, as `keys.hash_text` computes it."""
    return _hashes(offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64), data)


def _hashes(firsts: _Places, ends: _Places, data: bytes | memoryview) -> Hashes:
    lengths = ends - firsts
    hashes = np.empty(len(firsts), np.uint64)
    octets = np.frombuffer(data, np.uint8)
    view = memoryview(data)
    for length, places in _by_length(lengths):
        if len(places) < TOGETHER_MIN:
            for place in places:
                first = firsts[place]
                text = view[first : first + length]
                hashes[place] = xxhash.xxh64_intdigest(text, HASH_SEED)
        else:
            rows = octets[firsts[places][:, None] + np.arange(length)]
            hashes[places] = _together(rows)
    return hashes


def _by_length(lengths: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield the places of texts of one length, at most `TOGETHER_ROWS` at a time."""
    order = np.argsort(lengths, kind="stable")  # texts of one length stand together then
    ordered = lengths[order]
    ends = [*(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    first = 0
    for end in ends:
        for start in range(first, end, TOGETHER_ROWS):
            yield int(ordered[start]), order[start : min(start + TOGETHER_ROWS, end)]
        first = end


def _together(rows: NDArray[np.uint8]) -> Hashes:
    """Return XXH64 of each of *rows*, which are texts of one length."""
    length = rows.shape[1]
    lanes = length // 8
    words = np.ascontiguousarray(rows[:, : lanes * 8]).view("<u8").astype(np.uint64, copy=False)
    at = length // _STRIPE * 4
    seed = np.uint64(HASH_SEED)
    hashes = _stripes(words[:, :at]) if at else np.full(len(rows), seed + _P5)
    hashes += np.uint64(length)
    for lane in range(at, lanes):
        hashes ^= _round(np.zeros((), np.uint64), words[:, lane])
        hashes = _rotated(hashes, 27) * _P1 + _P4
    at = lanes * 8
    if length - at >= 4:  # noqa: PLR2004 - a word of four bytes
        word = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        hashes ^= word * _P1
        hashes = _rotated(hashes, 23) * _P2 + _P3
        at += 4
    for column in range(at, length):
        hashes ^= rows[:, column].astype(np.uint64) * _P5
        hashes = _rotated(hashes, 11) * _P1
    # The avalanche: after it, each bit of a text has a part in all bits of its hash.
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _stripes(words: Hashes) -> Hashes:
    """Return the hash of the 32-byte stripes (four words each) at the beginning of each text."""
    with np.errstate(over="ignore"):  # NumPy warns if scalars overflow, but not if arrays do
        seed = np.uint64(HASH_SEED)
        starts = (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)
    lanes = [np.full(len(words), start) for start in starts]
    for column in range(words.shape[1]):
        lanes[column % 4] = _round(lanes[column % 4], words[:, column])
    turns = (1, 7, 12, 18)
    hashes: Hashes = sum(
        (_rotated(lane, turn) for lane, turn in zip(lanes, turns, strict=True)),
        np.zeros(len(words), np.uint64),
    )
    for lane in lanes:
        hashes ^= _round(np.zeros((), np.uint64), lane)
        hashes = hashes * _P1 + _P4
    return hashes


def _round(lane: Hashes, words: Hashes) -> Hashes:
    return _rotated(lane + words * _P2, 31) * _P1


def _rotated(hashes: Hashes, bits: int) -> Hashes:
    return (hashes << np.uint64(bits)) | (hashes >> np.uint64(64 - bits))
