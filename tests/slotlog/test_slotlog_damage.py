"""What a log does when something that it needs was damaged or lost, and what it does before."""

from __future__ import annotations

import pytest

from ringpop_py.slotlog.effects import (
    Acquired,
    Checkpointed,
    Collected,
    Damaged,
    Delete,
    Effect,
    Fenced,
    GetCheckpoint,
    GoneCheckpoint,
    GoneRecord,
    Listed,
    ListLog,
    PutCheckpoint,
    PutMark,
    StoreAnswer,
    Unreadable,
)
from ringpop_py.slotlog.slotlog import Stage
from ringpop_py.slotlog.slots import ORIGIN, Claim, Seal, Slot
from tests.slotlog.slotlogs import Node, only

# Damage.


@pytest.mark.parametrize("slot", [Slot(1, 0), Slot(1, 1), Slot(1, 2)])
def test_a_log_with_a_record_that_cannot_be_read_is_acquired_by_nobody_until_it_can(
    a: Node, b: Node, slot: Slot
) -> None:
    a.acquire()
    a.commit("x", "y")
    a.store.unreadable[slot] = "a flipped bit"

    stopped = b.acquire(take=True)
    del a.store.unreadable[slot]
    acquired = b.acquire(take=True)

    assert stopped == [Damaged(Unreadable("a flipped bit"))]
    assert acquired == [Acquired(2)]
    assert b.fold.bodies == ["x", "y"]


