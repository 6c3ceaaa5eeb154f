"""How two ends introduce themselves: the init frames, and what each of them has to say.

Malformed frames are refused here; whether a peer is welcome is decided by the owner of the
connection.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ConfigError
from ringpop_py.net.wire.frames import VERSION, Cursor, frame, malformed, u16

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_LISTENER: Final = "0.0.0.0:0"
"""The `host_port` of an end that only calls."""

PROTOCOL_VERSION: Final = 1
"""The version of the native dialect's messages. It counts up with each change that an older member
cannot read; a new last field is not such a change, because older members ignore it."""
PROTOCOL: Final = "ringpop_py_protocol"
"""The init header with this version. Callers that are not members do not send it."""

HOST_PORT: Final = "host_port"
PROCESS_NAME: Final = "process_name"
LANGUAGE_HEADERS: Final = {
    "tchannel_language": "python",
    "tchannel_language_version": "{}.{}.{}".format(*sys.version_info),
    "tchannel_version": "ringpop_py",
}


def own_headers(host_port: str, process_name: str, more: Mapping[str, str]) -> Mapping[str, str]:
    """Return the init headers of an end of this implementation, and *more*."""
    own = {HOST_PORT: host_port, PROCESS_NAME: process_name, **LANGUAGE_HEADERS}
    return MappingProxyType(own | dict(more))


def listening_address(host_port: str) -> Address | None:
    """Return where a peer says that it listens; None if nowhere, or if it cannot be parsed."""
    try:
        address = Address.parse(host_port)
    except ConfigError:
        return None
    return address if address.port and address.host != "0.0.0.0" else None  # noqa: S104


def protocol_refusal(headers: Mapping[str, str]) -> str | None:
    """Return why a peer with these init headers cannot be understood; None if it can."""
    theirs = headers.get(PROTOCOL)
    if theirs in (None, str(PROTOCOL_VERSION)):
        return None
    return f"version {PROTOCOL_VERSION} of the protocol is spoken here, not version {theirs!r:.20}"


def init_frame(kind: int, frame_id: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return an init req or init res."""
    texts = [text.encode() for pair in headers for text in pair]
    sized = b"".join(u16(len(text)) + text for text in texts)
    return frame(kind, frame_id, u16(VERSION) + u16(len(texts) // 2) + sized)


def read_init(data: bytes, start: int, stop: int, *, headers_max: int) -> Mapping[str, str]:
    """Return the headers of the init req or init res whose payload lies there.

    Raises:
        WireError: it is malformed, of another version, or does not name the peer.
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
