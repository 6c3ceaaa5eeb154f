"""What the checker calls broken, one thing after the other."""

from __future__ import annotations

import pytest

from ringpop_py.state.journal.records import ORIGIN, Claim, Entry, Group, Mark, Release, Seal, Slot
from ringpop_sim.state.journal.promises import LogBroken
from ringpop_sim.state.journal.truth import PartitionTruth, Truth

X, Y, Z = (0, 0), (0, 1), (0, 2)
FIRST = Group((Entry(0, 1, (X,)),))
BOTH = Group((Entry(0, 1, (Y,)), Entry(1, 1, (Z,))))
LEAVES = Group((Entry(0, 1, Release("b")),))
SEAL = Seal("b")


@pytest.fixture
def truth() -> Truth:
    """A journal of two partitions: X, then Y and Z in one group. Both epochs are open."""
    truth = Truth(2)
    for partition in truth.partitions:
        partition.claimed(1, Claim("a", "a.1", 1))
    truth.put("a.1", 1, FIRST)
    truth.put("a.1", 2, BOTH)
    return truth


@pytest.fixture
def partition(truth: Truth) -> PartitionTruth:
    """The first of the two partitions."""
    return truth.partitions[0]


def covered(truth: Truth) -> Mark:
    """Put checkpoints that cover both slots; the mark that may stand behind them."""
    truth.partitions[0].checkpointed(Slot(1, 2), None, [X, Y])
    truth.partitions[1].checkpointed(Slot(1, 2), None, [Z])
    return Mark({0: Slot(1, 2), 1: Slot(1, 2)})


def invariant(truth: Truth) -> str:
    assert isinstance(truth.broken, LogBroken)
    return truth.broken.invariant


def test_a_sound_journal_breaks_nothing(truth: Truth, partition: PartitionTruth) -> None:
    partition.acquired("a.1", 1, "a.1", 3, [X, Y])
    partition.acknowledges(X)
    partition.answered("a.1", partition.sure_count, [X])
    partition.folded("b.1", Slot(1, 1), [X])
    truth.marked("a.1", 3, covered(truth))
    truth.deleted("a.1", 1, FIRST)
    truth.put("a.1", 3, SEAL)
    truth.fenced("a.1", "a.1", 3)
    partition.claimed(2, Claim("b", "b.1", 1, Slot(1, 2)))
    partition.acquired("b.1", 2, "b.1", 1, [X, Y])
    truth.ended([[X, Y], [Z]])

    assert truth.broken is None
    assert truth.tally["seals"] == 1


def test_a_partition_that_begins_with_a_checkpoint_from_elsewhere(truth: Truth) -> None:
    restored = PartitionTruth(truth, 2)

    restored.restored(X)
    restored.folded("a.1", ORIGIN, [X])

    assert truth.broken is None


# Which entries count.


def test_an_entry_before_its_claim_does_not_count(truth: Truth, partition: PartitionTruth) -> None:
    truth.put("a.1", 3, SEAL)
    partition.claimed(2, Claim("b", "b.1", 2))

    truth.put("b.1", 1, Group((Entry(0, 2, (Z,)),)))

    assert partition.items == [X, Y]


def test_an_entry_behind_a_seal_does_not_count(truth: Truth, partition: PartitionTruth) -> None:
    truth.put("a.1", 3, SEAL)

    truth.put("a.1", 4, Group((Entry(0, 1, (Z,)),)))

    assert partition.items == [X, Y]


def test_an_entry_behind_its_release_does_not_count(
    truth: Truth, partition: PartitionTruth
) -> None:
    truth.put("a.1", 3, LEAVES)

    truth.put("a.1", 4, Group((Entry(0, 1, (Z,)),)))

    assert partition.items == [X, Y]


def test_an_entry_of_an_epoch_of_another_journal_does_not_count(
    truth: Truth, partition: PartitionTruth
) -> None:
    truth.put("c.1", 1, Group((Entry(0, 1, (Z,)),)))

    assert partition.items == [X, Y]


def test_items_that_a_late_put_revives_do_not_count_twice(
    truth: Truth, partition: PartitionTruth
) -> None:
    truth.put("a.1", 1, FIRST)

    assert truth.broken is None
    assert partition.items == [X, Y]


