"""What decides who owns the keys of requests: the ring, or a keyspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.base.errors import NoOwner
from ringpop_py.route.errand import PartRoutes
from ringpop_py.route.proxy.head import Head

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import Consistency
    from ringpop_py.member.ring.hashring import HashRing


TOGETHER_MIN: Final = 16
"""So many keys and more are looked up together, which takes a third of the time then."""
REFUSED_KEYS: Final = "ringpop.request-proxy.invalid-key"
REFUSED_CHECKSUM: Final = "ringpop.request-proxy.invalid-checksum"


def refusal(
    keys: Sequence[str],
    believed: int | None,
    *,
    local: str,
    ring: HashRing,
    consistency: Consistency,
    failover: int = 1,
) -> str:
    """Return why *local*, whose ring is *ring*, refuses a request for *keys*; empty if it does not.

    Args:
        believed: the checksum of the sender's ring; None if it is not known.
        failover: how many members may handle it, the owner and those after it on the ring.
    """
    if consistency == "keys" and failover > 1:
        for key in keys:
            may = ring.lookup_n(key, failover) if len(ring) else ()
            if local not in may:
                return f"{REFUSED_KEYS}: {local} has {', '.join(may) or 'nobody'} for the key"
    elif consistency == "keys":
        # A few are looked up in place, which the usual request does.
        few = len(keys) < TOGETHER_MIN and len(ring)
        for owner in map(ring.lookup, keys) if few else owners_in(ring, keys):
            if owner != local:
                return f"{REFUSED_KEYS}: {local} has {owner or 'nobody'} as the key's owner"
    # A sender that has no ring, such as a client, has nothing to compare.
    elif consistency == "checksum" and believed not in (None, ring.checksum):
        return f"{REFUSED_CHECKSUM}: the ring is {ring.checksum} here, not {believed}"
    return ""


def owners_in(ring: HashRing, keys: Sequence[str]) -> Sequence[str]:
    """Return the owner of each of *keys*; empty texts if there is none."""
    if not len(ring):
        return [""] * len(keys)
    return ring.lookup_many(keys) if len(keys) >= TOGETHER_MIN else [*map(ring.lookup, keys)]


def grouped(owners: Sequence[str]) -> dict[str, list[int]]:
    """Return the places at which each of *owners* stands, in the order of the first ones."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(owners):
        if name in found:
            found[name].append(place)
        else:
            found[name] = [place]
    return found


def successors_in(
    ring: HashRing, key: str, count: int, is_doubtful: Callable[[str], bool]
) -> list[str]:
    """Return the owner of *key* and those after it, *count* members: the doubtful ones last."""
    return sorted(ring.lookup_n(key, count), key=is_doubtful) if len(ring) else []


class KeyRoutes(PartRoutes[str], Protocol):
    """Who owns which key, as one process sees it."""

    @property
    def owned_by(self) -> object:
        """What decides now: while it is the same object, each key has the same owner."""

    def owners_of(self, keys: Sequence[str]) -> Sequence[str]:
        """Return `destination` of each of *keys*."""


class KeyOwners(KeyRoutes, Protocol):
    """What handle_or_proxy needs to know about keys, as one node sees it."""

    def grouped(self, keys: Sequence[str]) -> dict[str, list[int]]:
        """Return the places in *keys* of those that each owner has; empty text is nobody."""

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
    reconcile: Callable[..., Awaitable[None]]
    consistency: Consistency
    is_doubtful: Callable[[str], bool] = lambda _member: False

    @property
    def owned_by(self) -> object:
        """See `KeyOwners`."""
        return self.ring()

    def owners_of(self, keys: Sequence[str]) -> Sequence[str]:
        """See `KeyOwners`."""
        return owners_in(self.ring(), keys)

    def destination(self, key: str) -> str:
        """Return the member whose point is next on the ring; empty if the ring is empty."""
        try:
            return self.ring().lookup(key)
        except NoOwner:
            return ""

    def grouped(self, keys: Sequence[str]) -> dict[str, list[int]]:
        """See `KeyOwners`."""
        ring = self.ring()
        if not len(ring) or len(keys) < TOGETHER_MIN:
            return grouped(owners_in(ring, keys))
        return ring.grouped(keys)

    def why_nobody(self, _key: str) -> NoOwner:
        """See `KeyOwners`."""
        return NoOwner("no member is in the ring")

    def successors(self, key: str, count: int) -> list[str]:
        """See `SuccessorRoutes`. Members that do not answer come last."""
        return successors_in(self.ring(), key, count, self.is_doubtful)

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
            failover=head.failover,
        )
