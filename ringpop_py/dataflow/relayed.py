"""Frames between a node and its process for Arrow Flight: head and body; one byte answers."""

from __future__ import annotations

import struct
from typing import Final

from ringpop_py.errors import BadElement

FIXED: Final = struct.Struct("<IQ")
HEAD_BYTES_MAX: Final = 1 << 16
BODY_BYTES_MAX: Final = 64 << 20
TOKEN_BYTES: Final = 32
NOT_TAKEN: Final = 0
TAKEN: Final = 1
OVER: Final = 2
"""The answers to an element: send it again; it is in its queue; its run is over."""


def frame(head: bytes, body: bytes) -> bytes:
    """Return a frame."""
    return FIXED.pack(len(head), len(body)) + head + body


def sizes_in(fixed: bytes) -> tuple[int, int]:
    """Return the sizes of head and body. Raises BadElement."""
    head, body = FIXED.unpack(fixed)
    if head > HEAD_BYTES_MAX or body > BODY_BYTES_MAX:
        raise BadElement(f"a frame of {head} and {body} bytes is too long")
    return head, body
