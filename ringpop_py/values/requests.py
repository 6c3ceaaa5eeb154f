"""What nodes say to each other about keyspaces, as bytes and back. Bodies are msgpack.

Requests for several partitions of one owner travel together, and each part has its own result:
what was asked for, a row of the table that says who owns the partition, or an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ringpop_py import errors
from ringpop_py.errors import KeyspaceError
from ringpop_py.values.declared import Declared, Natural, Text, decode
from ringpop_py.values.operations import KEY_CHARACTERS_MAX as KEY_CHARACTERS_MAX
from ringpop_py.values.operations import SOURCE_CHARACTERS_MAX as SOURCE_CHARACTERS_MAX
from ringpop_py.values.operations import Change, Outcome, Value, Write, check_value
from ringpop_py.values.packed import (
    a_bool,
    a_list,
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

APPLY: Final = "/keyspace/apply"
READ: Final = "/keyspace/read"
SCAN: Final = "/keyspace/scan"
RELEASE: Final = "/keyspace/release"
GOSSIP: Final = "/keyspace/gossip"

SEQUENCE_MAX: Final = (1 << 63) - 1

_DONE, _MOVED, _FAILED = 0, 1, 2
_ERRORS: Final[dict[str, type[KeyspaceError]]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, KeyspaceError)
}


STALE_OWNER_S: Final = 0.5
"""So many seconds the owner has for a stale read, before the answer is sought elsewhere, too."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Another node owns the partition, as *row* of the table says."""

    row: list[Any]


PartResult = Moved | KeyspaceError
"""What a part of a request can come to besides being done."""


class ApplyRequest(Declared, frozen=True):
    """Writes to partitions of one keyspace."""

    keyspace: Text
    generation: Natural
    parts: tuple[tuple[Natural, tuple[Write, ...]], ...]

    def encode(self) -> bytes:
        """As a body."""
        parts = [[number, [write_row(write) for write in writes]] for number, writes in self.parts]
        return encode_value("msgpack", [self.keyspace, self.generation, parts])

    @classmethod
    def decode(cls, body: bytes) -> ApplyRequest:
        """The request in *body*. Raises BodyError, as all here."""
        try:
            return decode(ApplyRequest, body)
        except errors.BodyError:
            # Perhaps for a value that is bytes, or nested deeper than its declared type tells.
            read = decode(_AnyApplyRequest, body)
        parts = ((number, tuple(w.plain() for w in writes)) for number, writes in read.parts)
        return ApplyRequest(read.keyspace, read.generation, tuple(parts))


class _AnyChange(Change):
    __slots__ = ()

    argument: Any


class _AnyWrite(Write, frozen=True):
    changes: tuple[_AnyChange, ...]
    offsets: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for change in self.changes:
            check_value(change.argument)
        check_value(self.offsets)

    def plain(self) -> Write:
        changes = tuple(Change(*change) for change in self.changes)
        return Write(self.source, self.sequence, changes, self.offsets, self.digest)


