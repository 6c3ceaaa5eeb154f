"""`membership.node`: the protocol, in a small world and by single messages."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.packed import INTEGER_MAX
from ringpop_py.member.swim.effects import (
    Announced,
    AnswerPeer,
    CallPeer,
    Effect,
    Evicted,
    HealthChanged,
    JoinRejected,
    PeerTrouble,
    Ready,
    Refuted,
    StatusChanged,
    StrangerRefused,
)
from ringpop_py.member.swim.member import INCARNATION_AHEAD_MS_MAX, Member, Status
from ringpop_py.member.swim.messages import (
    Ack,
    Answered,
    Asked,
    Disconnected,
    Failed,
    Join,
    JoinAck,
    MemberChange,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
    RefusalKind,
    Request,
    Response,
)
from ringpop_py.member.swim.node import ANNOUNCED_MAX, Node
from ringpop_py.member.swim.vouching import AHEAD_MS_MAX
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import WALL_MS
from tests.member.swim.nodes import World

BOTH = pytest.mark.parametrize("dialect", [NATIVE, RINGPOP], ids=lambda d: d.name)
SECOND_US = 1_000_000
PERIOD_US = 200_000
QUICK = GossipConfig(suspect_s=1.0, faulty_s=2.0, tombstone_s=0.5)


def row(index: int, incarnation: int = WALL_MS, status: Status = Status.ALIVE) -> Member:
    address = address_of(index)
    return Member(str(address), *address, incarnation, status)


US, A, B, C, D = (row(index) for index in range(5))


def lone(
    *others: Member,
    dialect: Dialect = NATIVE,
    config: GossipConfig | None = None,
    ready: bool = True,
) -> Node:
    """A node that knows *others*, with nothing left to say, whose own probes do not run."""
    node = Node(
        US,
        cluster="test",
        ring_points=100,
        dialect=dialect,
        config=config or GossipConfig(),
        rng=random.Random(1),
        now=0,
    )
    if ready:
        node.start([], 0)
        node.stop_gossip(0)
    told(node, *others)
    for member in (US, *others):
        node._rows.dissemination.forget(member.name)
    return node


def ping_from(member: Member, *changes: MemberChange, checksum: int | None = None) -> Ping:
    return Ping("test", 100, member.name, *member.address, member.incarnation, checksum, changes)


def told(node: Node, *rows: Member, now: int = 0) -> list[Effect]:
    """Return the effects of a stranger's ping that carries *rows*, except its answer."""
    changes = tuple(
        MemberChange(member=member, source="accuser", source_incarnation=1) for member in rows
    )
    stranger = replace(D, name="accuser")
    ping = replace(ping_from(stranger), changes=changes, checksum=None)
    effects = node.receive(Asked(0, ping), now)
    return [e for e in effects if not isinstance(e, AnswerPeer | CallPeer)]


def ask(node: Node, request: Request, now: int = 0) -> list[Effect]:
    return node.receive(Asked(7, request), now)


def calls_in(effects: list[Effect]) -> list[CallPeer]:
    return [effect for effect in effects if isinstance(effect, CallPeer)]


def answer_in(effects: list[Effect]) -> Response:
    (answer,) = [effect for effect in effects if isinstance(effect, AnswerPeer)]
    assert answer.token == 7
    return answer.response


def status_of(node: Node, member: Member) -> Status | None:
    held = node.members.get(member.name)
    return held.status if held else None


def ack_of(member: Member, *changes: MemberChange) -> Ack:
    return Ack(member.name, member.incarnation, None, changes)


# Clusters.


def changes_of(world: World, subject: int) -> list[tuple[int, StatusChanged]]:
    """When and how the view of *subject* changed at node 0."""
    changes = [(at, e) for at, e in world.effects(0, StatusChanged) if isinstance(e, StatusChanged)]
    return [(at, e) for at, e in changes if e.member.address == address_of(subject)]


@BOTH
@pytest.mark.parametrize("count", [1, 2, 30])
def test_nodes_that_start_together_converge_to_one_checksum(dialect: Dialect, count: int) -> None:
    world = World(dialect, seed=count)

    nodes = world.start_cluster(count)

    assert len({node.members.checksum for node in nodes}) == 1
    assert [len(node.members) for node in nodes] == [count] * count
    assert world.now < 5 * SECOND_US


