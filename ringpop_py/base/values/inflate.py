"""Compressed data from outside: the one place where it is unpacked, each time with a limit.

Rules for this file: see `ringpop_py.base.values.arrow`.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import BinaryIO, Final, cast

from ringpop_py.base.errors import BodyError

ENDINGS: Final = (".gz", ".zst")
"""The endings of files that `unpacking` reads."""
DAMAGED: Final = (EOFError, OSError, zlib.error)
"""What reading from `unpacking` raises if the content is damaged or is not complete."""


def inflated(data: bytes, bytes_max: int) -> bytes:
    """Return what the zlib stream *data* unpacks to.

    Raises:
        BodyError: if it is not one whole stream, or unpacks to more than *bytes_max* bytes, of
            which no more are unpacked.
    """
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise BodyError(f"it cannot be unpacked: {error}") from None
    if len(unpacked) > bytes_max:
        raise BodyError(f"{len(data)} bytes unpack to more than {bytes_max}")
    if not stream.eof or stream.unused_data:
        raise BodyError("it is not one whole compressed stream")
    return unpacked


def unpacking(file: BinaryIO, ending: str) -> BinaryIO:
    """Return a file of what *file* unpacks to, by its *ending*, which is one of `ENDINGS`.

    Only what is read from it is unpacked, and a buffer: what *file* claims to have is never in
    memory. *file* stays open.

    Raises:
        ImportError: for ``.zst``, without pyarrow.
    """
    if ending == ".gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=file, mode="rb"))
    import pyarrow as pa  # noqa: PLC0415 - only for such files

    # It closes what it reads: the file itself stays open.
    inner = pa.PythonFile(_Kept(file), mode="r")
    return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(inner, "zstd")))


class _Kept(io.RawIOBase):
    """A file that its reader cannot close."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        return self._file.read(size)

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True
