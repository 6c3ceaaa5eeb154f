"""`membership.syncing`: two lists become one, with little said, in messages that are bounded."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.buckets import Buckets, bits_for
from ringpop_py.member.swim.effects import AnswerPeer, CallPeer, Effect, StatusChanged
from ringpop_py.member.swim.member import INCARNATION_AHEAD_MS_MAX, Member, Status
from ringpop_py.member.swim.messages import (
    Ack,
    Answered,
    Asked,
    Failed,
    Failure,
    Join,
    JoinAck,
    MemberChange,
    Ping,
    Refusal,
    Request,
    Response,
    Sync,
    SyncAck,
    packed_sums,
)
from ringpop_py.member.swim.node import Node
from ringpop_py.member.swim.syncer import DIFFERENCES_MAX
from ringpop_py.member.swim.timers import SECOND_US
from ringpop_py.member.swim.waits import ExchangePing, SyncCall
from ringpop_py.net.wire.codec import MsgpackCodec, endpoint_of
from ringpop_sim.world.network import address_of
from ringpop_sim.world.world import WALL_MS
from tests.member.swim.nodes import World

if TYPE_CHECKING:
    from ringpop_py.member.swim.calls import Outcome

ASKED = ExchangePing("the test")
"""A purpose of runs and pings from which nothing follows."""
MESSAGE_BYTES_MAX = 64 << 10
ROWS_MAX = GossipConfig().sync_rows_max
SMALL = GossipConfig(sync_rows_max=128)
CODEC = MsgpackCodec()


def row(index: int, incarnation: int = WALL_MS, status: Status = Status.ALIVE) -> Member:
    return Member(f"member-{index}", *address_of(index), incarnation, status)


US, PEER = row(0), row(1)
CROWD = [row(index) for index in range(2, 3000)]


def node_of(local: Member, *others: Member, config: GossipConfig | None = None) -> Node:
    """A node that knows *others*, with nothing to say, and whose own probes do not run."""
    node = Node(
        local,
        cluster="test",
        ring_points=100,
        dialect=NATIVE,
        config=config or GossipConfig(),
        rng=random.Random(local.name),
        now=0,
    )
    node.start([], 0)
    node.stop_gossip(0)
    node._rows.merge(others, 0, told_by="the test")
    node._rows.dissemination.forget(local.name)
    node._core.take_effects()
    return node


def end_of(node: Node, call: CallPeer, outcome: Outcome, now: int) -> Outcome | None:
    """Have a round of a run of *node* end. Returns: how the run has ended, if it has."""
    then = node._calls.close(call.call_id)
    assert isinstance(then, SyncCall)
    ended = node._syncer.answered(then.run, outcome, now)
    if ended is None:
        return None
    node._end(*ended, now)
    return ended[1]


@dataclass
class Pair:
    """Two nodes and a wire between them, which loses what it is told to, and notes all it carries.

    Calls to others than the two fail.
    """

    one: Node
    other: Node
    now: int = 0
    losses: set[int] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    events: list[Effect] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    _left: deque[tuple[Node, Effect]] = field(default_factory=deque)

    def carry(self, node: Node, effects: list[Effect]) -> None:
        """Carry out *effects* of *node*, and all that follows from them."""
        self._left.extend((node, effect) for effect in effects)
        while self._left:
            self._step(*self._left.popleft())

    def _step(self, node: Node, effect: Effect) -> None:
        if not isinstance(effect, CallPeer):
            self.events.append(effect)
            return
        other = self.other if node is self.one else self.one
        response = self._ask(other, effect.request) if effect.to == other.local.address else None
        if isinstance(effect.request, Sync):
            outcome = end_of(node, effect, response or Failure("timeout"), self.now)
            self.outcomes += [outcome] if outcome else []
            effects = node._core.take_effects()
        elif response:
            effects = node.receive(Answered(effect.call_id, response), self.now)
        else:
            effects = node.receive(Failed(effect.call_id, "timeout"), self.now)
        self._left.extend((node, e) for e in effects)

    def _ask(self, node: Node, request: Request) -> Response | None:
        body = CODEC.encode_request(request)
        if self._is_lost(body):
            return None
        came = CODEC.decode_request(endpoint_of(request), body)
        self.requests.append(came)
        effects = node.receive(Asked(1, came), self.now)
        (answer,) = [e for e in effects if isinstance(e, AnswerPeer)]
        self._left.extend((node, e) for e in effects if not isinstance(e, AnswerPeer))
        body = CODEC.encode_response(answer.response)
        if self._is_lost(body):
            return None
        ok = not isinstance(answer.response, Refusal)
        response = CODEC.decode_response(request, body, ok=ok)
        self.responses.append(response)
        return response

    def _is_lost(self, body: bytes) -> bool:
        self.sizes.append(len(body))
        return len(self.sizes) - 1 in self.losses

    def sync(self) -> Outcome:
        """Have the one begin a run. Returns: how it ended."""
        self.one._syncer.begin(self.other.local.address, ASKED, self.now)
        self.carry(self.one, self.one._core.take_effects())
        return self.outcomes[-1]

    def ping(self) -> None:
        """Have the one exchange what it knows, as a period does, but that it is one peer."""
        peer = self.one.members.get(self.other.local.name)
        assert peer is not None
        self.one._asker.ping(peer, ASKED, self.now)
        self.carry(self.one, self.one._core.take_effects())

    @property
    def agree(self) -> bool:
        return self.one.members.checksum == self.other.members.checksum

    @property
    def rows_sent(self) -> int:
        messages = [*self.requests, *self.responses]
        return sum(len(m.rows) for m in messages if isinstance(m, Sync | SyncAck))


def pair_of(ours: list[Member], theirs: list[Member]) -> Pair:
    return Pair(node_of(US, PEER, *ours), node_of(PEER, US, *theirs))


def rows_that_count(node: Node) -> list[Member]:
    rows = [member for member in node.members if member.status is not Status.TOMBSTONE]
    return sorted(rows, key=lambda member: member.name)


def sync_from(member: Member, bits: int, *sums: int, rows: tuple[Member, ...] = ()) -> Sync:
    return Sync(
        "test",
        100,
        member.name,
        *member.address,
        member.incarnation,
        bits,
        0,
        packed_sums(sums),
        rows,
    )


def ask(node: Node, request: Request) -> Response:
    (answer,) = [e for e in node.receive(Asked(1, request), 0) if isinstance(e, AnswerPeer)]
    return answer.response


def syncs_in(effects: list[Effect]) -> list[CallPeer]:
    return [e for e in effects if isinstance(e, CallPeer) and isinstance(e.request, Sync)]


# When.


def test_with_equal_checksums_nothing_is_sent() -> None:
    pair = pair_of(CROWD, CROWD)

    pair.ping()

    assert [type(request) for request in pair.requests] == [Ping]
    assert max(pair.sizes) < 100
    assert pair.one.counts.delta_syncs == pair.other.counts.delta_syncs == 0


def test_an_answer_that_shows_another_list_begins_a_sync_and_never_is_one() -> None:
    pair = pair_of(CROWD, CROWD[:-1])

    pair.ping()

    assert isinstance(pair.responses[0], Ack)
    assert pair.responses[0].changes == ()
    assert pair.agree
    assert pair.one.counts.delta_syncs == 1
    assert pair.other.counts.syncs_received == len(pair.requests) - 1
    assert pair.other.counts.full_syncs == 0


def test_while_there_is_news_it_goes_first() -> None:
    pair = pair_of(CROWD, CROWD[:-1])
    pair.one._rows.dissemination.record(
        MemberChange(member=row(5), source="somebody", source_incarnation=1)
    )

    pair.ping()

    assert [type(request) for request in pair.requests] == [Ping]


def test_an_exchange_syncs_in_spite_of_news() -> None:
    pair = pair_of(CROWD, CROWD[:-1])
    pair.one._rows.dissemination.record(
        MemberChange(member=row(5), source="somebody", source_incarnation=1)
    )

    pair.carry(pair.one, pair.one.exchange(PEER.name, 0))

    assert pair.agree


def test_news_without_end_does_not_keep_lists_apart_for_ever() -> None:
    pair = pair_of(CROWD, CROWD[:-1])
    pings = 0

    while not pair.agree:
        pair.one._rows.dissemination.record(
            MemberChange(member=row(5), source="somebody", source_incarnation=1)
        )
        pair.ping()
        pings += 1

    assert pings == DIFFERENCES_MAX


def test_one_peer_is_synced_with_once_a_period() -> None:
    pair = pair_of([row(2, WALL_MS + 2 * INCARNATION_AHEAD_MS_MAX)], [])
    pair.one.members.put(
        row(2, WALL_MS + 2 * INCARNATION_AHEAD_MS_MAX)
    )  # which the peer never takes

    begun = []
    for now in (0, 1000, 199_999, 200_000):
        pair.now = now
        pair.ping()
        begun.append(pair.one.counts.delta_syncs)

    assert begun == [1, 1, 1, 2]


def test_only_so_many_syncs_are_open_at_once() -> None:
    others = [row(index) for index in range(1, 8)]
    node = node_of(US, *others)

    for other in others:
        node._syncer.heard(other.address, 1, 0, quiet=True)
    counts = dataclasses.replace(node.counts)
    node.advance(SECOND_US)  # all time out
    node._syncer.heard(others[0].address, 1, SECOND_US, quiet=True)

    assert (counts.delta_syncs, counts.delta_syncs_omitted) == (5, 2)
    assert node.counts.delta_syncs == 6


def test_a_node_on_its_way_out_begins_no_sync() -> None:
    node = node_of(US, PEER)
    node.evict_self(0)

    node._syncer.heard(PEER.address, 1, 0, quiet=True)

    assert syncs_in(node._core.take_effects()) == []


def test_without_delta_sync_the_list_rides_on_the_answer() -> None:
    config = dataclasses.replace(GossipConfig(), delta_sync=False)
    pair = Pair(node_of(US, PEER, config=config), node_of(PEER, US, row(2), config=config))

    pair.ping()

    assert pair.agree
    assert {type(request) for request in pair.requests} == {Ping, Join}


# What is said.


def test_few_differences_cost_a_few_buckets_not_the_list() -> None:
    ours = [replace(m, incarnation=WALL_MS + (i % 1000 == 7)) for i, m in enumerate(CROWD)]
    theirs = [m for m in CROWD if m not in (CROWD[20], CROWD[1020])]
    pair = pair_of(ours, theirs)

    pair.sync()

    bucket_max = max(
        len(Buckets(pair.one.members, 7, NATIVE).names[bucket]) for bucket in range(1 << 7)
    )
    assert bits_for(3000) == 7
    assert pair.agree
    assert 5 <= pair.rows_sent < 5 * bucket_max + 5
    assert sum(pair.sizes) < 16_000


def test_changes_from_a_sync_do_not_ride_on() -> None:
    pair = pair_of([row(2)], [row(3)])

    pair.sync()

    assert pair.agree
    assert pair.one._rows.dissemination.pending() == ()
    assert pair.other._rows.dissemination.pending() == ()


def test_changes_from_a_sync_are_reported_without_a_source() -> None:
    accusation = row(2, status=Status.SUSPECT)
    pair = pair_of([row(2)], [accusation])

    pair.sync()

    assert pair.events == [StatusChanged(row(2), accusation, "full-sync", PEER.name, "")]


def test_an_accusation_of_ourselves_in_a_sync_is_refuted_immediately() -> None:
    accusation = replace(US, status=Status.FAULTY)
    one, other = node_of(US, PEER), node_of(PEER, accusation)
    pair = Pair(one, other)

    pair.sync()

    assert pair.agree
    assert other.members.get(US.name) == one.local
    assert one.local.incarnation > US.incarnation
    assert [c.member for c in one._rows.dissemination.pending()] == [one.local]


def test_a_tombstone_replaces_what_it_buries_and_is_not_imported() -> None:
    dead, unknown = row(2, status=Status.TOMBSTONE), row(3, status=Status.TOMBSTONE)
    pair = pair_of([row(2), row(3)], [row(2, status=Status.FAULTY)])
    pair.one.members.put(dead)
    pair.one.members.put(unknown)

    pair.sync()

    assert pair.agree
    assert pair.other.members.get(dead.name) == dead
    assert pair.other.members.get(unknown.name) is None


@pytest.mark.parametrize(("ours", "theirs"), [(0, 2998), (2998, 0), (1500, 1500), (40, 2998)])
def test_lists_of_any_size_meet_in_bounded_messages(ours: int, theirs: int) -> None:
    pair = pair_of(CROWD[:ours], CROWD[len(CROWD) - theirs :])

    end = pair.sync()

    assert isinstance(end, SyncAck)
    assert pair.agree
    assert max(pair.sizes) < MESSAGE_BYTES_MAX
    assert all(
        len(message.rows) <= ROWS_MAX
        for message in [*pair.requests, *pair.responses]
        if isinstance(message, Sync | SyncAck)
    )
    assert len(pair.requests) <= 2 + 2 * (len(CROWD) // ROWS_MAX + 1)


View = tuple[int, Status, int]
views = st.none() | st.tuples(st.integers(0, 2), st.sampled_from(Status), st.integers(0, 2))


@settings(max_examples=100)
@given(st.dictionaries(st.integers(2, 3000), st.tuples(views, views), max_size=400))
def test_after_any_divergence_one_run_makes_the_lists_one(
    views_of: dict[int, tuple[View | None, View | None]],
) -> None:
    one, other = (node_of(*rows, config=SMALL) for rows in ((US, PEER), (PEER, US)))
    for index, (ours, theirs) in views_of.items():
        for node, view in ((one, ours), (other, theirs)):
            if view is not None:
                incarnation, status, damping = view
                node.members.put(replace(row(index, incarnation, status), damping=damping))
    pair = Pair(one, other)

    end = pair.sync()

    assert isinstance(end, SyncAck)
    assert pair.agree
    assert rows_that_count(one) == rows_that_count(other)


def test_names_made_for_one_bucket_are_synced_by_and_by() -> None:
    crafted = [row(i) for i in range(2, 40_000) if NATIVE.hash_key(row(i).name) >> 57 == 0]
    one, other = node_of(US, PEER, *crafted, config=SMALL), node_of(PEER, US, config=SMALL)
    pair = Pair(one, other)
    assert len(crafted) > 2 * SMALL.sync_rows_max

    runs = 0
    while not pair.agree and runs < 100:
        pair.sync()
        pair = Pair(pair.other, pair.one)
        runs += 1

    assert pair.agree


# What goes wrong.


@pytest.mark.parametrize("lost", range(8))
def test_whatever_message_is_lost_another_run_goes_on(lost: int) -> None:
    pair = pair_of(CROWD[:1500], CROWD[1000:2500])
    pair.losses = {lost}

    first, second = pair.sync(), pair.sync()

    assert first == Failure("timeout")
    assert isinstance(second, SyncAck)
    assert pair.agree
    assert len(pair.one._calls) == 0


@pytest.mark.parametrize(
    "refused", [{"cluster": "other"}, {"ring_points": 50}], ids=["cluster", "ring points"]
)
def test_a_stranger_learns_and_changes_nothing(refused: dict[str, object]) -> None:
    node = node_of(US, PEER)
    request = replace(sync_from(PEER, 0, 1, rows=(row(2),)), **refused)

    response = ask(node, request)

    assert isinstance(response, Refusal)
    assert len(node.members) == 2


def test_a_bucket_that_does_not_fit_comes_in_parts_by_chance() -> None:
    node = node_of(US, PEER, *CROWD)
    buckets = Buckets(node.members, 0, NATIVE)

    rows = []
    for _ in range(2):
        _, whole, names = node._syncer._fitting(buckets, [0])
        assert (len(names), whole) == (ROWS_MAX, ())
        rows.append(names)

    assert rows[0] != rows[1]


BAD_ACKS = [
    SyncAck(PEER.name, 1, 0, 1),  # coarser than asked
    SyncAck(PEER.name, 1, 7, 0),  # no step forward
    SyncAck(PEER.name, 1, 13, 1 << 13),  # finer than the largest cluster needs
]


@pytest.mark.parametrize("ack", BAD_ACKS)
def test_an_answer_that_does_not_fit_ends_the_run(ack: SyncAck) -> None:
    node = node_of(US, PEER, *CROWD)
    node._syncer.begin(PEER.address, ASKED, 0)
    (call,) = syncs_in(node._core.take_effects())

    end = end_of(node, call, ack, 1)

    assert node._core.take_effects() == []
    assert end == Failure("failed", "answered with other buckets")


def test_a_peer_that_never_comes_to_an_end_is_left_in_time() -> None:
    config = dataclasses.replace(GossipConfig(), members_max=4000, sync_rows_max=4000)
    node = node_of(US, PEER, *CROWD, config=config)
    node._syncer.begin(PEER.address, ASKED, 0)
    calls = syncs_in(node._core.take_effects())

    while not (end := end_of(node, calls[-1], SyncAck(PEER.name, 1, 7, len(calls)), 1)):
        calls += syncs_in(node._core.take_effects())

    assert end == Failure("failed", "not within its rounds")
    assert len(calls) == 8


# Reading.


def test_a_node_can_read_the_differences_without_merging_them() -> None:
    ours, theirs = CROWD[:1500], [replace(m, status=Status.FAULTY) for m in CROWD[1000:2500]]
    pair = pair_of(ours, theirs)
    before = pair.one.members.checksum, pair.other.members.checksum

    pair.one._syncer.begin(PEER.address, ASKED, 0, reads_only=True)
    pair.carry(pair.one, pair.one._core.take_effects())

    (ack,) = pair.outcomes
    assert isinstance(ack, SyncAck)
    assert {m.name for m in theirs} <= {m.name for m in ack.rows}
    assert len({m.name for m in ack.rows}) == len(ack.rows)
    assert (pair.one.members.checksum, pair.other.members.checksum) == before


def test_a_node_reads_no_more_rows_than_there_can_be_members() -> None:
    node = node_of(US, PEER, config=dataclasses.replace(SMALL, members_max=3000))
    node._syncer.begin(PEER.address, ASKED, 0, reads_only=True)
    (call,) = syncs_in(node._core.take_effects())
    first, second = (SyncAck(PEER.name, 1, 7, until, (), tuple(CROWD[:1600])) for until in (1, 2))

    assert end_of(node, call, first, 1) is None
    (call,) = syncs_in(node._core.take_effects())
    end = end_of(node, call, second, 1)

    assert end == Failure("failed", "answered with more rows than there can be members")


# Joining.


def test_a_list_too_long_for_a_message_is_cut_to_whom_a_newcomer_can_turn_to() -> None:
    faulty = [replace(m, status=Status.FAULTY) for m in CROWD[:2700]]
    node = node_of(US, *faulty, *CROWD[2700:])

    ack = ask(node, Join("test", 100, PEER.name, *PEER.address, 1, 1000))

    assert isinstance(ack, JoinAck)
    assert ack.more
    assert ack.members[0] == US
    assert len({m.name for m in ack.members}) == ROWS_MAX
    reachable = {m.name for m in CROWD[2700:]}
    assert {m.name for m in ack.members[1 : 1 + len(reachable)]} == reachable


def test_a_list_that_fits_is_whole() -> None:
    node = node_of(US, *CROWD[: ROWS_MAX - 1])

    ack = ask(node, Join("test", 100, PEER.name, *PEER.address, 1, 1000))

    assert isinstance(ack, JoinAck)
    assert not ack.more
    assert ack.members == (US, *CROWD[: ROWS_MAX - 1])


def world_of_many(count: int, holders: int = 3) -> World:
    """Nodes that no longer gossip and hold a list of *count* members, most of them made up."""
    world = World(NATIVE)
    nodes = world.start_cluster(holders)
    crowd = [row(index) for index in range(10, 10 + count - holders)]
    for index, node in enumerate(nodes):
        world.do(index, Node.stop_gossip)
        node._rows.merge(crowd, world.now, told_by="the test")
        node._core.take_effects()
    assert agree(world)
    world.trace.clear()
    return world


def agree(world: World) -> bool:
    return len({node.members.checksum for node in world.nodes}) == 1


def message_sizes(world: World) -> list[int]:
    sizes = []
    for _, _, effect in world.trace:
        if isinstance(effect, CallPeer):
            sizes.append(len(CODEC.encode_request(effect.request)))
        elif isinstance(effect, AnswerPeer):
            sizes.append(len(CODEC.encode_response(effect.response)))
    return sizes


def test_a_node_that_joins_many_is_ready_with_the_full_list_within_a_second() -> None:
    world = world_of_many(5000)

    joiner = world.start(3, range(3))
    took_s = world.run_until(lambda: joiner.ready, within_s=1)

    assert len(joiner.members) == 5001
    assert took_s < 0.1
    assert max(message_sizes(world)) < MESSAGE_BYTES_MAX
    assert sum(message_sizes(world)) < 8 * 5000 * 60


def test_a_joiner_whose_host_dies_gets_the_rest_of_another() -> None:
    world = world_of_many(2000)
    joiner = world.start(3, range(3))
    world.run_until(lambda: joiner.counts.delta_syncs == 1, within_s=1)
    (_, first), *_ = world.calls(3, Sync)

    dying = next(index for index in range(3) if address_of(index) == first.to)
    world.crash(dying)
    world.run_until(lambda: joiner.ready, within_s=2)

    assert joiner.counts.delta_syncs == 2
    assert len(joiner.members) == 2001


# At rest.


def test_a_cluster_at_rest_neither_syncs_nor_tells() -> None:
    world = World(NATIVE)
    world.start_cluster(20)
    world.run(20)
    before = [node.counts.delta_syncs for node in world.nodes]
    world.trace.clear()

    world.run(20)

    assert [node.counts.delta_syncs for node in world.nodes] == before
    assert max(message_sizes(world)) < 100
