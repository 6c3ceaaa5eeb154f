"""K20 to K22: watchers of a durable keyspace, and what each of them must have seen.

A watcher is a program that keeps its position with what it has made of the changes before. It runs
at one daemon after the other, or outside. Little is kept and sent here, so that limits are met.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from unittest.mock import patch

from ringpop_py.base.errors import RingpopError, WatchGap
from ringpop_py.state.placement.keys import partition_of
from ringpop_py.state.table.due import plain
from ringpop_py.state.table.keyed import KeyedState
from ringpop_py.state.watch import recent
from ringpop_py.state.watch.recent import RecentChanges
from ringpop_sim.units import ms, s, seconds
from ringpop_sim.whole.keyspaces.expiring import PREFIX
from ringpop_sim.whole.keyspaces.oracle import KeyspaceOracle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.state.watch.course import KeyChange, WatchPosition
    from ringpop_py.state.watch.messages import Watched, WatchPart
    from ringpop_py.state.watch.watch import AsyncChanges
    from ringpop_sim.whole.cluster import Daemon
    from ringpop_sim.world.process import Process

SMALL: Final[dict[str, Any]] = {
    "KEPT_MAX": 24,
    "KEPT_BYTES": 24_000,
    "SAVED_BYTES": 6_000,
    "ANSWER_BYTES": 1_200,
    "PAGE_ROWS": 3,
}
"""What these constants of `recent` are in runs with watchers."""
PREFIXES: Final = ("", "", "key-", PREFIX)
IDLE_S: Final = (0.3, 2.0, 8.0)
"""How long programs wait for a change before they end."""
DOWN_US: Final = (1 * ms, 100 * ms, 1 * s, 6 * s)
"""How long they are down at most."""
STOP_SHARE: Final = 0.03
"""The share of changes after which they end."""
CAUGHT_UP_US: Final = 30 * s

Row = tuple[str, bytes | None]


class LogOfChanges:
    """What is in the log of a partition: the *changes* of keys, in order."""

    def __init__(self) -> None:
        self.changes: list[Row] = []

    def follow(self, before: int, rows: list[Row]) -> bool:
        """Follow an entry after number *before*; return whether it is what was there, or next."""
        if before == len(self.changes):
            self.changes += rows
        return self.changes[before : before + len(rows)] == rows

    def state(self, upto: int, prefix: str) -> dict[str, bytes]:
        """Return the keys with *prefix* after change *upto*."""
        found = dict(self.changes[:upto]).items()
        return {key: packed for key, packed in found if packed and key.startswith(prefix)}

    def must_have(self, after: int, upto: int) -> bool:
        """Return whether a node that is at *upto* has what comes after *after* in any case."""
        if not after < upto <= len(self.changes):
            return True
        size = sum(recent.weight(*row) for row in self.changes[after:upto])
        return upto - after <= recent.KEPT_MAX and size <= recent.SAVED_BYTES


class WatchingProgram:
    """A program that watches.

    Attributes:
        daemon: where it runs; None outside, and while it is down.
        turn: counts its runs.
        numbers: its position, by partition.
        seen: by partition, its keys as it has seen them.
        ahead: by partition, the number up to which it may know more than its position says.
        again: as *ahead* at its last begin: up to there it may see again what it has seen.
    """

    def __init__(self, name: str, prefix: str, *, outside: bool) -> None:
        self.name, self.prefix, self.outside = name, prefix, outside
        self.daemon: Daemon | None = None
        self.turn = 0
        self.position: WatchPosition | None = None
        self.numbers: dict[int, int] = {}
        self.seen: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
        self.ahead: Counter[int] = Counter()
        self.again: Counter[int] = Counter()

    def forget(self, *numbers: int) -> None:
        """Forget what it knows of these partitions."""
        for known in (self.numbers, self.seen, self.ahead):
            for number in numbers:
                known.pop(number, None)


class WatchersSee(KeyspaceOracle):
    """K20 to K22; and the programs that watch.

    K20: all nodes give a change of the log the same number; a watcher sees, of each key, each
    change after what it has seen; and what it has seen, in order, is the state of the log at its
    position. K21: no change is gone that any owner has kept: see `LogOfChanges.must_have`. K22: a
    watcher comes to the end of the logs in `CAUGHT_UP_US` once partitions stay and nobody writes.
    """

    invariants: ClassVar = ("K20", "K21", "K22")

    def begin(self) -> None:
        plan = self.shares.plan
        self._rng = random.Random(f"watching {self.world.seed}")
        self._logs = [LogOfChanges() for _ in range(plan.partitions)]
        self._programs = [
            WatchingProgram(f"w{n}", self._rng.choice(PREFIXES), outside=n == 1)
            for n in range(plan.watchers)
        ]
        self._is_over = False
        self._changed_at = 0
        self.counts = Counter[str]()
        self.shares.on_end.append(self._ended)
        for program in self._programs:
            self._later(program, plan.from_us)

    def _partition_of(self, key: str) -> int:
        return partition_of(key, len(self._logs))

    # Programs.

    def _later(self, program: WatchingProgram, least_us: int = 0) -> None:
        """Have *program* begin again in a while, somewhere."""
        program.daemon = None
        program.turn += 1
        after_us = least_us + self._rng.randint(1, self._rng.choice(DOWN_US))
        self.world.push(self.world.now + after_us, lambda _: self._begin(program))

    def _begin(self, program: WatchingProgram) -> None:
        if self._is_over:
            return
        daemon, turn = self.clients.a_daemon(), program.turn
        if daemon is None or (program.outside and daemon.machine != daemon.number):
            self._later(program)
        elif program.outside:
            client = self.clients.outsiders[daemon.number]
            client.begin(lambda: self._watch(program, turn, client.keyspace))
        else:
            program.daemon = daemon
            act = partial(self._watch, program, turn, daemon.keyspace)
            self.shares.cluster.begin(daemon, lambda _: act())

    def _ended(self, process: Process) -> None:
        for program in self._programs:
            if program.daemon is process:
                self._later(program)

    async def _watch(self, program: WatchingProgram, turn: int, keyspace: Any) -> None:
        self.counts["turns"] += 1
        program.forget(*program.seen.keys() - program.numbers)  # what was not read comes again
        program.again = program.ahead.copy()
        named = {"after": program.position, "idle_s": self._rng.choice(IDLE_S)}
        changes: AsyncChanges = keyspace.watch(program.prefix, existing=True, **named)
        try:
            async for change in changes:
                if program.turn != turn:  # its process has ended, and it is elsewhere
                    return
                self._see(program, change)
                if self._is_over or self._rng.random() < STOP_SHARE:
                    return
            if program.turn == turn and changes.position is not None:
                self._move(program, changes.position)
        except WatchGap:
            self.counts["gaps"] += 1
            program.position = None
            program.forget(*range(len(self._logs)))
        except RingpopError:  # another watch goes on
            pass
        finally:
            if program.turn == turn:
                self._later(program)

    # What they see.

    def _see(self, program: WatchingProgram, change: KeyChange) -> None:
        self.counts["changes"] += 1
        key, packed = change.key, change.packed
        number = self._partition_of(key)
        self.world.trace.note(self.world.now, 0, (program.name, key, packed))
        log, seen = self._logs[number], program.seen[number]
        if number in program.numbers:
            at, last = dict(change.position.numbers)[number], program.numbers[number]
            before = log.state(at - 1, program.prefix)
            text = f"{program.name} sees {key} as {packed!r} by change {at} of partition {number}"
            if at <= last or log.changes[at - 1 : at] != [(key, packed)]:
                self.broke("K20", f"{text} after {last}, which is {log.changes[at - 1 : at]}")
            elif at > program.again[number] and seen.get(key) != before.get(key):
                self.broke("K20", f"{text} after {seen.get(key)!r}, and not {before.get(key)!r}")
        else:
            program.ahead[number] = len(log.changes)
            if (key, packed) not in log.changes:
                self.broke("K20", f"{program.name} reads {packed!r} as {key}, which it never was")
        if packed is None:
            seen.pop(key, None)
        else:
            seen[key] = packed
        self._move(program, change.position)

    def _move(self, program: WatchingProgram, position: WatchPosition) -> None:
        for number, at in position.numbers:
            last, log = program.numbers.get(number, 0), self._logs[number]
            text = f"{program.name} goes from {last} to {at} of partition {number}"
            if not last <= at <= len(log.changes):
                self.broke("K20", text)
            elif at > last and at >= program.ahead[number]:
                seen, there = program.seen[number], log.state(at, program.prefix)
                if seen != there:
                    self.broke("K20", f"{text} with {seen}, and not {there}")
        program.position, program.numbers = position, dict(position.numbers)

    # What daemons do.

    @contextmanager
    def observing(self) -> Iterator[None]:
        if not self._programs:
            yield
            return
        apply, look = KeyedState.apply, RecentChanges.look

        def applies(state: KeyedState, body: Any) -> None:
            changes: Any = state.changes
            before = 0 if changes is None else changes.newest
            apply(state, body)
            if changes is not None and (body[0] or body[1]):
                rows: list[Row] = [(key, plain(value)) for key, value in body[0].items()]
                rows += [(key, None) for key in body[1]]
                number = self._partition_of(rows[0][0])
                if before == len(self._logs[number].changes):
                    self._changed_at = self.world.now
                if not self._logs[number].follow(before, rows):
                    name = self.shares.cluster.current.name
                    text = f"{rows} is change {before + 1} of partition {number} at {name}"
                    self.broke("K20", f"{text}, which is {self._logs[number].changes[before:]}")

        def looks(changes: RecentChanges, request: Any, part: WatchPart, *more: Any) -> Watched:
            try:
                return look(changes, request, part, *more)
            except WatchGap as gap:
                after = part.after
                if after is None or self._logs[part.number].must_have(after, changes.newest):
                    self.broke("K21", f"{self.shares.cluster.current.name}: {gap}")
                raise

        with (
            patch.multiple(recent, **SMALL),
            patch.object(KeyedState, "apply", applies),
            patch.object(RecentChanges, "look", looks),
        ):
            yield

    # At the end.

    def _behind(self) -> list[str]:
        ends = {number: len(log.changes) for number, log in enumerate(self._logs)}
        found = [each for each in self._programs if each.numbers != ends]
        return [f"{each.name} is at {each.numbers} of {ends}" for each in found]

    @property
    def done(self) -> bool:
        """Whether all watchers have seen all, or the run is over."""
        return self._is_over or not self._behind()

    def finish(self) -> None:
        self._is_over = True
        world, shares = self.world, self.shares
        calm_at = max(shares.moved_at, world.plan.quiet_at_us + shares.plan.after_us)
        still_us = world.now - max(calm_at, self._changed_at)  # keys expire, streams go on
        if shares.settled and still_us > CAUGHT_UP_US:
            for text in self._behind():
                self.broke("K22", f"after {seconds(still_us):.1f} s {text}")
