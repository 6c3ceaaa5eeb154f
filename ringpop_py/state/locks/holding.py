"""One lock on a key, from the first try to its end: when to ask, and what to believe (pure)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.arguments import checked_seconds, sendable_text
from ringpop_py.base.errors import (
    BadOperation,
    ConditionFailed,
    ConfigError,
    LockHeld,
    RingpopError,
)
from ringpop_py.state.locks.terms import (
    LOCK,
    LOCK_NAME,
    LOCKED_KEY_BYTES_MAX,
    RENEW,
    TTL_MS_MAX,
    UNLOCK,
)

if TYPE_CHECKING:
    import random

TTL_S_MIN: Final = 1.0
"""The shortest time, in seconds, for which a holder may be silent: a renewal needs some of it."""
TTL_S_MAX: Final = TTL_MS_MAX / 1_000
RENEWALS: Final = 4
"""How often a holder renews its lock within that time."""
RETRIES: Final = 20
"""How often it tries within that time, if a renewal fails."""
PAUSE_S: Final = 0.02
"""The first pause of one who waits; each is longer than the one before."""
PAUSE_S_MAX: Final = 1.0
PATIENCE_S: Final = (0.05, 5.0)
"""The least and the most seconds of one request."""
RELEASE_S: Final = 2.0
"""The most seconds for which the end of a block tries to release its lock."""
_GROWTH: Final = 1.5


class Asking(NamedTuple):
    """Who asks for a lock, sent in the place of a fence."""

    name: str
    term: Any  # the nonce


class LockHolding:
    """One try to hold the lock on *key*. Instants are those of a monotonic clock, in seconds.

    Args:
        nonce: no other try has it.
        wait_s: how long it may wait for the lock; None for ever.

    Attributes:
        asking: what is sent with each step.
        term: of the lock; 0 before it is held.
        due_at: when to ask next.
        lost_at: when the holder has to stop, if it is not renewed before.
        is_open: whether the lock may be held, as far as the owner of the key knows.

    Raises:
        ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        key: str,
        ttl_s: float,
        wait_s: float | None,
        nonce: str,
        rng: random.Random,
        now: float,
    ) -> None:
        if not 0 < len(sendable_text(key, "key").encode()) <= LOCKED_KEY_BYTES_MAX:
            raise ConfigError(
                f"a key that is locked has 1 to {LOCKED_KEY_BYTES_MAX} bytes, not {key!r:.60}"
            )
        if not TTL_S_MIN <= checked_seconds(ttl_s, "ttl_s") <= TTL_S_MAX:
            raise ConfigError(f"ttl_s is {TTL_S_MIN:g} to {TTL_S_MAX:g} seconds, not {ttl_s!r}")
        if wait_s is not None and checked_seconds(wait_s, "wait_s") < 0:
            raise ConfigError(f"wait_s is 0 seconds or more, or None, not {wait_s!r}")
        self.key = key
        self.asking = Asking(LOCK_NAME + key, nonce)
        self.term = 0
        self.due_at = now
        self.lost_at = math.inf
        self.is_open = False
        self._ttl_s = ttl_s
        self._until = math.inf if wait_s is None else now + wait_s
        self._pause_s = PAUSE_S
        self._rng = rng
        self._why = ""

    @property
    def next_at(self) -> float:
        """When something is due for a holder."""
        return min(self.due_at, self.lost_at)

    def asked(self, now: float) -> dict[str, Any]:
        """Return the next step, as arguments of `Keyspace.update`; it is sent now."""
        self.is_open = True
        least_s, most_s = PATIENCE_S
        left_s = (self.lost_at if self.term else self._until) - now
        patience_s = max(min(self._ttl_s / 2, most_s, left_s), least_s)
        return self._step(RENEW if self.term else LOCK, patience_s)

    def released(self) -> dict[str, Any]:
        """Return the step that releases the lock."""
        return self._step(UNLOCK, RELEASE_S)

    def _step(self, operation: str, timeout_s: float) -> dict[str, Any]:
        return {
            "key": self.key,
            "operation": operation,
            "argument": math.ceil(self._ttl_s * 1_000),
            "fence": self.asking,
            "timeout_s": timeout_s,
        }

    def why_lost(self, now: float) -> str:
        """Return why the lock is not held; empty if it is. Another thread may ask."""
        if self._why or now < self.lost_at:
            return self._why
        return f"it was not renewed in {self._ttl_s:g} s"

    def granted(self, term: int, asked_at: float) -> None:
        """Note the answer to a request that was sent at *asked_at*; 0 if the lock was lost since.

        The owner counts from a later moment, so it lets nobody else have the lock before
        `lost_at`, as long as its clock runs as fast as ours.
        """
        if term and not self._why:
            self.term, self.lost_at = term, asked_at + self._ttl_s
            self.due_at = asked_at + self._ttl_s / RENEWALS
        elif self.term:
            self._why = "it is another's by now"

    def failed(self, error: RingpopError, now: float) -> None:
        """Note that a request failed.

        Raises:
            LockHeld: another has the lock, and there is no time left to wait.
            ConfigError: this keyspace has no locks.
            RingpopError: *error*, if asking again is useless, or there is no time left.
        """
        is_refused = isinstance(error, ConditionFailed)
        if self.term:
            if is_refused:
                self._why = str(error)
            self.due_at = now + self._ttl_s / RETRIES
            return
        self.is_open = self.is_open and not is_refused
        if isinstance(error, BadOperation):
            raise ConfigError(f"key {self.key!r} cannot be locked: {error}") from error
        is_final = error.took_effect == "no" and not error.passes and not is_refused
        if is_final or now >= self._until:
            raise (LockHeld(str(error)) if is_refused else error) from None
        # Those who wait ask at different moments, and less often the longer they have waited.
        self.due_at = min(now + self._pause_s * self._rng.uniform(0.5, 1.5), self._until)
        self._pause_s = min(self._pause_s * _GROWTH, PAUSE_S_MAX)
