"""`membership.namesakes`: one of two processes of a name yields, by messages and in clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.config.settings import PRESETS
from ringpop_py.member.swim.effects import (
    AnswerPeer,
    CallPeer,
    Effect,
    Evicted,
    NameTaken,
    Ready,
)
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import (
    Ack,
    Answered,
    Asked,
    Failed,
    FailureReason,
    Join,
    JoinAck,
    MemberChange,
    NameAck,
    NameReq,
    PingReq,
    PingReqAck,
    Refusal,
    Request,
    Sync,
    packed_sums,
)
from ringpop_py.member.swim.timers import SECOND_US
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import WALL_MS
from tests.member.swim.nodes import World
from tests.member.swim.test_node import US, A, B, answer_in, ask, calls_in, lone, ping_from

if TYPE_CHECKING:
    from ringpop_py.member.swim.node import Node

LAN = PRESETS["lan"]
THERE = address_of(2)
LATER, EARLIER = WALL_MS + 1, WALL_MS - 1


def named(index: int, incarnation: int = LATER, status: Status = Status.ALIVE) -> Member:
    """A row of the name of `lone`, at the address of *index*."""
    return Member(US.name, *address_of(index), incarnation, status)


def rumour(node: Node, *rows: Member, now: int = 0) -> list[Effect]:
    """Return the effects of a third node's ping that carries *rows*, except its answer."""
    changes = tuple(MemberChange(member=row, source="b", source_incarnation=1) for row in rows)
    effects = node.receive(Asked(0, ping_from(A, *changes)), now)
    return [effect for effect in effects if not isinstance(effect, AnswerPeer)]


def inquiry_in(effects: list[Effect]) -> CallPeer:
    (call,) = [call for call in calls_in(effects) if isinstance(call.request, NameReq)]
    return call


def tenure_of(member: Member, since_ms: int, *, joined: bool = True) -> NameAck:
    return NameAck(member.name, *member.address, member.incarnation, since_ms, joined)


def taken_in(effects: list[Effect]) -> list[NameTaken]:
    return [effect for effect in effects if isinstance(effect, NameTaken)]


def asked_about(row: Member, *members: Member) -> tuple[Node, CallPeer]:
    """A node that has heard of *row*, and asks at its address."""
    node = lone(*members)
    return node, inquiry_in(rumour(node, row))


def joining(*rows: Member) -> tuple[Node, list[Effect]]:
    """A node that finds *rows* in the list of the only host, and what it does then."""
    node = lone(ready=False)
    (join,) = calls_in(node.start([A.address], 0))
    ack = JoinAck("test", A.name, 1, 1, (A, *rows))
    return node, node.receive(Answered(join.call_id, ack), 1)


def joining_with_two() -> tuple[Node, list[CallPeer]]:
    """A node that finds two rows of its name in the list, and asks at both addresses."""
    node, effects = joining(named(2), named(3))
    calls = [call for call in calls_in(effects) if isinstance(call.request, NameReq)]
    assert [call.to for call in calls] == [THERE, address_of(3)]
    return node, calls


def fail(node: Node, call: CallPeer, reason: FailureReason = "refused") -> list[Effect]:
    return node.receive(Failed(call.call_id, reason), 1)


# A node that has joined.


def test_a_rumour_alone_takes_no_name_but_makes_us_ask_there() -> None:
    node = lone(A)

    effects = rumour(node, named(2))

    request = NameReq("test", US.name, *US.address, WALL_MS, since_ms=WALL_MS, joined=True)
    (call,) = calls_in(effects)
    assert (call.to, call.request) == (THERE, request)
    assert not node.name_lost
    assert node.local == US


def test_a_namesake_is_asked_once_at_a_time() -> None:
    node, _ = asked_about(named(2), A)

    again = rumour(node, named(2, LATER + 1))

    assert calls_in(again) == []


def test_the_newest_row_that_came_while_a_namesake_was_asked_is_outbid() -> None:
    node, call = asked_about(named(2), A)
    rumour(node, named(2, LATER + 5))
    rumour(node, named(2, LATER + 3))

    node.receive(Answered(call.call_id, Refusal("wrong-cluster", "")), 1)

    assert node.local.incarnation == LATER + 6


def test_an_answer_is_weighed_against_what_we_were_when_we_asked() -> None:
    node, call = asked_about(named(2), A)
    node.note_suspension(3600 * SECOND_US, 1)

    node.receive(Answered(call.call_id, tenure_of(named(2), LATER)), 2)

    assert not node.name_lost  # the namesake has compared the same two, and yields