@BOTH
def test_a_member_that_dies_goes_the_way_of_all_members_in_time(dialect: Dialect) -> None:
    world = World(dialect, config=QUICK)
    world.start_cluster(5)
    world.run(3)

    world.crash(4)
    world.run(6)

    changes = changes_of(world, 4)[-4:]
    statuses = [change.after.status if change.after else None for _, change in changes]
    assert statuses == [Status.SUSPECT, Status.FAULTY, Status.TOMBSTONE, None]
    suspect_at, faulty_at, tombstone_at, evicted_at = [at for at, _ in changes]
    # Others, that suspected earlier, may be ahead of our own timers, never behind.
    assert faulty_at - suspect_at <= SECOND_US
    assert tombstone_at - faulty_at <= 2 * SECOND_US
    assert evicted_at - tombstone_at == SECOND_US // 2
    assert world.converged()


@BOTH
def test_a_silent_peer_is_suspected_after_ping_and_helpers(dialect: Dialect) -> None:
    world = World(dialect)
    world.start_cluster(3)
    world.run(3)

    world.crash(2, silently=True)
    died_at = world.now
    world.run_until(lambda: Status.SUSPECT in (world.status(0, 2), world.status(1, 2)), within_s=10)

    pings = [call for i in (0, 1) for call in world.calls(i, Ping) if call[1].to == B.address]
    first_at = min(at for at, _ in pings if at > died_at)
    # A ping that times out, and another by the only helper.
    assert 3.0 <= (world.now - first_at) / SECOND_US <= 3.1


def test_in_the_native_dialect_those_who_left_retire_as_the_faulty_do() -> None:
    world = World(NATIVE, config=QUICK)
    world.start_cluster(3)
    world.run(2)

    world.do(2, Node.evict_self)
    world.run(6)

    assert [len(node.members) for node in world.nodes] == [2, 2]


def test_an_announced_change_is_known_to_all_before_the_next_period() -> None:
    world = World(NATIVE)
    world.start_cluster(8)
    world.run(5)
    begin_at = world.now

    world.do(3, Node.drain)
    world.do(3, Node.announce)
    world.run(PERIOD_US / 2 / SECOND_US)

    address = address_of(3)
    others = [node for node in world.nodes if node.local.address != address]
    rows = [next(m for m in node.members if m.address == address) for node in others]
    assert all(row.draining for row in rows)
    assert [at >= begin_at for at, _ in world.effects(3, Announced)] == [True]


def test_no_more_members_are_told_of_an_announcement_than_the_limit() -> None:
    node = lone(*(row(index) for index in range(1, ANNOUNCED_MAX + 20)))

    calls = calls_in(node.announce(0))

    assert len({call.to for call in calls}) == ANNOUNCED_MAX


def test_a_node_that_is_alone_or_has_ended_tells_nobody() -> None:
    assert lone().announce(0) == [Announced()]

    node = lone(B)
    node.evict_self(1)
    assert node.announce(2) == [Announced()]


@pytest.mark.parametrize(
    ("dialect", "status"),
    [(NATIVE, Status.LEAVE), (RINGPOP, Status.FAULTY)],
    ids=["native", "ringpop"],
)
def test_a_node_that_evicts_itself_says_so_and_ends(dialect: Dialect, status: Status) -> None:
    world = World(dialect)
    world.start_cluster(10)
    world.run(5)
    begin = len(world.trace)

    world.do(4, Node.evict_self)
    farewells = [
        e for _, who, e in world.trace[begin:] if who == address_of(4) and isinstance(e, CallPeer)
    ]
    world.run(1)

    assert len(farewells) == 4  # ceil(0.4 * 9)
    assert len(world.effects(4, Evicted)) == 1
    world.run_until(world.all_see(4, status), within_s=5)


def test_a_node_with_other_ring_points_is_refused_for_good() -> None:
    world = World(NATIVE)
    world.start_cluster(3)

    node = world.start(7, range(3), ring_points=50)
    world.run(10)

    fatal = [
        e for _, e in world.effects(7, JoinRejected) if isinstance(e, JoinRejected) and e.fatal
    ]
    assert len(fatal) == 1
    assert "--ring-points" in fatal[0].reason
    assert not node.ready
    assert len(world.calls(7, Join)) == 3


def test_a_node_that_one_host_accepts_is_not_refused_for_good() -> None:
    world = World(NATIVE)
    world.start(0)
    world.start(1, ring_points=50)

    node = world.start(7, [0, 1], ring_points=50)
    world.run(10)

    assert node.ready
    assert not any(
        e.fatal for _, e in world.effects(7, JoinRejected) if isinstance(e, JoinRejected)
    )


def test_a_ringpop_node_asks_until_enough_have_answered() -> None:
    world = World(RINGPOP)
    node = world.start(0, range(4))
    world.run(3)
    was_ready = node.ready

    for index in (1, 2, 3):
        world.start(index, range(4))

    world.run_until(world.converged, within_s=10)
    assert not was_ready


# Joining.


