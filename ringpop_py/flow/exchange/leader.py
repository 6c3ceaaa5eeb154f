"""The next act of a dataflow's leader, from the records and from what the workers say.

Several leaders do no harm: each record is put once, and workers accept the first barrier of an
epoch that they are told of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import Declared, Natural, Text
from ringpop_py.flow.exchange.epochs import Aligned, EpochRecord, completed, first_record, restored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.flow.exchange.epochs import Worker

SILENT_S: Final = 10.0
"""The seconds after which a silent worker is left out, though it may be a member."""


class WorkerReport(Declared, frozen=True):
    """The state that a worker reports of itself.

    Attributes:
        life: see `Worker`.
        run: the run in which it takes part; None if in none.
        epoch: the last one that it has aligned, in that run.
        aligned: its part of that epoch.
        failure: the reason why it cannot go on in its run; empty if it can.
        seen: the newest record that it knows.
        leaves: whether it is to leave as soon as it can.
    """

    life: Text
    run: Natural | None = None
    epoch: Natural = 0
    aligned: Aligned | None = None
    failure: Text = ""
    seen: Natural | None = None
    leaves: bool = False


PATIENCE_S: Final = 3.0
PATIENCE_EPOCHS: Final = 3
"""Workers without a majority of the record's wait `PATIENCE_S`, or so many epochs if these last
longer, for a newer record of the others, which may be cut off and go on."""
DOUBLINGS_MAX: Final = 8
"""The most doublings of that wait, one each time that others have begun without them. Otherwise two
sides of a cut would take turns, neither with the time to read its state and end an epoch."""


@dataclass(frozen=True, slots=True)
class Put:
    """Put this record, if no record has its number."""

    record: EpochRecord


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell all workers the record, and to send the barrier of *epoch*, or none if it is None.

    Attributes:
        last: whether nothing may follow the barrier until *epoch* has a record.
    """

    epoch: int | None = None
    last: bool = False


class Leader:
    """The leader of one dataflow, which may begin at any time, and forget everything.

    Args:
        every_s: about how many seconds an epoch lasts.
    """

    def __init__(self, *, every_s: float, key_groups: int) -> None:
        self._every_s = every_s
        self._key_groups = key_groups
        self._epoch: int | None = None
        self._begun: Tell | None = None
        self._since = 0.0
        self._alone_since: float | None = None
        self._lost_count = 0
        self._heard: dict[Worker, float] = {}

    def decide(
        self,
        record: EpochRecord | None,
        present: Sequence[Worker],
        said: Mapping[str, WorkerReport],
        now: float,
        *,
        at_ms: int,
    ) -> Put | Tell:
        """Return the act that is due now.

        Args:
            record: the newest one.
            present: the workers that membership knows, and that are to take part.
            said: the reports, by the name of the worker; silent workers are missing.
            now: in seconds.
        """
        wanted = self._wanted(present, said, now)
        if record is None:
            return Put(first_record(wanted, self._key_groups, at_ms)) if wanted else Tell()
        if record.epoch != self._epoch:
            self._epoch, self._begun, self._since = record.epoch, None, now
            if not set(wanted) & set(record.workers):
                self._lost_count += record.epoch == record.run
            elif record.epoch != record.run:
                self._lost_count = 0
        if not wanted:
            return Tell()
        why = self._why_again(record, wanted, said)
        if why:
            is_due = self._is_due(record, wanted, now)
            return Put(restored(record, wanted, why, at_ms)) if is_due else Tell()
        self._alone_since = None
        epoch = record.epoch + 1
        aligned = {
            worker.name: answer.aligned
            for worker in record.workers
            if (answer := said.get(worker.name)) is not None
            and (answer.run, answer.epoch) == (record.run, epoch)
            and answer.aligned is not None
        }
        if len(aligned) == len(record.workers):
            return Put(completed(record, aligned, wanted, at_ms))
        changes = wanted != list(record.workers)
        if self._begun is None and (changes or now - self._since >= self._every_s):
            self._begun = Tell(epoch, last=changes)
        return self._begun or Tell()

    @property
    def waits(self) -> bool:
        """Whether it waits for a newer record of workers that are gone or cut off."""
        return self._alone_since is not None

    def _is_due(self, record: EpochRecord, wanted: Sequence[Worker], now: float) -> bool:
        """Return whether *wanted* may begin again now, although other workers are gone."""
        left = [worker for worker in record.workers if worker in wanted]
        most, count = 2 * len(left), len(record.workers)
        if most > count or (most == count and record.workers[0] in left):
            self._alone_since = None
            return True
        if self._alone_since is None:
            self._alone_since = now
        patience_s = max(PATIENCE_S, PATIENCE_EPOCHS * self._every_s)
        patience_s *= 1 << min(self._lost_count, DOUBLINGS_MAX)
        return now - max(self._alone_since, self._since) >= patience_s

    def _wanted(
        self, present: Sequence[Worker], said: Mapping[str, WorkerReport], now: float
    ) -> list[Worker]:
        """Return the workers that are to go on, of those that answer."""
        self._heard = {worker: self._heard.get(worker, now) for worker in present}
        for worker in present:
            answer = said.get(worker.name)
            if answer is not None and answer.life == worker.life:
                self._heard[worker] = now
        return sorted(worker for worker, at in self._heard.items() if now - at < SILENT_S)

    @staticmethod
    def _why_again(
        record: EpochRecord, wanted: Sequence[Worker], said: Mapping[str, WorkerReport]
    ) -> str:
        """Return why the run cannot go on; empty if it can."""
        lives = {worker.name: worker for worker in wanted}
        for worker in record.workers:
            name = worker.name
            if name not in lives:
                # It may still be there, draining, and take part in its last epoch.
                answer = said.get(name)
                if answer is None or answer.life != worker.life:
                    return f"worker {name} is gone"
            elif lives[name] != worker:
                return f"worker {name} was started again"
            answer = said.get(name)
            if answer is not None and answer.run == record.run and answer.failure:
                return f"worker {name}: {answer.failure}"
        return ""
