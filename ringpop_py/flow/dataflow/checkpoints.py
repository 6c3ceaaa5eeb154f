"""The epochs of one dataflow in the store, and the objects that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import BodyError, StateDamaged
from ringpop_py.base.values.checksum import unwrap, unwrap_message, wrap, wrap_message
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.flow.exchange.epochs import EpochRecord
from ringpop_py.state.catalog.layout import dataflow_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.tasks import Worker as StoreWorker

EPOCHS_KEPT: Final = 10
DELETED_AT_ONCE: Final = 200


class Checkpoints:
    """See the module. Methods raise `StoreUnavailable`, and `StateDamaged` if an object is damaged.

    The newest epoch is found by listing: values in a store are never changed, so there is no
    pointer to it. And looking for the next number is not enough: after a long pause, a worker could
    find it deleted, and put it a second time. Such a record is below the newest one, and has no
    effect.
    """

    def __init__(self, store: Store, worker: StoreWorker, cluster: str, name: str) -> None:
        self._store = store
        self._worker = worker
        prefix = dataflow_prefix(cluster, name)
        self._epochs = f"{prefix}epochs/"
        self._objects = f"{prefix}objects/"

    async def newest(self, known: EpochRecord | None = None) -> EpochRecord | None:
        """Return the newest record, which may be *known*; None if there is none."""
        return await self._worker.run(self._newest, known)

    def _newest(self, known: EpochRecord | None) -> EpochRecord | None:
        while keys := self._store.list(self._epochs):
            if known is not None and keys[-1] == self._epoch_key(known.epoch):
                return known
            record = self._read(keys[-1])
            if record is not None:  # otherwise it was deleted by now: a newer one exists
                return record
        return None

    async def put(self, record: EpochRecord) -> bool:
        """Put *record*; return whether it is now the record of its number."""
        key = self._epoch_key(record.epoch)
        return await self._worker.run(self._store.put_if_absent, key, wrap_message(record, key))

    async def put_object(self, name: str, payload: bytes) -> None:
        """Put an object, whose name is new."""
        key = self._objects + name
        await self._worker.run(self._store.put_if_absent, key, wrap(payload, key))

    async def get_object(self, name: str) -> bytes:
        """Return the payload of an object."""
        return await self._worker.run(self._get_object, name)

    def _get_object(self, name: str) -> bytes:
        key = self._objects + name
        value = self._store.get(key)
        if value is None:
            raise StateDamaged(f"{key} is missing; restore the object")
        return unwrap(value, key)

    async def tidy(self, newest: EpochRecord) -> None:
        """Delete old epochs, and objects that no epoch names and none will name."""
        await self._worker.run(self._tidy, newest)

    def _tidy(self, newest: EpochRecord) -> None:
        keys = self._store.list(self._epochs)
        old = [key for key in keys[:-EPOCHS_KEPT] if key < self._epoch_key(newest.epoch)]
        kept = [self._read(key) for key in keys if key not in old]
        named = {name for record in kept if record is not None for name in record.objects}
        # Objects of the epoch that is under way have a number above that of the newest record.
        end = f"{self._objects}{newest.epoch + 1:012d}"
        listed = self._store.list(self._objects)
        unnamed = [
            key for key in listed if key < end and key.removeprefix(self._objects) not in named
        ]
        # Records first: where a record is found, its objects are there, too.
        for left in (old, unnamed):
            for start in range(0, len(left), DELETED_AT_ONCE):
                self._store.delete(left[start : start + DELETED_AT_ONCE])

    def _epoch_key(self, epoch: int) -> str:
        return f"{self._epochs}epoch-{epoch:012d}"

    def _read(self, key: str) -> EpochRecord | None:
        value = self._store.get(key)
        if value is None:
            return None
        return unwrap_message(EpochRecord, value, key, "epoch of a dataflow")


def object_name(epoch: int, kind: str, number: int, life: str) -> str:
    """Return the name of an object that a worker puts for *epoch*."""
    return f"{epoch:012d}-{kind}-{number:04d}-{life}"


def packed_rows(rows: Sequence[tuple[str, Any]]) -> bytes:
    """Return results as an object."""
    return encode_value("msgpack", rows)


def rows_of(payload: bytes) -> list[tuple[str, Any]]:
    """Return the results in an object. Raises BodyError."""
    rows = decode_value("msgpack", payload)
    if not isinstance(rows, list) or not all(isinstance(r, list) and len(r) == 2 for r in rows):  # noqa: PLR2004
        raise BodyError("results are pairs of a key and a value")
    return [(key, value) for key, value in rows]
