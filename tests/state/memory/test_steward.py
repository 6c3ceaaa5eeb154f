"""`ringpop_py.state.memory.steward`: what a node does next about partitions without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.member.swim.member import Status
from ringpop_py.state.memory.hand_over import BLANK, HandOver, HandOverReply, HandOverStep
from ringpop_py.state.memory.steward import HANDOVER_US, MemorySteward
from ringpop_py.state.placement.duties import (
    NOTHING_TO_GIVE,
    Changed,
    Drop,
    Offer,
    Remind,
    Send,
    Serve,
    Withhold,
)
from ringpop_py.state.placement.table import PartitionStatus, TableRow, to_rows
from tests.state.placement.sights import Members, assignments, served

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.state.placement.duties import Task

RETRY_US = 100_000


def steward_of(sight: Members, partitions: int = 1, *, places: int = 2) -> MemorySteward:
    return MemorySteward("k", 1, assignments(partitions), sight, handoffs_max=places)


def but_told(tasks: Iterable[Task]) -> list[Task]:
    """*tasks*, without those that only tell others."""
    return [t for t in tasks if isinstance(t, Drop | Offer | Remind | Send | Serve | Withhold)]


def giving(partitions: int = 1, *, places: int = 2) -> tuple[Members, MemorySteward, list[Task]]:
    """A steward that serves all partitions and should give them to b, and its first tasks."""
    sight = Members("a", "b")
    sight.left_out.add("b")
    steward = steward_of(sight, partitions, places=places)
    steward.advance(0)
    assert len(steward.serving) == partitions
    sight.left_out = {"a"}
    return sight, steward, but_told(steward.members_changed(0))


def waiting_for(owner: str) -> tuple[Members, MemorySteward]:
    """A steward of b that should own the only partition, which *owner* serves."""
    sight = Members("b", owner)
    sight.left_out.add(owner)
    steward = steward_of(sight)
    steward.heard([served(0, owner)], 0)
    assert but_told(steward.members_changed(0)) == []
    return sight, steward


def step(step: HandOverStep, *, number: int = 0, leaving: bool = False) -> HandOver:
    """A step of a's transfer of a partition, which it serves no longer."""
    row = TableRow(0, owner="a", epoch=1, status=PartitionStatus.MIGRATING)
    return HandOver("k", 1, number, "a", leaving, to_rows([row]), step, "t/1", *BLANK)


OFFER, PART, LAST = HandOverStep.OFFER, HandOverStep.PART, HandOverStep.LAST


def test_a_steward_waits_for_a_partition_just_given_away_and_does_not_begin_anew() -> None:
    sight, steward, (offer,) = giving()
    assert isinstance(offer, Offer)
    steward.done(offer, HandOverReply.YES, 1)
    sight.left_out = {"b"}
    steward.members_changed(2)

    tasks = but_told(steward.done(Send(0, "b"), True, 3))  # noqa: FBT003

    assert tasks == [Drop(0)]
    assert (steward.destination(0), steward.table[0].epoch) == ("b", 2)
    assert but_told(steward.advance(HANDOVER_US + 2)) == [Serve(0, 3)]


@pytest.mark.parametrize("others", [("b",), ("b", "c")])
def test_a_member_that_leaves_keeps_its_copies_though_all_others_have_refused(
    others: tuple[str, ...],
) -> None:
    sight = Members("a", *others)
    sight.left_out = set(others)
    steward = steward_of(sight)
    steward.advance(0)
    sight.left_out = set()
    offers = but_told(steward.leave(0))
    asked = []
    for round_ in range(1, 2 * len(others) + 1):
        (offer,) = offers
        assert isinstance(offer, Offer)
        asked.append(offer.to)
        tasks = steward.done(offer, HandOverReply.NOT_NOW, round_ * RETRY_US)
        assert (steward.leaving, steward.settled) == (True, False)
        assert not but_told(tasks)
        assert (steward.serving, steward.holding) == ({0}, {0})
        offers = but_told(steward.advance((round_ + 1) * RETRY_US))

    (last,) = offers
    assert isinstance(last, Offer)
    steward.done(last, HandOverReply.YES, 10 * RETRY_US)
    assert not steward.settled
    steward.done(Send(0, last.to), True, 10 * RETRY_US)  # noqa: FBT003 - a result

    assert set(asked[: len(others)]) == set(asked[len(others) :]) == set(others)
    assert steward.settled


