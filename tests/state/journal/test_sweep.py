"""Trimming the journal of a node that no longer does it itself."""

from __future__ import annotations

import pytest

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.effects import StoreAnswer
from ringpop_py.state.journal.records import Mark, Release, Slot
from ringpop_py.state.journal.sweep import Sweep
from tests.state.journal.journals import Node, Store, group, only


def test_slots_that_later_owners_have_covered_are_marked_and_then_deleted(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "y"})
    a.commit("z")
    b.acquires(0, 1, take=True)
    b.checkpoint(0)
    b.checkpoint(1)
    b.kinds()

    facts = b.sweep("a1")

    assert facts == [fx.Trimmed("a1", 3, failed=False)]
    assert b.kinds() == [
        *(fx.ListJournal, fx.GetSlot, fx.ListPartition, fx.ListPartition, fx.GetSlot, fx.GetSlot),
        *(fx.PutMark, fx.DeleteSlots),
    ]
    assert b.store.marks == {("a1", 3): Mark({0: Slot(2, 0), 1: Slot(2, 0)})}


@pytest.mark.parametrize(
    ("checkpoint", "covered"),
    [
        (Slot(1, 0), False),
        (Slot(1, 1), True),
        (Slot(1, 2), True),
        (Slot(2, 0), True),
        (None, False),
    ],
)
def test_an_entry_is_covered_by_a_checkpoint_at_its_slot_or_beyond(
    store: Store, a: Node, checkpoint: Slot | None, *, covered: bool
) -> None:
    store.slots["old", 1] = group((0, 1, "x"))
    if checkpoint is not None:
        store.checkpoints[0, checkpoint] = ("x",)

    a.sweep("old")

    assert store.slots_of("old") == ([] if covered else [1])


@pytest.mark.parametrize(
    ("checkpoint", "covered"), [(Slot(1, 1), False), (Slot(1, 9), False), (Slot(2, 0), True)]
)
def test_a_release_is_covered_by_a_checkpoint_of_a_later_epoch_alone(
    store: Store, a: Node, checkpoint: Slot, *, covered: bool
) -> None:
    store.slots["old", 1] = group((0, 1, Release("b")))
    store.checkpoints[0, checkpoint] = ("x",)

    a.sweep("old")

    assert store.slots_of("old") == ([] if covered else [1])


def test_it_stops_at_a_hole_for_what_is_behind_may_be_lost(store: Store, a: Node) -> None:
    for slot in (1, 3):
        store.slots["old", slot] = group((0, 1, "x"))
    store.checkpoints[0, Slot(1, 9)] = ()

    facts = a.sweep("old")

    assert facts == [fx.Trimmed("old", 2, failed=False)]
    assert store.slots_of("old") == [3]


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, fx.Unreadable("damaged")])
def test_a_slot_that_cannot_be_read_is_where_it_stops(
    store: Store, a: Node, reply: fx.Reply
) -> None:
    for slot in (1, 2, 3):
        store.slots["old", slot] = group((0, 1, "x"))
    store.checkpoints[0, Slot(1, 9)] = ()
    sweep = Sweep("old")
    look, _ = a.until(sweep, sweep.begin(), fx.GetSlot)
    look, _ = a.until(sweep, sweep.answered(look.id, store.answer(look)), fx.GetSlot)
    assert look.slot == 2

    a.run(sweep, sweep.answered(look.id, reply))

    assert store.slots_of("old") == [2, 3]


def test_it_begins_at_the_mark_and_deletes_what_was_left_below(store: Store, a: Node) -> None:
    for slot in (2, 3, 5, 6):
        store.slots["old", slot] = group((0, 1, "x"))
    store.marks["old", 3] = Mark({})
    store.marks["old", 5] = Mark({7: Slot(4, 4), 0: Slot(1, 4)})
    store.checkpoints[0, Slot(1, 5)] = ()

    facts = a.sweep("old")

    assert facts == [fx.Trimmed("old", 6, failed=False)]
    assert store.slots_of("old") == [6]
    # What the former mark said of other partitions is said on.
    assert store.marks == {("old", 6): Mark({7: Slot(4, 4), 0: Slot(1, 5)})}
    assert [r.slot for r in a.asked if isinstance(r, fx.GetSlot)] == [5, 6]


def test_where_nothing_new_is_covered_only_leftovers_are_deleted(store: Store, a: Node) -> None:
    store.slots["old", 1] = store.slots["old", 2] = group((0, 1, "x"))
    store.marks["old", 1] = store.marks["old", 2] = Mark({})

    facts = a.sweep("old")

    assert facts == [fx.Trimmed("old", 2, failed=False)]
    assert (store.slots_of("old"), store.marks_of("old")) == ([2], [2])
    assert fx.PutMark not in a.kinds()


