"""The promises to clients of a log, whatever the log consists of.

Each invariant is checked as soon as it can be known, so a trace ends where it broke.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Op = tuple[int, int]
"""An operation's id: its client's number, and its number among that client's operations."""

TWICE: Final = "twice"
LOST: Final = "lost"
ORDER: Final = "order"
READ: Final = "read"
FOLD: Final = "fold"
COPY: Final = "copy"
UNMET: Final = "unmet"
LIVE: Final = "live"
DAMAGED: Final = "damaged"
REST: Final = "rest"
ERROR: Final = "error"

PROMISES: Final[dict[str, str]] = {
    TWICE: "no operation is in the log twice",
    LOST: "each acknowledged operation is in the log, and in every later fold",
    ORDER: "operations acknowledged before another began are before it in the log",
    READ: "a read shows a prefix of the log, with all that was acknowledged before it began",
    FOLD: "a node's fold is a prefix of the log; an owner begins with all of it",
    COPY: "a copy has all that was acknowledged or read before it began",
    UNMET: "a write that was told that its condition does not hold never takes effect",
    LIVE: "once nothing fails, the node that should own the partition owns it and serves",
    REST: "at rest no request is open, nothing waits for one, and nobody begins anything",
    DAMAGED: "a node reports damage only if something is damaged",
    ERROR: "the state machine's own assertions hold",
}


class LogBroken(NamedTuple):
    """A violation of an invariant."""

    invariant: str
    detail: str


class PromiseBroken(Exception):
    """A promise is broken."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(detail)
        self.broken = LogBroken(invariant, detail)


class ScheduleVerdict:
    """What is known of one schedule.

    Attributes:
        tally: how often what happened.
        broken: the first violation.
    """

    def __init__(self) -> None:
        self.tally: Counter[str] = Counter()
        self.broken: LogBroken | None = None

    def breaks(self, invariant: str, detail: str) -> None:
        """Record that *invariant* does not hold; only the first violation is kept."""
        self.broken = self.broken or LogBroken(invariant, detail)


class LogTruth:
    """The operations of one partition, as they really are in its log.

    Attributes:
        items: the operations of the log, in order.
        unmet: those that were told that their condition does not hold.
        sure_count: how many of them were acknowledged or read: a later operation sees them.
    """

    def __init__(self) -> None:
        self.items: list[Op] = []
        self.sure_count = 0
        self.acknowledged: set[Op] = set()
        self.unmet: set[Op] = set()
        self._place: dict[Op, int] = {}
        self._began: dict[Op, int] = {}

    def breaks(self, invariant: str, detail: str) -> None:
        """Record that *invariant* does not hold; only the first violation is kept."""
        raise NotImplementedError

    def add(self, op: Op) -> None:
        """Note that *op* is the next operation of the log."""
        if op in self._place:
            self.breaks(TWICE, f"{op} is item {self._place[op]} and {len(self.items)} of the log")
            return
        place = len(self.items)
        if place < self._began.get(op, 0):
            self.breaks(ORDER, f"{op} is item {place}, but {self._began[op]} were sure before it")
        self._place[op] = place
        self._check_unmet(op)
        self.items.append(op)

    def compare(self, process: str, place: str, count: int, fold: Sequence[Op]) -> None:
        """Note that *process* has *fold* at *place*, before which the log has *count* items."""
        if len(fold) != count or fold != self.items[:count]:
            self.breaks(FOLD, f"{process} has {fold} at {place}, not {self.items[:count]}")

    def copied(self, process: str, sure_count: int, fold: Sequence[Op]) -> None:
        """Note the copy *fold* by *process*; *sure_count* operations were sure when it began."""
        if len(fold) < sure_count:
            detail = f"{process} copied {len(fold)} items; {sure_count} were sure before that"
            self.breaks(COPY, detail)

    # Events of clients.

    def begins(self, op: Op) -> None:
        """Note that a client begins to write *op*, for the first time."""
        self._began[op] = self.sure_count

    def acknowledges(self, op: Op) -> None:
        """Note that a node acknowledged *op* to a client."""
        self.acknowledged.add(op)
        place = self._place.get(op)
        if place is None:
            self.breaks(LOST, f"{op} was acknowledged, but is not in the log")
        else:
            self.sure_count = max(self.sure_count, place + 1)

    def refuses(self, op: Op) -> None:
        """Note that a client was told that the condition of *op* does not hold."""
        self.unmet.add(op)
        self._check_unmet(op)

    def _check_unmet(self, op: Op) -> None:
        if op in self.unmet and op in self._place:
            self.breaks(UNMET, f"{op} was told that its condition does not hold, and took effect")

    def answered(self, process: str, sure_count: int, fold: Sequence[Op]) -> None:
        """Note the answer *fold* to a read; *sure_count* operations were sure when it began."""
        count = len(fold)
        if fold != self.items[:count]:
            self.breaks(READ, f"{process} read {fold}, which is not a prefix of {self.items}")
        elif count < sure_count:
            self.breaks(READ, f"{process} read {count} items; {sure_count} were sure before that")
        self.sure_count = max(self.sure_count, count)  # a later read must see as much

    # The end.

    def ended(self, fold: Sequence[Op]) -> None:
        """Check the log against *fold* of the last owner, once nothing is in progress."""
        if len(set(fold)) != len(fold):
            self.breaks(TWICE, f"the last owner has {fold}")
        lost = sorted(self.acknowledged.difference(fold))
        if lost:
            self.breaks(LOST, f"{lost} were acknowledged, but the last owner does not have them")
        if fold != self.items:
            self.breaks(FOLD, f"the last owner has {fold}, not {self.items}")
