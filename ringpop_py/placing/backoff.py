"""When to try again: back-off with jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

JITTER_MS_MAX: Final = 49
CAP_US: Final = 1_000_000
"""The longest wait, in microseconds, including the jitter."""
_MS: Final = 1_000
_DOUBLINGS_MAX: Final = 40
"""The exponent stops here, so that it cannot grow for ever; any cap is reached long before."""


def delay_us(attempts_count: int, rng: random.Random, *, cap_us: int = CAP_US) -> int:
    """Return how long to wait after *attempts_count* failures: 2 to that power ms, plus jitter.

    The jitter is 0 to 49 whole ms. It is within the cap, but the cap never squeezes it out:
    senders that have waited long are those that must not all come back at the same time.
    """
    assert cap_us > JITTER_MS_MAX * _MS
    base_us = _MS << min(attempts_count, _DOUBLINGS_MAX)
    return min(base_us, cap_us - JITTER_MS_MAX * _MS) + rng.randrange(JITTER_MS_MAX + 1) * _MS