def test_a_namesake_that_answers_and_has_run_for_longer_has_the_name() -> None:
    node, call = asked_about(named(2), A)
    node.start_gossip(0)

    effects = node.receive(Answered(call.call_id, tenure_of(named(2), EARLIER)), 1)

    assert effects == [NameTaken(US, named(2), lost=True, since_ms=EARLIER)]
    assert node.name_lost
    assert not node.gossiping
    later = node.advance(10**9) + node.tick(10**9) + node.heal(10**9) + node.exchange("a", 10**9)
    assert calls_in(later) == []
    assert node.local == US


@pytest.mark.parametrize(
    ("since_ms", "joined"), [(LATER, True), (EARLIER, False)], ids=["started later", "joining"]
)
def test_a_namesake_that_answers_and_comes_after_us_is_outbid(
    since_ms: int, *, joined: bool
) -> None:
    node, call = asked_about(named(2), A)

    ack = tenure_of(named(2), since_ms, joined=joined)
    effects = node.receive(Answered(call.call_id, ack), 1)

    assert taken_in(effects) == [NameTaken(US, named(2), lost=False, since_ms=since_ms)]
    assert not node.name_lost
    assert node.local.incarnation == LATER + 1


@pytest.mark.parametrize(
    "response",
    [
        tenure_of(A, EARLIER),
        tenure_of(US, WALL_MS),  # by another address of our own
        Refusal("wrong-cluster", ""),
        Refusal("name-taken", ""),
        Refusal("leaving", ""),
    ],
    ids=str,
)
def test_where_nobody_goes_by_our_name_we_keep_it(response: NameAck | Refusal) -> None:
    node, call = asked_about(named(2), A)

    effects = node.receive(Answered(call.call_id, response), 1)

    assert taken_in(effects) == []
    assert not node.name_lost
    assert node.local.incarnation == LATER + 1


@pytest.mark.parametrize("reason", ["refused", "lost", "timeout", "declined", "failed"])
def test_where_nobody_answers_others_are_asked_and_then_we_keep_the_name(
    reason: FailureReason,
) -> None:
    node, call = asked_about(named(2), A, B)

    asked = calls_in(fail(node, call, reason))
    before = node.local
    for helper in asked:
        nack = PingReqAck(US.name, ping_ok=False, failure="refused")
        node.receive(Answered(helper.call_id, nack), 2)

    assert sorted(helper.to for helper in asked) == [A.address, B.address]
    assert all(
        isinstance(helper.request, PingReq)
        and (helper.request.target_address, helper.request.changes) == (THERE, ())
        for helper in asked
    )
    assert before == US
    assert not node.name_lost
    assert node.local.incarnation == LATER + 1


def test_without_anybody_else_to_ask_silence_is_enough_to_keep_the_name() -> None:
    node, call = asked_about(named(2))

    fail(node, call, "timeout")

    assert node.local.incarnation == LATER + 1


def test_a_node_that_cannot_reach_a_namesake_that_others_reach_neither_yields_nor_outbids() -> None:
    node, call = asked_about(named(2), A, B)
    helpers = calls_in(fail(node, call, "timeout"))

    effects = [
        effect
        for helper in helpers
        for effect in node.receive(
            Answered(helper.call_id, PingReqAck(US.name, ping_ok=True)), SECOND_US
        )
    ]

    assert effects == [NameTaken(US, named(2), lost=False)]
    assert node.local == US


def asked_again() -> tuple[Node, CallPeer, CallPeer]:
    """A node that asks a second time, and a helper whose answer to the first time is open."""
    node, call = asked_about(named(2), A, B)
    quick, slow = calls_in(fail(node, call))
    node.receive(Answered(quick.call_id, PingReqAck(US.name, ping_ok=True)), 2)
    return node, slow, inquiry_in(rumour(node, named(2, LATER + 1), now=3))


def test_a_helpers_answer_to_an_earlier_question_does_not_end_the_next() -> None:
    node, slow, call = asked_again()

    effects = node.receive(Answered(slow.call_id, PingReqAck(US.name, ping_ok=True)), 4)

    assert effects == []
    row = named(2, LATER + 1)
    effects = node.receive(Answered(call.call_id, tenure_of(row, EARLIER)), 5)
    assert effects == [NameTaken(US, row, lost=True, since_ms=EARLIER)]


