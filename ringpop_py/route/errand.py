"""One request on its way to the owners of its parts, until each part has its result (pure).

An `Errand` decides whom to ask now, and what follows when attempts end. It knows neither clock nor
network: instants are whole microseconds of its driver's clock. A driver is a loop:

    while (step := errand.next(routes, now)) is not None:
        if isinstance(step, int):  # wait until then, or until the routes change
        else:  # send each `Ask`, and report its end with `answered` or `failed`
    errand.results

Parts are those of a request to a keyspace. They may be done twice without harm, as writes have ids.
Each goes on by itself until the deadline; those for one owner travel as one call. A client asks
owners only once, and then a member that asks them for it (`RelayPolicy`).

(A request of `handle_or_proxy`, which may not be safe to repeat, is a `proxy.retry.Retry`.)
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
)

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    KeyspaceError,
    OutcomeUnknown,
    PartitionUnavailable,
    RingpopError,
    StoreUnavailable,
)
from ringpop_py.base.values.requests import Moved

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

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


class LearningRoutes(PartRoutes[P_contra], Protocol[P_contra]):
    """Routes that answers of owners correct."""

    def learn(self, row: list[Any]) -> None:
        """Merge a row that another node sent. Raises BodyError."""


class PartitionRequest(Protocol):
    """A request that is made of parts, one for each partition.

    A part may be done twice without harm: a read changes nothing, and writes have ids.

    Attributes:
        changes_state: whether it writes.
    """

    endpoint: str
    changes_state: bool

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of the part of partition *number*. Raises BodyError."""


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
class Attempts:
    """The attempts at a part that has no result yet.

    Attributes:
        may_have_run: whether one of them may have taken effect. It stays set: a later attempt that
            did nothing says nothing about an earlier one.
        last, to: the error of the last one that did not end in a redirect, and whom it asked.
    """

    attempts_count: int = 0
    redirects_count: int = 0
    may_have_run: bool = False
    last: RingpopError | None = None
    to: str = ""

    def meet(self, error: RingpopError, to: str) -> None:
        """Note that an attempt at the member *to* ended with *error*."""
        self.attempts_count += 1
        self.last, self.to = error, to
        if error.took_effect == "unknown":
            self.may_have_run = True


NOT_TRIED: Final = Attempts()


