"""Journals, claims and checkpoints of one keyspace in a store: carries out requests of journals."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, assert_never

from ringpop_py.errors import KeyspaceError, StateDamaged
from ringpop_py.journal import codec
from ringpop_py.journal import effects as fx
from ringpop_py.journal.records import Claim, Entry, FirstClaim, Group, Release
from ringpop_py.keyed.bodies import parts_of
from ringpop_py.partition.performer import Performer, snapshots_at
from ringpop_py.slotlog.records import decode_record as decode_first_record
from ringpop_py.slotlog.slots import Claim as ClaimRecord
from ringpop_py.stores.layout import slot_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.journal.records import Record
    from ringpop_py.partition.tasks import Worker
    from ringpop_py.slotlog.slots import Slot
    from ringpop_py.stores.layout import JournalKeys, KeyspaceKeys

KNOWN_BYTES_MAX: Final = 32 << 20
"""The most bytes of records that are kept for other heirs of the same journals."""


class KnownRecords:
    """Records of journals that were read, so that each heir need not read them again.

    Nothing else ever stands in a slot that was read: see `ringpop_py.journal.effects`.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, tuple[Record, int]] = OrderedDict()
        self._bytes_count = 0

    def get(self, key: str) -> Record | None:
        """Return the record at *key*; None if it is not known."""
        found = self._records.get(key)
        return None if found is None else found[0]

    def add(self, key: str, record: Record, size: int) -> None:
        """Keep *record*, of *size* bytes, until there are too many."""
        if key in self._records:
            return
        self._records[key] = record, size
        self._bytes_count += size
        while self._bytes_count > KNOWN_BYTES_MAX and self._records:
            _, (_, dropped) = self._records.popitem(last=False)
            self._bytes_count -= dropped

    def clear(self) -> None:
        """Forget all."""
        self._records.clear()
        self._bytes_count = 0


