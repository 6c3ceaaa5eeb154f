"""The connections of one node: all of them, and which leads to which peer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio

from ringpop_py.address import Address
from ringpop_py.errors import ConfigError
from ringpop_py.wire.init import NO_LISTENER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.config.settings import WireLimits
    from ringpop_py.transport.link import PeerLink


class LinkTable:
    """Connections, in the order in which they came.

    Attributes:
        routes: of each peer to which there is one, the connection that calls take.
    """

    def __init__(self, limits: WireLimits) -> None:
        self.routes: dict[Address, PeerLink] = {}
        self._limits = limits
        self._links: dict[PeerLink, None] = {}
        self._accepted_from: Counter[str] = Counter()
        self._last_down = trio.Event()

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[PeerLink]:
        return iter(list(self._links))

    @property
    def full(self) -> bool:
        """Whether there may be no further one."""
        return len(self._links) >= self._limits.connections_max

    def has_room_for(self, remote_host: str) -> bool:
        """Whether one more may be accepted from *remote_host*."""
        same_host = self._accepted_from[remote_host]
        return not self.full and same_host < self._limits.connections_per_address_max

    def add(self, link: PeerLink) -> None:
        """Take a new connection in; calls take it, if it is to an address that is known."""
        self._links[link] = None
        if link.address is not None:
            self.routes[link.address] = link
        else:
            self._accepted_from[link.remote_host] += 1

    def is_up(self, link: PeerLink) -> None:
        """The peer has introduced itself: its listening address leads to this connection."""
        if link.address is None:
            link.address = _listening_address(link.connection.peer_host_port)
        if link.address is not None:
            current = self.routes.get(link.address)
            if current is None or not current.ready:
                self.routes[link.address] = link

    def remove(self, link: PeerLink) -> None:
        """The connection is gone; another to the same peer takes its calls, if there is one."""
        self._links.pop(link, None)
        if not self._links:
            self._last_down.set()
        if not link.connection.initiates:
            self._accepted_from[link.remote_host] -= 1
            self._accepted_from += Counter()  # forgets hosts without connections
        address = link.address
        if address is not None and self.routes.get(address) is link:
            del self.routes[address]
            others = (other for other in self._links if other.address == address and other.ready)
            other = next(others, None)
            if other is not None:
                self.routes[address] = other

    async def wait_empty(self) -> None:
        """Wait until there is none."""
        while self._links:
            self._last_down = trio.Event()
            await self._last_down.wait()


def _listening_address(host_port: str) -> Address | None:
    """Where a peer says that it listens; None if it does not, or says nonsense."""
    if host_port == NO_LISTENER:
        return None
    try:
        address = Address.parse(host_port)
    except ConfigError:
        return None
    return address if address.port and address.host != "0.0.0.0" else None  # noqa: S104
