"""The files of one shuffle at one process, in a folder of their own for each life of it."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from ringpop_py.flow.shuffle.protocol.messages import Forget
from ringpop_py.flow.shuffle.sorting.disk import Disk, FileSizes
from ringpop_py.flow.shuffle.sorting.segment import SegmentFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ringpop_py.flow.shuffle.protocol.messages import Change, HeldFiles
    from ringpop_py.flow.shuffle.sorting.frames import Bytes


class ShuffleFolder:
    """See the module. It follows what its `ShuffleMember` says.

    Files are written, moved and removed by its methods alone, which count their sizes.

    Attributes:
        segments: the open files, by number.
        sizes: of all files.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._root = path
        self._disk = disk
        self._life = -1
        self._names = 0
        self.sizes = FileSizes(disk)
        self.segments: dict[int, SegmentFile] = {}
        self.begin(0)

    def begin(self, life: int) -> None:
        """Start with an empty folder for *life*. Raises OSError."""
        self.remove()
        self._life = life
        self._make_folders()

    def _make_folders(self) -> None:
        for kind in ("segments", "slices", "intervals", "new"):
            (self._path / kind).mkdir(parents=True, exist_ok=True)

    @property
    def _path(self) -> Path:
        return self._root / str(self._life)

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments.values():
            segment.close()
        self.segments = {}

    def remove(self) -> None:
        """Delete everything. What threads still do with the files no longer counts."""
        self.close()
        shutil.rmtree(self._root, ignore_errors=True)
        self.sizes.clear()
        self._life = -1

    def _count(self, path: Path) -> None:
        if self._path in path.parents:  # otherwise, it was of a life that has ended
            self.sizes.count(path)

    def carry_out(self, changes: Iterable[Change]) -> None:
        """Delete what *changes* say. Raises OSError."""
        for change in changes:
            if isinstance(change, Forget):
                self.begin(change.life + 1)
                continue
            for number in change.segments:
                segment = self.segments.pop(number, None)
                if segment is not None:
                    segment.close()
                    self.drop(segment.path)
            for interval, number in change.slices:
                self.drop(self.slice(interval, number))
            for number in change.intervals:
                self.drop(self.interval(number))

    def gone(self, files: HeldFiles) -> Path | None:
        """Return one of *files* that is gone, if one is; make their folders anew.

        Raises:
            OSError: if they cannot be made.
        """
        self._make_folders()
        paths = [self._segment(number) for number in files.segments]
        paths += (self.slice(*each) for each in files.slices)
        paths += map(self.interval, files.intervals)
        return next((path for path in paths if not path.exists()), None)

    def segment(self, number: int) -> SegmentFile:
        """Return the file of segment *number*, which is made if it is not there. Raises OSError."""
        segment = self.segments.get(number)
        if segment is None:
            segment = self.segments[number] = SegmentFile(self._segment(number))
        return segment

    def _segment(self, number: int) -> Path:
        return self._path / "segments" / str(number)

    async def append(self, number: int, frame: Bytes) -> None:
        """Add *frame* to segment *number*, unless it has it. Raises OSError."""
        segment = self.segment(number)
        try:
            await trio.to_thread.run_sync(segment.append, frame)
        finally:
            self._count(segment.path)

    def adopt(self, number: int, fetched: SegmentFile) -> None:
        """Put *fetched* in place of the file of segment *number*. Raises OSError."""
        former = self.segments.pop(number, None)
        if former is not None:
            former.close()
        fetched.move(self._segment(number))
        self.segments[number] = fetched
        self._count(fetched.path)

    def slice(self, interval: int, number: int) -> Path:
        """Return the path of the parts that segment *number* has of an interval."""
        return self._path / "slices" / f"{interval}-{number}"

    def interval(self, number: int) -> Path:
        """Return the path of the file of an interval."""
        return self._path / "intervals" / str(number)

    def unnamed(self) -> Path:
        """Return a path for a file that is made before it is known whether it counts."""
        self._names += 1
        return self._path / "new" / str(self._names)

    @contextmanager
    def new(self) -> Iterator[Path]:
        """Yield a path for a file that others make; it is removed in the end unless it was moved.

        It lies in a folder of its own, as does what else they need to make it.
        """
        place = self.unnamed()
        place.mkdir()
        self._disk.growing[place] = self.sizes
        try:
            yield place / "file"
        finally:
            del self._disk.growing[place]
            try:
                place.rmdir()
            except OSError:
                shutil.rmtree(place, ignore_errors=True)
            self._count(place)

    def begun(self) -> Path:
        """Make an empty file to `extend`, and return its path. Raises OSError."""
        path = self.unnamed()
        path.touch()
        return path

    async def extend(self, path: Path, pieces: Iterable[Bytes]) -> None:
        """Add *pieces* to the file at *path*. Raises OSError: FileNotFoundError if it is gone."""
        try:
            await trio.to_thread.run_sync(_extend, path, pieces)
        finally:
            self._count(path)

    def keep(self, path: Path, as_path: Path) -> None:
        """Move the file at *path*. Raises OSError."""
        path.replace(as_path)
        self._count(path)
        self._count(as_path)

    def drop(self, path: Path) -> None:
        """Remove the file at *path*, if there is one. Raises OSError."""
        path.unlink(missing_ok=True)
        self._count(path)


def _extend(path: Path, pieces: Iterable[Bytes]) -> None:
    with path.open("r+b") as file:  # not made anew: what was in it before would be missing
        file.seek(0, os.SEEK_END)
        for piece in pieces:
            file.write(piece)
