"""A partition on its way to a node: what is read, what is believed, and what is put."""

from __future__ import annotations

import pytest

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.effects import StoreAnswer
from ringpop_py.state.journal.records import ORIGIN, Claim, Mark, Release, Seal, Slot
from ringpop_py.state.journal.recovery import READS_MAX, Recovery, Stage
from tests.state.journal.journals import Node, Store, only

# The first owner.


def test_a_partition_that_nobody_ever_claimed_costs_one_list_and_one_put(a: Node) -> None:
    facts = a.acquire()

    assert facts == [fx.Acquired(0, 1)]
    assert a.kinds() == [fx.ListPartition, fx.PutClaim]
    assert a.store.claims == {(0, 1): Claim("a", "a1", 1)}
    assert a.journal.held[0].epoch == 1


def test_a_restored_checkpoint_before_the_first_epoch_is_the_beginning(a: Node) -> None:
    a.store.checkpoints[0, ORIGIN] = ("old",)

    facts = a.acquire()

    assert facts == [fx.Acquired(0, 1)]
    assert a.bodies() == ["old"]
    assert a.store.claims[0, 1].base == ORIGIN


def test_following_what_nobody_ever_claimed_says_so_and_puts_nothing(a: Node) -> None:
    facts = a.follow()

    assert facts == [fx.Followed(0, ORIGIN, 0, None)]
    assert a.kinds() == [fx.ListPartition]


# An owner that is there.


