"""The tasks of `route`: send rows to their owners until each owner has accepted them.

Spark pickles `Deliver`, with its plan alone, and calls it for each of its partitions.

A message has the rows of one Arrow batch that belong to one owner, as far as the task knows. A few
messages are under way at a time. Rows that moved or failed wait for the next round: then the ring
is fetched again, and they are grouped again. A row keeps its name (job, partition, sequence,
position), so an owner that has handled it counts it as repeated.

Rules for this file: it runs in Spark's workers, so it imports neither trio nor pyspark (except for
a part that workers have loaded), and pyarrow must not convert implicitly (see the end of
`columns.packed`).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    CallError,
    ConfigError,
    ConnectFailed,
    MaxRetriesExceeded,
    NoOwner,
    OperationIdReused,
    ProxyError,
    RingpopError,
    WireError,
)
from ringpop_py.base.values.declared import Declared, decode, encode
from ringpop_py.client.calls import RingSnapshot
from ringpop_py.client.lines.blocking import Closing, Pending
from ringpop_py.client.sync.client import Client
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.net.wire.calls import Call
from ringpop_py.route.proxy.failures import decode_failure
from ringpop_py.route.proxy.head import APPLICATION_SCHEME
from ringpop_py.route.proxy.request import Request
from ringpop_py.spark.keys import key_texts, refuse_null_keys
from ringpop_py.spark.snapshot import ring_snapshot
from ringpop_py.state.rows.batches import (
    POSITION,
    ROWS_MAX,
    BatchReply,
    BatchSource,
    encode_batch,
    rows_in,
)
from ringpop_py.state.rows.packed import array_of, binary_of, numbers_of, places_of_valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ringpop_py.spark.options import OnNullKey

HISTORY_MAX: Final = 16
HASH: Final = "__hash"
"""The column that Spark adds: the position of each key on the ring."""
NO_RING: Final = RingSnapshot(HashRing([]), {}, "")
MESSAGE_BYTES_MAX: Final = 4 << 20
"""Larger messages are split. This is half of a daemon's limit, so Arrow's framing fits as well."""
REPORT: Final = "report"
"""The only column of the result of `Deliver` without answers: a packed `Report`."""

Through = Literal["owners", "daemon"]


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The plan that all tasks of one job share; it is pickled into each."""

    job: str
    key: str
    endpoint: str
    peers: tuple[str, ...]
    through: Through
    in_flight: int
    max_retries: int
    schedule_s: tuple[float, ...]
    timeout_s: float
    snapshot: RingSnapshot = NO_RING  # until it is fetched
    binary_keys: bool = False
    on_null_key: OnNullKey = "count"
    cluster_key: str | None = None
    answers: pa.Schema | None = None  # the columns of answers; None: handlers do not answer


@dataclass(slots=True)
class RouteCounts:
    """The counts of one task."""

    null_keys: int = 0
    moved_rows: int = 0
    repeated_rows: int = 0
    retries: int = 0
    batches: int = 0
    owners: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """Rows of one Arrow batch for one owner: the columns of the data, and `POSITION`."""

    owner: str
    source: BatchSource
    rows: pa.RecordBatch
    hashes: NDArray[np.uint64]
    history: tuple[str, ...] = ()
    attempts: int = 0

    def only(self, index: NDArray[Any]) -> Message:
        """Return the message with the rows at *index* only."""
        places = array_of(index.astype(np.int64, copy=False), pa.int64())
        return replace(self, rows=self.rows.take(places), hashes=self.hashes[index])

    def failed(self, reason: str) -> Message:
        """Return the message for its next attempt, with the *reason* in its history."""
        line = f"attempt {self.attempts + 1} to {self.owner}: {reason}"
        history = (*self.history, line)[-HISTORY_MAX:]
        return replace(self, history=history, attempts=self.attempts + 1)


