"""Writes that have all records of a source in a range: what is new of them counts, once."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BadOperation, KeyspaceError, RecordRefused, SpanRefused
from ringpop_py.base.values.operations import Change, Outcome, PackedWrite, Span, Write
from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.keyed import KeyedState

AGGREGATIONS = Aggregations()


def make_state(*, mergeable: bool = False) -> KeyedState:
    return KeyedState(msgpack.packb, AGGREGATIONS, mergeable=mergeable)


def a_span(after: int, upto: int, *positions: int, source: str = "s") -> Write:
    """Adds one at the key of each position."""
    changes = tuple(Change(f"k{position}", "add", 1) for position in positions)
    return Write("", 0, changes, span=Span(source, after, upto, positions))


def commit(state: KeyedState, *writes: Write | PackedWrite) -> list[Outcome | KeyspaceError]:
    body, outcomes = state.stage(writes)
    if body is not None:
        state.apply(msgpack.unpackb(msgpack.packb(body)))  # as it is read from the log
    return outcomes


def counts(state: KeyedState) -> dict[str, object]:
    found = state.scan_packed("", None, None, 99)
    return {key: decode_value("msgpack", packed) for key, packed in found}


def test_spans_that_follow_each_other_take_effect_and_move_the_mark() -> None:
    state = make_state()

    done = commit(state, a_span(0, 4, 1, 3), a_span(4, 9, 5))

    assert done == [Outcome((4,)), Outcome((9,))]
    assert counts(state) == {"k1": 1, "k3": 1, "k5": 1}
    assert state.offsets == {"mark:s": 9}
    assert state.sessions == ()  # no ids are kept


def test_records_that_a_partition_has_already_are_ignored() -> None:
    state = make_state()
    commit(state, a_span(0, 4, 1, 3))

    again, more = commit(state, a_span(0, 4, 1, 3), a_span(2, 6, 3, 5))

    assert again == Outcome((4,), repeated=True)
    assert more == Outcome((6,))
    assert counts(state) == {"k1": 1, "k3": 1, "k5": 1}
    assert state.offsets == {"mark:s": 6}


def test_records_between_the_mark_and_a_span_would_be_lost_so_it_is_refused() -> None:
    state = make_state()
    commit(state, a_span(0, 4, 1))

    [refused] = commit(state, a_span(5, 9, 6))

    assert isinstance(refused, SpanRefused)
    assert "up to 4, and the write has what is after 5, up to 9" in str(refused)
    assert (counts(state), state.offsets) == ({"k1": 1}, {"mark:s": 4})


def test_a_span_without_records_moves_the_mark() -> None:
    state = make_state()

    assert commit(state, a_span(0, 7)) == [Outcome((7,))]
    assert commit(state, a_span(3, 8)) == [Outcome((8,))]
    assert state.offsets == {"mark:s": 8}


def test_a_span_of_nothing_asks_for_the_mark() -> None:
    state = make_state()
    assert commit(state, a_span(0, 0)) == [Outcome((0,), repeated=True)]
    commit(state, a_span(0, 4, 1))

    body, outcomes = state.stage([a_span(0, 0)])

    assert (body, outcomes) == (None, [Outcome((4,), repeated=True)])


def test_changes_without_positions_are_a_whole() -> None:
    state = make_state()
    commit(state, a_span(0, 4, 1))
    whole = Write("", 0, (Change("k", "add", 1),), span=Span("s", 2, 6))

    assert isinstance(commit(state, whole)[0], SpanRefused)
    at_the_mark = Write("", 0, whole.changes, span=Span("s", 4, 6))
    assert commit(state, at_the_mark) == [Outcome((6,))]
    assert commit(state, whole) == [Outcome((6,), repeated=True)]


def test_sources_have_marks_of_their_own_beside_other_offsets() -> None:
    state = make_state()
    commit(state, a_span(0, 4, 1), a_span(0, 2, 2, source="t"))
    commit(state, Write("w", 0, (), {"topic": "x"}))
    more = Write("", 0, (), {"topic": "y"}, span=Span("s", 4, 5))

    assert commit(state, more) == [Outcome((5,))]
    assert state.offsets == {"mark:s": 5, "mark:t": 2, "topic": "y"}


def test_a_refused_change_leaves_mark_and_values_as_they_were() -> None:
    state = make_state()
    commit(state, Write("w", 0, (Change("k2", "put", "text"),)))

    refused, later = commit(state, a_span(0, 4, 1, 2), a_span(4, 6, 5))

    assert isinstance(refused, RecordRefused)
    assert isinstance(later, SpanRefused)  # what came before it is not there
    assert state.offsets == {}
    assert counts(state) == {"k2": "text"}


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Span("s", 4, 4), "has no positions"),
        (Span("s", 5, 4), "has no positions"),
        (Span("s", 0, 4, (1,)), "2 changes are at 1 positions"),
        (Span("s", 0, 4, (3, 2)), "do not rise"),
        (Span("s", 2, 4, (2, 3)), "not after 2"),
        (Span("s", 0, 4, (3, 5)), "not up to 4"),
        (Span("", 0, 4, (3, 3)), "an operation's source"),
    ],
)
def test_a_span_that_contradicts_itself_is_refused(span: Span, message: str) -> None:
    state = make_state()
    changes = (Change("a", "add", 1), Change("b", "add", 1))

    [refused] = commit(state, Write("", 0, changes, span=span))

    assert isinstance(refused, BadOperation)
    assert message in str(refused)
    assert (counts(state), state.offsets) == ({}, {})


def test_nothing_but_a_span_sets_a_mark() -> None:
    state = make_state()
    commit(state, a_span(0, 4, 1))

    [refused] = commit(state, Write("w", 0, (), {"mark:s": 1}))

    assert "are kept for spans" in str(refused)
    assert state.offsets == {"mark:s": 4}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (Change("text", "add", 1), RecordRefused),
        (Change("text", "put_if_absent", 1), RecordRefused),
        (Change("", "put", 1), RecordRefused),
        (Change("text", "ad", 1), BadOperation),  # perhaps another node knows it
    ],
)
def test_a_record_is_to_blame_only_for_what_it_does(
    change: Change, kind: type[KeyspaceError]
) -> None:
    state = make_state()
    commit(state, Write("w", 0, (Change("text", "put", "text"),)))

    [refused] = commit(state, Write("", 0, (change,), span=Span("s", 0, 1, (1,))))

    assert type(refused) is kind
    assert state.offsets == {}


def test_in_memory_mode_spans_are_refused() -> None:
    [refused] = commit(make_state(mergeable=True), a_span(0, 1, 1))

    assert "in memory mode" in str(refused)


def test_marks_are_kept_in_snapshots() -> None:
    state, other = make_state(), make_state()
    commit(state, a_span(0, 4, 1))
    other.restore([state.whole()])

    assert commit(other, a_span(0, 4, 1)) == [Outcome((4,), repeated=True)]
    assert isinstance(commit(other, a_span(5, 6, 6))[0], SpanRefused)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10), st.booleans()), max_size=40))
def test_in_whatever_order_spans_come_each_record_counts_once(
    arrivals: list[tuple[int, int, bool]],
) -> None:
    """Each position but those that three divides has a record of this partition."""
    state = make_state()
    for after, upto, together in arrivals:
        if after < upto:
            write = a_span(after, upto, *(p for p in range(after + 1, upto + 1) if p % 3))
            commit(state, *([write] * (2 if together else 1)))
        mark = state.offsets.get("mark:s", 0)
        assert isinstance(mark, int)
        assert counts(state) == {f"k{p}": 1 for p in range(1, mark + 1) if p % 3}
