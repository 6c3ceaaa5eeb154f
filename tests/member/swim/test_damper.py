"""`membership.damping`: a member that changes too often leaves every ring for a while."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.core import Core
from ringpop_py.member.swim.damper import Vote
from ringpop_py.member.swim.effects import AnswerPeer, CallPeer, DampVoted, Effect, StatusChanged
from ringpop_py.member.swim.member import DAMPING_MAX, DRAINING, Labels, Member, Status
from ringpop_py.member.swim.messages import (
    DAMP_NAMES_MAX,
    Answered,
    Asked,
    DampAck,
    DampReq,
    Failed,
    JoinAck,
    MemberChange,
    Ping,
)
from ringpop_py.member.swim.node import Node
from ringpop_py.member.swim.scores import Scores, is_flap
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import WALL_MS
from tests.member.swim.nodes import World, advance_to

SECOND_US = 1_000_000


def row(
    index: int,
    incarnation: int = 0,
    status: Status = Status.ALIVE,
    labels: Labels = (),
    damping: int = 0,
) -> Member:
    address = address_of(index)
    return Member(str(address), *address, WALL_MS + incarnation, status, labels, damping)


US, A, B, C, D, E = (row(index) for index in range(6))
OTHERS = (A, B, C, D, E)


def core_of(config: GossipConfig | None = None) -> Core:
    return Core(
        US,
        cluster="test",
        ring_points=100,
        dialect=NATIVE,
        config=config or GossipConfig(),
        rng=random.Random(1),
        now=0,
    )


def lone(
    *others: Member, dialect: Dialect = NATIVE, config: GossipConfig | None = None, at: int = 0
) -> Node:
    """A node that knows *others*, and does nothing by itself."""
    node = Node(
        US,
        cluster="test",
        ring_points=100,
        dialect=dialect,
        config=config or GossipConfig(),
        rng=random.Random(1),
        now=at,
    )
    node.start([], at)
    node.stop_gossip(at)
    told(node, *others, now=at)
    return node


def told(node: Node, *rows: Member, now: int = 0) -> list[Effect]:
    """Return the effects of a stranger's ping that carries *rows*, and of what is due then."""
    stranger = row(99)
    changes = tuple(
        MemberChange(member=member, source=stranger.name, source_incarnation=1) for member in rows
    )
    ping = Ping("test", 100, stranger.name, *stranger.address, WALL_MS, None, changes)
    effects = node.receive(Asked(0, ping), now) + node.advance(now)
    return [effect for effect in effects if not isinstance(effect, AnswerPeer)]


def flap(node: Node, member: Member = A, times: int = 10, now: int = 0) -> list[Effect]:
    """*member* says *times* that it is alive again."""
    known = node.members.get(member.name) or member
    rows = [replace(known, incarnation=known.incarnation + i + 1) for i in range(times)]
    return told(node, *rows, now=now)


def requests_in(effects: list[Effect]) -> list[CallPeer]:
    return [e for e in effects if isinstance(e, CallPeer) and isinstance(e.request, DampReq)]


def votes_in(effects: list[Effect]) -> list[DampVoted]:
    return [effect for effect in effects if isinstance(effect, DampVoted)]


def answered(node: Node, calls: list[CallPeer], *scores: int, now: int = 0) -> list[Effect]:
    """The voters of *calls* answer one after another, each with its score of all that are asked."""
    effects = []
    for call, score in zip(calls, scores, strict=False):
        assert isinstance(call.request, DampReq)
        ack = DampAck(tuple((name, score) for name in call.request.names))
        effects += node.receive(Answered(call.call_id, ack), now)
    return effects


def damping_of(node: Node, member: Member = A) -> int:
    known = node.members.get(member.name)
    assert known is not None
    return known.damping


def score_of(node: Node, member: Member = A, now: int = 0) -> int:
    known = node.members.get(member.name)
    assert known is not None
    return node.damp_state(known, now).score


def in_ring(node: Node) -> list[str]:
    return sorted(member.name for member in node.members if node.members.in_ring(member))


# Scores.


QUICK = GossipConfig(
    ping_timeout_s=0.3, ping_req_timeout_s=0.6, suspect_s=1.0, damp_half_life_s=60.0
)


def restart(world: World, index: int, times: int, *, every_s: float = 1.5) -> None:
    """Kill a process and start it again, over and over."""
    for _ in range(times):
        world.crash(index)
        world.run(every_s / 2)
        world.start(index, [(index + 1) % len(world.sim.at)])
        world.run(every_s / 2)
        check_rings(world)


