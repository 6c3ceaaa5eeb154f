"""`membership.health`: how slow we hold ourselves for."""

from __future__ import annotations

from ringpop_py.swim.effects import Effect, HealthChanged
from ringpop_py.swim.health import Health


def test_signs_of_slowness_add_up_to_a_limit_and_successes_take_them_back() -> None:
    health = Health(lambda _: None, score_max=3)

    scores = []
    for by in (1, 1, 5):
        health.worse(by, "unanswered")
        scores.append(health.score)
    for _ in range(4):
        health.better("answered")
        scores.append(health.score)

    assert scores == [1, 2, 3, 2, 1, 0, 0]
    assert health.factor == 1


def test_only_a_change_of_the_score_is_told() -> None:
    told: list[Effect] = []
    health = Health(told.append, score_max=2)

    health.better("answered")
    health.worse(0, "unanswered")
    health.worse(9, "stalled")
    health.worse(1, "unanswered")
    health.better("answered")

    assert told == [HealthChanged(2, "stalled"), HealthChanged(1, "answered")]


def test_with_a_limit_of_nothing_it_is_off() -> None:
    told: list[Effect] = []
    health = Health(told.append, score_max=0)

    health.worse(5, "stalled")

    assert health.factor == 1
    assert told == []


def test_a_lower_limit_counts_at_once() -> None:
    told: list[Effect] = []
    health = Health(told.append, score_max=8)
    health.worse(5, "stalled")

    health.limit(2)

    assert told[-1] == HealthChanged(2, "configured")
