"""`membership.checksum`: Ringpop's value where it is asked for, and equal lists, equal value."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.address import Address
from ringpop_py.base.dialect import NATIVE, RINGPOP, Dialect
from ringpop_py.base.farmhash import fingerprint32
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.checksum import checksum_for
from ringpop_py.member.swim.member import Member, Status

BOTH = pytest.mark.parametrize("dialect", [NATIVE, RINGPOP], ids=lambda d: d.name)
THREE = [
    Member(f"127.0.0.1:{port}", *Address("127.0.0.1", port), 1414142122274)
    for port in (3000, 3001, 3002)
]
rows = st.builds(
    lambda port, incarnation, status: Member(
        f"127.0.0.1:{port}", *Address("127.0.0.1", port), incarnation, status
    ),
    st.integers(1, 5),
    st.integers(0, 9),
    st.sampled_from(Status),
)


def checksum_of(members: list[Member], dialect: Dialect) -> int:
    checksum = checksum_for(dialect)
    for member in members:
        checksum.replace(member.name, member)
    return checksum.value


def test_ringpop_members_have_the_checksum_of_the_go_implementation() -> None:
    assert checksum_of(THREE, RINGPOP) == 2959186922


def test_labels_enter_ringpops_checksum_as_their_signed_sum() -> None:
    labelled = replace(THREE[0], labels=(("foo", "baz"), ("hello", "world")))

    expected = fingerprint32(b"127.0.0.1:3000alive1414142122274#labels-1625122257;")
    assert checksum_of([labelled], RINGPOP) == expected


def test_ringpops_members_are_sorted_as_text() -> None:
    rows = [Member(a, *Address.parse(a), 1) for a in ("127.0.0.1:9", "127.0.0.1:10")]

    assert checksum_of(rows, RINGPOP) == fingerprint32(b"127.0.0.1:10alive1;127.0.0.1:9alive1;")


@BOTH
@given(members=st.lists(rows, unique_by=lambda m: m.name), seed=st.integers(0, 9))
def test_the_order_of_arrival_does_not_matter(
    dialect: Dialect, members: list[Member], seed: int
) -> None:
    shuffled = random.Random(seed).sample(members, len(members))

    assert checksum_of(members, dialect) == checksum_of(shuffled, dialect)


@BOTH
@given(history=st.lists(rows))
def test_only_the_last_rows_matter_and_tombstones_do_not(
    dialect: Dialect, history: list[Member]
) -> None:
    last = {row.name: row for row in history}
    counted = [row for row in last.values() if row.status is not Status.TOMBSTONE]

    assert checksum_of(history, dialect) == checksum_of(counted, dialect)


@BOTH
def test_a_member_that_was_removed_leaves_no_trace(dialect: Dialect) -> None:
    checksum = checksum_for(dialect)
    for member in THREE:
        checksum.replace(member.name, member)

    checksum.replace(THREE[2].name, None)
    checksum.replace("unknown", None)

    assert checksum.value == checksum_of(THREE[:2], dialect)


@BOTH
@pytest.mark.parametrize(
    "other",
    [
        replace(THREE[0], incarnation=1414142122275),
        replace(THREE[0], status=Status.SUSPECT),
        replace(THREE[0], labels=(("hello", "world"),)),
    ],
    ids=["incarnation", "status", "labels"],
)
def test_each_field_of_a_row_matters(dialect: Dialect, other: Member) -> None:
    assert checksum_of([THREE[0]], dialect) != checksum_of([other], dialect)


@pytest.mark.parametrize("moved", [{"host": "127.0.0.2"}, {"port": 3009}], ids=["host", "port"])
def test_a_member_that_moved_counts_with_its_new_address(moved: dict[str, Any]) -> None:
    """The native checksum keeps the bytes of an address until it changes."""
    after = replace(THREE[0], **moved)

    assert checksum_of([THREE[0], after], NATIVE) == checksum_of([after], NATIVE)
    assert checksum_of([after], NATIVE) != checksum_of([THREE[0]], NATIVE)


def test_damping_enters_the_native_checksum_only_where_it_is_not_0() -> None:
    """The bytes of a member that was never damped are those of before there was damping."""
    plain, damped = THREE[0], replace(THREE[0], damping=1)
    data = f"{plain.name}\n{plain.address.host}\n{plain.address.port}\n".encode()
    data += plain.incarnation.to_bytes(8, "big") + b"\0"

    assert checksum_of([plain], NATIVE) == NATIVE.hash_bytes(data)
    assert checksum_of([damped], NATIVE) == NATIVE.hash_bytes(data + (1).to_bytes(8, "big"))


def test_labels_and_damping_do_not_pass_for_each_other() -> None:
    labelled = replace(THREE[0], labels=(("hello", "world"),))
    rows = [labelled, replace(labelled, damping=1), replace(THREE[0], damping=1)]

    assert len({checksum_of([row], NATIVE) for row in rows}) == 3


def test_a_name_and_an_address_do_not_run_into_each_other() -> None:
    one = Member("a", *Address("b1", 1), 1)
    other = Member("ab", *Address("1", 1), 1)

    assert checksum_of([one], NATIVE) != checksum_of([other], NATIVE)
