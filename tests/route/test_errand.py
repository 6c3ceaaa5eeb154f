"""Errands: the peers that a request asks, what follows a failure, and its final error."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import (
    ActorBusy,
    BadOperation,
    BadRequest,
    BodyError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    KeyspaceError,
    KeyspaceUnknown,
    NoOwner,
    NotEnoughMembers,
    OutcomeUnknown,
    PartitionUnavailable,
    PeerDeclined,
    RingpopError,
    StateDamaged,
    StoreFull,
    StoreUnavailable,
)
from ringpop_py.base.values.requests import Moved
from ringpop_py.route.errand import (
    NEVER,
    PAUSE_US_MAX,
    RELAY,
    Ask,
    DeadlinePolicy,
    Errand,
    RelayPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

s: Final = 1_000_000
RNG: Final = random.Random(1)
WRITE: Final = DeadlinePolicy(RNG, changes_state=True)
READ: Final = DeadlinePolicy(RNG, changes_state=False)
RELAYED: Final = RelayPolicy(RNG, changes_state=True)
REFUSED: Final = ConnectFailed("refused")
LOST: Final = ConnectionLost("cut")


class Owners:
    """Routes that say what the test wants; a row is a key and its owner."""

    def __init__(self, owners: dict[Any, str]) -> None:
        self.owners = owners

    def destination(self, part: Any) -> str:  # noqa: ANN401 - of any kind
        return self.owners.get(part, "")

    def why_nobody(self, part: Any) -> RingpopError:  # noqa: ANN401 - of any kind
        return NoOwner(f"nobody has {part}")

    def learn(self, row: list[Any]) -> None:
        if len(row) != 2:
            raise BodyError("a row has two fields")
        self.owners[row[0]] = row[1]


class Partitions(Owners):
    """As `Owners`, with the errors of keyspaces."""

    why: RingpopError = PartitionUnavailable("nobody")

    def why_nobody(self, part: Any) -> RingpopError:  # noqa: ANN401 - of any kind
        assert part is not None
        return self.why


def asks_of(errand: Errand[Any], routes: Owners, now: int = 0) -> list[Ask[Any]]:
    step = errand.next(routes, now)
    assert isinstance(step, list), step
    return step


def ask_of(errand: Errand[Any], routes: Owners, now: int = 0) -> Ask[Any]:
    (ask,) = asks_of(errand, routes, now)
    return ask


def pause_of(errand: Errand[Any], routes: Owners, now: int = 0) -> int:
    """How long the errand pauses from *now*."""
    step = errand.next(routes, now)
    assert isinstance(step, int), step
    return step - now


def ended(errand: Errand[Any], routes: Owners, now: int = 0) -> RingpopError:
    """The error of the first part of an errand that is over."""
    assert errand.next(routes, now) is None
    error = next(iter(errand.results.values()))
    assert isinstance(error, RingpopError)
    return error


def failing(policy: DeadlinePolicy, *errors: RingpopError, deadline: int = NEVER) -> RingpopError:
    """Return the error of a request for one part whose attempts end with *errors*."""
    errand, routes, now = Errand([0], policy, deadline), Partitions({0: "b"}), 0
    for error in errors:
        step = errand.next(routes, now)
        if isinstance(step, int):
            now, step = step, errand.next(routes, step)
        assert step is not None, errand
        assert not isinstance(step, int)
        errand.failed(step[0], error)
    step = errand.next(routes, now)
    return errand.results[0] if step is None else ended(errand, routes, deadline)


# Any policy.


def test_parts_of_one_owner_travel_together() -> None:
    errand = Errand([1, 2, 3], READ, 10 * s)
    routes = Partitions({1: "b", 2: "c", 3: "b"})

    asks = asks_of(errand, routes)
    for ask in asks:
        errand.answered(ask, [f"{ask.to} {part}" for part in ask.parts], routes)

    assert [(ask.to, ask.parts, ask.wait_us) for ask in asks] == [
        ("b", [1, 3], 10 * s),
        ("c", [2], 10 * s),
    ]
    assert not errand.open
    assert errand.next(routes, 0) is None
    assert errand.results == {1: "b 1", 2: "c 2", 3: "b 3"}


# Until the deadline.


@pytest.mark.parametrize(
    ("errors", "ends_with"),
    [
        ([PartitionUnavailable("gone")], PartitionUnavailable),
        ([REFUSED], PartitionUnavailable),
        ([LOST], OutcomeUnknown),
        ([LOST, REFUSED], OutcomeUnknown),
        ([BodyError("no list")], OutcomeUnknown),
        ([OutcomeUnknown("lost")], OutcomeUnknown),
        ([OutcomeUnknown("lost"), PartitionUnavailable("gone")], OutcomeUnknown),
        ([StoreUnavailable("trouble")], StoreUnavailable),
        ([StoreUnavailable("trouble"), PartitionUnavailable("gone")], OutcomeUnknown),
        ([StoreFull("full")], StoreFull),
        ([LOST, StoreFull("full")], OutcomeUnknown),
        ([StoreUnavailable("trouble"), StoreFull("full")], OutcomeUnknown),
        ([NotEnoughMembers("few")], NotEnoughMembers),
        ([LOST, NotEnoughMembers("few")], OutcomeUnknown),
        ([PartitionUnavailable("gone"), StateDamaged("damaged")], StateDamaged),
        ([LOST, StateDamaged("damaged")], OutcomeUnknown),
        ([LOST, KeyspaceUnknown("dropped")], OutcomeUnknown),
        ([REFUSED, KeyspaceUnknown("dropped")], KeyspaceUnknown),
        ([BadRequest("no such endpoint")], BadOperation),
        ([LOST, BadRequest("no such endpoint")], OutcomeUnknown),  # of another version than b
        ([LOST, BadOperation("no number")], BadOperation),  # the owner has looked whether it ran
    ],
)
def test_a_write_is_said_not_to_have_run_only_if_no_attempt_may_have(
    errors: list[RingpopError], ends_with: type[RingpopError]
) -> None:
    assert type(failing(WRITE, *errors, deadline=10 * s)) is ends_with


@pytest.mark.parametrize(
    ("errors", "ends_with"),
    [([LOST, StoreFull("full")], StoreFull), ([LOST], PartitionUnavailable)],
)
def test_the_effect_of_a_read_is_never_unknown(
    errors: list[RingpopError], ends_with: type[RingpopError]
) -> None:
    assert type(failing(READ, *errors, deadline=10 * s)) is ends_with


def test_the_last_error_says_whom_it_asked_and_why_nobody_answered() -> None:
    error = failing(READ, LOST, REFUSED, deadline=10 * s)

    assert str(error) == "no owner answered in time: b: ConnectFailed: refused"


def test_a_request_without_time_is_not_sent() -> None:
    assert str(failing(WRITE, deadline=0)) == "no owner answered in time: no time was left"


def test_only_the_first_redirect_is_followed_without_a_pause() -> None:
    errand, routes = Errand([0], WRITE, 10 * s), Partitions({0: "b"})

    errand.answered(ask_of(errand, routes), [Moved([0, "c"])], routes)
    ask = ask_of(errand, routes)
    errand.answered(ask, [Moved([0, "b"])], routes)

    assert ask.to == "c"
    assert pause_of(errand, routes) > 0
    error = ended(errand, routes, 10 * s)
    assert str(error) == "no owner answered in time: its owner changed again and again"


def test_a_row_that_cannot_be_read_is_a_failure() -> None:
    errand, routes = Errand([0], WRITE, 10 * s), Partitions({0: "b"})

    errand.answered(ask_of(errand, routes), [Moved([])], routes)

    assert pause_of(errand, routes) > 0
    assert "new owner cannot be read" in str(ended(errand, routes, 10 * s))


def test_an_answer_that_cannot_be_read_may_have_taken_effect() -> None:
    def decode(_part: int, value: object) -> object:
        if value == "bad":
            raise BodyError("no number")
        return value

    errand, routes = Errand([0, 1], WRITE, 10 * s), Partitions({0: "b", 1: "b"})

    errand.answered(ask_of(errand, routes), ["bad", "good"], routes, decode)

    assert pause_of(errand, routes) > 0
    assert errand.next(routes, 10 * s) is None
    assert errand.results[1] == "good"
    assert isinstance(errand.results[0], OutcomeUnknown)


def test_a_pause_ends_early_when_the_routes_change() -> None:
    errand, routes = Errand([0], WRITE, 10 * s), Partitions({})
    assert pause_of(errand, routes) > 0

    routes.owners[0] = "c"

    assert ask_of(errand, routes, now=1).to == "c"


@pytest.mark.parametrize("pauses_count", range(9))
def test_a_pause_doubles_from_a_millisecond_with_0_to_49_ms_of_chance(pauses_count: int) -> None:
    """F8: the seed's jitter is one constant, as it seeds its generator each time."""
    pauses_us = {READ.pause_us(pauses_count) - 2**pauses_count * 1000 for _ in range(2000)}

    assert pauses_us == {ms * 1000 for ms in range(50)}


