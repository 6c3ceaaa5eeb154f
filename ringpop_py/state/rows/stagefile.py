"""Stage files: rows on their way into a keyspace, which count once their job is committed.

A file has one operation and chunks of rows, each of one partition: keys and their packed values.
Its head lists the chunks, so a node that only forwards the file need not decode Arrow. The rows
follow as an Arrow IPC stream of one batch, in the order of the head. Their xxh64 precedes all of
this, so a torn or damaged file is refused before it is parsed.
"""

from __future__ import annotations

import struct
from collections import Counter
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ringpop_py.base.errors import BadOperation, BodyError, StateDamaged, WireError
from ringpop_py.base.values.arrow import stream_in
from ringpop_py.base.values.declared import Declared, Natural, Text, decode, encode
from ringpop_py.base.values.operations import KEY_BYTES_MAX
from ringpop_py.state.placement.keys import PARTITIONS_READ_MAX
from ringpop_py.state.table.aggregations import NAME_CHARACTERS_MAX
from ringpop_py.state.table.evaluator import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_BYTES_MAX: Final = 4 << 20
CHUNK_ROWS_MAX: Final = 8_192
CHUNK_BYTES_MAX: Final = 1 << 20
"""The most bytes of keys and values of a chunk with several rows; a single row may have more."""
MAGIC: Final = b"rpstage1"
_FIXED: Final = struct.Struct("<8s8sI")
"""The magic, the checksum of everything after it, and the length of the head."""
_ALIGNED_BYTES: Final = 64  # so that Arrow reads the batch in place
_SCHEMA: Final = pa.schema([("key", pa.string()), ("value", pa.binary())])


class Chunk(NamedTuple):
    """Rows of one partition, which take effect together.

    Attributes:
        keys: text, in Arrow's `string` or `large_string`.
        values: packed `Value`s, in `binary` or `large_binary`: new values, or the arguments of the
            file's operation.
    """

    partition: int
    keys: pa.Array
    values: pa.Array


class Index(Declared, frozen=True):
    """The head of a file.

    Attributes:
        operation: the change of the keys: the name of an aggregation, such as ``put``.
        chunks: the partition and the number of rows of each chunk, in the order of partitions.
    """

    operation: Text
    chunks: tuple[tuple[Natural, Natural], ...]

    @property
    def rows_count(self) -> int:
        """The number of rows in all chunks."""
        return sum(count for _, count in self.chunks)

    def chunk_counts(self) -> dict[int, int]:
        """Return the number of chunks of each partition."""
        return dict(Counter(partition for partition, _ in self.chunks))


def encode_stage(operation: str, chunks: Sequence[Chunk]) -> bytes:
    """Return *chunks* as a file; those of one partition stay in their order.

    Raises:
        BadOperation: if a key, a value or a chunk is too large, or there is no chunk.
    """
    # Stable, so that chunks of one partition keep their order, in which they take effect.
    ordered = sorted(chunks, key=attrgetter("partition"))
    keys = [_plain(chunk.keys, pa.string()) for chunk in ordered]
    values = [_plain(chunk.values, pa.binary()) for chunk in ordered]
    index = Index(operation, tuple((c.partition, len(c.keys)) for c in ordered))
    fault = _fault_in(index)
    if not fault and any(len(k) != len(v) for k, v in zip(keys, values, strict=True)):
        fault = "a chunk has as many values as it has keys"
    batch = None
    if not fault:
        columns = [pa.concat_arrays(keys), pa.concat_arrays(values)]
        batch = pa.record_batch(columns, schema=_SCHEMA)
        fault = _fault_in_rows(index, batch)
    if fault:
        raise BadOperation(fault)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(batch)
    head = encode(index)
    padding = bytes(-(_FIXED.size + len(head)) % _ALIGNED_BYTES)
    rest = b"".join([struct.pack("<I", len(head)), head, padding, sink.getvalue()])
    if len(MAGIC) * 2 + len(rest) > FILE_BYTES_MAX:
        raise BadOperation(f"a stage file has at most {FILE_BYTES_MAX} bytes, not {len(rest)}")
    return b"".join([MAGIC, xxhash.xxh64_digest(rest), rest])


def index_of(file: bytes) -> Index:
    """Return the head of *file*, after checking its checksum, but not its rows.

    Raises:
        StateDamaged: if it is damaged, or not a stage file.
    """
    return _parted(file)[0]


