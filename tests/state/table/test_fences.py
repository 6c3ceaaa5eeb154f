"""Writes under the terms of leaders: a later term ends the writes of those before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgpack
import pytest

from ringpop_py.base.errors import BadOperation, ConditionFailed, KeyspaceError, StaleTerm
from ringpop_py.base.values.operations import Change, Outcome, Span, Value, Write, WriteRun
from ringpop_py.state.memory.mergeable import MergeableState
from ringpop_py.state.memory.versioned import HybridClock
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.conditions import conditional, register_conditions
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Sequence

PUT = (Change("a", "put", 1),)


class Bench:
    def __init__(self) -> None:
        aggregations = Aggregations()
        register_conditions(aggregations)
        self.state = KeyedState(msgpack.packb, aggregations)
        self.log: list[object] = []
        self.count = 0

    def stage(self, writes: Sequence[Write]) -> list[Outcome | KeyspaceError]:
        body, outcomes = self.state.stage(writes)
        if body is not None:
            self.state.apply(body)
            self.log.append(msgpack.unpackb(msgpack.packb(body)))
        return outcomes

    def write(
        self,
        term: Value,
        changes: tuple[Change, ...] = PUT,
        *,
        name: str = "m",
        write_id: int | None = None,
        repeats: bool = False,
    ) -> Outcome | KeyspaceError:
        self.count += 1
        source = "w" if write_id is None else f"id{write_id}"
        sequence = self.count if write_id is None else 0
        (found,) = self.stage(
            [Write(source, sequence, changes, {f"fence:{name}": term}, repeats=repeats)]
        )
        return found


def known_by(error: object) -> int:
    assert isinstance(error, StaleTerm)
    return error.term


def test_an_earlier_term_writes_nothing_after_a_later_one() -> None:
    bench = Bench()
    assert isinstance(bench.write(1), Outcome)
    assert isinstance(bench.write(3), Outcome)
    assert isinstance(bench.write(3), Outcome)
    assert known_by(bench.write(2)) == 3
    assert isinstance(bench.write(1, name="other"), Outcome)
    assert isinstance(bench.write(4), Outcome)


def test_the_terms_are_in_the_log_and_in_checkpoints() -> None:
    bench = Bench()
    bench.write(5)
    replayed, restored = Bench(), Bench()
    replayed.count = restored.count = bench.count
    for body in bench.log:
        replayed.state.apply(body)
    restored.state.restore([bench.state.snapshot()])
    assert known_by(replayed.write(4)) == known_by(restored.write(4)) == 5


def test_one_write_of_a_group_counts_for_the_next() -> None:
    bench = Bench()
    writes = [Write("w", n, PUT, {"fence:m": term}) for n, term in enumerate([2, 1, 2])]
    outcomes = bench.stage(writes)
    assert [type(each) for each in outcomes] == [Outcome, StaleTerm, Outcome]


def test_a_run_of_writes_is_fenced() -> None:
    bench = Bench()
    bench.write(2)
    run = WriteRun("x", 0, [Change("b", "put", 1), Change("c", "put", 1)], {"fence:m": 1})
    assert list(map(known_by, bench.stage(run))) == [2, 2]
    assert bench.state.packed(["b", "c"]) == [None, None]


def test_a_write_without_changes_touches_the_partition() -> None:
    bench = Bench()
    assert bench.write(7, ()) == Outcome(())
    assert known_by(bench.write(6)) == 7


def test_the_fence_comes_before_the_condition_and_is_not_kept_under_the_id() -> None:
    bench = Bench()
    bench.write(2)
    guarded = (Change("a", *conditional("put", 9, if_none_match="*")),)
    assert known_by(bench.write(1, guarded, write_id=1, repeats=True)) == 2
    free = (Change("b", *conditional("put", 9, if_none_match="*")),)
    assert known_by(bench.write(1, free, write_id=2, repeats=True)) == 2
    assert isinstance(bench.write(3, free, write_id=2, repeats=True), Outcome)
    assert isinstance(bench.write(3, guarded, write_id=3, repeats=True), ConditionFailed)


def test_a_repetition_under_a_later_term_leaves_that_term() -> None:
    bench = Bench()
    bench.write(1, write_id=1)
    outcome = bench.write(4, write_id=1)
    assert isinstance(outcome, Outcome)
    assert outcome.repeated
    assert known_by(bench.write(3)) == 4
    repeated = bench.write(2, write_id=1)
    assert isinstance(repeated, Outcome), "it took effect: that is no news"
    assert known_by(bench.write(3)) == 4


@pytest.mark.parametrize("term", [0, -1, "1", True, 1.0, None, 1 << 53])
def test_what_is_no_term_is_refused(term: Value) -> None:
    bench = Bench()
    assert isinstance(bench.write(term), BadOperation)
    assert bench.log == []


def test_spans_and_copies_have_no_fences() -> None:
    bench = Bench()
    write = Write("w", 0, PUT, {"fence:m": 1}, span=Span("s", 0, 1, (1,)))
    assert isinstance(bench.stage([write])[0], BadOperation)
    state = MergeableState(HybridClock("a"), msgpack.packb, Aggregations())
    (outcome,) = state.write([Write("w", 0, PUT, {"fence:m": 1})], 1)
    assert isinstance(outcome, BadOperation)


def test_in_any_course_the_terms_of_what_took_effect_never_fall() -> None:
    for seed in range(60):
        rng, bench = random.Random(seed), Bench()
        highest, taken = 0, set()
        for _ in range(80):
            term, write_id = rng.randrange(1, 9), rng.randrange(20)
            outcome = bench.write(term, write_id=write_id, repeats=True)
            if isinstance(outcome, Outcome) and not outcome.repeated:
                assert term >= highest
                taken.add(write_id)
            elif isinstance(outcome, StaleTerm):
                assert outcome.term == highest > term
                assert write_id not in taken
            highest = max(highest, 0 if isinstance(outcome, StaleTerm) else term)
            if rng.random() < 0.1:
                later = Bench()
                later.state.restore([bench.state.snapshot()])
                later.count = bench.count
                bench = later
