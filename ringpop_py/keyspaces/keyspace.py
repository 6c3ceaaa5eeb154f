"""A keyspace, as an application has it: keys and values, from any member, wherever they are.

Each request goes to the owner of its key's partition; requests for many keys go to all owners at
once, a call each. Every write has an id, so it takes effect once however often it has to be sent.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack, cast

import trio

from ringpop_py.actors.actors import ACTORS_MAX, MAILBOX_MAX, M, R, Wiring, make_actors
from ringpop_py.actors.mailboxes import ActorHost
from ringpop_py.errors import ConfigError, KeyspaceError, KeyspaceUnknown
from ringpop_py.keyed.conditions import conditional_on
from ringpop_py.keyed.operation_ids import named_write
from ringpop_py.keyspaces.owners import KeyspaceOwners
from ringpop_py.keyspaces.requests import ColumnsHere, ReadsHere, ScansHere, WritesHere
from ringpop_py.placing.keys import partition_of
from ringpop_py.shares.copies import StaleReader
from ringpop_py.steward.router import Router
from ringpop_py.values import requests as messages
from ringpop_py.values.operations import Change, OperationId, Outcome, Value, Write
from ringpop_py.values.requests import ScanRequest

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from ringpop_py.actors.actors import Actor, Actors
    from ringpop_py.columns.pages import ColumnsRequest
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.placing.definition import Definition
    from ringpop_py.placing.table import Table
    from ringpop_py.proxy.request import AnyReply, AnyRequest, RequestOptions
    from ringpop_py.shares.copies import StaleRequest
    from ringpop_py.shares.host import Host
    from ringpop_py.steward.rescale_events import RescaleListener
    from ringpop_py.steward.router import PartitionRequest
    from ringpop_py.steward.view import NodeView

PAGE_ROWS: Final = 1_000


class PackedRows(NamedTuple):
    """Keys and their values as they are stored.

    Attributes:
        following: where the next page starts; None if there is none.
        age_s: see `StaleValues`.
    """

    rows: list[tuple[str, bytes]]
    following: str | None
    age_s: float | None


class StaleValues(NamedTuple):
    """What a stale read has found.

    Attributes:
        age_s: all that was acknowledged so many seconds before the read returned, or earlier, is in
            it. Where owners have answered it is None: they do not say how long ago they knew.
    """

    values: dict[str, Value]
    age_s: float | None


class Keyspace:
    """One keyspace of the cluster. Made by `Ringpop.open_keyspace`.

    Values are what msgpack can say: None, true and false, whole numbers of 64 bits, floats, text,
    bytes, lists, and maps whose keys are texts. Keys are texts of 1 to 1,024 bytes.

    All methods that ask owners raise

    - `PartitionUnavailable`, if in *timeout_s* no owner could be asked: nothing was done;
    - `OutcomeUnknown`, if a write was sent and no answer came: the same again with the same
      *operation_id* is safe;
    - `StoreUnavailable` (durable keyspaces), if the owner cannot reach the store;
    - `NotEnoughMembers`, immediately, while the cluster has never had *min_cluster_size* members
      (`wait_assigned` waits for them);
    - `KeyspaceUnknown`, once it was dropped.
    """

    def __init__(self, node: NodeView, host: Host, rng: random.Random, spawn: Spawn) -> None:
        self._node = node
        self._host = host
        self._router = Router(node, host, rng)
        self._stale_reader = StaleReader(self._router, host.copies)
        self.owners = KeyspaceOwners(node, host)
        self.stage = ActorHost(host, spawn)
        self._spawn = spawn
        self._source = f"{node.name}/{secrets.token_hex(6)}"
        self._sequences = [count() for _ in range(host.definition.partitions)]

    def __repr__(self) -> str:
        return f"<Keyspace {self.name!r} with {self.partitions} partitions, {self.definition.mode}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return self.definition.partitions

    @property
    def definition(self) -> Definition:
        """What was chosen when it was created."""
        return self._host.definition

    @property
    def node_name(self) -> str:
        """The member that this is at."""
        return self._node.name

    @property
    def generation(self) -> int:
        """Counts up when it is created anew."""
        return self._host.generation

    @property
    def members(self) -> Sequence[str]:
        """Who may own partitions of it now, as far as this node knows."""
        return self._host.members()

    @property
    def table(self) -> Table:
        """Who owns which partition, as far as this node knows."""
        return self._host.table

    def destination(self, partition: int) -> str:
        """Whom to ask about *partition*, as far as this node knows; empty if there is nobody."""
        return self._host.destination(partition)

    def partition_of(self, key: str) -> int:
        """The partition of *key*; it never changes."""
        return partition_of(key, self.partitions)

    def owner_of(self, key: str) -> str:
        """The member that owns *key*, as far as this node knows; empty if there is none."""
        return self.destination(self.partition_of(key))

    async def wait_assigned(self) -> None:
        """Return when partitions have been assigned, which takes *min_cluster_size* members.

        It waits for as long as that takes; `trio.fail_after` gives it a limit.

        Raises:
            KeyspaceUnknown: the keyspace was dropped.
        """
        while not self.table.assigned:
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
        """The value of *key*; *default* if there is none.

        Args:
            stale: (durable keyspaces) what the owner last knew will do. By default it makes sure
                that no member has taken over. If the owner does not answer within half a
                second, this node also reads what the store has; `get_stale` says how old that is.
        """
        found = await self.get_many([key], stale=stale, timeout_s=timeout_s)
        return found.get(key, default)

    async def get_many(
        self, keys: Iterable[str], *, stale: bool = False, timeout_s: float | None = None
    ) -> dict[str, Value]:
        """The values of those of *keys* that are there. Raises, unless all could be asked for."""
        found = await self.get_packed(keys, stale=stale, timeout_s=timeout_s)
        return {key: messages.value_of(key, packed) for key, packed in found.rows}

    async def get_stale(
        self, keys: Iterable[str], *, timeout_s: float | None = None
    ) -> StaleValues:
        """As `get_many` with *stale*, and how old what was found can be."""
        found = await self.get_packed(keys, stale=True, timeout_s=timeout_s)
        values = {key: messages.value_of(key, packed) for key, packed in found.rows}
        return StaleValues(values, found.age_s)

    async def get_packed(
        self, keys: Iterable[str], *, stale: bool = False, timeout_s: float | None = None
    ) -> PackedRows:
        """As `get_many`, with values as they are stored: a value that cannot be read hides none."""
        groups: dict[int, list[str]] = {}
        for key in dict.fromkeys(keys):
            groups.setdefault(self.partition_of(key), []).append(key)
        request = ReadsHere(self.name, self.generation, groups, stale, self._host)
        results, age_s = await self._read(request, tuple(groups), timeout_s, stale=stale)
        rows = [
            (key, packed)
            for number, values in _all_of(results).items()
            for key, packed in zip(groups[number], values, strict=True)
            if packed is not None
        ]
        return PackedRows(rows, None, age_s)

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
        """Keys and values in order of keys: from *start* on, before *end*, with *prefix*.

        Each page is what was there at one moment in each partition; a scan over several pages sees
        writes that come about meanwhile, or not. Every page asks all partitions.
        """
        left = limit
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
        """What `scan` is made of: its first rows, with values as they are stored.

        There may be fewer than *limit* though there are more.
        """
        wanted = messages.part_limit(limit, self.partitions)
        bounds = ScanRequest(self.name, self.generation, (), prefix, start, end, wanted, stale)
        request = ScansHere(bounds, self._host)
        numbers = range(self.partitions)
        results, age_s = await self._read(request, numbers, timeout_s, stale=stale)
        rows, following = messages.merged_page(_all_of(results).values(), limit)
        return PackedRows(rows, following, age_s)

    # Writing.

    async def put(
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
        await self.update(
            key,
            "put",
            value,
            if_tag=if_tag,
            if_absent=if_absent,
            operation_id=operation_id,
            timeout_s=timeout_s,
        )

    async def delete(
        self,
        key: str,
        *,
        if_tag: str | None = None,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete *key*; no error if it was not there, unless *if_tag* is given."""
        await self.update(
            key, "delete", if_tag=if_tag, operation_id=operation_id, timeout_s=timeout_s
        )

    async def update(
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
        """Change *key* by an aggregation, and return its value afterwards; None if it is gone.

        Args:
            operation: ``put``, ``add``, ``count``, ``max``, ``append`` … or one that was registered
                (`ringpop_py.keyed.aggregations`).
            if_tag: only if there is a value whose tag is this one; see `tag_of`.
            if_absent: only if there is no value.
            operation_id: a second write to this key's partition with the id of one that took effect
                changes nothing. Made up, if not given, which makes this call safe, but not one that
                repeats it.

        Raises:
            OperationIdReused: the write that took effect under that id did something else.
            BadOperation: the operation makes no sense for that value, or is not known.
            ConditionFailed: *if_tag* or *if_absent* does not hold; also of ``put_if_absent`` and
                ``compare_and_set``. A repetition of a write that took effect does not come to it.
            PartitionFull: a new key, and the partition has its maximum.
            OperationTooOld: nobody knows any more whether that id took effect.
        """
        number = self.partition_of(key)
        change = conditional_on(operation, argument, if_tag, if_absent=if_absent)
        changes = (Change(key, *change),)
        if operation_id is not None:
            write = named_write(operation_id, changes)
        else:
            write = Write(self._source, next(self._sequences[number]), changes)
        results = await self.write({number: [write]}, timeout_s=timeout_s)
        (outcome,) = results[number]
        if isinstance(outcome, KeyspaceError):
            raise outcome
        return outcome.values[0]

    async def update_many(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome | KeyspaceError]:
        """Make many changes, each by itself, and say what became of each, in their order.

        Args:
            operation_id: as in `update`; the changes of one partition are then one write, which
                takes effect as a whole or, if one of them is refused, not at all.
            offsets: how far which source of input was read; kept by each partition concerned.
        """
        wanted = [Change(*change) for change in changes]
        groups: dict[int, list[int]] = {}
        partitions_count = self.partitions
        for index, change in enumerate(wanted):
            groups.setdefault(partition_of(change.key, partitions_count), []).append(index)
        parts: dict[int, list[Write]] = {}
        for number, indexes in groups.items():
            if operation_id is None:
                source, sequences = self._source, self._sequences[number]
                parts[number] = [
                    Write(source, next(sequences), (wanted[index],), offsets) for index in indexes
                ]
            else:
                several = tuple([wanted[index] for index in indexes])
                parts[number] = [named_write(operation_id, several, offsets)]
        results = await self.write(parts, timeout_s=timeout_s)
        outcomes: list[Outcome | KeyspaceError] = [Outcome(())] * len(wanted)
        for number, indexes in groups.items():
            spread = messages.spread(results[number], len(indexes))
            for index, outcome in zip(indexes, spread, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def write(
        self, parts: Mapping[int, Sequence[Write]], *, timeout_s: float | None = None
    ) -> dict[int, list[Outcome | KeyspaceError]]:
        """What `update_many` is made of: writes by partition, with ids of the caller's own.

        A write is compared with its repetitions if it has a digest
        (`ringpop_py.keyed.operation_ids.named_write`).
        Nothing is raised for a part; it then has the error in the place of each of its outcomes.
        """
        request = WritesHere(self.name, self.generation, parts, self._host)
        results = await self._results(request, parts, timeout_s)
        outcomes: dict[int, list[Outcome | KeyspaceError]] = {}
        for number, result in results.items():
            if isinstance(result, KeyspaceError):
                outcomes[number] = [result] * len(parts[number])
            else:
                outcomes[number] = cast("list[Outcome | KeyspaceError]", result)
        return outcomes

    async def read_packed(
        self,
        parts: Mapping[int, Sequence[str]],
        *,
        stale: bool = False,
        timeout_s: float | None = None,
    ) -> dict[int, object]:
        """What `get_packed` is made of: of each part its packed values by key, or its error."""
        request = ReadsHere(self.name, self.generation, parts, stale, self._host)
        results, _ = await self._read(request, tuple(parts), timeout_s, stale=stale)
        return results

    async def scan_packed(
        self, request: ScanRequest, *, timeout_s: float | None = None
    ) -> dict[int, object]:
        """Of each partition in *request* its rows and whether it has more, or its error."""
        scans = ScansHere(request, self._host)
        results, _ = await self._read(scans, request.partitions, timeout_s, stale=request.stale)
        return results

    async def read_columns(
        self, request: ColumnsRequest, *, timeout_s: float | None = None
    ) -> dict[int, object]:
        """Of each part its `Columns`, which may be fewer than wanted, or its error."""
        numbers = [number for number, _ in request.parts]
        return await self._results(ColumnsHere(self._host, request), numbers, timeout_s)

    # The application's own requests.

    async def handle_or_proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> AnyReply | None:
        """None if this node serves the partition of *key*: handle it here. Else the owner's reply.

        As `Ringpop.handle_or_proxy`, but the code runs where the state of the key lives: reads and
        writes of *key* that it makes do not leave the node. The handler is any handler of the
        application. A partition that is on its way is waited for, as long as other requests do.

        Raises:
            NoOwner: in that time nobody served the partition.
        """
        return await self._node.proxying.handle_or_proxy(
            key, request, owners=self.owners, **options
        )

    async def proxy(
        self,
        key: str | Sequence[str],
        request: AnyRequest,
        **options: Unpack[RequestOptions],
    ) -> AnyReply:
        """As `handle_or_proxy`, but where this node is the owner its own handler is called."""
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
        """Have actors of the class *actor* in this keyspace, one a key.

        See `ringpop_py.actors.actors`.
        Every node that may own partitions has to say so, or messages for actors there wait. The
        records of actors are under the keys ``NAME/KEY``, which nobody else should write.

        Args:
            actor: the class; or what makes one, for example a `functools.partial`, with a *name*.
                It is called once here, to check the state that actors begin with.
            name: of the class, in the keyspace; that of *actor* by default.
            mailbox_max: how many messages may wait for one actor; more are refused.
            actors_max: how many actors a node has in memory; those idle longest go first.

        Raises:
            ConfigError: the name is taken, or not valid; or a limit is not above 0; or the state
                that actors begin with cannot be stored.
        """
        wiring = Wiring(self, self._ask, self._spawn, self.stage)
        return make_actors(actor, name, (mailbox_max, actors_max), wiring)

    # What happens.

    def rescale_events(self) -> RescaleListener:
        """`Gained` and `Lost` partitions of this node: those it has, then each that comes or goes.

        ``Gained.offsets`` says how far which source of input is in the partition's state. It is
        iterated with ``async for``, by one task, and has no end.
        """
        return self._host.events.listen(self._host.already())

    async def _ask(
        self,
        request: PartitionRequest,
        numbers: Iterable[int],
        timeout_s: float | None,
    ) -> dict[int, Any]:
        """The results of all parts. Raises the first error among them."""
        return _all_of(await self._results(request, numbers, timeout_s))

    async def _read(
        self,
        request: StaleRequest,
        numbers: Sequence[int],
        timeout_s: float | None,
        *,
        stale: bool,
    ) -> tuple[dict[int, object], float | None]:
        """The results of all parts, errors among them, and how old the oldest is, if that is known.

        The age is known if a part was read from the store because its owner did not answer.
        """
        deadline = self._deadline(timeout_s)
        if stale:
            return await self._stale_reader.ask(request, numbers, deadline)
        return await self._router.ask(request, numbers, deadline), None

    async def _results(
        self, request: PartitionRequest, numbers: Iterable[int], timeout_s: float | None
    ) -> dict[int, object]:
        """The results of all parts, errors among them."""
        return await self._router.ask(request, tuple(numbers), self._deadline(timeout_s))

    def _deadline(self, timeout_s: float | None) -> float:
        timeout_s = self._node.config.state.timeout_s if timeout_s is None else timeout_s
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s is above 0, not {timeout_s!r}")
        return trio.current_time() + timeout_s


def _all_of(results: dict[int, object]) -> dict[int, Any]:
    """*results*. Raises the first error among them."""
    for result in results.values():
        if isinstance(result, KeyspaceError):
            raise result
    return results
