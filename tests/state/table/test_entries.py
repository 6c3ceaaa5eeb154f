"""Entries in memory: their order, what is frozen, and pieces of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.state.table.entries import ENTRY_BYTES, FrozenEntries, MemoryEntries

KEYS = st.text("aé\U0001f600\uffff", max_size=3)


def entries_of(*keys: str) -> MemoryEntries:
    entries = MemoryEntries()
    entries.write({key: key.encode() for key in keys}, ())
    return entries


@given(
    st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=2)), st.lists(KEYS))),
    KEYS,
    KEYS,
    KEYS | st.none(),
)
def test_entries_written_after_a_first_scan_are_in_order_too(
    writes: list[tuple[dict[str, bytes], list[str]]], prefix: str, start: str, end: str | None
) -> None:
    entries, model = MemoryEntries(), dict[str, bytes]()
    for changed, deleted in writes:
        entries.scan("", "", None, 1)
        gone = [key for key in deleted if key not in changed]
        entries.write(changed, gone)
        model = {key: value for key, value in {**model, **changed}.items() if key not in gone}

    found = entries.scan(prefix, start, end, 100)

    expected = [
        (key, model[key])
        for key in sorted(model, key=str.encode)
        if key.startswith(prefix) and key >= start and (end is None or key < end)
    ]
    assert found == expected[:100]
    assert len(entries) == len(model)


def test_frozen_entries_do_not_change() -> None:
    entries = entries_of("a", "b")
    whole, some = entries.freeze(), entries.freeze(["b"])

    entries.write({"a": b"changed", "c": b"new"}, ["b"])

    assert whole.values == {"a": b"a", "b": b"b"}
    assert some.values == {"b": b"b"}


def test_pieces_are_of_bounded_size_and_make_up_the_whole() -> None:
    values = {f"key-{index}": bytes(index) for index in range(100)}

    pieces = list(FrozenEntries(values).pieces(300))

    together = {key: value for piece in pieces for key, value in zip(*piece, strict=True)}
    assert together == values
    sizes = [
        sum(map(len, keys)) + sum(map(len, values)) + ENTRY_BYTES * len(keys)
        for keys, values in pieces
    ]
    assert max(sizes) <= 300


def test_an_entry_larger_than_a_piece_is_one_by_itself() -> None:
    values = {"a": b"", "b": bytes(1000), "c": b""}

    pieces = [keys for keys, _ in FrozenEntries(values).pieces(100)]

    assert pieces == [["a"], ["b"], ["c"]]


def test_nothing_has_no_pieces() -> None:
    assert list(FrozenEntries({}).pieces(100)) == []


def test_few_entries_can_be_had_at_once() -> None:
    entries = MemoryEntries()
    entries.write({"b": b"2", "a": b"1"}, ())

    found = entries.at_most(2)

    assert found is not None
    assert dict(zip(*found, strict=True)) == {"a": b"1", "b": b"2"}
    assert entries.at_most(1) is None
