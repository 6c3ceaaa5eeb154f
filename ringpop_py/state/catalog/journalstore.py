"""Journals, claims and checkpoints of one keyspace in a store: carries out requests of journals."""

from __future__ import annotations

import secrets
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, assert_never

from ringpop_py.base.errors import KeyspaceError, StateDamaged, StoreUnavailable
from ringpop_py.base.logs import log
from ringpop_py.state.catalog.layout import number_in, slot_in
from ringpop_py.state.journal import codec
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.records import Entry, Group, Release
from ringpop_py.state.table.bodies import Body, parts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringpop_py.state.catalog.checkpoints import Checkpoint
    from ringpop_py.state.catalog.high_water import ReachedBook
    from ringpop_py.state.catalog.layout import JournalKeys, KeyspaceKeys, PartitionKeys
    from ringpop_py.state.journal.records import Record, Slot
    from ringpop_py.state.stores.store import Store
    from ringpop_py.state.tasks import Worker

KNOWN_BYTES_MAX: Final = 64 << 20
"""About how many bytes of records are kept for other recoveries of the same journals.
At the limit, records that are read are not kept."""
ENTRY_BYTES: Final = 1_000
CHANGE_BYTES: Final = 150
"""The bytes that an entry, and a change in it, take in memory besides their keys and values."""


class KnownRecords:
    """Records of journals that were read, so that each recovery need not read them again.

    Nothing else ever stands in a slot that was read: see `ringpop_py.state.journal.effects`.

    Attributes:
        reached: looked at before a recovery ends a journal or claims; None if nothing is noted.
        said: the damage that was logged: each try finds it again.
    """

    def __init__(self, reached: ReachedBook | None = None) -> None:
        self.reached = reached
        self.said: set[str] = set()
        self._lock = Lock()
        self._records: dict[str, Record] = {}
        self._reading: dict[str, Lock] = {}
        self._bytes_count = 0

    def get(self, key: str, read: Callable[[], tuple[Record, int] | None]) -> Record | None:
        """Return the record at *key*, or None if there is none; call *read* if it is not known.

        *read* returns the record and its size in bytes. Threads that want the same record wait for
        the first of them. If that finds nothing, each thread looks again: an absence counts only
        for a thread that had asked before the look.
        """
        with self._lock:
            record = self._records.get(key)
            if record is not None:
                return record
            others = self._reading.get(key)
            if others is None:
                mine = self._reading[key] = Lock()
                mine.acquire()
        if others is None:
            try:
                return self._keep(key, read())
            finally:
                with self._lock:
                    del self._reading[key]
                mine.release()
        with others:
            pass
        record = self._records.get(key)
        return self._keep(key, read()) if record is None else record

    def _keep(self, key: str, found: tuple[Record, int] | None) -> Record | None:
        if found is None:
            return None
        record, size = found
        if isinstance(record, Group):
            size += sum(map(_overhead, record.entries))
        with self._lock:
            # Not in the place of older ones: recoveries read in order, so the next one would miss
            # those.
            if key not in self._records and self._bytes_count + size <= KNOWN_BYTES_MAX:
                self._records[key] = record
                self._bytes_count += size
        return record

    def clear(self) -> None:
        """Forget all records."""
        with self._lock:
            self._records.clear()
            self._bytes_count = 0
            self.said.clear()


def _overhead(entry: Entry) -> int:
    changes_count = len(entry.body.changed) if isinstance(entry.body, Body) else 0
    return ENTRY_BYTES + CHANGE_BYTES * changes_count


class StoreHealth:
    """Whether the store answers one member; threads note it, and a watch looks now and then.

    Attributes:
        trouble: why the last request failed; None if it did not.
    """

    def __init__(self) -> None:
        self.trouble: StoreUnavailable | None = None
        self.has_answered = False
        self.has_failed = False

    def only_fails(self) -> bool:
        """Return whether requests have failed since the last call of this, and none succeeded."""
        found = self.has_failed and not self.has_answered
        self.has_failed = self.has_answered = False
        return found


