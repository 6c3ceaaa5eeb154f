"""Ticks in random schedules: what is promised, and the wrong rules that break it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.state.ticks.record import (
    ATTEMPT_BITS,
    PAUSE_S_MAX,
    TickElection,
    TickRecord,
    defined,
    pause_s,
)
from tests.state.leaders.schedules import Violated
from tests.state.ticks.schedules import BASE_S, PLAN, TickSchedule

if TYPE_CHECKING:
    from ringpop_py.state.leaders.record import LeaderRecord

TICKS = 10_000


def ticks_done(seed: int, seconds: float = 600, **how: Any) -> int:  # noqa: ANN401 - of `TickSchedule`
    schedule = TickSchedule(seed, **how)
    schedule.run(seconds)
    return schedule.settle()


def test_of_ten_thousand_ticks_under_faults_each_is_done_once() -> None:
    done, seed = 0, 0
    while done < TICKS:
        done += ticks_done(seed)  # raises `Violated`
        seed += 1


def test_without_faults_no_tick_runs_twice() -> None:
    for seed in range(4):
        schedule = TickSchedule(seed, calm=True)
        schedule.run(60)

        assert schedule.settle() == 12
        assert {attempt for _, attempt in schedule.begun} == {1}


class AttemptKept(TickElection):
    """A take-over has the fence of the attempt before."""

    def _taken(self, record: LeaderRecord | None, now: float) -> LeaderRecord | float:
        after = super()._taken(record, now)
        if isinstance(after, TickRecord):
            return replace(after, term=(after.due << ATTEMPT_BITS) + 1)
        return after


class UnknownIsWon(TickElection):
    """A claim that was not answered is taken for a success."""

    def failed(self, now: float) -> None:
        if self._open is not None and self._open.after.term != self.term:
            self._settle(now)
        else:
            super().failed(now)


class DueByTurn(TickElection):
    """A tick that was missed runs, however late, and the last one comes first."""

    def _freed(self, record: LeaderRecord) -> LeaderRecord:
        after = super()._freed(record)
        assert isinstance(after, TickRecord)
        return replace(after, due=after.due - 10) if self.is_over and after.due % 7 == 0 else after


class Early(TickElection):
    """A tick is claimed by what the clock will say."""

    def _taken(self, record: LeaderRecord | None, now: float) -> LeaderRecord | float:
        self.wall_offset_s += 2
        return super()._taken(record, now)


@pytest.mark.parametrize(
    "how",
    [
        {"make": AttemptKept},
        {"make": UnknownIsWon},
        {"make": DueByTurn},
        {"make": Early},
        {"wrong": "fenced_without_ids"},
        {"wrong": "ids_without_fence"},
        {"wrong": "done_before_effects"},
        {"wrong": "done_blind"},
        {"wrong": "skip_apart"},
    ],
    ids=lambda how: str(how.get("wrong") or how["make"].__name__),
)
def test_a_wrong_rule_is_found(how: dict[str, Any]) -> None:
    with pytest.raises(Violated):  # noqa: PT012 - some seed finds it
        for seed in range(60):
            ticks_done(seed, **how)


def test_pauses_grow_to_a_minute() -> None:
    pauses = [pause_s(attempt) for attempt in (1, 2, 3, 6, 7, 8, 1 << 19)]

    assert pauses == [1, 2, 4, 32, *[PAUSE_S_MAX] * 3]


def test_another_plan_neither_loses_what_is_due_nor_repeats_what_was_begun() -> None:
    first = defined(None, PLAN, BASE_S, redefines=True)
    assert first is not None
    assert first.due == BASE_S + 5
    other = PLAN._replace(text="10s", interval_s=10)  # type: ignore[attr-defined]

    assert defined(first, PLAN, BASE_S + 7, redefines=True) is None
    assert defined(first, other, BASE_S + 7, redefines=False) is None
    assert defined(replace(first, holder="a"), other, BASE_S, redefines=True) is None
    overdue = defined(first, other, BASE_S + 7, redefines=True)
    assert overdue is not None
    assert (overdue.due, overdue.plan) == (first.due, "10s")
    later = defined(first, other, BASE_S, redefines=True)
    assert later is not None
    assert later.due == BASE_S + 10
    ended = replace(first, due=BASE_S + 100, term=(BASE_S + 99) << ATTEMPT_BITS)
    behind = defined(ended, other, BASE_S, redefines=True)  # by a clock that is behind
    assert behind is not None
    assert behind.due == BASE_S + 100
