"""Put a DataFrame into a shuffle: sorted by key or in a random order, and read without Spark.

```python
report = shuffle(df, by=["user", "time"], name="clicks", peers="10.0.0.1:3000")
```

Each task puts its rows as one attempt, and returns the receipt. The driver ends the shuffle with
the receipts that Spark returns: one for each task, whatever was tried twice or failed in between.
So until `shuffle` returns, nothing can be read, and a driver that is killed leaves no rows behind
that count.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.values.arrow import schema_in
from ringpop_py.flow.shuffle.client.client import INTERVALS, TIMEOUT_S, RandomOrder, ShuffleClient
from ringpop_py.flow.shuffle.client.puts import Receipt
from ringpop_py.spark.arrow.columns import gathered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from ringpop_py.flow.shuffle.protocol.calls import Durability

GATHERED_BYTES: Final = 16 * 1024 * 1024
"""The bytes of rows that a task gathers before it puts them, so that frames are large."""
_RECEIPT: Final = "number bigint, frames bigint, rows bigint, uid bigint"


@dataclass(frozen=True, slots=True)
class ShuffleReport:
    """The result of `shuffle`.

    Attributes:
        seconds: from the first task to the moment when the rows can be read.
    """

    name: str
    rows: int
    attempts: int
    intervals: int
    seconds: float

    def __str__(self) -> str:
        pace = f"{self.rows / self.seconds:,.0f} a second" if self.seconds else "immediately"
        return (
            f"{self.rows:,} rows of {self.attempts} tasks in {self.seconds:.1f} s ({pace}), in "
            f"{self.intervals} intervals of shuffle {self.name!r}"
        )


@dataclass(frozen=True)
class PutTask:
    """The work of a task; it is pickled into all tasks."""

    peers: tuple[str, ...]
    name: str
    schema: bytes
    timeout_s: float
    cluster_key: str | None = None
    for_commit: bool = False

    def put(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        """Put the rows of one task; return the receipt."""
        from pyspark import TaskContext  # noqa: PLC0415 - in a task only

        context = TaskContext.get()
        schema = schema_in(self.schema)
        with (
            ShuffleClient.open(
                self.peers, self.name, timeout_s=self.timeout_s, cluster_key=self.cluster_key
            ) as client,
            client.attempt(
                part=0 if context is None else context.partitionId(), for_commit=self.for_commit
            ) as attempt,
        ):
            for some in gathered(batches, sys.maxsize, GATHERED_BYTES):
                # Spark names another zone for instants, and lets columns be null or not.
                attempt.put(pa.Table.from_batches(some).cast(schema))
        return attempt.receipt

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Put the rows of one task; yield the receipt as a row."""
        receipt = self.put(batches)._asdict()
        del receipt["fingerprint"]
        yield pa.RecordBatch.from_pylist([receipt])


def shuffle(  # noqa: PLR0913 - options of one job, by name
    df: DataFrame,
    *,
    by: Sequence[str] | str | RandomOrder,
    name: str,
    peers: str | Sequence[str],
    intervals: int = INTERVALS,
    keep_keys_together: bool = False,
    durability: Durability = "replica",
    timeout_s: float = TIMEOUT_S,
    cluster_key: str | None = None,
) -> ShuffleReport:
    """Put all rows of *df* into the shuffle *name*, and end it; when this returns, it can be read.

    If it fails, run it again: the rows that were put do not count, and the shuffle stays and
    accepts the rows of the next run.

    Args:
        by: the key columns; or `random_order`, in which the place of a row follows from the number
            of its partition and its place there, and so is the same each time if these are.
        name: of a shuffle that does not exist yet, or was not ended.
        peers: daemons; it is enough that one of them answers.
        intervals: the parts in which it is read.
        keep_keys_together: whether all rows of a key are in one interval.
        durability: where second copies lie until rows can be read: ``"replica"`` or ``"store"``.
        timeout_s: how long a task waits for members that cannot take its rows.
        cluster_key: the file with the cluster's keys, which each machine has; by default as the
            environment there says.

    Raises:
        ShuffleRefused: rows of this schema cannot be sorted so.
        ShuffleConflict: a shuffle of that name has another definition.
        ShuffleEnded: it was ended before.
        ShuffleUnavailable, ShuffleFull
    """
    from ringpop_py.spark.schemas import arrow_schema  # noqa: PLC0415 - tasks do not need it

    addresses = (peers,) if isinstance(peers, str) else tuple(peers)
    if not addresses:
        raise ConfigError("peers names no daemon: give the address of one, HOST:PORT")
    schema = arrow_schema(df.schema)
    began_at = time.perf_counter()
    with ShuffleClient(addresses, name, timeout_s=timeout_s, cluster_key=cluster_key) as client:
        client.create(
            schema,
            by,
            intervals=intervals,
            keep_keys_together=keep_keys_together,
            durability=durability,
        )
        client.attempt()  # raises ShuffleEnded before any task is started
        task = PutTask(addresses, name, bytes(schema.serialize()), timeout_s, cluster_key)
        receipts = [Receipt(*row) for row in df.mapInArrow(task, _RECEIPT).collect()]
        client.end(receipts)
    rows = sum(receipt.rows for receipt in receipts)
    seconds = time.perf_counter() - began_at
    return ShuffleReport(name, rows, len(receipts), intervals, seconds)
