"""A dialect of the protocol as one value: hashes, checksum, and which extensions are on.

``native`` is ours; ``ringpop`` is byte-compatible with the Go implementation of Ringpop. The
core asks this value instead of asking which dialect it speaks; how a message is written as
bytes is `ringpop_py.net.wire.codec`, picked by `Dialect.scheme`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal

import xxhash

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.farmhash import fingerprint32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HASH_SEED: Final = 42
"""The seed of Spark SQL's ``xxhash64``; with it, a key hashes alike in Spark and in a node."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the members of one cluster must agree on; the defaults are those of ``native``.

    Attributes:
        scheme: the argument scheme of the node's own messages.
        hash_bits: the width of `hash_bytes`: positions on the ring are below ``2**hash_bits``.
        hash_bytes: places keys and points on the ring.
        ordered_checksum: whether the membership checksum is Ringpop's (over sorted text)
            instead of an order-independent sum of one hash a member.
        answers_while_joining: whether pings are served before the join is done.
        joins_alone: whether a node is ready after its first round of joins even without an answer
            (it keeps asking), instead of after enough answers.
        pings_out_of_turn: whether traffic may hasten gossip: a peer whose connection broke is
            probed next, and after a refused request the two nodes exchange what they know.
        sends_cluster: whether messages carry the cluster's ring points, to be compared.
        names_are_addresses: whether a member's name is its address; another name is then a label.
        leaves_on_eviction: whether a node that ends says `leave` instead of `faulty`, so that
            a planned end is never mistaken for a failure.
        retires_leavers: whether members that left become tombstones in time, as faulty ones do.
        extends: whether the extensions of Ringpop can be used (each has a switch in
            `GossipConfig`); members of another implementation could not read them.
    """

    name: Literal["native", "ringpop"]
    scheme: Literal["msgpack", "json"]
    hash_bits: Literal[32, 64]
    hash_bytes: Callable[[bytes], int]
    ordered_checksum: bool = False
    answers_while_joining: bool = True
    joins_alone: bool = True
    pings_out_of_turn: bool = True
    sends_cluster: bool = True
    names_are_addresses: bool = False
    leaves_on_eviction: bool = True
    retires_leavers: bool = True
    extends: bool = True

    def point_name(self, identity: str, index: int, *, is_address: bool) -> str:
        """Return the name of the *index*-th point of a member, before it is hashed.

        Args:
            is_address: whether the member has no name but its address.
        """
        # The mark keeps `a1` + `0` and `a` + `10` apart for every name.
        mark = "" if is_address and self.names_are_addresses else "#"
        return f"{identity}{mark}{index}"

    def hash_key(self, key: str) -> int:
        """Return the position of *key* on the ring: the hash of its UTF-8 bytes."""
        # A lone surrogate is hashed as three bytes, so that every `str` has a position.
        return self.hash_bytes(key.encode("utf-8", "surrogatepass"))

    def hash_each(self, texts: Iterable[bytes]) -> Iterable[int]:
        """Return `hash_bytes` of each of *texts*."""
        if self.hash_bytes is _xxh64:  # without a call in Python for each
            return map(xxhash.xxh64_intdigest, texts, repeat(HASH_SEED))
        return map(self.hash_bytes, texts)

    def ring_checksum(self, names: Iterable[str]) -> int:
        """Return the checksum of a ring: equal for equal *names*, whatever their order."""
        return self.hash_bytes(";".join(sorted(set(names))).encode())


def _xxh64(data: bytes) -> int:
    return xxhash.xxh64_intdigest(data, HASH_SEED)


NATIVE: Final = Dialect("native", "msgpack", 64, _xxh64)
RINGPOP: Final = Dialect(
    name="ringpop",
    scheme="json",
    hash_bits=32,
    hash_bytes=fingerprint32,
    ordered_checksum=True,
    answers_while_joining=False,
    joins_alone=False,
    pings_out_of_turn=False,
    sends_cluster=False,
    names_are_addresses=True,
    leaves_on_eviction=False,
    retires_leavers=False,
    extends=False,
)


def dialect_named(name: str) -> Dialect:
    """Return the dialect called *name*. Raises ConfigError if it is unknown."""
    for dialect in (NATIVE, RINGPOP):
        if dialect.name == name:
            return dialect
    raise ConfigError(f"dialect is 'native' or 'ringpop', not {name!r}")