@dataclass(frozen=True, slots=True)
class DeadlinePolicy:
    """Asks owners again and again until the deadline, with pauses that grow. Errands may share one.

    Attributes:
        rng: for the jitter of the pauses.
        changes_state: whether it writes. What a read did is never open, as it may run twice.
        attempt_us: how long one attempt may take at most.
        asked: whom it asks, for the texts of errors.
        has_relay: whether `RELAY` is for parts without a known owner, which wait otherwise.
    """

    rng: random.Random
    changes_state: bool
    attempt_us: int = NEVER
    asked: str = "owner"
    has_relay: ClassVar[bool] = False

    def asks_owner(self, _tried: Attempts) -> bool:
        """Return whether a part that was *tried* goes to its owner, and not to `RELAY`."""
        return True

    def wait_us(self, _to: str, left_us: int) -> int:
        """Return how long an attempt at the member *to* may take, of *left_us*."""
        return min(left_us, self.attempt_us)

    def pause_us(self, pauses_count: int) -> int:
        """Return how long to pause after as many pauses: 2 to that power ms, plus jitter.

        The jitter is 0 to 49 whole ms. It is within the cap, but the cap never squeezes it out:
        senders that have waited long are those that must not all come back at the same time.
        """
        base_us = 1_000 << min(pauses_count, _DOUBLINGS_MAX)
        jitter_us = self.rng.randrange(JITTER_MS_MAX + 1) * 1_000
        return min(base_us, PAUSE_US_MAX - JITTER_MS_MAX * 1_000) + jitter_us

    def settled(self, error: KeyspaceError, tried: Attempts) -> KeyspaceError:
        """Return the error of a part whose last answer was *error*: more time would not help."""
        # One that passes is of this attempt: its owner has not looked for earlier ones.
        says_all = (error.settles and not error.passes) or error.took_effect == "unknown"
        return error if says_all else self._unless_open(error, tried)

    def _unless_open(self, error: KeyspaceError, tried: Attempts) -> KeyspaceError:
        if self.changes_state and tried.may_have_run:
            return OutcomeUnknown(f"it may have taken effect: {error}")
        return error

    def end(self, tried: Attempts, now: int, deadline: int) -> KeyspaceError | None:
        """Return the error that a part ends with; None if it is to be tried again."""
        last = tried.last
        if last is not None and not last.passes:
            if isinstance(last, KeyspaceError):
                return self.settled(last, tried)
            # Its address may belong to another process now, and the relay knows a newer one.
            if not (self.has_relay and tried.to):
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
class RelayPolicy(DeadlinePolicy):
    """Asks owners once, or twice after a redirect, and then `RELAY`, whose answer is the result.

    Attributes:
        straight_us: how long an owner has at most. Besides, the relay is left half of the time.
    """

    asked: str = "daemon"
    straight_us: int = NEVER
    has_relay: ClassVar[bool] = True

    def asks_owner(self, tried: Attempts) -> bool:
        """See `DeadlinePolicy`."""
        return tried.attempts_count == tried.redirects_count == 1

    def wait_us(self, to: str, left_us: int) -> int:
        """See `DeadlinePolicy`."""
        wait_us = min(left_us, self.attempt_us)
        return min(wait_us // 2, self.straight_us) if to else wait_us


Step = list[Ask[P]] | int | None


@dataclass(slots=True, eq=False, repr=False)
class Errand(Generic[P]):
    """One request on its way.

    Attributes:
        open: the parts that have no result.
        deadline: an instant, in microseconds.
        results: the result of each other part: what was answered, or an error.
        under_way: the asks whose end was not reported.
        given_up: the parts whose result is an error that no owner has answered.
    """

    open: Sequence[P]
    policy: DeadlinePolicy
    deadline: int = NEVER
    results: dict[P, Any] = field(default_factory=dict, init=False)
    under_way: list[Ask[P]] = field(default_factory=list, init=False)
    given_up: Sequence[P] = field(default=(), init=False)
    _tried: dict[P, Attempts] = field(default_factory=dict, init=False)  # mostly none
    _asks_count: int = field(default=0, init=False)
    _pauses_count: int = field(default=0, init=False)
    # Whether what follows the last round is not decided yet, and whether it is another one without
    # a pause.
    _troubled: bool = field(default=False, init=False)
    _hurries: bool = field(default=False, init=False)

    @classmethod
    def begun(
        cls, part: P, to: str, policy: DeadlinePolicy, deadline: int
    ) -> tuple[Errand[P], Ask[P]]:
        """Return the errand about *part* whose first ask, of the member *to*, is under way."""
        errand = cls((part,), policy, deadline)
        errand._asks_count = 1
        ask = Ask(to, errand.open, 1, 0)
        errand.under_way.append(ask)
        return errand, ask

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
            until = self._follow(now)
            if until is not None:
                return until
        if not self.open:
            return None
        self._troubled = self._hurries = False
        tried, destination = self._tried, routes.destination
        groups: dict[str, list[P]] = {}
        for part in self.open:
            # Looked up for each attempt: another member may own it by now.
            straight = part not in tried or policy.asks_owner(tried[part])
            groups.setdefault(destination(part) if straight else RELAY, []).append(part)
        if RELAY in groups:
            self._sift(groups, routes)
            if not groups:
                return self.next(routes, now)
        for to, parts in groups.items():
            wait_us = policy.wait_us(to, deadline - now)
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
        tried = self._tried.setdefault(part, Attempts())
        # An error that settles is the owner's own answer, so it is a result like a value. So is
        # what a relay answers, which has tried until the deadline.
        if isinstance(error, KeyspaceError) and (error.settles or ask.to == RELAY):
            self.results[part] = policy.settled(error, tried)
            return
        tried.meet(error, ask.to)
        self._troubled = True
        self._hurries |= policy.has_relay and ask.to != RELAY

    def _moved(self, ask: Ask[P], part: P, moved: Moved, routes: LearningRoutes[P]) -> None:
        try:
            routes.learn(moved.row)
        except BodyError as error:
            message = f"the row of its new owner cannot be read: {error}"
            self._met(ask, part, PartitionUnavailable(message))
            return
        tried = self._tried.setdefault(part, Attempts())
        tried.attempts_count += 1
        tried.redirects_count += 1
        self._troubled = True
        # Only the first redirect is followed without a pause: two nodes that name each other as
        # the owner would otherwise be asked in a tight loop.
        self._hurries |= self.policy.has_relay or tried.redirects_count == 1

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

    def _follow(self, now: int) -> int | None:
        """End the parts that are not to be tried again; return until when to pause, if at all."""
        for part in self.open:
            tried = self._tried.get(part, NOT_TRIED)
            error = self.policy.end(tried, now, self.deadline)
            if error is not None:
                self.results[part] = error
                self.given_up = (*self.given_up, part)
        self.open = [part for part in self.open if part not in self.results]
        if not (self._troubled and self.open) or self._hurries:
            return None
        self._troubled = False
        self._pauses_count += 1
        return min(now + self.policy.pause_us(self._pauses_count - 1), self.deadline)

    def _sift(self, groups: dict[str, list[P]], routes: PartRoutes[P]) -> None:
        """Take the parts that no owner is asked for out of *groups*, if they have to wait."""
        if not self.policy.has_relay:
            for part in groups.pop(RELAY):
                self._tried.setdefault(part, Attempts()).meet(routes.why_nobody(part), "")
            self._troubled = True
        elif len(groups) > 1:
            del groups[RELAY]  # it gets all parts that owners leave over in one call
