"""K14, K15: log files that grow and are rotated, and what has counted of their lines.

Each program appends to a file of its own, often half a line, and logrotate renames that (`create`):
the program goes on with the renamed file for a moment. Some are compressed then, and the oldest are
deleted once their lines count: to delete them before would be to lose them.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.placement.keys import partition_of
from ringpop_sim.units import ms, s, seconds
from ringpop_sim.whole.cluster import FLOW
from ringpop_sim.whole.keyspaces.oracle import KeyspaceOracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_sim.whole.keyspaces.shares import DaemonShare
    from ringpop_sim.whole.stage.folder import SharedFile

LINES: Final = tuple(f"line-{number}" for number in range(5))
"""The keys of lines."""
LINES_MAX: Final = 4
APPEND_US: Final = 300 * ms
"""The most lines that are appended at a time, and the time between, in the mean."""
TORN_SHARE: Final = 0.3
COMPRESSED_SHARE: Final = 0.5
REOPEN_US: Final = 1 * s
COMPRESS_US: Final = 3 * s
COMPRESSING_US: Final = 1 * s
"""The most time until a program opens its new file, and until its old one is being compressed."""
KEPT: Final = 3
"""The most rotated files of a program; the next rotation waits until the oldest has been read."""
AGAIN_US: Final = 500 * ms
COUNTED_US: Final = 30 * s
"""The time after which all lines count, once the partitions are where they stay."""


@dataclass(slots=True, eq=False)
class Log:
    """One file, under all its names.

    Attributes:
        lines: the keys and numbers of its lines.
        rest: what is still to be written of the last one.
    """

    path: str
    file: SharedFile
    lines: list[tuple[str, int]] = field(default_factory=list)
    rest: bytes = b""
    is_busy: bool = True


class Program:
    """Appends to the file at *path*, which is rotated."""

    def __init__(self, logs: LogsCountOnce, path: str) -> None:
        self._logs = logs
        self._path = path
        self._rng = random.Random(f"{path} {logs.world.seed}")
        self._current = self._create()
        self._rotated: list[Log] = []
        self._after(APPEND_US, self._append)
        if logs.shares.plan.rotated_us:
            self._after(logs.shares.plan.rotated_us, self._rotate)

    def _create(self) -> Log:
        return self._logs.add(Log(self._path, self._logs.folder.create(self._path)))

    def _after(self, most_us: int, act: Callable[[], None]) -> None:
        world = self._logs.world
        world.push(world.now + self._rng.randint(1, most_us), lambda _: act())

    def _append(self) -> None:
        """Append a few lines, after the rest of the one before."""
        log, rng = self._current, self._rng
        lines = [self._logs.line(log, rng) for _ in range(rng.randint(0, LINES_MAX))]
        data = log.rest + b"".join(lines)
        torn = rng.randint(1, len(lines[-1]) - 1) if lines and rng.random() < TORN_SHARE else 0
        log.rest = data[len(data) - torn :]
        self._logs.folder.write(log.file, data[: len(data) - torn])
        if not self._logs.is_over:
            self._after(2 * APPEND_US, self._append)
        elif torn:
            self._logs.folder.write(log.file, log.rest)

    def _rotate(self) -> None:
        logs, folder, rotated = self._logs, self._logs.folder, self._rotated
        if logs.is_over:
            return
        is_full = len(rotated) >= KEPT and not logs.counts_all(rotated[-1])
        if is_full or not logs.may_go(self._current) or any(log.is_busy for log in rotated):
            self._after(AGAIN_US, self._rotate)
            return
        if len(rotated) >= KEPT:
            del folder.files[rotated.pop().path]
        rotated.insert(0, self._current)
        for number, log in reversed(list(enumerate(rotated, 1))):
            ending = ".gz" if log.path.endswith(".gz") else ""
            before, log.path = log.path, f"{self._path}.{number}{ending}"
            folder.rename(before, log.path)
        new = self._create()
        self._after(REOPEN_US, lambda: self._reopen(new))
        self._after(2 * logs.shares.plan.rotated_us, self._rotate)

    def _reopen(self, new: Log) -> None:
        """Go on with the *new* file; the last line of the old one may be without its end."""
        old, self._current = self._current, new
        if old.rest:
            end = len(old.rest) - self._rng.randint(0, 1)
            self._logs.folder.write(old.file, old.rest[:end])
        if self._rng.random() < COMPRESSED_SHARE:
            self._after(COMPRESS_US, lambda: self._compress(old))
        else:
            old.is_busy = False

    def _compress(self, log: Log) -> None:
        folder, path, original = self._logs.folder, log.path, log.file
        data = gzip.compress(original.data, mtime=0)
        log.path = f"{path}.gz"
        log.file = folder.create(log.path)
        folder.write(log.file, data[: len(data) // 2])

        def end() -> None:
            folder.write(log.file, data[len(data) // 2 :])
            log.file.changed_us = original.changed_us
            del folder.files[path]
            log.is_busy = False

        self._after(COMPRESSING_US, end)


class LogsCountOnce(KeyspaceOracle):
    """K14, K15: of each file and key, the first lines count, each once; and at the end all do.

    In half of the runs rotated files match the pattern no longer. Those are promised only if they
    were read before, so they are not rotated sooner.
    """

    invariants: ClassVar = ("K14", "K15")

    def begin(self) -> None:
        self.folder = self.shares.cluster.folder
        self._logs: list[Log] = []
        self._log_of: list[Log] = []
        readers = ("", FLOW) if self.shares.plan.dataflow else ("",)
        self._counted: dict[str, set[int]] = {prefix: set() for prefix in readers}
        self.world.push(self.shares.plan.from_us, self._begin)

    def _begin(self, _: object) -> None:
        for number in range(self.shares.plan.files):
            Program(self, f"logs/{number}.log")

    # For programs.

    @property
    def is_over(self) -> bool:
        """Whether programs have ended."""
        return self.world.now > self.world.plan.quiet_at_us + self.shares.plan.after_us

    def add(self, log: Log) -> Log:
        """Add a file."""
        self._logs.append(log)
        return log

    def line(self, log: Log, rng: random.Random) -> bytes:
        """Return the next line of *log*."""
        key, number = rng.choice(LINES), len(self._log_of)
        log.lines.append((key, number))
        self._log_of.append(log)
        return f'{{"key": "{key}", "number": {number}}}\n'.encode()

    def counts_all(self, log: Log) -> bool:
        """Return whether all lines of *log* count."""
        return not self._missing(log)

    def _missing(self, log: Log) -> list[int]:
        """Return the lines of *log* that do not count for everybody who reads it."""
        counted = set.intersection(*self._counted.values())
        return [number for _, number in log.lines if number not in counted]

    def may_go(self, log: Log) -> bool:
        """Return whether *log* is promised to be read on under a name that does not match."""
        numbers = {number for _, number in log.lines}
        return self.shares.cluster.is_wide or all(map(numbers.intersection, self._counted.values()))

    # What must hold.

    @property
    def done(self) -> bool:
        """Whether all that was written counts."""
        return all(len(counted) == len(self._log_of) for counted in self._counted.values())

    def acknowledged(self, share: DaemonShare, number: int, _epoch: int) -> None:
        partitions = self.shares.plan.partitions
        keys = {prefix + line: line for line in LINES for prefix in self._counted}
        mine = [key for key in keys if self._logs and partition_of(key, partitions) == number]
        part = share.partitions.get(number)
        if not mine or part is None:  # given up while the group was under way
            return
        for key, packed in zip(mine, part.state.packed(mine), strict=True):
            if packed is not None:
                numbers = decode_value("msgpack", packed)
                prefix = key.removesuffix(keys[key])
                if prefix == FLOW:
                    numbers = self._without_counts(share, key, numbers)
                self._counted[prefix].update(numbers)
                self._look(share, key, keys[key], numbers)

    def _without_counts(self, share: DaemonShare, key: str, sent: list[list[int]]) -> list[int]:
        """Return the numbers that a dataflow sent to *key*; its state has counted them."""
        counts = [count for count, _ in sent]
        if counts != list(range(1, 1 + len(sent))):
            self.broke("K14", f"{share.name} has counts of the dataflow for {key}: {counts}")
        return [number for _, number in sent]

    def _look(self, share: DaemonShare, key: str, line: str, numbers: list[int]) -> None:
        for log in dict.fromkeys(self._log_of[number] for number in numbers):
            found = [number for number in numbers if self._log_of[number] is log]
            wanted = [number for its_key, number in log.lines if its_key == line]
            if found != wanted[: len(found)]:
                text = f"{share.name} counts for {key} of {log.path} {found}, and not {wanted}"
                self.broke("K14", text)

    def finish(self) -> None:
        world, shares = self.world, self.shares
        still_us = world.now - max(shares.moved_at, world.plan.quiet_at_us + shares.plan.after_us)
        if self.done or not shares.settled or still_us < COUNTED_US:
            return
        for log in self._logs:
            missing = self._missing(log)
            if missing:
                text = f"after {seconds(still_us):.1f} s {log.path} has lines that do not count"
                self.broke("K15", f"{text}: {missing}")
