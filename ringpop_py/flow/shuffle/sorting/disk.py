"""Whose a folder is, and how much of the disk files take, counted by what writes and removes them.

Nothing walks through folders that others change meanwhile.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from stat import S_ISDIR
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


class Disk:
    """The use of the disk by files: at most *limit* bytes.

    Attributes:
        growing: the files, or folders of files, that are being written, and who counts them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self.growing: dict[Path, FileSizes] = {}

    @property
    def used_bytes(self) -> int:
        """The size of the files."""
        for path, sizes in self.growing.items():
            sizes.count(path)
        return self._used

    def has_room(self, size: int) -> bool:
        """Return whether *size* bytes more may be written."""
        return self.used_bytes + size <= self._limit

    def grew(self, size: int) -> None:
        """Count *size* bytes more, or fewer."""
        self._used += size


class FileSizes:
    """The sizes of some files on *disk*.

    Attributes:
        bytes: of all of them.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sizes: dict[Path, int] = {}
        self.bytes = 0

    def count(self, path: Path) -> None:
        """Count what is at *path* now: nothing, a file, or a folder of files."""
        size = _size_of(path)
        more = size - self._sizes.pop(path, 0)
        if size:
            self._sizes[path] = size
        self.bytes += more
        self._disk.grew(more)

    def clear(self) -> None:
        """Count nothing any longer."""
        self._disk.grew(-self.bytes)
        self._sizes.clear()
        self.bytes = 0


def _size_of(path: Path) -> int:
    # Threads make and remove the files of a folder: one that is gone again has no size.
    with suppress(FileNotFoundError, NotADirectoryError):
        found = path.stat()
        if S_ISDIR(found.st_mode):
            return sum(map(_size_of, list(path.iterdir())))
        return found.st_size
    return 0


LOCK: Final = "lock"


def locked(folder: Path) -> int:
    """Make *folder*, and lock it; return the descriptor that holds the lock until it is closed.

    Raises:
        BlockingIOError: if another process has it.
        OSError: if it cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise BlockingIOError(f"{folder} is in use by another process") from None
    return lock
