"""What a member of a shuffle takes for its own, where random schedules hardly come."""

from __future__ import annotations

from ringpop_py.flow.shuffle.protocol import changes
from ringpop_py.flow.shuffle.protocol.member import LEASE_US, ShuffleMember
from ringpop_py.flow.shuffle.protocol.messages import Answer, CopyInterval, Held, Store
from ringpop_py.flow.shuffle.protocol.record import MemberId, Winner

A, B, C = (MemberId(host, 1) for host in "abc")


def test_a_fetched_interval_is_kept_if_it_is_that_of_the_record() -> None:
    record = changes.ended(changes.created(None, 7, b"", 3, [A, B]), {0: Winner(1, 9)}, b"cuts")
    record = changes.joined(changes.published(record, [(3, 30), (3, 31), (3, 32)]), C)
    [(number, owner)] = [
        (number, each.holders[0])
        for number, each in enumerate(record.intervals)
        if each.fetched_by == C
    ]
    member = ShuffleMember("c", 1)
    member.apply(record, 0, 0)
    [duty] = member.begin(0)
    assert duty == CopyInterval(0, number, owner)

    assert not member.done(duty, Held(3, 99, {0: 3}))
    assert not member.done(duty, Held(2, 30 + number, {0: 2}))
    assert member.intervals == {}
    [again] = member.begin(0)
    assert member.done(again, Held(3, 30 + number, {0: 3}))
    assert list(member.intervals) == [number]


def test_a_stored_batch_is_acknowledged_only_within_the_lease() -> None:
    member = ShuffleMember("a", 1)
    member.apply(changes.created(None, 7, b"", 3, [A, B]), 0, 0)
    store = member.put(7, (0, 0))
    assert store == Store(0, B)
    assert member.appended(0, 0, (0, 0), None)

    assert member.stored(0, store, (0, 0), LEASE_US + 1) is Answer.NOT_NOW
    assert member.put(7, (0, 0)) == store  # not acknowledged: it is sent again
    assert member.stored(0, store, (0, 0), LEASE_US) is Answer.OK
    assert member.put(7, (0, 0)) is Answer.OK
