"""Healing: two sides that hold each other for faulty become one cluster again."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import PRESETS, GossipConfig
from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import (
    AnswerPeer,
    CallPeer,
    Effect,
    Healed,
    HostsWanted,
    StatusChanged,
)
from ringpop_py.member.swim.healer import FAILURES_MAX, Apart, Healing, apart
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Ack, Join, MemberChange, Ping, PingReq, PingReqAck
from ringpop_py.member.swim.node import Node
from ringpop_py.member.swim.passes import Pass, contradictions
from ringpop_py.member.swim.timers import SECOND_US
from ringpop_py.member.swim.waits import Due
from ringpop_sim.world.network import address_of
from tests.member.swim.nodes import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.waits import Deadline

LOOK_US = 2 * SECOND_US  # `heal_fast_s`
A, B, C = (Address(f"10.0.0.{number}", 3000) for number in (1, 2, 3))


def row(incarnation: int, status: Status) -> Member:
    return Member("a", *A, incarnation, status)


@pytest.mark.parametrize("status", [Status.FAULTY, Status.TOMBSTONE])
def test_a_member_dead_to_us_and_alive_to_them_is_a_suspicion_for_them(
    status: Status,
) -> None:
    ours = [row(2, status)]

    for_us, for_them = contradictions(ours, [row(2, Status.ALIVE)])

    assert for_us == []
    assert for_them == [MemberChange(member=row(2, Status.SUSPECT))]


def test_a_member_alive_to_us_and_dead_to_them_is_a_suspicion_for_us() -> None:
    ours = [row(2, Status.ALIVE)]

    for_us, for_them = contradictions(ours, [row(3, Status.FAULTY)])

    assert for_us == [MemberChange(member=row(3, Status.SUSPECT))]
    assert for_them == []


def test_a_suspicion_is_of_the_process_that_can_refute_it() -> None:
    elsewhere = replace(row(3, Status.FAULTY), host=B.host, port=B.port)

    for_us, _ = contradictions([row(2, Status.ALIVE)], [elsewhere])
    _, for_them = contradictions([elsewhere], [row(2, Status.ALIVE)])

    assert for_us == for_them == [MemberChange(member=row(3, Status.SUSPECT))]


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (row(2, Status.FAULTY), row(3, Status.ALIVE)),  # theirs is newer: merging will do
        (row(2, Status.ALIVE), row(2, Status.SUSPECT)),
        (row(2, Status.LEAVE), row(2, Status.ALIVE)),  # it said so itself
        (row(2, Status.FAULTY), row(2, Status.FAULTY)),
    ],
)
def test_rows_that_do_not_contradict_need_no_refutation(mine: Member, theirs: Member) -> None:
    assert contradictions([mine], [theirs]) == ([], [])


def test_a_run_skips_who_the_reached_side_can_reach() -> None:
    healing = Healing([A, B])
    assert healing.next_target() == B

    healing.met(B, Pass.UNFINISHED, [row(1, Status.ALIVE)])

    assert healing.next_target() is None
    assert healing.result() == Healed((B,))


def test_a_run_ends_after_too_many_failures() -> None:
    healing = Healing([A] * 100)

    while (target := healing.next_target()) is not None:
        healing.met(target, Pass.FAILED, [])

    assert healing.result() == Healed(failed=(A,) * FAILURES_MAX)


def test_a_run_says_with_whom_the_lists_are_one_now_and_who_did_not_answer() -> None:
    healing = Healing([C, B, A])

    healing.met(A, Pass.MERGED, [])
    healing.met(B, Pass.FAILED, [])
    healing.met(C, Pass.UNFINISHED, [])

    assert healing.result() == Healed(targets=(A, C), merged=(A,), failed=(B,))


GOSSIP = ("ping", "ack", "ping-req")


def is_run(effect: object) -> bool:
    return isinstance(effect, Healed) and effect.is_run


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP])
def test_a_full_split_heals_in_two_runs(dialect: Dialect) -> None:
    world = split(dialect, heal_period_s=1_000)

    for _ in range(2):
        world.do(0, lambda node, now: node.heal(now))
        world.run(1)

    world.run_until(world.converged, within_s=5)
    (_, first), (_, second) = (e for e in world.effects(0, Healed) if is_run(e[1]))
    assert isinstance(first, Healed)
    assert set(first.targets) <= {address_of(i) for i in (2, 3, 4)}
    assert first.targets
    assert first.merged == ()  # each side has to refute first
    assert isinstance(second, Healed)
    assert second.merged == second.targets != ()


def test_a_cluster_in_one_piece_is_left_alone() -> None:
    world = World()
    world.start_cluster(3)

    world.do(0, lambda node, now: node.heal(now))
    world.run(1)

    assert [effect for _, effect in world.effects(0, Healed)] == [Healed(())]


# Hosts that discovery says later.


def find(world: World, index: int, hosts: Sequence[int]) -> None:
    """Have discovery list *hosts* for the node at *index*, now and later."""
    world.sim.hosts_of[index] = tuple(hosts)
    addresses = [address_of(host) for host in hosts]
    world.do(index, lambda node, now: node.hosts_read(addresses, now))


def alias(world: World, machine: int, index: int) -> None:
    """Let the address of *machine* lead to the process at *index* as well."""
    world.sim.network._machine_of[address_of(machine).host] = index


def no_more_discovery(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have discovery no longer answer."""
    monkeypatch.setattr(world.sim, "_hosts_read", lambda _argument: None)


