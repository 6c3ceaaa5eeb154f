"""`ringpop_py.state.memory.versioned`: state without a store, and copies that become one."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.state.memory import versioned
from ringpop_py.state.memory.versioned import (
    NEVER,
    TOMBSTONE_AGE_MS,
    TRANSFERS_MAX,
    Entry,
    HybridClock,
    Version,
    VersionedState,
    entries_from_rows,
    entry_join,
)
from ringpop_py.state.table.joins import RULES

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.joins import Rule

NOW = 1_000_000_000_000
LATER = NOW + TOMBSTONE_AGE_MS + 1
each_rule = pytest.mark.parametrize("rule", RULES)
joining_rule = pytest.mark.parametrize("rule", [rule for rule in RULES if rule != RULES[0]])


def pack(value: Value) -> bytes:
    return encode_value("msgpack", value)


def unpack(packed: bytes) -> Value:
    value: Value = decode_value("msgpack", packed)
    return value


def state(node: str = "a") -> VersionedState:
    return VersionedState(HybridClock(node), pack)


@pytest.fixture
def few_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioned, "TOMBSTONES_MAX", 3)


def exported(one: VersionedState, now_ms: int = NOW) -> list[Entry]:
    return entries_from_rows(one.export(now_ms)[0])


def take(one: VersionedState, other: VersionedState, rule: Rule, now_ms: int = NOW) -> list[str]:
    """*one* merges all that *other* knows."""
    return one.merge(exported(other, now_ms), rule, now_ms)


def contents(one: VersionedState) -> dict[str, Value]:
    return {key: unpack(packed) for key, packed in one.scan("", "", None, 100)}


# -- the clock -----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5) | st.tuples(st.integers(0, 5), st.integers(0, 3))))
def test_versions_only_grow_whatever_the_time_says_and_peers_said(
    events: list[int | tuple[int, int]],
) -> None:
    clock, last = HybridClock("a"), NEVER

    for event in events:
        if isinstance(event, int):
            version = clock.tick(event)
            assert version > last
            assert version.ms >= event
        else:
            version = Version(*event, "b")
            clock.saw(version)
        last = max(last, version)


# -- one key -------------------------------------------------------------------------------


def test_keys_are_scanned_in_order_between_bounds_and_without_the_deleted() -> None:
    """F11."""
    one = state()
    for key in ("b2", "a", "b1", "c", "b3", "b"):
        one.put(key, pack(key), NOW)
    one.delete("b2", NOW)

    assert [key for key, _ in one.scan("", "", None, 9)] == ["a", "b", "b1", "b3", "c"]
    assert [key for key, _ in one.scan("b", "", None, 9)] == ["b", "b1", "b3"]
    assert [key for key, _ in one.scan("b", "b0", "b3", 9)] == ["b1"]
    assert [key for key, _ in one.scan("", "", None, 2)] == ["a", "b"]
    assert [key for key, _ in one.scan("", "b\0", None, 9)] == ["b1", "b3", "c"]
    assert one.scan("", "", None, 0) == []


# -- joining entries -----------------------------------------------------------------------


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any entry of one key that can be, few versions so that they meet."""
    versions = st.builds(Version, st.integers(1, 3), st.integers(0, 1), st.sampled_from("ab"))
    version = draw(versions)
    if draw(st.booleans()):
        return Entry("key", None, version, version)
    life = draw(st.just(NEVER) | versions.filter(lambda one: one <= version))
    numbers: st.SearchStrategy[Value] = st.integers(0, 3)
    lists: st.SearchStrategy[Value] = st.lists(numbers, max_size=3)
    value = draw(numbers | lists | st.text("ab"))
    return Entry("key", pack(value), version, life)


@each_rule
@given(a=entries(), b=entries(), c=entries())
def test_entries_join_alike_in_any_order_and_however_often(
    rule: str, a: Entry, b: Entry, c: Entry
) -> None:
    join = entry_join(rule, pack)

    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(a, a) == a
    assert join(join(a, b), b) == join(a, b)


