"""The log of one partition of the first version: carries out the requests of a `SlotLog`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, assert_never

from ringpop_py.errors import KeyspaceError, StateDamaged
from ringpop_py.keyed.bodies import parts_of
from ringpop_py.partition.performer import Performer, gone, snapshots_at
from ringpop_py.slotlog import effects as log_is
from ringpop_py.slotlog.effects import StoreAnswer
from ringpop_py.slotlog.records import decode_record, encode_record
from ringpop_py.slotlog.slots import Data
from ringpop_py.stores.layout import MARK, slot_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.partition.tasks import Worker
    from ringpop_py.slotlog.slots import Record, Slot
    from ringpop_py.stores.layout import PartitionKeys


class LogStore(Performer["log_is.Request"]):
    """The part of a store under *keys*, called through *worker*."""

    def __init__(self, keys: PartitionKeys, worker: Worker) -> None:
        super().__init__(worker)
        self._keys = keys
        self._files: dict[Slot, bytes] = {}

    def make_nonce(self) -> str:
        """Return a text that no process has used before."""
        return secrets.token_hex(12)

    def hold_checkpoint(self, slot: Slot, file: bytes) -> None:
        """Keep *file* for the next `PutCheckpoint` at *slot*."""
        self._files[slot] = file

    def error_of(self, damage: log_is.Damaged) -> StateDamaged:
        """Return the error for *damage*, with the key in the store."""
        match damage.what:
            case log_is.Unreadable(why):
                text = why
            case log_is.GoneCheckpoint(slot):
                text = gone(self._keys.checkpoint(slot), "nothing else has what it held")
            case log_is.GoneRecord(slot):
                text = gone(self._keys.slot(slot), "later records need what it held")
            case _:
                assert_never(damage.what)
        self.say_damaged(text)
        return StateDamaged(text)

    def _carry_out(self, request: log_is.Request) -> log_is.Reply:
        match request:
            case log_is.PutSlot(_, slot, record):
                key = self._keys.slot(slot)
                content = encode_record(record, key)
            case log_is.PutCheckpoint(_, slot):
                key, content = self._keys.checkpoint(slot), self._files.pop(slot)
            case log_is.PutMark(_, slot):
                key, content = self._keys.mark(slot), b""  # the key says all
            case log_is.GetSlot(_, slot):
                key = self._keys.slot(slot)
                value = self._store.get(key)
                return StoreAnswer.ABSENT if value is None else log_is.Found(_record(value, key))
            case log_is.ListLog():
                return self._listed()
            case log_is.GetCheckpoint(_, slot):
                return snapshots_at(self._store, self._keys, slot)
            case log_is.Delete(_, slots, checkpoints, marks):
                keys = [self._keys.slot(slot) for slot in slots]
                keys += [self._keys.checkpoint(slot) for slot in checkpoints]
                keys += [self._keys.mark(slot) for slot in marks]
                self._store.delete(keys)
                return StoreAnswer.DELETED
            case _:
                assert_never(request)
        return StoreAnswer.WON if self._store.put_if_absent(key, content) else StoreAnswer.TAKEN

    def _listed(self) -> log_is.Listed:
        # List marks before checkpoints: then this list has the checkpoint of each mark, unless that
        # is lost. The other order is as safe, but would often need a second list.
        keys = self._store.list(self._keys.slots)
        checkpoints = self._store.list(self._keys.checkpoints)
        marks = [key.removesuffix(MARK) for key in keys if key.endswith(MARK)]
        return log_is.Listed(_slots_in(keys), _slots_in(checkpoints), _slots_in(marks))


def _slots_in(keys: Sequence[str]) -> list[Slot]:
    slots = (slot_in(key) for key in keys)  # None for the key of a mark, which ends otherwise
    return [slot for slot in slots if slot is not None]


def _record(value: bytes, key: str) -> Record:
    record = decode_record(value, key)
    if not isinstance(record, Data):
        return record
    try:
        return Data(parts_of(record.body), record.nonce)
    except KeyspaceError as error:
        raise StateDamaged(f"{key}: {error}") from None
