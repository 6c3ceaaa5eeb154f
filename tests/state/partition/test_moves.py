"""`ringpop_py.state.partition`: what a node does next about durable partitions."""

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
    StoreFull,
)
from ringpop_py.member.swim.member import Status
from ringpop_py.state.journal.records import Claim
from ringpop_py.state.partition.arrivals import DAMAGED_US, FAILED_US, FORGIVEN_US
from ringpop_py.state.partition.chart import Presence
from ringpop_py.state.placement.duties import ReleaseSaid, Tell
from ringpop_py.state.placement.table import PartitionStatus, ServedElsewhere, TableRow, from_rows
from tests.state.partition.told import Told, begun, told_by
from tests.state.placement.sights import SECOND, Members, served

if TYPE_CHECKING:
    from ringpop_py.base.errors import RingpopError


def serving(sight: Members, partitions: int = 1, *, places: int = 2) -> Told:
    """A machine that serves all partitions, in epoch 1."""
    machine = told_by(sight, partitions, places=places)
    begins = begun(machine.advance(0))
    while begins:
        begins = [each for begin in begins for each in begun(machine.acquired(int(begin[-1])))]
        begins = [begin for begin in begins if begin.startswith("acquire")]
    assert machine.serving == set(range(partitions))
    return machine


def coming_from(sight: Members, owner: str) -> Told:
    """A machine that should have the only partition, which *owner* serves, and reads its log."""
    machine = told_by(sight)
    machine.heard([served(0, owner)], 0)
    sight.left_out.add(owner)
    assert begun(machine.members_changed(0)) == ["follow 0"]
    return machine


def may_take(machine: Told, owner: str, epoch: int) -> bool:
    """Whether the recovery may replace *owner*."""
    return bool(machine.parts[0].recovery.may_take(Claim(owner, "", 0, None), epoch))  # type: ignore[attr-defined]


def test_a_hand_over_follows_asks_and_claims_and_its_pause_begins_with_the_question() -> None:
    machine = coming_from(Members("b", "a"), "a")

    asks = machine.followed(now=1_000)
    claims = machine.said(ReleaseSaid.RELEASED, now=3_000)
    serves = begun(machine.acquired(epoch=2, now=8_000))

    assert (asks, claims) == (["ask a for 0 in 1"], ["acquire 0"])
    assert serves == ["serve 0 in 2"]
    assert machine.handoff_pauses_us == [7_000]


@pytest.mark.parametrize(
    ("status", "given_up"), [(Status.LEAVE, True), (None, False), (Status.SUSPECT, False)]
)
def test_an_owner_that_cannot_be_reached_is_given_up_only_if_it_left(
    status: Status | None, *, given_up: bool
) -> None:
    sight = Members("b", "a")
    machine = coming_from(sight, "a")
    machine.followed(now=0)
    if status is None:
        del sight.statuses["a"]
    else:
        sight.statuses["a"] = status

    tasks = machine.said(ReleaseSaid.UNREACHABLE, now=0)

    assert tasks == (["acquire 0"] if given_up else [])


@pytest.mark.parametrize(
    ("epoch", "here", "replaced"), [(3, True, True), (4, True, False), (4, False, True)]
)
def test_an_owner_that_denies_an_epoch_keeps_those_that_it_claims_later(
    epoch: int, *, here: bool, replaced: bool
) -> None:
    sight = Members("b", "a")
    machine = told_by(sight)
    machine.heard([served(0, "a", 3)], 0)
    sight.left_out.add("a")
    machine.members_changed(0)
    machine.followed(now=0)
    assert machine.said(ReleaseSaid.NOT_MINE) == ["acquire 0"]
    if not here:
        sight.statuses["a"] = Status.FAULTY

    assert may_take(machine, "a", epoch) is replaced


