"""Entries in RocksDB, for partitions whose state is larger than memory.

The database is in a local folder and is a cache: what stands in it when it is opened is deleted,
for the checkpoints and the log are the truth. So it has no journal, and syncs nothing.

Facts about rocksdict 0.3.29 that this module goes by, and its tests check: an iterator sees the
database as it was when the iterator was made, whatever is written afterwards, and may be used by
another thread; `Snapshot` is no help, since iterators of one see what was written after it; an
upper bound for iterators does not work where keys are plain bytes; all errors are `Exception`.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from ringpop_py.errors import ConfigError, PartitionUnavailable
from ringpop_py.keyed.entries import ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rocksdict import RdictIter

    from ringpop_py.keyed.entries import Frozen, Piece

OPEN_FILES_MAX: Final = 512
NUMBER_BYTES: Final = 8
_FOLDERS: Final = "entries-"


class RocksDatabase:
    """A database for the entries of any number of partitions. Close what is frozen before it.

    Raises:
        ConfigError: another process uses the *folder*, or it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        except OSError as error:
            message = f"cannot keep entries in {folder}: {error}"
            raise ConfigError(message) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            message = f"another process keeps entries in {folder}"
            raise ConfigError(message) from None
        for left in sorted(folder.glob(f"{_FOLDERS}*")):
            shutil.rmtree(left, ignore_errors=True)
        self._folder = folder / f"{_FOLDERS}{secrets.token_hex(4)}"
        try:
            self._database = Rdict(str(self._folder), _options())
        except Exception as error:  # noqa: BLE001 - it has no type of its own
            self._lock.close()
            message = f"cannot open a database in {folder}: {error}"
            raise ConfigError(message) from None
        self._numbers = count()

    def entries(self) -> RocksEntries:
        """Entries of their own, empty."""
        return RocksEntries(self._database, self._numbers)

    def close(self) -> None:
        """Delete it all."""
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


class RocksEntries:
    """Entries of one partition (`ringpop_py.keyed.entries.Entries`): keys with its number.

    All methods but `clear` raise `PartitionUnavailable` where the database fails, for example on a
    full disk; what is written is then there as a whole or not at all.
    """

    def __init__(self, database: Rdict, numbers: Iterator[int]) -> None:
        self._database = database
        self._numbers = numbers
        self._count = 0
        self._begin()
        self._options = _write_options()

    def __len__(self) -> int:
        return self._count

    def get(self, key: str, /) -> bytes | None:
        """The value of *key*; None if there is none."""
        with _FailingAsOurs():
            value: bytes | None = self._database.get(self._stored(key))
        return value

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Set *changed* and delete *deleted*."""
        gone = [self._stored(key) for key in dict.fromkeys(deleted)]
        stored = {self._stored(key): value for key, value in changed.items()}
        batch = WriteBatch(raw_mode=True)
        for key, value in stored.items():
            batch.put(key, value)
        for key in gone:
            batch.delete(key)
        with _FailingAsOurs():
            new_count = self._absent_count(list(stored))
            gone_count = len(gone) - self._absent_count(gone)
            self._database.write(batch, self._options)
        self._count += new_count - gone_count

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """The first *limit* with *prefix*, from *start* on, before *end*; ordered by key."""
        found: list[tuple[str, bytes]] = []
        if limit <= 0:
            return found
        begins = self._stored(prefix)
        ends = None if end is None else self._stored(end)
        with _FailingAsOurs():
            rows: Any = self._database.items(from_key=self._stored(max(prefix, start)))
            for stored, value in _rows_of(rows, begins):
                if ends is not None and stored >= ends:
                    break
                found.append((_key_of(stored), value))
                if len(found) >= limit:
                    break
        return found

    def at_most(self, limit: int) -> None:
        """See `ringpop_py.keyed.entries.Entries`."""

    def clear(self) -> None:
        """Delete all. This alone never fails: who gives up what is broken has to be able to."""
        try:
            self._database.delete_range(self._number, self._after, self._options)
        except Exception:  # noqa: BLE001 - it has no type of its own
            self._begin()  # what stays behind is nobody's, and gone with the database
        self._count = 0

    def _begin(self) -> None:
        number = next(self._numbers)
        self._number = number.to_bytes(NUMBER_BYTES, "big")
        self._after = (number + 1).to_bytes(NUMBER_BYTES, "big")

    def freeze(self, keys: Sequence[str] | None = None) -> Frozen:
        """All entries, or those of *keys*, as they are now: nothing of them is read yet."""
        with _FailingAsOurs():
            if keys is None:
                rows: Any = self._database.items(from_key=self._number)  # of this moment
                return _FrozenRows(_rows_of(rows, self._number), self._count)
            cursor = self._database.iter()
        stored = sorted(self._stored(key) for key in keys)
        return _FrozenRows(_rows_at(cursor, stored), len(stored))

    def _stored(self, key: str) -> bytes:
        # What is no Unicode text is refused where it is written; it is not there, then.
        return self._number + key.encode("utf-8", "surrogatepass")

    def _absent_count(self, stored: list[Any]) -> int:
        values: Any = self._database.get(stored) if stored else []
        return int(values.count(None))


class _FrozenRows:
    """Rows that an iterator holds; they are read once, and then no more."""

    def __init__(self, rows: Iterator[tuple[bytes, bytes]], row_count: int) -> None:
        self._rows = rows
        self._count = row_count

    def __len__(self) -> int:
        return self._count

    def pieces(self, bytes_max: int) -> Iterator[Piece]:
        """All of them, ordered by key."""
        keys: list[str] = []
        values: list[bytes] = []
        size = 0
        with _FailingAsOurs():
            for stored, value in self._rows:
                row_bytes = len(stored) + len(value) + ENTRY_BYTES
                if keys and size + row_bytes > bytes_max:
                    yield keys, values
                    keys, values, size = [], [], 0
                keys.append(_key_of(stored))
                values.append(value)
                size += row_bytes
        if keys:
            yield keys, values

    def close(self) -> None:
        """Let the database reclaim what has changed since."""
        self._rows = iter(())


def _rows_of(rows: Iterable[tuple[bytes, bytes]], begins: bytes) -> Iterator[tuple[bytes, bytes]]:
    for stored, value in rows:
        if not stored.startswith(begins):
            return
        yield stored, value


def _rows_at(cursor: RdictIter, stored: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for key in stored:
        cursor.seek(key)
        assert cursor.valid()
        assert cursor.key() == key, "only keys that are there are frozen"
        yield key, cursor.value()


def _key_of(stored: bytes) -> str:
    return stored[NUMBER_BYTES:].decode()


class _FailingAsOurs:
    """Within, an error of rocksdict (of no type of its own) is raised as ours."""

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, AssertionError):
            message = f"the local database failed: {error}"
            raise PartitionUnavailable(message) from error


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - its own way
    options.set_max_open_files(OPEN_FILES_MAX)
    return options


def _write_options() -> WriteOptions:
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment] # it is a property
    return options
