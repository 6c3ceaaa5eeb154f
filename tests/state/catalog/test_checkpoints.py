"""Checkpoints as files: what is written is read, by others too, and damage is known for one."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgpack
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringpop_py.base.errors import OperationIdReused, StateDamaged
from ringpop_py.base.values.operations import Change, Outcome, Write
from ringpop_py.state.catalog import checkpoints
from ringpop_py.state.catalog.checkpoints import (
    CHAIN_MAX,
    CHUNK_BYTES,
    SEAL,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    whole_is_due,
)
from ringpop_py.state.journal.records import Slot
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_py.state.table.entries import FrozenEntries
from ringpop_py.state.table.keyed import KeyedState, Snapshot
from ringpop_py.state.table.sessions import WINDOW, record_of
from tests.state.table.reading import rows_in

SESSIONS = (
    ("client", (7, 0, b"")),
    (
        "other",
        (9_000, (1 << 4_096) - 1, record_of(8_999, b"8 bytes.") + record_of(9_000, b"x" * 8)),
    ),
)
VALUES = {f"key-{index}": bytes([index]) * index for index in range(50)} | {"é": b""}


def whole(values: dict[str, bytes] | None = None) -> Checkpoint:
    entries = FrozenEntries(VALUES if values is None else values)
    snapshot = Snapshot(3, None, entries, (), SESSIONS, {"file": b"\x05"}, b"changes")
    return Checkpoint("flights", 2, 17, Slot(3, 4), (), snapshot)


def increment(values: dict[str, bytes], deleted: tuple[str, ...]) -> Checkpoint:
    snapshot = Snapshot(4, 3, FrozenEntries(values), deleted, SESSIONS, {})
    return Checkpoint("flights", 2, 17, Slot(3, 9), (Slot(2, 1), Slot(3, 4)), snapshot)


def entries_of(checkpoint: Checkpoint) -> dict[str, bytes]:
    pieces = checkpoint.snapshot.entries.pieces(1 << 20)
    return {key: value for piece in pieces for key, value in zip(*piece, strict=True)}


def about(checkpoint: Checkpoint) -> tuple[object, ...]:
    snapshot = checkpoint.snapshot
    return (
        (checkpoint.keyspace, checkpoint.generation, checkpoint.partition),
        (checkpoint.slot, checkpoint.builds_on, snapshot.since is None),
        (entries_of(checkpoint), sorted(snapshot.deleted), snapshot.sessions, snapshot.offsets),
        snapshot.changes,
    )


@pytest.mark.parametrize(
    "checkpoint",
    [
        whole(),
        whole({}),
        increment({"a": b"1"}, ("b", "c")),
        increment({}, ("b",)),
        increment({"a": b"1"}, ()),
        increment({}, ()),
        whole({"a": b"1" * (2 * CHUNK_BYTES), "b": b"2" * CHUNK_BYTES}),
    ],
    ids=["whole", "empty", "increment", "deleted-only", "changed-only", "nothing-new", "large"],
)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    decoded = decode_checkpoint(encode_checkpoint(checkpoint))

    assert about(decoded) == about(checkpoint)
    assert len(decoded.snapshot.entries) == len(checkpoint.snapshot.entries)


def test_batches_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PIECE_BYTES", 300)

    data = encode_checkpoint(whole())

    sizes = [batch.nbytes for batch in batches_of(data)]
    assert len(sizes) > 5
    assert max(sizes) < 300
    assert about(decode_checkpoint(data)) == about(whole())


def batches_of(data: bytes) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(data)
    return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def test_a_state_is_restored_from_the_files_of_a_chain() -> None:
    state = KeyedState(msgpack.packb, Aggregations())
    files, slots, mark = [], list[Slot](), None
    for step in range(3):
        changes = [Change(f"key-{n}", "put", step) for n in range(step, 20, step + 1)]
        deleted = Change(f"key-{step}", "delete")
        body, _ = state.stage([Write("client", step, (*changes, deleted))])
        state.apply(body)
        snapshot = state.snapshot(since=mark)
        slot = Slot(1, step + 1)
        files.append(
            encode_checkpoint(Checkpoint("ks", 1, 0, slot, tuple(slots), snapshot)),
        )
        slots.append(slot)
        mark = snapshot.mark

    other = KeyedState(msgpack.packb, Aggregations())
    other.restore([decode_checkpoint(file).snapshot for file in files])

    assert rows_in(other) == rows_in(state)
    assert other.snapshot().sessions == state.snapshot().sessions


def ordered(key: str, digest: bytes) -> Write:
    return Write("order 7", 0, (Change(key, "put", 1),), None, digest)


def test_the_meaning_of_an_id_is_known_after_a_restart_from_files() -> None:
    state = KeyedState(msgpack.packb, Aggregations())
    body, _ = state.stage([ordered("a", b"12345678")])
    state.apply(body)
    file = encode_checkpoint(Checkpoint("ks", 1, 0, Slot(1, 1), (), state.snapshot()))

    other = KeyedState(msgpack.packb, Aggregations())
    other.restore([decode_checkpoint(file).snapshot])
    _, (changed, same) = other.stage([ordered("b", b"87654321"), ordered("a", b"12345678")])

    assert isinstance(changed, OperationIdReused)
    assert same == Outcome((1,), repeated=True)


def test_any_reader_of_arrow_opens_the_file() -> None:
    data = encode_checkpoint(increment({"a": b"\x01"}, ("b",)))

    table = pa.ipc.open_file(io.BytesIO(data)).read_all()
    frame = pd.read_feather(io.BytesIO(data))

    assert table.to_pydict() == {"key": ["a", "b"], "value": [b"\x01", None], "deleted": [0, 1]}
    assert table.schema.metadata[b"keyspace"] == b"flights"
    assert table.schema.metadata[b"builds_on"] == b"2:1 3:4"
    assert list(frame["key"]) == ["a", "b"]


# Damage.


def test_each_byte_of_a_file_counts() -> None:
    data = encode_checkpoint(whole({"a": b"value", "b": b"other"}))

    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 1
        with pytest.raises(StateDamaged):
            decode_checkpoint(bytes(damaged))


def test_a_file_that_was_torn_off_is_refused() -> None:
    data = encode_checkpoint(whole({"a": b"value"}))

    for length in range(len(data)):
        with pytest.raises(StateDamaged):
            decode_checkpoint(data[:length])


def resealed(data: bytes) -> bytes:
    """*data* with the checksum of what it is now."""
    at = data.rindex(SEAL)
    return checkpoints._sealed(io.BytesIO(data[:at] + data[at + 16 :]))


SAMPLES = [encode_checkpoint(whole()), encode_checkpoint(increment({"a": b"1"}, ("b",)))]


@settings(max_examples=300)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255))))
@example(SAMPLES[0], [(8 / len(SAMPLES[0]), 255)])
def test_an_attacker_who_can_make_the_checksum_is_refused_with_the_same_error(
    data: bytes, flips: list[tuple[float, int]]
) -> None:
    seal_at = data.rindex(SEAL)
    hostile = bytearray(data)
    for place, flip in flips:
        hostile[int(place * (seal_at - 1))] ^= flip

    try:
        checkpoint = decode_checkpoint(resealed(bytes(hostile)))
        entries_of(checkpoint)
    except StateDamaged:
        return

    assert len(checkpoint.snapshot.entries) <= len(VALUES)


def file_of(
    batch: pa.RecordBatch,
    metadata: dict[str, str | None] | None = None,
    options: pa.ipc.IpcWriteOptions | None = None,
    batch_count: int = 1,
) -> bytes:
    """A well-formed file of someone else's making, sealed."""
    rows = batch.num_rows * batch_count
    texts = {
        "ringpop": "checkpoint",
        "version": "1",
        "keyspace": "ks",
        "generation": "1",
        "partition": "0",
        "slot": "1:5",
        "builds_on": "",
        "entries": str(rows),
        "deleted": "0",
        "sessions": packed([]),
        "offsets": packed({}),
        "changes": "",
    }
    texts |= {name: text for name, text in (metadata or {}).items() if text is not None}
    gone = [name for name, text in (metadata or {}).items() if text is None]
    kept = {name: text for name, text in texts.items() if name not in gone}
    schema = batch.schema.with_metadata(kept)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for _ in range(batch_count):
            writer.write_batch(batch.cast(schema))
    return checkpoints._sealed(sink)


