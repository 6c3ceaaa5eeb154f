"""One journal, other nodes that seal it, and a store whose replies the test holds in its hand."""

from __future__ import annotations

import pytest

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.effects import StoreAnswer
from ringpop_py.state.journal.records import Claim, Mark, Release, Seal, Slot
from tests.state.journal.journals import Node, Store, group, only

# Commits.


def test_a_commit_in_three_partitions_is_one_put_and_each_fold_gets_its_own_part(a: Node) -> None:
    a.acquires(0, 1, 2)
    a.kinds()

    facts = a.run(a.journal, a.journal.commit({0: "x", 1: "y", 2: "z"}))

    assert facts == [fx.Committed(1)]
    assert a.kinds() == [fx.PutSlot]
    assert a.store.slots == {("a1", 1): group((0, 1, "x"), (1, 1, "y"), (2, 1, "z"))}
    assert [a.bodies(number) for number in range(3)] == [["x"], ["y"], ["z"]]


@pytest.mark.parametrize("happened", [False, True])
def test_a_commit_with_an_open_outcome_is_repeated_unchanged_until_it_is_known(
    a: Node, *, happened: bool
) -> None:
    a.acquires(0)
    first = only(a.journal.commit({0: "x"}), fx.PutSlot)
    if happened:
        a.store.answer(first)

    again = only(a.journal.answered(first.id, StoreAnswer.FAILED), fx.PutSlot)
    facts = a.run(a.journal, [again])

    assert (again.journal, again.slot, again.record) == (first.journal, first.slot, first.record)
    assert (first.attempt, again.attempt) == (0, 1)
    assert again.id != first.id
    assert facts == [fx.Committed(1)]
    assert a.bodies() == ["x"]


def test_one_commit_at_a_time_is_on_its_way(a: Node) -> None:
    a.acquires(0)
    a.journal.commit({0: "x"})

    with pytest.raises(AssertionError, match="one commit at a time"):
        a.journal.commit({0: "y"})


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, fx.Unreadable("damaged")])
def test_a_taken_slot_that_cannot_be_read_says_nothing_of_the_outcome(
    a: Node, reply: fx.Reply
) -> None:
    a.acquires(0)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)
    look = only(a.journal.answered(put.id, StoreAnswer.TAKEN), fx.GetSlot)

    again = only(a.journal.answered(look.id, reply), fx.GetSlot)

    assert (again.slot, again.attempt) == (1, 1)
    assert a.journal.answered(again.id, fx.Found(put.record)) == [fx.Committed(1)]


def test_a_store_without_room_refuses_a_group_for_good(a: Node) -> None:
    a.acquires(0)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)

    facts = a.journal.answered(put.id, StoreAnswer.NO_ROOM)
    a.commit("y")

    assert facts == [fx.NotCommitted(1)]
    assert a.bodies() == ["y"]
    assert a.store.slots == {("a1", 1): group((0, 1, "y"))}


def test_a_second_reply_to_a_request_is_ignored(a: Node) -> None:
    a.acquires(0)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)
    a.journal.answered(put.id, StoreAnswer.WON)

    assert a.journal.answered(put.id, StoreAnswer.WON) == []
    assert (a.bodies(), a.journal.next_slot) == (["x"], 2)


# Releases.


def test_a_release_goes_with_the_groups_of_others_and_the_journal_goes_on(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "y"})

    a.group({0: Release("b"), 1: "z"})
    a.commit("w", partition=1)
    facts = b.acquire(0, take=False)

    assert facts == [fx.Acquired(0, 2)]
    assert b.bodies(0) == ["x"]
    assert sorted(a.journal.held) == [1]
    assert a.bodies(1) == ["y", "z", "w"]
    assert a.bodies(0) == ["x"]  # a release is no body


# Reads.


def test_a_read_is_one_look_at_the_next_slot_and_puts_nothing(a: Node) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.asked.clear()

    facts = a.run(a.journal, a.journal.read())

    assert facts == [fx.MayRead()]
    assert [(type(r), getattr(r, "slot", 0)) for r in a.asked] == [(fx.GetSlot, 2)]
    assert not a.journal.reading


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, fx.Unreadable("damaged")])
def test_a_read_that_the_store_does_not_answer_is_not_answered(a: Node, reply: fx.Reply) -> None:
    a.acquires(0)
    look = only(a.journal.read(), fx.GetSlot)

    facts = a.journal.answered(look.id, reply)

    assert facts == [fx.ReadFailed()]
    assert 0 in a.journal.held
    assert a.run(a.journal, a.journal.read()) == [fx.MayRead()]


