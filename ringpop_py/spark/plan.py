"""What the tasks of one job share, and what one of them has in hand: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from ringpop_py.spark.arrays import array_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringpop_py.client.client import RingSnapshot
    from ringpop_py.columns.batches import BatchSource
    from ringpop_py.spark.options import OnNullKey

HISTORY_MAX: Final = 16
HASH: Final = "__hash"
"""The column that Spark adds: the position of each key on the ring."""

Through = Literal["owners", "daemon"]


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """What all tasks of one job share; it is pickled into each.

    Attributes:
        answers: what the handlers are to answer with; None: rows are only taken in.
    """

    job: str
    key: str
    endpoint: str
    peers: tuple[str, ...]
    snapshot: RingSnapshot
    through: Through
    in_flight: int
    max_retries: int
    schedule_s: tuple[float, ...]
    timeout_s: float
    binary_keys: bool = False
    on_null_key: OnNullKey = "count"
    answers: pa.Schema | None = None

    def delay_s(self, retry_index: int) -> float:
        """How long to wait before that retry; past the end the last one counts."""
        return self.schedule_s[min(retry_index, len(self.schedule_s) - 1)]


@dataclass(slots=True)
class RouteCounts:
    """What one task did."""

    null_keys: int = 0
    moved_rows: int = 0
    repeated_rows: int = 0
    retries: int = 0
    batches: int = 0
    owners: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """Rows of one Arrow batch for one owner; *rows* has the columns of the data and `POSITION`."""

    owner: str
    source: BatchSource
    rows: pa.RecordBatch
    hashes: NDArray[np.uint64]
    history: tuple[str, ...] = ()
    attempts: int = 0

    def only(self, index: NDArray[Any]) -> Message:
        """The same with the rows at *index* only."""
        places = array_of(index.astype(np.int64, copy=False), pa.int64())
        return replace(self, rows=self.rows.take(places), hashes=self.hashes[index])

    def failed(self, reason: str) -> Message:
        """To be tried again, since *reason* stood against it."""
        line = f"attempt {self.attempts + 1} to {self.owner}: {reason}"
        history = (*self.history, line)[-HISTORY_MAX:]
        return replace(self, history=history, attempts=self.attempts + 1)
