"""Elections: what is promised in random schedules, and the wrong rules that break it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.values.declared import replace
from ringpop_py.state.leaders.election import (
    RETRY_S_MAX,
    Candidate,
    Election,
    ReadRecord,
    SwapRecord,
    TermGained,
    TermLost,
    WaitUntil,
)
from ringpop_py.state.leaders.record import (
    LeaderRecord,
    check_step,
    checked_name,
    checked_ttl_s,
    record_in,
)
from tests.state.leaders.schedules import TTL_S, Schedule, Violated

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = 150
HELD = LeaderRecord(7, "b", "b1", is_member=True, ttl_s=TTL_S, since=1.0, beat_at=1.0)


def an_election(above: int = 0) -> Election:
    return Election(Candidate(holder="a", is_member=True, nonce="a1", ttl_s=TTL_S, above=above))


def leading(now: float = 0.0) -> Election:
    election = an_election()
    assert election.next(now) == ReadRecord()
    election.seen(None, now, is_gone=False)
    assert isinstance(election.next(now), SwapRecord)
    election.swapped(now, is_done=True)
    assert election.next(now) == TermGained(1)
    return election


def whole_schedule(seed: int, **how: Any) -> Schedule:  # noqa: ANN401 - of `Schedule`
    schedule = Schedule(seed, **how)
    schedule.run(60)
    schedule.check_history()
    slowest = min(process.rate for process in schedule.processes)
    # A candidate looks, and tries again after a failure, before it can know and act.
    schedule.check_succession((TTL_S + 2 * RETRY_S_MAX + 1) / slowest)
    schedule.check_history()
    return schedule


def test_random_schedules_keep_what_is_promised() -> None:
    gained = [whole_schedule(seed).gained_count for seed in range(SCHEDULES)]

    assert sum(gained) > 5 * SCHEDULES  # names did change hands


def test_a_holder_that_beats_keeps_the_name_whatever_the_clocks_of_others_say() -> None:
    for seed in range(20):
        schedule = Schedule(seed, calm=True)
        schedule.run(60)

        assert schedule.gained_count == 1


def test_a_released_name_is_taken_by_the_next_look_with_a_higher_term() -> None:
    election = an_election()
    assert election.next(0.0) == ReadRecord()
    election.seen(HELD, 0.0, is_gone=False)
    assert election.next(0.0) == WaitUntil(TTL_S / 5, watches=True)

    assert election.next(TTL_S / 5) == ReadRecord()
    election.seen(HELD.released(), 1.0, is_gone=False)

    swap = election.next(1.0)
    assert isinstance(swap, SwapRecord)
    assert (swap.before, swap.after.term, swap.after.holder) == (HELD.released(), 8, "a")


def test_a_holder_that_is_found_gone_is_replaced_before_its_time_is_over() -> None:
    election = an_election()
    election.next(0.0)
    election.seen(HELD, 0.0, is_gone=False)

    election.look(0.1)
    assert election.next(0.1) == ReadRecord()
    election.seen(HELD, 0.1, is_gone=True)

    assert isinstance(election.next(0.1), SwapRecord)


def test_a_term_is_above_the_one_that_a_fence_has_named() -> None:
    election = an_election(above=30)
    election.next(0.0)
    election.seen(HELD, 0.0, is_gone=True)

    swap = election.next(0.0)

    assert isinstance(swap, SwapRecord)
    assert swap.after.term == 31


def test_a_swap_of_unknown_outcome_is_sent_again_as_it_was_and_a_read_settles_it() -> None:
    election = an_election()
    election.next(0.0)
    election.seen(None, 0.0, is_gone=False)
    swap = election.next(0.0)
    assert isinstance(swap, SwapRecord)

    election.failed(1.0)
    assert election.next(1.5) == ReadRecord()
    election.seen(None, 1.6, is_gone=False)
    assert election.next(2.0) == swap
    election.failed(2.5)
    assert election.next(3.0) == ReadRecord()
    election.seen(swap.after, 3.0, is_gone=False)

    assert election.next(3.0) == TermGained(1)
    assert election.lost_at == 1.5 + TTL_S  # then it had not taken effect yet


def test_a_holder_beats_and_stops_when_no_beat_takes_effect() -> None:
    election = leading()

    assert election.next(0.5) == WaitUntil(TTL_S / 4)
    assert isinstance(election.next(1.0), SwapRecord)
    election.failed(2.0)

    assert election.next(TTL_S - 0.1) == ReadRecord()
    assert election.next(TTL_S) == TermLost("no beat took effect in 4 s")


def test_a_holder_that_reads_another_one_has_lost() -> None:
    election = leading()
    election.next(1.0)
    election.swapped(1.1, is_done=False)
    assert election.next(1.1) == ReadRecord()
    election.seen(HELD, 1.2, is_gone=False)

    assert election.next(1.2) == TermLost("the name is held by 'b' now")


def test_a_release_keeps_the_term_and_waits_for_a_beat_of_unknown_outcome() -> None:
    election = leading()
    beat = election.next(1.0)
    assert isinstance(beat, SwapRecord)

    election.resign(1.1)
    assert election.next(1.1) == ReadRecord()
    election.seen(beat.after, 1.2, is_gone=False)

    assert election.next(1.2) == SwapRecord(beat.after, beat.after.released())
    assert beat.after.released().term == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, HELD),
        (HELD, HELD.beaten(2.0)),
        (HELD, HELD.released()),
        (HELD, replace(HELD, term=8, nonce="c1")),
        (HELD.released(), replace(HELD, term=9, nonce="c1")),
    ],
)
def test_a_record_may_change(before: LeaderRecord | None, after: LeaderRecord) -> None:
    check_step(before, after)

    assert record_in(after.as_value(), "n") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, HELD.released()),
        (HELD, replace(HELD, nonce="c1")),
        (HELD, replace(HELD, holder="c", beat=1)),
        (HELD, replace(HELD, term=6, nonce="c1")),
        (HELD, replace(HELD, term=8).released()),
        (HELD.released(), HELD.beaten(2.0)),
    ],
)
def test_a_term_is_not_given_twice_nor_taken_back(
    before: LeaderRecord | None, after: LeaderRecord
) -> None:
    with pytest.raises(BadOperation, match="term"):
        check_step(before, after)


def test_names_and_times_have_limits() -> None:
    for name in ("", "a" * 101, "a\n", "\ud800"):
        with pytest.raises(ConfigError):
            checked_name(name)
    for ttl_s in (0.5, 1e9, float("nan")):
        with pytest.raises(ConfigError):
            checked_ttl_s(ttl_s)


class KeepsTheTerm(Election):
    def next(self, now: float) -> Any:  # noqa: ANN401
        effect = super().next(now)
        if isinstance(effect, SwapRecord) and effect.before and effect.before.holder:
            effect = replace_after(effect, term=effect.before.term)
            self._open = effect
        return effect


class TakesUnknownForWon(Election):
    def failed(self, now: float) -> None:
        if self._open is not None and not self._looks:
            self._settle(now)
        else:
            super().failed(now)


class TakesRefusedForWon(Election):
    def swapped(self, now: float, *, is_done: bool) -> None:  # noqa: ARG002
        super().swapped(now, is_done=True)


class IgnoresTheFence(Election):
    def __init__(self, me: Candidate) -> None:
        super().__init__(
            Candidate(holder=me.holder, is_member=True, nonce=me.nonce, ttl_s=me.ttl_s)
        )


class CountsFromTheReply(Election):
    def _settle(self, now: float) -> None:
        self._not_before = now
        super()._settle(now)


class ExpiresByTheHoldersClock(Election):
    def _consider(self, record: LeaderRecord | None, now: float, *, is_gone: bool) -> None:
        late = record is not None and now + self._me.wall_offset_s - record.beat_at > record.ttl_s
        super()._consider(record, now, is_gone=is_gone or late)


class NeverStopsToBelieve(Election):
    def _settle(self, now: float) -> None:
        super()._settle(now)
        self.lost_at += 1e6


class WaitsForRelease(Election):
    def _consider(self, record: LeaderRecord | None, now: float, *, is_gone: bool) -> None:
        if record is None or not record.holder:
            super()._consider(record, now, is_gone=is_gone)
        else:
            self._due_at = now + 1


def replace_after(swap: SwapRecord, **changes: Any) -> SwapRecord:  # noqa: ANN401
    return SwapRecord(swap.before, replace(swap.after, **changes))


def calm_run(seed: int, make: type[Election]) -> None:
    schedule = Schedule(seed, make, calm=True)
    schedule.run(60)
    if schedule.gained_count > 1:
        raise Violated("a holder that beats has lost the name")


VARIANTS: dict[str, Callable[[int], object]] = {
    "takes over without comparing": lambda seed: whole_schedule(seed, blind=True),
    "keeps the term": lambda seed: whole_schedule(seed, make=KeepsTheTerm),
    "a release deletes the record": lambda seed: whole_schedule(seed, deletes=True),
    "unknown is won": lambda seed: whole_schedule(seed, make=TakesUnknownForWon),
    "refused is won": lambda seed: whole_schedule(seed, make=TakesRefusedForWon),
    "ignores the fence": lambda seed: whole_schedule(seed, make=IgnoresTheFence),
    "counts from the reply": lambda seed: whole_schedule(seed, make=CountsFromTheReply),
    "never stops to believe": lambda seed: whole_schedule(seed, make=NeverStopsToBelieve),
    "waits for a release": lambda seed: whole_schedule(seed, make=WaitsForRelease),
    "by the holder's clock": lambda seed: calm_run(seed, ExpiresByTheHoldersClock),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_wrong_rule_is_caught(name: str) -> None:
    caught = set()
    for seed in range(SCHEDULES):
        try:
            VARIANTS[name](seed)
        except Violated as why:
            caught.add(str(why))

    assert caught