def test_a_seal_in_a_slot_that_was_deleted_is_a_lie(truth: Truth) -> None:
    truth.put("a.1", 1, SEAL)

    assert truth.journal("a.1").end is None
    assert truth.tally["lies"] == 1


# Owners.


def test_two_owners_of_an_epoch(truth: Truth, partition: PartitionTruth) -> None:
    partition.acquired("a.1", 1, "a.1", 3, [X, Y])
    partition.acquired("a.2", 1, "a.1", 3, [X, Y])

    assert invariant(truth) == "owner"


def test_an_owner_by_a_claim_of_another_journal(truth: Truth, partition: PartitionTruth) -> None:
    partition.acquired("a.1", 1, "a.2", 3, [X, Y])

    assert invariant(truth) == "owner"


def test_a_claim_while_the_epoch_before_is_open(truth: Truth, partition: PartitionTruth) -> None:
    partition.claimed(2, Claim("b", "b.1", 1))

    assert invariant(truth) == "owner"


def test_a_claim_that_leaves_an_epoch_out(truth: Truth, partition: PartitionTruth) -> None:
    truth.put("a.1", 3, SEAL)

    partition.claimed(3, Claim("b", "b.1", 1))

    assert invariant(truth) == "owner"


@pytest.mark.parametrize("last", [SEAL, LEAVES])
def test_a_claim_once_the_epoch_before_has_ended(
    truth: Truth, partition: PartitionTruth, last: Seal | Group
) -> None:
    truth.put("a.1", 3, last)

    partition.claimed(2, Claim("b", "b.1", 1))

    assert truth.broken is None


def test_an_owner_that_does_not_begin_with_the_whole_log(
    truth: Truth, partition: PartitionTruth
) -> None:
    truth.put("a.1", 3, SEAL)
    partition.claimed(2, Claim("b", "b.1", 1))

    partition.acquired("b.1", 2, "b.1", 1, [X])

    assert invariant(truth) == "fold"


# Operations.


def test_an_operation_that_is_in_the_log_twice(truth: Truth) -> None:
    truth.put("a.1", 3, FIRST)

    assert invariant(truth) == "twice"


def test_an_acknowledged_operation_that_is_not_in_the_log(
    truth: Truth, partition: PartitionTruth
) -> None:
    partition.acknowledges(Z)  # it is, but in the other partition

    assert invariant(truth) == "lost"


def test_an_acknowledged_operation_that_the_last_owner_does_not_have(
    truth: Truth, partition: PartitionTruth
) -> None:
    partition.acknowledges(Y)

    truth.ended([[X], [Z]])

    assert invariant(truth) == "lost"


def test_an_operation_before_one_that_was_acknowledged_when_it_began(truth: Truth) -> None:
    other = truth.partitions[1]
    other.sure_count = 2
    other.begins(X)

    truth.put("a.1", 3, Group((Entry(1, 1, (X,)),)))

    assert invariant(truth) == "order"


def test_a_read_that_lacks_what_was_acknowledged_before_it_began(
    truth: Truth, partition: PartitionTruth
) -> None:
    partition.acknowledges(Y)

    partition.answered("a.1", partition.sure_count, [X])

    assert invariant(truth) == "read"


def test_a_read_that_is_no_beginning_of_the_log(truth: Truth, partition: PartitionTruth) -> None:
    partition.answered("a.1", 0, [Y])

    assert invariant(truth) == "read"


def test_a_fold_that_is_not_what_stands_before_its_position(
    truth: Truth, partition: PartitionTruth
) -> None:
    partition.folded("b.1", Slot(1, 1), [X, Y])

    assert invariant(truth) == "fold"


@pytest.mark.parametrize("position", [Slot(1, 3), Slot(2, 0)])
def test_a_position_where_the_log_never_was(
    truth: Truth, partition: PartitionTruth, position: Slot
) -> None:
    partition.folded("b.1", position, [X, Y])

    assert invariant(truth) == "fold"


def test_a_checkpoint_that_is_ahead_of_its_slot(truth: Truth, partition: PartitionTruth) -> None:
    partition.checkpointed(Slot(1, 1), None, [X, Y])

    assert invariant(truth) == "fold"


