"""`ringpop_py.placing.backoff`: patience grows up to a cap, and a suspect is left alone."""

from __future__ import annotations

import random

import pytest

from ringpop_py.placing.backoff import Backoff, delay_us


@pytest.mark.parametrize("attempts_count", range(9))
def test_the_delay_doubles_from_a_millisecond_with_0_to_49_ms_of_chance(
    attempts_count: int,
) -> None:
    """F8: the seed's jitter is one constant, as it seeds its generator each time."""
    rng = random.Random(7)

    delays = {delay_us(attempts_count, rng) - 2**attempts_count * 1000 for _ in range(2000)}

    assert delays == {ms * 1000 for ms in range(50)}


@pytest.mark.parametrize("attempts_count", [10, 40, 10**9])
def test_the_delay_is_capped_and_keeps_its_chance(attempts_count: int) -> None:
    """F8: the seed's back-off has no cap."""
    rng = random.Random(7)

    delays = {delay_us(attempts_count, rng) for _ in range(2000)}

    assert (min(delays), max(delays)) == (951_000, 1_000_000)
    assert max(delay_us(attempts_count, rng, cap_us=60_000) for _ in range(2000)) == 60_000


def test_equal_chance_gives_equal_delays() -> None:
    one, other = random.Random(3), random.Random(3)

    assert [delay_us(n, one) for n in range(20)] == [delay_us(n, other) for n in range(20)]


def test_the_first_try_is_due_at_once_and_each_failure_puts_off_the_next() -> None:
    rng = random.Random(1)
    retry = Backoff()
    waits = []

    for _ in range(12):
        assert retry.due_us is not None
        failed_at = retry.due_us
        retry = retry.failed(failed_at, rng)
        assert retry.due_us is not None
        waits.append(retry.due_us - failed_at)

    assert Backoff().due_us == 0
    assert all(2**n * 1000 <= wait <= (2**n + 49) * 1000 for n, wait in enumerate(waits[:9]))
    assert all(951_000 <= wait <= 1_000_000 for wait in waits[10:])


def test_a_suspect_is_not_tried_until_it_is_back_and_then_at_once() -> None:
    """F8."""
    rng = random.Random(1)
    retry = Backoff().failed(0, rng).failed(60_000, rng)

    stopped = retry.told(100_000, reachable=False)
    assert stopped.due_us is None

    back = stopped.told(9_000_000, reachable=True)
    assert back == Backoff(waiting_until_us=9_000_000)


def test_a_try_that_fails_after_its_peer_was_suspected_does_not_go_on() -> None:
    """F8."""
    retry = Backoff().told(0, reachable=False).failed(5, random.Random(1))

    assert retry.due_us is None


@pytest.mark.parametrize("reachable", [True, False])
def test_being_told_twice_changes_nothing(reachable: bool) -> None:  # noqa: FBT001
    once = Backoff(waiting_until_us=70).told(80, reachable=reachable)

    assert once.told(90, reachable=reachable) == once
    assert once.waiting_until_us == 70


def test_the_cap_of_a_retry_is_kept_when_its_peer_comes_back() -> None:
    retry = Backoff(cap_us=60_000).told(0, reachable=False).told(1, reachable=True)

    for _ in range(30):
        retry = retry.failed(0, random.Random(1))

    assert retry.waiting_until_us <= 60_000
