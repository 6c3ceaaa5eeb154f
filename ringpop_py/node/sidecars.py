"""What runs beside a node, as the node knows it: the process for shuffles, and dataflows."""

from __future__ import annotations

from typing import Any, Protocol

from ringpop_py.base.metering import OUTCOMES, Tally
from ringpop_py.base.values.declared import Named, Natural, Text


class ShuffleSeen(Named, frozen=True):
    """How far one shuffle is.

    Attributes:
        version: of its record; a member with a higher one knows more.
        state: ``put``, ``ending``, ``get``, ``damaged`` or ``deleted``.
        intervals: how many it has.
        placed: how many of them can be read; none before the end of all attempts.
        attempts: how many have begun.
        rows: of the intervals that can be read.
    """

    name: Text
    version: Natural
    state: Text
    intervals: Natural
    placed: Natural
    attempts: Natural
    rows: Natural


class ShuffleLoad(Named, frozen=True):
    """What the process reports about itself, once a second.

    Attributes:
        held_bytes: rows on their way, in memory.
        disk_bytes: the files of shuffles.
        shuffles: how many have rows here, by state.
        listed: some of them.
        done, refused, failed: calls of clients since it was started, by how they ended.
    """

    held_bytes: Natural = 0
    disk_bytes: Natural = 0
    shuffles: dict[str, Natural] = {}  # noqa: RUF012 - msgspec copies an empty default
    listed: tuple[ShuffleSeen, ...] = ()
    done: Natural = 0
    refused: Natural = 0
    failed: Natural = 0


class DataflowsBeside(Protocol):
    """The dataflows that this node takes part in."""

    def rows(self) -> list[dict[str, Any]]:
        """Return each of them, as plain values."""

    def leader_of(self, name: str) -> str | None:
        """Return the node that leads the dataflow *name*; None if it was not started here."""

    def left(self) -> int:
        """Return how many this node has yet to leave before it ends; the first call begins that."""


class ShufflesBeside:
    """The process for shuffles.

    Args:
        tally: counts the calls of its clients.

    Attributes:
        starts: how often the process was started.
        runs: whether it runs.
        load: its last report.
    """

    def __init__(self, tally: Tally | None = None) -> None:
        self.starts = 0
        self.runs = False
        self.load = ShuffleLoad()
        self._tally = tally or Tally()

    def hear(self, load: ShuffleLoad) -> None:
        """Note what the process reports; its counts begin at 0 whenever it is started."""
        for outcome in OUTCOMES:
            before, now = getattr(self.load, outcome), getattr(load, outcome)
            more = now - before if now >= before else now
            setattr(self._tally, outcome, getattr(self._tally, outcome) + more)
        self.load = load
