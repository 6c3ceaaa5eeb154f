"""Route and schedule: what follows a failure, and where a request goes next."""

from __future__ import annotations

import math

import pytest

from ringpop_py.errors import (
    BadRequest,
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
)
from ringpop_py.proxy.schedule import (
    GiveUp,
    HandleHere,
    Retry,
    RetryPolicy,
    Route,
    SendTo,
    refusal,
)
from ringpop_py.ring.hashring import HashRing

SCHEDULE_S = (0.0, 0.5, 2.0)


class FixedOwners:
    """A ring that says what the test wants it to say."""

    def __init__(self, owners: dict[str, str]) -> None:
        self.owners = owners

    def lookup(self, key: str) -> str:
        if key not in self.owners:
            raise NoOwner(key)
        return self.owners[key]


def make_route(
    *keys: str,
    max_retries: int = 3,
    idempotent: bool = False,
    deadline_at: float = math.inf,
) -> Route:
    policy = RetryPolicy(max_retries, SCHEDULE_S, idempotent)
    return Route(keys or ("k",), "me", policy, deadline_at)


def test_a_key_of_ours_is_handled_here() -> None:
    assert make_route().next_step(FixedOwners({"k": "me"})) == HandleHere()


def test_a_key_of_another_is_sent_there() -> None:
    assert make_route().next_step(FixedOwners({"k": "b"})) == SendTo("b")


def test_without_any_owner_the_request_ends() -> None:
    step = make_route().next_step(FixedOwners({}))

    assert isinstance(step, GiveUp)
    assert isinstance(step.error, NoOwner)


def test_keys_of_several_owners_have_diverged() -> None:
    step = make_route("k", "l").next_step(FixedOwners({"k": "b", "l": "c"}))

    assert isinstance(step, GiveUp)
    assert isinstance(step.error, KeysDiverged)


def test_keys_that_diverge_before_a_retry_end_the_request_with_its_history() -> None:
    route = make_route("k", "l")
    route.next_step(FixedOwners({"k": "b", "l": "b"}))
    route.failed(ConnectFailed("refused"), 0.0)

    step = route.next_step(FixedOwners({"k": "b", "l": "c"}))

    assert isinstance(step, GiveUp)
    assert isinstance(step.error, KeysDiverged)
    assert step.error.history == ("attempt 1 to b: ConnectFailed: refused",)


def test_each_retry_waits_as_scheduled_and_past_the_end_as_the_last_says() -> None:
    route = make_route(max_retries=5)
    route.next_step(FixedOwners({"k": "b"}))

    delays = [route.failed(ConnectFailed("refused"), 0.0) for _ in range(5)]

    assert delays == [Retry(0.0), Retry(0.5), Retry(2.0), Retry(2.0), Retry(2.0)]


def test_a_retry_looks_up_again_and_reroutes_to_the_new_owner() -> None:
    route = make_route()
    route.next_step(FixedOwners({"k": "b"}))
    route.failed(ConnectFailed("refused"), 0.0)

    step = route.next_step(FixedOwners({"k": "c"}))

    assert step == SendTo("c")
    assert route.reroute_count == 1


def test_a_request_whose_key_became_ours_is_handled_here() -> None:
    route = make_route()
    route.next_step(FixedOwners({"k": "b"}))
    route.failed(PeerDeclined("not mine"), 0.0)

    assert route.next_step(FixedOwners({"k": "me"})) == HandleHere()


def test_the_last_failure_tells_of_all() -> None:
    route = make_route(max_retries=1)
    route.next_step(FixedOwners({"k": "b"}))
    route.failed(ConnectFailed("refused"), 0.0)

    after = route.failed(PeerBusy("full"), 0.1)

    assert isinstance(after, GiveUp)
    assert isinstance(after.error, MaxRetriesExceeded)
    assert len(after.error.history) == 2
    assert "PeerBusy: full" in str(after.error)


