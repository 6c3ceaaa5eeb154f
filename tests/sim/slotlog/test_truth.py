"""What the checker calls broken, one thing after the other."""

from __future__ import annotations

import pytest

from ringpop_py.slotlog.slots import Claim, Data, Seal, Slot
from ringpop_sim.schedules.truth import LogBroken
from ringpop_sim.slotlog.truth import Truth

X, Y = (0, 0), (0, 1)


@pytest.fixture
def truth() -> Truth:
    """A log of one epoch, still open, with X and then Y in it."""
    truth = Truth()
    truth.put(Slot(1, 0), Claim("a", "1"))
    truth.put(Slot(1, 1), Data((X,), "1"))
    truth.put(Slot(1, 2), Data((Y,), "1"))
    return truth


def invariant(truth: Truth) -> str:
    assert isinstance(truth.broken, LogBroken)
    return truth.broken.invariant


def test_a_sound_log_breaks_nothing(truth: Truth) -> None:
    truth.acquired("a.1", 1, "1", [])
    truth.acknowledges(X)
    truth.answered("a.1", truth.sure_count, [X])
    truth.folded("b.1", Slot(1, 2), [X, Y])
    truth.checkpointed(Slot(1, 2))
    truth.marked(Slot(1, 1))
    truth.marked(Slot(1, 2))
    truth.mark_deleted(Slot(1, 1))
    truth.deleted(Slot(1, 1), truth.first[Slot(1, 1)])
    truth.ended([X, Y])

    assert truth.broken is None


def test_two_owners_of_an_epoch(truth: Truth) -> None:
    truth.acquired("a.1", 1, "1", [])
    truth.acquired("a.2", 1, "1", [])

    assert invariant(truth) == "owner"


def test_an_owner_that_the_log_does_not_know(truth: Truth) -> None:
    truth.acquired("b.1", 1, "2", [])

    assert invariant(truth) == "owner"


def test_an_owner_that_does_not_begin_with_the_whole_log(truth: Truth) -> None:
    truth.put(Slot(1, 3), Seal("b", "2"))
    truth.put(Slot(2, 0), Claim("b", "2"))

    truth.acquired("b.1", 2, "2", [X])

    assert invariant(truth) == "fold"


def test_an_operation_that_is_in_the_log_twice(truth: Truth) -> None:
    truth.put(Slot(1, 3), Data((X,), "1"))

    assert invariant(truth) == "twice"


def test_what_a_late_put_revives_is_not_in_the_log_twice(truth: Truth) -> None:
    truth.put(Slot(1, 1), truth.first[Slot(1, 1)])

    assert truth.broken is None
    assert truth.items == [X, Y]


def test_an_acknowledged_operation_that_is_not_in_the_log(truth: Truth) -> None:
    truth.acknowledges((0, 2))

    assert invariant(truth) == "lost"


def test_an_acknowledged_operation_that_the_last_owner_does_not_have(truth: Truth) -> None:
    truth.acknowledges(Y)

    truth.ended([X])

    assert invariant(truth) == "lost"


def test_an_operation_before_one_that_was_acknowledged_when_it_began() -> None:
    truth = Truth()
    truth.put(Slot(1, 0), Claim("a", "1"))
    truth.sure_count = 1
    truth.begins(X)

    truth.put(Slot(1, 1), Data((X,), "1"))

    assert invariant(truth) == "order"


def test_a_read_that_lacks_what_was_acknowledged_before_it_began(truth: Truth) -> None:
    truth.acknowledges(Y)

    truth.answered("a.1", truth.sure_count, [X])

    assert invariant(truth) == "read"


def test_a_read_after_a_read_that_saw_more(truth: Truth) -> None:
    truth.answered("a.1", 0, [X, Y])

    truth.answered("b.1", truth.sure_count, [X])

    assert invariant(truth) == "read"


def test_a_read_that_is_no_beginning_of_the_log(truth: Truth) -> None:
    truth.answered("a.1", 0, [Y])

    assert invariant(truth) == "read"


def test_a_copy_that_lacks_what_was_acknowledged_before_it_began(truth: Truth) -> None:
    truth.acknowledges(Y)

    truth.copied("b.1", truth.sure_count, [X])

    assert invariant(truth) == "copy"


def test_a_copy_need_not_have_what_was_acknowledged_later(truth: Truth) -> None:
    truth.copied("b.1", truth.sure_count, [X])
    truth.acknowledges(Y)

    assert truth.broken is None


def test_a_refused_commit_that_is_in_the_log(truth: Truth) -> None:
    truth.refused(Slot(1, 2), "1")

    truth.ended([X, Y])

    assert invariant(truth) == "refused"


def test_an_owner_that_is_fenced_from_an_epoch_that_nobody_sealed(truth: Truth) -> None:
    truth.fenced("a.1", 1)

    assert invariant(truth) == "fenced"


@pytest.mark.parametrize("slot", [Slot(1, 0), Slot(1, 3), Slot(1, 2)])
def test_a_claim_a_seal_or_data_without_a_checkpoint_that_is_deleted(
    truth: Truth, slot: Slot
) -> None:
    truth.put(Slot(1, 3), Seal("b", "2"))
    truth.checkpointed(Slot(1, 1))

    truth.deleted(slot, truth.first[slot])

    assert invariant(truth) == "deleted"


def test_data_without_a_mark_that_is_deleted(truth: Truth) -> None:
    truth.checkpointed(Slot(1, 2))
    truth.marked(Slot(1, 1))

    truth.deleted(Slot(1, 2), truth.first[Slot(1, 2)])

    assert invariant(truth) == "deleted"


def test_a_mark_without_a_checkpoint(truth: Truth) -> None:
    truth.marked(Slot(1, 1))

    assert invariant(truth) == "deleted"


def test_the_last_mark_that_is_deleted(truth: Truth) -> None:
    truth.checkpointed(Slot(1, 2))
    truth.marked(Slot(1, 2))

    truth.mark_deleted(Slot(1, 2))

    assert invariant(truth) == "deleted"


def test_damage_where_there_is_none(truth: Truth) -> None:
    truth.damaged("a.1", "a record is gone")

    assert invariant(truth) == "damaged"


def test_damage_where_there_is_some(truth: Truth) -> None:
    truth.harmed = True

    truth.damaged("a.1", "a record is gone")

    assert truth.broken is None


def test_a_seal_that_was_a_lie_may_be_deleted(truth: Truth) -> None:
    truth.deleted(Slot(1, 1), Seal("b", "2"))

    assert truth.broken is None