@pytest.mark.parametrize("pauses_count", [9, 40, 10**9])
def test_a_pause_is_capped_and_keeps_its_chance(pauses_count: int) -> None:
    """F8: the seed's back-off has no cap."""
    pauses_us = {READ.pause_us(pauses_count) for _ in range(2000)}

    assert (min(pauses_us), max(pauses_us)) == (PAUSE_US_MAX - 49_000, PAUSE_US_MAX)


def test_parts_that_nobody_serves_do_not_hold_up_the_others() -> None:
    errand, routes = Errand([0, 1], WRITE, 10 * s), Partitions({0: "b"})

    errand.answered(ask_of(errand, routes), ["done"], routes)

    assert errand.results == {0: "done"}
    assert pause_of(errand, routes) > 0
    routes.owners[1] = "c"
    assert ask_of(errand, routes, s).parts == [1]


def test_while_there_never_was_an_owner_nothing_is_waited_for() -> None:
    errand, routes = Errand([0], WRITE, 10 * s), Partitions({})
    routes.why = NotEnoughMembers("few")

    assert ended(errand, routes) is routes.why


def test_outcomes_in_a_list_are_as_open_as_the_part() -> None:
    errand, routes = Errand([0], WRITE, 10 * s), Partitions({0: "b"})
    errand.failed(ask_of(errand, routes), LOST)
    assert pause_of(errand, routes) > 0

    outcomes = [PartitionUnavailable("gone"), BadOperation("no number"), 3]
    errand.answered(ask_of(errand, routes), [outcomes], routes)

    found = errand.results[0]
    assert [type(each) for each in found] == [OutcomeUnknown, BadOperation, int]