@pytest.mark.parametrize("late", ["answer", "failure"])
def test_a_helpers_answer_to_an_earlier_question_does_not_answer_the_next(late: str) -> None:
    node, slow, call = asked_again()
    helpers = calls_in(node.receive(Failed(call.call_id, "timeout"), 4))
    nack = PingReqAck(US.name, ping_ok=False, failure="refused")

    if late == "answer":
        node.receive(Answered(slow.call_id, nack), 5)
    else:
        node.receive(Failed(slow.call_id, "timeout"), 5)
    node.receive(Answered(helpers[0].call_id, nack), 6)

    assert len(helpers) == 2
    assert node.local == US  # the other helper may still reach it
    node.receive(Answered(helpers[1].call_id, nack), 7)
    assert node.local.incarnation == LATER + 2


def test_a_node_that_has_lost_its_name_refuses_every_request() -> None:
    node, call = asked_about(named(2))
    node.receive(Answered(call.call_id, tenure_of(named(2), EARLIER)), 1)
    requests: list[Request] = [
        ping_from(A),
        Join("test", 100, A.name, *A.address, 1, 1000),
        NameReq("test", US.name, *address_of(3), 1, 1, joined=True),
    ]

    refusals = [answer_in(ask(node, request)) for request in requests]

    assert [r.kind for r in refusals if isinstance(r, Refusal)] == ["name-taken"] * 3


def test_a_node_that_has_lost_its_name_says_no_farewell_under_it() -> None:
    node, call = asked_about(named(2), A)
    node.receive(Answered(call.call_id, tenure_of(named(2), EARLIER)), 1)

    assert node.evict_self(1) == [Evicted()]
    assert node.local.status is Status.ALIVE


def test_a_peer_that_repeats_an_older_row_of_our_name_hears_ours_again() -> None:
    node = lone(A)

    effects = rumour(node, named(2, EARLIER))

    assert effects == []
    assert [change.member for change in node._rows.dissemination.pending()] == [node.local]


def test_a_namesake_that_pings_with_an_older_row_is_answered_with_ours_and_told_of_once() -> None:
    node = lone(A)
    theirs = named(2, EARLIER)

    effects = ask(node, ping_from(theirs)) + ask(node, ping_from(theirs))

    acks = [effect.response for effect in effects if hasattr(effect, "response")]
    assert all(isinstance(ack, Ack) and US in [c.member for c in ack.changes] for ack in acks)
    assert taken_in(effects) == [NameTaken(US, theirs, lost=False)]


def test_a_namesake_that_pings_with_a_newer_row_is_asked() -> None:
    node = lone(A)

    call = inquiry_in(ask(node, ping_from(named(2))))

    assert call.to == THERE
    assert not node.name_lost


def test_a_third_node_tells_who_pings_under_a_name_that_is_taken() -> None:
    taken = Member("n", *A.address, 9)
    node = lone(taken)

    ack = answer_in(ask(node, ping_from(Member("n", *THERE, 8))))

    assert isinstance(ack, Ack)
    assert taken in [change.member for change in ack.changes]


@pytest.mark.parametrize(("since_ms", "asks_back"), [(EARLIER, True), (LATER, False)])
def test_a_node_says_who_it_is_when_asked_and_asks_back_a_namesake_that_comes_before_it(
    since_ms: int, *, asks_back: bool
) -> None:
    node = lone(A)
    request = NameReq("test", US.name, *THERE, LATER, since_ms, joined=True)

    effects = ask(node, request)

    assert answer_in(effects) == tenure_of(US, WALL_MS)
    assert [call.to for call in calls_in(effects)] == ([THERE] if asks_back else [])
    assert bool(taken_in(effects)) is not asks_back
    assert not node.name_lost


def test_a_node_that_is_about_to_end_holds_its_name_against_nobody() -> None:
    node = lone(A)
    node.evict_self(0)

    answer = answer_in(ask(node, NameReq("test", US.name, *THERE, LATER, LATER, joined=False)))

    assert isinstance(answer, Refusal)
    assert answer.kind == "leaving"


def test_a_claim_that_no_clock_can_have_made_is_not_looked_into() -> None:
    node = lone(A)
    row = named(2, 1 << 60)

    effects = rumour(node, row) + ask(node, ping_from(row))
    effects += ask(node, NameReq("test", US.name, *THERE, 1 << 60, 0, joined=True))

    assert calls_in(effects) == []
    assert not node.name_lost


def test_a_node_that_was_stopped_for_long_counts_its_tenure_from_when_it_went_on() -> None:
    node = lone(A)
    node.start_gossip(0)

    node.advance(60 * SECOND_US)
    answer = answer_in(ask(node, NameReq("test", "x", *THERE, 1, 1, joined=True), 60 * SECOND_US))

    assert isinstance(answer, NameAck)
    assert answer.since_ms == WALL_MS + 60_000


