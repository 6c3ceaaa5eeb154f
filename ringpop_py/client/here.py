"""The daemon of this host: where programs reach it that are not told."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from ringpop_py.address import Address, Peer, SocketPath, parse_peer
from ringpop_py.config.places import SYSTEM_SOCKET, default_socket
from ringpop_py.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PEER_VARIABLE: Final = "RINGPOP_PEER"
LOCAL_DAEMON: Final = Address("127.0.0.1", 3000)


def default_peer(environment: Mapping[str, str] = os.environ) -> Peer:
    """Return the daemon that a program calls if it names none.

    That is the one in the variable `PEER_VARIABLE`; else the one at `default_socket`, or at that of
    the system, if there is such a file; else `LOCAL_DAEMON`. Raises ConfigError.
    """
    named = environment.get(PEER_VARIABLE)
    if named:
        return parse_peer(named, what=f"${PEER_VARIABLE}")
    for path in dict.fromkeys((default_socket(environment), SYSTEM_SOCKET)):
        if path.is_socket():
            return SocketPath(str(path))
    return LOCAL_DAEMON


def peer_of(given: Peer | str | None, what: str = "peer") -> Peer:
    """Return the daemon that *given* names; without one, `default_peer`. Raises ConfigError."""
    match given:
        case None:
            return default_peer()
        case str():
            return parse_peer(given, what=what)
        case Address() | SocketPath():
            return given
    raise ConfigError(f"{what} is one address, HOST:PORT or unix:PATH, not {given!r}")


def connected(peer: Peer, timeout_s: float) -> socket.socket:
    """Return a connection to *peer*. Raises OSError, or UnicodeError if a host cannot be a name."""
    if isinstance(peer, Address):
        sock = socket.create_connection(peer, timeout=timeout_s)
        # Whole frames are sent, and a small one must not wait for more.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout_s)
        sock.connect(peer.path)
    except BaseException:
        sock.close()
        raise
    return sock
