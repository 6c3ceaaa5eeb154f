"""The file of a segment: frames in the order in which they came, and a part of them in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ringpop_py.errors import BodyError
from ringpop_py.sorting.frames import HEAD_BYTES, Bytes, Entry, Frame, entry_at, frame_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.shuffle.messages import FrameId


class SegmentFile:
    """See the module. Its methods may be called in threads, but one at a time, except `read`.

    Attributes:
        entries: the frames that are in it whole, by id.
        bytes: how long it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[FrameId, Entry] = {}
        self.bytes = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, data: Bytes) -> None:
        """Add the frame in *data* (`entry_of`), unless it is there already.

        Raises:
            OSError: if it cannot be written. The file is as before.
        """
        entry = entry_at(data, 0, self.bytes)
        if entry.id in self.entries:
            return
        try:
            _write_all(self._file, data, self.bytes)
        except OSError:
            os.ftruncate(self._file, self.bytes)
            raise
        self.entries[entry.id] = entry
        self.bytes = entry.end

    def read(self, entry: Entry) -> Frame:
        """Return the frame at *entry*. Raises BodyError if it is damaged, OSError."""
        return frame_in(os.pread(self._file, entry.end - entry.offset, entry.offset), entry)

    def points(self) -> Iterator[bytes]:
        """Return what sums up each frame."""
        for entry in list(self.entries.values()):
            if entry.rows:
                yield os.pread(self._file, entry.points_bytes, entry.offset + HEAD_BYTES)

    def adopt(self) -> None:
        """Find the frames in a file that was fetched.

        Raises:
            BodyError: if one is damaged, or not whole.
        """
        size = os.fstat(self._file).st_size
        while self.bytes < size:
            entry = entry_at(os.pread(self._file, HEAD_BYTES, self.bytes), 0, self.bytes)
            if entry.end > size:
                raise BodyError(f"frame {entry.id} is cut off")
            self.read(entry)
            self.entries[entry.id] = entry
            self.bytes = entry.end

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


def _write_all(file: int, data: Bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count
