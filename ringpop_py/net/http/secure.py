"""Connections to an application by HTTPS, with httpx: as `HttpConnections` otherwise."""

from __future__ import annotations

from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

import httpx

from ringpop_py.base.errors import ApplicationError, BadRequest, CallTimeout, PeerBusy, PeerFailed

if TYPE_CHECKING:
    from collections.abc import Iterable


class HttpsConnections:
    """See `HttpConnections`."""

    def __init__(self, url: str, body_bytes_max: int, idle_max: int) -> None:
        self._url = url
        self._body_bytes_max = body_bytes_max
        # No proxies or credentials of the environment: the target is the configured one. The pool
        # has no limit of its own, at which a request would wait although it could go elsewhere.
        self._client = httpx.AsyncClient(
            trust_env=False,
            timeout=None,  # noqa: S113 - each request has its caller's deadline
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=idle_max),
        )
        # A request is sent as it came: without cookies of another one, or headers of ours.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._client.headers.clear()

    async def request(
        self, method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """See `HttpConnections.request`. Raises also CallTimeout: httpx gave up waiting."""
        extensions = {"target": target}  # httpx would resolve its dots
        try:
            async with self._client.stream(
                method, self._url, headers=[*headers], content=body, extensions=extensions
            ) as response:
                came = bytearray()
                # Raw: the body stays as encoded as its headers say.
                async for piece in response.aiter_raw():
                    came += piece
                    if len(came) > self._body_bytes_max:
                        text = f"the response is larger than {self._body_bytes_max} bytes"
                        raise ApplicationError("response-too-large", text)
                return response.status_code, response.headers.multi_items(), bytes(came)
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

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()
