"""The plan of a committed job: its files, and the chunks in them for each partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.errors import BadOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.state.catalog.layout import JobKeys
    from ringpop_py.state.jobs.messages import AttemptManifest, Decision

FILE_PARTS_MAX: Final = 4_000_000
"""The most partitions of a job's files, summed over the files; a commit of more fails."""


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
        BadOperation: the plan is too large.
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
