"""A plan said in Python is the plan that is meant."""

from __future__ import annotations

import pytest

import ringpop_sim
from ringpop_sim import (
    Clock,
    Crash,
    Cut,
    Discovery,
    Impair,
    Leave,
    Lie,
    Link,
    Pause,
    Plan,
    PlanError,
    Rumour,
    Sim,
    Slow,
    Start,
    Stop,
    Takeover,
    Traffic,
    Twin,
    exponential,
    ms,
    parse_plan,
    s,
)
from ringpop_sim.runs.run import run


def test_the_example_of_the_documents_is_this_plan() -> None:
    sim = Sim(seed=7, nodes=9, link=Link(loss=0.05, delay=exponential(5 * ms)))
    left, right = sim.split(2)
    sim.at(10 * s).cut(left, right, one_way=True).heal(after=40 * s)
    sim.at(15 * s).pause(right[0], for_=12 * s)
    sim.at(20 * s).restart(left[1], memory="lost", clock=-3600 * s)
    sim.traffic(keys=1000, per_second=2, retry_schedule_s=(0, 0.5, 2))

    result = sim.run(until=60 * s)

    assert sim.plan == Plan(
        name="sim",
        nodes=9,
        until_us=60 * s,
        link=Link(loss=0.05, delay=exponential(5 * ms)),
        traffic=Traffic(per_second=2, retry_schedule_us=(0, 500 * ms, 2 * s)),
        operations=(
            Cut(
                at_us=10 * s, for_us=40 * s, left=(0, 1, 2, 3), right=(4, 5, 6, 7, 8), one_way=True
            ),
            Pause(at_us=15 * s, for_us=12 * s, nodes=(4,)),
            Crash(at_us=20 * s, for_us=1 * s, nodes=(1,), clock_us=-3600 * s),
        ),
    )
    assert sim.result is result
    assert (result.seed, result.virtual_s) == (7, 60)
    assert result.digest == run(sim.plan, 7).digest


def test_each_method_of_a_moment_does_its_operation() -> None:
    sim = Sim(nodes=5)
    at = sim.at(1 * s)
    at.impair([1, 2], loss_in=0.8, delay=5 * ms, flip=20 * s, for_=60 * s)
    at.slow(1, by=0.5 * s, for_=2 * s)
    at.crash(range(2), silent=True, stagger=100 * ms)
    at.stop(3, for_=4 * s)
    at.start(4, stagger=1 * s)
    at.takeover(2)
    at.twin(2, for_=3 * s)
    at.twin(2, again=200 * ms, beside=4)
    at.leave((0, 1), for_=5 * s)
    at.clock(1, drift_ppm=500)
    at.discovery(1, listed=2, strangers=3)
    at.rumour(1, about=2, status="suspect", elsewhere=True)
    at.lie((1, 2), about=0, lie="accuse")

    assert sim.plan.operations == (
        Impair(
            at_us=s,
            for_us=60 * s,
            nodes=(1, 2),
            loss_in=0.8,
            delay_us=5 * ms,
            flip_us=20 * s,
        ),
        Slow(at_us=s, for_us=2 * s, nodes=(1,), by_us=500 * ms),
        Crash(at_us=s, nodes=(0, 1), silent=True, stagger_us=100 * ms),
        Stop(at_us=s, for_us=4 * s, nodes=(3,)),
        Start(at_us=s, nodes=(4,), stagger_us=s),
        Takeover(at_us=s, about=2),
        Twin(at_us=s, for_us=3 * s, about=2),
        Twin(at_us=s, about=2, again_us=200 * ms, beside=4),
        Leave(at_us=s, for_us=5 * s, nodes=(0, 1)),
        Clock(at_us=s, nodes=(1,), drift_ppm=500),
        Discovery(at_us=s, nodes=(1,), listed=(2,), strangers=3),
        Rumour(at_us=s, nodes=(1,), about=2, status="suspect", elsewhere=True),
        Lie(at_us=s, about=0, nodes=(1, 2), lie="accuse"),
    )


def test_a_plan_without_an_end_ends_when_all_is_to_be_well() -> None:
    sim = Sim(nodes=3, settle_us=20 * s)
    sim.at(100 * s).crash(1).heal(after=5 * s)

    assert sim.plan.until_us == 125 * s


def test_the_command_holds_the_whole_plan() -> None:
    sim = Sim(seed=5, nodes=3, settings={"suspect_s": 1.5})
    sim.at(5 * s).crash(1)

    first, plan = sim.replay_command().split("\n", 1)

    assert "--seed 5" in first
    assert parse_plan(plan.removesuffix("END")) == sim.plan


def test_parts_are_of_equal_size_or_nearly() -> None:
    assert Sim(nodes=8).split(3) == [(0, 1), (2, 3, 4), (5, 6, 7)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Sim(nodes=0),
        lambda: Sim(colour="red"),
        lambda: Sim(settings={"suspects": 1}),
        lambda: Sim(nodes=2).split(3),
        lambda: Sim(nodes=2).at(1 * s).crash(1, colour="red"),
        lambda: Sim(nodes=2).at(1 * s).crash(),
        lambda: Sim(nodes=2).at(-1 * s).crash(1),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(wrong: object) -> None:
    assert callable(wrong)

    with pytest.raises(PlanError):
        wrong()


def test_a_node_that_there_is_not_is_refused() -> None:
    sim = Sim(nodes=2)
    sim.at(1 * s).crash(2)

    with pytest.raises(PlanError, match="there is no node"):
        sim.run()


def test_every_public_name_is_there() -> None:
    assert {"Sim", "Plan", "run", "Run", "Result", "random_plan", "PlanError", "s", "ms"} <= set(
        dir(ringpop_sim)
    )
    assert callable(ringpop_sim.run)
