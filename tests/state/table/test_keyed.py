"""The keyed state of a partition: groups of writes, what the log says of them, and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import (
    BadOperation,
    ConditionFailed,
    KeyspaceError,
    OperationTooOld,
    PartitionFull,
    StateDamaged,
)
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.operations import (
    Change,
    Outcome,
    PackedWrite,
    Span,
    Value,
    Write,
    WriteRun,
)
from ringpop_py.state.table import evaluator, keyed
from ringpop_py.state.table.aggregations import ABSENT, Aggregations
from ringpop_py.state.table.bodies import Body
from ringpop_py.state.table.keyed import KeyedState, Snapshot
from ringpop_py.state.table.sessions import SEQUENCE_MAX, WINDOW
from tests.state.table.reading import rows_in, value_in, values_in

if TYPE_CHECKING:
    from ringpop_py.state.table.aggregations import Absent

AGGREGATIONS = Aggregations()


NO_VALUE = b"\xa2\xff\xfe"
"""Text of two bytes that are no UTF-8."""


def make_state(**options: Any) -> KeyedState:  # noqa: ANN401 - as they are
    options.setdefault("aggregations", AGGREGATIONS)
    return KeyedState(msgpack.packb, **options)


def write(
    sequence: int,
    *changes: tuple[str, str] | tuple[str, str, Value],
    source: str = "client",
    offsets: dict[str, Value] | None = None,
) -> Write:
    return Write(source, sequence, tuple(Change(*change) for change in changes), offsets)


def commit(state: KeyedState, *writes: Write | PackedWrite) -> list[Outcome | KeyspaceError]:
    body, outcomes = state.stage(writes)
    if body is not None:
        state.apply(logged(body))
    return outcomes


def logged(body: Body) -> object:
    """*body* as it is read from the log."""
    return msgpack.unpackb(msgpack.packb(body))


def contents(state: KeyedState) -> tuple[object, ...]:
    """All that two equal states have in common."""
    return rows_in(state), len(state), state.offsets, state.snapshot().sessions


def test_a_staged_write_changes_nothing_until_it_is_applied() -> None:
    state = make_state()

    body, outcomes = state.stage([write(0, ("a", "put", 1))])

    assert outcomes == [Outcome((1,))]
    assert value_in(state, "a") is ABSENT
    state.apply(body)
    assert value_in(state, "a") == 1


def test_the_log_has_the_last_value_of_each_key_of_a_group() -> None:
    state = make_state()

    body, _ = state.stage([write(n, ("hot", "count")) for n in range(100)])

    assert body is not None
    assert body[0] == {"hot": msgpack.packb(100)}


def test_none_is_a_value_and_absent_is_not() -> None:
    state = make_state()
    commit(state, write(0, ("null", "put", None)))

    assert value_in(state, "null") is None
    assert value_in(state, "other") is ABSENT
    assert values_in(state, ["null", "other"]) == {"null": None}


def test_a_value_that_was_read_is_the_readers_own() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", [1])))

    read = value_in(state, "a")
    assert isinstance(read, list)
    read.append(2)

    assert value_in(state, "a") == [1]


def test_an_applications_function_may_change_what_it_is_given() -> None:
    def careless(current: Value | Absent, argument: Value) -> Value:
        assert isinstance(current, list)
        current.append(argument)
        raise ConditionFailed("after all")

    aggregations = Aggregations()
    aggregations.register("careless", careless)
    state = make_state(aggregations=aggregations)
    commit(state, write(0, ("a", "put", [1])))

    (outcome,) = commit(state, write(1, ("a", "careless", 2)))

    assert isinstance(outcome, ConditionFailed)
    assert value_in(state, "a") == [1]


def test_a_group_in_which_all_is_refused_or_repeated_has_nothing_for_the_log() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 1)))

    body, _ = state.stage([write(0, ("a", "put", 1)), write(1, ("a", "append", 1))])

    assert body is None


def test_a_write_older_than_the_window_is_refused_within_a_group_and_across() -> None:
    state = make_state()

    outcomes = commit(state, write(WINDOW + 5, ("a", "put", 1)), write(4, ("a", "put", 2)))
    later = commit(state, write(4, ("a", "put", 2)), write(5, ("a", "put", 3)))

    assert isinstance(outcomes[1], OperationTooOld)
    assert isinstance(later[0], OperationTooOld)
    assert later[1] == Outcome((3,))


def test_no_more_offsets_are_kept_than_their_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "OFFSETS_MAX", 2)
    state = make_state()
    commit(state, write(0, offsets={"one": 1}))

    outcomes = commit(
        state,
        write(1, offsets={"two": 1}),
        write(2, offsets={"three": 1}),
        write(3, offsets={"two": 2}),
    )

    assert isinstance(outcomes[1], BadOperation)
    assert state.offsets == {"one": 1, "two": 2}


def test_a_new_key_over_the_maximum_is_refused_updates_go_on_and_a_delete_makes_room() -> None:
    state = make_state(keys_max=2)

    outcomes = commit(
        state,
        write(0, ("a", "put", 1)),
        write(1, ("b", "put", 1)),
        write(2, ("c", "put", 1)),
        write(3, ("a", "put", 2)),
        write(4, ("b", "delete"), ("c", "put", 3)),
        write(5, ("d", "put", 1), ("a", "delete")),
    )

    refused = [isinstance(outcome, PartitionFull) for outcome in outcomes]
    assert refused == [False, False, True, False, False, True]
    assert rows_in(state) == [("a", 2), ("c", 3)]


@pytest.mark.parametrize("mergeable", [False, True])
@pytest.mark.parametrize("aggregation", ["put", "delete", "add"])
@pytest.mark.parametrize("key", ["", "x" * 1025, "é" * 513, "\ud800"])
def test_keys_have_1_to_1024_bytes(key: str, aggregation: str, *, mergeable: bool) -> None:
    state = make_state(mergeable=mergeable)

    body, (outcome,) = state.stage([write(0, (key, aggregation, 1))])

    assert body is None
    assert isinstance(outcome, BadOperation)
    assert len(state) == 0


def test_the_longest_keys_are_taken() -> None:
    state = make_state()

    outcomes = commit(state, write(0, ("x" * 1024, "put", 1), ("é" * 512, "put", 1)))

    assert outcomes == [Outcome((1, 1))]


@pytest.fixture
def small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "VALUE_BYTES_MAX", 100)


@pytest.mark.usefixtures("small_values")
@pytest.mark.parametrize("value", [(1,), 1 << 64, "\ud800", b"x" * 99, {1: 1}])
def test_a_value_that_cannot_be_stored_is_refused(value: Value) -> None:
    (outcome,) = commit(make_state(), write(0, ("a", "put", value)))

    assert isinstance(outcome, BadOperation)


@pytest.mark.usefixtures("small_values")
def test_a_value_may_not_grow_over_its_maximum() -> None:
    state = make_state()
    commit(state, write(0, ("a", "append", "x" * 60)))

    (outcome,) = commit(state, write(1, ("a", "append", "x" * 60)))

    assert isinstance(outcome, BadOperation)
    assert value_in(state, "a") == ["x" * 60]


def test_an_id_that_names_nothing_is_refused_known_source_or_not() -> None:
    state = make_state()
    commit(state, write(0, ("a", "count")))

    outcomes = commit(
        state,
        write(-1, ("a", "count")),
        write(True, ("a", "count")),  # noqa: FBT003 - that is the mistake
        write(1 << 63, ("a", "count")),
        write(0, ("a", "count"), source=""),
    )

    assert {type(outcome) for outcome in outcomes} == {BadOperation}
    assert value_in(state, "a") == 1


def test_a_scan_goes_on_after_its_last_key() -> None:
    state = make_state()
    commit(state, write(0, *[(f"k{n}", "put", n) for n in range(5)], ("other", "put", 9)))

    first = rows_in(state, "k", limit=3)
    rest = rows_in(state, "k", start=first[-1][0] + "\0")

    assert first + rest == [(f"k{n}", n) for n in range(5)]
    assert rows_in(state, start="k1", end="k3") == [("k1", 1), ("k2", 2)]


# What comes from the log.

GOOD = Body({"a": b"\x01"}, ["b"], {"client": [1]}, {"file": b"\x01"})


@pytest.mark.parametrize(
    ("part", "damaged"),
    [
        (0, None),
        (0, {"a": 1}),
        (0, {"a": None}),
        (0, {b"a": b"\x01"}),
        (0, {"b": b"\x01"}),
        (1, {}),
        (1, [1]),
        (2, []),
        (2, {"client": []}),
        (2, {"client": 1}),
        (2, {"client": [-1]}),
        (2, {"client": ["1"]}),
        (2, {"client": [True]}),
        (2, {"client": [WINDOW * 3, 1]}),
        (2, {1: [1]}),
        (2, {"client": [b"12345678", 1]}),
        (2, {"client": [b"12345678"]}),
        (2, {"client": [1, b"12345678", b"12345678"]}),
        (2, {"client": [1, b"1234567"]}),
        (2, {"client": [-1, b"12345678"]}),
        (2, {"client": [1 << 63, b"12345678"]}),
        (2, {"client": [1, b"12345678", True]}),
        (3, {"file": 1}),
        (3, None),
    ],
)
def test_a_damaged_record_is_refused_as_a_whole(part: int, damaged: object) -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 7), ("b", "put", 8), offsets={"file": 9}))
    before = contents(state)
    body = [*GOOD[:part], damaged, *GOOD[part + 1 :]]

    with pytest.raises(StateDamaged):
        state.apply(body)

    assert contents(state) == before


@pytest.mark.parametrize("body", [None, {}, [], GOOD[:3], [*GOOD, 1]])
def test_a_malformed_record_is_refused(body: object) -> None:
    with pytest.raises(StateDamaged):
        make_state().apply(body)


# Snapshots.


def entries_of(snapshot: Snapshot) -> dict[str, Value]:
    return {
        key: msgpack.unpackb(value)
        for keys, values in snapshot.entries.pieces(100)
        for key, value in zip(keys, values, strict=True)
    }


def test_a_snapshot_is_of_its_moment() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 1), offsets={"file": 1}))

    snapshot = state.snapshot()
    commit(state, write(1, ("a", "put", 2), ("b", "put", 2), offsets={"file": 2}))

    assert entries_of(snapshot) == {"a": 1}
    assert snapshot.offsets == {"file": msgpack.packb(1)}
    assert snapshot.sessions == (("client", (0, 0, b"")),)


def test_an_increment_has_what_changed_and_what_went_since_a_snapshot() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 1), ("b", "put", 1), ("c", "put", 1), ("d", "put", 1)))
    first = state.snapshot()
    commit(state, write(1, ("b", "put", 2), ("c", "delete"), ("d", "delete"), ("e", "put", 2)))
    commit(state, write(2, ("d", "put", 3), ("e", "delete")))

    increment = state.snapshot(since=first.mark)

    assert increment.since == first.mark
    assert entries_of(increment) == {"b": 2, "d": 3}
    assert sorted(increment.deleted) == ["c", "e"]


def test_an_increment_over_an_increment_has_only_what_came_after_it() -> None:
    state = make_state()
    first = state.snapshot()
    commit(state, write(0, ("a", "put", 1)))
    second = state.snapshot(since=first.mark)
    commit(state, write(1, ("b", "put", 1)))

    third = state.snapshot(since=second.mark)

    assert entries_of(third) == {"b": 1}


def test_changes_from_before_the_base_of_an_increment_are_forgotten() -> None:
    state = make_state()
    first = state.snapshot()
    commit(state, write(0, ("a", "put", 1)))
    second = state.snapshot(since=first.mark)
    state.snapshot(since=second.mark)

    assert state.snapshot(since=first.mark).since is None


def test_where_what_has_changed_is_not_known_the_snapshot_is_a_whole_one() -> None:
    state = make_state()
    first = state.snapshot()
    commit(state, write(0, ("a", "put", 1)))
    state.snapshot()

    snapshot = state.snapshot(since=first.mark)

    assert snapshot.since is None
    assert entries_of(snapshot) == {"a": 1}


def test_of_too_many_changed_keys_no_account_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "DIRTY_KEYS_MAX", 2)
    state = make_state()
    first = state.snapshot()
    commit(state, write(0, ("a", "put", 1), ("b", "put", 1), ("c", "put", 1)))

    snapshot = state.snapshot(since=first.mark)
    commit(state, write(1, ("a", "put", 2)))
    increment = state.snapshot(since=snapshot.mark)

    assert (snapshot.since, entries_of(snapshot)) == (None, {"a": 1, "b": 1, "c": 1})
    assert (increment.since, entries_of(increment)) == (snapshot.mark, {"a": 2})


def test_a_state_that_is_reset_knows_nothing() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 1), offsets={"file": 1}))

    state.reset()

    assert contents(state) == contents(make_state())
    assert commit(state, write(0, ("a", "add", 1))) == [Outcome((1,))]


# Any course of events, against a model.

KEYS = st.sampled_from(["a", "ab", "b", "é", "\U0001f600"])
CHANGES = st.one_of(
    st.builds(Change, KEYS, st.just("put"), st.integers(0, 3) | st.text(max_size=2) | st.none()),
    st.builds(Change, KEYS, st.just("add"), st.integers(-2, 2)),
    st.builds(Change, KEYS, st.just("append"), st.integers(0, 2)),
    st.builds(Change, KEYS, st.just("delete"), st.none()),
)
WRITES = st.builds(
    Write,
    st.sampled_from(["x", "y", "z"]),
    st.integers(0, 12),
    st.lists(CHANGES, max_size=3).map(tuple),
    st.none() | st.dictionaries(st.sampled_from(["f", "g"]), st.integers(0, 3)),
    st.just(b""),
)
GROUPS = st.lists(st.lists(WRITES, max_size=5), max_size=12)
KEYS_MAX = 3


class Model:
    """What the state should be, as plain dicts."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.known: set[tuple[str, int]] = set()
        self.offsets: dict[str, Value] = {}

    def write(self, write: Write) -> Outcome | None:
        """None: refused."""
        if (write.source, write.sequence) in self.known:
            now = tuple(self.values.get(change.key) for change in write.changes)
            return Outcome(now, repeated=True)
        values = dict(self.values)
        seen: list[Value] = []
        for key, name, argument in write.changes:
            if not self._change(values, key, name, argument):
                return None
            seen.append(values.get(key))
        self.values = values
        self.known.add((write.source, write.sequence))
        self.offsets |= write.offsets or {}
        return Outcome(tuple(seen))

    def _change(self, values: dict[str, Value], key: str, name: str, argument: Value) -> bool:
        current = values.get(key)
        if name == "delete":
            values.pop(key, None)
            return True
        if name == "append":
            if not isinstance(current, list) and key in values:
                return False
            argument = [*current, argument] if isinstance(current, list) else [argument]
        if name == "add" and key in values:
            if not isinstance(current, int) or not isinstance(argument, int):
                return False
            argument = current + argument
        if key not in values and len(values) == KEYS_MAX:
            return False
        values[key] = argument
        return True


