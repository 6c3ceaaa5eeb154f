"""The checksums of a message's arguments: each over the arguments, seeded with the one before."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

from ringpop_py.base.errors import WireError
from ringpop_py.base.farmhash import fingerprint32, hash32_with_seed

NONE: Final = 0
CRC32: Final = 1
FARMHASH: Final = 2
CRC32C: Final = 3

Checksum = Callable[[bytes, int], int]
"""Takes bytes and the value so far (0 at first), and returns the value after them."""

_CASTAGNOLI_REFLECTED: Final = 0x82F6_3B78
_ALL_ONES: Final = 0xFFFF_FFFF


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI_REFLECTED if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE: Final = _crc32c_table()


def crc32c_portable(data: bytes, value: int = 0) -> int:
    """Return the CRC-32C, a byte at a time: for peers that insist on it, if no library is there."""
    table = _TABLE
    value ^= _ALL_ONES
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ _ALL_ONES


@cache
def _fastest_crc32c() -> Checksum:
    # Looked for when a peer first insists on it: loading one takes 20 ms.
    with suppress(ImportError):  # the `interop` extra installs this one
        from crc32c import crc32c  # noqa: PLC0415 - optional

        return crc32c  # type: ignore[no-any-return, unused-ignore]
    with suppress(ImportError):
        from google_crc32c import extend  # noqa: PLC0415 - optional

        return lambda data, value: extend(value, data)  # type: ignore[no-any-return, unused-ignore]
    return crc32c_portable


_CHECKSUMS: Final[dict[int, Checksum]] = {
    NONE: lambda _data, _value: 0,
    CRC32: zlib.crc32,
    FARMHASH: lambda data, seed: hash32_with_seed(data, seed) if seed else fingerprint32(data),
}


def checksum_of_type(kind: int) -> Checksum:
    """Return the function for the checksum type *kind* of a frame. Raises WireError."""
    if kind == CRC32C:
        return _fastest_crc32c()
    try:
        return _CHECKSUMS[kind]
    except KeyError:
        raise WireError(f"there is no checksum type {kind}") from None
