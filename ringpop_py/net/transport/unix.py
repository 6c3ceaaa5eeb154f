"""A Unix socket beside a node's address: a way in for programs on its host.

The file's permissions are the authorisation: it is its owner's alone.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.address import NOWHERE
from ringpop_py.base.errors import ConfigError
from ringpop_py.net.transport.tcp import TcpListener

if TYPE_CHECKING:
    from pathlib import Path

BACKLOG: Final = 4_096
MODE: Final = 0o600
PROBE_S: Final = 1.0


class UnixListener(TcpListener):
    """Accepts connections at the socket *path*, and removes it when it is closed.

    A socket file that a dead process left there is replaced.

    Raises:
        ConfigError: it cannot be bound: another process listens there, something else is there, or
            the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            _remove_left(path)
        except OSError as error:
            raise _cannot_listen(path, error) from None
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(str(path))
            path.chmod(MODE)  # before anybody can connect
            sock.listen(BACKLOG)
        except (OSError, ValueError) as error:  # ValueError: of a path that cannot be one
            sock.close()
            raise _cannot_listen(path, error) from None
        except ConfigError:
            sock.close()
            raise
        super().__init__(trio.SocketListener(trio.socket.from_stdlib_socket(sock)), NOWHERE)
        self._path = path
        self._file = _identity(path)

    def close(self) -> None:
        """See `Listener`."""
        super().close()
        with suppress(OSError):  # it is gone, or another process's by now
            if _identity(self._path) == self._file:
                self._path.unlink()


def _cannot_listen(path: Path, error: OSError | ValueError) -> ConfigError:
    why = (isinstance(error, OSError) and error.strerror) or str(error)
    return ConfigError(f"--socket: cannot listen at {str(path)!r}: {why}")


def _identity(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _remove_left(path: Path) -> None:
    """Remove the socket of a process that is gone. Raises ConfigError, OSError."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, ValueError):
        return  # an impossible path is reported when it is bound
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"--socket: {path} exists, and is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigError(f"--socket: {path} belongs to another process: {why}") from None
    raise ConfigError(
        f"--socket: another process listens at {path}; end it, or choose another path"
    )