class JournalStore(Performer[fx.Request]):
    """What stands under *keys* in a store, called through *worker*, for one journal or heir.

    Args:
        known: shared by all heirs of a keyspace at a node.
    """

    def __init__(self, keys: KeyspaceKeys, worker: Worker, known: KnownRecords) -> None:
        super().__init__(worker)
        self._keys = keys
        self._known = known
        self._files: dict[tuple[int, Slot], bytes] = {}
        self._last = "", keys.journal("")

    def make_name(self) -> str:
        """Return a name that no journal has had."""
        return secrets.token_hex(12)

    def hold_checkpoint(self, partition: int, slot: Slot, file: bytes) -> None:
        """Keep *file* for the next `PutCheckpoint` of *partition* at *slot*."""
        self._files[partition, slot] = file

    def error_of(self, damage: fx.Damaged) -> StateDamaged:
        """Return the error for *damage*, with the key in the store."""
        what = damage.what
        match what:
            case fx.Unreadable(why):
                text = why
            case fx.GoneCheckpoint(slot):
                key = self._keys.partition(damage.partition).checkpoint(slot)
                text = f"{key} is gone, and nothing else has what it held"
            case fx.GoneRecord(journal, number):
                key = self._journal(journal).slot(number)
                text = f"{key} is gone, and what it held is needed"
            case fx.GoneClaim(partition, epoch):
                key = self._keys.partition(partition).claim(epoch)
                text = f"{key} is gone, and there are later claims"
            case _:
                assert_never(what)
        return self._damage(text)

    def _journal(self, name: str) -> JournalKeys:
        last = self._last  # read once: other threads may ask for another journal at the same time
        if name == last[0]:  # nearly all requests are for the same one
            return last[1]
        keys = self._keys.journal(name)
        self._last = name, keys
        return keys

    def _carry_out(  # noqa: PLR0911 - one for each kind of request
        self, request: fx.Request
    ) -> fx.Reply:
        match request:
            case fx.PutSlot(_, journal, slot, record):  # first, because each commit is one
                key = self._journal(journal).slot(slot)
                won = self._store.put_if_absent(key, codec.encode_record(record, key))
                return fx.StoreAnswer.WON if won else fx.StoreAnswer.TAKEN
            case fx.GetSlot(_, journal, slot):
                return self._record(self._journal(journal).slot(slot))
            case fx.ListJournal(_, journal, marks_only):
                keys = self._journal(journal)
                found = keys.numbers(self._store.list(keys.marks if marks_only else keys.root))
                return fx.JournalListed(*found)
            case fx.GetMark(_, journal, slot):
                key = self._journal(journal).mark(slot)
                value = self._store.get(key)
                return _found(value, lambda v: codec.decode_mark(v, key))
            case fx.ListPartition(_, number):
                return self._partition(number)
            case fx.GetClaim(_, number, epoch):
                key = self._keys.partition(number).claim(epoch)
                return _found(self._store.get(key), lambda v: _claim(v, key))
            case fx.GetCheckpoint(_, number, slot):
                return snapshots_at(self._store, self._keys.partition(number), slot)
            case fx.DeleteSlots(_, journal, slots, marks):
                journal_keys = self._journal(journal)
                self._store.delete([*map(journal_keys.slot, slots), *map(journal_keys.mark, marks)])
                return fx.StoreAnswer.DELETED
            case fx.DeleteCheckpoints(_, number, slots):
                self._store.delete([*map(self._keys.partition(number).checkpoint, slots)])
                return fx.StoreAnswer.DELETED
            case _:
                key, value = self._put_of(request)
        return fx.StoreAnswer.WON if self._store.put_if_absent(key, value) else fx.StoreAnswer.TAKEN

    def _put_of(self, request: fx.PutMark | fx.PutClaim | fx.PutCheckpoint) -> tuple[str, bytes]:
        match request:
            case fx.PutMark(_, journal, slot, mark):
                key = self._journal(journal).mark(slot)
                return key, codec.encode_mark(mark, key)
            case fx.PutClaim(_, number, epoch, claim):
                key = self._keys.partition(number).claim(epoch)
                return key, codec.encode_claim(claim, key)
            case fx.PutCheckpoint(_, number, slot):
                key = self._keys.partition(number).checkpoint(slot)
                return key, self._files.pop((number, slot))
            case _:
                assert_never(request)

    def _record(self, key: str) -> fx.Reply:
        known = self._known.get(key)
        if known is not None:
            return fx.Found(known)
        value = self._store.get(key)
        if value is None:
            return fx.StoreAnswer.ABSENT
        record = codec.decode_record(value, key)
        if isinstance(record, Group):
            record = Group(tuple(_checked(entry, key) for entry in record.entries))
        self._known.add(key, record, len(value))
        return fx.Found(record)

    def _partition(self, number: int) -> fx.PartitionListed:
        keys = self._keys.partition(number)
        epochs: list[int] = []
        checkpoints: list[Slot] = []
        for key in self._store.list(keys.root):
            slot = slot_in(key)
            if slot is None:
                continue  # a mark of the first version
            if key.startswith(keys.checkpoints):
                checkpoints.append(slot)
            elif slot.sequence == 0:
                epochs.append(slot.epoch)
        return fx.PartitionListed(epochs, checkpoints)


def _found(value: bytes | None, decode: Callable[[bytes], object]) -> fx.Reply:
    return fx.StoreAnswer.ABSENT if value is None else fx.Found(decode(value))


def _claim(value: bytes, key: str) -> Claim | FirstClaim:
    if not codec.is_first_version(value):
        return codec.decode_claim(value, key)
    claim = decode_first_record(value, key)
    if not isinstance(claim, ClaimRecord):
        raise StateDamaged(f"{key} holds no claim; restore the object")
    return FirstClaim(claim.owner)


def _checked(entry: Entry, key: str) -> Entry:
    if isinstance(entry.body, Release):
        return entry
    try:
        return Entry(entry.partition, entry.epoch, parts_of(entry.body))
    except KeyspaceError as error:
        raise StateDamaged(f"{key}: {error}") from None
