"""Calls over TCP, with plain sockets: a program sends several, and waits for each reply."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BodyError, ShuffleUnavailable
from ringpop_py.client.lines.local_daemon import connected
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.net.security.identity import SHUFFLERS

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.sorting.frames import Bytes

SILENT_S: Final = 5.0
"""A process that has sent no byte for so many seconds is given up, and another one is asked."""
WISH_S: Final = 40.0
"""The seconds without a byte that are allowed after a request to end or to delete a shuffle."""


class Line:
    """A connection to the process at *address*. One thread uses it at a time.

    Args:
        key_file: the cluster's keys, if it has some.

    Attributes:
        is_open: False after an error of the connection, which is then of no further use.
    """

    def __init__(self, address: str, timeout_s: float, key_file: str | None) -> None:
        self.address = address
        self.is_open = True
        self._number = 0
        self._silent_s = SILENT_S
        self._came: dict[int, tuple[c.Reply, bytearray]] = {}
        try:
            where = Address.parse(address, what="a process for shuffles")
            self._socket = connected(where, timeout_s, key_file, SHUFFLERS)
        except (OSError, UnicodeError) as error:
            raise ShuffleUnavailable(f"{address} cannot be reached: {error}") from None

    def close(self) -> None:
        """Close it."""
        self.is_open = False
        self._socket.close()

    def send(self, call: c.Call, *body: Bytes, timeout_s: float) -> int:
        """Send *call* with *body*, in pieces; return its number. Raises ShuffleUnavailable."""
        self._number += 1
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(c.packed_head(self._number, call, sum(map(len, body))))
            for piece in body:
                self._socket.sendall(piece)
        except OSError as error:
            raise self._lost(error) from None
        return self._number

    def receive(
        self, number: int, *, deadline: float, silent_s: float = SILENT_S
    ) -> tuple[c.Reply, bytearray]:
        """Return the reply to call *number*, and its body.

        Args:
            deadline: by which it must be here (`time.monotonic`).
            silent_s: a process that sends nothing at all for so long is given up.

        Raises:
            ShuffleUnavailable: if it does not come in time.
            ShuffleError: the error in the answer of the process.
        """
        while number not in self._came:
            try:
                self._silent_s = silent_s
                came, head, size = self._message(deadline)
                self._came[came] = c.reply_in(head), self._read(size, deadline, c.BODY_PIECE_BYTES)
            except (OSError, BodyError) as error:
                raise self._lost(error) from None
        reply, body = self._came.pop(number)
        if isinstance(reply, c.Failed):
            raise c.error_of(reply)
        return reply, body

    def call(self, call: c.Call, *, timeout_s: float) -> tuple[c.Reply, bytearray]:
        """Return the reply to *call*. Raises as `receive`."""
        deadline = time.monotonic() + timeout_s
        # The replies to these come when they are done, for which other members may be needed.
        silent_s = WISH_S if isinstance(call, c.End | c.Delete) else SILENT_S
        number = self.send(call, timeout_s=min(timeout_s, SILENT_S))
        return self.receive(number, deadline=deadline, silent_s=silent_s)

    def _message(self, deadline: float) -> tuple[int, bytes, int]:
        number, head_bytes, body_bytes = c.fixed_part(self._read(c.FIXED.size, deadline))
        return number, bytes(self._read(head_bytes, deadline)), body_bytes

    def _read(self, size: int, deadline: float, first: int = c.PIECE_BYTES) -> bytearray:
        found = bytearray(min(size, first))
        self._fill(memoryview(found), deadline)
        while more := c.next_piece(len(found), size):
            found += bytes(more)
            self._fill(memoryview(found)[-more:], deadline)
        return found

    def _fill(self, view: memoryview, deadline: float) -> None:
        while view:
            left = deadline - time.monotonic()
            self._socket.settimeout(max(min(left, self._silent_s), 0.001))
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the process has ended the connection")
            view = view[count:]

    def _lost(self, error: Exception) -> ShuffleUnavailable:
        self.close()
        return ShuffleUnavailable(f"{self.address}: {error}")
