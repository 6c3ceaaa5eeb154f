"""`ringpop_py.state.memory.mergeable`: a partition's state in memory mode, and its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    OperationIdReused,
    OperationTooOld,
    PartitionFull,
)
from ringpop_py.base.values.operations import Change, Outcome, Value, Write
from ringpop_py.state.memory.mergeable import MergeableState, content_of
from ringpop_py.state.memory.versioned import HybridClock
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.joins import RULES
from ringpop_py.state.table.sessions import WINDOW
from tests.state.table.reading import rows_in, value_in

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_MS = 1_000_000


def a_state(node: str = "a", *, keys_max: int | None = None) -> MergeableState:
    return MergeableState(HybridClock(node), msgpack.packb, Aggregations(), keys_max=keys_max)


def write(
    state: MergeableState,
    key: str,
    aggregation: str,
    argument: Value = None,
    *,
    sequence: int = 0,
    offset: int | None = None,
    digest: bytes = b"",
) -> object:
    change = Change(key, aggregation, argument)
    offsets: dict[str, Value] | None = {"topic": offset} if offset is not None else None
    one = Write("source", sequence, (change,), offsets, digest)
    (outcome,) = state.write([one], NOW_MS)
    return outcome


def copy(
    source: MergeableState,
    target: MergeableState,
    *,
    part_bytes: int = 1 << 20,
    rule: str = "last_writer_wins",
    name: str = "transfer",
) -> int:
    """Bring all that *source* knows to *target*, over the wire; in how many parts."""
    parts = list(source.parts(NOW_MS, part_bytes=part_bytes))
    for number, part in enumerate(parts):
        content = content_of(*msgpack.unpackb(msgpack.packb(part)))
        target.merge(content, rule, NOW_MS, transfer=f"{name}/{number}")
    return len(parts)


def test_a_copy_has_the_values_the_offsets_and_the_ids_of_writes() -> None:
    source, target = a_state("a"), a_state("b")
    write(source, "k", "add", 5, sequence=7, offset=42)

    copy(source, target)

    assert value_in(target.keyed, "k") == 5
    assert target.keyed.offsets == {"topic": 42}
    assert write(target, "k", "add", 5, sequence=7) == Outcome((5,), repeated=True)


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_copy_knows_what_ids_stand_for_as_well_as_its_own(part_bytes: int) -> None:
    source, target = a_state("a"), a_state("b")
    for sequence in (1, 3):
        write(source, "k", "put", sequence, sequence=sequence, digest=b"there %d" % sequence + b".")
    write(target, "k", "put", 2, sequence=2, digest=b"here 2..")

    copy(source, target, part_bytes=part_bytes)

    for sequence, digest in ((1, b"there 1."), (2, b"here 2.."), (3, b"there 3.")):
        same = write(target, "k", "put", 0, sequence=sequence, digest=digest)
        other = write(target, "k", "put", 0, sequence=sequence, digest=b"12345678")
        assert isinstance(same, Outcome)
        assert same.repeated
        assert isinstance(other, OperationIdReused)


def test_a_copy_has_the_sources_in_the_order_in_which_they_wrote() -> None:
    source, target = a_state("a"), a_state("b")
    for name, digest in (("first", b"12345678"), ("second", b""), ("third", b"12345678")):
        source.write([Write(name, 0, (), None, digest)], NOW_MS)

    copy(source, target)

    assert target.keyed.sessions == source.keyed.sessions


def test_a_part_with_digests_is_about_as_large_as_was_asked_for() -> None:
    source = a_state()
    for number in range(50):
        one = Write(f"source {number:02}", 0, (), None, b"12345678")
        source.write([one], NOW_MS)

    parts = [part.digests for part in source.parts(NOW_MS, part_bytes=250) if part.digests]

    assert [len(rows) for rows in parts] == [10] * 5


def test_a_write_after_a_copy_came_is_later_than_all_in_it() -> None:
    source, target = a_state("z"), a_state("a")
    for sequence in range(10):
        write(source, "k", "count", sequence=sequence)
    copy(source, target)
    write(target, "k", "count", sequence=10)

    copy(target, source)

    assert value_in(source.keyed, "k") == 11


def test_large_states_are_copied_in_parts_of_about_the_size_asked_for() -> None:
    source, target = a_state("a"), a_state("b")
    for number in range(50):
        write(source, f"k{number}", "put", b"x" * 1_000, sequence=number)

    parts_count = copy(source, target, part_bytes=10_000)

    assert 5 <= parts_count <= 8
    assert len(target.keyed) == 50


def test_of_two_offsets_the_greater_is_kept() -> None:
    source, target = a_state("a"), a_state("b")
    write(source, "k", "put", 1, sequence=1, offset=300)
    write(target, "k", "put", 1, sequence=2, offset=70_000)

    copy(source, target)
    copy(target, source)

    assert source.keyed.offsets == target.keyed.offsets == {"topic": 70_000}


@pytest.mark.parametrize("ahead", [0, 1, 5, WINDOW - 1, WINDOW, WINDOW + 1])
def test_writes_that_either_copy_has_seen_are_known_after_they_met(ahead: int) -> None:
    source, target = a_state("a"), a_state("b")
    seen_there, seen_here = [10, 12, 20], [20 + ahead, 15 + ahead]
    for sequence in seen_there:
        write(source, "k", "count", sequence=sequence)
    for sequence in seen_here:
        write(target, "k", "count", sequence=sequence)

    copy(source, target)

    for sequence in seen_here:
        assert write(target, "k", "count", sequence=sequence).repeated  # type: ignore[attr-defined]
    for sequence in seen_there:
        outcome = write(target, "k", "count", sequence=sequence)
        assert isinstance(outcome, OperationTooOld) or outcome.repeated  # type: ignore[attr-defined]
    new = write(target, "k", "count", sequence=14 + ahead)
    assert new == Outcome((value_in(target.keyed, "k"),), repeated=14 + ahead in seen_there)  # type: ignore[arg-type]


def test_merging_goes_over_the_maximum_rather_than_lose_a_key() -> None:
    source, target = a_state("a"), a_state("b", keys_max=1)
    write(source, "x", "put", 1)
    write(target, "y", "put", 1)

    copy(source, target)

    assert len(target.keyed) == 2
    assert isinstance(write(target, "z", "put", 1, sequence=1), PartitionFull)


def test_only_a_state_that_nobody_has_written_to_is_empty() -> None:
    fresh, deleted = a_state(), a_state()
    write(deleted, "k", "put", 1, sequence=1)
    write(deleted, "k", "delete", sequence=2)

    assert fresh.empty
    assert not deleted.empty


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("as_one_write", [True, False])
def test_a_delete_counts_for_other_copies_though_the_key_is_put_again_in_the_same_group(
    rule: str, *, as_one_write: bool
) -> None:
    source, target = a_state("a"), a_state("b")
    write(source, "k", "put", [1, 2, 3], sequence=0)
    changes = (Change("k", "delete"), Change("k", "put", [2]))
    groups = [changes] if as_one_write else [(change,) for change in changes]
    target.write([Write("t", n, group) for n, group in enumerate(groups)], NOW_MS + 1)

    copy(source, target, rule=rule, name="there")
    copy(target, source, rule=rule, name="back")

    assert value_in(target.keyed, "k") == value_in(source.keyed, "k") == [2]


def test_an_aggregation_that_finds_nothing_and_leaves_nothing_is_no_delete() -> None:
    aggregations = Aggregations()
    aggregations.register("shrink", lambda there, _: there)
    target = MergeableState(HybridClock("b"), msgpack.packb, aggregations)
    source = a_state("a")
    write(source, "k", "put", [1], sequence=0)

    write(target, "k", "shrink", sequence=1)
    copy(source, target)

    assert value_in(target.keyed, "k") == [1]


def test_a_refused_write_deletes_nothing_for_other_copies_either() -> None:
    source, target = a_state("a"), a_state("b")
    write(source, "k", "put", 1, sequence=0)
    changes = (Change("k", "delete"), Change("k", "add", "not a number"))

    (refused,) = target.write([Write("t", 0, changes)], NOW_MS + 1)
    copy(source, target)

    assert isinstance(refused, BadOperation)
    assert value_in(target.keyed, "k") == 1


Step = tuple[int, list[tuple[str, str, int]]]
"""At which copy, and which changes as one write: key, ``put`` or ``delete``, value."""


def after_two_sides(steps: Sequence[Step], rule: str) -> dict[str, int]:
    """Return what promises say of *steps* at two copies that then meet, step by step, key by key.

    Of what was put after the last delete of its side, that of the side whose delete is later; of
    two with the same (none), the rule's choice. The last writer wins whatever was deleted before.
    """
    known: list[dict[str, tuple[int, int, int | None]]] = [{}, {}]  # life, written at, value
    at = 0
    for side, changes in steps:
        for key, name, value in changes:
            at += 1
            life, _, _ = known[side].get(key, (0, 0, None))
            known[side][key] = (at, at, None) if name == "delete" else (life, at, value)
    found: dict[str, int] = {}
    for key in {**known[0], **known[1]}:
        sides = [side[key] for side in known if key in side]
        if rule == "last_writer_wins":
            left = [max(sides, key=lambda row: row[1])]
        else:
            last = max(life for life, _, _ in sides)
            left = [row for row in sides if row[0] == last]
        values = [value for _, _, value in left if value is not None]
        if values:
            found[key] = min(values) if rule == "min" else max(values)
    return found


@pytest.mark.parametrize("rule", ["last_writer_wins", "max", "min"])
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.lists(
                st.tuples(
                    st.sampled_from("xyz"),
                    st.sampled_from(["put", "delete"]),
                    st.integers(0, 9),
                ),
                min_size=1,
                max_size=3,
            ),
        ),
        max_size=12,
    )
)
def test_no_delete_is_undone_by_what_was_put_before_it(rule: str, steps: list[Step]) -> None:
    sides = [a_state("a"), a_state("b")]
    for number, (side, changes) in enumerate(steps):
        rows = tuple(Change(key, name, value) for key, name, value in changes)
        sides[side].write([Write(f"side {side}", number, rows)], NOW_MS + number)

    copy(sides[0], sides[1], rule=rule, name="there")
    copy(sides[1], sides[0], rule=rule, name="back")

    expected = after_two_sides(steps, rule)
    assert dict(rows_in(sides[0].keyed)) == dict(rows_in(sides[1].keyed)) == expected


@pytest.mark.parametrize(
    "part",
    [
        ([], [["source", 1, b"x" * 513]], {}),
        ([], [], {}, [["source", b"x" * 15]]),
        ([], [], {}, [["source", b"x" * 16 * (WINDOW + 2)]]),
    ],
)
def test_a_malformed_part_of_a_copy_is_refused(part: tuple[Any, ...]) -> None:
    with pytest.raises(BodyError):
        content_of(*part)
