"""Replays forwarded HTTP requests to the local application. Loaded only if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from ringpop_py.base.errors import BadRequest, PeerBusy
from ringpop_py.route.proxy.entry import MARK
from ringpop_py.route.proxy.http import end_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.net.http.connections import HttpConnections
    from ringpop_py.net.http.secure import HttpsConnections
    from ringpop_py.route.proxy.request import Headers, HttpRequest

    Marks = Sequence[tuple[bytes, bytes]]

PRINTABLE: Final = "".join(map(chr, range(33, 127)))
"""What stands in a request line as it is; other characters are sent as ``%XX``."""


class HttpReplayer:
    """Replays requests to the one local application at *app_url*.

    Args:
        body_bytes_max: of a response.
        replays_max: how many requests may be under way, each on a connection of its own.
        marks: what each request has as its headers `MARK`; it may change.

    Attributes:
        on_refused: called with the reason if a request does not reach the application.
    """

    def __init__(
        self, app_url: str, body_bytes_max: int, replays_max: int, marks: Marks = ()
    ) -> None:
        self._replays_max = replays_max
        self._replays_count = 0
        self._marks = marks
        self.on_refused: Callable[[str], None] = lambda _why: None
        self._prefix = urlsplit(app_url).path.rstrip("/")
        self._connections = _connections_to(app_url, body_bytes_max, replays_max)

    async def replay(self, request: HttpRequest) -> tuple[int, Headers, bytes]:
        """Return the status, headers and body of the application's response.

        Raises:
            PeerBusy: the application did not see it: it cannot be reached, or has `replays_max`.
            BadRequest: the request cannot be written as HTTP, or its path leaves that of
                *app_url*; nothing was sent.
            PeerFailed: the application broke off.
            ApplicationError: its response is larger than the limit.
            CallTimeout: httpx gave up waiting, with ``https://``.
        """
        target = self._target(request.path)
        if self._replays_count >= self._replays_max:
            text = f"the application has {self._replays_count} requests under way (replays_max)"
            raise PeerBusy(text)
        headers = [
            (key.encode(), value.encode())
            for key, value in end_to_end(request.headers)
            if key.lower() != MARK
        ]
        headers += self._marks
        self._replays_count += 1
        try:
            status, pairs, body = await self._connections.request(
                request.method, target, headers, request.body
            )
        except PeerBusy as error:
            self.on_refused(str(error))
            raise
        finally:
            self._replays_count -= 1
        headers_back = end_to_end(pairs)
        if request.method == "HEAD":  # of a body that is not there, so it cannot be counted
            headers_back += tuple(each for each in pairs if each[0] == "content-length")
        return status, headers_back, body

    def _target(self, path: str) -> bytes:
        """Return what stands in the request line: *path* as it came, below that of our URL."""
        if self._prefix and _climbs_out(path):
            raise BadRequest(f"path {path!r:.200} leaves {self._prefix!r}, below which it belongs")
        try:
            return quote(self._prefix + path, safe=PRINTABLE).encode()
        except UnicodeEncodeError:
            raise BadRequest(f"path {path!r:.200} is not Unicode") from None

    async def aclose(self) -> None:
        """Close the connections to the application."""
        await self._connections.aclose()


def _connections_to(
    app_url: str, body_bytes_max: int, idle_max: int
) -> HttpConnections | HttpsConnections:
    at = urlsplit(app_url)
    # httpx also turns names of other scripts and passwords in a URL into what is sent for them.
    if at.scheme == "http" and at.netloc.isascii() and "@" not in at.netloc:
        try:
            from ringpop_py.net.http.connections import HttpConnections  # noqa: PLC0415 - an extra

            return HttpConnections(app_url, body_bytes_max, idle_max)
        except ModuleNotFoundError:
            pass  # httpx does the same, at three times the cost
    from ringpop_py.net.http.secure import HttpsConnections  # noqa: PLC0415 - httpx loads slowly

    return HttpsConnections(app_url, body_bytes_max, idle_max)


def _climbs_out(path: str) -> bool:
    """Return whether *path* leaves the folder above it, for a server that resolves its dots."""
    depth = 0
    for part in unquote(path.partition("?")[0]).replace("\\", "/").split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False
