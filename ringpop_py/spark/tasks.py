"""What Spark's tasks call: objects that are pickled by name, and bring nothing but their plan.

Rules for this file: it is loaded by every worker that runs such a task, so it knows no pyspark
but for what a worker has loaded anyway, and no trio.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringpop_py.errors import ApplicationError, RingpopError
from ringpop_py.spark.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringpop_py.spark.plan import Plan

REPORT_SCHEMA: Final = (
    "null_keys long, moved_rows long, repeated_rows long, retries long, batches long,"
    " owners map<string, long>, error string, message string, history array<string>"
)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Sends the rows of a partition to their owners; one row of `REPORT_SCHEMA` comes of it.

    An error is part of that row, so that Spark does not repeat what is of no use to repeat.
    """

    plan: Plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches* have the column `ringpop_py.spark.plan.HASH`."""
        failure: RingpopError | None = None
        with _sender(self.plan) as sender:
            try:
                for sequence, batch in enumerate(batches):
                    sender.send(sequence, batch)
                sender.finish()
            except RingpopError as error:
                failure = error
        yield _report(sender, failure)


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends the rows of a partition to their owners; what these answer comes of it."""

    plan: Plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches* have the column `ringpop_py.spark.plan.HASH`. Errors fail the task."""
        with _sender(self.plan) as sender:
            for sequence, batch in enumerate(batches):
                sender.send(sequence, batch)
                yield from sender.take_answers()
            sender.finish()
            yield from sender.take_answers()


def _sender(plan: Plan) -> Sender:
    from pyspark import TaskContext  # noqa: PLC0415 - a worker has it

    context = TaskContext.get()
    assert context is not None
    return Sender(plan, partition=context.partitionId(), attempt=context.attemptNumber())


def _report(sender: Sender, failure: RingpopError | None) -> pa.RecordBatch:
    row: dict[str, Any] = asdict(sender.counts)
    row["owners"] = list(sender.counts.owners.items())
    row["error"] = row["message"] = None
    row["history"] = []
    if isinstance(failure, ApplicationError):
        row |= {"error": "ApplicationError", "message": failure.message, "history": [failure.kind]}
    elif failure is not None:
        history = list(getattr(failure, "history", ()))
        message = str(failure).partition("\n  ")[0] if history else str(failure)
        row |= {"error": type(failure).__name__, "message": message, "history": history}
    schema = pa.schema(
        [(name, pa.int64()) for name in ("null_keys", "moved_rows", "repeated_rows")]
        + [(name, pa.int64()) for name in ("retries", "batches")]
        + [("owners", pa.map_(pa.string(), pa.int64()))]
        + [(name, pa.string()) for name in ("error", "message")]
        + [("history", pa.list_(pa.string()))]
    )
    return pa.RecordBatch.from_pylist([row], schema=schema)
