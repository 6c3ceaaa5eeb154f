"""What Spark's tasks call: objects that are pickled by name, and bring nothing but their plan.

Rules for this file: it is loaded by every worker that runs such a task, so it knows no pyspark
but for what a worker has loaded anyway, and no trio.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ringpop_py.errors import ApplicationError, ProxyError, RingpopError
from ringpop_py.spark.arrays import binary_of
from ringpop_py.spark.sender import RouteCounts, Sender
from ringpop_py.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringpop_py.spark.sender import RoutePlan

REPORT: Final = "report"
"""The only column of what `Deliver` makes: a `Report`, packed."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the rows of one partition.

    Attributes:
        error: the name of the error's class, and what it is made of.
    """

    counts: RouteCounts
    error: tuple[str, list[Any]] | None

    def pack(self) -> bytes:
        """As bytes."""
        return encode_value("msgpack", [asdict(self.counts), self.error])

    @classmethod
    def unpack(cls, data: bytes) -> Report:
        """The report in *data*."""
        counts, error = decode_value("msgpack", data)
        return cls(RouteCounts(**counts), None if error is None else tuple(error))


@dataclass(frozen=True, slots=True)
class Deliver:
    """Sends the rows of a partition to their owners; one row comes of it, a `Report`.

    An error is part of it, so that Spark does not repeat what is of no use to repeat.
    """

    plan: RoutePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches* have the column `ringpop_py.spark.sender.HASH`."""
        failure: RingpopError | None = None
        with _sender(self.plan) as sender:
            try:
                for sequence, batch in enumerate(batches):
                    sender.send(sequence, batch)
                sender.finish()
            except RingpopError as error:
                failure = error
        report = Report(sender.counts, _named(failure)).pack()
        yield pa.RecordBatch.from_arrays([binary_of(report)], names=[REPORT])


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends the rows of a partition to their owners; what these answer comes of it."""

    plan: RoutePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches* have the column `ringpop_py.spark.sender.HASH`. Errors fail the task."""
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


def _named(failure: RingpopError | None) -> tuple[str, list[Any]] | None:
    match failure:
        case None:
            return None
        case ApplicationError():
            arguments: list[Any] = [failure.kind, failure.message]
        case ProxyError():
            arguments = [str(failure).partition("\n  ")[0], failure.history]
        case _:
            arguments = [str(failure)]
    return type(failure).__name__, arguments
