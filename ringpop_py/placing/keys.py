"""Which partition a key is in. It never changes while a keyspace lives (clients load no NumPy)."""

from __future__ import annotations

from typing import Final

import xxhash

from ringpop_py.dialect import HASH_SEED

PARTITIONS_MAX: Final = 1 << 16
"""Of one keyspace. Some strategies look at each partition with each member: 8 bytes a pair."""
NOBODY: Final = ""
"""Stands for an owner where there is none."""
_SIGN: Final = 1 << 63


def partition_of(key: str, count: int) -> int:
    """The partition of *key*, of *count*: Spark's ``pmod(xxhash64(key), count)``.

    Every text has one: a lone surrogate, which UTF-8 cannot carry (nor Spark), is hashed as the
    three bytes that stand for it.
    """
    try:
        hashed = xxhash.xxh64_intdigest(key.encode(), HASH_SEED)
    except UnicodeEncodeError:
        hashed = hash_text(key)
    # The hash is signed in Spark. Python's remainder is never negative, which is what pmod means.
    return (hashed - ((hashed & _SIGN) << 1)) % count


def hash_text(text: str) -> int:
    """XXH64 of the UTF-8 bytes of *text*, of any text."""
    return xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"), HASH_SEED)