class StagedBatch:
    """The rows of a file, as views of its bytes."""

    def __init__(self, index: Index, batch: pa.RecordBatch) -> None:
        self.index = index
        self._batch = batch
        self._places: dict[int, list[tuple[int, int]]] = {}
        firsts = accumulate((count for _, count in index.chunks), initial=0)
        for (partition, count), first in zip(index.chunks, firsts, strict=False):
            self._places.setdefault(partition, []).append((first, count))

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions of its chunks, in order."""
        return tuple(self._places)

    @property
    def values(self) -> pa.Array:
        """The values of all rows."""
        return self._batch.column(1)

    def places(self, partition: int) -> list[tuple[int, int]]:
        """Return the first row and the number of rows of each chunk of *partition*, in order."""
        return self._places.get(partition, [])

    def chunks(self, partition: int) -> list[Chunk]:
        """Return the chunks of *partition*, in order."""
        return [
            Chunk(partition, *self._batch.slice(first, count).columns)
            for first, count in self.places(partition)
        ]


def decode_stage(file: bytes) -> StagedBatch:
    """Return the rows of *file*, all checked: a keyspace accepts the size of each key and value.

    Raises:
        StateDamaged: if it is damaged, not a stage file, or one that no task should have written.
    """
    index, rows_at = _parted(file)
    try:
        # A slice and not a copy: the columns are views of the file.
        batch = _batch_in(pa.py_buffer(file).slice(rows_at))
    except BodyError as error:
        raise StateDamaged(f"not a stage file: {error}") from None
    fault = _fault_in_rows(index, batch)
    if fault:
        raise _damaged(fault)
    return StagedBatch(index, batch)


def _parted(file: bytes) -> tuple[Index, int]:
    """Return the head of *file*, and the place where its rows begin."""
    if not _FIXED.size <= len(file) <= FILE_BYTES_MAX:
        raise _damaged(f"it has {len(file)} bytes")
    magic, checksum, head_bytes = _FIXED.unpack_from(file)
    if magic != MAGIC:
        raise _damaged(f"it does not begin with {MAGIC.decode()}")
    if checksum != xxhash.xxh64_digest(memoryview(file)[len(MAGIC) * 2 :]):
        raise _damaged("its checksum does not match its bytes")
    head_end = _FIXED.size + head_bytes
    if head_end + -head_end % _ALIGNED_BYTES > len(file):
        raise _damaged("its head is cut off")
    try:
        index = decode(Index, file[_FIXED.size : head_end])
    except WireError as error:
        raise _damaged(str(error)) from None
    fault = _fault_in(index)
    if fault:
        raise _damaged(fault)
    return index, head_end + -head_end % _ALIGNED_BYTES


def _batch_in(stream: pa.Buffer) -> pa.RecordBatch:
    schema, batches = stream_in(stream)
    if not schema.equals(_SCHEMA):
        raise BodyError("it has other columns")
    batch = next(batches, None)
    if batch is None:
        raise BodyError("it has no batch")
    return batch


def _fault_in(index: Index) -> str:
    """Return the fault in *index*; empty if it has none."""
    partitions = [partition for partition, _ in index.chunks]
    if not index.chunks:
        return "a stage file has a chunk at least"
    if partitions != sorted(partitions) or not 0 <= partitions[0] <= partitions[-1]:
        return "chunks stand in the order of their partitions"
    if partitions[-1] >= PARTITIONS_READ_MAX:
        return f"there are at most {PARTITIONS_READ_MAX} partitions"
    if not all(0 < count <= CHUNK_ROWS_MAX for _, count in index.chunks):
        return f"a chunk has 1 to {CHUNK_ROWS_MAX} rows"
    if not 0 < len(index.operation) <= NAME_CHARACTERS_MAX:
        return f"an operation's name has 1 to {NAME_CHARACTERS_MAX} characters"
    return ""


def _fault_in_rows(index: Index, batch: pa.RecordBatch) -> str:
    """Return the fault in the rows of *batch*; empty if they have none."""
    keys, values = batch.columns
    if index.rows_count != batch.num_rows:
        return f"there are {batch.num_rows} rows, and {index.rows_count} by the head"
    if keys.null_count or values.null_count:
        return "a row without a key or a value"
    key_sizes, value_sizes = pc.binary_length(keys), pc.binary_length(values)
    for sizes, size_max, what in (
        (key_sizes, KEY_BYTES_MAX, "a key has 1 to {} bytes of UTF-8, not {}"),
        (value_sizes, VALUE_BYTES_MAX, "a value has 1 to {} bytes when packed, not {}"),
    ):
        smallest, largest = pc.min_max(sizes).as_py().values()
        if smallest < 1 or largest > size_max:
            return what.format(size_max, smallest if smallest < 1 else largest)
    # Sums of 64 bits: those of lengths, which have 32, could overflow.
    ends = pc.cumulative_sum(pc.add(key_sizes, value_sizes).cast(pa.int64()))
    # By chunk, because the rows of a chunk are a single write, and take effect together.
    at = before = 0
    for _, count in index.chunks:
        at += count
        end = ends[at - 1].as_py()
        if count > 1 and end - before > CHUNK_BYTES_MAX:
            return f"a chunk of {end - before} bytes; of several rows it has {CHUNK_BYTES_MAX}"
        before = end
    return ""


def _plain(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowException as error:
        raise BadOperation(f"keys are text, and values bytes: {error}") from None


def _damaged(why: str) -> StateDamaged:
    return StateDamaged(f"not a stage file: {why}")
