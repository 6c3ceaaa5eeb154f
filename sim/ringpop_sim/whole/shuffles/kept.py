"""The oracle of shuffles: U1 to U4 in ``docs/simulator.md``, which `Truth` and clients find."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.protocol.messages import Answer, FrameId
from ringpop_py.flow.shuffle.protocol.record import STORE, MemberId
from ringpop_py.flow.shuffle.server.framestore import name_in_files
from ringpop_py.flow.shuffle.server.shuffle import Shuffle
from ringpop_py.flow.shuffle.sorting.frames import entry_at
from ringpop_py.state.catalog.layout import shuffles_prefix
from ringpop_sim.checks import Check
from ringpop_sim.flow.shuffle import truth as t
from ringpop_sim.plans.plan import Crash, FailShuffler
from ringpop_sim.units import s
from ringpop_sim.whole.shuffles.beside import DISK_US_MAX, KILLED, SLOW_US_MAX, Shufflers
from ringpop_sim.whole.shuffles.rows import ShuffleRows
from ringpop_sim.whole.shuffles.users import ShuffleUsers
from ringpop_sim.world.world import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_py.flow.shuffle.protocol.record import Record
    from ringpop_sim.plans.plan import Operation, ShufflePlan
    from ringpop_sim.whole.cluster import WholeCluster
    from ringpop_sim.whole.shuffles.beside import ShuffleProcess

BEGIN_US: Final = 2 * s
LIVE_US: Final = 60 * s
"""So long after the last fault, a shuffle was read once more."""
NAMES: Final = ("standing", "passing")
INVARIANTS: Final = {
    **dict.fromkeys((t.HELD, t.BOTH, t.LATE), "U1"),
    **dict.fromkeys((t.ROWS, t.EARLY, t.GONE), "U2"),
    **dict.fromkeys((t.AUTHORITY, t.BACK, t.DAMAGE, t.REFUSED), "U3"),
    t.LIVE: "U4",
}


class ShufflesKept(Check):
    """See the module.

    Attributes:
        shufflers: the processes.
        truths: what is known of each shuffle, by its name.
    """

    invariants = ("U1", "U2", "U3", "U4")

    def begin(self) -> None:
        world = self.world
        assert world.plan.shuffle is not None
        self.plan: ShufflePlan = world.plan.shuffle
        self.cluster: WholeCluster = world  # type: ignore[assignment]
        self.truths = {name: ShuffleRows() for name in NAMES}
        self.users: list[ShuffleUsers] = []
        self.shufflers: Shufflers
        self._damaged: set[tuple[object, int]] = set()
        """Shuffles of processes, and the lives of them in which a file was removed."""
        world.push(BEGIN_US, self._begin)

    def _begin(self, _: object) -> None:
        self.users = [
            ShuffleUsers(self.shufflers, self.truths[name], self.plan, name, stays=name == NAMES[0])
            for name in NAMES
        ]

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Look on, in the block, at what processes go by and acknowledge."""
        go_by, put = Shuffle.go_by, Shuffle.put

        def went_by(shuffle: Shuffle, stored: Any, asked_at: int) -> None:
            go_by(shuffle, stored, asked_at)
            self._changed(shuffle.name, stored.record)

        async def has_put(shuffle: Shuffle, uid: int, body: Any) -> Any:
            said = await put(shuffle, uid, body)
            if said.answer == Answer.OK.value:
                frame, truth = entry_at(body, 0).id, self.truths[shuffle.name]
                truth.acknowledges(str(shuffle.member.me), uid, frame, self.cluster.now)
                self._check(shuffle.name)
            return said

        self.shufflers = shufflers = Shufflers(self.cluster)
        self.shufflers.on_end = self._ended
        self.cluster.shuffle_folder = shufflers.folder
        with (
            shufflers.installed(),
            patch.object(Shuffle, "go_by", went_by),
            patch.object(Shuffle, "put", has_put),
        ):
            yield

    def _changed(self, name: str, record: Record) -> None:
        truth = self.truths[name]
        if record.version > truth.version:
            if record.members:  # those it no longer has may live, and have forgotten all
                live, there = self._live(name).items(), {*record.members, STORE}
                truth.lost({me: has for me, has in live if me in there}, record.uid)
            truth.changed(record, self.cluster.now)
            self._check(name)

    def _live(self, name: str) -> dict[MemberId, Any]:
        """Return what all processes have of shuffle *name*."""
        found: dict[MemberId, Any] = {}
        for each in self.shufflers.running:
            host: Any = each.host
            shuffle = None if host is None else host._shuffles.get(name)
            if shuffle is None and host is not None:  # it may be a member, and not know it yet
                me = MemberId(host._process.name, host._process.incarnation)
                found[me] = SimpleNamespace(segments={}, intervals={})
            elif shuffle is not None and (shuffle.here, shuffle.member.life) not in self._damaged:
                files = shuffle.here.folder.segments.items()
                segments = {number: file.entries for number, file in files}
                intervals = shuffle.member.intervals
                found[shuffle.member.me] = SimpleNamespace(segments=segments, intervals=intervals)
        if self.plan.in_store:
            segments = self._stored(name, self.truths[name].uid)
            found[STORE] = SimpleNamespace(segments=segments, intervals={})
        return found

    def _stored(self, name: str, uid: int) -> dict[int, list[FrameId]]:
        """Return the frames in the store, by segment."""
        prefix = f"{shuffles_prefix(CLUSTER)}{name_in_files(name)}/{uid}/"
        found: dict[int, list[FrameId]] = {}
        for key in self.cluster.store.objects:
            if key.startswith(prefix):
                segment, _, frame = key.removeprefix(prefix).partition("/")
                attempt, number = map(int, frame.split("-"))
                found.setdefault(int(segment), []).append((attempt, number))
        return found

    def _check(self, name: str) -> None:
        truth = self.truths[name]
        truth.check(self._live(name))
        self._tell(name)

    def _tell(self, name: str) -> None:
        broken = self.truths[name].broken
        if broken is not None and not self.broken:
            self.broke(INVARIANTS[broken.invariant], f"{name}: {broken.detail}")

    def _ended(self, _shuffler: ShuffleProcess) -> None:
        for name, truth in self.truths.items():
            self._has_lost(truth, name)

    def _has_lost(self, truth: ShuffleRows, name: str) -> None:
        truth.tally["kills"] += 1
        truth.lost(self._live(name))

    # Faults.

    def fault_began(self, operation: Operation, nodes: Sequence[int]) -> None:
        for number in nodes:
            shuffler = self.shufflers.of.get(number)
            if shuffler is None:
                continue
            if isinstance(operation, Crash) and operation.silent:  # with the machine, after it
                shuffler.daemon.body.on_end[shuffler.kill] = None
            elif isinstance(operation, FailShuffler):
                self._trouble(shuffler, operation, begins=True)

    def fault_ended(self, operation: Operation, nodes: Sequence[int]) -> None:
        for number in nodes:
            shuffler = self.shufflers.of.get(number)
            if shuffler is not None and isinstance(operation, FailShuffler):
                self._trouble(shuffler, operation, begins=False)

    def _trouble(self, shuffler: ShuffleProcess, operation: FailShuffler, *, begins: bool) -> None:
        match operation.how:
            case "killed" if begins:
                shuffler.kill()
            case "paused" if begins:
                shuffler.body.pause()
            case "paused":
                shuffler.body.resume()
            case "deleted" if begins:
                self._delete(shuffler)
            case "full":
                shuffler.is_full = begins
            case "slow":
                shuffler.body.threads.start_us_max = SLOW_US_MAX if begins else DISK_US_MAX
            case _:
                pass

    def _delete(self, shuffler: ShuffleProcess) -> None:
        """Remove a file of a shuffle, now and then all of them, as a stranger does."""
        host: Any = shuffler.host
        shuffles = [] if host is None else list(host._shuffles.values())
        in_folders = ((each, each.here.folder._path.rglob("*")) for each in shuffles)
        found = [(each, path) for each, paths in in_folders for path in sorted(paths)]
        if found:
            shuffle, path = shuffler.body.rng.choice(found)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            self._damaged.add((shuffle.here, shuffle.member.life))
            self._has_lost(self.truths[shuffle.name], shuffle.name)

    @staticmethod
    def expects(error: BaseException) -> bool:
        """Return whether a daemon logs *error* because its process for shuffles was killed."""
        return isinstance(error, ShuffleUnavailable) and str(error).endswith(f" {KILLED}")

    def unread(self) -> list[str]:
        """Return the shuffles that ought to be read, and were not since the last fault."""
        unread = [users.read_at < self.world.plan.quiet_at_us for users in self.users]
        names = [name for name, is_late in zip(NAMES, unread, strict=False) if is_late]
        return [name for name in names if self.truths[name].is_single]

    def finish(self) -> None:
        for name in self.truths:
            self._tell(name)
        if self.world.now > self.world.plan.quiet_at_us + LIVE_US:
            for name in self.unread():
                self.broke("U4", f"{name} was not read again: {self.truths[name].version}")

    def close(self) -> None:
        """Remove all files, and free what clients and processes hold."""
        self.users.clear()
        self._damaged.clear()
        self.shufflers.close()
