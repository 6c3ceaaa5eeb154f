"""Puts of one attempt: batches become frames, and each is sent until two members have it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pyarrow as pa

from ringpop_py.base.errors import (
    BodyError,
    ShuffleDeleted,
    ShuffleEnded,
    ShuffleFull,
    ShuffleRefused,
    ShuffleUnavailable,
)
from ringpop_py.base.values.arrow import sound
from ringpop_py.flow.shuffle.client.cluster import Pauses
from ringpop_py.flow.shuffle.client.lines import SILENT_S
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.sorting.frame_builder import frames_of, last_frame_of, with_random_keys
from ringpop_py.flow.shuffle.sorting.frames import pieces_of
from ringpop_py.flow.shuffle.sorting.order import RANDOM
from ringpop_py.state.rows.fingerprint import added, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.flow.shuffle.client.cluster import Cluster
    from ringpop_py.flow.shuffle.client.lines import Line
    from ringpop_py.flow.shuffle.sorting.frames import Bytes, Frame
    from ringpop_py.flow.shuffle.sorting.order import Order


BATCH_ROWS: Final = 16_384
"""The rows of which a fingerprint is made at a time, so that their hashes fit into a cache."""
WINDOW: Final = 16
"""The most frames under way at a time; they are in memory, too."""
NOT_TAKEN: Final = (
    "members cannot take rows now; unless durability is 'store', it takes two of them"
)


class Receipt(NamedTuple):
    """The frames and rows of an attempt, all acknowledged; for `ShuffleClient.end`.

    Attributes:
        uid: of the shuffle whose attempt it is: each shuffle numbers its own. 0 if it is not known.
        fingerprint: tells the rows from others; None unless the attempt is *for_commit*.
    """

    number: int
    frames: int
    rows: int
    uid: int = 0
    fingerprint: int | None = None


class Attempt:
    """One try to put the rows of a task. They count if the shuffle is ended with its receipt.

    Used as a context manager, it is finished at the end of the block, unless that fails. A task
    that is tried again makes a new one.

    Attributes:
        number: used by no other attempt.
        rows: that were put so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        put: c.Put,
        order: Order,
        number: int,
        *,
        seed: int | None,
        part: int,
        for_commit: bool = False,
    ) -> None:
        self.number = number
        self.rows = 0
        self._cluster = cluster
        self._put = put
        self._order = order
        self._seed = seed
        self._part = part
        self._frames = 0
        self._fingerprint = 0 if for_commit else None
        self._receipt: Receipt | None = None
        self._failed = False
        self._turn = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()

    @property
    def receipt(self) -> Receipt:
        """The receipt. Raises ShuffleRefused before the attempt is finished."""
        if self._receipt is None:
            raise ShuffleRefused(f"attempt {self.number} is not finished: call finish()")
        return self._receipt

    def put(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Put *rows*; when this returns, they survive the loss of any one node.

        If it fails, so has the attempt: begin another one, with all rows of the task.

        Raises:
            ShuffleRefused: if they do not have the schema of the shuffle.
            ShuffleEnded, ShuffleDeleted: the shuffle takes no more rows.
            ShuffleFull: no member has room.
            ShuffleUnavailable: no two members took them in time.
        """
        if self._receipt is not None:
            raise ShuffleRefused(f"attempt {self.number} is finished: begin another one")
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self.check(table)
        if not table.num_rows:
            return
        if self._fingerprint is not None:
            more = (fingerprint(each, floats=False) for each in table.to_batches(BATCH_ROWS))
            self._fingerprint = added([self._fingerprint, *more])
        if self._seed is not None:
            table = with_random_keys(table, self._seed, self._part, self.rows)
        frames = frames_of(self._order, table, self.number, self._frames)
        self._frames += self.send(frames)
        self.rows += table.num_rows

    def check(self, table: pa.Table) -> None:
        """Raise ShuffleRefused unless *table* has the schema of the shuffle."""
        wanted = self._order.schema
        if self._seed is not None:
            wanted = wanted.remove(wanted.get_field_index(RANDOM))
        if not table.schema.equals(wanted):
            raise ShuffleRefused(_difference(table.schema, wanted))
        try:
            sound(table)
        except BodyError as error:
            raise ShuffleRefused(f"the rows are damaged: {error}") from None
        for field, column in zip(wanted, table.columns, strict=True):
            if column.null_count and not field.nullable:
                raise ShuffleRefused(
                    f"column {field.name!r} has a null, and its schema allows none"
                )

    def finish(self) -> Receipt:
        """Say that this is all; return the receipt. Raises as `put`."""
        if self._receipt is None:
            self.send([last_frame_of(self.number, self._frames, self.rows)])
            self._receipt = Receipt(
                self.number, self._frames, self.rows, self._put.uid, self._fingerprint
            )
        return self._receipt

    def send(self, frames: Iterable[Frame]) -> int:
        """Send *frames* to members until all are acknowledged; return the number of frames.

        Raises as `put`.
        """
        if self._failed:
            raise ShuffleRefused(f"attempt {self.number} has failed before: begin another one")
        count = 0
        self._failed = True  # until it succeeds: what was sent may be there, under these numbers
        window: list[tuple[Bytes, ...]] = []
        for frame in frames:
            window.append(pieces_of(frame))
            if len(window) == WINDOW:
                self._send_window(window)
                count += len(window)
                window = []
        self._send_window(window)
        self._failed = False
        return count + len(window)

    def _send_window(self, left: list[tuple[Bytes, ...]]) -> None:
        cluster = self._cluster
        deadline = time.monotonic() + cluster.timeout_s
        pauses, why = Pauses(deadline), ""
        full: set[str] = set()
        while left and pauses:
            if not cluster.addresses:
                cluster.look()
            addresses = sorted(cluster.addresses.values())
            under_way = []
            for entry in left:
                self._turn += 1
                address = addresses[self._turn % len(addresses)]
                under_way.append((entry, address, self._begin(address, entry, deadline)))
            left = []
            for entry, address, begun in under_way:
                said = self._ended(begun, deadline)
                if said is Answer.OK:
                    continue
                left.append(entry)
                why = NOT_TAKEN if isinstance(said, Answer) else str(said)
                if isinstance(said, ShuffleFull):
                    full.add(address)
                    if full.issuperset(addresses):
                        raise said
            if left:
                pauses.wait()
                cluster.addresses = {}
        if left:
            raise ShuffleUnavailable(
                f"{len(left)} frames were not taken within {cluster.timeout_s:g} s: {why}"
            )

    def _begin(
        self, address: str, entry: tuple[Bytes, ...], deadline: float
    ) -> tuple[Line, int] | ShuffleUnavailable:
        try:
            left = max(min(deadline - time.monotonic(), SILENT_S), 0.001)
            line = self._cluster.line(address)
            return line, line.send(self._put, *entry, timeout_s=left)
        except ShuffleUnavailable as error:
            return error

    def _ended(
        self, begun: tuple[Line, int] | ShuffleUnavailable, deadline: float
    ) -> Answer | ShuffleUnavailable | ShuffleFull:
        if isinstance(begun, ShuffleUnavailable):
            return begun
        line, number = begun  # the reply comes on this connection, and on no later one
        try:
            reply, _ = line.receive(number, deadline=deadline)
        except (ShuffleFull, ShuffleUnavailable) as error:
            return error
        said = Answer(reply.answer) if isinstance(reply, c.Said) else Answer.NOT_NOW
        if said is Answer.ENDED:
            raise ShuffleEnded(f"shuffle {self._put.name!r} takes no more rows: it was ended")
        if said is Answer.DELETED:
            raise ShuffleDeleted(f"this shuffle {self._put.name!r} was deleted")
        return said


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    for place, field in enumerate(wanted):
        if place >= len(found):
            return f"the rows have no column {field.name!r}, of type {field.type}"
        if not found.field(place).equals(field):
            other = found.field(place)
            nullable = "" if other.nullable == field.nullable else " (one of them may be null)"
            return (
                f"column {place} of the rows is {other.name!r}, of type {other.type}; that of the "
                f"shuffle is {field.name!r}, of type {field.type}{nullable}"
            )
    return f"the rows have another column, {found.field(len(wanted)).name!r}"
