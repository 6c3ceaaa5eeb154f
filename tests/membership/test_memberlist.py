"""`membership.memberlist`: rows, rotation and checksum hold together whatever happens."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringpop_py.address import Address
from ringpop_py.dialect import NATIVE, RINGPOP
from ringpop_py.membership.checksum import checksum_for
from ringpop_py.membership.member import Member, Status
from ringpop_py.membership.memberlist import MemberList


def member(index: int, incarnation: int = 1, status: Status = Status.ALIVE) -> Member:
    address = Address(f"10.0.0.{index}", 3000)
    return Member(str(address), address, incarnation, status)


def list_of(count: int, seed: int = 0) -> MemberList:
    """Ourselves, and *count* others."""
    members = MemberList(member(0), dialect=NATIVE, rng=random.Random(seed))
    for index in range(1, count + 1):
        members.put(member(index))
    return members


def round_of(members: MemberList, count: int) -> list[str]:
    targets = [members.next_to_probe() for _ in range(count)]
    return [target.name for target in targets if target]


def test_every_member_is_probed_once_a_round_in_an_order_drawn_anew() -> None:
    members = list_of(20)
    names = sorted(member(i).name for i in range(1, 21))

    rounds = [round_of(members, 20) for _ in range(5)]

    assert [sorted(names_of_round) for names_of_round in rounds] == [names] * 5
    assert len({tuple(names_of_round) for names_of_round in rounds}) == 5


@pytest.mark.parametrize("seed", range(20))
def test_who_arrives_within_a_round_makes_nobody_be_probed_twice(seed: int) -> None:
    members = list_of(10, seed)
    probed = round_of(members, 5)

    members.put(member(99))
    probed += round_of(members, 5)

    assert len(set(probed)) == 10


@pytest.mark.parametrize("seed", range(20))
def test_who_arrives_within_a_round_is_probed_within_two(seed: int) -> None:
    members = list_of(10, seed)
    round_of(members, 5)

    members.put(member(99))

    assert member(99).name in round_of(members, 6 + 11)


@pytest.mark.parametrize("seed", range(20))
def test_removing_members_within_a_round_skips_nobody(seed: int) -> None:
    members = list_of(10, seed)
    probed = round_of(members, 5)

    members.remove(probed[0])
    left = sorted({member(i).name for i in range(1, 11)} - set(probed))
    members.remove(left[0])

    assert sorted(round_of(members, 4)) == left[1:]


def test_neither_ourselves_nor_the_unreachable_are_probed() -> None:
    members = list_of(4)
    members.put(member(1, 2, Status.FAULTY))
    members.put(member(2, 2, Status.SUSPECT))
    members.put(member(3, 2, Status.LEAVE))
    members.put(member(4, 2, Status.TOMBSTONE))

    assert round_of(members, 3) == [member(2).name] * 3


def test_alone_there_is_nobody_to_probe() -> None:
    assert list_of(0).next_to_probe() is None


def test_helpers_are_different_pingable_and_not_the_target() -> None:
    members = list_of(4)
    members.put(member(4, 2, Status.FAULTY))

    helpers = members.random_pingable(3, but=member(1).name)

    assert sorted(helper.name for helper in helpers) == [member(2).name, member(3).name]


def test_rows_are_listed_in_order_of_arrival() -> None:
    members = list_of(3)

    members.put(member(1, 5))

    assert [m.name for m in members] == [member(i).name for i in range(4)]


class Lists(RuleBasedStateMachine):
    """Any sequence of changes, against a plain dict, with the invariants after each."""

    names = st.integers(1, 6)

    def __init__(self) -> None:
        super().__init__()
        self.members = MemberList(member(0), dialect=RINGPOP, rng=random.Random(1))
        self.model = {member(0).name: member(0)}

    @rule(index=names, incarnation=st.integers(0, 9), status=st.sampled_from(Status))
    def put(self, index: int, incarnation: int, status: Status) -> None:
        """Add or replace another's row."""
        row = member(index, incarnation, status)
        self.members.put(row)
        self.model[row.name] = row

    @rule(status=st.sampled_from(Status))
    def put_local(self, status: Status) -> None:
        """Replace our own row."""
        row = replace(self.members.local, status=status)
        self.members.put(row)
        self.model[row.name] = row

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Forget another."""
        name = data.draw(st.sampled_from(sorted(set(self.model) - {member(0).name})))
        self.members.remove(name)
        del self.model[name]

    @rule()
    def probe(self) -> None:
        """Draw the next target, if there is one."""
        target = self.members.next_to_probe()
        pingable = [m for m in self.model.values() if self.members.is_pingable(m)]
        assert target in pingable if pingable else target is None

    @invariant()
    def holds(self) -> None:
        """The list is the model, and its invariants and checksum are right."""
        self.members._check()
        assert {m.name: m for m in self.members} == self.model
        fresh = checksum_for(RINGPOP)
        for row in self.model.values():
            fresh.replace(row.name, row)
        assert self.members.checksum == fresh.value


TestLists = Lists.TestCase
