"""`membership.dissemination`: what rides on the next message, and how often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.address import Address
from ringpop_py.member.swim.dissemination import Dissemination
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import MemberChange


def change(name: str, incarnation: int = 1, source: str = "s", said_at: int = 1) -> MemberChange:
    return MemberChange(
        member=Member(name, *Address("10.0.0.1", 3000), incarnation),
        source=source,
        source_incarnation=said_at,
    )


@pytest.mark.parametrize(
    ("pingable", "maximum"),
    [(0, 15), (1, 15), (8, 15), (9, 15), (10, 30), (98, 30), (99, 30), (100, 45), (999, 45)],
)
def test_the_maximum_is_exact_at_powers_of_ten(pingable: int, maximum: int) -> None:
    dissemination = Dissemination(15)

    dissemination.adjust(pingable)

    assert dissemination.maximum == maximum


def test_a_change_rides_until_the_maximum_and_no_more() -> None:
    dissemination = Dissemination(3)
    dissemination.record(change("a"))

    rides = [len(dissemination.pending()) or None]
    for _ in range(3):
        dissemination.count_sent(dissemination.pending())
        rides.append(len(dissemination.pending()))

    assert rides == [1, 1, 1, 0]
    assert len(dissemination) == 0


def test_a_newer_change_about_a_member_replaces_the_older_and_starts_anew() -> None:
    dissemination = Dissemination(2)
    dissemination.record(change("a", 1))
    dissemination.record(change("b", 1))
    dissemination.count_sent(dissemination.pending())

    dissemination.record(change("a", 2))
    dissemination.count_sent(dissemination.pending())

    assert dissemination.pending() == (change("a", 2),)


def test_counting_a_change_that_was_replaced_under_way_leaves_the_new_one_alone() -> None:
    dissemination = Dissemination(1)
    dissemination.record(change("a", 1))
    sent = dissemination.pending()
    dissemination.record(change("a", 2))

    dissemination.count_sent(sent)

    assert dissemination.pending() == (change("a", 2),)


def test_a_peer_is_not_told_what_it_said_first() -> None:
    dissemination = Dissemination(15)
    dissemination.record(change("a", source="peer", said_at=7))
    dissemination.record(change("b", source="peer", said_at=6))
    dissemination.record(change("c", source="other", said_at=7))

    told = dissemination.for_peer("peer", 7)

    assert [c.member.name for c in told] == ["b", "c"]


def test_the_oldest_change_comes_first() -> None:
    dissemination = Dissemination(15)
    for name in ("b", "a", "b"):
        dissemination.record(change(name))

    assert [c.member.name for c in dissemination.pending()] == ["a", "b"]


def test_a_forgotten_change_no_longer_rides() -> None:
    dissemination = Dissemination(15)
    dissemination.record(change("a"))

    dissemination.forget("a")
    dissemination.forget("unknown")

    assert dissemination.pending() == ()


def test_a_change_that_comes_while_there_is_too_much_to_say_goes_first() -> None:
    dissemination = Dissemination(15, changes_max=2)
    for name in "abc":
        dissemination.record(change(name))
    dissemination.count_sent(dissemination.pending())
    dissemination.count_sent(dissemination.pending())

    dissemination.record(change("d"))

    assert [c.member.name for c in dissemination.pending()] == ["d", "b"]


def test_a_change_that_a_peer_said_itself_takes_no_place_in_the_answer_to_it() -> None:
    dissemination = Dissemination(15, changes_max=2)
    dissemination.record(change("a", source="peer", said_at=7))
    for name in "bcd":
        dissemination.record(change(name, source="other"))

    told = dissemination.for_peer("peer", 7)

    assert [c.member.name for c in told] == ["b", "c"]


@given(st.lists(st.tuples(st.sampled_from(["say", "send", "forget"]), st.sampled_from("abcde"))))
def test_every_change_rides_equally_often_whatever_happens(steps: list[tuple[str, str]]) -> None:
    dissemination = Dissemination(3, changes_max=2)
    rides: dict[str, int] = {}

    for incarnation, (step, name) in enumerate(steps):
        match step:
            case "say":
                dissemination.record(change(name, incarnation))
                rides[name] = 0
            case "forget":
                dissemination.forget(name)
                rides.pop(name, None)
            case _:
                sent = dissemination.pending()
                dissemination.count_sent(sent)
                least = sorted(rides.values())[:2]
                assert sorted(rides[c.member.name] for c in sent) == least
                for c in sent:
                    rides[c.member.name] += 1
                rides = {name: count for name, count in rides.items() if count < 3}
        dissemination._check()

    assert len(dissemination) == len(rides)
