"""Requests of nodes about keyspaces, and their results, as bytes and back. Bodies are msgpack.

Requests for several partitions of one owner travel together, and each part has its own result:
the value, a row of the table that names the partition's owner, or an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import msgspec

from ringpop_py.base import errors
from ringpop_py.base.arguments import checked_seconds
from ringpop_py.base.errors import ConfigError, KeyspaceError
from ringpop_py.base.values.declared import (
    Declared,
    Meta,
    Natural,
    Text,
    astuple,
    base_of,
    converter,
    decode,
    reader,
    replace,
)
from ringpop_py.base.values.operations import (
    Change,
    Key,
    Outcome,
    Value,
    Write,
    check_values,
    is_of_actor,
)
from ringpop_py.base.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

APPLY: Final = "/keyspace/apply"
READ: Final = "/keyspace/read"
SCAN: Final = "/keyspace/scan"
ACTOR: Final = "/keyspace/actor"
RELEASE: Final = "/keyspace/release"
GOSSIP: Final = "/keyspace/gossip"

T = TypeVar("T", bound="Sequence[Any]")

ErrorText = Annotated[str, Meta(max_length=1 << 16)]

_ERRORS: Final[dict[str, type[KeyspaceError]]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, KeyspaceError)
}


STALE_OWNER_S: Final = 0.5
"""The seconds that the owner has for a stale read, before other members are asked, too."""


class Moved(Declared, frozen=True, tag=1):
    """The result if another node owns the partition: the *row* of the table that says so."""

    row: list[Any]


class PartFailed(Declared, frozen=True, tag=2):
    """An error, as it travels: its class and its message."""

    kind: Text
    text: ErrorText = ""

    @classmethod
    def of(cls, error: KeyspaceError) -> PartFailed:
        """Return *error* as it travels."""
        return cls(type(error).__name__, str(error))

    def error(self) -> KeyspaceError:
        """Return the error; one of an unknown class is a `KeyspaceError`."""
        known = _ERRORS.get(self.kind)
        return KeyspaceError(f"{self.kind}: {self.text}") if known is None else known(self.text)


PartResult = Moved | KeyspaceError
"""The result of a part of a request that was not done."""


class Placer(Protocol):
    """How keys become partitions: what a request needs of `Placing` (`state.placement.keys`)."""

    @property
    def count(self) -> int:
        """The number of partitions."""

    @property
    def partition_of(self) -> Callable[[str], int]:
        """The function that returns the partition of a key."""

    @property
    def partitions_of(self) -> Callable[[Sequence[str]], list[int]]:
        """The function that returns the partitions of many keys."""


class KeyspaceRequest(Declared, frozen=True):
    """A request to partitions of one generation of a keyspace."""

    keyspace: Text
    generation: Natural

    @property
    def numbers(self) -> Sequence[int]:
        """The partitions that it names, in its order: there is a result for each."""
        return ()

    def check(self, generation: int, placing: Placer) -> None:
        """Check it against the keyspace as this node knows it: all below believes its numbers.

        Raises:
            KeyspaceUnknown: it means another generation.
            BodyError: it names a partition that does not exist.
        """
        name = self.keyspace
        if self.generation != generation:
            raise errors.KeyspaceUnknown(
                f"keyspace {name!r} is in generation {generation}, not {self.generation}"
            )
        if (last := max(self.numbers, default=0)) >= placing.count:
            raise errors.BodyError(
                f"keyspace {name!r} has {placing.count} partitions, and no partition {last}"
            )


class ApplyRequest(KeyspaceRequest, frozen=True):
    """Writes to partitions of one keyspace."""

    parts: tuple[tuple[Natural, tuple[Write, ...]], ...]

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [number for number, _ in self.parts]

    def check(self, generation: int, placing: Placer) -> None:
        """See `KeyspaceRequest`. Raises BodyError, too, for a key of another partition."""
        super().check(generation, placing)
        for number, writes in self.parts:
            keys = [change[0] for write in writes for change in write.changes]
            for key, there in zip(keys, placing.partitions_of(keys), strict=True):
                if there != number:
                    where = f"partition {there}, not {number}"
                    raise errors.BodyError(f"key {key!r:.100} is in {where}")

    def encode(self) -> bytes:
        """Return the request as a body."""
        parts = [[number, list(map(write_row, writes))] for number, writes in self.parts]
        return encode_value("msgpack", [self.keyspace, self.generation, parts])

    @classmethod
    def decode(cls, body: bytes) -> ApplyRequest:
        """Return the request in *body*. Raises BodyError, as all here."""
        try:
            return _read_apply(body)
        except errors.BodyError:
            # Perhaps because a value is bytes, or is nested deeper than its declared type.
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
        check_values(change.argument for change in self.changes)
        check_values((self.offsets,))

    def plain(self) -> Write:
        changes = tuple(Change(*change) for change in self.changes)
        return Write(
            self.source,
            self.sequence,
            changes,
            self.offsets,
            self.digest,
            self.span,
            self.repeats,
        )


class _AnyApplyRequest(ApplyRequest, frozen=True):
    parts: tuple[tuple[Natural, tuple[_AnyWrite, ...]], ...]


class ReadRequest(KeyspaceRequest, frozen=True):
    """Keys of partitions of one keyspace.

    Attributes:
        stale: whether the owner may answer without asking the store whether it still owns.
        stored: whether values come as they are stored, with the instants at which they expire.
    """

    parts: tuple[tuple[Natural, tuple[Key, ...]], ...]
    stale: bool = False
    stored: bool = False

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [number for number, _ in self.parts]

    def encode(self) -> bytes:
        """Return the request as a body."""
        row = astuple(
            self
        )  # without the last field, as before there was one, if it has its default
        return encode_value("msgpack", row if self.stored else row[:-1])


class ScanRequest(KeyspaceRequest, frozen=True):
    """Keys in order, of partitions of one keyspace: from *start* on, before *end*."""

    partitions: tuple[Natural, ...]
    prefix: Key = ""
    start: Key | None = None
    end: Key | None = None
    limit: Natural = 1_000
    stale: bool = False

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return self.partitions


_read_apply: Final = reader(ApplyRequest)


def checked_timeout_s(timeout_s: float) -> float:
    """Return *timeout_s*. Raises ConfigError if it is not a number above 0."""
    if not checked_seconds(timeout_s, "timeout_s") > 0:
        raise ConfigError(f"timeout_s is above 0, not {timeout_s!r}")
    return timeout_s


def repeated(writes: Iterable[Write]) -> list[Write]:
    """Return *writes* as they are sent again."""
    return [replace(write, repeats=True) for write in writes]


def write_row(write: Write) -> list[Any]:
    """Return *write* as a row."""
    offsets = dict(write.offsets) if write.offsets else None
    row = [write.source, write.sequence, write.changes, offsets]
    if write.repeats or write.span is not None:
        span = None if write.span is None else astuple(write.span)
        row += [write.digest, span]
        return [*row, True] if write.repeats else row
    return [*row, write.digest] if write.digest else row  # most have none


# Results, part by part.


class _Done(Declared, frozen=True, tag=0):
    value: Any


def _row_of(value: object) -> object:
    return PartFailed.of(value) if isinstance(value, KeyspaceError) else base_of(value)


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_row_of).encode


def encode_results(results: Iterable[object]) -> bytes:
    """Return the results of all parts as a body: values, or `PartResult`.

    An error inside of a value, such as the outcome of a write, is a `PartFailed` in its place.
    """
    return _encode([r if isinstance(r, Moved | KeyspaceError) else _Done(r) for r in results])


def decode_results(body: bytes, count: int) -> list[Any]:
    """Return the results of *count* parts: values as they came, or `PartResult`."""
    return [
        row.value if isinstance(row, _Done) else row.error() if isinstance(row, PartFailed) else row
        for row in _as_many(_read_results(body), count)
    ]


def first_error(body: bytes, *, of_writes: bool) -> str:
    """Return the class of the first error in the results in *body*; empty without one.

    Args:
        of_writes: look also for errors in place of the outcomes of writes.
    """
    for row in _read_results(body):
        if isinstance(row, PartFailed):
            return row.kind
        if isinstance(row, Moved):
            return type(row).__name__
        for outcome in _outcomes_in(row.value) if of_writes else ():
            if isinstance(outcome, PartFailed):
                return outcome.kind
    return ""


_read_results: Final = reader(tuple[_Done | Moved | PartFailed, ...])


def _as_many(rows: T, count: int) -> T:
    if len(rows) != count:
        raise errors.BodyError(f"{len(rows)} results where {count} were asked for")
    return rows


def outcomes_of(result: object, count: int) -> list[Outcome | KeyspaceError]:
    """Return the outcomes of the *count* writes of a part, from its result."""
    outcomes: list[Outcome | KeyspaceError] = []
    for row in _as_many(_outcomes_in(result), count):
        if isinstance(row, PartFailed):
            outcomes.append(row.error())
        else:
            check_values(row.values)
            outcomes.append(row)
    return outcomes


def spread(
    outcomes: Sequence[Outcome | KeyspaceError], changes_count: int
) -> list[Outcome | KeyspaceError]:
    """Return one outcome for each change, if each had its write or all had one."""
    if len(outcomes) == changes_count:
        return list(outcomes)
    (outcome,) = outcomes
    if isinstance(outcome, KeyspaceError):
        return [outcome] * changes_count
    return [Outcome((value,), outcome.repeated) for value in outcome.values]


def value_of(key: str, packed: bytes) -> Value:
    """Return the value in *packed*, which is stored under *key*.

    Raises:
        StateDamaged: it cannot be unpacked. A job can have put it: its values are not checked.
    """
    try:
        value: Value = decode_value("msgpack", packed)
    except errors.BodyError as error:
        raise errors.StateDamaged(
            f"the value of key {key!r} cannot be read, only replaced or deleted: {error}"
        ) from None
    return value


_outcomes_in: Final[Callable[[object], list[Outcome | PartFailed]]] = converter(
    list[Outcome | PartFailed], "outcomes"
)
_PACKED: Final = {bytes, type(None)}


def packed_values_of(result: object, count: int) -> list[bytes | None]:
    """Return the *count* packed values of a part of a read; None for an absent key."""
    # By hand, because most reads are of few keys: this takes half as long as `convert`.
    if not isinstance(result, list) or not set(map(type, result)) <= _PACKED:
        raise errors.BodyError("packed values are bytes or nothing")
    return _as_many(result, count)


class Scanned(Declared, frozen=True):
    """Keys and packed values of a part of a scan, and whether there are more."""

    rows: list[tuple[Key, bytes]]
    more: bool


def scanned_of(result: object) -> Scanned:
    """Return the page of a part of a scan, from its result."""
    page: Scanned = _scanned_in(result)
    # The next page starts after the last row, so there must be one.
    if page.more and not page.rows:
        raise errors.BodyError("Scanned: rows: none, though there are more")
    return page


_scanned_in: Final = converter(Scanned)


def part_limit(limit: int, partitions_count: int) -> int:
    """Return how many rows to request of each partition, to have about *limit* of all together."""
    # Keys are hashed, so each partition has about its share of any range. If each sent the whole
    # *limit*, almost all rows would be discarded, and sent again for the next page.
    share = limit / partitions_count
    return min(limit, math.ceil(share + 4 * math.sqrt(share)) + 4)


def merged_page(parts: Iterable[Scanned], limit: int) -> tuple[list[tuple[str, bytes]], str | None]:
    """Return the first rows of all *parts* of a scan, and where the next page starts, if any.

    The records of actors are left out.
    """
    rows: list[tuple[str, bytes]] = []
    ends = []
    for part in parts:
        rows += part.rows
        if part.more:
            ends.append(part.rows[-1][0])
    rows.sort()
    # Beyond the last key of a partition that has more, others could be missing.
    whole = [row for row in rows if row[0] <= min(ends)] if ends else rows
    page = whole[:limit]
    # With "\0" behind it, a key becomes the least that is greater.
    following = page[-1][0] + "\0" if ends or len(rows) > limit else None
    return [row for row in page if not is_of_actor(row[1])], following
