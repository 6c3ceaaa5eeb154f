"""Messages about jobs between clients, daemons and the store. Bodies are msgpack.

A job has attempts. Each stages files, and then lists them in its manifest. The decision on the job
names the attempts that count; an aborted job has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from ringpop_py.base.errors import BadOperation
from ringpop_py.base.values.declared import Declared, Meta, Natural, Text
from ringpop_py.base.values.requests import ErrorText, KeyspaceRequest
from ringpop_py.state.placement.definition import NAME, is_name
from ringpop_py.state.placement.keys import PARTITIONS_READ_MAX
from ringpop_py.state.table.sessions import JOB_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.base.errors import KeyspaceError

STAGE: Final = "/keyspace/job/stage"
FINISH: Final = "/keyspace/job/finish"
DECIDE: Final = "/keyspace/job/decide"
SETTLE: Final = "/keyspace/job/settle"
STATUS: Final = "/keyspace/job/status"
SCHEMAS: Final = "/keyspace/job/schemas"
APPLY_JOB: Final = "/keyspace/job/apply"
TRY_JOB: Final = "/keyspace/job/try"
OWNERS_ONLY: Final = frozenset({APPLY_JOB, TRY_JOB})
"""The endpoints that only owners of partitions serve; any daemon serves the others."""

FILES_MAX: Final = 4_096
"""The most files of one attempt: 16 GiB."""
ATTEMPTS_MAX: Final = 10_000
"""The most attempts that a commit names."""
TOKEN_CHARACTERS_MAX: Final = 64
NOTE_BYTES_MAX: Final = 4_096
SCHEMA_CHARACTERS_MAX: Final = 1 << 16
REFUSED_SHOWN_MAX: Final = 20
"""The most refused rows that an answer names; the store keeps `REFUSED_KEPT_MAX` of a chunk."""
REFUSED_KEPT_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 300
"""The most characters of the text about a refused row; longer texts are cut off."""

FileNumber = Annotated[int, Meta(ge=0, lt=FILES_MAX)]
PartitionNumber = Annotated[int, Meta(ge=0, lt=PARTITIONS_READ_MAX)]


def check_names(job: str, *attempts: str) -> None:
    """Check the names of a job and of attempts. Raises BadOperation."""
    for what, name in [("job", job), *(("attempt", attempt) for attempt in attempts)]:
        if problem := NAME.problem(f"the name of a {what}", name):
            raise BadOperation(problem)


def _check_read(what: str, name: str) -> None:
    if not is_name(name):
        raise ValueError(f"the name of the {what} is malformed")


class JobId(KeyspaceRequest, frozen=True):
    """A job of one generation of a keyspace; every request about it begins with this."""

    job: Text

    def __post_init__(self) -> None:
        _check_read("job", self.job)

    @property
    def head(self) -> tuple[str, int, str]:
        """The fields with which every request about the job begins."""
        return self.keyspace, self.generation, self.job


class AttemptId(JobId, frozen=True):
    """An attempt of a job."""

    attempt: Text

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_read("attempt", self.attempt)


class StagedFile(Declared, frozen=True):
    """A file of an attempt, as listed in its manifest.

    Attributes:
        number: counts the files of the attempt.
        staged_ms: when it was first sent, in milliseconds since 1970; part of its key.
        chunk_counts: partitions, each once, and how many chunks it has of each.
    """

    number: FileNumber
    staged_ms: Natural
    rows_count: Natural
    size_bytes: Natural
    chunk_counts: tuple[tuple[PartitionNumber, Natural], ...]


class StageHead(AttemptId, frozen=True):
    """The place of a file, sent beside it."""

    number: FileNumber
    staged_ms: Natural


class AttemptManifest(Declared, frozen=True, tag="attempt"):
    """The files of one attempt, as a value in the store.

    Attributes:
        finished_ms: when the attempt was finished, in milliseconds since 1970.
    """

    files: Annotated[tuple[StagedFile, ...], Meta(max_length=FILES_MAX)]
    finished_ms: Natural

    @property
    def rows_count(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows_count for file in self.files)


class FinishRequest(AttemptId, frozen=True):
    """Put the manifest of an attempt, an encoded `AttemptManifest`: all its files are there."""

    manifest: bytes


class Decision(Declared, frozen=True):
    """The decision on a job.

    Attributes:
        attempts: those that count, in order; None if the job was aborted.
        token: identifies the driver that decided, and the job's writes: a later job of the same
            name has other ones.
        decided_us: its time in microseconds since 1970, by the clock of the daemon that put it.
        note: the driver's note, for readers of the decision; packed, empty without a note.
    """

    attempts: Annotated[tuple[Text, ...], Meta(max_length=ATTEMPTS_MAX)] | None
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARACTERS_MAX)]
    decided_us: Natural = 0
    note: Annotated[bytes, Meta(max_length=NOTE_BYTES_MAX)] = b""

    def __post_init__(self) -> None:
        attempts = self.attempts or ()
        for attempt in attempts:
            _check_read("attempt", attempt)
        if len(set(attempts)) < len(attempts):
            raise ValueError("an attempt is named twice")

    @property
    def committed(self) -> bool:
        """Whether the job was committed; otherwise it was aborted."""
        return self.attempts is not None

    @property
    def source(self) -> str:
        """The source of the job's writes, see `OperationId`."""
        return f"{JOB_PREFIX}{self.token}"


