"""One request on its way to the owners of its parts, until each part has its result (pure).

An `Errand` decides whom to ask now, and what follows when attempts end. It knows neither clock nor
network: instants are whole microseconds of its driver's clock. A driver is a loop:

    while (step := errand.next(routes, now)) is not None:
        if isinstance(step, int):  # wait until then, or until the routes change
        else:  # send each `Ask`, and report its end with `answered` or `failed`
    errand.results

Parts for one owner travel as one call. What follows a failure is a policy. With a `DeadlinePolicy`
(requests to keyspaces, whose writes have ids, so that a repetition does no harm) each part goes on
by itself until the deadline. With a `SchedulePolicy` (`handle_or_proxy`) the parts are the keys of
one request, which needs one owner, and a request that may have run is repeated only with leave. It
may also go to the members after the owner (`failover`), which are asked one after the other.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    runtime_checkable,
)

from ringpop_py.config.settings import check_schedule
from ringpop_py.errors import (
    BadOperation,
    BodyError,
    ConfigError,
    DeadlineExceeded,
    KeysDiverged,
    KeyspaceError,
    MaxRetriesExceeded,
    MayHaveRun,
    OutcomeUnknown,
    PartitionUnavailable,
    PeerDeclined,
    ProxyError,
    Refused,
    RingpopError,
    StoreUnavailable,
)
from ringpop_py.values.requests import Moved

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.errors import TookEffect

P = TypeVar("P", bound=Hashable)
P_contra = TypeVar("P_contra", bound=Hashable, contravariant=True)

NEVER: Final = 1 << 62
"""The deadline of an errand that has none, in microseconds."""
PAUSE_US_MAX: Final = 500_000
"""The longest pause of a `DeadlinePolicy`, in microseconds, with its jitter."""
JITTER_MS_MAX: Final = 49
_DOUBLINGS_MAX: Final = 40
"""The exponent stops here, so that it cannot grow for ever; any cap is reached long before."""
MICROSECONDS: Final = 1_000_000
_FAR_S: Final = NEVER / MICROSECONDS
RELAY: Final = ""
"""The destination of an ask that any member may serve, by asking the owners itself."""


def instant_us(at_s: float) -> int:
    """Return the instant *at_s* seconds of a driver's clock, which may be infinite."""
    return round(at_s * MICROSECONDS) if at_s < _FAR_S else NEVER


class PartRoutes(Protocol[P_contra]):
    """Who owns which part, as one process sees it now."""

    def destination(self, part: P_contra) -> str:
        """Return the name of the member to ask about *part*; empty if there is none."""

    def why_nobody(self, part: P_contra) -> RingpopError:
        """Return why there is no member to ask."""


@runtime_checkable
class SuccessorRoutes(Protocol[P_contra]):
    """Routes that know who may stand in for an owner."""

    def successors(self, part: P_contra, count: int) -> Sequence[str]:
        """Return up to *count* members that may be asked about *part*, the best one first."""


class LearningRoutes(PartRoutes[P_contra], Protocol[P_contra]):
    """Routes that answers of owners correct."""

    def learn(self, row: list[Any]) -> None:
        """Merge a row that another node sent. Raises BodyError."""


class Ask(NamedTuple, Generic[P]):
    """One call to send: *parts* to the member *to*.

    One is made for each attempt: a tuple, which is made fastest.

    Attributes:
        number: which ask of its errand it is; an end that is reported for an older one is ignored.
        wait_us: how long to wait for the answer.
    """

    to: str
    parts: Sequence[P]
    number: int
    wait_us: int


