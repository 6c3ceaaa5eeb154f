"""Connections to an application by HTTP/1.1, each for one request at a time."""

from __future__ import annotations

import functools
import os
import re
import ssl
from base64 import b64encode
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import trio

from ringpop_py.base.errors import ApplicationError, BadRequest, PeerBusy
from ringpop_py.net.http.answer import AnswerReader, broken_off
from ringpop_py.net.http.piece import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable

    Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

IDLE_S: Final = 4.0
"""How long a connection is kept without a request: many servers close it after 5 s."""
SOON_S: Final = 0.05
"""An answer whose body is not whole so long after its head is passed on as it comes."""
RECEIVE_BYTES: Final = 65_536
WITH_LENGTH: Final = ("POST", "PUT", "PATCH")
"""Methods of requests that have a length, also if they have no body."""
CHUNKED: Final = -1
"""The length of a body whose length is not known before its end."""
ENDS: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""How a connection ends for its user: by its peer, or by another task here."""
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*").fullmatch


class AppAddress:
    """Where the application at *url* listens.

    Attributes:
        headers: what each request begins with: the host, and who asks if the URL says so.
        prefix: the path of the URL.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self.host, self.port = parts.hostname or "", parts.port or (443 if secure else 80)
        who, _, at = parts.netloc.rpartition("@")
        at = at.lower().removesuffix(":443" if secure else ":80")
        self.headers = [(b"host", at.encode("ascii" if at.isascii() else "idna"))]
        if who:
            basic = b64encode(unquote(who).encode())
            self.headers.append((b"authorization", b"Basic " + basic))
        self.prefix = parts.path.rstrip("/")
        self._tls = _trusting() if secure else None

    def headed(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return all headers of a request with *headers*; a host among them takes ours' place."""
        more = list(headers)
        has_host = any(name == b"host" for name, _ in more)
        return [*self.headers[has_host:], *more]

    async def connect(self) -> Stream:
        """Return a new connection. Raises PeerBusy: the application does not listen."""
        try:
            if self._tls is None:
                return await trio.open_tcp_stream(self.host, self.port)
            stream = await trio.open_ssl_over_tcp_stream(
                self.host, self.port, https_compatible=True, ssl_context=self._tls
            )
            is_done = False
            try:
                with trio.move_on_after(IDLE_S):
                    await stream.do_handshake()
                    is_done = True
                    return stream
                raise PeerBusy("the application does not finish the handshake of TLS")
            finally:
                if not is_done:
                    close(stream)
        except (OSError, trio.BrokenResourceError) as error:
            cause = error.__cause__ or error  # trio has tried all addresses of the host
            causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
            why = ", ".join(dict.fromkeys(map(_why, causes)))
            at = f"{self.host}:{self.port}"
            raise PeerBusy(f"the application does not listen at {at}: {why}") from None


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):  # its number is not one of the system's
        return f"no TLS that is trusted here: {error.strerror or error}"
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)


@functools.cache
def _trusting() -> ssl.SSLContext:
    """Return what trusts the authorities of this system; reading them takes long."""
    return ssl.create_default_context()


def _comes_in_pieces(name: str, value: str) -> bool:
    """Return whether a header says that an answer is not to be waited for."""
    kind = value.partition(";")[0].strip().lower()  # frameworks say their charset after it
    return name == "trailer" or (name == "content-type" and kind == "text/event-stream")


def socket_of(stream: Stream) -> trio.socket.SocketType:
    """Return the socket below *stream*."""
    plain = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    return plain.socket


def close(stream: Stream) -> None:
    """Close *stream* without a farewell, and without waiting."""
    socket_of(stream).close()


