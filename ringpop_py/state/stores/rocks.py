"""Entries in RocksDB, for partitions whose state is larger than memory.

The database is in a local folder and is only a cache: its contents are deleted when it is opened,
because the checkpoints and the log are the truth. So it has no journal, and syncs nothing.

This module relies on facts about rocksdict 0.3.29, which its tests check. An iterator sees the
database as it was when the iterator was made, whatever is written afterwards, and another thread
may use it. `Snapshot` does not help, since its iterators see later writes. An upper bound for
iterators does not work if keys are plain bytes. All errors are plain `Exception`.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from ringpop_py.base.errors import ConfigError, PartitionUnavailable
from ringpop_py.state.table.entries import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rocksdict import RdictIter

    from ringpop_py.state.table.entries import Frozen, Piece

OPEN_FILES_MAX: Final = 512  # RocksDB has no limit by default, but processes have one
NUMBER_BYTES: Final = 8
_FOLDERS: Final = "entries-"


class RocksDatabase:
    """A database for the entries of any number of partitions. Close frozen entries before it.

    Raises:
        ConfigError: if another process uses the *folder*, or it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        except OSError as error:
            raise ConfigError(f"cannot keep entries in {folder}: {error}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ConfigError(
                f"another process keeps entries in {folder}; use another folder"
            ) from None
        for left in sorted(folder.glob(f"{_FOLDERS}*")):
            shutil.rmtree(left, ignore_errors=True)
        self._folder = folder / f"{_FOLDERS}{secrets.token_hex(4)}"
        try:
            self._database = Rdict(str(self._folder), _options())
        except Exception as error:  # noqa: BLE001 - rocksdict has no type for its errors
            self._lock.close()
            raise ConfigError(f"cannot open a database in {folder}: {error}") from None
        self._numbers = count()

    def entries(self) -> RocksEntries:
        """Return new, empty entries, separate from all others."""
        return RocksEntries(self._database, self._numbers)

    def close(self) -> None:
        """Close the database and delete its files."""
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


class RocksEntries:
    """Entries of one partition (`Entries`), under keys that begin with its number.

    All methods but `clear` raise `PartitionUnavailable` if the database fails, for example on a
    full disk. A write that failed is then in the database as a whole or not at all.

    Attributes:
        failed: see `ringpop_py.state.table.entries.Entries`.
    """

    def __init__(self, database: Rdict, numbers: Iterator[int]) -> None:
        self._database = database
        self._numbers = numbers
        self._count = 0
        self.failed = False
        self._begin()
        self._options = WriteOptions()
        # No journal: the contents are deleted at the next start in any case.
        self._options.disable_wal = True  # type: ignore[method-assign, assignment] # a property

    def __len__(self) -> int:
        return self._count

    def get(self, key: str, /) -> bytes | None:
        """Return the value of *key*; None if there is none."""
        with _FailingAsOurs(self):
            value: bytes | None = self._database.get(self._stored(key))
        return value

    def write(self, changed: Mapping[str, bytes], deleted: Sequence[str]) -> None:
        """Set *changed* and delete *deleted*."""
        gone = [self._stored(key) for key in dict.fromkeys(deleted)]
        stored = {self._stored(key): value for key, value in changed.items()}
        batch = WriteBatch(raw_mode=True)  # written as a whole or not at all
        for key, value in stored.items():
            batch.put(key, value)
        for key in gone:
            batch.delete(key)
        with _FailingAsOurs(self):
            new_count = self._absent_count(list(stored))
            gone_count = len(gone) - self._absent_count(gone)
            self._database.write(batch, self._options)
        self._count += new_count - gone_count

    def scan(self, prefix: str, start: str, end: str | None, limit: int) -> list[tuple[str, bytes]]:
        """Return the first *limit* entries with *prefix*, from *start* to before *end*, by key."""
        found: list[tuple[str, bytes]] = []
        if limit <= 0:
            return found
        begins = self._stored(prefix)
        ends = None if end is None else self._stored(end)
        with _FailingAsOurs(self):
            rows: Any = self._database.items(from_key=self._stored(max(prefix, start)))
            for stored, value in _rows_of(rows, begins):
                if ends is not None and stored >= ends:
                    break
                found.append((_key_of(stored), value))
                if len(found) >= limit:
                    break
        return found

    def at_most(self, limit: int) -> None:
        """See `ringpop_py.state.table.entries.Entries`."""

    def clear(self) -> None:
        """Delete all entries. It never fails, so that a broken partition can be dropped."""
        try:
            self._database.delete_range(self._number, self._after, self._options)
        except Exception:  # noqa: BLE001 - rocksdict has no type for its errors
            self._begin()  # old rows keep the old number, and are deleted with the database
        self._count = 0
        self.failed = False

    def _begin(self) -> None:
        number = next(self._numbers)
        self._number = number.to_bytes(NUMBER_BYTES, "big")
        self._after = (number + 1).to_bytes(NUMBER_BYTES, "big")

    def freeze(self, keys: Sequence[str] | None = None) -> Frozen:
        """Return all entries, or those of *keys*, as of now; they are read later."""
        with _FailingAsOurs(self):
            if keys is None:
                rows: Any = self._database.items(from_key=self._number)  # as of this moment
                return _FrozenRows(_rows_of(rows, self._number), self._count)
            cursor = self._database.iter()
        stored = sorted(self._stored(key) for key in keys)
        return _FrozenRows(_rows_at(cursor, stored), len(stored))

    def _stored(self, key: str) -> bytes:
        # A key that is not Unicode was refused when it was written, so it is simply not found.
        return self._number + key.encode("utf-8", "surrogatepass")

    def _absent_count(self, stored: list[Any]) -> int:
        values: Any = self._database.get(stored) if stored else []
        return int(values.count(None))


class _FrozenRows:
    def __init__(self, rows: Iterator[tuple[bytes, bytes]], row_count: int) -> None:
        self._rows = rows  # an iterator, so they can be read only once
        self._count = row_count

    def __len__(self) -> int:
        return self._count

    def pieces(self, bytes_max: int) -> Iterator[Piece]:
        """Yield all rows in pieces, ordered by key."""
        rows = ((_key_of(stored), value) for stored, value in self._rows)
        with _FailingAsOurs():
            yield from pieces_of(rows, bytes_max)

    def close(self) -> None:
        """Drop the iterator, so that the database can reclaim what has changed since."""
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
        assert cursor.key() == key, "only existing keys are frozen"
        yield key, cursor.value()


def _key_of(stored: bytes) -> str:
    return stored[NUMBER_BYTES:].decode()


class _FailingAsOurs:
    """A block in which an error of rocksdict (a plain `Exception`) is raised as ours.

    Args:
        entries: those that have failed then.
    """

    def __init__(self, entries: RocksEntries | None = None) -> None:
        self._entries = entries

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        # Not an AssertionError, which is a bug of ours.
        if isinstance(error, Exception) and not isinstance(error, AssertionError):
            if self._entries is not None:
                self._entries.failed = True
            raise PartitionUnavailable(
                f"the local database failed, so this node drops the partition: {error}"
            ) from error


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - rocksdict's own signature
    options.set_max_open_files(OPEN_FILES_MAX)
    return options
