"""`membership.identity`: whose name it is, by single rows and in whole clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringpop_py.config import PRESETS
from ringpop_py.membership.effects import (
    Evicted,
    JoinRejected,
    NameTaken,
    PeerTrouble,
    StrangerRefused,
)
from ringpop_py.membership.identity import Claim, claim_of
from ringpop_py.membership.member import Member, Status
from ringpop_py.membership.messages import (
    Ack,
    Answered,
    Asked,
    Change,
    Join,
    JoinAck,
    Ping,
    PingReq,
    Refusal,
    Sync,
)
from tests.membership.test_node import answer_in, ask, calls_in, lone, told
from tests.membership.world import WALL_MS, World, address_of

LAN = PRESETS["lan"]
HERE, THERE, BEYOND = address_of(1), address_of(2), address_of(3)


def named(index: int, incarnation: int = WALL_MS, status: Status = Status.ALIVE) -> Member:
    """A row of the name of `lone`, at the address of *index*."""
    return Member(str(address_of(0)), address_of(index), incarnation, status)


def ping_of(member: Member, *changes: Change) -> Ping:
    return Ping("test", 100, member.name, member.address, member.incarnation, None, changes)


# Claims.


@pytest.mark.parametrize(
    ("theirs", "joining", "claim"),
    [
        (named(1, 5), False, Claim.NOTHING),
        (named(1, 6), False, Claim.ACCUSATION),
        (named(1, 5, Status.SUSPECT), False, Claim.ACCUSATION),
        (named(2, 5), False, Claim.LOST),  # of equal incarnations the greater address
        (named(0, 5), False, Claim.NAMESAKE),
        (named(2, 6), False, Claim.LOST),
        (named(2, 6, Status.SUSPECT), False, Claim.LOST),
        (named(2, 6, Status.FAULTY), False, Claim.ACCUSATION),
        (named(2, 6, Status.LEAVE), False, Claim.ACCUSATION),
        (named(2, 4), False, Claim.NAMESAKE),
        (named(2, 4, Status.FAULTY), False, Claim.NOTHING),
        (named(2, 6), True, Claim.ACCUSATION),
        (named(2, 4), True, Claim.NOTHING),
    ],
)
def test_what_a_row_of_our_name_means(theirs: Member, *, joining: bool, claim: Claim) -> None:
    assert claim_of(theirs, named(1, 5), joining=joining) is claim


# One node.


def test_a_ready_node_yields_to_a_higher_claim_of_its_name_and_falls_silent() -> None:
    node = lone(Member("a", HERE, 1))
    node.start_gossip(0)
    theirs = named(2, WALL_MS + 1)

    (taken,) = told(node, theirs)

    assert taken == NameTaken(node.local, theirs, lost=True)
    assert node.name_lost
    assert not node.gossiping
    later = node.advance(10**9) + node.tick(10**9) + node.heal(10**9) + node.exchange("a", 10**9)
    assert calls_in(later) == []
    assert node.local.incarnation == WALL_MS


def test_who_has_lost_its_name_refuses_whatever_it_is_asked() -> None:
    node = lone(Member("a", HERE, 1))
    told(node, named(2, WALL_MS + 1))

    refusals = [
        answer_in(ask(node, ping_of(Member("a", HERE, 1)))),
        answer_in(ask(node, Join("test", 100, "a", HERE, 1, 1.0))),
    ]

    assert [r.kind for r in refusals if isinstance(r, Refusal)] == ["name-taken"] * 2


def test_the_ping_that_brings_the_loss_is_refused() -> None:
    node = lone(Member("a", HERE, 1))

    answer = answer_in(ask(node, ping_of(Member("a", HERE, 1), Change(named(2, WALL_MS + 1)))))

    assert isinstance(answer, Refusal)


def test_a_ping_req_or_a_sync_that_brings_the_loss_is_refused_too() -> None:
    theirs, other = named(2, WALL_MS + 1), Member("b", address_of(3), 1)
    change = Change(theirs)
    requests: list[PingReq | Sync] = [
        PingReq("test", "b", other.address, 1, 0, "c", address_of(4), (change,)),
        Sync("test", 100, "b", other.address, 1, 0, 1, (), (theirs,)),
    ]

    for request in requests:
        node = lone(Member("a", HERE, 1))
        effects = ask(node, request)

        assert isinstance(answer_in(effects), Refusal)
        assert calls_in(effects) == []  # nobody is pinged in a name that is not ours


def test_who_has_lost_its_name_says_no_farewell_in_it() -> None:
    node = lone(Member("a", HERE, 1))
    told(node, named(2, WALL_MS + 1))

    assert node.evict_self(1) == [Evicted()]
    assert node.local.status is Status.ALIVE


def test_a_lower_claim_is_told_once_and_hears_our_row_each_time() -> None:
    node = lone(Member("a", HERE, 1))
    theirs = named(2, WALL_MS - 1)

    first = told(node, theirs)
    node._rows.dissemination.forget(node.local.name)
    second = told(node, theirs)

    assert first == [NameTaken(node.local, theirs, lost=False)]
    assert second == []
    assert [change.member for change in node._rows.dissemination.pending()] == [node.local]
    assert node.local.incarnation == WALL_MS


def test_a_namesake_that_pings_is_answered_with_the_row_that_beats_it() -> None:
    node = lone(Member("a", HERE, 1))
    theirs = named(2, WALL_MS - 1)

    effects = ask(node, ping_of(theirs))

    ack = answer_in(effects)
    assert isinstance(ack, Ack)
    assert node.local in [change.member for change in ack.changes]
    assert [e for e in effects if isinstance(e, NameTaken)] == [
        NameTaken(node.local, theirs, lost=False)
    ]


def test_a_namesake_that_pings_with_a_higher_claim_has_the_name() -> None:
    node = lone(Member("a", HERE, 1))

    answer = answer_in(ask(node, ping_of(named(2, WALL_MS + 1))))

    assert isinstance(answer, Refusal)
    assert node.name_lost


def test_a_third_node_tells_who_pings_under_a_name_that_is_taken() -> None:
    taken = Member("n", HERE, 9)
    node = lone(taken)

    ack = answer_in(ask(node, ping_of(Member("n", THERE, 8))))

    assert isinstance(ack, Ack)
    assert taken in [change.member for change in ack.changes]


def test_a_joining_node_outbids_the_row_of_its_earlier_life() -> None:
    node = lone(ready=False)
    (join,) = calls_in(node.start([HERE], 0))
    earlier = named(2, WALL_MS + 1000)

    node.receive(Answered(join.call_id, JoinAck("test", "a", 1, 1, (earlier,))), 1)

    assert node.ready
    assert not node.name_lost
    assert node.local.incarnation == WALL_MS + 1001


def test_rumours_of_an_earlier_life_are_no_namesake_but_a_call_from_there_is() -> None:
    node = lone(ready=False)
    (join,) = calls_in(node.start([HERE], 0))
    earlier = named(2, WALL_MS - 1000)
    node.receive(Answered(join.call_id, JoinAck("test", "a", 1, 1, (earlier,))), 1)

    rumour = told(node, earlier)
    call = ask(node, ping_of(earlier))

    assert [e for e in rumour if isinstance(e, NameTaken)] == []
    assert [e.lost for e in call if isinstance(e, NameTaken)] == [False]


def test_a_claim_that_no_clock_can_have_made_takes_no_name() -> None:
    node = lone(Member("a", HERE, 1))

    effects = told(node, named(2, 1 << 60))
    ask(node, ping_of(named(2, 1 << 60)))

    assert [type(effect) for effect in effects] == [PeerTrouble]
    assert not node.name_lost


# Clusters.


def rows_named(world: World, name: str) -> set[tuple[object, ...]]:
    """What the running nodes that are not called *name* believe of it."""
    rows = [node.members.get(name) for node in world.nodes if node.local.name != name]
    return {(row.address, row.status) if row else () for row in rows}


def taken_in(world: World, *indexes: int) -> list[tuple[int, bool]]:
    """Who told that its name was taken, and whether it was lost."""
    return [
        (index, effect.lost)
        for index in indexes
        for _, effect in world.effects(index, NameTaken)
        if isinstance(effect, NameTaken)
    ]


@pytest.mark.parametrize("clock_ms", [0, -3_600_000])
@pytest.mark.parametrize("silently", [False, True])
def test_a_restart_at_another_address_replaces_at_once(*, silently: bool, clock_ms: int) -> None:
    world = World(config=LAN)
    for index in range(6):
        world.start(index, range(6), name=f"n{index}")
    world.run_until(world.converged, within_s=5)
    world.run(10)
    world.crash(0, silently=silently)

    world.start(9, range(6), name="n0", clock_ms=clock_ms)

    alive_there = {(address_of(9), Status.ALIVE)}
    world.run_until(lambda: rows_named(world, "n0") == alive_there, within_s=2)
    begin = world.now
    world.run(30)
    assert rows_named(world, "n0") == alive_there
    flaps = [
        effect
        for index in range(1, 6)
        for at, effect in world.changes(index, 9)
        if at > begin + 5_000_000
    ]
    assert flaps == []
    assert taken_in(world, 9) == []


@pytest.mark.parametrize("seed", range(6))
def test_of_two_that_start_at_one_instant_exactly_one_keeps_the_name(seed: int) -> None:
    world = World(config=LAN, seed=seed)
    for index in range(3):
        world.start(index, range(3))
    world.run_until(world.converged, within_s=5)
    twins = [world.start(index, range(3), name="twin") for index in (7, 8)]

    world.run_until(lambda: any(node.name_lost for node in twins), within_s=10)

    world.run(5)
    (winner,) = [node for node in twins if not node.name_lost]
    assert rows_named(world, "twin") == {(winner.local.address, Status.ALIVE)}
    incarnation = winner.local.incarnation
    world.run(60)
    assert not winner.name_lost
    assert winner.local.incarnation == incarnation
    assert rows_named(world, "twin") == {(winner.local.address, Status.ALIVE)}


@pytest.mark.parametrize("seed", range(3))
def test_two_of_one_name_with_nobody_else_settle_it_too(seed: int) -> None:
    world = World(config=LAN, seed=seed)

    twins = [world.start(index, (0, 1), name="twin") for index in (0, 1)]

    world.run_until(lambda: any(node.name_lost for node in twins), within_s=10)
    world.run(30)
    assert sorted(node.name_lost for node in twins) == [False, True]


def test_a_second_process_of_a_name_takes_it_from_the_first() -> None:
    world = World(config=LAN)
    for index in range(4):
        world.start(index, range(4), name=f"n{index}")
    world.run_until(world.converged, within_s=5)
    world.run(10)

    world.start(9, range(4), name="n0")

    world.run_until(lambda: world.nodes[0].name_lost, within_s=5)
    world.run(5)
    assert rows_named(world, "n0") == {(address_of(9), Status.ALIVE)}
    assert (0, True) in taken_in(world, 0, 9)
    assert (9, True) not in taken_in(world, 0, 9)


def test_who_slept_through_a_restart_elsewhere_yields_when_it_wakes() -> None:
    world = World(config=LAN)
    for index in range(5):
        world.start(index, range(5), name=f"n{index}")
    world.run_until(world.converged, within_s=5)
    sleeper = world.nodes[0]
    world.pause(0)
    winner = world.start(9, range(5), name="n0")
    world.run(20)

    world.resume(0)

    world.run_until(lambda: sleeper.name_lost, within_s=5)
    world.run(10)
    assert not winner.name_lost
    assert rows_named(world, "n0") == {(address_of(9), Status.ALIVE)}


def test_two_of_one_name_on_the_sides_of_a_cut_are_one_after_it() -> None:
    world = World(config=LAN)
    for index in range(6):
        world.start(index, range(6), name=f"n{index}")
    world.run_until(world.converged, within_s=5)
    world.split(range(3), [3, 4, 5, 9])
    world.start(9, [3, 4, 5], name="n0")
    world.run(40)

    world.heal()
    world.run(10)

    lost = [node.local.address for node in world.nodes if node.name_lost]
    assert lost == [address_of(0)]
    assert rows_named(world, "n0") == {(address_of(9), Status.ALIVE)}


@pytest.mark.parametrize("seed", range(4))
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

    assert [node.local.name for node in world.nodes if node.name_lost] == []
    assert rows_named(world, "n1") == {(address_of(1), Status.ALIVE)}


# Strangers.


def test_a_stranger_learns_nothing_of_us() -> None:
    node = lone(Member("secret-member", HERE, 1))
    node.receive(Asked(1, ping_of(Member("a", HERE, 1))), 0)
    stranger = replace(ping_of(Member("them", BEYOND, 1)), cluster="theirs")

    effects = ask(node, stranger)

    refusal = answer_in(effects)
    assert refusal == Refusal("wrong-cluster", "this is another cluster")
    assert StrangerRefused(BEYOND, "theirs", "test") in effects


def test_a_list_of_another_cluster_is_a_rejected_join() -> None:
    node = lone(ready=False)
    (join,) = calls_in(node.start([HERE], 0))

    effects = node.receive(Answered(join.call_id, JoinAck("theirs", "a", 1, 1, ())), 1)

    (rejected,) = [e for e in effects if isinstance(e, JoinRejected)]
    assert rejected.address == HERE
    assert not rejected.fatal
    assert "theirs" in rejected.reason


# Many at once.


def test_sixty_four_that_join_at_once_converge() -> None:
    world = World(config=LAN)
    world.start_cluster(3)

    for index in range(3, 67):
        world.start(index, range(3))

    world.run_until(world.converged, within_s=5)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_a_cluster_that_restarts_as_a_whole_converges(count: int) -> None:
    world = World(config=LAN)
    world.start_cluster(count)
    world.run(10)
    for index in range(count):
        world.crash(index)
    world.run(1)

    for index in range(count):
        world.start(index, range(count))

    world.run_until(world.converged, within_s=5)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 3.0])
def test_two_seeds_that_restart_together_and_list_only_each_other(after_s: float) -> None:
    world = World(config=LAN)
    world.start(0, [1])
    world.start(1, [0])
    for index in range(2, 6):
        world.start(index, [0, 1])
    world.run_until(world.converged, within_s=5)
    world.run(5)
    world.crash(0)
    world.crash(1)

    world.start(0, [1])
    world.run(after_s)
    world.start(1, [0])

    world.run_until(world.converged, within_s=10)


def test_two_seeds_alone_that_restart_together_find_the_others_that_gave_them_up() -> None:
    world = World(config=LAN)
    for index in range(6):
        world.start(index, [0, 1])
    world.run_until(world.converged, within_s=5)
    world.crash(0, silently=True)
    world.crash(1, silently=True)
    world.run(60)

    world.start(0, [1])
    world.start(1, [0])

    world.run_until(world.converged, within_s=10)
