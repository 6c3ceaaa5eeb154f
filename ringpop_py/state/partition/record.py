"""The record of one partition of a durable keyspace at one node (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.state.journal.recovery import Recovery
from ringpop_py.state.partition.chart import CHART, COMING, Presence
from ringpop_py.state.placement.keys import NOBODY

if TYPE_CHECKING:
    from ringpop_py.state.journal import effects as fx
    from ringpop_py.state.journal.journal import Journal
    from ringpop_py.state.journal.records import Claim
    from ringpop_py.state.partition.desk import Job, ReleaseJob
    from ringpop_py.state.table.keyed import KeyedState


class Way(Enum):
    """How a partition comes here."""

    HAND_OVER = "hand-over"
    TAKE_OVER = "take-over"


@dataclass(slots=True)
class Arrival:
    """What is known of a partition that is on its way here.

    Attributes:
        way: the one that it takes, or has taken last.
        try_at: until when it waits.
        patient: whether it waits until then, whatever the news.
        owner, epoch: of a hand-over: the owner that is asked, and for which epoch.
        asked_at: when that was; the owner stopped serving at that time at the earliest.
        released: whether that owner has released the partition to this node.
        denied: whether it has the partition neither in that epoch nor before.
        silent: whether it did not say so, but has left and does not answer.
        confirmed: whether the keyspace was there after the claim.
    """

    way: Way = Way.TAKE_OVER
    try_at: int = 0
    patient: bool = False
    owner: str = NOBODY
    epoch: int = 0
    asked_at: int = 0
    released: bool = False
    denied: bool = False
    silent: bool = False
    confirmed: bool = False


class LocalPartition:
    """One partition at this node; the `Fold` of its recovery, and then of the journal.

    Args:
        failed: gets the partition if its state cannot apply what was committed.

    Attributes:
        presence: its state; only the `Machine` changes it, with `to`.
        coming: how it comes; None once it is here.
        claimed_epoch: in which this node serves it, as its table says.
        release: the release that is queued, or under way.
        failed: why the state cannot apply what is in the journal; None if it can.
        damage: what the last try could not read; None if it read all.
        store_error: why the last request of the recovery failed; None if it did not.
        waiting: jobs that wait until it is claimed again.
        writes_count: how many writes wait for it.
    """

    def __init__(
        self, number: int, state: KeyedState, journal: Journal, failed: list[LocalPartition]
    ) -> None:
        self.number = number
        self.state = state
        self.presence = Presence.PENDING
        self.coming: Arrival | None = Arrival()
        self.claimed_epoch = 0
        self.release: ReleaseJob | None = None
        self.failed: KeyspaceError | None = None
        self.damage: fx.Damaged | None = None
        self.store_error: KeyspaceError | None = None
        self.waiting: list[Job] = []
        self.writes_count = 0
        self.recovery = Recovery(number, self, journal)
        self._journal = journal
        self._failed = failed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.presence.value}>"

    def to(self, presence: Presence) -> None:
        """Go to another state."""
        assert (self.presence, presence) in CHART, (self, presence)
        self.presence = presence

    @property
    def epoch(self) -> int:
        """The epoch that this node owns; 0 if it owns none."""
        holding = self._journal.held.get(self.number)
        return 0 if holding is None else holding.epoch

    def reset(self) -> None:
        """See `Fold`."""
        self.state.reset()
        self.failed = None

    def restore(self, checkpoint: Any) -> None:  # noqa: ANN401 - see `Fold`
        """See `Fold`."""
        self.state.restore(checkpoint)

    def apply(self, body: object) -> None:
        """See `Fold`. Raises KeyspaceError unless this node owns the partition."""
        # Other partitions of the same group must not suffer from a state that fails.
        try:
            if self.failed is None:
                self.state.apply(body)
        except KeyspaceError as error:
            if self.presence in COMING:
                raise
            self.failed = error
            self._failed.append(self)


# What there is to do, and what has happened, for a driver.


class Perform(NamedTuple):
    """Make *request* to the store: of the recovery of *part*, or a claim after a fence.

    `pause_us` of the request comes first. The reply goes to `Machine.answered`.
    """

    request: fx.Request
    part: Any


class AskToRelease(NamedTuple):
    """Ask *owner*, in its *epoch*, to release a partition; the answer goes to `Machine.asked`."""

    number: int
    owner: str
    epoch: int


class LookDropped(NamedTuple):
    """Look whether the keyspace was dropped; the answer goes to `Machine.looked`."""

    part: Any


class Came(NamedTuple):
    """*part* is served from now on, in *epoch*."""

    part: Any
    epoch: int


class CameBack(NamedTuple):
    """*part* was claimed again after a fence, and is served in *epoch*."""

    part: Any
    epoch: int


class NotGained(NamedTuple):
    """A try has failed."""

    part: Any
    error: KeyspaceError | None


class FoundDamage(NamedTuple):
    """A try has met *damage*."""

    part: Any
    damage: fx.Damaged


class JournalLost(NamedTuple):
    """The journal of this node was sealed; *again_count* partitions are claimed again."""

    fact: fx.Fenced
    again_count: int


class TakenOver(NamedTuple):
    """Another node has what this one had: *to*, or an unknown one."""

    number: int
    to: str


class Replaces(NamedTuple):
    """The owner that made *claim* of a partition is about to be replaced."""

    number: int
    claim: Claim
