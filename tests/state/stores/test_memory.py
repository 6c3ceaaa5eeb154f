"""The store in memory, and the faults that it can be told to have."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import StoreFull, StoreUnavailable
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from tests.state.stores.conformance import CHECKS, Check, name_of


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_it_is_a_store(check: Check) -> None:
    store = MemoryStore()

    check(lambda: store)


def test_a_put_that_fails_did_not_take_place() -> None:
    store = MemoryStore()
    store.inject(StoreFault.FAILS, count=2)

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="put_if_absent"):
            store.put_if_absent("a", b"1")

    assert store.get("a") is None
    assert store.put_if_absent("a", b"2")


def test_a_put_whose_reply_is_lost_took_place() -> None:
    store = MemoryStore()
    store.inject(StoreFault.LOSES_REPLY)

    with pytest.raises(StoreUnavailable):
        store.put_if_absent("a", b"1")

    assert store.get("a") == b"1"
    assert not store.put_if_absent("a", b"1")


def test_a_late_put_takes_place_when_it_lands_unless_another_came_first() -> None:
    store = MemoryStore()
    store.inject(StoreFault.LATE, count=2)
    for key in ("a", "b"):
        with pytest.raises(StoreUnavailable):
            store.put_if_absent(key, b"late")
    assert store.put_if_absent("a", b"first")
    assert store.get("b") is None

    landed = store.land_late()

    assert landed == [False, True]
    assert [store.get("a"), store.get("b")] == [b"first", b"late"]
    assert store.land_late() == []


def test_a_full_store_takes_nothing_until_there_is_room() -> None:
    store = MemoryStore(bytes_max=10)
    assert store.put_if_absent("a", b"12345678")

    with pytest.raises(StoreFull):
        store.put_if_absent("b", b"123")

    assert store.get("b") is None
    assert not store.put_if_absent("a", b"123")
    store.delete(["a"])
    assert store.put_if_absent("b", b"123")


def test_a_fault_hits_its_verb_alone_and_in_the_order_of_injection() -> None:
    store = MemoryStore()
    store.inject(StoreFault.FULL)
    store.inject(StoreFault.FAILS)
    store.inject(StoreFault.FAILS, verb="get")

    with pytest.raises(StoreUnavailable):
        store.get("a")
    assert store.get("a") is None
    with pytest.raises(StoreFull):
        store.put_if_absent("a", b"1")
    with pytest.raises(StoreUnavailable) as caught:
        store.put_if_absent("a", b"1")
    assert not isinstance(caught.value, StoreFull)
    assert store.put_if_absent("a", b"1")


def test_healing_forgets_what_was_injected() -> None:
    store = MemoryStore()
    store.inject(StoreFault.FAILS, verb="list", count=100)

    store.heal()

    assert store.list("") == []


def test_calls_are_counted_with_those_that_fail() -> None:
    store = MemoryStore()
    store.inject(StoreFault.FAILS, verb="delete")

    with pytest.raises(StoreUnavailable):
        store.delete(["a"])
    store.put_if_absent("a", b"1")
    store.put_if_absent("a", b"1")

    assert store.calls == {"delete": 1, "put_if_absent": 2}