def test_a_node_without_hosts_starts_a_cluster_alone() -> None:
    node = lone(ready=False)

    effects = node.start([US.address], 0)

    assert effects == [Ready(0)]
    assert node.gossiping


def test_the_joiner_is_not_added_by_the_one_it_asks() -> None:
    node = lone(A)

    ack = answer_in(ask(node, Join("test", 100, B.name, *B.address, B.incarnation, 1000)))

    assert isinstance(ack, JoinAck)
    assert ack.members == (US, A)
    assert node.members.get(B.name) is None


def test_hosts_that_are_set_later_are_asked_at_once() -> None:
    node = lone()

    effects = node.hosts_read([A.address], 5)

    assert [call.to for call in calls_in(effects)] == [A.address]


def test_a_node_whose_join_ends_while_it_evicts_itself_stays_quiet() -> None:
    node = lone(ready=False)
    (join,) = calls_in(node.start([A.address], 0))
    node.evict_self(1)

    effects = node.receive(Answered(join.call_id, JoinAck("test", A.name, 1, 1, (A,))), 2)
    effects += node.hosts_read([B.address], 3) + node.start_gossip(4) + node.rejoin(5)

    assert [type(effect) for effect in effects] == [StatusChanged]
    assert not node.gossiping
    assert node.next_deadline is None


def test_a_refusal_of_an_earlier_round_does_not_end_a_later_one() -> None:
    node = lone(ready=False)
    (join,) = calls_in(node.start([A.address], 0))
    refusal = Refusal("ring-points", "set --ring-points")
    first = node.receive(Answered(join.call_id, refusal), 1)

    (join,) = calls_in(node.hosts_read([B.address], 2))
    second = node.receive(Failed(join.call_id, "refused"), 3)

    assert [e.fatal for e in first if isinstance(e, JoinRejected)] == [False, True]
    assert second == [Ready(0)]


def test_an_untrusted_node_that_meets_nobody_else_does_not_become_ready_alone() -> None:
    node = lone(ready=False)
    calls = calls_in(node.start([A.address, B.address], 0))

    node.receive(Failed(calls[0].call_id, "untrusted", "another key"), 1)
    effects = node.receive(Failed(calls[1].call_id, "refused"), 2)

    assert effects == [JoinRejected(calls[0].to, "another key", fatal=True)]
    assert not node.ready


def test_a_host_without_trust_is_passed_over_if_another_one_answers() -> None:
    node = lone(ready=False)
    calls = calls_in(node.start([A.address, B.address], 0))

    node.receive(Failed(calls[0].call_id, "untrusted", "another key"), 1)
    node.receive(Answered(calls[1].call_id, JoinAck("test", A.name, 1, 1, (A,))), 2)

    assert node.ready


# Requests.


REFUSED: list[tuple[Ping | PingReq | Join, RefusalKind]] = [
    (replace(ping_from(A), cluster="other"), "wrong-cluster"),
    (replace(ping_from(A), ring_points=50), "ring-points"),
    (PingReq("other", A.name, *A.address, 1, None, B.name, *B.address), "wrong-cluster"),
    (Join("other", 100, A.name, *A.address, 1, 1000), "wrong-cluster"),
    (Join("test", 50, A.name, *A.address, 1, 1000), "ring-points"),
    (Join("test", 100, US.name, *US.address, 1, 1000), "self-join"),
]


@pytest.mark.parametrize(("request_", "kind"), REFUSED)
def test_a_request_that_is_not_for_us_is_refused_and_changes_nothing(
    request_: Ping | PingReq | Join, kind: str
) -> None:
    node = lone(A)
    news = MemberChange(member=C, source=C.name, source_incarnation=1)
    if not isinstance(request_, Join):
        request_ = replace(request_, changes=(news,))

    effects = ask(node, request_)

    refusal = answer_in(effects)
    assert isinstance(refusal, Refusal)
    assert refusal.kind == kind
    assert all(isinstance(effect, AnswerPeer | StrangerRefused) for effect in effects)
    assert len(node.members) == 2
    assert node.counts.refusals == 1


@BOTH
def test_pings_before_the_join_are_served_as_the_dialect_says(dialect: Dialect) -> None:
    node = lone(dialect=dialect, ready=False)

    response = answer_in(ask(node, ping_from(A)))

    assert isinstance(response, Ack) == dialect.answers_while_joining
    if isinstance(response, Refusal):
        assert response == Refusal("not-ready", "node is not ready to handle requests")


def test_joins_are_served_before_our_own_is_done() -> None:
    node = lone(dialect=RINGPOP, ready=False)

    response = answer_in(ask(node, Join("test", None, A.name, *A.address, 1, 1000)))

    assert isinstance(response, JoinAck)


