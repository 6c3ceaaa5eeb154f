"""Columnar batches at their owner: rows that are ours and new are handled, the rest is named.

A batch is an Arrow IPC stream of one record batch. Its schema's metadata say where the rows come
from (`BatchSource`), the column `POSITION` which rows of that source they are. So a batch that
is sent again, whole or in part, by a retry or by another attempt of the same Spark task, changes
nothing: each row of a source is handled once at each owner.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ringpop_py.errors import BadRequest
from ringpop_py.wire.values import (
    a_list,
    a_map,
    an_integer,
    decode_value,
    encode_value,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringpop_py.proxy.forwarding import AppCall
    from ringpop_py.ring import HashRing

POSITION: Final = "__position"
ROWS_MAX: Final = 1 << 20
JOBS_MAX: Final = 64
SOURCE_TEXT_MAX: Final = 256

BatchFunction = Callable[[pa.RecordBatch], None]


class BatchSource(NamedTuple):
    """Where the rows of a batch come from.

    *attempt* is for people: a second attempt of a task sends the same rows in the same places
    (Spark's own assumption of retried tasks), so it does not tell rows apart.
    """

    job: str
    partition: int
    sequence: int
    attempt: int = 0


class BatchReply(NamedTuple):
    """What became of a batch.

    Attributes:
        moved: the positions of rows whose keys this node does not own; send them elsewhere.
    """

    accepted_count: int
    repeated_count: int
    moved: tuple[int, ...]
    ring_checksum: int


def encode_batch(batch: pa.RecordBatch, source: BatchSource) -> bytes:
    """*batch*, which has the column `POSITION`, as bytes."""
    metadata = {
        "job": source.job,
        "partition": str(source.partition),
        "sequence": str(source.sequence),
        "attempt": str(source.attempt),
    }
    sink = pa.BufferOutputStream()
    marked = batch.replace_schema_metadata(metadata)
    with pa.ipc.new_stream(sink, marked.schema) as writer:
        writer.write_batch(marked)
    buffer: bytes = sink.getvalue().to_pybytes()
    return buffer


def decode_batch(body: bytes, key: str) -> tuple[pa.RecordBatch, BatchSource]:
    """The batch in *body* and where it comes from.

    Raises:
        BadRequest: if it is none, or lacks the column *key* of text or `POSITION` of int32.
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except (pa.ArrowException, StopIteration, ValueError, OSError) as error:
        message = f"not an Arrow IPC stream of one batch: {type(error).__name__}"
        raise BadRequest(message) from None
    fields = {field.name: field.type for field in batch.schema}
    if fields.get(key) not in (pa.string(), pa.large_string()):
        message = f"the batch has no column {key!r} of text; it has {sorted(fields)}"
        raise BadRequest(message)
    if fields.get(POSITION) != pa.int32() or batch.column(POSITION).null_count:
        message = f"the batch has no column {POSITION!r} of 32-bit integers"
        raise BadRequest(message)
    if batch.num_rows > ROWS_MAX:
        message = f"a batch has at most {ROWS_MAX} rows"
        raise BadRequest(message)
    return batch, _source_of(batch.schema.metadata or {})


def _source_of(metadata: dict[bytes, bytes]) -> BatchSource:
    try:
        job = metadata[b"job"].decode()
        numbers = [int(metadata[name]) for name in (b"partition", b"sequence", b"attempt")]
    except (KeyError, ValueError) as error:
        message = f"the batch does not say where it comes from: {error}"
        raise BadRequest(message) from None
    if not 0 < len(job) <= SOURCE_TEXT_MAX or min(numbers) < 0:
        message = "the batch comes from a job without a name, or with too long a name"
        raise BadRequest(message)
    return BatchSource(job, *numbers)


def decode_batch_reply(body: bytes) -> BatchReply:
    """The reply in *body*.

    Raises:
        BodyError: if it is none.
    """
    value = a_map(decode_value("msgpack", body), "batch reply")
    moved = a_list(value.get("moved"), "moved")
    return BatchReply(
        an_integer(value.get("accepted"), "accepted"),
        an_integer(value.get("repeated"), "repeated"),
        tuple(an_integer(position, "moved") for position in moved),
        an_integer(value.get("ring"), "ring", maximum=(1 << 64) - 1),
    )


class SeenRows:
    """Which rows of which sources were handled: a bit a row, the last `JOBS_MAX` jobs."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, dict[tuple[int, int], NDArray[np.uint8]]] = OrderedDict()

    def unseen(self, source: BatchSource, positions: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of *positions* were not handled before."""
        bits = self._jobs.get(source.job, {}).get((source.partition, source.sequence))
        if bits is None:
            return np.ones(len(positions), dtype=np.bool_)
        within = positions < len(bits) * 8
        inside = np.where(within, positions, 0)
        seen = (bits[inside >> 3] >> (inside & 7)) & 1
        unseen: NDArray[np.bool_] = ~(within & seen.astype(np.bool_))
        return unseen

    def mark(self, source: BatchSource, positions: NDArray[np.int32]) -> None:
        """*positions* have been handled."""
        job = self._jobs.setdefault(source.job, {})
        self._jobs.move_to_end(source.job)
        if len(self._jobs) > JOBS_MAX:
            self._jobs.popitem(last=False)
        if not len(positions):
            return
        where = (source.partition, source.sequence)
        bits = job.get(where, np.zeros(0, dtype=np.uint8))
        needed = (int(positions.max()) >> 3) + 1
        if needed > len(bits):
            bits = np.concatenate([bits, np.zeros(needed - len(bits), dtype=np.uint8)])
        np.bitwise_or.at(bits, positions >> 3, (1 << (positions & 7)).astype(np.uint8))
        job[where] = bits


class BatchReceiver:
    """A handler (`ringpop_py.proxy.forwarding.Handler`) for batches routed by the column *key*."""

    def __init__(
        self,
        function: BatchFunction,
        key: str,
        *,
        local: str,
        ring: Callable[[], HashRing],
    ) -> None:
        self._function = function
        self._key = key
        self._local = local
        self._ring = ring
        self._seen = SeenRows()

    def __call__(self, call: AppCall) -> bytes:
        """Handle the rows of the batch in *call* that are ours and new.

        Raises:
            BadRequest: if it is no batch; no row of it was handled.
        """
        batch, source = decode_batch(call.body, self._key)
        positions = batch.column(POSITION).to_numpy()
        if len(positions) and not 0 <= positions.min() <= positions.max() < ROWS_MAX:
            message = f"a position lies outside of 0 to {ROWS_MAX}"
            raise BadRequest(message)
        keys = batch.column(self._key)
        if keys.null_count:
            message = f"the batch has rows without a key in column {self._key!r}"
            raise BadRequest(message)
        ring = self._ring()
        if self._local in ring:
            local_index = ring.owners.index(self._local)
            ours = ring.owner_indexes(keys.to_pylist()) == local_index
        else:
            ours = np.zeros(len(positions), dtype=np.bool_)
        fresh = ours & self._seen.unseen(source, positions)
        if fresh.any():
            taken = batch if fresh.all() else batch.filter(pa.array(fresh))
            self._function(taken.drop_columns([POSITION]))
        # Only what was handled without an error counts as seen.
        self._seen.mark(source, positions[fresh])
        reply = {
            "accepted": int(fresh.sum()),
            "repeated": int((ours & ~fresh).sum()),
            "moved": positions[~ours].tolist(),
            "ring": ring.checksum,
        }
        return encode_value("msgpack", reply)
