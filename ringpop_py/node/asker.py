"""Has the owner of a key answer what came in at a node, though applications come and go."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import PeerBusy

if TYPE_CHECKING:
    from collections.abc import Collection

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AnyReply, HttpRequest


class OwnerAsker:
    """Asks owners for the callers of one node.

    Args:
        idempotent: the methods whose requests may be repeated after they may have run.
        timeout_s: the most that one try takes.
    """

    def __init__(self, ringpop: Ringpop, idempotent: Collection[str], timeout_s: float) -> None:
        self._ringpop = ringpop
        self._idempotent = idempotent
        self._timeout_s = timeout_s

    async def reply(self, key: str | None, request: HttpRequest) -> AnyReply:
        """Return the answer of the owner of *key*; without a key, that of this host's application.

        A request that this host's application does not take is retried as if another host had
        refused it; without a key, it goes to another host. See `Ringpop.proxy` for what it raises.
        """
        config = self._ringpop.config.proxy
        waits = iter(config.retry_schedule_s[: config.max_retries])
        while True:
            try:
                if key is None:
                    return await self._ringpop.application.handle((), request)
                is_idempotent = request.method in self._idempotent
                return await self._ringpop.proxy(
                    key, request, idempotent=is_idempotent, deadline_s=self._timeout_s
                )
            except PeerBusy:  # of this host: that of another one would be another error
                wait_s = next(waits, None)
                if wait_s is None:
                    raise
            if key is None and not self._is_alone():
                key = self._key_of_another()
            else:
                with trio.move_on_after(wait_s):
                    await self._ringpop.wait_until(partial(self._leads_elsewhere, key))

    def _is_alone(self) -> bool:
        return {*self._ringpop.ring.owners} <= {self._ringpop.name}

    def _leads_elsewhere(self, key: str | None, ringpop: Ringpop) -> bool:
        if key is None or self._is_alone():
            return not self._is_alone()
        return ringpop.lookup(key) != ringpop.name

    def _key_of_another(self) -> str:
        """Return a key that another host owns, each time another one."""
        while True:  # a few draws, as there are others
            key = secrets.token_hex(8)
            if self._ringpop.lookup(key) != self._ringpop.name:
                return key
