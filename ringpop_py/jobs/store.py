"""Jobs in the store: what is staged, what was decided, and the results.

Everything is put if absent, so two nodes that do the same, or one that repeats it, do no harm. All
methods block, as the store does, and raise `StoreUnavailable`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ringpop_py.errors import BadOperation, BodyError, StateDamaged, StoreUnavailable
from ringpop_py.jobs.messages import (
    ATTEMPTS_MAX,
    REFUSED_KEPT_MAX,
    AttemptManifest,
    Decision,
    JobProgress,
    Refusals,
)
from ringpop_py.jobs.names import names_behind
from ringpop_py.placing.keys import partition_of
from ringpop_py.stores.layout import name_of_part, staged_in
from ringpop_py.values.declared import Declared, decode, encode
from ringpop_py.values.packed import decode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.jobs.messages import FinishRequest, StageHead
    from ringpop_py.stores.layout import JobKeys, KeyspaceKeys
    from ringpop_py.stores.store import Store

CLOCK_S_MAX: Final = 3_600.0
"""The most seconds between the clocks of tasks and daemons; a file beyond it is refused, as jobs
are aborted by the time at which they staged."""
FILE_PARTS_MAX: Final = 4_000_000
"""The most partitions that the files of a job have chunks of, summed up; a commit of more fails."""
REFUSALS_VERSIONS_MAX: Final = 10
DAY_US: Final = 86_400_000_000

T = TypeVar("T")


class _Decided(Declared, frozen=True, tag="decision"):
    decision: Decision


class _Refused(Declared, frozen=True, tag="refused"):
    refusals: Refusals


class _Applied(Declared, frozen=True, tag="applied"):
    progress: JobProgress


class PlannedFile(NamedTuple):
    """A file of a committed job.

    Attributes:
        places: for each partition, how many of its chunks are in earlier files of the job, and how
            many are in this one.
    """

    key: str
    size_bytes: int
    places: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The files of a committed job, in the order in which they are applied."""

    decision: Decision
    files: tuple[PlannedFile, ...]
    chunk_counts: dict[int, int]
    rows_count: int


def plan_of(keys: JobKeys, decision: Decision, manifests: Sequence[AttemptManifest]) -> JobPlan:
    """Return the plan of the *manifests* of the decision's attempts.

    Raises:
        BadOperation: if it is too large.
    """
    files = []
    totals: dict[int, int] = {}
    for attempt, manifest in zip(decision.attempts or (), manifests, strict=True):
        for staged in manifest.files:
            places = {}
            for partition, count in dict(staged.chunk_counts).items():
                # The numbers go on through files and attempts: each chunk has its number in the
                # series.
                places[partition] = totals.get(partition, 0), count
                totals[partition] = totals.get(partition, 0) + count
            key = keys.file(attempt, staged.number, staged.staged_ms)
            files.append(PlannedFile(key, staged.size_bytes, places))
    if sum(len(file.places) for file in files) > FILE_PARTS_MAX:
        raise BadOperation(
            f"the files of a job have chunks of {FILE_PARTS_MAX} partitions at most, summed up"
        )
    rows_count = sum(manifest.rows_count for manifest in manifests)
    return JobPlan(decision, tuple(files), totals, rows_count)