def test_a_checkpoint_that_cannot_be_read_is_told_of_and_nothing_is_put(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    a.checkpoint()
    before = dict(a.store.slots)
    a.store.unreadable[Slot(1, 1)] = "a flipped bit"

    assert b.acquire(take=True) == [Damaged(Unreadable("a flipped bit"))]
    assert b.log.stage is Stage.IDLE
    assert b.fold.bodies == []
    assert a.store.slots == before


def test_a_checkpoint_that_is_lost_is_told_of_and_helps_when_it_is_put_back(
    a: Node, b: Node
) -> None:
    a.acquire()
    a.commit("x", "y")
    a.checkpoint()
    before = dict(a.store.slots)
    lost = a.store.checkpoints.pop(Slot(1, 2))

    followed = b.run(b.log.follow())
    stopped = b.acquire(take=True)
    a.store.checkpoints[Slot(1, 2)] = lost

    assert followed == stopped == [Damaged(GoneCheckpoint(Slot(1, 2)))]
    assert a.store.slots == before
    assert b.acquire(take=True) == [Acquired(2)]
    assert b.fold.bodies == ["x", "y"]


def test_a_lost_checkpoint_is_missed_though_an_older_one_is_there(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    a.checkpoint()
    a.commit("y")
    a.run(a.log.checkpoint(a.log.position, [Slot(1, 1)]))
    del a.store.checkpoints[Slot(1, 2)]

    assert b.acquire(take=True) == [Damaged(GoneCheckpoint(Slot(1, 2)))]


def test_of_a_checkpoint_that_lost_a_part_that_part_is_named(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    a.checkpoint()
    listing = only(b.log.acquire(lambda *_: True))
    [fetch] = b.log.answered(listing.id, a.store.answer(listing))
    part = GoneCheckpoint(Slot(1, 0))
    assert isinstance(fetch, GetCheckpoint)

    listing = only(b.log.answered(fetch.id, part))
    [fetch] = b.log.answered(listing.id, a.store.answer(listing))

    assert fetch == Damaged(part)


def test_a_mark_whose_checkpoint_came_while_the_list_was_made_is_no_damage(
    a: Node, b: Node
) -> None:
    a.acquire()
    a.commit("x")
    listing = only(b.log.acquire(lambda *_: True))
    checkpoints = list(a.store.checkpoints)
    a.checkpoint()
    torn = Listed(sorted(a.store.slots), checkpoints, sorted(a.store.marks))

    facts = b.run(b.log.answered(listing.id, torn))

    assert facts == [Acquired(2)]
    assert b.fold.bodies == ["x"]


def test_who_has_folded_what_a_lost_checkpoint_has_goes_on(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x", "y")
    b.run(b.log.follow())
    a.checkpoint()
    a.store.checkpoints.clear()

    assert b.acquire(take=True) == [Acquired(2)]
    assert b.fold.bodies == ["x", "y"]
    assert b.checkpoint()[0] == Checkpointed(Slot(2, 0))


@pytest.mark.parametrize("sequence", [0, 1, 3, 20, 39])
def test_a_record_that_is_lost_before_others_is_named_and_helps_when_it_is_put_back(
    a: Node, b: Node, sequence: int
) -> None:
    a.acquire()
    a.commit(*range(40))
    slot = Slot(1, sequence)
    lost = a.store.slots.pop(slot)

    stopped = b.acquire(take=True)
    a.store.slots[slot] = lost

    assert stopped == [Damaged(GoneRecord(slot))]
    assert b.acquire(take=True) == [Acquired(2)]
    assert b.fold.bodies == list(range(40))


def test_a_lost_claim_behind_a_checkpoint_is_named(a: Node, b: Node) -> None:
    a.acquire()
    a.commit("x")
    a.checkpoint()
    del a.store.slots[Slot(1, 0)]

    assert b.acquire(take=True) == [Damaged(GoneRecord(Slot(1, 0)))]


def test_what_a_list_left_out_is_read_nevertheless(a: Node, b: Node) -> None:
    """It need be of no one moment: what was put while it was made may be in it or not."""
    a.acquire()
    a.commit(*range(30))
    listing = only(b.log.follow())
    slots = [slot for slot in sorted(a.store.slots) if slot != Slot(1, 2)]

    b.run(b.log.answered(listing.id, Listed(slots, [])))

    assert b.fold.bodies == list(range(30))
    assert [type(request) for request in b.asked].count(ListLog) == 0


# Marks.


def test_before_anything_is_deleted_a_mark_is_put(a: Node) -> None:
    a.acquire()
    a.commit("x")
    a.asked.clear()

    a.checkpoint()

    assert [type(request) for request in a.asked] == [PutCheckpoint, PutMark, Delete]
    assert a.store.marks == {Slot(1, 1)}


@pytest.mark.parametrize("reply", [StoreAnswer.FAILED, StoreAnswer.NO_ROOM])
def test_without_a_mark_that_is_known_nothing_is_deleted_until_there_is_one(
    a: Node, reply: StoreAnswer
) -> None:
    a.acquire()
    a.commit("x")
    put = only(a.log.checkpoint(a.log.position))
    [_, mark] = a.log.answered(put.id, a.store.answer(put))
    assert isinstance(mark, PutMark)

    facts = a.log.answered(mark.id, reply)

    assert facts == [Collected(Slot(1, 1), failed=True)]
    assert Slot(1, 1) in a.store.slots
    a.commit("y")
    a.checkpoint()
    assert sorted(a.store.slots) == [Slot(1, 0)]


def test_a_mark_that_is_there_already_will_do(a: Node) -> None:
    a.acquire()
    a.commit("x")
    a.store.marks.add(Slot(1, 1))

    assert a.checkpoint()[-1] == Collected(Slot(1, 1), failed=False)


def test_a_mark_deletes_all_before_it_whoever_put_them(a: Node, b: Node) -> None:
    a.acquire()
    for body in "xy":
        a.commit(body)
        a.checkpoint()
    a.store.marks.add(Slot(1, 1))  # late, for the second time
    b.acquire(take=True)

    b.checkpoint()

    assert b.store.marks == {Slot(2, 0)}


@pytest.mark.parametrize("base", [ORIGIN, Slot(1, 1)])
def test_who_acquires_marks_a_checkpoint_that_has_no_mark(b: Node, base: Slot) -> None:
    """Of the first version, of a restored keyspace, or of an owner that died before it could."""
    b.store.checkpoints[base] = ("old",)
    if base != ORIGIN:
        b.store.slots[Slot(1, 0)] = Claim("a", "first")

    b.acquire(take=True)

    assert b.store.marks == {base}
    assert b.fold.bodies == ["old"]


def test_that_this_mark_fails_is_no_harm(b: Node) -> None:
    b.store.checkpoints[ORIGIN] = ("old",)
    effects: list[Effect] = b.log.acquire(lambda *_: True)
    while not isinstance(effects[0], Acquired):
        request = only(effects)
        effects = b.log.answered(request.id, b.store.answer(request))
    [_, mark] = effects
    assert isinstance(mark, PutMark)

    assert b.log.answered(mark.id, StoreAnswer.FAILED) == []
    b.commit("x")


def test_a_log_without_a_mark_whose_only_checkpoint_is_lost_looks_like_an_empty_one(
    b: Node,
) -> None:
    """So it was in the first version. Nothing in the store tells the one from the other."""
    b.store.slots[Slot(1, 0)] = Claim("a", "first")

    assert b.acquire(take=True) == [Acquired(2)]


def test_a_commit_that_meets_a_lie_has_an_open_outcome_though_the_checkpoint_is_lost(
    a: Node,
) -> None:
    a.acquire()
    put = only(a.log.commit("x"))
    a.store.slots[Slot(1, 1)] = Seal("b", "other")
    a.store.marks.add(Slot(1, 1))

    facts = a.run([put])

    assert facts == [Fenced("b", commit_open=True)]
