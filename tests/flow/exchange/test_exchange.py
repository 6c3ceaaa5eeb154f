"""Elements, watermarks, routes, and the state of a stage."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_py.base.errors import BadElement, BodyError
from ringpop_py.flow.exchange.elements import (
    Barrier,
    Data,
    Element,
    Hop,
    Watermark,
    element_in,
    head_of,
)
from ringpop_py.flow.exchange.router import ShuffleRouter
from ringpop_py.flow.exchange.state import StageState
from ringpop_py.flow.exchange.watermarks import WatermarkTracker

HOP = Hop("clicks", 7, "n1", "life", 3)


@pytest.mark.parametrize(
    ("element", "kind"),
    [(Data(b"rows"), 1), (Barrier(9), 2), (Watermark(-5), 3), (Watermark(None), 3)],
)
def test_an_element_is_a_byte_and_json_and_perhaps_a_body(
    element: Element[bytes], kind: int
) -> None:
    head = head_of(element, HOP)
    assert head[0] == kind
    assert head[1:2] == b"{"
    body = element.batch if isinstance(element, Data) else b""
    assert element_in(head, body, has_body=bool(body)) == (HOP, element)


@pytest.mark.parametrize(
    ("head", "has_body", "why"),
    [
        (b"", False, "at least one byte"),
        (b"\x04{}", False, "0x04 is not a kind of element"),
        (head_of(Data(b""), HOP), False, "records have no body"),
        (head_of(Barrier(1), HOP), True, "a barrier has a body"),
        (head_of(Watermark(1), HOP), True, "a watermark has a body"),
        (b"\x02{", False, "not a json value"),
        (b'\x03{"hop":{"flow":"f","run":1,"sender":"s","life":"l","number":-1}}', False, "number"),
    ],
)
def test_a_malformed_element_is_refused(head: bytes, has_body: bool, why: str) -> None:  # noqa: FBT001
    with pytest.raises(BadElement, match=why):
        element_in(head, b"x", has_body=has_body)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_an_element_or_refused(head: bytes, has_body: bool) -> None:  # noqa: FBT001
    with contextlib.suppress(BadElement):
        element_in(head, b"", has_body=has_body)


def test_a_watermark_is_the_minimum_and_never_goes_back() -> None:
    tracker = WatermarkTracker("ab", idle_after=10.0)
    assert tracker.receive("a", 50, 1.0) is None  # b may still bring what is earlier
    assert tracker.advance(1_000.0) is None  # however long that takes
    assert tracker.receive("b", 30, 2.0) == 30
    assert tracker.receive("b", 20, 3.0) is None
    assert tracker.receive("b", 90, 4.0) == 50
    assert tracker.receive("x", 99, 4.0) is None
    assert tracker.quiet("x", 4.0) is None
    assert tracker.time == 50


def test_an_idle_channel_holds_nothing_up_until_it_brings_something_again() -> None:
    tracker = WatermarkTracker("ab", idle_after=10.0)
    tracker.receive("a", 50, 5.0)
    assert tracker.quiet("b", 5.0) is None
    assert tracker.quiet("b", 14.9) is None
    assert tracker.advance(15.0) == 50  # b has had nothing for ten seconds
    assert tracker.receive("b", 20, 16.0) is None  # it is late: the watermark stays
    assert tracker.receive("a", 80, 17.0) is None
    assert tracker.receive("b", 70, 18.0) == 70
    tracker.quiet("a", 20.0)
    tracker.quiet("b", 20.0)
    assert not tracker.is_idle(29.9)
    assert tracker.is_idle(30.0)
    assert tracker.advance(30.0) is None  # the watermark stays
    tracker.join("c")
    assert not tracker.is_idle(30.0)
    assert tracker.receive("a", 99, 30.0) is None
    assert tracker.lose("c", 30.0) == 99
    tracker.receive("b", None, 31.0)  # records
    assert tracker.receive("a", 200, 31.0) is None
    assert tracker.lose("b", 31.0) == 200


def test_a_watermark_begins_where_it_was_kept() -> None:
    tracker = WatermarkTracker("a", idle_after=10.0, time=40)
    assert tracker.receive("a", 30, 1.0) is None
    assert tracker.receive("a", 41, 1.0) == 41


def test_key_groups_are_ranges_of_workers() -> None:
    router = ShuffleRouter(["volley-2", "volley-0", "volley-1"])
    assert router.workers == ("volley-0", "volley-1", "volley-2")
    assert [router.groups_of(worker) for worker in router.workers] == [
        range(86),
        range(86, 171),
        range(171, 256),
    ]
    assert ShuffleRouter(["a", "b"]).groups_of("b") == range(128, 256)
    assert router.groups_of("nobody") == range(0)
    keys = [f"key-{number}" for number in range(1_000)]
    routed = router.route(keys, str)
    for worker, found in routed.items():
        assert {router.worker_of(key) for key in found} == {worker}
        assert all(router.group_of(key) in router.groups_of(worker) for key in found)
        assert found == [key for key in keys if key in set(found)]
    assert sum(map(len, routed.values())) == len(keys)


def everything(_key: str) -> bool:
    return True


def test_a_kept_state_is_all_of_it_or_its_changes() -> None:
    state = StageState()
    for key in "abc":
        state.set(key, 1, None)
    base, is_whole = state.keep(whole=True)
    assert is_whole
    state.set("a", 2, 77)
    state.set("b", None, None)
    change, is_whole = state.keep(whole=False)
    assert not is_whole
    assert state.keep(whole=False) == (b"", False)

    again = StageState()
    for kept in (base, change):
        again.load(kept, everything)
    assert again.values == {"a": 2, "c": 1}
    assert again.due(76) == []
    assert again.due(77) == ["a"]

    few = StageState()
    few.load(base, "c".__eq__)
    assert few.values == {"c": 1}
    for _ in range(4):
        state.set("a", 3, None)
        state.set("c", 3, None)
        _, is_whole = state.keep(whole=False)
        if is_whole:
            break
    assert is_whole  # before the changes are many times the state


def test_a_key_is_woken_when_it_was_last_to_be() -> None:
    state = StageState()
    state.set("a", 1, 10)
    state.set("b", 1, 5)
    state.set("a", 2, 20)
    state.set("c", 1, 7)
    state.set("c", None, None)
    assert state.due(15) == ["b"]
    state.restrict("b".__eq__)
    assert state.due(30) == []
    assert state.values == {"b": 1}


def test_a_key_with_many_changed_timers_costs_no_memory() -> None:
    state = StageState()
    for number in range(10_000):
        state.set("a", 1, number)
    assert len(state._heap) < 200
    assert state.due(9_998) == []
    assert state.due(9_999) == ["a"]


@pytest.mark.parametrize("kept", [b"\xc1", b"\x01", b"\x91\x01", b"\x91\x92\xa1a\x01"])
def test_a_malformed_state_is_refused(kept: bytes) -> None:
    with pytest.raises(BodyError):
        StageState().load(kept, everything)
