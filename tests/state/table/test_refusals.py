"""If a condition fails at a repetition, that is the outcome: no copy takes effect later."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py.base.errors import ConditionFailed, KeyspaceError, OperationIdReused
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.operation_ids import named_write
from ringpop_py.base.values.operations import Change, OperationId, Outcome, Write
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.conditions import conditional, register_conditions, tag_of
from ringpop_py.state.table.sessions import Sessions, refusal_of, with_records
from tests.state.table import test_keyed
from tests.state.table.test_sessions import with_digests

if TYPE_CHECKING:
    from ringpop_py.state.table.keyed import KeyedState

AGGREGATIONS: Final = Aggregations()
register_conditions(AGGREGATIONS)
FIRST: Final = Write(
    "client", 7, (Change("k", *conditional("put", "new", if_match=[tag_of("a")])),)
)
AGAIN: Final = replace(FIRST, repeats=True)


def make_state(*, mergeable: bool = False) -> KeyedState:
    return test_keyed.make_state(aggregations=AGGREGATIONS, mergeable=mergeable)


def commit(state: KeyedState, *writes: Write) -> list[Outcome | KeyspaceError]:
    body, outcomes = state.stage(writes)
    if body is not None:
        state.apply(body)
    return outcomes


def put(sequence: int, value: str) -> Write:
    return Write("other", sequence, (Change("k", "put", value),))


def value_of(state: KeyedState) -> object:
    return state.packed(["k"])[0]


def restored(state: KeyedState) -> KeyedState:
    other = make_state()
    other.restore([state.snapshot()])
    return other


@pytest.mark.parametrize("mergeable", [False, True])
def test_the_first_copy_has_no_effect_after_its_repetition_was_refused(*, mergeable: bool) -> None:
    state = make_state(mergeable=mergeable)
    commit(state, put(0, "b"))
    assert isinstance(commit(state, AGAIN)[0], ConditionFailed)
    commit(state, put(1, "a"))
    before = value_of(state)

    late, again = commit(state, FIRST), commit(state, AGAIN)

    assert isinstance(late[0], ConditionFailed)
    assert isinstance(again[0], ConditionFailed)
    assert value_of(state) == before


def test_a_refusal_is_in_the_log_and_in_snapshots() -> None:
    state, recovery = make_state(), make_state()
    for writes in ([put(0, "b")], [AGAIN], [put(1, "a")]):
        body, _ = state.stage(writes)
        assert body is not None
        state.apply(body)
        recovery.apply([*body])

    assert isinstance(commit(recovery, FIRST)[0], ConditionFailed)
    assert isinstance(commit(restored(recovery), FIRST)[0], ConditionFailed)


def test_a_first_attempt_that_fails_is_not_logged_and_may_be_tried_again() -> None:
    state = make_state()
    commit(state, put(0, "b"))

    body, (outcome,) = state.stage([FIRST])

    assert isinstance(outcome, ConditionFailed)
    assert body is None
    commit(state, put(1, "a"))
    assert commit(state, FIRST) == [Outcome(("new",))]


def test_a_repetition_of_what_took_effect_is_not_refused_nor_is_one_whose_condition_holds() -> None:
    state = make_state()
    commit(state, put(0, "a"))

    assert commit(state, AGAIN) == [Outcome(("new",))]
    commit(state, put(1, "b"))
    assert commit(state, AGAIN) == commit(state, FIRST) == [Outcome(("b",), repeated=True)]


def test_under_an_id_that_its_caller_chose_a_refusal_is_kept_and_another_write_is_told_apart() -> (
    None
):
    state = make_state()
    commit(state, put(0, "b"))
    name = OperationId("order", 3)
    one = named_write(name, FIRST.changes)
    assert isinstance(commit(state, one)[0], ConditionFailed)
    commit(state, put(1, "a"))

    assert isinstance(commit(state, one)[0], ConditionFailed)
    other = named_write(name, (Change("k", "put", "else"),))
    assert isinstance(commit(state, other)[0], OperationIdReused)


def test_a_refusal_does_not_become_an_acknowledgement_when_digests_are_forgotten() -> None:
    sessions = Sessions(digests_max=10)
    refused = with_records((0, 0, b""), [bytes(8) + refusal_of(b"")])
    sessions.update({"refused": refused, "plain": with_digests(5)})

    sessions.update({"late": with_digests(6)})

    assert dict(sessions.rows())["refused"] == refused
    assert not dict(sessions.rows())["plain"][2]


def test_refusals_beyond_the_limit_go_with_their_sources() -> None:
    sessions = Sessions(digests_max=10)
    for number in range(30):
        refused = with_records((0, 0, b""), [bytes(8) + refusal_of(b"")])
        sessions.update({f"s{number}": refused})

    kept = [source for source, _ in sessions.rows()]
    assert 5 <= len(kept) <= 10
    assert kept[-1] == "s29"


@pytest.mark.parametrize("seed", range(100))
def test_a_write_reported_as_refused_never_takes_effect(seed: int) -> None:
    """Copies arrive in any order, in groups, at states that are replayed and restored."""
    rng = random.Random(seed)
    state = make_state()
    effects: list[int] = []
    refused: set[int] = set()
    attempts: dict[int, int] = {}
    on_the_way: list[tuple[int, int, Write]] = []
    for step in range(400):
        if rng.random() < 0.3:
            waiting = [number for number in attempts if number not in refused]
            number = rng.choice([*waiting, len(attempts)][-6:])
            attempts[number] = attempts.get(number, 0) + 1
            on_the_way.append(
                (number, attempts[number], a_write(number, repeats=attempts[number] > 1))
            )
        group = [
            on_the_way.pop(rng.randrange(len(on_the_way))) for _ in on_the_way[: rng.randrange(3)]
        ]
        flip = Write("flips", step, (Change("turn", "put", rng.randrange(2)),))
        outcomes = commit(state, *[write for *_, write in group], flip)
        for (number, attempt, _), outcome in zip(group, outcomes, strict=False):
            if isinstance(outcome, ConditionFailed):
                if attempt == attempts[number]:  # older ones are not listened to
                    refused.add(number)
            elif not isinstance(outcome, KeyspaceError) and not outcome.repeated:
                effects.append(number)
        if rng.random() < 0.1:
            state = restored(state)

    assert len(effects) == len(set(effects))
    assert refused
    assert not refused.intersection(effects)


def a_write(number: int, *, repeats: bool) -> Write:
    change = Change("turn", *conditional("put", number % 2, if_match=[tag_of(number % 2)]))
    return Write("client", number, (change,), repeats=repeats)
