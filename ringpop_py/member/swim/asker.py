"""Our requests to peers, and the part of handling their answers that all callers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import JoinRejected
from ringpop_py.member.swim.messages import (
    Ack,
    Failure,
    Join,
    JoinAck,
    MemberChange,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
)
from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.waits import BatchPing, ListCall, PingCall, PingReqCall

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.calls import Calls, Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.effects import Effect
    from ringpop_py.member.swim.member import Member
    from ringpop_py.member.swim.rows import Rows
    from ringpop_py.member.swim.syncer import Syncer
    from ringpop_py.member.swim.waits import Continuation


class Asker:
    """Sends requests with the changes that ride on them, and applies those in the answers.

    Attributes:
        batches: the groups of pings that have not all ended: how many are open, and what follows.
    """

    def __init__(self, core: Core, calls: Calls, rows: Rows, syncer: Syncer) -> None:
        self._core = core
        self._calls = calls
        self._rows = rows
        self._syncer = syncer
        self.batches: dict[int, tuple[int, Effect | None]] = {}
        self._batch_count = 0

    def ping(
        self,
        target: Member,
        then: Continuation,
        now: int,
        *,
        to_sync: bool = False,
        timeout_us: int | None = None,
    ) -> None:
        """Ping *target*; an `Ack` reaches *then* only if *target* itself sent it.

        If the checksums differ afterwards and neither side had news, a sync begins.

        Args:
            to_sync: begin the sync even if there was news.
            timeout_us: by default `ping_timeout_s` times the factor of local health.
        """
        core = self._core
        sent = self._changes_for(target)
        if timeout_us is None:
            timeout_us = microseconds(core.config.ping_timeout_s) * core.health.factor
        core.counts.pings_sent += 1
        call = PingCall(target, sent, core.clock.stall_count, timeout_us, to_sync, then)
        self._calls.open(target.address, self._ping_request(sent), timeout_us, call, now)

    def pinged(self, call: PingCall, outcome: Outcome, now: int) -> Outcome | None:
        """Apply the answer to a ping. Return the ping's outcome; None if it is sent once more."""
        core, target = self._core, call.target
        if isinstance(outcome, Ack):
            self._rows.dissemination.count_sent(call.sent)
            told_by = outcome.source or target.name
            if outcome.changes:  # few answers have any
                self._rows.update(outcome.changes, now, via="ack", told_by=told_by)
            if outcome.source not in ("", target.name):
                # Another member listens there now: our target did not answer, and may be gone.
                return Failure("replaced", f"answered by {outcome.source}")
            self._rows.heard_from(target.name)
            quiet = call.to_sync or not (call.sent or outcome.changes)
            self._syncer.heard(target.address, outcome.checksum, now, quiet=quiet)
        elif (
            isinstance(outcome, Failure)
            and outcome.reason == "timeout"
            and core.clock.stall_count != call.stall_count
            and not core.stopped
        ):
            # We stalled: the answer may have arrived and been discarded by the transport. So the
            # time-out says nothing about the target. Each stall repeats a ping at most once.
            self.ping(target, call.then, now, to_sync=call.to_sync, timeout_us=call.timeout_us)
            return None
        return outcome

    def ping_some(self, count: int, then: Effect | None, now: int) -> None:
        """Ping up to *count* random members; emit *then* when each has answered or failed to."""
        targets = self._core.members.random_pingable(count)
        if not targets:
            if then is not None:
                self._core.emit(then)
            return
        self._batch_count += 1
        self.batches[self._batch_count] = len(targets), then
        for target in targets:
            self.ping(target, BatchPing(self._batch_count), now)

    def batch_pinged(self, batch: int) -> None:
        """Count one ping of *batch* as over; emit the effect of the batch after the last one."""
        open_count, then = self.batches.pop(batch)
        if open_count > 1:
            self.batches[batch] = open_count - 1, then
        elif then is not None:
            self._core.emit(then)

    def ping_through(self, helper: Member, target: Member, then: Continuation, now: int) -> None:
        """Ask *helper* to ping *target* for us."""
        core = self._core
        sent = self._rows.dissemination.pending()
        checksum = core.members.checksum
        request = PingReq(core.cluster, *core.sender, checksum, target.name, *target.address, sent)
        core.counts.ping_reqs_sent += 1
        timeout_us = microseconds(core.config.ping_req_timeout_s) * core.health.factor
        call = PingReqCall(helper.name, sent, then)
        self._calls.open(helper.address, request, timeout_us, call, now)

    def pinged_through(self, call: PingReqCall, outcome: Outcome, now: int) -> None:
        """Apply the changes in a helper's answer, if it answered."""
        if isinstance(outcome, PingReqAck):
            self._rows.dissemination.count_sent(call.sent)
            self._rows.update(outcome.changes, now, via="ping-req", told_by=call.helper)

    def tell(
        self,
        to: Address,
        changes: tuple[MemberChange, ...],
        timeout_s: float,
        then: Continuation,
        now: int,
    ) -> None:
        """Send exactly *changes* to the process at *to*; the changes in its answer are ignored."""
        self._calls.open(to, self._ping_request(changes), microseconds(timeout_s), then, now)

    def fetch_list(self, to: Address, timeout_s: float, then: Continuation, now: int) -> None:
        """Ask for a member list; *then* gets a `JoinAck` only from our own cluster.

        In the ringpop dialect only the receiver of the request compares the clusters' names.
        """
        core = self._core
        ring_points = core.ring_points if core.dialect.sends_cluster else None
        timeout_ms = round(core.config.join_timeout_s * 1000)
        request = Join(core.cluster, ring_points, *core.sender, timeout_ms)
        self._calls.open(to, request, microseconds(timeout_s), ListCall(to, then), now)

    def list_fetched(self, call: ListCall, outcome: Outcome) -> Outcome:
        """Report a refusal to let us join. Return the outcome for the caller."""
        core = self._core
        compares = core.dialect.extends
        if compares and isinstance(outcome, JoinAck) and outcome.cluster != core.cluster:
            outcome = Failure("declined", f"answered by cluster {outcome.cluster!r}")
        if isinstance(outcome, JoinAck):
            return self._without_moves(outcome)
        if isinstance(outcome, Refusal) and outcome.kind != "self-join":
            core.emit(JoinRejected(call.to, outcome.message, fatal=False))
        elif isinstance(outcome, Failure) and outcome.reason == "declined":
            core.emit(JoinRejected(call.to, str(outcome), fatal=False))
        return outcome

    def _without_moves(self, list_: JoinAck) -> JoinAck:
        # The answerer's own row must not move a member that we consider reachable: the answerer
        # may be joining, and not know yet that its name is taken. If the name is its own, its
        # pings will say so.
        core = self._core
        held = core.members.get(list_.source)
        if held is None or held.name == core.name or not held.status.reachable:
            return list_
        members = tuple(
            row for row in list_.members if row.name != held.name or row.address == held.address
        )
        return list_ if len(members) == len(list_.members) else replace(list_, members=members)

    def _changes_for(self, target: Member) -> tuple[MemberChange, ...]:
        # A suspect's accusation comes first, and is sent even if it no longer rides, because the
        # refutation may have been lost (Lifeguard, section IV-C).
        config, pending = self._core.config, self._rows.dissemination.pending()
        accusation = self._rows.accusation_of(target)
        if accusation is None or not config.tells_suspects:
            return pending
        rider = next((change for change in pending if change.member.name == target.name), None)
        others = [change for change in pending if change is not rider]
        if config.delta_sync:
            others = others[: config.changes_max - 1]
        return (rider or accusation, *others)

    def _ping_request(self, changes: tuple[MemberChange, ...]) -> Ping:
        core = self._core
        return Ping(
            core.cluster,
            core.ring_points if core.dialect.sends_cluster else None,
            *core.sender,
            core.members.checksum,
            changes,
            core.digest if core.dialect.extends else None,
        )
