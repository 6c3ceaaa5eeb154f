"""`ringpop_py.state.placement.table`: legal steps, merging in any order, exchange, and the wire."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BodyError
from ringpop_py.state.journal.records import ORIGIN, Slot
from ringpop_py.state.placement.keys import NOBODY
from ringpop_py.state.placement.table import (
    PartitionStatus,
    Table,
    TableRow,
    from_rows,
    merged,
    to_rows,
)

PARTITIONS_COUNT = 4
UNASSIGNED, ASSIGNED, ONLINE, MIGRATING, OFFLINE = PartitionStatus


@st.composite
def rows(draw: st.DrawFn, partition: int | None = None) -> TableRow:
    """Any possible row, those of liars that claim one epoch for two owners included."""
    names = st.sampled_from(["a", "b", "c"])
    maybe = st.sampled_from([NOBODY, "a", "b"])
    at = draw(st.integers(0, PARTITIONS_COUNT - 1)) if partition is None else partition
    epoch = draw(st.integers(0, 3))
    if not epoch:
        status = draw(st.sampled_from([UNASSIGNED, ASSIGNED]))
        return TableRow(at, desired=draw(maybe), status=status)
    return TableRow(
        at,
        desired=draw(maybe),
        owner=draw(names),
        previous=draw(maybe),
        epoch=epoch,
        status=draw(st.sampled_from([ONLINE, MIGRATING, OFFLINE])),
        checkpoint=Slot(draw(st.integers(0, epoch)), draw(st.integers(0, 2))),
    )


def table_of(*some: TableRow) -> Table:
    table = Table("flights", 1, PARTITIONS_COUNT)
    table.merge(some)
    return table


def online(partition: int, owner: str, epoch: int = 1, desired: str = "") -> TableRow:
    return TableRow(partition, desired or owner, owner, epoch=epoch, status=ONLINE)


# -- steps ---------------------------------------------------------------------------------


def test_a_partition_goes_through_its_life_step_by_step() -> None:
    """F6."""
    row = TableRow(7)
    life = [
        row := row.assigned("a"),
        row := row.claimed("a", 1),
        row := row.assigned("b"),
        row := row.released("b"),
        row := row.claimed("b", 2),
        row := row.released(),
        row := row.claimed("c", 3),
    ]

    assert [step.status for step in life] == [
        ASSIGNED, ONLINE, ONLINE, MIGRATING, ONLINE, OFFLINE, ONLINE,
    ]  # fmt: skip
    assert row == TableRow(7, "b", "c", "b", 3, ONLINE)


ROWS = {
    UNASSIGNED: TableRow(0),
    ASSIGNED: TableRow(0, "a", status=ASSIGNED),
    ONLINE: TableRow(0, "a", "a", "b", 2, ONLINE),
    MIGRATING: TableRow(0, "b", "a", "b", 2, MIGRATING),
    OFFLINE: TableRow(0, "a", "a", "b", 2, OFFLINE),
}
STEPS = {
    "claim": lambda row: row.claimed("c", row.epoch + 1),
    "seal to c": lambda row: row.released("c"),
    "seal": lambda row: row.released(),
}
LEGAL = {
    *product([ASSIGNED, ONLINE, MIGRATING, OFFLINE], ["claim"]),
    (ONLINE, "seal to c"),
    (ONLINE, "seal"),
    (MIGRATING, "seal"),
}


def test_the_epoch_of_a_table_rises_with_each_claim_and_in_whatever_way_it_comes() -> None:
    ours, theirs = Table("k", 1, 3), Table("k", 1, 3)
    seen = [ours.epoch]
    for owners in (["a", "a", "b"], ["a", "b", "b"]):
        ours.desire(owners)
        for number, owner in enumerate(owners):
            row = ours[number]
            if row.owner != owner:
                ours.put(row.claimed(owner, row.epoch + 1))
                seen.append(ours.epoch)
    ours.put(ours[2].released("a"))
    seen.append(ours.epoch)

    for row in reversed(list(ours)):
        theirs.merge([row])
        theirs.merge([row])

    assert seen == [0, 1, 2, 3, 4, 4]
    assert theirs.epoch == 4


@pytest.mark.parametrize(("status", "step"), list(product(ROWS, STEPS)))
def test_no_step_is_possible_but_the_legal_ones(status: PartitionStatus, step: str) -> None:
    """F6."""
    row = ROWS[status]

    if (status, step) in LEGAL:
        assert STEPS[step](row).facts > row.facts
    else:
        with pytest.raises(ValueError, match="partition 0 is"):
            STEPS[step](row)


@pytest.mark.parametrize("status", ROWS)
def test_the_desired_owner_of_a_partition_can_always_change_but_not_to_nobody(
    status: PartitionStatus,
) -> None:
    """F4, F6."""
    row = ROWS[status]

    changed = row.assigned("z")

    assert changed == replace(row, desired="z", status=max(row.status, ASSIGNED))
    with pytest.raises(ValueError, match="cannot be unassigned"):
        row.assigned(NOBODY)


@pytest.mark.parametrize(("owner", "epoch"), [("c", 2), ("c", 1), (NOBODY, 3)])
def test_a_claim_has_an_owner_and_begins_a_later_epoch(owner: str, epoch: int) -> None:
    """F6."""
    with pytest.raises(ValueError, match="cannot be claimed"):
        ROWS[ONLINE].claimed(owner, epoch)


def test_a_checkpoint_never_goes_back() -> None:
    row = ROWS[ONLINE].checkpointed(Slot(2, 9)).checkpointed(Slot(1, 20))

    assert row.checkpoint == Slot(2, 9)


# -- merging -------------------------------------------------------------------------------


def same(one: TableRow, other: TableRow) -> bool:
    """Equal except for the desired owner, which is each node's own."""
    return replace(one, desired=NOBODY) == replace(other, desired=NOBODY)


