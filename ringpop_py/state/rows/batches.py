"""Columnar batches at their owner: handle our new rows, and return the positions of others' rows.

A batch is an Arrow IPC stream of one record batch. The metadata of its schema name the source of
the rows (`BatchSource`); the column `POSITION` has their positions in that source. So sending a
batch is idempotent: if a retry or another attempt of the same Spark task repeats it, whole or in
part, each row of a source is still handled once at each owner.

A batch may also ask for answers (`BatchSource.asks`). Then the handler returns rows each time, and
the rows of the batch are not recorded as handled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ringpop_py.base.dialect import NATIVE
from ringpop_py.base.errors import ApplicationError, BadRequest, BodyError
from ringpop_py.base.values.arrow import stream_in
from ringpop_py.base.values.declared import Checksum, Declared, Natural, encode
from ringpop_py.state.rows.fingerprint import quick_hashes
from ringpop_py.state.rows.hashes import hashes_of
from ringpop_py.state.rows.packed import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.route.proxy.request import AppCall

POSITION: Final = "__position"
KEY_TYPES: Final = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
ROWS_MAX: Final = 1 << 20
JOBS_MAX: Final = 64  # that `SeenRows` remembers
SEEN_BYTES_MAX: Final = 256 << 20
"""The most memory for bytes, one for each handled row: 268 million rows."""
SOURCE_TEXT_MAX: Final = 256
ENTRY_BYTES: Final = 256  # about what an entry of `SeenRows` costs besides its bytes
NUMBER_MAX: Final = (1 << 63) - 1
ANSWER_BYTES_MAX: Final = 4 << 20
"""The largest answer: half of a message by default. The caller then asks about fewer rows."""

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch | None]


class BatchSource(NamedTuple):
    """The source of the rows of a batch.

    Attributes:
        asks: whether an answer is wanted, so that repeated rows do not matter.
    """

    job: str
    partition: int
    sequence: int
    # For people: as Spark itself assumes, a second attempt of a task sends the same rows in the
    # same positions, so it does not distinguish rows.
    attempt: int = 0
    asks: bool = False


class BatchReply(Declared, frozen=True, array_like=False):
    """The outcome of a batch, as its owner sends it.

    Attributes:
        moved: the positions of rows whose keys this node does not own; send them to their owners.
        ring: the checksum of the owner's ring.
        answer: the handler's answer to the accepted rows, if the batch asked for one: `rows_in`.
        too_large: whether the answer does not fit into a message, so that no row counts as
            accepted; ask about fewer rows at a time.
        others: how many rows are others than those that were handled in their positions, so that
            no row of the batch was handled.
    """

    accepted: Natural
    repeated: Natural
    moved: tuple[Natural, ...]
    ring: Checksum
    answer: bytes = b""
    too_large: bool = False
    others: Natural = 0


def encode_batch(batch: pa.RecordBatch, source: BatchSource) -> bytes:
    """Encode *batch*, which has the column `POSITION`."""
    metadata = {name: str(value) for name, value in source._asdict().items() if name != "asks"}
    if source.asks:
        metadata["asks"] = "1"
    return _write_one(batch.replace_schema_metadata(metadata))


def _write_one(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def decode_batch(body: bytes, key: str) -> tuple[pa.RecordBatch, BatchSource]:
    """Return the batch in *body*, with *key* and `POSITION`, and its source. Raises BadRequest."""
    batch = _read_sound(body)
    fields = {field.name: field.type for field in batch.schema}
    if fields.get(key) not in KEY_TYPES:
        raise BadRequest(
            f"the batch has no column {key!r} of text or binary; it has {sorted(fields)}"
        )
    if fields.get(POSITION) != pa.int32() or batch.column(POSITION).null_count:
        raise BadRequest(f"the batch has no column {POSITION!r} of 32-bit integers")
    if batch.num_rows > ROWS_MAX:
        raise BadRequest(f"a batch has at most {ROWS_MAX} rows")
    return batch, _source_of(batch.schema.metadata or {})


def _read_sound(body: bytes) -> pa.RecordBatch:
    try:
        schema, batches = stream_in(body)
        found = list(islice(batches, 2))  # a second one shows that there are too many
    except BodyError as error:
        raise BadRequest(f"not an Arrow IPC stream of one batch: {error}") from None
    if len(found) != 1:
        raise BadRequest("a body is a schema and one batch")
    if len(set(schema.names)) < len(schema.names):
        raise BadRequest("the batch has two columns of one name")
    return found[0]


def _source_of(metadata: dict[bytes, bytes]) -> BatchSource:
    try:
        job = metadata[b"job"].decode()
        names = (b"partition", b"sequence", b"attempt")
        partition, sequence, attempt = (int(metadata[name]) for name in names)
    except (KeyError, ValueError) as error:
        raise BadRequest(f"the metadata of the batch do not name its source: {error}") from None
    if not 0 < len(job) <= SOURCE_TEXT_MAX:
        raise BadRequest("the batch comes from a job without a name, or with too long a name")
    if not all(0 <= number <= NUMBER_MAX for number in (partition, sequence, attempt)):
        raise BadRequest("partition, sequence and attempt are whole numbers from 0")
    return BatchSource(job, partition, sequence, attempt, b"asks" in metadata)


def rows_in(reply: BatchReply) -> pa.RecordBatch | None:
    """Decode the answer in *reply*; return None if there is none. Raises BodyError."""
    try:
        return _read_sound(reply.answer) if reply.answer else None
    except BadRequest as error:
        raise BodyError(f"the answer of a handler: {error}") from None


class SeenRows:
    """The handled rows of each source: a byte of a hash for each row; 0 if it was not handled.

    Of 255 rows that come in place of others, about one is not told from them.

    The last `JOBS_MAX` jobs are remembered, or as many as fit into *bytes_max*. The job that has
    been quiet longest is forgotten first; if its rows are sent again, they are handled again.
    """

    def __init__(self, bytes_max: int = SEEN_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._jobs: OrderedDict[str, dict[tuple[int, int], NDArray[np.uint8]]] = OrderedDict()
        self._bytes: dict[str, int] = {}

    def marks(self, source: BatchSource, positions: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Return the marks that rows in *positions* were handled with; 0 if they were not."""
        held = self._jobs.get(source.job, {}).get((source.partition, source.sequence))
        if held is None:
            return np.zeros(len(positions), dtype=np.uint8)
        within = positions < len(held)
        marks: NDArray[np.uint8] = np.where(within, held[np.where(within, positions, 0)], 0)
        return marks

    def reserve(self, source: BatchSource, positions: NDArray[np.int32]) -> None:
        """Make room to `mark` *positions*, so that marking cannot fail after they are handled.

        Raises:
            BadRequest: if the job alone has more rows than can be remembered.
        """
        if not len(positions):
            return
        job = self._jobs.setdefault(source.job, {})
        self._bytes.setdefault(source.job, 0)
        self._jobs.move_to_end(source.job)
        where = (source.partition, source.sequence)
        held = job.get(where, np.zeros(0, dtype=np.uint8))
        more = int(positions.max()) + 1 - len(held)
        if more <= 0:
            return
        # The entry counts as well: if there are many small ones, they cost more than their bytes.
        cost = more + (ENTRY_BYTES if not len(held) else 0)
        if self._bytes[source.job] + cost > self._bytes_max:
            raise BadRequest(
                f"job {source.job!r} has more rows than this node can remember, which is about "
                f"{self._bytes_max:,}: send the rest as another job"
            )
        self._bytes[source.job] += cost
        job[where] = np.concatenate([held, np.zeros(more, dtype=np.uint8)])
        while len(self._jobs) > JOBS_MAX or sum(self._bytes.values()) > self._bytes_max:
            oldest, _ = self._jobs.popitem(last=False)
            del self._bytes[oldest]

    def mark(
        self, source: BatchSource, positions: NDArray[np.int32], marks: NDArray[np.uint8]
    ) -> None:
        """Mark *positions*, which are reserved, as handled, with *marks* from 1 to 255."""
        if len(positions):
            self._jobs[source.job][source.partition, source.sequence][positions] = marks


