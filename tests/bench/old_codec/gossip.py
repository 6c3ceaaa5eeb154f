"""A ping of the native dialect, and the rows in it, as they were read and written.

Kept for `tests.bench.codec`, which measures today's codec against it: it is how messages were
read and written, field by field, before they were declared. Frozen: it is not to be mended, nor
to follow the product, and it imports nothing of it. The product never imports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from tests.bench.old_codec.values import (
    PORT_MAX,
    Address,
    BodyError,
    a_list,
    a_map,
    a_row,
    a_text,
    an_address,
    an_integer,
    decode_value,
    encode_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKSUM_MAX: Final = (1 << 64) - 1
NAME_CHARACTERS_MAX: Final = 255
IDENTITY_LABEL: Final = "__identity"
LABELS_RECEIVED_MAX: Final = 16
LABEL_CHARACTERS_MAX: Final = 256

Labels = tuple[tuple[str, str], ...]
LeftOut = Callable[[str], None]


class Status(IntEnum):
    ALIVE = 0
    SUSPECT = 1
    FAULTY = 2
    LEAVE = 3
    TOMBSTONE = 4


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    address: Address
    incarnation: int
    status: Status = Status.ALIVE
    labels: Labels = ()
    damping: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    member: Member
    source: str = ""
    source_incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    cluster: str | None
    ring_points: int | None
    source: str
    source_address: Address
    source_incarnation: int
    checksum: int | None
    changes: tuple[Change, ...] = ()
    digest: int | None = None


def nobody_asks(_what: str) -> None:
    pass


def encode_ping(request: Ping) -> bytes:
    body: list[object]
    match request:
        case Ping(cluster, points, source, address, incarnation, checksum, changes, digest):
            body = [cluster, points, source, *address, incarnation, checksum]
            body += [[_change_row(change) for change in changes], digest]
    return encode_value(body)


def decode_ping(body: bytes, left_out: LeftOut = nobody_asks) -> Ping:
    row = a_row(decode_value(body), 8, "ping")
    return Ping(
        a_text(row[0], "cluster"),
        None if row[1] is None else an_integer(row[1], "ring points"),
        a_text(row[2], "source"),
        an_address(row[3], row[4], "source address"),
        an_integer(row[5], "incarnation"),
        _checksum(row[6]),
        _changes_from_rows(row[7], left_out),
        _checksum(row[8], "digest") if len(row) > 8 else None,
    )


def _row(member: Member) -> list[object]:
    host, port = member.address
    row: list[object] = [member.name, host, port, member.incarnation, int(member.status)]
    if member.labels or member.damping:
        row.append(dict(member.labels))
    if member.damping:
        row.append(member.damping)
    return row


def _change_row(change: Change) -> list[object]:
    return [change.source, change.source_incarnation, _row(change.member)]


def _member_from_row(value: object, left_out: LeftOut) -> Member:
    row = a_row(value, 5, "member")
    status = an_integer(row[4], "status", maximum=max(Status))
    name = a_text(row[0], "name", length_max=NAME_CHARACTERS_MAX)
    if not name.isprintable() or not name:
        message = "name is empty or not printable"
        raise BodyError(message)
    return Member(
        name,
        _address_of(
            a_text(row[1], "member host"),
            an_integer(row[2], "member port", maximum=PORT_MAX),
        ),
        an_integer(row[3], "incarnation"),
        Status(status),
        _labels(row[5], name, left_out) if len(row) > 5 else (),
        an_integer(row[6], "damping") if len(row) > 6 else 0,
    )


@functools.lru_cache(maxsize=4096)
def _address_of(host: str, port: int) -> Address:
    return an_address(host, port, "member address")


def _changes_from_rows(value: object, left_out: LeftOut) -> tuple[Change, ...]:
    changes = []
    for item in a_list(value, "changes"):
        row = a_row(item, 3, "change")
        source, incarnation = a_text(row[0], "source"), an_integer(row[1], "incarnation")
        changes.append(Change(_member_from_row(row[2], left_out), source, incarnation))
    return tuple(changes)


def _labels(value: object, name: str, left_out: LeftOut) -> Labels:
    kept, dropped_count = labels_of_peer({} if value is None else a_map(value, "labels"))
    if dropped_count:
        left_out(labels_left_out(dropped_count, name))
    return kept


def labels_left_out(count: int, member: object) -> str:
    """The phrase for labels beyond the limits."""
    return f"{count} labels of {member}, which are more or longer than this node keeps"


def labels_of_peer(labels: Mapping[str, object]) -> tuple[Labels, int]:
    """What is kept of the *labels* that a peer sent, and how many are not.

    One label too many or too long costs itself, not the change that it came with.
    """
    kept = [
        (key, value)
        for key, value in sorted(labels.items())
        if isinstance(value, str) and max(len(key), len(value)) <= LABEL_CHARACTERS_MAX
    ]
    if len(kept) > LABELS_RECEIVED_MAX:
        others = [label for label in kept[LABELS_RECEIVED_MAX:] if label[0] == IDENTITY_LABEL]
        kept = kept[:LABELS_RECEIVED_MAX] + others
    return tuple(kept), len(labels) - len(kept)


def _checksum(value: object, what: str = "checksum") -> int | None:
    return None if value is None else an_integer(value, what, maximum=CHECKSUM_MAX)
