"""When the partitions of a simulated node write checkpoints, and when journals are trimmed.

The rules are those of `ringpop_py.state.durable.checkpointer` and
`ringpop_py.state.durable.sweeper`, with times that suit plans of half a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.journal.sweep import Sweep
from ringpop_sim.state.keyspaces.durable import StoreAsker, settle
from ringpop_sim.units import ms, s

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ringpop_sim.state.keyspaces.durable import DurableDriver

LOOK_US: Final = 500 * ms
SLOTS_MAX: Final = 24
"""A checkpoint is due if the oldest change without one is so many slots back."""
INTERVAL_US: Final = 4 * s
TRIM_US: Final = 1 * s
AGAIN_US: Final = 1 * s
SWEEP_US: Final = 5 * s


class TidyHome(StoreAsker, Protocol):
    """The part of a process's home that tidying needs."""

    partitions: dict[int, Any]

    @property
    def now(self) -> int:
        """The time on the clock of the process."""

    def acts(self) -> bool:
        """Return whether this member does what one does for all."""

    def ask_journals(self, answer: Callable[[Any], None], /) -> None:
        """Ask the store for the names of the journals with slots; *answer* gets them, or FAILED."""

    def told(self, fact: fx.Fact, /) -> None:
        """Note that the journal has reported *fact*."""


class Tidier:
    """Writes checkpoints of what is at *home*, trims its journal, and sweeps those of others."""

    def __init__(self, home: TidyHome, writer: DurableDriver, rng: random.Random) -> None:
        self._home = home
        self._writer = writer
        self._rng = rng
        self._due: dict[int, tuple[Any, int]] = {}
        """By partition, which one it is, and when its next checkpoint is due."""
        self._busy = False
        self._trim_at = self._sweep_at = 0

    def begin(self) -> None:
        """Look now and then, as long as the process runs."""
        self._sweep_at = self._home.now + SWEEP_US
        self._home.after(LOOK_US, self._look)

    def _look(self) -> None:
        self._home.after(LOOK_US, self._look)
        if self._busy:
            return
        journal, here = self._writer.journal, self._home.partitions
        online = [p for p in here.values() if p.presence is Presence.OWNED]
        held = [partition for partition in online if partition.number in journal.held]
        self._due = {p.number: self._due_of(p) for p in held}
        # First what keeps the journal from being trimmed.
        held.sort(key=lambda partition: (-journal.behind(partition.number), partition.number))
        self._busy = True
        self._write_next([p for p in held if self._is_due(p.number)])

    def _due_of(self, partition: Any) -> tuple[Any, int]:
        known = self._due.get(partition.number)
        if known is not None and known[0] is partition:
            return known
        return partition, self._home.now + int(INTERVAL_US * self._rng.uniform(0.5, 1.0))

    def _is_due(self, number: int) -> bool:
        journal, due_at = self._writer.journal, self._due[number][1]
        behind = journal.behind(number)
        due = self._home.now >= due_at and (behind > 0 or journal.is_bare(number))
        return due or behind >= SLOTS_MAX

    def _write_next(self, queue: list[Any]) -> None:
        """Write the checkpoints of *queue*, one after the other, and then trim."""
        while queue and not self._may_write(queue[0]):
            queue.pop(0)
        if not queue:
            self._trim()
            return
        partition = queue.pop(0)

        def end(*, durable: bool) -> None:
            wait_us = INTERVAL_US * self._rng.uniform(0.9, 1.1) if durable else AGAIN_US
            self._due[partition.number] = partition, self._home.now + int(wait_us)
            self._write_next(queue)

        self._writer.checkpoint(partition, end)

    def _may_write(self, partition: Any) -> bool:
        journal, number = self._writer.journal, partition.number
        if partition.presence is not Presence.OWNED or number not in journal.held:
            return False
        return not journal.checkpointing(number)

    def _trim(self) -> None:
        now = self._home.now
        if now < self._trim_at and self._writer.journal.length <= SLOTS_MAX:
            self._sweep()
            return
        self._trim_at = now + TRIM_US

        def end(fact: fx.Trimmed) -> None:
            self._home.told(fact)
            self._sweep()

        self._writer.trim(end)

    def _sweep(self) -> None:
        self._busy = False
        now = self._home.now
        if now < self._sweep_at:
            return
        self._sweep_at = now + int(SWEEP_US * self._rng.uniform(0.8, 1.2))
        if self._home.acts():
            self._busy = True
            self._home.ask_journals(self._sweep_all)

    def _sweep_all(self, names: Any) -> None:
        self._sweep_next([] if isinstance(names, fx.StoreAnswer) else list(names))

    def _sweep_next(self, names: list[str]) -> None:
        """Sweep the journals *names*, one after the other, except the node's own."""
        while names and names[0] == self._writer.journal.name:
            names.pop(0)
        if not names:
            self._busy = False
            return

        def tell(_fact: fx.Fact) -> None:
            self._sweep_next(names)

        sweep = Sweep(names.pop(0))
        settle(self._home, sweep, sweep.begin(), tell)