def test_a_journal_without_anything_to_delete_costs_no_put(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")

    facts = b.sweep("a1")

    assert facts == [fx.Trimmed("a1", 0, failed=False)]
    assert b.kinds() == [fx.ListJournal, fx.GetSlot, fx.ListPartition]


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, StoreAnswer.NO_ROOM])
def test_without_a_mark_that_is_known_nothing_is_deleted(
    store: Store, a: Node, reply: StoreAnswer
) -> None:
    store.slots["old", 1] = group((0, 1, "x"))
    store.checkpoints[0, Slot(1, 1)] = ("x",)
    sweep = Sweep("old")
    put, _ = a.until(sweep, sweep.begin(), fx.PutMark)

    facts = a.run(sweep, sweep.answered(put.id, reply))

    assert facts == [fx.Trimmed("old", 0, failed=True)]
    assert store.slots_of("old") == [1]


def test_of_two_at_the_same_time_both_may_delete(store: Store, a: Node, b: Node) -> None:
    store.slots["old", 1] = group((0, 1, "x"))
    store.checkpoints[0, Slot(1, 1)] = ("x",)
    sweep = Sweep("old")
    put, rest = a.until(sweep, sweep.begin(), fx.PutMark)

    other = b.sweep("old")
    facts = a.run(sweep, [put, *rest])

    assert other == facts == [fx.Trimmed("old", 2, failed=False)]
    assert (store.slots_of("old"), store.marks_of("old")) == ([], [2])


def test_a_list_that_fails_ends_it(a: Node) -> None:
    sweep = Sweep("old")
    look = only(sweep.begin(), fx.ListJournal)

    assert sweep.answered(look.id, StoreAnswer.FAILED) == [fx.Trimmed("old", 0, failed=True)]
    assert a.asked == []


@pytest.mark.parametrize("reply", [StoreAnswer.ABSENT, StoreAnswer.FAILED])
def test_a_mark_that_is_gone_ends_it_for_there_is_a_higher_one(
    store: Store, a: Node, reply: StoreAnswer
) -> None:
    store.slots["old", 2] = group((0, 1, "x"))
    store.marks["old", 2] = Mark({})
    sweep = Sweep("old")
    look, _ = a.until(sweep, sweep.begin(), fx.GetMark)

    assert sweep.answered(look.id, reply) == [fx.Trimmed("old", 2, failed=True)]


def test_checkpoints_that_cannot_be_listed_cover_nothing(store: Store, a: Node) -> None:
    store.slots["old", 1] = group((0, 1, "x"), (1, 1, "y"))
    store.checkpoints[0, Slot(1, 1)] = store.checkpoints[1, Slot(1, 1)] = ()
    sweep = Sweep("old")
    first, [second] = a.until(sweep, sweep.begin(), fx.ListPartition)

    nothing = sweep.answered(first.id, StoreAnswer.FAILED)
    facts = a.run(sweep, [second])

    assert nothing == []
    assert facts == [fx.Trimmed("old", 0, failed=False)]
    assert store.slots_of("old") == [1]


def test_a_deletion_that_fails_is_told_and_the_next_sweep_does_it(store: Store, a: Node) -> None:
    store.slots["old", 1] = group((0, 1, "x"))
    store.checkpoints[0, Slot(1, 1)] = ("x",)
    sweep = Sweep("old")
    delete, _ = a.until(sweep, sweep.begin(), fx.DeleteSlots)

    facts = sweep.answered(delete.id, StoreAnswer.FAILED)

    assert facts == [fx.Trimmed("old", 2, failed=True)]
    assert a.sweep("old") == [fx.Trimmed("old", 2, failed=False)]
    assert store.slots_of("old") == []


def test_each_partition_is_listed_once_however_many_slots_it_is_in(store: Store, a: Node) -> None:
    for slot in range(1, 40):
        store.slots["old", slot] = group((slot % 3, 1, "x"))
    for number in range(3):
        store.checkpoints[number, Slot(1, 39)] = ()

    a.sweep("old")

    assert [r.partition for r in a.asked if isinstance(r, fx.ListPartition)] == [1, 2, 0]
    assert store.slots_of("old") == []


def test_a_journal_whose_node_is_there_may_be_swept_while_it_writes(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()

    b.sweep("a1")
    a.commit("y")
    a.checkpoint()
    facts = a.trim()

    assert facts == [fx.Trimmed("a1", 3, failed=False)]
    assert a.store.slots_of("a1") == []
    b.acquires(0, take=True)
    assert b.bodies() == ["x", "y"]
