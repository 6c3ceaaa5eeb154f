"""What a benchmark of membership has to know of a product: how a node starts, and what it says.

A node writes a line when it learns something of a member; whoever reads it stamps it. So nobody is
asked anything while it is measured, and all products are watched in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from pathlib import Path

NOT_INSTALLED = "not installed"


class Seen(StrEnum):
    """What a node believes of a member, in words for all products."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"
    DAMPED = "damped"


GONE = frozenset({Seen.DEAD, Seen.LEFT, Seen.DAMPED})
"""Beliefs under which a member is not counted on."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a node: what it is called and where, and on which side it is of a cut."""

    name: str
    host: str
    side: int


@dataclass(frozen=True, slots=True)
class Up:
    """A node listens."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A node believes something else of *member* than before."""

    member: str
    seen: Seen


class Product(Protocol):
    """One implementation of membership, as it comes from its makers, with its preset for LANs."""

    @property
    def leave_signal(self) -> signal.Signals:
        """What asks a node to leave in good order."""

    @property
    def tells_suspicions(self) -> bool:
        """Whether each node tells whom it suspects."""

    def missing(self) -> str | None:
        """Why it cannot be measured here; None if it can."""

    def command(self, seat: Seat, seats: Sequence[Seat], folder: Path) -> list[str]:
        """How the node of *seat* is started; *folder* is for files, and the same for all."""

    def read(self, line: str) -> Up | Changed | tuple[Changed, ...] | None:
        """What a line of a node's output says, if it is about membership."""
