"""One log, several nodes, and a store whose replies the test holds in its hand."""

from __future__ import annotations

import pytest

from ringpop_py.slotlog.effects import (
    Acquired,
    Checkpointed,
    CheckpointFailed,
    Collected,
    Committed,
    Effect,
    Fenced,
    Followed,
    Found,
    GetSlot,
    Listed,
    ListLog,
    MayRead,
    NotAcquired,
    NotCommitted,
    PutMark,
    PutSlot,
    ReadFailed,
    Released,
    StoreAnswer,
    Unreadable,
)
from ringpop_py.slotlog.slotlog import Stage
from ringpop_py.slotlog.slots import ORIGIN, Claim, Data, Seal, Slot
from tests.slotlog.slotlogs import Node, Store, only

# Acquiring.


def test_an_empty_log_is_acquired_with_one_list_and_one_claim(a: Node) -> None:
    facts = a.acquire()

    assert facts == [Acquired(1)]
    assert [type(request) for request in a.asked] == [ListLog, PutSlot]
    assert a.store.slots == {Slot(1, 0): Claim("a", "nonce 0")}


def test_an_epoch_of_a_live_owner_is_not_sealed(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")

    facts = b.acquire(take=False)

    assert a.log.holder is not None
    assert facts == [NotAcquired(a.log.holder, Slot(1, 1))]
    assert b.fold.bodies == ["x"]
    assert b.log.stage is Stage.IDLE
    assert Slot(1, 2) not in a.store.slots


def test_acquiring_later_goes_on_where_it_stopped(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x", "y")
    b.acquire(take=False)
    a.commit("z")
    b.asked.clear()

    facts = b.acquire(take=True)

    assert facts == [Acquired(2)]
    assert b.fold.bodies == ["x", "y", "z"]
    assert [r.slot for r in b.asked if isinstance(r, GetSlot)] == [Slot(1, 3)]


def test_an_epoch_of_an_owner_that_may_be_replaced_is_sealed_then_listed_then_claimed(
    a: Node, b: Node
) -> None:
    a.acquire()
    a.commit("x")

    facts = b.acquire(take=True)

    assert facts == [Acquired(2)]
    assert [type(request) for request in b.asked][-3:] == [PutSlot, ListLog, PutSlot]
    assert isinstance(a.store.slots[Slot(1, 2)], Seal)
    assert b.log.next_slot == Slot(2, 1)


def test_a_claim_of_a_former_life_is_replaced_without_asking(store: Store) -> None:
    Node("a", store).acquire()

    facts = Node("a", store).acquire(take=False)

    assert facts == [Acquired(2)]


def test_a_claim_whose_reply_was_lost_is_known_for_ours(a: Node) -> None:
    claim = only(a.log.answered(only(a.log.acquire(lambda *_: False)).id, Listed([], [])))
    a.store.answer(claim)

    facts = a.run(a.log.answered(claim.id, StoreAnswer.FAILED))

    assert facts == [Acquired(1)]


def test_who_loses_the_claim_learns_who_won(a: Node, b: Node) -> None:
    claim = only(b.log.answered(only(b.log.acquire(lambda *_: False)).id, Listed([], [])))
    a.acquire()

    facts = b.run([claim])

    assert a.log.holder is not None
    assert facts == [NotAcquired(a.log.holder, Slot(1, 0))]


@pytest.mark.parametrize("bodies", [["y"], ["y", "z"]])
def test_a_seal_at_a_slot_that_was_deleted_is_not_believed(
    a: Node, b: Node, bodies: list[str]
) -> None:
    a.acquire()
    a.commit("x")
    b.run(b.log.follow())
    listing = only(b.log.acquire(lambda *_: True))
    seal = only(b.log.answered(listing.id, a.store.answer(listing)))
    a.commit(*bodies)
    a.checkpoint()

    facts = b.run([seal])

    assert isinstance(a.store.slots[Slot(1, 2)], Seal)  # the lie stays, below the checkpoint
    assert b.fold.bodies == ["x", *bodies]
    assert facts == [Acquired(2)]
    assert isinstance(a.store.slots[Slot(1, 2 + len(bodies))], Seal)


def test_a_seal_that_came_too_late_for_its_slot_is_put_behind_what_is_there(
    a: Node, b: Node
) -> None:
    a.acquire()
    listing = only(b.log.acquire(lambda *_: True))
    [read] = b.log.answered(listing.id, a.store.answer(listing))
    assert isinstance(read, GetSlot)
    seal = only(b.log.answered(read.id, a.store.answer(read)))
    a.commit("x")

    facts = b.run([seal])

    assert facts == [Acquired(2)]
    assert b.fold.bodies == ["x"]
    assert isinstance(a.store.slots[Slot(1, 2)], Seal)


def test_a_record_that_is_deleted_before_it_is_read_is_in_a_newer_checkpoint(
    a: Node, b: Node
) -> None:
    a.acquire()
    a.commit("x", "y")
    listing = only(b.log.acquire(lambda *_: True))
    reads = b.log.answered(listing.id, a.store.answer(listing))
    a.checkpoint()

    facts = b.run(reads)

    assert facts == [Acquired(2)]
    assert b.fold.bodies == ["x", "y"]


def test_a_checkpoint_that_was_replaced_while_it_was_fetched_is_looked_for_again(
    a: Node, b: Node
) -> None:
    a.acquire()
    a.commit("x")
    a.checkpoint()
    listing = only(b.log.acquire(lambda *_: True))
    fetch = only(b.log.answered(listing.id, a.store.answer(listing)))
    a.commit("y")
    a.checkpoint()

    facts = b.run([fetch])

    assert facts == [Acquired(2)]
    assert b.fold.bodies == ["x", "y"]


def test_replies_in_any_order_are_folded_in_the_order_of_the_log(a: Node, b: Node) -> None:
    a.acquire()
    a.commit(*range(5))
    listing = only(b.log.follow())
    reads = b.log.answered(listing.id, a.store.answer(listing))

    facts: list[Effect] = []
    for read in reversed(reads):
        assert isinstance(read, GetSlot)
        facts += b.log.answered(read.id, a.store.answer(read))

    assert b.fold.bodies == [0, 1, 2, 3, 4]
    assert facts == [Followed(Slot(1, 5), a.log.holder, None)]


def test_at_most_sixteen_slots_are_asked_for_at_a_time(a: Node, b: Node) -> None:
    a.acquire()
    a.commit(*range(40))
    listing = only(b.log.follow())

    reads = b.log.answered(listing.id, a.store.answer(listing))
    assert isinstance(reads[0], GetSlot)
    more = b.log.answered(reads[0].id, a.store.answer(reads[0]))

    assert len(reads) == 16
    assert len(more) == 1


def test_a_restored_checkpoint_before_the_first_slot_is_the_beginning(a: Node) -> None:
    a.store.checkpoints[ORIGIN] = ("old",)

    facts = a.acquire()

    assert facts == [Acquired(1)]
    assert a.fold.bodies == ["old"]


# The owner.


def test_a_commit_is_one_put_and_a_read_one_get(a: Node) -> None:
    a.acquire()
    a.asked.clear()

    facts = [*a.run(a.log.commit("x")), *a.run(a.log.read())]

    assert facts == [Committed(Slot(1, 1)), MayRead()]
    assert [type(request) for request in a.asked] == [PutSlot, GetSlot]


def test_an_owner_that_was_sealed_can_neither_commit_nor_read(a: Node, b: Node) -> None:
    a.acquire()
    b.acquire(take=True)

    facts = a.run(a.log.commit("x"))

    assert facts == [Fenced("b", commit_open=False)]
    assert a.log.stage is Stage.IDLE
    assert a.fold.bodies == []


def test_a_commit_that_meets_a_lie_in_its_slot_has_an_open_outcome(
    store: Store, a: Node, b: Node
) -> None:
    a.acquire()
    first = only(a.log.commit("x"))
    store.answer(first)
    again = only(a.log.answered(first.id, StoreAnswer.FAILED))
    b.acquire(take=True)
    b.checkpoint()
    assert Slot(1, 1) not in store.slots  # it was there, and is in the checkpoint
    store.slots[Slot(1, 1)] = Seal("c", "late")

    facts = a.run([again])

    assert facts == [Fenced("c", commit_open=True)]


def test_an_owner_that_was_sealed_learns_it_by_reading(a: Node, b: Node) -> None:
    a.acquire()
    b.acquire(take=True)

    assert a.run(a.log.read()) == [Fenced("b")]


def test_a_commit_with_an_open_outcome_is_repeated_unchanged(a: Node) -> None:
    a.acquire()
    first = only(a.log.commit("x"))
    a.store.answer(first)

    again = only(a.log.answered(first.id, StoreAnswer.FAILED))
    facts = a.run([again])

    assert isinstance(first, PutSlot)
    assert isinstance(again, PutSlot)
    assert (again.slot, again.record, again.attempt) == (first.slot, first.record, 1)
    assert facts == [Committed(Slot(1, 1))]
    assert a.fold.bodies == ["x"]


def test_a_commit_that_another_owner_has_folded_and_deleted_is_a_commit(a: Node, b: Node) -> None:
    a.acquire()
    first = only(a.log.commit("x"))
    a.store.answer(first)
    again = only(a.log.answered(first.id, StoreAnswer.FAILED))
    taken = only(a.log.answered(again.id, a.store.answer(again)))
    b.acquire(take=True)
    b.checkpoint()

    facts = a.run([taken])

    assert facts == [Committed(Slot(1, 1))]
    assert a.run(a.log.read()) == [Fenced("b")]


def test_a_store_without_room_refuses_a_commit_for_good(a: Node) -> None:
    a.acquire()

    facts = a.log.answered(only(a.log.commit("x")).id, StoreAnswer.NO_ROOM)
    a.commit("y")

    assert facts == [NotCommitted(Slot(1, 1))]
    assert a.fold.bodies == ["y"]


def test_no_room_says_nothing_of_an_earlier_attempt(a: Node) -> None:
    a.acquire()
    first = only(a.log.commit("x"))
    a.store.answer(first)
    again = only(a.log.answered(first.id, StoreAnswer.FAILED))

    facts = a.run(a.log.answered(again.id, StoreAnswer.NO_ROOM))

    assert facts == [Committed(Slot(1, 1))]


def test_a_read_that_the_store_does_not_answer_is_not_answered(a: Node) -> None:
    a.acquire()

    facts = a.log.answered(only(a.log.read()).id, StoreAnswer.FAILED)

    assert facts == [ReadFailed()]
    assert a.run(a.log.read()) == [MayRead()]


def test_a_read_that_meets_what_cannot_be_read_is_not_answered(a: Node) -> None:
    a.acquire()
    asked = only(a.log.read())

    assert a.log.answered(asked.id, Unreadable("damaged")) == [ReadFailed()]
    assert a.log.stage is Stage.ONLINE


def test_a_commit_that_meets_what_cannot_be_read_has_an_open_outcome(a: Node) -> None:
    a.acquire()
    put = only(a.log.commit("x"))
    met = only(a.log.answered(put.id, StoreAnswer.TAKEN))

    again = only(a.log.answered(met.id, Unreadable("damaged")))

    assert isinstance(put, PutSlot)
    assert isinstance(again, GetSlot)
    assert a.run(a.log.answered(again.id, Found(put.record))) == [Committed(put.slot)]


def test_a_read_that_meets_a_commit_that_began_after_it_is_answered(a: Node) -> None:
    a.acquire()
    read = only(a.log.read())
    a.store.answer(only(a.log.commit("x")))

    facts = a.log.answered(read.id, a.store.answer(read))

    assert facts == [MayRead()]


def test_a_read_is_answered_with_a_commit_that_ends_first_and_no_lie_can_fence_it(
    store: Store, a: Node
) -> None:
    a.acquire()
    read = only(a.log.read())

    facts = a.run(a.log.commit("x"))
    a.checkpoint()
    store.slots[Slot(1, 1)] = Seal("b", "late")

    assert facts == [Committed(Slot(1, 1)), MayRead()]
    assert a.log.answered(read.id, store.answer(read)) == []
    assert a.log.stage is Stage.ONLINE


def test_a_release_seals_for_somebody_who_then_claims_without_sealing(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    b.run(b.log.follow())

    released = a.run(a.log.release("b"))
    b.asked.clear()
    acquired = b.acquire(take=False)

    assert released == [Released("b", Slot(1, 2))]
    assert (a.log.stage, a.log.sealed_to, a.fold.bodies) == (Stage.IDLE, "b", ["x"])
    assert acquired == [Acquired(2)]
    assert [type(request) for request in b.asked] == [ListLog, GetSlot, ListLog, PutSlot]


def test_a_release_after_another_seal_is_a_fence(a: Node, b: Node) -> None:
    a.acquire()
    b.acquire(take=True)

    assert a.run(a.log.release("c")) == [Fenced("b")]


def test_a_release_whose_reply_was_lost_is_known_for_ours(a: Node) -> None:
    a.acquire()
    seal = only(a.log.release("b"))
    a.store.answer(seal)

    assert a.run(a.log.answered(seal.id, StoreAnswer.FAILED)) == [Released("b", Slot(1, 1))]


def test_who_released_can_follow_whom_it_released_to(a: Node, b: Node) -> None:
    a.acquire()
    a.run(a.log.release("b"))
    b.acquire()
    b.commit("x")

    facts = a.run(a.log.follow())

    assert facts == [Followed(Slot(2, 1), b.log.holder, None)]
    assert a.fold.bodies == ["x"]


def test_replies_to_a_former_acquisition_are_ignored(a: Node) -> None:
    listing = only(a.log.acquire(lambda *_: False))
    a.log.drop()

    assert a.log.answered(listing.id, Listed([], [])) == []
    assert a.log.stage is Stage.IDLE


# Checkpoints.


def test_a_checkpoint_deletes_the_data_and_the_checkpoints_before_it_but_no_claim_or_seal(
    a: Node, b: Node
) -> None:
    a.acquire()
    a.commit("x")
    a.checkpoint()
    a.commit("y")
    b.acquire(take=True)
    b.commit("z")

    facts = b.checkpoint()

    assert facts == [Checkpointed(Slot(2, 1)), Collected(Slot(2, 1), failed=False)]
    assert sorted(b.store.slots) == [Slot(1, 0), Slot(1, 3), Slot(2, 0)]
    assert b.store.checkpoints == {Slot(2, 1): ("x", "y", "z")}


def test_a_checkpoint_keeps_those_it_builds_on(a: Node) -> None:
    a.acquire()
    for body in "xyz":
        a.commit(body)
        a.run(a.log.checkpoint(a.log.position, [Slot(1, 1)] if body != "x" else ()))

    assert sorted(a.store.checkpoints) == [Slot(1, 1), Slot(1, 3)]


def test_a_checkpoint_builds_on_none_of_an_earlier_epoch(a: Node, b: Node) -> None:
    a.acquire()
    a.checkpoint()
    b.acquire(take=True)

    with pytest.raises(AssertionError, match="of this epoch"):
        b.log.checkpoint(b.log.position, [Slot(1, 0)])


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, StoreAnswer.TAKEN, StoreAnswer.NO_ROOM])
def test_a_checkpoint_that_is_not_known_to_be_there_deletes_nothing(
    a: Node, reply: StoreAnswer
) -> None:
    a.acquire()
    a.commit("x")

    facts = a.log.answered(only(a.log.checkpoint(a.log.position)).id, reply)

    assert facts == [CheckpointFailed(Slot(1, 1))]
    assert Slot(1, 1) in a.store.slots
    assert not a.log.checkpointing


def test_commits_go_on_beside_a_checkpoint(a: Node) -> None:
    a.acquire()
    a.commit("x")
    put = only(a.log.checkpoint(a.log.position))
    a.commit("y")

    facts = a.run([put])

    assert facts[0] == Checkpointed(Slot(1, 1))
    assert Slot(1, 2) in a.store.slots


def test_a_checkpoint_is_finished_after_its_owner_was_fenced(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    put = only(a.log.checkpoint(a.log.position))
    b.acquire(take=True)
    a.store.answer(put, ("x",))
    a.run(a.log.commit("y"))

    facts = a.run(a.log.answered(put.id, StoreAnswer.WON))

    assert facts == [Checkpointed(Slot(1, 1)), Collected(Slot(1, 1), failed=False)]
    assert sorted(a.store.slots) == [Slot(1, 0), Slot(1, 2), Slot(2, 0)]


def test_what_could_not_be_deleted_is_deleted_with_the_next_checkpoint(a: Node) -> None:
    a.acquire()
    a.commit("x")
    put = only(a.log.checkpoint(a.log.position))
    [_, mark] = a.log.answered(put.id, a.store.answer(put))
    assert isinstance(mark, PutMark)
    delete = only(a.log.answered(mark.id, a.store.answer(mark)))
    a.log.answered(delete.id, StoreAnswer.FAILED)
    a.commit("y")

    a.checkpoint()

    assert sorted(a.store.slots) == [Slot(1, 0)]


def test_what_a_crashed_owner_did_not_delete_is_deleted_by_the_next_one(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x", "y")
    a.store.checkpoints[Slot(1, 2)] = ("x", "y")
    b.acquire(take=True)

    b.checkpoint()

    assert sorted(a.store.slots) == [Slot(1, 0), Slot(1, 3), Slot(2, 0)]
    assert isinstance(a.store.slots[Slot(1, 3)], Seal)


def test_no_later_owner_takes_the_seals_and_claims_of_former_epochs_for_leftovers(
    store: Store,
) -> None:
    owners = [Node(name, store) for name in "abcd"]
    for owner in owners:
        owner.acquire(take=True)
        owner.commit("x", "y")
        if owner is not owners[2]:  # it leaves all that it wrote to the next one
            owner.checkpoint()
            owner.commit("z")

    owners[-1].checkpoint()

    claims = [Slot(epoch, 0) for epoch in range(1, 5)]
    seals = [Slot(1, 4), Slot(2, 4), Slot(3, 3)]
    assert sorted(store.slots) == sorted(claims + seals)
    assert all(isinstance(store.slots[slot], Seal) for slot in seals)


def test_an_owner_that_takes_over_what_was_released_keeps_the_seal(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    a.run(a.log.release("b"))
    b.acquire()

    b.checkpoint()

    assert a.store.slots[Slot(1, 2)] == Seal("b", "nonce 0")


def test_data_that_a_late_put_revived_is_not_folded_again(a: Node, b: Node) -> None:
    a.acquire()
    put = only(a.log.commit("x"))
    a.run([put])
    a.checkpoint()
    a.store.answer(put)

    b.acquire(take=True)

    assert b.fold.bodies == ["x"]
    assert a.store.slots[Slot(1, 1)] == Data("x", "nonce 0")
