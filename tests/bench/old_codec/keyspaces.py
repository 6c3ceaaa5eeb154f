"""Requests of keyspaces and the head of a request for an owner, as they were read and written.

Kept for `tests.bench.codec`, which measures today's codec against it: it is how messages were
read and written, field by field, before they were declared. Frozen: it is not to be mended, nor
to follow the product, and it imports nothing of it. The product never imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.bench.old_codec.values import (
    BodyError,
    a_bool,
    a_list,
    a_map,
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEQUENCE_MAX: Final = (1 << 63) - 1
CHECKSUM_MAX: Final = (1 << 64) - 1
KEY_CHARACTERS_MAX: Final = 1_024
HEAD_KEY_CHARACTERS_MAX: Final = 1 << 16
SOURCE_CHARACTERS_MAX: Final = 256
_DONE, _MOVED, _FAILED = 0, 1, 2

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]


class KeyspaceError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Moved:
    row: list[Any]


class OperationId(NamedTuple):
    source: str
    sequence: int = 0


class Change(NamedTuple):
    key: str
    aggregation: str
    argument: Value = None


class Write(NamedTuple):
    id: OperationId
    changes: tuple[Change, ...]
    offsets: Mapping[str, Value] | None = None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Writes to partitions of one keyspace."""

    keyspace: str
    generation: int
    parts: tuple[tuple[int, tuple[Write, ...]], ...]

    def encode(self) -> bytes:
        """As a body."""
        parts = [[number, [write_row(write) for write in writes]] for number, writes in self.parts]
        return encode_value([self.keyspace, self.generation, parts])

    @classmethod
    def decode(cls, body: bytes) -> ApplyRequest:
        """The request in *body*. Raises BodyError, as all here."""
        keyspace, generation, rows = _head_of(body, 3)
        parts = []
        for part in a_list(rows, "parts"):
            number, writes = a_row(part, 2, "part")[:2]
            parts.append(
                (
                    an_integer(number, "partition"),
                    tuple(write_of(row) for row in a_list(writes, "writes")),
                )
            )
        return cls(keyspace, generation, tuple(parts))


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Keys of partitions of one keyspace.

    Attributes:
        stale: what the owner last knew will do; it need not ask the store whether it still owns.
    """

    keyspace: str
    generation: int
    parts: tuple[tuple[int, tuple[str, ...]], ...]
    stale: bool = False

    def encode(self) -> bytes:
        """As a body."""
        return encode_value([self.keyspace, self.generation, self.parts, self.stale])

    @classmethod
    def decode(cls, body: bytes) -> ReadRequest:
        """The request in *body*."""
        keyspace, generation, rows, stale = _head_of(body, 4)
        parts = []
        for part in a_list(rows, "parts"):
            number, keys = a_row(part, 2, "part")[:2]
            texts = tuple(_key(key) for key in a_list(keys, "keys"))
            parts.append((an_integer(number, "partition"), texts))
        return cls(keyspace, generation, tuple(parts), a_bool(stale, "stale"))


def write_row(write: Write) -> list[Any]:
    """*write* as a row."""
    row = [*write.id, write.changes, dict(write.offsets) if write.offsets else None]
    return [*row, write.digest] if write.digest else row


def write_of(row: object) -> Write:
    """The write in *row*."""
    source, sequence, changes, offsets, *more = a_row(row, 4, "write")[:5]
    found = []
    for change in a_list(changes, "changes"):
        key, aggregation, argument = a_row(change, 3, "change")[:3]
        found.append(Change(_key(key), a_text(aggregation, "aggregation"), argument))
    return Write(
        OperationId(
            a_text(source, "source", length_max=SOURCE_CHARACTERS_MAX),
            an_integer(sequence, "sequence", maximum=SEQUENCE_MAX),
        ),
        tuple(found),
        None if offsets is None else a_map(offsets, "offsets"),
        some_bytes(more[0], "digest") if more else b"",
    )


def encode_results(results: Iterable[object]) -> bytes:
    return encode_value([_result_row(result) for result in results])


def _result_row(result: object) -> list[Any]:
    match result:
        case Moved(row):
            return [_MOVED, row]
        case KeyspaceError():
            return [_FAILED, type(result).__name__, str(result)]
        case _:
            return [_DONE, result]


def decode_results(body: bytes, count: int) -> list[Any]:
    rows = a_list(decode_value(body), "results")
    if len(rows) != count:
        message = f"{len(rows)} results for {count} parts"
        raise BodyError(message)
    return [_result_of(row) for row in rows]


def _result_of(row: object) -> Any:  # noqa: ANN401 - checked by who asked
    kind, value, *rest = a_row(row, 2, "result")
    if kind == _DONE:
        return value
    if kind == _MOVED:
        return Moved(a_list(value, "row"))
    return KeyspaceError(value, *rest)


def packed_values_of(result: object, count: int) -> list[bytes | None]:
    """The *count* packed values of a part of a read; None where there is none."""
    rows = a_list(result, "values")
    if len(rows) != count:
        message = f"{len(rows)} values for {count} keys"
        raise BodyError(message)
    return [None if row is None else some_bytes(row, "value") for row in rows]


def _head_of(body: bytes, count: int) -> list[Any]:
    row = a_row(decode_value(body), count, "request")[:count]
    a_text(row[0], "keyspace")
    an_integer(row[1], "generation")
    return row


def _key(value: object) -> str:
    return a_text(value, "key", length_max=KEY_CHARACTERS_MAX)


@dataclass(frozen=True, slots=True)
class KeyspaceBelief:
    """That keys are those of a keyspace, and what the sender believes of their partitions.

    Attributes:
        epochs: of each key's partition: the latest epoch that the sender has heard of.
    """

    name: str
    generation: int
    epochs: tuple[int, ...]

    def as_row(self) -> list[object]:
        """What `of_row` reads."""
        return [self.name, self.generation, list(self.epochs)]

    @classmethod
    def of_row(cls, value: object, keys_count: int) -> KeyspaceBelief:
        """The belief about *keys_count* keys in *value*. Raises BodyError."""
        name, generation, listed = a_row(value, 3, "keyspace")[:3]
        epochs = tuple(an_integer(epoch, "epoch") for epoch in a_list(listed, "epochs"))
        if len(epochs) != keys_count:
            message = f"{len(epochs)} epochs for {keys_count} keys"
            raise BodyError(message)
        return cls(a_text(name, "keyspace"), an_integer(generation, "generation"), epochs)


class Head(NamedTuple):
    """What travels with a request for an owner.

    One is made for each call, at both ends: a tuple, which is made fastest.

    Attributes:
        keys: what the request is about; empty where a client calls a handler directly.
        ring_checksum: of the sender's ring.
        sender: the member that forwards, empty for a client.
        route: a client asks this node to find the owner. Never set on a forwarded call, so
            that none is forwarded twice.
        idempotent: only with *route*: the client says that it may run more than once.
        keyspace: whose keys they are; None where the ring owns them.
    """

    keys: tuple[str, ...] = ()
    ring_checksum: int | None = None
    sender: str = ""
    route: bool = False
    idempotent: bool = False
    keyspace: KeyspaceBelief | None = None

    def encode(self) -> bytes:
        """The head as bytes (a msgpack map; what is not said is left out)."""
        value: dict[str, object] = {}
        if self.keys:
            value["keys"] = self.keys
        if self.ring_checksum is not None:
            value["ring"] = self.ring_checksum
        if self.sender:
            value["sender"] = self.sender
        if self.route:
            value["route"] = True
        if self.idempotent:
            value["idempotent"] = True
        if self.keyspace is not None:
            value["keyspace"] = self.keyspace.as_row()
        return encode_value(value) if value else b""

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """The head in *data*; no bytes are an empty one.

        Raises:
            BodyError: if *data* holds anything else.
        """
        if not data:
            return cls()
        value = a_map(decode_value(data), "head")
        keys = a_list(value.get("keys"), "keys")
        ring = value.get("ring")
        keyspace = value.get("keyspace")
        return cls(
            tuple([a_text(key, "key", length_max=HEAD_KEY_CHARACTERS_MAX) for key in keys]),
            None if ring is None else an_integer(ring, "ring", maximum=CHECKSUM_MAX),
            a_text(value.get("sender", ""), "sender"),
            a_bool(value.get("route", False), "route"),
            a_bool(value.get("idempotent", False), "idempotent"),
            None if keyspace is None else KeyspaceBelief.of_row(keyspace, len(keys)),
        )