class HttpExchange:
    """One request and its answer, while they are under way on a connection of their own.

    Args:
        length: of the body that goes on after `HttpConnections.begin`; `CHUNKED` if nobody knows.

    Attributes:
        answer: what came of it.
    """

    def __init__(
        self, pool: HttpConnections, stream: Stream, answer: AnswerReader, length: int | None
    ) -> None:
        self.answer = answer
        self._pool = pool
        self._stream = stream
        self._length = length
        self._is_sent = length is None
        self._head_is_told = False

    async def gather(self, most: int, *, or_begin: bool) -> bool:
        """Receive the answer, and return whether it is whole.

        Args:
            most: the bytes of a body that are received.
            or_begin: whether a body that is longer, or takes its time, is left for `read`.

        Raises:
            PeerFailed: the application broke off.
            ApplicationError: the body is longer than *most*. This is final: the application has
                run, and would say the same again.
        """
        answer = self.answer
        while not answer.status:
            await self._receive()
        self._head_is_told = True
        if or_begin and any(_comes_in_pieces(*each) for each in answer.headers):
            return False
        with trio.move_on_after(SOON_S if or_begin else inf):
            while answer.bytes_known <= most:
                if answer.is_whole:
                    return True
                await self._receive()
        if not or_begin:
            raise ApplicationError(
                "response-too-large", f"the response is larger than {most} bytes"
            )
        return False

    async def read(self) -> Piece:
        """See `AnyExchange`."""
        answer = self.answer
        while not (answer.body or answer.is_whole) or not answer.status:
            await self._receive()
        status, headers = 0, answer.trailers
        if not self._head_is_told:
            status, headers, self._head_is_told = answer.status, answer.headers, True
            return Piece(answer.take(), status, tuple(headers))
        is_last = answer.is_whole
        return Piece(answer.take(), 0, tuple(headers) if is_last else (), is_last)

    async def write(self, data: bytes, *, is_last: bool) -> None:
        """See `AnyExchange`."""
        if self._length == CHUNKED:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += b"0\r\n\r\n" if is_last else b""
        try:
            await self._stream.send_all(data)
        except ENDS as error:
            raise broken_off(f"{error.__cause__}") from None
        self._is_sent |= is_last

    def close(self) -> None:
        """End it: the connection is kept if nothing of this exchange is left on it."""
        keeps = self._is_sent and self.answer.is_whole and self.answer.keeps
        self._pool.take_back(self._stream, keeps=keeps)

    async def send(self, data: bytes) -> None:
        """Send the head, and what there is of the body."""
        # Some answer before they have read all, and close. Their answer is worth reading.
        with suppress(trio.BrokenResourceError):
            self._is_sent, is_sent = False, self._is_sent
            await self._stream.send_all(data)
            self._is_sent = is_sent

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive_some(RECEIVE_BYTES)
        except ENDS as error:
            raise broken_off(f"{error.__cause__}") from None
        if data:
            self.answer.receive(bytes(data))
        else:
            self.answer.end()


class HttpConnections:
    """Connections to the application at *place*: as many as requests under way.

    Args:
        idle_max: how many are kept for later requests.
    """

    def __init__(self, place: AppAddress, idle_max: int) -> None:
        self._place = place
        self._idle_max = idle_max
        self._idle = deque[tuple[float, "Stream"]]()  # with when each has been idle enough

    async def begin(
        self,
        method: str,
        target: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
        length: int | None = None,
    ) -> HttpExchange:
        """Send a request, and return what becomes of it; its `close` must be called.

        It is sent once: without an answer it may have run all the same, and only its sender knows
        whether it may run again.

        Args:
            length: of the whole body if *body* is its beginning, or `CHUNKED`.

        Raises:
            PeerBusy: the application does not listen.
            BadRequest: a header cannot be sent; nothing was.
        """
        head = self._head(method, target, headers, body, length)
        exchange = HttpExchange(self, await self._stream(), AnswerReader(method), length)
        try:
            if length == CHUNKED and body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            await exchange.send(head + body)
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def aclose(self) -> None:
        """Close the connections without a request, and keep no more of them."""
        self._idle_max = 0
        while self._idle:
            close(self._idle.pop()[1])

    def take_back(self, stream: Stream, *, keeps: bool) -> None:
        """Keep a connection for the next request, or close it."""
        if keeps and len(self._idle) < self._idle_max:
            self._idle.append((trio.current_time() + IDLE_S, stream))
        else:
            close(stream)

    def _head(
        self,
        method: str,
        target: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
        length: int | None,
    ) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
        for name, value in self._place.headed(headers):
            if not (_NAME(name) and _VALUE(value)):
                raise BadRequest(f"this cannot be sent as HTTP: a header {name!r:.80}")
            lines.append(b"%b: %b" % (name, value))
        if length == CHUNKED:
            lines.append(b"transfer-encoding: chunked")
        elif length is not None or body or method in WITH_LENGTH:
            lines.append(b"content-length: %d" % (len(body) if length is None else length))
        return b"\r\n".join((*lines, b"", b""))

    async def _stream(self) -> Stream:
        now = trio.current_time()
        while self._idle:
            is_old = self._idle[0][0] <= now
            _, stream = self._idle.popleft() if is_old else self._idle.pop()
            # What can be read is its end, or what nobody has asked for.
            if not is_old and not socket_of(stream).is_readable():
                return stream
            close(stream)
        return await self._place.connect()
