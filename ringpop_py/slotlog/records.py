"""Records of a partition's log as bytes and back.

Since the second version a record has a checksum, which binds it to the key under which it is put.
Those of the first version have none, and are believed as they are.
"""

from __future__ import annotations

from typing import Final, assert_never

import xxhash

from ringpop_py.errors import BodyError, StateDamaged
from ringpop_py.slotlog.slots import Claim, Data, Record, Seal
from ringpop_py.values.packed import a_row, a_text, decode_value, encode_value

HEAD: Final = b"\xc1\x02"
"""No value of msgpack begins with the first byte, so no older version takes this for a record; nor
is it one bit away from what the first version wrote. The second byte counts formats."""
CHECKSUM_BYTES: Final = 8
_CLAIM, _DATA, _SEAL = "claim", "data", "seal"
_FIRST_VERSION: Final = b"\x93"
"""How msgpack begins a row of three, which is what a record was then."""


def encode_record(record: Record, key: str) -> bytes:
    """*record* as the value of *key*, which is that of a slot."""
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
    """The record in *value*, which stands at *key*.

    Raises:
        StateDamaged: it was damaged, or is something else; the message names *key*.
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
        message = f"{key} holds no record of a log: {error}"
        raise StateDamaged(message) from None
    message = f"{key} holds a record of kind {kind!r}, which this version does not know"
    raise StateDamaged(message)


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
