"""What stands in a journal and beside it: groups of writes, seals, claims and marks.

A journal is a sequence of slots that one node writes, from 1 on, and the first put into a slot wins
it for good. Its name was never used before: it is new after each start of the node, and after each
seal. A group holds what one commit did in any number of partitions. A seal, which another node
puts, ends the journal for all partitions in it.

A partition is owned in epochs, counted from 1. The claim of an epoch says in which journal its
entries are. So epochs of several partitions interleave in one journal, and a partition may come
back to a journal that it has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from ringpop_py.base.values.declared import Declared


class Slot(NamedTuple):
    """How far a partition is: an epoch, and a slot of the journal of that epoch; slots are ordered.

    Epochs and slots count from 1. ``Slot(0, 0)`` comes before the first epoch. The state there is
    empty, or that of a restored checkpoint.
    """

    epoch: int
    sequence: int


ORIGIN: Final = Slot(0, 0)


class Claim(Declared, frozen=True):
    """*owner* alone writes this epoch, in *journal*, at slot *first* or later.

    Attributes:
        base: the checkpoint on which the owner's state was built when it claimed; None if it began
            with nothing. A later list shows that checkpoint or a newer one, or it is lost.
    """

    owner: str
    journal: str
    first: int
    base: Slot | None = None


class Release(Declared, frozen=True):
    """The end of a partition's epoch. *to* is the node that is meant to claim the next one."""

    to: str


class Entry(Declared, frozen=True):
    """What a group did in *partition*; only the fold interprets *body*, unless it is a `Release`.

    It counts if the claim of *epoch* names this journal, and if neither a true seal of the journal
    nor the release of that epoch stands before it.
    """

    partition: int
    epoch: int
    body: object


class Group(Declared, frozen=True):
    """The effects of one commit: at most one entry for each partition."""

    entries: tuple[Entry, ...]

    def entry_of(self, partition: int) -> Entry | None:
        """Return what the group did in *partition*; None if nothing."""
        return next((entry for entry in self.entries if entry.partition == partition), None)


class Seal(Declared, frozen=True):
    """The end of a journal, put by the node *by*, which takes partitions over."""

    by: str


class Mark(Declared, frozen=True):
    """Stands at a slot of a journal: checkpoints cover all that stands below it.

    Attributes:
        covered: for each partition with entries below, a checkpoint that covers them. It was in the
            store before the mark was put; a later list shows it, or a newer one, or it is lost.
    """

    covered: Mapping[int, Slot]


class Reached(Declared, frozen=True):
    """How far a journal had come at some time, as its node wrote it down elsewhere.

    Attributes:
        slot: this slot and all before it were won.
        claims: the epochs in which the node owned partitions, in this journal.
    """

    slot: int
    claims: Mapping[int, int]


Record = Group | Seal


class Fold(Protocol):
    """The state of a partition. It sees each body once, in order, and must not fail."""

    def reset(self) -> None:
        """Become empty."""

    def restore(self, checkpoint: Any) -> None:  # noqa: ANN401 - opaque here
        """Replace the state by that of *checkpoint*."""

    def apply(self, body: object) -> None:
        """Apply the body of the next entry."""
