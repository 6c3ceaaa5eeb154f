"""Replays forwarded HTTP requests to the local application. Loaded only if there is one."""

from __future__ import annotations

from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

import httpx

from ringpop_py.errors import BadRequest, CallTimeout, PeerBusy, PeerFailed
from ringpop_py.proxy.http import end_to_end

if TYPE_CHECKING:
    from ringpop_py.proxy.request import Headers, HttpRequest


class HttpReplayer:
    """Replays requests to the one local application at *app_url*."""

    def __init__(self, app_url: str, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        # No proxies or credentials of the environment: the target is the configured one.
        self._client = httpx.AsyncClient(base_url=app_url, trust_env=False, timeout=None)  # noqa: S113 - each replay has its caller's deadline
        # A request is sent as it came: without cookies of another one, or headers of ours.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._client.headers.clear()

    async def replay(self, request: HttpRequest) -> tuple[int, Headers, bytes]:
        """Return the status, headers and body of the application's response.

        Raises:
            PeerBusy: the application cannot be reached; it did not see the request.
            BadRequest: the request cannot be written as HTTP; nothing was sent.
            PeerFailed: the application broke off, or its response is larger than the limit.
            CallTimeout: httpx gave up waiting.
        """
        try:
            return await self._replay(request)
        # Before the time-outs, of which ConnectTimeout is one: here nothing was sent.
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PeerBusy(f"the application does not listen: {error}") from None
        except httpx.TimeoutException as error:
            raise CallTimeout(f"the application did not answer: {type(error).__name__}") from None
        except (httpx.LocalProtocolError, httpx.InvalidURL) as error:
            raise BadRequest(f"this cannot be sent as HTTP: {error}") from None
        except httpx.HTTPError as error:
            raise PeerFailed(
                f"the application broke off: {type(error).__name__}: {error}"
            ) from None

    async def _replay(self, request: HttpRequest) -> tuple[int, Headers, bytes]:
        # As bytes: httpx takes text for ASCII.
        headers = [(key.encode(), value.encode()) for key, value in end_to_end(request.headers)]
        async with self._client.stream(
            request.method, request.path, headers=headers, content=request.body
        ) as response:
            body = bytearray()
            # Raw: the body stays as encoded as its headers say.
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > self._body_bytes_max:
                    # While it is read: a response without an end must not fill the memory.
                    raise PeerFailed(f"the response is larger than {self._body_bytes_max} bytes")
            return response.status_code, end_to_end(response.headers.multi_items()), bytes(body)

    async def aclose(self) -> None:
        """Close the connections to the application."""
        await self._client.aclose()
