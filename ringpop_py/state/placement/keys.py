"""The partition of a key, fixed for the life of a keyspace (clients import this without NumPy)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import xxhash

from ringpop_py.base.arguments import wrong
from ringpop_py.base.dialect import HASH_SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


# Hash tags.


def hash_tag(key: str) -> str:
    """Return the part of *key* that is hashed if a keyspace has hash tags, as in Redis Cluster.

    It is between the first ``{`` and the first ``}`` after it; the whole key if nothing is.

    Raises:
        ConfigError: if *key* is not text.
    """
    if not isinstance(key, str):
        raise wrong("key", "text", key)
    first = key.find("{") + 1
    end = key.find("}", first) if first else 0
    return key[first:end] if end > first else key


@dataclass(frozen=True, slots=True)
class Placing:
    """How the keys of one keyspace become partitions, fixed for its life.

    Attributes:
        count: the number of partitions.
        hash_tags: whether only the `hash_tag` of a key is hashed.
        partition_of: returns the partition of a key. Raises ConfigError if the key is not text.
        partitions_of: returns the partitions of many keys; raises the same.
    """

    count: int
    hash_tags: bool = field(default=False, kw_only=True)
    partition_of: Callable[[str], int] = field(init=False, repr=False, compare=False)
    partitions_of: Callable[[Sequence[str]], list[int]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # Chosen here, so that a keyspace without hash tags has no test for them in its requests.
        one: Callable[[str], int] = _partition_in(self.count)
        many: Callable[[Sequence[str]], list[int]] = partial(partitions_of, count=self.count)
        if self.hash_tags:
            one, many = _by_tag(one), _by_tags(many)
        object.__setattr__(self, "partition_of", one)
        object.__setattr__(self, "partitions_of", many)


def _partition_in(count: int) -> Callable[[str], int]:
    """Return `partition_of` for *count* alone, which is faster: most requests call it."""
    digest, seed, half, whole = xxhash.xxh64_intdigest, HASH_SEED, _SIGN, _SIGN << 1

    def one(key: str) -> int:
        try:
            hashed = digest(key.encode(), seed)
        except (UnicodeEncodeError, AttributeError):  # a lone surrogate, or no text
            return partition_of(key, count)
        return (hashed if hashed < half else hashed - whole) % count  # signed, as in Spark

    return one


def _by_tag(one: Callable[[str], int]) -> Callable[[str], int]:
    return lambda key: one(hash_tag(key))


def _by_tags(many: Callable[[Sequence[str]], list[int]]) -> Callable[[Sequence[str]], list[int]]:
    return lambda keys: many([hash_tag(key) for key in keys])
