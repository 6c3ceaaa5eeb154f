"""When a lock is asked for, renewed, and believed to be lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import (
    BadOperation,
    ConditionFailed,
    ConfigError,
    LockHeld,
    OutcomeUnknown,
    PartitionFull,
    PartitionUnavailable,
)
from ringpop_py.state.locks.holding import PAUSE_S_MAX, LockHolding
from ringpop_py.state.locks.terms import LOCK, LOCKED_KEY_BYTES_MAX, RENEW

if TYPE_CHECKING:
    from ringpop_py.base.errors import RingpopError

REFUSED = ConditionFailed("the lock on 'k' is another's, in term 7")


def a_holding(ttl_s: float = 8.0, wait_s: float | None = None) -> LockHolding:
    return LockHolding("k", ttl_s, wait_s, "nonce", random.Random(1), 0.0)


def held(ttl_s: float = 8.0) -> LockHolding:
    holding = a_holding(ttl_s)
    assert holding.asked(0.0)["operation"] == LOCK
    holding.granted(3, 0.0)
    return holding


@pytest.mark.parametrize(
    ("key", "ttl_s", "wait_s", "why"),
    [
        ("k", 0, None, "ttl_s is 1 to 3600 seconds, not 0"),
        ("k", -1, None, "ttl_s"),
        ("k", 3_601, None, "ttl_s"),
        ("k", "8", None, "ttl_s"),
        ("k", float("nan"), None, "ttl_s"),
        ("k", 8, -1, "wait_s is 0 seconds or more"),
        ("", 8, None, "a key that is locked has 1 to"),
        ("k" * (LOCKED_KEY_BYTES_MAX + 1), 8, None, "a key that is locked has 1 to"),
        (5, 8, None, "key"),
    ],
)
def test_what_cannot_be_used_is_refused(key: Any, ttl_s: Any, wait_s: Any, why: str) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=why):
        LockHolding(key, ttl_s, wait_s, "nonce", random.Random(1), 0.0)


def test_pauses_of_one_who_waits_grow_to_a_bound() -> None:
    holding, now, pauses = a_holding(), 0.0, []
    for _ in range(30):
        holding.asked(now)
        holding.failed(REFUSED, now)
        pauses.append(holding.due_at - now)
        now = holding.due_at
    assert max(pauses[:2]) < 0.05
    assert min(pauses[-5:]) >= PAUSE_S_MAX / 2
    assert max(pauses) <= 1.5 * PAUSE_S_MAX
    assert len(set(pauses[-5:])) == 5, "those who wait ask at different moments"
    assert not holding.is_open


def test_the_wait_has_an_end() -> None:
    holding = a_holding(wait_s=0.01)
    holding.failed(REFUSED, 0.0)
    assert holding.due_at == 0.01, "the last try is at the end"
    with pytest.raises(LockHeld, match="another's, in term 7"):
        holding.failed(REFUSED, 0.01)
    with pytest.raises(PartitionUnavailable):
        a_holding(wait_s=0).failed(PartitionUnavailable("no owner"), 0.0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(BadOperation("in memory"), ConfigError), (PartitionFull("1024"), PartitionFull)],
)
def test_what_is_useless_is_not_tried_again(error: RingpopError, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        a_holding().failed(error, 0.0)


def test_a_take_of_unknown_outcome_is_released() -> None:
    holding = a_holding()
    holding.asked(0.0)
    holding.failed(OutcomeUnknown("no answer"), 0.1)
    assert holding.is_open
    holding.granted(0, 0.2)
    assert holding.term == 0, "it was taken, and has lapsed since"


def test_a_lock_is_renewed_in_time_and_believed_from_when_it_was_asked_for() -> None:
    holding = held()
    assert (holding.due_at, holding.lost_at) == (2.0, 8.0)
    step = holding.asked(2.0)
    assert (step["operation"], step["argument"], step["timeout_s"]) == (RENEW, 8_000, 4.0)
    holding.granted(3, 2.0)
    assert holding.lost_at == 10.0
    holding.asked(4.0)
    holding.failed(OutcomeUnknown("no answer"), 8.0)
    assert holding.next_at == 8.4
    assert holding.asked(8.4)["timeout_s"] == pytest.approx(1.6)
    assert not holding.why_lost(9.9)
    assert holding.why_lost(10.0) == "it was not renewed in 8 s"


def test_a_refused_renewal_ends_it() -> None:
    holding = held()
    holding.failed(REFUSED, 2.0)
    assert "another's, in term 7" in holding.why_lost(2.0)
    holding.granted(3, 2.0)
    assert holding.why_lost(2.0), "an answer that comes late"
    other = held()
    other.granted(0, 2.0)
    assert other.why_lost(2.0) == "it is another's by now"
