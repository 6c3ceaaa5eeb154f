"""Which peers this node reaches: the results of its pings, by peer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.metering import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ringpop_py.base.address import Address

SMOOTHING: Final = 8
"""A round trip is one part of this many in the mean, as in TCP (RFC 6298)."""
EXTRA_MAX: Final = 64
"""How many peers that are not members are remembered; beyond that, all such are forgotten."""


class Reached:
    """The results of the pings to one peer.

    Attributes:
        answered, failed: how many pings.
        round_trip_s: the recent mean; None before the first answer.
        answered_at, failed_at: when the last such ping ended, by the wall clock; 0 if none did.
        failure: why the last one failed.
    """

    __slots__ = ("answered", "answered_at", "failed", "failed_at", "failure", "round_trip_s")

    def __init__(self) -> None:
        self.answered = self.failed = 0
        self.answered_at = self.failed_at = 0.0
        self.round_trip_s: float | None = None
        self.failure = ""


class Reach:
    """See the module.

    Args:
        members: returns the addresses of all members; the results of pings to others are forgotten
            once there are many of them.

    Attributes:
        round_trips: those of all pings.
        peers: the results of the pings to each peer to which one has ended.
    """

    def __init__(self, members: Callable[[], Collection[Address]]) -> None:
        self.round_trips = Histogram()
        self._members = members
        self.peers: dict[Address, Reached] = {}

    def answered(self, peer: Address, took_s: float) -> None:
        """Note that *peer* has answered a ping."""
        self.round_trips.observe(took_s)
        found = self._of(peer)
        found.answered += 1
        found.answered_at = time.time()
        before = found.round_trip_s
        found.round_trip_s = took_s if before is None else before + (took_s - before) / SMOOTHING

    def failed(self, peer: Address, reason: str) -> None:
        """Note that a ping to *peer* has failed."""
        found = self._of(peer)
        found.failed += 1
        found.failed_at = time.time()
        found.failure = reason

    def _of(self, peer: Address) -> Reached:
        found = self.peers.get(peer)
        if found is None:
            members = self._members()
            if len(self.peers) > len(members) + EXTRA_MAX:
                self.peers = {each: row for each, row in self.peers.items() if each in members}
            found = self.peers[peer] = Reached()
        return found
