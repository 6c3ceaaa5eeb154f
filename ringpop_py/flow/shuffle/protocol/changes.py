"""The changes of a record, one function each: from a record that holds to the next that does.

Each returns a record of the next version. All end in `_settled`, which restores what has to hold
after each join and each death: a member has an open segment with the member that follows it, and
what has one holder is on its way to a second.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringpop_py.base.errors import ShuffleConflict
from ringpop_py.base.values.declared import replace
from ringpop_py.flow.shuffle.protocol.record import (
    STORE,
    Batch,
    Interval,
    MemberId,
    Record,
    Segment,
    State,
    Winner,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.flow.shuffle.protocol.calls import Commit


def created(
    former: Record | None,
    uid: int,
    definition: bytes,
    interval_count: int,
    members: Sequence[MemberId],
    *,
    is_stored: bool = False,
) -> Record:
    """Return the first record of a new shuffle; *former* is the deleted one of that name."""
    version, there = 1 if former is None else former.version + 1, tuple(sorted(members))
    return _settled(Record(version, uid, State.PUT, definition, interval_count, there, is_stored))


def with_attempts(record: Record, count: int) -> Record:
    """Take *count* numbers of attempts, from `next_attempt` on."""
    return record.with_(next_attempt=record.next_attempt + count)


def with_batch(record: Record, call: Commit) -> Record | None:
    """Let the attempts of a batch count at the end; return None if it was committed before.

    Raises:
        ShuffleConflict: it was committed with other rows, or a later batch was, and not this one.
    """
    committed = record.batches.get(call.stream, {})
    rows = sum(winner.rows for winner in call.winners.values())
    found, before = Batch(rows, call.fingerprint), committed.get(call.batch)
    if found == before:
        return None
    if before is not None or any(later > call.batch for later in committed):
        raise ShuffleConflict(_other_rows(call, found, before, max(committed)))
    return record.with_(
        batches={**record.batches, call.stream: {**committed, call.batch: found}},
        committed={**record.committed, **call.winners},
    )


def _other_rows(call: Commit, found: Batch, before: Batch | None, last: int) -> str:
    if before is None:
        how = f"has {found.rows:,} rows and was not committed, though batch {last} was"
    elif before.rows == found.rows:
        how = f"was committed before with {before.rows:,} other rows"
    else:
        how = f"was committed before with {before.rows:,} rows, and these are {found.rows:,}"
    return (
        f"batch {call.batch} of stream {call.stream!r} {how}. Nothing was changed: the stream began"
        " again at a state that is older than the shuffle, or its source returns other rows for the"
        " same offsets. Begin a stream of another name (with Spark: with a new checkpointLocation),"
        " at the first row that is not committed"
    )


def joined(record: Record, member: MemberId) -> Record:
    """Add *member*. Nothing moves, except that in GET it fetches its share of the intervals."""
    return _settled(record.with_(members=tuple(sorted((*record.members, member)))))


def parted(record: Record, gone: MemberId) -> Record:
    """Remove *gone*: what it held has one holder less, and others fetch what it was fetching."""
    segments = {
        number: replace(
            segment,
            holders=_without(segment.holders, gone),
            is_open=segment.is_open and gone not in segment.holders,
            copy_to=None if segment.copy_to == gone else segment.copy_to,
        )
        for number, segment in record.segments.items()
    }
    intervals = tuple(
        replace(
            interval,
            holders=_without(interval.holders, gone),
            fetched_by=None if interval.fetched_by == gone else interval.fetched_by,
        )
        for interval in record.intervals
    )
    return _settled(
        record.with_(
            members=_without(record.members, gone),
            segments=segments,
            intervals=intervals,
        )
    )


def copied(record: Record, number: int) -> Record:
    """Make the member that has fetched segment *number* its second holder."""
    segment = record.segments[number]
    assert segment.copy_to is not None
    holders = (*segment.holders, segment.copy_to)
    if STORE in holders:
        holders = (segment.copy_to, STORE)  # the first one cuts it, which takes a member
    whole = replace(segment, holders=holders, copy_to=None)
    return _settled(record.with_(segments={**record.segments, number: whole}))


def ended(record: Record, winners: Mapping[int, Winner], cuts: bytes) -> Record:
    """Close all segments, for good, and say which rows count and where they go."""
    members = record.members
    segments = {
        number: replace(segment, is_open=False) for number, segment in record.segments.items()
    }
    intervals = tuple(
        Interval((members[number % len(members)],)) for number in range(record.interval_count)
    )
    return _settled(
        record.with_(
            state=State.ENDING,
            segments=segments,
            winners=dict(winners),
            cuts=cuts,
            intervals=intervals,
        )
    )


def published(record: Record, files: Sequence[tuple[int, int]]) -> Record:
    """Let intervals be read: *files* are the rows and the checksum of each. Segments are done."""
    intervals = tuple(
        replace(interval, rows=rows, checksum=checksum)
        for interval, (rows, checksum) in zip(record.intervals, files, strict=True)
    )
    return _settled(record.with_(state=State.GET, segments={}, intervals=intervals))


def fetched(record: Record, number: int) -> Record:
    """Let the member that has fetched interval *number* hold it, instead of the replica if any."""
    interval = record.intervals[number]
    assert interval.fetched_by is not None
    # A change takes one holder away at most, so that the other still answers for the interval.
    if len(interval.holders) == 1:
        holders = (interval.holders[0], interval.fetched_by)
    else:
        holders = (interval.fetched_by, interval.holders[0])
    intervals = list(record.intervals)
    intervals[number] = replace(interval, holders=holders, fetched_by=None)
    return _settled(record.with_(intervals=tuple(intervals)))


def damaged(record: Record, why: str) -> Record:
    """Record, for good, that rows are missing."""
    return record.with_(state=State.DAMAGED, why=why)


def deleted(record: Record) -> Record:
    """Delete the shuffle; the record that remains says so, and keeps the numbers that are taken."""
    return record.with_(
        state=State.DELETED,
        batches={},
        committed={},
        segments={},
        intervals=(),
        winners={},
        cuts=b"",
        members=(),
    )


# What has to hold after each change.


def _settled(record: Record) -> Record:
    if record.state is State.PUT:
        record = _with_open_segments(record)
    if record.state in (State.PUT, State.ENDING):
        record = replace(record, segments=_with_copies(record))
    if record.state in (State.ENDING, State.GET):
        numbered = enumerate(record.intervals)
        intervals = tuple(_with_second_holder(record, number, each) for number, each in numbered)
        record = replace(record, intervals=intervals)
    if record.state is State.GET and record.members:
        record = replace(record, intervals=_with_shares(record))
    return record


def _with_open_segments(record: Record) -> Record:
    """Give each member a segment with the member that follows it, and close all others."""
    segments = dict(record.segments)
    has_one = set()
    for number, segment in segments.items():
        if not segment.is_open:
            continue
        primary = segment.primary
        follower = record.second_of(primary) if primary in record.members else None
        if segment.holders == (primary, follower):
            has_one.add(primary)
        else:
            segments[number] = replace(segment, is_open=False)
    next_segment = record.next_segment
    for member in record.members:
        follower = record.second_of(member)
        if follower is not None and member not in has_one:
            segments[next_segment] = Segment(member, (member, follower), is_open=True)
            next_segment += 1
    return replace(record, segments=segments, next_segment=next_segment)


def _with_copies(record: Record) -> dict[int, Segment]:
    """Have each segment with one holder fetched by the holder's next member, or by any other."""
    segments = dict(record.segments)
    for number, segment in segments.items():
        copy_to = segment.copy_to if segment.copy_to in record.members else None
        if len(segment.holders) != 1:
            copy_to = None
        elif copy_to is None and segment.holders == (STORE,):
            copy_to = record.members[number % len(record.members)] if record.members else None
        elif copy_to is None:
            copy_to = record.next_of(segment.holders[0])
        if copy_to != segment.copy_to:
            segments[number] = replace(segment, copy_to=copy_to)
    return segments


