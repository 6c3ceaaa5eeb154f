"""Requests of HTTP that come in at a node (`Config.http_in`), for the owners of their keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ringpop_py.entry import http
from ringpop_py.entry.asgi import answered, incoming_of, refuse, refuse_websocket
from ringpop_py.entry.keys import key_rule
from ringpop_py.errors import ConfigError, DeadlineExceeded
from ringpop_py.node.end import ENDING_TEXT
from ringpop_py.proxy.request import HttpReply
from ringpop_py.web.refusals import HttpRefusal
from ringpop_py.web.server import (
    CLEARTEXT_REFUSED,
    NO_HTTP_2,
    REQUESTS_MAX,
    in_time,
    with_close,
)

if TYPE_CHECKING:
    from ringpop_py.config.settings import Config
    from ringpop_py.entry.asgi import Receive, Scope, Send
    from ringpop_py.entry.keys import KeyRule
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.proxy.request import HttpRequest


def rule_of(config: Config) -> KeyRule | None:
    """Return the rule that finds the key of an incoming request; None if the node takes none.

    Raises:
        ConfigError: the settings do not fit together.
    """
    if config.http_in is None:
        if config.http_in_key is not None:
            raise ConfigError("--key needs --http-in HOST:PORT, where requests come in")
        return None
    if config.app_url is None:
        raise ConfigError("--http-in needs --app-url URL, the application that answers requests")
    if config.http_in_key is None:
        raise ConfigError(f"--http-in needs --key: {', '.join(http.KINDS)}")
    return key_rule(config.http_in_key)


class EntryApp:
    """The ASGI application that forwards each request to the owner of its key.

    A request without a key goes to the application of this host.

    Attributes:
        under_way: the number of open requests.
    """

    def __init__(self, ringpop: Ringpop, rule: KeyRule) -> None:
        self.under_way = 0
        self._ringpop = ringpop
        self._rule = rule
        config = ringpop.config.proxy
        most = config.body_bytes_max
        # As any reverse proxy, believe whoever reaches this port.
        self._options = http.Options(body_bytes_max=most, keeps=True).checked()

    async def run(self) -> None:
        """See `HttpApp`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI interface."""
        match scope["type"]:
            case "http":
                self.under_way += 1
                try:
                    await self._http(scope, receive, send)
                finally:
                    self.under_way -= 1
            case "websocket":
                why = http.refusal(501, "no-websockets", "websockets are not forwarded")
                await refuse_websocket(scope, receive, send, why)
            case _:
                await _lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["http_version"] == CLEARTEXT_REFUSED:
            await refuse(send, http.refusal(505, "http-version", NO_HTTP_2))
            return
        send = with_close(send, self._ringpop.ending)
        if self._ringpop.ending.closing:
            await refuse(send, http.refusal(http.UNAVAILABLE, "ending", ENDING_TEXT))
            return
        if self.under_way > REQUESTS_MAX:
            text = f"{REQUESTS_MAX} requests are open here already"
            await refuse(send, http.refusal(http.UNAVAILABLE, "busy", text))
            return
        forward = partial(self._forward, self._rule(incoming_of(scope)))
        try:
            here = await answered(scope, in_time(receive), send, forward, self._options)
        except HttpRefusal as error:  # of the body
            await refuse(send, http.refusal(error.status, error.kind, str(error)))
        else:
            assert here is None, "the node answers for its own host as well"

    async def _forward(self, key: str | None, request: HttpRequest) -> HttpReply:
        seconds = self._options.timeout_s
        # The limit also holds for answers of this host's application.
        with trio.move_on_after(seconds):
            if key is None:
                reply = await self._ringpop.application.handle((), request)
            else:
                is_idempotent = request.method in self._options.idempotent
                reply = await self._ringpop.proxy(
                    key, request, idempotent=is_idempotent, deadline_s=seconds
                )
            assert isinstance(reply, HttpReply)
            return reply
        raise DeadlineExceeded(f"there was no answer within {seconds:g} s")


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
