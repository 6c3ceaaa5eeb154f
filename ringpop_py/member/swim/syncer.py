"""Syncs: two lists that differ become one, at a cost in proportion to the difference.

A run is one pass over the buckets with one peer. In each round we send the sums of the remaining
buckets; the peer answers with its rows of those that differ, as many as fit into a message; we
apply them, and send the rows that we know better with the next round. So each message is bounded,
and a pass ends, whatever the peer answers. What differs afterwards is left to another run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.buckets import Buckets, bits_for
from ringpop_py.member.swim.member import Member, merged
from ringpop_py.member.swim.messages import Failure, Sync, SyncAck, packed_sums
from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.waits import PeerSync, SyncCall

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.calls import Calls, Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.rows import Rows
    from ringpop_py.member.swim.waits import Continuation

DIFFERENCES_MAX: Final = 64
"""After this many answers in a row whose checksum is not ours, a sync begins in spite of news.
Otherwise, in a cluster that always has news, lists that differ would differ for ever."""


@dataclass(slots=True)
class _Run:
    """One pass. *then* gets a `SyncAck` after a whole one, otherwise the outcome that ended it."""

    peer: Address
    # Our list when the pass began. Rows that we apply change only buckets that are done, so the
    # sums of the others stay valid for all rounds.
    buckets: Buckets
    then: Continuation
    rounds_left: int
    first: int = 0  # the next bucket
    # The members that we know better than the peer, and have not sent yet.
    better: deque[str] = field(default_factory=deque)
    read: list[Member] | None = None  # all rows so far, if they are collected and not applied

    @property
    def over(self) -> bool:
        """Whether there is nothing left to ask or to send."""
        return self.first == len(self.buckets.sums) and not self.better


class Syncer:
    """Begins runs, automatically if a peer's checksum differs, and answers those of peers.

    It keeps no state of peers' runs from one round to the next.
    """

    def __init__(self, core: Core, calls: Calls, rows: Rows) -> None:
        self._core = core
        self._calls = calls
        self._rows = rows
        self._runs: dict[int, _Run] = {}
        self._run_count = 0
        self._open: set[Address] = set()
        self._begun_at: dict[Address, int] = {}
        self._differences = 0
        self._buckets_of: tuple[int, int] | None = None
        self._buckets = Buckets(core.members, 0, core.dialect)

    @property
    def open_count(self) -> int:
        """How many runs that this node began have not ended."""
        return max(len(self._runs), len(self._open))

    # When.

    def heard(self, peer: Address, checksum: int | None, now: int, *, quiet: bool) -> None:
        """Begin a run with *peer* if its *checksum* differs from ours.

        Args:
            quiet: whether neither side had news, which would make the lists equal at less cost.
        """
        core = self._core
        if checksum is None or checksum == core.members.checksum:
            self._differences = 0
            return
        self._differences += 1
        wanted = quiet or self._differences >= DIFFERENCES_MAX
        if not (wanted and core.config.delta_sync) or core.stopped or not self._is_due(peer, now):
            return
        if len(self._open) >= core.config.reverse_full_syncs_max:
            core.counts.delta_syncs_omitted += 1
            return

        self._differences = 0
        self._open.add(peer)
        self._begun_at[peer] = now
        self.begin(peer, PeerSync(peer), now)

    def synced(self, peer: Address) -> None:
        """Note that a run that `heard` began is over."""
        self._open.discard(peer)

    def _is_due(self, peer: Address, now: int) -> bool:
        before = now - microseconds(self._core.config.period_s)
        while self._begun_at:
            oldest = next(iter(self._begun_at))
            if self._begun_at[oldest] > before:
                break
            del self._begun_at[oldest]
        return peer not in self._begun_at and peer not in self._open

    def begin(
        self, peer: Address, then: Continuation, now: int, *, reads_only: bool = False
    ) -> None:
        """Begin a run with the process at *peer*; afterwards both lists are equal.

        Args:
            reads_only: apply no row: *then* gets a `SyncAck` with all rows of the peer that differ.
        """
        config, members = self._core.config, self._core.members
        # Enough to read a full list and to send another. A peer can keep a run open no longer.
        rounds_max = 4 + 4 * -(-config.members_max // config.sync_rows_max)
        buckets = Buckets(members, bits_for(len(members)), self._core.dialect)
        self._run_count += 1
        read: list[Member] | None = [] if reads_only else None
        self._runs[self._run_count] = _Run(peer, buckets, then, rounds_max, read=read)
        self._core.counts.delta_syncs += not reads_only
        self._ask(self._run_count, now)

    def _ask(self, number: int, now: int) -> None:
        core, run = self._core, self._runs[number]
        run.rounds_left -= 1
        request = Sync(
            core.cluster,
            core.ring_points,
            *core.sender,
            run.buckets.bits,
            run.first,
            packed_sums(run.buckets.sums[run.first :]),
            self._rows_to_tell(run),
        )
        timeout_us = microseconds(core.config.join_timeout_s)
        self._calls.open(run.peer, request, timeout_us, SyncCall(number), now)

    def answered(
        self, number: int, outcome: Outcome, now: int
    ) -> tuple[Continuation, Outcome] | None:
        """Continue the run *number* after a round.

        Return what the run was made for, and how it ended; None if it goes on.
        """
        run = self._runs[number]
        end = self._end_after(run, outcome, now) if isinstance(outcome, SyncAck) else outcome
        if end is None:
            self._ask(number, now)
            return None
        del self._runs[number]
        return run.then, end

    def _rows_to_tell(self, run: _Run) -> tuple[Member, ...]:
        count = min(len(run.better), self._core.config.sync_rows_max)
        names = [run.better.popleft() for _ in range(count)]
        rows = [self._core.members.get(name) for name in names]
        return tuple(row for row in rows if row is not None)

    def _end_after(self, run: _Run, ack: SyncAck, now: int) -> Outcome | None:
        """Apply *ack*. Return how *run* has ended; None if it goes on."""
        if not self._moves_on(run, ack):
            return Failure("failed", "answered with other buckets")
        held_count = len(ack.rows) + len(run.read or ())
        if run.read is not None and held_count > self._core.config.members_max:
            return Failure("failed", "answered with more rows than there can be members")
        self._take_in(run, ack, now)
        same = ack.checksum == self._core.members.checksum and not run.better
        if run.over or same:
            return replace(ack, rows=ack.rows if run.read is None else tuple(run.read))
        if run.rounds_left == 0 or self._core.stopped:
            return Failure("failed", "not within its rounds")
        return None

    def _moves_on(self, run: _Run, ack: SyncAck) -> bool:
        """Return whether *ack* makes progress, in buckets no finer than a full list needs."""
        finer = ack.bits - run.buckets.bits
        if finer < 0 or (finer > 0 and ack.bits > bits_for(self._core.config.members_max)):
            return False
        first, end = run.first << finer, 1 << ack.bits
        return ack.until > first or first == ack.until == end

    def _take_in(self, run: _Run, ack: SyncAck, now: int) -> None:
        core = self._core
        if ack.bits != run.buckets.bits:
            run.buckets = Buckets(core.members, ack.bits, core.dialect)
        run.first = ack.until
        if run.read is not None:
            run.read.extend(ack.rows)
            return
        self._rows.merge(ack.rows, now, told_by=ack.source)
        theirs = {row.name: row for row in ack.rows}
        for name in run.buckets.names_in(ack.buckets):
            ours = core.members.get(name)
            if ours is not None and merged(ours, theirs.get(name)) is not None:
                run.better.append(name)

    # The runs of peers.

    def answer(self, request: Sync, now: int) -> SyncAck:
        """Apply the rows in *request*, and return our rows that it asks for."""
        core = self._core
        self._rows.merge(request.rows, now, told_by=request.source)
        buckets = self._current_buckets(max(request.bits, bits_for(len(core.members))))
        differing = buckets.differing(request.bits, request.first, request.bucket_sums)
        until, whole, rows = self._fitting(buckets, differing)
        return SyncAck(core.name, core.members.checksum, buckets.bits, until, whole, rows)

    def _current_buckets(self, bits: int) -> Buckets:
        # Computed only after a change, because one run of a peer asks many times.
        members = self._core.members
        state = members.checksum, len(members)
        if self._buckets_of != state or self._buckets.bits != bits:
            self._buckets = Buckets(members, bits, self._core.dialect)
            self._buckets_of = state
        return self._buckets

    def _fitting(
        self, buckets: Buckets, differing: list[int]
    ) -> tuple[int, tuple[int, ...], tuple[Member, ...]]:
        # The result is `until`, `buckets` and `rows` of a `SyncAck`.
        limit = self._core.config.sync_rows_max
        until = len(buckets.sums)
        whole: list[int] = []
        names: list[str] = []
        for bucket in differing:
            in_bucket = buckets.names[bucket]
            if len(names) + len(in_bucket) <= limit:
                whole.append(bucket)
                names += in_bucket
            elif whole:
                until = bucket
                break
            else:
                # Names can be chosen to fall into one bucket. Then we send random rows of it, and
                # do not call the bucket whole; other runs send others.
                names = self._core.rng.sample(in_bucket, limit)
                until = bucket + 1
                break
        rows = (self._core.members.get(name) for name in names)
        return until, tuple(whole), tuple(row for row in rows if row is not None)