class BatchReceiver:
    """A handler (`ringpop_py.route.proxy.request.Handler`) for batches routed by the column *key*.

    Args:
        answers: whether *function* returns rows, so that batches may ask for answers.
    """

    def __init__(
        self,
        function: BatchFunction,
        key: str,
        *,
        local: str,
        ring: Callable[[], HashRing],
        answers: bool = False,
    ) -> None:
        self._function = function
        self._key = key
        self._local = local
        self._ring = ring
        self._answers = answers
        self._seen = SeenRows()

    def __call__(self, call: AppCall) -> bytes:
        """Handle the batch in *call*: our new rows, or all of ours if it asks for answers.

        Raises:
            BadRequest: if it is not a batch, or asks a handler that gives none for answers; no row
                was handled.
            ApplicationError: if *function* raised it, or did not return an answer.
        """
        batch, source = decode_batch(call.body, self._key)
        if source.asks and not self._answers:
            raise BadRequest(f"{call.endpoint} accepts batches, but does not answer them")
        positions = self._positions(batch)
        ring, keys = self._ring(), batch.column(self._key)
        if keys.null_count:
            raise BadRequest(f"the batch has rows without a key in column {self._key!r}")
        hashes = _hashes(ring, keys)
        ours = self._ours(ring, hashes)
        rows = batch.drop_columns([POSITION])
        if source.asks:
            reply = self._answer(rows, ours)
        else:
            marks = _marks_of(rows, hashes)
            reply = self._take_in(rows, source, positions, ours, marks)
        reply |= {"moved": positions[~ours].tolist(), "ring": ring.checksum}
        return encode(reply)

    def _positions(self, batch: pa.RecordBatch) -> NDArray[np.int32]:
        positions: NDArray[np.int32] = batch.column(POSITION).to_numpy()
        if len(positions) and not 0 <= positions.min() <= positions.max() < ROWS_MAX:
            raise BadRequest(f"a position lies outside of 0 to {ROWS_MAX}")
        # They come in order, unless somebody else has made the batch.
        if (np.diff(positions) <= 0).any() and len(np.unique(positions)) < len(positions):
            raise BadRequest("two rows have the same position")
        return positions

    def _ours(self, ring: HashRing, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        if self._local not in ring:  # we are leaving
            return np.zeros(len(hashes), dtype=np.bool_)
        owners = ring.owner_indexes_of(hashes)
        ours: NDArray[np.bool_] = owners == ring.owners.index(self._local)
        return ours

    def _take_in(
        self,
        rows: pa.RecordBatch,
        source: BatchSource,
        positions: NDArray[np.int32],
        ours: NDArray[np.bool_],
        marks: NDArray[np.uint8],
    ) -> dict[str, object]:
        held = self._seen.marks(source, positions)
        others = ours & (held != 0) & (held != marks)
        if others.any():
            return {"accepted": 0, "repeated": 0, "others": int(others.sum())}
        fresh = ours & (held == 0)
        self._seen.reserve(source, positions[fresh])
        if fresh.any():
            self._function(_only(rows, fresh))
        # Rows are marked only now: after an error of the function they may be sent again.
        self._seen.mark(source, positions[fresh], marks[fresh])
        return {"accepted": int(fresh.sum()), "repeated": int((ours & ~fresh).sum())}

    def _answer(self, rows: pa.RecordBatch, ours: NDArray[np.bool_]) -> dict[str, object]:
        if not ours.any():
            return {"accepted": 0, "repeated": 0}
        answer = self._function(_only(rows, ours))
        if not isinstance(answer, pa.RecordBatch):
            kind, message = "no-answer", f"the handler returned {type(answer).__name__}, not rows"
            raise ApplicationError(kind, message)
        packed = _write_one(_without_dictionaries(answer))
        if len(packed) > ANSWER_BYTES_MAX:
            return {"accepted": 0, "repeated": 0, "too_large": True}
        return {"accepted": int(ours.sum()), "repeated": 0, "answer": packed}


def _marks_of(rows: pa.RecordBatch, hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the mark of each of *rows*: 8 bits of a hash, but never 0."""
    upper = (quick_hashes(rows, hashes) >> np.uint64(56)).astype(np.uint8)
    marks: NDArray[np.uint8] = np.maximum(upper, 1)
    return marks


def _only(rows: pa.RecordBatch, wanted: NDArray[np.bool_]) -> pa.RecordBatch:
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def _without_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    # Arrow's functions return dictionaries, which `stream_in` refuses.
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _hashes(ring: HashRing, keys: pa.Array) -> NDArray[np.uint64]:
    # Bytes count as the text that they encode.
    if ring.dialect == NATIVE:
        texts = keys.cast(pa.large_binary())
        return hashes_of(offsets_of(texts), texts.buffers()[2] or b"")
    listed = keys.to_pylist()
    if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        return ring.hashes_of(listed)
    return np.fromiter(map(ring.dialect.hash_bytes, listed), np.uint64, len(listed))
