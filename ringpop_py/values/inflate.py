"""Compressed data from outside: the one place where it is unpacked, each time with a limit.

Rules for this file: see `ringpop_py.values.arrow`.
"""

from __future__ import annotations

import zlib

from ringpop_py.errors import BodyError


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