class _AnyApplyRequest(ApplyRequest, frozen=True):
    parts: tuple[tuple[Natural, tuple[_AnyWrite, ...]], ...]


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
        return encode_value("msgpack", [self.keyspace, self.generation, self.parts, self.stale])

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


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Keys in order, of partitions of one keyspace: from *start* on and before *end*."""

    keyspace: str
    generation: int
    partitions: tuple[int, ...]
    prefix: str = ""
    start: str | None = None
    end: str | None = None
    limit: int = 1_000
    stale: bool = False

    def encode(self) -> bytes:
        """As a body."""
        bounds = [self.prefix, self.start, self.end, self.limit, self.stale]
        row = [self.keyspace, self.generation, self.partitions, *bounds]
        return encode_value("msgpack", row)

    @classmethod
    def decode(cls, body: bytes) -> ScanRequest:
        """The request in *body*."""
        keyspace, generation, numbers, prefix, start, end, limit, stale = _head_of(body, 8)
        return cls(
            keyspace,
            generation,
            tuple(an_integer(number, "partition") for number in a_list(numbers, "partitions")),
            _key(prefix),
            None if start is None else _key(start),
            None if end is None else _key(end),
            an_integer(limit, "limit"),
            a_bool(stale, "stale"),
        )


def write_row(write: Write) -> list[Any]:
    """*write* as a row."""
    row = [
        write.source,
        write.sequence,
        write.changes,
        dict(write.offsets) if write.offsets else None,
    ]
    return [*row, write.digest] if write.digest else row


# Results, part by part.


def encode_results(results: Iterable[object]) -> bytes:
    """The results of all parts: what was asked for, as plain values, or a `PartResult`."""
    return encode_value("msgpack", [_result_row(result) for result in results])


def _result_row(result: object) -> list[Any]:
    match result:
        case Moved(row):
            return [_MOVED, row]
        case KeyspaceError():
            return [_FAILED, type(result).__name__, str(result)]
        case _:
            return [_DONE, result]


def decode_results(body: bytes, count: int) -> list[Any]:
    """The results of *count* parts: values as they came, or `PartResult`."""
    rows = a_list(decode_value("msgpack", body), "results")
    if len(rows) != count:
        message = f"{len(rows)} results for {count} parts"
        raise errors.BodyError(message)
    return [_result_of(row) for row in rows]


def _result_of(row: object) -> Any:  # noqa: ANN401 - checked by who asked
    kind, value, *rest = a_row(row, 2, "result")
    if kind == _DONE:
        return value
    if kind == _MOVED:
        return Moved(a_list(value, "row"))
    return error_of(value, rest[0] if rest else "")


def error_of(kind: object, message: object) -> KeyspaceError:
    """The error of class *kind*; one that is not known here is a `KeyspaceError`."""
    name, text = a_text(kind, "error"), a_text(message, "error", length_max=1 << 16)
    known = _ERRORS.get(name)
    return known(text) if known is not None else KeyspaceError(f"{name}: {text}")


def ended_with(error: KeyspaceError, *, unsure: bool) -> KeyspaceError:
    """Return what a request ends with whose last attempt came to *error*.

    Args:
        unsure: whether an attempt before may have taken effect.
    """
    if unsure and error.took_effect == "no" and not error.settles:
        return errors.OutcomeUnknown(f"it may have taken effect: {error}")
    return error


def outcome_rows(outcomes: Sequence[Outcome | KeyspaceError]) -> list[list[Any]]:
    """What became of the writes of a part, as its result."""
    return [
        [_FAILED, type(outcome).__name__, str(outcome)]
        if isinstance(outcome, KeyspaceError)
        else [_DONE, outcome.values, outcome.repeated]
        for outcome in outcomes
    ]


def outcomes_of(result: object, count: int) -> list[Outcome | KeyspaceError]:
    """What became of the *count* writes of a part, of its result."""
    rows = a_list(result, "outcomes")
    if len(rows) != count:
        message = f"{len(rows)} outcomes for {count} writes"
        raise errors.BodyError(message)
    found: list[Outcome | KeyspaceError] = []
    for row in rows:
        kind, *rest = a_row(row, 3, "outcome")
        if kind == _DONE:
            found.append(Outcome(tuple(a_list(rest[0], "values")), a_bool(rest[1], "repeated")))
        else:
            found.append(error_of(*rest[:2]))
    return found


def spread(
    outcomes: Sequence[Outcome | KeyspaceError], changes_count: int
) -> list[Outcome | KeyspaceError]:
    """An outcome a change: of a write a change, or of one write of all of them."""
    if len(outcomes) == changes_count:
        return list(outcomes)
    (outcome,) = outcomes
    if isinstance(outcome, KeyspaceError):
        return [outcome] * changes_count
    return [Outcome((value,), outcome.repeated) for value in outcome.values]


def value_of(key: str, packed: bytes) -> Value:
    """The value in *packed*, which is stored under *key*.

    Raises:
        StateDamaged: it is none. A job can have put it there: nobody unpacks what jobs put.
    """
    try:
        value: Value = decode_value("msgpack", packed)
    except errors.BodyError as error:
        message = f"the value of key {key!r} cannot be read, only put anew or deleted: {error}"
        raise errors.StateDamaged(message) from None
    return value


def packed_values_of(result: object, count: int) -> list[bytes | None]:
    """The *count* packed values of a part of a read; None where there is none."""
    rows = a_list(result, "values")
    if len(rows) != count:
        message = f"{len(rows)} values for {count} keys"
        raise errors.BodyError(message)
    return [None if row is None else some_bytes(row, "value") for row in rows]


def scanned_of(result: object) -> tuple[list[tuple[str, bytes]], bool]:
    """Keys and packed values of a part of a scan, and whether there are more."""
    rows, more = a_row(result, 2, "scan")[:2]
    found = []
    for row in a_list(rows, "rows"):
        key, value = a_row(row, 2, "row")[:2]
        found.append((_key(key), some_bytes(value, "value")))
    return found, a_bool(more, "more")


def part_limit(limit: int, partitions_count: int) -> int:
    """How many rows of each partition to ask for, to have about *limit* of all together.

    Keys are hashed, so each partition has its share of any range, give or take; were each asked for
    the whole *limit*, almost all of what came would be thrown away, and come again.
    """
    share = limit / partitions_count
    return min(limit, math.ceil(share + 4 * math.sqrt(share)) + 4)


def merged_page(
    parts: Iterable[tuple[list[tuple[str, bytes]], bool]], limit: int
) -> tuple[list[tuple[str, bytes]], str | None]:
    """The first rows of all *parts* of a scan together, and where the next page starts, if any."""
    rows: list[tuple[str, bytes]] = []
    ends = []
    for found, more in parts:
        rows += found
        if more:
            ends.append(found[-1][0])
    rows.sort()
    # Beyond the last key of a partition that has more, others could be missing.
    whole = [row for row in rows if row[0] <= min(ends)] if ends else rows
    page = whole[:limit]
    return page, page[-1][0] + "\0" if ends or len(rows) > limit else None


def _head_of(body: bytes, count: int) -> list[Any]:
    row = a_row(decode_value("msgpack", body), count, "request")[:count]
    a_text(row[0], "keyspace")
    an_integer(row[1], "generation")
    return row


def _key(value: object) -> str:
    return a_text(value, "key", length_max=KEY_CHARACTERS_MAX)
