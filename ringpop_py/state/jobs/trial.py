"""Would any row of a job take effect? The owners are asked before it is committed.

A commit is final. A job whose rows all have to be refused, as their operation is misspelt or does
not fit any value, is therefore not committed: once that is mended, the same rows can be written
under the same name. The first row that would take effect ends the trial. So does an owner that
does not answer in time: the job is committed then, and refused rows are found when it is applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.base.values.declared import convert, encode
from ringpop_py.base.values.requests import Moved
from ringpop_py.state.jobs.applier import itself, loaded_from
from ringpop_py.state.jobs.messages import (
    REFUSED_SHOWN_MAX,
    TRY_JOB,
    Refusals,
    RowRefusal,
    TryJobRequest,
)
from ringpop_py.state.jobs.plan import PlannedFile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ringpop_py.base.values.operations import PackedWrite
    from ringpop_py.state.jobs.applier import Partition
    from ringpop_py.state.jobs.messages import JobId, StagedFile
    from ringpop_py.state.jobs.store import JobStore
    from ringpop_py.state.shares.dispatcher import Dispatcher
    from ringpop_py.state.shares.server import PartitionServer
    from ringpop_py.state.table.keyed import KeyedState
    from ringpop_py.state.tasks import Worker

TRIAL_S: Final = 5.0
"""The most seconds of a trial."""
SLICES: Final = (1, 32)
"""How many rows of a chunk are tried at first, and then; mostly the first one takes effect."""


class Trials:
    """Tries jobs of one keyspace at this node."""

    def __init__(
        self,
        store: JobStore,
        worker: Worker,
        server: PartitionServer[Partition],
        dispatcher: Dispatcher,
    ) -> None:
        self._store = store
        self._worker = worker
        self._server = server
        self._dispatcher = dispatcher

    async def refusals(self, job: JobId, attempts: Sequence[str], until: float) -> Refusals | None:
        """Return all rows of *job* if each would be refused; None if not, or if it is not known."""
        refused: Refusals | None = None
        for attempt in attempts:
            manifest = await self._worker.run(self._store.manifest, job.job, attempt)
            for file in () if manifest is None else manifest.files:
                request = _Trying(self.serve, job, attempt, file)
                numbers = list(request.counts)
                # At first one partition alone: mostly that is enough.
                for some in [numbers] if refused else [numbers[:1], numbers[1:]]:
                    found = (await self._dispatcher.ask(request, some, until)).values()
                    theirs = [each for each in found if isinstance(each, Refusals) and each.count]
                    if len(theirs) < len(found):
                        return None
                    refused = Refusals.of_all([*([refused] if refused else ()), *theirs])
        return refused

    async def serve(self, request: TryJobRequest) -> list[Any]:
        """Return for each partition, if it is here, the rows that it refuses; none if not all."""
        counts = dict(request.parts)
        found = await self._server.each(list(counts), itself)
        here = dict(zip(counts, found, strict=True))
        try:
            return await self._tried(request, counts, here)
        except KeyspaceError as error:
            return [error] * len(counts)

    async def _tried(
        self, request: TryJobRequest, counts: dict[int, int], found: dict[int, Any]
    ) -> list[Any]:
        keys = self._store.keys.job(request.job)
        key = keys.file(request.attempt, request.number, request.staged_ms)
        file = PlannedFile(key, 0, {number: (0, count) for number, count in counts.items()})
        away = KeyspaceError, Moved
        wanted = {number: 0 for number, each in found.items() if not isinstance(each, away)}
        loaded = await self._worker.run(loaded_from, self._store, "", file, wanted)
        for number in wanted:
            # Not confirmed by the store, as reads are: the write will be.
            state, refused = found[number].state, list[RowRefusal]()
            for each in loaded[number]:
                theirs = _all_refused(state, each.write)
                if theirs is None:
                    refused = []
                    break
                refused += [*each.unfit, *theirs]
            found[number] = Refusals(len(refused), tuple(refused[:REFUSED_SHOWN_MAX]))
        return list(found.values())


def _all_refused(state: KeyedState, write: PackedWrite) -> list[RowRefusal] | None:
    """Return the rows of *write* if it is refused with each of them; None if one takes effect."""
    refused: list[RowRefusal] = []
    for some in _slices(write):
        theirs = state.refusals(some)
        if len(theirs) < len(some.keys):
            return None
        refused += [RowRefusal.of(some.keys[place], why) for place, why in theirs.items()]
    return refused


def _slices(write: PackedWrite) -> Iterator[PackedWrite]:
    # One after the other: an argument of numbers is unpacked when its turn comes.
    rows = zip(write.keys, write.arguments, strict=True)
    for size in (*SLICES, len(write.keys)):
        if some := list(islice(rows, size)):
            keys, arguments = map(list, zip(*some, strict=True))
            yield write._replace(keys=keys, arguments=arguments)


@dataclass(frozen=True, slots=True)
class _Trying:
    """See `ringpop_py.state.shares.dispatcher.MemberRequest`."""

    serve: Callable[[TryJobRequest], Awaitable[list[Any]]]
    job: JobId
    attempt: str
    file: StagedFile
    endpoint = TRY_JOB
    changes_state = False
    kind = ""

    def size(self, _number: int) -> int:
        return 1

    @property
    def counts(self) -> dict[int, int]:
        """The number of chunks of each partition."""
        return dict(self.file.chunk_counts)

    def _request(self, numbers: Sequence[int]) -> TryJobRequest:
        counts, file = self.counts, self.file
        parts = tuple((number, counts[number]) for number in numbers)
        return TryJobRequest(*self.job.head, self.attempt, file.number, file.staged_ms, parts)

    def encode(self, numbers: Sequence[int]) -> bytes:
        return encode(self._request(numbers))

    def decode(self, _number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        return convert(Refusals, result)

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        return await self.serve(self._request(numbers))
