"""The records of shuffles, in a keyspace of the cluster's own."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from ringpop_py.base.errors import (
    BodyError,
    CallError,
    ConditionFailed,
    KeyspaceError,
    ShuffleRefused,
    ShuffleUnavailable,
)
from ringpop_py.base.values.declared import decode, encode
from ringpop_py.base.values.inflate import inflated
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.flow.shuffle.protocol.record import Record
from ringpop_py.state.table.conditions import tag_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.client.sync.client import Client

KEYSPACE: Final = "~shuffles"
RECORD_BYTES_MAX: Final = 1_000_000
"""The most bytes of a compressed record; a longer one needs fewer intervals or attempts."""
RECORD_UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most bytes of a record before it is compressed, and so after it is read: those of a head."""
TIMEOUT_S: Final = 5.0
"""After so many seconds, a record that cannot be read or set is unavailable."""
THREADS: Final = 16

T = TypeVar("T")


class Stored(NamedTuple):
    """A record as it stood when it was read; *tag* is for setting the next one."""

    record: Record
    tag: str


class Register:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self._keyspace = KeyspaceClient(client, KEYSPACE)
        self._limiter = trio.CapacityLimiter(THREADS)

    async def read(self, name: str) -> Stored | None:
        """Return the record of shuffle *name*; None if there never was one.

        Raises:
            ShuffleUnavailable: if it cannot be read.
        """
        value = await self._run(lambda: self._keyspace.get(name, timeout_s=TIMEOUT_S))
        return None if value is None else _stored(name, value)

    async def read_all(self) -> dict[str, Stored]:
        """Return all records. Raises ShuffleUnavailable."""
        rows = await self._run(lambda: dict(self._keyspace.scan(timeout_s=TIMEOUT_S)))
        return {name: _stored(name, value) for name, value in rows.items()}

    async def set(self, name: str, former: Stored | None, record: Record) -> bool:
        """Set *record* if *former* still stands; return whether it did.

        Raises:
            ShuffleUnavailable: if it cannot be set, or may or may not have been set.
            ShuffleRefused: if the record is too long.
        """
        unpacked = encode(record)
        value = zlib.compress(unpacked, 1)
        if len(value) > RECORD_BYTES_MAX or len(unpacked) > RECORD_UNPACKED_BYTES_MAX:
            raise ShuffleRefused(
                f"shuffle {name!r} has {record.interval_count} intervals and "
                f"{len(record.winners)} attempts, too many for one record of "
                f"{RECORD_BYTES_MAX} bytes: use fewer, larger ones"
            )
        tag = former.tag if former is not None else None

        def put() -> bool:
            try:
                self._keyspace.put(
                    name, value, if_tag=tag, if_absent=tag is None, timeout_s=TIMEOUT_S
                )
            except ConditionFailed:
                return False
            return True

        return await self._run(put)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._limiter
            )
        except (KeyspaceError, CallError) as error:
            raise ShuffleUnavailable(f"the records of shuffles: {error}") from error


def _stored(name: str, value: object) -> Stored:
    try:
        packed = value if isinstance(value, bytes) else b""
        return Stored(decode(Record, inflated(packed, RECORD_UNPACKED_BYTES_MAX)), tag_of(packed))
    except BodyError as error:
        text = f"the record of shuffle {name!r} cannot be read: {error}"
        raise ShuffleUnavailable(text) from None
