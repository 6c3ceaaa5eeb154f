"""Files of parts: what segments have of an interval, until its owner merges it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values.declared import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringpop_py.flow.shuffle.sorting.frames import Bytes


class Part(NamedTuple):
    """The rows of several frames of one segment in one interval.

    Attributes:
        frames: which they are, and how many rows of each.
        body: the rows, frame after frame, each in order.
    """

    frames: tuple[tuple[int, int, int], ...]
    body: Bytes


_HEAD: Final = struct.Struct("<IQ")
"""Bytes of the list of frames, and of the rows."""


def entry_of_part(part: Part) -> tuple[bytes, Bytes]:
    """Return *part* as it lies in a file, in two pieces."""
    frames = encode(part.frames)
    return _HEAD.pack(len(frames), len(part.body)) + frames, part.body


def parts_in(path: Path) -> Iterator[Part]:
    """Return the parts in the file at *path*; the file is empty if nothing was pushed.

    Raises:
        BodyError: if the file is damaged.
        OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            if len(head) < _HEAD.size:
                raise BodyError(f"{path.name} is cut off")
            frames_bytes, body_bytes = _HEAD.unpack(head)
            frames = decode(tuple[tuple[int, int, int], ...], file.read(frames_bytes))
            body = file.read(body_bytes)
            if len(body) < body_bytes:
                raise BodyError(f"{path.name} is cut off")
            yield Part(frames, body)
