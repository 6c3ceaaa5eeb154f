"""What is really in the log, and what must hold for all that read, write and own it.

The truth is the first record that was ever put at each slot, whatever was deleted or put again
since. Each invariant is checked as soon as it can be known, so a trace ends where it broke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.slotlog.slots import ORIGIN, Claim, Data, Record, Seal, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

Op = tuple[int, int]
"""An operation's id: its client's number, and its number among that client's operations."""

OWNER: Final = "owner"
TWICE: Final = "twice"
LOST: Final = "lost"
ORDER: Final = "order"
READ: Final = "read"
FOLD: Final = "fold"
COPY: Final = "copy"
REFUSED: Final = "refused"
FENCED: Final = "fenced"
DELETED: Final = "deleted"
LIVE: Final = "live"
DAMAGED: Final = "damaged"
ERROR: Final = "error"

INVARIANTS: Final[dict[str, str]] = {
    OWNER: "an epoch has one owner, and its claim is in the log",
    TWICE: "no operation is in the log twice",
    LOST: "each acknowledged operation is in the log, and in every later fold",
    ORDER: "operations acknowledged before another began are before it in the log",
    READ: "a read shows a prefix of the log, with all that was acknowledged before it began",
    FOLD: "a node's fold is a prefix of the log; an owner begins with all of it",
    COPY: "a copy has all that was acknowledged or read before it began",
    REFUSED: "a commit that was refused for good is not in the log",
    FENCED: "an owner is fenced only if its epoch was sealed",
    DELETED: "neither a claim, nor the seal of an epoch, nor the last mark is deleted, "
    "nor data without a checkpoint and a mark",
    LIVE: "once nothing fails, the node that should own the partition owns it and serves",
    DAMAGED: "a node reports damage only if something is damaged",
    ERROR: "the state machine's own assertions hold",
}


class LogBroken(NamedTuple):
    """A violation of an invariant."""

    invariant: str
    detail: str