def test_one_read_at_a_time_is_on_its_way_and_none_begins_beside_a_commit(a: Node) -> None:
    a.acquires(0)
    look = only(a.journal.read(), fx.GetSlot)

    with pytest.raises(AssertionError, match="one question at a time"):
        a.journal.read()
    a.run(a.journal, [look])
    a.journal.commit({0: "x"})
    with pytest.raises(AssertionError, match="a commit is under way"):
        a.journal.read()


def test_a_read_is_answered_with_a_commit_that_ends_first_and_no_lie_can_fence_it(
    store: Store, a: Node
) -> None:
    a.acquires(0)
    look = only(a.journal.read(), fx.GetSlot)

    facts = a.run(a.journal, a.journal.commit({0: "x"}))
    a.checkpoint()
    a.trim()
    store.slots["a1", 1] = Seal("b")

    assert facts == [fx.Committed(1), fx.MayRead()]
    assert a.journal.answered(look.id, store.answer(look)) == []
    assert sorted(a.journal.held) == [0]


def test_a_seal_that_a_read_meets_beside_a_commit_is_left_to_the_commit(
    store: Store, a: Node
) -> None:
    """Only the commit finds out whether the seal is true."""
    a.acquires(0)
    look = only(a.journal.read(), fx.GetSlot)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)
    store.slots["a1", 1] = Seal("b")
    store.marks["a1", 2] = Mark({})

    nothing = a.journal.answered(look.id, store.answer(look))
    facts = a.run(a.journal, [put])

    assert nothing == []
    assert facts == [fx.Fenced("a1", "b", outcome_open=True, lost=(0,))]
    assert not a.journal.reading


def test_a_read_whose_answer_waited_for_a_commit_that_then_had_no_room_has_failed(
    store: Store, a: Node
) -> None:
    a.acquires(0)
    look = only(a.journal.read(), fx.GetSlot)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)
    store.slots["a1", 1] = Seal("b")
    a.journal.answered(look.id, store.answer(look))

    facts = a.journal.answered(put.id, StoreAnswer.NO_ROOM)

    assert facts == [fx.NotCommitted(1), fx.ReadFailed()]
    assert not a.journal.reading


def test_a_read_that_is_still_asking_survives_a_commit_that_had_no_room(a: Node) -> None:
    a.acquires(0)
    look = only(a.journal.read(), fx.GetSlot)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)

    facts = a.journal.answered(put.id, StoreAnswer.NO_ROOM)

    assert facts == [fx.NotCommitted(1)]
    assert a.run(a.journal, [look]) == [fx.MayRead()]


# Fences.


def test_an_owner_that_was_sealed_learns_it_by_reading_and_is_back_with_one_put_each(
    a: Node, b: Node
) -> None:
    a.acquires(0, 1, 2)
    a.group({0: "x", 1: "y"})
    b.acquires(0, take=True)
    a.kinds()

    facts = a.run(a.journal, a.journal.read())

    assert facts == [
        fx.Fenced("a1", "b", outcome_open=False, lost=()),
        fx.Reclaimed(1, 2),
        fx.Reclaimed(2, 2),
        fx.Lost(0, "b"),
    ]
    # One look at the slot, one put for each partition, and one look at who was faster.
    assert a.kinds() == [fx.GetSlot, fx.PutClaim, fx.PutClaim, fx.PutClaim, fx.GetClaim]
    assert a.store.claims[1, 2] == Claim("a", "a2", 1)
    assert a.store.claims[0, 2].owner == "b"


def test_a_group_that_meets_a_true_seal_did_not_take_effect(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "y"})
    b.acquires(1, take=True)

    facts = a.run(a.journal, a.journal.commit({0: "lost", 1: "lost"}))

    assert facts == [
        fx.Fenced("a1", "b", outcome_open=False, lost=()),
        fx.Reclaimed(0, 2),
        fx.Lost(1, "b"),
    ]
    assert a.bodies(0) == ["x"]
    assert a.journal.ends == {"a1": 2}
    assert not a.journal.committing


