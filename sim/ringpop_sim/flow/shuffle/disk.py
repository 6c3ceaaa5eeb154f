"""The disk of one process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringpop_py.flow.shuffle.protocol.messages import Forget, Held
from ringpop_sim.flow.shuffle.truth import cuts_of, interval_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.flow.shuffle.protocol.messages import Change, FrameId
    from ringpop_py.flow.shuffle.protocol.record import Record
    from ringpop_sim.flow.shuffle.truth import Rows


@dataclass(slots=True)
class Disk:
    """See the module.

    Attributes:
        segments: by number, the rows of frames.
        slices: by interval and segment.
        intervals: by number, the rows of merged files.
    """

    segments: dict[int, dict[FrameId, Rows]] = field(default_factory=dict)
    slices: dict[tuple[int, int], Rows] = field(default_factory=dict)
    intervals: dict[int, Rows] = field(default_factory=dict)

    def carry_out(self, changes: Iterable[Change]) -> None:
        """Delete what *changes* say."""
        for change in changes:
            if isinstance(change, Forget):
                self.segments, self.slices, self.intervals = {}, {}, {}
                continue
            for number in change.segments:
                del self.segments[number]
            for slice_id in change.slices:
                del self.slices[slice_id]
            for number in change.intervals:
                del self.intervals[number]

    def slice_of(self, record: Record, number: int, interval: int) -> Rows:
        """Return the rows of winners that segment *number* has in *interval*."""
        cuts = cuts_of(record)
        return tuple(
            row
            for (attempt, sequence), rows in self.segments.get(number, {}).items()
            if attempt in record.winners and sequence < record.winners[attempt].frames
            for row in rows
            if interval_of(row, cuts) == interval
        )


def merged(slices: Iterable[Rows]) -> Rows:
    """Return the rows of all *slices* in order, each once: a frame may be in two segments."""
    by_id = {row.id: row for rows in slices for row in rows}
    return tuple(by_id[each] for each in sorted(by_id))


def file_of(rows: Rows) -> Held:
    """Return what a member says of a merged file of *rows*."""
    totals: dict[int, int] = {}
    for row in rows:
        totals[row.attempt] = totals.get(row.attempt, 0) + 1
    # Rows are numbers and texts made of them; what they hash to must not depend on the process.
    checksum = 0
    for row in rows:
        for part in row.id:
            checksum = (checksum * 1_000_003 + part + 1) % (1 << 61)
    return Held(len(rows), checksum, totals)
