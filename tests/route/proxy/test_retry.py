"""Requests for one owner: the peers they ask, what follows a failure, and their final error."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import (
    BadRequest,
    BodyError,
    CallError,
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    KeysDiverged,
    MaxRetriesExceeded,
    MayHaveRun,
    NoOwner,
    PeerBusy,
    PeerDeclined,
    Refused,
    RingpopError,
)
from ringpop_py.route.errand import NEVER, Ask
from ringpop_py.route.proxy.key_groups import Together
from ringpop_py.route.proxy.retry import Retry, SchedulePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

s: Final = 1_000_000
SCHEDULE_S: Final = (0.0, 0.5, 2.0)
REFUSED: Final = ConnectFailed("refused")
LOST: Final = ConnectionLost("cut")


class Owners:
    """The members of each key, the best one first."""

    def __init__(self, **owners: str) -> None:
        self.owners = owners

    @property
    def owned_by(self) -> object:
        return self

    def destination(self, key: str) -> str:
        return (self.owners.get(key, "").split() or [""])[0]

    def owners_of(self, keys: Sequence[str]) -> Sequence[str]:
        return [*map(self.destination, keys)]

    def successors(self, key: str, count: int) -> list[str]:
        return self.owners.get(key, "").split()[:count]

    def why_nobody(self, key: str) -> RingpopError:
        return NoOwner(f"nobody has {key}")


def schedule(max_retries: int = 3, *, idempotent: bool = False) -> SchedulePolicy:
    return SchedulePolicy(max_retries, SCHEDULE_S, idempotent)


def ask_of(retry: Retry, routes: Owners | Together, now: int = 0) -> Ask[str]:
    step = retry.next(routes, now)
    assert isinstance(step, Ask), step
    return step


def pause_of(retry: Retry, routes: Owners | Together, now: int = 0) -> int:
    """How long the request pauses from *now*."""
    step = retry.next(routes, now)
    assert isinstance(step, int), step
    return step - now


def ended(retry: Retry, routes: Owners | Together, now: int = 0) -> RingpopError:
    error = retry.next(routes, now)
    assert isinstance(error, RingpopError), error
    return error


def failing(policy: SchedulePolicy, *errors: RingpopError) -> RingpopError:
    """Return the error of a request whose attempts end with *errors*."""
    retry, routes, now = Retry(("k",), policy), Owners(k="b"), 0
    for error in errors:
        step = retry.next(routes, now)
        if isinstance(step, int):
            now, step = step, retry.next(routes, step)
        assert isinstance(step, Ask), step
        retry.failed(step, error)
    return ended(retry, routes, now)


def test_without_any_owner_the_request_ends() -> None:
    assert isinstance(ended(Retry(("k",), schedule()), Owners()), NoOwner)


@pytest.mark.parametrize("last", ["c", ""])
def test_keys_of_several_owners_have_diverged(last: str) -> None:
    keys = "k", "l", "m"

    error = ended(Retry(keys, schedule()), Together(Owners(k="b", l="b", m=last), keys))

    assert isinstance(error, KeysDiverged if last else NoOwner)


def test_keys_that_diverge_before_a_retry_end_the_request_with_its_history() -> None:
    keys, owners = ("k", "l"), Owners(k="b", l="b")
    retry, routes = Retry(keys, schedule()), Together(owners, keys)
    ask = ask_of(retry, routes)
    assert (ask.to, ask.parts) == ("b", keys)
    retry.failed(ask, REFUSED)
    assert pause_of(retry, routes) == 0

    owners.owners["l"] = "c"
    error = ended(retry, routes)

    assert isinstance(error, KeysDiverged)
    assert error.history == ("attempt 1 to b: ConnectFailed: refused",)


def test_each_retry_waits_as_scheduled_and_past_the_end_as_the_last_says() -> None:
    retry, routes = Retry(("k",), schedule(5)), Owners(k="b")
    pauses_us = []
    for _ in range(5):
        retry.failed(ask_of(retry, routes), REFUSED)
        pauses_us.append(pause_of(retry, routes))

    assert pauses_us == [0, 500_000, 2 * s, 2 * s, 2 * s]


def test_the_last_failure_tells_of_all() -> None:
    error = failing(schedule(1), REFUSED, PeerBusy("full"))

    assert isinstance(error, MaxRetriesExceeded)
    assert error.history == (
        "attempt 1 to b: ConnectFailed: refused",
        "attempt 2 to b: PeerBusy: full",
    )
    assert "PeerBusy: full" in str(error)


@pytest.mark.parametrize("error", [CallTimeout("late"), LOST])
def test_a_request_that_may_have_run_is_not_repeated_unasked(error: CallError) -> None:
    assert isinstance(failing(schedule(), error), MayHaveRun)


def test_a_request_that_may_have_run_is_repeated_if_the_caller_allows_it() -> None:
    retry, routes = Retry(("k",), schedule(idempotent=True)), Owners(k="b")
    retry.failed(ask_of(retry, routes), LOST)

    assert pause_of(retry, routes) == 0


def test_a_request_that_makes_no_sense_is_never_repeated() -> None:
    assert type(failing(schedule(idempotent=True), BadRequest("no such endpoint"))) is Refused


def test_an_owner_that_declines_may_take_the_request_later() -> None:
    end = failing(schedule(0), PeerDeclined("not mine"))

    assert (type(end), end.took_effect, end.passes) == (Refused, "no", True)


def test_a_retry_that_would_come_after_the_deadline_is_not_waited_for() -> None:
    retry, routes = Retry(("k",), schedule(), 1 * s), Owners(k="b")
    retry.failed(ask_of(retry, routes), REFUSED)
    assert pause_of(retry, routes, 200_000) == 0
    retry.failed(ask_of(retry, routes, 200_000), REFUSED)

    assert isinstance(ended(retry, routes, 600_000), DeadlineExceeded)


def test_after_the_deadline_nothing_is_sent() -> None:
    error = ended(Retry(("k",), schedule(), 1 * s), Owners(k="b"), 1 * s)

    assert (type(error), error.took_effect) == (DeadlineExceeded, "no")


@pytest.mark.parametrize(
    ("max_retries", "schedule_s"),
    [(-1, (0.0,)), (1, ()), (1, (-0.5,)), (1, (math.nan,)), (1, (math.inf,))],
)
def test_a_policy_that_cannot_be_followed_is_refused(
    max_retries: int, schedule_s: tuple[float, ...]
) -> None:
    with pytest.raises(ConfigError):
        SchedulePolicy(max_retries, schedule_s)


@pytest.mark.parametrize(("error", "took_effect"), [(REFUSED, "no"), (LOST, "unknown")])
def test_a_request_that_was_given_up_took_no_effect_if_no_attempt_can_have_run(
    error: CallError, took_effect: str
) -> None:
    end = failing(schedule(1, idempotent=True), error, REFUSED)

    assert (type(end), end.took_effect) == (MaxRetriesExceeded, took_effect)


@given(
    owner=st.sampled_from(["b", ""]),
    deadline=st.sampled_from([0, 1, 5 * s, NEVER]),
    now=st.integers(0, 6 * s),
    attempt_us=st.sampled_from([s, NEVER]),
)
def test_the_first_ask_alone_is_what_a_request_begins_with(
    owner: str, deadline: int, now: int, attempt_us: int
) -> None:
    policy, routes = replace(schedule(), attempt_us=attempt_us), Owners(k=owner)
    retry = Retry(("k",), policy, deadline)
    step = retry.next(routes, now)
    ask = policy.first_ask(("k",), deadline, routes, now)

    if ask is None:
        assert isinstance(step, RingpopError)  # which the request has
    else:
        assert step == ask
        after = Retry.after(ask, policy, deadline)
        assert isinstance(step, Ask)
        retry.failed(step, LOST)
        after.failed(ask, LOST)
        assert str(retry.next(routes, now)) == str(after.next(routes, now))


# With failover.


def failover(count: int, max_retries: int = 3) -> SchedulePolicy:
    policy = SchedulePolicy(max_retries, SCHEDULE_S, idempotent=True, failover=count)
    return replace(policy, attempt_us=8 * s)


def test_each_of_the_members_is_asked_without_a_pause_and_then_the_schedule_waits() -> None:
    retry, routes = Retry(("k",), failover(2)), Owners(k="b c d")
    asked = []
    for _ in range(2):
        for _ in range(2):
            ask = ask_of(retry, routes)
            asked.append(ask.to)
            retry.failed(ask, LOST)
        if len(asked) < 4:
            assert pause_of(retry, routes) == SCHEDULE_S[1] * s

    error = ended(retry, routes)
    assert asked == ["b", "c", "b", "c"]
    assert isinstance(error, MaxRetriesExceeded)
    assert len(error.history) == 4


def test_a_silent_member_leaves_time_for_those_after_it() -> None:
    retry, routes = Retry(("k",), failover(2), 4 * s), Owners(k="b c")
    ask = ask_of(retry, routes)
    assert ask.wait_us == 2 * s
    retry.failed(ask, CallTimeout("late"))
    ask = ask_of(retry, routes, 2 * s)
    assert (ask.to, ask.wait_us) == ("c", 2 * s)


def test_members_that_have_come_are_asked_and_without_any_there_is_no_owner() -> None:
    retry, routes = Retry(("k",), failover(2)), Owners(k="b")
    retry.failed(ask_of(retry, routes), LOST)
    assert pause_of(retry, routes) == SCHEDULE_S[0] * s
    routes.owners["k"] = "c b"
    retry.failed(ask_of(retry, routes), LOST)
    routes.owners["k"] = ""

    assert pause_of(retry, routes) == SCHEDULE_S[1] * s
    assert isinstance(ended(retry, routes), NoOwner)


def test_a_member_is_asked_though_a_pause_would_last_too_long() -> None:
    policy = SchedulePolicy(2, (10.0,), idempotent=True, failover=2)
    retry, routes = Retry(("k",), policy, 5 * s), Owners(k="b c")
    retry.failed(ask_of(retry, routes), LOST)
    retry.failed(ask_of(retry, routes), LOST)

    assert isinstance(ended(retry, routes), DeadlineExceeded)


@pytest.mark.parametrize("count", [0, -1, 5, 1.5, "2"])
def test_there_cannot_be_more_members_than_attempts(count: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="failover is 1 to max_retries \\+ 1 \\(4\\) members"):
        failover(count)


def test_a_request_that_may_not_run_twice_has_no_failover() -> None:
    with pytest.raises(ConfigError, match="failover needs idempotent=True"):
        SchedulePolicy(3, SCHEDULE_S, failover=2)


# Whatever happens.

ENDS: Final = [
    *(REFUSED, PeerDeclined("not mine"), LOST, CallTimeout("late")),
    *(BadRequest("no such endpoint"), BodyError("no list")),
]


@given(seed=st.integers(0, 1 << 32))
def test_each_request_ends_in_time_and_says_what_it_may_have_done(seed: int) -> None:
    rng = random.Random(seed)
    wait_us, deadline = rng.choice([1 * s, 3 * s]), rng.choice([10 * s, 40 * s, NEVER])
    idempotent = rng.random() < 0.7
    policy = SchedulePolicy(
        3, SCHEDULE_S, idempotent, wait_us, rng.randrange(1, 4) if idempotent else 1
    )
    routes = Owners(k=rng.choice(["b", "b c", "b c d"]))
    retry, now, may_have_run, asks = Retry(("k",), policy, deadline), 0, False, list[Ask[str]]()
    while not isinstance(step := retry.next(routes, now), RingpopError):
        if isinstance(step, int):
            assert now <= step <= deadline
            now = step
        else:
            assert now + step.wait_us <= max(deadline, now)
            end = rng.choice(ENDS)
            may_have_run |= end.took_effect == "unknown"
            for old in asks:  # what comes too late
                retry.failed(old, LOST)
            asks.append(step)
            retry.failed(step, end)
            now += rng.randrange(wait_us + 1)
        if rng.random() < 0.3:
            routes.owners["k"] = rng.choice(["b", "b c", "c b", "d b c", ""])

    assert now <= deadline + wait_us
    assert len(asks) <= 4
    assert [ask.number for ask in asks] == [*range(1, len(asks) + 1)]
    assert step.took_effect == ("unknown" if may_have_run else "no")