def test_an_unnamed_cluster_and_unnamed_ring_points_are_let_through() -> None:
    node = lone()

    assert isinstance(
        answer_in(ask(node, replace(ping_from(A), cluster=None, ring_points=None))), Ack
    )


def test_an_ack_carries_the_checksum_after_the_pings_changes() -> None:
    node = lone(A)

    ack = answer_in(
        ask(node, ping_from(A, MemberChange(member=B, source="x", source_incarnation=1)))
    )

    assert isinstance(ack, Ack)
    assert ack.checksum == node.members.checksum
    assert node.members.get(B.name) == B


def test_the_pinger_is_not_told_what_it_said_itself() -> None:
    node = lone(A)
    own, others = (
        MemberChange(member=B, source=A.name, source_incarnation=A.incarnation),
        MemberChange(member=C, source="x", source_incarnation=1),
    )

    ack = answer_in(ask(node, ping_from(A, own, others)))

    assert isinstance(ack, Ack)
    assert ack.changes == (others,)


# Full syncs.


def test_a_peer_with_another_list_gets_ours_whole_and_is_asked_for_its_own() -> None:
    node = lone(A, B, dialect=RINGPOP)

    effects = ask(node, ping_from(A, checksum=1))

    answer, call = effects
    assert isinstance(answer, AnswerPeer)
    assert isinstance(answer.response, Ack)
    assert [change.member for change in answer.response.changes] == [US, A, B]
    assert {change.source for change in answer.response.changes} == {US.name}
    assert isinstance(call, CallPeer)
    assert isinstance(call.request, Join)
    assert call.to == A.address


def test_the_list_that_comes_back_is_taken_in_but_not_spread() -> None:
    node = lone(A, dialect=RINGPOP)
    (call,) = calls_in(ask(node, ping_from(A, checksum=1)))

    effects = node.receive(Answered(call.call_id, JoinAck("test", A.name, 1, 1, (A, B, C))), 1)

    assert effects == [
        StatusChanged(None, B, "full-sync", A.name, A.name),
        StatusChanged(None, C, "full-sync", A.name, A.name),
    ]
    assert node._rows.dissemination.pending() == ()


def test_an_accusation_of_us_in_a_list_is_refuted_and_the_refutation_spreads() -> None:
    node = lone(A, dialect=RINGPOP)
    (call,) = calls_in(ask(node, ping_from(A, checksum=1)))
    accusation = row(0, WALL_MS, Status.FAULTY)

    node.receive(Answered(call.call_id, JoinAck("test", A.name, 1, 1, (accusation,))), 1)

    assert [change.member for change in node._rows.dissemination.pending()] == [node.local]


def test_a_peer_with_our_checksum_gets_nothing() -> None:
    node = lone(A, B, dialect=RINGPOP)

    ack = answer_in(ask(node, ping_from(A, checksum=node.members.checksum)))

    assert isinstance(ack, Ack)
    assert ack.changes == ()


def test_while_there_is_news_no_list_is_sent() -> None:
    node = lone(A, dialect=RINGPOP)

    effects = ask(
        node, ping_from(A, MemberChange(member=B, source="x", source_incarnation=1), checksum=1)
    )

    assert calls_in(effects) == []
    assert node.counts.full_syncs == 0


def test_a_list_for_a_ping_req_is_not_asked_back() -> None:
    node = lone(A, dialect=RINGPOP)
    request = PingReq("test", B.name, *B.address, 1, 1, A.name, *A.address)
    (ping,) = calls_in(ask(node, request))

    effects = node.receive(Answered(ping.call_id, ack_of(A)), 1)

    (answer,) = effects
    assert isinstance(answer, AnswerPeer)
    assert isinstance(answer.response, PingReqAck)
    assert [change.member for change in answer.response.changes] == [US, A]


def test_only_so_many_lists_are_fetched_at_once() -> None:
    node = lone(A, dialect=RINGPOP)

    begun = [calls_in(ask(node, ping_from(A, checksum=1))) for _ in range(7)]
    counts = dataclasses.replace(node.counts)
    node.advance(SECOND_US)  # all time out
    again = calls_in(ask(node, ping_from(A, checksum=1), SECOND_US))

    assert [len(calls) for calls in begun] == [1, 1, 1, 1, 1, 0, 0]
    assert (counts.reverse_full_syncs, counts.reverse_full_syncs_omitted) == (5, 2)
    assert len(again) == 1


# Refutation.


