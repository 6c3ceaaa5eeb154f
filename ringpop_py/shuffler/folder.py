"""The files of one shuffle at one process, in a folder of their own for each life of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ringpop_py.shuffle.messages import Forget
from ringpop_py.sorting.segment import SegmentFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ringpop_py.shuffle.messages import Change


class ShuffleFolder:
    """See the module. It follows what its `ShuffleMember` says.

    Attributes:
        segments: the open files, by number.
    """

    def __init__(self, path: Path) -> None:
        self._root = path
        self._life = -1
        self._names = 0
        self.segments: dict[int, SegmentFile] = {}
        self.begin(0)

    def begin(self, life: int) -> None:
        """Start with an empty folder for *life*. Raises OSError."""
        self.close()
        shutil.rmtree(self._root, ignore_errors=True)
        self._life = life
        for kind in ("segments", "slices", "intervals", "new"):
            (self._path / kind).mkdir(parents=True)

    @property
    def _path(self) -> Path:
        return self._root / str(self._life)

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments.values():
            segment.close()
        self.segments = {}

    def remove(self) -> None:
        """Delete everything."""
        self.close()
        shutil.rmtree(self._root, ignore_errors=True)

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
                    segment.path.unlink(missing_ok=True)
            for interval, number in change.slices:
                self.slice(interval, number).unlink(missing_ok=True)
            for number in change.intervals:
                self.interval(number).unlink(missing_ok=True)

    def bytes_held(self) -> int:
        """Return the size of all files together."""
        return sum(file.stat().st_size for file in self._path.rglob("*") if file.is_file())

    def segment(self, number: int) -> SegmentFile:
        """Return the file of segment *number*, which is made if it is not there. Raises OSError."""
        segment = self.segments.get(number)
        if segment is None:
            segment = self.segments[number] = SegmentFile(self._path / "segments" / str(number))
        return segment

    def adopt(self, number: int, fetched: SegmentFile) -> None:
        """Put *fetched* in place of the file of segment *number*. Raises OSError."""
        former = self.segments.pop(number, None)
        if former is not None:
            former.close()
        fetched.move(self._path / "segments" / str(number))
        self.segments[number] = fetched

    def slice(self, interval: int, number: int) -> Path:
        """Return the path of the parts that segment *number* has of an interval."""
        return self._path / "slices" / f"{interval}-{number}"

    def interval(self, number: int) -> Path:
        """Return the path of the file of an interval."""
        return self._path / "intervals" / str(number)

    def new(self) -> Path:
        """Return a path for a file that is made before it is known whether it counts."""
        self._names += 1
        return self._path / "new" / str(self._names)
