"""A shuffle for callers that number their frames themselves, as those of the HTTP API do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ringpop_py.base.errors import BodyError, ShuffleDamaged, ShuffleRefused, ShuffleUnavailable
from ringpop_py.base.values.arrow import table_in
from ringpop_py.flow.shuffle.client.client import (
    INTERVALS,
    ShuffleClient,
    list_shuffles,
    random_order,
)
from ringpop_py.flow.shuffle.client.puts import Attempt, Receipt
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_py.flow.shuffle.sorting.frame_builder import frames_of, last_frame_of, with_random_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ByHand(ShuffleClient):
    """See the module. Results are plain values, for JSON."""

    def all(self) -> dict[str, Any]:
        """Return a line about each shuffle, by name."""
        cluster = self._cluster
        found = list_shuffles(
            cluster.peers, timeout_s=cluster.timeout_s, cluster_key=cluster.cluster_key
        )
        return {
            each.name: {"state": each.record.state.value, "version": each.record.version}
            for each in found
        }

    def described(self) -> dict[str, Any]:
        """Return the state, the version that a reader goes by, and the intervals."""
        record = self.refresh()
        return {
            "name": self.name,
            "state": record.state.value,
            "version": record.version,
            "by": list(self.by),
            "schema": {field.name: str(field.type) for field in self.schema},
            "intervals": [interval._asdict() for interval in self.intervals],
        }

    def make(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Create the shuffle. Raises ShuffleRefused for fields that cannot be used."""
        columns, seed = given.get("schema"), given.get("seed")
        if not isinstance(columns, dict) or not columns:
            raise ShuffleRefused('schema is a map of columns and types, such as {"user": "int64"}')
        try:
            schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])
        except (ValueError, TypeError) as error:
            raise ShuffleRefused(f"schema: {error}") from None
        by = given.get("by", [])
        if not isinstance(by, list) or not all(isinstance(name, str) for name in by):
            raise ShuffleRefused(f"by is a list of columns, not {by!r}")
        if seed is not None and (not isinstance(seed, int) or seed < 0 or by):
            raise ShuffleRefused("seed is a whole number, 0 or more, in place of by")
        intervals = given.get("intervals", INTERVALS)
        if not isinstance(intervals, int) or intervals < 1:
            raise ShuffleRefused(f"intervals is a whole number, 1 or more, not {intervals!r}")
        self.create(
            schema,
            by if seed is None else random_order(seed),
            intervals=intervals,
            keep_keys_together=given.get("keep_keys_together") is True,
            durability=given.get("durability", "replica"),
        )
        return self.described()

    def begin(self) -> int:
        """Return the number of a new attempt."""
        return self.attempt().number

    def put_frame(self, frame: tuple[int, int], body: bytes) -> None:
        """Put a stream of Arrow as one frame; if it is sent again, it counts once.

        Raises:
            ShuffleRefused: if it is not such a stream, has another schema, or is too long.
        """
        attempt, number = frame
        try:
            table = table_in(body)
        except BodyError as error:
            raise ShuffleRefused(f"the body is not a stream of Arrow: {error}") from None
        sender = self._sender(attempt)
        sender.check(table)
        if not table.num_rows:
            raise ShuffleRefused("this frame has no rows: leave it out")
        seed = self._definition.seed
        if seed is not None:
            table = with_random_keys(table, seed, attempt, number << 20)
        frames = list(frames_of(self._order, table, attempt, number))
        if len(frames) > 1:
            raise ShuffleRefused("the rows are too many for one frame: send smaller ones")
        sender.send(frames)

    def finish(self, attempt: int, frames: int, rows: int) -> Receipt:
        """Say of how many frames, from 0 on, and rows an attempt consists; return the receipt."""
        self._sender(attempt).send([last_frame_of(attempt, frames, rows)])
        return Receipt(attempt, frames, rows, self.record.uid)

    def finish_all(self, receipts: Iterable[Mapping[str, int]]) -> dict[str, Any]:
        """End the shuffle with these receipts."""
        self.end([Receipt(**each) for each in receipts], wait=False)
        return self.described()

    def read(self, number: int, version: int) -> tuple[bytes | None, int]:
        """Return the file of an interval, or None if *version* is not current; and the current one.

        Raises:
            ShuffleDeleted, ShuffleDamaged
            ShuffleUnavailable: it cannot be read yet, or now.
        """
        record = self.refresh()
        if record.state is State.DAMAGED:
            raise ShuffleDamaged(f"shuffle {self.name!r}: {record.why}")
        if record.state is not State.GET:
            raise ShuffleUnavailable(f"shuffle {self.name!r} is in the state {self.state!r}")
        if number >= len(record.intervals):
            raise ShuffleRefused(f"there are {len(record.intervals)} intervals, from 0 on")
        if version != record.version:
            return None, record.version
        found = self._interval(record, number, time.monotonic() + self._cluster.timeout_s)
        if isinstance(found, str):
            raise ShuffleUnavailable(found)
        return bytes(found), record.version

    def _sender(self, attempt: int) -> Attempt:
        definition = self._definition
        return Attempt(
            self._cluster,
            c.Put(self.name, self.record.uid),
            self._order,
            attempt,
            seed=definition.seed,
            part=attempt,
        )
