"""The input of streams: sources, which consist of splits, which consist of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.values.operations import Value


class Record(NamedTuple):
    """A record of a source.

    Attributes:
        position: its place in its split; positions rise, and are the same at each reading.
        key: its key in the keyspace or the dataflow.
        size: about how many bytes it has; a stream holds a limited number of bytes.
    """

    position: int
    key: str
    value: Value
    size: int = 100


class BadRecord(NamedTuple):
    """A record that cannot be used, and why.

    Attributes:
        text: the beginning of its content.
    """

    position: int
    why: str
    text: str


class Source(Protocol):
    """Where records come from. Both methods may block: they are called in threads."""

    def splits(self) -> Sequence[str]:
        """Return the names of all splits that exist now. Raises SourceFailed."""

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """Return at most *limit* records after a position; an empty sequence if none follow now.

        Raises:
            SourceFailed: if the split cannot be read; it is tried again.
        """
