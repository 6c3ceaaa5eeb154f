"""What the owner of a partition in memory knows of its copies, and when a write is safe.

The owner of a partition feeds its backups: the members that keep a copy of it. Copies are merged by
the versions of keys, so what comes twice, late or in another order does no harm. What must not
happen is that an incomplete copy passes for a complete one. So:

- A run is the time for which one node serves a partition, and changes are counted in it. A copy is
  complete up to a count of a run.
- A backup takes changes only after the count that it has of the same run. Otherwise it is sent
  the whole partition, and is complete with the last part of an unbroken series.
- A write is acknowledged once all backups have it that are not counted as missing. Missing is one
  that was waited for longer than `SLOW_US`. Once it takes something, later writes wait for it
  again; what was acknowledged without it is in it once it has what there was at that moment.
- A former backup keeps its copy until all that should have one do.
- A copy that the owner does not know of is handed over to it before the owner's own replaces it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ringpop_py.base.errors import OutcomeUnknown, PartitionUnavailable
from ringpop_py.state.copies.calls import CopyReply, CopyStep

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ringpop_py.state.copies.calls import CopyPart

SLOW_US: Final = 1_000_000
"""The longest that writes wait for a backup."""
BEHIND_MAX: Final = 1 << 18
"""A backup that lacks more changes than these is sent the whole partition."""
FAR_US: Final = 1 << 62

T = TypeVar("T")


class _Recent(Generic[T]):
    """Names, each with the count of its last change, the earliest first."""

    def __init__(self) -> None:
        self._counts: OrderedDict[T, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, names: Iterable[T], count: int) -> None:
        for name in names:
            self._counts[name] = count
            self._counts.move_to_end(name)

    def since(self, count: int) -> list[T]:
        found = []
        for name in reversed(self._counts):
            if self._counts[name] <= count:
                break
            found.append(name)
        return found[::-1]

    def trim(self, count: int) -> None:
        counts = self._counts
        while counts and next(iter(counts.values())) <= count:
            counts.popitem(last=False)


class Lacks(NamedTuple):
    """What of a partition a copy lacks: names, whose present content is to be sent."""

    keys: Sequence[str]
    sources: Sequence[str]
    records: Sequence[tuple[str, bytes]]
    offsets: Sequence[str]


@dataclass(slots=True)
class BackupMember:
    """What a backup has, as far as the owner knows.

    Attributes:
        wanted: whether it should keep a copy; otherwise it is a former backup.
        known: whether it had a copy of an earlier run that this owner has, too.
        acked: the count up to which it has everything; None if it needs the whole partition.
        copying: the count at which the sending of the whole partition began.
        asks: whether to ask it if it still has its copy: it may have been restarted.
        late_at: when it is counted as missing, if it lacks something until then.
        needs: the count that it needs to have all that was acknowledged.
    """

    wanted: bool
    known: bool = False
    acked: int | None = None
    copying: int | None = None
    missing: bool = False
    asks: bool = False
    late_at: int = FAR_US
    needs: int = 0

    @property
    def complete(self) -> bool:
        """Whether it has all that was acknowledged."""
        return self.acked is not None and not self.missing and self.acked >= self.needs


class CopyLog:
    """The changes of a partition in one run at its owner, as far as a backup may lack them.

    Args:
        run: identifies the run among all.
        copies_min: with fewer copies, writes are refused.
        holders: the members that have a copy of an earlier run.

    Attributes:
        count: of the changes, each of which may be of several keys.
        backups: by name.
    """

    def __init__(
        self, run: str, copies: int, copies_min: int = 1, holders: Iterable[str] = ()
    ) -> None:
        self.run = run
        self.count = 0
        self.backups = {name: BackupMember(wanted=False, known=True) for name in sorted(holders)}
        self._copies, self._copies_min = copies, copies_min
        self._keys = _Recent[str]()
        self._sources = _Recent[str]()
        self._records = _Recent[tuple[str, bytes]]()
        self._offsets = _Recent[str]()
        self._waiting: deque[tuple[int, object, Callable[[object], None]]] = deque()

    # What changes.

    def note(
        self,
        keys: Iterable[str],
        sources: Iterable[str] = (),
        records: Iterable[tuple[str, bytes]] = (),
        offsets: Iterable[str] = (),
    ) -> None:
        """Count one change, of the content under these names."""
        self.count += 1
        if not self.backups:
            return
        self._keys.note(keys, self.count)
        self._sources.note(sources, self.count)
        self._records.note(records, self.count)
        self._offsets.note(offsets, self.count)
        if len(self._keys) + len(self._records) > BEHIND_MAX:
            floor = self._floor()
            for backup in self.backups.values():
                if floor in (backup.acked, backup.copying):
                    backup.acked = backup.copying = None
            self._trim()

    def since(self, count: int) -> Lacks:
        """Return what has changed after *count*, at which some backup is."""
        return Lacks(
            self._keys.since(count),
            self._sources.since(count),
            self._records.since(count),
            self._offsets.since(count),
        )

    def _floor(self) -> int:
        known = (
            each.copying if each.acked is None else each.acked for each in self.backups.values()
        )
        return min((count for count in known if count is not None), default=self.count)

    def _trim(self) -> None:
        floor = self._floor()
        self._keys.trim(floor)
        self._sources.trim(floor)
        self._records.trim(floor)
        self._offsets.trim(floor)

    # Who keeps copies.

    def follow(self, names: Collection[str], members: Collection[str], now: int) -> None:
        """Have *names* keep copies; former backups do so for a while if they are *members*."""
        for name in names:
            backup = self.backups.get(name)
            if backup is None:
                backup = self.backups[name] = BackupMember(wanted=True)
            elif not backup.wanted:  # of late, nothing may have waited for it
                backup.needs = self.count
            if backup.acked is None and not backup.missing and backup.late_at == FAR_US:
                backup.late_at = now + SLOW_US
        for name, backup in list(self.backups.items()):
            backup.wanted = name in names
            if not backup.wanted and name not in members:
                del self.backups[name]
        self._trim()

    def add_former(self, name: str) -> None:
        """Note that a member has a copy, which it need not keep once there are others."""
        self.backups.setdefault(name, BackupMember(wanted=False, known=True)).known = True

    @property
    def missing_count(self) -> int:
        """How many of the copies that there should be are not there, or are behind."""
        backups = self.backups.values()
        there = sum(backup.wanted and backup.complete for backup in backups)
        return self._copies - 1 - there

    @property
    def _complete(self) -> bool:
        wanted = [each for each in self.backups.values() if each.wanted]
        return bool(wanted) and all(each.complete for each in wanted)

    def due(self, name: str) -> CopyStep | None:
        """Return what is to be sent to a backup now; None if nothing is."""
        backup = self.backups.get(name)
        return None if backup is None else self._due(backup)

    def _due(self, backup: BackupMember) -> CopyStep | None:
        acked = backup.acked
        if not backup.wanted:
            if self._complete:
                return CopyStep.FORGET
            if acked is None:  # its copy of an earlier run is what it is kept for
                return None
        if acked is None:
            return CopyStep.WHOLE if backup.copying is None else None
        return CopyStep.CHANGES if backup.asks or acked < self.count else None

    def changed(self, now: int) -> list[str]:
        """Return the backups to which something is to be sent, and begin to wait for them."""
        found = []
        for name, backup in self.backups.items():
            if self._due(backup) is not None:
                found.append(name)
                if backup.late_at == FAR_US and not backup.missing:
                    backup.late_at = now + SLOW_US
        return found

    def begin_whole(self, name: str) -> int:
        """Note that the whole partition is now sent to a backup; return the present count."""
        self.backups[name].copying = self.count
        return self.count

    def answered(self, name: str, part: CopyPart, said: CopyReply | None, now: int) -> None:
        """Note the answer to a part that was sent to a backup; None if no answer came."""
        backup = self.backups.get(name)
        if backup is None:
            return
        if part.step is CopyStep.FORGET and not backup.wanted:
            if said is not None:
                del self.backups[name]
        elif said is CopyReply.TAKEN and part.step is not CopyStep.FORGET:
            self._taken(backup, part, now)
        else:
            # Without an answer it may have it, so changes are sent again: merging twice is no harm.
            if said is not None:
                backup.acked = None
            backup.copying = None
            if backup.late_at == FAR_US and not backup.missing:
                backup.late_at = now + SLOW_US
        self._trim()

    def _taken(self, backup: BackupMember, part: CopyPart, now: int) -> None:
        if part.step is CopyStep.WHOLE and (not part.last or backup.copying != part.count):
            return
        if part.step is CopyStep.CHANGES and (backup.acked is None or not part.last):
            return
        backup.acked, backup.copying = max(part.count, backup.acked or 0), None
        if backup.missing:
            backup.needs = self.count
        backup.missing = backup.asks = False
        backup.known = True
        backup.late_at = FAR_US if backup.acked >= self.count else now + SLOW_US

    def ask(self, name: str) -> None:
        """Find out if a backup, which may have been restarted, still has its copy."""
        if name in self.backups:
            self.backups[name].asks = True

    @property
    def next_deadline(self) -> int:
        """When `advance` is due."""
        return min((each.late_at for each in self.backups.values()), default=FAR_US)

    def advance(self, now: int) -> list[str]:
        """Count those as missing that were waited for too long; return their names."""
        late = [name for name, backup in self.backups.items() if backup.late_at <= now]
        for name in late:
            self.backups[name].missing, self.backups[name].late_at = True, FAR_US
        return late

    # Which writes are safe.

    @property
    def _confirmed(self) -> int:
        least = self.count
        for backup in self.backups.values():
            acked = backup.acked
            # A former backup counts, too, until there are others.
            if backup.missing or not (backup.wanted or (acked is not None and not self._complete)):
                continue
            least = min(least, -1 if acked is None else acked)
        return least

    @property
    def _live_count(self) -> int:
        return 1 + sum(each.wanted and not each.missing for each in self.backups.values())

    def check(self) -> None:
        """Check that there are enough copies for a write. Raises PartitionUnavailable."""
        if self._copies_min > 1 and self._live_count < self._copies_min:
            raise PartitionUnavailable(self._too_few("so no write is begun"))

    def _too_few(self, then: str) -> str:
        return (
            f"there is a copy at {self._live_count} members, and copies_min is {self._copies_min},"
            f" {then}; start members, or wait until they are there"
        )

    def hold(self, outcomes: object, done: Callable[[object], None]) -> object | None:
        """Return the outcomes of a write if the copies have it; else None, and see `settled`."""
        if self._confirmed >= self.count:
            return outcomes
        self._waiting.append((self.count, outcomes, done))
        return None

    def settled(self) -> list[tuple[Callable[[object], None], object]]:
        """Return which writes need not wait any more, each with its result."""
        found, confirmed = list[tuple["Callable[[object], None]", object]](), self._confirmed
        while self._waiting and self._waiting[0][0] <= confirmed:
            _, outcomes, done = self._waiting.popleft()
            if self._copies_min > 1 and self._live_count < self._copies_min:
                outcomes = OutcomeUnknown(self._too_few("so the write may be lost"))
            found.append((done, outcomes))
        return found

    def end(self, error: Exception | None) -> list[tuple[Callable[[object], None], object]]:
        """Return all writes that wait, with *error* or, if it is None, their outcomes."""
        found = [(done, error or outcomes) for _, outcomes, done in self._waiting]
        self._waiting.clear()
        return found
