"""What decides who owns the keys of requests: the ring, or a keyspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ringpop_py.proxy.head import Head
from ringpop_py.proxy.schedule import Owners, refusal

if TYPE_CHECKING:
    from ringpop_py.config.settings import Consistency
    from ringpop_py.ring.hashring import HashRing


class KeyOwners(Owners, Protocol):
    """What handle_or_proxy needs to know about keys, as one node sees it."""

    async def settle(self, keys: Sequence[str], deadline_at: float) -> None:
        """Wait until `lookup` knows the owners of all *keys*, or for too long."""

    def head(self, keys: tuple[str, ...]) -> Head:
        """Return what travels with a request for *keys*: this node's beliefs about them."""

    def refusal(self, head: Head) -> str:
        """Return why this node does not handle a request with *head*; empty if it does."""

    def reconcile(self, owner: str, keys: Sequence[str], /) -> Awaitable[None]:
        """Wait a moment for the views of this node and *owner* to agree: it refused *keys*."""


@dataclass(frozen=True, slots=True)
class RingOwners:
    """The ring owns all keys. See `KeyOwners`."""

    local: str
    ring: Callable[[], HashRing]
    reconcile: Callable[[str, Sequence[str]], Awaitable[None]]
    consistency: Consistency

    def lookup(self, key: str) -> str:
        """Return the member whose point is next on the ring. Raises NoOwner."""
        return self.ring().lookup(key)

    async def settle(self, keys: Sequence[str], deadline_at: float) -> None:
        """See `KeyOwners`: the ring always knows."""

    def head(self, keys: tuple[str, ...]) -> Head:
        """See `KeyOwners`."""
        return Head(keys, self.ring().checksum, self.local)

    def refusal(self, head: Head) -> str:
        """See `KeyOwners`."""
        return refusal(
            head.keys,
            head.ring_checksum,
            local=self.local,
            ring=self.ring(),
            consistency=self.consistency,
        )
