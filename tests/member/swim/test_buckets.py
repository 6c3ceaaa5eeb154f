"""`membership.buckets`: equal parts of two lists are told by their sums, others by theirs."""

from __future__ import annotations

import random

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.buckets import Buckets, bits_for
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.memberlist import MemberList

ROWS = [Member(f"m{i}", *Address("10.0.0.1", 1 + i), 1) for i in range(3000)]


def members_of(rows: list[Member]) -> MemberList:
    members = MemberList(rows[0], dialect=NATIVE, rng=random.Random(1))
    for row in rows[1:]:
        members.put(row)
    return members


def buckets_of(rows: list[Member], bits: int) -> Buckets:
    return Buckets(members_of(rows), bits, NATIVE)


@pytest.mark.parametrize(
    ("members", "bits"),
    [(0, 0), (1, 0), (64, 0), (65, 2), (128, 2), (129, 3), (10_000, 9), (100_000, 12)],
)
def test_a_bucket_holds_a_few_dozen_members(members: int, bits: int) -> None:
    assert bits_for(members) == bits


@pytest.mark.parametrize("bits", [0, 1, 7, 12])
def test_every_member_is_in_one_bucket_whatever_the_order(bits: int) -> None:
    one, other = buckets_of(ROWS, bits), buckets_of(ROWS[::-1], bits)

    names = one.names_in(range(1 << bits))

    assert sorted(names) == sorted(row.name for row in ROWS)
    assert one.sums == other.sums
    assert one.differing(bits, 0, other.sums) == []


def test_the_sums_add_up_to_the_checksum() -> None:
    members = members_of(ROWS)

    buckets = Buckets(members, 7, NATIVE)

    assert sum(buckets.sums) % 2**64 == members.checksum


def test_a_tombstone_is_in_its_bucket_and_counts_for_nothing() -> None:
    dead = replace(ROWS[7], status=Status.TOMBSTONE)

    buckets = buckets_of([ROWS[0], dead], 0)

    assert buckets.sums == buckets_of([ROWS[0]], 0).sums
    assert buckets.names[0] == [ROWS[0].name, dead.name]


def test_only_the_bucket_of_a_changed_row_differs() -> None:
    changed = [*ROWS[:9], replace(ROWS[9], incarnation=2), *ROWS[10:]]
    ours, theirs = buckets_of(ROWS, 7), buckets_of(changed, 7)

    (bucket,) = ours.differing(7, 0, theirs.sums)

    assert ROWS[9].name in ours.names[bucket]
    assert ours.differing(7, bucket, theirs.sums[bucket:]) == [bucket]
    assert ours.differing(7, bucket + 1, theirs.sums[bucket + 1 :]) == []


def test_a_coarse_bucket_that_differs_is_all_finer_ones_in_it() -> None:
    changed = [*ROWS[:9], replace(ROWS[9], incarnation=2), *ROWS[10:]]
    ours, theirs = buckets_of(ROWS, 7), buckets_of(changed, 5)

    differing = ours.differing(5, 0, theirs.sums)

    assert len(differing) == 4
    assert differing[0] % 4 == 0
    assert ROWS[9].name in ours.names_in(differing)
