"""The promises to clients and readers of a shuffle, each checked as soon as it can be known."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.values.declared import decode
from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_sim.state.journal.promises import ScheduleVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.flow.shuffle.protocol.messages import FrameId
    from ringpop_py.flow.shuffle.protocol.record import MemberId, Record


class Row(NamedTuple):
    """A row: its key, where it comes from, and what else is in it."""

    key: int
    attempt: int
    frame: int
    place: int
    body: str

    @property
    def id(self) -> tuple[int, int, int, int]:
        """Its key and its tie, by which it is sorted."""
        return self[:4]


Rows = tuple[Row, ...]


HELD: Final = "held"
BOTH: Final = "both"
LATE: Final = "late"
EARLY: Final = "early"
ROWS: Final = "rows"
AUTHORITY: Final = "authority"
BACK: Final = "back"
DAMAGE: Final = "damage"
REFUSED: Final = "refused"
LIVE: Final = "live"
GONE: Final = "gone"
ERROR: Final = "error"

INVARIANTS: Final[dict[str, str]] = {
    HELD: "each acknowledged frame is at a live holder that the record names",
    BOTH: "if nothing is under repair, each acknowledged frame is at both holders of a segment",
    LATE: "nothing is acknowledged longer than a lease after the end or the deletion",
    EARLY: "nothing is answered before GET",
    ROWS: "an answer has each row of each winner in its interval once, in order, and no other row",
    AUTHORITY: "each interval in GET has a live holder with its file; one changes at a time",
    BACK: "states never go back, nobody else deletes, and winners and cuts are written once",
    DAMAGE: "no row is lost by the death of one member at a time, and no loss is silent",
    REFUSED: "an end is refused only if a named winner is not complete",
    LIVE: "once nothing fails, an ended shuffle can be read, and a deleted one is gone",
    GONE: "nothing is answered longer than a lease after the deletion",
    ERROR: "the state machine's own assertions hold",
}

ORDER: Final = (State.PUT, State.ENDING, State.GET, State.DAMAGED, State.DELETED)


def cuts_of(record: Record) -> list[tuple[int, ...]]:
    """Return where the intervals of *record* begin, without the first."""
    return decode(list[tuple[int, ...]], record.cuts) if record.cuts else []


def interval_of(row: Row, cuts: list[tuple[int, ...]]) -> int:
    """Return the number of the interval of *row*."""
    return bisect_right(cuts, row.id)


def _of_the_end(record: Record) -> tuple[object, ...]:
    return record.winners, record.cuts


class Truth(ScheduleVerdict):
    """What was acknowledged, and what must be answered, of the shuffle of one uid.

    Attributes:
        rows: by attempt, all that its client has.
        acknowledged: by frame, nothing but that it was.
        is_single: whether at most one member at a time has died.
        lies: attempts that a driver has named though they may not be complete.
        to_delete: the uids whose deletion was asked for.
    """

    def __init__(self, lease: int) -> None:
        super().__init__()
        self.rows: dict[int, Rows] = {}
        self.acknowledged: dict[FrameId, None] = {}
        self.is_single = True
        self.lies: set[int] = set()
        self.to_delete: set[int] = set()
        self._lease = lease
        self._ended_at: int | None = None
        self._deleted_at: dict[int, int] = {}
        self._read_from: set[int] = set()
        """The uids that were in GET."""
        self._record: Record | None = None
        self._expected: list[Rows] = []

    # The record.

    def changed(self, record: Record, now: int) -> None:
        """Note that the record is *record* from now on."""
        former, self._record = self._record, record
        self.tally[record.state.value] += former is None or former.state is not record.state
        if former is None or former.uid != record.uid:
            self._ended_at = None
            self.acknowledged.clear()
            return
        if ORDER.index(record.state) < ORDER.index(former.state):
            self.breaks(BACK, f"{record.state} follows {former.state}")
        if former.state is State.PUT and record.state in (State.ENDING, State.GET):
            self._ended(record, now)
        elif record.state in (State.ENDING, State.GET) and _of_the_end(record) != _of_the_end(
            former
        ):
            self.breaks(BACK, "winners or cuts have changed")
        self._check_holders(former, record)
        match record.state:
            case State.GET:
                self._read_from.add(record.uid)
                if self.is_single and not all(each.holders for each in record.intervals):
                    self.breaks(AUTHORITY, "an interval has no holder")
            case State.DAMAGED if self.is_single and not (self.lies and self._has_lost()):
                # What a lie names may be at the lost member alone: it was never acknowledged.
                self.breaks(DAMAGE, record.why)
            case State.DELETED:
                self._deleted(record, now)
            case _:
                pass

    def _check_holders(self, former: Record, record: Record) -> None:
        for interval, before in zip(record.intervals, former.intervals, strict=False):
            if len({*before.holders} - {*interval.holders}) > 1:
                self.breaks(AUTHORITY, f"{before.holders} become {interval.holders}")

    def _has_lost(self) -> bool:
        return bool(self.tally["kills"] or self.tally["suspected"])

    def _deleted(self, record: Record, now: int) -> None:
        self._deleted_at.setdefault(record.uid, now)
        if record.uid not in self.to_delete:
            self.breaks(BACK, "it is deleted, and nobody asked for that")

    def _ended(self, record: Record, now: int) -> None:
        self._ended_at = now
        cuts, expected = cuts_of(record), [list[Row]() for _ in range(record.interval_count)]
        for attempt in record.winners:
            for row in self.rows[attempt]:
                expected[interval_of(row, cuts)].append(row)
        self._expected = [tuple(sorted(rows)) for rows in expected]

    # Puts.

    def acknowledges(self, process: str, uid: int, frame: FrameId, now: int) -> None:
        """Note that *process* answers OK to the put of *frame*."""
        deleted_at = self._deleted_at.get(uid)
        if deleted_at is not None and now > deleted_at + self._lease:
            self.breaks(LATE, f"{process} acknowledged {frame} of a deleted shuffle")
        record = self._record
        if record is None or record.uid != uid:
            return
        if self._ended_at is not None and now > self._ended_at + self._lease:
            self.breaks(LATE, f"{process} acknowledged {frame} long after the end")
        self.acknowledged[frame] = None
        self.tally["frames"] += 1

    def check(self, live: Mapping[MemberId, Any]) -> None:
        """Check where acknowledged frames are at *live* members' disks, and the files in GET."""
        record = self._record
        if record is None or not self.is_single:
            return
        if record.state in (State.PUT, State.ENDING):
            self._check_frames(record, live)
        elif record.state is State.GET:
            for number, interval in enumerate(record.intervals):
                holders = [live[each] for each in interval.holders if each in live]
                if not any(number in disk.intervals for disk in holders):
                    self.breaks(AUTHORITY, f"interval {number}: {interval.holders}")

    def _check_frames(self, record: Record, live: Mapping[MemberId, Any]) -> None:
        held: Counter[FrameId] = Counter()
        is_whole = len(record.members) > 1
        twice: set[FrameId] = set()
        for number, segment in record.segments.items():
            holders = [live[each] for each in segment.holders if each in live]
            is_whole = is_whole and len(holders) == 2  # noqa: PLR2004 - a replica
            frames = [set(disk.segments.get(number, ())) for disk in holders]
            for each in frames:
                held.update(each)
            if len(frames) == 2:  # noqa: PLR2004
                twice |= frames[0] & frames[1]
        for frame in self.acknowledged:
            if not held[frame]:
                self.breaks(HELD, f"{frame} was acknowledged, and is nowhere")
            elif is_whole and frame not in twice:
                self.breaks(BOTH, f"{frame} was acknowledged, and is at one holder")

    # Reads.

    def answered(self, process: str, uid: int, number: int, rows: Rows, now: int) -> None:
        """Note that *process* answers a get with *rows*."""
        deleted_at = self._deleted_at.get(uid)
        if deleted_at is not None and now > deleted_at + self._lease:
            self.breaks(GONE, f"{process} answered for a deleted shuffle")
        elif uid not in self._read_from:
            self.breaks(EARLY, f"{process} answered for interval {number}")
        elif self._record is not None and self._record.uid == uid and self._expected:
            self._compare(number, rows)
        self.tally["answers"] += 1

    def _compare(self, number: int, rows: Rows) -> None:
        expected = self._expected[number]
        if rows != expected:
            detail = f"interval {number} has {len(rows)} rows, not {len(expected)}"
            self.breaks(ROWS, detail if len(rows) != len(expected) else f"{number}: {rows}")

    def refused(self, attempts: Iterable[int]) -> None:
        """Note that an end was refused."""
        self.tally["refused"] += 1
        complete = [attempt for attempt in attempts if attempt not in self.lies]
        if self.is_single and complete:
            self.breaks(REFUSED, f"attempts {complete} are complete")
