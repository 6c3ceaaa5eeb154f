"""A store in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError, StoreUnavailable
from ringpop_py.state.stores.store import (
    checked_key,
    checked_prefix,
    identity,
    missing,
    store_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUSY_S: Final = 10.0
"""The seconds for which a call waits for another process that writes. A longer wait raises
`StoreUnavailable`."""
POLL_S: Final = 0.0005
"""How often such a call tries again. SQLite itself would sleep for up to 100 ms at a time, although
a commit takes less than one."""
VALUE_BYTES_MAX: Final = 64 << 20
"""SQLite takes 1 GB, but who writes such a value would keep the others waiting for `BUSY_S`."""
CONNECTIONS_MAX: Final = 16
"""The most connections that are kept open while they are not in use."""

_NO_ROOM: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}
_DEFINITION: Final = (
    "CREATE TABLE IF NOT EXISTS store (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)"
)


class SqliteStore:
    """See `Store`. The file must be on a disk of this machine: its lock does not cross a network.

    A commit is synced before it can be read. Readers wait for nothing. A file that was deleted or
    replaced while it is in use makes the store unavailable: what is put into it would be lost.

    Args:
        path: the file. SQLite keeps two more files beside it, which belong to it.
        create: whether to make it, with the folders above it, if it does not exist.

    Raises:
        ConfigError: if the file is not there or cannot be opened, or is not a SQLite database.
    """

    quick = True
    in_memory = False
    value_bytes_max = VALUE_BYTES_MAX

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100
        self._idle: deque[sqlite3.Connection] = deque()
        self._is_closed = False
        if not create and not os.path.exists(self._path):  # noqa: PTH110
            raise missing(f"sqlite store {self._path} does not exist")
        # Writers of one process queue here, so that they need not poll.
        self._writing = threading.Lock()
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH103, PTH120
            # SQLite would let all users read it. Its other files have the mode of this one.
            with contextlib.suppress(OSError):  # SQLite says what is wrong
                os.close(os.open(self._path, os.O_CREAT, 0o600))
            connection = self._connect()
            _execute(connection, _DEFINITION)
            self._identity = identity(self._path)
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"sqlite store {self._path}: {error}") from None
        self._idle.append(connection)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        checked_key(key)
        with self._connection() as connection:
            # Only for speed: a put of an existing key then needs no lock.
            if _execute(connection, "SELECT 1 FROM store WHERE key = ?", (key,)).fetchone():
                return False
            put = "INSERT INTO store VALUES (?, ?) ON CONFLICT DO NOTHING"
            with self._writing:
                return _execute(connection, put, (key, value)).rowcount == 1

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        checked_key(key)
        with self._connection() as connection:
            found = _execute(connection, "SELECT value FROM store WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        checked_prefix(prefix)
        # The first text behind all keys with the prefix; no key has a character as high as DEL.
        after = prefix[:-1] + chr(ord("/") + 1) if prefix else "\N{DELETE}"
        query = "SELECT key FROM store WHERE key >= ? AND key < ? ORDER BY key"
        with self._connection() as connection:
            return [key for (key,) in _execute(connection, query, (prefix, after))]

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`. All of them go in one transaction."""
        rows = [(checked_key(key),) for key in keys]
        with self._connection() as connection, self._writing:
            _execute(connection, "BEGIN IMMEDIATE")  # one transaction: one sync for all rows
            connection.executemany("DELETE FROM store WHERE key = ?", rows)
            connection.execute("COMMIT")

    def close(self) -> None:
        """See `Store`. A connection in use is closed by its user."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one call. A connection that met an error is not used again."""
        self._check_that_here()
        try:
            connection = self._idle.pop()
        except IndexError:  # another thread may have taken the last one since any check
            try:
                connection = self._connect()
            except sqlite3.Error as error:
                raise self._trouble(error) from None
        try:
            yield connection
        except sqlite3.Error as error:
            connection.close()
            raise self._trouble(error) from None
        except BaseException:
            connection.close()
            raise
        if self._is_closed or len(self._idle) >= CONNECTIONS_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            _execute(connection, "PRAGMA journal_mode = WAL")
            _execute(connection, "PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _check_that_here(self) -> None:
        # Connections that are open go on with a file that has no name any more.
        try:
            same = identity(self._path) == self._identity
        except OSError as error:
            raise StoreUnavailable(f"sqlite store {self._path}: {error.strerror}") from None
        if not same:
            raise StoreUnavailable(
                f"sqlite store: {self._path} is no longer the file that was opened: restore it, and"
                " start all nodes that use it again"
            )

    def _trouble(self, error: sqlite3.Error) -> StoreUnavailable:
        message = f"sqlite store {self._path}: {error}"
        # SQLite rolls back a write that did not fit. Any other error may come after the commit.
        code = getattr(error, "sqlite_errorcode", None)
        is_refusal = code is not None and code & 0xFF == sqlite3.SQLITE_READONLY
        return store_error(message, is_full=code in _NO_ROOM, is_refusal=is_refusal)


def _execute(
    connection: sqlite3.Connection, statement: str, values: Sequence[object] = ()
) -> sqlite3.Cursor:
    """Execute *statement*, as soon as no other process holds a lock that it needs."""
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until_s:
                raise
        time.sleep(POLL_S)