@given(GROUPS)
def test_any_course_of_writes_and_repetitions_is_what_the_model_says(
    groups: list[list[Write]],
) -> None:
    state, model = make_state(keys_max=KEYS_MAX), Model()

    for group in groups:
        outcomes = commit(state, *group)
        expected = [model.write(write) for write in group]
        taken = [None if isinstance(o, KeyspaceError) else o for o in outcomes]
        assert taken == expected

    assert rows_in(state) == sorted(model.values.items())
    assert len(state) == len(model.values)
    assert state.offsets == model.offsets


ARGUMENTS = st.one_of(
    *(st.integers(0, 3), st.text(max_size=2), st.none(), st.just({1: 2}), st.just("x" * 2**20)),
    *(st.just(1 << 64), st.just([1 << 64]), st.just("\ud800")),
)
PUTS = st.builds(Change, KEYS, st.just("put"), ARGUMENTS | st.just([1, "x"]))
ALONE = st.builds(
    Change,
    KEYS | st.sampled_from(["", "k" * 1_025, None, 5]),
    st.sampled_from(["put", "add", "append", "delete", "put_if_absent", "unknown", None]),
    ARGUMENTS,
)


@given(st.lists(ALONE, max_size=12))
def test_a_write_alone_does_what_it_does_in_a_group(changes: list[Change]) -> None:
    alone, grouped = make_state(keys_max=KEYS_MAX), make_state(keys_max=KEYS_MAX)

    for sequence, change in enumerate(changes):
        mine = Write("x", sequence, (change,))
        body, (outcome,) = alone.stage([mine])
        (other,) = commit(grouped, mine, write(sequence, source="other"))[:1]
        if body is not None:
            alone.apply(body)

        assert (type(outcome), str(outcome)) == (type(other), str(other))
        assert rows_in(alone) == rows_in(grouped)
        session = dict(alone.sessions).get("x")
        assert session == dict(grouped.sessions).get("x")


