"""`ringpop_py.state.placement.holdings`: where requests go, which wait, and when they look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import KeyspaceUnknown, NoOwner, NotEnoughMembers
from ringpop_py.state.memory.hand_over import HandOverReply
from ringpop_py.state.memory.steward import HANDOVER_US, MemorySteward
from ringpop_py.state.partition.record import Came
from ringpop_py.state.placement.assignment import Assignment, Assignments
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.duties import (
    Changed,
    Offer,
    Send,
    Serve,
    Withhold,
)
from ringpop_py.state.placement.table import PartitionStatus, ServedElsewhere, TableRow, from_rows
from tests.state.partition.told import Told
from tests.state.placement.sights import SECOND, Members, assignments, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.state.placement.holdings import Holdings


def durable(sight: Members, of: Assignments | None = None) -> Told:
    return Told(sight, of or assignments(), handoffs_max=2, takeovers_max=2)


def memory(sight: Members, of: Assignments | None = None) -> MemorySteward:
    return MemorySteward("k", 1, of or assignments(), sight, handoffs_max=2)


in_both_modes = pytest.mark.parametrize("steward_of", [durable, memory])


def sealed_for_another(owner: str) -> TableRow:
    return TableRow(0, owner=owner, epoch=1, status=PartitionStatus.MIGRATING)


def seen_by(name: str, *, desired: str) -> Members:
    """The members a, b and c as *name* sees them; *desired* should own the partition."""
    sight = Members(name, *{"a", "b", "c"} - {name})
    sight.left_out = {"a", "b", "c"} - {desired}
    return sight


# Which requests wait.


def test_requests_wait_for_a_claim_after_a_fence_though_another_member_should_own_it() -> None:
    sight = seen_by("a", desired="a")
    steward = durable(sight)
    steward.advance(0)
    steward.acquired()
    sight.left_out = {"a", "c"}
    steward.members_changed(0)

    steward.sealed(now=SECOND)
    waits = steward.is_coming(0)
    to = steward.destination(0)
    steward.lost(0, "b", SECOND)

    assert waits
    assert to == "a"
    assert not steward.is_coming(0), "it will not come any more"
    assert steward.destination(0) == "b"


def test_requests_wait_for_the_end_of_a_transfer_and_follow_the_copy() -> None:
    sight = seen_by("a", desired="a")
    steward = memory(sight)
    steward.advance(0)
    sight.left_out = {"a", "c"}
    steward.members_changed(0)

    steward.done(Offer(0, "b"), HandOverReply.YES, 0)
    assert steward.serving == set()
    waits = steward.is_coming(0)  # the transfer may fail: then it is served here again
    steward.done(Send(0, "b"), True, 0)  # noqa: FBT003 - a result

    assert waits
    with pytest.raises(ServedElsewhere):
        steward.is_coming(0)


@in_both_modes
def test_a_request_is_sent_on_by_the_next_owner_while_the_present_one_serves(
    steward_of: Callable[[Members], Holdings],
) -> None:
    steward = steward_of(seen_by("b", desired="b"))
    steward.heard([served(0, "a")], 0)
    steward.members_changed(0)

    with pytest.raises(ServedElsewhere) as elsewhere:
        steward.is_coming(0)

    assert steward.coming == {0}
    assert steward.destination(0) == "a"
    assert from_rows(elsewhere.value.row, 1)[0].owner == "a"


@in_both_modes
def test_an_early_request_waits_at_the_next_owner_once_the_former_serves_no_longer(
    steward_of: Callable[[Members], Holdings],
) -> None:
    at_next, elsewhere = (steward_of(seen_by(name, desired="b")) for name in ("b", "c"))
    for steward in (at_next, elsewhere):
        steward.heard([sealed_for_another("a")], 0)
        steward.members_changed(0)

    assert at_next.is_coming(0)
    assert not elsewhere.is_coming(0)
    assert [steward.destination(0) for steward in (at_next, elsewhere)] == ["b", "b"]
    assert not at_next.serving


# Who is woken.


@in_both_modes
def test_news_wake_who_waits_and_what_is_known_wakes_nobody(
    steward_of: Callable[[Members], Holdings],
) -> None:
    steward = steward_of(seen_by("c", desired="b"))

    assert Changed() in steward.members_changed(0), "another member should own it"
    assert Changed() not in steward.members_changed(0)
    assert Changed() in steward.heard([served(0, "a")], 0), "another member serves it"
    assert Changed() not in steward.heard([served(0, "a")], 0)
    assert Changed() in steward.heard([sealed_for_another("a")], 0)


@in_both_modes
def test_the_failure_of_a_share_wakes_who_waits(
    steward_of: Callable[[Members], Holdings],
) -> None:
    steward = steward_of(seen_by("b", desired="b"))
    steward.members_changed(0)

    assert Changed() in steward.failed("a bug", 0)


def test_an_owner_that_the_log_names_wakes_who_waits() -> None:
    steward = durable(seen_by("b", desired="b"))
    steward.advance(0)

    assert Changed() in steward.held_by("a", 3)
    with pytest.raises(ServedElsewhere):
        steward.is_coming(0)


def test_waiting_callers_are_woken_after_a_partition_is_served_or_withheld() -> None:
    sight = seen_by("a", desired="a")
    steward = memory(sight)
    steward.heard([served(0, "b")], 0)
    steward.members_changed(0)

    come = steward.members_changed(HANDOVER_US)
    sight.left_out = {"a", "c"}
    steward.members_changed(HANDOVER_US)
    gone = steward.done(Offer(0, "b"), HandOverReply.YES, HANDOVER_US)

    assert come.index(Serve(0, 2)) < come.index(Changed())
    assert gone.index(Withhold(0)) < gone.index(Changed())


def test_waiting_callers_are_woken_after_a_durable_partition_is_served() -> None:
    steward = durable(seen_by("a", desired="a"))
    steward.advance(0)

    come = steward.acquired()

    (served_here,) = [each for each in come if isinstance(each, Came)]
    assert come.index(served_here) < come.index(Changed())


# Why nobody serves it.


@in_both_modes
def test_a_reason_is_dropped_when_it_no_longer_holds(
    steward_of: Callable[[Members, Assignments], Holdings],
) -> None:
    sight = Members("a")
    steward = steward_of(sight, assignments(min_cluster_size=2))
    found = []
    for owners in (["a"], ["a", "b"], [], ["b"]):
        sight.statuses |= dict.fromkeys(owners, sight.statuses["a"])
        sight.left_out = sight.statuses.keys() - owners
        steward.members_changed(0)
        found.append(type(steward.waits_for))

    assert found == [NotEnoughMembers, type(None), NoOwner, type(None)]
    assert steward.destination(0)


def test_an_assignment_is_waited_for_only_until_it_is_known() -> None:
    of = Assignments(Definition(name="k", partitions=1, automatic=False))
    steward = durable(seen_by("a", desired="b"), of)
    steward.members_changed(0)
    before = str(steward.why_nobody(0))
    of.learn(Assignment(1, ("b",)))
    steward.members_changed(0)

    assert "not recorded yet" in before
    assert steward.waits_for is None
    assert "recorded" not in str(steward.why_nobody(0))
    assert steward.destination(0) == "b"


@in_both_modes
def test_of_a_dropped_keyspace_no_other_reason_is_told(
    steward_of: Callable[[Members, Assignments], Told | MemorySteward],
) -> None:
    steward = steward_of(Members("a"), assignments(min_cluster_size=2))
    steward.members_changed(0)
    before = steward.why_nobody(0)

    steward.drop(0)

    assert isinstance(before, NotEnoughMembers)
    assert isinstance(steward.why_nobody(0), KeyspaceUnknown)