@dataclass(slots=True, eq=False)
class Tried:
    """The attempts at a part that has no result yet.

    Attributes:
        may_have_run: whether one of them may have taken effect. It stays set: a later attempt that
            did nothing says nothing about an earlier one.
        last, to: the error of the last one that did not end in a redirect, and whom it asked.
        history: a line for each failure, if the policy keeps them.
        passed_over: the members that failed since the last pause, while another one can be asked.
    """

    attempts_count: int = 0
    redirects_count: int = 0
    may_have_run: bool = False
    last: RingpopError | None = None
    to: str = ""
    history: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    @property
    def was_redirected_once(self) -> bool:
        """Whether the only attempt was answered with the name of another owner."""
        return self.attempts_count == self.redirects_count == 1

    @property
    def took_effect(self) -> TookEffect:
        """As that of an error: "no" only if it is certain that no attempt took effect."""
        return "unknown" if self.may_have_run else "no"

    def meet(self, error: RingpopError, to: str) -> None:
        """Note that an attempt at the member *to* ended with *error*."""
        self.attempts_count += 1
        self.last, self.to = error, to
        if error.took_effect == "unknown":
            self.may_have_run = True


NOT_TRIED: Final = Tried()


@dataclass(frozen=True, slots=True)
class DeadlinePolicy:
    """Tries each part again until the deadline, with pauses that grow. Errands may share one.

    Attributes:
        rng: for the jitter of the pauses.
        changes_state: whether it writes. What a read did is never open, as it may run twice.
        attempt_us: how long one attempt may take at most.
        relays: whether parts go to their owners only once, or twice after a redirect, and to
            `RELAY` afterwards, whose answer is the result. Without it owners are asked only.
        straight_us: how long an owner has at most if *relays*; besides, the relay is left half of
            the time.
        asked: whom it asks, for the texts of errors.
    """

    rng: random.Random
    changes_state: bool
    attempt_us: int = NEVER
    relays: bool = False
    straight_us: int = NEVER
    asked: str = "owner"
    failover: ClassVar = 1

    def pause_us(self, pauses_count: int) -> int:
        """Return how long to pause after as many pauses: 2 to that power ms, plus jitter.

        The jitter is 0 to 49 whole ms. It is within the cap, but the cap never squeezes it out:
        senders that have waited long are those that must not all come back at the same time.
        """
        base_us = 1_000 << min(pauses_count, _DOUBLINGS_MAX)
        jitter_us = self.rng.randrange(JITTER_MS_MAX + 1) * 1_000
        return min(base_us, PAUSE_US_MAX - JITTER_MS_MAX * 1_000) + jitter_us

    def settled(self, error: KeyspaceError, tried: Tried) -> KeyspaceError:
        """Return the error of a part whose last answer was *error*: more time would not help."""
        says_all = error.settles or error.took_effect == "unknown"
        return error if says_all else self._unless_open(error, tried)

    def _unless_open(self, error: KeyspaceError, tried: Tried) -> KeyspaceError:
        if self.changes_state and tried.may_have_run:
            return OutcomeUnknown(f"it may have taken effect: {error}")
        return error

    def end(self, tried: Tried, now: int, deadline: int) -> KeyspaceError | None:
        """Return the error that a part ends with; None if it is to be tried again."""
        last = tried.last
        if last is not None and not last.passes:
            if isinstance(last, KeyspaceError):
                return self.settled(last, tried)
            # Its address may belong to another process now, and the relay knows a newer one.
            if not (self.relays and tried.to):
                message = f"{tried.to or 'a daemon'} cannot decode the request: {last}"
                return self._unless_open(BadOperation(message), tried)
        if now < deadline:
            return None
        if isinstance(last, StoreUnavailable):  # its cause helps more than a missing answer
            return last
        why: object = last
        if last is None:
            many = tried.redirects_count
            why = "its owner changed again and again" if many else "no time was left"
        elif not isinstance(last, KeyspaceError):
            why = f"{type(last).__name__}: {last}"
            why = f"{tried.to}: {why}" if tried.to else why
        if self.changes_state and tried.may_have_run:
            return OutcomeUnknown(f"no answer in time, and it may have taken effect: {why}")
        return PartitionUnavailable(f"no {self.asked} answered in time: {why}")


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """Tries a request again on a schedule, if it cannot have run or may run twice.

    Errands may share one: making it checks the schedule.

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
    relays: ClassVar = False
    straight_us: ClassVar = NEVER

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

    def settled(self, error: KeyspaceError, _tried: Tried) -> KeyspaceError:
        """Return *error*: an answer is an answer."""
        return error

    def end(self, tried: Tried, now: int, deadline: int) -> ProxyError | None:
        """Return the error that the request ends with; None if there is another try."""
        error, end = tried.last, None
        retries_count = len(tried.history) - 1
        if error is None:
            end = _ended(DeadlineExceeded, "the deadline passed before an attempt", tried)
        elif not error.passes:
            end = _ended(Refused, "the owner could not make sense of it", tried)
        elif now >= deadline:
            end = _ended(DeadlineExceeded, "the deadline passed", tried)
        elif error.took_effect == "unknown" and not self.idempotent:
            message = "it may have run, and the caller did not say that it may run again"
            end = _ended(MayHaveRun, message, tried)
        elif self.max_retries == 0 and isinstance(error, PeerDeclined):
            end = _ended(Refused, "the owner refused it", tried)
            # As the caller wanted no retry, the error still says that one may succeed.
            end.passes, end.http_status = error.passes, error.http_status
        elif retries_count >= self.max_retries:
            message = f"gave up after {self.max_retries} retries"
            end = _ended(MaxRetriesExceeded, message, tried)
        # Already now: the caller need not wait for a retry that would come too late.
        elif now + (0 if tried.passed_over else self.pause_us(retries_count)) >= deadline:
            end = _ended(DeadlineExceeded, "the next retry would come too late", tried)
        return end

    def scattered(
        self, owners: Iterable[str], nobody: Sequence[RingpopError], tried: Tried
    ) -> RingpopError:
        """Return the error of a request whose keys have several *owners*, or *nobody*."""
        if nobody and isinstance(nobody[0], KeysDiverged):  # found by a driver: it has one part
            return _ended(KeysDiverged, str(nobody[0]), tried)
        if nobody:
            error = nobody[0]
            error.took_effect = tried.took_effect  # it alone would say that nothing was sent
            return error
        names = sorted(owners)
        message = f"its keys now have {len(names)} owners: {', '.join(names)}"
        return _ended(KeysDiverged, message, tried)


def _ended(kind: type[ProxyError], message: str, tried: Tried) -> ProxyError:
    return kind(message, tried.history, tried.took_effect)


Policy = DeadlinePolicy | SchedulePolicy
Step = list[Ask[P]] | int | None


@dataclass(slots=True, eq=False, repr=False)
class Errand(Generic[P]):
    """One request on its way.

    Attributes:
        open: the parts that have no result.
        deadline: an instant, in microseconds.
        results: the result of each other part: what was answered, or an error.
        under_way: the asks whose end was not reported.
    """

    open: Sequence[P]
    policy: Policy
    deadline: int = NEVER
    results: dict[P, Any] = field(default_factory=dict, init=False)
    under_way: list[Ask[P]] = field(default_factory=list, init=False)
    _tried: dict[P, Tried] = field(default_factory=dict, init=False)  # mostly none
    _asks_count: int = field(default=0, init=False)
    _pauses_count: int = field(default=0, init=False)
    # Whether what follows the last round is not decided yet, and whether it is another one without
    # a pause.
    _troubled: bool = field(default=False, init=False)
    _hurries: bool = field(default=False, init=False)

    @staticmethod
    def first_ask(
        part: P, policy: SchedulePolicy, deadline: int, routes: PartRoutes[P], now: int
    ) -> Ask[P] | None:
        """Return the ask that an errand about *part* begins with; None if only the errand knows.

        As long as all goes well, this is all that a request needs; `after` has the rest.
        """
        if policy.failover > 1 or now >= deadline:
            return None
        to = routes.destination(part)
        return Ask(to, (part,), 1, min(deadline - now, policy.attempt_us)) if to else None

    @classmethod
    def after(cls, ask: Ask[P], policy: SchedulePolicy, deadline: int) -> Errand[P]:
        """Return the errand that has begun with *ask*, which is under way."""
        errand = cls(ask.parts, policy, deadline)
        errand._asks_count = ask.number
        errand.under_way.append(ask)
        return errand

    def __repr__(self) -> str:
        asks = ", ".join(f"{ask.parts} at {ask.to or 'the relay'}" for ask in self.under_way)
        tried = {part: self._tried[part] for part in self.open if part in self._tried}
        return f"<Errand: {len(self.results)} done, {self.open} open, asks [{asks}], {tried}>"

    def next(self, routes: PartRoutes[P], now: int) -> Step[P]:
        """Return the asks to send now, an instant to wait until, or None: all parts are done.

        Call it again when all asks have ended; after an instant, also earlier if the routes change.
        """
        assert not self.under_way, "a round ends when all its asks have ended"
        policy, deadline = self.policy, self.deadline
        if self._troubled or now >= deadline:
            until = self._follow(routes, now)
            if until is not None:
                return until
        if not self.open:
            return None
        self._troubled = self._hurries = False
        tried, relays, is_alone = self._tried, policy.relays, policy.failover == 1
        destination = routes.destination if is_alone else partial(self._next_to, routes)
        groups: dict[str, list[P]] = {}
        for part in self.open:
            # Looked up for each attempt: another member may own it by now.
            straight = not relays or part not in tried or tried[part].was_redirected_once
            groups.setdefault(destination(part) if straight else RELAY, []).append(part)
        if RELAY in groups or len(groups) > 1:
            self._sift(groups, routes)
            if not (groups and self.open):
                return self.next(routes, now)
        for to, parts in groups.items():
            wait_us = min(deadline - now, policy.attempt_us)
            if relays and to:
                wait_us = min(wait_us // 2, policy.straight_us)
            elif not is_alone:  # those after it need time, too
                wait_us = min(wait_us, (deadline - now) // self._left_to_ask(parts[0]))
            self._asks_count += 1
            self.under_way.append(Ask(to, parts, self._asks_count, wait_us))
        return self.under_way.copy()

    def answered(
        self,
        ask: Ask[P],
        results: Sequence[Any],
        routes: LearningRoutes[P],
        decode: Callable[[P, Any], object] | None = None,
    ) -> None:
        """Report the result of each part of *ask*: a value, `Moved`, or an error.

        *decode* makes a result of a value that came, or raises BodyError.
        """
        if ask not in self.under_way:
            return  # too late: it was reported before, so its parts have gone on
        self.under_way.remove(ask)
        for part, result in zip(ask.parts, results, strict=True):
            if isinstance(result, RingpopError):
                self._met(ask, part, result)
            elif isinstance(result, Moved):
                self._moved(ask, part, result, routes)
            elif decode is None:
                self.results[part] = result
            else:
                try:
                    self.results[part] = decode(part, result)
                except BodyError as error:
                    # The owner has served the part, and a write may have taken effect.
                    self._met(ask, part, OutcomeUnknown(f"the answer cannot be read: {error}"))
        if self._tried:
            self._close(ask)
        elif not self.under_way:
            # Not empty if there was nobody to ask for some: they are the relay's, in a later round.
            self.open = [part for part in self.open if part not in self.results]

    def failed(self, ask: Ask[P], error: RingpopError) -> None:
        """Report that *ask* ended with *error*."""
        if ask not in self.under_way:
            return
        self.under_way.remove(ask)
        for part in ask.parts:
            self._met(ask, part, error)
        self._close(ask)

    # What an attempt means for a part.

    def _met(self, ask: Ask[P], part: P, error: RingpopError) -> None:
        policy = self.policy
        tried = self._tried.setdefault(part, Tried())
        # An error that settles is the owner's own answer, so it is a result like a value. So is
        # what a relay answers, which has tried until the deadline.
        by_relay = policy.relays and not ask.to
        if isinstance(error, KeyspaceError) and (error.settles or by_relay):
            self.results[part] = policy.settled(error, tried)
            return
        tried.meet(error, ask.to)
        if isinstance(policy, SchedulePolicy):
            line = f"to {ask.to}: {type(error).__name__}: {error}"
            tried.history.append(f"attempt {tried.attempts_count} {line}")
            if policy.failover > 1:
                tried.passed_over.append(ask.to)
        self._troubled = True
        self._hurries |= policy.relays and not by_relay

    def _moved(self, ask: Ask[P], part: P, moved: Moved, routes: LearningRoutes[P]) -> None:
        try:
            routes.learn(moved.row)
        except BodyError as error:
            message = f"the row of its new owner cannot be read: {error}"
            self._met(ask, part, PartitionUnavailable(message))
            return
        tried = self._tried.setdefault(part, Tried())
        tried.attempts_count += 1
        tried.redirects_count += 1
        self._troubled = True
        # Only the first redirect is followed without a pause: two nodes that name each other as
        # the owner would otherwise be asked in a tight loop.
        self._hurries |= self.policy.relays or tried.redirects_count == 1

    def _close(self, ask: Ask[P]) -> None:
        """Note which parts are open after *ask*."""
        for part in ask.parts:
            tried, result = self._tried.get(part), self.results.get(part)
            # The outcome of each write, for example.
            if tried is not None and tried.may_have_run and isinstance(result, list):
                self.results[part] = [
                    self.policy.settled(each, tried) if isinstance(each, KeyspaceError) else each
                    for each in result
                ]
        if not self.under_way:
            self.open = [part for part in self.open if part not in self.results]

    # Between attempts.

    def _next_to(self, routes: PartRoutes[P], part: P) -> str:
        """Return the member to ask about *part* now; empty if there is none."""
        untried = self._untried(part, routes)
        return untried[0] if untried else RELAY

    def _untried(self, part: P, routes: PartRoutes[P]) -> list[str]:
        assert isinstance(routes, SuccessorRoutes)
        passed_over = self._tried.get(part, NOT_TRIED).passed_over
        found = routes.successors(part, self.policy.failover)
        return [name for name in found if name not in passed_over]

    def _left_to_ask(self, part: P) -> int:
        passed_over = self._tried.get(part, NOT_TRIED).passed_over
        return max(self.policy.failover - len(passed_over), 1)

    def _follow(self, routes: PartRoutes[P], now: int) -> int | None:
        """End the parts that are not to be tried again; return until when to pause, if at all."""
        for part in self.open:
            tried = self._tried.get(part, NOT_TRIED)
            if tried.passed_over:
                if self._untried(part, routes):
                    self._hurries = True
                    self._pauses_count += 1  # the schedule counts retries, also those without one
                else:
                    tried.passed_over.clear()
            error = self.policy.end(tried, now, self.deadline)
            if error is not None:
                self.results[part] = error
        self.open = [part for part in self.open if part not in self.results]
        if not (self._troubled and self.open) or self._hurries:
            return None
        self._troubled = False
        self._pauses_count += 1
        return min(now + self.policy.pause_us(self._pauses_count - 1), self.deadline)

    def _sift(self, groups: dict[str, list[P]], routes: PartRoutes[P]) -> None:
        """Take those groups of parts out that are not to be asked now."""
        policy = self.policy
        if policy.relays:
            if len(groups) > 1:
                groups.pop(RELAY, None)  # it gets all parts that owners leave over in one call
            return
        errors = [(part, routes.why_nobody(part)) for part in groups.pop(RELAY, ())]
        if isinstance(policy, DeadlinePolicy):
            for part, error in errors:
                self._tried.setdefault(part, Tried()).meet(error, "")
            self._troubled |= bool(errors)
            return
        # The keys were sent together each time.
        end = policy.scattered(
            groups, [e for _, e in errors], self._tried.get(self.open[0], NOT_TRIED)
        )
        self.results.update(dict.fromkeys(self.open, end))
        self.open = ()
