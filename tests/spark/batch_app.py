"""The demo's application, and handlers of batches that only tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.demo.app import create as create_demo

if TYPE_CHECKING:
    import pyarrow as pa

    from ringpop_py.ringpop import Ringpop


def create(ringpop: Ringpop) -> None:
    create_demo(ringpop)

    @ringpop.batch_handler("/rows", key="key")
    def rows(batch: pa.RecordBatch) -> None:
        """Takes all, and forgets it."""