@pytest.mark.parametrize("status", [Status.SUSPECT, Status.FAULTY, Status.LEAVE, Status.TOMBSTONE])
@pytest.mark.parametrize("ahead_ms", [0, 5_000_000])
def test_an_accused_node_refutes_with_a_higher_incarnation(status: Status, ahead_ms: int) -> None:
    node = lone(A)
    accusation = row(0, WALL_MS + ahead_ms, status)

    effects = told(node, accusation, now=0)

    after = row(0, accusation.incarnation + 1)
    assert effects == [
        StatusChanged(US, after, "local", US.name, US.name),
        HealthChanged(1, "accused"),
        Refuted(accusation, after, "accuser"),
    ]
    assert node.local == after
    assert [change.member for change in node._rows.dissemination.pending()] == [after]


def test_the_clock_outbids_an_old_accusation() -> None:
    node = lone()

    told(node, row(0, WALL_MS, Status.SUSPECT), now=9_000_000)

    assert node.local.incarnation == WALL_MS + 9_000


@pytest.mark.parametrize(
    "claim",
    [US, *(row(0, WALL_MS - 1, status) for status in Status)],
    ids=lambda m: f"{m.status.label}{m.incarnation - WALL_MS:+d}",
)
def test_a_claim_that_does_not_override_our_row_is_not_answered(claim: Member) -> None:
    node = lone()

    assert told(node, claim) == []
    assert node.local == US


def test_an_alive_claim_of_a_higher_incarnation_is_outbid() -> None:
    node = lone()

    told(node, row(0, WALL_MS + 9))

    assert node.local == row(0, WALL_MS + 10)


def test_a_claim_that_no_clock_can_have_made_is_not_believed() -> None:
    node = lone(A)

    effects = told(
        node,
        replace(US, incarnation=WALL_MS + INCARNATION_AHEAD_MS_MAX + 1, status=Status.FAULTY),
        replace(A, incarnation=INTEGER_MAX, status=Status.FAULTY),
    )

    assert [type(effect) for effect in effects] == [PeerTrouble, PeerTrouble]
    assert node.counts.incarnations_refused == 2


def test_a_refutation_of_the_highest_claim_is_believed() -> None:
    world = World(config=GossipConfig(suspect_s=60.0))
    nodes = world.start_cluster(3)
    highest = replace(
        nodes[1].local,
        incarnation=WALL_MS + world.now // 1000 + AHEAD_MS_MAX,
        status=Status.SUSPECT,
    )

    world.do(0, lambda node, now: told(node, highest, now=now))
    world.run(5)

    rows = [node.members.get(highest.name) for node in nodes]
    assert {(r.status, r.incarnation > highest.incarnation) for r in rows if r} == {
        (Status.ALIVE, True)
    }
    assert world.converged()


def test_a_node_that_left_stays_so_when_it_refutes() -> None:
    node = lone()
    node.leave(0)

    told(node, row(0, WALL_MS + 9, Status.FAULTY))

    assert node.local == row(0, WALL_MS + 10, Status.LEAVE)


def test_a_node_that_evicts_itself_refutes_no_more() -> None:
    node = lone()
    node.evict_self(0)

    assert told(node, row(0, WALL_MS + 9, Status.FAULTY)) == []


# Timers of statuses.


def test_an_alive_member_of_a_higher_incarnation_is_suspected_no_more() -> None:
    node = lone(A)
    told(node, row(1, WALL_MS, Status.SUSPECT))
    told(node, row(1, WALL_MS + 1))

    node.advance(60 * SECOND_US)

    assert status_of(node, A) is Status.ALIVE


def test_a_member_becomes_faulty_with_the_labels_it_has_by_then() -> None:
    labels = (("hello", "world"),)
    node = lone(A)
    told(node, row(1, WALL_MS, Status.SUSPECT))
    told(node, replace(row(1, WALL_MS, Status.SUSPECT), labels=labels))

    node.advance(5 * SECOND_US)

    assert node.members.get(A.name) == replace(row(1, WALL_MS, Status.FAULTY), labels=labels)


def test_an_evicted_member_leaves_neither_row_nor_gossip_nor_timer() -> None:
    node = lone(A)
    told(node, row(1, WALL_MS, Status.TOMBSTONE))

    effects = node.advance(60 * SECOND_US)

    gone = row(1, WALL_MS, Status.TOMBSTONE)
    assert effects == [StatusChanged(gone, None, "timer", US.name, US.name)]
    assert node._rows.dissemination.pending() == ()
    assert len(node._rows._status_timers) == 0
    assert node.next_deadline is None


def test_members_beyond_the_limit_are_counted_and_not_added() -> None:
    node = lone(config=GossipConfig(members_max=2))

    told(node, A, B)
    told(node, row(1, WALL_MS + 1))

    assert [m.name for m in node.members] == [US.name, A.name]
    assert node.counts.members_over_limit == 1
    assert node.local.incarnation == WALL_MS


