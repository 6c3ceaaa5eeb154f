"""A keyspace for programs that are not members: scripts, WSGI applications. No trio, no thread.

It mirrors `ringpop_py.state.keyspaces.keyspace.Keyspace`, but blocks, and has connections of its
own.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ringpop_py.base.arguments import checked_kind, checked_text
from ringpop_py.base.errors import KeyspaceError, KeyspaceUnknown
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import replace
from ringpop_py.base.values.requests import ScanRequest, checked_timeout_s, value_of
from ringpop_py.client.client import Client, Closing
from ringpop_py.client.dispatcher import ClientDispatcher
from ringpop_py.state.requests import (
    PAGE_ROWS,
    ReadsOf,
    ScansOf,
    Writer,
    WritesOf,
    all_of,
    change_of,
    changes_in,
    checked_limit,
    grouped,
    keys_in,
    known,
    scan_of,
    scattered,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ringpop_py.base.values.operations import Change, OperationId, Outcome, Value

T = TypeVar("T")


class KeyspaceClient(Closing):
    """The keyspace *name*, through the daemon of *client*.

    It calls owners directly if it can, and its daemon otherwise. A lost request is sent again until
    the deadline: every write has an id, so it takes effect once. Methods, values and errors are
    those of `Keyspace`. If no daemon answers, that is a `PartitionUnavailable`, too (or an
    `OutcomeUnknown`, if a write may have got through).

    Threads may share a client. A copy in another process, by fork, pickle or a closure of Spark,
    writes under ids of its own.

    Args:
        client: also gives the time-out of calls that have none; it stays open.
        direct: False if the addresses of owners cannot be reached from here.
    """

    def __init__(self, client: Client, name: str, *, direct: bool = True) -> None:
        checked_kind(client, Client, "client", "a Client")
        self.name = checked_text(name, "name")
        self._client = client
        self._direct = direct
        self._timeout_s = client.timeout_s
        self._dispatcher = ClientDispatcher(client, name, direct=direct)
        self._writer = Writer("client")

    def __repr__(self) -> str:
        return f"<KeyspaceClient {self.name!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(KeyspaceClient, direct=self._direct), (self._client, self.name)

    def close(self) -> None:
        """Close the connections to owners; the next call makes new ones."""
        self._dispatcher.close()

    # Reading.

    def get(
        self,
        key: str,
        default: Value = None,
        *,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> Value:
        """Return the value of *key*; *default* if there is none."""
        return self.get_many([key], stale=stale, timeout_s=timeout_s).get(key, default)

    def get_many(
        self, keys: Iterable[str], *, stale: bool = False, timeout_s: float | None = None
    ) -> dict[str, Value]:
        """Return the values of those of *keys* that exist. Raises if any could not be read."""
        wanted = keys_in(keys)  # they may be read twice

        def read(deadline: float) -> dict[str, Value]:
            keyspace = self._dispatcher.described(deadline)
            count = keyspace.partitions_count
            request = ReadsOf.of(self.name, keyspace.generation, wanted, count, stale=stale)
            results = self._dispatcher.ask(request, tuple(request.parts), deadline, stale=stale)
            return {key: value_of(key, packed) for key, packed in request.rows(results)}

        return self._until(timeout_s, read)

    def scan(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[str, Value]]:
        """Yield keys and values in order; see `Keyspace.scan`. *timeout_s* is for each page."""
        left = checked_limit(limit)
        while left is None or left > 0:
            wanted = PAGE_ROWS if left is None else min(left, PAGE_ROWS)
            # Without generation and partitions: `_page` sets them, as they may change between
            # attempts.
            bounds = scan_of(self.name, prefix, start, end, wanted, stale=stale)
            rows, start = self._until(timeout_s, partial(self._page, bounds))
            for key, packed in rows:
                yield key, value_of(key, packed)
            if start is None:
                return
            left = None if left is None else left - len(rows)

    def _page(
        self, bounds: ScanRequest, deadline: float
    ) -> tuple[list[tuple[str, bytes]], str | None]:
        keyspace = self._dispatcher.described(deadline)
        wanted = messages.part_limit(bounds.limit, keyspace.partitions_count)
        request = ScansOf(replace(bounds, generation=keyspace.generation, limit=wanted))
        numbers = range(keyspace.partitions_count)
        results = self._dispatcher.ask(request, numbers, deadline, stale=request.stale)
        return messages.merged_page(all_of(results).values(), bounds.limit)

    # Writing.

    def put(
        self,
        key: str,
        value: Value,
        *,
        if_tag: str | None = None,
        if_absent: bool = False,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Set *key* to *value*."""
        self.update(
            key,
            "put",
            value,
            if_tag=if_tag,
            if_absent=if_absent,
            operation_id=operation_id,
            timeout_s=timeout_s,
        )

    def delete(
        self,
        key: str,
        *,
        if_tag: str | None = None,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete *key*; it need not exist, unless *if_tag* is given."""
        self.update(key, "delete", if_tag=if_tag, operation_id=operation_id, timeout_s=timeout_s)

    def update(
        self,
        key: str,
        operation: str,
        argument: Value = None,
        *,
        if_tag: str | None = None,
        if_absent: bool = False,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> Value:
        """Change *key*, and return its value afterwards; see `Keyspace.update`."""
        change = change_of(key, operation, argument, if_tag, if_absent=if_absent)
        (outcome,) = self.update_many([change], operation_id=operation_id, timeout_s=timeout_s)
        if isinstance(outcome, KeyspaceError):
            raise outcome
        return outcome.values[0]

    def update_many(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome | KeyspaceError]:
        """Make many changes; return the outcome of each; see `Keyspace.update_many`.

        Raises:
            BadOperation: if a value in them cannot be sent; then none is made.
        """
        wanted = changes_in(changes, offsets)

        def write(deadline: float) -> list[Outcome | KeyspaceError]:
            keyspace = self._dispatcher.described(deadline)
            groups = grouped([change.key for change in wanted], keyspace.partitions_count)
            parts = {
                n: self._writer.writes(n, [wanted[at] for at in places], operation_id, offsets)
                for n, places in groups.items()
            }
            request = WritesOf(self.name, keyspace.generation, parts)
            return scattered(groups, known(self._dispatcher.ask(request, tuple(parts), deadline)))

        return self._until(timeout_s, write)

    # How.

    def _until(self, timeout_s: float | None, attempt: Callable[[float], T]) -> T:
        # It is tried again if the keyspace turns out to have been created again.
        wait_s = self._timeout_s if timeout_s is None else checked_timeout_s(timeout_s)
        deadline = time.monotonic() + wait_s
        try:
            return attempt(deadline)
        except KeyspaceUnknown:
            if not self._dispatcher.look_again(deadline):
                raise
        return attempt(deadline)
