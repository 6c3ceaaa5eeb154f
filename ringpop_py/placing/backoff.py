"""When to try again: back-off with jitter, which stops at a suspect and resumes when it is back.

A `Backoff` is a value: each event gives the next one. It has no clock and no timer. Its holder
waits until `Backoff.due_us`, or until membership reports that the peer is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Backoff:
    """A delivery to one peer, tried until it succeeds.

    Attributes:
        attempts_count: failures since the beginning, or since the peer last came back.
        waiting_until_us: the instant of the next try, if the peer is not suspected.
        suspected: whether the peer is suspected; nothing is tried until it is back.
    """

    attempts_count: int = 0
    waiting_until_us: int = 0
    suspected: bool = False
    cap_us: int = CAP_US

    @property
    def due_us(self) -> int | None:
        """The instant of the next try; None while the peer is suspected."""
        return None if self.suspected else self.waiting_until_us

    def failed(self, now_us: int, rng: random.Random) -> Backoff:
        """Return the state after the try that was due has failed."""
        return replace(
            self,
            attempts_count=self.attempts_count + 1,
            waiting_until_us=now_us + delay_us(self.attempts_count, rng, cap_us=self.cap_us),
        )

    def told(self, now_us: int, *, reachable: bool) -> Backoff:
        """Return the state for a peer that is reachable, or is suspected (or worse).

        A repeated report changes nothing. A peer that is back is tried immediately, and the
        back-off starts over: the reason for the earlier failures is gone.
        """
        if reachable != self.suspected:
            return self
        if reachable:
            return Backoff(waiting_until_us=now_us, cap_us=self.cap_us)
        return replace(self, suspected=True)
