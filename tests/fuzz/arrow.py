"""Arrow data that is spoilt, at each place where a batch enters."""

from __future__ import annotations

import io
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ringpop_py.base.errors import RingpopError
from ringpop_py.base.values.arrow import schema_in, table_in
from ringpop_py.flow.dataflow.batches import SCHEMA, body_of, rows_in
from ringpop_py.flow.shuffle.sorting.cuts import cuts_of, points_of, slices_of, summary_of
from ringpop_py.flow.shuffle.sorting.frame_builder import check_frame
from ringpop_py.flow.shuffle.sorting.frames import Frame, packed, unpacked
from ringpop_py.flow.shuffle.sorting.order import Order
from ringpop_py.state.catalog import checkpoints
from ringpop_py.state.catalog.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint
from ringpop_py.state.journal.records import Slot
from ringpop_py.state.rows.batches import POSITION, BatchSource, decode_batch, encode_batch
from ringpop_py.state.rows.stagefile import Chunk, decode_stage, encode_stage
from ringpop_py.state.table.entries import FrozenEntries
from ringpop_py.state.table.keyed import Snapshot
from tests.fuzz.mutations import spoilt
from tests.fuzz.node import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS: Final = 50
ODD: Final = (0, 1, -1, 7, 4_000, 1 << 20, -(1 << 20), (1 << 31) - 1, -(1 << 31))
"""What takes the place of an offset or a length, or is added to it."""


class Door(NamedTuple):
    """A place where Arrow data enters.

    Attributes:
        samples: data that are spoilt.
        enter: opens them, and uses all of what it accepts.
    """

    samples: Sequence[bytes]
    enter: Callable[[bytes], object]


class Entered(NamedTuple):
    """How many were accepted and refused, by door; and each bug, with how often it was found."""

    accepted: Counter[str]
    refused: Counter[str]
    bugs: Counter[str]


def spoil(count: int, seed: int) -> Entered:
    """Bring *count* spoilt samples to their doors."""
    rng = random.Random(seed)
    doors, found = doors_of(table_of(ROWS)), Entered(Counter(), Counter(), Counter())
    for _ in range(count):
        name, door = rng.choice(list(doors.items()))
        try:
            door.enter(_spoilt(rng.choice(door.samples), rng))
        except RingpopError:
            found.refused[name] += 1
        except Exception as error:  # noqa: BLE001 - what is looked for
            found.bugs[f"{name}: {type(error).__name__}: {error}"[:200]] += 1
        else:
            found.accepted[name] += 1
    return found


def _spoilt(data: bytes, rng: random.Random) -> bytes:
    """Return *data* with changes of its numbers or bits, or of any kind."""
    if rng.random() < 0.2:
        return spoilt(data, rng)
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        size = rng.choice((1, 4, 4, 8))
        # Arrow aligns its numbers, in the description of a batch and in its columns.
        at = rng.randrange(max(1, len(changed) - size)) // size * size
        if size == 1:  # a bitmap, for instance
            changed[at] ^= 1 << rng.randrange(8)
            continue
        former = int.from_bytes(changed[at : at + size], "little", signed=True)
        value = rng.choice(ODD) + (former if rng.random() < 0.5 else 0)
        changed[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.05 else changed)


def table_of(rows: int) -> pa.Table:
    """Return a table with columns of many types."""
    numbers = range(rows)
    return pa.table(
        {
            "key": pa.array([f"key-{n:04d}" * (n % 3) for n in numbers]),
            "n": pa.array([n if n % 5 else None for n in numbers], pa.int64()),
            "yes": pa.array([n % 3 == 0 for n in numbers]),
            "list": pa.array([[f"i{n}"] * (n % 4) for n in numbers]),
            "large": pa.array([b"x" * (n % 7) for n in numbers], pa.large_binary()),
            "row": pa.array([{"a": n, "b": "é" * (n % 2)} for n in numbers]),
            "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int32())),
            "pair": pa.array([[n, n] for n in numbers], pa.list_(pa.int16(), 2)),
        }
    )


