"""Owners of keys: one at a time, many at once, and after members joined."""

from __future__ import annotations

import random
from bisect import bisect_left
from copy import copy
from functools import partial
from timeit import Timer
from typing import TYPE_CHECKING, Final

import numpy as np
from sortedcontainers import SortedDict
from uhashring import HashRing as UhashRing

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import GossipConfig
from ringpop_py.base.dialect import NATIVE
from ringpop_py.member.ring.hashring import POINTS_COUNT, HashRing
from ringpop_py.member.ring.placement import Placement
from ringpop_py.member.swim.member import Member
from ringpop_py.member.swim.messages import Asked, MemberChange, Ping
from ringpop_py.member.swim.node import Node
from tests.bench.report import Row, seconds_each, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMBERS_COUNTS: Final = (3, 100, 1000)
KEYS: Final = [f"user-{number}" for number in range(5000)]
PASSES_COUNT: Final = 5
"""Over all keys in a turn, so that each turn measures warm caches, not what the peer evicted."""
HASHES_COUNT: Final = 1_000_000
SCALAR_TARGET: Final = 10.0
BATCH_TARGET: Final = 8.0
NEWCOMER: Final = "10.9.9.9:3000"
TOGETHER_COUNT: Final = 1_000
TOGETHER_ROUNDS: Final = 5
TOGETHER_TARGET: Final = 5.0
SOURCE: Final = Address("10.9.9.8", 3000)


def run() -> Iterator[Row]:
    """The rows of `lookup`."""
    for members_count in MEMBERS_COUNTS:
        members = [f"10.0.{number >> 8}.{number & 255}:3000" for number in range(members_count)]
        ring = HashRing(members)
        yield from _one_key(ring)
        yield _many_keys(ring)
        yield _join(ring)
    yield join_together(TOGETHER_COUNT)


def _one_key(ring: HashRing) -> Iterator[Row]:
    for peer, build in (
        ("uhashring", _uhashring),
        ("bisect on a list", _bisect),
        ("SortedDict", _sorted_dict),
    ):
        # The promise is about a ring of ordinary size.
        target = SCALAR_TARGET if peer == "uhashring" and len(ring) == 100 else None
        name = f"lookup.one.{len(ring)}"
        ours, theirs = seconds_each(_each_key(ring.lookup), _each_key(build(ring)))
        yield smaller_is_better(name, _ns(ours), "ns", peer, _ns(theirs), target)


def _many_keys(ring: HashRing) -> Row:
    hashes = np.random.default_rng(seed=1).integers(0, 2**64, HASHES_COUNT, np.uint64)
    index = ring.radix_index()

    def search() -> object:
        return index.owners_at.take(index.hashes.searchsorted(hashes), mode="wrap")

    assert (ring.owner_indexes_of(hashes) == search()).all()
    ours, theirs = seconds_each(lambda: ring.owner_indexes_of(hashes), search, rounds_count=5)
    name = f"lookup.million.{len(ring)}"
    return smaller_is_better(name, ours * 1e3, "ms", "searchsorted", theirs * 1e3, BATCH_TARGET)


def _join(ring: HashRing) -> Row:
    name = f"lookup.join.{len(ring)}"
    peer = UhashRing(list(ring.owners))

    def join() -> None:
        peer.add_node(NEWCOMER)

    def join_and_leave() -> None:
        join()
        peer.remove_node(NEWCOMER)

    # A uhashring changes in place, so it has to be put back; joining and leaving cost it alike.
    ours, theirs = seconds_each(lambda: ring.with_changes([NEWCOMER]), join_and_leave)
    return smaller_is_better(name, ours * 1e6, "us", "uhashring", theirs / 2 * 1e6)


def join_together(count: int) -> Row:
    """A node is told of *count* members by one message: its ring, made once or member by member."""
    node = Node(
        Member(NEWCOMER, *Address.parse(NEWCOMER), 1),
        cluster="bench",
        ring_points=POINTS_COUNT,
        dialect=NATIVE,
        config=GossipConfig(),
        rng=random.Random(1),
        now=0,
    )
    before = Placement(node)
    names = [f"10.0.{number >> 8}.{number & 255}:3000" for number in range(count)]
    changes = tuple(
        MemberChange(
            member=Member(name, *Address.parse(name), 1), source="source", source_incarnation=1
        )
        for name in names
    )
    node.receive(Asked(0, Ping("bench", None, "source", *SOURCE, 1, None, changes)), 0)

    def once() -> None:
        placement = copy(before)
        placement.follow(names)
        assert len(placement.ring) == count + 1

    def one_by_one() -> None:
        placement = copy(before)
        for name in names:
            placement.follow([name])

    ours, theirs = seconds_each(once, one_by_one, rounds_count=TOGETHER_ROUNDS)
    title = f"lookup.join_together.{count}"
    target = TOGETHER_TARGET
    return smaller_is_better(title, ours * 1e3, "ms", "a ring a member", theirs * 1e3, target)


def _uhashring(ring: HashRing) -> Callable[[str], object]:
    lookup: Callable[[str], object] = UhashRing(list(ring.owners)).get_node
    return lookup


def _bisect(ring: HashRing) -> Callable[[str], object]:
    hash_key = NATIVE.hash_key
    points = list(ring.points())
    hashes = [position for position, _ in points]
    owners = [owner for _, owner in points]

    def lookup(key: str) -> str:
        return owners[bisect_left(hashes, hash_key(key)) % len(owners)]

    return lookup


def _sorted_dict(ring: HashRing) -> Callable[[str], object]:
    points = SortedDict(ring.points())
    hash_key = NATIVE.hash_key

    def lookup(key: str) -> object:
        return points.peekitem(points.bisect_left(hash_key(key)) % len(points))[1]

    return lookup


def _each_key(lookup: Callable[[str], object]) -> Callable[[], object]:
    # Code of its own for each lookup: the interpreter fits a place of call to what it calls.
    loop = Timer("for key in keys: lookup(key)", globals={"keys": KEYS, "lookup": lookup})
    return partial(loop.timeit, PASSES_COUNT)


def _ns(seconds: float) -> float:
    return seconds / PASSES_COUNT / len(KEYS) * 1e9
