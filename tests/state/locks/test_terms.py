"""Locks on keys of a partition: random schedules, and rules that are wrong on purpose."""

from __future__ import annotations

import types
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgpack
import pytest

from ringpop_py.base.errors import BadOperation, ConditionFailed, KeyspaceError, PartitionFull
from ringpop_py.base.values.operations import Change, Outcome, Value, Write
from ringpop_py.state.locks import terms
from ringpop_py.state.locks.terms import LOCK, LOCK_PREFIX, LOCKS_MAX, RENEW, TTL_MS_MAX, UNLOCK
from ringpop_py.state.table import evaluator
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.due import DueTimes
from ringpop_py.state.table.keyed import KeyedState
from tests.state.locks.schedules import TTL_MS, Clock, Violated, run

if TYPE_CHECKING:
    from collections.abc import Iterable

SEEDS: Final = range(150)
WRONG: Final = {
    "no fence": ("if held is None or held.term != term:", "if False:", "has not the lock"),
    "a released lock still writes": (
        "if held is None or held",
        "if held is not None and held",
        "has not the lock",
    ),
    "terms restart": (
        "last: Any = offset_of(LOCK_PREFIX) or 0",
        "last: Any = 0",
        "a term again",
    ),
    "anybody releases": (
        "if held is not None and held.nonce == nonce:",
        "if held is not None and (held.nonce == nonce or operation == UNLOCK):",
        "released by another",
    ),
    "taken blindly": (
        "(held is not None and held.until_ms > clock.due_ms())",
        "False",
        "before it has lapsed",
    ),
    "it never lapses": (" and held.until_ms > clock.due_ms())", ")", "nobody can lock"),
    "a renewal takes": ("if operation != LOCK or (held", "if (held", "taken by a renewal"),
    "a repetition is told another's term": (
        "return held.term if held is not None and held.nonce == nonce else 0",
        "return held.term if held is not None else 0",
        "two holders of one term",
    ),
    "a repetition leaves its term in the lock's place": (
        "if not name.startswith(LOCK_PREFIX) and term > known:",
        "if known != term:",
        "before it has lapsed",
    ),
}
"""The old text, the new one, and what the schedules find then."""


def until_found() -> None:
    for seed in SEEDS:
        run(seed)


def test_no_schedule_breaks_a_promise() -> None:
    worlds = [run(seed) for seed in SEEDS]
    assert sum(world.truth.term for world in worlds) > 5 * len(worlds)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, found = WRONG[name]
    assert terms.__file__
    source = Path(terms.__file__).read_text("utf-8")
    assert source.count(old) == 1
    wrong = types.ModuleType(terms.__name__)
    exec(compile(source.replace(old, new), name, "exec"), wrong.__dict__)  # noqa: S102
    monkeypatch.setattr(evaluator, "terms", wrong)
    with pytest.raises(Violated, match=found):
        until_found()


class Bench:
    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.state = KeyedState(msgpack.packb, Aggregations(), due=DueTimes(self.clock))
        self.count = 0

    def write(
        self, change: Change, offsets: dict[str, Value], *, repeats: bool = False
    ) -> Outcome | KeyspaceError:
        self.count += not repeats
        body, (outcome,) = self.state.stage(
            [Write("w", self.count, (change,), offsets, repeats=repeats)]
        )
        if body is not None:
            self.state.apply(body)
        return outcome

    def step(self, key: str, operation: str, nonce: str, ttl_ms: Value = TTL_MS) -> Value:
        outcome = self.write(Change(key, operation, ttl_ms), {f"{LOCK_PREFIX}{key}": nonce})
        if isinstance(outcome, KeyspaceError):
            raise outcome
        return outcome.values[0]

    def locks(self) -> Iterable[str]:
        return [name for name in self.state.offsets if name > LOCK_PREFIX]


def test_a_lock_is_taken_renewed_and_released() -> None:
    bench = Bench()
    assert bench.step("k", LOCK, "a") == 1
    assert bench.step("k", LOCK, "a") == 1, "asked again, as its answer was lost"
    assert bench.step("other", LOCK, "a") == 2
    bench.clock.ms += TTL_MS - 1
    assert bench.step("k", RENEW, "a") == 1
    bench.clock.ms += TTL_MS - 1
    with pytest.raises(ConditionFailed, match="the lock on 'k' is another's, in term 1"):
        bench.step("k", LOCK, "b")
    bench.clock.ms += 1
    assert bench.step("k", LOCK, "b") == 3
    with pytest.raises(ConditionFailed):
        bench.step("k", UNLOCK, "a")
    assert bench.step("k", UNLOCK, "b") == 3
    with pytest.raises(ConditionFailed, match="nobody's"):
        bench.step("k", RENEW, "b")
    assert len(bench.state) == 0, "a lock is no key"
    assert bench.locks() == [f"{LOCK_PREFIX}other"]


def test_a_refusal_that_a_repetition_was_told_stays() -> None:
    bench = Bench()
    bench.step("k", LOCK, "a")
    change, offsets = Change("k", LOCK, TTL_MS), {f"{LOCK_PREFIX}k": "b"}
    assert isinstance(bench.write(change, dict(offsets)), ConditionFailed)
    assert isinstance(bench.write(change, dict(offsets), repeats=True), ConditionFailed)
    bench.step("k", UNLOCK, "a")
    bench.count -= 1
    assert isinstance(bench.write(change, dict(offsets), repeats=True), ConditionFailed)


@pytest.mark.parametrize("ttl_ms", [0, -1, TTL_MS_MAX + 1, 1.5, True, None, "8"])
def test_a_lock_is_kept_for_some_milliseconds(ttl_ms: Value) -> None:
    with pytest.raises(BadOperation, match="a lock is kept for 1 to 3600000 ms"):
        Bench().step("k", LOCK, "a", ttl_ms)


def test_what_is_no_step_is_refused() -> None:
    bench = Bench()
    for key, operation in (("k", "put"), ("", LOCK), ("k" * 1_020, LOCK)):
        with pytest.raises(BadOperation):
            bench.step(key, operation, "a")
    wrong: list[Value] = [[1, "a", 5], None, {"a": 1}, 0]
    for given in wrong:
        outcome = bench.write(Change("k", "put", 1), {f"{LOCK_PREFIX}k": given})
        assert isinstance(outcome, BadOperation)
    two = {f"{LOCK_PREFIX}k": "a", f"{LOCK_PREFIX}l": "a"}
    assert isinstance(bench.write(Change("k", LOCK, TTL_MS), dict(two)), BadOperation)
    assert not bench.state.offsets


def test_what_lapsed_makes_room() -> None:
    bench = Bench()
    for number in range(LOCKS_MAX):
        bench.step(f"k{number}", LOCK, "a")
    with pytest.raises(PartitionFull, match=f"{LOCKS_MAX} locks are held"):
        bench.step("k", LOCK, "a")
    assert bench.step("k0", RENEW, "a") == 1
    bench.clock.ms += TTL_MS
    assert bench.step("k0", RENEW, "a") == 1
    assert bench.step("k", LOCK, "a") == LOCKS_MAX + 1
    assert sorted(bench.locks()) == [f"{LOCK_PREFIX}k", f"{LOCK_PREFIX}k0"]
