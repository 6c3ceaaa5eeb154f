"""Values in pieces: what a store that takes small values only has to do is done all the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import StateDamaged, StoreFull, StoreRefused, StoreUnavailable
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from ringpop_py.state.stores.pieces import (
    CUT_KEY_CHARACTERS_MAX,
    PIECES,
    SWEEP_S,
    PiecedStore,
    in_pieces,
)
from tests.state.stores.conformance import CHECKS, Check, name_of, pieces_in

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_MAX = 1_000
LARGE = os.urandom(5 * BYTES_MAX)
KEY = "c/keyspaces/k/a"


class Pieces:
    """A store, and the small one within it.

    Attributes:
        now: what its clock shows.
    """

    def __init__(self) -> None:
        self.inner = MemoryStore(value_bytes_max=BYTES_MAX)
        self.now = 0.0
        self.store = PiecedStore(self.inner, BYTES_MAX, lambda: self.now)

    def keys(self) -> list[str]:
        return pieces_in(self.inner, "c/")

    def sweep(self) -> None:
        self.now += SWEEP_S
        self.store.delete(["c/other"])


@pytest.fixture
def pieces() -> Pieces:
    return Pieces()


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
@pytest.mark.parametrize("in_threads", [False, True], ids=["inline", "threads"])
def test_it_is_a_store(check: Check, *, in_threads: bool) -> None:
    inner = MemoryStore(value_bytes_max=100_000)
    inner.in_memory = not in_threads  # with threads otherwise

    check(lambda: in_pieces(inner))


def test_a_store_without_a_limit_is_left_as_it_is() -> None:
    store = MemoryStore()

    assert in_pieces(store) is store
    assert in_pieces(cut := PiecedStore(store, 1)) is cut


def test_values_that_fit_are_put_as_they_are_and_cost_no_further_call(pieces: Pieces) -> None:
    assert pieces.store.put_if_absent(KEY, bytes(BYTES_MAX))
    assert pieces.store.get(KEY) == bytes(BYTES_MAX)

    assert pieces.inner.calls == {"put_if_absent": 1, "get": 1}
    assert pieces.inner.list("") == [KEY]


@pytest.mark.parametrize("fault", [StoreFault.FAILS, StoreFault.LOSES_REPLY, StoreFault.FULL])
@pytest.mark.parametrize("puts_before", [0, 3])
def test_a_piece_that_cannot_be_put_leaves_nothing(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch, fault: StoreFault, puts_before: int
) -> None:
    inject_after(pieces.inner, monkeypatch, puts_before, fault)

    with pytest.raises(StoreUnavailable) as caught:
        pieces.store.put_if_absent(KEY, LARGE)

    assert caught.value.took_effect == "no"
    assert isinstance(caught.value, StoreFull) is (fault is StoreFault.FULL)
    assert pieces.inner.list("") == []
    assert pieces.store.put_if_absent(KEY, LARGE)


@pytest.mark.parametrize("fault", [StoreFault.LATE, StoreFault.LOSES_REPLY])
def test_while_the_outcome_of_the_head_is_open_its_pieces_stay(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch, fault: StoreFault
) -> None:
    inject_after(pieces.inner, monkeypatch, 6, fault)

    with pytest.raises(StoreUnavailable) as caught:
        pieces.store.put_if_absent(KEY, LARGE)
    pieces.inner.land_late()

    assert caught.value.took_effect == "unknown"
    assert pieces.store.get(KEY) == LARGE
    assert pieces.store.put_if_absent(KEY, LARGE) is False


def test_a_head_that_is_refused_leaves_nothing(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject_after(pieces.inner, monkeypatch, 6, StoreFault.FULL)

    with pytest.raises(StoreFull):
        pieces.store.put_if_absent(KEY, LARGE)

    assert pieces.inner.list("") == []


def test_pieces_stay_if_a_bug_leaves_it_open_whether_the_head_is_there(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = pieces.inner.put_if_absent

    def buggy(key: str, value: bytes) -> bool:
        return put(key, value) and (key != KEY or bool(1 / 0))

    monkeypatch.setattr(pieces.inner, "put_if_absent", buggy)

    with pytest.raises(ZeroDivisionError):
        pieces.store.put_if_absent(KEY, LARGE)

    assert pieces.store.get(KEY) == LARGE


def inject_after(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, count: int, fault: StoreFault
) -> None:
    put, left = store.put_if_absent, count

    def counted(key: str, value: bytes) -> bool:
        nonlocal left
        if left == 0:
            store.inject(fault)
        left -= 1
        return put(key, value)

    monkeypatch.setattr(store, "put_if_absent", counted)


def test_a_put_of_a_key_that_is_there_puts_no_pieces(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, b"small")

    assert pieces.store.put_if_absent(KEY, LARGE) is False

    assert pieces.inner.calls["put_if_absent"] == 1
    assert pieces.store.get(KEY) == b"small"


@pytest.mark.parametrize("others_value", [None, b"of another"])
def test_a_put_whose_pieces_were_swept_while_it_was_stopped_takes_itself_back(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch, others_value: bytes | None
) -> None:
    put = pieces.inner.put_if_absent

    def stopped_before_head(key: str, value: bytes) -> bool:
        if key != KEY:
            return put(key, value)
        pieces.sweep()
        pieces.sweep()
        won = put(key, value)
        if others_value is not None:  # it was deleted, and put again, before the put goes on
            pieces.inner.delete([key])
            put(key, others_value)
        return won

    with monkeypatch.context() as patched:
        patched.setattr(pieces.inner, "put_if_absent", stopped_before_head)
        if others_value is None:
            with pytest.raises(StoreUnavailable, match=f"{KEY}: its pieces were deleted") as caught:
                pieces.store.put_if_absent(KEY, LARGE)
            assert caught.value.took_effect == "no"
        else:
            assert pieces.store.put_if_absent(KEY, LARGE)

    assert pieces.store.get(KEY) == others_value
    assert pieces.keys() == []


def test_a_deletion_that_stops_halfway_leaves_pieces_for_a_sweep(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    pieces.inner.delete([KEY])

    assert pieces.store.get(KEY) is None
    pieces.sweep()
    assert len(pieces.keys()) == 6
    pieces.sweep()
    assert pieces.keys() == []


def test_a_deletion_spares_the_pieces_of_another_put_that_is_under_way(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, is_first = pieces.inner.put_if_absent, True

    def deleted_before_head(key: str, value: bytes) -> bool:
        nonlocal is_first
        if key == KEY and is_first:
            is_first = False
            assert PiecedStore(pieces.inner, BYTES_MAX).put_if_absent(KEY, LARGE[::-1])
            pieces.store.delete([KEY])
        return put(key, value)

    monkeypatch.setattr(pieces.inner, "put_if_absent", deleted_before_head)

    assert pieces.store.put_if_absent(KEY, LARGE)
    assert pieces.store.get(KEY) == LARGE
    assert len(pieces.keys()) == 6


def test_a_value_that_is_deleted_while_it_is_read_is_absent(
    pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    get = pieces.inner.get

    def deleted_after_head(key: str) -> bytes | None:
        value = get(key)
        if key == KEY and value is not None:
            monkeypatch.setattr(pieces.inner, "get", get)
            pieces.store.delete([KEY])
        return value

    monkeypatch.setattr(pieces.inner, "get", deleted_after_head)

    assert pieces.store.get(KEY) is None


def gone(_: bytes) -> None:
    return None


def flipped(value: bytes) -> bytes:
    return value[:-20] + bytes([value[-20] ^ 1]) + value[-19:]


@pytest.mark.parametrize("spoil", [gone, flipped], ids=name_of)
@pytest.mark.parametrize("which", range(6))
def test_a_piece_that_is_gone_or_changed_is_named_and_nothing_is_returned(
    pieces: Pieces, which: int, spoil: Callable[[bytes], bytes | None]
) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    key = pieces.keys()[which]
    replace(pieces.inner, key, spoil)

    with pytest.raises(StateDamaged, match=KEY) as caught:
        pieces.store.get(KEY)

    assert key.rsplit("/", 2)[1] in str(caught.value)


def test_pieces_of_a_head_that_cannot_be_read_are_kept(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    replace(pieces.inner, KEY, flipped)

    with pytest.raises(StateDamaged, match=KEY):
        pieces.store.get(KEY)
    pieces.sweep()
    pieces.sweep()
    assert len(pieces.keys()) == 6
    replace(pieces.inner, KEY, flipped)
    assert pieces.store.get(KEY) == LARGE


def replace(store: MemoryStore, key: str, spoil: Callable[[bytes], bytes | None]) -> None:
    value = store.get(key)
    assert value is not None
    store.delete([key])
    other = spoil(value)
    if other is not None:
        store.put_if_absent(key, other)


def test_a_piece_of_one_value_is_not_taken_for_one_of_another(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    first, second, *_ = pieces.keys()
    value = pieces.inner.get(second)
    assert value is not None
    replace(pieces.inner, first, lambda _: value)

    with pytest.raises(StateDamaged, match="under another key"):
        pieces.store.get(KEY)


def test_a_copy_under_another_name_of_the_cluster_can_be_read(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    for key in pieces.inner.list("c/"):
        value = pieces.inner.get(key)
        assert value is not None
        pieces.inner.put_if_absent(f"copy/{key.removeprefix('c/')}", value)

    assert pieces.store.get(KEY.replace("c/", "copy/", 1)) == LARGE


def test_a_sweep_that_fails_does_not_fail_the_call_that_made_it(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, LARGE)
    pieces.inner.delete([KEY])
    pieces.sweep()
    pieces.inner.inject(StoreFault.FAILS, verb="list")

    pieces.sweep()

    assert len(pieces.keys()) == 6
    pieces.sweep()
    assert pieces.keys() == []


def test_a_key_that_is_too_long_for_pieces_is_refused_by_the_store_itself(pieces: Pieces) -> None:
    longest = "/".join(["x" * 99] * 9)[:CUT_KEY_CHARACTERS_MAX]

    assert pieces.store.put_if_absent(longest, LARGE)
    with pytest.raises(StoreRefused, match="too large"):
        pieces.store.put_if_absent(f"{longest}x", LARGE)
    pieces.store.delete([longest, f"{longest}x"])

    assert pieces.inner.list("") == []


def test_pieces_lie_beside_what_the_cluster_has(pieces: Pieces) -> None:
    pieces.store.put_if_absent(KEY, LARGE)

    keys = pieces.keys()

    assert all(key.startswith(f"c/{PIECES}/keyspaces/k/a/") for key in keys)
    assert [key[-7:] for key in keys] == [f"/{number:06}" for number in range(6)]
