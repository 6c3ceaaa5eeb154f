"""`swim.namesakes`: whose name it is; strangers; and many that start at the same time."""

from __future__ import annotations

import itertools

import pytest

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import JoinRejected, StrangerRefused
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Answered, Asked, JoinAck, Ping, Refusal
from ringpop_py.member.swim.namesakes import Hearsay, Tenure, hearsay_of
from ringpop_sim.world.network import address_of
from tests.member.swim.test_node import answer_in, ask, calls_in, lone

HERE, BEYOND = address_of(1), address_of(3)


def named(index: int, incarnation: int, status: Status = Status.ALIVE) -> Member:
    return Member("a", *address_of(index), incarnation, status)


def ping_of(member: Member) -> Ping:
    return Ping("test", 100, member.name, *member.address, member.incarnation, None)


# Names.


@pytest.mark.parametrize(
    ("theirs", "joining", "means"),
    [
        (named(1, 5), False, Hearsay.NOTHING),
        (named(1, 6), False, Hearsay.ACCUSATION),
        (named(1, 5, Status.SUSPECT), False, Hearsay.ACCUSATION),
        (named(2, 5), False, Hearsay.NAMESAKE),  # of equal incarnations the greater address
        (named(0, 5), False, Hearsay.OUTDATED),
        (named(2, 6), False, Hearsay.NAMESAKE),
        (named(2, 6, Status.SUSPECT), False, Hearsay.NAMESAKE),
        (named(2, 6, Status.FAULTY), False, Hearsay.ACCUSATION),
        (named(2, 6, Status.LEAVE), False, Hearsay.ACCUSATION),
        (named(2, 4), False, Hearsay.OUTDATED),
        (named(2, 4, Status.FAULTY), False, Hearsay.NOTHING),
        (named(1, 6), True, Hearsay.ACCUSATION),
        (named(2, 6), True, Hearsay.NAMESAKE),
        (named(2, 4), True, Hearsay.NAMESAKE),
        (named(2, 4, Status.LEAVE), True, Hearsay.NAMESAKE),  # it may still run
        (named(2, 6, Status.FAULTY), True, Hearsay.ACCUSATION),
        (named(2, 4, Status.TOMBSTONE), True, Hearsay.NOTHING),
    ],
)
def test_what_a_row_of_our_name_means(theirs: Member, *, joining: bool, means: Hearsay) -> None:
    assert hearsay_of(theirs, named(1, 5), joining=joining) is means


def test_a_joined_node_keeps_a_name_then_the_one_that_runs_longer_then_the_lesser_address() -> None:
    tenures = [
        Tenure(joining=False, since_ms=5, address=address_of(1)),
        Tenure(joining=False, since_ms=6, address=address_of(0)),
        Tenure(joining=False, since_ms=6, address=address_of(1)),
        Tenure(joining=True, since_ms=4, address=address_of(0)),
    ]

    assert all(a < b for a, b in itertools.pairwise(tenures))


# Strangers.


def test_a_stranger_learns_nothing_of_us() -> None:
    node = lone(Member("secret-member", *HERE, 1))
    node.receive(Asked(1, ping_of(Member("a", *HERE, 1))), 0)
    stranger = replace(ping_of(Member("them", *BEYOND, 1)), cluster="theirs")

    effects = ask(node, stranger)

    refusal = answer_in(effects)
    assert refusal == Refusal("wrong-cluster", "this is another cluster")
    assert StrangerRefused(BEYOND, "theirs", "test") in effects


def test_a_list_of_another_cluster_is_a_rejected_join() -> None:
    node = lone(ready=False)
    (join,) = calls_in(node.start([HERE], 0))

    effects = node.receive(Answered(join.call_id, JoinAck("theirs", "a", 1, 1, ())), 1)

    (rejected,) = [e for e in effects if isinstance(e, JoinRejected)]
    assert rejected.host == HERE
    assert not rejected.fatal
    assert "theirs" in rejected.reason
