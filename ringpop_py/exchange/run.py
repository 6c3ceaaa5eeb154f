"""One worker's part in one run of a dataflow: what comes in, and what goes on from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ringpop_py.errors import BadElement
from ringpop_py.exchange.aligner import BarrierAligner
from ringpop_py.exchange.elements import Barrier, Data, Watermark
from ringpop_py.exchange.router import ShuffleRouter
from ringpop_py.exchange.watermarks import WatermarkTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.exchange.elements import Element
    from ringpop_py.exchange.epochs import EpochRecord

R = TypeVar("R")


class Send(NamedTuple):
    """Send *element* on the channel to *worker*, which may be this one, behind all before it."""

    worker: str
    element: Element[Any]


class Process(NamedTuple):
    """Have the stage process these records."""

    batch: Any


class Advance(NamedTuple):
    """Tell the stage how far it is in the time of records."""

    time: int


class Keep(NamedTuple):
    """Keep the state of the stage: *barrier* has come on all channels."""

    barrier: Barrier


@dataclass(slots=True)
class _Split:
    read: int
    time: int | None = None


class WorkerRun(Generic[R]):
    """See the module.

    Args:
        name: of this worker.
        key_of: returns the key of a record.
        lateness: by how much a record may be earlier than those before it in its split.
        idle_after: for how many seconds a source or a channel may be silent until no watermark
            waits for it.

    Attributes:
        offsets: how far the splits were read when the last barrier was sent.
        paused: whether no record may follow, since the last barrier of the run was sent.
        epoch: the last one whose barriers were sent.
    """

    def __init__(
        self,
        record: EpochRecord,
        name: str,
        *,
        key_of: Callable[[R], str],
        lateness: int,
        idle_after: float,
        now: float,
    ) -> None:
        self.router = ShuffleRouter(record.names, record.key_groups)
        self.groups = self.router.groups_of(name)
        self.epoch = record.epoch
        self.offsets: dict[str, int] = {}
        self.paused = False
        self._name = name
        self._known = dict(record.offsets)
        self._said_idle = False
        self._key_of = key_of
        self._lateness = lateness
        self._splits: dict[str, _Split] = {}
        self._sources = WatermarkTracker((), now, idle_after=idle_after, time=record.watermark)
        self._aligner = BarrierAligner(record.names, record.epoch)
        self._tracker = WatermarkTracker(
            record.names, now, idle_after=idle_after, time=record.watermark
        )

    @property
    def watermark(self) -> int | None:
        """How far this worker's stage is in the time of records; None if it does not know."""
        return self._tracker.time

    @property
    def blocked(self) -> frozenset[str]:
        """The workers from which nothing may come now."""
        return frozenset(self._aligner.blocked)

    # Sources.

    def reads(self, splits: Iterable[str], now: float) -> dict[str, int]:
        """Return those of *splits* that this worker reads, and how far each was read."""
        for split in splits:
            if split not in self._splits and self.router.worker_of(split) == self._name:
                self._splits[split] = _Split(self._known.get(split, 0))
                self._sources.join(split, now)
        return {split: each.read for split, each in self._splits.items()}

    def read(
        self, split: str, records: Sequence[R], upto: int, time: int | None, now: float
    ) -> list[Send]:
        """Send on what was read.

        Args:
            upto: how far the split was read with that.
            time: the greatest of *records*; None if they have none.
        """
        assert not self.paused
        self._splits[split].read = upto
        routed = self.router.route(records, self._key_of)
        found = [Send(worker, Data(batch)) for worker, batch in routed.items()]
        self._said_idle = False
        raised = self._sources.receive(split, None if time is None else time - self._lateness, now)
        return found + self._to_all(raised)

    def look(self, now: float) -> list[Send]:
        """Send what splits that have become idle let rise; call it once the splits are known."""
        if self.paused:
            return []
        found = self._to_all(self._sources.advance(now))
        if self._sources.is_idle(now) and not self._said_idle:
            self._said_idle = True
            found += [Send(worker, Watermark(None)) for worker in self.router.workers]
        return found

    def _to_all(self, time: int | None) -> list[Send]:
        if time is None:
            return []
        return [Send(worker, Watermark(time)) for worker in self.router.workers]

    def end_epoch(self, epoch: int, *, last: bool) -> list[Send]:
        """Send the barrier of *epoch*, the next one; nothing if it was sent.

        Args:
            last: nothing is to follow, as the workers change: what is read now would be read again.
        """
        if epoch != self.epoch + 1 or self.paused:
            return []
        self.epoch, self.paused = epoch, last
        self.offsets = {split: each.read for split, each in self._splits.items()}
        return [Send(worker, Barrier(epoch)) for worker in self.router.workers]

    def resume(self) -> None:
        """Go on in this run behind its last barrier: the workers have not changed after all."""
        self.paused = False

    # The stage.

    def receive(
        self, worker: str, element: Element[Any], now: float
    ) -> list[Process | Advance | Keep]:
        """Take the next element of the channel from *worker*.

        Raises:
            BadElement: if it may not come now; the run cannot go on.
        """
        if isinstance(element, Barrier):
            aligned = self._aligner.receive(worker, element)
            return [] if aligned is None else [Keep(aligned)]
        self._aligner.check(worker)
        if isinstance(element, Watermark):
            if element.time is None:
                raised = self._tracker.idle(worker, now)
            else:
                raised = self._tracker.receive(worker, element.time, now)
            return [] if raised is None else [Advance(raised)]
        if not isinstance(element, Data):
            raise BadElement(f"{element!r:.100} is no element")
        raised = self._tracker.receive(worker, None, now)
        found: list[Process | Advance | Keep] = [Process(element.batch)]
        return found if raised is None else [*found, Advance(raised)]

    def tick(self, now: float) -> list[Process | Advance | Keep]:
        """Look for channels that have become idle."""
        raised = self._tracker.advance(now)
        return [] if raised is None else [Advance(raised)]
