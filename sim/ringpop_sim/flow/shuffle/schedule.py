"""One schedule: all that may go wrong with a shuffle, with all chance from one seed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_sim.flow.shuffle.truth import INVARIANTS
from ringpop_sim.flow.shuffle.world import ShuffleWorld
from ringpop_sim.state.journal.sweep import Checker, ScheduleOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.shuffle.protocol.record import Record
    from ringpop_sim.flow.shuffle.process import Process

NODES: Final = (3, 3, 4, 5)
LEASES: Final = (60, 500)
FAULTY_UNTIL: Final = 900
TWICE_AS_OFTEN: Final = (*("kill",) * 2, *("return",) * 2, *("zombie",) * 2)
MODES: Final = ("none", *TWICE_AS_OFTEN, "twice", *("two",) * 2, "stale")
"""What happens to members. With `twice` the second dies when nothing is under repair any longer."""
STORED_MODES: Final = (*MODES, "all", "all", "all")
"""What happens if frames are in the store: then all members may die, as long as rows are put."""


class Schedule(ShuffleWorld):
    """The world of one schedule."""

    def __init__(
        self, seed: int, nodes: int | None = None, *, is_stored: bool = False, traced: bool = False
    ) -> None:
        count = nodes or NODES[seed % len(NODES)]
        self._waiting: list[tuple[State, int, Callable[[], None]]] = []
        """What happens so long after the record has entered a state."""
        lease = LEASES[seed // 4 % 2]
        super().__init__(seed, count, lease, is_stored=is_stored, traced=traced)
        rng = self.rng
        self._mode = rng.choice(STORED_MODES if is_stored else MODES)
        hosts = sorted(self.processes)
        place = rng.randrange(count)
        self._first = hosts[place]
        # Neighbours most of the time, because these are each other's replicas.
        self._second = hosts[(place + (1 if rng.random() < 0.7 else 2)) % count]  # noqa: PLR2004
        self._deletes = False

    def play(self) -> None:
        rng = self.rng
        self.lossy = rng.random() < 0.7  # noqa: PLR2004 - shares
        self._plan()
        if rng.random() < 0.45:  # noqa: PLR2004
            self._when(partial(self.start, "z"))
        if rng.random() < 0.12:  # noqa: PLR2004
            self._lie()
        if rng.random() < 0.25:  # noqa: PLR2004
            self.clients[1].stop()
        if rng.random() < 0.2:  # noqa: PLR2004
            self.after(rng.randrange(60), self.clients[3].stop)
        if rng.random() < 0.1:  # noqa: PLR2004
            self._deletes = True
            self._when(self.delete)
        self.record_changed(self.register.record)
        self.go_on(FAULTY_UNTIL)
        if self._deletes and rng.random() < 0.6 and self._is_deleted():  # noqa: PLR2004
            self.recreate()

    def _is_deleted(self) -> bool:
        return self.register.record.state is State.DELETED

    def _plan(self) -> None:
        match self._mode:
            case "kill" | "twice":
                self._when(self._kill_one)
            case "return":
                self._when(partial(self._kill, self._first, comes_back=True))
            case "zombie":
                self._when(self._zombie)
            case "two":
                self._when(self._two)
            case "all":
                self._waiting.append((State.PUT, self.rng.randrange(150), self._all))
            case "stale":
                self._waiting.append((State.GET, self.rng.randrange(70), self._stale))
            case _:
                pass
        if self._mode in ("twice", "zombie"):
            self.after(100, self._again)

    def _when(self, what: Callable[[], None]) -> None:
        """Have *what* happen some time after the record has entered some state."""
        state = self.rng.choice(
            (State.PUT,) * 2 + (State.ENDING,) * 3 + (State.GET,) * 2  # most happens at the end
        )
        self._waiting.append((state, self.rng.randrange(70), what))

    def record_changed(self, record: Record) -> None:
        super().record_changed(record)
        for entry in list(self._waiting):
            state, delay, what = entry
            if state is record.state:
                self._waiting.remove(entry)
                self.after(delay, what)

    def _kill(self, host: str, *, comes_back: bool = False) -> None:
        self.kill(host)
        if comes_back:
            self.after(self.rng.randrange(60), partial(self.start, host))

    def _kill_one(self) -> None:
        self._kill(self.rng.choice(sorted(self.processes)))

    def _zombie(self) -> None:
        self.suspect(self._first)
        if self.rng.random() < 0.6:  # noqa: PLR2004 - a share
            process = self.processes[self._first]
            process.cut_off = True
            self.after(self.rng.randrange(500), partial(self._readable, process))

    def _stale(self) -> None:
        """Delete it while a member cannot read the record for longer than a lease may last."""
        process = self.processes[self._first]
        process.cut_off, self._deletes = True, True
        self.after(self.rng.randrange(20), self.delete)
        self.after(2 * self.lease, partial(self._readable, process))

    def _readable(self, process: Process) -> None:
        process.cut_off = False

    def _two(self) -> None:
        self.kill(self._first)
        if self._second != self._first:
            self.after(self.rng.choice((1, 5, 20, 60)), self._second_dies)

    def _second_dies(self) -> None:
        if not self._is_repaired() and not self._outlives_all():
            self.truth.is_single = False
        self.kill(self._second)

    def _outlives_all(self) -> bool:
        """Return whether what was acknowledged is in the store."""
        record = self.register.record
        return record.is_stored and record.state is State.PUT

    def _all(self) -> None:
        """Kill all members within a short time, and start their hosts again."""
        for host in sorted(self.processes):
            self.after(self.rng.randrange(30), partial(self._one_of_all, host))

    def _one_of_all(self, host: str) -> None:
        if not self._outlives_all():
            return
        self._kill(host)
        self.after(30 + self.rng.randrange(2 * self.lease), partial(self.start, host))

    def _again(self) -> None:
        """Kill another member as soon as nothing is under repair."""
        record = self.register.record
        has_begun = self.truth.tally["kills"] or self.truth.tally["suspected"]
        if has_begun and len(record.members) > 2 and self._is_repaired():  # noqa: PLR2004
            self._kill(self.rng.choice(record.members).host)
        elif not self.calm:
            self.after(15, self._again)

    def _is_repaired(self) -> bool:
        record, live = self.register.record, self.live()
        holders = [segment.holders for segment in record.segments.values()]
        holders += [interval.holders for interval in record.intervals]
        return (
            not self.suspected
            and all(each in live for each in record.members)
            and all(len(each) == 2 for each in holders)  # noqa: PLR2004 - a replica
        )

    def _lie(self) -> None:
        """Let a driver name an attempt that is not finished."""
        self.driver[0] = self.clients[0]
        self.truth.lies.add(self.clients[0].attempt)


def run_schedule(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed*; without *nodes*, the number of nodes follows from the seed."""
    return Schedule(seed, nodes, traced=traced).run()


def run_stored(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed* of a shuffle whose frames are in the store."""
    return Schedule(seed, nodes, is_stored=True, traced=traced).run()


SHUFFLE: Final = Checker(run_schedule, INVARIANTS)
STORED: Final = Checker(run_stored, INVARIANTS)
