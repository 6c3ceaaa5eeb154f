"""A member's part in a shuffle (pure): what it acknowledges, answers, fetches, pushes and deletes.

The driver reads the record regularly, and before an answer whenever `must_read` says so. It carries
out the changes that `apply` returns, and the duties, and reports their results. Nothing here is
done on another member's word: a message can only make this member read the record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ringpop_py.flow.shuffle.protocol.messages import (
    Answer,
    Change,
    Copied,
    CopyInterval,
    CopySegment,
    Duty,
    Forget,
    FrameId,
    Held,
    HeldFiles,
    Merge,
    Push,
    Query,
    Report,
    Store,
)
from ringpop_py.flow.shuffle.protocol.record import STORE, MemberId, Record, State, Winner

if TYPE_CHECKING:
    from collections.abc import Iterable

LEASE_US: Final = 10_000_000
"""Nothing is acknowledged or answered by a record that was read longer ago; it is read again."""


class ShuffleMember:
    """See the module.

    Attributes:
        me: this process as the record names it, if it is in it.
        first: this process in the record of a shuffle that is created from now on.
        record: the newest that was read.
        life: grows when what was held no longer counts; files and duties are of one life.
        segments: by number, the frames held.
        slices: interval and segment of what was pushed here.
        intervals: by number, what is held of merged files.
        busy: the duties under way.
    """

    def __init__(self, host: str, incarnation: int, lease_us: int = LEASE_US) -> None:
        self.me = self.first = MemberId(host, incarnation)
        self.record: Record | None = None
        self.life = 0
        self.busy: set[Duty] = set()
        self._lease_us = lease_us
        self._read_at = -lease_us - 1
        self._begin_life()

    def _begin_life(self) -> None:
        self.segments: dict[int, set[FrameId]] = {}
        self.intervals: dict[int, Held] = {}
        self._finished: dict[int, dict[int, Winner]] = {}
        """By segment and attempt: what came with the last frame of an attempt."""
        self._copied: set[int] = set()
        self.slices: set[tuple[int, int]] = set()
        self._pushed: set[Duty] = set()
        self._acknowledged: set[FrameId] = set()
        self._due_since: dict[int, int] = {}
        """By segment, since when this member has known that it is closed, and only in the store."""

    # The record.

    def must_read(self, uid: int, version: int, now: int) -> bool:
        """Return whether the record has to be read before what names these is answered."""
        record = self.record
        if record is None or record.uid != uid or version > record.version:
            return True
        return not self._is_fresh(now)

    def _is_fresh(self, now: int) -> bool:
        return now - self._read_at <= self._lease_us

    def apply(self, record: Record, asked_at: int, now_ms: int) -> list[Change]:
        """Go by *record*, which was asked for at *asked_at*, unless a newer one is known.

        Args:
            now_ms: wall clock: a new life takes it as its incarnation.
        """
        former = self.record
        if former is not None and record.version < former.version:
            return []
        self._read_at = max(self._read_at, asked_at)
        if former is not None and record.version == former.version:
            return []
        self.record = record
        changes: list[Change] = []
        if former is not None and record.uid != former.uid:
            changes += self._forget()
            self.me = (
                self.first
            )  # the name by which the creator of the new shuffle knows this process
        elif former is not None and self.me in former.members and self.me not in record.members:
            # Declared dead, or the shuffle is over. What is held may be incomplete from now on.
            changes += self._forget()
            # Others may believe of the former life that it has what they sent.
            self.me = MemberId(self.me.host, max(now_ms, self.me.incarnation + 1))
        return [*changes, *self._dropped(record)]

    def _forget(self) -> list[Change]:
        ended = self.life
        self.life += 1
        self.busy.clear()
        self._begin_life()
        return [Forget(ended)]

    def _dropped(self, record: Record) -> list[Change]:
        """Let go of what *record* does not list; when it was sent, it was still of use."""
        if record.state is not State.GET:
            return []  # the files of a damaged shuffle stay, so that they can be examined
        drop = HeldFiles(
            tuple(sorted(self.segments)),
            tuple(sorted(self.slices)),
            tuple(sorted(number for number in self.intervals if not self._is_listed(number))),
        )
        if not any(drop):
            return []
        self.segments, self._finished = {}, {}
        self.slices.clear()
        for number in drop.intervals:
            del self.intervals[number]
        return [drop]

    @property
    def is_member(self) -> bool:
        """Whether the record has this process as a member."""
        return self.record is not None and self.me in self.record.members

    def _is_listed(self, number: int) -> bool:
        assert self.record is not None
        if number >= len(self.record.intervals):
            return False
        interval = self.record.intervals[number]
        return self.me in interval.holders or interval.fetched_by == self.me

    # Puts.

    def put(self, uid: int, frame: FrameId) -> Answer | Store:
        """Return what to do about a frame of a client; `must_read` was asked before."""
        record = self.record
        if record is None or record.state is State.DELETED or uid != record.uid:
            return Answer.DELETED
        if record.state is not State.PUT:
            return Answer.ENDED
        if not self.is_member:
            return Answer.NOT_NOW
        if frame in self._acknowledged:
            return Answer.OK
        # Also if it is here already: that it was sent to the replica does not mean that it arrived.
        number = record.open_segment_of(self.me)
        if number is None:
            return Answer.NOT_NOW  # alone: nothing would survive this node
        return Store(number, record.segments[number].holders[1])

    def may_append(self, uid: int, number: int) -> bool:
        """Return whether a frame may be added to segment *number*, as its primary or its replica.

        Neither versions nor neighbours are compared: the segment decides.
        """
        record = self.record
        if record is None or uid != record.uid or record.state is not State.PUT:
            return False
        segment = record.segments.get(number)
        return segment is not None and segment.is_open and self.me in segment.holders

    def appended(self, life: int, number: int, frame: FrameId, receipt: Winner | None) -> bool:
        """Note that segment *number* has *frame* here; *receipt* if it is the last of its attempt.

        Returns:
            Whether it counts: not if *life* has ended since the append was begun.
        """
        if life != self.life:
            return False
        self.segments.setdefault(number, set()).add(frame)
        if receipt is not None:
            self._finished.setdefault(number, {})[frame[0]] = receipt
        return True

    def stored(self, life: int, store: Store, frame: FrameId, now: int) -> Answer:
        """Return what to answer for *frame*, which *store.segment* has here and at the replica."""
        record = self.record
        if record is None or life != self.life or record.state is not State.PUT:
            return Answer.NOT_NOW
        segment = record.segments.get(store.segment)
        if segment is None or segment.holders != (self.me, store.replica):
            return Answer.NOT_NOW  # a copy may have been made without it
        if not self._is_fresh(now):
            return Answer.NOT_NOW
        self._acknowledged.add(frame)
        return Answer.OK

    # Gets.

    def get(self, number: int, version: int) -> Answer:
        """Return whether to answer for interval *number*; `must_read` was asked before."""
        record = self.record
        if record is None or record.state is State.DELETED:
            return Answer.DELETED
        if record.state is State.DAMAGED:
            return Answer.LOST
        if record.state is not State.GET:
            return Answer.NOT_NOW
        if version != record.version or number >= len(record.intervals):
            return Answer.MOVED
        holders = record.intervals[number].holders
        if not holders:
            return Answer.LOST
        return Answer.OK if self.me in holders and number in self.intervals else Answer.MOVED

    # What others fetch from here, and push here.

    def may_copy_segment(self, uid: int, number: int) -> bool:
        """Return whether another member may fetch segment *number*: it is closed, and ours."""
        record = self.record
        segment = record.segments.get(number) if record is not None and record.uid == uid else None
        return segment is not None and not segment.is_open and self.me in segment.holders

    def may_copy_interval(self, uid: int, number: int) -> bool:
        """Return whether another member may fetch interval *number* from here."""
        record = self.record
        return (
            record is not None
            and record.uid == uid
            and number in self.intervals
            and self.me in record.intervals[number].holders
        )

    def contents_of(self, number: int) -> Copied:
        """Return what segment *number* has here."""
        frames = frozenset(self.segments.get(number, ()))
        return Copied(frames, dict(self._finished.get(number, {})))

    def may_push(self, uid: int) -> bool:
        """Return whether slices are wanted here."""
        record = self.record
        return record is not None and record.uid == uid and record.state is State.ENDING

    def pushed(self, life: int, interval: int, number: int) -> bool:
        """Note that a slice has arrived; return whether it counts: the first one does."""
        record, slice_id = self.record, (interval, number)
        if life != self.life or record is None or not self.may_push(record.uid):
            return False
        if slice_id in self.slices:
            return False
        self.slices.add(slice_id)
        return True

    # Duties.

    def begin(self, now: int) -> list[Duty]:
        """Return the duties to begin now; each is under way until `done` or `failed`."""
        record = self.record
        if record is None or not self.is_member:
            return []
        new = [
            duty
            for duty in self._duties(record)
            if duty not in self.busy and self._is_complete(duty, now)
        ]
        self.busy.update(new)
        return new

    def _is_complete(self, duty: Duty, now: int) -> bool:
        """Return whether nothing can be added any longer to what *duty* fetches.

        A member refuses what comes after the closing; a store does not. There the lease of the
        former primary decides, which by then cannot acknowledge anything.
        """
        if not isinstance(duty, CopySegment) or duty.source != STORE:
            return True
        return now - self._due_since.setdefault(duty.number, now) > self._lease_us

    def _duties(self, record: Record) -> Iterable[Duty]:
        if record.state in (State.PUT, State.ENDING):
            for number, segment in record.segments.items():
                if segment.copy_to == self.me and number not in self._copied:
                    yield CopySegment(self.life, number, segment.holders[0])
        if record.state is State.ENDING:
            yield from self._pushes(record)
            yield from self._merges(record)
        if record.state in (State.ENDING, State.GET):
            yield from self._fetches(record)

    def _pushes(self, record: Record) -> Iterable[Duty]:
        for number, segment in record.segments.items():
            if segment.holders[:1] == (self.me,):
                for place, interval in enumerate(record.intervals):
                    push = Push(self.life, place, number, interval.holders[0])
                    if push not in self._pushed:
                        yield push

    def _merges(self, record: Record) -> Iterable[Duty]:
        wanted = tuple(number for number, segment in record.segments.items() if segment.holders)
        for place, interval in enumerate(record.intervals):
            is_due = interval.holders[0] == self.me and place not in self.intervals
            if is_due and all((place, number) in self.slices for number in wanted):
                yield Merge(self.life, place, wanted)

    def _fetches(self, record: Record) -> Iterable[Duty]:
        is_ending = record.state is State.ENDING
        for place, interval in enumerate(record.intervals):
            held = self.intervals.get(place)
            is_wanted = (
                self.me in interval.holders[1:] if is_ending else interval.fetched_by == self.me
            )
            if is_wanted and held is None:
                for owner in interval.holders[:1]:
                    yield CopyInterval(self.life, place, owner)

    def done(self, duty: Duty, result: Copied | Held | None) -> bool:
        """Note the *result* of *duty*; return whether it counts. If not, its files are useless."""
        self.busy.discard(duty)
        record = self.record
        if record is None or duty.life != self.life:
            return False
        match duty, result:
            case CopySegment(number=number), Copied(frames, finished):
                segment = record.segments.get(number)
                if segment is None or segment.copy_to != self.me:
                    return False
                self.segments[number] = set(frames)
                self._finished[number] = finished
                self._copied.add(number)
            case Push(), None:
                self._pushed.add(duty)
            case Merge(interval=place), Held():
                if (
                    record.state is not State.ENDING
                    or record.intervals[place].holders[0] != self.me
                ):
                    return False
                self.intervals[place] = result
            case CopyInterval(interval=place), Held():
                return self._fetched(record, place, result)
            case _:
                raise AssertionError(f"{duty} came to {result}")
        return True

    def _fetched(self, record: Record, place: int, file: Held) -> bool:
        # As its owner by now, because the former one is gone, it may have merged a file itself.
        if not self._is_listed(place) or place in self.intervals:
            return False
        interval = record.intervals[place]
        if record.state is State.GET and file[:2] != (interval.rows, interval.checksum):
            return False
        self.intervals[place] = file
        return True

    def failed(self, duty: Duty) -> None:
        """Note that *duty* failed; it is begun again if it is still a duty."""
        self.busy.discard(duty)

    # Reports.

    def report(self, query: Query, summary: bytes = b"") -> Report | None:
        """Return what is held, for the home; None if this process is not a member."""
        record = self.record
        if record is None or not self.is_member:
            return None
        copied = (
            number
            for number, segment in record.segments.items()
            if segment.copy_to == self.me and number in self._copied
        )
        frames: dict[int, tuple[tuple[int, int], ...]] | None = None
        finished: dict[int, Winner] = {}
        if query.with_frames:
            frames = self._frames_held(record)
            for number in self.segments:
                finished |= self._finished.get(number, {})
        files, totals = self._files_held(record)
        return Report(
            self.me,
            record.uid,
            record.version,
            query.round,
            tuple(copied),
            frames,
            finished,
            summary,
            files,
            totals,
        )

    def _frames_held(self, record: Record) -> dict[int, tuple[tuple[int, int], ...]]:
        held: set[FrameId] = set()
        for number, segment in record.segments.items():
            if self.me in segment.holders:
                held |= self.segments.get(number, set())
        return _ranges(held)

    def _files_held(self, record: Record) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
        files, totals = {}, Counter[int]()
        for place, held in self.intervals.items():
            if not self._is_listed(place):
                continue
            if record.intervals[place].holders[:1] == (self.me,):
                totals.update(held.totals)
            files[place] = held.rows, held.checksum
        return files, dict(totals)


def _ranges(frames: Iterable[FrameId]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return *frames* by attempt, as ranges: the first, and the one after the last."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for attempt, sequence in sorted(frames):
        of_attempt = ranges.setdefault(attempt, [])
        if of_attempt and of_attempt[-1][1] == sequence:
            of_attempt[-1] = (of_attempt[-1][0], sequence + 1)
        else:
            of_attempt.append((sequence, sequence + 1))
    return {attempt: tuple(of_attempt) for attempt, of_attempt in ranges.items()}
