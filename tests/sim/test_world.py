"""The world runs the product's nodes, and the same plan and seed take the same course."""

from __future__ import annotations

from ringpop_py.member.swim.member import Status
from ringpop_sim.plans.plan import Crash, Cut, Impair, Link, Pause, Plan, Stop, exponential
from ringpop_sim.runs.run import Run, run
from ringpop_sim.units import ms, s


def test_a_cluster_finds_itself_and_a_crash() -> None:
    plan = Plan(nodes=5, until_us=30 * s, operations=(Crash(at_us=5 * s, nodes=(1,)),))

    result = run(plan, seed=1)

    assert result.ok
    assert result.detected_s is not None
    assert result.detected_s < 10
    assert result.converged_s is not None


def test_equal_seeds_take_equal_courses_and_others_do_not() -> None:
    plan = Plan(nodes=5, until_us=20 * s, link=Link(loss=0.1, delay=exponential(5 * ms)))

    digests = [run(plan, seed).digest for seed in (1, 1, 2)]

    assert digests[0] == digests[1] != digests[2]


def test_a_fault_more_moves_no_draw_of_what_is_before_it() -> None:
    calm = Plan(nodes=4, until_us=10 * s, link=Link(loss=0.1))
    broken = Plan(
        nodes=4,
        until_us=10 * s,
        link=Link(loss=0.1),
        operations=(Impair(at_us=9 * s, nodes=(1,), loss_in=0.9),),
    )
    runs = [Run(plan, 3) for plan in (calm, broken)]

    for one in runs:
        one.advance(9 * s - 1)

    assert runs[0].world.trace.digest == runs[1].world.trace.digest


def test_nothing_passes_a_cut_and_all_of_it_passes_afterwards() -> None:
    cut = Cut(at_us=5 * s, for_us=60 * s, left=(0, 1), right=(2, 3))
    under_way = Run(Plan(nodes=4, until_us=180 * s, operations=(cut,)), 1)

    under_way.advance(60 * s)

    members = under_way.world.numbered[0].node.members
    far = [members.get("n2"), members.get("n3")]
    assert [row is not None and row.status for row in far] == [Status.FAULTY, Status.FAULTY]
    assert not under_way.world.converged()
    assert under_way.finish().converged_s is not None


def test_messages_to_a_paused_process_wait_for_it() -> None:
    pause = Pause(at_us=5 * s, for_us=1 * s, nodes=(1,))
    busy = (("quiet", False),)
    under_way = Run(Plan(nodes=3, until_us=20 * s, operations=(pause,), settings=busy), 1)

    under_way.advance(5_900 * ms)

    assert under_way.world.numbered[1].inbox
    assert under_way.finish().converged_s is not None


def test_a_process_that_is_stopped_says_farewell_and_is_started_again() -> None:
    stop = Stop(at_us=5 * s, for_us=5 * s, nodes=(1,))
    under_way = Run(Plan(nodes=4, until_us=30 * s, operations=(stop,)), 1)

    under_way.advance(9 * s)

    row = under_way.world.numbered[0].node.members.get("n1")
    assert row is not None
    assert row.status is Status.LEAVE
    assert under_way.finish().converged_s is not None
