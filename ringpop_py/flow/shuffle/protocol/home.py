"""The next record of a shuffle (pure): any member decides it, from the record and all reports.

A home reads the record, asks all members, and decides; then its driver sets the record, if it is
still the one that was read. Reports count for that record only: when a home has `looked` at another
one, it asks all members again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.flow.shuffle.protocol import changes
from ringpop_py.flow.shuffle.protocol.messages import Query
from ringpop_py.flow.shuffle.protocol.record import STORE, Record, State, Winner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringpop_py.flow.shuffle.protocol.messages import Report
    from ringpop_py.flow.shuffle.protocol.record import MemberId


@dataclass(frozen=True, slots=True)
class View:
    """The beliefs of a home about the other members; they may be wrong.

    Attributes:
        gone: members that are no longer there.
        joining: lives that are not members yet, and may become it.
    """

    gone: frozenset[MemberId] = frozenset()
    joining: tuple[MemberId, ...] = ()


class Wish(NamedTuple):
    """A client's request to end or to delete a shuffle.

    Attributes:
        uid: of which shuffle of that name.
        winners: the attempts to end it with; None if no end is asked for.
        delete: whether to delete it.
    """

    uid: int = -1
    winners: Mapping[int, Winner] | None = None
    delete: bool = False


class Refused(NamedTuple):
    """An end that is refused: these attempts are not complete here, each with the reason."""

    attempts: Mapping[int, str]


class Home:
    """See the module.

    Attributes:
        record: the one that was read last, on which the reports are.
        wish: what a client asked for, until it is done or refused.
    """

    def __init__(self, cut: Callable[[Sequence[bytes], int], bytes]) -> None:
        self.record: Record | None = None
        self.wish = Wish()
        self._cut = cut
        self._round = 0
        self._reports: dict[MemberId, Report] = {}

    def ask_for(self, wish: Wish) -> None:
        """Pursue *wish* from now on."""
        self.wish = wish
        # A report from before may lack what was acknowledged since.
        self._ask_again()

    def looked(self, record: Record) -> Query:
        """Note that the record was read; return what to ask all its members."""
        if self.record is None or record.version != self.record.version:
            self._ask_again()
        self.record = record
        with_frames = self.wish.winners is not None and record.state is State.PUT
        return Query(record.uid, record.version, self._round, with_frames)

    def _ask_again(self) -> None:
        self._reports.clear()
        self._round += 1

    def reported(self, report: Report) -> None:
        """Note what a member has, if it was asked in this round, and goes by the same record."""
        record = self.record
        if record is None or report.round != self._round:
            return
        if (report.uid, report.version) == (record.uid, record.version):
            self._reports[report.member] = report

    def forget(self) -> None:
        """Forget record and reports: the record was changed, or is about to be."""
        self.record = None
        self._reports.clear()

    def decide(self, view: View) -> Record | Refused | None:
        """Return the next record, to be set if the present one still stands, or None."""
        record = self.record
        if record is None or record.state is State.DELETED:
            return None
        if self.wish.delete and self.wish.uid == record.uid:
            return changes.deleted(record)
        if record.state is State.DAMAGED:
            return None
        return self._with_members(record, view) or self._next(record)

    def _with_members(self, record: Record, view: View) -> Record | None:
        for member in record.members:
            if member in view.gone:
                return changes.parted(record, member)
        for member in view.joining:
            # Not while a former life of its host is a member.
            known = any(each.host == member.host for each in record.members)
            if not record.state.is_over and not known:
                return changes.joined(record, member)
        return None

    def _next(self, record: Record) -> Record | Refused | None:
        match record.state:
            case State.PUT:
                return self._copied(record) or self._ended(record)
            case State.ENDING:
                return self._copied(record) or self._published(record)
            case _:
                return self._fetched(record)

    def _copied(self, record: Record) -> Record | None:
        for number, segment in record.segments.items():
            report = self._report_of(segment.copy_to)
            if report is not None and number in report.copied:
                return changes.copied(record, number)
        return None

    def _ended(self, record: Record) -> Record | Refused | None:
        winners = self.wish.winners if self.wish.uid == record.uid else None
        reports = self._all_reports(record)
        if winners is None or reports is None:
            return None
        if any(segment.holders == (STORE,) for segment in record.segments.values()):
            return None  # a member is fetching it
        winners = {**record.committed, **winners}
        wrong = _incomplete(winners, reports)
        if wrong:
            return Refused(wrong)
        cuts = self._cut([report.summary for report in reports], record.interval_count)
        return changes.ended(record, winners, cuts)

    def _published(self, record: Record) -> Record | None:
        files: list[tuple[int, int]] = []
        for number, interval in enumerate(record.intervals):
            held = [self._file_of(holder, number) for holder in interval.holders]
            if not held or held[0] is None:
                return None
            files.append(held[0])
        totals: dict[int, int] = {}
        for owner in {interval.holders[0] for interval in record.intervals}:
            for attempt, rows in self._reports[owner].totals.items():
                totals[attempt] = totals.get(attempt, 0) + rows
        wrong = _miscounted(record.winners, totals)
        if wrong:
            return changes.damaged(record, wrong)
        for number, interval in enumerate(record.intervals):
            if any(self._file_of(each, number) != files[number] for each in interval.holders):
                return None  # a replica is not there yet
        return changes.published(record, files)

    def _fetched(self, record: Record) -> Record | None:
        for number, interval in enumerate(record.intervals):
            if interval.fetched_by is not None and interval.holders:
                file = self._file_of(interval.fetched_by, number)
                if file == (interval.rows, interval.checksum):
                    return changes.fetched(record, number)
        return None

    def _file_of(self, member: MemberId, number: int) -> tuple[int, int] | None:
        report = self._report_of(member)
        return report.files.get(number) if report is not None else None

    def _report_of(self, member: MemberId | None) -> Report | None:
        return self._reports.get(member) if member is not None else None

    def _all_reports(self, record: Record) -> list[Report] | None:
        if not record.members or any(each not in self._reports for each in record.members):
            return None
        return [self._reports[member] for member in record.members]


def _incomplete(winners: Mapping[int, Winner], reports: Iterable[Report]) -> dict[int, str]:
    """Return those *winners* that the members do not have whole, with what is missing."""
    finished: dict[int, Winner] = {}
    held: dict[int, list[tuple[int, int]]] = {attempt: [] for attempt in winners}
    for report in reports:
        finished |= report.finished
        for attempt, ranges in (report.frames or {}).items():
            if attempt in held:
                held[attempt] += ranges
    wrong = {}
    for attempt, winner in winners.items():
        missing = winner.frames - _covered(held[attempt], winner.frames)
        if missing:
            wrong[attempt] = f"{missing} of {winner.frames} frames are missing"
        elif attempt not in finished:
            wrong[attempt] = "it was not finished"
        elif finished[attempt] != winner:
            wrong[attempt] = f"it has {_told(finished[attempt])}, not {_told(winner)}"
    return wrong


def _covered(ranges: list[tuple[int, int]], count: int) -> int:
    """Return how many of the numbers below *count* are in *ranges*, which may overlap."""
    covered = reached = 0
    for first, end in sorted(ranges):
        first, end = max(first, reached), min(end, count)  # noqa: PLW2901 - what is new of it
        if end > first:
            covered += end - first
            reached = end
    return covered


def _told(winner: Winner) -> str:
    return f"{winner.frames} frames with {winner.rows} rows"


def _miscounted(winners: Mapping[int, Winner], totals: Mapping[int, int]) -> str:
    for attempt, winner in winners.items():
        rows = totals.get(attempt, 0)
        if rows != winner.rows:
            return f"attempt {attempt} has {rows} of its {winner.rows} rows"
    strangers = sorted(set(totals) - set(winners))
    return f"attempt {strangers[0]} has rows, but is not a winner" if strangers else ""
