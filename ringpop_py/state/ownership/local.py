"""One partition of a durable keyspace at this node, and what there is to do for it (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.journal.recovery import Recovery

if TYPE_CHECKING:
    from ringpop_py.state.journal import effects as fx
    from ringpop_py.state.journal.desk import Job, ReleaseJob
    from ringpop_py.state.journal.journal import Journal
    from ringpop_py.state.journal.records import Claim
    from ringpop_py.state.placement import duties as do
    from ringpop_py.state.table.keyed import KeyedState

GIVEN_UP: Final = (Presence.UNWANTED, Presence.LOST)


class LocalPartition:
    """One partition at this node; the `Fold` of its recovery, and then of the journal.

    Args:
        failed: gets the partition if its state cannot apply what was committed.

    Attributes:
        presence: how far it is; only this package and the desk set it.
        failed: why the state cannot apply what is in the journal; None if it can.
        damage: what the last try could not read; None if it read all.
        waiting, writes_count: see `Served`.
    """

    def __init__(
        self, number: int, state: KeyedState, journal: Journal, failed: list[LocalPartition]
    ) -> None:
        self.number = number
        self.state = state
        self.presence = Presence.PENDING
        self.failed: KeyspaceError | None = None
        self.damage: fx.Damaged | None = None
        self.waiting: list[Job] = []
        self.writes_count = 0
        self.recovery = Recovery(number, self, journal)
        self._journal = journal
        self._failed = failed
        self.duty: do.Follow | do.Acquire | None = None
        """What the steward waits for."""
        self.confirmed = False
        """Whether the keyspace was there after the claim."""
        self.claimed = False
        """Whether the journal has it, or had it: no recovery works on it any more."""
        self.store_error: KeyspaceError | None = None
        """Why the last request of the recovery failed; None if it did not."""
        self.release: ReleaseJob | None = None
        """The release that is queued, or under way."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.presence.value}>"

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
        if not self.claimed:
            self.state.apply(body)
            return
        # Other partitions of the same group must not suffer from a state that fails.
        try:
            if self.failed is None:
                self.state.apply(body)
        except KeyspaceError as error:
            self.failed = error
            self._failed.append(self)


# What there is to do, and what has happened, for a driver.


class Perform(NamedTuple):
    """Make *request* to the store: of the recovery of *part*, or a claim after a fence.

    `pause_us` of the request comes first. The reply goes to `Ownership.answered`.
    """

    request: fx.Request
    part: Any


class Came(NamedTuple):
    """*part* is served from now on, in *epoch*."""

    part: Any
    epoch: int


class CameBack(NamedTuple):
    """*part* was claimed again after a fence, and is served in *epoch*."""

    part: Any
    epoch: int


class LookDropped(NamedTuple):
    """Look whether the keyspace was dropped; the answer goes to `Arrivals.looked`."""

    part: Any


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
