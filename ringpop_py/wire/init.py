"""How two ends introduce themselves: the init frames, and what each of them has to say.

Rules for this file: what is malformed is refused here; whether a peer is welcome is decided by
the owner of the connection.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ringpop_py.wire.frames import VERSION, Cursor, frame, malformed, u16

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_LISTENER: Final = "0.0.0.0:0"
"""The `host_port` of an end that only calls."""

PROTOCOL_VERSION: Final = 1
"""Of what members of the native dialect say to each other. It counts up with each change that an
older member cannot read; a field behind all others is none, for older members ignore it."""
PROTOCOL: Final = "ringpop_py_protocol"
"""The init header with this version; who does not say it speaks version 1."""

HOST_PORT: Final = "host_port"
PROCESS_NAME: Final = "process_name"
LANGUAGE_HEADERS: Final = {
    "tchannel_language": "python",
    "tchannel_language_version": "{}.{}.{}".format(*sys.version_info),
    "tchannel_version": "ringpop_py",
}


def own_headers(host_port: str, process_name: str, more: Mapping[str, str]) -> Mapping[str, str]:
    """What an end of this implementation tells of itself, and *more*."""
    own = {HOST_PORT: host_port, PROCESS_NAME: process_name, **LANGUAGE_HEADERS}
    return MappingProxyType(own | dict(more))


def protocol_refusal(headers: Mapping[str, str]) -> str | None:
    """Why a peer that introduces itself so cannot be understood; None if it can."""
    theirs = headers.get(PROTOCOL, "1")
    if theirs == str(PROTOCOL_VERSION):
        return None
    return f"version {PROTOCOL_VERSION} of the protocol is spoken here, not version {theirs!r:.20}"


def init_frame(kind: int, frame_id: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """An init req or init res."""
    parts = [u16(VERSION), u16(len(headers))]
    for pair in headers:
        for raw in map(str.encode, pair):
            parts += (u16(len(raw)), raw)
    return frame(kind, frame_id, b"".join(parts))


def read_init(data: bytes, start: int, stop: int, *, headers_max: int) -> Mapping[str, str]:
    """The headers of the init req or init res whose payload lies there.

    Raises:
        WireError: if it is malformed, of another version, or does not say who the peer is.
    """
    cursor = Cursor(data, start, stop)
    version = cursor.u16()
    if version != VERSION:
        malformed(f"this end speaks version {VERSION}, not {version}")
    count = cursor.u16()
    if count > headers_max:
        malformed(f"{count} init headers are more than {headers_max}")
    headers: dict[str, str] = {}
    for _ in range(count):
        key = cursor.text2()
        if key in headers:
            malformed("an init header is there twice")
        headers[key] = cursor.text2()
    for key in (HOST_PORT, PROCESS_NAME):
        if key not in headers:
            malformed(f"the init header {key} is missing")
    return MappingProxyType(headers)
