"""A keyspace as an application sees it: keys and values, from any member, wherever they are.

Each request goes to the owner of its key's partition; a request for many keys is one concurrent
call for each owner. Every write has an id, so it takes effect once however often it is sent.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

import trio

from ringpop_py.base.arguments import keys_of, sendable_keys
from ringpop_py.base.errors import (
    ConfigError,
    KeyspaceError,
    KeyspaceUnknown,
    PartitionUnavailable,
)
from ringpop_py.base.metering import TIMED_MASK
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.operations import check_key, check_keys, is_usual_key
from ringpop_py.base.values.requests import checked_timeout_s, repeated
from ringpop_py.member.drain import ENDED
from ringpop_py.state.actors.actors import ACTORS_MAX, MAILBOX_MAX, M, R, Wiring, make_actors
from ringpop_py.state.actors.host import ActorHost
from ringpop_py.state.placement.table import PartitionOwners
from ringpop_py.state.requests import (
    PAGE_ROWS,
    ChangeOptions,
    PackedRows,
    ReadsOf,
    ScansOf,
    StaleValues,
    Writer,
    WritesOf,
    all_of,
    change_of,
    changes_in,
    checked_limit,
    fenced,
    grouped,
    scan_of,
    scattered,
    seconds_left,
    transaction_of,
    values_of,
)
from ringpop_py.state.rows.pages import ColumnsOf
from ringpop_py.state.shares.dispatcher import Dispatcher
from ringpop_py.state.shares.owners import KeyspaceOwners
from ringpop_py.state.shares.stale_reads import StaleReader
from ringpop_py.state.watch.course import Course
from ringpop_py.state.watch.server import WatchesOf, watched
from ringpop_py.state.watch.watch import AsyncChanges

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ringpop_py.base.metering import Tally
    from ringpop_py.base.values.operations import Change, OperationId, Outcome, Value, Write
    from ringpop_py.route.proxy.request import AnyReply, AnyRequest, OwnerReply, RequestOptions
    from ringpop_py.state.actors.actors import Actor, Actors
    from ringpop_py.state.locks.lock import Lock
    from ringpop_py.state.placement.definition import Definition
    from ringpop_py.state.placement.table import Table
    from ringpop_py.state.requests import Fence
    from ringpop_py.state.shares.dispatcher import MemberRequest
    from ringpop_py.state.shares.host import Host
    from ringpop_py.state.shares.rescale_events import RescaleListener
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.table.aggregations import Aggregations
    from ringpop_py.state.tasks import Spawn
    from ringpop_py.state.watch.course import WatchPosition
    from ringpop_py.state.watch.messages import WatchRequest

SERVED_S_MAX: Final = 60.0
"""The most seconds of a request without an errand: the wheel of deadlines has a place a tick."""


class StreamHere(Protocol):
    """What a keyspace knows of a stream into it (`ringpop_py.streams`).

    Attributes:
        records_count: how many records this node has brought.
        refused_count: how many it has left out, because they could not be used.
    """

    records_count: int
    refused_count: int

    def rows(self) -> list[dict[str, Any]]:
        """Return how far the splits are that this node reads."""


class Keyspace:
    """One keyspace of the cluster. Made by `Ringpop.open_keyspace`.

    A value is anything that msgpack encodes: None, true and false, whole numbers of 64 bits,
    floats, text, bytes, lists, and maps whose keys are texts. A key is a text of 1 to 1,024 bytes.

    All methods that ask owners raise

    - `PartitionUnavailable`, if no owner could be asked in *timeout_s*: nothing was done;
    - `OutcomeUnknown`, if a write was sent and no answer came: repeating it with the same
      *operation_id* is safe;
    - `StoreUnavailable` (durable keyspaces), if the owner cannot reach the store;
    - `NotEnoughMembers`, immediately, while the cluster has never had *min_cluster_size* members
      (`wait_assigned` waits for them);
    - `KeyspaceUnknown`, once it was dropped.

    Attributes:
        name: the name of the keyspace.
        generation: a number that grows each time a keyspace of this name is created.
        spawn: runs a task beside the keyspace; it is cancelled when the node ends. See `Spawn`.
        placing: how keys become partitions.
        aggregations: the operations that this process knows.
        streams: those that this node has started, by name.
        ended: whether the node has ended, so that every request fails immediately.
    """

    def __init__(self, node: NodeView, host: Host, rng: random.Random, spawn: Spawn) -> None:
        self._node = node
        self._host = host
        self._dispatcher = Dispatcher(node, host, rng)
        self._reader = StaleReader(self._dispatcher, host.copies)
        self.owners = KeyspaceOwners(node, host)
        self.stage = ActorHost(host, spawn, self._results, node.proxying.operations)
        self.spawn = spawn
        self.aggregations: Aggregations  # set by its maker
        self.streams: dict[str, StreamHere] = {}
        self.ended = False
        self._writer = Writer(node.name)
        # Fixed for the life of the keyspace, and kept here because each request needs them.
        self.name, self.generation = host.definition.name, host.generation
        self.placing = host.definition.placing
        self._timeout_s = node.config.state.timeout_s

    def __repr__(self) -> str:
        return f"<Keyspace {self.name!r} with {self.partitions} partitions, {self.definition.mode}>"

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self.placing.count

    @property
    def definition(self) -> Definition:
        """The settings with which it was created."""
        return self._host.definition

    @property
    def members(self) -> Sequence[str]:
        """The members that may own partitions now, as far as this node knows."""
        return self._host.members()

    @property
    def table(self) -> Table:
        """The owner of each partition, as far as this node knows."""
        return self._host.table

    def destination(self, partition: int) -> str:
        """Return the member to ask about *partition*, as far as this node knows; empty if none."""
        return self._host.destination(partition)

    def partition_of(self, key: str) -> int:
        """Return the partition of *key*; it never changes."""
        return self.placing.partition_of(key)

    def owner_of(self, key: str) -> str:
        """Return the member that owns *key*, as far as this node knows; empty if there is none."""
        return self.destination(self.partition_of(key))

    async def partition_owners(
        self, *, after: int | None = None, timeout_s: float | None = None
    ) -> PartitionOwners:
        """Return which member serves each partition, as far as this node knows.

        Args:
            after: wait until the epoch of the assignment is above this one, *timeout_s* is over, or
                the node ends: the answer may have the same epoch. By default it does not wait.

        Raises:
            KeyspaceUnknown: if the keyspace was dropped.
        """
        with trio.move_on_at(self._deadline(timeout_s)):
            while after is not None and self.table.epoch <= after and not self._host.ending:
                # `changed` first: what changes after this line wakes us.
                changed, why = self._host.changed, self._host.why_nobody(0)
                if isinstance(why, KeyspaceUnknown):
                    raise why
                await changed.wait()
        return PartitionOwners(self.table.epoch, self.table.owners())

    async def wait_assigned(self) -> None:
        """Return when partitions have been assigned, which takes *min_cluster_size* members.

        It waits without a limit; use `trio.fail_after`.

        Raises:
            KeyspaceUnknown: if the keyspace was dropped.
        """
        while not self.table.assigned:
            # `changed` first: what changes after this line wakes us.
            changed, why = self._host.changed, self._host.why_nobody(0)
            if isinstance(why, KeyspaceUnknown):
                raise why
            await changed.wait()

    # Reading.

    async def get(
        self,
        key: str,
        default: Value = None,
        *,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> Value:
        """Return the value of *key*; *default* if there is none.

        Args:
            stale: (durable keyspaces) accept the last value that the owner knows. By default it
                makes sure that no member has taken over. If the owner does not answer within half
                a second, this node also reads from the store; `get_stale` returns that value's age.
        """
        number = self.placing.partition_of(key)
        if not is_usual_key(key):
            check_key(key)
        deadline = self._deadline(timeout_s)
        is_short = (timeout_s or self._timeout_s) <= SERVED_S_MAX
        partition = self._host.served(number) if is_short else None
        failed, keys = None, (key,)
        if partition is not None:  # the usual case: it needs no errand
            try:
                (packed,) = await partition.read(
                    lambda state: state.packed(keys), deadline, stale=stale
                )
            except KeyspaceError as error:
                failed = error
            else:
                tally = self._node.proxying.operations.read
                tally.done += 1
                if tally.done & TIMED_MASK == 1:
                    _time(tally, deadline - (timeout_s or self._timeout_s))
                return default if packed is None else messages.value_of(key, packed)
        request = ReadsOf(self.name, self.generation, {number: keys}, stale, self._host)
        if stale:
            results, _ = await self._reader.ask(request, (number,), deadline)
            found: Any = results[number]
        else:
            found = await self._dispatcher.ask_one(request, number, deadline, failed)
        if isinstance(found, KeyspaceError):
            raise found
        return default if found[0] is None else messages.value_of(key, found[0])

    async def get_many(
        self, keys: Iterable[str], *, stale: bool = False, timeout_s: float | None = None
    ) -> dict[str, Value]:
        """Return the values of those of *keys* that exist. Raises if any could not be read."""
        found = await self.get_packed(keys, stale=stale, timeout_s=timeout_s)
        return {key: messages.value_of(key, packed) for key, packed in found.rows}

    async def get_stale(
        self, keys: Iterable[str], *, timeout_s: float | None = None
    ) -> StaleValues:
        """As `get_many` with *stale*, and how old the values can be."""
        found = await self.get_packed(keys, stale=True, timeout_s=timeout_s)
        values = {key: messages.value_of(key, packed) for key, packed in found.rows}
        return StaleValues(values, found.age_s)

    async def ttl(self, key: str, *, timeout_s: float | None = None) -> float | None:
        """Return in how many seconds *key* expires: None for never, 0 if it is due or absent."""
        found = await self.get_packed([key], stored=True, timeout_s=timeout_s)
        return seconds_left(found.rows, time.time() * 1_000)

    async def get_packed(
        self,
        keys: Iterable[str],
        *,
        stale: bool = False,
        stored: bool = False,
        timeout_s: float | None = None,
    ) -> PackedRows:
        """As `get_many`, with packed values, so that one that is damaged does not hide others.

        Args:
            stored: return them as they are stored, with the instants at which they expire.
        """
        request = ReadsOf.of(
            self.name,
            self.generation,
            keys,
            self.placing,
            stale=stale,
            host=self._host,
            stored=stored,
        )
        results, age_s = await self._reader.ask(
            request, tuple(request.parts), self._deadline(timeout_s)
        )
        return PackedRows(request.rows(results), None, age_s)

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
        """Yield keys and values in order of keys: from *start* on, before *end*, with *prefix*.

        A page is consistent within each partition. A scan over several pages may or may not see
        writes that are made meanwhile. Every page asks all partitions.
        """
        left = checked_limit(limit)
        while left is None or left > 0:
            wanted = PAGE_ROWS if left is None else min(left, PAGE_ROWS)
            page = await self.page_packed(
                prefix, start=start, end=end, limit=wanted, stale=stale, timeout_s=timeout_s
            )
            for key, packed in page.rows:
                yield key, messages.value_of(key, packed)
            if page.following is None:
                return
            start = page.following
            left = None if left is None else left - len(page.rows)

    async def page_packed(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int = PAGE_ROWS,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> PackedRows:
        """Return the first page of a `scan`, with packed values.

        It may have fewer rows than *limit* although there are more.

        Raises:
            ConfigError: if *limit* is not above 0.
        """
        if checked_limit(limit) == 0:
            raise ConfigError("limit is above 0, not 0")
        partitions_count = self.partitions
        wanted = messages.part_limit(limit, partitions_count)
        bounds = scan_of(
            self.name, prefix, start, end, wanted, generation=self.generation, stale=stale
        )
        request = ScansOf(bounds, self._host)
        results, age_s = await self._reader.ask(
            request, range(partitions_count), self._deadline(timeout_s)
        )
        rows, following = messages.merged_page(all_of(results).values(), limit)
        return PackedRows(rows, following, age_s)

    def watch(
        self,
        prefix: str = "",
        *,
        key: str | None = None,
        after: WatchPosition | str | None = None,
        existing: bool = False,
        idle_s: float | None = None,
    ) -> AsyncChanges:
        """Return an async iterator of the changes of keys with *prefix*, or of *key* (`KeyChange`).

        For each key, every committed change comes, in order; of changes that were written together,
        the last. It follows partitions as they move, and waits while nobody serves one. Only
        durable keyspaces can be watched.

        Args:
            after: go on after this position of an earlier watch, or its text; by default with the
                changes from now on.
            existing: begin with the keys that are there; nothing is left out in between.
            idle_s: end the iteration after so many seconds without a change.

        Raises:
            WatchGap: changes after that position are no longer kept, by the iteration, as the next.
            BadOperation: the keyspace is in memory mode.
            KeyspaceUnknown: it was dropped.
            ConfigError: the arguments exclude each other, or *after* is no position here.
        """
        about = (self.name, self.generation, self.placing)
        course = Course(*about, prefix, key, after, existing=existing)

        async def begin() -> Course:
            return course

        async def ask(request: WatchRequest) -> Mapping[int, object]:
            return await self.results_of(partial(WatchesOf, request), ())

        return AsyncChanges(begin, ask, trio.current_time, idle_s)

    # Writing.

    async def put(self, key: str, value: Value, **options: Unpack[ChangeOptions]) -> None:
        """Set *key* to *value*, which expires only if *options* say so; see `update`."""
        await self.update(key, "put", value, **options)

    async def persist(self, key: str, *, timeout_s: float | None = None) -> None:
        """Have *key* never expire. It need not exist."""
        await self.update(key, "persist", timeout_s=timeout_s)

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
        """Change *key* by an operation, and return its value afterwards; None if it was deleted.

        Args:
            operation: ``put``, ``add``, ``count``, ``max``, ``append`` …, or one of your own.
            if_tag: change it only if it has a value with this tag; see `tag_of`.
            if_absent: change it only if it has no value.
            operation_id: a second write to this key's partition with the id of one that took effect
                changes nothing, and one whose condition failed is refused again. By default each
                call has a new id, so only retries within the call are recognised.
            expires_in, expires_at: when the key expires. Without them a ``put`` ends an earlier
                instant, and other operations keep it. The owner deletes the key within a second
                after the instant, or once the partition is served again; until then reads find it.
            fence: a `Lead`, whose writes end once a later term has written here; or a held `Lock`.

        Raises:
            OperationIdReused: if the first write under that id was another one.
            BadOperation: if the operation is unknown, or does not apply to that value.
            ConditionFailed: if *if_tag*, *if_absent* or a condition of the operation does not hold.
            StaleTerm: because of *fence*.
            PartitionFull: if the key is new, and the partition has the maximum of keys.
            OperationTooOld: if it is no longer known whether that id took effect.
        """
        number = self.placing.partition_of(key)
        timeout_s = options.get("timeout_s")
        change = change_of(key, operation, argument, options)
        offsets = fenced(options["fence"]) if "fence" in options else None
        writes = self._writer.writes(number, (change,), options.get("operation_id"), offsets)
        deadline = self._deadline(timeout_s)
        is_short = (timeout_s or self._timeout_s) <= SERVED_S_MAX
        partition = self._host.served(number) if is_short else None
        failed = outcome = None
        if partition is not None:  # the usual case: it needs no errand
            try:
                (outcome,) = await partition.write(writes, deadline)
            except KeyspaceError as error:
                failed, writes = error, repeated(writes)
            else:
                tally = self._node.proxying.operations.write
                if isinstance(outcome, KeyspaceError):
                    tally.fail(outcome)
                    raise outcome
                tally.done += 1
                if tally.done & TIMED_MASK == 1:
                    _time(tally, deadline - (timeout_s or self._timeout_s))
        if outcome is None:
            # With the same id, so that it takes effect once.
            request = WritesOf(self.name, self.generation, {number: writes}, self._host)
            result: Any = await self._dispatcher.ask_one(request, number, deadline, failed)
            outcome = result if isinstance(result, KeyspaceError) else result[0]
        if isinstance(outcome, KeyspaceError):
            raise outcome
        value: Value = outcome.values[0]
        return value

    async def update_many(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
        fence: Fence | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome | KeyspaceError]:
        """Make many independent changes; return the outcome of each, in their order.

        Args:
            operation_id: as in `update`; the changes of one partition are then one write, which
                takes effect as a whole or, if one of them is refused, not at all.
            offsets: how far each source of input was read; each changed partition keeps them.
            fence: as in `update`; each partition decides by what it knows.
        """
        wanted = changes_in(changes, offsets)
        offsets = fenced(fence, offsets)
        groups = grouped([change.key for change in wanted], self.placing)
        parts = {
            number: self._writer.writes(
                number, [wanted[at] for at in places], operation_id, offsets
            )
            for number, places in groups.items()
        }
        request = WritesOf(self.name, self.generation, parts, self._host)
        return scattered(groups, await self._results(request, groups, timeout_s))

    async def transaction(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        if_tags: Mapping[str, str | None] | None = None,
        fence: Fence | None = None,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> list[Value]:
        """Make *changes* of keys of one partition, all or none; return the values afterwards.

        Args:
            if_tags: what must hold before, by key, which may be others of the partition: the key
                has a value with this tag (`tag_of`), or none, for None.
            fence, operation_id: as in `update`.

        Raises:
            ConfigError: if the keys are of several partitions; see hash tags in docs/keyspaces.md.
            ConditionFailed: if a condition does not hold. As for any other error of `update`,
                nothing was changed.
        """
        number, wanted = transaction_of(changes, if_tags or {}, self.placing)
        write = self._writer.whole(number, wanted, operation_id, fenced(fence))
        request = WritesOf(self.name, self.generation, {number: [write]}, self._host)
        results = await self._results(request, (number,), timeout_s)
        return values_of(results[number], len(if_tags or ()))

    def lock(
        self, key: str, *, ttl_s: float = 30.0, wait_s: float | None = None
    ) -> AbstractAsyncContextManager[Lock]:
        """Hold the lock on *key* for the block, which first waits until nobody else holds it.

        The lock is renewed while the block runs, and released at its end. The block is cancelled
        when the lock is lost. A lock alone protects nothing: pass it as *fence* to the writes, of
        keys of the same partition, which are then refused once another has the lock.

        Args:
            ttl_s: the lock of a holder that is silent for so long is free, by the clock of the
                key's owner: 1 to 3,600 seconds.
            wait_s: how long to wait; without a limit by default. Who waits first need not be first.

        Raises:
            LockHeld: another held the lock for all of *wait_s*.
            LockLost: the lock was lost before the end of the block.
            ConfigError: an argument cannot be used, or the keyspace is in memory mode.
            PartitionFull: the partition has its maximum of locks.
        """
        from ringpop_py.state.locks.lock import async_locking  # noqa: PLC0415 - on demand

        return async_locking(self.update, key, ttl_s, wait_s)

    async def announce(
        self, fence: Fence, keys: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Have the partitions of *keys*, or all, know a term: no earlier one writes to them then.

        A leader does so before it reads what it goes by. It costs an entry for each partition.

        Raises:
            StaleTerm: if one of them knows a later term.
        """
        numbers = set(range(self.partitions) if keys is None else map(self.partition_of, keys))
        offsets = fenced(fence)
        parts = {number: [self._writer.whole(number, (), offsets=offsets)] for number in numbers}
        for outcomes in (await self.write(parts, timeout_s=timeout_s)).values():
            values_of(outcomes, 0)

    async def write(
        self, parts: Mapping[int, Sequence[Write]], *, timeout_s: float | None = None
    ) -> dict[int, list[Outcome | KeyspaceError]]:
        """Make writes by partition, with the caller's own ids; return their outcomes.

        A write is compared with its repetitions if it has a digest
        (`ringpop_py.base.values.operation_ids.named_write`), and recognised by its `Span` if it has
        one. If a part fails, its error is the outcome of each of its writes; nothing is raised.
        """
        request = WritesOf(self.name, self.generation, parts, self._host)
        results: dict[int, Any] = await self._results(request, parts, timeout_s)
        return {
            number: [result] * len(parts[number]) if isinstance(result, KeyspaceError) else result
            for number, result in results.items()
        }

    async def results_of(
        self,
        make: Callable[[Host], ReadsOf | ScansOf | ColumnsOf | WatchesOf],
        numbers: Sequence[int],
        *,
        timeout_s: float | None = None,
    ) -> dict[int, object]:
        """Return the result of each partition, or its error, to the request that *make* returns."""
        request, deadline = make(self._host), self._deadline(timeout_s)
        if isinstance(request, WatchesOf):
            return await watched(self._dispatcher, request)
        if isinstance(request, ColumnsOf):
            return await self._dispatcher.ask(request, numbers, deadline)
        results, _ = await self._reader.ask(request, numbers, deadline)
        return results

    # The application's own requests.

    async def handle_or_proxy(
        self, key: str | Sequence[str], request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> AnyReply | None:
        """Return None if this node serves the partition of *key*, and the owner's reply otherwise.

        As `Ringpop.handle_or_proxy`, but the handler runs where the state of the key is: its reads
        and writes of *key* do not leave the node. Any handler of the application can be called. If
        the partition is moving, the request waits up to `StateConfig.wait_s`.

        Raises:
            NoOwner: if no member served the partition in that time.
        """
        check_keys(keys_of(key))
        return await self._node.proxying.handle_or_proxy(
            key, request, owners=self.owners, **options
        )

    async def handle_or_proxy_all(
        self, keys: Iterable[str], request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> list[OwnerReply]:
        """Call `handle_or_proxy` for each owner of *keys*, all at the same time.

        As `Ringpop.handle_or_proxy_all`. Keys whose partitions nobody serves have an `OwnerReply`
        of their own, with an empty owner and the error.

        Raises:
            NoOwner: if nobody serves any of the keys' partitions.
        """
        wanted = sendable_keys(keys)
        check_keys(wanted)
        return await self._node.proxying.handle_or_proxy_all(
            wanted, request, owners=self.owners, **options
        )

    async def proxy(
        self, key: str | Sequence[str], request: AnyRequest, **options: Unpack[RequestOptions]
    ) -> AnyReply:
        """As `handle_or_proxy`, but call this node's own handler if it is the owner."""
        check_keys(keys_of(key))
        return await self._node.proxying.proxy(key, request, owners=self.owners, **options)

    # Actors.

    def actor(
        self,
        actor: Callable[[], Actor[M, R]],
        *,
        name: str | None = None,
        mailbox_max: int = MAILBOX_MAX,
        actors_max: int = ACTORS_MAX,
    ) -> Actors[M, R]:
        """Register actors of the class *actor* in this keyspace, one for each key.

        See `ringpop_py.state.actors.actors`. Every node that may own partitions has to register
        them; messages for actors on a node that has not done so wait. The state of an actor is
        stored under the key ``NAME/KEY``, which nothing else should write.

        Args:
            actor: the class; or a function that makes an actor, for example a `functools.partial`,
                with a *name*. It is called once here, to check the initial state of actors.
            name: the name of the class in the keyspace; that of *actor* by default.
            mailbox_max: the most messages that may wait for one actor; more are refused.
            actors_max: the most actors in memory on a node; the one idle longest is removed first.

        Raises:
            ConfigError: if the name is taken or not valid, a limit is not above 0, or the initial
                state of actors cannot be stored.
        """
        wiring = Wiring(self, self.stage)
        return make_actors(actor, name, (mailbox_max, actors_max), wiring)

    # What happens.

    def rescale_events(self) -> RescaleListener:
        """Return an endless iterator of `Gained` and `Lost` partitions of this node.

        It begins with the partitions that the node has. ``Gained.offsets`` says how much of each
        source of input the partition's state includes. One task iterates it with ``async for``.
        Events wait, without a limit, until they are read or the iterator is dropped. After a loop
        that has ended, also by an error or a cancellation, another one goes on with the next event.
        """
        return self._host.events.listen(self._host.already())

    async def _results(
        self, request: MemberRequest, numbers: Iterable[int], timeout_s: float | None
    ) -> dict[int, object]:
        return await self._dispatcher.ask(request, tuple(numbers), self._deadline(timeout_s))

    def _deadline(self, timeout_s: float | None) -> float:
        if self.ended:
            raise PartitionUnavailable(ENDED)
        wait_s = self._timeout_s if timeout_s is None else checked_timeout_s(timeout_s)
        return trio.current_time() + wait_s


def _time(tally: Tally, began_at: float) -> None:
    tally.seconds.observe(trio.current_time() - began_at)