@given(rows(0), rows(0), rows(0))
def test_rows_merge_alike_in_any_order_and_however_often(
    a: TableRow, b: TableRow, c: TableRow
) -> None:
    assert same(merged(a, b), merged(b, a))
    assert same(merged(merged(a, b), c), merged(a, merged(b, c)))
    assert merged(a, a) == a
    assert merged(merged(a, b), b) == merged(a, b)


@given(rows(0), rows(0))
def test_the_later_epoch_wins_and_within_one_the_later_status(a: TableRow, b: TableRow) -> None:
    row = merged(a, b)

    assert (row.epoch, row.status) == max((a.epoch, a.status), (b.epoch, b.status))
    assert row.checkpoint == max(a.checkpoint, b.checkpoint)
    assert row.desired == a.desired


@given(st.lists(rows()), st.data())
def test_tables_that_learnt_the_same_in_any_order_are_equal(
    some: list[TableRow], data: st.DataObject
) -> None:
    one, other = table_of(*some), table_of()
    for row in data.draw(st.permutations([*some, *some])):
        other.merge([row])

    assert list(map(same, one, other)) == [True] * PARTITIONS_COUNT
    assert one.digest == other.digest


@given(st.lists(rows()), st.lists(rows()))
def test_a_merge_reports_the_rows_that_changed_the_digest(
    known: list[TableRow], told: list[TableRow]
) -> None:
    table = table_of(*known)
    before, digest = list(table), table.digest

    news = table.merge(told)

    changed = [row for row, old in zip(table, before, strict=True) if row.facts != old.facts]
    assert sorted(news, key=lambda row: row.partition) == changed
    assert (table.digest != digest) == bool(news)
    assert table.merge(told) == []


@given(st.lists(rows()))
def test_the_digest_is_the_sum_of_the_rows_however_it_came_about(some: list[TableRow]) -> None:
    table = table_of(*some)

    assert table.fingerprints() == [row.fingerprint for row in table]
    assert table.digest == sum(table.fingerprints()) % 2**64


