"""Read keyspaces in bulk, for tasks of Spark: whole partitions, or many keys, as Arrow.

    with KeyspaceReader(Target("flights", ("host:3000",))) as reader:
        for rows in reader.scan(range(8)):      # Packed: keys, values
            yield unpack_rows(rows.keys, rows.values, schema, key="tailnum")

A reader has a few megabytes in memory. It asks several owners at the same time, and needs no
pyspark, no trio and no thread.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringpop_py.base.errors import BodyError, KeyspaceError, PartitionUnavailable
from ringpop_py.base.values.arrow import sound
from ringpop_py.base.values.declared import encode
from ringpop_py.base.values.operations import KEY_BYTES_MAX
from ringpop_py.client.lines.blocking import Closing
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.dispatcher import ClientDispatcher
from ringpop_py.spark.arrow.columns import gathered, partitions_of, unpack_rows
from ringpop_py.spark.keys import key_texts
from ringpop_py.spark.snapshot import peer_list
from ringpop_py.state.jobs.messages import SCHEMAS, SchemasRequest
from ringpop_py.state.rows.pages import MISSING, Columns, ColumnsOf, ColumnsRequest, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ringpop_py.spark.options import ReadOptions, Target
    from ringpop_py.state.messages import Description

CONNECT_S: Final = 3.0
"""The time limit, in seconds, for each peer but the last to describe the keyspace."""
ROUND_PARTS: Final = 16  # of PART_BYTES each: the most that a round holds in memory
PART_BYTES: Final = 1 << 20
ROUND_KEYS: Final = 65_536
SAMPLE_ROWS: Final = 1_000
GATHERED_ROWS: Final = 65_536
GATHERED_BYTES: Final = 16 << 20
"""The size of batches that `Lookup` reads together: a request for few keys costs nearly as much."""


class Packed(NamedTuple):
    """Rows as they are stored."""

    keys: pa.Array  # large_string
    values: pa.Array  # packed, as large_binary; NULL if a requested key is absent


class KeyspaceReader(Closing):
    """Reads one keyspace. Close it, or use it as a context manager; it is for one thread.

    Args:
        stale: whether owners may answer without making sure that they still are the owners.

    Raises:
        KeyspaceUnknown: the keyspace does not exist.
        PartitionUnavailable: no peer answers.
    """

    def __init__(self, target: Target, *, stale: bool = False) -> None:
        peer_list(target.peers)
        self.keyspace = target.keyspace
        self._stale = stale
        self._timeout_s = target.timeout_s
        self._client, self._dispatcher, self.description = _connected(target)

    def close(self) -> None:
        """Close all connections."""
        self._dispatcher.close()
        self._client.close()

    def scan(self, numbers: Iterable[int] | None = None) -> Iterator[Packed]:
        """Yield all rows of the partitions *numbers* (of all, if None), some megabytes at a time.

        The rows of one partition in one `Packed` are of the same moment. If a partition needs
        several, each is of its own moment, and no key is in two of them. Raises KeyspaceError.
        """
        wanted = range(self.description.partitions_count) if numbers is None else numbers
        left: deque[tuple[int, Wanted]] = deque((number, "") for number in wanted)
        while left:
            parts = [left.popleft() for _ in range(min(ROUND_PARTS, len(left)))]
            starts = dict(parts)
            rows = []
            for number, columns in self._ask(parts).items():
                found = _keyed(columns)
                start = starts[number]
                if len(found.keys):
                    rows.append(found)
                    start = found.keys[-1].as_py() + "\0"  # the next text in order
                if columns.more:
                    left.appendleft((number, start))
            if rows:
                yield _joined(rows)

    def read(self, keys: pa.Array) -> pa.LargeBinaryArray:
        """Return the packed values of *keys*, which has no NULL; NULL for absent keys.

        Pass each key once: a second time costs as much again. Texts that are too short or too long
        for a key are absent. Raises KeyspaceError.
        """
        sizes = pc.binary_length(keys)
        longest = pc.max(sizes).as_py() or 0
        if longest > KEY_BYTES_MAX:  # no request can carry it; "" is not a key either
            short = pc.if_else(pc.greater(sizes, KEY_BYTES_MAX), pa.scalar("", keys.type), keys)
            return self.read(short)
        starts = range(0, len(keys), ROUND_KEYS)
        pieces = [self._read(keys.slice(start, ROUND_KEYS)) for start in starts]
        return pa.concat_arrays(pieces) if pieces else pa.array([], pa.large_binary())

    def sample(self, rows_count: int = SAMPLE_ROWS) -> Packed:
        """Return about *rows_count* rows, or all if there are fewer."""
        found = [Packed(pa.array([], pa.large_string()), pa.array([], pa.large_binary()))]
        count = 0
        one_by_one = (self.scan([number]) for number in range(self.description.partitions_count))
        for rows in chain.from_iterable(one_by_one):
            found.append(Packed(rows.keys[:rows_count], rows.values[:rows_count]))
            count += len(found[-1].keys)
            if count >= rows_count:
                break
        return _joined(found)

    def schemas(self) -> list[str]:
        """Return what jobs have kept about their rows (`JobClient.keep_schema`), oldest first."""
        body = encode(SchemasRequest(self.keyspace, self.description.generation))
        deadline = time.monotonic() + self._timeout_s
        try:
            found = self._dispatcher.ask_any(SCHEMAS, b"", body, deadline, changes_state=False)
        except KeyspaceError:  # a keyspace without jobs, an older daemon, or damage
            return []
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def _read(self, keys: pa.Array) -> pa.LargeBinaryArray:
        numbers = partitions_of(keys, self.description.placing)
        order = np.argsort(numbers.astype(np.uint16), kind="stable")  # 16 bits: a radix sort
        edges = [*np.flatnonzero(np.diff(numbers[order], prepend=-1)).tolist(), len(order)]
        texts = keys.take(pa.array(order)).to_pylist()
        left = {int(numbers[order[a]]): (a, b) for a, b in pairwise(edges)}
        found: dict[int, list[pa.Array]] = {number: [] for number in left}
        while left:
            parts: list[tuple[int, Wanted]] = [
                (number, tuple(texts[start:end])) for number, (start, end) in left.items()
            ]
            for number, columns in self._ask(parts).items():
                values = _values(columns)
                found[number].append(values)
                start, end = left.pop(number)
                if start + len(values) < end:  # the answer had no room for all
                    left[number] = start + len(values), end
        values = pa.concat_arrays([piece for pieces in found.values() for piece in pieces])
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return values.take(pa.array(places))

    def _ask(self, parts: Sequence[tuple[int, Wanted]]) -> dict[int, Columns]:
        head = ColumnsRequest(
            self.keyspace, self.description.generation, tuple(parts), PART_BYTES, self._stale
        )
        numbers = [number for number, _ in parts]
        deadline = time.monotonic() + self._timeout_s
        results = self._dispatcher.ask(ColumnsOf(head), numbers, deadline)
        for result in results.values():
            if isinstance(result, KeyspaceError):
                raise result
        return {number: cast(Columns, results[number]) for number in numbers}


@dataclass(frozen=True, slots=True)
class Lookup:
    """Adds *columns* to rows: the values of their keys, or NULL."""

    options: ReadOptions
    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield *batches* with the columns added."""
        with KeyspaceReader(self.options.target, stale=self.options.stale) as reader:
            for some in gathered(batches, GATHERED_ROWS, GATHERED_BYTES):
                yield from self._joined(reader, some)

    def _joined(
        self, reader: KeyspaceReader, batches: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        keys = [
            key_texts(batch.column(self.options.key)).cast(pa.large_string()) for batch in batches
        ]
        encoded = pa.concat_arrays(keys).dictionary_encode()  # each key is requested once
        distinct = encoded.dictionary
        values = unpack_rows(
            distinct, reader.read(distinct), self.columns, key=None, value=self.options.value
        )
        first = 0
        for batch in batches:
            places = encoded.indices.slice(first, batch.num_rows)
            first += batch.num_rows
            found = [column.take(places) for column in values.columns]
            fields = [*batch.schema, *self.columns]
            yield pa.record_batch([*batch.columns, *found], schema=pa.schema(fields))


def _connected(target: Target) -> tuple[Client, ClientDispatcher, Description]:
    reasons = []
    for peer in target.peers:
        last = peer == target.peers[-1]
        wait_s = target.timeout_s if last else min(CONNECT_S, target.timeout_s)
        client = Client(peer, timeout_s=target.timeout_s, cluster_key=target.cluster_key)
        dispatcher = ClientDispatcher(
            client, target.keyspace, direct=target.direct, peers=target.peers
        )
        try:
            return client, dispatcher, dispatcher.described(time.monotonic() + wait_s)
        except KeyspaceError as error:
            client.close()
            if not error.passes:
                raise
            reasons.append(f"{peer}: {error}")
    message = "no peer describes the keyspace:\n  " + "\n  ".join(reasons)
    raise PartitionUnavailable(message)


def _joined(rows: Sequence[Packed]) -> Packed:
    return Packed(*(pa.concat_arrays(column) for column in zip(*rows, strict=True)))


def _keyed(columns: Columns) -> Packed:
    keys = _column(pa.large_string(), columns.keys, columns.key_sizes)
    try:
        sound(keys)
    except BodyError as error:
        raise KeyspaceError(f"an owner sent keys that are not text: {error}") from None
    return Packed(keys, _values(columns))


def _values(columns: Columns) -> pa.LargeBinaryArray:
    return _column(pa.large_binary(), columns.values, columns.value_sizes)


def _column(kind: pa.DataType, data: bytes, size_bytes: bytes) -> pa.Array:
    # The bytes of *data* are used as they are; only offsets and validity are made.
    sizes = np.frombuffer(size_bytes, "<u4").astype(np.int64)
    missing = sizes == MISSING
    sizes[missing] = 0
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] != len(data):
        raise KeyspaceError(f"an owner sent {len(data)} bytes for {offsets[-1]}")
    validity = None
    if missing.any():
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(sizes), buffers)