RUNS = st.builds(
    WriteRun,
    st.sampled_from(["x", "y"]),
    st.integers(0, 12),
    st.lists(ALONE, min_size=2, max_size=6) | st.lists(PUTS, min_size=2, max_size=6),
    st.none() | st.just({"f": 1}),
)


@given(groups=st.lists(st.lists(RUNS, max_size=3), max_size=6), mergeable=st.booleans())
def test_a_run_does_what_its_writes_do(groups: list[list[WriteRun]], *, mergeable: bool) -> None:
    keys_max = None if mergeable else KEYS_MAX
    as_runs, one_by_one = (make_state(keys_max=keys_max, mergeable=mergeable) for _ in range(2))

    for group in groups:
        body, outcomes = as_runs.stage(group)
        same, expected = one_by_one.stage([write for run in group for write in run])
        assert body == same
        assert list(map(repr, outcomes)) == list(map(repr, expected))
        if body is not None:
            as_runs.apply(body)
            one_by_one.apply(same)

    assert rows_in(as_runs) == rows_in(one_by_one)
    assert as_runs.sessions == one_by_one.sessions
    assert as_runs.packed_offsets == one_by_one.packed_offsets


@given(st.lists(ALONE, min_size=2, max_size=5), st.none() | st.just({"f": 1}))
def test_writes_that_came_as_a_run_are_one(
    changes: list[Change], offsets: dict[str, Value] | None
) -> None:
    run = WriteRun("x", 3, changes, offsets)
    writes = tuple(run)

    found = WriteRun.gathered(writes)

    assert isinstance(found, WriteRun)
    assert (tuple(found), found[1], found[1:]) == (writes, writes[1], writes[1:])
    (other,) = WriteRun("y", 3, changes[:1], offsets)
    for there in (
        writes[0],
        other,
        write(5),
        write(3 + len(writes), ("a", "add", 1), ("b", "add", 1)),
    ):
        assert WriteRun.gathered((*writes, there)) == (*writes, there)
    for other_kind in (
        replace(writes[1], digest=b"8 bytes."),
        replace(writes[1], span=Span("topic", 0, 1)),
        replace(writes[1], offsets={"g": 2}),
    ):
        assert WriteRun.gathered((writes[0], other_kind)) == (writes[0], other_kind)
    assert WriteRun.gathered(writes[:1]) == writes[:1]


