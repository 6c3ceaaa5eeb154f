"""Connections to an application by plain HTTP/1.1, each for one request at a time."""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import trio

from ringpop_py.base.errors import BadRequest, PeerBusy
from ringpop_py.net.http.answer import AnswerReader, broken_off

if TYPE_CHECKING:
    from collections.abc import Iterable

IDLE_S: Final = 4.0
"""How long a connection is kept without a request: many servers close it after 5 s."""
RECEIVE_BYTES: Final = 65_536
WITH_LENGTH: Final = ("POST", "PUT", "PATCH")
"""Methods of requests that have a length, also if they have no body."""
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*").fullmatch


class HttpConnections:
    """Connections to the application at *url*: as many as requests under way.

    Args:
        body_bytes_max: of an answer.
        idle_max: how many are kept for later requests.
    """

    def __init__(self, url: str, body_bytes_max: int, idle_max: int) -> None:
        parts = urlsplit(url)
        self._to = parts.hostname or "", parts.port or 80
        self._authority = parts.netloc.lower().removesuffix(":80").encode()
        self._body_bytes_max = body_bytes_max
        self._idle_max = idle_max
        self._idle = deque[tuple[float, trio.SocketStream]]()  # with when each has been idle enough

    async def request(
        self, method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the status, headers and body of the answer.

        It is sent once: without an answer it may have run all the same, and only its sender knows
        whether it may run again.

        Raises:
            PeerBusy: the application does not listen.
            BadRequest: a header cannot be sent; nothing was.
            PeerFailed, ApplicationError: see `AnswerReader.receive`.
        """
        head = self._head(method, target, headers, body)
        stream = await self._stream()
        answer, is_sent = AnswerReader(method, self._body_bytes_max), False
        try:
            # Some answer before they have read all, and close. Their answer is worth reading.
            with suppress(trio.BrokenResourceError):
                await stream.send_all(head + body)
                is_sent = True
            while not answer.is_whole:
                if data := await stream.receive_some(RECEIVE_BYTES):
                    answer.receive(data)
                else:
                    answer.end()
        except trio.BrokenResourceError as error:
            raise broken_off(f"{error.__cause__}") from None
        finally:  # also if the caller goes away, of which the application learns by the end
            keeps = is_sent and answer.is_whole and answer.keeps
            if keeps and len(self._idle) < self._idle_max:
                self._idle.append((trio.current_time() + IDLE_S, stream))
            else:
                stream.socket.close()
        return answer.status, answer.headers, bytes(answer.body)

    async def aclose(self) -> None:
        """Close the connections without a request, and keep no more of them."""
        self._idle_max = 0
        while self._idle:
            self._idle.pop()[1].socket.close()

    def _head(
        self, method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (method.encode(), target), b"host: " + self._authority]
        for name, value in headers:
            if not (_NAME(name) and _VALUE(value)):
                raise BadRequest(f"this cannot be sent as HTTP: a header {name!r:.80}")
            lines.append(b"%b: %b" % (name, value))
        if body or method in WITH_LENGTH:
            lines.append(b"content-length: %d" % len(body))
        return b"\r\n".join((*lines, b"", b""))

    async def _stream(self) -> trio.SocketStream:
        now = trio.current_time()
        while self._idle:
            is_old = self._idle[0][0] <= now
            _, stream = self._idle.popleft() if is_old else self._idle.pop()
            # What can be read is its end, or what nobody has asked for.
            if not is_old and not stream.socket.is_readable():
                return stream
            stream.socket.close()
        try:
            return await trio.open_tcp_stream(*self._to)
        except OSError as error:
            raise PeerBusy(f"the application does not listen: {error}") from None