@pytest.mark.parametrize("status", [Status.LEAVE, Status.ALIVE])
def test_an_owner_that_left_and_is_silent_is_replaced_unless_it_is_back(status: Status) -> None:
    sight = Members("b", "a")
    machine = coming_from(sight, "a")
    machine.followed(now=0)
    sight.statuses["a"] = Status.LEAVE
    assert machine.said(ReleaseSaid.UNREACHABLE) == ["acquire 0"]
    sight.statuses["a"] = status

    assert may_take(machine, "a", 1) is (status is Status.LEAVE)


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
    machine = coming_from(Members("b", "a"), "a")
    machine.followed(now=0)
    machine.said(ReleaseSaid.NOT_YET, now=0)

    before = begun(machine.advance(99_999))
    after = begun(machine.advance(100_000))
    machine.followed(now=100_000)
    machine.said(ReleaseSaid.NOT_YET, now=100_000)
    with_news = begun(machine.heard([served(0, "a", 2)], 100_001))

    assert (before, after, with_news) == ([], ["follow 0"], ["follow 0"])


def test_so_many_come_at_a_time_and_the_next_one_has_its_place_when_one_ends() -> None:
    sight = Members("b", "a")
    machine = told_by(sight, 5, places=2)
    machine.heard([served(n, "a") for n in range(5)], 0)
    sight.left_out.add("a")

    first = begun(machine.members_changed(0))
    then = machine.damaged()

    assert first == ["follow 0", "follow 1"]
    assert then == ["follow 2"]
    assert machine.coming == {0, 1, 2, 3, 4}


def test_a_partition_that_should_go_elsewhere_meanwhile_is_abandoned() -> None:
    sight = Members("b", "a")
    machine = coming_from(sight, "a")
    sight.left_out = {"b"}
    machine.members_changed(0)

    tasks = machine.damaged()

    assert tasks == ["abandon 0"]
    assert not machine.coming


def test_a_member_that_holds_the_log_after_all_is_learnt_of() -> None:
    sight = Members("b", "a")
    sight.left_out.add("a")
    machine = told_by(sight)
    machine.advance(0)

    machine.held_by("a", 4, now=0)

    assert machine.destination(0) == "a"
    assert begun(machine.advance(100_000)) == ["follow 0"]


def test_an_owner_that_sealed_without_a_seal_in_the_log_is_asked() -> None:
    sight = Members("b", "a")
    sight.left_out.add("a")
    machine = told_by(sight)
    machine.heard([TableRow(0, owner="a", epoch=1, status=PartitionStatus.OFFLINE)], 0)
    machine.advance(0)

    tasks = machine.held_by("a", 1, now=0)

    assert "follow 0" in begun(tasks)


@pytest.mark.parametrize(
    ("damaged", "wait_us"), [(True, DAMAGED_US), (False, FAILED_US)], ids=["damage", "a full disk"]
)
def test_trouble_is_looked_at_again_later_whatever_the_news(*, damaged: bool, wait_us: int) -> None:
    machine = coming_from(Members("b", "a"), "a")
    if damaged:
        machine.damaged()
    else:
        machine.failed_to_come()

    news = begun(machine.heard([served(0, "a", 3)], 1))
    early = begun(machine.advance(wait_us - 1))
    late = begun(machine.advance(wait_us))

    assert (news, early, late) == ([], [], ["follow 0"])


def test_an_earlier_timer_does_not_cut_a_patient_wait_short() -> None:
    machine = coming_from(Members("b", "a"), "a")
    machine.followed(now=0)
    machine.said(ReleaseSaid.NOT_YET, now=0)  # a timer for 100 ms
    assert begun(machine.heard([served(0, "a", 2)], 1)) == ["follow 0"]
    machine.failed_to_come(now=2)

    assert begun(machine.advance(100_000)) == []
    assert begun(machine.advance(FAILED_US + 1)) == []
    assert begun(machine.advance(FAILED_US + 2)) == ["follow 0"]


def test_a_claim_that_a_later_row_has_overtaken_is_given_up() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    machine = told_by(sight)
    machine.advance(0)
    machine.heard([served(0, "b", 7)], 0)

    tasks = begun(machine.acquired(epoch=6, now=0))

    assert tasks == []
    assert machine.parts[0].presence is Presence.UNWANTED
    assert machine.serving == set()


