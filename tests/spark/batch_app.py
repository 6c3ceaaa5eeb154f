"""The demo's application, and handlers of batches that only tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ringpop_demo.app import create as create_demo
from tests.spark.snippets import snippets

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop


def create(ringpop: Ringpop) -> None:
    create_demo(ringpop)

    @ringpop.batch_handler("/rows", key="key")
    def rows(batch: pa.RecordBatch) -> None:
        """Takes all, and forgets it."""

    @ringpop.batch_handler("/lengths", key="key", answers=True)
    def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Each key twice, with its length, an instant, and who says so."""
        keys = pc.take(batch.column("key"), pa.array([*range(batch.num_rows)] * 2))
        names = pa.array([ringpop.name] * len(keys)).dictionary_encode()
        length = pc.cast(pc.binary_length(keys), pa.int32())
        epoch = pa.array([0] * len(keys), pa.timestamp("ms", "Asia/Tokyo"))
        return pa.record_batch({"name": names, "key": keys, "length": length, "at": epoch})

    @ringpop.batch_handler("/paddings", key="key", answers=True)
    def paddings(batch: pa.RecordBatch) -> pa.RecordBatch:
        """As many bytes a row as the column ``size`` says."""
        padding = [b"x" * size for size in batch.column("size").to_pylist()]
        return pa.record_batch({"key": batch.column("key"), "padding": padding})

    # The handler that the documentation shows.
    _, handler = snippets("What owners answer")
    exec(handler, {"ringpop": ringpop, "pyarrow": pa, "fare_of": {"N1": 80.0}})  # noqa: S102
