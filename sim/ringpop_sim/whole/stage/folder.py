"""A folder that all machines share: its files grow and are renamed while daemons read them."""

from __future__ import annotations

import errno
import io
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Self
from unittest.mock import patch

import greenlet

from ringpop_py.flow.streams import files, stream
from ringpop_py.flow.streams.feed import Feed
from ringpop_sim.units import ms, s
from ringpop_sim.world.world import WALL_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_sim.whole.stage.scheduling import Processes, TrioProcess
    from ringpop_sim.whole.stage.threads import Threads

LATE_SHARE: Final = 0.3
LATE_US: Final = 3 * ms
"""The share of calls that take time, in which others go on, and how long at most."""
ENDED_US: Final = 6 * s
"""After so long without a change a rotated file is at its end; the product waits for a minute."""
GROUP_RECORDS_MAX: Final = 4
BEHIND_MAX: Final = 12
READ_RECORDS: Final = 8
HELD_MAX: Final = 16
"""The product's are so high that no file here would come near them."""


@dataclass(slots=True, eq=False)
class SharedFile:
    """A file, whatever its path is now; the instant is by the clock of the file server."""

    inode: int
    changed_us: int
    data: bytearray = field(default_factory=bytearray)

    def stat(self) -> Any:
        """Return what `os.stat` has of it."""
        return SimpleNamespace(
            st_dev=1,
            st_ino=self.inode,
            st_size=len(self.data),
            st_mtime=self.changed_us / s,
            st_mtime_ns=self.changed_us * 1000,
        )


class SharedFolder:
    """See the module.

    Attributes:
        files: those that have a path.
    """

    def __init__(self, world: Processes, threads: Threads) -> None:
        self.files: dict[str, SharedFile] = {}
        self._world = world
        self._threads = threads
        self._rng = random.Random(f"folder {world.seed}")
        self._opened: dict[int, tuple[SharedFile, TrioProcess]] = {}
        self._numbers = count(1)

    def create(self, path: str) -> SharedFile:
        """Return a new file at *path*; it gets the lowest number that no file has, as on disks."""
        there = {file.inode for file in self.files.values()}
        there |= {file.inode for file, process in self._opened.values() if process.alive}
        inode = next(number for number in count(1) if number not in there)
        file = self.files[path] = SharedFile(inode, 0)
        self.write(file, b"")
        return file

    def write(self, file: SharedFile, data: bytes) -> None:
        """Write *data* to the end of *file*."""
        file.data += data
        file.changed_us = WALL_MS * 1000 + self._world.now

    def rename(self, path: str, to: str) -> None:
        """Rename what is at *path*."""
        self.files[to] = self.files.pop(path)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Have the product's files be those of this folder in the block, and few records many."""
        path = type("Path", (SharedPath,), {"folder": self})
        system = SimpleNamespace(fstat=self._fstat, pread=self._pread)

        def feed(marks: Any) -> Any:  # two readers of a file do not have the same groups
            size = self._rng.randint(1, GROUP_RECORDS_MAX)
            return Feed(marks, group_records=size, behind_max=BEHIND_MAX)

        with (
            patch.multiple(files, os=system, Path=path, threading=self._threads),
            patch.multiple(stream, Feed=feed, READ_RECORDS=READ_RECORDS, HELD_MAX=HELD_MAX),
            patch.object(files, "ENDED_S", ENDED_US / s),
        ):
            yield

    # For daemons.

    def look(self, path: str) -> SharedFile:
        """Return what is at *path*, perhaps a moment later. Raises FileNotFoundError."""
        self._give_way()
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path]

    def open(self, path: str) -> BinaryIO:
        """Return what is at *path*, opened by the process whose code runs."""
        number, file = next(self._numbers), self.look(path)
        self._opened[number] = file, self._threads.current_process
        return io.BufferedReader(_Opened(file, number, self._opened))

    def _fstat(self, number: int) -> Any:
        self._give_way()
        return self._opened[number][0].stat()

    def _pread(self, number: int, size: int, at: int) -> bytes:
        self._give_way()
        return bytes(self._opened[number][0].data[at : at + size])

    def _give_way(self) -> None:
        if self._threads.in_thread and self._rng.random() < LATE_SHARE:
            threads = self._threads.current_process.threads
            threads.resume(greenlet.getcurrent(), None, self._rng.randint(1, LATE_US))
            self._threads.block()


class _Opened(io.RawIOBase):
    """A file that a process has open."""

    def __init__(
        self, file: SharedFile, number: int, opened: dict[int, tuple[SharedFile, TrioProcess]]
    ) -> None:
        self._file = file
        self._number = number
        self._opened = opened
        self._at = 0

    def fileno(self) -> int:
        return self._number

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, to: int, whence: int = 0, /) -> int:
        self._at = to + (0, self._at, len(self._file.data))[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        found = self._file.data[self._at : self._at + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        self._opened.pop(self._number, None)
        super().close()


class SharedPath(PurePosixPath):
    """What the product uses of `pathlib.Path`, in one folder."""

    folder: ClassVar[SharedFolder]

    def is_file(self) -> bool:
        return str(self) in self.folder.files

    def is_dir(self) -> bool:
        return True

    def iterdir(self) -> list[Self]:
        return [path for path in self.glob("*") if path.parent == self]

    def glob(self, pattern: str) -> list[Self]:
        """See `Path`; here ``*`` stands for any characters."""
        return [type(self)(path) for path in self.folder.files if fnmatchcase(path, pattern)]

    def open(self, _mode: str) -> BinaryIO:
        return self.folder.open(str(self))

    def stat(self) -> Any:
        return self.folder.look(str(self)).stat()
