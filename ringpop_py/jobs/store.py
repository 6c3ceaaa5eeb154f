"""Jobs as the store knows them: what is staged, what was decided, and what came of it.

All of it is put if absent, so whoever does the same at once, or again, does no harm. Blocking, as
the store is; all methods raise `StoreUnavailable`.
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
    from collections.abc import Sequence

    from ringpop_py.jobs.messages import FinishRequest, StageHead
    from ringpop_py.stores.layout import JobKeys, KeyspaceKeys
    from ringpop_py.stores.store import Store

CLOCK_S_MAX: Final = 3_600.0
"""How far the clocks of tasks and daemons may be apart: what was staged long ago is given up."""
FILE_PARTS_MAX: Final = 4_000_000
"""Of a job: how many partitions its files have chunks of, summed up."""
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
        places: of its chunks by partition: the number of the first one among all of the job's for
            that partition, and how many there are.
    """

    key: str
    size_bytes: int
    places: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All that a committed job has to have applied, in order."""

    decision: Decision
    files: tuple[PlannedFile, ...]
    chunk_counts: dict[int, int]
    rows_count: int


def plan_of(keys: JobKeys, decision: Decision, manifests: Sequence[AttemptManifest]) -> JobPlan:
    """What *manifests*, of the decision's attempts, come to.

    Raises:
        BadOperation: to too much.
    """
    files = []
    totals: dict[int, int] = {}
    for attempt, manifest in zip(decision.attempts or (), manifests, strict=True):
        for staged in manifest.files:
            places = {}
            for partition, count in dict(staged.chunk_counts).items():
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
        """Keep *file*, unless it is there already.

        Raises:
            BadOperation: it is none that could be applied, or another one is there.
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
                    # Who hashes otherwise, or packs otherwise, does so with all rows.
                    if partition_of(chunk.keys[0].as_py(), self.partitions_count) != partition:
                        raise BadOperation(f"key {chunk.keys[0]} is not of partition {partition}")
                    decode_value("msgpack", chunk.values[0].as_py())
        except (StateDamaged, BodyError) as error:
            raise BadOperation(f"it cannot be staged: {error}") from None

    def finish(self, request: FinishRequest) -> None:
        """Keep the manifest of an attempt.

        Raises:
            BadOperation: another one is there, or it names partitions that there are not.
            BodyError: it is no manifest.
        """
        manifest = decode(AttemptManifest, request.manifest)
        _check_clock(manifest.finished_ms)
        partitions = (number for file in manifest.files for number, _ in file.chunk_counts)
        if max(partitions, default=0) >= self.partitions_count:
            raise BadOperation(f"the keyspace has {self.partitions_count} partitions only")
        key = self.keys.job(request.job).manifest(request.attempt)
        self._put_same(key, request.manifest, f"attempt {request.attempt!r}")

    def _put_same(self, key: str, value: bytes, what: str) -> None:
        if not self.store.put_if_absent(key, value) and self.store.get(key) != value:
            raise BadOperation(f"{what} was staged before, and was another one: its name is taken")

    def manifest(self, job: str, attempt: str) -> AttemptManifest | None:
        """What *attempt* has staged; None if it is not finished. Raises StateDamaged."""
        return self._read(AttemptManifest, self.keys.job(job).manifest(attempt))

    def _read(self, kind: type[T], key: str) -> T | None:
        """What stands under *key*, if anything. Raises StateDamaged."""
        value = self.store.get(key)
        try:
            return None if value is None else decode(kind, value)
        except BodyError as error:
            raise StateDamaged(f"{key} cannot be read: {error}") from None

    # Deciding.

    def decision(self, job: str) -> Decision | None:
        """What became of *job*, if that is decided. Raises StateDamaged."""
        found = self._read(_Decided, self.keys.job(job).decision)
        return None if found is None else found.decision

    def decide(self, job: str, wanted: Decision) -> Decision:
        """What is decided on *job*: what is *wanted*, unless it was something else before."""
        assert wanted.attempts is None or len(wanted.attempts) <= ATTEMPTS_MAX
        keys = self.keys.job(job)
        # By this it is found when it is old. First, so that none is missed.
        self.store.put_if_absent(keys.of_day(wanted.decided_us // DAY_US), b"")
        if self.store.put_if_absent(keys.decision, encode(_Decided(wanted))):
            return wanted
        found = self.decision(job)
        if found is None:
            raise StoreUnavailable(f"the decision on job {job!r} was there, and is gone")
        return found

    # What came of it.

    def put_refusals(self, job: str, partition: int, sequence: int, refusals: Refusals) -> None:
        """Keep which rows of a chunk *partition* is about to refuse, before it does."""
        kept = Refusals(refusals.count, refusals.some[:REFUSED_KEPT_MAX])
        value = encode(_Refused(kept))
        keys = self.keys.job(job)
        for version in range(REFUSALS_VERSIONS_MAX):  # who began before may have found others
            key = keys.refused_by(partition, sequence, version)
            if self.store.put_if_absent(key, value) or self.store.get(key) == value:
                return

    def refusals(self, job: str) -> Refusals:
        """All rows that were refused, or were about to be."""
        found = []
        for key in self.store.list(self.keys.job(job).refused):
            refused = self._read(_Refused, key)
            if refused is None:
                raise StateDamaged(f"{key} is gone")
            found.append(refused.refusals)
        return Refusals.of_all(found)

    def applied(self, job: str) -> JobProgress | None:
        """What came of *job*, if all partitions have it."""
        found = self._read(_Applied, self.keys.job(job).applied)
        return None if found is None else found.progress

    def put_applied(self, job: str, plan: JobPlan) -> JobProgress:
        """All partitions have what *plan* says of *job*: keep that for good."""
        partitions_count, chunks_count = len(plan.chunk_counts), sum(plan.chunk_counts.values())
        done = JobProgress(
            *(partitions_count, partitions_count, chunks_count, chunks_count, plan.rows_count),
            applied=True,
            refused=self.refusals(job),
        )
        if self.store.put_if_absent(self.keys.job(job).applied, encode(_Applied(done))):
            return done
        return self.applied(job) or done

    def mark_done(self, job: str, partitions: Sequence[int]) -> None:
        """These have all of *job*; nobody needs to ask them again."""
        keys = self.keys.job(job)
        for partition in partitions:
            self.store.put_if_absent(keys.done_by(partition), b"")

    def marked_done(self, job: str) -> set[int]:
        """Partitions that nobody needs to ask about *job*."""
        return self._marked(self.keys.job(job).done)

    def mark_begun(self, job: str, partitions: Sequence[int]) -> None:
        """These have a part of *job*, whatever their states say later on."""
        keys = self.keys.job(job)
        for partition in partitions:
            self.store.put_if_absent(keys.begun_by(partition), b"")

    def marked_begun(self, job: str) -> set[int]:
        """Partitions that must not begin with *job*."""
        return self._marked(self.keys.job(job).begun)

    def _marked(self, prefix: str) -> set[int]:
        numbers = (key.removeprefix(prefix) for key in self.store.list(prefix))
        return {int(number) for number in numbers if number.isascii() and number.isdigit()}

    # What is not wanted any more.

    def staged(self) -> dict[str, int]:
        """The jobs for which something is staged, and when the newest file was, in milliseconds."""
        prefix = self.keys.staged_jobs
        found: dict[str, int] = {}
        for key in self.store.list(prefix):
            staged = staged_in(prefix, key)
            if staged is not None:
                found[staged.job] = max(found.get(staged.job, 0), staged.staged_ms or 0)
        return found

    def finished_ms(self, job: str) -> int:
        """When the last attempt of *job* was finished; 0 if none was."""
        keys = (key for key in self.store.list(self.keys.job(job).staged))
        manifests = (self.store.get(key) for key in keys if key.endswith("/manifest"))
        times = []
        for value in manifests:
            with suppress(BodyError):
                times.append(decode(AttemptManifest, value or b"").finished_ms)
        return max(times, default=0)

    def retire(self, day: int, *, keep_aborted: bool = False) -> None:
        """Forget the jobs that were decided on *day*, but for those that are not over.

        Nor are those forgotten that were aborted, while their successors are there: their rows
        would come a second time, under the name that is free again.
        """
        prefix = self.keys.jobs_of_day(day)
        for key in self.store.list(prefix):
            part = key.removeprefix(prefix)
            keys = self.keys.job_of_part(part)
            value, decision = self.store.get(keys.decision), None
            with suppress(BodyError):
                decision = None if value is None else decode(_Decided, value).decision
            if decision is not None and decision.decided_us // DAY_US > day:
                self.store.delete([key])  # on *day* somebody only tried to; another key leads to it
                continue
            is_aborted = decision is not None and not decision.committed
            if is_aborted and (keep_aborted or self._has_successor(name_of_part(part))):
                continue
            if not self.store.list(keys.staged) and self._forget(keys, value):
                self.store.delete([key])

    def _has_successor(self, job: str) -> bool:
        for keys in map(self.keys.job, names_behind(job)):
            # In this order, or one that is decided and over in between would be missed.
            if self.store.list(keys.staged) or self.store.get(keys.decision) is not None:
                return True
        return False

    def _forget(self, keys: JobKeys, decided: bytes | None) -> bool:
        """Delete all of a job on which *decided* was the decision. False if it is not any more.

        Then somebody else was faster, and the name may be another job's by now. Who is stopped
        after having looked, for as long as that takes, deletes what is the other job's: see
        docs/guarantees.md.
        """
        # What is left of it would count for a later job of that name, so the decision goes last.
        left = [*self.store.list(keys.refused), *self.store.list(keys.done), keys.applied]
        for some in (left, [keys.decision]) if decided is not None else (left,):
            if self.store.get(keys.decision) != decided:
                return False
            self.store.delete(some)
        return True

    def delete_staged(self, job: str) -> None:
        """Delete all that is staged for *job*, which was applied or aborted."""
        keys = self.keys.job(job)
        self.store.delete([*self.store.list(keys.staged), *self.store.list(keys.done)])


def _check_clock(now_ms: int) -> None:
    if abs(now_ms / 1_000 - time.time()) > CLOCK_S_MAX:
        raise BadOperation(
            "the clock of the task is more than an hour off, by the clock of this daemon"
        )
