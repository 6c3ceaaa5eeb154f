"""The record of one job, and the next step for it.

Tasks stage a job's files. Then the job is committed or aborted, once. A committed job is applied,
and that is recorded. The staged files of an applied or aborted job are deleted. When the memory of
its name expires, so is all the rest. The node that a driver asks, and the node that sweeps, follow
this rule alike: nothing else says when something of a job is put or deleted. Each step may be
taken twice, by several nodes at the same time, and may stop in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.state.jobs.messages import JobProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.state.jobs.messages import Decision
    from ringpop_py.state.jobs.plan import JobPlan

DAY_US: Final = 86_400_000_000
DRIVER_US: Final = 15_000_000
"""The microseconds after the decision in which the driver has the job applied; then sweeps do."""
ABANDONED_US: Final = DAY_US
"""The microseconds without a staged file after which an undecided job is aborted."""
REMEMBERED_DAYS: Final = 7
"""The days that a job's name is remembered (up to a day more: whole days are counted)."""
ABORTED_DAYS: Final = 30
"""The same for an aborted job: a driver that has seen the name aborted may be about to write its
rows under a successor. Once it has, the name is remembered as long as the successor."""


class JobStep(Enum):
    """The steps of a job. All but APPLY need only the store."""

    WAIT = "do nothing for now"
    READ_ATTEMPTS = "find out when the last attempt was finished"
    ABORT = "abort it"
    APPLY = "have the owners of `JobRecord.left` apply their chunks"
    RECORD = "record that all partitions have applied it"
    CLEAR = "delete what is staged"
    FIND_SUCCESSOR = "find out whether the job that took its place is known"
    RELIST = "list it under today instead of its day, to look at it again in a week"
    FORGET = "delete everything, the decision last; the name then stands for another job"


@dataclass(slots=True)
class JobRecord:
    """See the module. Fields that are not known yet are None.

    Attributes:
        staged_ms: when the newest staged file was first sent; None if nothing is staged.
        day: the day on which the job was to be decided, if the job was found by that.
        asked: whether the driver asks to have it applied; then *staged_ms* does not matter.
        decided: the decision as stored, even if it cannot be read.
        result: the recorded result of an applied job.
        finished_ms: when the last attempt was finished.
        followed: whether the job has a successor.
        plan: the plan of a committed job.
        found: for partitions that were asked, how many chunks they have, or an error.
    """

    name: str
    staged_ms: int | None = None
    day: int | None = None
    asked: bool = False
    decided: bytes | None = None
    decision: Decision | None = None
    result: JobProgress | None = None
    finished_ms: int | None = None
    followed: bool | None = None
    plan: JobPlan | None = None
    found: dict[int, object] = field(default_factory=dict)

    def next_step(self, now_us: int) -> JobStep:
        """Return the step to take now. The caller records the outcome here, and asks again."""
        decision, is_staged = self.decision, self.staged_ms is not None
        if decision is None:
            return self._undecided(now_us) if is_staged else self._unstaged(now_us)
        if decision.committed and self.result is None and (self.asked or is_staged):
            if not self.asked and now_us - decision.decided_us <= DRIVER_US:
                return JobStep.WAIT
            return JobStep.APPLY if self.plan is None or self.left else JobStep.RECORD
        return JobStep.CLEAR if is_staged else self._unstaged(now_us)

    def _undecided(self, now_us: int) -> JobStep:
        for time_ms in (self.staged_ms, self.finished_ms):
            if time_ms is None:
                return JobStep.READ_ATTEMPTS
            if now_us - time_ms * 1_000 <= ABANDONED_US:
                return JobStep.WAIT
        return JobStep.ABORT

    def _unstaged(self, now_us: int) -> JobStep:
        if self.day is None:
            return JobStep.WAIT
        decision, day, days = self.decision, self.day, REMEMBERED_DAYS
        if decision is not None:
            day = decision.decided_us // DAY_US
            if day > self.day:
                return JobStep.RELIST  # an attempt to decide that failed; it was decided later
            if not decision.committed:
                days = ABORTED_DAYS
        if now_us // DAY_US - day <= days:
            return JobStep.WAIT
        if days == REMEMBERED_DAYS or self.followed is False:
            return JobStep.FORGET
        # If its name were free again, the rows of the successor could be written under it, too.
        return JobStep.RELIST if self.followed else JobStep.FIND_SUCCESSOR

    @property
    def left(self) -> list[int]:
        """The partitions that do not have all their chunks, as far as known."""
        assert self.plan is not None
        counts = self.plan.chunk_counts
        return [number for number in sorted(counts) if self.found.get(number) != counts[number]]

    def heard(self, found: Mapping[int, object]) -> bool:
        """Merge the answers of owners, *found*; return whether asking again now may help."""
        # Only after progress; otherwise the caller pauses.
        is_new = any(result != self.found.get(number) for number, result in found.items())
        self.found |= found
        left = [self.found.get(number) for number in self.left]
        return is_new and bool(left) and not any(isinstance(each, KeyspaceError) for each in left)

    @property
    def progress(self) -> JobProgress:
        """The progress of the job."""
        if self.result is not None:
            return self.result
        assert self.plan is not None
        counts = self.plan.chunk_counts
        errors = [each for each in self.found.values() if isinstance(each, KeyspaceError)]
        return JobProgress(
            len(counts) - len(self.left),
            len(counts),
            sum(count for count in self.found.values() if isinstance(count, int)),
            sum(counts.values()),
            self.plan.rows_count,
            why=f"{type(errors[0]).__name__}: {errors[0]}" if errors else "",
        )