def test_no_sequence_is_beyond_those_that_can_be_stored() -> None:
    state = make_state()

    for sequence in (SEQUENCE_MAX, SEQUENCE_MAX + 1):
        (outcome,) = commit(state, write(sequence, ("a", "add", 1)))

    assert isinstance(outcome, BadOperation)
    assert value_in(state, "a") == 1


def of_two_sources() -> KeyedState:
    state = make_state(keys_max=KEYS_MAX)
    state._sessions._sources_max = 2
    return state


@given(GROUPS, st.data())
def test_replay_from_any_checkpoints_is_the_state_that_was_lost(
    groups: list[list[Write]], data: st.DataObject
) -> None:
    state = of_two_sources()
    chain: list[Snapshot] = []
    tail: list[object] = []
    for group in groups:
        body, _ = state.stage(group)
        if body is not None:
            state.apply(body)
            tail.append(logged(body))
        what = data.draw(st.sampled_from(["nothing", "whole", "increment", "lost"]))
        chain, tail = take_checkpoint(state, what, chain, tail)

    other = of_two_sources()
    if chain:
        other.restore(chain)
    for record in tail:
        other.apply(record)

    assert contents(other) == contents(state)


def take_checkpoint(
    state: KeyedState, what: str, chain: list[Snapshot], tail: list[object]
) -> tuple[list[Snapshot], list[object]]:
    if what == "nothing" or (what != "whole" and not chain):
        return chain, tail
    if what == "whole":
        return [state.snapshot()], []
    snapshot = state.snapshot(since=chain[-1].mark)
    assert snapshot.since == chain[-1].mark
    return (chain, tail) if what == "lost" else ([*chain, snapshot], [])


