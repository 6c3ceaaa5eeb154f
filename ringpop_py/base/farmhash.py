"""FarmHash's 32-bit fingerprint (``farmhashmk`` in its source), which Ringpop hashes with.

`fingerprint32` places keys and points on Ringpop's ring; `hash32_with_seed` guards the frames
of TChannel. Inputs fall into four classes by length, each with a mixing scheme of its own. All
arithmetic is modulo 2**32, all words are little-endian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MASK: Final = 0xFFFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_TINY_MAX: Final = 4
_SHORT_MAX: Final = 12
_MEDIUM_MAX: Final = 24
_BLOCK_BYTES: Final = 20


def hash32_with_seed(data: bytes, seed: int) -> int:
    """Return ``farmhashmk::Hash32WithSeed``; *seed* is below 2**32.

    It is always computed here: the function that C libraries export under this name depends on
    the processor.
    """
    if len(data) <= _TINY_MAX:
        return _tiny(data, seed)
    if len(data) <= _SHORT_MAX:
        return _short(data, seed)
    if len(data) <= _MEDIUM_MAX:
        return _medium(data, seed * _C1 & _MASK)
    head = _medium(data[:_MEDIUM_MAX], seed ^ len(data))
    return _mur(fingerprint32(data[_MEDIUM_MAX:]) + seed & _MASK, head)


def pure_fingerprint32(data: bytes) -> int:
    """Return `fingerprint32`, computed without the C extension."""
    return hash32_with_seed(data, 0) if len(data) <= _MEDIUM_MAX else _long(data)


def _tiny(data: bytes, seed: int) -> int:
    b, c = seed, 9
    for byte in data:
        signed = byte - 256 if byte > 127 else byte  # noqa: PLR2004 - `signed char` of C
        b = b * _C1 + signed & _MASK
        c ^= b
    return _finish(_mur(b, _mur(len(data), c)))


def _short(data: bytes, seed: int) -> int:
    size = len(data)
    a = size + _word(data, 0) & _MASK
    b = size * 5 + _word(data, size - 4) & _MASK
    c = 9 + _word(data, (size >> 1) & 4) & _MASK
    d = size * 5 + seed & _MASK
    return _finish(seed ^ _mur(c, _mur(b, _mur(a, d))))


def _medium(data: bytes, seed: int) -> int:
    size = len(data)
    a = _word(data, (size >> 1) - 4)
    b = _word(data, 4)
    c = _word(data, size - 8)
    d = _word(data, size >> 1)
    e = _word(data, 0)
    f = _word(data, size - 4)
    h = d * _C1 + size + seed & _MASK
    a = _rotated(a, 12) + f & _MASK
    h = _mur(c, h) + a & _MASK
    a = _rotated(a, 3) + c & _MASK
    h = _mur(e, h) + a & _MASK
    a = _rotated(a + f & _MASK, 12) + d & _MASK
    h = _mur(b ^ seed, h) + a & _MASK
    return _finish(h)


def _long(data: bytes) -> int:
    size = len(data)
    h = size & _MASK
    f = g = _C1 * size & _MASK
    # The last 20 bytes first, in the order of the original, so that no tail is left over.
    h = _step(_step(h, _scrambled(_word(data, size - 4))), _scrambled(_word(data, size - 16)))
    g = _step(_step(g, _scrambled(_word(data, size - 8))), _scrambled(_word(data, size - 12)))
    f = _rotated(f + _scrambled(_word(data, size - 20)) & _MASK, 19) + 113 & _MASK
    for at in range(0, (size - 1) // _BLOCK_BYTES * _BLOCK_BYTES, _BLOCK_BYTES):
        a, b, c, d, e = (_word(data, at + offset) for offset in range(0, _BLOCK_BYTES, 4))
        h = _mur(d, h + a & _MASK) + e & _MASK
        g = _mur(c, g + b & _MASK) + a & _MASK
        f = _mur(b + e * _C1 & _MASK, f + c & _MASK) + d & _MASK
        f = f + g & _MASK
        g = g + f & _MASK
    for part in (g, f):
        folded = _rotated(_rotated(part, 11) * _C1 & _MASK, 17) * _C1 & _MASK
        h = _rotated(h + folded & _MASK, 19) * 5 + 0xE6546B64 & _MASK
        h = _rotated(h, 17) * _C1 & _MASK
    return h


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _rotated(value: int, bits: int) -> int:
    return (value >> bits | value << (32 - bits)) & _MASK


def _scrambled(value: int) -> int:
    return _rotated(value * _C1 & _MASK, 17) * _C2 & _MASK


def _step(h: int, scrambled: int) -> int:
    return _rotated(h ^ scrambled, 19) * 5 + 0xE6546B64 & _MASK


def _mur(value: int, h: int) -> int:
    return _step(h, _scrambled(value))


def _finish(h: int) -> int:
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


try:
    from farmhash import fingerprint32 as _fingerprint32
except ImportError:  # the extra `interop` is not installed
    _fingerprint32 = pure_fingerprint32

fingerprint32: Final[Callable[[bytes], int]] = _fingerprint32
"""``farmhashmk::Hash32``, the same value on every machine: in C where it is installed."""
