"""The copies that a member keeps for the owners of partitions in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.state.copies.calls import CopyReply, CopyStep

if TYPE_CHECKING:
    from ringpop_py.state.copies.calls import CopyPart

ASTRAY_US: Final = 5_000_000
"""After this, a copy that the partition's owner does not feed is handed over to it."""


@dataclass(slots=True)
class KeptCopy:
    """A copy that this node keeps.

    Attributes:
        owner: who fed it last.
        count: up to which it is complete in *run*; None if it is not.
        series: run, count and index of the next part of the whole partition that is coming.
        astray_from: since when the partition is owned by another member; 0 if it is not.
    """

    owner: str
    run: str = ""
    count: int | None = None
    series: tuple[str, int, int] | None = None
    astray_from: int = 0


class KeptCopies:
    """The copies that this node keeps as a backup, by partition."""

    def __init__(self) -> None:
        self.kept: dict[int, KeptCopy] = {}

    def __contains__(self, number: int) -> bool:
        return number in self.kept

    def keep(self, number: int, owner: str) -> None:
        """Keep a partition that was just handed over to *owner*, until it has other copies."""
        self.kept[number] = KeptCopy(owner)

    def take(self, owner: str, part: CopyPart) -> CopyReply:
        """Return whether the content of *part* is to be merged, and note what it completes."""
        match part.step:
            case CopyStep.CHANGES:
                return self._take_changes(part)
            case CopyStep.WHOLE:
                return self._take_whole(owner, part)
            case CopyStep.FORGET:
                self.kept.pop(part.number, None)
                return CopyReply.TAKEN

    def _take_changes(self, part: CopyPart) -> CopyReply:
        copy = self.kept.get(part.number)
        if copy is None or copy.run != part.run or copy.count is None or copy.count < part.after:
            return CopyReply.NEEDS_WHOLE
        if part.last:
            copy.count = max(copy.count, part.count)
        return CopyReply.TAKEN

    def _take_whole(self, owner: str, part: CopyPart) -> CopyReply:
        copy = self.kept.setdefault(part.number, KeptCopy(owner))
        if copy.count is not None and copy.run != part.run and not part.known:
            return CopyReply.HANDS_OVER
        series = part.run, part.count, part.after
        if part.after and copy.series != series:
            return CopyReply.NEEDS_WHOLE
        copy.series = (*series[:2], part.after + 1)
        if part.last:
            self.kept[part.number] = KeptCopy(owner, part.run, part.count)
        return CopyReply.TAKEN

    def position(self, number: int) -> tuple[str, int]:
        """Return the run and the count up to which a copy is complete; ``("", 0)`` if it is not."""
        copy = self.kept.get(number)
        return ("", 0) if copy is None or copy.count is None else (copy.run, copy.count)

    def has_more(self, number: int, run: str, count: int) -> bool:
        """Return whether a copy that is complete up to *count* of *run* may lack some of it."""
        ours = self.position(number)
        return ours[0] != run or not run or ours[1] > count

    def is_astray(self, number: int, owner: str, now: int) -> bool:
        """Return whether a partition that *owner* owns was not fed by it for long."""
        copy = self.kept.get(number)
        if copy is None or copy.owner == owner:
            if copy is not None:
                copy.astray_from = 0
            return False
        copy.astray_from = copy.astray_from or now
        return now - copy.astray_from >= ASTRAY_US