class JobStore:
    """The jobs of one generation of a keyspace."""

    def __init__(self, store: Store, keys: KeyspaceKeys, partitions_count: int) -> None:
        self.store = store
        self.keys = keys
        self.partitions_count = partitions_count

    # Staging.

    def stage(self, head: StageHead, file: bytes) -> None:
        """Put *file*, unless it is there already.

        Raises:
            BadOperation: if it could not be applied, or another file is there.
        """
        self._check_file(file)
        _check_clock(head.staged_ms)
        key = self.keys.job(head.job).file(head.attempt, head.number, head.staged_ms)
        self._put_same(key, file, f"file {head.number} of attempt {head.attempt!r}")

    def _check_file(self, file: bytes) -> None:
        from ringpop_py.jobs.stagefile import decode_stage  # noqa: PLC0415 - pyarrow takes 60 MB

        try:
            stage = decode_stage(file)
            for partition in stage.partitions:
                for chunk in stage.chunks(partition):
                    # One row is enough: a task that hashes or packs differently does so with all.
                    if partition_of(chunk.keys[0].as_py(), self.partitions_count) != partition:
                        raise BadOperation(f"key {chunk.keys[0]} is not of partition {partition}")
                    decode_value("msgpack", chunk.values[0].as_py())
        except (StateDamaged, BodyError) as error:
            raise BadOperation(f"it cannot be staged: {error}") from None

    def finish(self, request: FinishRequest) -> None:
        """Put the manifest of an attempt.

        Raises:
            BadOperation: if another one is there, or it has partitions that do not exist.
            BodyError: if it cannot be decoded.
        """
        manifest = decode(AttemptManifest, request.manifest)
        _check_clock(manifest.finished_ms)
        partitions = (number for file in manifest.files for number, _ in file.chunk_counts)
        if max(partitions, default=0) >= self.partitions_count:
            raise BadOperation(f"the keyspace has {self.partitions_count} partitions only")
        key = self.keys.job(request.job).manifest(request.attempt)
        self._put_same(key, request.manifest, f"attempt {request.attempt!r}")

    def _put_same(self, key: str, value: bytes, what: str) -> None:
        # The same value may be there already: the reply to an earlier put was lost.
        if not self.store.put_if_absent(key, value) and self.store.get(key) != value:
            raise BadOperation(f"{what} was staged before with other contents; use another name")

    def manifest(self, job: str, attempt: str) -> AttemptManifest | None:
        """Return the manifest of *attempt*; None if it is not finished. Raises StateDamaged."""
        return self._read(AttemptManifest, self.keys.job(job).manifest(attempt))

    def _read(self, kind: type[T], key: str) -> T | None:
        value = self.store.get(key)
        try:
            return None if value is None else decode(kind, value)
        except BodyError as error:
            raise StateDamaged(f"{key} cannot be read: {error}") from None

    # Deciding.

    def decision(self, job: str) -> Decision | None:
        """Return the decision on *job*; None if there is none yet. Raises StateDamaged."""
        found = self._read(_Decided, self.keys.job(job).decision)
        return None if found is None else found.decision

    def decide(self, job: str, wanted: Decision) -> Decision:
        """Decide *job* as *wanted* unless it was decided before; return the decision."""
        assert wanted.attempts is None or len(wanted.attempts) <= ATTEMPTS_MAX
        keys = self.keys.job(job)
        # Old decisions are found by this key. It is put first, so that none is missed.
        self.store.put_if_absent(keys.of_day(wanted.decided_us // DAY_US), b"")
        if self.store.put_if_absent(keys.decision, encode(_Decided(wanted))):
            return wanted
        found = self.decision(job)
        if found is None:
            raise StoreUnavailable(f"the decision on job {job!r} was in the store, and is gone")
        return found

    # Results.

    def put_refusals(self, job: str, partition: int, sequence: int, refusals: Refusals) -> None:
        """Record the rows of a chunk that *partition* is about to refuse, before it does."""
        kept = Refusals(refusals.count, refusals.some[:REFUSED_KEPT_MAX])
        value = encode(_Refused(kept))
        keys = self.keys.job(job)
        for version in range(REFUSALS_VERSIONS_MAX):  # an earlier owner may have found others
            key = keys.refused_by(partition, sequence, version)
            if self.store.put_if_absent(key, value) or self.store.get(key) == value:
                return

    def refusals(self, job: str) -> Refusals:
        """Return all rows that were refused, or were about to be."""
        found = []
        for key in self.store.list(self.keys.job(job).refused):
            refused = self._read(_Refused, key)
            if refused is None:
                raise StateDamaged(f"{key} is gone")
            found.append(refused.refusals)
        return Refusals.of_all(found)

    def applied(self, job: str) -> JobProgress | None:
        """Return the result of *job* if all partitions have applied it; None otherwise."""
        found = self._read(_Applied, self.keys.job(job).applied)
        return None if found is None else found.progress

    def put_applied(self, job: str, plan: JobPlan) -> JobProgress:
        """Record that all partitions have applied *plan*; return the result."""
        partitions_count, chunks_count = len(plan.chunk_counts), sum(plan.chunk_counts.values())
        done = JobProgress(
            *(partitions_count, partitions_count, chunks_count, chunks_count, plan.rows_count),
            applied=True,
            refused=self.refusals(job),
        )
        if self.store.put_if_absent(self.keys.job(job).applied, encode(_Applied(done))):
            return done
        return self.applied(job) or done  # another node was faster: all report what is stored

    def mark(self, key_of: Callable[[int], str], partitions: Sequence[int]) -> None:
        """Mark *partitions*, with `JobKeys.done_by` or `JobKeys.begun_by` of a job."""
        for partition in partitions:
            self.store.put_if_absent(key_of(partition), b"")

    def marked(self, prefix: str) -> set[int]:
        """Return the partitions that were marked below *prefix*: a job's ``done`` or ``begun``."""
        # The prefix of those that have begun is below that of those that are done.
        numbers = (key.removeprefix(prefix) for key in self.store.list(prefix))
        return {int(number) for number in numbers if number.isascii() and number.isdigit()}

    # Cleaning up.

    def staged(self) -> dict[str, int]:
        """Return the jobs that have staged files, and when the newest one was, in milliseconds."""
        prefix = self.keys.staged_jobs
        found: dict[str, int] = {}
        for key in self.store.list(prefix):
            staged = staged_in(prefix, key)
            if staged is not None:
                found[staged.job] = max(found.get(staged.job, 0), staged.staged_ms or 0)
        return found

    def finished_ms(self, job: str) -> int:
        """Return when the last attempt of *job* was finished, in milliseconds; 0 if none was."""
        keys = (key for key in self.store.list(self.keys.job(job).staged))
        manifests = (self.store.get(key) for key in keys if key.endswith("/manifest"))
        times = []
        for value in manifests:
            with suppress(BodyError):
                times.append(decode(AttemptManifest, value or b"").finished_ms)
        return max(times, default=0)

    def retire(self, day: int, *, keep_aborted: bool = False) -> None:
        """Forget the jobs that were decided on *day*, except those that are not over.

        An aborted job stays while it has a successor, or if *keep_aborted*: if its name were free
        again, the rows of the successor could be written a second time under it.
        """
        prefix = self.keys.jobs_of_day(day)
        for key in self.store.list(prefix):
            part = key.removeprefix(prefix)
            keys = self.keys.job_of_part(part)
            value, decision = self.store.get(keys.decision), None
            with suppress(BodyError):
                decision = None if value is None else decode(_Decided, value).decision
            if decision is not None and decision.decided_us // DAY_US > day:
                self.store.delete([key])  # an attempt to decide that failed; it was decided later
                continue
            is_aborted = decision is not None and not decision.committed
            if is_aborted and (keep_aborted or self._has_successor(name_of_part(part))):
                continue
            if not self.store.list(keys.staged) and self._forget(keys, value):
                self.store.delete([key])

    def _has_successor(self, job: str) -> bool:
        for keys in map(self.keys.job, names_behind(job)):
            # In this order: a job that ends in between has no staged files, but has a decision.
            if self.store.list(keys.staged) or self.store.get(keys.decision) is not None:
                return True
        return False

    def _forget(self, keys: JobKeys, decided: bytes | None) -> bool:
        """Delete everything of a job; return False if its decision is no longer *decided*."""
        # Another node was faster then, and the name may belong to a new job. A process that stops
        # between the look and the delete, for as long as that takes, deletes what is the new job's:
        # see docs/guarantees.md. The decision goes last, as the rest would count for a new job.
        left = [*self.store.list(keys.refused), *self.store.list(keys.done), keys.applied]
        for some in (left, [keys.decision]) if decided is not None else (left,):
            if self.store.get(keys.decision) != decided:
                return False
            self.store.delete(some)
        return True

    def delete_staged(self, job: str) -> None:
        """Delete everything that *job* has staged, after it was applied or aborted."""
        keys = self.keys.job(job)
        self.store.delete([*self.store.list(keys.staged), *self.store.list(keys.done)])


def now_us() -> int:
    """Return the microseconds since 1970: times in the store outlive this process."""
    return time.time_ns() // 1_000


def _check_clock(now_ms: int) -> None:
    if abs(now_ms / 1_000 - time.time()) > CLOCK_S_MAX:
        raise BadOperation(
            "the clocks of the task and of this daemon differ by more than an hour; set them"
        )
