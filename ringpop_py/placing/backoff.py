"""When to try again: back-off with jitter, which stops at a suspect and goes on when it is back.

A `Backoff` is a value: each thing that happens gives the next one. It has no clock and no timer;
who holds it waits until `Backoff.due_us`, or to be told that the peer is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

JITTER_MS_MAX: Final = 49
CAP_US: Final = 1_000_000
_MS: Final = 1_000
_DOUBLINGS_MAX: Final = 40
"""Further ones would reach no cap that anybody could wait for."""


def delay_us(attempts_count: int, rng: random.Random, *, cap_us: int = CAP_US) -> int:
    """How long to wait after *attempts_count* failures: 2 to that power ms, and some chance.

    The chance is 0 to 49 whole ms. It is within the cap, yet never squeezed out by it: those who
    have waited long are those who should not come back all at once.
    """
    assert cap_us > JITTER_MS_MAX * _MS
    base_us = _MS << min(attempts_count, _DOUBLINGS_MAX)
    return min(base_us, cap_us - JITTER_MS_MAX * _MS) + rng.randrange(JITTER_MS_MAX + 1) * _MS


@dataclass(frozen=True, slots=True)
class Backoff:
    """Something to be brought to one peer, tried until it is done.

    Attributes:
        attempts_count: failures since the beginning, or since the peer was last back.
        waiting_until_us: the instant of the next try, were the peer not suspected.
        suspected: the peer is; nothing is tried until it is back.
    """

    attempts_count: int = 0
    waiting_until_us: int = 0
    suspected: bool = False
    cap_us: int = CAP_US

    @property
    def due_us(self) -> int | None:
        """When to try next; None: not until the peer is back."""
        return None if self.suspected else self.waiting_until_us

    def failed(self, now_us: int, rng: random.Random) -> Backoff:
        """The try that was due has failed."""
        return replace(
            self,
            attempts_count=self.attempts_count + 1,
            waiting_until_us=now_us + delay_us(self.attempts_count, rng, cap_us=self.cap_us),
        )

    def told(self, now_us: int, *, reachable: bool) -> Backoff:
        """The peer is thought reachable, or suspected (or worse). Saying so again changes nothing.

        A peer that is back is tried at once, and patience begins anew: what made the tries before
        fail is over.
        """
        if reachable != self.suspected:
            return self
        if reachable:
            return Backoff(waiting_until_us=now_us, cap_us=self.cap_us)
        return replace(self, suspected=True)
