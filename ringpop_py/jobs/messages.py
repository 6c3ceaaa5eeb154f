"""What clients, daemons and the store say of jobs that write into a keyspace. Bodies are msgpack.

A job has attempts, each of which stages files and then says in its manifest which they are. The
decision on the job names the attempts that count, or says that none does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.errors import BadOperation, BodyError, KeyspaceError
from ringpop_py.keyed.sessions import JOB_PREFIX
from ringpop_py.placing.definition import NAME_CHARACTERS_MAX, NAME_QUOTED_MAX, is_name
from ringpop_py.placing.keys import PARTITIONS_MAX
from ringpop_py.values.packed import (
    a_bool,
    a_list,
    a_row,
    a_text,
    an_integer,
    decode_value,
    encode_value,
    some_bytes,
)
from ringpop_py.values.requests import error_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STAGE: Final = "/keyspace/job/stage"
FINISH: Final = "/keyspace/job/finish"
DECIDE: Final = "/keyspace/job/decide"
SETTLE: Final = "/keyspace/job/settle"
STATUS: Final = "/keyspace/job/status"
APPLY_JOB: Final = "/keyspace/job/apply"
"""At the owners of partitions; all others are served by any daemon."""

FILES_MAX: Final = 4_096
"""Of one attempt; 16 GiB."""
ATTEMPTS_MAX: Final = 10_000
"""That a commit names."""
TOKEN_CHARACTERS_MAX: Final = 64
NOTE_BYTES_MAX: Final = 4_096
REFUSED_SHOWN_MAX: Final = 20
"""Refused rows that an answer names; of a chunk, `REFUSED_KEPT_MAX` are kept in the store."""
REFUSED_KEPT_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 300


def check_names(job: str, *attempts: str) -> None:
    """Refuse what can be no name of a job, or of an attempt. Raises BadOperation."""
    for what, name in [("job", job), *(("attempt", attempt) for attempt in attempts)]:
        if not is_name(name):
            message = (
                f"the name of a {what} is 1 to {NAME_CHARACTERS_MAX} printable characters, at most"
                f" {NAME_QUOTED_MAX} when percent-encoded, not {name!r}"
            )
            raise BadOperation(message)


class JobId(NamedTuple):
    """A job of one generation of a keyspace; begins every request about it."""

    keyspace: str
    generation: int
    job: str

    @classmethod
    def of_row(cls, row: Sequence[object]) -> JobId:
        """The job that *row* begins with. Raises BodyError, as all here."""
        keyspace, generation, job = row[: len(cls._fields)]
        return cls(
            a_text(keyspace, "keyspace"),
            an_integer(generation, "generation"),
            _name(job, "job"),
        )


class StagedFile(NamedTuple):
    """A file of an attempt, as its manifest has it.

    Attributes:
        number: counts the files of the attempt.
        staged_ms: when it was sent first, in milliseconds since 1970; part of its key.
        chunk_counts: how many chunks it has, by partition.
    """

    number: int
    staged_ms: int
    rows_count: int
    size_bytes: int
    chunk_counts: dict[int, int]


@dataclass(frozen=True, slots=True)
class StageHead:
    """Where a file belongs; it travels beside the file."""

    id: JobId
    attempt: str
    number: int
    staged_ms: int

    def encode(self) -> bytes:
        """As the head of a request."""
        return encode_value("msgpack", [*self.id, self.attempt, self.number, self.staged_ms])

    @classmethod
    def decode(cls, head: bytes) -> StageHead:
        """The head in *head*."""
        row = a_row(decode_value("msgpack", head), 6, "head")
        attempt, number, staged_ms = row[3:6]
        return cls(
            JobId.of_row(row),
            _name(attempt, "attempt"),
            an_integer(number, "number", maximum=FILES_MAX - 1),
            an_integer(staged_ms, "time"),
        )


@dataclass(frozen=True, slots=True)
class AttemptManifest:
    """All that one attempt has staged.

    Attributes:
        finished_ms: when it was first said, in milliseconds since 1970.
    """

    files: tuple[StagedFile, ...]
    finished_ms: int

    @property
    def rows_count(self) -> int:
        """In all files."""
        return sum(file.rows_count for file in self.files)

    def encode(self) -> bytes:
        """As a value in the store."""
        rows = [
            [f.number, f.staged_ms, f.rows_count, f.size_bytes, list(f.chunk_counts.items())]
            for f in self.files
        ]
        return encode_value("msgpack", ["attempt", rows, self.finished_ms])

    @classmethod
    def decode(cls, value: bytes) -> AttemptManifest:
        """The manifest in *value*."""
        kind, rows, finished_ms = a_row(decode_value("msgpack", value), 3, "manifest")[:3]
        files = [_staged_file(row) for row in a_list(rows, "files")]
        if kind != "attempt" or len(files) > FILES_MAX:
            message = f"the manifest of an attempt has at most {FILES_MAX} files"
            raise BodyError(message)
        return cls(tuple(files), an_integer(finished_ms, "time"))


def _staged_file(row: object) -> StagedFile:
    number, staged_ms, rows_count, size_bytes, counts = a_row(row, 5, "file")[:5]
    chunk_counts = {}
    for pair in a_list(counts, "chunks"):
        partition, count = a_row(pair, 2, "chunks")[:2]
        partition = an_integer(partition, "partition", maximum=PARTITIONS_MAX - 1)
        chunk_counts[partition] = an_integer(count, "chunks")
    return StagedFile(
        an_integer(number, "number", maximum=FILES_MAX - 1),
        an_integer(staged_ms, "time"),
        an_integer(rows_count, "rows"),
        an_integer(size_bytes, "bytes"),
        chunk_counts,
    )


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """Have the manifest of an attempt kept: all its files are."""

    id: JobId
    attempt: str
    manifest: AttemptManifest

    def encode(self) -> bytes:
        """As a body."""
        return encode_value("msgpack", [*self.id, self.attempt, self.manifest.encode()])

    @classmethod
    def decode(cls, body: bytes) -> FinishRequest:
        """The request in *body*."""
        row = a_row(decode_value("msgpack", body), 5, "request")
        if not isinstance(row[4], bytes):
            message = "a manifest is bytes"
            raise BodyError(message)
        return cls(JobId.of_row(row), _name(row[3], "attempt"), AttemptManifest.decode(row[4]))


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a job.

    Attributes:
        attempts: those that count, in order; None if the job was aborted.
        token: of who decided. It names the job's writes, too: a later job of the same name is
            another one.
        decided_us: microseconds since 1970, by the clock of the daemon that put it.
        note: of who decided, for those who ask what came of the job; packed, empty for none.
    """

    attempts: tuple[str, ...] | None
    token: str
    decided_us: int = 0
    note: bytes = b""

    @property
    def committed(self) -> bool:
        """Or else it was aborted."""
        return self.attempts is not None

    @property
    def source(self) -> str:
        """Of the writes, see `OperationId`."""
        return f"{JOB_PREFIX}{self.token}"

    def as_row(self) -> list[Any]:
        """What `of_row` reads."""
        return [self.attempts, self.token, self.decided_us, self.note]

    @classmethod
    def of_row(cls, row: object) -> Decision:
        """The decision in *row*."""
        attempts, token, decided_us, note = a_row(row, 4, "decision")[:4]
        names = None
        if attempts is not None:
            names = tuple(_name(attempt, "attempt") for attempt in a_list(attempts, "attempts"))
            if len(names) > ATTEMPTS_MAX or len(set(names)) < len(names):
                message = f"a job has at most {ATTEMPTS_MAX} attempts, each once"
                raise BodyError(message)
        text = a_text(token, "token", length_max=TOKEN_CHARACTERS_MAX)
        if not text:
            message = "a decision has a token"
            raise BodyError(message)
        if len(some_bytes(note, "note")) > NOTE_BYTES_MAX:
            message = f"a note has at most {NOTE_BYTES_MAX} bytes"
            raise BodyError(message)
        return cls(names, text, an_integer(decided_us, "time"), note)

    def encode(self) -> bytes:
        """As a value in the store."""
        return encode_value("msgpack", ["decision", self.as_row()])

    @classmethod
    def decode(cls, value: bytes) -> Decision:
        """The decision in *value*."""
        kind, row = a_row(decode_value("msgpack", value), 2, "decision")[:2]
        if kind != "decision":
            message = "a decision begins otherwise"
            raise BodyError(message)
        return cls.of_row(row)


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """Have the job decided so, unless it was decided already."""

    id: JobId
    wanted: Decision

    def encode(self) -> bytes:
        """As a body."""
        return encode_value("msgpack", [*self.id, self.wanted.as_row()])

    @classmethod
    def decode(cls, body: bytes) -> DecideRequest:
        """The request in *body*."""
        row = a_row(decode_value("msgpack", body), 4, "request")
        return cls(JobId.of_row(row), Decision.of_row(row[3]))


