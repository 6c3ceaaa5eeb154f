"""Puts of one attempt: batches become frames, and each is sent until two members have it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ringpop_py.errors import (
    ShuffleDeleted,
    ShuffleEnded,
    ShuffleFull,
    ShuffleRefused,
    ShuffleUnavailable,
)
from ringpop_py.shuffle import calls as c
from ringpop_py.shuffle.messages import Answer
from ringpop_py.shuffle.record import Winner
from ringpop_py.shuffling.cluster import Pauses
from ringpop_py.sorting.cuts import points_of
from ringpop_py.sorting.frames import FRAME_BYTES_MAX, FRAME_ROWS_MAX, Frame, entry_of, packed
from ringpop_py.sorting.order import RANDOM, Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.shuffling.cluster import Cluster

FRAME_BYTES: Final = 4 * 1024 * 1024
"""A batch is cut into frames of about so many bytes."""
FRAMES_MAX: Final = 1 << 20
"""An attempt has at most so many frames."""


class Receipt(NamedTuple):
    """What an attempt has put, all of it acknowledged; for `ShuffleClient.end`."""

    number: int
    frames: int
    rows: int


class Attempt:
    """The rows of one task, as one try at it. They count if the shuffle is ended with its receipt.

    Used as a context manager, it is finished at the end of the block, unless that fails. A task
    that is tried again makes a new one.

    Attributes:
        number: nobody else's.
        rows: that were put so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        uid: int,
        order: Order,
        number: int,
        *,
        seed: int | None,
        part: int,
    ) -> None:
        self.number = number
        self.rows = 0
        self._cluster = cluster
        self._put = c.Put(name, uid)
        self._order = order
        self._seed = seed
        self._part = part
        self._frames = 0
        self._receipt: Receipt | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()

    @property
    def receipt(self) -> Receipt:
        """What was put. Raises ShuffleRefused before the attempt is finished."""
        if self._receipt is None:
            raise ShuffleRefused(f"attempt {self.number} is not finished: call finish()")
        return self._receipt

    def put(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Put *rows*; when this returns, they survive the loss of any one node.

        Raises:
            ShuffleRefused: if they do not have the schema of the shuffle.
            ShuffleEnded, ShuffleDeleted: the shuffle takes no more rows.
            ShuffleFull: no member has room.
            ShuffleUnavailable: no two members took them in time. They may be put again.
        """
        if self._receipt is not None:
            raise ShuffleRefused(f"attempt {self.number} is finished: begin another one")
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        wanted = self._order.schema
        if self._seed is not None:
            wanted = wanted.remove(wanted.get_field_index(RANDOM))
        if not table.schema.equals(wanted):
            raise ShuffleRefused(_difference(table.schema, wanted))
        if not table.num_rows:
            return
        if self._seed is not None:
            keys = random_keys(self._seed, self._part, self.rows, table.num_rows)
            table = table.append_column(RANDOM, pa.array(keys))
        self._send([self._frame(part) for part in _cut(table)])
        self.rows += table.num_rows

    def finish(self) -> Receipt:
        """Say that this is all; return the receipt. Raises as `put`."""
        if self._receipt is None:
            last = Frame((self.number, self._frames), 0, b"", b"", Winner(self._frames, self.rows))
            self._send([entry_of(last)])
            self._receipt = Receipt(self.number, self._frames, self.rows)
        return self._receipt

    def _frame(self, table: pa.Table) -> bytes:
        if self._frames == FRAMES_MAX:
            raise ShuffleRefused(
                f"attempt {self.number} has {FRAMES_MAX} frames: use more attempts"
            )
        frame = self.number, self._frames
        table = self._order.sorted(table)
        body = packed(table)
        if len(body) > FRAME_BYTES_MAX:
            raise ShuffleRefused(
                f"a row of {len(body)} bytes is too long: at most {FRAME_BYTES_MAX} bytes"
            )
        points = packed(points_of(self._order, table, frame))
        self._frames += 1
        return entry_of(Frame(frame, table.num_rows, points, body))

    def _send(self, entries: list[bytes]) -> None:
        """Send each entry to a member, all at the same time, until all are acknowledged."""
        cluster = self._cluster
        deadline = time.monotonic() + cluster.timeout_s
        pauses, left, why, at = Pauses(deadline), entries, "", self._frames
        full: set[str] = set()
        while left and pauses:
            if not cluster.addresses:
                cluster.look()
            addresses = sorted(cluster.addresses.values())
            under_way = []
            for entry in left:
                at += 1
                address = addresses[at % len(addresses)]
                under_way.append((entry, address, self._begin(address, entry, deadline)))
            left = []
            for entry, address, number in under_way:
                said = self._ended(address, number, deadline)
                if said is Answer.OK:
                    continue
                left.append(entry)
                why = str(said)
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

    def _begin(self, address: str, entry: bytes, deadline: float) -> int | ShuffleUnavailable:
        try:
            left = max(deadline - time.monotonic(), 0.001)
            return self._cluster.line(address).send(self._put, entry, timeout_s=left)
        except ShuffleUnavailable as error:
            self._cluster.lose(address)
            return error

    def _ended(
        self, address: str, number: int | ShuffleUnavailable, deadline: float
    ) -> Answer | ShuffleUnavailable | ShuffleFull:
        if isinstance(number, ShuffleUnavailable):
            return number
        try:
            reply, _ = self._cluster.line(address).receive(number, deadline=deadline)
        except ShuffleFull as error:
            return error
        except ShuffleUnavailable as error:
            self._cluster.lose(address)
            return error
        said = Answer(reply.answer) if isinstance(reply, c.Said) else Answer.NOT_NOW
        if said is Answer.ENDED:
            raise ShuffleEnded(f"shuffle {self._put.name!r} takes no more rows: it was ended")
        if said is Answer.DELETED:
            raise ShuffleDeleted(f"this shuffle {self._put.name!r} was deleted")
        return said


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    """Cut *table* into parts of about `FRAME_BYTES`."""
    count = max(1, -(-table.nbytes // FRAME_BYTES), -(-table.num_rows // FRAME_ROWS_MAX))
    rows = max(1, -(-table.num_rows // count))
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)


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


def random_keys(
    seed: int, part: int, first: int, count: int
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return numbers that seem to be drawn, for rows *first* and on of *part*: always the same."""
    begin = np.uint64(((seed + 1) * 0x9E3779B97F4A7C15 + part * 0xD1342543DE82EF95) % (1 << 64))
    mixed = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + begin
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
