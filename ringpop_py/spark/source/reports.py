"""The results of writes.

Spark passes nothing from a data source's commit to the program that called it. So the driver's
counts are stored with the decision on the job, which the cluster remembers for seven days.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ringpop_py.base.errors import BadOperation, JobAborted, PartitionUnavailable, RowsRefused
from ringpop_py.spark.options import Target
from ringpop_py.spark.snapshot import peer_list
from ringpop_py.spark.source.patience import job_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ringpop_py.base.address import Address

PROGRESS_TIMEOUT_S: Final = 1.0
TIMES: Final = ("read", "combine", "stage")
_COUNTS: Final = ("rows", "null_keys", "staged_rows", "files", "size_bytes", "retries")


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The counts of a committed job.

    Attributes:
        job: its name; a successor's name, if the requested job was aborted.
        rows: rows of the input.
        null_keys: rows of the input without a key, which were left out; 0 if they are not counted.
        staged_rows: changes that were sent; fewer than rows if tasks combined rows of one key.
        files: the files in which they were sent, of *size_bytes* together.
        retries: calls that tasks repeated.
        applied: whether all partitions have their rows; otherwise they will have them later.
        refusals: how many rows were refused, and why the first of them; empty if no row was.
        read_s, combine_s, stage_s: the seconds of all tasks together: waiting for Spark's rows,
            making changes of them, and sending these.
    """

    job: str
    rows: int
    null_keys: int
    staged_rows: int
    files: int
    size_bytes: int
    retries: int
    applied: bool
    refusals: str = ""
    read_s: float = 0.0
    combine_s: float = 0.0
    stage_s: float = 0.0

    def __str__(self) -> str:
        rows = f"{self.rows:,} rows as {self.staged_rows:,} changes"
        size = f"{self.files:,} files of {self.size_bytes:,} bytes"
        left = f"without a key {self.null_keys:,}, retries {self.retries:,}"
        state = "applied" if self.applied else "committed, and being applied"
        lines = [f"{self.job}: {state}; {rows}, {size}; {left}"]
        if self.read_s or self.combine_s or self.stage_s:
            times = f"reading {self.read_s:.1f} s, combining {self.combine_s:.1f} s"
            lines.append(f"the time of tasks: {times}, staging {self.stage_s:.1f} s")
        return "\n".join([*lines, self.refusals] if self.refusals else lines)


def write_report(
    keyspace: str,
    job: str,
    *,
    peers: str | Address | Sequence[str | Address],
    cluster_key: str | None = None,
) -> WriteReport:
    """Return what the committed *job* wrote into *keyspace*.

    Args:
        job: the option ``job`` of the write; or `stream_job` of a batch.
        cluster_key: the file with the cluster's keys, if it has some; see `Client`.

    Raises:
        BadOperation: the job does not exist, or is not committed yet.
        JobAborted: the job was aborted, and no successor of it was committed.
        KeyspaceUnknown: the keyspace does not exist.
        ConnectFailed: no peer answers.
    """
    target = Target(keyspace, peer_list(peers), cluster_key=cluster_key)
    with job_client(target, job, follow=True) as client:
        if client.decision() is None:
            if client.job != job:
                raise JobAborted(f"job {job!r} was aborted, and no successor of it was committed")
            raise BadOperation(f"job {client.job!r} of keyspace {keyspace!r} was not committed")
        note = client.note()
        counts = note if isinstance(note, dict) else {}
        refusals, applied = "", True
        try:
            client.apply(timeout_s=PROGRESS_TIMEOUT_S)
        except RowsRefused as error:
            refusals = str(error)
        except PartitionUnavailable:
            applied = False
        return WriteReport(
            job=client.job,
            **{name: counts.get(name, 0) for name in _COUNTS},
            applied=applied,
            refusals=refusals,
            **{f"{name}_s": counts.get(f"{name}_us", 0) / 1e6 for name in TIMES},
        )


def stream_job(query_id: str, batch_id: int) -> str:
    """Return the job of a stream's batch: *batch_id* is ``batchId`` of ``query.lastProgress``."""
    return f"{query_id}/{batch_id}"


READ: Final = "read_us"
COMBINE: Final = "combine_us"
STAGE: Final = "stage_us"
"""Waiting for Spark's rows; making changes of them; sending these."""

T = TypeVar("T")


class Stopwatch:
    """Counts microseconds by purpose, for one purpose at a time; first for *what*."""

    def __init__(self, what: str, now: Callable[[], float] = time.perf_counter) -> None:
        self._what = what
        self._now = now
        self._since = now()
        self._seconds: dict[str, float] = {}

    def turn(self, what: str) -> str:
        """Count for *what* from now on; return the purpose until now."""
        before, now = self._what, self._now()
        self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._what, self._since = what, now
        return before

    def timed(self, what: str, items: Iterable[T]) -> Iterator[T]:
        """Yield *items*; count the time until each of them is there for *what*."""
        before = self.turn(what)
        for item in items:
            self.turn(before)
            yield item
            before = self.turn(what)
        self.turn(before)

    def counts(self) -> Counter[str]:
        """Return the microseconds until now: many tasks may take less than a millisecond."""
        self.turn(self._what)
        return Counter({what: round(1e6 * found) for what, found in self._seconds.items()})
