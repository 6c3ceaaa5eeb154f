"""Keys of a program that is no member: what it shows of itself, and how it knows a member."""

from __future__ import annotations

import functools
import getpass
import os
import socket
from typing import TYPE_CHECKING, Final

from ringpop_py.config.places import KEY_VARIABLE as KEY_VARIABLE
from ringpop_py.errors import ConfigError
from ringpop_py.security.identity import Identity, Role, identity_in

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from ringpop_py.security.credentials import KeyCredentials

NO_MEMBER: Final = "what answers there is no member, by its certificate"


def key_file(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the file of keys that a program uses: *given*, or that in `KEY_VARIABLE`.

    An empty text stands for none, whatever the environment says.

    Raises:
        ConfigError: *given* is no text.
    """
    if given is not None and not isinstance(given, str):
        raise ConfigError(f"cluster_key is the path of a file, not {type(given).__name__}")
    return (environment.get(KEY_VARIABLE) if given is None else given) or None


def client_context(path: str) -> ssl.SSLContext:
    """Return the context for a connection, with the keys in *path* as they are now.

    Raises:
        ConfigError: the file cannot be used.
    """
    return _credentials(path).context(server=False)


@functools.cache
def _credentials(path: str) -> KeyCredentials:
    from ringpop_py.security.credentials import KeyCredentials  # noqa: PLC0415 - few have keys

    # Who has the key can be anybody: certificates of their own hold others to less.
    return KeyCredentials(path, Identity("", Role.ADMIN, f"{_user()}@{socket.gethostname()}"))


if hasattr(os, "register_at_fork"):  # a lock may be held by a thread that the child has not
    os.register_at_fork(after_in_child=_credentials.cache_clear)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # of a user id without a name
        return str(os.getuid())


def is_member(certificate: Mapping[str, object] | None) -> bool:
    """Return whether *certificate*, as `getpeercert` gives it, is a member's."""
    identity = identity_in(certificate)
    return identity is not None and identity.role is Role.MEMBER


class TlsSocket:
    """A blocking socket with TLS, as `Client` uses sockets.

    Raises:
        OSError: the two do not agree, or the peer is no member.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        import ssl  # noqa: PLC0415 - only with keys

        from ringpop_py.security.credentials import explained  # noqa: PLC0415

        self._explained = explained
        self._error = ssl.SSLError
        self._waits = ssl.SSLWantReadError, ssl.SSLWantWriteError
        try:
            self._tls = context.wrap_socket(plain)
        except ssl.SSLError as error:
            plain.close()
            raise ConnectionError(explained(error)) from None
        if not is_member(self._tls.getpeercert()):
            self._tls.close()
            raise ConnectionError(NO_MEMBER)

    def recv(self, size: int) -> bytes:
        """As `socket.recv`."""
        try:
            return self._tls.recv(size)
        except self._waits:
            raise BlockingIOError("no whole record has arrived") from None
        except self._error as error:  # for example that our certificate is not trusted
            raise ConnectionError(self._explained(error)) from None
        except ValueError as error:  # it was closed in another thread
            raise ConnectionError(str(error)) from None

    def recv_into(self, buffer: memoryview) -> int:
        """As `socket.recv_into`."""
        try:
            return self._tls.recv_into(buffer)
        except self._waits:
            raise BlockingIOError("no whole record has arrived") from None
        except self._error as error:
            raise ConnectionError(self._explained(error)) from None
        except ValueError as error:  # it was closed in another thread
            raise ConnectionError(str(error)) from None

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """As `socket.sendall`."""
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
