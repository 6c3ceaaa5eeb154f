"""The file of a segment: frames in the order in which they came."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from ringpop_py.base.errors import BodyError
from ringpop_py.flow.shuffle.sorting.frames import (
    HEAD_BYTES,
    Bytes,
    Entry,
    Frame,
    entry_at,
    frame_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.messages import FrameId


class SegmentFile:
    """See the module. Threads may share it; after `close`, methods raise OSError.

    `frame_builder.check_frame` has checked every frame in it, before it was appended or adopted.

    Attributes:
        entries: the frames that are in it whole, by id.
        bytes: its length.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[FrameId, Entry] = {}
        self.bytes = 0
        self._lock = Lock()
        self._is_open = True
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, data: Bytes) -> None:
        """Add the frame in *data* (`entry_of`), unless it is there already.

        Raises:
            OSError: if it cannot be written. The file is as before.
        """
        with self._held() as file:
            entry = entry_at(data, 0, self.bytes)
            if entry.id in self.entries:
                return
            try:
                _write_all(file, data, self.bytes)
            except OSError:
                os.ftruncate(file, self.bytes)
                raise
            self.entries[entry.id] = entry
            self.bytes = entry.end

    def read(self, entry: Entry) -> Frame:
        """Return the frame at *entry*. Raises BodyError if it is damaged, OSError."""
        with self._held() as file:
            data = os.pread(file, entry.end - entry.offset, entry.offset)
        return frame_in(data, entry)

    def points(self) -> Iterator[bytes]:
        """Yield the keys that sum up each frame."""
        for entry in list(self.entries.values()):
            if entry.rows:
                with self._held() as file:
                    points = os.pread(file, entry.points_bytes, entry.offset + HEAD_BYTES)
                yield points

    @classmethod
    def adopted(cls, path: Path, check: Callable[[Frame], None]) -> SegmentFile:
        """Return the segment whose file was fetched to *path*.

        Args:
            check: raises if a frame cannot be believed.

        Raises:
            BodyError: if a frame is damaged, or not whole.
            OSError: if it cannot be read.
        """
        segment = cls(path)
        try:
            segment.adopt(check)
        except BaseException:
            segment.close()
            raise
        return segment

    def adopt(self, check: Callable[[Frame], None]) -> None:
        """Find the frames in a file that was fetched. Raises as `adopted`."""
        with self._held() as file:
            size = os.fstat(file).st_size
        while self.bytes < size:
            with self._held() as file:
                head = os.pread(file, HEAD_BYTES, self.bytes)
            entry = entry_at(head, 0, self.bytes)
            if entry.end > size:
                raise BodyError(f"frame {entry.id} is cut off")
            check(self.read(entry))
            self.entries[entry.id] = entry
            self.bytes = entry.end

    def move(self, path: Path) -> None:
        """Move the file to *path*. Raises OSError."""
        self.path.replace(path)
        self.path = path

    def close(self) -> None:
        """Close it, when no other thread is at work on it."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self._file)

    @contextmanager
    def _held(self) -> Iterator[int]:
        # A descriptor that was closed soon stands for another file, so a closed one is never used.
        with self._lock:
            if not self._is_open:
                raise OSError(errno.EBADF, f"segment {self.path.name} is closed")
            yield self._file


def _write_all(file: int, data: Bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count
