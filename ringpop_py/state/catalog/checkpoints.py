"""The file of a checkpoint: an Arrow IPC file that any reader of Arrow opens, sealed by a checksum.

Its rows are the keys with their packed values; an incremental one has a row for each deleted key,
too. The schema's metadata say which state it is. Between the last batch and the footer, where
readers of the format do not look, are 16 bytes: `SEAL` and the xxh64 of all the rest. So a
truncated or damaged file is recognized before any of it is parsed.
"""

from __future__ import annotations

import base64
import io
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ringpop_py.base.errors import StateDamaged, WireError
from ringpop_py.base.values.arrow import stream_in
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text, convert, decode, encode
from ringpop_py.state.journal.records import Slot
from ringpop_py.state.table.keyed import Snapshot
from ringpop_py.state.table.sessions import (
    WINDOW,
    Session,
    are_digests,
    records_in,
    with_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.state.table.entries import Piece

T = TypeVar("T")

VERSION: Final = 1
CHAIN_MAX: Final = 8
"""The most files that make up a state: a whole one and its increments."""
PIECE_BYTES: Final = 1 << 18
"""The bytes of rows in a batch, whose conversion to Arrow keeps other threads from running."""
CHUNK_BYTES: Final = 1 << 20
PAUSE_S: Final = 0.0001
"""The seconds of pause after each piece. Other threads would otherwise run only every 5 ms."""
SEAL: Final = b"ringpop1"
SEAL_BYTES: Final = 16
MAGIC: Final = b"ARROW1"
HEAD_BYTES: Final = 8
END_BYTES: Final = 10
"""The length of the end of a file: the footer's length, and the magic."""

_WHOLE: Final = pa.schema([("key", pa.string()), ("value", pa.binary())])
_INCREMENT: Final = pa.schema([*_WHOLE, ("deleted", pa.bool_())])

# With the first array, pyarrow imports pandas if it is installed. That takes a quarter of a second,
# in which gossip should not have to wait for the interpreter; so do it at import.
pa.array([""])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot of a partition, and which state it is.

    Attributes:
        slot: the last slot that the state includes.
        builds_on: the slots of the checkpoints that an incremental one needs, the whole one
            first; empty for a whole one.
    """

    keyspace: str
    generation: int
    partition: int
    slot: Slot
    builds_on: tuple[Slot, ...]
    snapshot: Snapshot


def whole_is_due(sizes_bytes: Sequence[int]) -> bool:
    """Return whether the next checkpoint should be a whole one, after a chain of *sizes_bytes*.

    That is so if there is no chain, if the chain has its greatest length, or if the increments
    (which a restore reads in addition) have more than half the size of the whole one.
    """
    return (
        not sizes_bytes
        or len(sizes_bytes) >= CHAIN_MAX
        or 2 * sum(sizes_bytes[1:]) > sizes_bytes[0]
    )


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode *checkpoint* as a file. It takes about a second a gigabyte: use `Worker.maker`.

    It pauses now and then, so that other threads, such as the one that gossips, can run.
    """
    incremental = bool(checkpoint.builds_on)
    assert incremental == (checkpoint.snapshot.since is not None)
    schema = (_INCREMENT if incremental else _WHOLE).with_metadata(_metadata_of(checkpoint))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema) as writer:
        for keys, values in checkpoint.snapshot.entries.pieces(PIECE_BYTES):
            columns = [pa.array(keys, pa.string()), pa.array(values, pa.binary())]
            if incremental:
                columns.append(pa.repeat(pa.scalar(value=False), len(keys)))
            writer.write_batch(pa.record_batch(columns, schema=schema))
            time.sleep(PAUSE_S)
        if checkpoint.snapshot.deleted:
            deleted = pa.array(checkpoint.snapshot.deleted, pa.string())
            columns = [deleted, pa.nulls(len(deleted), pa.binary())]
            columns.append(pa.repeat(pa.scalar(value=True), len(deleted)))
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return _sealed(sink)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode the checkpoint in *data*; its entries refer to *data* and are read piece by piece.

    Raises:
        StateDamaged: if *data* is not a checkpoint, or was changed since it was written.
    """
    _check_seal(data)
    try:
        return _decoded(data)
    except (pa.ArrowException, ValueError, OSError, MemoryError, WireError) as error:
        raise StateDamaged(f"not a checkpoint: {type(error).__name__}: {error}") from None


class ArrowEntries:
    """The entries of a checkpoint, in pieces as they were written."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def pieces(self, bytes_max: int) -> Iterator[Piece]:  # noqa: ARG002 - batches are small already
        """Yield all entries."""
        for batch in self._batches:
            yield batch.column(0).to_pylist(), batch.column(1).to_pylist()

    def close(self) -> None:
        """Drop the batches, and with them the file."""
        self._batches = ()


