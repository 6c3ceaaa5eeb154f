"""The messages by which the owner of a partition in memory feeds its backups, and asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from ringpop_py.base.values.declared import Declared, Natural, Text
from ringpop_py.base.values.requests import KeyspaceRequest

COPY: Final = "/keyspace/copy"
COPIES_ASKED: Final = "/keyspace/copies-asked"


class CopyStep(IntEnum):
    """What is sent to a backup."""

    CHANGES = 0
    WHOLE = 1
    FORGET = 2
    """Other members have copies now."""


class CopyReply(IntEnum):
    """The answer of a backup to a part."""

    NEEDS_WHOLE = 0
    TAKEN = 1
    HANDS_OVER = 2
    """It hands over first what it has, of which the owner does not know."""


class CopyPart(Declared, frozen=True):
    """A part of what a backup lacks of a partition.

    Attributes:
        run: of the owner, in which changes are counted.
        after: the count that the backup has; of the whole partition, the index of the part.
        count: the count that it has with the last part.
        last: whether this is the last part.
        known: whether the owner knows that the backup had a copy before.
    """

    number: Natural
    run: Text
    step: CopyStep
    after: Natural
    count: Natural
    last: bool
    known: bool
    entries: list[Any]
    sessions: list[Any]
    offsets: dict[str, bytes]
    digests: Sequence[Any]


class CopyGroup(KeyspaceRequest, frozen=True):
    """What a backup lacks; the answer is a list with a `CopyReply` for each part."""

    owner: Text
    parts: list[CopyPart]

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [part.number for part in self.parts]


class CopiesAsked(KeyspaceRequest, frozen=True):
    """The question of *asker*, which is about to serve partitions, who has copies of them.

    The answer is a list of those that are there, of those it named.

    Attributes:
        rows: number, run and count of each: what the asker has itself.
        sends: whether to send what the asker may lack of them, before the answer.
    """

    asker: Text
    rows: list[tuple[Natural, Text, Natural]]
    sends: bool

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [row[0] for row in self.rows]
