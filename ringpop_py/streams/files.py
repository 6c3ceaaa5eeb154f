"""Files as a source: each is a split, which may grow, and a record is a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py.errors import ConfigError, SourceFailed
from ringpop_py.streams.parsing import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.streams.parsing import Form, KeyRule
    from ringpop_py.streams.source import BadRecord, Record

LINE_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 4 << 20
"""The bytes that are read at a time; the rest of the last line follows."""


class Files:
    """The files that match *pattern*, at any time: new ones are found, and all may grow.

    A position is that of the end of a line, in bytes. A line without its end is not read yet. Files
    may only grow at their end, and keep their names. All nodes have to see the same files.

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
        self._parser = Parser(key, lines)

    def splits(self) -> Sequence[str]:
        """See `Source`; a file's name is its path."""
        path = Path(self.pattern)
        root = Path(path.anchor) if path.is_absolute() else Path()
        pattern = str(path.relative_to(root)) if path.is_absolute() else self.pattern
        try:
            return sorted(str(found) for found in root.glob(pattern) if found.is_file())
        except (OSError, ValueError) as error:
            raise SourceFailed(f"{self.pattern}: {error}") from None

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """See `Source`."""
        found: list[Record | BadRecord] = []
        try:
            with Path(split).open("rb") as file:
                size = file.seek(0, 2)
                if size < after:
                    raise SourceFailed(
                        f"{split} has {size} bytes, and {after} were read before: it was "
                        "replaced or cut; give the new file another name"
                    )
                file.seek(max(after - 1, 0))
                if after and file.read(1) != b"\n":
                    raise SourceFailed(
                        f"{split} has no end of a line at {after}, where one was read before: it "
                        "was replaced; give the new file another name"
                    )
                at = after  # not `tell`, which asks the system
                while len(found) < limit and at - after < READ_BYTES:
                    line = file.readline(LINE_BYTES_MAX)
                    if not line.endswith(b"\n"):
                        self._check_end(split, line)
                        break
                    at += len(line)
                    if not line.isspace():
                        found.append(self._parser.record(at, line))
        except OSError as error:
            raise SourceFailed(f"{split}: {error.strerror or error}") from None
        return found

    @staticmethod
    def _check_end(split: str, line: bytes) -> None:
        if len(line) == LINE_BYTES_MAX:
            raise SourceFailed(f"{split}: a line has more than {LINE_BYTES_MAX} bytes")