def packed(value: object) -> str:
    return base64.b64encode(msgpack.packb(value)).decode()


def batch_of(keys: list[Any], values: list[Any], **columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(
        {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.binary()), **columns}
    )


GOOD = batch_of(["a"], [b"1"])


def test_a_file_of_someone_elses_making_is_taken_if_it_is_well_formed() -> None:
    checkpoint = decode_checkpoint(file_of(GOOD, batch_count=2))

    assert (checkpoint.slot, len(checkpoint.snapshot.entries)) == (Slot(1, 5), 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ringpop", "something"),
        ("ringpop", None),
        ("version", "2"),
        ("keyspace", None),
        ("generation", "-1"),
        ("generation", "first"),
        ("partition", str(1 << 63)),
        ("slot", "5"),
        ("slot", "1:2:3"),
        ("builds_on", "1:1"),
        ("entries", "2"),
        ("deleted", "1"),
        ("sessions", "&"),
        ("sessions", packed({})),
        ("sessions", packed(["client"])),
        ("sessions", packed([["client", 1]])),
        ("sessions", packed([["client", 1, b"x" * 513]])),
        ("sessions", packed([["client", -1, b""]])),
        ("sessions", packed([[b"client", 1, b""]])),
        ("sessions", packed([["client", 1, b"", "text"]])),
        ("sessions", packed([["client", 1, b"", b"x" * 15]])),
        ("sessions", packed([["client", 1, b"", b"x" * 16 * (WINDOW + 2)]])),
        ("offsets", packed({"file": 1})),
        ("offsets", base64.b64encode(b"\xc1").decode()),
        ("offsets", None),
        ("changes", "&"),
        ("changes", None),
    ],
)
def test_metadata_that_make_no_sense_are_refused(name: str, text: str | None) -> None:
    with pytest.raises(StateDamaged):
        decode_checkpoint(file_of(GOOD, {name: text}))