def test_whether_the_seal_is_true_is_asked_until_it_is_known(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    b.acquires(1, take=True)
    put = only(a.journal.commit({0: "x"}), fx.PutSlot)
    look = only(a.journal.answered(put.id, a.store.answer(put)), fx.GetSlot)
    marks = only(a.journal.answered(look.id, a.store.answer(look)), fx.ListJournal)

    again = only(a.journal.answered(marks.id, StoreAnswer.FAILED), fx.ListJournal)

    assert marks.marks_only
    assert (again.journal, again.marks_only, again.attempt) == ("a1", True, 1)
    assert isinstance(a.run(a.journal, [again])[0], fx.Fenced)


def test_a_group_that_meets_a_lie_has_an_open_outcome_and_everything_is_lost(
    store: Store, a: Node, b: Node
) -> None:
    a.acquires(0, 1)
    first = only(a.journal.commit({0: "x", 1: "y"}), fx.PutSlot)
    store.answer(first)
    again = only(a.journal.answered(first.id, StoreAnswer.FAILED), fx.PutSlot)
    b.acquires(0, 1, take=True)
    b.checkpoint(0)
    b.checkpoint(1)
    b.sweep("a1")
    assert store.slots_of("a1") == [2]  # the group was there, and is covered
    store.slots["a1", 1] = Seal("c")

    facts = a.run(a.journal, [again])

    assert facts == [fx.Fenced("a1", "c", outcome_open=True, lost=(0, 1))]
    assert (a.bodies(0), a.bodies(1)) == ([], [])
    assert a.journal.held == {}
    assert a.journal.ends == {}
    assert a.journal.name == "a2"


def test_of_two_copies_of_one_process_the_slower_one_acknowledges_nothing_and_begins_anew(
    store: Store, a: Node
) -> None:
    """As if an image of a machine had been restored while the original goes on."""
    a.acquires(0)
    a.commit("x")
    copy = Node("a", store)  # its journal has the name that a's has, too
    copy.acquires(0)
    a.commit("y")

    facts = copy.run(copy.journal, copy.journal.commit({0: "lost"}))

    assert facts == [fx.Fenced("a1", "a", outcome_open=True, lost=(0,))]
    assert (copy.bodies(), copy.journal.held, copy.journal.name) == ([], {}, "a2")
    assert a.bodies() == ["x", "y"]
    assert copy.acquire(0) == [fx.Acquired(0, 2)]
    assert copy.bodies() == ["x", "y"]


def test_a_mark_at_the_very_slot_of_the_seal_does_not_make_it_a_lie(store: Store, a: Node) -> None:
    """It covers what stands below, and our group does not."""
    a.acquires(0)
    a.commit("x")
    store.slots["a1", 2] = Seal("b")
    store.marks["a1", 2] = Mark({0: Slot(1, 1)})

    facts = a.run(a.journal, a.journal.commit({0: "y"}))

    assert facts[0] == fx.Fenced("a1", "b", outcome_open=False, lost=())


def test_a_claim_after_a_fence_that_is_refused_is_given_up(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    b.acquires(1, take=True)
    look = only(a.journal.read(), fx.GetSlot)
    [_, claim, _other] = a.journal.answered(look.id, a.store.answer(look))
    assert isinstance(claim, fx.PutClaim)

    facts = a.journal.answered(claim.id, StoreAnswer.NO_ROOM)

    assert facts == [fx.Lost(0, "")]
    assert not a.journal.reclaims(0)


def test_the_loser_of_a_claim_asks_until_it_knows_the_winner(a: Node, b: Node) -> None:
    a.acquires(0)
    b.acquires(0, take=True)
    look = only(a.journal.read(), fx.GetSlot)
    [_, claim] = a.journal.answered(look.id, a.store.answer(look))
    assert isinstance(claim, fx.PutClaim)
    met = only(a.journal.answered(claim.id, a.store.answer(claim)), fx.GetClaim)

    again = only(a.journal.answered(met.id, StoreAnswer.FAILED), fx.GetClaim)

    assert a.run(a.journal, [again]) == [fx.Lost(0, "b")]


# Checkpoints.


def test_a_checkpoint_replaces_the_older_ones_and_stands_where_the_journal_is(a: Node) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.checkpoint()
    a.group({0: "y"})
    a.group({1: "z"})
    a.kinds()

    facts = a.checkpoint()

    assert facts == [fx.Checkpointed(0, Slot(1, 3)), fx.Collected(0, failed=False)]
    assert a.kinds() == [fx.PutCheckpoint, fx.DeleteCheckpoints]
    assert a.store.checkpoints == {(0, Slot(1, 3)): ("x", "y")}


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, StoreAnswer.TAKEN, StoreAnswer.NO_ROOM])
def test_a_checkpoint_that_is_not_known_to_be_there_replaces_nothing(
    a: Node, reply: StoreAnswer
) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.commit("y")
    put = only(a.journal.checkpoint(0, a.journal.position(0)), fx.PutCheckpoint)

    facts = a.journal.answered(put.id, reply)

    assert facts == [fx.CheckpointFailed(0, Slot(1, 2))]
    assert not a.journal.checkpointing(0)
    assert a.journal.behind(0) == (0 if reply is StoreAnswer.TAKEN else 1)
    with pytest.raises(AssertionError, match="of this epoch"):
        a.checkpoint(keeps=(Slot(1, 2),))


