"""The encoding of journal records and of the objects beside a journal.

Each value has a checksum, which is bound to the key under which it is put (`values.checksum`).
"""

from __future__ import annotations

from typing import Annotated

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.checksum import unwrap, unwrap_message, wrap, wrap_message
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text, encode
from ringpop_py.base.values.packed import a_row, decode_value
from ringpop_py.state.journal.records import (
    Claim,
    Entry,
    Group,
    Mark,
    Reached,
    Record,
    Release,
    Seal,
    Slot,
)

_GROUP, _SEAL = "group", "seal"

_Place = tuple[Natural, Natural]


class _ClaimRow(Declared, frozen=True):
    owner: Text
    journal: Annotated[str, Meta(min_length=1, max_length=200)]
    first: Annotated[int, Meta(ge=1)]
    base: _Place | None


class _MarkRow(Declared, frozen=True):
    covered: tuple[tuple[Natural, Natural, Natural], ...]


class _ReachedRow(Declared, frozen=True):
    slot: Natural
    claims: tuple[tuple[Natural, Natural], ...]


def encode_record(record: Record, key: str) -> bytes:
    """Encode *record* as the value of *key*, the key of a slot.

    The bodies of its entries are plain values, or tuples of them.
    """
    if isinstance(record, Seal):
        return wrap_message([_SEAL, record.by], key)
    rows = [
        (entry.partition, entry.epoch, None, entry.body.to)
        if isinstance(entry.body, Release)
        else (entry.partition, entry.epoch, entry.body)
        for entry in record.entries
    ]
    return wrap(encode([_GROUP, rows]), key)  # each commit is one


def decode_record(value: bytes, key: str) -> Record:
    """Decode the record in *value*, which was read at *key*.

    Raises:
        StateDamaged: if the value is damaged or is not a record; the message names *key*.
    """
    try:
        kind, content = a_row(decode_value("msgpack", unwrap(value, key)), 2, "record")[:2]
        if kind == _SEAL and isinstance(content, str):
            return Seal(content)
        if kind == _GROUP and isinstance(content, list):
            return Group(tuple(map(_entry, content)))
    except (BodyError, ValueError) as error:
        raise StateDamaged(
            f"{key} holds no record of a journal: {error}; restore the object"
        ) from None
    raise StateDamaged(
        f"{key} holds a record of the unknown kind {kind!r}; upgrade this node to read it"
    )


def _entry(row: object) -> Entry:
    match row:
        case [int(partition), int(epoch), None, str(to), *_]:  # later fields are of a newer version
            return Entry(partition, epoch, Release(to))
        case [int(partition), int(epoch), body, *_] if body is not None:
            return Entry(partition, epoch, body)
    raise BodyError("a group has an entry that is malformed")


def encode_claim(claim: Claim, key: str) -> bytes:
    """Encode *claim* as the value of *key*."""
    return wrap_message(_ClaimRow(claim.owner, claim.journal, claim.first, claim.base), key)


def decode_claim(value: bytes, key: str) -> Claim:
    """Decode the claim in *value*. Raises as `decode_record` does."""
    row = unwrap_message(_ClaimRow, value, key, "claim")
    base = None if row.base is None else Slot(*row.base)
    return Claim(row.owner, row.journal, row.first, base)


def encode_mark(mark: Mark, key: str) -> bytes:
    """Encode *mark* as the value of *key*."""
    covered = tuple((number, *slot) for number, slot in sorted(mark.covered.items()))
    return wrap_message(_MarkRow(covered), key)


def decode_mark(value: bytes, key: str) -> Mark:
    """Decode the mark in *value*. Raises as `decode_record` does."""
    rows = unwrap_message(_MarkRow, value, key, "mark").covered
    return Mark({number: Slot(epoch, slot) for number, epoch, slot in rows})


def encode_reached(reached: Reached, key: str) -> bytes:
    """Encode *reached* as the value of *key*."""
    return wrap_message(_ReachedRow(reached.slot, tuple(sorted(reached.claims.items()))), key)


def decode_reached(value: bytes, key: str) -> Reached:
    """Decode the `Reached` in *value*. Raises as `decode_record` does."""
    row = unwrap_message(_ReachedRow, value, key, "witness of a journal")
    return Reached(row.slot, dict(row.claims))
