"""How a node ends in good order, as decisions (pure): what it waits for, declines and abandons.

A node that is asked to end owns no keys from then on, hands its partitions over, and goes on with
everything else (`Phase.DRAINING`). Once the others know, and have its partitions, it declines new
work (`Phase.CLOSING`). When no work is left, or its time is over, it may end (`Phase.ENDED`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

ENDED: Final = "this node has ended: the block of open_ringpop was left, or end() was called"
"""What requests of a node are told that has ended."""
ANNOUNCE_S_MAX: Final = 1.0
"""How many seconds to wait at most until the others acknowledge the end: some may be gone."""
STALLED_S: Final = 5.0
"""After this many seconds without a hand-over, the node no longer waits for its partitions."""


class Phase(Enum):
    """How far the end of a node is."""

    DRAINING = "draining"
    CLOSING = "closing"
    ENDED = "ended"


class Work(Enum):
    """The work that a node waits for before it ends; logs and answers count it by these values."""

    REQUESTS = "requests"
    """Calls of the application's handlers, here or on their way to another owner."""
    HTTP_REQUESTS = "http_requests"
    KEYSPACE_REQUESTS = "keyspace_requests"
    """Requests of other nodes, and of clients that know the owner, to partitions of this node."""
    CLIENT_REQUESTS = "client_requests"
    """Requests to keyspaces, of clients for which this node finds the owners."""
    ACTOR_MESSAGES = "actor_messages"
    JOB_REQUESTS = "job_requests"
    UNSENT_ANSWERS = "unsent_answers"
    """Connections to peers that have not yet read all that is queued for them."""
    DATAFLOWS = "dataflows"
    """Dataflows of which this node is a worker, while another worker can go on."""
    PARTITIONS = "partitions"
    """Partitions of this node, while another member can take them."""

    @property
    def text(self) -> str:
        """The name for people, to stand before a number."""
        return self.value.replace("_", " ").replace("http", "HTTP")


DECLINED: Final = frozenset({Work.REQUESTS, Work.CLIENT_REQUESTS, Work.JOB_REQUESTS})
"""Work that arrives on the node's own port and is declined in `Phase.CLOSING`."""
OF_PARTITIONS: Final = frozenset({Work.KEYSPACE_REQUESTS, Work.ACTOR_MESSAGES})
"""Requests to partitions. The answer names the node that has the partition by now. Such requests
are declined only if partitions stay behind: callers would ask for these until the end."""

Left = Mapping[Work, int]
"""How much of each kind of work is under way; a kind that is not in it has 0."""


class Draining:
    """The end of one node.

    Args:
        now: when the node was asked to end, in seconds of any clock; `look` uses the same clock.
        timeout_s: how long the end may take. Work that is still under way then is cut.

    Attributes:
        over_at: when this time is over.
    """

    def __init__(self, *, now: float, timeout_s: float) -> None:
        self.phase = Phase.DRAINING
        self._began_at = now
        self.over_at = now + timeout_s
        self._fewest_partitions: int | None = None
        self._handed_over_at = now
        self._leaves_partitions = False

    @property
    def declined(self) -> frozenset[Work]:
        """The kinds of work that the node no longer begins."""
        if self.phase is Phase.DRAINING:
            return frozenset()
        return DECLINED | OF_PARTITIONS if self._leaves_partitions else DECLINED

    def look(self, left: Left, now: float, *, announced: bool) -> Phase:
        """Return the phase that follows from what is *left*.

        Args:
            announced: whether the others have acknowledged that this node ends.
        """
        partitions = left.get(Work.PARTITIONS, 0)
        if self._fewest_partitions is None or partitions < self._fewest_partitions:
            self._fewest_partitions, self._handed_over_at = partitions, now
        hands_over = partitions > 0 and now - self._handed_over_at < STALLED_S
        known = announced or now - self._began_at >= ANNOUNCE_S_MAX
        if self.phase is Phase.DRAINING and known and not hands_over:
            self.phase = Phase.CLOSING
            self._leaves_partitions = partitions > 0
        others = any(count for work, count in left.items() if work is not Work.PARTITIONS)
        if now >= self.over_at or (self.phase is Phase.CLOSING and not others):
            self.phase = Phase.ENDED
        return self.phase

    def give_up(self) -> None:
        """No longer wait for anything: the node may end, whatever is left."""
        self.phase = Phase.ENDED


def text_of_left(left: Left) -> str:
    """Return *left* as text, in the order of `Work`; empty if nothing is left."""
    return ", ".join(f"{work.text} {left[work]}" for work in Work if left.get(work))