def check_rings(world: World) -> None:
    """Nodes of equal checksum have equal rings, and no node leaves out more than it may."""
    rings: dict[int, list[str]] = {}
    for node in world.nodes:
        ring = in_ring(node)
        assert rings.setdefault(node.members.checksum, ring) == ring
        serving = [m for m in node.members if m.status.reachable]
        assert len(serving) - len(ring) <= max(1, len(serving) // 10)


def damped_everywhere(world: World, index: int) -> bool:
    rows = [node.members.get(f"n{index}") for node in world.nodes]
    return all(member is not None and member.damped for member in rows)


def in_every_ring(world: World, index: int) -> bool:
    return all(f"n{index}" in in_ring(node) for node in world.nodes)


def in_no_ring(world: World, index: int) -> bool:
    return not any(f"n{index}" in in_ring(node) for node in world.nodes)


def flapping_world(seed: int) -> World:
    """Eight nodes, of which the last is damped."""
    world = World(seed=seed, config=QUICK)
    world.start_cluster(8)
    restart(world, 7, 8)
    world.run_until(lambda: damped_everywhere(world, 7), within_s=15)
    return world


@pytest.mark.parametrize("period_s", [10, 30, 44, 47, 60, 120])
def test_a_penalty_every_so_often_settles_where_the_theory_says(period_s: int) -> None:
    scores = Scores(core_of(GossipConfig(damp_score_max=1 << 30)))
    now = 0

    for _ in range(1000):
        now += period_s * SECOND_US
        scores.put("a", scores.of("a", now) + 500, now)

    settled = scores.of("a", now)
    assert settled == pytest.approx(500 / (1 - 2 ** (-period_s / 300)), rel=0.003)
    assert (settled >= GossipConfig().damp_suppress) == (period_s < 45.6)


def test_a_score_is_half_after_its_half_life() -> None:
    scores = Scores(core_of())
    scores.put("a", 5000, 0)

    halves = [scores.of("a", seconds * SECOND_US) for seconds in (0, 300, 600, 10_000)]

    assert halves == [5000, 2500, 1250, 0]
    assert scores.falls_to("a", 2500, 0) == 300 * SECOND_US
    assert scores.falls_to("a", 6000, 7) == 7


def test_a_score_has_a_limit() -> None:
    scores = Scores(core_of())

    scores.put("a", 1 << 60, 0)

    assert scores.of("a", 0) == GossipConfig().damp_score_max


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (row(1), row(1, status=Status.SUSPECT)),
        (row(1, status=Status.SUSPECT), row(1, status=Status.FAULTY)),
        (row(1, status=Status.FAULTY), row(1, 1)),
        (row(1), row(1, 1)),
        (row(1, labels=(("a", "b"),)), row(1, 1, Status.SUSPECT)),
    ],
)
def test_changes_of_a_life_cost_a_penalty(before: Member, after: Member) -> None:
    assert is_flap(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, row(1)),
        (row(1), row(1, status=Status.LEAVE)),
        (row(1, status=Status.LEAVE), row(1, 1)),
        (row(1), row(1, 1, labels=(("a", "b"),))),
        (row(1), row(1, damping=1)),
        (row(1, status=Status.FAULTY), row(1, status=Status.TOMBSTONE)),
        (row(1, status=Status.TOMBSTONE), row(1, 1)),
    ],
)
def test_arriving_leaving_labels_and_verdicts_cost_none(
    before: Member | None, after: Member
) -> None:
    assert not is_flap(before, after)


def test_a_node_keeps_scores_of_others_and_none_of_itself() -> None:
    node = lone(*OTHERS)

    flap(node, A, 3)
    told(node, replace(US, status=Status.SUSPECT))

    assert [(s.member.name, s.score) for s in node.damp_states(0)] == [(A.name, 1500)]


def test_a_peer_is_told_our_scores() -> None:
    node = lone(*OTHERS)
    flap(node, A, 3)

    request = DampReq("test", B.name, *B.address, WALL_MS, (A.name, "unknown"))
    (answer,) = node.receive(Asked(7, request), 0)

    assert answer == AnswerPeer(7, DampAck(((A.name, 1500), ("unknown", 0))))


# Votes.


def test_a_vote_is_settled_by_the_first_answers() -> None:
    vote = Vote(("a", "b"), quorum=2, open_count=3)

    assert [vote.done("x", {"a": 7}), vote.done("y", {"b": 8}), vote.done("z", {})] == [
        False,
        True,
        False,
    ]
    assert vote.scores_of("a") == (("x", 7), ("y", 0))


