"""A checksum around the bytes of a record, which binds them to the key under which they are put."""

from __future__ import annotations

from typing import Final

import xxhash

from ringpop_py.errors import StateDamaged

HEAD: Final = b"\xc1\x02"
"""No value of msgpack begins with the first byte, so no older version takes this for a record; nor
is it one bit away from what the first version wrote. The second byte counts formats."""
CHECKSUM_BYTES: Final = 8


def wrap(payload: bytes, key: str) -> bytes:
    """*payload* with its checksum, as the value of *key*."""
    return b"".join((HEAD, payload, _checksum(payload, key)))


def unwrap(value: bytes, key: str) -> bytes:
    """The payload in *value*, which stands at *key*.

    Raises:
        StateDamaged: a bit was changed, something is missing, it was put under another key, or a
            newer version wrote it.
    """
    if not value.startswith(HEAD):
        found = value[: len(HEAD)].hex() or "nothing"
        message = f"{key} is damaged, or a newer version wrote it: it begins with {found}"
        raise StateDamaged(message)
    payload = value[len(HEAD) : -CHECKSUM_BYTES]
    if value[len(HEAD) + len(payload) :] != _checksum(payload, key):
        message = f"{key} is damaged, or belongs under another key: its checksum does not match"
        raise StateDamaged(message)
    return payload


def _checksum(payload: bytes, key: str) -> bytes:
    # Without the cluster, so that a copy of a store can be read under the name of another one.
    place = key.partition("/")[2].encode()
    digest: bytes = xxhash.xxh64_digest(payload, xxhash.xxh64_intdigest(place))
    return digest
