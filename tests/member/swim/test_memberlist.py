"""`membership.memberlist`: rows, rotation and checksum hold together whatever happens."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringpop_py.base.address import Address
from ringpop_py.base.dialect import NATIVE, RINGPOP
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.checksum import checksum_for
from ringpop_py.member.swim.member import AWAY, DRAINING, Labels, Member, Status
from ringpop_py.member.swim.memberlist import MemberList


def member(index: int, incarnation: int = 1, status: Status = Status.ALIVE) -> Member:
    address = Address(f"10.0.0.{index}", 3000)
    return Member(str(address), *address, incarnation, status)


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


@pytest.mark.parametrize("seed", range(5))
def test_a_member_that_arrives_within_a_round_is_probed_within_two(seed: int) -> None:
    members = list_of(10, seed)
    round_of(members, 5)

    members.put(member(99))

    assert member(99).name in round_of(members, 6 + 11)


@pytest.mark.parametrize("seed", range(5))
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


def test_helpers_are_different_pingable_and_not_the_target() -> None:
    members = list_of(4)
    members.put(member(4, 2, Status.FAULTY))

    helpers = members.random_pingable(3, but=member(1).name)

    assert sorted(helper.name for helper in helpers) == [member(2).name, member(3).name]


# Who is in the ring.


def in_ring(members: MemberList) -> list[str]:
    return sorted(m.name for m in members if members.in_ring(m))


def damp(members: MemberList, *indexes: int) -> None:
    for index in indexes:
        members.put(replace(member(index), damping=1))


def test_the_reachable_are_in_the_ring_ourselves_among_them() -> None:
    members = list_of(4)
    for index, status in enumerate((Status.SUSPECT, Status.FAULTY, Status.LEAVE), start=1):
        members.put(member(index, 2, status))

    assert in_ring(members) == [member(i).name for i in (0, 1, 4)]


def test_a_draining_member_is_probed_but_is_not_in_the_ring() -> None:
    members = list_of(2)

    members.put(replace(member(1), labels=(DRAINING,)))

    assert in_ring(members) == [member(0).name, member(2).name]
    assert members.pingable_count == 2


def test_a_ring_of_ringpop_knows_neither_draining_nor_damping() -> None:
    members = MemberList(member(0), dialect=RINGPOP, rng=random.Random(1))
    for index in range(1, 5):
        members.put(replace(member(index), labels=(DRAINING,), damping=1))

    assert len(in_ring(members)) == 5


@pytest.mark.parametrize(
    ("others", "left_out"), [(0, 0), (1, 0), (2, 1), (18, 1), (19, 2), (28, 2), (29, 3)]
)
def test_damping_leaves_out_a_tenth_at_most_and_at_least_one(others: int, left_out: int) -> None:
    members = list_of(others)

    damp(members, *range(others + 1))

    assert members.damped_max == left_out
    assert len(members) - len(in_ring(members)) == left_out


def test_of_too_many_damped_members_the_first_by_name_stay_out() -> None:
    members = list_of(5)

    damp(members, 4, 2)
    damp(members, 3)

    assert sorted({m.name for m in members} - set(in_ring(members))) == [member(2).name]


def test_damping_does_not_empty_a_ring_of_which_the_others_are_gone_or_drain() -> None:
    members = list_of(2)
    damp(members, 0)
    one_out = in_ring(members)

    members.put(replace(member(1, 2), labels=(DRAINING,)))
    members.put(member(2, 2, Status.FAULTY))

    assert one_out == [member(1).name, member(2).name]
    assert in_ring(members) == [member(0).name]


def test_damping_leaves_a_ring_alone_that_has_few_members_with_an_application() -> None:
    members = list_of(2)
    damp(members, 0)
    holding = [m.name for m in members if members.holds(m)]

    for index in (1, 2):
        members.put(replace(member(index, 2), labels=(AWAY,)))

    assert in_ring(members) == [member(0).name]
    assert [m.name for m in members if members.holds(m)] == holding
    assert holding == [member(1).name, member(2).name]


class Lists(RuleBasedStateMachine):
    """Any sequence of changes, against a plain dict, with the invariants after each."""

    names = st.integers(1, 6)

    def __init__(self) -> None:
        super().__init__()
        self.members = MemberList(member(0), dialect=NATIVE, rng=random.Random(1))
        self.model = {member(0).name: member(0)}

    @rule(
        index=names,
        incarnation=st.integers(0, 9),
        status=st.sampled_from(Status),
        labels=st.sampled_from([(), (DRAINING,), (AWAY,)]),
        damping=st.integers(0, 3),
    )
    def put(
        self, index: int, incarnation: int, status: Status, labels: Labels, damping: int
    ) -> None:
        """Add or replace another's row."""
        row = replace(member(index, incarnation, status), labels=labels, damping=damping)
        self.members.put(row)
        self.model[row.name] = row

    @rule(status=st.sampled_from(Status), damping=st.integers(0, 3))
    def put_local(self, status: Status, damping: int) -> None:
        """Replace our own row."""
        row = replace(self.members.local, status=status, damping=damping)
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
        fresh = checksum_for(NATIVE)
        for row in self.model.values():
            fresh.replace(row.name, row)
        assert self.members.checksum == fresh.value

    @invariant()
    def equal_rows_make_equal_rings(self) -> None:
        """The same rows put in another order make the same ring, and never an empty one."""
        other = MemberList(self.members.local, dialect=NATIVE, rng=random.Random(2))
        for name in sorted(self.model, reverse=True):
            other.put(self.model[name])
        assert in_ring(other) == in_ring(self.members)
        assert bool(in_ring(other)) == bool(other.serving_count)


TestLists = Lists.TestCase
TestLists.settings = settings(max_examples=40)