# Series of packed writes.


def packed(sequence: int, operation: str = "put", **values: Value) -> PackedWrite:
    arguments = [msgpack.packb(v) if operation == "put" else v for v in values.values()]
    return PackedWrite("job/j", sequence, operation, list(values), arguments)


def test_a_packed_put_is_as_one_of_values() -> None:
    state = make_state()

    outcomes = commit(state, packed(0, a=1, b=[2]), packed(1, a=3))

    assert outcomes == [Outcome(()), Outcome(())]
    assert values_in(state, ["a", "b"]) == {"a": 3, "b": [2]}


def test_packed_writes_of_other_aggregations_read_what_is_there() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 1)))

    commit(state, packed(0, "add", a=5, b=7), packed(1, "add", a=1))

    assert values_in(state, ["a", "b"]) == {"a": 7, "b": 7}


def test_a_series_has_no_gaps() -> None:
    state = make_state()

    first, second = commit(state, packed(1, a=1), packed(0, a=0))

    assert isinstance(first, BadOperation)
    assert second == Outcome(())
    assert value_in(state, "a") == 0


def test_writes_after_a_refused_one_of_a_series_are_refused_as_well() -> None:
    state = make_state()
    commit(state, write(0, ("text", "put", "t")))

    outcomes = commit(state, packed(0, "add", a=1), packed(1, "add", text=1), packed(2, "add", a=1))

    assert [type(outcome) for outcome in outcomes] == [Outcome, BadOperation, BadOperation]
    assert value_in(state, "a") == 1


