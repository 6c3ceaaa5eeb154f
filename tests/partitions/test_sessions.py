"""Which writes are known: the window of each source, and the bound on sources."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.errors import BadOperation, OperationTooOld
from ringpop_py.partitions.sessions import (
    SEQUENCE_MAX,
    WINDOW,
    Session,
    Sessions,
    after,
    check_id,
)


def session_of(*sequences: int) -> Session:
    session: Session | None = None
    for sequence in sequences:
        session = after(session, sequence) or session
    assert session is not None
    return session


def test_a_write_in_order_is_new_once() -> None:
    session = session_of(0, 1, 2)

    assert after(session, 2) is None
    assert after(session, 0) is None
    assert after(session, 3) == (3, 0)


def test_a_write_that_was_overtaken_is_new_once() -> None:
    session = session_of(0, 5, 3)

    again = [sequence for sequence in range(7) if after(session, sequence) is None]

    assert again == [0, 3, 5]


def test_a_write_just_inside_the_window_is_told_and_one_before_it_is_not() -> None:
    session = session_of(0, WINDOW + 1)

    assert after(session, 1) == (WINDOW + 1, session[1] ^ 1 << (WINDOW - 1))
    with pytest.raises(OperationTooOld):
        after(session, 0)


def test_a_source_may_begin_anywhere_and_what_is_before_is_new() -> None:
    session = session_of(10)

    assert after(session, 9) is not None
    assert after(session, 10) is None


def test_a_jump_as_far_as_there_are_numbers_costs_no_more_than_the_window() -> None:
    session = session_of(0, SEQUENCE_MAX)

    assert session[1].bit_length() == WINDOW


def test_a_gap_is_forgotten_once_the_window_has_passed_it() -> None:
    session = session_of(0, 3, *range(4, WINDOW + 4))

    assert session == (WINDOW + 3, 0)


@given(st.lists(st.integers(0, 3 * WINDOW) | st.integers(0, 20), max_size=60))
def test_the_window_is_what_a_set_of_all_sequences_says(sequences: list[int]) -> None:
    session: Session | None = None
    seen: set[int] = set()

    for sequence in sequences:
        if seen and sequence < max(seen) - WINDOW:
            with pytest.raises(OperationTooOld):
                after(session, sequence)
            continue
        assert (after(session, sequence) is None) == (sequence in seen)
        session = after(session, sequence) or session
        seen.add(sequence)


@pytest.mark.parametrize(
    ("source", "sequence"),
    [("", 0), ("x" * 257, 0), (b"x", 0), ("x", -1), ("x", True), ("x", 1.0), ("x", 1 << 63)],
)
def test_what_cannot_name_a_write_is_refused(source: object, sequence: object) -> None:
    with pytest.raises(BadOperation):
        check_id(source, sequence)


def test_the_source_that_wrote_longest_ago_is_forgotten_first() -> None:
    sessions = Sessions(sources_max=2)
    for source in ("a", "b", "a", "c"):
        sessions.update({source: (0, 0)})

    assert [source for source, _ in sessions.rows()] == ["a", "c"]


@given(st.lists(st.sampled_from("abcdef")))
def test_sessions_that_were_replaced_forget_in_the_same_order(writers: list[str]) -> None:
    one, other = Sessions(sources_max=4), Sessions(sources_max=4)
    with contextlib.suppress(IndexError):
        one.update({writers[0]: (7, 0)})
    other.replace(one.rows())

    for source in writers:
        one.update({source: (9, 1)})
        other.update({source: (9, 1)})

    assert one.rows() == other.rows()
    assert len(one) <= 4


def test_jobs_are_not_forgotten_for_those_who_write_a_lot() -> None:
    sessions = Sessions(sources_max=2, jobs_max=2)
    sessions.update({"job/a": (3, 0)})

    sessions.update({f"client/{n}": (0, 0) for n in range(10)})

    assert sessions.get("job/a") == (3, 0)
    assert sessions.rows() == (("job/a", (3, 0)), ("client/8", (0, 0)), ("client/9", (0, 0)))


def test_the_job_that_wrote_longest_ago_is_forgotten_for_later_jobs() -> None:
    sessions = Sessions(sources_max=2, jobs_max=2)

    sessions.update({"job/a": (0, 0), "job/b": (0, 0)})
    sessions.update({"job/a": (1, 0)})
    sessions.update({"job/c": (0, 0)})

    assert [source for source, _ in sessions.rows()] == ["job/a", "job/c"]
    copy = Sessions(sources_max=2, jobs_max=2)
    copy.replace(sessions.rows())
    assert copy.rows() == sessions.rows()