def _with_second_holder(record: Record, number: int, interval: Interval) -> Interval:
    """Give an interval a second holder: at ENDING by name, from GET on by a fetch."""
    members, holders = record.members, interval.holders
    if record.state is State.ENDING:
        # Nothing is lost with the holders: the segments still have all rows.
        if not holders and members:
            holders = (members[number % len(members)],)
        if len(holders) == 1:
            follower = record.next_of(holders[0])
            holders = holders if follower is None else (*holders, follower)
        return interval if holders == interval.holders else replace(interval, holders=holders)
    if len(holders) == 1 and interval.fetched_by is None:
        return replace(interval, fetched_by=record.next_of(holders[0]))
    if not holders and interval.fetched_by is not None:
        return replace(interval, fetched_by=None)  # it is lost
    return interval


def _with_shares(record: Record) -> tuple[Interval, ...]:
    """Let members that own less than their share of the intervals have some of the others.

    Intervals under repair are left alone: one has to have two holders before one of them goes.
    Members that join meanwhile get their share when the repair is done.
    """
    share = record.interval_count // len(record.members)
    counts = Counter(_owner(interval) for interval in record.intervals)
    intervals = list(record.intervals)
    for member in record.members:
        if counts[member] >= share:
            continue
        # What it holds already comes first, because it need not be fetched.
        for number in sorted(
            range(len(intervals)), key=lambda n: member not in intervals[n].holders
        ):
            interval = intervals[number]
            is_whole = interval.fetched_by is None and len(interval.holders) > 1
            if not is_whole or counts[interval.holders[0]] <= share:
                continue
            counts[interval.holders[0]] -= 1
            counts[member] += 1
            if member in interval.holders:
                changed = replace(interval, holders=(member, interval.holders[0]))
            else:
                changed = replace(interval, fetched_by=member)
            intervals[number] = changed
            if counts[member] == share:
                break
    return tuple(intervals)


def _owner(interval: Interval) -> MemberId | None:
    """Return the member that owns *interval*, or will own it when it has fetched it."""
    if interval.fetched_by is not None and len(interval.holders) > 1:
        return interval.fetched_by
    return interval.holders[0] if interval.holders else None


def _without(members: tuple[MemberId, ...], gone: MemberId) -> tuple[MemberId, ...]:
    return tuple(member for member in members if member != gone)
