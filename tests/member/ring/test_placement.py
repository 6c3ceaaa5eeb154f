"""`placement`: the ring of a node follows its list, whatever changes in whatever order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.values.declared import replace
from ringpop_py.member.ring.placement import Placement
from ringpop_py.member.swim.effects import StatusChanged
from ringpop_py.member.swim.member import AWAY, DRAINING, Member, Status
from ringpop_py.member.swim.messages import Asked, MemberChange, Ping
from ringpop_py.member.swim.node import Node

CONFIG = GossipConfig(damp_share=0.4)


def member(index: int) -> Member:
    address = Address(f"10.0.0.{index}", 3000)
    return Member(f"m{index}", *address, 1)


def node() -> Node:
    return Node(
        member(0),
        cluster="test",
        ring_points=3,
        dialect=NATIVE,
        config=CONFIG,
        rng=random.Random(1),
        now=0,
    )


rows = st.builds(
    lambda index, incarnation, status, labels, damping: replace(
        member(index), incarnation=incarnation, status=status, labels=labels, damping=damping
    ),
    st.integers(0, 6),
    st.integers(1, 9),
    st.sampled_from(Status),
    st.sampled_from([(), (DRAINING,), (AWAY,), (("__identity", "other"),)]),
    st.integers(0, 3),
)


@given(st.lists(st.lists(rows, max_size=8), max_size=8))
def test_the_ring_that_followed_each_message_is_the_ring_made_of_the_list(
    messages: list[list[Member]],
) -> None:
    one = node()
    placement = Placement(one)

    for views in messages:
        changes = tuple(MemberChange(member=view) for view in views)
        ping = Ping("test", 3, "x", *Address("10.0.0.99", 3000), 1, None, changes)
        effects = one.receive(Asked(0, ping), 0)
        placement.follow([e.member.name for e in effects if isinstance(e, StatusChanged)])

        expected = {m.name: m.identity for m in one.members if one.members.in_ring(m)}
        assert dict(placement.ring.members) == expected == dict(Placement(one).ring.members)
        holders = {m.name: m.identity for m in one.members if one.members.holds(m)}
        assert dict(placement.holders.members) == holders


def follow(placement: Placement, one: Node, *views: Member) -> None:
    """Have *one* learn of *views*, and *placement* follow."""
    changes = tuple(MemberChange(member=view) for view in views)
    ping = Ping("test", 3, "x", *Address("10.0.0.99", 3000), 1, None, changes)
    effects = one.receive(Asked(0, ping), 0)
    placement.follow([e.member.name for e in effects if isinstance(e, StatusChanged)])


def test_a_member_whose_application_is_away_owns_no_keys_and_holds_its_partitions() -> None:
    one = node()
    placement = Placement(one)
    follow(placement, one, member(1), member(2))
    before = placement.holders

    follow(placement, one, replace(member(2), incarnation=2, labels=(AWAY,)))

    assert list(placement.ring.members) == ["m0", "m1"]
    assert placement.holders == before
    follow(placement, one, replace(member(2), incarnation=3))
    assert placement.ring is placement.holders
    assert placement.ring == before


def test_if_all_applications_are_away_all_members_own_keys() -> None:
    one = node()
    placement = Placement(one)
    follow(placement, one, member(1), replace(member(2), labels=(AWAY,)))

    one.set_labels((AWAY,), 0)
    placement.follow(["m0"])
    some = list(placement.ring.members)
    follow(placement, one, replace(member(1), incarnation=2, labels=(AWAY,)))

    assert some == ["m1"]
    assert list(placement.ring.members) == ["m0", "m1", "m2"]
