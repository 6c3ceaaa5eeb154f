"""`member.ring.hashring`: Ringpop's vectors, a naive ring to compare with, and changes."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.base.errors import NoOwner
from ringpop_py.member.ring.hashring import HashRing, moved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.member.ring.points import RadixIndex

A, B, C = "127.0.0.1:3000", "127.0.0.1:3001", "127.0.0.1:3002"
KEYS = [f"user-{i}" for i in range(2000)]


def crowded_hash(data: bytes) -> int:
    """Few positions, at both ends of the circle, so that points tie and keys hit points."""
    position = sum(data) % 23
    return position if position < 12 else 2**64 - 1 - (22 - position)


CROWDED = replace(NATIVE, hash_bytes=crowded_hash)
dialects = st.sampled_from([NATIVE, RINGPOP, CROWDED])
names = st.text(max_size=5)
members = st.dictionaries(names, names, max_size=8)


class NaiveRing:
    """The definition: a sorted list of (hash, owner, index), searched by bisection."""

    def __init__(self, members: Mapping[str, str], dialect: Dialect, points_count: int) -> None:
        self.hash_key = dialect.hash_key
        self.points = sorted(
            (dialect.hash_key(dialect.point_name(identity, i, is_address=identity == owner)), owner)
            for owner, identity in members.items()
            for i in range(points_count)
        )

    def lookup_n(self, key: str, n: int) -> tuple[str, ...]:
        """Walk from the key's hash, once around."""
        start = bisect_left(self.points, (self.hash_key(key), ""))
        clockwise = (*self.points[start:], *self.points[:start])
        return tuple(dict.fromkeys(owner for _, owner in clockwise))[:n]


def warmed(ring: HashRing) -> HashRing:
    ring._warm()
    return ring


# -- compatible with Ringpop ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("abc", C),
        ("user-1", B),
        ("Hello World", C),
        ("127.0.0.1:30000", A),
        ("127.0.0.1:300199", B),
    ],
)
def test_a_key_has_the_owner_that_the_go_implementation_gives_it(key: str, owner: str) -> None:
    ring = HashRing([A, B, C], dialect=RINGPOP)

    assert ring.lookup(key) == owner
    assert warmed(ring).lookup(key) == owner
    assert ring.lookup_many([key]) == [owner]


def test_the_next_owners_come_in_the_order_of_the_go_implementation() -> None:
    ring = HashRing([A, B, C], dialect=RINGPOP)

    assert ring.lookup_n("user-1", 3) == (B, A, C)


def test_the_checksums_are_those_of_the_go_implementation() -> None:
    ring = HashRing([C, A, B], dialect=RINGPOP)

    assert ring.checksum == 742371003
    assert ring.replica_checksum == 742916552


def test_an_identity_names_points_and_checksum_but_not_the_owner() -> None:
    ring = HashRing({A: "one", B: B}, dialect=RINGPOP)

    positions = {RINGPOP.hash_key(f"one#{i}") for i in range(100)}
    assert {position for position, owner in ring.points() if owner == A} == positions
    assert ring.checksum == RINGPOP.ring_checksum(["one", B])


# -- owners --------------------------------------------------------------------------------


def test_an_empty_ring_owns_nothing() -> None:
    ring = HashRing()

    assert len(ring) == 0
    assert ring.weights() == {}
    for ask in (
        lambda: ring.lookup("key"),
        lambda: ring.lookup_n("key", 2),
        lambda: ring.lookup_many(["key"]),
        lambda: ring.weights_of(["key"]),
        ring.radix_index,
    ):
        with pytest.raises(NoOwner):
            ask()


@pytest.mark.parametrize("key", ["", "ключ", "\ud800", "k" * 100_000])
def test_any_text_has_an_owner(key: str) -> None:
    ring = HashRing([A, B, C])

    assert ring.lookup_many(["key", key]) == [ring.lookup("key"), ring.lookup(key)]
    assert warmed(ring).lookup(key) == ring.lookup_n(key, 1)[0]


def test_a_position_equal_to_a_point_belongs_to_it_and_the_circle_closes() -> None:
    ring = HashRing([A, B, C])
    points = list(ring.points())

    for asked in (ring, warmed(HashRing([A, B, C]))):
        assert [asked.lookup_hash(position) for position, _ in points] == [o for _, o in points]
        assert asked.lookup_hash(points[10][0] + 1) == points[11][1]
        assert asked.lookup_hash(points[-1][0] + 1) == points[0][1]
        assert asked.lookup_hash(2**64 - 1) == points[0][1]
        assert asked.lookup_hash(0) == points[0][1]


@given(members, dialects, st.integers(1, 12), st.lists(st.text(), min_size=1), st.integers(0, 9))
def test_all_lookups_agree_with_the_definition(
    members: dict[str, str], dialect: Dialect, points_count: int, keys: list[str], n: int
) -> None:
    members = members or {"": ""}
    naive = NaiveRing(members, dialect, points_count)
    ring = HashRing(members, dialect=dialect, points_count=points_count)
    expected = [naive.lookup_n(key, 1)[0] for key in keys]

    ring._check()
    assert list(ring.points()) == naive.points
    assert [ring.lookup(key) for key in keys] == expected
    assert ring.lookup_many(keys) == expected
    assert [warmed(ring).lookup(key) for key in keys] == expected
    assert [ring.lookup_n(key, n) for key in keys] == [naive.lookup_n(key, n) for key in keys]


