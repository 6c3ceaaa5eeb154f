"""`ringpop_py.state.ownership.steward`: what a node does next about durable partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import (
    BodyError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    KeyspaceUnknown,
    NotEnoughMembers,
    PartitionUnavailable,
    PeerBusy,
)
from ringpop_py.member.swim.member import Status
from ringpop_py.state.ownership.steward import DAMAGED_US, FAILED_US, FORGIVEN_US, DurableSteward
from ringpop_py.state.placement.duties import (
    Abandon,
    Acquire,
    AskToRelease,
    Drop,
    Follow,
    Got,
    HeldBy,
    Over,
    ReleaseSaid,
    ReleaseTo,
    Serve,
    Taken,
    Tell,
    Trouble,
)
from ringpop_py.state.placement.table import PartitionStatus, ServedElsewhere, TableRow
from tests.state.placement.sights import SECOND, Members, assignments, served

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.base.errors import RingpopError
    from ringpop_py.state.placement.duties import Task


def steward_of(
    sight: Members, partitions: int = 1, *, places: int = 2, min_cluster_size: int = 1
) -> DurableSteward:
    recorded = assignments(partitions, min_cluster_size)
    return DurableSteward("k", 1, recorded, sight, handoffs_max=places, takeovers_max=4)


def but_told(tasks: Iterable[Task]) -> list[Task]:
    """*tasks*, without those that only tell others."""
    kinds = (AskToRelease, Acquire, Abandon, Drop, Follow, ReleaseTo, Serve)
    return [task for task in tasks if isinstance(task, kinds)]


def serving(sight: Members, partitions: int = 1, *, places: int = 2) -> DurableSteward:
    """A steward that serves all partitions, in epoch 1."""
    steward = steward_of(sight, partitions, places=places)
    for task in steward.advance(0):
        if isinstance(task, Acquire):
            steward.done(task, Taken(1), 0)
    assert steward.serving == set(range(partitions))
    return steward


def coming_from(sight: Members, owner: str) -> tuple[DurableSteward, Follow]:
    """A steward that should own the only partition, which *owner* serves."""
    steward = steward_of(sight)
    steward.heard([served(0, owner)], 0)
    sight.left_out.add(owner)
    (follow,) = but_told(steward.members_changed(0))
    assert isinstance(follow, Follow)
    return steward, follow


def test_a_hand_over_follows_asks_and_claims_and_its_pause_begins_with_the_question() -> None:
    steward, follow = coming_from(Members("b", "a"), "a")

    asks = but_told(steward.done(follow, Got(), 1_000))
    ask = AskToRelease(0, "a", 1)
    claims = but_told(steward.done(ask, ReleaseSaid.RELEASED, 3_000))
    serves = but_told(steward.done(Acquire(0), Taken(2), 8_000))

    assert (asks, claims) == ([ask], [Acquire(0)])
    assert serves == [Serve(0, 2)]
    assert steward.handoff_pauses_us == [7_000]


@pytest.mark.parametrize(
    ("status", "given_up"), [(Status.LEAVE, True), (None, False), (Status.SUSPECT, False)]
)
def test_an_owner_that_cannot_be_reached_is_given_up_only_if_it_left(
    status: Status | None, *, given_up: bool
) -> None:
    sight = Members("b", "a")
    steward, follow = coming_from(sight, "a")
    steward.done(follow, Got(), 0)
    if status is None:
        del sight.statuses["a"]
    else:
        sight.statuses["a"] = status

    tasks = but_told(steward.done(AskToRelease(0, "a", 1), ReleaseSaid.UNREACHABLE, 0))

    assert tasks == ([Acquire(0, "a", 1, silent=True)] if given_up else [])


@pytest.mark.parametrize(
    ("epoch", "here", "replaced"), [(3, True, True), (4, True, False), (4, False, True)]
)
def test_an_owner_that_denies_an_epoch_keeps_those_that_it_claims_later(
    epoch: int, *, here: bool, replaced: bool
) -> None:
    sight = Members("b", "a")
    steward = steward_of(sight)
    steward.heard([served(0, "a", 3)], 0)
    sight.left_out.add("a")
    steward.members_changed(0)
    steward.done(Follow(0), Got(), 0)
    (acquire,) = but_told(steward.done(AskToRelease(0, "a", 3), ReleaseSaid.NOT_MINE, 0))
    if not here:
        sight.statuses["a"] = Status.FAULTY

    assert isinstance(acquire, Acquire)
    assert steward.may_replace(acquire, "a", epoch) is replaced


@pytest.mark.parametrize("status", [Status.LEAVE, Status.ALIVE])
def test_an_owner_that_left_and_is_silent_is_replaced_unless_it_is_back(status: Status) -> None:
    sight = Members("b", "a")
    steward, follow = coming_from(sight, "a")
    steward.done(follow, Got(), 0)
    sight.statuses["a"] = Status.LEAVE
    ask = AskToRelease(0, "a", 1)
    (acquire,) = but_told(steward.done(ask, ReleaseSaid.UNREACHABLE, 0))
    sight.statuses["a"] = status

    assert isinstance(acquire, Acquire)
    assert steward.may_replace(acquire, "a", 1) is (status is Status.LEAVE)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectFailed("refused"), ReleaseSaid.UNREACHABLE),
        (ConnectionLost("cut"), ReleaseSaid.UNREACHABLE),
        (CallTimeout("silent"), ReleaseSaid.UNREACHABLE),
        (PeerBusy("busy"), ReleaseSaid.NOT_YET),
        (BodyError("no word"), ReleaseSaid.NOT_YET),
    ],
)
def test_an_owner_is_unreachable_if_nobody_answers(error: RingpopError, said: ReleaseSaid) -> None:
    assert ReleaseSaid.of(error) is said


def test_an_owner_that_is_not_ready_is_asked_again_soon_or_at_once_after_news() -> None:
    steward, follow = coming_from(Members("b", "a"), "a")
    steward.done(follow, Got(), 0)
    steward.done(AskToRelease(0, "a", 1), ReleaseSaid.NOT_YET, 0)

    before = but_told(steward.advance(99_999))
    after = but_told(steward.advance(100_000))
    steward.done(follow, Got(), 100_000)
    steward.done(AskToRelease(0, "a", 1), ReleaseSaid.NOT_YET, 100_000)
    with_news = but_told(steward.heard([served(0, "a", 2)], 100_001))

    assert (before, after, with_news) == ([], [Follow(0)], [Follow(0)])


def test_so_many_come_at_a_time_and_the_next_one_has_its_place_when_one_ends() -> None:
    sight = Members("b", "a")
    steward = steward_of(sight, 5, places=2)
    steward.heard([served(n, "a") for n in range(5)], 0)
    sight.left_out.add("a")

    first = but_told(steward.members_changed(0))
    then = but_told(steward.done(Follow(0), Trouble(), 0))

    assert first == [Follow(0), Follow(1)]
    assert then == [Follow(2)]
    assert steward.coming == {0, 1, 2, 3, 4}


def test_a_partition_that_should_go_elsewhere_meanwhile_is_abandoned() -> None:
    sight = Members("b", "a")
    steward, follow = coming_from(sight, "a")
    sight.left_out = {"b"}
    steward.members_changed(0)

    tasks = but_told(steward.done(follow, Trouble(), 0))

    assert tasks == [Abandon(0)]
    assert not steward.coming


def test_a_member_that_holds_the_log_after_all_is_learnt_of() -> None:
    sight = Members("b", "a")
    sight.left_out.add("a")
    steward = steward_of(sight)
    steward.advance(0)

    steward.done(Acquire(0), HeldBy("a", 4), 0)

    assert steward.destination(0) == "a"
    assert but_told(steward.advance(100_000)) == [Follow(0)]


def test_an_owner_that_sealed_without_a_seal_in_the_log_is_asked() -> None:
    sight = Members("b", "a")
    sight.left_out.add("a")
    steward = steward_of(sight)
    steward.heard([TableRow(0, owner="a", epoch=1, status=PartitionStatus.OFFLINE)], 0)
    (acquire,) = but_told(steward.advance(0))

    tasks = steward.done(acquire, HeldBy("a", 1), 0)  # type: ignore[arg-type]

    assert Follow(0) in tasks


@pytest.mark.parametrize(
    ("damaged", "wait_us"), [(True, DAMAGED_US), (False, FAILED_US)], ids=["damage", "a full disk"]
)
def test_trouble_is_looked_at_again_later_whatever_the_news(*, damaged: bool, wait_us: int) -> None:
    steward, follow = coming_from(Members("b", "a"), "a")
    steward.done(follow, Trouble(damaged=damaged), 0)

    news = but_told(steward.heard([served(0, "a", 3)], 1))
    early = but_told(steward.advance(wait_us - 1))
    late = but_told(steward.advance(wait_us))

    assert (news, early, late) == ([], [], [Follow(0)])


def test_an_earlier_timer_does_not_cut_a_patient_wait_short() -> None:
    steward, follow = coming_from(Members("b", "a"), "a")
    steward.done(follow, Got(), 0)
    steward.done(AskToRelease(0, "a", 1), ReleaseSaid.NOT_YET, 0)  # a timer for 100 ms
    assert but_told(steward.heard([served(0, "a", 2)], 1)) == [Follow(0)]
    steward.done(follow, Trouble(), 2)

    assert but_told(steward.advance(100_000)) == []
    assert but_told(steward.advance(FAILED_US + 1)) == []
    assert but_told(steward.advance(FAILED_US + 2)) == [Follow(0)]


def test_a_claim_that_a_later_row_has_overtaken_is_abandoned() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    steward = steward_of(sight)
    (acquire,) = but_told(steward.advance(0))
    steward.heard([served(0, "b", 7)], 0)

    tasks = but_told(steward.done(acquire, Taken(6), 0))  # type: ignore[arg-type]

    assert Abandon(0) in tasks
    assert steward.serving == set()


def test_a_generation_that_is_over_gains_nothing_more() -> None:
    steward = steward_of(Members("a"))
    (acquire,) = but_told(steward.advance(0))

    assert but_told(steward.done(acquire, Over(), 0)) == [Abandon(0)]  # type: ignore[arg-type]
    assert but_told(steward.advance(10 * SECOND)) == []


# Releasing.


def handing_over(*, places: int = 2, partitions: int = 1) -> tuple[Members, DurableSteward]:
    """A steward of a member that is left out of the ring, and should give its partitions to b."""
    sight = Members("a", "b")
    sight.left_out.add("b")
    steward = serving(sight, partitions, places=places)
    sight.left_out = {"a"}
    steward.members_changed(0)
    return sight, steward


@pytest.mark.parametrize(
    ("to", "epoch", "said"),
    [("c", 1, ReleaseSaid.NOT_YET), ("b", 0, ReleaseSaid.NOT_YET)],
    ids=["another member should own it", "it does not know our claim"],
)
def test_a_partition_is_kept_from(to: str, epoch: int, said: ReleaseSaid) -> None:
    _, steward = handing_over()

    assert steward.release(0, epoch, to) is said


def test_so_many_are_released_at_a_time_and_a_place_is_free_when_one_was_put_off() -> None:
    _, steward = handing_over(places=1, partitions=2)

    seal, too_many = steward.release(0, 1, "b"), steward.release(1, 1, "b")
    steward.done(ReleaseTo(0, "b"), ReleaseSaid.NOT_YET, 0)  # its actors are at work

    assert (seal, too_many) == (ReleaseTo(0, "b"), ReleaseSaid.NOT_YET)
    assert steward.release(1, 1, "b") == ReleaseTo(1, "b")
    assert 0 in steward.serving


def test_a_peer_that_asks_for_an_absent_partition_is_told_whether_it_is_coming() -> None:
    sight = Members("a", "b")
    steward = steward_of(sight, 2)
    steward.advance(0)
    mine, other = (steward.table[n].desired == "a" for n in (0, 1))

    said = [steward.release(n, 1, "b") for n in (0, 1)]

    expected = {True: ReleaseSaid.NOT_YET, False: ReleaseSaid.NOT_MINE}
    assert said == [expected[mine], expected[other]]


def taken_back_after_s(steward: DurableSteward, now: int) -> float:
    """Return after how many seconds a partition that was lost *now* is acquired again."""
    lost_at, epoch = now, steward.table[0].epoch
    while Acquire(0) not in steward.advance(now):
        now = steward.next_deadline
    steward.done(Acquire(0), Taken(epoch + 1), now)
    assert steward.serving == {0}
    return (now - lost_at) / SECOND


def test_after_each_fence_a_node_seals_nothing_for_twice_as_long_until_it_is_forgiven() -> None:
    steward = serving(Members("a"))
    now, waits = 0, []
    # The last pauses begin at the end of the wait of 30 seconds, not at the fence before it.
    for pause in (0, 0, 0, 0, 0, 0, 0, FORGIVEN_US - 1, FORGIVEN_US, 0):
        now += pause
        steward.fenced([0], now)
        steward.lost(0, "x", now)
        waits.append(taken_back_after_s(steward, now))
        now += round(waits[-1] * SECOND)

    assert waits == [1, 2, 4, 8, 16, 30, 30, 30, 1, 2]


def test_a_node_whose_disk_is_full_takes_back_what_it_gave_up_later_each_time() -> None:
    steward = serving(Members("a"))
    now, waits = 0, []
    for _ in range(7):
        tasks = steward.lost(0, "", now)
        assert but_told(tasks) == [Drop(0)]
        assert steward.table[0].status is PartitionStatus.OFFLINE
        assert not but_told(steward.members_changed(now)), "whatever the news"
        waits.append(taken_back_after_s(steward, now))
        now += round(waits[-1] * SECOND)

    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_during_the_wait_after_a_fence_an_owner_may_still_hand_over() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    steward = serving(sight, 2)
    steward.lost(0, "", 0)
    steward.heard([served(0, "b", 2)], 0)

    assert but_told(steward.members_changed(0)) == [Follow(0)]


def test_a_partition_being_claimed_again_is_waited_for_and_given_to_nobody() -> None:
    steward = serving(Members("a"), 2)

    tasks = steward.fenced([0, 1], SECOND)

    assert not but_told(tasks)
    assert steward.serving == set()
    assert steward.is_coming(0)
    assert steward.destination(0) == "a"
    assert steward.release(0, 1, "b") is ReleaseSaid.NOT_YET
    assert not but_told(steward.members_changed(2 * SECOND)), "nor is it acquired a second time"


def test_a_partition_claimed_again_is_served_in_its_new_epoch_and_announced() -> None:
    steward = serving(Members("a"), 2)
    steward.fenced([0, 1], SECOND)

    tasks = steward.claimed_again(1, 2, SECOND)

    assert [task.rows for task in tasks if isinstance(task, Tell)] == [(steward.table[1],)]
    assert (steward.table[1].owner, steward.table[1].epoch) == ("a", 2)
    assert steward.serving == {1}
    assert steward.holding == {0: 1, 1: 2}


def test_a_later_claim_that_came_by_gossip_wins_over_the_own_one() -> None:
    steward = serving(Members("a"), 2)
    steward.fenced([0, 1], SECOND)

    dropped = but_told(steward.heard([served(0, "b", 3)], SECOND))

    assert Drop(0) in dropped
    assert steward.holding == {1: 1}
    assert steward.table[0].owner == "b"


def test_a_node_that_leaves_while_it_claims_again_waits_and_gives_that_away_too() -> None:
    steward = serving(Members("a"), 2)
    steward.fenced([0, 1], SECOND)

    assert not but_told(steward.leave(SECOND))
    assert not steward.settled
    seals = but_told(steward.claimed_again(0, 2, SECOND))
    steward.lost(1, "x", SECOND)
    steward.done(ReleaseTo(0, ""), ReleaseSaid.RELEASED, SECOND)

    assert seals == [ReleaseTo(0, "")]
    assert steward.settled


# Ends.


def test_a_node_that_leaves_seals_what_it_has_and_what_comes_too_late() -> None:
    steward = serving(Members("a"), 2)
    steward.lost(1, "x", 0)
    (acquire,) = but_told(steward.advance(SECOND))

    seals = but_told(steward.leave(SECOND))
    late = but_told(steward.done(acquire, Taken(3), SECOND))  # type: ignore[arg-type]

    assert seals == [ReleaseTo(0, "")]
    assert late == [Serve(1, 3), ReleaseTo(1, "")]
    assert not steward.settled


def test_a_share_that_has_failed_forgets_the_seals_under_way_and_can_seal_again() -> None:
    _, steward = handing_over()
    steward.release(0, 1, "b")

    steward.failed("a bug", 0)

    assert steward.release(0, 1, "b") is ReleaseSaid.NOT_MINE
    assert but_told(steward.leave(0)) == [ReleaseTo(0, "")]


def test_requests_are_told_why_a_partition_is_not_here() -> None:
    sight = Members("a", "b")
    steward = steward_of(sight)
    steward.advance(0)
    steward.heard([served(0, "b")], 0)
    with pytest.raises(ServedElsewhere) as elsewhere:
        steward.is_coming(0)
    sight.statuses["b"] = Status.FAULTY
    steward.members_changed(0)
    assert steward.is_coming(0), "a request is not sent back to an owner that is gone"
    steward.failed("a bug", 0)
    steward.heard([TableRow(0, owner="b", epoch=1, status=PartitionStatus.OFFLINE)], 0)
    with pytest.raises(PartitionUnavailable, match="a bug"):
        steward.is_coming(0)
    steward.drop(0)
    with pytest.raises(KeyspaceUnknown):
        steward.is_coming(0)

    assert steward.read(elsewhere.value.row)[0].owner == "b"


def test_nothing_is_gained_before_the_join_or_with_too_few_members() -> None:
    sight = Members("a")
    steward = steward_of(sight, min_cluster_size=2)
    sight.ready = False
    assert but_told(steward.advance(0)) == []
    sight.ready = True
    assert but_told(steward.advance(SECOND)) == []

    assert isinstance(steward.why_nobody(0), NotEnoughMembers)
    sight.statuses["b"] = Status.ALIVE
    assert isinstance(steward.why_nobody(0), PartitionUnavailable)


def test_a_request_ends_with_an_error_of_keyspaces_though_all_members_leave() -> None:
    sight = Members("a")
    steward = steward_of(sight, min_cluster_size=2)
    steward.advance(SECOND)
    steward.heard([TableRow(0, owner="b", epoch=1, status=PartitionStatus.OFFLINE)], SECOND)
    sight.left_out.add("a")

    error = steward.why_nobody(0)

    assert type(error) is PartitionUnavailable
    assert "no member is in the ring" in str(error)


# A member that is silent.


def test_partitions_of_a_silent_member_are_taken_over_and_no_longer_asked_for() -> None:
    sight = Members("a", "b")
    steward = steward_of(sight)
    steward.heard([served(0, "b")], 0)
    steward.members_changed(0)
    sight.statuses["b"] = Status.SUSPECT
    suspect = but_told(steward.members_changed(1)), steward.destination(0)

    sight.silent.add("b")
    sight.left_out.add("b")  # as `ServersSeen` leaves it out
    (acquire,) = but_told(steward.members_changed(2))

    assert suspect == ([], "b"), "one that may answer is left alone"
    assert acquire == Acquire(0)
    assert steward.may_replace(Acquire(0), "b", 1)
    assert steward.destination(0) == "a"


def test_a_silent_member_that_answers_before_its_journal_is_sealed_is_left_alone() -> None:
    sight = Members("a", "b")
    steward = steward_of(sight)
    steward.heard([served(0, "b")], 0)
    sight.statuses["b"] = Status.SUSPECT
    sight.silent.add("b")
    sight.left_out.add("b")
    (acquire,) = but_told(steward.members_changed(0))
    assert isinstance(acquire, Acquire)

    sight.statuses["b"] = Status.ALIVE
    sight.silent.clear()
    sight.left_out.clear()

    assert not steward.may_replace(acquire, "b", 1)
    assert but_told(steward.done(acquire, HeldBy("b", 1), 1)) == []
    assert but_told(steward.members_changed(2)) == [Abandon(0)]
    assert steward.destination(0) == "b"


def test_a_member_that_is_silent_no_more_is_another_case_than_one_that_is_declared_gone() -> None:
    sight = Members("a", "b")
    steward = steward_of(sight)

    there: list[bool] = []
    for status, silent in [
        (Status.ALIVE, True),  # it has refuted
        (Status.SUSPECT, False),
        (Status.LEAVE, False),
        (Status.SUSPECT, True),
        (Status.FAULTY, False),
    ]:
        sight.statuses["b"], sight.silent = status, {"b"} if silent else set()
        there.append(steward.is_there("b"))

    assert there == [True, True, True, False, False]
    assert not steward.is_there("nobody")