class SchemasRequest(KeyspaceRequest, frozen=True):
    """Keep *schema* with a generation of a keyspace, if there is one; return all that are kept."""

    schema: Annotated[str, Meta(max_length=SCHEMA_CHARACTERS_MAX)] = ""


class DecideRequest(JobId, frozen=True):
    """Decide the job as *wanted*, unless it was decided before."""

    wanted: Decision


class ApplyJobRequest(JobId, frozen=True):
    """Continue with *partitions*, and return their chunk counts; *token* is the decision's."""

    token: Text
    partitions: tuple[Natural, ...]

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return self.partitions


class TryJobRequest(StageHead, frozen=True):
    """Say which rows of a staged file would be refused; *parts* are partitions and their chunks."""

    parts: tuple[tuple[PartitionNumber, Natural], ...]

    @property
    def numbers(self) -> Sequence[int]:
        """See `KeyspaceRequest`."""
        return [number for number, _ in self.parts]


class RowRefusal(Declared, frozen=True):
    """A row that its partition refused, with the class and text of the error."""

    key: Text
    kind: Text
    text: ErrorText

    @classmethod
    def of(cls, key: str, error: KeyspaceError) -> RowRefusal:
        """Return the refusal of the row of *key* because of *error*."""
        return cls(key, type(error).__name__, str(error)[:TEXT_CHARACTERS_MAX])


class Refusals(Declared, frozen=True):
    """The number of rows that were refused, and some of them."""

    count: Natural = 0
    some: tuple[RowRefusal, ...] = ()

    @classmethod
    def of_all(cls, several: Iterable[Refusals]) -> Refusals:
        """Return the sum, with the first few rows."""
        count, some = 0, list[RowRefusal]()
        for each in several:
            count += each.count
            some += each.some[: REFUSED_SHOWN_MAX - len(some)]
        return cls(count, tuple(some))

    def __str__(self) -> str:
        keys: dict[str, dict[str, None]] = {}  # by reason: mostly there is one
        for each in self.some:
            keys.setdefault(f"{each.kind}: {each.text}", {})[repr(each.key)] = None
        shown = "; ".join(f"{', '.join(some)}: {why}" for why, some in keys.items())
        more = f"; and {self.count - len(self.some)} more" if self.count > len(self.some) else ""
        return f"{self.count} rows were refused: {shown}{more}"


class JobProgress(Declared, frozen=True):
    """The progress of applying a job.

    Attributes:
        partitions_done: how many of the *partitions_count* that have rows of the job are done.
        chunks_done: how many of *chunks_count* are applied, as far as known.
        applied: whether everything is applied, and that is recorded.
        why: the first error, if it is not done.
    """

    partitions_done: Natural
    partitions_count: Natural
    chunks_done: Natural
    chunks_count: Natural
    rows_count: Natural
    applied: bool = False
    why: ErrorText = ""
    refused: Refusals = Refusals()

    @property
    def in_vain(self) -> bool:
        """Whether every row was refused."""
        return 0 < self.rows_count <= self.refused.count

    def refused_text(self, job: str) -> str:
        """Return which rows of *job* were refused."""
        had = "had no effect: all of its" if self.in_vain else "was applied, but"
        return f"job {job!r} {had} {self.refused}"
