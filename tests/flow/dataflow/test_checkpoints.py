"""The epochs of a dataflow and their objects in the store, while others put and tidy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import BodyError, StateDamaged, StoreUnavailable
from ringpop_py.base.values.declared import replace
from ringpop_py.flow.dataflow.checkpoints import (
    DELETED_AT_ONCE,
    EPOCHS_KEPT,
    Checkpoints,
    object_name,
    packed_rows,
    rows_of,
)
from ringpop_py.flow.exchange.epochs import EpochRecord, Output, StatePart, Worker
from ringpop_py.state.stores.memory import MemoryStore, StoreFault
from ringpop_py.state.tasks import Worker as StoreWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ME = Worker("a", "life")
ROOT = "c/dataflows/f/"


def a_record(epoch: int, *objects: str) -> EpochRecord:
    return EpochRecord(epoch, 0, (ME,), 16, (StatePart(0, 16, objects),), cut=epoch)


def state_of(epoch: int, life: str = "life") -> str:
    return object_name(epoch, "state", 0, life)


class Overtaken(MemoryStore):
    """A store in which others act between two calls of one that is slow.

    Attributes:
        before: what happens before the next call of a verb.
        deleted: the keys of each deletion.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], object]] = {}
        self.deleted: list[Sequence[str]] = []

    def get(self, key: str) -> bytes | None:
        self._let_others("get")
        return super().get(key)

    def delete(self, keys: Sequence[str]) -> None:
        self._let_others("delete")
        super().delete(keys)
        self.deleted.append(keys)

    def _let_others(self, verb: str) -> None:
        others = self.before.pop(verb, None)
        if others is not None:
            others()


def among(store: MemoryStore) -> Checkpoints:
    return Checkpoints(store, StoreWorker(store, 1), "c", "f")


async def with_epochs(checkpoints: Checkpoints, count: int) -> EpochRecord:
    """Put so many epochs, each with an object of its own; return the last one."""
    for epoch in range(count):
        await checkpoints.put_object(state_of(epoch), b"state")
        assert await checkpoints.put(a_record(epoch, state_of(epoch)))
    return a_record(count - 1, state_of(count - 1))


def names_in(store: MemoryStore, kind: str) -> list[str]:
    return [key.removeprefix(f"{ROOT}{kind}/") for key in store.list(f"{ROOT}{kind}/")]


async def test_objects_of_the_epoch_under_way_stay_whichever_node_tidies() -> None:
    store = MemoryStore()
    checkpoints = among(store)
    newest = await with_epochs(checkpoints, 5)
    under_way = [state_of(5), state_of(5, "another")]
    left_over = [state_of(4, "dead"), state_of(2, "dead")]
    for name in under_way + left_over:
        await checkpoints.put_object(name, b"payload")

    await checkpoints.tidy(newest)

    for name in under_way:
        assert await checkpoints.get_object(name) == b"payload"
    assert names_in(store, "objects") == sorted([*map(state_of, range(5)), *under_way])


async def test_the_last_epochs_stay_with_all_that_they_name_and_nothing_else_does() -> None:
    store = Overtaken()
    checkpoints = among(store)
    newest = await with_epochs(checkpoints, EPOCHS_KEPT + 7)

    await checkpoints.tidy(newest)

    kept = range(7, EPOCHS_KEPT + 7)
    assert names_in(store, "epochs") == [f"epoch-{epoch:012d}" for epoch in kept]
    assert names_in(store, "objects") == [*map(state_of, kept)]
    first, *_ = store.deleted
    assert all(key.startswith(f"{ROOT}epochs/") for key in first)  # no record without objects


async def test_an_object_that_an_old_and_a_kept_epoch_name_stays() -> None:
    checkpoints = among(MemoryStore())
    await checkpoints.put_object(state_of(0), b"whole")
    output = Output(0, 0, object_name(0, "output", 0, "life"))
    await checkpoints.put_object(output.place, packed_rows([("k", 1)]))
    for epoch in range(EPOCHS_KEPT + 5):
        record = a_record(epoch, state_of(0))
        await checkpoints.put(replace(record, outputs=(output,)))

    await checkpoints.tidy(a_record(EPOCHS_KEPT + 4))

    assert await checkpoints.get_object(state_of(0)) == b"whole"
    assert rows_of(await checkpoints.get_object(output.place)) == [("k", 1)]


