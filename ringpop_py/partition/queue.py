"""The queue of one partition at its owner: writes, reads, and a request to release it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.errors import KeyspaceError, OutcomeUnknown, PartitionUnavailable
from ringpop_py.values.operations import PackedWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.config.settings import StateConfig
    from ringpop_py.slotlog.slots import Slot
    from ringpop_py.values.operations import Outcome, Write

CHANGE_BYTES: Final = 64
"""The approximate size of a change besides its argument, for the size limit of a group."""


@dataclass(slots=True, eq=False)
class Job:
    """A job and the one task that waits for it, parked here without an event of its own."""

    error: KeyspaceError | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)
    _task: trio.lowlevel.Task | None = field(default=None, init=False)

    def finish(self, error: KeyspaceError | None = None) -> None:
        """Record the outcome and wake the task; only the first call counts."""
        if self._ended:
            return
        self.error = error
        self._ended = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> None:
        """Return when the job is done; raise its error if it failed."""
        if self._ended:
            await trio.lowlevel.checkpoint()  # a job without waiting still lets other tasks run
        else:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self.error is not None:
            raise self.error

    def _abandon(self, _: Any) -> trio.lowlevel.Abort:  # noqa: ANN401 - as trio has it
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


@dataclass(slots=True, eq=False)
class WriteJob(Job):
    """Writes to be committed, and the task that waits for them."""

    writes: Sequence[Write | PackedWrite]
    outcomes: list[Outcome | KeyspaceError] = field(default_factory=list, init=False)


@dataclass(slots=True, eq=False)
class ReleaseJob(Job):
    """A seal to be put for *to*, and the task that waits for it."""

    to: str
    slot: Slot | None = field(default=None, init=False)


class WorkQueue:
    """The jobs of the partition *number*.

    Attributes:
        writes_count: the number of writes in all jobs of *writes*.
        in_hand: jobs of the step under way.
    """

    def __init__(self, number: int, config: StateConfig) -> None:
        self.writes: deque[WriteJob] = deque()
        self.writes_count = 0
        self.reads: list[Job] = []
        self.release: ReleaseJob | None = None
        self.in_hand: list[Job] = []
        self._number = number
        self._config = config

    def next_group(self) -> list[WriteJob]:
        """Take the jobs for the next commit: at least one, then as many as the limits allow."""
        config = self._config
        jobs = [self.writes.popleft()]  # whatever its size: it would wait for ever otherwise
        count, size = len(jobs[0].writes), 0
        while self.writes:
            writes = self.writes[0].writes
            size += _bytes_about(writes)
            if count + len(writes) > config.group_writes_max or size > config.group_bytes_max:
                break
            count += len(writes)
            jobs.append(self.writes.popleft())
        self.writes_count -= count
        return jobs

    def stop(self) -> None:
        """Fail all jobs. For those in hand, it is open whether they take effect."""
        for job in self.in_hand:
            job.finish(OutcomeUnknown(f"partition {self._number} was stopped at its work"))
        self.end()

    def end(self) -> None:
        """Fail all queued jobs, because they will not be done."""
        jobs: list[Job] = [*self.writes, *self.reads]
        jobs += [self.release] if self.release is not None else []
        self.writes.clear()
        self.reads.clear()
        self.writes_count = 0
        self.release = None
        for job in jobs:
            job.finish(PartitionUnavailable(f"partition {self._number} has left this node"))


def _bytes_about(writes: Sequence[Write | PackedWrite]) -> int:
    size = 0  # an estimate: packing the writes only to measure them would cost more
    for write in writes:
        if isinstance(write, PackedWrite):
            arguments = write.arguments
        else:
            arguments = [change.argument for change in write.changes]
        size += CHANGE_BYTES * len(arguments)
        size += sum(len(each) for each in arguments if isinstance(each, str | bytes))
    return size