def test_an_owner_that_is_there_is_not_replaced_and_nothing_is_put(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")

    facts = b.acquire(take=False)

    assert facts == [fx.NotAcquired(0, 1, Claim("a", "a1", 1), Slot(1, 1))]
    assert b.bodies() == ["x"]
    assert b.recovery().stage is Stage.IDLE
    assert b.recovery().journal_of(1) == "a1"
    assert not {fx.PutSlot, fx.PutClaim} & set(b.kinds())


def test_slots_that_were_followed_are_not_read_again(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x", "y")
    followed = b.follow()
    b.asked.clear()
    a.group({0: Release("b")})

    facts = b.acquire(take=False)

    assert followed == [fx.Followed(0, Slot(1, 2), 1, Claim("a", "a1", 1))]
    assert facts == [fx.Acquired(0, 2)]
    assert b.bodies() == ["x", "y"]
    assert min(r.slot for r in b.asked if isinstance(r, fx.GetSlot)) == 3


def test_records_known_before_are_neither_fetched_nor_listed_a_second_time(
    a: Node, b: Node
) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.trim()
    a.commit("y")
    b.follow()
    first = b.kinds()

    b.follow()
    again = b.kinds()

    assert first.count(fx.ListPartition) == 2  # the second one after the mark was seen
    assert {fx.GetClaim, fx.GetMark, fx.GetCheckpoint} <= set(first)
    assert again == [fx.ListPartition, fx.ListJournal, fx.GetSlot]
    assert b.bodies() == ["x", "y"]


def test_may_take_is_asked_about_the_claim_and_not_about_ones_own_of_a_former_life(
    store: Store, a: Node
) -> None:
    asked: list[tuple[Claim, int]] = []

    def may_take(claim: Claim, epoch: int) -> bool:
        asked.append((claim, epoch))
        return False

    a.acquires(0, 1)
    reborn = Node("a", store, life="-reborn-")

    assert Node("b", store).acquire(0, may=may_take)[0] == fx.NotAcquired(
        0, 1, Claim("a", "a1", 1), Slot(1, 0)
    )
    assert reborn.acquire(0, may=may_take) == [fx.Acquired(0, 2)]
    assert asked == [(Claim("a", "a1", 1), 1)]
    assert store.slots["a1", 1] == Seal("a")


# Replacing an owner.


def test_an_owner_that_may_be_replaced_is_sealed_then_read_then_its_journal_is_listed(
    a: Node, b: Node
) -> None:
    a.acquires(0)
    a.commit("x")
    b.follow()
    b.asked.clear()

    facts = b.acquire(take=True)

    assert facts == [fx.Acquired(0, 2)]
    seal, look, judge, claim = b.asked[-4:]
    assert seal == fx.PutSlot(seal.id, "a1", 2, Seal("b"))
    assert (look, judge) == (fx.GetSlot(look.id, "a1", 2), fx.ListJournal(judge.id, "a1"))
    assert claim == fx.PutClaim(claim.id, 0, 2, Claim("b", "b1", 1))
    assert b.journal.ends == {"a1": 2}
    assert b.seals == [fx.Sealed(0, "a1", 2, Claim("a", "a1", 1))]


def test_one_seal_ends_all_partitions_of_its_journal_and_is_judged_once(a: Node, b: Node) -> None:
    a.acquires(0, 1, 2)
    a.group({0: "x", 1: "y", 2: "z"})

    b.acquires(0, 1, 2, take=True)

    puts = [r for r in b.asked if isinstance(r, fx.PutSlot)]
    assert [(put.journal, put.slot) for put in puts] == [("a1", 2)]
    # The first one lists what is there at the hole, and again at its seal.
    lists = [r for r in b.asked if isinstance(r, fx.ListJournal) and not r.marks_only]
    assert len(lists) == 2
    assert [b.bodies(number) for number in range(3)] == [["x"], ["y"], ["z"]]


# What counts.


def test_of_a_journal_only_the_entries_of_this_partition_and_epoch_count(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "other"})
    a.group({0: Release("b")})
    b.acquires(0)
    b.group({0: "y"})
    b.group({0: Release("a")})
    a.acquires(0)
    a.group({0: "z"})
    a.group({1: "another"})

    c = Node("c", a.store)
    c.acquires(0, 1, take=True)

    assert c.bodies(0) == ["x", "y", "z"]
    assert c.bodies(1) == ["other", "another"]


def test_a_released_partition_is_claimed_without_a_seal(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.group({0: Release("b"), 1: "y"})

    facts = b.acquire(0, take=False)

    assert facts == [fx.Acquired(0, 2)]
    assert fx.PutSlot not in b.kinds()
    a.commit("z", partition=1)  # the journal goes on
    assert a.bodies(1) == ["y", "z"]


def test_the_newest_checkpoint_spares_the_epochs_before_it(store: Store) -> None:
    owners = [Node(name, store) for name in "abc"]
    for owner in owners:
        owner.acquires(0, take=True)
        owner.commit(owner.journal.node_name)
    owners[-1].checkpoint()
    owners[-1].commit("after")

    last = Node("d", store)
    last.acquires(0, take=True)

    assert last.bodies() == ["a", "b", "c", "after"]
    assert [r.epoch for r in last.asked if isinstance(r, fx.GetClaim)] == [3]
    assert {r.journal for r in last.asked if isinstance(r, fx.GetSlot)} == {"c1"}


def test_reading_begins_at_the_mark_where_that_is_beyond_the_checkpoint(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.checkpoint(0)
    for number in range(20):
        a.commit(number, partition=1)
    a.checkpoint(1)
    a.trim()
    a.commit("y")

    b.acquires(0, take=True)

    assert b.bodies() == ["x", "y"]
    assert min(r.slot for r in b.asked if isinstance(r, fx.GetSlot)) == 22


# Reading ahead.


def test_at_most_sixteen_slots_are_read_ahead_and_more_with_each_that_was_found(
    a: Node, b: Node
) -> None:
    a.acquires(0)
    a.commit(*range(60))
    recovery = b.recovery()
    open_now: list[fx.Effect] = []
    most = 0
    effects = recovery.follow()
    while True:
        open_now += effects
        most = max(most, sum(isinstance(effect, fx.GetSlot) for effect in open_now))
        first = open_now.pop(0)
        if not isinstance(first, fx.Request):
            break
        effects = recovery.answered(first.id, b.store.answer(first))

    assert first == fx.Followed(0, Slot(1, 60), 1, Claim("a", "a1", 1))
    assert most == READS_MAX == 16
    assert b.bodies() == list(range(60))


def test_a_slot_that_cannot_be_read_does_not_matter_behind_the_end(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    a.commit("x")
    a.group({0: Release("b")})
    a.commit("z", "z", partition=1)
    a.store.unreadable["a1", 3] = a.store.unreadable["a1", 4] = "a flipped bit"

    assert b.acquire() == [fx.Acquired(0, 2)]


def test_lists_that_did_not_help_are_made_again_after_ever_longer_pauses(a: Node, b: Node) -> None:
    """Each checkpoint that is listed is replaced before it is fetched."""
    a.acquires(0)
    a.commit(0)
    a.checkpoint()
    recovery = b.recovery()
    attempts: list[int] = []
    effects = recovery.acquire(lambda *_: True)
    for number in range(1, 4):
        attempts.append(only(effects, fx.ListPartition).attempt)
        fetch, _ = b.until(recovery, effects, fx.GetCheckpoint)
        a.commit(number)
        a.checkpoint()
        effects = recovery.answered(fetch.id, b.store.answer(fetch))

    assert attempts == [0, 1, 2]
    assert b.run(recovery, effects) == [fx.Acquired(0, 2)]
    assert b.bodies() == [0, 1, 2, 3]


# Claims.


def test_a_claim_that_is_refused_is_given_up_and_the_next_try_may_win(a: Node) -> None:
    recovery = a.recovery()
    claim, _ = a.until(recovery, recovery.acquire(lambda *_: False), fx.PutClaim)

    facts = recovery.answered(claim.id, StoreAnswer.NO_ROOM)

    assert facts == [fx.ClaimRefused(0)]
    assert (recovery.stage, recovery.pursues, recovery.open_count) == (Stage.IDLE, False, 0)
    assert a.run(recovery, recovery.acquire(lambda *_: False)) == [fx.Acquired(0, 1)]


def test_a_claim_that_is_not_known_is_pursued_and_nothing_can_drop_it(a: Node) -> None:
    recovery = a.recovery()
    claim, _ = a.until(recovery, recovery.acquire(lambda *_: False), fx.PutClaim)

    again = only(recovery.answered(claim.id, StoreAnswer.FAILED), fx.PutClaim)
    again = only(recovery.answered(again.id, StoreAnswer.NO_ROOM), fx.PutClaim)

    assert recovery.stage is Stage.CLAIMING
    with pytest.raises(AssertionError, match="a claim is pursued"):
        recovery.drop()
    assert a.run(recovery, [again]) == [fx.Acquired(0, 1)]


def test_a_claim_names_the_checkpoint_on_which_the_state_was_built(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()

    b.acquires(0, take=True)

    assert b.store.claims[0, 2] == Claim("b", "b1", 1, Slot(1, 1))


def test_each_request_of_a_recovery_is_repeated_until_it_is_answered(store: Store) -> None:
    a, b = Node("a", store), Node("b", store)
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.trim()
    a.commit("y")
    recovery = b.recovery()
    queue: list[fx.Effect] = list(recovery.acquire(lambda *_: True))
    failed: set[type[fx.Effect]] = set()
    while not isinstance(request := queue.pop(0), fx.Acquired):
        if isinstance(request, fx.Sealed):
            continue
        assert isinstance(request, fx.Request)
        if type(request) not in failed:  # the first of each kind
            failed.add(type(request))
            queue += recovery.answered(request.id, StoreAnswer.FAILED)
        else:
            queue += recovery.answered(request.id, store.answer(request))

    assert request == fx.Acquired(0, 2)
    assert b.bodies() == ["x", "y"]
    assert {kind.__name__ for kind in failed} == {
        *("ListPartition", "GetClaim", "ListJournal", "GetMark", "GetCheckpoint", "GetSlot"),
        *("PutSlot", "PutClaim"),
    }


def test_replies_to_what_was_dropped_are_ignored(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    recovery = b.recovery()
    look, _ = b.until(recovery, recovery.acquire(lambda *_: True), fx.GetSlot)

    recovery.drop()

    assert recovery.answered(look.id, b.store.answer(look)) == []
    assert (recovery.stage, b.bodies(), recovery.position) == (Stage.IDLE, [], ORIGIN)
    assert b.acquire(take=True) == [fx.Acquired(0, 2)]
    assert b.bodies() == ["x"]


# One's own journal.


def test_a_claim_of_our_own_journal_that_we_do_not_hold_is_adopted_without_a_seal(a: Node) -> None:
    a.acquires(0, 1)
    a.group({0: "x", 1: "y"})
    a.journal.leave(0)
    a.commit("z", partition=1)
    a.kinds()

    facts = a.acquire(0)

    assert facts == [fx.Acquired(0, 1)]
    assert a.bodies(0) == ["x"]
    assert not {fx.PutSlot, fx.PutClaim} & set(a.kinds())
    assert a.journal.held[0].uncovered == [1]


def test_a_recovery_waits_for_what_a_former_attempt_still_has(a: Node) -> None:
    """It was given up, and its release is not known yet: two states must not be the partition."""
    a.acquires(0)
    a.commit("x")
    release = only(a.journal.commit({0: Release("")}), fx.PutSlot)
    recovery = a.recovery()
    attempts: list[int] = []
    effects = recovery.acquire(lambda *_: False)
    for _ in range(3):
        look, _ = a.until(recovery, effects, fx.ListPartition)
        attempts.append(look.attempt)
        effects = a_round(a, recovery, look)
    assert attempts == [0, 1, 2]
    assert a.journal.held[0].epoch == 1

    a.run(a.journal, [release])
    facts = a.run(recovery, effects)

    assert facts == [fx.Acquired(0, 2)]
    assert a.bodies() == ["x"]


def a_round(node: Node, recovery: Recovery, look: fx.ListPartition) -> list[fx.Effect]:
    """Answer *look* and what follows, up to the first list of the next round."""
    queue: list[fx.Effect] = [look]
    while not (isinstance(queue[0], fx.ListPartition) and queue[0].attempt > look.attempt):
        request = queue.pop(0)
        assert isinstance(request, fx.Request)
        queue += recovery.answered(request.id, node.store.answer(request))
    return queue


def test_our_own_journal_is_followed_up_to_what_is_known(a: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.journal.leave(0)

    facts = a.follow()

    assert facts == [fx.Followed(0, Slot(1, 1), 1, Claim("a", "a1", 1))]
    assert 0 not in a.journal.held


def test_a_lost_slot_of_our_own_journal_is_noticed(a: Node) -> None:
    a.acquires(0)
    a.commit("x", "y")
    a.journal.leave(0)
    del a.store.slots["a1", 1]

    assert a.acquire() == [fx.Damaged(0, fx.GoneRecord("a1", 1))]
    assert 0 not in a.journal.held


# What is lost.


@pytest.mark.parametrize("slot", [1, 2, 5, 20, 39])
def test_a_record_that_is_lost_before_others_is_named_and_helps_when_it_is_put_back(
    a: Node, b: Node, slot: int
) -> None:
    a.acquires(0)
    a.commit(*range(40))
    lost = a.store.slots.pop(("a1", slot))
    before = dict(a.store.slots)

    stopped = b.acquire(take=True)
    put = {fx.PutSlot, fx.PutClaim} & set(b.kinds())
    a.store.slots["a1", slot] = lost

    assert stopped == [fx.Damaged(0, fx.GoneRecord("a1", slot))]
    assert not put
    assert (b.recovery().stage, b.bodies()) == (Stage.IDLE, [])
    assert {key: a.store.slots[key] for key in before} == before
    assert b.acquire(take=True) == [fx.Acquired(0, 2)]
    assert b.bodies() == list(range(40))


@pytest.mark.parametrize("seals", [(3, 4), (3, 4, 5)])
def test_seals_behind_a_seal_are_of_those_who_end_a_generation(
    a: Node, b: Node, seals: tuple[int, ...]
) -> None:
    a.acquires(0)
    a.commit("x", "y")
    a.store.slots |= {("a1", slot): Seal("~fence") for slot in seals}

    assert b.acquire(take=True) == [fx.Acquired(0, 2)]
    assert b.bodies() == ["x", "y"]


@pytest.mark.parametrize("behind", [(3,), (4, 3)])
def test_a_group_behind_a_seal_says_that_another_one_is_lost(
    a: Node, b: Node, behind: tuple[int, ...]
) -> None:
    a.acquires(0)
    a.commit("w", "x", "y", "z")
    a.store.slots |= {("a1", slot): Seal("late") for slot in (2, *behind[1:])}

    assert b.acquire(take=True) == [fx.Damaged(0, fx.GoneRecord("a1", 2))]


def test_a_copying_reader_notices_a_lost_group_and_a_follower_stops_before_it(
    a: Node, b: Node, c: Node
) -> None:
    a.acquires(0)
    a.commit("x", "y", "z")
    del a.store.slots["a1", 2]

    followed = b.follow()
    copied = c.follow(miss_nothing=True)

    assert followed == [fx.Followed(0, Slot(1, 1), 1, Claim("a", "a1", 1))]
    assert copied == [fx.Damaged(0, fx.GoneRecord("a1", 2))]
    assert c.bodies() == []


def test_a_record_that_is_lost_in_a_former_epoch_is_named(a: Node, b: Node, c: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.group({0: Release("b")})
    b.acquires(0)
    b.commit("y")
    del a.store.slots["a1", 2]  # the release: only the later claim says that it was there

    assert c.acquire(take=True) == [fx.Damaged(0, fx.GoneRecord("a1", 2))]


def test_a_lost_seal_of_a_journal_whose_end_is_known_is_named(a: Node, b: Node) -> None:
    a.acquires(0, 1)
    b.acquires(0, take=True)
    del a.store.slots["a1", 1]

    assert b.journal.ends == {"a1": 1}
    assert b.acquire(1, take=True) == [fx.Damaged(1, fx.GoneRecord("a1", 1))]


def test_a_follower_that_has_folded_all_of_a_lost_checkpoint_goes_on(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x", "y")
    b.follow()
    a.checkpoint()
    a.trim()
    a.store.checkpoints.clear()

    assert b.acquire(take=True) == [fx.Acquired(0, 2)]
    assert b.bodies() == ["x", "y"]


def test_of_a_checkpoint_that_lost_a_part_that_part_is_named(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    recovery = b.recovery()
    fetch, _ = b.until(recovery, recovery.acquire(lambda *_: True), fx.GetCheckpoint)
    part = fx.GoneCheckpoint(ORIGIN)
    b.kinds()

    facts = b.run(recovery, recovery.answered(fetch.id, part))

    assert facts == [fx.Damaged(0, part)]  # nothing has replaced it
    assert fx.ListPartition in b.kinds()
    assert b.bodies() == []


def test_a_lost_claim_before_a_later_one_is_named(a: Node, b: Node, c: Node) -> None:
    a.acquires(0)
    a.commit("x")
    b.acquires(0, take=True)
    lost = a.store.claims.pop((0, 1))

    stopped = c.acquire(take=True)
    a.store.claims[0, 1] = lost

    assert stopped == [fx.Damaged(0, fx.GoneClaim(0, 1))]
    assert c.acquire(take=True) == [fx.Acquired(0, 3)]
    assert c.bodies() == ["x"]


@pytest.mark.parametrize("key", [("a1", 2), ("a1", 3), (0, 1), (0, Slot(1, 1))])
def test_an_unreadable_record_stops_everybody_until_it_can_be_read(
    a: Node, b: Node, key: tuple[object, object]
) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.trim()
    a.commit("y", "z")
    # Of the two things with the key ("a1", 2), a slot and a mark, the mark is met first.
    a.store.unreadable[key] = "a flipped bit"
    before = dict(a.store.slots), dict(a.store.claims)

    stopped = b.acquire(take=True)
    del a.store.unreadable[key]

    assert stopped == [fx.Damaged(0, fx.Unreadable("a flipped bit"))]
    assert (b.recovery().stage, b.bodies()) == (Stage.IDLE, [])
    assert (a.store.slots, a.store.claims) == before
    assert b.acquire(take=True) == [fx.Acquired(0, 2)]
    assert b.bodies() == ["x", "y", "z"]


def test_a_partition_that_came_after_a_mark_misses_no_checkpoint(a: Node, b: Node) -> None:
    a.acquires(0)
    a.commit("x")
    a.checkpoint()
    a.trim()
    a.acquires(1)
    a.commit("y", partition=1)

    assert a.store.marks["a1", 2] == Mark({0: Slot(1, 1)})
    assert b.acquire(1, take=True) == [fx.Acquired(1, 2)]
    assert b.bodies(1) == ["y"]