def test_a_vote_is_settled_once_there_cannot_be_answers_enough() -> None:
    vote = Vote(("a",), quorum=2, open_count=3)

    assert [vote.done("x", None), vote.done("y", None)] == [False, True]
    assert not vote.attainable


def test_below_the_limit_nobody_is_asked() -> None:
    node = lone(*OTHERS)

    assert requests_in(flap(node, A, 9)) == []
    assert node.damp_state(A, 0).flapper is False


def test_at_the_limit_others_are_asked_but_for_the_accused_and_other_flappers() -> None:
    node = lone(*OTHERS, config=GossipConfig(damp_vote_size=10))
    flap(node, B, 12)

    advance_to(node, 5 * SECOND_US)
    calls = requests_in(flap(node, A, 10, now=5 * SECOND_US))
    calls += requests_in(advance_to(node, 10 * SECOND_US))

    assert {call.to for call in calls} == {member.address for member in (C, D, E)}
    assert calls[0].request == DampReq("test", US.name, *US.address, WALL_MS, (B.name, A.name))


def test_a_member_that_enough_others_hold_for_a_flapper_is_damped() -> None:
    node = lone(*OTHERS)
    calls = requests_in(flap(node))

    effects = answered(node, calls, 5000, 6000, 5000, 0)

    names = [next(m.name for m in OTHERS if m.address == call.to) for call in calls]
    answers = tuple(zip(names, (5000, 6000, 5000), strict=False))
    assert votes_in(effects) == [DampVoted(A.name, 5000, answers, damped=True)]
    assert damping_of(node) == 1
    (changed,) = [e for e in effects if isinstance(e, StatusChanged)]
    assert (changed.via, changed.source) == ("damping", US.name)
    assert A.name not in in_ring(node)


def test_a_member_that_one_of_the_answering_voters_holds_for_steady_is_not_damped() -> None:
    node = lone(*OTHERS)
    calls = requests_in(flap(node))

    (vote,) = votes_in(answered(node, calls, 5000, 4999, 10_000, 10_000))

    assert not vote.damped
    assert vote.reason.startswith("not to ")
    assert damping_of(node) == 0


def test_answers_that_stay_away_damp_nobody() -> None:
    node = lone(*OTHERS)
    calls = requests_in(flap(node))

    effects = answered(node, calls[:2], 5000, 5000)
    for call in calls[2:]:
        effects += node.receive(Failed(call.call_id, "declined"), 0)

    (vote,) = votes_in(effects)
    assert (vote.damped, vote.reason) == (False, "2 of 3 answered")


def test_where_all_others_flap_too_there_is_nobody_to_ask() -> None:
    node = lone(A, B)
    flap(node, A, 12)
    flap(node, B, 12)

    votes = votes_in(advance_to(node, 10 * SECOND_US))

    assert [(vote.name, vote.reason) for vote in votes] == [
        (A.name, "0 of 1 answered"),
        (A.name, "nobody to ask"),
        (B.name, "nobody to ask"),
    ]


def test_where_fewer_than_three_could_own_keys_nobody_is_asked() -> None:
    node = lone(A, replace(B, status=Status.FAULTY), replace(C, labels=(DRAINING,)))

    effects = flap(node, A, 12) + advance_to(node, 20 * SECOND_US)

    assert requests_in(effects) == []


def test_the_vote_is_repeated_while_the_member_is_a_flapper() -> None:
    node = lone(*OTHERS)
    answered(node, requests_in(flap(node)), 0, 0, 0, 0)

    asked_at = [
        second for second in range(1, 400) if requests_in(advance_to(node, second * SECOND_US))
    ]

    assert asked_at == list(range(10, 300, 10))  # at 300 s the score is at the reuse limit


def test_a_vote_that_is_overtaken_by_a_verdict_decides_nothing() -> None:
    node = lone(*OTHERS)
    calls = requests_in(flap(node))
    told(node, replace(A, damping=2))

    effects = answered(node, calls, 9000, 9000, 9000)

    assert votes_in(effects) == []
    assert damping_of(node) == 2


def test_at_most_the_share_is_damped_at_once() -> None:
    node = lone(*OTHERS)
    told(node, replace(E, damping=1))

    effects = flap(node, A, 12) + advance_to(node, 10 * SECOND_US)

    assert requests_in(effects) == []
    assert node.damp_state(A, 0).flapper


