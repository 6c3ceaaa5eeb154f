"""A store in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ringpop_py.errors import ConfigError, StoreFull, StoreUnavailable
from ringpop_py.stores.keys import checked_key, checked_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUSY_S: Final = 10.0
"""How long to wait for another process that writes."""
POLL_S: Final = 0.005
CONNECTIONS_MAX: Final = 16
"""How many connections are kept open while nobody uses them."""

_NO_ROOM: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}
_DEFINITION: Final = (
    "CREATE TABLE IF NOT EXISTS store (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL)"
)


class SqliteStore:
    """See `Store`. The file must be on a disk of this machine: its lock does not cross a network.

    A commit is synced before anybody can read it. Readers wait for nobody.

    Args:
        path: the file; made if it is not there, with the folders above it. SQLite keeps two more
            beside it, which belong to it.

    Raises:
        ConfigError: if the file cannot be opened, or is no database of SQLite.
    """

    quick = True
    in_memory = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100
        self._idle: deque[sqlite3.Connection] = deque()
        self._is_closed = False
        # Writers of one process queue here; SQLite's own waiting sleeps and polls.
        self._writing = threading.Lock()
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH103, PTH120
            connection = self._connect()
            connection.execute(_DEFINITION)
        except (sqlite3.Error, OSError) as error:
            message = f"sqlite store {self._path}: {error}"
            raise ConfigError(message) from None
        self._idle.append(connection)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        checked_key(key)
        with self._connection() as connection:
            # For its speed: a key that is taken needs no lock.
            if connection.execute("SELECT 1 FROM store WHERE key = ?", (key,)).fetchone():
                return False
            put = "INSERT INTO store VALUES (?, ?) ON CONFLICT DO NOTHING"
            with self._writing:
                return connection.execute(put, (key, value)).rowcount == 1

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        checked_key(key)
        with self._connection() as connection:
            found = connection.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        checked_prefix(prefix)
        after = prefix[:-1] + chr(ord("/") + 1) if prefix else "\N{DELETE}"
        query = "SELECT key FROM store WHERE key >= ? AND key < ? ORDER BY key"
        with self._connection() as connection:
            return [key for (key,) in connection.execute(query, (prefix, after))]

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`. All of them go in one transaction."""
        rows = [(checked_key(key),) for key in keys]
        with self._connection() as connection, self._writing:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM store WHERE key = ?", rows)
            connection.execute("COMMIT")

    def close(self) -> None:
        """See `Store`. Connections in use are closed by those who use them."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for one call. One that met an error is not used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect_again()
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

    def _connect_again(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.Error as error:
            raise self._trouble(error) from None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _trouble(self, error: sqlite3.Error) -> StoreUnavailable:
        message = f"sqlite store {self._path}: {error}"
        # SQLite takes back what did not fit; any other error may come after the commit.
        if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
            return StoreFull(message)
        return StoreUnavailable(message)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn a new file's journal into a WAL. For this alone SQLite does not wait for others."""
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until_s:
                raise
        else:
            return
        time.sleep(POLL_S)