def test_an_open_claim_that_nobody_wants_ends_though_another_member_has_the_partition() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    machine = told_by(sight)
    machine.advance(0)
    part = machine.parts[0]
    part.recovery.pursues = True  # its claim is open, and the state here cannot read on
    sight.left_out = {"a"}
    machine.members_changed(0)
    machine.heard([served(0, "b")], 0)
    machine.arrivals._fail(part, 0, PartitionUnavailable("no space left"))

    tries = begun(machine.advance(FAILED_US))
    part.recovery.pursues = False  # what is found says how the claim has ended
    machine.held_by("b", 1, now=FAILED_US)

    assert tries == ["acquire 0"], "b would not release what a should not have"
    assert machine.parts == {}


def test_what_was_claimed_is_served_only_once_the_store_says_that_the_keyspace_is_there() -> None:
    machine = told_by(Members("a"))
    machine.advance(0)
    machine.claimed()
    part = machine.parts[0]

    silent = begun(machine.looked(part, 0, dropped=None))
    early = begun(machine.advance(FAILED_US - 1))
    late = begun(machine.advance(FAILED_US))
    machine.sealed(now=FAILED_US)
    again = begun(machine.claimed_again(0, FAILED_US))
    came = begun(machine.looked(part, FAILED_US, dropped=False))
    doubled = begun(machine.looked(part, FAILED_US, dropped=False))

    assert (silent, early, late, again) == ([], [], ["look at 0"], ["look at 0"])
    assert (came, doubled) == (["serve 0 in 2"], [])


def test_a_generation_that_is_over_gains_nothing_more() -> None:
    machine = told_by(Members("a"))
    machine.advance(0)
    machine.claimed()

    assert begun(machine.looked(machine.parts[0], 0, dropped=True)) == ["abandon 0"]
    assert machine.releasing == {0: ""}
    machine.released(0)
    assert begun(machine.advance(10 * SECOND)) == []


# Releasing.


def handing_over(*, places: int = 2, partitions: int = 1) -> tuple[Members, Told]:
    """A machine of a member that is left out of the ring, and should give its partitions to b."""
    sight = Members("a", "b")
    sight.left_out.add("b")
    machine = serving(sight, partitions, places=places)
    sight.left_out = {"a"}
    machine.members_changed(0)
    return sight, machine


@pytest.mark.parametrize(
    ("to", "epoch", "said"),
    [("c", 1, ReleaseSaid.NOT_YET), ("b", 0, ReleaseSaid.NOT_YET)],
    ids=["another member should own it", "it does not know our claim"],
)
def test_a_partition_is_kept_from(to: str, epoch: int, said: ReleaseSaid) -> None:
    _, machine = handing_over()

    assert machine.ask(0, epoch, to) is said


def test_so_many_are_released_at_a_time_and_a_place_is_free_when_one_was_put_off() -> None:
    _, machine = handing_over(places=1, partitions=2)

    first, too_many = machine.ask(0, 1, "b"), machine.ask(1, 1, "b")
    machine.end_release(0, StoreFull("no room"))
    machine.take(0)

    assert (first, too_many) == (None, ReleaseSaid.NOT_YET)
    assert machine.ask(1, 1, "b") is None
    assert machine.releasing == {1: "b"}
    assert 0 in machine.serving


def test_a_partition_whose_actors_are_at_work_is_not_released_yet() -> None:
    _, machine = handing_over()
    machine.releases.may_leave = lambda _number: False

    assert machine.ask(0, 1, "b") is ReleaseSaid.NOT_YET
    assert not machine.releasing


def test_a_peer_that_asks_for_an_absent_partition_is_told_whether_it_is_coming() -> None:
    sight = Members("a", "b")
    machine = told_by(sight, 2)
    machine.advance(0)
    mine, other = (machine.table[n].desired == "a" for n in (0, 1))

    said = [machine.ask(n, 1, "b") for n in (0, 1)]

    expected = {True: ReleaseSaid.NOT_YET, False: ReleaseSaid.NOT_MINE}
    assert said == [expected[mine], expected[other]]


def taken_back_after_s(machine: Told, now: int) -> float:
    """Return after how many seconds a partition that was lost *now* is acquired again."""
    lost_at, epoch = now, machine.table[0].epoch
    while "acquire 0" not in begun(machine.advance(now)):
        now = machine.next_deadline
    machine.acquired(epoch=epoch + 1, now=now)
    assert machine.serving == {0}
    return (now - lost_at) / SECOND