def test_commits_go_on_beside_a_checkpoint_and_what_they_did_is_not_covered(a: Node) -> None:
    a.acquires(0)
    a.commit("x")
    put = only(a.journal.checkpoint(0, a.journal.position(0)), fx.PutCheckpoint)
    assert a.journal.checkpointing(0)
    a.commit("y", "z")

    facts = a.run(a.journal, [put])

    assert facts[0] == fx.Checkpointed(0, Slot(1, 1))
    assert a.journal.behind(0) == 2
    assert a.journal.held[0].uncovered == [2, 3]


def test_a_checkpoint_is_of_the_owners_own_epoch_and_of_what_is_known(a: Node) -> None:
    a.acquires(0)
    a.commit("x")

    with pytest.raises(AssertionError, match="of its own epoch"):
        a.journal.checkpoint(0, Slot(2, 1))
    with pytest.raises(AssertionError, match="known to be won"):
        a.journal.checkpoint(0, Slot(1, 2))


def test_checkpoints_that_could_not_be_deleted_are_deleted_with_the_next(a: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.commit("y")
    put = only(a.journal.checkpoint(0, a.journal.position(0)), fx.PutCheckpoint)
    [_, delete] = a.journal.answered(put.id, a.store.answer(put, ("x", "y")))
    assert isinstance(delete, fx.DeleteCheckpoints)

    facts = a.journal.answered(delete.id, StoreAnswer.FAILED)

    assert facts == [fx.Collected(0, failed=True)]
    a.commit("z")
    a.checkpoint()
    assert a.store.checkpoints_of(0) == [Slot(1, 3)]


def test_a_new_owner_deletes_the_checkpoints_of_former_owners(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    b.acquires(0, take=True)

    b.checkpoint()

    assert b.store.checkpoints == {(0, Slot(2, 0)): ("x",)}


# What has to be covered.


def test_how_far_back_the_oldest_uncovered_entry_is_is_counted_in_slots(a: Node) -> None:
    a.acquires(0, 1)
    assert (a.journal.behind(0), a.journal.length) == (0, 0)

    a.group({0: "x"})
    for _ in range(5):
        a.group({1: "y"})

    assert (a.journal.behind(0), a.journal.behind(1), a.journal.length) == (6, 5, 6)
    a.checkpoint(0)
    assert (a.journal.behind(0), a.journal.behind(1)) == (0, 5)


def test_a_partition_without_a_checkpoint_of_its_epoch_is_bare_unless_it_is_its_first(
    a: Node, b: Node
) -> None:
    a.acquires(0)
    first = a.journal.is_bare(0)
    a.commit("x")
    a.checkpoint()
    b.acquires(0, take=True)

    assert not first
    assert b.journal.is_bare(0)
    b.checkpoint()
    assert not b.journal.is_bare(0)


def test_records_that_a_fence_left_in_a_former_journal_make_partitions_bare(
    a: Node, b: Node
) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.checkpoint()
    a.commit("y")
    b.acquires(1, take=True)

    a.run(a.journal, a.journal.read())

    assert a.journal.is_bare(0)
    assert a.journal.behind(0) == 0  # of the new journal
    assert a.store.claims[0, 2] == Claim("a", "a2", 1, Slot(1, 1))


# Trimming.


def test_a_mark_is_put_and_known_before_the_first_slot_is_deleted(a: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "y"})
    a.group({0: "z"})
    a.checkpoint(0)
    a.checkpoint(1)
    a.kinds()

    put = only(a.journal.trim(), fx.PutMark)
    assert a.journal.trimming
    slots = a.store.slots_of("a1")
    facts = a.run(a.journal, [put])

    assert slots == [1, 2]
    assert put == fx.PutMark(put.id, "a1", 3, Mark({0: Slot(1, 2), 1: Slot(1, 2)}))
    assert a.kinds() == [fx.PutMark, fx.DeleteSlots]
    assert facts == [fx.Trimmed("a1", 3, failed=False)]
    assert (a.store.slots_of("a1"), a.store.marks_of("a1")) == ([], [3])
    assert (a.journal.length, a.journal.trimming) == (0, False)


def test_a_mark_that_is_there_already_will_do(a: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.store.marks["a1", 2] = Mark({0: Slot(1, 1)})

    assert a.trim() == [fx.Trimmed("a1", 2, failed=False)]
    assert a.store.slots_of("a1") == []


def test_where_nothing_is_covered_no_mark_is_put(a: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.kinds()

    assert a.trim() == [fx.Trimmed("a1", 0, failed=False)]
    assert a.kinds() == []


def test_a_second_trim_without_news_asks_for_nothing(a: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.trim()
    a.kinds()

    assert a.trim() == [fx.Trimmed("a1", 2, failed=False)]
    assert a.kinds() == []


def test_the_group_under_way_is_not_below_the_mark(a: Node) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.checkpoint()
    a.journal.commit({1: "y"})

    put = only(a.journal.trim(), fx.PutMark)

    assert put.slot == 2


def test_a_release_is_kept_until_a_checkpoint_of_a_later_epoch_is_listed(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x"})
    a.checkpoint(0)
    a.group({0: Release("b")})
    a.group({1: "y"})
    a.checkpoint(1)
    b.acquires(0)
    a.kinds()

    kept = a.trim()
    asked = a.kinds()
    slots = a.store.slots_of("a1")
    b.checkpoint(0)
    gone = a.trim()

    assert kept == [fx.Trimmed("a1", 2, failed=False)]
    assert asked == [fx.ListPartition, fx.PutMark, fx.DeleteSlots]
    assert slots == [2, 3]
    assert gone == [fx.Trimmed("a1", 4, failed=False)]
    assert a.store.slots_of("a1") == []
    # The mark names what its reader then has to find.
    assert a.store.marks["a1", 4] == Mark({0: Slot(2, 0), 1: Slot(1, 3)})


def test_a_list_that_fails_keeps_what_was_released(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.group({0: Release("b")})
    b.acquires(0)
    b.checkpoint()
    look = only(a.journal.trim(), fx.ListPartition)

    facts = a.journal.answered(look.id, StoreAnswer.FAILED)

    assert facts == [fx.Trimmed("a1", 0, failed=False)]
    assert a.store.slots_of("a1") == [1, 2]


def test_a_partition_that_came_back_and_was_checkpointed_covers_its_release(
    a: Node, b: Node
) -> None:
    a.acquires(0)
    a.commit("x")
    a.group({0: Release("b")})
    b.acquires(0)
    b.group({0: Release("a")})
    a.acquires(0)
    a.checkpoint()
    a.kinds()

    assert a.trim() == [fx.Trimmed("a1", 3, failed=False)]
    assert a.kinds() == [fx.PutMark, fx.DeleteSlots]


# Leaving without a release.


def test_a_partition_left_without_a_release_stays_open_and_keeps_its_slots(a: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "y"})
    a.checkpoint(1)

    a.journal.leave(0)
    facts = a.trim()
    a.acquires(0)

    assert facts == [fx.Trimmed("a1", 0, failed=False)]
    assert a.bodies(0) == ["x"]
    assert a.journal.held[0].epoch == 1  # the claim was there: nothing was put
    assert sorted(a.store.claims) == [(0, 1), (1, 1)]
