"""Opens files whose ending says that they are compressed, and reads them in bounded pieces."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from ringpop_py.errors import SourceFailed

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS: Final = (".gz", ".zst")
SKIP_BYTES: Final = 1 << 20
DAMAGED: Final = (EOFError, OSError, zlib.error)
"""What reading raises if the content is not what the ending says, or is not complete."""


def is_compressed(path: Path) -> bool:
    """Return whether the ending of *path* says that its content is compressed."""
    return path.suffix in ENDINGS


def unpacked(raw: BinaryIO, path: Path) -> BinaryIO:
    """Return the content of *raw*, the open file at *path*, to be read on from its beginning.

    Only what a reader asks for is unpacked, and a buffer: what a file claims to have is never in
    memory.

    Raises:
        SourceFailed: if this process has no decoder for it.
    """
    raw.seek(0)
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb"))
    if path.suffix == ".zst":
        try:
            import pyarrow as pa  # noqa: PLC0415 - only for such files
        except ImportError:
            raise SourceFailed(
                f"{path}: reading .zst needs pyarrow: pip install 'ringpop_py[state]'"
            ) from None
        # It closes what it reads: the file itself stays open.
        inner = pa.PythonFile(_Kept(raw), mode="r")
        return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(inner, "zstd")))
    return raw


def skip(file: BinaryIO, count: int) -> bool:
    """Read *count* bytes of *file* and forget them; return whether it had so many."""
    while count:
        piece = len(file.read(min(count, SKIP_BYTES)))
        if not piece:
            return False
        count -= piece
    return True


class _Kept(io.RawIOBase):
    """A file that its reader cannot close."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        return self._raw.read(size)

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True
