"""`state.catalog.high_water`: what is noted of journals, and what it shows to be lost."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.state.catalog import high_water as module
from ringpop_py.state.catalog.high_water import ReachedBook
from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.journal import codec
from ringpop_py.state.journal.records import Claim, Mark, Reached, Seal
from ringpop_py.state.stores.memory import MemoryStore, StoreFault

KEYS = KeyspaceKeys("c", "k", 1)


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)


def noted(store: MemoryStore) -> list[str]:
    return store.list(KEYS.all_reached)


def book(store: MemoryStore) -> ReachedBook:
    """A book of another node, which has just looked."""
    found = ReachedBook(store, KEYS)
    found.look()
    return found


def put_slot(store: MemoryStore, slot: int) -> None:
    key = KEYS.journal("j").slot(slot)
    store.put_if_absent(key, codec.encode_record(Seal("a"), key))


def put_mark(store: MemoryStore, slot: int) -> None:
    key = KEYS.journal("j").mark(slot)
    store.put_if_absent(key, codec.encode_mark(Mark({}), key))


def put_claim(store: MemoryStore, partition: int, epoch: int) -> None:
    key = KEYS.partition(partition).claim(epoch)
    store.put_if_absent(key, codec.encode_claim(Claim("a", "j", 1), key))


def test_only_the_newest_note_of_a_journal_is_kept_and_only_changes_are_written() -> None:
    store = MemoryStore()
    own = ReachedBook(store, KEYS)

    for slot in (1, 1, 2):
        own.note("j", Reached(slot, {0: 1}))
    own.note("other", Reached(7, {}))

    assert noted(store) == [KEYS.reached("j", 2), KEYS.reached("other", 1)]
    assert book(store).lost_at("j", 3) == ""


def test_a_note_whose_outcome_is_open_does_not_stand_in_the_way_of_the_next() -> None:
    store = MemoryStore()
    own = ReachedBook(store, KEYS)
    store.inject(StoreFault.LOSES_REPLY)
    with pytest.raises(StoreUnavailable):
        own.note("j", Reached(1, {}))

    own.note("j", Reached(1, {}))
    own.note("j", Reached(2, {}))

    assert KEYS.reached("j", 3) in noted(store)
    assert "slots up to 2" in book(store).lost_at("j", 2)


def test_a_slot_is_lost_if_it_was_won_and_is_neither_there_nor_covered() -> None:
    store = MemoryStore()
    ReachedBook(store, KEYS).note("j", Reached(5, {}))
    found = book(store)

    assert f"{KEYS.journal('j').slot(5)} is gone: slots up to 5 were won" in found.lost_at("j", 5)
    assert f"deleting {KEYS.reached('j', 1)}" in found.lost_at("j", 1)
    assert found.lost_at("j", 6) == "", "nobody knows of it"
    assert found.lost_at("unknown", 1) == ""
    put_slot(store, 5)
    assert found.lost_at("j", 5) == ""
    put_mark(store, 4)
    assert found.lost_at("j", 3) == "", "it was deleted, since checkpoints cover it"
    assert found.lost_at("j", 4)


def test_a_claim_is_lost_if_it_or_a_later_one_was_made_and_it_is_not_there() -> None:
    store = MemoryStore()
    ReachedBook(store, KEYS).note("j", Reached(1, {3: 2}))
    found = book(store)

    assert "partition 3 was claimed in epoch 2" in found.lost_claim(3, 1)
    assert found.lost_claim(3, 2)
    assert found.lost_claim(3, 3) == ""
    assert found.lost_claim(4, 1) == ""
    put_claim(store, 3, 2)
    assert found.lost_claim(3, 2) == ""


def test_a_note_goes_once_its_journal_is_covered_and_its_claims_are_named_by_a_later_one() -> None:
    store = MemoryStore()
    ReachedBook(store, KEYS).note("j", Reached(5, {0: 1, 1: 1}))
    ReachedBook(store, KEYS).note("later", Reached(1, {0: 2}))
    before = book(store).needless({"j": 6})
    ReachedBook(store, KEYS).note("last", Reached(1, {1: 3}))

    assert before == []
    assert book(store).needless({}) == []
    assert book(store).needless({"j": 5}) == [], "the mark does not cover the last slot"
    assert book(store).needless({"j": 6}) == [KEYS.reached("j", 1)]


def test_a_damaged_note_is_told_of_and_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.put_if_absent(KEYS.reached("j", 1), b"nonsense")

    assert book(store).lost_at("j", 1) == ""
    assert "losses that it would show are not noticed" in caplog.text


def test_a_store_that_does_not_answer_a_look_changes_nothing() -> None:
    store = MemoryStore()
    ReachedBook(store, KEYS).note("j", Reached(5, {}))
    found = book(store)
    store.inject(StoreFault.FAILS)

    found.look()

    assert found.lost_at("j", 5)
