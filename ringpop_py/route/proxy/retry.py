"""One request of `handle_or_proxy` on its way to the owner of its keys (pure).

A `Retry` decides whom to ask now, and what follows when an attempt fails. Instants are whole
microseconds of its driver's clock. A driver is a loop:

    while not isinstance(step := retry.next(routes, now), RingpopError):
        if isinstance(step, int):  # wait until then
        else:  # send the `Ask`; return its answer, or report `failed`
    raise step

The request may not be safe to run twice, so one that may have run is repeated only with leave. It
may also go to the members after the owner (`failover`), which are asked one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ringpop_py.base.config.settings import check_schedule
from ringpop_py.base.errors import (
    ConfigError,
    DeadlineExceeded,
    KeysDiverged,
    MaxRetriesExceeded,
    MayHaveRun,
    PeerDeclined,
    ProxyError,
    Refused,
)
from ringpop_py.route.errand import MICROSECONDS, NEVER, Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.errors import RingpopError, TookEffect
    from ringpop_py.route.errand import PartRoutes


@runtime_checkable
class SuccessorRoutes(Protocol):
    """Routes that know who may stand in for an owner."""

    def successors(self, key: str, count: int) -> Sequence[str]:
        """Return up to *count* members that may be asked about *key*, the best one first."""


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """When a request is tried again, and whom. Requests may share one: making it checks it.

    Attributes:
        schedule_s: the wait before each retry; an index past the end uses the last.
        idempotent: whether the request may run more than once.
        attempt_us: how long one attempt may take, so that a silent owner leaves time for another.
        failover: how many members may handle the request, the owner and those after it on the ring.
            A retry asks the next of them immediately. The schedule's pauses follow the last one.

    Raises:
        ConfigError: when it is made, if the schedule cannot be followed.
    """

    max_retries: int
    schedule_s: tuple[float, ...]
    idempotent: bool = False
    attempt_us: int = NEVER
    failover: int = 1

    def __post_init__(self) -> None:
        check_schedule(self.max_retries, self.schedule_s)
        if self.failover == 1 and type(self.failover) is int:
            return
        if type(self.failover) is not int or not 1 < self.failover <= self.max_retries + 1:
            raise ConfigError(
                f"failover is 1 to max_retries + 1 ({self.max_retries + 1}) members, "
                f"not {self.failover!r}"
            )
        if not self.idempotent:
            raise ConfigError("failover needs idempotent=True: the request may run at each of them")

    def pause_us(self, retries_count: int) -> int:
        """Return how long to wait before the next retry, after as many."""
        return int(self.schedule_s[min(retries_count, len(self.schedule_s) - 1)] * MICROSECONDS)

    def first_ask(
        self, keys: Sequence[str], deadline: int, routes: PartRoutes[str], now: int
    ) -> Ask[str] | None:
        """Return the ask that a request for *keys* begins with; None if only a `Retry` knows.

        As long as all goes well, this is all that a request needs; `Retry.after` has the rest.
        """
        if self.failover > 1 or now >= deadline:
            return None
        to = routes.destination(keys[0])
        return Ask(to, keys, 1, min(deadline - now, self.attempt_us)) if to else None


@dataclass(slots=True, eq=False)
class Retry:
    """One request on its way.

    Attributes:
        keys: have to have one owner. Routes are asked about the first, which stands for all.
        deadline: an instant, in microseconds.
        under_way: the attempt whose end was not reported.
    """

    keys: Sequence[str]
    policy: SchedulePolicy
    deadline: int = NEVER
    under_way: Ask[str] | None = None
    _asks_count: int = 0
    _last: RingpopError | None = field(default=None, init=False)
    _may_have_run: bool = field(default=False, init=False)
    _history: list[str] = field(default_factory=list, init=False)
    # With failover: the members that failed since the last pause, while another can be asked.
    _passed_over: list[str] = field(default_factory=list, init=False)
    _undecided: bool = field(default=False, init=False)  # what follows the last failure

    @classmethod
    def after(cls, ask: Ask[str], policy: SchedulePolicy, deadline: int) -> Retry:
        """Return the request that has begun with *ask*, which is under way."""
        return cls(ask.parts, policy, deadline, ask, ask.number)

    def next(self, routes: PartRoutes[str], now: int) -> Ask[str] | int | RingpopError:
        """Return the attempt to make now, an instant to wait until, or the error of the request.

        Call it when the attempt under way has failed, and after an instant.
        """
        assert self.under_way is None, "one attempt at a time"
        if self._undecided or now >= self.deadline:
            if self._passed_over and not self._untried(routes):
                self._passed_over.clear()
            error = self._end(now)
            if error is not None:
                return error
            self._undecided = False
            if not self._passed_over:
                return min(now + self._pause_us(), self.deadline)
        to = self._to(routes)
        if not to:
            return self._without_owner(routes.why_nobody(self.keys[0]))
        left_us = self.deadline - now
        if self.policy.failover > 1:  # those after it need time, too
            left_us //= max(self.policy.failover - len(self._passed_over), 1)
        self._asks_count += 1
        wait_us = min(left_us, self.policy.attempt_us)
        self.under_way = Ask(to, self.keys, self._asks_count, wait_us)
        return self.under_way

    def failed(self, ask: Ask[str], error: RingpopError) -> None:
        """Report that *ask* ended with *error*. An earlier attempt says nothing any more."""
        if ask is not self.under_way:
            return
        self.under_way = None
        self._last, self._undecided = error, True
        # It stays set: a later attempt that did nothing says nothing about an earlier one.
        self._may_have_run |= error.took_effect == "unknown"
        attempt = f"attempt {len(self._history) + 1} to {ask.to}"
        self._history.append(f"{attempt}: {type(error).__name__}: {error}")
        if self.policy.failover > 1:
            self._passed_over.append(ask.to)

    @property
    def took_effect(self) -> TookEffect:
        """As that of an error: "no" only if it is certain that no attempt took effect."""
        return "unknown" if self._may_have_run else "no"

    def _pause_us(self) -> int:
        return self.policy.pause_us(len(self._history) - 1)

    def _to(self, routes: PartRoutes[str]) -> str:
        """Return whom to ask now: another member may own the keys by now. Empty if nobody."""
        if self.policy.failover == 1:
            return routes.destination(self.keys[0])
        untried = self._untried(routes)
        return untried[0] if untried else ""

    def _untried(self, routes: PartRoutes[str]) -> list[str]:
        assert isinstance(routes, SuccessorRoutes)
        found = routes.successors(self.keys[0], self.policy.failover)
        return [name for name in found if name not in self._passed_over]

    def _without_owner(self, error: RingpopError) -> RingpopError:
        if isinstance(error, KeysDiverged):
            return self._ended(KeysDiverged, str(error))
        error.took_effect = self.took_effect  # it alone would say that nothing was sent
        return error

    def _end(self, now: int) -> ProxyError | None:
        """Return the error that the request ends with; None if there is another try."""
        policy, error, end = self.policy, self._last, None
        if error is None:
            end = self._ended(DeadlineExceeded, "the deadline passed before an attempt")
        elif not error.passes:
            end = self._ended(Refused, f"the owner could not make sense of it: {error}")
        elif now >= self.deadline:
            end = self._ended(DeadlineExceeded, "the deadline passed")
        elif error.took_effect == "unknown" and not policy.idempotent:
            message = "it may have run, and the caller did not say that it may run again"
            end = self._ended(MayHaveRun, message)
        elif policy.max_retries == 0 and isinstance(error, PeerDeclined):
            end = self._ended(Refused, "the owner refused it")
            # As the caller wanted no retry, the error still says that one may succeed.
            end.passes, end.http_status = error.passes, error.http_status
        elif len(self._history) > policy.max_retries:
            end = self._ended(MaxRetriesExceeded, f"gave up after {policy.max_retries} retries")
        # Already now: the caller need not wait for a retry that would come too late.
        elif now + (0 if self._passed_over else self._pause_us()) >= self.deadline:
            end = self._ended(DeadlineExceeded, "the next retry would come too late")
        return end

    def _ended(self, kind: type[ProxyError], message: str) -> ProxyError:
        return kind(message, self._history, self.took_effect)