def test_after_each_fence_a_node_seals_nothing_for_twice_as_long_until_it_is_forgiven() -> None:
    machine = serving(Members("a"))
    now, waits = 0, []
    # The last pauses begin at the end of the wait of 30 seconds, not at the fence before it.
    for pause in (0, 0, 0, 0, 0, 0, 0, FORGIVEN_US - 1, FORGIVEN_US, 0):
        now += pause
        machine.sealed(now=now)
        machine.lost(0, "x", now)
        waits.append(taken_back_after_s(machine, now))
        now += round(waits[-1] * SECOND)

    assert waits == [1, 2, 4, 8, 16, 30, 30, 30, 1, 2]


def test_a_node_whose_disk_is_full_takes_back_what_it_gave_up_later_each_time() -> None:
    machine = serving(Members("a"))
    now, waits = 0, []
    for _ in range(7):
        tasks = machine.lost(0, "", now)
        assert tasks == ["drop 0"]
        assert machine.table[0].status is PartitionStatus.OFFLINE
        assert not begun(machine.members_changed(now)), "whatever the news"
        waits.append(taken_back_after_s(machine, now))
        now += round(waits[-1] * SECOND)

    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_during_the_wait_after_a_fence_an_owner_may_still_hand_over() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    machine = serving(sight, 2)
    machine.lost(0, "", 0)
    machine.heard([served(0, "b", 2)], 0)

    assert begun(machine.members_changed(0)) == ["follow 0"]


def test_a_partition_being_claimed_again_is_waited_for_and_given_to_nobody() -> None:
    machine = serving(Members("a"), 2)

    tasks = machine.sealed(now=SECOND)

    assert not tasks
    assert machine.serving == set()
    assert machine.is_coming(0)
    assert machine.destination(0) == "a"
    assert machine.ask(0, 1, "b") is ReleaseSaid.NOT_YET
    assert not begun(machine.members_changed(2 * SECOND)), "nor is it acquired a second time"


def test_a_partition_claimed_again_is_served_in_its_new_epoch_and_announced() -> None:
    machine = serving(Members("a"), 2)
    machine.sealed(now=SECOND)

    tasks = machine.claimed_again(1, SECOND)

    assert [task.rows for task in tasks if isinstance(task, Tell)] == [(machine.table[1],)]
    assert (machine.table[1].owner, machine.table[1].epoch) == ("a", 2)
    assert machine.serving == {1}
    assert machine.holding == {0, 1}
    assert [machine.parts[number].claimed_epoch for number in (0, 1)] == [1, 2]


def test_a_later_claim_that_came_by_gossip_wins_over_the_own_one() -> None:
    machine = serving(Members("a"), 2)
    machine.sealed(now=SECOND)

    dropped = begun(machine.heard([served(0, "b", 3)], SECOND))

    assert "drop 0" in dropped
    assert machine.holding == {1}
    assert machine.table[0].owner == "b"


def test_a_node_that_leaves_while_it_claims_again_waits_and_gives_that_away_too() -> None:
    machine = serving(Members("a"), 2)
    machine.sealed(now=SECOND)

    assert not begun(machine.leave(SECOND))
    assert not machine.settled
    machine.claimed_again(0, SECOND)
    releases = machine.releasing
    machine.lost(1, "x", SECOND)
    machine.released(0, SECOND)

    assert releases == {0: ""}
    assert machine.settled


# Ends.


def test_a_node_that_leaves_seals_what_it_has_and_what_comes_too_late() -> None:
    machine = serving(Members("a"), 2)
    machine.lost(1, "x", 0)
    assert begun(machine.advance(SECOND)) == ["acquire 1"]

    machine.leave(SECOND)
    releases = machine.releasing
    late = begun(machine.acquired(1, 3, SECOND))

    assert releases == {0: ""}
    assert late == ["serve 1 in 3"]
    assert machine.releasing == {0: "", 1: ""}
    assert not machine.settled


def test_a_share_that_has_failed_forgets_the_seals_under_way_and_can_seal_again() -> None:
    _, machine = handing_over()
    machine.ask(0, 1, "b")
    machine.desk.stop()  # the tasks of a share that has failed have ended

    machine.failed("a bug", 0)

    machine.take(0)
    assert machine.ask(0, 1, "b") is ReleaseSaid.NOT_MINE
    machine.leave(0)
    assert machine.releasing == {0: ""}