def test_a_node_suspended_with_its_machine_yields_to_the_one_started_in_its_place() -> None:
    node = lone(A)
    since_ms = WALL_MS + 60_000

    node.note_suspension(3600 * SECOND_US, 1)
    call = inquiry_in(rumour(node, named(2, since_ms), now=1))
    effects = node.receive(Answered(call.call_id, tenure_of(named(2, since_ms), since_ms)), 2)

    assert effects == [NameTaken(US, named(2, since_ms), lost=True, since_ms=since_ms)]


# A node that is joining.


@pytest.mark.parametrize("incarnation", [EARLIER, LATER])
@pytest.mark.parametrize("status", [Status.ALIVE, Status.SUSPECT, Status.LEAVE])
def test_a_newcomer_that_finds_its_name_elsewhere_asks_there_before_it_is_ready(
    status: Status, incarnation: int
) -> None:
    node, effects = joining(named(2, incarnation, status))

    assert inquiry_in(effects).to == THERE
    assert not node.ready
    assert node.local == US


def test_a_newcomer_loses_to_a_living_process_whatever_the_clocks_say() -> None:
    node, effects = joining(named(2))
    call = inquiry_in(effects)

    effects = node.receive(Answered(call.call_id, tenure_of(named(2), LATER)), 2)

    assert effects == [NameTaken(US, named(2), lost=True, since_ms=LATER)]
    assert not node.ready


def test_a_newcomer_loses_to_a_process_that_a_member_reaches_for_it() -> None:
    node, effects = joining(named(2))
    (helper,) = calls_in(fail(node, inquiry_in(effects), "refused"))

    effects = node.receive(Answered(helper.call_id, PingReqAck(US.name, ping_ok=True)), 2)

    assert effects == [NameTaken(US, named(2), lost=True)]


def test_a_newcomer_outbids_its_earlier_life_once_nobody_answers_there() -> None:
    node, effects = joining(named(2))
    (helper,) = calls_in(fail(node, inquiry_in(effects), "refused"))
    assert not node.ready

    nack = PingReqAck(US.name, ping_ok=False, failure="refused")
    effects = node.receive(Answered(helper.call_id, nack), 2)

    assert Ready(1) in effects
    assert node.local.incarnation == LATER + 1


def test_of_two_that_join_the_one_that_started_first_goes_on() -> None:
    node, effects = joining(named(2))

    ack = tenure_of(named(2), LATER, joined=False)
    effects = node.receive(Answered(inquiry_in(effects).call_id, ack), 2)

    assert Ready(1) in effects
    assert [taken.lost for taken in taken_in(effects)] == [False]
    assert node.local.incarnation == LATER + 1


def test_a_newcomer_with_two_namesakes_is_not_ready_before_both_are_settled() -> None:
    node, (first, second) = joining_with_two()

    effects = node.receive(Answered(first.call_id, Refusal("wrong-cluster", "")), 2)
    refusal = answer_in(ask(node, ping_from(A), 2))

    assert Ready(1) not in effects
    assert not node.ready
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "not-ready"
    effects = node.receive(Answered(second.call_id, Refusal("wrong-cluster", "")), 3)
    assert Ready(1) in effects


def test_a_newcomer_that_one_of_two_namesakes_lets_pass_loses_to_the_other() -> None:
    node, (first, second) = joining_with_two()

    node.receive(Answered(first.call_id, tenure_of(named(2), LATER, joined=False)), 2)
    effects = node.receive(Answered(second.call_id, tenure_of(named(3), LATER)), 3)

    assert effects == [NameTaken(node.local, named(3), lost=True, since_ms=LATER)]
    assert not node.ready


def test_a_newcomer_does_not_ask_again_when_another_list_repeats_a_settled_row() -> None:
    node = lone(ready=False)
    first, second = calls_in(node.start([A.address, B.address], 0))
    lists = [JoinAck("test", host.name, 1, 1, (host, named(2))) for host in (A, B)]
    call = inquiry_in(node.receive(Answered(first.call_id, lists[0]), 1))
    node.receive(Answered(call.call_id, Refusal("wrong-cluster", "")), 2)

    effects = node.receive(Answered(second.call_id, lists[1]), 3)

    assert not any(isinstance(call.request, NameReq) for call in calls_in(effects))
    assert Ready(2) in effects


@pytest.mark.parametrize("status", [Status.FAULTY, Status.TOMBSTONE])
def test_a_name_whose_holder_was_found_dead_is_free(status: Status) -> None:
    node, effects = joining(named(2, LATER, status))

    assert not any(isinstance(call.request, NameReq) for call in calls_in(effects))
    assert node.ready
    assert node.local.incarnation == LATER + 1


