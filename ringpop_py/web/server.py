"""HTTP beside the daemon: its socket, and hypercorn to serve the application on it."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve

from ringpop_py.address import Address
from ringpop_py.errors import ConfigError
from ringpop_py.logs import log
from ringpop_py.web.app import App

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop

BACKLOG: Final = 1_024
UNREAD_MS_MAX: Final = 10_000
"""Milliseconds that an answer may stay unread; then the system drops the connection."""
FAREWELL_S: Final = 1.0
"""Seconds that requests under way have once the node ends; then they are cut."""


class HttpServer:
    """Serves HTTP. It listens from the moment it is made.

    Raises:
        ConfigError: the address cannot be listened at.
    """

    def __init__(self, address: Address) -> None:
        self._socket = _listening(address)
        self.address = Address(*self._socket.getsockname()[:2])
        self._app: App | None = None
        self._told_to_end = trio.Event()
        self._ended = trio.Event()

    @property
    def under_way(self) -> int:
        """Requests that are not answered yet."""
        return self._app.under_way if self._app is not None else 0

    async def run(
        self, ringpop: Ringpop, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `end`."""
        config = HypercornConfig()
        config.bind = [f"fd://{self._socket.detach()}"]  # hypercorn's from here on
        config.backlog = BACKLOG
        config.accesslog = config.errorlog = None  # what goes wrong, our application logs
        config.include_server_header = False
        config.graceful_timeout = FAREWELL_S
        self._app = App(ringpop)
        log.info("serving http", address=str(self.address))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    partial(
                        serve,
                        cast(Any, self._app),  # hypercorn spells the same type otherwise
                        config,
                        shutdown_trigger=self._told_to_end.wait,
                        mode="asgi",
                    )
                )
                task_status.started()
        finally:
            self._ended.set()

    async def end(self) -> None:
        """Take no more requests. Return when those under way are done, or `FAREWELL_S` is over."""
        self._told_to_end.set()
        with trio.move_on_after(2 * FAREWELL_S):
            await self._ended.wait()

    def close(self) -> None:
        """Close the socket, if it was never served on."""
        self._socket.close()


def _listening(address: Address) -> socket.socket:
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from their listener
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS_MAX)
            sock.bind(where)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"--http {address}: cannot listen there: {reason}"
        raise ConfigError(message) from None
    return sock