class RowRefusal(NamedTuple):
    """A row that its partition refused."""

    key: str
    error: KeyspaceError

    def as_row(self) -> list[Any]:
        """What `of_row` reads."""
        text = str(self.error)[:TEXT_CHARACTERS_MAX]
        return [self.key, type(self.error).__name__, text]

    @classmethod
    def of_row(cls, row: object) -> RowRefusal:
        """The row and why it was refused."""
        key, kind, text = a_row(row, 3, "refusal")[:3]
        return cls(a_text(key, "key"), error_of(kind, text))


@dataclass(frozen=True, slots=True)
class Refusals:
    """Rows that were refused: how many, and some of them."""

    count: int = 0
    some: tuple[RowRefusal, ...] = ()

    def as_row(self) -> list[Any]:
        """What `of_row` reads."""
        return [self.count, [refusal.as_row() for refusal in self.some]]

    @classmethod
    def of_row(cls, row: object) -> Refusals:
        """The refusals in *row*."""
        count, rows = a_row(row, 2, "refusals")[:2]
        some = tuple(RowRefusal.of_row(each) for each in a_list(rows, "refusals"))
        return cls(an_integer(count, "count"), some)

    @classmethod
    def of_all(cls, several: Iterable[Refusals]) -> Refusals:
        """All of them, and the first few."""
        count, some = 0, list[RowRefusal]()
        for each in several:
            count += each.count
            some += each.some[: REFUSED_SHOWN_MAX - len(some)]
        return cls(count, tuple(some))

    def __str__(self) -> str:
        shown = "; ".join(
            f"{each.key!r}: {type(each.error).__name__}: {each.error}" for each in self.some
        )
        more = f"; and {self.count - len(self.some)} more" if self.count > len(self.some) else ""
        return f"{self.count} rows were refused: {shown}{more}"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is applied.

    Attributes:
        partitions_done: of *partitions_count* that have a share in it.
        chunks_done: of *chunks_count*, as far as known.
        applied: all of it, and that is recorded.
        why: what is in the way, if it is not done.
    """

    partitions_done: int
    partitions_count: int
    chunks_done: int
    chunks_count: int
    rows_count: int
    applied: bool = False
    why: str = ""
    refused: Refusals = Refusals()

    def as_row(self) -> list[Any]:
        """What `of_row` reads."""
        return [
            *(self.partitions_done, self.partitions_count, self.chunks_done, self.chunks_count),
            *(self.rows_count, self.applied, self.why, self.refused.as_row()),
        ]

    @classmethod
    def of_row(cls, row: object) -> JobProgress:
        """The progress in *row*."""
        found = a_row(row, 8, "progress")
        done, count, chunks, chunks_count, rows = (an_integer(n, "a number") for n in found[:5])
        applied, why, refused = found[5:8]
        return cls(
            *(done, count, chunks, chunks_count, rows),
            applied=a_bool(applied, "applied"),
            why=a_text(why, "why", length_max=1 << 16),
            refused=Refusals.of_row(refused),
        )


def id_body(job: JobId) -> bytes:
    """A request about *job* that says nothing else, as a body."""
    return encode_value("msgpack", [*job])


def id_of(body: bytes) -> JobId:
    """The job that *body* asks about."""
    return JobId.of_row(a_row(decode_value("msgpack", body), 3, "request"))


def _name(value: object, what: str) -> str:
    text = a_text(value, what)
    if not is_name(text):
        message = f"that can be no name of a job or an attempt: {what}"
        raise BodyError(message)
    return text
