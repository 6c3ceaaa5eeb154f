"""Who is at the other end of a connection, by what the system tells of it."""

from __future__ import annotations

import socket
import struct

from ringpop_py.base.address import Address
from ringpop_py.net.security.identity import Identity, Role


def user_of(sock: socket.socket) -> Identity | None:
    """Return who is at the other end of a Unix socket, which admits its owner alone; else None."""
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):  # only Linux tells
        return None
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user_id, _ = struct.unpack("3i", told)
    return Identity("", Role.ADMIN, f"user {user_id}")


def is_this_machine(host: str) -> bool:
    """Return whether a connection from *host* comes from this machine; empty: by a Unix socket."""
    return host == "" or Address(host, 0).is_loopback
