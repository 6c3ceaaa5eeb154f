"""Lines that a server sends over TCP, for demonstrations: lines can be lost."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import Address
from ringpop_py.base.errors import SourceFailed
from ringpop_py.flow.streams.parsing import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.flow.streams.parsing import Form, KeyRule
    from ringpop_py.flow.streams.source import BadRecord, Record

READ_S: Final = 0.2
CONNECT_S: Final = 2.0
READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 1 << 20


class TcpLines:
    """The lines that the server at *address* sends; its one split is called by the address.

    A line arrives at most once: a socket cannot be read again, so lines that were read and not
    counted yet are lost if their reader dies. Positions are instants, and so rise from one
    connection to the next. Where counts must be exact, write to files, or to Kafka.

    Args:
        address: ``HOST:PORT``.
        key, lines: as those of `Files`.

    Raises:
        ConfigError: if an argument is not valid, or they do not fit together.
    """

    is_bounded = False

    def __init__(self, address: str | Address, *, key: KeyRule, lines: Form = "text") -> None:
        self._address = Address.parse(str(address), what="a server of lines")
        self._parser = Parser(key, lines)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._rest = b""
        self._last = 0

    def splits(self) -> Sequence[str]:
        """See `Source`."""
        return [str(self._address)]

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """See `Source`."""
        with self._lock:
            try:
                self._receive(limit)
            except TimeoutError:
                pass
            except OSError as error:
                self._close()
                raise SourceFailed(f"{split}: {error.strerror or error}") from None
            *lines, self._rest = self._rest.split(b"\n", limit)
            if len(self._rest) > LINE_BYTES_MAX and b"\n" not in self._rest:
                self._close()
                raise SourceFailed(f"{split}: a line has more than {LINE_BYTES_MAX} bytes")
            self._last = max(self._last, after, time.time_ns() // 1_000)
            first, self._last = self._last + 1, self._last + len(lines)
            return [self._parser.record(at, line) for at, line in enumerate(lines, first) if line]

    def _receive(self, limit: int) -> None:
        if self._rest.count(b"\n") >= limit:
            return
        if self._socket is None:
            self._rest = b""
            self._socket = socket.create_connection(self._address, CONNECT_S)
        self._socket.settimeout(READ_S)
        data = self._socket.recv(READ_BYTES)
        if not data:
            self._close()
            raise OSError("the server has ended the connection")
        self._rest += data

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
