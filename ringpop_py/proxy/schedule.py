"""Route and schedule of one request: who gets it, who accepts it, what follows a failure (pure).

A `Route` returns what to do next, and is told how attempts ended. It knows neither clock nor
network: instants come in as seconds, the ring as a value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ringpop_py.config.settings import check_schedule
from ringpop_py.errors import (
    CallError,
    DeadlineExceeded,
    KeysDiverged,
    MaxRetriesExceeded,
    MayHaveRun,
    NoOwner,
    PeerDeclined,
    ProxyError,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.config.settings import Consistency
    from ringpop_py.errors import TookEffect
    from ringpop_py.ring.hashring import HashRing

REFUSED_KEYS: Final = "ringpop.request-proxy.invalid-key"
REFUSED_CHECKSUM: Final = "ringpop.request-proxy.invalid-checksum"


class Owners(Protocol):
    """What a route needs of a ring."""

    def lookup(self, key: str) -> str:
        """The owner of *key*; raises NoOwner."""


def refusal(
    keys: Sequence[str],
    believed: int | None,
    *,
    local: str,
    ring: HashRing,
    consistency: Consistency,
) -> str:
    """Return why *local*, whose ring is *ring*, refuses a request for *keys*; empty if it does not.

    *believed* is the checksum of the sender's ring; None if it is not known.
    """
    if consistency == "keys":
        for key in keys:
            owner = ring.lookup(key) if len(ring) else "nobody"
            if owner != local:
                return f"{REFUSED_KEYS}: {local} has {owner} as the key's owner"
    # A sender that has no ring, such as a client, has nothing to compare.
    elif consistency == "checksum" and believed not in (None, ring.checksum):
        return f"{REFUSED_CHECKSUM}: the ring is {ring.checksum} here, not {believed}"
    return ""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, when, and what to try again. Requests with the same policy share one.

    Attributes:
        schedule_s: the wait before each retry; an index past the end uses the last.
        idempotent: whether the request may run more than once.

    Raises:
        ConfigError: when it is made, if the schedule cannot be followed.
    """

    max_retries: int
    schedule_s: tuple[float, ...]
    idempotent: bool = False

    def __post_init__(self) -> None:
        check_schedule(self.max_retries, self.schedule_s)

    def delay_s(self, retry_index: int) -> float:
        """Return how long to wait before a retry; the first has index 0."""
        return self.schedule_s[min(retry_index, len(self.schedule_s) - 1)]


@dataclass(frozen=True, slots=True)
class HandleHere:
    """This node is the owner."""


class SendTo(NamedTuple):
    """Send the request to *owner*, and report how it ended.

    One is made for each attempt: a tuple, which is made fastest.
    """

    owner: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait *after_s*, then ask for the next step with the ring as it is then."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Raise *error*."""

    error: ProxyError | NoOwner


NextStep = HandleHere | SendTo | GiveUp
AfterFailure = Retry | GiveUp


class Route:
    """One request on its way; *keys* must have one owner each time it is sent.

    The whole must be done by *deadline_at*, on the caller's clock.
    """

    def __init__(
        self,
        keys: Sequence[str],
        local: str,
        policy: RetryPolicy,
        deadline_at: float = math.inf,
    ) -> None:
        assert keys, "a request has at least one key"
        self.keys = tuple(keys)
        self.history: list[str] = []
        self.retry_count = 0
        self.reroute_count = 0
        self._local = local
        self._policy = policy
        self._deadline_at = deadline_at
        self._owner: str | None = None
        self._took_effect: TookEffect = "no"

    def next_step(self, ring: Owners) -> NextStep:
        """Return what to do, by the owners that *ring* has now."""
        try:
            # Looked up for each attempt: the ring may have changed during the wait.
            owners = {ring.lookup(key) for key in self.keys}
        except NoOwner as error:
            error.took_effect = self._took_effect  # NoOwner alone would say that nothing was sent
            return GiveUp(error)
        if len(owners) > 1:
            names = ", ".join(sorted(owners))
            message = f"{len(self.keys)} keys now have {len(owners)} owners: {names}"
            return GiveUp(self._ended(KeysDiverged, message))
        owner = owners.pop()
        # The first owner is not a change.
        self.reroute_count += self._owner is not None and owner != self._owner
        self._owner = owner
        return HandleHere() if owner == self._local else SendTo(owner)

    def failed(self, error: CallError, now: float) -> AfterFailure:
        """Return what follows from an attempt that ended with *error* at *now*."""
        name = type(error).__name__
        if error.took_effect == "unknown":  # and stays so: a later refusal does not undo it
            self._took_effect = "unknown"
        self.history.append(f"attempt {len(self.history) + 1} to {self._owner}: {name}: {error}")
        end = self._end_after(error, now)
        if end is not None:
            return GiveUp(end)
        self.retry_count += 1
        return Retry(self._policy.delay_s(self.retry_count - 1))

    def _end_after(self, error: CallError, now: float) -> ProxyError | None:
        """Return the error to end with; None if there is another try."""
        policy = self._policy
        end: ProxyError | None = None
        if not error.passes:
            end = self._ended(Refused, "the owner could not make sense of it")
        elif now >= self._deadline_at:
            end = self._ended(DeadlineExceeded, "the deadline passed")
        elif error.took_effect == "unknown" and not policy.idempotent:
            message = "it may have run, and the caller did not say that it may run again"
            end = self._ended(MayHaveRun, message)
        elif policy.max_retries == 0 and isinstance(error, PeerDeclined):
            end = self._ended(Refused, "the owner refused it")
            # As the caller wanted no retry, the error still says that one may succeed.
            end.passes, end.http_status = error.passes, error.http_status
        elif self.retry_count >= policy.max_retries:
            message = f"gave up after {policy.max_retries} retries"
            end = self._ended(MaxRetriesExceeded, message)
        # Already now: the caller need not wait for a retry that would come too late.
        elif now + policy.delay_s(self.retry_count) >= self._deadline_at:
            end = self._ended(DeadlineExceeded, "the next retry would come too late")
        return end

    def _ended(self, kind: type[ProxyError], message: str) -> ProxyError:
        return kind(message, self.history, self._took_effect)