def test_a_partition_of_nobody_is_served_at_once() -> None:
    assert but_told(steward_of(Members("a")).advance(0)) == [Serve(0, 1)]


def test_an_owner_that_is_there_is_waited_for_until_it_has_been_silent_too_long() -> None:
    _, steward = waiting_for("a")
    steward.take(step(OFFER), 2_000_000, able=True)

    early = but_told(steward.advance(HANDOVER_US + 1_999_999))
    late = but_told(steward.advance(HANDOVER_US + 2_000_000))

    assert (early, late) == ([], [Serve(0, 2)])


def test_an_owner_that_dies_is_not_waited_for() -> None:
    sight, steward = waiting_for("a")
    sight.statuses["a"] = Status.FAULTY

    assert but_told(steward.members_changed(1)) == [Serve(0, 2)]


def test_a_copy_of_the_other_side_of_a_cut_is_taken_but_does_not_make_an_owner() -> None:
    sight = Members("b", "a", "c")
    sight.left_out = {"a", "c"}
    steward = steward_of(sight)
    steward.heard([served(0, "c", 5)], 0)
    steward.members_changed(0)

    said, tasks = steward.take(step(LAST), 1, able=True)

    assert said is HandOverReply.YES
    assert but_told(tasks) == []
    assert steward.holding == {0}


@pytest.mark.parametrize("leaving", [True, False])
def test_a_copy_for_another_member_is_taken_only_from_a_giver_that_leaves(*, leaving: bool) -> None:
    sight = Members("b", "a", "c")
    sight.left_out = {"a", "b"}
    steward = steward_of(sight)
    steward.advance(0)

    said, _ = steward.take(step(OFFER, leaving=leaving), 1, able=True)

    assert said is (HandOverReply.YES if leaving else HandOverReply.NOT_NOW)


def test_a_giver_that_leaves_is_not_refused_because_its_copy_is_to_go_back_to_it() -> None:
    sight = Members("b", "a")
    sight.left_out.add("b")  # in the view of this node, b, the partition is to stay with a
    steward = steward_of(sight)
    steward.heard([served(0, "a")], 0)
    steward.members_changed(0)

    assert steward.take(step(PART, leaving=True), 0, able=True)[0] is HandOverReply.YES
    assert but_told(steward.members_changed(0)) == [Offer(0, "a")]
    said, tasks = steward.take(step(LAST, leaving=True), 0, able=True)
    assert (said, but_told(tasks)) == (HandOverReply.YES, [Serve(0, 2)])
    steward.done(Offer(0, "a"), HandOverReply.YES, 0)
    # What is being sent does not change.
    assert steward.take(step(PART, leaving=True), 0, able=True)[0] is HandOverReply.NOT_NOW


def test_nothing_is_taken_without_the_rule_or_in_a_share_that_has_failed() -> None:
    _, steward = waiting_for("a")

    unable, _ = steward.take(step(OFFER), 1, able=False)
    steward.failed("a bug", 2)
    failed, _ = steward.take(step(OFFER), 3, able=True)

    assert (unable, failed) == (HandOverReply.NOT_NOW, HandOverReply.NOT_NOW)


def test_a_partition_is_offered_withheld_sent_and_dropped() -> None:
    _, steward, offers = giving()

    sends = but_told(steward.done(Offer(0, "b"), HandOverReply.YES, 10))
    withheld = steward.table[0].status
    drops = but_told(steward.done(Send(0, "b"), True, 30))  # noqa: FBT003 - a result

    assert offers == [Offer(0, "b")]
    assert sends == [Withhold(0), Send(0, "b")]
    assert withheld is PartitionStatus.MIGRATING
    assert drops == [Drop(0)]
    assert steward.handoff_pauses_us == [20]