class JournalStore:
    """What stands under *keys* in a store, called through *worker*, for one journal or recovery.

    A refusal by the store is a reply, too.

    Args:
        health: shared by all that call the store for a keyspace at a node.
        known: shared by all recoveries of a keyspace at a node; None if nothing is read twice.

    Attributes:
        quick: see `Store.quick`.
        trouble: why the last request failed; None if it did not.
    """

    def __init__(
        self,
        keys: KeyspaceKeys,
        worker: Worker,
        known: KnownRecords | None = None,
        health: StoreHealth | None = None,
    ) -> None:
        self.quick = worker.store.quick
        self.trouble: StoreUnavailable | None = None
        self._health = health or StoreHealth()
        self._worker = worker
        self._store = worker.store
        self._keys = keys
        self._known = known
        self._reached = None if known is None else known.reached
        self._said = set[str]() if known is None else known.said
        self._files: dict[tuple[int, Slot], bytes] = {}
        self._last = "", keys.journal("")
        self._end = 0, "", ""

    def perform(self, request: fx.Request) -> Awaitable[fx.Reply]:
        """Carry out *request* in a thread."""
        return self._worker.run(self.perform_now, request)

    def perform_now(self, request: fx.Request) -> fx.Reply:
        """Carry out *request* on this thread. It blocks, unless the store is `quick`."""
        try:
            if self._reached is not None:
                _look_for_losses(self._reached, request)
            reply = self._carry_out(request)
        except StoreUnavailable as error:
            self.trouble = self._health.trouble = error
            self._health.has_failed = True
            return fx.StoreAnswer.FAILED if error.passes else fx.StoreAnswer.NO_ROOM
        except StateDamaged as error:
            self.trouble = StoreUnavailable(str(error))
            self._say_damaged(str(error))
            return fx.Unreadable(str(error))
        self.trouble = self._health.trouble = None
        self._health.has_answered = True
        return reply

    def is_absent_now(self, journal: str, slot: int) -> bool:
        """Return whether the store says, on this thread, that *slot* of *journal* is absent.

        It blocks, unless the store is `quick`.
        """
        end = self._end
        if end[0] != slot or end[1] != journal:  # nearly all look at the same one
            end = self._end = slot, journal, self._journal(journal).slot(slot)
        try:
            value = self._store.get(end[2])
        except StoreUnavailable:
            return False  # the next request says why
        self.trouble = self._health.trouble = None
        self._health.has_answered = True
        return value is None

    def _say_damaged(self, text: str) -> None:
        """Log *text*, once: each try finds the same damage again, until it is repaired."""
        if text not in self._said:
            self._said.add(text)
            log.error("state-damaged", text=text)

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
                text = _gone(key, "nothing else has what it held")
            case fx.GoneRecord(journal, number):
                key = self._journal(journal).slot(number)
                text = _gone(key, "what it held is needed")
            case fx.GoneClaim(partition, epoch):
                key = self._keys.partition(partition).claim(epoch)
                text = _gone(key, "there are later claims")
            case _:
                assert_never(what)
        self._say_damaged(text)
        return StateDamaged(text)

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
                return _found(self._store.get(key), lambda v: codec.decode_claim(v, key))
            case fx.GetCheckpoint(_, number, slot):
                return _snapshots_at(self._store, self._keys.partition(number), slot)
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
        if self._known is not None:
            record = self._known.get(key, partial(self._read_record, key))
        else:
            found = self._read_record(key)
            record = None if found is None else found[0]
        return fx.StoreAnswer.ABSENT if record is None else fx.Found(record)

    def _read_record(self, key: str) -> tuple[Record, int] | None:
        value = self._store.get(key)
        if value is None:
            return None
        record = codec.decode_record(value, key)
        if isinstance(record, Group):
            record = Group(tuple(_checked(entry, key) for entry in record.entries))
        return record, len(value)

    def _partition(self, number: int) -> fx.PartitionListed:
        keys = self._keys.partition(number)
        epochs: list[int] = []
        checkpoints: list[Slot] = []
        for key in self._store.list(keys.root):
            if key.startswith(keys.claims):
                epoch = number_in(key)
                epochs += [] if epoch is None else [epoch]
            else:
                slot = slot_in(key)
                checkpoints += [] if slot is None else [slot]
        return fx.PartitionListed(epochs, checkpoints)


def _look_for_losses(reached: ReachedBook, request: fx.Request) -> None:
    """Raise StateDamaged if *request* of a recovery rests on the absence of what is lost."""
    lost = ""
    match request:
        case fx.ListPartition():
            reached.look()
        case fx.PutSlot(_, journal, slot):  # a seal: a recovery puts nothing else
            lost = reached.lost_at(journal, slot)
        case fx.PutClaim(_, number, epoch):
            lost = reached.lost_claim(number, epoch)
        case _:
            pass
    if lost:
        raise StateDamaged(lost)


def _found(value: bytes | None, decode: Callable[[bytes], object]) -> fx.Reply:
    return fx.StoreAnswer.ABSENT if value is None else fx.Found(decode(value))


def _checked(entry: Entry, key: str) -> Entry:
    if isinstance(entry.body, Release):
        return entry
    try:
        return Entry(entry.partition, entry.epoch, parts_of(entry.body))
    except KeyspaceError as error:
        raise StateDamaged(f"{key}: {error}") from None


def _gone(key: str, why: str) -> str:
    """Return the error text for an object that is missing, and *why* that matters."""
    return f"{key} is gone, and {why}; restore the object"


def _snapshots_at(store: Store, keys: PartitionKeys, slot: Slot) -> fx.Found | fx.GoneCheckpoint:
    """Return the checkpoint at *slot* and those that it builds on, the whole one first."""
    newest = _checkpoint(store, keys, slot)
    if newest is None:
        return fx.GoneCheckpoint(slot)
    snapshots = []
    for earlier in newest.builds_on:
        found = _checkpoint(store, keys, earlier)
        if found is None:
            return fx.GoneCheckpoint(earlier)
        snapshots.append(found.snapshot)
    return fx.Found([*snapshots, newest.snapshot])


def _checkpoint(store: Store, keys: PartitionKeys, slot: Slot) -> Checkpoint | None:
    value = store.get(keys.checkpoint(slot))
    return None if value is None else checkpoint_in(value, keys, slot)


def checkpoint_in(value: bytes, keys: PartitionKeys, slot: Slot) -> Checkpoint:
    """Return the checkpoint in *value*, which was read where that of *slot* should be.

    Raises:
        StateDamaged: it is damaged, or another one; the text names the key.
    """
    # Not at the top, because pyarrow takes 60 MB.
    from ringpop_py.state.catalog.checkpoints import decode_checkpoint  # noqa: PLC0415

    key = keys.checkpoint(slot)
    try:
        found = decode_checkpoint(value)
    except StateDamaged as error:
        raise StateDamaged(f"{key}: {error}") from None
    # A file is sealed, but it does not know its key: an operator may have copied it elsewhere.
    if found.slot != slot or not keys.are_of(found.keyspace, found.generation, found.partition):
        raise StateDamaged(
            f"{key} is a checkpoint of another slot or partition; restore the object"
        )
    return found
