"""The daemon of this host: where programs reach it that are not told."""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from ringpop_py.base.address import Address, Peer, SocketPath, parse_peer
from ringpop_py.base.arguments import checked_seconds
from ringpop_py.base.config.places import SYSTEM_SOCKET, default_socket
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import ConfigError
from ringpop_py.client.lines.trust import client_context, key_file
from ringpop_py.net.security.identity import MEMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringpop_py.net.security.identity import Role
    from ringpop_py.net.security.sockets import TlsSocket

PEER_VARIABLE: Final = "RINGPOP_PEER"
CONNECT_TIMEOUT_S: Final = 3.0  # as that of a node (`WireLimits`)
GRACE_S: Final = 0.25
"""The seconds that we wait longer than the peer, so that its own time-out error can arrive."""
TTL_S_MIN: Final = 0.001
"""What a call has left at least, in seconds, after waiting for its connection."""
FULL_RETRY_S: Final = 0.01
LOCAL_DAEMON: Final = Address("127.0.0.1", 3000)


def default_peer(environment: Mapping[str, str] = os.environ) -> Peer:
    """Return the daemon that a program calls if it names none.

    That is the one in the variable `PEER_VARIABLE`; else the one that listens at `default_socket`,
    or at that of the system; else `LOCAL_DAEMON`. Raises ConfigError.
    """
    named = environment.get(PEER_VARIABLE)
    if named:
        return parse_peer(named, what=f"${PEER_VARIABLE}")
    for path in dict.fromkeys((default_socket(environment), SYSTEM_SOCKET)):
        if _answers(str(path)):
            return SocketPath(str(path))
    return LOCAL_DAEMON


def _answers(path: str) -> bool:
    """Return whether somebody listens at *path*, as far as this user may know."""
    try:
        connected(SocketPath(path), 0).close()
    except OSError as error:
        return isinstance(error, BlockingIOError)  # its backlog is full
    return True


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


def connected(
    peer: Peer, timeout_s: float, key_file: str | None = None, roles: frozenset[Role] = MEMBERS
) -> socket.socket | TlsSocket:
    """Return a connection to *peer*, with TLS if there is a *key_file*; never by a Unix socket.

    Args:
        roles: those that *peer* may have, by its certificate.

    Raises:
        OSError: *peer* cannot be reached, or TLS fails.
        UnicodeError: the host cannot be a name.
        ConfigError: the file of keys cannot be used.
    """
    if isinstance(peer, Address):
        context = None if key_file is None else client_context(key_file)
        sock = socket.create_connection(peer, timeout=timeout_s)
        # Whole frames are sent, and a small one must not wait for more.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return sock
        from ringpop_py.net.security.sockets import TlsSocket  # noqa: PLC0415 - loads ssl

        return TlsSocket(sock, context, roles)
    sock = socket.socket(socket.AF_UNIX)
    deadline_at = time.monotonic() + timeout_s
    try:
        sock.settimeout(timeout_s)
        while True:
            try:
                sock.connect(peer.path)
            except BlockingIOError:  # its backlog is full, for which such a socket does not wait
                if time.monotonic() >= deadline_at:
                    raise
                time.sleep(FULL_RETRY_S)
            else:
                return sock
    except BaseException:
        sock.close()
        raise


CALL_TIMEOUT_S: Final = 10.0


class BaseClient(ABC):
    """Calls to the daemon at *peer*; by default to the one of this host.

    Args:
        peer: ``host:port``, ``unix:PATH`` of a daemon's Unix socket, or an `Address`. Without it,
            the variable RINGPOP_PEER names it; else it is the daemon whose socket is at its usual
            place, or the one at 127.0.0.1:3000.
        timeout_s: how long an answer may take, unless a call says otherwise.
        cluster_key: the file with the cluster's keys, if it has some; else the variable
            RINGPOP_CLUSTER_KEY names it. Unix sockets need none.

    Attributes:
        is_of_cluster: whether this process is a part of it, though it has no key.
    """

    def __init__(
        self,
        peer: Peer | str | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        limits: WireLimits | None = None,
        cluster_key: str | None = None,
    ) -> None:
        self.peer = peer_of(peer)
        if not checked_seconds(timeout_s, "timeout_s") > 0:
            raise ConfigError(f"timeout_s is above 0, not {timeout_s!r}")
        self.timeout_s = timeout_s
        self.cluster_key = key_file(cluster_key)
        self.is_of_cluster = False
        self.limits = limits or WireLimits()
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Make ready what has the connections."""

    def __reduce__(self) -> tuple[object, ...]:
        return self._made(), (self.peer,)

    def to(self, peer: Peer | str) -> Self:
        """Return a client like this one of another daemon."""
        return self._made()(peer)

    def _made(self) -> partial[Self]:
        return partial(
            type(self),
            timeout_s=self.timeout_s,
            limits=self.limits,
            cluster_key=self.cluster_key or "",  # and not what another process is told to use
        )