def test_a_vote_on_several_damps_no_more_than_the_share() -> None:
    node = lone(*OTHERS)
    first = requests_in(flap(node, A, 12))
    flap(node, B, 12)
    answered(node, first, 0, 0, 0)

    calls = requests_in(advance_to(node, 10 * SECOND_US))
    votes = votes_in(answered(node, calls, 9000, 9000, 9000, now=10 * SECOND_US))

    assert [(vote.damped, vote.reason) for vote in votes] == [
        (True, ""),
        (False, "no more members may be left out"),
    ]


def test_a_request_names_so_many_flappers_at_most() -> None:
    many = [row(index) for index in range(1, 40)]
    node = lone(*many)
    for member in many[:20]:
        told(node, *[replace(member, incarnation=member.incarnation + i) for i in range(1, 12)])

    (call, *_) = requests_in(advance_to(node, 10 * SECOND_US))

    assert isinstance(call.request, DampReq)
    assert len(call.request.names) == DAMP_NAMES_MAX


def test_nothing_is_scored_with_the_switch_off_and_in_the_ringpop_dialect() -> None:
    off = lone(*OTHERS, config=GossipConfig(damping=False))
    ringpop = lone(*OTHERS, dialect=RINGPOP)

    for node in (off, ringpop):
        assert requests_in(flap(node, A, 12)) == []
        assert node.damp_states(0) == []


# Verdicts.


def test_a_verdict_has_all_nodes_at_the_limit_and_the_first_below_releases() -> None:
    node = lone(*OTHERS)
    told(node, replace(A, damping=1))
    just_judged = score_of(node)

    before = advance_to(node, 299 * SECOND_US)
    effects = advance_to(node, 300 * SECOND_US)

    assert just_judged == 5000
    assert before == []
    assert damping_of(node) == 2
    assert [(e.via, e.after) for e in effects if isinstance(e, StatusChanged)] == [
        ("damping", replace(A, damping=2))
    ]


def test_a_member_that_flaps_on_while_damped_stays_out_longer() -> None:
    node = lone(*OTHERS)
    told(node, replace(A, damping=1))
    flap(node, A, 10, now=200 * SECOND_US)

    advance_to(node, 300 * SECOND_US)
    still = damping_of(node)
    advance_to(node, 800 * SECOND_US)

    assert (still, damping_of(node)) == (1, 2)


def test_a_release_leaves_at_most_the_reuse_limit_of_a_score() -> None:
    node = lone(*OTHERS)
    flap(node, A, 15)
    told(node, replace(A, damping=1))

    told(node, replace(A, damping=2))

    assert score_of(node) == 2500
    assert not node.damp_state(A, 0).flapper


def test_neither_a_refutation_nor_a_restart_lifts_a_verdict() -> None:
    node = lone(*OTHERS)
    told(node, replace(A, damping=1))

    told(node, row(1, 1), row(1, 2, Status.FAULTY), row(1, 3))

    assert node.members.get(A.name) == row(1, 3, damping=1)


def test_a_verdict_on_ourselves_is_taken_and_not_refuted() -> None:
    node = lone(*OTHERS)

    (changed,) = told(node, replace(US, damping=1))

    assert isinstance(changed, StatusChanged)
    assert node.local == replace(US, damping=1)
    assert US.name not in in_ring(node)
    assert node.counts.refutations == 0
    assert (
        MemberChange(member=node.local, source=US.name, source_incarnation=WALL_MS)
        in node._rows.dissemination.pending()
    )


def test_a_refutation_carries_the_verdict_on() -> None:
    node = lone(*OTHERS)

    told(node, replace(US, status=Status.SUSPECT, damping=1))

    assert node.local.status is Status.ALIVE
    assert node.local.incarnation > US.incarnation
    assert node.local.damping == 1


def test_a_member_that_damps_a_suspect_is_not_passed_on_as_its_accuser() -> None:
    node = lone(*OTHERS, replace(A, status=Status.SUSPECT))

    told(node, replace(A, damping=1))

    suspect = replace(A, status=Status.SUSPECT, damping=1)
    assert MemberChange(member=suspect) in node._rows.dissemination.pending()


def test_a_list_that_lacks_our_verdict_is_answered_with_the_row_of_both() -> None:
    node = lone(*OTHERS)
    told(node, replace(A, damping=1))
    for member in (US, *OTHERS):
        node._rows.dissemination.forget(member.name)
    newer = row(1, 5)

    node._rows.update_from_list(
        JoinAck("test", B.name, WALL_MS, 7, (newer, row(2, 5))), 0, via="full-sync"
    )

    (rider,) = node._rows.dissemination.pending()
    assert rider.member == replace(newer, damping=1)