@pytest.mark.parametrize(
    ("first", "ends_with"),
    [
        (OutcomeUnknown("late"), OutcomeUnknown),
        (PartitionUnavailable("left"), PartitionUnavailable),
    ],
)
def test_an_outcome_from_before_the_errand_began_stays_as_unknown_as_it_was(
    first: KeyspaceError, ends_with: type[RingpopError]
) -> None:
    routes = Partitions({0: "b"})
    errand, ask = Errand.begun(0, "a", WRITE, 10 * s)
    errand.failed(ask, first)

    pause_us = pause_of(errand, routes)
    assert pause_us > 0
    errand.failed(ask_of(errand, routes, pause_us), PartitionUnavailable("gone"))

    assert type(ended(errand, routes, 10 * s)) is ends_with


def test_a_final_error_from_before_the_errand_began_is_its_result() -> None:
    damaged = StateDamaged("damaged")

    errand, ask = Errand.begun(0, "a", WRITE, 10 * s)
    errand.failed(ask, damaged)

    assert ended(errand, Partitions({0: "b"})) is damaged


@pytest.mark.parametrize(
    "end",
    [
        lambda errand, ask, _: errand.failed(ask, PartitionUnavailable("gone")),
        lambda errand, ask, routes: errand.answered(ask, [StateDamaged("damaged")], routes),
        lambda errand, ask, routes: errand.answered(ask, ["done"], routes),
    ],
)
def test_an_errand_that_was_begun_is_as_after_its_first_step(
    end: Callable[[Errand[int], Ask[int], Partitions], None],
) -> None:
    routes = Partitions({0: "b"})
    begun, first = Errand.begun(0, "b", WRITE, 10 * s)
    stepped = Errand((0,), WRITE, 10 * s)
    ask = ask_of(stepped, routes)

    assert (first.to, list(first.parts), first.number) == (ask.to, ask.parts, ask.number)
    end(begun, first, routes)
    end(stepped, ask, routes)
    assert repr(begun) == repr(stepped)
    assert begun.results == stepped.results
    assert type(begun.next(routes, 1)) is type(stepped.next(routes, 1))


