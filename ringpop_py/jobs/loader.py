"""Files of committed jobs as the writes that they are to become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.errors import BadOperation, BodyError, StateDamaged
from ringpop_py.jobs.messages import RowRefusal
from ringpop_py.values.operations import OperationId, PackedWrite
from ringpop_py.values.packed import decode_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.jobs.stagefile import Chunk
    from ringpop_py.jobs.store import JobPlan, JobStore, PlannedFile
    from ringpop_py.values.operations import Value

CHANGE_BYTES: Final = 64
"""What a change that is to be evaluated counts for, besides its own bytes."""
_ARRAY: Final = b"\xdd"
"""In msgpack: what follows is the length of an array, in 32 bits, and its items."""


class Loaded(NamedTuple):
    """A chunk as a write, without the rows whose arguments are no values: those are *unfit*."""

    write: PackedWrite
    size_bytes: int
    unfit: tuple[RowRefusal, ...] = ()


def loaded_from(
    jobs: JobStore, plan: JobPlan, file: PlannedFile, wanted: dict[int, int]
) -> dict[int, list[Loaded]]:
    """The writes in *file* for the partitions *wanted*, from the chunks that they need on.

    Raises:
        StateDamaged: it is gone, or another one.
        StoreUnavailable: nobody knows.
    """
    from ringpop_py.jobs.stagefile import decode_stage  # noqa: PLC0415 - pyarrow takes 60 MB

    data = jobs.store.get(file.key)
    if data is None:
        raise StateDamaged(f"{file.key} is gone")
    stage = decode_stage(data)
    found = {}
    for number, count in wanted.items():
        first, chunks_count = file.places.get(number, (0, 0))
        if count >= first + chunks_count:
            continue
        chunks = stage.chunks(number)
        if len(chunks) != chunks_count:
            raise StateDamaged(f"{file.key} has other chunks than its attempt says")
        found[number] = [
            _loaded(stage.operation, chunk, OperationId(plan.decision.source, sequence))
            for sequence, chunk in enumerate(chunks, first)
            if sequence >= count
        ]
    return found


def _loaded(operation: str, chunk: Chunk, write_id: OperationId) -> Loaded:
    keys, values = chunk.keys.to_pylist(), chunk.values.to_pylist()
    size_bytes = sum(map(len, keys)) + sum(map(len, values))
    if operation == "put":
        return Loaded(PackedWrite(write_id, operation, keys, values), size_bytes)
    size_bytes += CHANGE_BYTES * len(keys)
    unfit: list[RowRefusal] = []
    packed = b"".join([_ARRAY, len(values).to_bytes(4, "big"), *values])
    try:
        values = decode_value("msgpack", packed)
    except BodyError:
        keys, values, unfit = _decoded_apart(keys, values)
    return Loaded(PackedWrite(write_id, operation, keys, values), size_bytes, tuple(unfit))


def _decoded_apart(
    keys: Sequence[str], packed: Sequence[bytes]
) -> tuple[list[str], list[Value], list[RowRefusal]]:
    """Of the rows whose arguments can be read the keys and arguments; and the others."""
    fit_keys: list[str] = []
    values: list[Value] = []
    unfit: list[RowRefusal] = []
    for key, each in zip(keys, packed, strict=True):
        try:
            values.append(decode_value("msgpack", each))
            fit_keys.append(key)
        except BodyError as error:
            refusal = BadOperation(f"its argument cannot be read: {error}")
            unfit.append(RowRefusal.of(key, refusal))
    return fit_keys, values, unfit