def test_of_a_key_that_is_there_twice_in_a_packed_put_the_last_value_counts() -> None:
    state = make_state()
    values = [msgpack.packb(1), msgpack.packb(2)]

    commit(state, PackedWrite("job/j", 0, "put", ["a", "a"], values))

    assert value_in(state, "a") == 2


@pytest.mark.usefixtures("small_values")
@pytest.mark.parametrize(
    ("key", "value"), [("k", b"v" * 101), ("", b"v"), ("k" * 1_025, b"v"), ("ü" * 513, b"v")]
)
def test_a_packed_put_is_held_to_the_limits(key: str, value: bytes) -> None:
    state = make_state()

    (outcome,) = commit(state, PackedWrite("job/j", 0, "put", ["x", key], [b"v", value]))

    assert isinstance(outcome, BadOperation)
    assert len(state) == 0


def test_a_write_has_a_maximum_of_changes_packed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "CHANGES_MAX", 2)

    outcomes = commit(make_state(), packed(0, a=1, b=2, c=3), write(0, *[("a", "count")] * 3))

    assert [type(outcome) for outcome in outcomes] == [BadOperation] * 2


def test_a_full_partition_takes_packed_values_of_keys_that_are_there() -> None:
    state = make_state(keys_max=2)
    commit(state, packed(0, a=1, b=2))

    outcomes = commit(state, packed(1, a=3, b=4), packed(2, a=5, c=6))

    assert isinstance(outcomes[1], PartitionFull)
    assert values_in(state, "abc") == {"a": 3, "b": 4}