@each_rule
@given(data=st.data())
def test_copies_that_hear_of_each_other_in_any_order_become_equal(
    rule: str, data: st.DataObject
) -> None:
    copies = [state(node) for node in "abc"]
    steps = st.tuples(
        st.sampled_from(["put", "delete", "take"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from("xy"),
    )
    for at, (what, index, other, key) in enumerate(data.draw(st.lists(steps, max_size=25))):
        now = NOW + data.draw(st.integers(-3, 3))
        if what == "put":
            copies[index].put(key, pack([at, index]), now)
        elif what == "delete":
            copies[index].delete(key, now)
        else:
            take(copies[index], copies[other], rule)

    for one, other_copy in data.draw(st.permutations(list(permutations(copies, 2)))) * 2:
        take(one, other_copy, rule)

    assert exported(copies[0]) == exported(copies[1]) == exported(copies[2])
    assert take(copies[0], copies[1], rule) == []


@joining_rule
def test_a_delete_wins_over_what_did_not_know_of_it_and_a_later_put_begins_anew(
    rule: str,
) -> None:
    one, other = state("a"), state("b")
    one.put("key", pack([5, 6]), NOW)
    take(other, one, rule)
    one.delete("key", NOW + 1)
    other.put("key", pack([7, 8, 9]), NOW + 2)

    take(other, one, rule)
    assert contents(other) == {}

    other.put("key", pack([1]), NOW + 3)
    take(one, other, rule)
    assert contents(one) == {"key": [1]}


@joining_rule
def test_a_write_that_lessens_is_undone_by_an_older_copy(rule: str) -> None:
    """As the module says: these rules are for values that only grow (or only shrink, for min)."""
    larger: Value = [1, 2] if rule != "min" else 1
    smaller: Value = [1] if rule != "min" else 2
    one, older = state("a"), state("b")
    one.put("key", pack(larger), NOW)
    take(older, one, rule)
    one.put("key", pack(smaller), NOW + 1)

    take(one, older, rule)

    assert contents(one) == {"key": larger}


def test_a_function_merges_what_differs_in_the_order_in_which_it_was_written() -> None:
    def both(older: Value, newer: Value) -> Value:
        return [older, newer]

    one, other = state("a"), state("b")
    one.put("key", pack("new"), NOW + 1)
    other.put("key", pack("old"), NOW)
    one.put("same", pack(1), NOW)
    other.put("same", pack(1), NOW)

    take(one, other, both)

    assert contents(one) == {"key": ["old", "new"], "same": 1}


def test_a_rule_that_fails_leaves_everything_as_it_was() -> None:
    def failing(older: Value, newer: Value) -> Value:
        raise ZeroDivisionError(older, newer)

    one, other = state("a"), state("b")
    one.put("key", pack(1), NOW)
    other.put("a new one", pack(1), NOW)
    other.put("key", pack(2), NOW)
    sent = exported(other)

    with pytest.raises(ZeroDivisionError):
        one.merge(sent, failing, NOW, transfer="t")

    assert contents(one) == {"key": 1}
    assert one.merge(sent, "max", NOW, transfer="t") == ["a new one", "key"]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError):
        state().merge([], "most", NOW)


# -- transfers -----------------------------------------------------------------------------


def add(older: Value, newer: Value) -> Value:
    assert isinstance(older, int)
    assert isinstance(newer, int)
    return older + newer


def test_a_transfer_that_is_sent_again_is_not_merged_twice() -> None:
    one, other = state("a"), state("b")
    one.put("key", pack(1), NOW)
    other.put("key", pack(10), NOW)
    sent = exported(other)

    assert one.merge(sent, add, NOW, transfer="t1") == ["key"]
    assert one.merge(sent, add, NOW, transfer="t1") == []
    assert contents(one) == {"key": 11}

    assert one.merge(sent, add, NOW, transfer="t2") == ["key"]


def test_so_many_transfers_are_remembered_and_no_more() -> None:
    one = state()
    for number in range(TRANSFERS_MAX + 1):
        one.merge([], "max", NOW, transfer=f"t{number}")
    entry = Entry("key", pack(1), Version(NOW, 0, "b"))

    assert one.merge([entry], "max", NOW, transfer="t1") == []
    assert one.merge([entry], "max", NOW, transfer="t0") == ["key"]


# -- tombstones ----------------------------------------------------------------------------


def test_deletes_are_forgotten_once_they_are_old_enough() -> None:
    one = state()
    one.put("key", pack(1), NOW)
    one.delete("key", NOW)

    assert one.collect(NOW + TOMBSTONE_AGE_MS) == 0
    assert one.collect(LATER) == 1

    assert one.export(NOW)[0] == []


@pytest.mark.usefixtures("few_tombstones")
def test_of_too_many_deletes_the_oldest_are_forgotten_and_counted() -> None:
    one, other = state("a"), state("b")
    for number in range(3):
        other.put(f"k{number}", pack(number), NOW)
        one.delete(f"k{number}", NOW + 1)
    assert one.forgotten_count == 0

    one.delete("k0", NOW + 2)  # again, so it is the latest now
    one.delete("more", NOW + 2)
    one.put("a value", pack(1), NOW + 2)

    assert one.forgotten_count == 1
    assert take(one, other, "max") == ["k1"]
    assert contents(one) == {"a value": 1, "k1": 1}


@pytest.mark.usefixtures("few_tombstones")
def test_deletes_that_another_copy_knows_count_as_our_own_do() -> None:
    one, other = state("a"), state("b")
    for number in range(3):
        one.delete(f"ours {number}", NOW)
        other.delete(f"theirs {number}", NOW)

    take(one, other, "max")

    assert [entry.key for entry in exported(one)] == ["theirs 0", "theirs 1", "theirs 2"]
    assert one.forgotten_count == 3


def test_a_delete_that_is_too_old_is_neither_sent_nor_taken() -> None:
    one, other = state("a"), state("b")
    one.put("key", pack(1), NOW)
    take(other, one, "max")
    one.delete("key", NOW)

    assert one.export(LATER)[0] == []
    assert other.merge(exported(one), "max", LATER) == []
    assert contents(other) == {"key": 1}


# -- exports -------------------------------------------------------------------------------


@given(st.integers(1, 400), st.integers(0, 12))
def test_pieces_are_bounded_and_all_of_them_are_everything(piece_bytes: int, count: int) -> None:
    one, copy = state("a"), state("b")
    for number in range(count):
        one.put(f"key-{number}", pack("x" * number), NOW)
        if number % 3 == 0:
            one.delete(f"key-{number}", NOW)
    last, pieces = None, 0

    while True:
        rows, last = one.export(NOW, last, piece_bytes=piece_bytes)
        pieces += 1
        size = sum(len(row[0]) + len(row[1] or b"") + 64 for row in rows[:-1])
        assert size < piece_bytes
        copy.merge(entries_from_rows(rows), "max", NOW, transfer=f"t-{pieces}")
        if last is None:
            break

    assert exported(copy) == exported(one)
    assert pieces <= max(1, count)


def test_an_empty_text_is_a_key_like_others() -> None:
    one = state()
    one.put("", pack(1), NOW)
    one.put("a", pack(1), NOW)

    _, last = one.export(NOW, piece_bytes=1)

    assert last == ""
    assert [row[0] for row in one.export(NOW, last, piece_bytes=1)[0]] == ["a"]


@given(entries())
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    one = state()
    one.merge([entry], "max", 0)

    assert exported(one, 0) == [entry]


@pytest.mark.parametrize(
    "rows",
    [
        [["key", b"", 2**63, 0, "a"]],
        [["key", b"", 1, 0, "x" * 5000]],
        [["key", None, 2, 0, "a", 1, 0, "a"]],
        [["key", b"", 1, 0, "a", 2, 0, "a"]],
    ],
)
def test_a_hostile_row_is_refused(rows: list[object]) -> None:
    with pytest.raises(BodyError):
        entries_from_rows(rows)
