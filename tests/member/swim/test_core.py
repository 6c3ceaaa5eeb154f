"""`swim.core`: time in which a node does not run does not count; how slow it thinks it is."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.member.swim.core import Core, Health
from ringpop_py.member.swim.effects import Effect, HealthChanged, Stalled
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.waits import Due
from ringpop_sim.world.network import address_of

SECOND_US = 1_000_000


def core_with_timer(at: int, dialect: Dialect = NATIVE, suspect_s: float = 5.0) -> Core:
    """A core with something to do at *at*."""
    core = Core(
        Member("a", *address_of(0), 1),
        cluster="test",
        ring_points=100,
        dialect=dialect,
        config=GossipConfig(stall_s=0.5, suspect_s=suspect_s),
        rng=random.Random(0),
        now=0,
    )
    core.timers.set(at, Due.PERIOD)
    return core


def test_a_little_late_is_no_stall() -> None:
    core = core_with_timer(SECOND_US)

    now = core.enter(SECOND_US + 500_000)

    assert now == SECOND_US + 500_000
    assert core.take_effects() == []


def test_time_slept_over_is_subtracted_from_all_later_instants() -> None:
    core = core_with_timer(SECOND_US)

    woken = core.enter(11 * SECOND_US)
    later = core.enter(11 * SECOND_US + 7)

    assert (woken, later) == (SECOND_US, SECOND_US + 7)
    assert (core.clock.lost_us, core.clock.stall_count) == (10 * SECOND_US, 1)


@pytest.mark.parametrize(
    ("late_us", "score"), [(500_001, 1), (1_000_000, 2), (1_600_000, 3), (60 * SECOND_US, 3)]
)
def test_a_stall_is_told_and_is_a_sign_of_slowness_by_its_length(late_us: int, score: int) -> None:
    core = core_with_timer(SECOND_US)

    core.enter(SECOND_US + late_us)

    effects: list[Effect] = [Stalled(late_us), HealthChanged(score, "stalled")]
    assert core.take_effects() == effects


def test_a_core_that_has_nothing_to_do_cannot_be_late() -> None:
    core = core_with_timer(SECOND_US)
    core.timers.take(SECOND_US)

    assert core.enter(60 * SECOND_US) == 60 * SECOND_US


@pytest.mark.parametrize(
    ("suspended_s", "late_s", "since_ms"),
    [(59, 0, 1), (60, 0, 61_001), (59, 1, 61_001), (3600, 0, 3_601_001)],
)
def test_a_suspension_of_the_machine_counts_as_an_interruption_by_its_length(
    suspended_s: int, late_s: int, since_ms: int
) -> None:
    core = core_with_timer(SECOND_US, suspect_s=60.0)

    core.note_suspension(suspended_s * SECOND_US, (1 + late_s) * SECOND_US)

    assert core.clock.since_ms == since_ms


def test_the_wall_clock_goes_on_while_the_machine_is_suspended_and_no_timer_does() -> None:
    core = core_with_timer(2 * SECOND_US)

    core.note_suspension(3600 * SECOND_US, SECOND_US)
    now = core.enter(SECOND_US)

    assert (now, core.clock.wall_ms(now)) == (SECOND_US, 1 + 3_601_000)
    assert core.take_effects() == []


def test_the_ringpop_dialect_counts_all_time() -> None:
    core = core_with_timer(SECOND_US, RINGPOP)

    assert core.enter(60 * SECOND_US) == 60 * SECOND_US
    assert core.take_effects() == []


# Health.


def test_signs_of_slowness_add_up_to_a_limit_and_successes_take_them_back() -> None:
    health = Health(score_max=3)

    moves = [(health.move(by), health.score) for by in (1, 0, 1, 5, 1, -1, -1, -1, -1)]

    moved = [(True, 1), (False, 1), (True, 2), (True, 3), (False, 3), (True, 2), (True, 1)]
    assert moves == [*moved, (True, 0), (False, 0)]
    assert health.factor == 1


def test_only_a_change_of_health_is_told() -> None:
    core = core_with_timer(SECOND_US)

    for by, reason in ((-1, "answered"), (0, "unanswered"), (99, "stalled"), (1, "unanswered")):
        core.judge_health(by, reason)

    assert core.take_effects() == [HealthChanged(core.config.local_health_max, "stalled")]


@pytest.mark.parametrize("change", [{"local_health_max": 2}, {"local_health": False}])
def test_a_lower_limit_of_health_counts_when_it_is_configured(change: dict[str, int]) -> None:
    core = core_with_timer(SECOND_US)
    core.judge_health(5, "stalled")

    core.config = replace(core.config, **change)  # type: ignore[arg-type]

    assert core.take_effects()[-1] == HealthChanged(change.get("local_health_max", 0), "configured")
