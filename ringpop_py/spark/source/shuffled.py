"""The data source ``ringpop`` with the option ``shuffle``: batches and streams into a shuffle.

```python
rows = {"shuffle": "clicks", "by": "user,time", "peers": "10.0.0.1:3000"}
df.write.format("ringpop").options(**rows).mode("append").save()
```

A batch ends the shuffle. Of a stream, each batch is committed once, by its number; the stream goes
on until somebody ends the shuffle (``ShuffleClient.end([])``, or ``ringpopctl shuffle end``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ringpop_py.base.errors import ConfigError
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.flow.shuffle.client.client import (
    INTERVALS,
    TIMEOUT_S,
    RandomOrder,
    ShuffleClient,
    random_order,
)
from ringpop_py.spark.options import LOCAL_DAEMON
from ringpop_py.spark.schemas import arrow_schema
from ringpop_py.spark.shuffles import PutTask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ringpop_py.flow.shuffle.client.puts import Receipt
    from ringpop_py.flow.shuffle.protocol.calls import Durability

OPTIONS: Final = {
    "shuffle": "the name of the shuffle; required",
    "by": "the key columns, with commas between them; this or seed",
    "seed": "a whole number: a random order instead of one by keys",
    "intervals": f"the parts in which it is read ({INTERVALS})",
    "keepKeysTogether": "true: all rows of a key are in one interval (false)",
    "durability": "store: rows are in the store of the cluster until they can be read (replica)",
    "peers": f"daemons to begin with, host:port,... ({LOCAL_DAEMON})",
    "clusterKeyFile": f"the cluster's keys, on each machine (${KEY_VARIABLE})",
    "timeout": f"seconds for which a task waits for members ({TIMEOUT_S:g})",
}
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
_SPARKS_OWN: Final = {"path", "checkpointlocation", "queryname"}
QUERY_PROPERTY: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class ShuffleOptions:
    """The options of a write, as values."""

    name: str
    by: tuple[str, ...] | RandomOrder
    intervals: int
    keep_keys_together: bool
    durability: Durability
    peers: tuple[str, ...]
    timeout_s: float
    cluster_key: str | None


def is_shuffle(given: Mapping[str, str]) -> bool:
    """Return whether these options are those of a shuffle."""
    return any(name.lower() == "shuffle" for name in given)


def shuffle_options(given: Mapping[str, str]) -> ShuffleOptions:
    """Read the options. Raises ConfigError."""
    values: dict[str, str] = {}
    for name, text in given.items():
        known = _BY_LOWER.get(name.lower())
        if known is not None:
            values[known] = text
        elif name.lower() not in _SPARKS_OWN:
            listed = "".join(f"\n  {each}: {about}" for each, about in OPTIONS.items())
            raise ConfigError(f"there is no option {name!r} of a shuffle; there are:{listed}")
    if ("by" in values) == ("seed" in values):
        raise ConfigError("give option by, the key columns, or option seed, a random order")
    by: tuple[str, ...] | RandomOrder
    if "seed" in values:
        by = random_order(_whole("seed", values["seed"]))
    else:
        by = tuple(column.strip() for column in values["by"].split(","))
    keep = values.get("keepKeysTogether", "false").lower()
    if keep not in ("true", "false"):
        raise ConfigError(f"option keepKeysTogether is true or false, not {keep!r}")
    return ShuffleOptions(
        values["shuffle"],
        by,
        _whole("intervals", values.get("intervals", str(INTERVALS))),
        keep == "true",
        cast("Durability", values.get("durability", "replica")),  # checked with the rest
        tuple(peer.strip() for peer in values.get("peers", LOCAL_DAEMON).split(",")),
        float(_whole("timeout", values.get("timeout", f"{TIMEOUT_S:.0f}"))),
        values.get("clusterKeyFile"),
    )


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"option {name} is a whole number, 0 or more, not {text!r}")
    return int(text)


@dataclass(frozen=True)
class Put(WriterCommitMessage):
    """The result of a task, for the driver."""

    receipt: Receipt
    stream: str = ""


class _Writer:
    """The common part of both writers."""

    _for_commit = False

    def __init__(self, options: ShuffleOptions, schema: StructType) -> None:
        self._options = options
        arrow = arrow_schema(schema)
        with self._client() as client:
            client.create(
                arrow,
                options.by,
                intervals=options.intervals,
                keep_keys_together=options.keep_keys_together,
                durability=options.durability,
            )
        self._task = PutTask(
            options.peers,
            options.name,
            bytes(arrow.serialize()),
            options.timeout_s,
            options.cluster_key,
            self._for_commit,
        )

    def _client(self) -> ShuffleClient:
        options = self._options
        return ShuffleClient(
            options.peers,
            options.name,
            timeout_s=options.timeout_s,
            cluster_key=options.cluster_key,
        )


class ShuffleBatchWriter(_Writer, DataSourceArrowWriter):
    """One write of a DataFrame: made on the driver, with a copy in each task."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put rows. Called in a task."""
        return Put(self._task.put(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the shuffle. Called on the driver, after all tasks have succeeded."""
        with self._client() as client:
            client.end([each.receipt for each in messages if isinstance(each, Put)])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave what was put: it does not count, and the job may be run again."""


class ShuffleStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A batch of a stream; made again for each batch and for each commit."""

    _for_commit = True

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put rows. Called in a task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_PROPERTY)
        assert query, "Spark sets the query"
        return Put(self._task.put(iterator), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit the batch, if it was not committed before."""
        puts = [each for each in messages if isinstance(each, Put)]
        if puts:
            with self._client() as client:
                receipts = [put.receipt for put in puts]
                client.commit(receipts, stream=puts[0].stream, batch=batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Leave what was put: it does not count, and Spark sends the batch again."""
