"""One worker's part in one run of a dataflow: its input, and the steps that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ringpop_py.base.errors import BadElement
from ringpop_py.base.values.operations import MARK_CLOSED
from ringpop_py.flow.exchange.elements import Barrier, Data, Watermark
from ringpop_py.flow.exchange.router import ShuffleRouter
from ringpop_py.flow.exchange.watermarks import WatermarkTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringpop_py.flow.exchange.elements import Element
    from ringpop_py.flow.exchange.epochs import EpochRecord


class BarrierAligner:
    """The channels into one stage.

    A channel that has brought the barrier is blocked: nothing more is accepted from it until the
    others have brought theirs. So nothing is kept here: blocked elements wait at their sender, and
    no record overtakes a barrier. (Unaligned barriers would keep records that are under way, and
    those belong to channels that are gone once the workers have changed.)

    Args:
        epoch: the last one that is complete.

    Attributes:
        blocked: the channels that wait for the others.
    """

    def __init__(self, channels: Iterable[str], epoch: int) -> None:
        self._channels = set(channels)
        self._epoch = epoch
        self.blocked: set[str] = set()

    def receive(self, channel: str, barrier: Barrier) -> Barrier | None:
        """Accept the barrier that *channel* has brought; return it if *channel* is the last one.

        Raises:
            BadElement: *barrier* is not the next one.
        """
        self.check(channel)
        expected = Barrier(self._epoch + 1)
        if barrier != expected:
            raise BadElement(f"channel {channel!r} brings {barrier}, and not {expected}")
        self.blocked.add(channel)
        return self._aligned()

    def check(self, channel: str) -> None:
        """Raise BadElement if no element may come from *channel* now."""
        if channel not in self._channels:
            raise BadElement(f"there is no channel {channel!r}")
        if channel in self.blocked:
            raise BadElement(f"channel {channel!r} goes on behind a barrier that waits for others")

    def lose(self, channel: str) -> Barrier | None:
        """Stop waiting for *channel*, which is gone; return the barrier if it was the last."""
        self._channels.discard(channel)
        self.blocked.discard(channel)
        return self._aligned()

    def _aligned(self) -> Barrier | None:
        if not self._channels or self.blocked != self._channels:
            return None
        self._epoch += 1
        self.blocked = set()
        return Barrier(self._epoch)


R = TypeVar("R")

TIME_MIN: Final = -(1 << 63)
"""The least time of a record."""
NAMELESS: Final = ""
"""Stands for all splits that have no name yet."""


class Send(NamedTuple):
    """Send *element* on the channel to *worker*, which may be this one, behind all before it."""

    worker: str
    element: Element[Any]


class Process(NamedTuple):
    """Have the stage process these records."""

    batch: Any


class Advance(NamedTuple):
    """Tell the stage its watermark."""

    time: int


class Keep(NamedTuple):
    """Keep the state of the stage: *barrier* has come on all channels."""

    barrier: Barrier


@dataclass(slots=True)
class _Split:
    """The position to which a split was read, and its watermark; None if it has none.

    A split that goes on under another name is at `MARK_CLOSED`.
    """

    read: int
    time: int | None


class WorkerRun(Generic[R]):
    """See the module.

    Args:
        name: the name of this worker.
        key_of: returns the key of a record.
        lateness: by how much a record may be earlier than those before it in its split.
        idle_after: the seconds without records after which no watermark waits for a split.

    Attributes:
        offsets, times: those of the splits when the last barrier was sent.
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
    ) -> None:
        self.router = ShuffleRouter(record.names, record.key_groups)
        self.groups = self.router.groups_of(name)
        self.epoch = record.epoch
        self.offsets: dict[str, int] = {}
        self.times: dict[str, int] = {}
        self.paused = False
        self._name = name
        self._known = {
            split: _Split(read, record.times.get(split)) for split, read in record.offsets.items()
        }
        self._said_idle = False
        self._key_of = key_of
        self._lateness = lateness
        self._names = record.names
        self._splits: dict[str, _Split] = {}
        self._sources = WatermarkTracker((), idle_after=idle_after, time=record.watermark)
        self._aligner = BarrierAligner(record.names, record.epoch)
        # A worker says itself that it is idle, and one that is gone ends the run: no clock decides.
        self._tracker = WatermarkTracker(record.names, idle_after=0.0, time=record.watermark)

    @property
    def watermark(self) -> int | None:
        """The watermark of this worker's stage; None before the first one."""
        return self._tracker.time

    @property
    def blocked(self) -> frozenset[str]:
        """The workers from which no element may come now."""
        return frozenset(self._aligner.blocked)

    # Sources.

    def find(self, splits: Iterable[str], now: float, *, awaits: bool = False) -> list[Send]:
        """Note the present *splits*; send the watermark if it rises because some are gone.

        Args:
            awaits: whether there are splits without a name yet. All workers wait for them: none
                knows whose they will be.
        """
        mine = {split for split in splits if self._is_mine(split)}
        mine -= self.closed(mine)
        told, raised = list[Send](), None
        if awaits:
            if self._sources.join(NAMELESS):
                told = self._wait_again()
            raised = self._sources.quiet(NAMELESS, now)
        for split in sorted(self._splits.keys() - mine):
            self._known[split] = self._splits.pop(split)
            raised = self._sources.lose(split, now) or raised
        new = sorted(mine - self._splits.keys())
        for split in new:  # all of them, before the first can let the watermark rise
            self._sources.join(split)
        for split in new:
            self._splits[split] = each = self._known.pop(split, None) or _Split(0, None)
            if each.time is not None:
                raised = self._sources.receive(split, each.time, now) or raised
        if not awaits:
            raised = self._sources.lose(NAMELESS, now) or raised
        return told + self._to_all(raised)

    def _is_mine(self, split: str) -> bool:
        # A copy continues its original, so both are of one worker: what they share decides.
        home = split.partition("@")[0] if split.startswith("file:") else split
        return self.router.worker_of(home) == self._name

    def closed(self, splits: Iterable[str]) -> set[str]:
        """Return those of *splits* that go on under another name: they are not read any more."""
        known = self._known
        return {each for each in splits if each in known and known[each].read == MARK_CLOSED}

    def take_over(self, split: str, formers: Iterable[str], now: float) -> bool:
        """Have *split* go on where the first of *formers* that was read is, and close that name.

        A closed name is not read again, also if another worker still has its file open. Call this
        before `find`. Return whether the split was read before.

        Args:
            formers: other names of the split, none of which is present.
        """
        for former in formers if split not in self._splits.keys() | self._known.keys() else ():
            if former in self._splits:
                self._known[split] = self._splits.pop(former)
                self._sources.join(split)  # first, so that the watermark does not rise
                self._sources.lose(former, now)
            elif former in self._known and not self.closed([former]):
                self._known[split] = self._known[former]
            else:
                continue
            self._known[former] = _Split(MARK_CLOSED, None)
            break
        return split in self._splits or split in self._known

    def known_like(self, alias: str) -> list[str]:
        """Return the names of splits that begin with *alias* and @, the one read furthest first."""
        known = self._known | self._splits
        names = {split for split in known if split.startswith(f"{alias}@")}
        return sorted(names - self.closed(names), key=lambda split: (-known[split].read, split))

    @property
    def splits(self) -> dict[str, int]:
        """The position to which each split of this worker was read."""
        return {split: each.read for split, each in self._splits.items()}

    def read(
        self, split: str, records: Sequence[R], upto: int, time: int | None, now: float
    ) -> list[Send]:
        """Send on the *records* that were read.

        Args:
            upto: the position to which the split was read with them.
            time: the greatest time of *records*; None if they have none.
        """
        assert not self.paused
        each = self._splits[split]
        each.read = upto
        if time is not None:
            time -= self._lateness
            each.time = time if each.time is None else max(each.time, time)
        routed = self.router.route(records, self._key_of)
        found = [Send(worker, Data(batch)) for worker, batch in routed.items()]
        self._said_idle = False
        raised = self._sources.receive(split, time, now)
        return found + self._to_all(raised)

    def quiet(self, split: str, now: float) -> None:
        """Note that *split* was read, and has no records for now."""
        self._sources.quiet(split, now)

    def unread(self, split: str) -> list[Send]:
        """Wait for *split*, which cannot be read; tell others that have taken us for idle."""
        self._sources.unsure(split)
        return self._wait_again()

    def _wait_again(self) -> list[Send]:
        if not self._said_idle:
            return []
        self._said_idle = False
        time = self._sources.time
        return self._to_all(TIME_MIN if time is None else time)

    def look(self, now: float) -> list[Send]:
        """Send the watermark if idle splits let it rise; call this once the splits are known."""
        if self.paused:
            return []
        found = self._to_all(self._sources.advance(now))
        if self._sources.is_idle(now) and not self._said_idle:
            self._said_idle = True
            found += [Send(worker, Watermark(None)) for worker in self._names]
        return found

    def _to_all(self, time: int | None) -> list[Send]:
        if time is None:
            return []
        return [Send(worker, Watermark(time)) for worker in self._names]

    def end_epoch(self, epoch: int, *, last: bool) -> list[Send]:
        """Send the barrier of *epoch*, the next one; nothing if it was sent.

        Args:
            last: nothing is to follow, as the workers change: what is read now would be read again.
        """
        if epoch != self.epoch + 1 or self.paused:
            return []
        self.epoch, self.paused = epoch, last
        # Also splits that are gone since: they may return. Those that others have read are theirs.
        mine = self._splits | {
            split: each for split, each in self._known.items() if self._is_mine(split)
        }
        self.offsets = {str(split): each.read for split, each in mine.items()}
        self.times = {
            str(split): each.time for split, each in mine.items() if each.time is not None
        }
        return [Send(worker, Barrier(epoch)) for worker in self._names]

    def resume(self) -> None:
        """Go on in this run behind its last barrier: the workers have not changed after all."""
        self.paused = False

    # The stage.

    def receive(
        self, worker: str, element: Element[Any], now: float
    ) -> list[Process | Advance | Keep]:
        """Accept the next element of the channel from *worker*.

        Raises:
            BadElement: if it may not come now; the run cannot go on.
        """
        if isinstance(element, Barrier):
            aligned = self._aligner.receive(worker, element)
            return [] if aligned is None else [Keep(aligned)]
        self._aligner.check(worker)
        if isinstance(element, Watermark):
            if element.time is None:
                raised = self._tracker.quiet(worker, now)
            else:
                raised = self._tracker.receive(worker, element.time, now)
            return [] if raised is None else [Advance(raised)]
        if not isinstance(element, Data):
            raise BadElement(f"{element!r:.100} is not an element")
        raised = self._tracker.receive(worker, None, now)
        found: list[Process | Advance | Keep] = [Process(element.batch)]
        return found if raised is None else [*found, Advance(raised)]
