"""A feed: which records it sends to which partition, and again, and how far it says it has read."""

from __future__ import annotations

import pytest

from ringpop_py.flow.streams.feed import GROUP_BYTES, UNDER_WAY_MAX, Feed, Sending


def a_feed(*marks: int, group_records: int = 2, behind_max: int = 100) -> Feed[str]:
    return Feed(marks, group_records=group_records, behind_max=behind_max)


def test_a_group_has_all_records_of_its_partition_up_to_its_end() -> None:
    feed = a_feed(0, 0)
    for position, partition in ((1, 0), (2, 1), (3, 0), (5, 0), (6, 1)):
        feed.add(position, partition, f"r{position}")

    assert feed.next() == [
        Sending(0, 0, 3, [(1, "r1"), (3, "r3")]),
        Sending(0, 3, 6, [(5, "r5")]),
        Sending(1, 0, 6, [(2, "r2"), (6, "r6")]),
    ]
    assert feed.next() == []


def test_it_begins_behind_the_lowest_mark_and_leaves_out_what_a_partition_has() -> None:
    feed = a_feed(4, 2)
    assert feed.read == 2
    for position in (3, 4, 5):
        feed.add(position, 0, f"r{position}")

    [sending] = feed.next()

    assert sending == Sending(0, 4, 5, [(5, "r5")])


def test_no_more_groups_are_under_way_than_are_allowed_until_one_is_taken() -> None:
    feed = a_feed(0)
    for position in range(1, 21):
        feed.add(position, 0, "r")

    sent = feed.next()
    assert [sending.upto for sending in sent] == [2, 4, 6, 8]
    assert len(sent) == UNDER_WAY_MAX
    assert (feed.next(), feed.held) == ([], 20)

    feed.taken(0, 4)  # so it has the first two
    assert [sending.upto for sending in feed.next()] == [10, 12]
    assert (feed.marks, feed.held) == ([4], 16)


def test_a_partition_may_have_come_farther_by_another_feed_and_old_answers_count_for_nothing() -> (
    None
):
    feed = a_feed(0)
    for position in range(1, 7):
        feed.add(position, 0, "r")
    feed.next()

    feed.taken(0, 3)
    assert (feed.marks, feed.held) == ([3], 4)
    feed.taken(0, 1)
    assert (feed.marks, feed.held) == ([3], 4)
    feed.taken(0, 9)
    assert (feed.marks, feed.held, feed.done) == ([9], 0, True)


def test_a_partition_without_records_is_told_sometimes_or_at_the_end() -> None:
    feed = a_feed(0, 0, behind_max=5)
    for position in (1, 2, 3):
        feed.add(position, 0, "r")
    assert {sending.partition for sending in feed.next()} == {0}
    for position in (4, 5):
        feed.add(position, 0, "r")
    assert Sending(1, 0, 5, []) in feed.next()

    feed.add(6, 0, "r")
    assert Sending(1, 5, 6, []) in feed.next(all_of_it=True)
    assert feed.next(all_of_it=True) == []


def test_it_is_done_when_all_partitions_have_all_that_was_read() -> None:
    feed = a_feed(0, 0)
    assert feed.done
    feed.add(1, 0, "r")
    assert not feed.done
    for sending in feed.next(all_of_it=True):
        assert not feed.done
        feed.taken(sending.partition, sending.upto)
    assert feed.done
    assert feed.held == 0


def test_positions_rise() -> None:
    feed = a_feed(3)
    feed.add(4, 0, "r")

    with pytest.raises(ValueError, match="position 4 after position 4"):
        feed.add(4, 0, "r")


def test_skipped_positions_are_sent_like_those_that_others_have() -> None:
    feed = a_feed(0)
    feed.add(1, 0, "r")
    feed.skip(4)

    assert feed.next() == [Sending(0, 0, 4, [(1, "r")])]
    with pytest.raises(ValueError, match="position 4 after position 4"):
        feed.skip(4)


def test_large_records_are_few_in_a_group() -> None:
    feed: Feed[str] = Feed([0])
    for position in range(1, 4):
        feed.add(position, 0, "r", GROUP_BYTES // 2 + 1)

    assert [len(sending.records) for sending in feed.next()] == [2, 1]
    assert feed.held_bytes == 3 * (GROUP_BYTES // 2 + 1)
    feed.taken(0, 2)
    assert (feed.held, feed.held_bytes) == (1, GROUP_BYTES // 2 + 1)
