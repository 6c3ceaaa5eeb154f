"""Files as a source: each is a split, which may grow, and a record is a line.

A split is a file, not a path: its name is made of its inode and its first line, so it is the same
after a rename, and another one after the content was replaced. Names have no device: hosts that see
the same file in a network know the device by different numbers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from ringpop_py.base.errors import ConfigError, SourceFailed
from ringpop_py.base.logs import log
from ringpop_py.base.values.inflate import DAMAGED, ENDINGS, unpacking
from ringpop_py.flow.streams.parsing import Parser
from ringpop_py.flow.streams.source import BadRecord, NamedSplit, SplitDiffers, original_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ringpop_py.flow.streams.parsing import Form, KeyRule
    from ringpop_py.flow.streams.source import Record

LINE_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 4 << 20
"""The bytes that are read at a time; the rest of the last line follows."""
SKIP_BYTES_MAX: Final = 64 << 20
"""The most bytes of a line that is too long and left out: a larger one stops its file."""
HEAD_BYTES: Final = 1 << 10
OPEN_MAX: Final = 200
"""The most files that are kept open: a file that was renamed or deleted can be read on only so."""
ENDED_S: Final = 60.0
"""A file that was rotated away is at its end after so many seconds without a change."""
LOST_S: Final = 3600.0
"""The seconds for which a possible loss is shown."""
_INODE_MASK: Final = (1 << 62) - 1


class _Place(NamedTuple):
    """What is at a path since an instant; *head* is the beginning of its content, unpacked."""

    path: Path
    stamp: tuple[int, int, int, int]
    inode: int
    head: bytes
    alias: str
    since: float

    @property
    def name(self) -> str:
        return original_of(self.alias, self.inode)


class _Open:
    """A file that is read here since it was *asked_at*, or was.

    *at* is the position of *file* in its content.
    """

    def __init__(self, place: _Place) -> None:
        self.lock = threading.Lock()
        self.asked_at = time.monotonic()
        self.place = place
        self.raw: BinaryIO = place.path.open("rb")
        self.at = 0
        self.size = 0
        self.read = 0
        self._stamp = 0, 0
        self._still_since = 0.0
        try:
            self.file = unpacked(self.raw, place.path)
            is_plain = self.file is self.raw
            self._head = place.head if is_plain else os.pread(self.raw.fileno(), HEAD_BYTES, 0)
        except BaseException:
            self.raw.close()
            raise

    def __del__(self) -> None:
        """Close it, with its last reader."""
        if hasattr(self, "raw"):
            self.raw.close()

    def seek(self, to: int) -> bool:
        """Go to position *to*; return whether the content has so many bytes."""
        if self.file is self.raw:
            self.size = self.raw.seek(0, 2)
            self.raw.seek(to)
            self.at = to
            return to <= self.size
        if to < self.at:
            self.file, self.at = unpacked(self.raw, self.place.path), 0
        has_it = skip(self.file, to - self.at)
        self.at = to
        return has_it

    def is_still(self) -> bool:
        """Return whether it has not changed for `ENDED_S`, as seen from here.

        The clock of the file server, which sets times of change, may differ from that of this node.
        """
        stat, now = os.fstat(self.raw.fileno()), time.monotonic()
        stamp = stat.st_size, stat.st_mtime_ns
        if stamp != self._stamp:
            self._stamp, self._still_since = stamp, now
        return now - self._still_since >= ENDED_S

    def is_same(self) -> bool:
        """Return whether the content still begins as when the file was found."""
        return os.pread(self.raw.fileno(), len(self._head), 0) == self._head


class Files:
    """The files that match *pattern*, at any time: new ones are found, and all may grow.

    A position is that of the end of a line, in bytes of the unpacked content. A line without its
    end is not read before the file is at its end: rotated away, compressed, or read once as by
    `run_alone`. A renamed file is followed, also to a name that begins with one that matches, or if
    it is open here. ``.gz`` and ``.zst`` are unpacked. All nodes have to see the same files, on one
    file system.

    Args:
        pattern: of paths, with ``*``, ``?`` and ``**``, relative to the folder of the process.
        key: the field of a value that is its key; or a function that returns the key of a value.
        lines: what a line is: ``json``, or ``text``, whose value is the line itself.

    Raises:
        ConfigError: if an argument is not valid, or they do not fit together.
    """

    def __init__(self, pattern: str, *, key: KeyRule, lines: Form = "json") -> None:
        if not pattern:
            raise ConfigError("a pattern of files is empty")
        self.pattern = pattern
        self._given = key, lines
        self._parser = Parser(key, lines)
        self._lock = threading.Lock()
        self._is_bounded = False
        self._places: dict[Path, _Place] = {}
        self._splits: dict[str, NamedSplit] = {}
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._losses: dict[str, float] = {}
        self.awaits = False  # an empty file, whose name will follow from its first line

    def bounded(self) -> Files:
        """Return the present content of the files, which does not grow, as a source."""
        key, lines = self._given
        files = Files(self.pattern, key=key, lines=lines)
        files._is_bounded = True
        return files

    def losses(self) -> list[str]:
        """Return what was lost of late, or may have been."""
        since = time.monotonic() - LOST_S
        # Without the lock, which a thread holds while it waits for the file system: the node asks.
        return [text for text, at in self._losses.copy().items() if at > since]

    # Which files there are.

    def splits(self) -> Sequence[NamedSplit]:
        """See `Source`; the label of a file is its path."""
        try:
            matched = self._matched()
            around = [] if self._is_bounded else self._around(matched)
        except (OSError, ValueError) as error:
            raise SourceFailed(f"{self.pattern}: {error}") from None
        with self._lock:
            self._places, found, unreadable = self._looked_at([*matched, *around])
            nameless = self._places.keys() - found.keys()
            self.awaits = not self._is_bounded and not nameless.isdisjoint(matched)
            before = {name for name, split in self._splits.items() if not split.is_spare}
            shown = {str(path): NamedSplit(str(path)) for path in unreadable}
            for split in self._present(found, set(matched), before):
                shown.setdefault(split, split)  # another path is a link to it
            for gone in self._read_on(self._open.keys() - shown.keys()):
                copies = [c for c in shown.values() if c.is_copy and c.alias == gone.alias]
                if copies and time.monotonic() - self._open[gone].asked_at >= ENDED_S:
                    # Its reader is at another node by now, which does not see it: a copy goes on.
                    self._open.pop(gone).raw.close()
                    continue
                for copy in copies:  # they wait until it was read
                    if copy not in before:
                        del shown[copy]
                shown[gone] = gone
            self._splits = shown
            return sorted(shown.values(), key=lambda split: split.label)

    def _present(
        self, found: dict[Path, _Place], matched: set[Path], before: set[str]
    ) -> Iterator[NamedSplit]:
        """Yield the splits at the paths of *found*, those that match first."""
        names: dict[Path, set[str]] = {}
        likes: dict[str, list[_Place]] = {}
        for path in self._places:
            names.setdefault(path.parent, set()).add(path.name)
        for place in found.values():
            likes.setdefault(place.alias, []).append(place)
        for path, place in found.items():
            if not _is_copy(place, likes[place.alias]):
                rotated = _extends(path.name, names[path.parent])
                yield NamedSplit(
                    place.name,
                    label=str(path),
                    alias=place.alias,
                    is_copy=rotated or is_compressed(path),
                    is_spare=path not in matched and place.name not in before,
                    is_ended=rotated or path not in matched,
                )

    def _read_on(self, names: set[str]) -> list[NamedSplit]:
        """Return those of the splits *names*, to which no path leads, that are not at their end."""
        for name in names:
            if self._is_gone(name):
                del self._open[name]
        return [
            self._splits[each].ended() for each in names & self._open.keys() & self._splits.keys()
        ]

    def _matched(self) -> list[Path]:
        path = Path(self.pattern)
        root = Path(path.anchor) if path.is_absolute() else Path()
        pattern = str(path.relative_to(root)) if path.is_absolute() else self.pattern
        return sorted(found for found in root.glob(pattern) if found.is_file())

    def _around(self, matched: Sequence[Path]) -> list[Path]:
        """Return the files beside those that match whose names begin with theirs."""
        names: dict[Path, set[str]] = {}
        last = Path(self.pattern)
        literal = [] if any(each in self.pattern for each in "*?[") else [last]
        for path in [*matched, *literal, *self._places]:
            names.setdefault(path.parent, set()).add(path.name)
        there = set(matched)
        return sorted(
            path
            for folder, bases in names.items()
            if folder.is_dir()
            for path in folder.iterdir()
            if path not in there and (path in self._places or _extends(path.name, bases))
            if path.is_file()
        )

    def _looked_at(
        self, paths: Sequence[Path]
    ) -> tuple[dict[Path, _Place], dict[Path, _Place], set[Path]]:
        """Return what is at *paths*; those that have a line; and those that cannot be read."""
        seen: dict[Path, _Place] = {}
        unreadable: set[Path] = set()
        for path in paths:
            try:
                seen[path] = self._look(path)
            except FileNotFoundError:
                continue  # renamed since
            except (SourceFailed, *DAMAGED):
                unreadable.add(path)
        names: dict[Path, set[str]] = {}
        for path in seen:
            names.setdefault(path.parent, set()).add(path.name)
        still_since = time.monotonic() - ENDED_S
        for path, place in seen.items():
            # What was rotated away before its first line had an end: that is all it has.
            is_left = not place.alias and place.head and place.since <= still_since
            if is_left and _extends(path.name, names[path.parent]):
                seen[path] = place._replace(alias=_alias_of(place.head))
        found = {path: place for path, place in seen.items() if place.alias}
        return seen, found, unreadable

    def _look(self, path: Path) -> _Place:
        stat = path.stat()
        stamp = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
        before = self._places.get(path)
        if before is not None and before.stamp == stamp:
            return before
        with path.open("rb") as raw:
            inode = os.fstat(raw.fileno()).st_ino & _INODE_MASK
            head = unpacked(raw, path).read(HEAD_BYTES) if stat.st_size else b""
        line = head[: head.find(b"\n") + 1] or head
        is_whole = line.endswith(b"\n") or len(line) == HEAD_BYTES
        has_line = is_whole or (line and (self._is_bounded or is_compressed(path)))
        return _Place(
            path, stamp, inode, head, _alias_of(line) if has_line else "", time.monotonic()
        )

    def _is_gone(self, name: str) -> bool:
        """Return whether a file that no path leads to is at its end, and close it if so."""
        opened = self._open[name]
        with opened.lock:
            is_still = opened.is_still()
            if not opened.is_same():
                self._lose(opened, "was cut or overwritten")
            elif not is_still or opened.read < opened.size:
                return False
            opened.raw.close()
        return True

    def _lose(self, opened: _Open, what: str) -> None:
        unread = opened.size - opened.read
        how_much = f"{unread} bytes" if unread > 0 else "what came just before"
        text = f"{opened.place.path} {what}: {how_much} may be lost, unless a copy beside it has it"
        log.warning("stream-loss", path=str(opened.place.path), text=text)
        self._losses[text] = time.monotonic()

    # What is in them.

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """See `Source`."""
        about = self._splits.get(split)
        title = about.label if about is not None else split
        try:
            opened = self._opened(split)
            with opened.lock:
                if opened.raw.closed:
                    raise SourceFailed(f"{title} was just closed")
                opened.asked_at = time.monotonic()
                is_ended = self._is_ended(about, opened)
                return self._lines(opened, title, after, limit, is_ended=is_ended)
        except DAMAGED as error:
            why = getattr(error, "strerror", None) or error
            raise SourceFailed(f"{title}: {why}") from None

    def _is_ended(self, about: NamedSplit | None, opened: _Open) -> bool:
        if self._is_bounded or opened.file is not opened.raw:
            return True
        is_still = opened.is_still()  # also while it grows, which is seen here
        return about is not None and about.is_ended and is_still

    def _opened(self, split: str) -> _Open:
        with self._lock:
            opened = self._open.get(split)
            if opened is not None:
                self._open.move_to_end(split)
                return opened
            place = next((each for each in self._places.values() if each.name == split), None)
            if place is None:
                path = Path(split)
                self._look(path)  # says what is wrong
                raise SourceFailed(f"{split} is not there any more")
            opened = _Open(place)
            # It may have been renamed or replaced since.
            is_it = os.fstat(opened.raw.fileno()).st_ino & _INODE_MASK == place.inode
            if not (is_it and opened.is_same()):
                opened.raw.close()
                raise SourceFailed(f"{place.path} was just renamed or replaced")
            self._open[split] = opened
            if len(self._open) > OPEN_MAX:
                _, oldest = self._open.popitem(last=False)
                with oldest.lock:
                    oldest.raw.close()
            return opened

    def _lines(
        self, opened: _Open, title: str, after: int, limit: int, *, is_ended: bool
    ) -> list[Record | BadRecord]:
        if not opened.is_same():
            raise SourceFailed(f"{title} was cut or overwritten: it begins anew")
        if not opened.seek(max(after - 1, 0)) or 0 < opened.size < after:
            raise SplitDiffers(
                f"{title} has less than the {after} bytes that were read before: it was cut, and "
                "begins with the same line; give the new content another name, or first line"
            )
        if after:
            opened.at += 1
            if opened.file.read(1) != b"\n" and opened.file.read(1):
                raise SplitDiffers(
                    f"{title} has no end of a line at {after}, where one was read before: it was "
                    "replaced, or has grown after its end; give the new content another name"
                )
        found = list(self._records(opened, title, limit, is_ended=is_ended))
        if not opened.is_same():  # while it was read
            raise SourceFailed(f"{title} was cut or overwritten: it begins anew")
        opened.read = max(opened.read, found[-1].position if found else after)
        return found

    def _records(
        self, opened: _Open, title: str, limit: int, *, is_ended: bool
    ) -> Iterator[Record | BadRecord]:
        file, start, count = opened.file, opened.at, 0
        while count < limit and opened.at - start < READ_BYTES:
            line = file.readline(LINE_BYTES_MAX)
            size, has_end = len(line), line.endswith(b"\n")
            if not has_end and size == LINE_BYTES_MAX:
                more, has_end = _rest_of_line(file, title)
                size += more
            if not has_end and not (is_ended and line):
                # A file that grows is read from here again: `at` is no longer where `file` is.
                opened.at = 1 << 62 if size else opened.at
                return
            opened.at += size
            if size > LINE_BYTES_MAX:
                why = f"the line has {size} bytes, of at most {LINE_BYTES_MAX}"
                yield BadRecord(opened.at, why, line[:HEAD_BYTES].decode(errors="replace"))
            elif not line.isspace():
                yield self._parser.record(opened.at, line)
            else:
                continue
            count += 1


def _alias_of(line: bytes) -> str:
    return f"file:{blake2b(line, digest_size=8).hexdigest()}"


def _rest_of_line(file: BinaryIO, title: str) -> tuple[int, bool]:
    """Read on to the end of a line, without keeping it; return its bytes, and whether it ends."""
    size = 0
    while piece := file.readline(LINE_BYTES_MAX):
        size += len(piece)
        if piece.endswith(b"\n"):
            return size, True
        if size > SKIP_BYTES_MAX:
            raise SourceFailed(f"{title}: a line has more than {SKIP_BYTES_MAX} bytes")
    return size, False


def _extends(name: str, bases: set[str]) -> bool:
    """Return whether *name* is one of *bases* and what a rotation adds to it: ``.1``, ``-DATE``."""
    return any(name[size] in ".-_" and name[:size] in bases for size in range(1, len(name)))


def _is_copy(place: _Place, places: Iterable[_Place]) -> bool:
    """Return whether *place* is, so far, a copy of a file that is still there, too."""
    for other in places:
        if other.inode == place.inode:
            continue
        path, base = place.path, other.path
        common = min(len(place.head), len(other.head))
        is_beside = path.parent == base.parent and _extends(path.name, {base.name})
        if is_beside and place.head[:common] == other.head[:common]:
            return True
    return False


SKIP_BYTES: Final = 1 << 20


def is_compressed(path: Path) -> bool:
    """Return whether the ending of *path* says that its content is compressed."""
    return path.suffix in ENDINGS


def unpacked(raw: BinaryIO, path: Path) -> BinaryIO:
    """Return the content of *raw*, the open file at *path*, to be read on from its beginning.

    Raises:
        SourceFailed: if this process has no decoder for it.
    """
    raw.seek(0)
    try:
        return unpacking(raw, path.suffix) if is_compressed(path) else raw
    except ImportError:
        raise SourceFailed(
            f"{path}: reading {path.suffix} needs pyarrow: pip install 'ringpop_py[state]'"
        ) from None


def skip(file: BinaryIO, count: int) -> bool:
    """Read *count* bytes of *file* and forget them; return whether it had so many."""
    while count:
        piece = len(file.read(min(count, SKIP_BYTES)))
        if not piece:
            return False
        count -= piece
    return True