# The seal.


def _sealed(file: io.BytesIO) -> bytes:
    with file.getbuffer() as whole:
        footer_at = len(whole) - END_BYTES - int.from_bytes(whole[-END_BYTES:-6], "little")
        tail = bytes(whole[footer_at:])
        checksum = _checksum(whole[:footer_at], memoryview(tail))
    file.seek(footer_at)
    file.writelines((SEAL, checksum, tail))
    return file.getvalue()  # does not copy, since nothing is written afterwards


def _check_seal(data: bytes) -> None:
    if len(data) < HEAD_BYTES + SEAL_BYTES + END_BYTES or not data.endswith(MAGIC):
        raise StateDamaged("it is not a checkpoint, or was truncated")
    footer_at = len(data) - END_BYTES - int.from_bytes(data[-END_BYTES:-6], "little")
    file, seal_at = memoryview(data), footer_at - SEAL_BYTES
    if seal_at < HEAD_BYTES or not data.startswith(SEAL, seal_at):
        raise StateDamaged("it is not a checkpoint: it has no seal")
    if file[seal_at + len(SEAL) : footer_at] != _checksum(file[:seal_at], file[footer_at:]):
        raise StateDamaged("it is a damaged checkpoint: its checksum does not match its bytes")


def _checksum(head: memoryview, tail: memoryview) -> bytes:
    state = xxhash.xxh64()
    for part in (head, tail):
        for chunk in _chunks(part):
            state.update(chunk)
    digest: bytes = state.digest()
    return digest


def _chunks(data: memoryview) -> Iterator[memoryview]:
    """Yield *data* in pieces, with pauses: 100 MB in one go hold the interpreter for over 50 ms."""
    for first in range(0, len(data), CHUNK_BYTES):
        yield data[first : first + CHUNK_BYTES]
        if len(data) > CHUNK_BYTES:
            time.sleep(PAUSE_S)


# Rows.


def _decoded(data: bytes) -> Checkpoint:
    # A file is a stream between a head and a footer. Read as a stream, it has no second description
    # of where its batches are.
    schema, found = stream_in(pa.py_buffer(data).slice(HEAD_BYTES))
    if not schema.equals(_WHOLE) and not schema.equals(_INCREMENT):
        raise StateDamaged(f"a checkpoint does not have the columns {schema.names}")
    batches = list(found)
    if any(batch.column(0).null_count for batch in batches):
        raise StateDamaged("a checkpoint has a row without a key")
    incremental = schema.equals(_INCREMENT)
    entries, deleted = _parted(batches) if incremental else (batches, ())
    if any(batch.column(1).null_count for batch in entries):
        raise StateDamaged("a checkpoint has a key without a value")
    metadata = _texts_of(schema.metadata or {})
    checkpoint = _checkpoint_of(metadata, ArrowEntries(entries), deleted)
    counts = [str(len(checkpoint.snapshot.entries)), str(len(deleted))]
    if counts != [metadata["entries"], metadata["deleted"]]:
        raise StateDamaged("a checkpoint does not have as many rows as its metadata say")
    if incremental != bool(checkpoint.builds_on):
        raise StateDamaged("an incremental checkpoint builds upon others, and a whole one does not")
    return checkpoint


def _parted(batches: Sequence[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], tuple[str, ...]]:
    entries: list[pa.RecordBatch] = []
    deleted: list[str] = []
    for batch in batches:
        gone = batch.column(2)
        if gone.null_count:
            raise StateDamaged("a checkpoint has a row that is neither deleted nor not")
        if gone.true_count < batch.num_rows:
            entries.append(batch.filter(pc.invert(gone)) if gone.true_count else batch)
        if gone.true_count:
            deleted += batch.filter(gone).column(0).to_pylist()
    return entries, tuple(deleted)


