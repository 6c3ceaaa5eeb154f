"""The log of one partition in a store: carries out the requests of a `SlotLog`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, assert_never

from ringpop_py.errors import KeyspaceError, StateDamaged, StoreUnavailable
from ringpop_py.keyed.bodies import parts_of
from ringpop_py.logs import log
from ringpop_py.slotlog import effects as log_is
from ringpop_py.slotlog.effects import StoreAnswer
from ringpop_py.slotlog.records import decode_record, encode_record
from ringpop_py.slotlog.slots import Data
from ringpop_py.stores.layout import MARK, slot_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from ringpop_py.partition.checkpoints import Checkpoint
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.slotlog.slots import Record, Slot
    from ringpop_py.stores.layout import PartitionKeys
    from ringpop_py.stores.store import Store


class LogStore:
    """The part of *store* under *keys*, called through *worker*.

    Attributes:
        quick: see `Store.quick`.
        trouble: why the last request failed; None if it did not.
    """

    def __init__(self, store: Store, keys: PartitionKeys, worker: Worker) -> None:
        self.quick = store.quick
        self.trouble: StoreUnavailable | None = None
        self._said = ""
        self._store = store
        self._keys = keys
        self._worker = worker
        self._files: dict[Slot, bytes] = {}

    def make_nonce(self) -> str:
        """Return a text that no process has used before."""
        return secrets.token_hex(12)

    def hold_checkpoint(self, slot: Slot, file: bytes) -> None:
        """Keep *file* for the next `PutCheckpoint` at *slot*."""
        self._files[slot] = file

    def perform(self, request: log_is.Request) -> Awaitable[log_is.Reply]:
        """Carry out *request* in a thread; a refusal by the store is a reply, too."""
        return self._worker.run(self.perform_now, request)

    def perform_now(self, request: log_is.Request) -> log_is.Reply:
        """Carry out *request* on this thread. It blocks, unless the store is `quick`."""
        try:
            reply = self._carry_out(request)
        except StoreUnavailable as error:
            self.trouble = error
            return StoreAnswer.FAILED if error.passes else StoreAnswer.NO_ROOM
        except StateDamaged as error:
            self.trouble = StoreUnavailable(str(error))
            self._say_damaged(str(error))
            return log_is.Unreadable(str(error))
        self.trouble = None
        return reply

    def error_of(self, damage: log_is.Damaged) -> StateDamaged:
        """Return the error for *damage*, with the key in the store."""
        match damage.what:
            case log_is.Unreadable(why):
                text = why
            case log_is.GoneCheckpoint(slot):
                text = f"{self._keys.checkpoint(slot)} is gone, and nothing else has what it held"
            case log_is.GoneRecord(slot):
                text = f"{self._keys.slot(slot)} is gone, and later records need what it held"
            case _:
                assert_never(damage.what)
        self._say_damaged(text)
        return StateDamaged(f"{text}; put back what was there")

    def _say_damaged(self, text: str) -> None:
        # The same damage is found again at every try, until it is repaired: log it once.
        if text != self._said:
            self._said = text
            log.error("state-damaged", text=text)

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
                return self._snapshots(slot)
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

    def _snapshots(self, slot: Slot) -> log_is.Found | log_is.GoneCheckpoint:
        """Return the checkpoint at *slot* and those that it builds on, the whole one first."""
        newest = self._checkpoint(slot)
        if newest is None:
            return log_is.GoneCheckpoint(slot)
        snapshots = []
        for earlier in newest.builds_on:
            found = self._checkpoint(earlier)
            if found is None:
                return log_is.GoneCheckpoint(earlier)
            snapshots.append(found.snapshot)
        return log_is.Found([*snapshots, newest.snapshot])

    def _checkpoint(self, slot: Slot) -> Checkpoint | None:
        # Not at the top, because pyarrow takes 60 MB.
        from ringpop_py.partition.checkpoints import decode_checkpoint  # noqa: PLC0415

        key = self._keys.checkpoint(slot)
        value = self._store.get(key)
        if value is None:
            return None
        try:
            found = decode_checkpoint(value)
        except StateDamaged as error:
            raise StateDamaged(f"{key}: {error}") from None
        # A file is sealed, but it does not know its key: an operator may have copied it elsewhere.
        if found.slot != slot or not self._keys.are_of(
            found.keyspace, found.generation, found.partition
        ):
            raise StateDamaged(
                f"{key} is a checkpoint of another slot or partition; restore the object"
            )
        return found


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