def test_requests_are_told_why_a_partition_is_not_here() -> None:
    sight = Members("a", "b")
    machine = told_by(sight)
    machine.advance(0)
    machine.heard([served(0, "b")], 0)
    with pytest.raises(ServedElsewhere) as elsewhere:
        machine.is_coming(0)
    sight.statuses["b"] = Status.FAULTY
    machine.members_changed(0)
    assert machine.is_coming(0), "a request is not sent back to an owner that is gone"
    machine.failed("a bug", 0)
    machine.heard([TableRow(0, owner="b", epoch=1, status=PartitionStatus.OFFLINE)], 0)
    with pytest.raises(PartitionUnavailable, match="a bug"):
        machine.is_coming(0)
    machine.drop(0)
    with pytest.raises(KeyspaceUnknown):
        machine.is_coming(0)

    assert from_rows(elsewhere.value.row, 1)[0].owner == "b"


def test_nothing_is_gained_before_the_join_or_with_too_few_members() -> None:
    sight = Members("a")
    machine = told_by(sight, min_cluster_size=2)
    sight.ready = False
    assert begun(machine.advance(0)) == []
    sight.ready = True
    assert begun(machine.advance(SECOND)) == []

    assert isinstance(machine.why_nobody(0), NotEnoughMembers)
    sight.statuses["b"] = Status.ALIVE
    assert isinstance(machine.why_nobody(0), PartitionUnavailable)


def test_a_request_ends_with_an_error_of_keyspaces_though_all_members_leave() -> None:
    sight = Members("a")
    machine = told_by(sight, min_cluster_size=2)
    machine.advance(SECOND)
    machine.heard([TableRow(0, owner="b", epoch=1, status=PartitionStatus.OFFLINE)], SECOND)
    sight.left_out.add("a")

    error = machine.why_nobody(0)

    assert type(error) is PartitionUnavailable
    assert "no member is in the ring" in str(error)


# A member that is silent.


def test_partitions_of_a_silent_member_are_taken_over_and_no_longer_asked_for() -> None:
    sight = Members("a", "b")
    machine = told_by(sight)
    machine.heard([served(0, "b")], 0)
    machine.members_changed(0)
    sight.statuses["b"] = Status.SUSPECT
    suspect = begun(machine.members_changed(1)), machine.destination(0)

    sight.silent.add("b")
    sight.left_out.add("b")  # as `ServersSeen` leaves it out
    acquire = begun(machine.members_changed(2))

    assert suspect == ([], "b"), "one that may answer is left alone"
    assert acquire == ["acquire 0"]
    assert may_take(machine, "b", 1)
    assert machine.destination(0) == "a"


def test_a_silent_member_that_answers_before_its_journal_is_sealed_is_left_alone() -> None:
    sight = Members("a", "b")
    machine = told_by(sight)
    machine.heard([served(0, "b")], 0)
    sight.statuses["b"] = Status.SUSPECT
    sight.silent.add("b")
    sight.left_out.add("b")
    assert begun(machine.members_changed(0)) == ["acquire 0"]

    sight.statuses["b"] = Status.ALIVE
    sight.silent.clear()
    sight.left_out.clear()

    assert not may_take(machine, "b", 1)
    assert begun(machine.held_by("b", 1, now=1)) == []
    assert begun(machine.members_changed(2)) == ["abandon 0"]
    assert machine.destination(0) == "b"


def test_a_member_that_is_silent_no_more_is_another_case_than_one_that_is_declared_gone() -> None:
    sight = Members("a", "b")
    machine = told_by(sight)

    there: list[bool] = []
    for status, silent in [
        (Status.ALIVE, True),  # it has refuted
        (Status.SUSPECT, False),
        (Status.LEAVE, False),
        (Status.SUSPECT, True),
        (Status.FAULTY, False),
    ]:
        sight.statuses["b"], sight.silent = status, {"b"} if silent else set()
        there.append(machine.is_there("b"))

    assert there == [True, True, True, False, False]
    assert not machine.is_there("nobody")