@pytest.mark.parametrize("builds_on", ["1:5", "2:1", "1:2 1:1", "1:1 1:1"])
def test_the_base_of_a_checkpoint_comes_before_it_in_order(builds_on: str) -> None:
    batch = batch_of(["a"], [b"1"], deleted=pa.array([False]))

    with pytest.raises(StateDamaged, match="ascending order"):
        decode_checkpoint(file_of(batch, {"builds_on": builds_on}))


@pytest.mark.parametrize(
    "batch",
    [
        batch_of([None], [b"1"]),
        batch_of(["a"], [None]),
        batch_of(["a"], [b"1"], more=pa.array([1])),
        batch_of(["a"], [b"1"], deleted=pa.array([False])),
        pa.record_batch({"key": pa.array(["a"])}),
        pa.record_batch({"key": pa.array([1]), "value": pa.array([b"1"])}),
        pa.record_batch(
            {"key": pa.array(["a"]).dictionary_encode(), "value": pa.array([b"1"], pa.binary())}
        ),
    ],
    ids=["no-key", "no-value", "more", "whole-with-deleted", "less", "number", "dictionary"],
)
def test_rows_of_another_kind_are_refused(batch: pa.RecordBatch) -> None:
    with pytest.raises(StateDamaged):
        decode_checkpoint(file_of(batch))


def test_a_row_that_is_neither_deleted_nor_not_is_refused() -> None:
    batch = batch_of(["a"], [b"1"], deleted=pa.array([None], pa.bool_()))

    with pytest.raises(StateDamaged, match="neither"):
        decode_checkpoint(file_of(batch, {"builds_on": "1:1"}))


def test_deleted_and_other_rows_may_stand_in_one_batch() -> None:
    batch = batch_of(["a", "b"], [b"1", None], deleted=pa.array([False, True]))

    checkpoint = decode_checkpoint(
        file_of(batch, {"builds_on": "1:1", "entries": "1", "deleted": "1"})
    )

    assert (entries_of(checkpoint), checkpoint.snapshot.deleted) == ({"a": b"1"}, ("b",))


def test_a_compressed_batch_is_refused_before_it_is_unpacked() -> None:
    bomb = batch_of(["a"], [bytes(10 << 20)])
    data = file_of(bomb, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert len(data) < 10_000
    before = pa.total_allocated_bytes()

    with pytest.raises(StateDamaged, match="compressed batches are not accepted"):
        decode_checkpoint(data)

    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("data", [b"", b"ARROW1", bytes(100), SAMPLES[0][::-1]])
def test_a_malformed_file_is_refused(data: bytes) -> None:
    with pytest.raises(StateDamaged):
        decode_checkpoint(data)


def test_an_arrow_file_without_a_seal_is_refused() -> None:
    at = SAMPLES[0].rindex(SEAL)

    with pytest.raises(StateDamaged, match="no seal"):
        decode_checkpoint(SAMPLES[0][:at] + SAMPLES[0][at + 16 :])


def test_a_stream_without_a_schema_is_refused() -> None:
    head, end = b"ARROW1\0\0" + b"\xff\xff\xff\xff" + bytes(4), bytes(4) + b"ARROW1"

    with pytest.raises(StateDamaged, match="begins with its schema"):
        decode_checkpoint(checkpoints._sealed(io.BytesIO(head + end)))


# When which kind is written.


def test_the_first_checkpoint_is_a_whole_one_and_small_increments_follow() -> None:
    assert whole_is_due([])
    assert not whole_is_due([1_000])
    assert not whole_is_due([1_000, 50, 50])


def test_a_chain_has_an_end() -> None:
    assert not whole_is_due([1_000] + [1] * (CHAIN_MAX - 2))
    assert whole_is_due([1_000] + [1] * (CHAIN_MAX - 1))


def test_increments_of_half_the_whole_are_enough() -> None:
    assert not whole_is_due([1_000, 300, 200])
    assert whole_is_due([1_000, 300, 201])
