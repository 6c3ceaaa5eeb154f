"""A disk that is soon full."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Disk:
    """A file system of its own; ``disk / "name"`` is a path on it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __truediv__(self, name: str) -> Path:
        return self._path / name

    def fill(self) -> None:
        """Take all the room there is."""
        with (self / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give it back."""
        (self / "filler").unlink()


@contextlib.contextmanager
def small_disk(path: Path, *, mebibytes: int) -> Iterator[Disk]:
    """A small disk in memory at *path*; the test is skipped where nothing may be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