# Through a relay.


def test_owners_have_half_of_the_time_and_the_relay_the_rest() -> None:
    errand, routes = Errand([0, 1, 2], RELAYED, 10 * s), Partitions({0: "b", 1: "c"})

    first, second = asks_of(errand, routes)
    errand.answered(first, ["done"], routes)
    errand.failed(second, ConnectFailed("refused"))
    rest = ask_of(errand, routes, 1 * s)

    assert (first.wait_us, second.wait_us) == (5 * s, 5 * s)
    assert (rest.to, rest.parts, rest.wait_us) == (RELAY, [1, 2], 9 * s)


def test_parts_that_no_owner_is_known_for_stay_open_while_others_are_asked() -> None:
    errand, routes = Errand([0, 1, 2], RELAYED, 10 * s), Partitions({0: "b"})

    errand.answered(ask_of(errand, routes), ["done"], routes)
    rest = ask_of(errand, routes)
    errand.answered(rest, ["done too", "and this"], routes)

    assert (rest.to, rest.parts) == (RELAY, [1, 2])
    assert errand.next(routes, 0) is None
    assert errand.results == {0: "done", 1: "done too", 2: "and this"}


def test_an_owner_is_asked_again_only_after_a_redirect_and_once() -> None:
    errand, routes = Errand([0], RELAYED, 10 * s), Partitions({0: "b"})

    errand.answered(ask_of(errand, routes), [Moved([0, "c"])], routes)
    redirected = ask_of(errand, routes)
    errand.answered(redirected, [Moved([0, "d"])], routes)

    assert redirected.to == "c"
    assert ask_of(errand, routes).to == RELAY


def test_the_answer_of_a_relay_is_the_result() -> None:
    errand, routes = Errand([0, 1], RELAYED, 10 * s), Partitions({0: "b"})
    errand.failed(ask_of(errand, routes), LOST)

    gone = PartitionUnavailable("no owner answered")
    errand.answered(ask_of(errand, routes), [gone, gone], routes)

    assert errand.next(routes, 0) is None
    assert (type(errand.results[0]), errand.results[1]) == (OutcomeUnknown, gone)


def test_a_relay_that_does_not_answer_is_asked_again_after_a_pause() -> None:
    errand, routes = Errand([0], RELAYED, 10 * s), Partitions({})

    errand.failed(ask_of(errand, routes), ConnectFailed("refused"))

    pause_us = pause_of(errand, routes)
    assert pause_us > 0
    assert ask_of(errand, routes, pause_us).to == RELAY


@pytest.mark.parametrize(
    ("at_owner", "ends_with"), [(True, PartitionUnavailable), (False, BadOperation)]
)
def test_that_a_process_cannot_read_a_request_says_more_of_a_relay_than_of_an_owner(
    *, at_owner: bool, ends_with: type[RingpopError]
) -> None:
    errand, routes = Errand([0], RELAYED, 10 * s), Partitions({0: "b"} if at_owner else {})
    errand.failed(ask_of(errand, routes), BadRequest("no such endpoint"))
    if at_owner:
        errand.failed(ask_of(errand, routes), PeerDeclined("no store"))

    assert type(ended(errand, routes, 10 * s)) is ends_with