def test_a_newcomer_says_nothing_in_a_name_that_may_be_taken() -> None:
    node, _ = joining(named(2))
    requests: list[Request] = [
        ping_from(A),
        Join("test", 100, A.name, *A.address, 1, 1000),
        Sync("test", 100, A.name, *A.address, 1, 0, 0, packed_sums([1])),
        PingReq("test", A.name, *A.address, 1, None, B.name, *B.address),
    ]

    refusals = [answer_in(ask(node, request)) for request in requests]
    said = node.tick(2) + node.start_gossip(2) + node.exchange(A.name, 2) + node.heal(2)
    said += node.announce(2)

    assert [r.kind for r in refusals if isinstance(r, Refusal)] == ["not-ready"] * 4
    assert calls_in(said) == []
    assert node.evict_self(2) == [Evicted()]
    assert node.local == US


def test_answers_of_a_joining_node_hold_no_news_of_itself() -> None:
    node = lone(ready=False)
    node.start([A.address], 0)

    ack = answer_in(ask(node, ping_from(B)))
    refusal = answer_in(ask(node, Sync("test", 100, B.name, *B.address, 1, 0, 0, packed_sums([1]))))

    assert isinstance(ack, Ack)
    assert ack.changes == ()
    assert isinstance(refusal, Refusal)


def test_a_list_does_not_move_a_living_member_to_who_gives_it() -> None:
    held, claimed = Member("n", *A.address, 1), Member("n", *THERE, 2)
    node = lone(ready=False)
    first, second = calls_in(node.start([A.address, THERE], 0))
    node.receive(Answered(first.call_id, JoinAck("test", B.name, 1, 1, (B, held))), 1)

    node.receive(Answered(second.call_id, JoinAck("test", "n", 2, 1, (claimed,))), 2)

    assert node.members.get("n") == held


# Clusters.


def cluster_of(count: int, seed: int = 0) -> World:
    """Return a settled cluster of *count* nodes that are named n0, n1 and so on."""
    world = World(config=LAN, seed=seed)
    for index in range(count):
        world.start(index, range(count), name=f"n{index}")
    world.run_until(world.converged, within_s=5)
    world.run(10)
    return world


def rows_named(world: World, name: str) -> set[tuple[object, ...]]:
    """Return what the running nodes of other names believe of the member *name*."""
    rows = [node.members.get(name) for node in world.nodes if node.local.name != name]
    return {(row.address, row.status) if row else () for row in rows}


def alive_at(index: int) -> set[tuple[object, ...]]:
    return {(address_of(index), Status.ALIVE)}


def losers_in(world: World) -> list[object]:
    """Return the addresses of the nodes that have lost their names, in that order."""
    return [
        address
        for _, address, effect in world.trace
        if isinstance(effect, NameTaken) and effect.lost
    ]


@pytest.mark.parametrize("seed", range(2))
def test_a_dead_namesake_beyond_a_cut_does_not_take_the_name_of_who_lives(seed: int) -> None:
    world = World(seed=seed, config=LAN)
    for index in range(4):
        world.start(index, range(4), name=f"n{index}")
    world.run_until(world.converged, within_s=5)
    world.split([0, 1], [2, 3, 9])
    world.run(40)
    world.start(9, [2], name="n1")  # an orchestrator on that side takes ours for dead
    world.run(10)
    world.crash(9)
    world.run(40)

    world.heal()
    world.run(20)

    assert losers_in(world) == []
    assert rows_named(world, "n1") == alive_at(1)


def test_an_island_that_used_a_name_of_the_others_gives_it_up_when_they_meet() -> None:
    world = cluster_of(4)
    world.start(8, [], name="island")
    world.start(9, [8], name="n0")
    world.run(10)

    world.do(8, lambda node, now: node.hosts_read([address_of(1)], now))

    world.run_until(lambda: bool(losers_in(world)), within_s=20)
    world.run(10)
    assert losers_in(world) == [address_of(9)]
    assert rows_named(world, "n0") == alive_at(0)


@pytest.mark.parametrize("one_way", [False, True])
def test_a_newcomer_that_a_firewall_keeps_from_the_holder_of_its_name_loses_all_the_same(
    *, one_way: bool
) -> None:
    world = cluster_of(4)
    world.split([9], [0], one_way=one_way, refuse=True)

    world.start(9, range(1, 4), name="n0")

    world.run(20)
    assert losers_in(world) == [address_of(9)]
    assert rows_named(world, "n0") == alive_at(0)
