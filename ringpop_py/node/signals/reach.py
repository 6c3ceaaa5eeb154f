"""Which peers this node reaches: the results of its pings, by peer."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.metering import Histogram
from ringpop_py.node.signals.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ringpop_py.base.address import Address

SMOOTHING: Final = 8
"""A round trip is one part of this many in the mean, as in TCP (RFC 6298)."""
EXTRA_MAX: Final = 64
"""How many peers that are not members are remembered; beyond that, all such are forgotten."""
WORDS_MAX: Final = 200


ON_TIME, LATE, LOST = range(3)
"""What became of a ping."""
LATE_S: Final = 0.15
"""A round trip is late if it takes so much longer than twice the shortest: a lost packet is sent
again after 0.2 s or more (RFC 6298, as Linux has it)."""
GROWTH: Final = 1.02
"""By which factor the shortest round trip grows with each ping: paths change."""
SECONDS: Final = (1.0, 10)
MINUTES: Final = (60.0, 5)
"""The steps in which recent pings are counted: how many seconds a step has, and how many there
are."""
LOSSES: Final = ("timeout",)
"""The failures of pings that say something about the path, and not about the process at its end."""


class Reached:
    """The results of the pings to one peer.

    Attributes:
        answered, failed: how many pings.
        round_trip_s: the recent mean; None before the first answer.
        answered_at, failed_at: when the last such ping ended, by the wall clock; 0 if none did.
        failing_since: when the first of those ended that failed in a row until now; 0 if the last
            one was answered.
        failure: why the last one failed, as a `FailureReason`; then in words.
        seconds, minutes: what became of the pings of the last ten seconds, and five minutes.
    """

    __slots__ = (
        "_shortest_s",
        "answered",
        "answered_at",
        "failed",
        "failed_at",
        "failing_since",
        "failure",
        "minutes",
        "round_trip_s",
        "seconds",
        "words",
    )

    def __init__(self) -> None:
        self.answered = self.failed = 0
        self.answered_at = self.failed_at = self.failing_since = 0.0
        self.round_trip_s: float | None = None
        self.failure = self.words = ""
        self.seconds, self.minutes = Recent(*SECONDS, 3), Recent(*MINUTES, 3)
        self._shortest_s = inf

    def has_answered(self, took_s: float, now: float) -> None:
        """Note an answer at *now* of trio's clock: the other one may be set back."""
        self.answered += 1
        self.answered_at, self.failing_since = time.time(), 0.0
        before = self.round_trip_s
        self.round_trip_s = took_s if before is None else before + (took_s - before) / SMOOTHING
        is_late = took_s > 2 * self._shortest_s + LATE_S
        self._shortest_s = min(took_s, GROWTH * self._shortest_s)
        self._count(LATE if is_late else ON_TIME, now)

    def has_failed(self, reason: str, words: str, now: float) -> None:
        """Note a failure at *now* of trio's clock."""
        self.failed += 1
        self.failed_at = time.time()
        self.failing_since = self.failing_since or self.failed_at
        self.failure, self.words = reason, words
        if reason in LOSSES:
            self._count(LOST, now)

    def _count(self, outcome: int, now: float) -> None:
        self.seconds.note(outcome, now)
        self.minutes.note(outcome, now)


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
        self._of(peer).has_answered(took_s, trio.current_time())

    def failed(self, peer: Address, reason: str, words: str = "") -> None:
        """Note that a ping to *peer* has failed, with the error in *words*."""
        self._of(peer).has_failed(reason, words[:WORDS_MAX], trio.current_time())

    def recent(self, members: Iterable[Address]) -> dict[tuple[str], int]:
        """Return the pings to *members* in the last ten seconds, by the name of their outcome."""
        now = trio.current_time()
        rows = [self.peers[each].seconds.sums(now) for each in members if each in self.peers]
        sums = (sum(outcomes) for outcomes in zip([0, 0, 0], *rows, strict=True))
        return dict(zip((("on_time",), ("late",), ("lost",)), sums, strict=True))

    def _of(self, peer: Address) -> Reached:
        found = self.peers.get(peer)
        if found is None:
            members = self._members()
            if len(self.peers) > len(members) + EXTRA_MAX:
                self.peers = {each: row for each, row in self.peers.items() if each in members}
            found = self.peers[peer] = Reached()
        return found
