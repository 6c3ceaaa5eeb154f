"""Which slots checkpoints cover, and which may be deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.state.journal.coverage import Coverage, Holding, Snapshots
from ringpop_py.state.journal.records import Mark, Slot
from tests.state.journal.journals import Bodies


def holding(*uncovered: int) -> Holding:
    return Holding(1, Bodies(), Snapshots(set()), uncovered=list(uncovered))


# Checkpoints of one partition.


def test_a_checkpoint_replaces_the_older_ones_but_those_it_builds_on() -> None:
    snapshots = Snapshots({Slot(1, 1), Slot(1, 5), Slot(2, 3)}, {Slot(2, 3)})

    snapshots.begin(Slot(2, 7), [Slot(2, 3)])

    assert snapshots.older(Slot(2, 7)) == (Slot(1, 1), Slot(1, 5))


def test_a_later_checkpoint_that_is_known_is_never_replaced() -> None:
    snapshots = Snapshots({Slot(1, 1), Slot(3, 0)})
    snapshots.begin(Slot(2, 7), [])

    assert snapshots.older(Slot(2, 7)) == (Slot(1, 1),)


def test_a_deleted_checkpoint_is_no_longer_a_foundation() -> None:
    snapshots = Snapshots({Slot(1, 1)}, {Slot(1, 1)})
    snapshots.deleted([Slot(1, 1)])

    assert snapshots.known == set()
    with pytest.raises(AssertionError, match="of this epoch only"):
        snapshots.begin(Slot(1, 2), [Slot(1, 1)])


def test_a_checkpoint_that_was_begun_may_be_there_and_builds_on_others_alone() -> None:
    snapshots = Snapshots(set(), {Slot(1, 1)})

    with pytest.raises(AssertionError, match="on itself"):
        snapshots.begin(Slot(1, 1), [Slot(1, 1)])
    snapshots.begin(Slot(1, 2), [])

    assert snapshots.known == {Slot(1, 2)}
    with pytest.raises(AssertionError, match="at a time"):
        snapshots.begin(Slot(1, 3), [])


# Slots of the journal.


def test_the_mark_is_where_the_first_uncovered_entry_is() -> None:
    coverage = Coverage("j")

    assert coverage.mark_at(10, []) == 10
    assert coverage.mark_at(10, [holding(), holding(7, 9), holding(8)]) == 7


def test_a_released_partition_holds_the_mark_back_until_a_checkpoint_of_a_later_epoch() -> None:
    coverage = Coverage("j")
    coverage.parted[0, 3] = 4

    marks = [coverage.mark_at(10, [])]
    for newest in (Slot(2, 9), Slot(3, 1), Slot(3, 9), Slot(4, 0)):
        coverage.listed(0, [Slot(1, 1), newest])
        marks.append(coverage.mark_at(10, []))

    assert marks == [4, 4, 4, 4, 10]


def test_a_checkpoint_covers_the_releases_of_its_own_partition_alone() -> None:
    coverage = Coverage("j")
    coverage.parted.update({(0, 1): 4, (0, 2): 6, (1, 1): 8})

    coverage.listed(0, [Slot(2, 9)])
    assert coverage.parted == {(0, 2): 6, (1, 1): 8}
    coverage.listed(1, [])
    assert coverage.parted == {(0, 2): 6, (1, 1): 8}


def test_only_partitions_that_keep_the_mark_back_are_waited_for() -> None:
    coverage = Coverage("j")
    coverage.parted.update({(0, 1): 4, (1, 1): 5, (2, 1): 6})

    assert coverage.waits_for(10, []) == {0, 1, 2}
    assert coverage.waits_for(10, [holding(5)]) == {0}
    assert coverage.waits_for(4, []) == set()


def test_a_mark_names_the_newest_checkpoint_of_each_partition_that_was_ever_here() -> None:
    coverage = Coverage("j")
    coverage.listed(0, [Slot(1, 1), Slot(1, 5)])
    coverage.listed(1, [Slot(2, 2)])
    coverage.listed(0, [Slot(1, 2)])  # an older list, which came late

    assert coverage.mark(7) == Mark({0: Slot(1, 5), 1: Slot(2, 2)})


def test_a_mark_stays_what_it_was_when_more_is_covered() -> None:
    coverage = Coverage("j")
    coverage.listed(0, [Slot(1, 1)])
    mark = coverage.mark(2)

    coverage.listed(0, [Slot(1, 9)])

    assert mark == Mark({0: Slot(1, 1)})


def test_slots_below_the_mark_are_deleted_once_and_lower_marks_with_them() -> None:
    coverage = Coverage("j")
    coverage.mark(3)
    first = coverage.marked_at(3)
    coverage.deleted(3)
    coverage.mark(8)

    assert first == (range(1, 3), [])
    assert coverage.marked_at(8) == (range(3, 8), [3])
    assert coverage.marked == 8


def test_slots_that_could_not_be_deleted_are_deleted_with_the_next_mark() -> None:
    coverage = Coverage("j")
    coverage.mark(3)
    coverage.marked_at(3)  # and the deletion fails
    coverage.mark(5)  # and the put fails
    coverage.mark(8)

    assert coverage.marked_at(8) == (range(1, 8), [3, 5])
    coverage.deleted(8)
    coverage.mark(9)
    assert coverage.marked_at(9) == (range(8, 9), [8])


@given(
    st.integers(1, 20),
    st.lists(st.lists(st.integers(1, 20), max_size=4).map(sorted), max_size=4),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(1, 3)), st.integers(1, 20)),
)
def test_nothing_below_the_mark_is_open_uncovered_or_released(
    low: int, uncovered: list[list[int]], parted: dict[tuple[int, int], int]
) -> None:
    coverage = Coverage("j")
    coverage.parted.update(parted)
    held = [holding(*slots) for slots in uncovered]

    at = coverage.mark_at(low, held)

    needed = [low, *(slot for slots in uncovered for slot in slots), *parted.values()]
    assert at == min(needed)
    # Whoever keeps it back and has been released is waited for.
    waited = coverage.waits_for(low, held)
    assert at == min([low, *(slot for slots in uncovered for slot in slots)]) or waited
    assert waited <= {number for number, _ in parted}
