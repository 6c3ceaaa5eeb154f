"""Replays forwarded HTTP requests to the local application. Loaded only if there is one."""

from __future__ import annotations

from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

import httpx

from ringpop_py.errors import ApplicationError, BadRequest, CallTimeout, PeerBusy, PeerFailed
from ringpop_py.proxy.entry import MARK
from ringpop_py.proxy.http import end_to_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.proxy.request import Headers, HttpRequest

    Marks = Sequence[tuple[bytes, bytes]]

PRINTABLE: Final = "".join(map(chr, range(33, 127)))
"""What stands in a request line as it is; other characters are sent as ``%XX``."""


class HttpReplayer:
    """Replays requests to the one local application at *app_url*.

    Args:
        body_bytes_max: of a response.
        replays_max: how many requests may be under way, each on a connection of its own.
        marks: what each request has as its headers `MARK`; it may change.
    """

    def __init__(
        self, app_url: str, body_bytes_max: int, replays_max: int, marks: Marks = ()
    ) -> None:
        self._body_bytes_max = body_bytes_max
        self._replays_max = replays_max
        self._replays_count = 0
        self._marks = marks
        self._url = app_url
        self._prefix = urlsplit(app_url).path.rstrip("/")
        # No proxies or credentials of the environment: the target is the configured one. The pool
        # has no limit of its own, at which a request would wait although it could go elsewhere.
        self._client = httpx.AsyncClient(
            trust_env=False,
            timeout=None,  # noqa: S113 - each replay has its caller's deadline
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=replays_max),
        )
        # A request is sent as it came: without cookies of another one, or headers of ours.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._client.headers.clear()

    async def replay(self, request: HttpRequest) -> tuple[int, Headers, bytes]:
        """Return the status, headers and body of the application's response.

        Raises:
            PeerBusy: the application did not see it: it cannot be reached, or has `replays_max`.
            BadRequest: the request cannot be written as HTTP, or its path leaves that of
                *app_url*; nothing was sent.
            PeerFailed: the application broke off.
            ApplicationError: its response is larger than the limit.
            CallTimeout: httpx gave up waiting.
        """
        target = self._target(request.path)
        if self._replays_count >= self._replays_max:
            text = f"the application has {self._replays_count} requests under way (replays_max)"
            raise PeerBusy(text)
        self._replays_count += 1
        try:
            return await self._replay(request, target)
        # Before the time-outs, of which ConnectTimeout is one: here nothing was sent.
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PeerBusy(f"the application does not listen: {error}") from None
        except httpx.TimeoutException as error:
            raise CallTimeout(f"the application did not answer: {type(error).__name__}") from None
        except (httpx.LocalProtocolError, httpx.InvalidURL) as error:
            raise BadRequest(f"this cannot be sent as HTTP: {error}") from None
        except httpx.HTTPError as error:
            text = f"the application broke off: {type(error).__name__}: {error}"
            raise PeerFailed(text) from None
        finally:
            self._replays_count -= 1

    def _target(self, path: str) -> bytes:
        """Return what stands in the request line: *path* as it came, below that of our URL."""
        if self._prefix and _climbs_out(path):
            raise BadRequest(f"path {path!r:.200} leaves {self._prefix!r}, below which it belongs")
        try:
            return quote(self._prefix + path, safe=PRINTABLE).encode()
        except UnicodeEncodeError:
            raise BadRequest(f"path {path!r:.200} is not Unicode") from None

    async def _replay(self, request: HttpRequest, target: bytes) -> tuple[int, Headers, bytes]:
        # As bytes: httpx takes text for ASCII.
        headers = [
            (key.encode(), value.encode())
            for key, value in end_to_end(request.headers)
            if key.lower() != MARK
        ]
        async with self._client.stream(
            request.method,
            self._url,
            headers=[*headers, *self._marks],
            content=request.body,
            extensions={"target": target},  # httpx would resolve its dots
        ) as response:
            body = bytearray()
            # Raw: the body stays as encoded as its headers say.
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > self._body_bytes_max:
                    # While it is read: a response without an end must not fill the memory.
                    # Final: the application has run, and would say the same again.
                    text = f"the response is larger than {self._body_bytes_max} bytes"
                    raise ApplicationError("response-too-large", text)
            pairs = response.headers.multi_items()
            headers_back = end_to_end(pairs)
            if request.method == "HEAD":  # of a body that is not there, so it cannot be counted
                headers_back += tuple(each for each in pairs if each[0] == "content-length")
            return response.status_code, headers_back, bytes(body)

    async def aclose(self) -> None:
        """Close the connections to the application."""
        await self._client.aclose()


def _climbs_out(path: str) -> bool:
    """Return whether *path* leaves the folder above it, for a server that resolves its dots."""
    depth = 0
    for part in unquote(path.partition("?")[0]).replace("\\", "/").split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False
