"""A keyspace for programs that are not members.

It mirrors `ringpop_py.state.keyspaces.keyspace.Keyspace`, over connections of its own.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from ringpop_py.base.arguments import checked_kind, checked_text
from ringpop_py.base.errors import KeyspaceError, KeyspaceUnknown
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import convert, encode, replace
from ringpop_py.base.values.requests import ScanRequest, checked_timeout_s, value_of
from ringpop_py.client.aio.client import AsyncClient
from ringpop_py.client.aio.dispatcher import AsyncClientDispatcher
from ringpop_py.client.lines.concurrent import AsyncClosing, now, sleep
from ringpop_py.state.actors.mail import MailOf, mail_of, stored_under
from ringpop_py.state.messages import CLIENT_WATCH, OWNERS, TELL, OwnersRequest
from ringpop_py.state.placement.table import PartitionOwners
from ringpop_py.state.requests import (
    PAGE_ROWS,
    ChangeOptions,
    MailIds,
    ReadsOf,
    ScansOf,
    Writer,
    WritesOf,
    all_of,
    change_of,
    changes_in,
    checked_limit,
    fenced,
    grouped,
    keys_in,
    known,
    scan_of,
    scattered,
    seconds_left,
    transaction_of,
    values_of,
)
from ringpop_py.state.watch.course import Course
from ringpop_py.state.watch.messages import watched_of
from ringpop_py.state.watch.watch import AsyncChanges

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from ringpop_py.base.values.operations import Change, OperationId, Outcome, Value
    from ringpop_py.route.proxy.request import (
        AnyReply,
        AnyRequest,
        HttpReply,
        HttpRequest,
        RequestOptions,
    )
    from ringpop_py.state.actors.mail import Mail
    from ringpop_py.state.locks.lock import Lock
    from ringpop_py.state.requests import Fence
    from ringpop_py.state.watch.course import WatchPosition
    from ringpop_py.state.watch.messages import WatchRequest

T = TypeVar("T")
AGAIN_S: Final = 0.1
LAST_CALL_S: Final = 1.0
"""With less time than this left, a daemon is not asked once more whether owners have changed."""


class AsyncKeyspaceClient(AsyncClosing):
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

    def __init__(self, client: AsyncClient, name: str, *, direct: bool = True) -> None:
        checked_kind(client, AsyncClient, "client", "an AsyncClient")
        self.name = checked_text(name, "name")
        self._client = client
        self._direct = direct
        self._timeout_s = client.timeout_s
        self.dispatcher = AsyncClientDispatcher(client, name, direct=direct)
        self._writer = Writer("client")

    def __repr__(self) -> str:
        return f"<AsyncKeyspaceClient {self.name!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(AsyncKeyspaceClient, direct=self._direct), (self._client, self.name)

    async def aclose(self) -> None:
        """Close the connections to owners; the next call makes new ones."""
        await self.dispatcher.aclose()

    # Reading.

    async def get(
        self,
        key: str,
        default: Value = None,
        *,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> Value:
        """Return the value of *key*; *default* if there is none."""
        found = await self.get_many([key], stale=stale, timeout_s=timeout_s)
        return found.get(key, default)

    async def get_many(
        self, keys: Iterable[str], *, stale: bool = False, timeout_s: float | None = None
    ) -> dict[str, Value]:
        """Return the values of those of *keys* that exist. Raises if any could not be read."""
        rows = await self.get_packed(keys, stale=stale, timeout_s=timeout_s)
        return {key: value_of(key, packed) for key, packed in rows}

    async def get_packed(
        self,
        keys: Iterable[str],
        *,
        stale: bool = False,
        stored: bool = False,
        timeout_s: float | None = None,
    ) -> list[tuple[str, bytes]]:
        """Return those of *keys* that exist, and packed values; see `Keyspace.get_packed`."""
        wanted = keys_in(keys)  # they may be read twice

        async def read(deadline: float) -> list[tuple[str, bytes]]:
            keyspace = await self.dispatcher.described(deadline)
            request = ReadsOf.of(
                self.name,
                keyspace.generation,
                wanted,
                keyspace.placing,
                stale=stale,
                stored=stored,
            )
            results = await self.dispatcher.ask(
                request, tuple(request.parts), deadline, stale=stale
            )
            return request.rows(results)

        return await self.until(timeout_s, read)

    async def scan(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[str, Value]]:
        """Yield keys and values in order; see `Keyspace.scan`. *timeout_s* is for each page."""
        left = checked_limit(limit)
        while left is None or left > 0:
            wanted = PAGE_ROWS if left is None else min(left, PAGE_ROWS)
            # Without generation and partitions: `_page` sets them, as they may change between
            # attempts.
            bounds = scan_of(self.name, prefix, start, end, wanted, stale=stale)
            rows, start = await self.until(timeout_s, partial(self._page, bounds))
            for key, packed in rows:
                yield key, value_of(key, packed)
            if start is None:
                return
            left = None if left is None else left - len(rows)

    async def _page(
        self, bounds: ScanRequest, deadline: float
    ) -> tuple[list[tuple[str, bytes]], str | None]:
        keyspace = await self.dispatcher.described(deadline)
        wanted = messages.part_limit(bounds.limit, keyspace.partitions_count)
        request = ScansOf(replace(bounds, generation=keyspace.generation, limit=wanted))
        numbers = range(keyspace.partitions_count)
        results = await self.dispatcher.ask(request, numbers, deadline, stale=request.stale)
        return messages.merged_page(all_of(results).values(), bounds.limit)

    def watch(
        self,
        prefix: str = "",
        *,
        key: str | None = None,
        after: WatchPosition | str | None = None,
        existing: bool = False,
        idle_s: float | None = None,
    ) -> AsyncChanges:
        """Return an iterator of the changes of keys with *prefix*, or of *key*.

        See `Keyspace.watch`. If no daemon answers for long, it raises PartitionUnavailable; another
        watch can go on after its `position`.
        """

        async def begin() -> Course:
            deadline = now() + self._timeout_s
            await self.dispatcher.look_again(deadline)  # a watch is of one generation
            keyspace = await self.dispatcher.described(deadline)
            placing, generation = keyspace.placing, keyspace.generation
            return Course(self.name, generation, placing, prefix, key, after, existing=existing)

        async def ask(request: WatchRequest) -> Mapping[int, object]:
            deadline = now() + request.wait_ms / 1_000 + self._timeout_s
            result = await self.dispatcher.ask_any(
                CLIENT_WATCH, b"", encode(request), deadline, changes_state=False
            )
            return watched_of(result)

        return AsyncChanges(begin, ask, now, idle_s)

    # Writing.

    async def put(self, key: str, value: Value, **options: Unpack[ChangeOptions]) -> None:
        """Set *key* to *value*, which expires only if *options* say so; see `Keyspace.update`."""
        await self.update(key, "put", value, **options)

    async def persist(self, key: str, *, timeout_s: float | None = None) -> None:
        """Have *key* never expire. It need not exist."""
        await self.update(key, "persist", timeout_s=timeout_s)

    async def ttl(self, key: str, *, timeout_s: float | None = None) -> float | None:
        """Return in how many seconds *key* expires, by the clock here; see `Keyspace.ttl`."""
        rows = await self.get_packed([key], stored=True, timeout_s=timeout_s)
        return seconds_left(rows, time.time() * 1_000)

    async def delete(self, key: str, **options: Unpack[ChangeOptions]) -> None:
        """Delete *key*; it need not exist, unless ``if_tag`` is given."""
        await self.update(key, "delete", **options)

    async def update(
        self,
        key: str,
        operation: str,
        argument: Value = None,
        **options: Unpack[ChangeOptions],
    ) -> Value:
        """Change *key*, and return its value afterwards; see `Keyspace.update`."""
        change = change_of(key, operation, argument, options)
        (outcome,) = await self.update_many(
            [change],
            fence=options.get("fence"),
            operation_id=options.get("operation_id"),
            timeout_s=options.get("timeout_s"),
        )
        if isinstance(outcome, KeyspaceError):
            raise outcome
        return outcome.values[0]

    async def transaction(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        if_tags: Mapping[str, str | None] | None = None,
        fence: Fence | None = None,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> list[Value]:
        """Make *changes* of keys of one partition, all or none; see `Keyspace.transaction`."""
        given, conditions = list(changes), dict(if_tags or {})

        async def write(deadline: float) -> list[Value]:
            keyspace = await self.dispatcher.described(deadline)
            number, wanted = transaction_of(given, conditions, keyspace.placing)
            write = self._writer.whole(number, wanted, operation_id, fenced(fence))
            request = WritesOf(self.name, keyspace.generation, {number: [write]})
            results = known(await self.dispatcher.ask(request, (number,), deadline))
            return values_of(results[number], len(conditions))

        return await self.until(timeout_s, write)

    def lock(
        self, key: str, *, ttl_s: float = 30.0, wait_s: float | None = None
    ) -> AbstractAsyncContextManager[Lock]:
        """Hold the lock on *key* for the block; see `Keyspace.lock`.

        In programs with an event loop the block is cancelled when the lock is lost. In others a
        thread renews it, and the block itself asks ``lock.lost`` (an Event) or calls
        ``lock.check()``; LockLost is raised at its end, unless it has raised an error of its own.
        """
        from ringpop_py.state.locks.lock import async_locking  # noqa: PLC0415 - on demand

        return async_locking(self.update, key, ttl_s, wait_s)

    async def announce(
        self, fence: Fence, keys: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Have the partitions of *keys*, or all, know a term; see `Keyspace.announce`."""
        wanted, offsets = None if keys is None else keys_in(keys), fenced(fence)

        async def write(deadline: float) -> None:
            keyspace = await self.dispatcher.described(deadline)
            count, placing = keyspace.partitions_count, keyspace.placing
            numbers = set(range(count) if wanted is None else map(placing.partition_of, wanted))
            parts = {n: [self._writer.whole(n, (), offsets=offsets)] for n in numbers}
            request = WritesOf(self.name, keyspace.generation, parts)
            for result in known(
                await self.dispatcher.ask(request, tuple(parts), deadline)
            ).values():
                values_of(result, 0)

        await self.until(timeout_s, write)

    async def update_many(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
        fence: Fence | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome | KeyspaceError]:
        """Make many changes; return the outcome of each; see `Keyspace.update_many`.

        Raises:
            BadOperation: if a key or a value in them cannot be sent; then none is made.
        """
        wanted, kept = changes_in(changes, offsets), fenced(fence, offsets)

        async def write(deadline: float) -> list[Outcome | KeyspaceError]:
            keyspace = await self.dispatcher.described(deadline)
            groups = grouped([change.key for change in wanted], keyspace.placing)
            parts = {
                n: self._writer.writes(n, [wanted[at] for at in places], operation_id, kept)
                for n, places in groups.items()
            }
            request = WritesOf(self.name, keyspace.generation, parts)
            results = await self.dispatcher.ask(request, tuple(parts), deadline)
            return scattered(groups, known(results))

        return await self.until(timeout_s, write)

    # Who serves what.

    async def partition_owners(
        self, *, after: int | None = None, timeout_s: float | None = None
    ) -> PartitionOwners:
        """Return which member serves each partition; see `Keyspace.partition_owners`."""
        body = encode(OwnersRequest(self.name, after))

        async def ask(deadline: float) -> PartitionOwners:
            while True:
                result = await self.dispatcher.ask_any(
                    OWNERS, b"", body, deadline, changes_state=False
                )
                found = convert(PartitionOwners, result)
                if after is None or found.epoch > after or now() + LAST_CALL_S > deadline:
                    return found
                # A daemon waits as long as one call may take, or ends.
                await sleep(AGAIN_S)

        return await self.until(timeout_s, ask)

    # Requests to the node that has the state of their key.

    async def proxy(
        self, key: str, request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> AnyReply:
        """Have the daemon forward *request* to the member that serves the partition of *key*.

        There the handler, or the application, finds the state of the key at its own node. As
        `AsyncClient.proxy`, with its errors; of the daemon's own node, too.
        """
        return await self._client.proxy(key, request, keyspace=self.name, **options)

    async def handle_or_proxy(
        self, key: str, request: HttpRequest, **options: Unpack[RequestOptions]
    ) -> HttpReply | None:
        """Return None if the host of the daemon serves the partition, and otherwise as `proxy`."""
        return await self._client.handle_or_proxy(key, request, keyspace=self.name, **options)

    # Actors.

    def actors(self, name: str) -> AsyncActorsClient:
        """Return the actors of the class *name*, which members have registered in this keyspace."""
        return AsyncActorsClient(self, name)

    # How.

    async def until(self, timeout_s: float | None, attempt: Callable[[float], Awaitable[T]]) -> T:
        """Return what *attempt* returns; it is called again if the keyspace was created again."""
        wait_s = self._timeout_s if timeout_s is None else checked_timeout_s(timeout_s)
        deadline = now() + wait_s
        try:
            return await attempt(deadline)
        except KeyspaceUnknown:
            if not await self.dispatcher.look_again(deadline):
                raise
        return await attempt(deadline)


class AsyncActorsClient:
    """The actors of the class *name*; `AsyncKeyspaceClient.actors` makes it.

    Messages, replies and errors are those of `Actors`.
    """

    def __init__(self, keyspace: AsyncKeyspaceClient, name: str) -> None:
        self.name = checked_text(name, "name")
        self._keyspace = keyspace
        self._ids = MailIds()

    def __repr__(self) -> str:
        return f"<AsyncActorsClient {self.name!r} in {self._keyspace!r}>"

    async def ask(
        self,
        key: str,
        message: Value,
        *,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> Any:  # noqa: ANN401 - as the actor has answered
        """Return the reply of the actor *key* to *message*, after its new state was saved.

        A message that is lost on its way is sent again, and takes effect once; see `Actors.ask`.

        Raises:
            ApplicationError: if the actor raised an error; its state did not change.
            ActorBusy: if its mailbox is full, or too many other actors are at work there.
            BadOperation: if the message, the reply or the new state is not a value, or too large.
            OperationIdReused, OperationTooOld: see `Actors.ask`.
            KeyspaceError: as all methods of `Keyspace`. After `OutcomeUnknown`, the same call with
                the same *operation_id* is safe.
        """

        async def send(deadline: float) -> Any:  # noqa: ANN401
            mail = await self._mail(key, message, operation_id, deadline)
            request, numbers = MailOf(mail), (mail.partition,)
            results = all_of(await self._keyspace.dispatcher.ask(request, numbers, deadline))
            return results[mail.partition].value()

        return await self._keyspace.until(timeout_s, send)

    async def tell(
        self,
        key: str,
        message: Value,
        *,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Have a daemon bring *message* to the actor *key*; return when the daemon has it.

        The message is lost if that daemon dies before it arrives; other failures are in its log.
        Messages may arrive in another order than they were sent.

        Raises:
            ActorBusy: if that daemon has too many such messages under way.
            BadOperation: if the message is not a value, or too large.
            KeyspaceError: as all methods of `Keyspace`.
        """

        async def send(deadline: float) -> None:
            mail = await self._mail(key, message, operation_id, deadline)
            dispatcher = self._keyspace.dispatcher
            await dispatcher.ask_any(TELL, b"", mail.encode(), deadline, changes_state=True)

        await self._keyspace.until(timeout_s, send)

    async def state_of(self, key: str, *, timeout_s: float | None = None) -> Value:
        """Return the saved state of the actor *key* without waking it; None if it has none."""
        record = await self._keyspace.get(stored_under(self.name, key), timeout_s=timeout_s)
        return record.get("state") if isinstance(record, dict) else None

    async def _mail(
        self, key: str, message: Value, operation_id: str | OperationId | None, deadline: float
    ) -> Mail:
        keyspace = await self._keyspace.dispatcher.described(deadline)
        name = self._keyspace.name
        about = (name, keyspace.generation, keyspace.placing, self.name, key, message)
        return mail_of(*about, operation_id, self._ids.next)