def test_refusals_name_the_changes_that_would_not_be_taken() -> None:
    state = make_state(keys_max=3)
    commit(state, write(0, ("text", "put", "t")))

    refused = state.refusals(packed(0, "add", a=1, text=2, b=3, c=4))

    assert {place: type(error) for place, error in refused.items()} == {
        1: BadOperation,
        3: PartitionFull,
    }
    assert state.refusals(packed(0, a=1, text=2, b=3, c=4)).keys() == {3}
    assert len(state) == 1


def with_no_value(**values: Value) -> KeyedState:
    """A state with *values*, in whose key ``bad`` a job has put bytes that are not a value."""
    state = make_state()
    put = PackedWrite("job/j", 0, "put", ["bad", *values], [NO_VALUE])
    commit(state, put._replace(arguments=[NO_VALUE, *map(msgpack.packb, values.values())]))
    return state


@pytest.mark.parametrize("aggregation", ["add", "put_if_absent", "compare_and_set", "append"])
def test_an_unreadable_value_refuses_writes_that_would_read_it_and_no_others(
    aggregation: str,
) -> None:
    state = with_no_value(a=1)

    outcomes = commit(
        state,
        write(0, ("a", "add", 1), ("bad", aggregation, {})),
        PackedWrite("job/k", 0, aggregation, ["bad"], [{}]),
        write(1, ("a", "add", 1)),
    )

    assert [type(outcome) for outcome in outcomes] == [BadOperation, BadOperation, Outcome]
    assert "the value of key 'bad' cannot be read, only replaced or deleted" in str(outcomes[0])
    assert value_in(state, "a") == 2


@pytest.mark.parametrize(("aggregation", "left"), [("put", 7), ("delete", ABSENT)])
def test_an_unreadable_value_can_be_replaced(aggregation: str, left: Value | Absent) -> None:
    state = with_no_value()

    assert isinstance(commit(state, write(0, ("bad", aggregation, 7)))[0], Outcome)
    assert value_in(state, "bad") == left


def test_rows_are_refused_where_they_meet_what_is_no_value_or_are_none() -> None:
    state = with_no_value(a=1)

    assert state.refusals(packed(0, "add", a=1, bad=1)).keys() == {1}
    none = PackedWrite("job/k", 0, "put", ["a", "b"], [NO_VALUE, msgpack.packb(1)])
    assert state.refusals(none).keys() == {0}


def test_a_repeated_write_took_effect_though_its_value_cannot_be_read_any_more() -> None:
    state = make_state()
    commit(state, write(0, ("a", "put", 1)))
    commit(state, PackedWrite("job/j", 0, "put", ["a"], [NO_VALUE]))

    assert commit(state, write(0, ("a", "put", 1))) == [Outcome((None,), repeated=True)]


def test_a_write_of_a_series_without_changes_takes_its_turn() -> None:
    state = make_state()

    outcomes = commit(state, packed(0, "what"), packed(1, a=1))

    assert outcomes == [Outcome(()), Outcome(())]
