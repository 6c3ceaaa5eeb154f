"""Calls over TCP, with plain sockets: a program sends several, and waits for each reply."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from ringpop_py import errors
from ringpop_py.address import Address
from ringpop_py.errors import BodyError, ShuffleError, ShuffleIncomplete, ShuffleUnavailable
from ringpop_py.shuffle import calls as c

if TYPE_CHECKING:
    from ringpop_py.sorting.frames import Bytes

_ERRORS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ShuffleError)
}


class Line:
    """A connection to the process at *address*. One thread uses it at a time.

    After an error it is closed, and of no use.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self._number = 0
        self._came: dict[int, tuple[c.Reply, bytearray]] = {}
        try:
            self._socket = socket.create_connection(
                Address.parse(address, what="a process for shuffles"), timeout=timeout_s
            )
        except OSError as error:
            raise ShuffleUnavailable(f"{address} cannot be reached: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def send(self, call: c.Call, body: Bytes = b"", *, timeout_s: float) -> int:
        """Send *call*; return its number. Raises ShuffleUnavailable."""
        self._number += 1
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(c.packed_head(self._number, call, len(body)))
            if body:
                self._socket.sendall(body)
        except OSError as error:
            raise self._lost(error) from None
        return self._number

    def receive(self, number: int, *, deadline: float) -> tuple[c.Reply, bytearray]:
        """Return the reply to call *number*, and its body.

        Raises:
            ShuffleUnavailable: if it does not come before *deadline* (`time.monotonic`).
            ShuffleError: which the process has answered with.
        """
        while number not in self._came:
            try:
                came, head, size = self._message(deadline)
                body = bytearray(size)
                self._fill(memoryview(body), deadline)
                self._came[came] = c.reply_in(head), body
            except (OSError, BodyError) as error:
                raise self._lost(error) from None
        reply, body = self._came.pop(number)
        if isinstance(reply, c.Failed):
            raise error_of(reply)
        return reply, body

    def call(
        self, call: c.Call, body: Bytes = b"", *, timeout_s: float
    ) -> tuple[c.Reply, bytearray]:
        """Return the reply to *call*. Raises as `receive`."""
        deadline = time.monotonic() + timeout_s
        return self.receive(self.send(call, body, timeout_s=timeout_s), deadline=deadline)

    def _message(self, deadline: float) -> tuple[int, bytes, int]:
        fixed = bytearray(c.FIXED.size)
        self._fill(memoryview(fixed), deadline)
        number, head_bytes, body_bytes = c.fixed_part(fixed)
        head = bytearray(head_bytes)
        self._fill(memoryview(head), deadline)
        return number, bytes(head), body_bytes

    def _fill(self, view: memoryview, deadline: float) -> None:
        while view:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the process has ended the connection")
            view = view[count:]

    def _lost(self, error: Exception) -> ShuffleUnavailable:
        self.close()
        return ShuffleUnavailable(f"{self.address}: {error}")


def error_of(failed: c.Failed) -> ShuffleError:
    """Return the error that a process has answered with."""
    kind = _ERRORS.get(failed.code, ShuffleError)
    if kind is ShuffleIncomplete:
        return ShuffleIncomplete(failed.text, attempts=failed.attempts)
    return kind(failed.text)
