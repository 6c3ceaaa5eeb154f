"""A folder of shuffles belongs to one process at a time."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

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
