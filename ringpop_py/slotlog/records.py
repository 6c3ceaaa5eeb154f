"""Encoding of the records of a partition's log.

Since the second version, a record has a checksum, which is bound to the key under which it is put.
Records of the first version have no checksum and are decoded as they are.
"""

from __future__ import annotations

from typing import Final, assert_never

import xxhash

from ringpop_py.errors import BodyError, StateDamaged
from ringpop_py.slotlog.slots import Claim, Data, Record, Seal
from ringpop_py.values.packed import a_row, a_text, decode_value, encode_value

HEAD: Final = b"\xc1\x02"
"""The first bytes of a record. No msgpack value begins with 0xC1, so the first version rejects such
a record, and no flipped bit makes one of its records look like this. The second byte is the version
of the format."""
CHECKSUM_BYTES: Final = 8
"""The length of the XXH64 digest at the end of a record."""
_CLAIM, _DATA, _SEAL = "claim", "data", "seal"
_FIRST_VERSION: Final = b"\x93"  # its records begin as a msgpack array of three does


def encode_record(record: Record, key: str) -> bytes:
    """Encode *record* as the value of *key*, the key of a slot."""
    row: list[object]
    match record:
        case Claim(owner, nonce):
            row = [_CLAIM, nonce, owner]
        case Data(body, nonce):
            row = [_DATA, nonce, body]
        case Seal(to, nonce):
            row = [_SEAL, nonce, to]
        case _:
            assert_never(record)
    return wrap(encode_value("msgpack", row), key)


def decode_record(value: bytes, key: str) -> Record:
    """Decode the record in *value*, which was read at *key*.

    Raises:
        StateDamaged: if the value is damaged or is not a record; the message names *key*.
    """
    packed = value if value.startswith(_FIRST_VERSION) else unwrap(value, key)
    try:
        kind, nonce, content = a_row(decode_value("msgpack", packed), 3, "record")[:3]
        a_text(nonce, "nonce")
        if kind == _DATA:
            return Data(content, nonce)
        if kind == _CLAIM:
            return Claim(a_text(content, "owner"), nonce)
        if kind == _SEAL:
            return Seal(a_text(content, "to"), nonce)
    except BodyError as error:
        raise StateDamaged(f"{key} holds no record of a log: {error}; restore the object") from None
    raise StateDamaged(
        f"{key} holds a record of the unknown kind {kind!r}; upgrade this node to read it"
    )


def wrap(payload: bytes, key: str, head: bytes = HEAD) -> bytes:
    """Return *payload* with its checksum, as the value of *key*; *head* has two bytes."""
    return b"".join((head, payload, _checksum(payload, key)))


def unwrap(value: bytes, key: str, head: bytes = HEAD) -> bytes:
    """Return the payload of *value*, which was read at *key*, and should begin with *head*.

    Raises:
        StateDamaged: if a bit was flipped, bytes are missing, the value was put under another key,
            or a newer version wrote it.
    """
    if not value.startswith(head):
        found = value[: len(HEAD)].hex() or "nothing"
        raise StateDamaged(
            f"{key} cannot be read: it begins with {found}, so it is damaged or was written by a"
            " newer version; restore the object, or upgrade this node"
        )
    payload = value[len(HEAD) : -CHECKSUM_BYTES]
    if value[len(HEAD) + len(payload) :] != _checksum(payload, key):
        raise StateDamaged(
            f"{key} cannot be read: its checksum does not match, so it is damaged or was put under"
            " another key; restore the object"
        )
    return payload


def _checksum(payload: bytes, key: str) -> bytes:
    # Leave out the cluster's name, so that a copy of a store can be read under another name.
    place = key.partition("/")[2].encode()
    digest: bytes = xxhash.xxh64_digest(payload, xxhash.xxh64_intdigest(place))
    return digest
