"""Exactly-once jobs that write into a durable keyspace, from a synchronous program. No trio.

Many tasks stage rows, each as an `Attempt`; the rows are not visible yet. Then one program, the
driver, commits the job by naming the attempts that count. The first decision is final: repeating it
changes nothing. The owners of the partitions apply a committed job, even if the driver and any of
them die meanwhile.

Threads may share a client and an attempt. Each process has its own: a copy of a `JobClient` in
another process decides for itself, and a copy of an `Attempt` is refused.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from ringpop_py.base.errors import (
    BadOperation,
    BadRequest,
    BodyError,
    CallError,
    CallTimeout,
    ConfigError,
    JobAborted,
    KeyspaceError,
    PartitionUnavailable,
    RowsRefused,
)
from ringpop_py.base.forks import FORKS
from ringpop_py.base.values.declared import convert, encode
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.base.values.requests import decode_results
from ringpop_py.client.lines.blocking import Closing
from ringpop_py.client.routes import NEAR_CALL_S
from ringpop_py.client.sync.dispatcher import ClientDispatcher
from ringpop_py.state.jobs import messages
from ringpop_py.state.jobs.messages import (
    AttemptManifest,
    DecideRequest,
    Decision,
    FinishRequest,
    JobId,
    JobProgress,
    SchemasRequest,
    StagedFile,
    StageHead,
    check_names,
)
from ringpop_py.state.rows.stagefile import index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.client.lines.blocking import Pending
    from ringpop_py.client.sync.client import Client
    from ringpop_py.state.messages import Description
    from ringpop_py.state.rows.stagefile import Index

TIMEOUT_S: Final = 60.0
APPLY_S: Final = 600.0
IN_FLIGHT_MAX: Final = 4
PAUSE_S: Final = 0.05
MANIFEST_BYTES_MAX: Final = 6 << 20  # below `WireLimits.message_bytes_max`, with its head

T = TypeVar("T")


class JobClient(Closing):
    """The job *job*, which writes into *keyspace* through the daemon of *client*.

    Lost requests are sent again, also to other daemons, until the time is over. Then a call raises
    `PartitionUnavailable`, or `OutcomeUnknown` if a request may have arrived; repeating the same
    call is safe.

    Args:
        client: the client to use; `close` leaves it open.
        job: 1 to 100 printable characters, at most 200 when percent-encoded. A name stands for
            one job for at least seven days.
        direct: False if the addresses of owners cannot be reached from here.
        timeout_s: for each call, retries included; `apply` has its own.
        in_flight_max: the most files of an attempt that are in flight at a time.
        peers: other daemons, besides those that the daemon of *client* names.
    """

    def __init__(
        self,
        client: Client,
        keyspace: str,
        job: str,
        *,
        direct: bool = True,
        timeout_s: float = TIMEOUT_S,
        in_flight_max: int = IN_FLIGHT_MAX,
        peers: Iterable[Address | str] = (),
    ) -> None:
        check_names(job)
        for name, number in [("timeout_s", timeout_s), ("in_flight_max", in_flight_max)]:
            if not number > 0:
                raise ConfigError(f"{name} is above 0, not {number!r}")
        self.keyspace = keyspace
        self.job = job
        self.timeout_s = timeout_s
        self.in_flight_max = in_flight_max
        self._client = client
        self._direct = direct
        self._peers = tuple(peers)
        self.dispatcher = ClientDispatcher(client, keyspace, direct=direct, peers=self._peers)
        self._identity = FORKS.count, secrets.token_hex(16)

    def __repr__(self) -> str:
        return f"<JobClient {self.job!r} of {self.keyspace!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        make = partial(
            JobClient,
            direct=self._direct,
            timeout_s=self.timeout_s,
            in_flight_max=self.in_flight_max,
            peers=self._peers,
        )
        return make, (self._client, self.keyspace, self.job)

    @property
    def _token(self) -> str:
        """The mark of our decision, different for other drivers, even in a copy of this process."""
        if self._identity[0] != FORKS.count:
            self._identity = FORKS.count, secrets.token_hex(16)
        return self._identity[1]

    def close(self) -> None:
        """Close the connections to daemons other than the first; the next call makes new ones."""
        self.dispatcher.close()

    # Reading.

    def describe(self) -> Description:
        """Return the keyspace, and the owners of its partitions.

        Raises:
            KeyspaceUnknown: if there is no such keyspace.
            BadOperation: if it is in memory mode, so it cannot have jobs.
        """
        description = self.dispatcher.described(self.deadline())
        self.decision()  # the daemon refuses this in memory mode
        return description

    def decision(self) -> bool | None:
        """Return True if the job was committed, False if it was aborted, None if neither.

        A batch that is repeated can be skipped if its job was committed.
        """
        decided = self._decided()
        return None if decided is None else decided.committed

    def note(self) -> Any:  # noqa: ANN401 - a plain value
        """Return the note of the decision; None if there is no decision yet."""
        decided = self._decided()
        try:
            return None if decided is None else decode_value("msgpack", decided.note)
        except BodyError as error:
            raise KeyspaceError(f"the answer cannot be read: {error}") from None

    def _decided(self) -> Decision | None:
        row = self.ask(messages.STATUS, encode(self.id()), changes_state=False)
        return None if row is None else _converted(Decision, row)

    def schemas(self, keep: str = "") -> list[str]:
        """Return what is kept with the keyspace about its rows, the oldest first.

        Args:
            keep: a text to keep after the others, unless it is empty or kept already.
        """
        body = encode(SchemasRequest(self.keyspace, self.id().generation, keep))
        found = self.ask(messages.SCHEMAS, body, changes_state=bool(keep))
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    # Writing.

    def attempt(self, attempt_id: str) -> Attempt:
        """Begin to stage rows; no other attempt, not even of another process, has *attempt_id*."""
        check_names(self.job, attempt_id)
        return Attempt(self, attempt_id)

    def commit(self, attempts: Sequence[str], note: object = None) -> bool:
        """Commit the rows of finished *attempts*, which take effect in that order.

        Return True if this call decided it. Return False if the job had been committed before,
        perhaps with other attempts: then those count, and nothing was changed.

        Args:
            note: a plain value of at most 4 KiB, kept with the decision (`note`).

        Raises:
            JobAborted: if it was aborted before.
            RowsRefused: if each row would be refused; it is not committed then.
            BadOperation: if an attempt is not finished, or is named twice.
        """
        check_names(self.job, *attempts)
        if len(set(attempts)) < len(attempts) or len(attempts) > messages.ATTEMPTS_MAX:
            raise BadOperation(f"a job has at most {messages.ATTEMPTS_MAX} attempts, each once")
        packed = b"" if note is None else encode_value("msgpack", note)
        if len(packed) > messages.NOTE_BYTES_MAX:
            raise BadOperation(f"a note has at most {messages.NOTE_BYTES_MAX} bytes")
        decided = self._decide(Decision(tuple(attempts), self._token, note=packed))
        if not decided.committed:
            raise JobAborted(f"job {self.job!r} was aborted")
        # By the token: a repetition of our own lost request is still our decision.
        return decided.token == self._token and decided.attempts == tuple(attempts)

    def abort(self) -> bool:
        """Abort the job: it never takes effect. Return False if it had been committed before."""
        return not self._decide(Decision(None, self._token)).committed

    def apply(
        self, progress: Callable[[int, int], None] | None = None, timeout_s: float = APPLY_S
    ) -> JobProgress:
        """Wait until all partitions have the rows of the committed job.

        The cluster applies them even without this call.

        Args:
            progress: called now and then with the number of finished partitions and of all.

        Raises:
            RowsRefused: if all rows were applied except some that do not fit the present values.
            JobAborted: if the job was aborted.
            BadOperation: if it was not committed.
            PartitionUnavailable: if some partitions are not finished yet; the cluster continues.
        """
        done = self.settled(progress, timeout_s)
        if done.refused.count:
            raise RowsRefused(done.refused_text(self.job))
        return done

    def settled(
        self, progress: Callable[[int, int], None] | None = None, timeout_s: float = APPLY_S
    ) -> JobProgress:
        """Wait as `apply` does, and return the result even if rows were refused."""
        deadline = time.monotonic() + timeout_s
        done: JobProgress | None = None
        while time.monotonic() < deadline:
            body = encode(self.id())
            row = self.ask(messages.SETTLE, body, changes_state=False, deadline=deadline)
            before, done = done, _converted(JobProgress, row)
            if progress is not None:
                progress(done.partitions_done, done.partitions_count)
            if done.applied:
                return done
            if before is not None and done.chunks_done <= before.chunks_done:
                time.sleep(PAUSE_S)  # there was no progress: partitions may have no owner now
        message = f"job {self.job!r} is committed, but not applied everywhere yet"
        if done is not None:
            message += f": {done.partitions_done} of {done.partitions_count} partitions; {done.why}"
        raise PartitionUnavailable(message)

    # Requests.

    def deadline(self) -> float:
        """Return the deadline of a call that begins now, by `time.monotonic`."""
        return time.monotonic() + self.timeout_s

    def id(self) -> JobId:
        """Return what identifies this job. Raises as `describe`."""
        generation = self.dispatcher.described(self.deadline()).generation
        return JobId(self.keyspace, generation, self.job)

    def ask(
        self,
        endpoint: str,
        body: bytes,
        *,
        head: bytes = b"",
        changes_state: bool = True,
        deadline: float | None = None,
    ) -> object:
        """Return the answer of any daemon; see `ClientDispatcher.ask_any`."""
        until = self.deadline() if deadline is None else deadline
        return self.dispatcher.ask_any(endpoint, head, body, until, changes_state=changes_state)

    def _decide(self, wanted: Decision) -> Decision:
        body = encode(DecideRequest(*self.id().head, wanted))
        return _converted(Decision, self.ask(messages.DECIDE, body))


class AttemptSummary(NamedTuple):
    """The size of the files that an attempt has staged."""

    attempt: str
    files_count: int
    rows_count: int
    size_bytes: int


class _OnItsWay(NamedTuple):
    staged: StagedFile
    head: bytes
    file: bytes
    pending: Pending | None


class Attempt:
    """One task's share of a job, staged file by file. It counts only once it is committed.

    An attempt need not be ended: if it is not committed, its files are deleted with the job.
    """

    def __init__(self, client: JobClient, attempt_id: str) -> None:
        self.id = attempt_id
        self._client = client
        self._job = client.id()
        self._partitions_count = client.dispatcher.described(client.deadline()).partitions_count
        self._staged: list[StagedFile] = []
        self._under_way: deque[_OnItsWay] = deque()
        self._count = 0
        self._manifest: AttemptManifest | None = None
        self._forks_count = FORKS.count
        self._lock = Lock()

    def __reduce__(self) -> NoReturn:
        raise self._doubled()

    def _doubled(self) -> BadOperation:
        # Two processes would stage files under the same name, and the first manifest would count.
        return BadOperation(
            f"attempt {self.id!r} belongs to the process that began it: begin an attempt of its"
            " own in each process"
        )

    def __repr__(self) -> str:
        return f"<Attempt {self.id!r} of {self._job.job!r}: {self._count} files>"

    def stage(self, file: bytes, *, near: int | None = None) -> None:
        """Send a stage file (`ringpop_py.state.rows.stagefile.encode_stage`); a few are in flight.

        Args:
            near: the partition whose owner gets the file; by default the first one of the file. It
                is best if all partitions of a file have one owner.

        Raises:
            StateDamaged: if it is not a stage file.
            BadOperation: if no keyspace would accept it, or the attempt has too many files.
            KeyspaceUnknown: if the keyspace was dropped meanwhile.
            StoreFull: if the store has no room for it.
        """
        if self._forks_count != FORKS.count:
            raise self._doubled()
        index = index_of(file)
        with self._lock:
            self._stage(index, file, near)

    def _stage(self, index: Index, file: bytes, near: int | None) -> None:
        assert self._manifest is None, "an attempt that was finished stages no more"
        if self._count >= messages.FILES_MAX:
            raise BadOperation(f"an attempt has at most {messages.FILES_MAX} files")
        if index.chunks[-1][0] >= self._partitions_count:
            raise BadOperation(f"the keyspace has {self._partitions_count} partitions only")
        # Bounded, because files in flight are kept in memory until they are stored.
        while len(self._under_way) >= self._client.in_flight_max:
            self._finish_one()
        # Cached, except after a member was silent: it may no longer own anything.
        self._client.dispatcher.described(self._client.deadline())
        staged_ms = time.time_ns() // 1_000_000
        # The manifest counts chunks, so that a commit is planned without reading any file.
        counts = tuple(index.chunk_counts().items())
        staged = StagedFile(self._count, staged_ms, index.rows_count, len(file), counts)
        head = encode(StageHead(*self._job.head, self.id, staged.number, staged_ms))
        self._count += 1
        pending = self._client.dispatcher.begin_near(
            index.chunks[0][0] if near is None else near,
            messages.STAGE,
            head,
            file,
            min(self._client.timeout_s, NEAR_CALL_S),
        )
        self._under_way.append(_OnItsWay(staged, head, file, pending))

    def finish(self) -> AttemptSummary:
        """Wait for all files and put the manifest: the attempt can be committed now.

        If the outcome is unknown, call it again.

        Raises: as `stage`.
        """
        if self._forks_count != FORKS.count:
            raise self._doubled()
        with self._lock:
            return self._finished()

    def _finished(self) -> AttemptSummary:
        while self._under_way:
            self._finish_one()
        if self._manifest is None:  # a repeated call has to put the same one
            self._manifest = AttemptManifest(tuple(self._staged), time.time_ns() // 1_000_000)
        manifest = self._manifest
        body = encode(FinishRequest(*self._job.head, self.id, encode(manifest)))
        if len(body) > MANIFEST_BYTES_MAX:
            raise BadOperation(f"{len(self._staged)} files are too many for one attempt")
        self._client.ask(messages.FINISH, body)
        size_bytes = sum(file.size_bytes for file in self._staged)
        return AttemptSummary(self.id, len(self._staged), manifest.rows_count, size_bytes)

    def _finish_one(self) -> None:
        """Wait for the file that was sent first; send it again if that failed."""
        # Not removed yet: if this fails, a repeated `finish` sends the file again.
        staged, head, file, pending = self._under_way[0]
        if pending is None or not self._is_done(pending):
            # Any daemon will do: it is put if absent.
            self._client.ask(messages.STAGE, file, head=head)
        self._under_way.popleft()
        self._staged.append(staged)

    def _is_done(self, pending: Pending) -> bool:
        """Return whether it succeeded; False if a retry may help. Raises KeyspaceError if not."""
        try:
            (result,) = decode_results(pending.result().arg3, 1)
        except BadRequest as error:
            raise BadOperation(str(error)) from None
        except (CallError, BodyError) as error:
            if isinstance(error, CallTimeout):
                self._client.dispatcher.silent(pending.peer)
            return False
        if isinstance(result, KeyspaceError) and not result.passes:
            raise result
        return not isinstance(result, KeyspaceError)


def _converted(kind: type[T], row: object) -> T:
    try:
        return convert(kind, row)
    except BodyError as error:
        raise KeyspaceError(f"the answer cannot be read: {error}") from None