def stream_of(table: pa.Table, *, compression: str | None = None) -> bytes:
    """Return *table* as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _streams(table: pa.Table) -> list[bytes]:
    column = table.column("key")
    dictionaries = pa.table({"key": column.dictionary_encode()})
    views = pa.table({"key": column.cast(pa.string_view())})
    nulls = pa.table({"key": pa.nulls(table.num_rows)})
    plain = [stream_of(each) for each in (table, dictionaries, views, nulls, table.slice(3, 9))]
    return [*plain, stream_of(table, compression="lz4"), stream_of(table, compression="zstd")]


def doors_of(table: pa.Table) -> dict[str, Door]:
    """Return all doors, with samples made of *table*, whose key columns are ``key`` and ``n``."""
    order = Order(table.schema, ["key", "n"])
    rows = order.sorted(table)
    keys = points_of(order, rows, (1, 0))
    cuts = cuts_of(order, [keys], 4, keep_keys_together=False)
    body, points = bytes(packed(rows)), bytes(packed(keys))

    def put(body: bytes, points: bytes) -> None:
        """As a process for shuffles takes a frame, cuts it, and merges it."""
        check_frame(order, Frame((1, 0), rows.num_rows, points, body))
        taken = unpacked(body, order.schema)
        _use(order.sorted(taken))
        slices_of(order, cuts, taken, (1, 0))
        summary_of(order, [unpacked(points, summary_of(order, []).schema)])

    def sealed(data: bytes) -> object:
        file = decode_checkpoint(_resealed(data))
        return [list(piece) for piece in file.snapshot.entries.pieces(1 << 20)]

    positions = pa.array(range(rows.num_rows), pa.int32())
    batch = pa.record_batch({"key": rows.column("key").combine_chunks(), POSITION: positions})
    elements = pa.record_batch([["a", "b"], [1, None], [b"\x01", b"\xa1x"]], schema=SCHEMA)
    stage = encode_stage("add", [Chunk(2, pa.array(["a", "b"]), pa.array([b"\x01", b"\x02"]))])
    schemas = [each.schema.serialize().to_pybytes() for each in (rows, cuts)]
    return {
        "a schema": Door(schemas, lambda data: _use(schema_in(data).empty_table())),
        "a stream": Door(_streams(table), lambda data: _use(table_in(data))),
        "cuts": Door([stream_of(cuts)], lambda data: order.keys_of(_keys(order, table_in(data)))),
        "rows of a frame": Door([body], lambda data: put(data, points)),
        "points of a frame": Door([points], lambda data: put(body, data)),
        "a batch to owners": Door(
            [encode_batch(batch, BatchSource("job", 1, 2))],
            lambda data: decode_batch(data, "key")[0].to_pylist(),
        ),
        "elements": Door([body_of(elements)], rows_in),
        "a stage file": Door([stage], lambda data: _staged(stage, data)),
        "a checkpoint": Door([_checkpoint()], sealed),
    }


def bombs_of(size: int) -> dict[str, bytes]:
    """Return short data that unpack to *size* bytes, by the door that they are for."""
    table = pa.table({"key": ["\0" * size], "value": [b"\x01"]})
    stream = stream_of(table, compression="zstd")
    _, message = (
        each.serialize().to_pybytes() for each in pa.ipc.MessageReader.open_stream(stream)
    )
    (stage,) = doors_of(table_of(ROWS))["a stage file"].samples
    head = stage[: stage.index(b"\xff\xff\xff\xff", 24)]  # until its stream begins
    streams = dict.fromkeys(("a stream", "cuts", "a batch to owners", "elements"), stream)
    messages = dict.fromkeys(("rows of a frame", "points of a frame"), message)
    return {**streams, **messages, "a stage file": head + stream}


def refusal(name: str, data: bytes) -> tuple[str, int]:
    """Bring *data* to a door; return the error, and by how many bytes this process has grown."""
    door, before = doors_of(table_of(ROWS))[name], peak_bytes()
    try:
        door.enter(data)
    except RingpopError as error:
        return str(error), peak_bytes() - before
    return "", peak_bytes() - before


def _use(table: pa.Table) -> Any:  # noqa: ANN401 - of any types
    """Read all of *table*, in place and copied: what is wrong with it shows."""
    for column in table.columns:
        if pa.types.is_string(column.type):
            pc.utf8_length(column)
    table.take(pa.array(range(table.num_rows), pa.int64()))
    with suppress(pa.ArrowNotImplementedError):  # a type that Python has no values for
        return [column.to_pylist() for column in table.columns]


def _keys(order: Order, table: pa.Table) -> pa.Table:
    """Return the cuts in *table*, if it has such columns."""
    named = set(order.by) <= set(table.column_names)
    same = named and table.select(order.by).schema.equals(order.key_schema)
    return table if same else order.key_schema.empty_table()


def _staged(sound: bytes, data: bytes) -> object:
    """Read *data* as a stage file whose checksum fits."""
    rest = data[16:]
    return decode_stage(sound[:8] + xxhash.xxh64_digest(rest) + rest).values.to_pylist()


def _checkpoint() -> bytes:
    entries = FrozenEntries({f"k{n}": b"\xa1v" for n in range(9)})
    snapshot = Snapshot(1, None, entries, (), (), {})
    return encode_checkpoint(Checkpoint("k", 3, 5, Slot(1, 2), (), snapshot))


def _resealed(data: bytes) -> bytes:
    at = data.rfind(checkpoints.SEAL)
    with suppress(ValueError):  # the length of the footer is spoilt, too
        return checkpoints._sealed(io.BytesIO(data[:at] + data[at + checkpoints.SEAL_BYTES :]))
    return data