# Metadata.


def _metadata_of(checkpoint: Checkpoint) -> dict[str, str]:
    snapshot = checkpoint.snapshot
    return {
        "ringpop": "checkpoint",
        "version": str(VERSION),
        "keyspace": checkpoint.keyspace,
        "generation": str(checkpoint.generation),
        "partition": str(checkpoint.partition),
        "slot": _slot_text(checkpoint.slot),
        "builds_on": " ".join(map(_slot_text, checkpoint.builds_on)),
        "entries": str(len(snapshot.entries)),
        "deleted": str(len(snapshot.deleted)),
        "sessions": _base64_of([_session_row(*row) for row in snapshot.sessions]),
        "offsets": _base64_of(snapshot.offsets),
        "changes": base64.b64encode(snapshot.changes).decode(),
    }


def _texts_of(metadata: dict[bytes, bytes]) -> dict[str, str]:
    """Return the expected names with their texts. Raises StateDamaged if one is missing."""
    texts = {name.decode(): value.decode() for name, value in metadata.items()}
    if texts.get("ringpop") != "checkpoint" or texts.get("version") != str(VERSION):
        raise StateDamaged(
            f"it is not a checkpoint of version {VERSION}; upgrade this node if it is newer"
        )
    missing = [name for name in _NAMES if name not in texts]
    if missing:
        raise StateDamaged(f"the metadata of a checkpoint lack {', '.join(missing)}")
    return texts


_NAMES: Final = (
    *("keyspace", "generation", "partition", "slot", "builds_on"),
    *("entries", "deleted", "sessions", "offsets", "changes"),
)


def _checkpoint_of(
    metadata: dict[str, str], entries: ArrowEntries, deleted: tuple[str, ...]
) -> Checkpoint:
    slots = tuple(_slot_of(text) for text in metadata["builds_on"].split())
    slot = _slot_of(metadata["slot"])
    chain = (*slots, slot)
    if list(chain) != sorted(set(chain)):
        raise StateDamaged("the slots that a checkpoint builds on are not in ascending order")
    sessions = _from_base64(tuple[_SessionRow, ...], metadata["sessions"])
    snapshot = Snapshot(
        mark=len(slots),
        since=len(slots) - 1 if slots else None,
        entries=entries,
        deleted=deleted,
        sessions=tuple(_session_of(row) for row in sessions),
        offsets=_from_base64(dict[str, bytes], metadata["offsets"]),
        changes=base64.b64decode(metadata["changes"], validate=True),
    )
    generation, partition = _number(metadata["generation"]), _number(metadata["partition"])
    return Checkpoint(metadata["keyspace"], generation, partition, slot, slots, snapshot)


def _slot_text(slot: Slot) -> str:
    return f"{slot.epoch}:{slot.sequence}"


def _slot_of(text: str) -> Slot:
    epoch, sequence = text.split(":")
    return Slot(_number(epoch), _number(sequence))


def _number(text: str) -> int:
    return convert(Natural, int(text))


class _SessionRow(Declared, frozen=True):
    """A session; *missing* are its bits. Most have no digests."""

    source: Text
    highest: Natural
    missing: Annotated[bytes, Meta(max_length=WINDOW // 8)]
    digests: bytes = b""


def _session_row(source: str, session: Session) -> list[str | int | bytes]:
    highest, missing, digests = session
    bits = missing.to_bytes((missing.bit_length() + 7) // 8, "little")
    return [source, highest, bits, digests] if digests else [source, highest, bits]


def _session_of(row: _SessionRow) -> tuple[str, Session]:
    session = row.highest, int.from_bytes(row.missing, "little"), b""
    if row.digests:
        if not are_digests(row.digests):
            raise StateDamaged("the digests of a session are incomplete, or too many")
        session = with_records(session, records_in(row.digests))
    return row.source, session


def _base64_of(value: object) -> str:
    return base64.b64encode(encode(value)).decode()


def _from_base64(kind: type[T], text: str) -> T:
    return decode(kind, base64.b64decode(text, validate=True))
