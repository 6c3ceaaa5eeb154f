"""What stands in the log of a partition: slots, and the records in them.

A partition's log is a sequence of slots, each written once by whoever is first. Epoch after epoch,
slot 0 holds the `Claim` of the epoch's owner, the slots after it hold `Data`, and a `Seal` ends it.
The ring says who should own a partition; the log says who does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Slot(NamedTuple):
    """A place in a partition's log; slots are ordered.

    Epochs begin at 1, sequences at 0. ``Slot(0, 0)`` is before the first: the state there is
    empty, or what a restored checkpoint says.
    """

    epoch: int
    sequence: int


ORIGIN = Slot(0, 0)


@dataclass(frozen=True, slots=True)
class Claim:
    """*owner* is the only writer of this epoch; the *nonce* tells its process from others."""

    owner: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Data:
    """What one group commit did; *body* means something to the fold alone."""

    body: object
    nonce: str


@dataclass(frozen=True, slots=True)
class Seal:
    """The epoch ends here. *to*: who is meant to claim the next one; empty for anybody."""

    to: str
    nonce: str


Record = Claim | Data | Seal
