"""Slots of a partition's log, and the records in them.

A partition's log is a sequence of slots, and the first put into a slot wins it for good. In each
epoch, slot 0 holds the `Claim` of the owner, the slots after it hold `Data`, and a `Seal` ends it.
The ring says which node should own a partition; the log says which node does.
"""

from __future__ import annotations

from typing import NamedTuple

from ringpop_py.values.declared import Declared


class Slot(NamedTuple):
    """A place in a partition's log; slots are ordered.

    Epochs begin at 1, sequences at 0. ``Slot(0, 0)`` comes before the first epoch. The state there
    is empty, or that of a restored checkpoint.
    """

    epoch: int
    sequence: int


ORIGIN = Slot(0, 0)


class Claim(Declared, frozen=True):
    """*owner* is the only writer of this epoch; the *nonce* distinguishes it from its namesakes."""

    owner: str
    nonce: str


class Data(Declared, frozen=True):
    """The effects of one group commit; only the fold interprets *body*."""

    body: object
    nonce: str


class Seal(Declared, frozen=True):
    """The end of an epoch. *to* is the node that is meant to claim the next one; empty for any."""

    to: str
    nonce: str


Record = Claim | Data | Seal
