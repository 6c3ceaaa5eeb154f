"""Changes of a record whose exact outcome random schedules do not check."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import ShuffleConflict
from ringpop_py.flow.shuffle.protocol import changes
from ringpop_py.flow.shuffle.protocol.calls import Commit
from ringpop_py.flow.shuffle.protocol.record import STORE, MemberId, Record, State, Winner

A, B, C = (MemberId(host, 1) for host in "abc")


def ended(record: Record) -> Record:
    return changes.ended(record, {0: Winner(1, 3)}, b"cuts")


def test_each_member_has_a_segment_with_the_next_one_in_the_circle() -> None:
    record = changes.created(None, 7, b"", 4, [C, A, B])

    assert record.members == (A, B, C)
    assert [each.holders for each in record.segments.values()] == [(A, B), (B, C), (C, A)]
    assert all(each.is_open for each in record.segments.values())


def test_a_member_that_joins_closes_one_segment_and_moves_nothing() -> None:
    record = changes.created(None, 7, b"", 4, [A, C])

    after = changes.joined(record, B)

    assert after.version == record.version + 1
    closed = [each.holders for each in after.segments.values() if not each.is_open]
    assert closed == [(A, C)]
    assert [each.copy_to for each in after.segments.values()] == [None] * 4


def test_segments_of_a_lost_member_are_fetched_by_the_next_of_the_other_holder() -> None:
    record = changes.created(None, 7, b"", 4, [A, B, C])

    after = changes.parted(record, B)

    held = {number: (each.holders, each.copy_to) for number, each in after.segments.items()}
    assert held[0] == ((A,), C)
    assert held[1] == ((C,), A)
    assert held[2] == ((C, A), None)


def test_a_member_that_is_alone_has_no_segment() -> None:
    record = changes.parted(changes.created(None, 7, b"", 4, [A, B]), B)

    assert record.open_segment_of(A) is None
    assert [each.copy_to for each in record.segments.values()] == [None, None]


def test_a_member_that_joins_what_can_be_read_fetches_its_share_and_no_more() -> None:
    record = ended(changes.created(None, 7, b"", 9, [A, B]))
    record = changes.published(record, [(1, 1)] * 9)

    after = changes.joined(record, C)

    fetched = [each.holders[0] for each in after.intervals if each.fetched_by == C]
    assert len(fetched) == 3
    assert {*fetched} == {A, B}
    number = next(place for place, each in enumerate(after.intervals) if each.fetched_by == C)
    assert changes.fetched(after, number).intervals[number].holders == (
        C,
        after.intervals[number].holders[0],
    )


def batch(stream: str, number: int, winners: dict[int, Winner], fingerprint: int = 9) -> Commit:
    return Commit("s", 7, stream, number, winners, fingerprint)


def test_a_batch_of_a_stream_counts_once() -> None:
    record = changes.created(None, 7, b"", 4, [A, B])

    one = changes.with_batch(record, batch("stream", 0, {4: Winner(1, 10)}))
    assert one is not None
    two = changes.with_batch(one, batch("other", 0, {5: Winner(1, 20)}))

    assert two is not None
    assert two.committed == {4: Winner(1, 10), 5: Winner(1, 20)}
    # The same rows in other attempts, frames and tasks.
    assert changes.with_batch(two, batch("stream", 0, {6: Winner(3, 4), 7: Winner(1, 6)})) is None
    three = changes.with_batch(two, batch("stream", 2, {6: Winner(1, 10)}))
    assert three is not None
    assert changes.with_batch(three, batch("stream", 0, {8: Winner(1, 10)})) is None


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (batch("stream", 1, {6: Winner(1, 11)}), "before with 10 rows, and these are 11"),
        (batch("stream", 1, {6: Winner(1, 10)}, 8), "before with 10 other rows"),
        (batch("stream", 0, {6: Winner(1, 3)}), "3 rows and was not committed, though batch 1 was"),
    ],
)
def test_other_rows_under_the_number_of_a_batch_are_refused(call: Commit, why: str) -> None:
    record = changes.created(None, 7, b"", 4, [A, B])
    record = changes.with_batch(record, batch("stream", 1, {4: Winner(1, 10)})) or record

    with pytest.raises(ShuffleConflict, match=f"{why}. Nothing was changed: .* another name"):
        changes.with_batch(record, call)


def test_a_shuffle_that_is_created_again_begins_anew_under_a_higher_version() -> None:
    record = changes.deleted(changes.created(None, 7, b"", 4, [A, B]))
    assert (record.state, record.members, record.segments) == (State.DELETED, (), {})

    again = changes.created(record, 8, b"", 4, [A, B])

    assert again.version > record.version
    assert (again.uid, again.next_attempt, again.batches) == (8, 0, {})


def test_with_a_store_nobody_needs_a_neighbour_and_no_join_closes_a_segment() -> None:
    record = changes.created(None, 7, b"", 4, [A], is_stored=True)

    after = changes.joined(record, B)

    assert [(each.holders, each.is_open) for each in after.segments.values()] == [
        ((A, STORE), True),
        ((B, STORE), True),
    ]


def test_a_segment_that_only_the_store_has_is_fetched_by_any_member() -> None:
    record = changes.created(None, 7, b"", 4, [A], is_stored=True)

    alone = changes.parted(record, A)
    back = changes.joined(alone, B)
    fetched = changes.copied(back, 0)

    assert (alone.segments[0].holders, alone.segments[0].copy_to) == ((STORE,), None)
    assert back.segments[0].copy_to == B
    assert (fetched.segments[0].holders, fetched.segments[0].is_open) == ((B, STORE), False)


def owners_of(record: Record) -> list[int]:
    return [
        sum(each.holders[:1] == (member,) for each in record.intervals) for member in record.members
    ]


def all_fetched(record: Record) -> Record:
    """Let everything be fetched that is to be fetched, one after the other."""
    while due := [n for n, each in enumerate(record.intervals) if each.fetched_by is not None]:
        record = changes.fetched(record, due[0])
    return record


def test_a_member_that_joins_during_a_repair_gets_its_share_once_the_repair_is_done() -> None:
    readable = changes.published(ended(changes.created(None, 7, b"", 9, [A, B])), [(1, 1)] * 9)

    after = changes.joined(changes.parted(readable, B), C)

    assert all(each.fetched_by in (None, C) for each in after.intervals)
    after = all_fetched(after)
    assert owners_of(after) == [5, 4]
    assert owners_of(all_fetched(changes.joined(after, B))) == [3, 3, 3]


def test_after_a_death_members_own_equal_shares_of_what_they_hold() -> None:
    record = changes.created(None, 7, b"", 12, [A, B, C])
    readable = changes.published(ended(record), [(1, 1)] * 12)

    after = all_fetched(changes.parted(readable, B))

    assert owners_of(after) == [6, 6]
    assert all({*each.holders} == {A, C} for each in after.intervals)


def test_a_lost_interval_is_fetched_by_nobody() -> None:
    record = changes.created(None, 7, b"", 2, [A, B, C])
    readable = changes.published(ended(record), [(1, 1)] * 2)

    after = changes.parted(changes.parted(readable, A), B)

    assert [(each.holders, each.fetched_by) for each in after.intervals] == [
        ((), None),
        ((C,), None),
    ]