def test_a_copy_without_content_that_was_never_served_is_dropped_without_a_transfer() -> None:
    sight, steward = waiting_for("a")
    steward.take(step(PART), 1, able=True)
    sight.left_out = {"a", "b"}
    sight.statuses["c"] = Status.ALIVE
    (offer,) = but_told(steward.members_changed(2))

    assert but_told(steward.done(offer, NOTHING_TO_GIVE, 3)) == [Drop(0)]  # type: ignore[arg-type]


def test_a_transfer_that_fails_is_repeated_and_ends_if_the_partition_is_to_stay() -> None:
    sight, steward, _ = giving()
    steward.done(Offer(0, "b"), HandOverReply.YES, 0)
    steward.done(Send(0, "b"), False, 0)  # noqa: FBT003 - a result
    again = but_told(steward.advance(RETRY_US))
    sight.left_out = {"b"}
    steward.members_changed(RETRY_US)
    stays = steward.taker(0)

    served_again = but_told(steward.done(Offer(0, "b"), HandOverReply.YES, RETRY_US))

    assert again == [Offer(0, "b")]
    assert stays == ""
    assert served_again == [Serve(0, 2)]


def test_so_many_are_sent_at_a_time_and_takers_are_reminded_of_the_others() -> None:
    _, steward, first = giving(4, places=1)

    reminders = but_told(steward.advance(HANDOVER_US // 4))
    then = but_told(steward.done(Offer(0, "b"), HandOverReply.NOT_NOW, HANDOVER_US // 4))

    assert first == [Offer(0, "b")]
    assert reminders == [Remind(n, "b") for n in (1, 2, 3)]
    assert then == [Offer(1, "b")]


def test_a_node_that_leaves_gives_everything_to_the_others_or_nothing_if_it_is_alone() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    steward = steward_of(sight, 2)
    steward.advance(0)
    steward.leave(0)
    alone = steward.settled
    sight.left_out.clear()

    offers = but_told(steward.leave(1))
    for number in (0, 1):
        steward.done(Offer(number, "b"), HandOverReply.YES, 1)
        before = steward.settled
        steward.done(Send(number, "b"), True, 1)  # noqa: FBT003 - a result

    assert alone
    assert offers == [Offer(0, "b"), Offer(1, "b")]
    assert not before
    assert steward.settled


def test_a_share_that_has_failed_can_still_hand_over_what_was_under_way() -> None:
    _, steward, _ = giving(2, places=1)
    steward.done(Offer(0, "b"), HandOverReply.YES, 0)

    steward.failed("a bug", 0)

    assert but_told(steward.leave(0)) == [Offer(0, "b")]


def test_a_share_that_has_failed_does_not_serve_what_was_on_its_way() -> None:
    sight, steward = waiting_for("a")
    steward.failed("a bug", 1)
    sight.statuses["a"] = Status.FAULTY

    assert but_told(steward.heard([served(0, "a", 2)], 2)) == []
    assert but_told(steward.advance(2 * HANDOVER_US)) == []


def test_a_node_that_leaves_waits_no_longer_once_there_is_nobody_left() -> None:
    sight = Members("a", "b")
    sight.left_out.add("b")
    steward = steward_of(sight)
    steward.advance(0)
    sight.left_out = {"a"}
    steward.leave(0)

    sight.statuses["b"] = Status.FAULTY
    tasks = steward.members_changed(1)

    assert steward.settled
    assert Changed() in tasks  # who waits for that looks again


def test_after_a_cut_a_node_insists_on_what_it_serves_and_should_own() -> None:
    steward = steward_of(Members("a"))
    steward.advance(0)

    steward.heard([served(0, "b", 5)], 0)
    steward.members_changed(1)

    assert (steward.table[0].owner, steward.table[0].epoch) == ("a", 6)
    assert steward.serving == {0}


def test_a_dropped_keyspace_is_forgotten() -> None:
    _, steward, _ = giving(2)

    assert but_told(steward.drop(0)) == [Drop(0), Drop(1)]
    assert steward.taker(0) == ""
