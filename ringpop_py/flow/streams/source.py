"""The input of streams: sources, which consist of splits, which consist of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from ringpop_py.base.errors import SourceFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.values.operations import Value


class SplitDiffers(SourceFailed):
    """No record ends at the position up to which a split was read, and none ever will."""


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


class NamedSplit(str):
    """The name of a split, with more about it; a plain name has nothing more.

    Attributes:
        label: what people call it now; it may change.
        alias: what it shares with its copies; the name is the alias, ``@`` and a hexadecimal
            number. Empty if copies are not known as such.
        is_copy: whether it may continue a split with the same alias that is gone.
        is_spare: whether it is read only if it was read before, under any of its names.
        is_ended: whether it is expected to grow no more.
    """

    __slots__ = ("alias", "is_copy", "is_ended", "is_spare", "label")
    label: str
    alias: str
    is_copy: bool
    is_spare: bool
    is_ended: bool

    def __new__(
        cls,
        name: str,
        *,
        label: str = "",
        alias: str = "",
        is_copy: bool = False,
        is_spare: bool = False,
        is_ended: bool = False,
    ) -> Self:
        """Return the name, which is *name*."""
        self = super().__new__(cls, name)
        self.label, self.alias = label or name, alias
        self.is_copy, self.is_spare, self.is_ended = is_copy, is_spare, is_ended
        return self

    def ended(self) -> NamedSplit:
        """Return the same split, which is expected to grow no more."""
        return NamedSplit(
            self, label=self.label, alias=self.alias, is_copy=self.is_copy, is_ended=True
        )


class Source(Protocol):
    """Where records come from. Both methods may block: they are called in threads.

    A source may also have a method ``losses``, which returns texts about what was lost of late, and
    ``bounded``, which returns its present content as a source; and an attribute ``awaits``: whether
    a split was there that has no name yet, for which watermarks wait.
    """

    def splits(self) -> Sequence[str]:
        """Return the names of all splits that exist now, each perhaps a `NamedSplit`.

        Raises:
            SourceFailed: if they cannot be listed.
        """

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """Return at most *limit* records after a position; an empty sequence if none follow now.

        Raises:
            SourceFailed: if the split cannot be read; it is tried again.
        """


def label_of(split: str) -> str:
    """Return what people call *split*."""
    return split.label if isinstance(split, NamedSplit) else split


def losses_of(source: Source) -> list[str]:
    """Return what *source* says of losses."""
    losses = getattr(source, "losses", None)
    return [] if losses is None else list(losses())


def original_of(alias: str, number: int) -> str:
    """Return the name of the split with *alias* and *number*."""
    return f"{alias}@{number:x}"


def number_of(split: NamedSplit) -> int:
    """Return the number in the name of a *split* with an alias."""
    return int(split.rpartition("@")[2], 16)