def test_a_copy_that_lacks_what_was_acknowledged_before_it_began(
    truth: Truth, partition: PartitionTruth
) -> None:
    partition.acknowledges(Y)

    partition.copied("b.1", partition.sure_count, [X])

    assert invariant(truth) == "copy"


def test_a_refused_group_that_is_in_the_journal(truth: Truth) -> None:
    truth.refused("a.1", 2, BOTH)

    truth.ended([[X, Y], [Z]])

    assert invariant(truth) == "refused"


def test_a_refused_group_may_be_put_again_as_another(truth: Truth) -> None:
    truth.refused("a.1", 2, Group(BOTH.entries))

    truth.ended([[X, Y], [Z]])

    assert truth.broken is None


@pytest.mark.parametrize("slot", [2, 3])
def test_an_owner_that_is_fenced_from_a_journal_that_has_not_ended_there(
    truth: Truth, slot: int
) -> None:
    truth.put("a.1", 4, SEAL)

    truth.fenced("a.1", "a.1", slot)

    assert invariant(truth) == "fenced"


# What may be deleted.


def test_a_slot_that_is_deleted_without_a_checkpoint_of_each_partition(truth: Truth) -> None:
    truth.partitions[0].checkpointed(Slot(1, 2), None, [X, Y])
    truth.journal("a.1").mark = 3

    truth.deleted("a.1", 2, BOTH)

    assert invariant(truth) == "deleted"


def test_a_slot_that_is_deleted_without_a_mark(truth: Truth) -> None:
    truth.marked("a.1", 2, covered(truth))

    truth.deleted("a.1", 2, BOTH)

    assert invariant(truth) == "deleted"


def test_a_release_that_only_a_checkpoint_of_its_own_epoch_covers(
    truth: Truth, partition: PartitionTruth
) -> None:
    truth.put("a.1", 3, LEAVES)
    covered(truth)
    partition.checkpointed(Slot(1, 3), None, [X, Y])

    truth.marked("a.1", 4, Mark({}))

    assert invariant(truth) == "deleted"


def test_a_mark_above_what_checkpoints_cover(truth: Truth) -> None:
    truth.marked("a.1", 2, Mark({}))

    assert invariant(truth) == "deleted"


def test_a_mark_above_the_end_of_the_journal(truth: Truth) -> None:
    truth.put("a.1", 3, SEAL)

    truth.marked("a.1", 4, covered(truth))

    assert invariant(truth) == "deleted"


def test_a_mark_that_names_a_checkpoint_that_was_never_there(truth: Truth) -> None:
    truth.marked("a.1", 1, Mark({0: Slot(1, 1)}))

    assert invariant(truth) == "deleted"


def test_the_seal_that_ended_a_journal_is_deleted(truth: Truth) -> None:
    truth.put("a.1", 3, SEAL)

    truth.deleted("a.1", 3, SEAL)

    assert invariant(truth) == "deleted"


def test_a_seal_that_was_a_lie_may_be_deleted(truth: Truth) -> None:
    truth.put("a.1", 1, SEAL)

    truth.deleted("a.1", 1, SEAL)

    assert truth.broken is None


def test_the_highest_mark_is_deleted(truth: Truth) -> None:
    truth.marked("a.1", 3, covered(truth))

    truth.mark_deleted("a.1", 3)

    assert invariant(truth) == "deleted"


@pytest.mark.parametrize("slot", [Slot(1, 1), Slot(1, 2)])
def test_the_newest_checkpoint_or_one_that_it_builds_on_is_deleted(
    truth: Truth, partition: PartitionTruth, slot: Slot
) -> None:
    partition.checkpointed(Slot(1, 0), None, [])
    partition.checkpointed(Slot(1, 1), None, [X])
    partition.checkpointed(Slot(1, 2), Slot(1, 1), [X, Y])
    partition.checkpoint_deleted(Slot(1, 0))

    partition.checkpoint_deleted(slot)

    assert invariant(truth) == "deleted"


# Damage.


def test_damage_where_there_is_none(truth: Truth) -> None:
    truth.damaged("a.1", "a record is gone")

    assert invariant(truth) == "damaged"


def test_damage_where_there_is_some(truth: Truth) -> None:
    truth.harmed = True

    truth.damaged("a.1", "a record is gone")

    assert truth.broken is None