@given(members, dialects, st.integers(1, 12), st.text(), st.sets(names))
def test_the_owner_among_some_is_the_first_of_them_in_the_order_of_all(
    members: dict[str, str], dialect: Dialect, points_count: int, key: str, some: set[str]
) -> None:
    ring = HashRing(members, dialect=dialect, points_count=points_count)
    naive = NaiveRing(members, dialect, points_count)

    found = ring.lookup_among(key, some)

    expected = (name for name in naive.lookup_n(key, len(members)) if name in some)
    assert found == next(expected, None)


def test_every_member_owns_about_its_share_of_keys() -> None:
    ring = HashRing([A, B, C])
    counts = ring.weights_of(KEYS)

    assert sum(counts.values()) == len(KEYS)
    for owner, weight in ring.weights().items():
        assert counts[owner] / len(KEYS) == pytest.approx(weight, abs=0.05)


# -- lookups made elsewhere ----------------------------------------------------------------


def owner_by_the_recipe(index: RadixIndex, position: int) -> str:
    """What the docstring of `RadixIndex` says, step by step."""
    first = int(index.first[position >> index.shift])
    following = index.hashes[first : first + index.scan_max].tolist()
    point = first + sum(at < position for at in following)
    return index.owners[int(index.owners_at[point % len(index.hashes)])]


@pytest.mark.parametrize("slots_max", [2, 3, 64, 1 << 20])
@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP, CROWDED], ids=["native", "ringpop", "tied"])
def test_a_radix_index_of_any_size_finds_the_owners(slots_max: int, dialect: Dialect) -> None:
    ring = HashRing([A, B, C], dialect=dialect, points_count=40)
    index = ring.radix_index(slots_max)
    edges = [position for position, _ in ring.points()]
    positions = [0, (1 << dialect.hash_bits) - 1, *edges, *ring.hashes_of(KEYS[:200]).tolist()]

    found = index.owner_indexes_of(np.array(positions, np.uint64))

    assert len(index.first) <= slots_max
    expected = [ring.lookup_hash(position) for position in positions]
    assert [index.owners[i] for i in found] == expected
    assert [owner_by_the_recipe(index, position) for position in positions] == expected


# -- changes -------------------------------------------------------------------------------


@given(members, members, st.lists(names), dialects)
def test_a_changed_ring_equals_a_fresh_one(
    before: dict[str, str], added: dict[str, str], removed: list[str], dialect: Dialect
) -> None:
    after = {o: i for o, i in before.items() if o not in removed} | added

    changed = HashRing(before, dialect=dialect, points_count=7).with_changes(added, removed)

    changed._check()
    assert changed == HashRing(after, dialect=dialect, points_count=7)
    assert dict(changed.members) == after


def test_a_change_that_changes_nothing_keeps_the_ring() -> None:
    ring = HashRing([A, B])

    assert ring.with_changes([A], ["unknown"]) is ring


@given(members, members, dialects)
def test_moved_is_the_measure_of_the_positions_that_changed(
    before: dict[str, str], after: dict[str, str], dialect: Dialect
) -> None:
    old = HashRing(before or {"": ""}, dialect=dialect, points_count=3)
    new = HashRing(after or {"": ""}, dialect=dialect, points_count=3)
    edges = sorted({position for ring in (old, new) for position, _ in ring.points()})
    size = 1 << dialect.hash_bits
    lengths = [(edge - edges[i - 1]) % size or size for i, edge in enumerate(edges)]

    expected = sum(
        length
        for edge, length in zip(edges, lengths, strict=True)
        if old.lookup_hash(edge) != new.lookup_hash(edge)
    )

    assert moved(old, new) == pytest.approx(expected / size)
    assert sum(new.weights().values()) == pytest.approx(1)


# -- a value -------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP, CROWDED], ids=["native", "ringpop", "own"])
def test_a_ring_travels_by_pickle(dialect: Dialect) -> None:
    ring = warmed(HashRing({A: "one", B: B}, dialect=dialect))

    copy = pickle.loads(pickle.dumps(ring))  # noqa: S301 - our own bytes

    copy._check()
    assert copy == ring
    assert hash(copy) == hash(ring)
    assert copy.lookup_many(KEYS) == ring.lookup_many(KEYS)


def test_rings_are_equal_by_content() -> None:
    ring = HashRing([A, B])

    assert ring == HashRing({B: B, A: A})
    assert hash(ring) == hash(HashRing([B, A]))
    assert ring != HashRing([A, B], points_count=99)
    assert ring != HashRing([A, B], dialect=RINGPOP)
    assert ring != HashRing({A: "one", B: B})
    assert ring != [A, B]


def test_a_ring_describes_itself() -> None:
    ring = HashRing([A, B, C], dialect=RINGPOP)

    assert repr(ring) == "<HashRing ringpop: 3 members x 100 points, checksum 742371003>"
    assert A in ring
    assert "unknown" not in ring
    assert ring.owners == (A, B, C)


def test_a_member_that_joins_takes_its_share_and_moves_nothing_else() -> None:
    before = HashRing([A, B, C])
    after = before.with_changes(["127.0.0.1:3003"])

    share = moved(before, after)

    assert share == pytest.approx(1 / 4, abs=0.06)
    assert share == pytest.approx(after.weights()["127.0.0.1:3003"])
    changes = zip(before.lookup_many(KEYS), after.lookup_many(KEYS), strict=True)
    assert {new for old, new in changes if old != new} == {"127.0.0.1:3003"}
