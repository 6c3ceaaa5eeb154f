"""The functions that Spark's tasks call: objects that are pickled by name, with their plan alone.

Rules for this file: every worker that runs such a task loads it, so it imports neither trio nor
pyspark (except in functions, as a worker has loaded that part of pyspark before).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringpop_py.errors import ApplicationError, ProxyError, RingpopError
from ringpop_py.spark.arrays import binary_of
from ringpop_py.spark.sender import RouteCounts, Sender
from ringpop_py.values.declared import Declared, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringpop_py.spark.sender import RoutePlan

REPORT: Final = "report"
"""The only column of the result of `Deliver`: a packed `Report`."""


class Report(Declared, frozen=True):
    """What became of the rows of one partition.

    Attributes:
        error: the name of the error's class, and the arguments to make it again.
    """

    counts: RouteCounts
    error: tuple[str, tuple[Any, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """Sends the rows of a partition, with the column `HASH`, to their owners."""

    plan: RoutePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: a `Report`."""
        error = None
        with _sender(self.plan) as sender:
            try:
                for sequence, batch in enumerate(batches):
                    sender.send(sequence, batch)
                sender.finish()
            except RingpopError as failure:
                # Reported, not raised: Spark would run the task again, to no use.
                error = (type(failure).__name__, _arguments(failure))
        report = encode(Report(sender.counts, error))
        yield pa.RecordBatch.from_arrays([binary_of(report)], names=[REPORT])


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends the rows of a partition, with the column `HASH`, to their owners, for answers."""

    plan: RoutePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers. Errors fail the task."""
        with _sender(self.plan) as sender:
            for sequence, batch in enumerate(batches):
                sender.send(sequence, batch)
                yield from sender.take_answers()
            sender.finish()
            yield from sender.take_answers()


def _sender(plan: RoutePlan) -> Sender:
    from pyspark import TaskContext  # noqa: PLC0415 - a worker has it

    context = TaskContext.get()
    assert context is not None
    return Sender(plan, partition=context.partitionId(), attempt=context.attemptNumber())


def _arguments(failure: RingpopError) -> tuple[Any, ...]:
    match failure:
        case ApplicationError():
            return failure.kind, failure.message
        case ProxyError():
            return str(failure).partition("\n  ")[0], failure.history
        case _:
            return (str(failure),)