class Sender(Closing):
    """Sends the rows of one partition. Close it, or use it as a context manager."""

    def __init__(self, plan: RoutePlan, *, partition: int, attempt: int) -> None:
        self.counts = RouteCounts()
        self._plan = plan
        self._snapshot = plan.snapshot
        asks = plan.answers is not None
        self._source = BatchSource(plan.job, partition, 0, attempt, asks)
        self._answers: list[pa.RecordBatch] = []
        self._rows_max = ROWS_MAX
        self._clients: dict[str, Client] = {}
        self._under_way: deque[tuple[Message, Pending | CallError]] = deque()
        self._waiting: list[Message] = []

    def close(self) -> None:
        """Close all connections, and abandon the calls under way."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def send(self, sequence: int, batch: pa.RecordBatch) -> None:
        """Send the *sequence*-th batch of this partition, which has the column `HASH`.

        All but a few messages are answered when this returns; `finish` waits for the others. Raises
        the errors of `route`, and ConfigError if answers do not fit the schema. After a BadKey, no
        row of the batch was sent.
        """
        hashes = numbers_of(batch.column(HASH), np.uint64)
        data = batch.drop_columns([HASH])
        positions = array_of(np.arange(batch.num_rows, dtype=np.int32), pa.int32())
        rows = data.append_column(pa.field(POSITION, pa.int32(), nullable=False), positions)
        keys = data.column(self._plan.key)
        present = np.arange(batch.num_rows)
        if keys.null_count:
            if self._plan.on_null_key == "fail":
                refuse_null_keys(keys.null_count, self._plan.key)
            if self._plan.on_null_key == "count":
                self.counts.null_keys += keys.null_count
            present = places_of_valid(keys)
        if not self._plan.binary_keys:
            key_texts(keys)  # only checks them
        whole = Message("", self._source._replace(sequence=sequence), rows, hashes)
        if not len(present):
            return
        for message in self._grouped(whole.only(present)):
            self._settle_until(self._plan.in_flight - 1)
            self._begin(message)

    def finish(self) -> None:
        """Wait until each row was accepted. Raises as `send` does."""
        self._settle_until(0)

    def take_answers(self) -> list[pa.RecordBatch]:
        """Return the answers that arrived since the last call, with the schema of the plan."""
        taken, self._answers = self._answers, []
        return taken

    # One message.

    def _grouped(self, message: Message) -> list[Message]:
        # By owner on the ring as it is known now, and by size.
        ring = self._snapshot.ring
        owner_of_row = ring.owner_indexes_of(message.hashes)
        # A stable sort keeps the order of each owner's rows, which then are one slice.
        order = np.argsort(owner_of_row, kind="stable")
        edges = np.searchsorted(owner_of_row[order], np.arange(len(ring) + 1))
        parts: list[Message] = []
        for owner, start, end in zip(ring.owners, edges[:-1], edges[1:], strict=True):
            if start < end:
                part = replace(message.only(order[start:end]), owner=owner)
                parts.extend(self._sized(part))
        return parts

    def _sized(self, message: Message) -> list[Message]:
        count = message.rows.num_rows
        by_bytes = min(count, -(-message.rows.nbytes // MESSAGE_BYTES_MAX))
        parts = max(by_bytes, -(-count // self._rows_max))  # for answers that were too large
        if parts <= 1:
            return [message]
        return [message.only(index) for index in np.array_split(np.arange(count), parts)]

    def _begin(self, message: Message) -> None:
        body = encode_batch(message.rows, message.source)
        self.counts.retries += message.attempts > 0
        try:
            pending: Pending | CallError = self._call(message.owner, body)
        except CallError as error:
            pending = error  # settled in its turn, as failures of answers are
        self._under_way.append((message, pending))

    def _call(self, owner: str, body: bytes) -> Pending:
        plan = self._plan
        if plan.through == "daemon":
            request = Request(plan.endpoint, body)
            return self._relay_client().relay(owner, request, timeout_s=plan.timeout_s)
        address = self._snapshot.addresses.get(owner)
        if address is None:
            # The ring was fetched again since the message was cut; the next round cuts it anew.
            raise ConnectFailed(f"{owner} has left the ring")
        service = self._snapshot.service
        return self._client(str(address)).begin(
            Call(service, plan.endpoint, b"", body, ttl_s=plan.timeout_s, scheme=APPLICATION_SCHEME)
        )

    def _client(self, peer: str) -> Client:
        if peer not in self._clients:
            self._clients[peer] = Client(
                peer, timeout_s=self._plan.timeout_s, cluster_key=self._plan.cluster_key
            )
        return self._clients[peer]

    def _relay_client(self) -> Client:
        reasons = []
        for peer in self._plan.peers:
            client = self._client(peer)
            try:
                if not client.connected:
                    client.admin("/health")
            except (CallError, WireError) as error:
                reasons.append(str(error))
            else:
                return client
        raise ConnectFailed("; ".join(reasons))

    # Answers.

    def _settle_until(self, left_max: int) -> None:
        while len(self._under_way) + len(self._waiting) > left_max:
            if self._under_way:
                self._settle(*self._under_way.popleft())
            else:
                self._next_round()

    def _settle(self, message: Message, pending: Pending | CallError) -> None:
        try:
            reply = self._reply(pending)
            answer = rows_in(reply)
        except (CallError, WireError) as error:
            if not error.passes:
                raise
            self._again(message, f"{type(error).__name__}: {error}")
            return
        if reply.others:
            raise _reused(message, reply.others)
        counts = self.counts
        counts.batches += 1
        counts.repeated_rows += reply.repeated
        taken = reply.accepted + reply.repeated
        counts.owners[message.owner] = counts.owners.get(message.owner, 0) + taken
        if answer is not None and self._plan.answers is not None:
            self._answers.append(_fitted(answer, self._plan.answers, self._plan.endpoint))
        moved = np.isin(numbers_of(message.rows.column(POSITION), np.int32), reply.moved)
        if reply.too_large:
            self._ask_for_less(message.only(np.flatnonzero(~moved)))
        if reply.moved:
            counts.moved_rows += len(reply.moved)
            index = np.flatnonzero(moved)
            self._again(message.only(index), f"{len(index)} rows moved")

    def _ask_for_less(self, message: Message) -> None:
        count = message.rows.num_rows
        if count <= 1:
            raise BadRequest(f"{message.owner} has an answer to one row that no message can carry")
        # All later messages are at most this large, so that they need not fail first.
        self._rows_max = min(self._rows_max, -(-count // 2))
        for part in self._sized(message):
            self._begin(part)

    def _reply(self, pending: Pending | CallError) -> BatchReply:
        if isinstance(pending, CallError):
            raise pending
        answer = pending.result()
        if not answer.ok:
            raise decode_failure(answer.arg2)
        return decode(BatchReply, answer.arg3)

    def _again(self, message: Message, reason: str) -> None:
        failed = message.failed(reason)
        if failed.attempts > self._plan.max_retries:
            source = failed.source
            raise MaxRetriesExceeded(
                f"{failed.owner} did not accept {failed.rows.num_rows} rows in {failed.attempts}"
                f" attempts (partition {source.partition}, batch {source.sequence} of job"
                f" {source.job!r})",
                failed.history,
            )
        self._waiting.append(failed)

    def _next_round(self) -> None:
        again, self._waiting = self._waiting, []
        schedule_s = self._plan.schedule_s
        last = len(schedule_s) - 1
        time.sleep(max(schedule_s[min(message.attempts - 1, last)] for message in again))
        self._refresh()  # after the pause: a member that failed may have left the ring by now
        for message in again:
            for part in self._grouped(message):
                self._begin(part)

    def _refresh(self) -> None:
        owners = (str(address) for address in self._snapshot.addresses.values())
        try:
            peers = tuple(dict.fromkeys([*self._plan.peers, *owners]))
            snapshot = ring_snapshot(peers, cluster_key=self._plan.cluster_key)
        except ConnectFailed:
            return  # go on with the ring that we have
        if len(snapshot.ring):
            self._snapshot = snapshot


def _reused(message: Message, others: int) -> OperationIdReused:
    source = message.source
    return OperationIdReused(
        f"job {source.job!r}: {others} of {message.rows.num_rows} rows (partition"
        f" {source.partition}, batch {source.sequence}) are others than those that"
        f" {message.owner} has handled in their places. It handled none of them. Other rows need"
        " another job name; if Spark repeated a task, whose rows then came in another order, sort"
        " them or write them to a table before"
    )


class Report(Declared, frozen=True):
    """The outcome for the rows of one partition."""

    counts: RouteCounts
    error: tuple[str, tuple[Any, ...]] | None = None  # its class, and the arguments to make it


@dataclass(frozen=True, slots=True)
class Deliver:
    """Sends the rows of a partition, with the column `HASH`, to their owners."""

    plan: RoutePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers; an error fails the task. Without answers, yield a row: a `Report`."""
        from pyspark import TaskContext  # noqa: PLC0415 - a worker has it

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        error = None
        with Sender(self.plan, partition=partition, attempt=attempt) as sender:
            try:
                for sequence, batch in enumerate(batches):
                    sender.send(sequence, batch)
                    yield from sender.take_answers()
                sender.finish()
                yield from sender.take_answers()
            except RingpopError as failure:
                if self.plan.answers is not None:
                    raise
                # Reported, not raised: Spark would run the task again, in vain.
                error = (type(failure).__name__, _arguments(failure))
        if self.plan.answers is None:
            report = encode(Report(sender.counts, error))
            yield pa.RecordBatch.from_arrays([binary_of(report)], names=[REPORT])


