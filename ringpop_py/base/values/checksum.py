"""The objects in a store: a payload, with the version of its format and a checksum.

The checksum is bound to the key under which the object is put, so an object that was copied to
another key is recognized like one with a flipped bit.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import xxhash

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.declared import decode, encode

T = TypeVar("T")

MAGIC: Final = b"\xc1"
"""The first byte of an object. No msgpack value begins with 0xC1."""
STORE_FORMAT: Final = 1
"""The version of the format in which objects are put. It counts up with each change that an older
node cannot read."""
HEAD: Final = MAGIC + bytes([STORE_FORMAT])
CHECKSUM_BYTES: Final = 8
"""The length of the XXH64 digest at the end of an object."""


def wrap(payload: bytes, key: str) -> bytes:
    """Return *payload* with its head and its checksum, as the value of *key*."""
    return b"".join((HEAD, payload, _checksum(payload, key)))


def unwrap(value: bytes, key: str) -> bytes:
    """Return the payload of *value*, which was read at *key*.

    Raises:
        StateDamaged: if a bit was flipped, bytes are missing, the value was put under another key,
            or it is in another version of the format. The message names *key*.
    """
    if not value.startswith(HEAD):
        raise StateDamaged(f"{key} cannot be read: {_strange(value)}")
    payload = value[len(HEAD) : -CHECKSUM_BYTES]
    if value[len(HEAD) + len(payload) :] != _checksum(payload, key):
        raise StateDamaged(
            f"{key} cannot be read: its checksum does not match, so it is damaged or was put under"
            " another key; restore the object"
        )
    return payload


def wrap_message(message: Any, key: str) -> bytes:  # noqa: ANN401 - what `encode` takes
    """Return *message* as the value of *key*."""
    return wrap(encode(message), key)


def unwrap_message(kind: type[T], value: bytes, key: str, what: str) -> T:
    """Return the message of *kind* in *value*, which was read at *key*.

    Raises:
        StateDamaged: as `unwrap`, or if there is no such message; the text says *what* should be.
    """
    try:
        return decode(kind, unwrap(value, key))
    except BodyError as error:
        raise StateDamaged(f"{key} holds no {what}: {error}; restore the object") from None


def _strange(value: bytes) -> str:
    if value.startswith(MAGIC) and len(value) > len(HEAD):
        return (
            f"it is in format {value[1]} of the store, and this node reads format {STORE_FORMAT};"
            " use nodes of the version that wrote it, or restore the object if it is damaged"
        )
    found = value[: len(HEAD)].hex() or "nothing"
    return (
        f"it begins with {found}, and not as an object of the store does, so it is damaged;"
        " restore the object"
    )


def _checksum(payload: bytes, key: str) -> bytes:
    # Leave out the cluster's name, so that a copy of a store can be read under another name.
    place = key.partition("/")[2].encode()
    digest: bytes = xxhash.xxh64_digest(payload, xxhash.xxh64_intdigest(place))
    return digest
