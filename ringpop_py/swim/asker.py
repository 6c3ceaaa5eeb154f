"""The requests that we make of peers, and what of their answers every asker wants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringpop_py.swim.effects import JoinRejected
from ringpop_py.swim.messages import (
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
from ringpop_py.swim.timers import microseconds

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.calls import Calls, OnDone, Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.member import Member
    from ringpop_py.swim.rows import Rows
    from ringpop_py.swim.syncer import Syncer


class Asker:
    """Sends pings with what there is to say, and takes in what rides on their answers."""

    def __init__(self, core: Core, calls: Calls, rows: Rows, syncer: Syncer) -> None:
        self._core = core
        self._calls = calls
        self._rows = rows
        self._syncer = syncer

    def ping(
        self,
        target: Member,
        done: OnDone,
        now: int,
        *,
        to_sync: bool = False,
        timeout_us: int | None = None,
    ) -> None:
        """Ping *target* with what there is to say; *done* gets an `Ack` only from itself.

        It waits for *timeout_us*, or as long as our health demands. If our views differ after
        that, and neither had news, they are synced; with *to_sync* in spite of news.
        """
        core = self._core
        sent = self._changes_for(target)
        stall_count = core.stall_count
        if timeout_us is None:
            timeout_us = microseconds(core.config.ping_timeout_s) * core.health.factor

        def answered(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, Ack):
                self._rows.dissemination.count_sent(sent)
                told_by = outcome.source or target.name
                self._rows.update(outcome.changes, now, via="ack", told_by=told_by)
                if outcome.source not in ("", target.name):
                    # Another member listens there now; the one we asked did not answer.
                    done(Failure("replaced", f"answered by {outcome.source}"), now)
                    return
                quiet = to_sync or not (sent or outcome.changes)
                self._syncer.heard(target.address, outcome.checksum, now, quiet=quiet)
            elif _timed_out(outcome) and core.stall_count != stall_count and not core.stopped:
                # It was we who were not there: the answer may have come and been given up by
                # whoever carries our calls. So that says nothing; each stall repeats it once.
                self.ping(target, done, now, to_sync=to_sync, timeout_us=timeout_us)
                return
            done(outcome, now)

        core.counts.pings_sent += 1
        request = self._ping_request(sent)
        self._calls.open(target.address, request, timeout_us, answered, now)

    def ping_through(self, helper: Member, target: Member, done: OnDone, now: int) -> None:
        """Let *helper* ping *target* for us."""
        core = self._core
        sent = self._rows.dissemination.pending()

        def answered(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, PingReqAck):
                self._rows.dissemination.count_sent(sent)
                self._rows.update(outcome.changes, now, via="ping-req", told_by=helper.name)
            done(outcome, now)

        request = PingReq(
            core.cluster,
            core.name,
            core.address,
            core.local.incarnation,
            core.members.checksum,
            target.name,
            target.address,
            sent,
        )
        core.counts.ping_reqs_sent += 1
        timeout_us = microseconds(core.config.ping_req_timeout_s) * core.health.factor
        self._calls.open(helper.address, request, timeout_us, answered, now)

    def tell(
        self,
        to: Address,
        changes: tuple[MemberChange, ...],
        timeout_s: float,
        done: OnDone,
        now: int,
    ) -> None:
        """Say just *changes* to whoever listens there; what they answer is not taken in."""
        self._calls.open(to, self._ping_request(changes), microseconds(timeout_s), done, now)

    def fetch_list(self, to: Address, timeout_s: float, done: OnDone, now: int) -> None:
        """Ask for a member list; *done* gets a `JoinAck` only from our own cluster.

        In the ringpop dialect the node that is asked compares the names of the clusters.

        The list is without the answerer's own row where that would move a member that we hold for
        reachable: the answerer may be joining, and not know yet that its name is taken. If it
        has the name, it says so itself.
        """
        core = self._core
        compares = core.dialect.extends

        def answered(outcome: Outcome, now: int) -> None:
            if compares and isinstance(outcome, JoinAck) and outcome.cluster != core.cluster:
                outcome = Failure("declined", f"answered by cluster {outcome.cluster!r}")
            if isinstance(outcome, JoinAck):
                outcome = self._without_moves(outcome)
            elif isinstance(outcome, Refusal) and outcome.kind != "self-join":
                core.emit(JoinRejected(to, outcome.message, fatal=False))
            elif isinstance(outcome, Failure) and outcome.reason == "declined":
                core.emit(JoinRejected(to, str(outcome), fatal=False))
            done(outcome, now)

        self._calls.open(to, self._join_request(), microseconds(timeout_s), answered, now)

    def _without_moves(self, list_: JoinAck) -> JoinAck:
        core = self._core
        held = core.members.get(list_.source)
        if held is None or held.name == core.name or not held.status.reachable:
            return list_
        members = tuple(
            row for row in list_.members if row.name != held.name or row.address == held.address
        )
        return list_ if len(members) == len(list_.members) else replace(list_, members=members)

    def _changes_for(self, target: Member) -> tuple[MemberChange, ...]:
        """What rides, and before it what *target* has to refute, even if that rides no more.

        It may be all that keeps a member alive whose refutation got lost (Lifeguard, IV-C).
        """
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
            core.name,
            core.address,
            core.local.incarnation,
            core.members.checksum,
            changes,
            core.digest if core.dialect.extends else None,
        )

    def _join_request(self) -> Join:
        core = self._core
        return Join(
            core.cluster,
            core.ring_points if core.dialect.sends_cluster else None,
            core.name,
            core.address,
            core.local.incarnation,
            core.config.join_timeout_s,
        )


def _timed_out(outcome: Outcome) -> bool:
    return isinstance(outcome, Failure) and outcome.reason == "timeout"
