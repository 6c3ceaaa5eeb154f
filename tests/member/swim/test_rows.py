"""`swim.rows`: suspicions and their confirmations, and what others say of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import RINGPOP
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import Effect, StatusChanged, SuspicionConfirmed
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import (
    Ack,
    Answered,
    Asked,
    Disconnected,
    Failed,
    JoinAck,
    MemberChange,
    PingReqAck,
)
from ringpop_py.member.swim.rows import LOST_MAX, UNHEARD_S, LostMembers
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import WALL_MS
from tests.member.swim.nodes import advance_to
from tests.member.swim.test_node import (
    US,
    A,
    B,
    C,
    D,
    ack_of,
    answer_in,
    ask,
    calls_in,
    failed_probe,
    lone,
    ping_from,
    row,
    status_of,
    told,
)

if TYPE_CHECKING:
    from ringpop_py.member.swim.node import Node

SUSPECT_A = replace(A, status=Status.SUSPECT)
SECOND_US = 1_000_000


def accused(node: Node, *accusers: str, now: int = 0, incarnation: int = WALL_MS) -> list[Effect]:
    """Return the effects of a ping in which each of *accusers* says that it suspects A."""
    suspect = replace(SUSPECT_A, incarnation=incarnation)
    changes = [
        MemberChange(member=suspect, source=accuser, source_incarnation=1) for accuser in accusers
    ]
    return node.receive(Asked(7, ping_from(C, *changes)), now)


def riding(node: Node) -> list[tuple[str, str]]:
    """Return the members that the node gossips about, each with the source of the change."""
    return [(c.member.name, c.source) for c in node._rows.dissemination.pending()]


def lasts_s(node: Node, effects: list[Effect], now: int = 0) -> float:
    """For how long from *now* on A is suspect; what happens meanwhile is added to *effects*."""
    assert status_of(node, A) is Status.SUSPECT
    at = now
    while status_of(node, A) is Status.SUSPECT:
        assert node.next_deadline is not None
        at = node.next_deadline
        effects += node.advance(at)
    return (at - now) / SECOND_US


@pytest.mark.parametrize(
    ("accusers", "seconds"),
    [("b", 30.0), ("bb", 30.0), ("bc", 17.5), ("bcd", 10.187969), ("bcde", 5.0), ("bcdef", 5.0)],
)
def test_a_suspicion_ends_the_sooner_the_more_accuse_independently(
    accusers: str, seconds: float
) -> None:
    node = lone(A, B, C, D)

    effects = accused(node, *accusers)

    assert lasts_s(node, effects) == seconds


def test_a_further_accuser_is_reported_and_rides_on() -> None:
    node = lone(A, B, C, D)
    accused(node, "b")

    effects = accused(node, "c", now=SECOND_US)

    assert SuspicionConfirmed(SUSPECT_A, "c", ("b", "c"), 16_500_000) in effects
    assert riding(node) == [(A.name, "c")]


def test_an_accuser_that_shortens_nothing_does_not_ride_on() -> None:
    node = lone(A, B, C, D)
    accused(node, "b", "c", "d", "e")

    effects = accused(node, "f")

    assert not [e for e in effects if isinstance(e, SuspicionConfirmed)]
    assert riding(node) == [(A.name, "e")]


def test_a_faulty_member_comes_with_its_accusers_and_how_long_it_had() -> None:
    node = lone(A, B, C, D)
    effects = accused(node, "b", "c")

    lasts_s(node, effects)

    (end,) = [e for e in effects if isinstance(e, StatusChanged) and e.via == "timer"]
    assert (end.accusers, end.waited_us) == (("b", "c"), 17_500_000)


def test_nobody_accuses_itself() -> None:
    node = lone(A, B, C, D)
    effects = accused(node, "b")

    effects += accused(node, A.name)

    assert not [e for e in effects if isinstance(e, SuspicionConfirmed)]


def test_a_suspect_of_a_higher_incarnation_starts_afresh() -> None:
    node = lone(A, B, C, D)
    accused(node, "b", "c", "d", "e")

    effects = accused(node, "b", now=SECOND_US, incarnation=WALL_MS + 1)

    assert lasts_s(node, effects, SECOND_US) == 30.0


def test_an_accusation_of_an_older_incarnation_confirms_nothing() -> None:
    node = lone(A, B, C, D)
    accused(node, "b", incarnation=WALL_MS + 5)

    effects = accused(node, "c")

    assert not [e for e in effects if isinstance(e, SuspicionConfirmed)]


def test_our_own_failed_probe_of_a_suspect_confirms_in_our_name() -> None:
    node = lone(A, B, C, D)
    accused(node, "b")

    effects: list[Effect] = []
    for call in failed_probe(node):
        nack = PingReqAck(A.name, ping_ok=False, failure="timeout")
        effects += node.receive(Answered(call.call_id, nack), 2)

    (confirmed,) = [e for e in effects if isinstance(e, SuspicionConfirmed)]
    assert confirmed.accusers == ("b", US.name)
    assert confirmed.probe is not None
    assert confirmed.probe.ping == "timeout"
    assert riding(node) == [(A.name, US.name)]


def test_a_list_accuses_nobody_though_it_may_start_a_suspicion() -> None:
    node = lone(A, B, C, D)
    theirs = JoinAck("test", B.name, WALL_MS, None, (SUSPECT_A,))

    node._rows.update_from_list(theirs, 0, via="full-sync")
    node._rows.update_from_list(replace(theirs, source=C.name), 0, via="join")
    effects = accused(node, "b")

    assert SuspicionConfirmed(SUSPECT_A, "b", ("b",), 30_000_000) in effects
    assert lasts_s(node, effects) == 30.0


def test_a_whole_list_in_an_answer_names_us_not_as_accuser() -> None:
    node = lone(A, B, SUSPECT_A, config=GossipConfig(delta_sync=False))
    for member in (A, B):
        node._rows.dissemination.forget(member.name)

    ack = answer_in(ask(node, ping_from(C, checksum=1)))

    assert isinstance(ack, Ack)
    sources = {change.member.name: change.source for change in ack.changes}
    assert sources == {US.name: US.name, A.name: "", B.name: US.name}


def test_a_suspicion_without_an_accuser_confirms_nothing() -> None:
    node = lone(A, B, C, D)
    accused(node, "b")

    effects = accused(node, "")

    assert not [e for e in effects if isinstance(e, SuspicionConfirmed)]


def test_a_stranger_that_is_accused_is_taken_in_as_suspect_and_timed() -> None:
    node = lone(B, C, D)

    effects = accused(node, "b")

    assert status_of(node, A) is Status.SUSPECT
    assert lasts_s(node, effects) == 30.0


def test_in_the_ringpop_dialect_accusers_do_not_count() -> None:
    node = lone(A, B, C, D, dialect=RINGPOP)

    effects = accused(node, "b", "c", "d", "e")

    assert lasts_s(node, effects) == 5.0
    assert not [e for e in effects if isinstance(e, SuspicionConfirmed)]


# Of ourselves.


def test_a_peer_that_has_not_heard_our_refutation_hears_it_again() -> None:
    node = lone(A)
    stale = row(0, WALL_MS - 1, Status.SUSPECT)

    ack = answer_in(
        ask(node, ping_from(A, MemberChange(member=stale, source="b", source_incarnation=1)))
    )

    assert isinstance(ack, Ack)
    assert [change.member for change in ack.changes] == [US]
    assert node.local == US


def test_old_rumours_make_us_talk_once_a_period_at_most() -> None:
    node = lone(A)
    ping = ping_from(
        A,
        MemberChange(member=row(0, WALL_MS - 1, Status.SUSPECT), source="b", source_incarnation=1),
    )
    said = []

    for now in (0, 1, 199_999, 200_000):
        ask(node, ping, now)
        said.append(riding(node) == [(US.name, US.name)])
        node._rows.dissemination.forget(US.name)

    assert said == [True, False, False, True]


@pytest.mark.parametrize("status", [Status.ALIVE, Status.LEAVE])
def test_a_row_that_does_not_accuse_needs_no_answer(status: Status) -> None:
    node = lone(A)

    ask(
        node,
        ping_from(
            A, MemberChange(member=row(0, WALL_MS - 1, status), source="b", source_incarnation=1)
        ),
    )

    assert riding(node) == []


def test_the_incarnation_follows_the_wall_clock_through_a_stall() -> None:
    node = lone(A)
    node.start_gossip(0)

    node.receive(Disconnected(D.address), 60 * SECOND_US)
    node.leave(61 * SECOND_US)

    assert node.local.incarnation == WALL_MS + 61_000


def test_a_refutation_without_accuser_is_no_sign_that_we_are_slow() -> None:
    node = lone(A)

    ask(node, ping_from(A, MemberChange(member=row(0, WALL_MS, Status.SUSPECT))))

    assert node.local.incarnation > WALL_MS
    assert node._core.health.score == 0


def test_a_suspect_hears_first_what_it_has_to_refute_however_often_that_has_ridden() -> None:
    node = lone(A)
    accused(node, "b")
    node._rows.dissemination.forget(A.name)
    node._rows.update(
        [MemberChange(member=B, source=B.name, source_incarnation=1)], 0, via="ping", told_by=B.name
    )

    changes = None
    while changes is None:
        (ping,) = calls_in(node.tick(0))
        if ping.to == A.address:
            changes = getattr(ping.request, "changes", ())
        node.receive(Answered(ping.call_id, ack_of(A if ping.to == A.address else B)), 0)

    assert changes == (
        MemberChange(member=SUSPECT_A, source="b"),
        MemberChange(member=B, source=B.name, source_incarnation=1),
    )


# Where the forgotten were.


def at_end(index: int, status: Status) -> Member:
    return Member(f"m{index}", *address_of(index), 1, status)


@pytest.mark.parametrize(
    ("before", "remembered"),
    [(Status.FAULTY, True), (Status.ALIVE, True), (Status.LEAVE, False)],
)
def test_a_member_that_was_given_up_is_remembered_and_one_that_left_is_not(
    before: Status, *, remembered: bool
) -> None:
    lost = LostMembers()

    lost.follow(at_end(1, before), at_end(1, Status.TOMBSTONE), 0)

    assert lost.addresses == ((address_of(1),) if remembered else ())


def test_a_member_that_is_seen_again_is_no_longer_lost() -> None:
    lost = LostMembers()
    lost.follow(at_end(1, Status.FAULTY), at_end(1, Status.TOMBSTONE), 0)

    lost.follow(None, at_end(1, Status.ALIVE), 1)

    assert lost.addresses == ()


def test_the_oldest_are_dropped_first() -> None:
    lost = LostMembers()

    for index in range(LOST_MAX + 2):
        lost.follow(at_end(index, Status.FAULTY), at_end(index, Status.TOMBSTONE), 0)

    assert len(lost) == LOST_MAX
    assert lost.addresses[0] == address_of(2)


def test_the_last_time_that_somebody_was_given_up_is_known() -> None:
    lost = LostMembers()
    assert lost.given_up_at is None

    lost.follow(at_end(1, Status.SUSPECT), at_end(1, Status.FAULTY), 7)
    lost.follow(at_end(2, Status.FAULTY), at_end(2, Status.TOMBSTONE), 9)

    assert lost.given_up_at == 7


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_two_rows_of_one_member_in_a_list_the_newer_one_counts(
    newest_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    newer = replace(A, incarnation=WALL_MS + 5)
    older = replace(A, incarnation=WALL_MS + 3, status=Status.FAULTY)
    rows = (newer, older) if newest_first else (older, newer)
    joined, synced = lone(), lone()

    joined._rows.update_from_list(JoinAck("test", C.name, 1, 1, rows), 0, via="join")
    synced._rows.merge(rows, 0, told_by=C.name)

    assert joined.members.get(A.name) == newer
    assert synced.members.get(A.name) == newer


@pytest.mark.parametrize(
    ("heard", "hours"), [(False, UNHEARD_S / 3600), (True, 24)], ids=["read of", "heard from"]
)
def test_a_member_of_which_we_have_only_read_is_not_remembered_for_long(
    *, heard: bool, hours: float
) -> None:
    node = lone(A)
    (ping,) = calls_in(node.tick(0))
    ended = Answered(ping.call_id, ack_of(A)) if heard else Failed(ping.call_id, "timeout")
    node.receive(ended, 0)
    told(node, replace(A, status=Status.FAULTY))

    advance_to(node, round((hours * 3600 - 1) * SECOND_US))
    assert status_of(node, A) is Status.FAULTY
    advance_to(node, round((hours * 3600 + 1) * SECOND_US))

    assert status_of(node, A) is Status.TOMBSTONE
