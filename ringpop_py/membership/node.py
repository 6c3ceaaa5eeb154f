"""Node: one member of a cluster as a state machine. Read this file first.

A driver owns a node. It tells it what arrived (`receive`), lets it act when a time has come
(`advance`, at `next_deadline`), and carries out the effects that both return, in their order.
Instants are integers: microseconds of a clock that never goes backwards.

The protocol is SWIM as Ringpop runs it: every period the next member of the rotation is pinged;
one that does not answer is pinged through helpers; one that they cannot reach either becomes
suspect, and unless it refutes, faulty. What changed rides on pings and their answers.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from ringpop_py.membership.dissemination import Dissemination
from ringpop_py.membership.effects import (
    Answer,
    Call,
    Effect,
    Evicted,
    Healed,
    JoinRejected,
    Ready,
    Refuted,
    StatusChanged,
    Via,
)
from ringpop_py.membership.healing import Healing, contradictions
from ringpop_py.membership.joining import SECOND_US, JoinRounds
from ringpop_py.membership.member import Labels, Member, Status, overrides
from ringpop_py.membership.memberlist import MemberList
from ringpop_py.membership.messages import (
    Ack,
    Answered,
    Asked,
    Change,
    Disconnected,
    Failed,
    Input,
    Join,
    JoinAck,
    Ping,
    PingReq,
    PingReqAck,
    Refusal,
    Request,
    Response,
)
from ringpop_py.membership.probe import Probe, Verdict
from ringpop_py.membership.suspicion import StatusTimers
from ringpop_py.membership.timers import Timer, Timers

if TYPE_CHECKING:
    import random

    from ringpop_py.address import Address
    from ringpop_py.config import GossipConfig
    from ringpop_py.dialect import Dialect

PERIODS_MEASURED: Final = 101
FATAL_REFUSALS: Final = frozenset({"ring-points"})

OnDone = Callable[[Response | None, str, int], None]
"""What to do with the response to a call, or None and the reason for having none, and when."""


@dataclass(slots=True)
class _OpenCall:
    timeout: Timer
    done: OnDone


@dataclass(slots=True)
class NodeCounts:
    """How often things happened since the node was made."""

    pings_sent: int = 0
    pings_received: int = 0
    ping_failures: int = 0
    ping_reqs_sent: int = 0
    ping_reqs_received: int = 0
    joins_received: int = 0
    full_syncs: int = 0
    reverse_full_syncs: int = 0
    reverse_full_syncs_omitted: int = 0
    refutations: int = 0
    refusals: int = 0
    changes_applied: int = 0
    members_over_limit: int = 0
    probes_inconclusive: int = 0
    periods_skipped: int = 0


class Node:
    """Ourselves, and what we believe of the others.

    Args:
        local: our row; its incarnation is the wall clock's milliseconds at *now*, so that a
            restart outbids what was said of us before.
        cluster: the name that peers must have, too.
        rng: the only source of chance.
        now: the instant of making, on the driver's clock.
    """

    def __init__(
        self,
        local: Member,
        *,
        cluster: str,
        ring_points: int,
        dialect: Dialect,
        config: GossipConfig,
        rng: random.Random,
        now: int,
    ) -> None:
        self.cluster = cluster
        self.ring_points = ring_points
        self.dialect = dialect
        self.config = config
        self.members = MemberList(local, dialect=dialect, rng=rng)
        self.counts = NodeCounts()
        self.ready = False
        self.gossiping = False
        self.evicting = False
        self._name = local.name
        self._address = local.address
        self._rng = rng
        self._wall_ms_at_zero = local.incarnation - now // 1000
        self._effects: list[Effect] = []
        self._timers = Timers()
        self._calls: dict[int, _OpenCall] = {}
        self._call_count = 0
        self._dissemination = Dissemination(config.piggyback_factor)
        self._dissemination.record(Change(local, local.name, local.incarnation))
        faulty_us = _us(config.faulty_s)
        after_us = {
            Status.SUSPECT: _us(config.suspect_s),
            Status.FAULTY: faulty_us,
            Status.TOMBSTONE: _us(config.tombstone_s),
        }
        if dialect.retires_leavers:
            after_us[Status.LEAVE] = faulty_us
        self._status_timers = StatusTimers(self._timers, after_us, self._status_expired)
        self._joining = JoinRounds(local.address, config, rng)
        self._join_timer: Timer | None = None
        self._rejected: JoinRejected | None = None
        self._period_timer: Timer | None = None
        self._heal_timer: Timer | None = None
        self._period_at = 0
        self._periods_us: deque[int] = deque(maxlen=PERIODS_MEASURED)
        self._period_us = _us(config.period_s)
        self._period_measured_at = now
        self._probe: Probe | None = None
        self._urgent: dict[str, None] = {}
        self._hurried: set[str] = set()
        self._exchanging: set[str] = set()
        self._healing: Healing | None = None
        self._reverse_full_syncs_open = 0
        self._farewells_open = 0

    # The surface of a driver.

    @property
    def local(self) -> Member:
        """Our own row."""
        return self.members.local

    @property
    def next_deadline(self) -> int | None:
        """When `advance` has something to do, if nothing arrives before."""
        return self._timers.next_at

    @property
    def period_us(self) -> int:
        """The protocol period as it is now: twice the median probe, but at least the set one."""
        return self._period_us

    def timing(self) -> dict[str, float]:
        """How long the last probes took, in milliseconds, in the names that Ringpop uses."""
        values = sorted(us / 1000 for us in self._periods_us) or [0.0]
        mean = statistics.fmean(values)
        shares = {"median": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "p999": 0.999}
        return {
            "count": len(self._periods_us),
            "min": values[0],
            "max": values[-1],
            "sum": sum(values),
            "mean": mean,
            "variance": statistics.pvariance(values, mean),
            "std_dev": statistics.pstdev(values, mean),
            **{name: values[int(share * (len(values) - 1))] for name, share in shares.items()},
        }

    def start(self, hosts: Sequence[Address], now: int) -> list[Effect]:
        """Join the cluster that *hosts* are seeds of; ourselves among them do no harm."""
        self._joining.set_hosts(hosts)
        self._next_join_round(now)
        return self._take_effects()

    def set_hosts(self, hosts: Sequence[Address], now: int) -> list[Effect]:
        """Ask these from now on, the new ones at once."""
        self._joining.set_hosts(hosts)
        asks = not self.evicting and (self.dialect.joins_alone or not self.ready)
        if asks and not self._joining.round_open:
            self._cancel_join_timer()
            self._next_join_round(now)
        return self._take_effects()

    def receive(self, message: Input, now: int) -> list[Effect]:
        """Take in one thing that has happened outside."""
        match message:
            case Asked(token, request):
                response = self._response_to(request, token, now)
                if response is not None:
                    self.counts.refusals += isinstance(response, Refusal)
                    self._effects.append(Answer(token, response))
            case Answered(call_id, response):
                self._close_call(call_id, response, "", now)
            case Failed(call_id, reason, detail):
                self._close_call(call_id, None, f"{reason}: {detail}" if detail else reason, now)
            case Disconnected(address):
                self._probe_soon(address, now)
            case _:
                assert_never(message)
        return self._take_effects()

    def advance(self, now: int) -> list[Effect]:
        """Do what is due at *now*."""
        self._timers.fire(now)
        return self._take_effects()

    # The surface of an operator.

    def leave(self, now: int) -> list[Effect]:
        """Leave the ring, but go on answering and gossiping."""
        self._set_local_status(Status.LEAVE, now)
        return self._take_effects()

    def rejoin(self, now: int) -> list[Effect]:
        """Come back after `leave`; without effect otherwise, and once we evict ourselves."""
        if self.local.status is not Status.ALIVE and not self.evicting:
            self._set_local_status(Status.ALIVE, now)
        return self._take_effects()

    def set_labels(self, labels: Labels, now: int) -> list[Effect]:
        """Replace our labels (`member.checked_labels` has seen them)."""
        self._set_local(replace(self.local, labels=labels), now)
        return self._take_effects()

    def evict_self(self, now: int) -> list[Effect]:
        """Say farewell to a share of the members; `Evicted` comes when it is said.

        A second time does nothing.
        """
        if self.evicting:
            return []
        leaves = self.dialect.leaves_on_eviction
        self._set_local_status(Status.LEAVE if leaves else Status.FAULTY, now)
        self.evicting = True
        self.stop_gossip()
        self._cancel_join_timer()
        pingable = self.members.pingable_count
        share = math.ceil(pingable * self.config.eviction_ping_ratio)
        count = min(self._dissemination.maximum, pingable, share)
        targets = self.members.random_pingable(count)
        self._farewells_open = len(targets)
        for target in targets:
            self._ping(target, self._farewell_said, now)
        if not targets:
            self._effects.append(Evicted())
        return self._take_effects()

    @property
    def reapable(self) -> list[Member]:
        """The members that are gone: faulty, or left, where those who left retire."""
        gone = (Status.FAULTY, Status.LEAVE) if self.dialect.retires_leavers else (Status.FAULTY,)
        return [m for m in self.members if m.status in gone and m.name != self._name]

    def reap(self, now: int) -> list[Effect]:
        """Make tombstones of all that are `reapable`."""
        rows = [replace(member, status=Status.TOMBSTONE) for member in self.reapable]
        self._update([self._own_change(row) for row in rows], now, via="reap", told_by=self._name)
        return self._take_effects()

    def start_gossip(self, now: int) -> list[Effect]:
        """Begin with the protocol periods, at once; without effect where they run."""
        self._begin_gossip(now)
        return self._take_effects()

    def stop_gossip(self) -> None:
        """Send no more pings of our own; go on answering."""
        self.gossiping = False
        for timer in (self._period_timer, self._heal_timer):
            if timer is not None:
                timer.cancel()

    def exchange(self, name: str, now: int) -> list[Effect]:
        """Exchange what is known with *name*, whose view of the cluster differs from ours.

        One ping at a time, however many requests the peer refuses meanwhile.
        """
        peer = self.members.get(name)
        fits = name != self._name and name not in self._exchanging
        if peer is not None and fits and self.dialect.pings_out_of_turn:
            self._exchanging.add(name)

            def done(_response: Response | None, _reason: str, _now: int) -> None:
                self._exchanging.discard(name)

            self._ping(peer, done, now)
        return self._take_effects()

    def heal(self, now: int) -> list[Effect]:
        """Look for sides of a split among the hosts, and merge with them; ends with `Healed`.

        While a run is open, a second one does nothing.
        """
        self._begin_healing(now)
        return self._take_effects()

    def tick(self, now: int) -> list[Effect]:
        """Probe the next member now, whether or not the protocol periods run."""
        self._probe_next(now)
        return self._take_effects()

    # Requests.

    def _response_to(self, request: Request, token: int, now: int) -> Response | None:
        """The response, or None if it is among the effects already or will follow."""
        match request:
            case Ping():
                self.counts.pings_received += 1
                refusal = self._refusal(request)
                if refusal is None:
                    self._pinged(request, token, now)
                return refusal
            case PingReq():
                self.counts.ping_reqs_received += 1
                refusal = self._refusal(request)
                if refusal is None:
                    self._ping_for(request, token, now)
                return refusal
            case Join():
                self.counts.joins_received += 1
                return self._refusal(request) or self._asked_to_join()
            case _:
                assert_never(request)

    def _refusal(self, request: Request) -> Refusal | None:
        """Why *request* is not served, if it is not. Strangers learn nothing of our list."""
        if request.cluster not in (None, self.cluster):
            names = f"this is cluster {self.cluster!r}, not {request.cluster!r}"
            return Refusal("wrong-cluster", names)
        if not isinstance(request, PingReq) and request.ring_points not in (None, self.ring_points):
            message = (
                f"cluster {self.cluster!r} has {self.ring_points} ring points a member, "
                f"{request.source} has {request.ring_points}: set --ring-points to one number"
            )
            return Refusal("ring-points", message)
        if isinstance(request, Join):
            if request.source == self._name and request.source_address == self._address:
                return Refusal("self-join", f"{self._name} asked itself to join")
            return None
        if not self.ready and not self.dialect.answers_while_joining:
            return Refusal("not-ready", "node is not ready to handle requests")
        return None

    def _pinged(self, ping: Ping, token: int, now: int) -> None:
        self._update(ping.changes, now, via="ping", told_by=ping.source)
        changes, is_full_sync = self._changes_for(ping)
        ack = Ack(self._name, self.local.incarnation, self.members.checksum, changes)
        self._effects.append(Answer(token, ack))
        if is_full_sync:
            self._begin_reverse_full_sync(ping.source_address, now)

    def _ping_for(self, request: PingReq, token: int, now: int) -> None:
        self._update(request.changes, now, via="ping-req", told_by=request.source)
        target = self.members.get(request.target)
        if target is None or target.address != request.target_address:
            target = Member(request.target, request.target_address, 0)

        def answered(response: Response | None, _reason: str, _now: int) -> None:
            changes, _ = self._changes_for(request)
            ping_ok = isinstance(response, Ack)
            self._effects.append(Answer(token, PingReqAck(request.target, ping_ok, changes)))

        self._ping(target, answered, now)

    def _asked_to_join(self) -> JoinAck:
        # The joiner is not added: it spreads word of itself, by gossip.
        return JoinAck(
            self.cluster,
            self._name,
            self.local.incarnation,
            self.members.checksum,
            tuple(self.members),
        )

    def _changes_for(self, request: Ping | PingReq) -> tuple[tuple[Change, ...], bool]:
        """The changes to answer *request* with, and whether they are the whole list."""
        changes = self._dissemination.for_peer(request.source, request.source_incarnation)
        self._dissemination.count_sent(changes)
        if changes or request.checksum == self.members.checksum:
            return changes, False
        self.counts.full_syncs += 1
        return tuple(self._own_change(member) for member in self.members), True

    def _begin_reverse_full_sync(self, peer: Address, now: int) -> None:
        """Fetch the list of a peer that we had to send ours."""
        if self._reverse_full_syncs_open >= self.config.reverse_full_syncs_max:
            self.counts.reverse_full_syncs_omitted += 1
            return
        self._reverse_full_syncs_open += 1
        self.counts.reverse_full_syncs += 1

        def done(response: Response | None, _reason: str, now: int) -> None:
            self._reverse_full_syncs_open -= 1
            if isinstance(response, JoinAck) and response.cluster == self.cluster:
                self._update_from_list(response, now, via="full-sync")

        self._call(peer, self._join_request(), self.config.join_timeout_s, done, now)

    # Joining.

    def _join_request(self) -> Join:
        return Join(
            self.cluster,
            self.ring_points if self.dialect.sends_cluster else None,
            self._name,
            self._address,
            self.local.incarnation,
            self.config.join_timeout_s,
        )

    def _next_join_round(self, now: int) -> None:
        known = {m.address for m in self.members} if self.dialect.joins_alone else set()
        group = self._joining.next_group(known)
        self._rejected = None
        for host in group:
            self._ask_to_join(host, now)
        if not group:
            self._join_round_done(now)

    def _ask_to_join(self, host: Address, now: int) -> None:
        def done(response: Response | None, reason: str, now: int) -> None:
            accepted = isinstance(response, JoinAck) and response.cluster == self.cluster
            self._joining.done(host, answered=accepted)
            if accepted:
                assert isinstance(response, JoinAck)
                self._update_from_list(response, now, via="join")
            elif isinstance(response, Refusal) and response.kind != "self-join":
                rejected = JoinRejected(host, response.message, fatal=False)
                self._effects.append(rejected)
                if response.kind in FATAL_REFUSALS:
                    self._rejected = rejected
            elif reason.startswith("declined"):
                self._effects.append(JoinRejected(host, reason, fatal=False))
            if not self._joining.round_open:
                self._join_round_done(now)

        self._call(host, self._join_request(), self.config.join_timeout_s, done, now)

    def _join_round_done(self, now: int) -> None:
        if self.evicting:
            return
        if self._rejected and not self.ready and self._joining.answered_count == 0:
            # All who answered refuse us for good. Where one accepts, it is the others that err.
            self._effects.append(replace(self._rejected, fatal=True))
            return
        if not self.ready and (self._joining.enough or self.dialect.joins_alone):
            self.ready = True
            self._effects.append(Ready(self._joining.answered_count))
            self._begin_gossip(now)
        if self._joins_left():
            delay_us = self._joining.delay_us()
            self._join_timer = self._timers.set(now + delay_us, self._next_join_round)

    def _joins_left(self) -> bool:
        """Whether there are hosts that still have to be asked."""
        if not self.dialect.joins_alone:
            return not self.ready
        known = {member.address for member in self.members}
        return bool(self._joining.silent(known))

    def _update_from_list(self, response: JoinAck, now: int, *, via: Via) -> None:
        """Take in a whole member list. It is news to us alone: only what we say rides on."""
        changes = [
            Change(member, response.source, response.source_incarnation)
            for member in response.members
        ]
        for change in self._update(changes, now, via=via, told_by=response.source):
            if change.member.name != self._name:
                self._dissemination.forget(change.member.name)

    # Healing.

    def _plan_healing(self, now: int) -> None:
        at = now + _us(self.config.heal_period_s)
        self._heal_timer = self._timers.set(at, self._heal_by_chance)

    def _heal_by_chance(self, now: int) -> None:
        """Keep the load on the cluster the same, whatever its size."""
        self._plan_healing(now)
        size = max(len(self._joining.hosts), self.members.pingable_count + 1)
        chosen = self._rng.random() < self.config.heal_share / size
        if chosen and self._hosts_apart():
            self._begin_healing(now)

    def _hosts_apart(self) -> list[Address]:
        """The hosts where nobody listens whom we hold for reachable."""
        reachable = {member.address for member in self.members if member.status.reachable}
        return [host for host in self._joining.hosts if host not in reachable]

    def _begin_healing(self, now: int) -> None:
        if self._healing is not None or self.evicting:
            return
        apart = self._hosts_apart()
        self._rng.shuffle(apart)
        self._healing = Healing(apart)
        self._heal_next(self._healing, now)

    def _heal_next(self, healing: Healing, now: int) -> None:
        target = healing.next_target()
        if target is None:
            self._healing = None
            self._effects.append(Healed(tuple(healing.healed)))
            return

        def done(response: Response | None, _reason: str, now: int) -> None:
            if isinstance(response, JoinAck) and response.cluster == self.cluster:
                self._heal_with(healing, target, response, now)
            else:
                healing.failure_count += 1
                self._heal_next(healing, now)

        self._call(target, self._join_request(), self.config.heal_timeout_s, done, now)

    def _heal_with(self, healing: Healing, target: Address, theirs: JoinAck, now: int) -> None:
        ours = {member.name: member for member in self.members}
        for_us, for_them = contradictions(ours, theirs.members)
        if for_us or for_them:
            self._update(for_us, now, via="heal", told_by=theirs.source)
        else:
            changes = [Change(member) for member in theirs.members]
            self._update(changes, now, via="heal", told_by=theirs.source)
            for_them = [Change(member) for member in self.members]

        def done(response: Response | None, _reason: str, now: int) -> None:
            if isinstance(response, Ack):
                # What it says beside is not taken in: old rumours that we are faulty may still
                # ride there, and would override the suspicions before they are refuted.
                healing.succeeded(theirs.members)
            else:
                healing.failure_count += 1
            self._heal_next(healing, now)

        if for_them:
            ping = self._ping_request(tuple(for_them))
            self._call(target, ping, self.config.heal_timeout_s, done, now)
        else:
            healing.succeeded(theirs.members)
            self._heal_next(healing, now)

    # Protocol periods.

    def _begin_gossip(self, now: int) -> None:
        if self.gossiping or self.evicting:
            return
        self.gossiping = True
        # The first probe goes out at once, the second after a part of a period drawn at random,
        # so that nodes that were started together do not stay in step.
        self._probe_next(now)
        self._period_at = now + self._rng.randint(0, self._period_us)
        self._period_timer = self._timers.set(self._period_at, self._begin_period)
        self._plan_healing(now)

    def _begin_period(self, now: int) -> None:
        # On an absolute schedule: counting from the answer would add its delay to each period.
        self._adapt_period(now)
        self._hurried.clear()
        self._period_at += self._period_us
        if self._period_at <= now:  # we were not running; no use in making up for it
            self._period_at = now + self._period_us
        self._period_timer = self._timers.set(self._period_at, self._begin_period)
        if self._probe is not None:
            self.counts.periods_skipped += 1
            return
        self._probe_next(now)

    def _adapt_period(self, now: int) -> None:
        if now - self._period_measured_at >= SECOND_US and self._periods_us:
            self._period_measured_at = now
            median_us = int(statistics.median(self._periods_us))
            self._period_us = max(2 * median_us, _us(self.config.period_s))

    def _probe_next(self, now: int) -> None:
        if self._probe is not None:
            return
        target = self._next_urgent() or self.members.next_to_probe()
        if target is not None:
            self._begin_probe(target, now)

    def _probe_soon(self, address: Address, now: int) -> None:
        """The connection to *address* broke: whoever is there is the next to be probed.

        Once a period at most, so that a peer that drops each connection is not called in a loop.
        """
        if not (self.dialect.pings_out_of_turn and self.gossiping):
            return
        for member in self.members:
            if member.address != address or not self.members.is_pingable(member):
                continue
            probed = self._probe is not None and self._probe.target.name == member.name
            if not probed and member.name not in self._hurried:
                self._hurried.add(member.name)
                self._urgent[member.name] = None
        if self._urgent:
            self._probe_next(now)

    def _next_urgent(self) -> Member | None:
        while self._urgent:
            name = next(iter(self._urgent))
            del self._urgent[name]
            member = self.members.get(name)
            if member is not None and self.members.is_pingable(member):
                return member
        return None

    def _begin_probe(self, target: Member, now: int) -> None:
        probe = self._probe = Probe(target, now)

        def done(response: Response | None, reason: str, now: int) -> None:
            if isinstance(response, Ack):
                probe.answered()
            else:
                self._ask_helpers(probe, reason or _said(response), now)
            self._close_probe(probe, now)

        self._ping(target, done, now)

    def _ask_helpers(self, probe: Probe, reason: str, now: int) -> None:
        self.counts.ping_failures += 1
        helpers = self.members.random_pingable(self.config.ping_req_size, but=probe.target.name)
        probe.ping_failed(reason, [helper.name for helper in helpers])
        for helper in helpers:
            self._ask_helper(probe, helper, now)

    def _ask_helper(self, probe: Probe, helper: Member, now: int) -> None:
        sent = self._dissemination.pending()

        def done(response: Response | None, _reason: str, now: int) -> None:
            if isinstance(response, PingReqAck):
                self._dissemination.count_sent(sent)
                self._update(response.changes, now, via="ping-req", told_by=helper.name)
            if probe.verdict is not Verdict.OPEN:
                return
            if isinstance(response, PingReqAck) and response.ping_ok:
                probe.answered()
            else:
                nacked = isinstance(response, PingReqAck)
                probe.helper_done(helper.name, nacked=nacked)
            self._close_probe(probe, now)

        request = PingReq(
            self.cluster,
            self._name,
            self._address,
            self.local.incarnation,
            self.members.checksum,
            probe.target.name,
            probe.target.address,
            sent,
        )
        self.counts.ping_reqs_sent += 1
        self._call(helper.address, request, self.config.ping_req_timeout_s, done, now)

    def _close_probe(self, probe: Probe, now: int) -> None:
        """Act on the verdict of *probe*, if it has one."""
        if probe.verdict is Verdict.OPEN:
            return
        if self._probe is probe:
            self._probe = None
            if probe.verdict is Verdict.REACHABLE:
                # Slow answers slow us down; members that do not answer must not.
                self._periods_us.append(now - probe.started_at)
        if probe.verdict is Verdict.INCONCLUSIVE:
            self.counts.probes_inconclusive += 1
        elif probe.verdict is Verdict.SUSPECT and self.members.get(probe.target.name):
            # Of the incarnation that was probed: a newer one has shown itself alive meanwhile.
            suspect = self._own_change(replace(probe.target, status=Status.SUSPECT))
            self._update([suspect], now, via="probe", told_by=self._name)
        if self._urgent and self.gossiping:
            self._probe_next(now)

    def _ping(self, target: Member, done: OnDone, now: int) -> None:
        """Ping *target* with what there is to say; *done* gets an `Ack` only from itself."""
        sent = self._dissemination.pending()

        def answered(response: Response | None, reason: str, now: int) -> None:
            if isinstance(response, Ack):
                self._dissemination.count_sent(sent)
                told_by = response.source or target.name
                self._update(response.changes, now, via="ack", told_by=told_by)
                if response.source not in ("", target.name):
                    # Another member listens there now; the one we asked did not answer.
                    done(None, f"answered by {response.source}", now)
                    return
            done(response, reason, now)

        self.counts.pings_sent += 1
        request = self._ping_request(sent)
        self._call(target.address, request, self.config.ping_timeout_s, answered, now)

    def _ping_request(self, changes: tuple[Change, ...]) -> Ping:
        return Ping(
            self.cluster,
            self.ring_points if self.dialect.sends_cluster else None,
            self._name,
            self._address,
            self.local.incarnation,
            self.members.checksum,
            changes,
        )

    # Calls.

    def _call(
        self, to: Address, request: Request, timeout_s: float, done: OnDone, now: int
    ) -> None:
        self._call_count += 1
        call_id, timeout_us = self._call_count, _us(timeout_s)
        timeout = self._timers.set(now + timeout_us, self._call_timed_out, call_id)
        self._calls[call_id] = _OpenCall(timeout, done)
        self._effects.append(Call(call_id, to, request, timeout_us))

    def _call_timed_out(self, call_id: int, now: int) -> None:
        self._close_call(call_id, None, "timeout", now)

    def _close_call(self, call_id: int, response: Response | None, reason: str, now: int) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            return  # it was given up before; what comes late changes nothing
        call.timeout.cancel()
        call.done(response, reason, now)

    # Rows.

    def _update(
        self, changes: Iterable[Change], now: int, *, via: Via, told_by: str
    ) -> list[Change]:
        """Apply those of *changes* that override what we have, and let them ride on.

        Returns: those applied.
        """
        applied = []
        for change in changes:
            new = change.member
            if new.name == self._name:
                self._refute_if_needed(change, now)
                continue
            before = self.members.get(new.name)
            if not overrides(new, before):
                continue
            if before is None and len(self.members) >= self.config.members_max:
                self.counts.members_over_limit += 1
                continue
            self.members.put(new)
            self._dissemination.record(change)
            self._status_timers.watch(new, now)
            self._effects.append(StatusChanged(before, new, via, told_by, change.source))
            applied.append(change)
        if applied:
            self.counts.changes_applied += len(applied)
            self._dissemination.adjust(self.members.pingable_count)
        return applied

    def _refute_if_needed(self, change: Change, now: int) -> None:
        if self.evicting or not overrides(change.member, self.local):
            return
        # Only we may raise our incarnation, and one above the accusation overrides it everywhere.
        self._set_local(self.local, now, above=change.member.incarnation)
        self.counts.refutations += 1
        self._effects.append(Refuted(change.member, self.local, change.source))

    def _set_local_status(self, status: Status, now: int) -> None:
        self._set_local(replace(self.local, status=status), now)

    def _set_local(self, row: Member, now: int, *, above: int = 0) -> None:
        """Make *row* ours under a new incarnation: the clock's, but always higher than before."""
        before = self.local
        wall_ms = self._wall_ms_at_zero + now // 1000
        incarnation = max(wall_ms, before.incarnation + 1, above + 1)
        after = replace(row, incarnation=incarnation)
        self.members.put(after)
        self._dissemination.record(self._own_change(after))
        self._effects.append(StatusChanged(before, after, "local", self._name, self._name))

    def _own_change(self, member: Member) -> Change:
        return Change(member, self._name, self.local.incarnation)

    def _status_expired(self, member: Member, now: int) -> None:
        """*member* has been in its status for as long as that lasts."""
        row = self.members.get(member.name)
        assert row is not None
        if member.status is Status.TOMBSTONE:
            self._forget(member.name)
            return
        next_status = Status.FAULTY if member.status is Status.SUSPECT else Status.TOMBSTONE
        change = self._own_change(replace(row, status=next_status))  # its labels may be newer
        self._update([change], now, via="timer", told_by=self._name)

    def _forget(self, name: str) -> None:
        before = self.members.get(name)
        self.members.remove(name)
        self._dissemination.forget(name)
        self._dissemination.adjust(self.members.pingable_count)
        self._effects.append(StatusChanged(before, None, "timer", self._name, self._name))

    # Odds and ends.

    def _farewell_said(self, _response: Response | None, _reason: str, _now: int) -> None:
        self._farewells_open -= 1
        if self._farewells_open == 0:
            self._effects.append(Evicted())

    def _cancel_join_timer(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)


def _said(response: Response | None) -> str:
    return f"refused ({response.kind})" if isinstance(response, Refusal) else "no answer"