def _arguments(failure: RingpopError) -> tuple[Any, ...]:
    match failure:
        case ApplicationError():
            return failure.kind, failure.message
        case ProxyError():
            return str(failure).partition("\n  ")[0], failure.history
        case _:
            return (str(failure),)


def probe(plan: RoutePlan) -> None:
    """Send one owner an empty batch, so that a wrong endpoint fails before any task starts.

    Raises BadRequest then, and NoOwner if the ring is empty.
    """
    if not len(plan.snapshot.ring):
        raise NoOwner("no member is in the ring, so no row has an owner")
    key_kind = pa.binary() if plan.binary_keys else pa.string()
    schema = pa.schema([(plan.key, key_kind), (POSITION, pa.int32())])
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    with Sender(plan, partition=0, attempt=0) as sender:
        body = encode_batch(empty, BatchSource(plan.job, 0, 0, asks=plan.answers is not None))
        for owner in plan.snapshot.ring.owners:
            try:
                sender._reply(sender._call(owner, body))  # noqa: SLF001 - of this module
            except (CallError, WireError) as error:
                if not error.passes:
                    raise
                continue  # the tasks retry such failures
            return


def _fitted(answer: pa.RecordBatch, schema: pa.Schema, endpoint: str) -> pa.RecordBatch:
    # With the columns of *schema* only, in its order and types.
    try:
        columns = [answer.column(field.name).cast(field.type) for field in schema]
        fitted = pa.RecordBatch.from_arrays(columns, schema=schema)
    except (KeyError, pa.ArrowException) as error:
        raise ConfigError(f"the answers of {endpoint} do not fit the schema: {error}") from None
    # Arrow does not check this, and Spark would read such rows as values.
    for wanted, column in zip(schema, columns, strict=True):
        if column.null_count and not wanted.nullable:
            raise ConfigError(
                f"the answers of {endpoint} do not fit the schema: {wanted.name!r} is NULL"
            )
    return fitted
