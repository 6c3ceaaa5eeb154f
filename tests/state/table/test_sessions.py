"""Which writes are known: the window of each source, and the bound on sources."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringpop_py.base.errors import BadOperation, OperationTooOld
from ringpop_py.base.values.operations import DIGEST_BYTES
from ringpop_py.state.table.sessions import (
    SEQUENCE_MAX,
    WINDOW,
    Session,
    Sessions,
    after,
    after_run,
    check_id,
    digest_in,
    joined,
    record_of,
    records_in,
    with_records,
)


def session_of(*sequences: int) -> Session:
    session: Session | None = None
    for sequence in sequences:
        session = after(session, sequence) or session
    assert session is not None
    return session


@given(
    st.sets(st.integers(0, 20) | st.integers(WINDOW, WINDOW + 20), max_size=6).map(sorted),
    st.integers(1, 20) | st.integers(WINDOW, WINDOW + 5),
    st.sampled_from([1, 2, 7, WINDOW + 1]),
)
def test_a_run_of_writes_is_as_one_after_the_other(
    before: list[int], ahead: int, count: int
) -> None:
    session = session_of(*before) if before else None
    first = ahead if session is None else session[0] + ahead

    expected = session
    for sequence in range(first, first + count):
        expected = after(expected, sequence)

    assert after_run(session, first, count) == expected


def test_a_jump_as_far_as_there_are_numbers_costs_no_more_than_the_window() -> None:
    session = session_of(0, SEQUENCE_MAX)

    assert session[1].bit_length() == WINDOW


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


# Digests.


def a_digest(number: int) -> bytes:
    return number.to_bytes(DIGEST_BYTES, "big")


Writes = list[tuple[int, int]]
"""Sequences with the numbers of their digests; 0: it has none."""
some_writes = st.lists(
    st.tuples(st.integers(0, 3 * WINDOW) | st.integers(0, 20), st.integers(0, 2)), max_size=40
)


def session_with(writes: Writes) -> Session | None:
    """A session with those of *writes* that are new when it is their turn."""
    session: Session | None = None
    for sequence, number in writes:
        with contextlib.suppress(OperationTooOld):
            following = after(session, sequence)
            if following is not None:
                records = [record_of(sequence, a_digest(number))] if number else []
                session = with_records(following, records) if records else following
    return session


@given(some_writes)
def test_a_session_has_the_digest_of_each_write_in_its_window(writes: Writes) -> None:
    model: dict[int, int] = {}
    for sequence, number in writes:
        if not model or sequence >= max(model) - WINDOW:
            model.setdefault(sequence, number)

    session = session_with(writes)

    if session is None:
        assert not model
        return
    in_window = {sequence for sequence in model if sequence >= session[0] - WINDOW}
    for sequence in in_window:
        number = model[sequence]
        assert digest_in(session[2], sequence) == (a_digest(number) if number else b"")
    for sequence in set(range(25)) - set(model):
        assert digest_in(session[2], sequence) == b""
    assert len(records_in(session[2])) <= 1 + WINDOW


def a_session(writes: Writes) -> Session:
    """As `session_with`, with a write at least, and no digests of what has left the window."""
    session = session_with([(0, 0), *writes])
    assert session is not None
    return with_records(session, [])


@given(some_writes, some_writes, some_writes)
@example([(WINDOW + 2, 0)], [], [(1, 1)])
def test_copies_of_a_session_become_one_in_any_order(
    first: Writes, second: Writes, third: Writes
) -> None:
    one, two, three = [a_session(writes) for writes in (first, second, third)]

    together = joined(joined(one, two), three)

    assert together == joined(one, joined(three, two))
    assert joined(together, two) == together
    assert joined(one, one) == one


@given(some_writes, some_writes)
def test_a_joined_session_has_the_digests_of_both(first: Writes, second: Writes) -> None:
    one, two = a_session(first), a_session(second)

    together = joined(one, two)

    for sequence in {sequence for sequence, _ in first + second}:
        if sequence >= together[0] - WINDOW:
            known = max(digest_in(one[2], sequence), digest_in(two[2], sequence))
            assert digest_in(together[2], sequence) == known


def with_digests(count: int, *, first: int = 0) -> Session:
    session = session_with([(sequence, 1) for sequence in range(first, first + count)])
    assert session is not None
    return session


def test_of_too_many_digests_those_of_the_sources_that_wrote_longest_ago_are_forgotten() -> None:
    sessions = Sessions(digests_max=10)
    sessions.update({"plain": (9, 0, b"")})
    sessions.update({f"s{n}": with_digests(2) for n in range(5)})
    sessions.update({"s0": with_digests(2, first=2)})

    sessions.update({"s5": with_digests(1)})

    kept = {source: len(records_in(session[2])) for source, session in sessions.rows()}
    assert kept == {"plain": 0, "s1": 0, "s2": 0, "s3": 0, "s4": 2, "s0": 2, "s5": 1}
    assert after(dict(sessions.rows())["s1"], 1) is None


def test_digests_that_went_with_their_source_or_were_replaced_do_not_count() -> None:
    sessions = Sessions(sources_max=2, digests_max=10)
    for number in range(30):
        sessions.update({f"s{number}": with_digests(4)})
    sessions.replace(sessions.rows())
    sessions.replace(sessions.rows())

    sessions.update({"s29": with_digests(6)})

    assert [len(records_in(session[2])) for _, session in sessions.rows()] == [4, 6]


def test_digests_that_come_later_count_and_are_no_sign_that_their_source_wrote() -> None:
    sessions = Sessions(digests_max=4)
    sessions.update({"a": (9, 0, b""), "b": (9, 0, b"")})

    sessions.add_digests("a", with_digests(3, first=5)[2])
    sessions.add_digests("nobody", with_digests(1)[2])
    assert [(source, len(records_in(each[2]))) for source, each in sessions.rows()] == [
        ("a", 3),
        ("b", 0),
    ]

    sessions.add_digests("b", with_digests(2, first=5)[2])
    assert [len(records_in(session[2])) for _, session in sessions.rows()] == [0, 2]


@pytest.mark.parametrize(
    ("source", "sequence"),
    [
        ("", 0),
        ("x" * 257, 0),
        ("\ud800", 0),
        (b"x", 0),
        ("x", -1),
        ("x", True),
        ("x", 1.0),
        ("x", 1 << 63),
    ],
)
def test_an_id_that_cannot_name_a_write_is_refused(source: object, sequence: object) -> None:
    with pytest.raises(BadOperation):
        check_id(source, sequence)


def test_the_source_that_wrote_longest_ago_is_forgotten_first() -> None:
    sessions = Sessions(sources_max=2)
    for source in ("a", "b", "a", "c"):
        sessions.update({source: (0, 0, b"")})

    assert [source for source, _ in sessions.rows()] == ["a", "c"]


@given(st.lists(st.sampled_from("abcdef")))
def test_sessions_that_were_replaced_forget_in_the_same_order(writers: list[str]) -> None:
    one, other = Sessions(sources_max=4), Sessions(sources_max=4)
    with contextlib.suppress(IndexError):
        one.update({writers[0]: (7, 0, b"")})
    other.replace(one.rows())

    for source in writers:
        one.update({source: (9, 1, b"")})
        other.update({source: (9, 1, b"")})

    assert one.rows() == other.rows()
    assert len(one) <= 4


def test_jobs_are_not_forgotten_for_those_who_write_a_lot() -> None:
    sessions = Sessions(sources_max=2, jobs_max=2)
    sessions.update({"job/a": (3, 0, b"")})

    sessions.update({f"client/{n}": (0, 0, b"") for n in range(10)})

    assert sessions.get("job/a") == (3, 0, b"")
    assert sessions.rows() == (
        ("job/a", (3, 0, b"")),
        ("client/8", (0, 0, b"")),
        ("client/9", (0, 0, b"")),
    )


def test_the_job_that_wrote_longest_ago_is_forgotten_for_later_jobs() -> None:
    sessions = Sessions(sources_max=2, jobs_max=2)

    sessions.update({"job/a": (0, 0, b""), "job/b": (0, 0, b"")})
    sessions.update({"job/a": (1, 0, b"")})
    sessions.update({"job/c": (0, 0, b"")})

    assert [source for source, _ in sessions.rows()] == ["job/a", "job/c"]
    copy = Sessions(sources_max=2, jobs_max=2)
    copy.replace(sessions.rows())
    assert copy.rows() == sessions.rows()
