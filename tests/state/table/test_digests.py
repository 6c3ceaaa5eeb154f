"""An operation id that is used for a second, different write is told from a repetition."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BadOperation, KeyspaceError, OperationIdReused
from ringpop_py.base.values.operations import DIGEST_BYTES, Change, Outcome, Write
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState
from tests.state.table.reading import rows_in

NO_DIGEST = b""
ONE, TWO = b"1" * DIGEST_BYTES, b"2" * DIGEST_BYTES


def a_state() -> KeyedState:
    return KeyedState(msgpack.packb, Aggregations())


def put(
    key: str, value: int, digest: bytes = NO_DIGEST, *, source: str = "order 7", sequence: int = 0
) -> Write:
    return Write(source, sequence, (Change(key, "put", value),), None, digest)


def commit(state: KeyedState, *writes: Write) -> list[Outcome | KeyspaceError]:
    body, outcomes = state.stage(writes)
    if body is not None:
        state.apply(msgpack.unpackb(msgpack.packb(body)))  # as it is read from the log
    return outcomes


def test_an_id_that_is_used_again_for_something_else_changes_nothing_and_says_so() -> None:
    state = a_state()
    commit(state, put("a", 1, ONE))

    (outcome,) = commit(state, put("b", 2, TWO))

    assert isinstance(outcome, OperationIdReused)
    assert "'order 7'" in str(outcome)
    assert rows_in(state) == [("a", 1)]


def test_the_message_names_the_sequence_of_a_source_that_counts() -> None:
    state = a_state()
    commit(state, put("a", 1, ONE, sequence=5))

    (outcome,) = commit(state, put("a", 1, TWO, sequence=5))

    assert "'order 7' and sequence 5 " in str(outcome)


@pytest.mark.parametrize(("first", "second"), [(ONE, NO_DIGEST), (NO_DIGEST, TWO)])
def test_a_write_without_a_digest_is_not_compared(first: bytes, second: bytes) -> None:
    state = a_state()
    commit(state, put("a", 1, first))

    assert commit(state, put("a", 2, second)) == [Outcome((1,), repeated=True)]


def test_a_refused_write_leaves_its_id_free() -> None:
    state = a_state()
    (refused,) = commit(state, put("", 1, ONE))

    assert isinstance(refused, BadOperation)
    assert commit(state, put("a", 2, TWO)) == [Outcome((2,))]


@pytest.mark.parametrize("digest", [b"short", b"x" * 9, "text" * 2, 12345678])
def test_a_malformed_digest_is_refused(digest: bytes) -> None:
    state = a_state()

    (outcome,) = commit(state, put("a", 1, digest))

    assert isinstance(outcome, BadOperation)
    assert rows_in(state) == []


def test_writes_without_digests_are_logged_as_they_were_before_there_were_any() -> None:
    body, _ = a_state().stage([put("a", 1), put("b", 2, sequence=1)])

    assert body == ({"a": b"\x01", "b": b"\x02"}, [], {"order 7": [0, 1]}, {})


Step = tuple[str, list[tuple[str, int, int]]]
"""What is done, and with which writes: source, sequence, and what the write does (its digest)."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "restore", "replay"]),
        st.lists(
            st.tuples(st.sampled_from("xy"), st.integers(0, 4), st.integers(0, 2)), max_size=6
        ),
    ),
    max_size=10,
)


@given(STEPS)
def test_a_repetition_is_told_from_another_write_after_any_restarts(steps: list[Step]) -> None:
    """The model: the first write with an id decides what the id stands for."""
    state = a_state()
    log: list[object] = []
    snapshots = [state.snapshot()]
    model: dict[tuple[str, int], int] = {}

    for what, rows in steps:
        if what == "restore":  # from a checkpoint of this moment
            snapshots.append(state.snapshot(since=snapshots[-1].mark))
            log = []
        if what in {"restore", "replay"}:
            state = a_state()
            state.restore(snapshots)
            for record in log:
                state.apply(record)
            snapshots = [state.snapshot()]
            log = []
        writes = [
            put(f"{source} {content}", 1, bytes([content]) * 8, source=source, sequence=sequence)
            for source, sequence, content in rows
        ]
        body, outcomes = state.stage(writes)
        if body is not None:
            log.append(msgpack.unpackb(msgpack.packb(body)))
            state.apply(log[-1])

        for (source, sequence, content), outcome in zip(rows, outcomes, strict=True):
            first = model.setdefault((source, sequence), content)
            assert isinstance(outcome, OperationIdReused) == (first != content)
    assert {key for key, _ in rows_in(state)} == {
        f"{source} {content}" for (source, _), content in model.items()
    }