@pytest.mark.parametrize("error", [CallTimeout("late"), ConnectionLost("reset")])
def test_what_may_have_run_is_not_repeated_unasked(error: CallTimeout | ConnectionLost) -> None:
    route = make_route()
    route.next_step(FixedOwners({"k": "b"}))

    after = route.failed(error, 0.0)

    assert isinstance(after, GiveUp)
    assert isinstance(after.error, MayHaveRun)


def test_what_may_have_run_is_repeated_where_the_caller_allows_it() -> None:
    route = make_route(idempotent=True)
    route.next_step(FixedOwners({"k": "b"}))

    assert route.failed(ConnectionLost("reset"), 0.0) == Retry(0.0)


def test_a_request_that_makes_no_sense_is_never_repeated() -> None:
    route = make_route(idempotent=True)
    route.next_step(FixedOwners({"k": "b"}))

    after = route.failed(BadRequest("no such endpoint"), 0.0)

    assert isinstance(after, GiveUp)
    assert isinstance(after.error, Refused)


def test_a_refusal_without_retries_is_told_as_such() -> None:
    route = make_route(max_retries=0)
    route.next_step(FixedOwners({"k": "b"}))

    after = route.failed(PeerDeclined("not mine"), 0.0)

    assert isinstance(after, GiveUp)
    assert isinstance(after.error, Refused)


def test_a_retry_that_would_come_after_the_deadline_is_not_waited_for() -> None:
    route = make_route(deadline_at=1.0)
    route.next_step(FixedOwners({"k": "b"}))
    route.failed(ConnectFailed("refused"), 0.2)

    after = route.failed(ConnectFailed("refused"), 0.6)

    assert isinstance(after, GiveUp)
    assert isinstance(after.error, DeadlineExceeded)


@pytest.mark.parametrize(
    ("max_retries", "schedule_s"),
    [(-1, (0.0,)), (1, ()), (1, (-0.5,)), (1, (math.nan,)), (1, (math.inf,))],
)
def test_a_policy_that_cannot_be_followed_is_refused(
    max_retries: int, schedule_s: tuple[float, ...]
) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(max_retries, schedule_s)


@pytest.mark.parametrize("lost", range(3))
def test_keys_are_refused_whichever_of_them_is_anothers(lost: int) -> None:
    ring = HashRing(["me", "b"])
    ours = [key for key in map(str, range(100)) if ring.lookup(key) == "me"]
    theirs = next(key for key in map(str, range(100)) if ring.lookup(key) == "b")
    keys = ours[:3]

    accepted = refusal(keys, None, local="me", ring=ring, consistency="keys")
    keys[lost] = theirs
    refused = refusal(keys, None, local="me", ring=ring, consistency="keys")

    assert accepted == ""
    assert refused == "ringpop.request-proxy.invalid-key: me has b as the key's owner"


@pytest.mark.parametrize(
    ("error", "took_effect"), [(ConnectFailed("no"), "no"), (ConnectionLost("cut"), "unknown")]
)
def test_a_request_that_was_given_up_took_no_effect_if_no_attempt_can_have_run(
    error: CallError, took_effect: str
) -> None:
    route = make_route(max_retries=1, idempotent=True)
    route.next_step(FixedOwners({"k": "b"}))
    route.failed(error, 0.0)

    end = route.failed(ConnectFailed("no"), 1.0)

    assert isinstance(end, GiveUp)
    assert isinstance(end.error, MaxRetriesExceeded)
    assert end.error.took_effect == took_effect


def test_an_owner_that_declines_may_take_the_request_later() -> None:
    route = make_route(max_retries=0)
    route.next_step(FixedOwners({"k": "b"}))

    end = route.failed(PeerDeclined("not mine"), 0.0)

    assert isinstance(end, GiveUp)
    assert (type(end.error), end.error.took_effect, end.error.passes) == (Refused, "no", True)
