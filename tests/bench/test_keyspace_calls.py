"""Stores that count, and the parts of `bench state` that are about them, in a small form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.state.catalog.layout import KeyspaceKeys
from ringpop_py.state.journal.codec import encode_record
from ringpop_py.state.journal.records import Entry, Group, Release
from ringpop_py.state.stores.memory import MemoryStore
from tests.bench.keyspaces import calls, handover, random_keys
from tests.bench.keyspaces.counted import CountedStore, StoreCall, counts_of

if TYPE_CHECKING:
    from pathlib import Path

KEYS = KeyspaceKeys("cluster", "counts", 1)
SMALL = calls.Extent(
    partitions=2, latency_s=0.001, committing_s=0.05, checkpoints_s=0.5, callers_count=2
)


def put(by: str, key: str, at: float, value: bytes = b"") -> StoreCall:
    return StoreCall(by, "put", key, value, len(value), 1, at, at)


def look(verb: str, key: str, at: float) -> StoreCall:
    return StoreCall("b", verb, key, b"", 0, 0, at, at)


def test_a_store_counts_calls_and_bytes_by_verb() -> None:
    store = CountedStore(MemoryStore())

    store.put_if_absent("k/1", b"value")
    store.put_if_absent("k/1", b"other")
    store.get("k/1")
    store.get("k/2")
    store.list("k/")
    store.delete(["k/1", "k/2"])
    store.delete([])

    assert counts_of(store.calls) == {"put": 2, "get": 2, "list": 1, "delete": 1}
    assert [call.bytes_count for call in store.calls] == [5, 5, 5, 0, 3, 6]
    assert [call.keys_count for call in store.calls] == [1, 1, 1, 0, 1, 2]


def test_a_store_that_answers_late_is_called_in_threads() -> None:
    prompt, late = (CountedStore(MemoryStore(), latency_s=s) for s in (0.0, 0.001))

    assert (prompt.quick, prompt.in_memory) == (True, True)
    assert (late.quick, late.in_memory) == (False, False)


def test_a_bucket_charges_for_puts_gets_and_each_thousand_keys_of_a_list() -> None:
    def usd(verb: str, keys_count: int = 1) -> float:
        return StoreCall("a", verb, "k", b"", 0, keys_count, 0.0, 0.0).usd

    charged = [usd(verb) for verb in ("put", "get", "delete")]
    charged += [usd("list", count) for count in (0, 1_000, 1_001)]

    assert charged == pytest.approx([5e-6, 4e-7, 0.0, 5e-6, 5e-6, 1e-5])


def test_a_hand_over_is_from_the_release_until_the_new_owner_has_looked_for_a_drop() -> None:
    journal, partition = KEYS.journal("j"), KEYS.partition(3)
    data, release = (
        encode_record(Group((Entry(3, 1, body),)), journal.slot(slot))
        for slot, body in ((1, [{}, [], {}, {}]), (2, Release("b")))
    )

    (found,) = handover.hand_overs_in(
        [
            look("list", partition.root, 1),
            look("get", "cluster/other", 2),
            put("a", journal.slot(1), 3, data),
            put("a", journal.slot(2), 5, release),
            look("list", partition.root, 6),
            look("get", journal.slot(2), 7),
            put("b", KEYS.journal("k").slot(1), 7.5, data),
            put("b", partition.claim(2), 8),
            look("get", KEYS.dropped, 9),
            look("list", partition.root, 10),
        ],
        KEYS,
    )

    assert [call.began_at for call in found.follow] == [1]
    assert [call.began_at for call in found.calls] == [5, 6, 7, 8, 9]


def test_calls_of_hand_overs_are_measured(tmp_path: Path) -> None:
    found = trio.run(handover.hand_overs, tmp_path, 2, handover.Before(checkpoints=True))
    rows = {row.name: row for row in handover.rows_of("here", found)}

    assert len(found) == 1
    assert rows["state.handover.here.store_calls.p50"].value > 0
    assert rows["state.handover.here.follow.p50"].value > 0


def test_calls_of_a_take_over_are_measured(tmp_path: Path) -> None:
    partitions_count, found = trio.run(handover.take_over, tmp_path, 2)

    assert partitions_count == 1
    assert counts_of(found)["put"] >= 2  # a seal and a claim


def test_the_calls_to_a_slow_folder_are_measured(tmp_path: Path) -> None:
    rows = {row.name: row for row in calls.of_a_folder(tmp_path, SMALL)}

    title = "state.calls.folder_1ms"
    assert rows[f"{title}.committing.store_calls"].peer_value == 2_000
    assert rows[f"{title}.committing.store_calls_a_put"].value > 0
    assert rows[f"{title}.with_checkpoints.bucket.million_puts"].value > 0


def test_without_a_service_a_row_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "find_spec", lambda _: None)
    monkeypatch.setattr(calls, "program_named", lambda _: None)

    rows = [*calls.of_a_bucket(SMALL), *calls.of_etcd(tmp_path, SMALL)]

    assert [row.peer for row in rows] == ["moto and obstore: not installed", "etcd: not installed"]


@pytest.mark.parametrize("kind", ["folder", "sqlite"])
def test_random_keys_are_put_and_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(random_keys, "PROGRAMS", ("no-such-program",))
    extent = random_keys.Extent(partitions=2, rounds=1, round_s=0.25)

    rows = {row.name: row for row in trio.run(random_keys.measured, tmp_path, kind, extent)}

    puts = rows[f"state.random.{kind}.puts.owner.64_callers"]
    assert puts.peer == "redis-benchmark -c 64 (appendfsync always): not installed"
    assert rows[f"state.random.{kind}.gets.owner.64_callers"].peer == "stale gets"
    assert min(row.value for row in rows.values()) > 0