def test_reaping_makes_tombstones_of_the_faulty() -> None:
    faulty, left = row(1, WALL_MS, Status.FAULTY), row(2, WALL_MS, Status.LEAVE)
    nodes = [lone(faulty, left, C, dialect=dialect) for dialect in (RINGPOP, NATIVE)]

    for node in nodes:
        node.reap(0)

    assert [status_of(nodes[0], m) for m in (A, B, C)] == [
        Status.TOMBSTONE,
        Status.LEAVE,
        Status.ALIVE,
    ]
    assert [status_of(nodes[1], m) for m in (A, B, C)] == [
        Status.TOMBSTONE,
        Status.TOMBSTONE,
        Status.ALIVE,
    ]


def test_reaping_one_member_leaves_the_others_and_one_that_has_come_back() -> None:
    faulty, suspect = row(1, WALL_MS, Status.FAULTY), row(2, WALL_MS, Status.SUSPECT)
    node, back = lone(faulty, suspect, C), row(1, WALL_MS + 1)

    node.reap(0, suspect)
    told(node, back)
    node.reap(0, faulty)

    assert [status_of(node, m) for m in (A, B)] == [Status.ALIVE, Status.TOMBSTONE]


# Probes.


def failed_probe(node: Node) -> list[CallPeer]:
    """Let a probe of A fail; the calls to its helpers."""
    while True:
        (ping,) = calls_in(node.tick(0))
        if ping.to == A.address:
            return calls_in(node.receive(Failed(ping.call_id, "timeout"), 1))
        node.receive(Answered(ping.call_id, Ack("", 0, None)), 0)


def test_of_two_nodes_the_one_that_gets_no_answer_suspects_the_other() -> None:
    node = lone(A)

    assert failed_probe(node) == []
    assert status_of(node, A) is Status.SUSPECT


def test_a_failed_ping_is_tried_through_three_helpers_at_once() -> None:
    node = lone(A, B, C, D, row(5))

    calls = failed_probe(node)

    assert len({call.to for call in calls}) == 3
    assert A.address not in {call.to for call in calls}
    requests = [call.request for call in calls if isinstance(call.request, PingReq)]
    assert {(request.target, request.target_address) for request in requests} == {
        (A.name, A.address)
    }


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([False, False], Status.SUSPECT),
        ([False, None], Status.SUSPECT),
        ([None, False], Status.SUSPECT),
        ([None, None], Status.ALIVE),
        ([True, False], Status.ALIVE),
        ([False, True], Status.ALIVE),
        ([None, True], Status.ALIVE),
    ],
)
def test_helpers_decide_by_their_nacks_not_by_their_failures(
    answers: list[bool | None], status: Status
) -> None:
    node = lone(A, B, C)

    for call, ping_ok in zip(failed_probe(node), answers, strict=True):
        if ping_ok is None:
            node.receive(Failed(call.call_id, "timeout"), 2)
        else:
            node.receive(Answered(call.call_id, PingReqAck(A.name, ping_ok)), 2)

    assert status_of(node, A) is status
    assert node.counts.probes_inconclusive == (answers == [None, None])
    assert len(node._calls) == 0


def test_the_probed_incarnation_is_suspected_not_one_that_came_meanwhile() -> None:
    node = lone(A, B)
    (call,) = failed_probe(node)
    told(node, row(1, WALL_MS + 5))

    node.receive(Answered(call.call_id, PingReqAck(A.name, ping_ok=False)), 2)

    assert node.members.get(A.name) == row(1, WALL_MS + 5)


def test_a_member_that_was_evicted_during_its_probe_does_not_come_back() -> None:
    node = lone(A, B, config=GossipConfig(tombstone_s=0.001))
    (call,) = failed_probe(node)
    told(node, row(1, WALL_MS, Status.TOMBSTONE))
    node.advance(2_000)

    node.receive(Answered(call.call_id, PingReqAck(A.name, ping_ok=False)), 2_001)

    assert node.members.get(A.name) is None


def test_a_ping_that_another_member_answers_has_failed() -> None:
    node = lone(A)
    (ping,) = calls_in(node.tick(0))
    news = MemberChange(member=row(3, WALL_MS, Status.FAULTY), source="x", source_incarnation=1)

    effects = node.receive(Answered(ping.call_id, ack_of(B, news)), 1)
    (again,) = calls_in(node.advance(100_001))
    node.receive(Answered(again.call_id, ack_of(B)), 100_002)

    assert status_of(node, A) is Status.SUSPECT
    assert StatusChanged(None, news.member, "ack", B.name, "x") in effects


