"""`ringpop_py.placing.backoff`: patience grows up to a cap."""

from __future__ import annotations

import random

import pytest

from ringpop_py.placing.backoff import delay_us


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
