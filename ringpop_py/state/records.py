"""Records of a partition's log as bytes and back."""

from __future__ import annotations

from typing import assert_never

from ringpop_py.errors import BodyError, StateDamaged
from ringpop_py.partitions.slots import Claim, Data, Record, Seal
from ringpop_py.wire.values import a_row, a_text, decode_value, encode_value

_CLAIM, _DATA, _SEAL = "claim", "data", "seal"


def encode_record(record: Record) -> bytes:
    """*record* as the value of a slot."""
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
    return encode_value("msgpack", row)


def decode_record(value: bytes, key: str) -> Record:
    """The record in *value*, which stands at *key*.

    Raises:
        StateDamaged: it is none.
    """
    try:
        kind, nonce, content = a_row(decode_value("msgpack", value), 3, "record")[:3]
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