def test_an_answer_after_the_timeout_changes_nothing() -> None:
    node = lone(A)
    (ping,) = calls_in(node.tick(0))
    node.advance(1_500_000)

    effects = node.receive(
        Answered(ping.call_id, ack_of(A, MemberChange(member=B, source="x", source_incarnation=1))),
        1_500_001,
    )

    assert effects == []
    assert node.members.get(B.name) is None


def test_while_a_probe_is_open_no_other_begins() -> None:
    node = lone(A, B)

    assert len(calls_in(node.tick(0))) == 1
    assert node.tick(1) == []


def test_a_helper_pings_the_target_and_says_whether_it_answered() -> None:
    node = lone(A, B)
    request = PingReq("test", B.name, *B.address, 1, node.members.checksum, A.name, *A.address)

    (yes,) = calls_in(ask(node, request))
    (no,) = calls_in(ask(node, request))
    said_yes = answer_in(node.receive(Answered(yes.call_id, ack_of(A)), 1))
    said_no = answer_in(node.advance(1_500_000))

    assert no.to == A.address
    assert said_yes == PingReqAck(A.name, ping_ok=True)
    assert said_no == PingReqAck(A.name, ping_ok=False, failure="timeout")
    assert status_of(node, A) is Status.ALIVE


def test_changes_count_as_sent_when_the_peer_has_answered() -> None:
    node = lone(A, config=GossipConfig(piggyback_factor=2))
    told(node, row(2, WALL_MS, Status.FAULTY))  # rides on the answer, once

    (ping,) = calls_in(node.tick(0))
    under_way = node._rows.dissemination.pending()
    node.receive(Answered(ping.call_id, ack_of(A)), 1)

    assert len(under_way) == 1
    assert node._rows.dissemination.pending() == ()


# Periods.


def test_periods_follow_an_absolute_schedule() -> None:
    world = World(RINGPOP)
    world.start_cluster(3)
    world.run(20)

    at = [at for at, _ in world.calls(0, Ping)][2:]

    assert {(b - a) for a, b in itertools.pairwise(at)} == {PERIOD_US}


def test_a_late_node_does_not_make_up_for_lost_periods() -> None:
    node = lone(A)
    node.start_gossip(0)
    late = 60 * SECOND_US

    effects = node.advance(late)

    assert len([c for c in calls_in(effects) if isinstance(c.request, Ping)]) <= 1
    assert node.next_deadline is not None
    assert node.next_deadline > late


def test_the_period_adapts_to_twice_the_median_probe() -> None:
    node = lone(A)
    ping = calls_in(node.start_gossip(0))
    now = 0
    for _ in range(20):
        now += 400_000
        for call in ping:
            node.receive(Answered(call.call_id, ack_of(A)), now)
        while not (ping := calls_in(node.advance(now))):
            assert node.next_deadline is not None
            now = node.next_deadline

    assert node.period_us == 800_000


def test_after_gossip_was_stopped_no_ping_goes_out_but_pings_are_answered() -> None:
    node = lone(A)
    node.start_gossip(0)
    node.stop_gossip(0)

    effects = node.advance(SECOND_US)

    assert calls_in(effects) == []
    assert isinstance(answer_in(ask(node, ping_from(A), SECOND_US)), Ack)


# Broken connections.


def gossiping(*others: Member, dialect: Dialect = NATIVE) -> Node:
    node = lone(*others, dialect=dialect)
    for call in calls_in(node.start_gossip(0)):
        node.receive(Answered(call.call_id, Ack("", 0, None)), 1)
    return node


def test_whose_connection_breaks_is_probed_at_once() -> None:
    node = gossiping(A, B, C)

    effects = node.receive(Disconnected(B.address), 10)

    assert [call.to for call in calls_in(effects)] == [B.address]


def test_a_peer_that_drops_every_connection_is_hurried_once_a_period() -> None:
    node = gossiping(A, B, C)
    pings = 0
    for now in range(10, 1000):
        for call in calls_in(node.receive(Disconnected(B.address), now)):
            pings += 1
            node.receive(Answered(call.call_id, ack_of(B)), now)

    assert pings == 1


def test_connections_of_strangers_and_of_the_dead_do_not_matter() -> None:
    node = gossiping(A, row(2, WALL_MS, Status.FAULTY))

    assert node.receive(Disconnected(B.address), 10) == []
    assert node.receive(Disconnected(C.address), 10) == []


def test_the_ringpop_dialect_leaves_broken_connections_to_the_rotation() -> None:
    node = gossiping(A, dialect=RINGPOP)

    assert node.receive(Disconnected(A.address), 10) == []


