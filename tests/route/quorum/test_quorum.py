"""`Quorum`: whom to ask, when it is decided, and what its error says."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import (
    ConfigError,
    MaxRetriesExceeded,
    MayHaveRun,
    NotEnoughReplies,
    TooManyInFlight,
)
from ringpop_py.route.proxy.request import Reply
from ringpop_py.route.quorum.quorum import MEMBERS_MAX, Quorum, most_given


def answer(quorum: Quorum, *names: str) -> None:
    for name in names:
        quorum.replies[name] = Reply(b"done", name)


def refusal() -> MaxRetriesExceeded:
    return MaxRetriesExceeded("gave up", (), "no")


@pytest.mark.parametrize(
    ("n", "w", "text"),
    [
        (0, 1, f"n is 1 to {MEMBERS_MAX} members, not 0"),
        (MEMBERS_MAX + 1, 1, f"n is 1 to {MEMBERS_MAX} members, not {MEMBERS_MAX + 1}"),
        (True, 1, "not True"),
        ("3", 1, "not '3'"),
        (3, 0, r"w is 1 to n \(3\) members, not 0"),
        (3, 4, r"w is 1 to n \(3\) members, not 4"),
        (3, 2.0, r"not 2\.0"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(n: int, w: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Quorum(n, w, "w")


def test_it_is_reached_when_as_many_as_needed_have_answered() -> None:
    quorum = Quorum(3, 2, "w")

    assert quorum.ask(["a", "b", "c"]) == ["a", "b", "c"]
    answer(quorum, "c")
    assert not quorum.is_decided
    answer(quorum, "a")
    assert quorum.is_reached
    assert quorum.is_decided
    assert [*quorum.in_order()] == ["a", "c"]


def test_it_is_decided_as_soon_as_too_few_are_left() -> None:
    quorum = Quorum(3, 2, "w")
    quorum.ask(["a", "b", "c"])

    quorum.errors["b"] = refusal()
    assert not quorum.is_decided
    quorum.errors["a"] = refusal()
    assert quorum.is_decided
    assert not quorum.is_reached


def test_another_member_stands_in_for_one_that_has_failed_and_only_then() -> None:
    quorum = Quorum(3, 3, "w")
    quorum.ask(["a", "b", "c"])

    assert quorum.ask(["d", "a", "b"]) == []
    quorum.errors["c"] = refusal()
    assert quorum.ask(["e", "d", "a"]) == ["e"]
    assert not quorum.is_decided


def test_a_member_is_asked_once_even_if_it_comes_back() -> None:
    quorum = Quorum(2, 1, "w")
    quorum.ask(["a", "b"])
    quorum.errors["a"] = refusal()

    assert quorum.ask(["a", "b"]) == []


def test_a_ring_with_too_few_members_is_an_error_that_says_how_many_there_are() -> None:
    quorum = Quorum(3, 2, "w")
    quorum.ask(["a"])

    assert quorum.is_decided
    error = quorum.failure()
    assert str(error) == "w is 2, more than the members in the ring (1)"
    assert error.took_effect == "no"


def test_the_error_says_who_answered_and_why_others_do_not() -> None:
    quorum = Quorum(4, 3, "w")
    quorum.ask(["a", "b", "c", "d"])
    quorum.errors |= {"b": refusal(), "d": MayHaveRun("it may have run")}
    answer(quorum, "a")

    error = quorum.failure()

    assert isinstance(error, NotEnoughReplies)
    assert str(error).splitlines() == [
        "1 of 4 members have answered, and w is 3",
        "  a: answered",
        "  b: MaxRetriesExceeded: gave up",
        "  c: no answer yet",
        "  d: MayHaveRun: it may have run",
    ]
    assert (error.answered, [*error.errors]) == (("a",), ["b", "d"])
    assert error.took_effect == "unknown"


def test_nothing_ran_only_if_that_is_certain_of_every_member() -> None:
    quorum = Quorum(2, 2, "w")
    quorum.ask(["a", "b"])
    quorum.errors["a"] = refusal()

    assert quorum.failure().took_effect == "unknown"  # b may still run it
    quorum.errors["b"] = TooManyInFlight("busy")
    assert quorum.failure().took_effect == "no"
    quorum.errors["b"] = MayHaveRun("it may have run")
    assert quorum.failure().took_effect == "unknown"


def test_what_the_caller_got_wrong_is_told_as_that() -> None:
    quorum = Quorum(2, 1, "w")
    quorum.ask(["a", "b"])
    quorum.errors |= {"a": ConfigError("bad"), "b": ConfigError("bad")}

    assert type(quorum.failure()) is ConfigError


def test_by_default_the_reply_that_most_gave_counts_and_the_first_of_a_tie() -> None:
    old, new, other = Reply(b"old", "a"), Reply(b"new", "b"), Reply(b"new", "c")

    assert most_given([old, new, other]) is new
    assert most_given([old, new]) is old
    assert most_given([new, old]) is new
    assert most_given([old]) is old


def test_only_members_that_replied_something_else_differ() -> None:
    quorum = Quorum(4, 2, "r")
    quorum.ask(["a", "b", "c", "d"])
    quorum.replies |= {"c": Reply(b"old", "c"), "a": Reply(b"old", "a"), "b": Reply(b"new", "b")}

    assert quorum.others_than(Reply(b"new", "b")) == ["a", "c"]