def test_a_discovery_that_does_not_answer_does_not_keep_the_healer_from_the_hosts_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = split(RINGPOP)
    no_more_discovery(world, monkeypatch)

    world.run_until(world.converged, within_s=10 * world.config.heal_period_s)

    wanted = [at for index in range(5) for at, _ in world.effects(index, HostsWanted)]
    begun = [at for index in range(5) for at, _ in world.effects(index, Healed)]
    timeout_us = int(world.config.heal_timeout_s * 1_000_000)
    assert begun
    assert all(any(w + timeout_us <= at for w in wanted) for at in begun)


def test_hosts_that_come_too_late_begin_no_second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = split(RINGPOP)
    no_more_discovery(world, monkeypatch)
    world.run_until(
        lambda: bool(world.effects(0, Healed)), within_s=20 * world.config.heal_period_s
    )
    count = len(world.effects(0, Healed))

    world.do(0, lambda node, now: node.hosts_read([address_of(7)], now))
    world.run(1)

    assert len(world.effects(0, Healed)) == count


# Fast healing.


def sides_of(shape: str, count: int) -> list[list[int]]:
    everyone = list(range(count))
    match shape:
        case "one":
            return [everyone[:1], everyone[1:]]
        case "half":
            return [everyone[: count // 2], everyone[count // 2 :]]
        case _:
            return [everyone[0::3], everyone[1::3], everyone[2::3]]


def changes_a_message(world: World) -> list[int]:
    messages = [
        effect.request if isinstance(effect, CallPeer) else effect.response
        for _, _, effect in world.trace
        if isinstance(effect, CallPeer | AnswerPeer)
    ]
    return [len(m.changes) for m in messages if isinstance(m, Ping | PingReq | Ack | PingReqAck)]


def faulty_after(world: World, at: int) -> list[StatusChanged]:
    """Return the members that any node declared faulty after *at*."""
    return [
        effect
        for when, _, effect in world.trace
        if when > at
        and isinstance(effect, StatusChanged)
        and effect.after
        and effect.after.status is Status.FAULTY
    ]


@pytest.mark.parametrize(
    ("count", "shape", "cut_s"),
    [
        (2, "half", 15),
        (3, "one", 40),
        (5, "half", 75),
        (10, "three", 40),
    ],
)
def test_the_sides_of_a_cut_are_one_again_within_five_seconds(
    count: int, shape: str, cut_s: int
) -> None:
    world = World(config=PRESETS["lan"], seed=cut_s)
    world.start_cluster(count)
    sides = sides_of(shape, count)
    world.split(*sides)
    world.run(cut_s)
    complete = all(
        world.status(one, other) is Status.FAULTY and world.status(other, one) is Status.FAULTY
        for here, there in itertools.combinations(sides, 2)
        for one, other in itertools.product(here, there)
    )
    told = all(len(node._rows.dissemination) == 0 for node in world.nodes)
    mended_at = world.now

    world.heal()
    world.run_until(world.converged, within_s=5)

    world.run(10)
    assert world.converged()
    declared = faulty_after(world, mended_at)
    assert all(effect.via != "heal" for effect in declared)
    if complete:  # else suspicions of the time of the cut may still end, as they do anywhere
        under_way = () if told else GOSSIP  # what was said during the cut may still come
        assert [effect for effect in declared if effect.via not in under_way] == []


@pytest.mark.parametrize("shape", ["half", "three"])
def test_lists_too_long_for_a_message_heal_in_bounded_ones(shape: str) -> None:
    config = dataclasses.replace(PRESETS["lan"], sync_rows_max=128, changes_max=4)
    world = World(config=config, seed=1)
    nodes = world.start_cluster(10)
    gone = [Member(f"gone-{i}", *address_of(1000 + i), 1, Status.LEAVE) for i in range(400)]
    for node in nodes:
        node._rows.merge(gone, world.now, told_by="the test")
    world.split(*sides_of(shape, 10))
    world.run(120)  # small sides blame themselves for the silence of the others, and are slow
    mended_at = world.now

    world.heal()
    world.run_until(world.converged, within_s=10)

    world.run(10)
    assert world.converged()
    assert faulty_after(world, mended_at) == []
    assert max(changes_a_message(world)) <= 4


@pytest.mark.parametrize("count", [10, 20])
def test_the_load_of_healing_does_not_grow_with_the_cluster(count: int) -> None:
    world = World(config=PRESETS["lan"])
    world.start_cluster(count)
    for index in range(count // 2):
        world.crash(index, silently=True)
    world.run(150)
    begin = world.now

    world.run(60)

    joins = [
        effect
        for at, _, effect in world.trace
        if at > begin and isinstance(effect, CallPeer) and isinstance(effect.request, Join)
    ]
    # Three tries each 2 s, by chance.
    assert 45 <= len(joins) <= 135


def test_a_few_machines_that_are_gone_for_long_are_tried_rarely() -> None:
    world = World(config=PRESETS["lan"])
    world.start_cluster(10)
    world.crash(0, silently=True)
    world.run(150)
    begin = world.now

    world.run(180)

    joins = [
        effect
        for at, _, effect in world.trace
        if at > begin and isinstance(effect, CallPeer) and isinstance(effect.request, Join)
    ]
    assert 6 <= len(joins) <= 36  # three each 30 s, by chance


def test_a_reached_host_under_another_address_is_not_asked_for_ever() -> None:
    world = World(config=PRESETS["lan"])
    world.start_cluster(3)
    alias(world, 50, 1)
    for index in range(3):
        find(world, index, [50])
    world.run(20)
    begin = world.now

    world.run(60)

    assert not [
        effect
        for at, _, effect in world.trace
        if at > begin and isinstance(effect, CallPeer) and effect.to == address_of(50)
    ]


def test_hosts_that_are_nobody_strangers_or_ourselves_do_not_keep_us_from_starting() -> None:
    world = World(config=PRESETS["lan"])
    world.start(7, [7], cluster="another")
    alias(world, 50, 0)
    alias(world, 51, 1)

    first = world.start(0, [7, 50, 99, 98, 1])
    second = world.start(1, [51, 7, 97, 0])

    world.run(10)
    assert first.ready
    assert first.members.checksum == second.members.checksum
    assert len(first.members) == 2


def test_a_host_that_joins_late_from_a_side_that_gave_us_up_declares_nobody_faulty() -> None:
    world = World(config=PRESETS["lan"])
    world.start_cluster(6)
    for index in range(6):
        find(world, index, [])
    world.split(range(3), range(3, 6))
    world.run(60)
    mended_at = world.now

    world.heal()
    find(world, 0, [4])

    world.run_until(world.converged, within_s=5)
    assert faulty_after(world, mended_at) == []


# Who is apart.


def test_hosts_without_a_present_member_and_those_given_up_are_apart() -> None:
    rows = [
        Member("us", *address_of(0), 1),
        Member("b", *address_of(1), 1),
        Member("dead", *address_of(2), 1, Status.FAULTY),
    ]

    found = apart(rows, [address_of(1), address_of(3)], [address_of(4)], {}, 0.9)

    assert found == Apart((address_of(3), address_of(2)), (address_of(4),), many=False)


def test_an_address_at_which_somebody_else_is_present_now_is_not_apart() -> None:
    rows = [
        Member("us", *address_of(0), 1),
        Member("dead", *address_of(2), 1, Status.FAULTY),
        Member("new", *address_of(2), 1),
    ]

    assert apart(rows, [], [address_of(2)], {}, 0.25) == Apart((), (), many=False)


def test_a_host_that_answered_as_a_present_member_is_not_apart() -> None:
    rows = [Member("us", *address_of(0), 1), Member("b", *address_of(1), 1)]
    aliases = {address_of(9): "b", address_of(8): "gone"}

    found = apart(rows, [address_of(9), address_of(8)], [], aliases, 0.25)

    assert found.known == (address_of(8),)


@pytest.mark.parametrize(
    ("gone", "share", "many"), [(1, 0.25, True), (1, 0.26, False), (2, 0.5, True)]
)
def test_a_large_part_is_a_share_of_the_members(gone: int, share: float, *, many: bool) -> None:
    rows = [
        Member(str(i), *address_of(i), 1, Status.FAULTY if i < gone else Status.ALIVE)
        for i in range(4)
    ]

    assert apart(rows, [], [], {}, share).many is many


def turning(monkeypatch: pytest.MonkeyPatch, preset: str) -> tuple[World, list[tuple[Node, int]]]:
    """A world in which each turn tries an address, and the times at which a node woke to look."""
    woken: list[tuple[Node, int]] = []
    do = Node._do

    def noted(node: Node, due: Deadline, now: int) -> None:
        if due is Due.HEAL_TURN:
            woken.append((node, now))
        do(node, due, now)

    monkeypatch.setattr(Node, "_do", noted)
    return World(config=dataclasses.replace(PRESETS[preset], heal_share=1e6)), woken


@pytest.mark.parametrize("preset", ["lan", "wan"])
def test_a_node_at_rest_wakes_for_its_turns_and_not_for_each_look(
    monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    world, woken = turning(monkeypatch, preset)
    nodes = world.start_cluster(5)
    world.run(60)
    began = world.now
    woken.clear()

    world.run(300)

    turns = [at for at, _ in world.effects(0, HostsWanted) if at > began]
    assert {after - at for at, after in itertools.pairwise(turns)} == {30 * SECOND_US}
    # One look more, if it comes before the period that plans it for the next turn.
    looks = [at for node, at in woken if node is nodes[0]]
    assert len(turns) == 10 <= len(looks) <= 20
    assert preset == "wan" or len(looks) == 10


@pytest.mark.parametrize("preset", ["lan", "wan"])
def test_a_faulty_member_is_tried_every_two_seconds_at_the_instants_of_each_node(
    monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    world, woken = turning(monkeypatch, preset)
    world.start_cluster(5)
    world.run(120)
    phases = {node: {at % LOOK_US for n, at in woken if n is node} for node in world.nodes}

    world.crash(4)
    world.run(100)

    for index, node in enumerate(world.nodes):
        faulty_at = next(at for at, e in world.effects(index, StatusChanged) if is_faulty(e))
        tried = [at for at, _ in world.calls(index, Join) if at > faulty_at]
        assert tried[0] <= faulty_at + LOOK_US
        assert {after - at for at, after in itertools.pairwise(tried)} == {LOOK_US}
        assert {at % LOOK_US for at in tried} == phases[node]
        assert len(tried) >= 45  # although the nodes rest again


def is_faulty(effect: Effect) -> bool:
    after = effect.after if isinstance(effect, StatusChanged) else None
    return after is not None and after.status is Status.FAULTY


def test_a_member_that_left_is_not_a_sign_of_a_split() -> None:
    rows = [Member("us", *address_of(0), 1), Member("b", *address_of(1), 1, Status.LEAVE)]

    found = apart(rows, [address_of(1)], [], {}, 0.25)

    assert found == Apart((address_of(1),), (), many=False)


def split(dialect: Dialect, *, heal_period_s: float = 30.0) -> World:
    """Two and three nodes that were cut off from each other just until all were faulty."""
    world = World(dialect, config=GossipConfig(heal_period_s=heal_period_s, fast_heal=False))
    world.start_cluster(5)
    world.split((0, 1), (2, 3, 4))
    world.run_until(
        lambda: all(
            world.status(one, other) is Status.FAULTY and world.status(other, one) is Status.FAULTY
            for one, other in itertools.product((0, 1), (2, 3, 4))
        ),
        within_s=120,
    )
    world.run(7)  # so that the last ping-reqs to the other side have been given up
    world.heal()
    return world


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP])
def test_a_full_split_heals_by_itself(dialect: Dialect) -> None:
    world = split(dialect)

    world.run_until(world.converged, within_s=5 * world.config.heal_period_s)


@pytest.mark.parametrize("shape", ["one", "half", "three"])
@pytest.mark.parametrize("knows_hosts", [True, False])
def test_a_cut_may_last_longer_than_a_tombstone(shape: str, *, knows_hosts: bool) -> None:
    world = World(config=dataclasses.replace(PRESETS["lan"], faulty_s=8, tombstone_s=4))
    world.start_cluster(9)
    if not knows_hosts:
        for index in range(9):
            find(world, index, [])
    sides = sides_of(shape, 9)
    world.split(*sides)
    world.run_until(
        lambda: all(
            None in (world.status(one, other), world.status(other, one))
            for here, there in itertools.combinations(sides, 2)
            for one, other in itertools.product(here, there)
        ),
        within_s=200,
    )

    world.heal()

    world.run_until(world.converged, within_s=5)