# Whatever happens.

ENDS: Final = [
    None,  # an answer
    None,
    REFUSED,
    PeerDeclined("not mine"),
    LOST,
    CallTimeout("late"),
    BadRequest("no such endpoint"),
    BodyError("no list"),
]
PART_ENDS: Final = [
    *(None, None, None),
    "moved",
    PartitionUnavailable("gone"),
    StoreUnavailable("trouble"),
    StoreFull("full"),
    KeyspaceUnknown("dropped"),
    BadOperation("no number"),
    ActorBusy("all actors are at work"),
]


@dataclass
class Owner:
    """All members at once: whatever happens to a call, and which parts may have been done."""

    rng: random.Random
    troubles: float
    may_have_run: set[int] = field(default_factory=set)
    runs: Counter[int] = field(default_factory=Counter)

    def serve(self, errand: Errand[int], ask: Ask[int], routes: Owners) -> None:
        rng = self.rng
        end = rng.choice(ENDS) if rng.random() < self.troubles else None
        if end is not None:
            if end.took_effect == "unknown":
                self.may_have_run.update(ask.parts)
            errand.failed(ask, end)
            return
        results: list[Any] = []
        for part in ask.parts:
            troubled = rng.random() < self.troubles
            result: Any = rng.choice(PART_ENDS) if troubled else None
            if result == "moved":
                result = Moved([part, rng.choice("abc")] if rng.random() < 0.9 else [])
            elif result is None:
                self.runs[part] += 1
                result = f"{part} {ask.number}"
            elif result.took_effect == "unknown":
                self.may_have_run.add(part)
            results.append(result)
        errand.answered(ask, results, routes)


@given(seed=st.integers(0, 1 << 32), kind=st.sampled_from(["write", "read", "relayed"]))
def test_every_part_ends_once_in_time_and_says_what_it_may_have_done(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    wait_us = rng.choice([1 * s, 3 * s])
    policies: dict[str, DeadlinePolicy] = {
        "write": DeadlinePolicy(rng, changes_state=True, attempt_us=wait_us),
        "read": DeadlinePolicy(rng, changes_state=False, attempt_us=wait_us),
        "relayed": RelayPolicy(rng, changes_state=True, attempt_us=wait_us),
    }
    policy = policies[kind]
    parts = range(rng.randrange(1, 5))
    routes = Partitions({part: rng.choice(["a", "b", "c", ""]) for part in parts})
    deadline = rng.choice([10 * s, 40 * s])
    errand, owner, now = Errand(parts, policy, deadline), Owner(rng, rng.random()), 0
    late: list[Ask[int]] = []
    while (step := errand.next(routes, now)) is not None:
        if isinstance(step, int):
            assert now <= step <= deadline
            now = rng.randrange(now, step + 1)
        else:
            done_before = dict(errand.results)
            assert {part for ask in step for part in ask.parts} <= set(errand.open)
            for ask in rng.sample(step, len(step)):
                assert now + ask.wait_us <= max(deadline, now)
                owner.serve(errand, ask, routes)
                if late:  # an answer that nobody waits for any more
                    old = rng.choice(late)
                    errand.answered(old, ["late"] * len(old.parts), routes)
            late += step
            now += rng.randrange(wait_us + 1)
            assert done_before.items() <= errand.results.items()
        if rng.random() < 0.3:
            routes.owners[rng.choice(parts)] = rng.choice("abc") if rng.random() < 0.7 else ""

    assert set(errand.results) == set(parts)
    assert now <= deadline + wait_us
    for part, result in errand.results.items():
        assert result != "late"
        assert owner.runs[part] == (not isinstance(result, RingpopError))
        if isinstance(result, RingpopError) and result.took_effect == "no" and kind != "read":
            settles = isinstance(result, KeyspaceError) and result.settles and not result.passes
            assert settles or part not in owner.may_have_run, errand
