"""`ShuffleClient`: creates a shuffle, puts rows into it, ends it, and reads it."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, get_args

import pyarrow as pa
import xxhash

from ringpop_py.base.errors import (
    ShuffleConflict,
    ShuffleDamaged,
    ShuffleDeleted,
    ShuffleError,
    ShuffleRefused,
    ShuffleUnavailable,
)
from ringpop_py.base.values.arrow import schema_in, table_in
from ringpop_py.base.values.declared import decode
from ringpop_py.client.lines.blocking import Closing
from ringpop_py.flow.shuffle.client.cluster import Cluster, Pauses
from ringpop_py.flow.shuffle.client.puts import Attempt, Receipt
from ringpop_py.flow.shuffle.client.readers import (
    BATCH_ROWS,
    Epoch,
    Part,
    Uneven,
    lazy_frame,
    torch_dataset,
)
from ringpop_py.flow.shuffle.client.transfer import Feeding
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.calls import Durability
from ringpop_py.flow.shuffle.protocol.record import Record, State, Winner
from ringpop_py.flow.shuffle.sorting.order import RANDOM, Order
from ringpop_py.state.rows.fingerprint import added

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

TIMEOUT_S = 60.0
WAIT_GROWTH = 1.1
"""The growth of pauses before a look at the end: each is about a tenth of the time so far."""
INTERVALS = 256


class RandomOrder(NamedTuple):
    """In place of key columns: rows in an order that is drawn from *seed*."""

    seed: int


def random_order(seed: int) -> RandomOrder:
    """Return what to sort *by* for a random order of all rows, always the same for one *seed*."""
    return RandomOrder(seed)


class Interval(NamedTuple):
    """A part of all rows, of which each has about as many.

    Attributes:
        number: from 0, in order.
        rows: how many it has; 0 before the shuffle has ended.
        owner, replica: the nodes that hold it; None if there is none.
    """

    number: int
    rows: int
    owner: str | None
    replica: str | None


class ShuffleClient(Closing):
    """The shuffle *name*, through any nodes of the cluster. One thread uses it at a time.

    Args:
        peers: ``host:port`` of a node, or several of them.
        name: of the shuffle; it need not exist yet.
        timeout_s: how long a request may take, with all its attempts.
        cluster_key: see `Client`.
    """

    def __init__(
        self,
        peers: str | Sequence[str],
        name: str,
        *,
        timeout_s: float = TIMEOUT_S,
        cluster_key: str | None = None,
    ) -> None:
        self.name = name
        addresses = [peers] if isinstance(peers, str) else peers
        self._cluster = Cluster(addresses, timeout_s, cluster_key)
        self._described: c.Described | None = None

    @classmethod
    def open(
        cls,
        peers: str | Sequence[str],
        name: str,
        *,
        timeout_s: float = TIMEOUT_S,
        cluster_key: str | None = None,
    ) -> Self:
        """Return the shuffle *name*, which exists.

        Raises:
            ShuffleUnknown: if no such shuffle was created.
            ShuffleDeleted: if it was deleted.
            ShuffleUnavailable: if no process for shuffles answers.
        """
        client = cls(peers, name, timeout_s=timeout_s, cluster_key=cluster_key)
        try:
            client.refresh()
        except BaseException:
            client.close()
            raise
        return client

    def __repr__(self) -> str:
        return f"<ShuffleClient {self.name!r}>"

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        self._cluster.close()

    # What it is.

    def refresh(self) -> Record:
        """Read the record again, and return it. Raises as `open`."""
        return self._take(self._cluster.ask(c.Describe(self.name)))

    def _take(self, reply: c.Reply) -> Record:
        if not isinstance(reply, c.Described):
            raise ShuffleError(f"an unexpected answer: {reply}")
        self._described = reply
        if reply.addresses:
            self._cluster.addresses = dict(reply.addresses)
        if reply.record.state is State.DELETED:
            raise ShuffleDeleted(f"shuffle {self.name!r} was deleted")
        return reply.record

    @property
    def record(self) -> Record:
        """The record as it was read last."""
        return self._described.record if self._described is not None else self.refresh()

    @property
    def state(self) -> str:
        """``put``, ``ending``, ``get`` or ``damaged``, as it was read last."""
        return self.record.state.value

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        schema = self._order.schema
        return schema.remove(schema.get_field_index(RANDOM)) if self._is_random else schema

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns; empty if the order is random."""
        return () if self._is_random else self._order.by

    @property
    def intervals(self) -> list[Interval]:
        """All intervals, in order."""
        found = []
        for number, interval in enumerate(self.record.intervals):
            owner, replica = [*(member.host for member in interval.holders), None, None][:2]
            found.append(Interval(number, interval.rows, owner, replica))
        return found

    @property
    def _definition(self) -> c.Definition:
        return decode(c.Definition, self.record.definition)

    @property
    def _is_random(self) -> bool:
        return self._definition.seed is not None

    @property
    def _order(self) -> Order:
        definition = self._definition
        return Order(schema_in(definition.schema), definition.by)

    def progress(self) -> dict[str, c.Counted]:
        """Return how far each node is, by its name; those that do not answer are left out.

        Raises:
            ShuffleUnavailable: if no process for shuffles answers.
        """
        members = {member.host for member in self.refresh().members}
        found, addresses = {}, self._cluster.addresses
        for host in sorted(members & addresses.keys()):
            with suppress(ShuffleUnavailable):
                reply, _ = self._cluster.line(addresses[host]).call(
                    c.Count(self.name), timeout_s=5.0
                )
                if isinstance(reply, c.Counted):
                    found[host] = reply
        return found

    # Putting.

    def create(
        self,
        schema: pa.Schema,
        by: Sequence[str] | RandomOrder,
        *,
        intervals: int = INTERVALS,
        keep_keys_together: bool = False,
        durability: Durability = "replica",
    ) -> None:
        """Create the shuffle, unless it exists with this definition.

        Args:
            schema: of the rows.
            by: the key columns, or `random_order`.
            intervals: the parts in which it is read, at most 4,096.
            keep_keys_together: whether all rows of a key are in one interval. Then intervals are of
                different sizes if keys have many rows.
            durability: where the second copy of each row lies until the shuffle can be read: at a
                ``"replica"``, so that any one member may be lost; or in the ``"store"`` of the
                cluster, so that all of them may.

        Raises:
            ShuffleRefused: if rows cannot be sorted so.
            ShuffleConflict: if it exists with another definition.
            ShuffleUnavailable: if no process for shuffles answers.
        """
        seed = None
        if RANDOM in schema.names:  # others are refused with the order
            raise ShuffleRefused(f"a column cannot be called {RANDOM!r}")
        if isinstance(by, RandomOrder):
            seed, by = by.seed, [RANDOM]
            schema = schema.append(pa.field(RANDOM, pa.uint64()))
        elif isinstance(by, str):
            by = [by]
        Order(schema, by)  # raises ShuffleRefused
        if durability not in get_args(Durability):
            known = " or ".join(map(repr, get_args(Durability)))
            raise ShuffleRefused(f"durability is {known}, not {durability!r}")
        definition = c.Definition(
            bytes(schema.serialize()), tuple(by), keep_keys_together, seed, durability
        )
        self._take(self._cluster.ask(c.Create(self.name, definition, intervals)))

    def attempt(self, *, part: int = 0, for_commit: bool = False) -> Attempt:
        """Begin an attempt to put the rows of one task.

        Args:
            part: the number of the task. In a random order, the place of a row follows from it, and
                from the place of the row among those of the task.
            for_commit: whether its receipt is for `commit`, which needs a fingerprint of the rows.

        Raises:
            ShuffleEnded, ShuffleDeleted, ShuffleUnknown, ShuffleUnavailable
        """
        record = self.record
        reply = self._cluster.ask(c.TakeAttempts(self.name, record.uid, 1))
        number = reply.number if isinstance(reply, c.Said) else 0
        return Attempt(
            self._cluster,
            c.Put(self.name, record.uid),
            self._order,
            number,
            seed=self._definition.seed,
            part=part,
            for_commit=for_commit,
        )

    def commit(self, receipts: Iterable[Receipt], *, stream: str, batch: int) -> None:
        """Let the rows of a batch of a stream count when the shuffle ends.

        Args:
            stream: names the stream.
            batch: its number, higher than that of the batch before. A batch that was committed
                already is left as it was, so the same rows may be sent again, in any order and any
                attempts. Floating-point numbers are not compared: sums that are computed anew may
                differ in their last digits.

        Raises:
            ShuffleConflict: the batch was committed with other rows, or a receipt is of another
                shuffle.
            ShuffleRefused: an attempt was not begun with *for_commit*.
            ShuffleEnded, ShuffleDeleted, ShuffleUnavailable
        """
        record, there = self.record, list(receipts)
        winners = _winners(record, self.name, there)
        for each in there:
            if each.fingerprint is None:
                raise ShuffleRefused(
                    f"the receipt of attempt {each.number} does not tell its rows from others:"
                    " begin attempts of a stream with attempt(for_commit=True)"
                )
        total = added(each.fingerprint or 0 for each in there)
        self._take(
            self._cluster.ask(c.Commit(self.name, record.uid, stream, batch, winners, total))
        )

    def end(self, receipts: Iterable[Receipt | tuple[int, int, int]], *, wait: bool = True) -> None:
        """End the shuffle: the rows of these attempts count, and those of committed batches.

        It may be called again with the same receipts. Afterwards, puts raise `ShuffleEnded`.

        Args:
            wait: return when it can be read, however long that takes.

        Raises:
            ShuffleIncomplete: if rows of these attempts are missing.
            ShuffleConflict: if it was ended with others, or a receipt is of another shuffle.
            ShuffleDeleted, ShuffleDamaged, ShuffleUnavailable
        """
        record = self.record
        winners = _winners(record, self.name, receipts)
        self._take(self._cluster.ask(c.End(self.name, record.uid, winners)))
        if wait:
            self.wait()

    def reorder(self, seed: int, name: str) -> ShuffleClient:
        """Return a new shuffle *name* of the same rows, in the random order of *seed*.

        The rows go from node to node. The order follows from *seed* and from the order here. It may
        be called again if it failed, until it is ended.

        Raises:
            ShuffleConflict: if there is another shuffle of that name.
            ShuffleEnded: if it was made before.
            ShuffleDamaged, ShuffleDeleted, ShuffleUnavailable
        """
        self.wait(self._cluster.timeout_s)
        cluster = self._cluster
        target = ShuffleClient(
            cluster.peers, name, timeout_s=cluster.timeout_s, cluster_key=cluster.cluster_key
        )
        try:
            target.create(self.schema, random_order(seed), intervals=self.record.interval_count)
            feeding = Feeding(self._cluster, target._cluster, self.name, name)
            target.end(feeding.run(self.refresh, target.record.uid))
        except BaseException:
            target.close()
            raise
        return target

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the shuffle can be read.

        Raises:
            ShuffleUnavailable: if that takes longer than *timeout_s*.
            ShuffleDamaged, ShuffleDeleted
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        pauses = Pauses(deadline, WAIT_GROWTH)
        while self.record.state is not State.GET:
            if self.record.state is State.DAMAGED:
                raise ShuffleDamaged(f"shuffle {self.name!r}: {self.record.why}")
            if not pauses:
                raise ShuffleUnavailable(
                    f"shuffle {self.name!r} is in the state {self.state!r} after {timeout_s:g} s"
                )
            pauses.wait()
            self.refresh()

    def delete(self) -> None:
        """Delete the shuffle, and all its rows. Raises ShuffleUnavailable."""
        with suppress(ShuffleDeleted):  # which is what was asked for
            self._cluster.ask(c.Delete(self.name, self.record.uid))
        self._described = None

    # Reading.

    def interval(self, number: int) -> pa.Table:
        """Return the rows of an interval, in order.

        Raises:
            ShuffleDamaged: if they are lost, or not what was merged.
            ShuffleConflict: if the shuffle was created anew meanwhile.
            ShuffleDeleted, ShuffleUnavailable
        """
        uid = self.record.uid
        deadline = time.monotonic() + self._cluster.timeout_s
        pauses, why = Pauses(deadline), ""
        while pauses:
            record = self.record
            if record.uid != uid:
                raise ShuffleConflict(f"shuffle {self.name!r} was deleted, and created anew")
            if record.state is State.DAMAGED:
                raise ShuffleDamaged(f"shuffle {self.name!r}: {record.why}")
            if record.state is State.GET:
                if not 0 <= number < len(record.intervals):
                    raise ShuffleRefused(f"there are {len(record.intervals)} intervals, from 0 on")
                found = self._interval(record, number, deadline)
                if isinstance(found, bytearray):
                    return table_in(found)
                why = found
            pauses.wait()
            self.refresh()
        raise ShuffleUnavailable(f"interval {number} of shuffle {self.name!r} was not read: {why}")

    def _interval(self, record: Record, number: int, deadline: float) -> bytearray | str:
        """Return the file of an interval from any of its holders, or why it was not read."""
        interval = record.intervals[number]
        if not interval.holders:
            raise ShuffleDamaged(
                f"interval {number} of shuffle {self.name!r} is lost with both nodes that held it"
            )
        why, damaged = "no address of a holder is known", list[str]()
        for member in interval.holders:
            address = self._cluster.addresses.get(member.host)
            if address is None:
                continue
            call = c.Get(self.name, record.uid, record.version, number)
            try:
                left = max(deadline - time.monotonic(), 0.001)
                reply, body = self._cluster.line(address).call(call, timeout_s=left)
            except ShuffleUnavailable as error:
                why = str(error)
                continue
            if not isinstance(reply, c.File):
                why = f"{member.host} answers {reply}"
                continue
            if xxhash.xxh3_64_intdigest(body) == interval.checksum:
                return body
            damaged.append(member.host)
        if len(damaged) == len(interval.holders):
            where = " and ".join(damaged)
            raise ShuffleDamaged(
                f"interval {number} of shuffle {self.name!r} is damaged at {where}"
            )
        return f"it is damaged at {damaged[0]}" if damaged else why

    def scan(
        self,
        start: Sequence[object] | None = None,
        stop: Sequence[object] | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows from *start* on, and before *stop*, in order.

        Args:
            start, stop: values of the key columns, or of the first of them.
            columns: which to yield; all by default.

        Raises:
            ShuffleRefused: if there are no such columns, or the order is random.
            ShuffleDamaged, ShuffleDeleted, ShuffleUnavailable
        """
        if (start or stop) and self._is_random:
            raise ShuffleRefused("rows in a random order have no keys: read all of them")
        low, high = self._bound("start", start), self._bound("stop", stop)
        unknown = [name for name in columns or () if name not in self.schema.names]
        if unknown:
            raise ShuffleRefused(f"there is no column {unknown[0]!r}, among: {self.schema.names}")
        self.wait(self._cluster.timeout_s)
        for number in self._wanted(low, high):
            table = self.interval(number).combine_chunks()
            end = _place(table, high) if high is not None else table.num_rows
            first = _place(table, low) if low is not None else 0
            table = table.slice(first, max(end - first, 0))
            if columns is not None:
                table = table.select(list(columns))
            yield from table.to_batches()

    def _bound(self, what: str, key: Sequence[object] | None) -> _Bound | None:
        """Return *key* as a row of the first key columns. Raises ShuffleRefused."""
        if not key:
            return None
        by = self._order.by
        if isinstance(key, str | bytes) or not isinstance(key, list | tuple) or len(key) > len(by):
            raise ShuffleRefused(
                f"{what} is a tuple of values for {', '.join(by)}, or for the first of them, "
                f"not {key!r}"
            )
        order = Order(self._order.schema, by[: len(key)])
        try:
            row = pa.Table.from_pylist(
                [dict(zip(order.by, key, strict=True))], schema=order.key_schema
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
            raise ShuffleRefused(f"{what}, {key!r}: {error}") from None
        return _Bound(order, row, order.keys_of(row)[0])

    def _wanted(self, low: _Bound | None, high: _Bound | None) -> Iterator[int]:
        """Return which intervals may have rows from *low* on, and before *high*."""
        keys = self._order.keys_of(table_in(self.record.cuts))
        for number in range(self.record.interval_count):
            last = keys[number] if number < len(keys) else None
            first = keys[number - 1] if 0 < number <= len(keys) else None
            if low is not None and last is not None and last[: len(low.key)] < low.key:
                continue
            if high is not None and first is not None and first[: len(high.key)] >= high.key:
                return
            yield number

    def reader(self, rank: int = 0, world: int = 1) -> pa.RecordBatchReader:
        """Return a reader of part *rank* of *world* of all rows, in order; polars takes it.

        Raises:
            ShuffleDamaged, ShuffleDeleted, ShuffleUnavailable: also while it is read.
        """
        if not 0 <= rank < world:
            raise ShuffleRefused(f"rank is 0 to {world - 1}, not {rank}")
        self.wait(self._cluster.timeout_s)
        count = self.record.interval_count
        numbers = range(count * rank // world, count * (rank + 1) // world)
        batches = (batch for number in numbers for batch in self.interval(number).to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def epoch(
        self,
        rank: int = 0,
        world: int = 1,
        *,
        number: int | None = None,
        batch_rows: int = BATCH_ROWS,
        columns: Sequence[str] | None = None,
        uneven: Uneven = "keep",
    ) -> Epoch:
        """Return part *rank* of *world* of all rows in batches, which can be interrupted.

        Args:
            number: of the epoch: intervals come in another order for each. By default they come in
                the order of the shuffle.
            batch_rows: the rows of a batch; the last one may have fewer.
            columns: which to read; all by default.
            uneven: if *world* does not divide the number of rows, some ranks have one row more than
                others (``"keep"``). For equally many, the last rows are left out (``"drop"``), or
                the first rows come once more (``"pad"``).

        Raises:
            ShuffleRefused: if an argument cannot be used.
        """
        names = None if columns is None else list(columns)
        part = Part(rank, world, number, uneven)
        return Epoch(self._again, part, batch_rows=batch_rows, columns=names)

    def torch(
        self,
        rank: int = 0,
        world: int = 1,
        *,
        epoch: int | None = None,
        batch_rows: int = BATCH_ROWS,
        columns: Sequence[str] | None = None,
        uneven: Uneven = "pad",
    ) -> Any:  # noqa: ANN401 - torch's
        """Return the batches of `epoch` as an ``IterableDataset`` of torch, with ``state_dict()``.

        A batch is a dict: numbers as tensors, other columns as lists. Use a DataLoader with
        ``batch_size=None``, whose workers share the rows of the rank. All ranks have equally many
        batches, as with a ``DistributedSampler``, unless *uneven* is ``"keep"``.

        Raises:
            ShuffleRefused: if torch is not installed, or an argument cannot be used.
        """
        names = None if columns is None else list(columns)

        def epoch_of(worker: int, workers: int) -> Epoch:
            part = Part(rank, world, epoch, uneven, worker, workers)
            return Epoch(self._again, part, batch_rows=batch_rows, columns=names)

        epoch_of(0, 1)  # raises ShuffleRefused
        return torch_dataset(epoch_of)

    def lazy(self) -> Any:  # noqa: ANN401 - of polars
        """Return all rows, in order, as a ``LazyFrame`` of polars.

        Raises:
            ShuffleRefused: if polars is not installed.
        """
        return lazy_frame(self._again)

    @property
    def _again(self) -> Callable[[], ShuffleClient]:
        """A function that opens this shuffle once more, in another thread or process."""
        cluster = self._cluster
        return partial(
            ShuffleClient.open,
            cluster.peers,
            self.name,
            timeout_s=cluster.timeout_s,
            cluster_key=cluster.cluster_key,
        )


def list_shuffles(
    peers: str | Sequence[str], *, timeout_s: float = TIMEOUT_S, cluster_key: str | None = None
) -> list[c.Described]:
    """Return all shuffles of the cluster. Raises ShuffleUnavailable."""
    cluster = Cluster([peers] if isinstance(peers, str) else peers, timeout_s, cluster_key)
    try:
        reply = cluster.ask(c.List())
    finally:
        cluster.close()
    return list(reply.shuffles) if isinstance(reply, c.Listed) else []


class _Bound(NamedTuple):
    """A bound of a scan: a row of the first key columns, and its key as it compares."""

    order: Order
    row: pa.Table
    key: tuple[tuple[int, Any], ...]


def _place(table: pa.Table, bound: _Bound) -> int:
    """Return the first row of *table* that is not below *bound*."""
    return bound.order.ranges(table, bound.row)[0][0]


def _winners(
    record: Record, name: str, receipts: Iterable[Receipt | tuple[int, int, int]]
) -> dict[int, Winner]:
    found: dict[int, Winner] = {}
    for receipt in receipts:
        number, frames, rows, uid, _ = Receipt(*receipt)
        if uid not in (0, record.uid):
            raise ShuffleConflict(
                f"the receipt of attempt {number} is of another shuffle, or of {name!r} before it "
                "was created anew: put these rows again"
            )
        found[number] = Winner(frames, rows)
    return found