def test_fingerprints_differ_with_every_fact_and_with_nothing_else() -> None:
    row = TableRow(1, "x", "ab", "c", 2, ONLINE, ORIGIN)
    others = [
        replace(row, partition=2),
        replace(row, owner="a", previous="bc"),
        replace(row, previous="d"),
        replace(row, epoch=3),
        replace(row, status=MIGRATING),
    ]

    assert len({row.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert row.fingerprint == replace(row, desired="y", checkpoint=Slot(2, 2)).fingerprint


def test_a_row_of_a_partition_that_is_not_there_changes_nothing() -> None:
    table = table_of()

    with pytest.raises(BodyError, match="4 partitions"):
        table.merge([online(0, "a"), online(4, "a")])

    assert table[0] == TableRow(0)


def test_a_step_made_here_must_follow_what_is_known() -> None:
    table = table_of(online(0, "b", epoch=3))

    with pytest.raises(ValueError, match="in epoch 3, later than online"):
        table.put(online(0, "a", epoch=2))

    table.put(table[0].released("a"))
    assert table[0].status is MIGRATING


# -- exchange ------------------------------------------------------------------------------


@given(st.lists(rows()), st.lists(rows()))
def test_two_nodes_become_equal_by_exchanging_only_what_differs(
    ours: list[TableRow], theirs: list[TableRow]
) -> None:
    asker, answerer = table_of(*ours), table_of(*theirs)
    differing = sum(a.facts != b.facts for a, b in zip(asker, answerer, strict=True))

    delta = answerer.delta(asker.fingerprints())
    news = {row.partition for row in asker.merge(delta)}
    back = [asker[row.partition] for row in delta if row.partition not in news]
    answerer.merge(back)

    assert asker.digest == answerer.digest
    assert len(delta) == differing
    assert len(news) + len(back) == differing


def test_fingerprints_of_another_number_of_partitions_are_refused() -> None:
    with pytest.raises(BodyError, match="4 fingerprints"):
        table_of().delta([1, 2, 3])


@given(st.lists(rows()))
def test_rows_are_read_as_they_were_written(some: list[TableRow]) -> None:
    table = list(table_of(*some))

    assert from_rows(to_rows(table), PARTITIONS_COUNT) == table


def test_names_are_written_once() -> None:
    plain = to_rows([online(0, "a"), online(1, "a", epoch=2)])

    assert plain == [["a", ""], [0, 0, 0, 1, 1, 2, 0, 0], [1, 0, 0, 1, 2, 2, 0, 0]]


def test_columns_that_a_newer_peer_adds_are_ignored() -> None:
    plain = [["a", ""], [0, 0, 0, 1, 1, 2, 0, 0, "new"]]

    assert from_rows(plain, PARTITIONS_COUNT) == [online(0, "a")]


GOOD = [0, 0, 0, 1, 1, 2, 0, 0]


@pytest.mark.parametrize(
    "value",
    [
        [["a", ""], *[GOOD] * 5],
        [["a", ""], [4, 0, 0, 1, 1, 2, 0, 0]],
        [["a", ""], [0, 2, 0, 1, 1, 2, 0, 0]],
        [["a", ""], [0, 0, 2, 1, 1, 2, 0, 0]],
        [["a", ""], [0, 0, 0, 2, 1, 2, 0, 0]],
        [["a", ""], [0, 0, 0, 1, 2**63, 2, 0, 0]],
        [["a", ""], [0, 0, 0, 1, 1, 5, 0, 0]],
        # Rows that no partition can have.
        [["a", ""], [0, 0, 0, 1, 0, 2, 0, 0]],
        [["a", ""], [0, 0, 1, 1, 1, 2, 0, 0]],
        [["a", ""], [0, 0, 0, 1, 0, 1, 0, 0]],
        [["a", ""], [0, 0, 1, 0, 0, 1, 0, 0]],
        [["a", ""], [0, 0, 0, 1, 1, 1, 0, 0]],
        [["a", ""], [0, 0, 0, 1, 1, 2, 2, 0]],
    ],
)
def test_a_hostile_row_is_refused(value: object) -> None:
    with pytest.raises(BodyError):
        from_rows(value, PARTITIONS_COUNT)


# -- questions -----------------------------------------------------------------------------


def test_desired_owners_change_rows_but_not_what_is_told_to_others() -> None:
    table = table_of(online(1, "b"))

    changed = table.desire(["a", "a", "b", "b"])

    assert [row.partition for row in changed] == [0, 1, 2, 3]
    assert table.desire(["a", "a", "b", "b"]) == []
    assert [row.status for row in table] == [ASSIGNED, ONLINE, ASSIGNED, ASSIGNED]
    assert table[1].moving


def test_a_partition_that_is_sealed_has_no_owner() -> None:
    table = table_of(
        online(0, "a"),
        replace(online(1, "a"), status=MIGRATING),
        replace(online(2, "a"), status=OFFLINE),
    )

    assert table.owners() == ("a", NOBODY, NOBODY, NOBODY)


def test_before_anything_is_assigned_nobody_is_busy() -> None:
    table = table_of()

    assert not table.assigned
    assert table.busiest_over_mean(3) == 0


def test_a_table_counts_what_members_serve_and_what_moves() -> None:
    table = table_of(
        online(0, "a"), online(1, "a"), online(2, "b"), replace(online(3, "b"), status=MIGRATING)
    )

    table.desire(["a", "c", "b", "a"])

    assert table.counts() == {"a": 2, "b": 1}
    assert table.owned_by("a") == [0, 1]
    assert table.busiest_over_mean(3) == 2.0
    assert [row.partition for row in table.moving] == [1, 3]
    assert table.statuses() == {
        "unassigned": 0, "assigned": 0, "online": 3, "migrating": 1, "offline": 0,
    }  # fmt: skip
    assert table.assigned
    assert len(table) == 4