# Exchanges.


def test_an_exchange_is_one_ping_at_a_time() -> None:
    node = lone(A)

    first = calls_in(node.exchange(A.name, 0))
    meanwhile = node.exchange(A.name, 1)
    node.receive(Answered(first[0].call_id, ack_of(A)), 2)
    again = calls_in(node.exchange(A.name, 3))

    assert [call.to for call in first] == [call.to for call in again] == [A.address]
    assert meanwhile == []


@pytest.mark.parametrize("name", [US.name, B.name])
def test_there_is_no_exchange_with_ourselves_or_a_stranger(name: str) -> None:
    assert lone(A).exchange(name, 0) == []


def test_the_ringpop_dialect_pings_nobody_out_of_turn() -> None:
    assert lone(A, dialect=RINGPOP).exchange(A.name, 0) == []


# The operator's surface.


def test_leaving_takes_a_new_incarnation_and_is_the_one_change_to_tell() -> None:
    node = lone(A)

    effects = node.leave(5_000)

    after = row(0, WALL_MS + 5, Status.LEAVE)
    assert effects == [StatusChanged(US, after, "local", US.name, US.name)]
    ack = answer_in(ask(node, ping_from(A, checksum=node.members.checksum), 5_000))
    assert isinstance(ack, Ack)
    assert [change.member for change in ack.changes] == [after]


def test_rejoining_without_having_left_does_nothing() -> None:
    assert lone(A).rejoin(0) == []


def test_incarnations_rise_even_within_a_millisecond() -> None:
    node = lone()

    node.leave(0)
    node.rejoin(0)

    assert node.local == row(0, WALL_MS + 2)


def test_labels_replace_ours_under_a_new_incarnation() -> None:
    node = lone()

    node.set_labels((("zone", "a"),), 0)

    assert node.local == replace(row(0, WALL_MS + 1), labels=(("zone", "a"),))


def test_alone_a_node_is_evicted_at_once_and_only_once() -> None:
    node = lone()

    assert node.evict_self(0)[-1] == Evicted()
    assert node.evict_self(1) == []


def test_farewells_that_nobody_answers_end_by_their_timeout() -> None:
    node = lone(A, B)
    begun = node.evict_self(0)

    effects = node.advance(1_500_000)

    assert Evicted() not in begun
    assert effects == [Evicted()]
    assert node.next_deadline is None


# Turmoil.


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_after_any_turmoil_nothing_is_left_open(dialect: Dialect, seed: int) -> None:
    world = World(dialect, seed=seed, config=QUICK)
    world.start_cluster(6)
    rng = random.Random(seed)
    for _ in range(6):
        victim = rng.randrange(1, 6)
        if victim in world.sim.at:
            world.crash(victim, silently=rng.randrange(2) == 0)
        else:
            world.start(victim, range(6))
        world.run(rng.uniform(0.1, 4))
    for index in range(6):
        if index not in world.sim.at:
            world.start(index, range(6))
    world.run_until(world.converged, within_s=40)

    world.run(10)

    for node in world.nodes:
        assert len(node._calls) <= 2
        assert len(node._rows._status_timers) == 0
        assert len(node._rows.dissemination) == 0
        assert node._prober._urgent == {}
        assert node._answerer._reverse_full_syncs_open == 0
        assert node._syncer._open == set()
        assert len(node._core.timers) < 100
        node.members._check()


def test_members_that_do_not_answer_do_not_slow_the_others_down() -> None:
    world = World(NATIVE, config=GossipConfig(local_health=False))
    world.start_cluster(3)
    world.split([0], [1, 2])

    world.run(20)

    assert world.sim.at[0].node.period_us == 200_000


@BOTH
def test_a_node_that_comes_later_is_spread_by_gossip(dialect: Dialect) -> None:
    world = World(dialect)
    world.start_cluster(10)

    world.start(10, [0])

    assert world.run_until(world.converged, within_s=4) < 4


@BOTH
def test_a_paused_member_comes_back_with_a_higher_incarnation(dialect: Dialect) -> None:
    world = World(dialect, config=dataclasses.replace(QUICK, faulty_s=60.0))
    world.start_cluster(5)
    world.run(3)
    world.sim.pause(world.sim.at[2])
    world.run_until(world.all_see(2, Status.FAULTY), within_s=15)

    world.sim.resume(world.sim.at[2])

    world.run_until(world.converged, within_s=10)
    refuted = world.effects(2, Refuted)
    assert refuted
    assert all(
        e.now.incarnation > e.accusation.incarnation for _, e in refuted if isinstance(e, Refuted)
    )
    assert all(world.status(2, other) is Status.ALIVE for other in range(5))
