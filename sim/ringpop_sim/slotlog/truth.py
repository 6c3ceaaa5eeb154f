"""What is really in the log, and what must hold for all that read, write and own it.

The truth is the first record that was ever put at each slot, whatever was deleted or put again
since. Each invariant is checked as soon as it can be known, so a trace ends where it broke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.slotlog.slots import ORIGIN, Claim, Data, Record, Seal, Slot
from ringpop_sim.schedules.truth import DAMAGED, FOLD, PROMISES, LogBroken, LogTruth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.schedules.truth import Op

OWNER: Final = "owner"
REFUSED: Final = "refused"
FENCED: Final = "fenced"
DELETED: Final = "deleted"

INVARIANTS: Final[dict[str, str]] = {
    OWNER: "an epoch has one owner, and its claim is in the log",
    REFUSED: "a commit that was refused for good is not in the log",
    FENCED: "an owner is fenced only if its epoch was sealed",
    DELETED: "neither a claim, nor the seal of an epoch, nor the last mark is deleted, "
    "nor data without a checkpoint and a mark",
    **PROMISES,
}


class Truth(LogTruth):
    """The log as it really is.

    Attributes:
        first: the record that was put first at each slot.
        broken: the first violation.
        harmed: whether something in the store was damaged or lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[Slot, Record] = {}
        self.broken: LogBroken | None = None
        self.harmed = False
        self._count_at: dict[Slot, int] = {ORIGIN: 0}
        self._next = Slot(1, 0)
        self._owners: dict[int, str] = {}
        self._refused: list[tuple[Slot, str]] = []
        self._sealed: set[int] = set()
        self._checkpoint = self._mark = Slot(0, -1)  # before every slot

    def breaks(self, invariant: str, detail: str) -> None:
        """See `LogTruth`."""
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
                    self.add(op)
            elif isinstance(record, Seal):
                following = Slot(slot.epoch + 1, 0)
                self._sealed.add(slot.epoch)
            self._count_at[slot] = len(self.items)
            slot = following
        self._next = slot

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
        else:
            self.compare(process, str(tuple(position)), count, fold)

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

    # The end.

    def ended(self, fold: Sequence[Op]) -> None:
        """See `LogTruth`."""
        # Only now, because until the end a late put could have brought it into the log.
        for slot, nonce in self._refused:
            record = self.first.get(slot)
            if isinstance(record, Data) and record.nonce == nonce:
                self.breaks(REFUSED, f"{tuple(slot)} was refused, but is in the log")
        super().ended(fold)
