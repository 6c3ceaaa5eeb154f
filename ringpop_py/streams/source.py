"""What a stream reads: sources, which consist of splits, which consist of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.values.operations import Value


class Record(NamedTuple):
    """Something that was read.

    Attributes:
        position: where it stands in its split; positions rise, and are the same each time.
        key: of the keyspace into which it goes.
        size: about how many bytes it has; a stream holds only so many.
    """

    position: int
    key: str
    value: Value
    size: int = 100


class BadRecord(NamedTuple):
    """Something that cannot be used, and why.

    Attributes:
        text: what stands there, cut if it is long.
    """

    position: int
    why: str
    text: str


class Source(Protocol):
    """Where records come from. Both methods may block: they are called in threads."""

    def splits(self) -> Sequence[str]:
        """Return the names of all splits that there are now. Raises SourceFailed."""

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """Return at most *limit* records after a position, none if there are no more now.

        Raises:
            SourceFailed: if the split cannot be read; it is tried again.
        """
