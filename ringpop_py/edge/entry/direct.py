"""Requests of a middleware under asyncio to the daemons of owners, without its own one between."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import CallError, ConnectFailed, NoOwner, PeerFailed
from ringpop_py.client.aio.client import AsyncClient

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.edge.entry.owners import Follower, Ring
    from ringpop_py.net.http.message import HttpReply, HttpRequest
    from ringpop_py.route.proxy.request import RequestOptions

    Waiting = tuple[asyncio.AbstractEventLoop, asyncio.Timeout]

AVOIDED_S: Final = 10.0
"""So long a daemon is not asked that cannot be reached from here: with keys that this program does
not have, by a network that only daemons share, or because it is gone."""
LEFT_S: Final = 0.05
"""The least time for a second way, after the first one has failed."""


class OwnersAsked:
    """Asks the daemons of owners, as *follower* knows them.

    A daemon finds out that another one is gone, and a client does not: when an owner leaves the
    ring, what was asked of it is given up here.

    Args:
        timeout_s: the time limit for an answer.
    """

    def __init__(self, follower: Follower, timeout_s: float) -> None:
        self._follower = follower
        self._timeout_s = timeout_s
        self._clients: dict[Address, AsyncClient] = {}
        self._avoided: dict[Address, float] = {}
        self._waiting: dict[Address, set[Waiting]] = {}
        follower.on_ring = self._give_up

    async def reply(
        self, key: str, request: HttpRequest, options: RequestOptions
    ) -> HttpReply | None:
        """Return the reply of the owner of *key*.

        Returns:
            None if it cannot be asked from here, or has failed and may be asked in another way.

        Raises:
            CallError: the request may have run, and may not run again, or no time is left.
            ProxyError, ApplicationError: see `AsyncClient.proxy`.
        """
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        address = self._address_for(key, began_at)
        if address is None:
            return None
        client = self._clients.get(address) or await self._new_client(address)
        waiting = self._waiting.setdefault(address, set())
        try:
            try:
                async with asyncio.timeout(None) as until_gone:
                    waiting.add(mine := (loop, until_gone))
                    try:
                        return await client.proxy(key, request, **options)
                    finally:
                        waiting.discard(mine)
            except TimeoutError:
                if not until_gone.expired():
                    raise
                raise PeerFailed(f"{address} owns this key no more, and has not answered") from None
        except CallError as error:
            if isinstance(error, ConnectFailed):
                self._avoided[address] = loop.time() + AVOIDED_S
            left_s = began_at + self._timeout_s - loop.time()
            may_repeat = error.took_effect == "no" or options.get("idempotent", False)
            if not may_repeat or left_s < LEFT_S:
                raise
            return None

    async def _new_client(self, address: Address) -> AsyncClient:
        made = self._clients[address] = AsyncClient(address, timeout_s=self._timeout_s)
        ring = self._follower.ring
        for former in self._clients.keys() - {*([] if ring is None else ring.addresses.values())}:
            if former != address:
                self._waiting.pop(former, None)
                self._avoided.pop(former, None)
                await self._clients.pop(former).aclose()
        return made

    def _address_for(self, key: str, now: float) -> Address | None:
        ring = self._follower.ring
        if ring is None:
            return None
        try:
            owner = ring.ring.lookup(key)
        except NoOwner:
            return None
        address = ring.addresses.get(owner)
        if owner == ring.local or address is None or self._avoided.get(address, 0.0) > now:
            return None
        return address

    def _give_up(self, ring: Ring | None) -> None:
        """Give up what waits for those that are not in *ring*; called by the follower's thread."""
        if ring is None:  # our own daemon does not answer: that says nothing of others
            return
        there = {ring.addresses.get(name) for name in ring.ring.members}
        for address, waiting in [*self._waiting.items()]:
            if address not in there:
                for loop, until_gone in [*waiting]:
                    loop.call_soon_threadsafe(partial(_end, waiting, (loop, until_gone)))


def _end(waiting: set[Waiting], one: Waiting) -> None:
    if one in waiting:  # still, in its own loop
        one[1].reschedule(-inf)
