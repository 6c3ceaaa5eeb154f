"""Changes that take effect as they are evaluated do what staged ones do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.values.operations import Change, Outcome, Write
from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.memory.direct import DirectState, change_each
from ringpop_py.state.table.aggregations import ABSENT, INTEGER_MAX, INTEGER_MIN, Aggregations
from ringpop_py.state.table.due import DueTimes
from ringpop_py.state.table.entries import MemoryEntries
from ringpop_py.state.table.keyed import KeyedState

if TYPE_CHECKING:
    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.aggregations import Absent

KEYS = ("a", "b", "ba", "é")
SCALARS = (
    st.sampled_from(
        (0, 1, -1, True, None, 1.5, "text", "", b"bytes", INTEGER_MAX, INTEGER_MIN, INTEGER_MAX + 1)
    )
    | st.integers(-300, 300)
    | st.integers(INTEGER_MIN, INTEGER_MAX)
)
CHANGES = st.builds(
    Change,
    st.sampled_from((*KEYS, "", "x" * 1025)),
    st.sampled_from(("add", "add", "add", "count", "put", "max", "delete", "append", "spoil", "x")),
    SCALARS | st.lists(SCALARS, max_size=2) | st.just("delete"),
)


def spoil(current: Value | Absent, argument: Value) -> Value | Absent:
    """An application's own operation, which deletes, changes kinds, or fails."""
    if argument == "delete":
        return ABSENT
    if isinstance(current, list):
        current.append(argument)  # it may change its copy
        return current
    return [] if current is ABSENT else str(current)


def a_direct_state(keys_max: int | None = None) -> DirectState:
    aggregations = Aggregations()
    aggregations.register("spoil", spoil)
    return DirectState(make_packer(), aggregations, DueTimes(), keys_max=keys_max)


@given(st.lists(st.lists(CHANGES, max_size=8), max_size=6), st.none() | st.integers(1, 3))
def test_direct_changes_do_what_staged_ones_do(
    batches: list[list[Change]], keys_max: int | None
) -> None:
    direct = a_direct_state(keys_max)
    aggregations = Aggregations()
    aggregations.register("spoil", spoil)
    staged = KeyedState(make_packer(), aggregations, keys_max=keys_max, entries=MemoryEntries())
    sequence = 0
    for batch in batches:
        for change in batch:
            body, (expected,) = staged.stage([Write("source", sequence, (change,))])
            sequence += 1
            if body is not None:
                staged.apply(body)
            (found,) = change_each([direct], [0], [change])
            assert type(found) is type(expected)
            assert repr(found) == repr(expected)  # 1, 1.0 and True differ
        # A first scan makes the order, and later changes keep it.
        for prefix, start, end in (("", None, None), ("b", None, None), ("", "b", "é")):
            rows = staged.scan_packed(prefix, start, end, 100)
            assert direct.scan_packed(prefix, start, end, 100) == rows
        assert direct.packed(KEYS) == staged.packed(KEYS)
        assert len(direct) == len(staged)
        assert (direct.all_packed(2) is None) == (len(staged) > 2)
        keys, values = direct.all_packed(100) or ([], [])
        assert dict(zip(keys, values, strict=True)) == dict(staged.scan_packed("", None, None, 100))


def test_a_number_and_what_is_staged_see_each_other() -> None:
    state = a_direct_state()
    assert state.change("a", "add", 1) == Outcome((1,))

    body, outcomes = state.stage([Write("source", 0, (Change("a", "add", 2),))])
    assert outcomes == [Outcome((3,))]
    assert change_each([state], [0], [Change("a", "add", 10)]) == [Outcome((11,))]
    state.apply(body)

    assert state.change("a", "add", 1) == Outcome((4,))
    assert state.packed(["a"]) == [b"\x04"]