async def test_many_leftovers_are_deleted_all_and_some_at_a_time() -> None:
    store = Overtaken()
    checkpoints = among(store)
    newest = await with_epochs(checkpoints, 1)
    count = 2 * DELETED_AT_ONCE + 3
    for number in range(count):
        await checkpoints.put_object(object_name(0, "state", number, "dead"), b"")

    await checkpoints.tidy(newest)

    assert names_in(store, "objects") == [state_of(0)]
    assert [len(keys) for keys in store.deleted] == [DELETED_AT_ONCE, DELETED_AT_ONCE, 3]


async def test_a_tidy_that_fails_half_way_loses_nothing_and_is_done_by_the_next() -> None:
    store = Overtaken()
    checkpoints = among(store)
    newest = await with_epochs(checkpoints, EPOCHS_KEPT + 3)
    store.before["delete"] = lambda: store.inject(StoreFault.LOSES_REPLY, verb="delete")

    with pytest.raises(StoreUnavailable):
        await checkpoints.tidy(newest)
    assert len(names_in(store, "epochs")) == EPOCHS_KEPT
    assert len(names_in(store, "objects")) == EPOCHS_KEPT + 3
    await checkpoints.tidy(newest)

    assert names_in(store, "objects") == [*map(state_of, range(3, EPOCHS_KEPT + 3))]


async def test_a_leader_that_is_behind_deletes_nothing_that_newer_epochs_need() -> None:
    """It tidies with a record that was the newest before a long pause."""
    store = MemoryStore()
    checkpoints = among(store)
    await with_epochs(checkpoints, EPOCHS_KEPT + 10)

    await checkpoints.tidy(a_record(2, state_of(2)))

    assert names_in(store, "epochs")[0] == "epoch-000000000002"
    assert names_in(store, "objects") == [*map(state_of, range(2, EPOCHS_KEPT + 10))]


async def test_the_newest_epoch_is_found_though_others_go_on_and_tidy_meanwhile() -> None:
    store = Overtaken()
    checkpoints = among(store)
    assert await checkpoints.newest() is None
    await with_epochs(checkpoints, 3)

    gone = f"{ROOT}epochs/epoch-000000000002"
    store.before["get"] = lambda: store.delete([gone])
    assert await checkpoints.newest() == a_record(1, state_of(1))


async def test_a_record_that_is_known_is_not_read_again() -> None:
    store = MemoryStore()
    checkpoints = among(store)
    known = await with_epochs(checkpoints, 3)
    reads = store.calls["get"]

    assert await checkpoints.newest(known) is known
    assert store.calls["get"] == reads
    assert await checkpoints.newest(a_record(1)) == known


async def test_a_number_is_put_once_and_an_object_that_is_gone_is_named() -> None:
    store = MemoryStore()
    checkpoints = among(store)
    assert await checkpoints.put(a_record(0, "mine"))
    assert not await checkpoints.put(a_record(0, "another's"))
    assert await checkpoints.newest() == a_record(0, "mine")

    with pytest.raises(StateDamaged, match=f"{ROOT}objects/nothing is missing"):
        await checkpoints.get_object("nothing")
    store.put_if_absent(f"{ROOT}objects/broken", b"not what was put")
    with pytest.raises(StateDamaged, match=f"{ROOT}objects/broken"):
        await checkpoints.get_object("broken")


@pytest.mark.parametrize("rows", [7, [["k"]], [["k", 1, 2]], ["kv"], {"k": 1}])
def test_malformed_results_are_refused(rows: object) -> None:
    with pytest.raises(BodyError):
        rows_of(packed_rows(rows))  # type: ignore[arg-type]
