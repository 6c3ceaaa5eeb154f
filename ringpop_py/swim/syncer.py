"""Syncs: two lists that differ become one, with as little said as they differ.

A run is one pass over the buckets with one peer. Each round we send the sums of the buckets that
are left; the peer answers with its rows of those that differ, as many as fit into a message; we
take them in, and send with the next round what we know better. So each message is bounded, and a
pass ends, whatever the peer says; what differs after it (or came meanwhile) is for another run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.buckets import Buckets, bits_for
from ringpop_py.swim.member import Member, merged
from ringpop_py.swim.messages import Failure, Sync, SyncAck, packed_sums
from ringpop_py.swim.timers import microseconds
from ringpop_py.swim.waits import PeerSync, SyncCall
from ringpop_py.values.declared import replace

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.calls import Calls, Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.rows import Rows
    from ringpop_py.swim.waits import Continuation

DIFFERENCES_MAX: Final = 64
"""After so many answers in a row from peers that see the cluster otherwise, we sync although
there is news under way: where there always is some, lists that differ would differ for ever."""


@dataclass(slots=True)
class _Run:
    """One pass.

    Attributes:
        then: what it is made for: that gets a `SyncAck` once the pass is over, and otherwise what
            came instead.
        buckets: our list as it was when the pass began. What is taken in changes only buckets
            that are behind us, so those before us need not be counted anew each round.
        first: the bucket that comes next.
        better: whom we know better than the peer, and have still to tell it of.
        read: where rows are not to be taken in, but collected: all so far.
    """

    peer: Address
    buckets: Buckets
    then: Continuation
    rounds_left: int
    first: int = 0
    better: deque[str] = field(default_factory=deque)
    read: list[Member] | None = None

    @property
    def over(self) -> bool:
        """Whether there is nothing more to ask nor to tell."""
        return self.first == len(self.buckets.sums) and not self.better


class Syncer:
    """Begins runs, by itself when a peer's view differs, and answers those of peers.

    Of the latter it keeps nothing from one round to the next.
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

    # When.

    def heard(self, peer: Address, checksum: int | None, now: int, *, quiet: bool) -> None:
        """*peer*'s view has *checksum*: begin a run if it differs.

        Args:
            quiet: neither side has news to tell, which would be the better way.
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
        """A run that we began by ourselves is over."""
        self._open.discard(peer)

    def _is_due(self, peer: Address, now: int) -> bool:
        """Whether no run with *peer* is open, nor was begun less than a period ago."""
        before = now - microseconds(self._core.config.period_s)
        while self._begun_at:
            oldest = next(iter(self._begun_at))
            if self._begun_at[oldest] > before:
                break
            del self._begun_at[oldest]
        return peer not in self._begun_at and peer not in self._open

    def begin(self, peer: Address, then: Continuation, now: int) -> None:
        """Bring our list and that of whoever listens at *peer* together, now."""
        self._core.counts.delta_syncs += 1
        self._ask(self._run(peer, then), now)

    def read(self, peer: Address, then: Continuation, now: int) -> None:
        """Read the peer's rows of all buckets that differ, and take in none.

        *then* gets a `SyncAck` that holds all of them, or what came instead.
        """
        number = self._run(peer, then)
        self._runs[number].read = []
        self._ask(number, now)

    # How.

    def _run(self, peer: Address, then: Continuation) -> int:
        config, members = self._core.config, self._core.members
        # Enough to read a full list and to tell another; a peer can hold a run open no longer.
        rounds_max = 4 + 4 * -(-config.members_max // config.sync_rows_max)
        buckets = Buckets(members, bits_for(len(members)), self._core.dialect)
        self._run_count += 1
        self._runs[self._run_count] = _Run(peer, buckets, then, rounds_max)
        return self._run_count

    def _ask(self, number: int, now: int) -> None:
        core, run = self._core, self._runs[number]
        run.rounds_left -= 1
        request = Sync(
            core.cluster,
            core.ring_points,
            core.name,
            *core.address,
            core.local.incarnation,
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
        """A round of the run *number* is over.

        Returns: what the run was made for, and how it ended; None if it goes on.
        """
        run = self._runs[number]
        end = self._end_after(run, outcome, now) if isinstance(outcome, SyncAck) else outcome
        if end is None:
            self._ask(number, now)
            return None
        del self._runs[number]
        return run.then, end

    def _rows_to_tell(self, run: _Run) -> tuple[Member, ...]:
        """The next of those that we know better, as we know them by now."""
        count = min(len(run.better), self._core.config.sync_rows_max)
        names = [run.better.popleft() for _ in range(count)]
        rows = [self._core.members.get(name) for name in names]
        return tuple(row for row in rows if row is not None)

    def _end_after(self, run: _Run, ack: SyncAck, now: int) -> Outcome | None:
        """Take in *ack*. Returns: how *run* has ended; None if it goes on."""
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
        """Whether *ack* answers what was asked, in buckets no finer than there can be need of."""
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
        """Take in what *request* tells, and find what it asks for."""
        core = self._core
        self._rows.merge(request.rows, now, told_by=request.source)
        buckets = self._current_buckets(max(request.bits, bits_for(len(core.members))))
        differing = buckets.differing(request.bits, request.first, request.bucket_sums)
        until, whole, rows = self._fitting(buckets, differing)
        return SyncAck(core.name, core.members.checksum, buckets.bits, until, whole, rows)

    def _current_buckets(self, bits: int) -> Buckets:
        """Our list in buckets, which are kept while it stays as it is: a run asks many times."""
        members = self._core.members
        state = members.checksum, len(members)
        if self._buckets_of != state or self._buckets.bits != bits:
            self._buckets = Buckets(members, bits, self._core.dialect)
            self._buckets_of = state
        return self._buckets

    def _fitting(
        self, buckets: Buckets, differing: list[int]
    ) -> tuple[int, tuple[int, ...], tuple[Member, ...]]:
        """What of *differing* a message holds: until which bucket, which whole, their rows."""
        limit = self._core.config.sync_rows_max
        until = len(buckets.sums)
        whole: list[int] = []
        names: list[str] = []
        for bucket in differing:
            in_bucket = buckets.names(bucket)
            if len(names) + len(in_bucket) <= limit:
                whole.append(bucket)
                names += in_bucket
            elif whole:
                until = bucket
                break
            else:
                # Names can be made to fall into one bucket. Then some of it, by chance: it is
                # not said to be whole, and other runs bring others.
                names = self._core.rng.sample(in_bucket, limit)
                until = bucket + 1
                break
        rows = (self._core.members.get(name) for name in names)
        return until, tuple(whole), tuple(row for row in rows if row is not None)
