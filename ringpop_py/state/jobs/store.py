"""Jobs in the store: their staged files, decisions, and results.

Everything is put if absent, so two nodes that do the same, or one that repeats it, do no harm. All
methods block, as the store does, and raise `StoreUnavailable`.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from ringpop_py.base.errors import (
    BadOperation,
    BodyError,
    JobAborted,
    StateDamaged,
    StoreUnavailable,
)
from ringpop_py.base.values.checksum import unwrap_message, wrap, wrap_message
from ringpop_py.base.values.declared import Declared, Meta, decode, replace
from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.catalog.layout import name_of_part, staged_in
from ringpop_py.state.jobs.messages import (
    ATTEMPTS_MAX,
    REFUSED_KEPT_MAX,
    SCHEMA_CHARACTERS_MAX,
    AttemptManifest,
    Decision,
    JobProgress,
    Refusals,
)
from ringpop_py.state.jobs.names import names_behind
from ringpop_py.state.jobs.plan import plan_of
from ringpop_py.state.jobs.record import DAY_US, JobRecord, JobStep
from ringpop_py.state.table.due import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ringpop_py.state.catalog.layout import JobKeys, KeyspaceKeys
    from ringpop_py.state.jobs.messages import FinishRequest, StageHead
    from ringpop_py.state.jobs.plan import JobPlan
    from ringpop_py.state.placement.keys import Placing
    from ringpop_py.state.stores.store import Store

CLOCK_US_MAX: Final = 3_600_000_000
"""The most microseconds between the clocks of tasks and daemons; a file beyond is refused, as jobs
are aborted by the times of their files."""
REFUSALS_VERSIONS_MAX: Final = 10
PLANS_MAX: Final = 4
"""The most plans of one keyspace that a node keeps; others are read again."""
SCHEMAS_MAX: Final = 20
"""The most schemas of one keyspace that are kept; further ones are not stored."""
READS_MAX: Final = 8
"""The most manifests that are read at a time."""

T = TypeVar("T")


class _Decided(Declared, frozen=True, tag="decision"):
    decision: Decision


class _Refused(Declared, frozen=True, tag="refused"):
    refusals: Refusals


class _Applied(Declared, frozen=True, tag="applied"):
    progress: JobProgress


class _Schema(Declared, frozen=True, tag="schema"):
    schema: Annotated[str, Meta(max_length=SCHEMA_CHARACTERS_MAX)]


def now_us() -> int:
    """Return the microseconds since 1970: times in the store outlive this process."""
    return time.time_ns() // 1_000


class JobStore:
    """The jobs of one generation of a keyspace."""

    def __init__(
        self,
        store: Store,
        keys: KeyspaceKeys,
        placing: Placing,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.store = store
        self.keys = keys
        self._placing = placing
        self._now_us = clock
        # Only a few: the plan of a large job has millions of places.
        self._planned = lru_cache(PLANS_MAX)(self._plan_anew)

    # Staging.

    def stage(self, head: StageHead, file: bytes) -> None:
        """Put *file*, unless it is there already.

        Raises:
            BadOperation: the file could not be applied, or another file is in its place.
        """
        self._check_file(file)
        self._check_clock(head.staged_ms)
        key = self.keys.job(head.job).file(head.attempt, head.number, head.staged_ms)
        self._put_same(key, file, f"file {head.number} of attempt {head.attempt!r}")

    def _check_file(self, file: bytes) -> None:
        from ringpop_py.state.rows.stagefile import decode_stage  # noqa: PLC0415 - pyarrow takes 60 MB

        try:
            stage = decode_stage(file)
            is_put = stage.index.operation == "put"  # only values have instants
            for partition in stage.partitions:
                for chunk in stage.chunks(partition):
                    # One row is enough: a task that hashes or packs differently does so with all.
                    if self._placing.partition_of(chunk.keys[0].as_py()) != partition:
                        raise BadOperation(f"key {chunk.keys[0]} is not of partition {partition}")
                    first = chunk.values[0].as_py()
                    decode_value("msgpack", plain(first) if is_put else first)
        except (StateDamaged, BodyError) as error:
            raise BadOperation(f"it cannot be staged: {error}") from None

    def finish(self, request: FinishRequest) -> None:
        """Put the manifest of an attempt.

        Raises:
            BadOperation: another manifest is there, or it has partitions that do not exist.
            BodyError: the manifest cannot be decoded.
        """
        manifest = decode(AttemptManifest, request.manifest)
        self._check_clock(manifest.finished_ms)
        partitions = (number for file in manifest.files for number, _ in file.chunk_counts)
        if max(partitions, default=0) >= self._placing.count:
            raise BadOperation(f"the keyspace has {self._placing.count} partitions only")
        key = self.keys.job(request.job).manifest(request.attempt)
        self._put_same(key, wrap(request.manifest, key), f"attempt {request.attempt!r}")

    def _check_clock(self, time_ms: int) -> None:
        if abs(time_ms * 1_000 - self._now_us()) > CLOCK_US_MAX:
            raise BadOperation(
                "the clocks of the task and of this daemon differ by more than an hour; set them"
            )

    def _put_same(self, key: str, value: bytes, what: str) -> None:
        # The same value may be there already: the reply to an earlier put was lost.
        if not self.store.put_if_absent(key, value) and self.store.get(key) != value:
            raise BadOperation(f"{what} was staged before with other contents; use another name")

    def manifest(self, job: str, attempt: str) -> AttemptManifest | None:
        """Return the manifest of *attempt*; None if it is not finished. Raises StateDamaged."""
        return self._read(AttemptManifest, self.keys.job(job).manifest(attempt))

    def _read(self, kind: type[T], key: str) -> T | None:
        return _decoded(kind, key, self.store.get(key))

    # Deciding.

    def decision(self, job: str) -> Decision | None:
        """Return the decision on *job*; None if there is none yet. Raises StateDamaged."""
        found = self._read(_Decided, self.keys.job(job).decision)
        return None if found is None else found.decision

    def commit_or_abort(self, job: str, wanted: Decision) -> Decision:
        """Decide *job* as a driver has *wanted*, unless it was decided before; return the decision.

        Raises:
            BadOperation: if an attempt is not finished, or the job is too large to be applied.
        """
        # This node's clock, not the driver's: the sweep compares it with those of nodes.
        stamped = replace(wanted, decided_us=self._now_us())
        decided = self.decision(job)
        if decided is None:
            try:
                self._planned(job, stamped)  # for those that apply it, too
            except LookupError as missing:
                # Perhaps because the job was decided and cleaned up just now.
                decided = self.decision(job)
                if decided is None:
                    message = f"attempt {missing.args[0]!r} of job {job!r} is not finished"
                    raise BadOperation(message) from None
        return decided or self.decide(job, stamped)

    def decide(self, job: str, wanted: Decision) -> Decision:
        """Decide *job* as *wanted* unless it was decided before; return the decision."""
        assert wanted.attempts is None or len(wanted.attempts) <= ATTEMPTS_MAX
        keys = self.keys.job(job)
        # Old decisions are found by this key. It is put first, so that none is missed.
        self.store.put_if_absent(keys.of_day(wanted.decided_us // DAY_US), b"")
        value = wrap_message(_Decided(wanted), keys.decision)
        if self.store.put_if_absent(keys.decision, value):
            return wanted
        found = self.decision(job)
        if found is None:
            raise StoreUnavailable(f"the decision on job {job!r} was in the store, and is gone")
        return found

    # Planning.

    def plan(self, job: str, token: str) -> JobPlan:
        """Return the plan of *job*, which was decided with *token*.

        Raises:
            BadOperation: if it was not committed.
            JobAborted: if it was aborted.
            StateDamaged: if a part of it is gone or cannot be read.
        """
        decision = self.decision(job)
        # The name may belong to another job by now; the token decides.
        if decision is None or decision.token != token:
            raise BadOperation(f"job {job!r} was not committed")
        if not decision.committed:
            raise JobAborted(f"job {job!r} was aborted")
        try:
            return self._planned(job, decision)
        except LookupError as missing:
            message = f"what attempt {missing.args[0]!r} of job {job!r} has staged is gone"
            raise StateDamaged(message) from None

    def _plan_anew(self, job: str, decision: Decision) -> JobPlan:
        """Return a new plan. Raises LookupError with the first attempt that is missing."""
        attempts, read = decision.attempts or (), partial(self.manifest, job)
        if self.store.in_memory or len(attempts) <= 1:
            manifests = [*map(read, attempts)]
        else:
            manifests = _in_threads(read, attempts)
        found = [manifest for manifest in manifests if manifest is not None]
        if len(found) < len(attempts):
            raise LookupError(attempts[manifests.index(None)])
        return plan_of(self.keys.job(job), decision, found)

    # Schemas: texts of clients, with the types that the columns of written rows had.

    def keep_schema(self, schema: str) -> None:
        """Keep *schema* after those that are kept, unless it is among them or they are too many."""
        while True:  # until no other member has taken the number
            kept = self.schemas()
            if schema in kept or len(kept) >= SCHEMAS_MAX:
                return
            key = self.keys.schema(len(kept))
            if self.store.put_if_absent(key, wrap_message(_Schema(schema), key)):
                return

    def schemas(self) -> list[str]:
        """Return all schemas that are kept, in the order of their keeping. Raises StateDamaged."""
        found = (self._read(_Schema, key) for key in sorted(self.store.list(self.keys.schemas)))
        return [each.schema for each in found if each is not None]

    # Results.

    def put_refusals(self, job: str, partition: int, sequence: int, refusals: Refusals) -> None:
        """Record the rows of a chunk that *partition* is about to refuse, before it does."""
        kept = Refusals(refusals.count, refusals.some[:REFUSED_KEPT_MAX])
        keys = self.keys.job(job)
        for version in range(REFUSALS_VERSIONS_MAX):  # an earlier owner may have found others
            key = keys.refused_by(partition, sequence, version)
            value = wrap_message(_Refused(kept), key)
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

    def put_applied(self, record: JobRecord) -> JobProgress:
        """Record that all partitions have applied a job; return the result."""
        done = replace(record.progress, applied=True, refused=self.refusals(record.name))
        key = self.keys.job(record.name).applied
        if self.store.put_if_absent(key, wrap_message(_Applied(done), key)):
            return done
        return self.applied(record.name) or done  # another node was faster: all report its result

    def mark(self, key_of: Callable[[int], str], partitions: Sequence[int]) -> None:
        """Mark *partitions*, with `JobKeys.done_by` or `JobKeys.begun_by` of a job."""
        for partition in partitions:
            self.store.put_if_absent(key_of(partition), b"")

    def marked(self, prefix: str) -> set[int]:
        """Return the partitions that were marked below *prefix*: a job's ``done`` or ``begun``."""
        # The prefix of those that have begun is below that of those that are done.
        numbers = (key.removeprefix(prefix) for key in self.store.list(prefix))
        return {int(number) for number in numbers if number.isascii() and number.isdigit()}

    # The next steps.

    def read(self, record: JobRecord) -> JobRecord:
        """Set the decision and the result of *record*; return it. Raises StateDamaged."""
        key = self.keys.job(record.name).decision
        record.decided = self.store.get(key)
        try:
            found = _decoded(_Decided, key, record.decided)
        except StateDamaged:
            if record.day is None:  # otherwise only its age matters
                raise
            found = None
        if found is not None:
            record.decision = found.decision
            if record.day is None and found.decision.committed:
                record.result = self.applied(record.name)
        return record

    def follow(self, record: JobRecord) -> list[JobStep]:
        """Take the next steps of a job; return them, and the one that is not for the store."""
        steps: list[JobStep] = []
        while True:
            steps.append(record.next_step(self._now_us()))
            if steps[-1] in {JobStep.WAIT, JobStep.APPLY}:
                return steps
            self._take(steps[-1], record)

    def _take(self, step: JobStep, record: JobRecord) -> None:
        job, keys = record.name, self.keys.job(record.name)
        match step:
            case JobStep.READ_ATTEMPTS:
                record.finished_ms = self._finished_ms(keys)
            case JobStep.ABORT:
                record.decision = self.decide(
                    job, Decision(None, secrets.token_hex(16), self._now_us())
                )
            case JobStep.RECORD:
                record.result = self.put_applied(record)
            case JobStep.CLEAR:
                self.store.delete([*self.store.list(keys.staged), *self.store.list(keys.done)])
                record.staged_ms = None
            case JobStep.FIND_SUCCESSOR:
                record.followed = self._has_successor(job)
            case _:
                assert record.day is not None
                if step is JobStep.RELIST:
                    self.store.put_if_absent(keys.of_day(self._now_us() // DAY_US), b"")
                if step is JobStep.RELIST or self._forget(keys, record.decided):
                    self.store.delete([keys.of_day(record.day)])
                record.day = None

    def staged(self) -> dict[str, int]:
        """Return the jobs that have staged files, and when the newest one was, in milliseconds."""
        prefix = self.keys.staged_jobs
        found: dict[str, int] = {}
        for key in self.store.list(prefix):
            staged = staged_in(prefix, key)
            if staged is not None:
                job, staged_ms = staged
                found[job] = max(found.get(job, 0), staged_ms)
        return found

    def retire(self, day: int, staged: Collection[str] = ()) -> None:
        """Forget the jobs of *day* whose time is over, except those that have *staged* files."""
        prefix = self.keys.jobs_of_day(day)
        for job in (name_of_part(key.removeprefix(prefix)) for key in self.store.list(prefix)):
            if job not in staged:
                self.follow(self.read(JobRecord(job, day=day)))

    def _finished_ms(self, keys: JobKeys) -> int:
        """Return when the last attempt of a job was finished; 0 if none was."""
        latest_ms = 0
        for key in self.store.list(keys.staged):
            if key.endswith("/manifest"):
                with suppress(StateDamaged):
                    manifest = self._read(AttemptManifest, key)
                    latest_ms = max(latest_ms, manifest.finished_ms if manifest else 0)
        return latest_ms

    def _has_successor(self, job: str) -> bool:
        for keys in map(self.keys.job, names_behind(job)):
            # In this order: a job that ends in between has no staged files, but has a decision.
            if self.store.list(keys.staged) or self.store.get(keys.decision) is not None:
                return True
        return False

    def _forget(self, keys: JobKeys, decided: bytes | None) -> bool:
        """Delete everything of a job; return False if its decision is no longer *decided*."""
        # Otherwise another node was faster, and the name may belong to a new job. A process that
        # stops between the look and the delete for that long deletes data of the new job: see
        # docs/guarantees.md. The decision goes last, as the rest would count for a new job.
        left = [*self.store.list(keys.refused), *self.store.list(keys.done), keys.applied]
        for some in (left, [keys.decision]) if decided is not None else (left,):
            if self.store.get(keys.decision) != decided:
                return False
            self.store.delete(some)
        return True


def _in_threads(read: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """Return the results of *read* for *names*; several calls run at the same time."""
    found: dict[int, T] = {}
    errors: list[Exception] = []
    places = iter(range(len(names)))  # each is for one thread only

    def work() -> None:
        try:
            for place in places:
                found[place] = read(names[place])
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)

    # With an executor, the process would wait at its end for a store that hangs.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(READS_MAX)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[place] for place in range(len(names))]


def _decoded(kind: type[T], key: str, value: bytes | None) -> T | None:
    return None if value is None else unwrap_message(kind, value, key, "part of a job")
