"""Blocking sockets with TLS, for programs that are no members."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from ringpop_py.net.security.clock import EXPIRED, wall_s
from ringpop_py.net.security.credentials import end_of, explained
from ringpop_py.net.security.identity import identity_in, refusal_of

if TYPE_CHECKING:
    from ringpop_py.net.security.identity import Role

WAITS: Final = ssl.SSLWantReadError, ssl.SSLWantWriteError


class TlsSocket:
    """A blocking socket with TLS, as `Client` uses sockets.

    Args:
        roles: those that the peer may have.

    Raises:
        OSError: the two do not agree, or the peer has none of *roles*.
    """

    def __init__(
        self, plain: socket.socket, context: ssl.SSLContext, roles: frozenset[Role]
    ) -> None:
        try:
            self._tls = context.wrap_socket(plain)
        except ssl.SSLError as error:
            plain.close()
            raise ConnectionError(explained(error)) from None
        certificate = self._tls.getpeercert()
        self._ends_at = end_of(certificate)
        why = refusal_of(identity_in(certificate), "", roles)
        if why is not None:
            self._tls.close()
            raise ConnectionError(why)

    def recv(self, size: int) -> bytes:
        """As `socket.recv`."""
        try:
            return self._tls.recv(size)
        except WAITS:
            raise BlockingIOError("no whole record has arrived") from None
        except ssl.SSLError as error:  # for example that our certificate is not trusted
            raise ConnectionError(explained(error)) from None
        except ValueError as error:  # it was closed in another thread
            raise ConnectionError(str(error)) from None

    def recv_into(self, buffer: memoryview) -> int:
        """As `socket.recv_into`."""
        try:
            return self._tls.recv_into(buffer)
        except WAITS:
            raise BlockingIOError("no whole record has arrived") from None
        except ssl.SSLError as error:
            raise ConnectionError(explained(error)) from None
        except ValueError as error:  # it was closed in another thread
            raise ConnectionError(str(error)) from None

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """As `socket.sendall`. Nothing is sent to whose certificate has expired."""
        if wall_s() >= self._ends_at:
            raise ConnectionError(EXPIRED)
        try:
            self._tls.sendall(data)
        except ValueError as error:  # it was closed in another thread
            raise ConnectionError(str(error)) from None

    def settimeout(self, seconds: float) -> None:
        """As `socket.settimeout`."""
        self._tls.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """As `socket.shutdown`; whoever reads or sends in another thread still does so with TLS."""
        socket.socket.shutdown(self._tls, how)  # that of SSLSocket would go on without

    def close(self) -> None:
        """As `socket.close`."""
        self._tls.close()
