"""An owner's side of batches: what is ours and new is handled, hostile bodies change nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ringpop_py.base.dialect import NATIVE, RINGPOP
from ringpop_py.base.errors import ApplicationError, BadRequest
from ringpop_py.base.values.declared import decode
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.route.proxy.request import AppCall
from ringpop_py.state.rows import batches
from ringpop_py.state.rows.batches import (
    POSITION,
    ROWS_MAX,
    BatchReceiver,
    BatchReply,
    BatchSource,
    SeenRows,
    decode_batch,
    encode_batch,
    rows_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.dialect import Dialect

SOURCE = BatchSource("job", 3, 5)
RING = HashRing(["a", "b"])
KEYS = [f"key-{index}" for index in range(40)]
OURS = [index for index, key in enumerate(KEYS) if RING.lookup(key) == "a"]


def batch_of(keys: list[str | None], positions: list[int] | None = None) -> pa.RecordBatch:
    where = range(len(keys)) if positions is None else positions
    return pa.record_batch(
        {"key": pa.array(keys, pa.string()), POSITION: pa.array(where, pa.int32())}
    )


class Owner:
    """A receiver at node a, with all that it handled."""

    def __init__(self) -> None:
        self.ring = RING
        self.handled: list[str] = []
        self.fails = False
        self.receiver = BatchReceiver(self.take, "key", local="a", ring=lambda: self.ring)

    def take(self, batch: pa.RecordBatch) -> None:
        assert batch.schema.names == ["key"]
        if self.fails:
            message = "the application fails"
            raise RuntimeError(message)
        self.handled.extend(batch.column("key").to_pylist())

    def receive(self, batch: pa.RecordBatch, source: BatchSource = SOURCE) -> BatchReply:
        return self.receive_bytes(encode_batch(batch, source))

    def receive_bytes(self, body: bytes) -> BatchReply:
        return decode(BatchReply, self.receiver(AppCall("/batch", body)))


def test_rows_that_are_ours_are_handled_and_the_others_named() -> None:
    owner = Owner()

    reply = owner.receive(batch_of([*KEYS]))

    moved = tuple(index for index in range(40) if index not in OURS)
    assert reply == BatchReply(len(OURS), 0, moved, RING.checksum)
    assert owner.handled == [KEYS[index] for index in OURS]


@pytest.mark.parametrize(
    "other",
    [SOURCE._replace(job="other"), SOURCE._replace(partition=4), SOURCE._replace(sequence=6)],
)
def test_rows_of_another_source_are_other_rows(other: BatchSource) -> None:
    owner = Owner()
    owner.receive(batch_of([*KEYS]))

    assert owner.receive(batch_of([*KEYS]), other).repeated == 0


def measures_of(keys: list[str], **columns: pa.Array) -> pa.RecordBatch:
    positions = pa.array(range(len(keys)), pa.int32())
    return pa.record_batch({"key": pa.array(keys), **columns, POSITION: positions})


COUNTS = [*range(40)]
MORE = [count + 1 for count in COUNTS]
KINDS = [pa.int8(), pa.uint64(), pa.date32(), pa.timestamp("us", "UTC"), pa.duration("s")]


def owner_of_measures(dialect: Dialect) -> tuple[list[int], BatchReceiver]:
    """How many rows each batch had that was handled, and the receiver at the only node."""
    handled, ring = list[int](), HashRing(["a"], dialect=dialect)
    receiver = BatchReceiver(
        lambda rows: handled.append(rows.num_rows), "key", local="a", ring=lambda: ring
    )
    return handled, receiver


def taken(receiver: BatchReceiver, batch: pa.RecordBatch) -> BatchReply:
    return decode(BatchReply, receiver(AppCall("/batch", encode_batch(batch, SOURCE))))


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP])
def test_other_keys_in_the_places_of_handled_rows_are_refused(dialect: Dialect) -> None:
    handled, receiver = owner_of_measures(dialect)
    taken(receiver, measures_of(KEYS[:30]))

    reply = taken(receiver, measures_of([*KEYS[:10], *(f"other-{index}" for index in range(30))]))

    assert (reply.accepted, reply.repeated) == (0, 0)
    assert 15 <= reply.others <= 20  # of the 20 in places that were handled; 10 rows are new
    assert handled == [30]
    assert taken(receiver, measures_of(KEYS)) == BatchReply(10, 30, (), reply.ring)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_other_numbers_and_times_under_the_same_keys_are_refused(kind: pa.DataType) -> None:
    handled, receiver = owner_of_measures(NATIVE)
    rows = measures_of(KEYS, n=pa.array([None, *COUNTS[1:]], kind))
    taken(receiver, rows)

    assert taken(receiver, rows).repeated == 40
    for other in (pa.array([None, *MORE[1:]], kind), pa.array([0] * 40, kind)):
        assert taken(receiver, measures_of(KEYS, n=other)).others >= 35
    assert handled == [40]


def test_floats_and_texts_besides_the_key_are_not_compared() -> None:
    handled, receiver = owner_of_measures(NATIVE)
    for change in (0.0, 1e-9):
        floats, texts = pa.array([count + change for count in COUNTS]), pa.array([f"{change}"] * 40)
        taken(receiver, measures_of(KEYS, mean=floats, note=texts))

    assert handled == [40]


def test_rows_that_move_here_later_are_new() -> None:
    owner = Owner()
    moved = owner.receive(batch_of([*KEYS])).moved
    owner.ring = HashRing(["a"])

    reply = owner.receive(batch_of([KEYS[index] for index in moved], [*moved]))

    assert (reply.accepted, reply.repeated) == (len(moved), 0)
    assert sorted(owner.handled) == sorted(KEYS)


def test_a_node_outside_of_the_ring_owns_nothing() -> None:
    owner = Owner()
    owner.ring = HashRing(["b"])

    reply = owner.receive(batch_of([*KEYS]))

    assert reply.moved == tuple(range(40))
    assert owner.handled == []


def test_a_batch_that_the_application_failed_on_may_come_again() -> None:
    owner = Owner()
    owner.fails = True
    with pytest.raises(RuntimeError):
        owner.receive(batch_of([*KEYS]))
    owner.fails = False

    assert owner.receive(batch_of([*KEYS])).accepted == len(OURS)


def test_an_empty_batch_is_answered_and_not_handled() -> None:
    owner = Owner()
    owner.fails = True

    assert owner.receive(batch_of([])) == BatchReply(0, 0, (), RING.checksum)


class Oracle:
    """A receiver at node a that answers."""

    def __init__(self, answer: Callable[[pa.RecordBatch], Any]) -> None:
        self.receiver = BatchReceiver(answer, "key", local="a", ring=lambda: RING, answers=True)

    def ask(self, batch: pa.RecordBatch) -> BatchReply:
        body = encode_batch(batch, SOURCE._replace(asks=True))
        return decode(BatchReply, self.receiver(AppCall("/ask", body)))


def shouted(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"loud": pc.utf8_upper(batch.column("key"))})


def test_a_question_is_answered_however_often_it_comes() -> None:
    oracle = Oracle(shouted)

    replies = [oracle.ask(batch_of([*KEYS])) for _ in range(3)]

    for reply in replies:
        answer = rows_in(reply)
        assert answer is not None
        assert answer.to_pydict() == {"loud": [KEYS[index].upper() for index in OURS]}
        assert (reply.accepted, reply.repeated) == (len(OURS), 0)
        assert len(reply.moved) == 40 - len(OURS)


def test_an_owner_that_answers_accepts_plain_rows_as_well_and_returns_no_answer() -> None:
    owner = Oracle(shouted)

    body = encode_batch(batch_of([*KEYS]), SOURCE)
    reply = decode(BatchReply, owner.receiver(AppCall("/ask", body)))

    assert (reply.accepted, reply.answer) == (len(OURS), b"")


def test_a_question_about_nothing_of_ours_has_no_answer() -> None:
    oracle = Oracle(shouted)

    reply = oracle.ask(batch_of([key for key in KEYS if RING.lookup(key) == "b"]))

    assert (reply.accepted, reply.answer) == (0, b"")


def test_a_question_to_who_answers_none_is_refused_before_a_row_is_handled() -> None:
    owner = Owner()

    with pytest.raises(BadRequest, match="/batch accepts batches, but does not answer them"):
        owner.receive(batch_of([*KEYS]), SOURCE._replace(asks=True))

    assert owner.handled == []


def test_an_answer_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ANSWER_BYTES_MAX", 100)

    reply = Oracle(shouted).ask(batch_of([*KEYS]))

    assert (reply.accepted, reply.answer, reply.too_large) == (0, b"", True)
    assert len(reply.moved) == 40 - len(OURS)


def test_an_answer_that_is_not_rows_is_the_applications_error() -> None:
    with pytest.raises(ApplicationError, match="the handler returned dict, not rows"):
        Oracle(lambda batch: batch.to_pydict()).ask(batch_of([*KEYS]))


def test_an_answer_may_have_dictionaries() -> None:
    def coded(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"key": batch.column("key").dictionary_encode()})

    reply = Oracle(coded).ask(batch_of([*KEYS]))

    answer = rows_in(reply)
    assert answer is not None
    assert answer.column("key").to_pylist() == [KEYS[index] for index in OURS]


def test_binary_keys_are_those_of_the_text_with_these_bytes() -> None:
    handled: list[bytes] = []
    receiver = BatchReceiver(
        lambda batch: handled.extend(batch.column("key").to_pylist()),
        "key",
        local="a",
        ring=lambda: RING,
    )
    text = batch_of([*KEYS])
    batch = text.set_column(0, "key", pc.cast(text.column("key"), pa.binary()))

    reply = decode(BatchReply, receiver(AppCall("/batch", encode_batch(batch, SOURCE))))

    assert reply.accepted == len(OURS)
    assert handled == [KEYS[index].encode() for index in OURS]


@pytest.mark.parametrize("dialect", [NATIVE, RINGPOP])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str
)
def test_keys_have_the_hashes_of_the_ring(dialect: Dialect, kind: pa.DataType) -> None:
    texts = ["", "ключ", "😀", "x" * 1_000, *KEYS, *(f"user:{n}" for n in range(300))]
    ring = HashRing(["a", "b"], dialect=dialect)

    found = batches._hashes(ring, pa.array(["before", *texts]).cast(kind)[1:])

    assert found.tolist() == ring.hashes_of(texts).tolist()


def test_random_resends_count_each_row_once() -> None:
    owner, rng = Owner(), random.Random(11)

    for attempt in range(200):
        chosen = rng.sample(range(40), rng.randrange(41))
        source = SOURCE._replace(attempt=attempt)
        reply = owner.receive(batch_of([KEYS[index] for index in chosen], chosen), source)
        assert reply.accepted + reply.repeated + len(reply.moved) == len(chosen)

    assert sorted(owner.handled) == sorted(KEYS[index] for index in OURS)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({POSITION: pa.array([0], pa.int32())}), "no column 'key' of text"),
        (batch_of(["x"]).drop_columns([POSITION]), "no column '__position'"),
        (
            pa.record_batch({"key": pa.array([1]), POSITION: pa.array([0], pa.int32())}),
            "no column 'key' of text",
        ),
        (
            pa.record_batch({"key": ["x"], POSITION: pa.array([0], pa.int64())}),
            "of 32-bit integers",
        ),
        (
            pa.record_batch({"key": ["x"], POSITION: pa.array([None], pa.int32())}),
            "of 32-bit integers",
        ),
        (batch_of([None]), "rows without a key"),
        (batch_of(["x"], [-1]), "a position lies outside"),
        (batch_of(["x"], [ROWS_MAX]), "a position lies outside"),
        (batch_of(["x", "y"], [4, 4]), "the same position"),
        (batch_of(["x", "y", "z"], [4, 2, 4]), "the same position"),
        (
            pa.RecordBatch.from_arrays(
                [pa.array(["x"]), pa.array(["y"]), pa.array([0], pa.int32())],
                names=["key", "key", POSITION],
            ),
            "two columns of one name",
        ),
    ],
)
def test_a_batch_of_another_shape_is_refused(batch: pa.RecordBatch, message: str) -> None:
    owner = Owner()

    with pytest.raises(BadRequest, match=message):
        owner.receive(batch)

    assert owner.handled == []


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "do not name its source"),
        ({"job": "j", "partition": "0", "sequence": "x", "attempt": "0"}, "do not name its source"),
        ({"job": "", "partition": "0", "sequence": "0", "attempt": "0"}, "without a name"),
        ({"job": "j" * 257, "partition": "0", "sequence": "0", "attempt": "0"}, "without a name"),
        (
            {"job": b"\xff", "partition": "0", "sequence": "0", "attempt": "0"},
            "do not name its source",
        ),
        ({"job": "j", "partition": "-1", "sequence": "0", "attempt": "0"}, "from 0"),
        ({"job": "j", "partition": str(1 << 63), "sequence": "0", "attempt": "0"}, "from 0"),
    ],
)
def test_a_batch_from_nowhere_is_refused(metadata: dict[str, str], message: str) -> None:
    batch = batch_of(["x"]).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)

    with pytest.raises(BadRequest, match=message):
        decode_batch(sink.getvalue().to_pybytes(), "key")


def test_several_batches_in_one_body_are_refused() -> None:
    batch = batch_of(["x"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)

    with pytest.raises(BadRequest, match="a schema and one batch"):
        decode_batch(sink.getvalue().to_pybytes(), "key")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_refused_before_they_are_unpacked(codec: str) -> None:
    batch = batch_of(["x" * 10_000_000])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    allocated = pa.total_allocated_bytes()

    with pytest.raises(BadRequest, match="compressed"):
        decode_batch(sink.getvalue().to_pybytes(), "key")

    assert pa.total_allocated_bytes() - allocated < 1_000_000


def test_dictionaries_are_refused() -> None:
    batch = pa.record_batch({"key": pa.array(["x"]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)

    with pytest.raises(BadRequest, match="cast it to its plain values"):
        decode_batch(sink.getvalue().to_pybytes(), "key")


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROWS_MAX", 3)

    with pytest.raises(BadRequest, match="at most 3 rows"):
        Owner().receive(batch_of(["x"] * 4))


def test_mutated_bodies_are_refused_or_answered_and_nothing_else() -> None:
    owner, rng = Owner(), random.Random(5)
    sound = encode_batch(batch_of([*KEYS]), SOURCE)
    refused = 0

    for _ in range(5_000):
        body = bytearray(sound)
        for _ in range(rng.randrange(1, 8)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        cut = rng.randrange(len(body)) if rng.random() < 0.2 else len(body)
        try:
            owner.receive_bytes(bytes(body[:cut]))
        except BadRequest:
            refused += 1

    assert refused > 300


@pytest.mark.parametrize("body", [b"", b"\x00" * 8, b"\xff" * 64, b"ARROW1\x00\x00"])
def test_bytes_that_are_no_stream_are_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"a schema and one batch|not an Arrow IPC stream"):
        decode_batch(body, "key")


# What is remembered.


def marked(seen: SeenRows, source: BatchSource, *positions: int) -> None:
    where = np.array(positions, np.int32)
    seen.reserve(source, where)
    seen.mark(source, where, np.array([1 + position % 255 for position in positions], np.uint8))


def test_seen_rows_are_those_that_were_marked() -> None:
    seen = SeenRows()
    marked(seen, SOURCE, 0, 7, 8, 100)
    marked(seen, SOURCE, 2_000)

    marks = seen.marks(SOURCE, np.array([0, 1, 7, 8, 99, 100, 2_000, 9_999], np.int32))

    assert marks.tolist() == [1, 0, 8, 9, 0, 101, 1 + 2_000 % 255, 0]


def test_the_job_that_was_quiet_for_longest_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "JOBS_MAX", 2)
    seen, where = SeenRows(), np.array([1], np.int32)
    first, second, third = (SOURCE._replace(job=name) for name in "abc")
    marked(seen, first, 1)
    marked(seen, second, 1)
    marked(seen, first, 2)

    marked(seen, third, 1)

    assert [seen.marks(s, where).item() for s in (first, second, third)] == [2, 0, 2]


def test_memory_for_seen_rows_is_bounded() -> None:
    seen = SeenRows(bytes_max=3_000)
    marked(seen, SOURCE._replace(job="older"), 1_000)

    marked(seen, SOURCE, 2_000)

    older = seen.marks(SOURCE._replace(job="older"), np.array([1_000], np.int32))
    assert older.tolist() == [0]
    assert seen.marks(SOURCE, np.array([2_000], np.int32)).tolist() != [0]


def test_a_job_with_too_many_rows_is_refused_before_they_are_handled() -> None:
    owner = Owner()
    owner.receiver._seen = SeenRows(bytes_max=256)  # without room for an entry

    with pytest.raises(BadRequest, match="more rows than this node can remember"):
        owner.receive(batch_of([*KEYS]))

    assert owner.handled == []