views = st.builds(
    row,
    st.just(1),
    st.integers(0, 2),
    st.sampled_from([Status.ALIVE, Status.SUSPECT, Status.FAULTY, Status.LEAVE]),
    st.sampled_from([(), (DRAINING,)]),
    st.sampled_from([0, 1, 2, DAMPING_MAX]),
)


@given(st.lists(views, max_size=6), st.integers(0, 9))
def test_nodes_settle_on_one_row_and_one_ring_in_whatever_order_views_come(
    order: list[Member], seed: int
) -> None:
    nodes = [lone(*OTHERS), lone(*OTHERS)]

    told(nodes[0], *order)
    for view in random.Random(seed).sample(order, len(order)):
        told(nodes[1], view)

    assert nodes[0].members.get(A.name) == nodes[1].members.get(A.name)
    assert nodes[0].members.checksum == nodes[1].members.checksum
    assert in_ring(nodes[0]) == in_ring(nodes[1])


def test_a_counter_beyond_its_end_is_not_believed() -> None:
    node = lone(*OTHERS)

    told(node, replace(A, damping=DAMPING_MAX + 1), replace(US, damping=DAMPING_MAX + 1))

    assert damping_of(node) == 0
    assert node.local.damping == 0
    assert node.counts.dampings_refused == 2


def test_a_made_up_counter_does_not_damp_for_ever() -> None:
    node = lone(*OTHERS)
    told(node, replace(A, damping=DAMPING_MAX - 1))

    advance_to(node, 300 * SECOND_US)

    assert damping_of(node) == DAMPING_MAX
    assert A.name in in_ring(node)


def test_at_the_end_of_its_counter_a_member_is_damped_no_more() -> None:
    node = lone(*OTHERS)
    told(node, replace(A, damping=DAMPING_MAX))

    assert requests_in(flap(node, A, 15)) == []


# What an operator does.


def test_clearing_releases_a_member_and_forgets_its_score() -> None:
    node = lone(*OTHERS)
    flap(node, A, 15)
    told(node, replace(A, damping=1))

    (changed,) = node.clear_damping(A.name, 0)

    assert isinstance(changed, StatusChanged)
    assert changed.after is not None
    assert changed.after.damping == 2
    assert score_of(node) == 0


def test_clearing_works_on_ourselves_and_does_nothing_to_who_is_not_damped() -> None:
    node = lone(*OTHERS)
    told(node, replace(US, damping=1))
    flap(node, A, 15)

    node.clear_damping(US.name, 0)
    effects = node.clear_damping(A.name, 0)

    assert node.local.damping == 2
    assert effects == []
    assert (damping_of(node), score_of(node)) == (0, 0)
    assert requests_in(advance_to(node, 20 * SECOND_US)) == []


def test_draining_sets_a_label_beside_the_others() -> None:
    node = lone(*OTHERS)
    node.set_labels((("zone", "a"),), 0)

    drained = node.drain(0)
    labels = node.local.labels
    again = node.drain(0)
    node.undrain(0)

    assert [type(effect) for effect in drained] == [StatusChanged]
    assert labels == (DRAINING, ("zone", "a"))
    assert again == []
    assert node.local.labels == (("zone", "a"),)
    assert US.name in in_ring(node)


# No memory is left behind.


def test_a_score_that_has_decayed_leaves_no_entry_and_no_timer() -> None:
    node = lone(*OTHERS)
    flap(node, A, 9)

    advance_to(node, 10_000 * SECOND_US)

    assert node.damp_states(10_000 * SECOND_US) == []
    assert len(node._damper._scores._looks) == 0
    assert node.next_deadline is None


def test_an_evicted_member_leaves_nothing() -> None:
    node = lone(*OTHERS)
    flap(node, A, 12)
    told(node, row(1, 50, Status.TOMBSTONE, damping=1))

    advance_to(node, 61 * SECOND_US)

    assert node.members.get(A.name) is None
    assert len(node._damper._scores) == len(node._damper._scores._looks) == 0
    assert node._damper._scores.flappers == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_flapping_member_leaves_every_ring_its_own_too_and_comes_back(seed: int) -> None:
    world = flapping_world(seed)
    out = in_no_ring(world, 7)
    pinged = world.calls(7, Ping)

    world.run_until(world.converged, within_s=10)
    check_rings(world)
    took_s = world.run_until(lambda: in_every_ring(world, 7), within_s=130)

    assert out
    assert pinged  # who is damped goes on gossiping
    assert took_s >= 40
    check_rings(world)
