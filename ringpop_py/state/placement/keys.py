"""The partition of a key, fixed for the life of a keyspace (clients import this without NumPy)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from ringpop_py.base.arguments import wrong
from ringpop_py.base.dialect import HASH_SEED

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTITIONS_MAX: Final = 16_384
"""The most partitions of a keyspace; a definition with more is refused."""
PARTITIONS_READ_MAX: Final = 1 << 16
"""The most partitions of a keyspace in a peer's message or file; one with more is refused."""
NOBODY: Final = ""
"""The name of an owner that does not exist."""
_SIGN: Final = 1 << 63


def partition_of(key: str, count: int) -> int:
    """Return the partition of *key*, of *count*: Spark's ``pmod(xxhash64(key), count)``.

    Every text has a partition. A lone surrogate, which neither UTF-8 nor Spark can carry, is hashed
    as the three bytes that stand for it.

    Raises:
        ConfigError: if *key* is not text.
    """
    try:  # nearly every key, with one call less than `hash_text`
        hashed = xxhash.xxh64_intdigest(key.encode(), HASH_SEED)
    except UnicodeEncodeError:
        hashed = hash_text(key)
    except AttributeError:
        raise wrong("key", "text", key) from None
    # As in Spark, the hash is signed. Python's remainder is never negative, like Spark's pmod.
    return (hashed - ((hashed & _SIGN) << 1)) % count


def partitions_of(keys: Sequence[str], count: int) -> list[int]:
    """Return the partition of each of *keys*, as `partition_of` does, in half the time for each.

    Raises:
        ConfigError: if one of them is not text.
    """
    digest, seed = xxhash.xxh64_intdigest, HASH_SEED
    try:
        if not count & (count - 1):  # of a power of two, the remainder does not depend on the sign
            return [digest(key.encode(), seed) & (count - 1) for key in keys]
        hashes = [digest(key.encode(), seed) for key in keys]
        return [(hashed - ((hashed & _SIGN) << 1)) % count for hashed in hashes]
    except (UnicodeEncodeError, AttributeError):  # one of them has a lone surrogate, or is no text
        return [partition_of(key, count) for key in keys]


def hash_text(text: str) -> int:
    """Return XXH64 of the UTF-8 bytes of *text*, which may have lone surrogates."""
    return xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"), HASH_SEED)
