"""`state.jobs.record`: what is done about a job next, and what comes of that in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import PartitionUnavailable, StateDamaged
from ringpop_py.base.values.declared import replace
from ringpop_py.state.catalog.layout import name_of_part
from ringpop_py.state.jobs import record as records
from ringpop_py.state.jobs.messages import Decision, JobProgress
from ringpop_py.state.jobs.plan import JobPlan
from ringpop_py.state.jobs.record import DAY_US, DRIVER_US, JobRecord, JobStep
from ringpop_py.state.jobs.store import JobStore
from tests.state.jobs.job_world import JobWorld

if TYPE_CHECKING:
    from collections.abc import Callable

TODAY = 20_000
NOW_US = TODAY * DAY_US + DAY_US // 2
NOW_MS = NOW_US // 1_000
DAY_MS = DAY_US // 1_000
RESULT = JobProgress(0, 0, 0, 0, 0, applied=True)
SEEDS = range(40)


def committed(age_us: int = 0) -> Decision:
    return Decision(("t0",), "who committed", NOW_US - age_us)


def aborted(age_us: int = 0) -> Decision:
    return Decision(None, "who aborted", NOW_US - age_us)


def planned(record: JobRecord, **found: int | None) -> JobRecord:
    """With a plan for two partitions, of two chunks and one."""
    record.plan = JobPlan(record.decision or committed(), (), {0: 2, 1: 1}, 3)
    record.found = {int(name[1:]): count for name, count in found.items()}
    return record


@pytest.mark.parametrize(
    ("record", "step"),
    [
        (JobRecord("j"), JobStep.WAIT),
        # Not decided.
        (JobRecord("j", NOW_MS - DAY_MS), JobStep.WAIT),
        (JobRecord("j", NOW_MS - DAY_MS - 1), JobStep.READ_ATTEMPTS),
        (JobRecord("j", NOW_MS - DAY_MS - 1, finished_ms=NOW_MS - DAY_MS), JobStep.WAIT),
        (JobRecord("j", NOW_MS - DAY_MS - 1, finished_ms=0), JobStep.ABORT),
        # Decided, with files.
        (JobRecord("j", NOW_MS, decision=aborted()), JobStep.CLEAR),
        (JobRecord("j", NOW_MS, decision=committed(DRIVER_US)), JobStep.WAIT),
        (JobRecord("j", NOW_MS, decision=committed(DRIVER_US + 1)), JobStep.APPLY),
        (JobRecord("j", asked=True, decision=committed()), JobStep.APPLY),
        (planned(JobRecord("j", asked=True, decision=committed()), p0=2, p1=0), JobStep.APPLY),
        (planned(JobRecord("j", asked=True, decision=committed()), p0=2, p1=1), JobStep.RECORD),
        (JobRecord("j", NOW_MS, decision=committed(), result=RESULT), JobStep.CLEAR),
        (JobRecord("j", asked=True, decision=committed(), result=RESULT), JobStep.WAIT),
        # Found by the day of the decision.
        (JobRecord("j", day=TODAY - 7), JobStep.WAIT),
        (JobRecord("j", day=TODAY - 8), JobStep.FORGET),
        (JobRecord("j", day=TODAY - 7, decision=committed(7 * DAY_US)), JobStep.WAIT),
        (JobRecord("j", day=TODAY - 8, decision=committed(8 * DAY_US)), JobStep.FORGET),
        (JobRecord("j", day=TODAY - 8, decision=committed(7 * DAY_US)), JobStep.RELIST),
        (JobRecord("j", day=TODAY - 30, decision=aborted(30 * DAY_US)), JobStep.WAIT),
        (JobRecord("j", day=TODAY - 31, decision=aborted(31 * DAY_US)), JobStep.FIND_SUCCESSOR),
        (JobRecord("j", day=9, followed=True, decision=aborted(31 * DAY_US)), JobStep.RELIST),
        (JobRecord("j", day=TODAY, followed=True, decision=aborted(31 * DAY_US)), JobStep.RELIST),
        (JobRecord("j", day=TODAY, followed=False, decision=aborted(31 * DAY_US)), JobStep.FORGET),
    ],
)
def test_what_is_done_next(record: JobRecord, step: JobStep) -> None:
    assert record.next_step(NOW_US) is step


def test_owners_are_asked_again_while_they_get_on_and_report_no_error() -> None:
    record = planned(JobRecord("j", asked=True, decision=committed()))
    error = PartitionUnavailable("nobody serves it")

    assert record.heard({0: 1, 1: 0})
    assert record.heard({0: 1, 1: 1})
    assert record.left == [0]
    assert not record.heard({0: 1})
    assert not record.heard({0: error})
    assert (record.progress.partitions_done, record.progress.chunks_done) == (1, 1)
    assert record.progress.why == "PartitionUnavailable: nobody serves it"
    assert not record.heard({0: 2})
    assert record.next_step(NOW_US) is JobStep.RECORD


# A world in which everybody dies in the middle; see `tests.state.jobs.job_world`.


def run(seed: int) -> JobWorld:
    world = JobWorld(seed)
    world.trouble(120)
    world.calm()
    world.check()
    world.check_forgotten()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_each_job_is_applied_wholly_and_once_or_not_at_all_and_then_forgotten(seed: int) -> None:
    run(seed)


# Rules that are wrong: the world has to notice each of them.


def instead(patch: pytest.MonkeyPatch, rule: str, wrong: dict[JobStep, JobStep]) -> None:
    """Have *rule* of a record return other steps."""
    right = getattr(JobRecord, rule)

    def step(record: JobRecord, now_us: int) -> JobStep:
        found: JobStep = right(record, now_us)
        return wrong.get(found, found)

    patch.setattr(JobRecord, rule, step)


def a_partition_is_left_out(patch: pytest.MonkeyPatch) -> None:
    left = JobRecord.left.fget  # type: ignore[attr-defined]
    patch.setattr(JobRecord, "left", property(lambda record: left(record)[1:]))


def a_late_attempt_counts(patch: pytest.MonkeyPatch) -> None:
    planned = JobStore._plan_anew

    def of_all(jobs: JobStore, job: str, decision: Decision) -> JobPlan:
        keys = jobs.store.list(jobs.keys.job(job).staged)
        found = {name_of_part(key.split("/")[-2]) for key in keys if key.endswith("/manifest")}
        attempts = dict.fromkeys([*(decision.attempts or ()), *sorted(found)])
        return planned(jobs, job, replace(decision, attempts=tuple(attempts)))

    patch.setattr(JobStore, "_plan_anew", of_all)


def the_last_decision_counts(patch: pytest.MonkeyPatch) -> None:
    decide = JobStore.decide

    def overwrite(jobs: JobStore, job: str, wanted: Decision) -> Decision:
        jobs.store.delete([jobs.keys.job(job).decision])
        return decide(jobs, job, wanted)

    patch.setattr(JobStore, "decide", overwrite)


WRONG: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "files are deleted before all partitions have them": a_partition_is_left_out,
    "a late attempt counts": a_late_attempt_counts,
    "the last decision counts": the_last_decision_counts,
    "a job is forgotten too early": lambda patch: patch.setattr(records, "REMEMBERED_DAYS", 5),
    "an abort is forgotten too early": lambda patch: patch.setattr(records, "ABORTED_DAYS", 7),
    "an abort is forgotten before the job in its place": lambda patch: patch.setattr(
        JobStore, "_has_successor", lambda *_: False
    ),
    "attempts that finish late are no sign of life": lambda patch: patch.setattr(
        JobStore, "_finished_ms", lambda *_: 0
    ),
    "an abandoned job is not decided": lambda patch: instead(
        patch, "_undecided", {JobStep.ABORT: JobStep.CLEAR}
    ),
    "a failed attempt to decide is what a job is forgotten by": lambda patch: instead(
        patch, "_unstaged", {JobStep.RELIST: JobStep.FORGET}
    ),
    "an abort stays in the list of its day": lambda patch: instead(
        patch, "_unstaged", {JobStep.RELIST: JobStep.WAIT}
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_rule_that_is_wrong_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    WRONG[wrong](monkeypatch)

    with pytest.raises((AssertionError, StateDamaged)):  # noqa: PT012 - one of them does
        for seed in range(200):
            run(seed)
