"""What decides who owns the keys of requests: the ring, or a keyspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.errand import PartRoutes
from ringpop_py.errors import NoOwner
from ringpop_py.proxy.head import Head

if TYPE_CHECKING:
    from ringpop_py.config.settings import Consistency
    from ringpop_py.ring.hashring import HashRing


REFUSED_KEYS: Final = "ringpop.request-proxy.invalid-key"
REFUSED_CHECKSUM: Final = "ringpop.request-proxy.invalid-checksum"


def refusal(
    keys: Sequence[str],
    believed: int | None,
    *,
    local: str,
    ring: HashRing,
    consistency: Consistency,
) -> str:
    """Return why *local*, whose ring is *ring*, refuses a request for *keys*; empty if it does not.

    *believed* is the checksum of the sender's ring; None if it is not known.
    """
    if consistency == "keys":
        for key in keys:
            owner = ring.lookup(key) if len(ring) else "nobody"
            if owner != local:
                return f"{REFUSED_KEYS}: {local} has {owner} as the key's owner"
    # A sender that has no ring, such as a client, has nothing to compare.
    elif consistency == "checksum" and believed not in (None, ring.checksum):
        return f"{REFUSED_CHECKSUM}: the ring is {ring.checksum} here, not {believed}"
    return ""


class KeyOwners(PartRoutes[str], Protocol):
    """What handle_or_proxy needs to know about keys, as one node sees it."""

    async def settle(self, keys: Sequence[str], deadline_at: float) -> None:
        """Wait until `destination` knows the owners of all *keys*, or for too long."""

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

    def destination(self, key: str) -> str:
        """Return the member whose point is next on the ring; empty if the ring is empty."""
        try:
            return self.ring().lookup(key)
        except NoOwner:
            return ""

    def why_nobody(self, _key: str) -> NoOwner:
        """See `KeyOwners`."""
        return NoOwner("no member is in the ring")

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
