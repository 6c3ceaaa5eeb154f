"""Replays forwarded HTTP requests to the local application. Loaded only if there is one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from ringpop_py.base.errors import BadRequest, PeerBusy
from ringpop_py.net.http.connections import CHUNKED, AppAddress, HttpConnections
from ringpop_py.net.http.message import CONTINUE, FORWARDED_HOST, end_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.net.http.message import Headers, HttpRequest
    from ringpop_py.net.http.piece import AnyExchange

    Marks = Sequence[tuple[bytes, bytes]]

LENGTH: Final = "content-length"
NOT_MODIFIED: Final = 304
KEPT: Final = (LENGTH, "trailer")
PRINTABLE: Final = "".join(map(chr, range(33, 127)))
"""What stands in a request line as it is; other characters are sent as ``%XX``."""


_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.~%!$&'()*+;=-]{1,255})(:[0-9]{1,5})?", re.ASCII)


class Replayed(NamedTuple):
    """The application's response.

    Attributes:
        exchange: where the rest comes from; None if this is all.
        may_go_on: whether the rest may have no end.
    """

    status: int
    headers: Headers = ()
    body: bytes = b""
    exchange: AnyExchange | None = None
    may_go_on: bool = False


class HttpReplayer:
    """Replays requests to the one local application at *app_url*.

    Args:
        body_bytes_max: of a response in one piece, and of a message of a websocket.
        replays_max: how many requests may be under way, each on a connection of its own; not those
            whose response has begun, and goes on in pieces.
        marks: what each request has as its headers `MARK`; it may change.

    Attributes:
        on_refused: called with the reason if a request does not reach the application.
    """

    def __init__(
        self, app_url: str, body_bytes_max: int, replays_max: int, marks: Marks = ()
    ) -> None:
        self._body_bytes_max = body_bytes_max
        self._replays_max = replays_max
        self._replays_count = 0
        self._marks = marks
        self.on_refused: Callable[[str], None] = lambda _why: None
        self._place = AppAddress(app_url)
        self._connections = HttpConnections(self._place, replays_max)

    async def replay(self, request: HttpRequest) -> Replayed:
        """Return the application's response, or its beginning if the request has a flow.

        Raises:
            PeerBusy: the application did not see it: it cannot be reached, or has `replays_max`.
            BadRequest: the request cannot be written as HTTP, or its path leaves that of
                *app_url*; nothing was sent.
            PeerFailed: the application broke off.
            ApplicationError: its response is larger than the limit.
        """
        target = self._target(request.path)
        if self._replays_count >= self._replays_max:
            text = f"the application has {self._replays_count} requests under way (replays_max)"
            raise PeerBusy(text)
        headers = [(key.encode(), value.encode()) for key, value in _headers_of(request)]
        if request.method != "TRACE":  # its answer shows all headers, to anybody
            headers += self._marks
        self._replays_count += 1
        try:
            if request.flow is not None and request.flow.kind == "websocket":
                return await self._open_websocket(target, headers)
            return await self._ask(request, target, headers)
        except PeerBusy as error:
            self.on_refused(str(error))
            raise
        finally:
            self._replays_count -= 1

    async def _ask(
        self, request: HttpRequest, target: bytes, headers: list[tuple[bytes, bytes]]
    ) -> Replayed:
        flow, length = request.flow, None
        if flow is not None and flow.kind == "body":
            length = CHUNKED if flow.length is None else flow.length
        exchange = await self._connections.begin(
            request.method, target, headers, request.body, length
        )
        goes_on = True
        try:
            if length is not None:
                return Replayed(CONTINUE, exchange=exchange)
            most = self._body_bytes_max
            goes_on = not await exchange.gather(most, or_begin=flow is not None)
            answer = exchange.answer
            headers_back = end_to_end(answer.headers)
            # The length of a body that is not there, or comes in pieces, cannot be counted.
            if request.method == "HEAD" or answer.status == NOT_MODIFIED or goes_on:
                headers_back += tuple(each for each in answer.headers if each[0] in KEPT)
            body = answer.take()
            if not goes_on:
                return Replayed(answer.status, headers_back, body)
            may_go_on = not any(name == LENGTH for name, _ in headers_back)
            return Replayed(answer.status, headers_back, body, exchange, may_go_on)
        except BaseException:
            goes_on = False
            raise
        finally:
            if not goes_on:  # also if the caller goes away, of which the application learns by it
                exchange.close()

    async def _open_websocket(self, target: bytes, headers: list[tuple[bytes, bytes]]) -> Replayed:
        try:
            from ringpop_py.net.http.websocket import Denial, open_websocket  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            text = f"websockets need the extra ringpop_py[http]: {error}"
            raise BadRequest(text) from None
        opened = await open_websocket(self._place, target, headers, self._body_bytes_max)
        if isinstance(opened, Denial):
            return Replayed(opened.status, end_to_end(opened.headers), opened.body)
        return Replayed(opened.opened.status, opened.opened.headers, b"", opened, may_go_on=True)

    def _target(self, path: str) -> bytes:
        """Return what stands in the request line: *path* as it came, below that of our URL."""
        if self._place.prefix and _climbs_out(path):
            raise BadRequest(
                f"path {path!r:.200} leaves {self._place.prefix!r}, below which it belongs"
            )
        try:
            return quote(self._place.prefix + path, safe=PRINTABLE).encode()
        except UnicodeEncodeError:
            raise BadRequest(f"path {path!r:.200} is not Unicode") from None

    async def aclose(self) -> None:
        """Close the connections to the application."""
        await self._connections.aclose()


def _headers_of(request: HttpRequest) -> Headers:
    """Return the headers of *request*, with the host that its caller has named if it is sound."""
    kept = end_to_end(request.headers)
    said = next((value for name, value in kept if name.lower() == FORWARDED_HOST), "")
    host = said.rpartition(",")[2].strip()  # some proxies add theirs to that of a caller
    return (("host", host), *kept) if _HOST.fullmatch(host) else kept


def _climbs_out(path: str) -> bool:
    """Return whether *path* leaves the folder above it, for a server that resolves its dots."""
    depth = 0
    for part in unquote(path.partition("?")[0]).replace("\\", "/").split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False