class Truth:
    """The log as it really is.

    Attributes:
        first: the record that was put first at each slot.
        items: the operations of the log, in order.
        sure_count: how many of them were acknowledged or read: a later operation sees them.
        broken: the first violation.
        harmed: whether something in the store was damaged or lost.
    """

    def __init__(self) -> None:
        self.first: dict[Slot, Record] = {}
        self.items: list[Op] = []
        self.sure_count = 0
        self.acknowledged: set[Op] = set()
        self.broken: LogBroken | None = None
        self.harmed = False
        self._place: dict[Op, int] = {}
        self._count_at: dict[Slot, int] = {ORIGIN: 0}
        self._next = Slot(1, 0)
        self._began: dict[Op, int] = {}
        self._owners: dict[int, str] = {}
        self._refused: list[tuple[Slot, str]] = []
        self._sealed: set[int] = set()
        self._checkpoint = self._mark = Slot(0, -1)  # before every slot

    def breaks(self, invariant: str, detail: str) -> None:
        """Record that *invariant* does not hold; only the first violation is kept."""
        self.broken = self.broken or LogBroken(invariant, detail)

    # Events of the store.

    def put(self, slot: Slot, record: Record) -> None:
        """Note that *record* won at *slot*."""
        if slot not in self.first:  # a put into a slot that was deleted is not the truth
            self.first[slot] = record
            if slot == self._next:
                self._walk()

    def _walk(self) -> None:
        slot = self._next
        while (record := self.first.get(slot)) is not None:
            following = Slot(slot.epoch, slot.sequence + 1)
            if isinstance(record, Data):
                for op in record.body:  # type: ignore[attr-defined] # bodies are tuples of operations
                    self._add(op)
            elif isinstance(record, Seal):
                following = Slot(slot.epoch + 1, 0)
                self._sealed.add(slot.epoch)
            self._count_at[slot] = len(self.items)
            slot = following
        self._next = slot

    def _add(self, op: Op) -> None:
        if op in self._place:
            self.breaks(TWICE, f"{op} is item {self._place[op]} and {len(self.items)} of the log")
            return
        place = len(self.items)
        if place < self._began.get(op, 0):
            self.breaks(ORDER, f"{op} is item {place}, but {self._began[op]} were sure before it")
        self._place[op] = place
        self.items.append(op)

    def checkpointed(self, slot: Slot) -> None:
        """Note that a checkpoint was put at *slot*."""
        self._checkpoint = max(self._checkpoint, slot)

    def marked(self, slot: Slot) -> None:
        """Note that a mark was put at *slot*."""
        self._mark = max(self._mark, slot)
        if slot > self._checkpoint:
            self.breaks(DELETED, f"{tuple(slot)} was marked before there was a checkpoint")

    def mark_deleted(self, slot: Slot) -> None:
        """Note that the mark at *slot* was deleted."""
        if slot == self._mark:
            self.breaks(DELETED, f"the mark at {tuple(slot)}, the last one, was deleted")

    def deleted(self, slot: Slot, record: Record) -> None:
        """Note that *record* was deleted at *slot*."""
        if self.first[slot] is not record:
            return  # not the true record, or a copy of one that was deleted before
        if not isinstance(record, Data):
            self.breaks(DELETED, f"{record} at {tuple(slot)} was deleted")
        elif slot > self._checkpoint:
            self.breaks(DELETED, f"{tuple(slot)} was deleted before a checkpoint covered it")
        elif slot > self._mark:
            self.breaks(DELETED, f"{tuple(slot)} was deleted before there was a mark")

    # Events of nodes.

    def acquired(self, process: str, epoch: int, nonce: str, fold: Sequence[Op]) -> None:
        """Note that *process* believes that it is the owner of *epoch*."""
        other = self._owners.setdefault(epoch, process)
        claim = self.first.get(Slot(epoch, 0))
        if other != process:
            self.breaks(OWNER, f"epoch {epoch} has the owners {other} and {process}")
        elif not isinstance(claim, Claim) or claim.nonce != nonce:
            self.breaks(OWNER, f"{process} owns epoch {epoch}, but the log says {claim}")
        self.folded(process, Slot(epoch, 0), fold)

    def folded(self, process: str, position: Slot, fold: Sequence[Op]) -> None:
        """Note that *process* has *fold* of the log up to *position*."""
        count = self._count_at.get(position)
        if count is None:
            self.breaks(FOLD, f"{process} is at {tuple(position)}, where the log never was")
        elif len(fold) != count or fold != self.items[:count]:
            detail = f"{process} has {fold} at {tuple(position)}, not {self.items[:count]}"
            self.breaks(FOLD, detail)

    def copied(self, process: str, sure_count: int, fold: Sequence[Op]) -> None:
        """Note the copy *fold* by *process*; *sure_count* operations were sure when it began."""
        if len(fold) < sure_count:
            detail = f"{process} copied {len(fold)} items; {sure_count} were sure before that"
            self.breaks(COPY, detail)

    def fenced(self, process: str, epoch: int) -> None:
        """Note that *process* learned that it is no longer the owner of *epoch*."""
        if epoch not in self._sealed:
            self.breaks(FENCED, f"{process} is fenced from epoch {epoch}, which is not sealed")

    def damaged(self, process: str, what: object) -> None:
        """Note that *process* reports a log that it cannot read."""
        if not self.harmed:
            self.breaks(DAMAGED, f"{process} reports {what}, but nothing was damaged")

    def refused(self, slot: Slot, nonce: str) -> None:
        """Note that data with *nonce* was refused for good, so it must never be at *slot*."""
        self._refused.append((slot, nonce))

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
        # Only now, because until the end a late put could have brought it into the log.
        for slot, nonce in self._refused:
            record = self.first.get(slot)
            if isinstance(record, Data) and record.nonce == nonce:
                self.breaks(REFUSED, f"{tuple(slot)} was refused, but is in the log")
        if len(set(fold)) != len(fold):
            self.breaks(TWICE, f"the last owner has {fold}")
        lost = sorted(self.acknowledged.difference(fold))
        if lost:
            self.breaks(LOST, f"{lost} were acknowledged, but the last owner does not have them")
        if fold != self.items:
            self.breaks(FOLD, f"the last owner has {fold}, not {self.items}")
