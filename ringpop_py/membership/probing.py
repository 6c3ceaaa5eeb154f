"""The protocol periods: whom to probe next, and when; and each `Probe` from ping to verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringpop_py.membership.member import Member, Status
from ringpop_py.membership.messages import Ack, Failure, PingReqAck, Refusal
from ringpop_py.membership.pace import Pace
from ringpop_py.membership.probe import Probe, Verdict
from ringpop_py.membership.timers import microseconds

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.membership.asking import Asker
    from ringpop_py.membership.calls import Outcome
    from ringpop_py.membership.core import Core
    from ringpop_py.membership.rows import Rows
    from ringpop_py.membership.timers import Timer


class Prober:
    """Probes one member at a time: the next of the rotation, but those in doubt before it.

    Attributes:
        gossiping: whether the protocol periods run.
    """

    def __init__(self, core: Core, rows: Rows, asker: Asker, now: int) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self.pace = Pace(microseconds(core.config.period_s), now)
        self.gossiping = False
        self._period_at = 0
        self._period_timer: Timer | None = None
        self._probe: Probe | None = None
        self._urgent: dict[str, None] = {}
        self._hurried: set[str] = set()
        self._exchanging: set[str] = set()

    # Periods.

    def start(self, now: int) -> None:
        """Begin with the protocol periods, which must not run."""
        assert not self.gossiping
        self.gossiping = True
        # The first probe goes out at once, the second after a part of a period drawn at random,
        # so that nodes that were started together do not stay in step.
        self.probe_next(now)
        self._plan_period(now + self._core.rng.randint(0, self.pace.period_us))

    def stop(self) -> None:
        """Begin no more periods; the open probe goes on to its end."""
        self.gossiping = False
        if self._period_timer is not None:
            self._period_timer.cancel()

    def _plan_period(self, at: int) -> None:
        self._period_at = at
        self._period_timer = self._core.timers.set(at, self._begin_period)

    def _begin_period(self, now: int) -> None:
        self.pace.adapt(microseconds(self._core.config.period_s), now)
        self._hurried.clear()
        # On an absolute schedule: counting from the answer would add its delay to each period.
        at = self._period_at + self.pace.period_us
        if at <= now:  # we were not running; no use in making up for it
            at = now + self.pace.period_us
        self._plan_period(at)
        if self._probe is not None:
            self._core.counts.periods_skipped += 1
            return
        self.probe_next(now)

    def probe_next(self, now: int) -> None:
        """Probe whoever is next, unless a probe is open."""
        if self._probe is not None:
            return
        target = self._next_urgent() or self._core.members.next_to_probe()
        if target is not None:
            self._begin_probe(target, now)

    # Out of turn.

    def probe_soon(self, address: Address, now: int) -> None:
        """The connection to *address* broke: whoever is there is the next to be probed.

        Once a period at most, so that a peer that drops each connection is not called in a loop.
        """
        members = self._core.members
        if not (self._core.dialect.pings_out_of_turn and self.gossiping):
            return
        for member in members:
            if member.address != address or not members.is_pingable(member):
                continue
            probed = self._probe is not None and self._probe.target.name == member.name
            if not probed and member.name not in self._hurried:
                self._hurried.add(member.name)
                self._urgent[member.name] = None
        if self._urgent:
            self.probe_next(now)

    def _next_urgent(self) -> Member | None:
        members = self._core.members
        while self._urgent:
            name = next(iter(self._urgent))
            del self._urgent[name]
            member = members.get(name)
            if member is not None and members.is_pingable(member):
                return member
        return None

    def exchange(self, name: str, now: int) -> None:
        """Ping *name* for what it knows: one such ping at a time, however often this is asked."""
        peer = self._core.members.get(name)
        fits = name != self._core.name and name not in self._exchanging
        if peer is None or not fits or not self._core.dialect.pings_out_of_turn:
            return
        self._exchanging.add(name)

        def done(_outcome: Outcome, _now: int) -> None:
            self._exchanging.discard(name)

        self._asker.ping(peer, done, now, to_sync=True)

    # One probe.

    def _begin_probe(self, target: Member, now: int) -> None:
        probe = self._probe = Probe(target, now)

        def done(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, Ack):
                probe.answered()
            else:
                self._ask_helpers(probe, _failure(outcome), now)
            self._close_probe(probe, now)

        self._asker.ping(target, done, now)

    def _ask_helpers(self, probe: Probe, failure: Failure, now: int) -> None:
        core = self._core
        core.counts.ping_failures += 1
        helpers = core.members.random_pingable(core.config.ping_req_size, but=probe.target.name)
        probe.ping_failed(failure.reason, [helper.name for helper in helpers])
        for helper in helpers:
            self._ask_helper(probe, helper, now)

    def _ask_helper(self, probe: Probe, helper: Member, now: int) -> None:
        def done(outcome: Outcome, now: int) -> None:
            if probe.verdict is not Verdict.OPEN:
                return
            if isinstance(outcome, PingReqAck) and outcome.ping_ok:
                probe.answered()
            else:
                nacked = isinstance(outcome, PingReqAck)
                probe.helper_done(helper.name, nacked=nacked)
            self._close_probe(probe, now)

        self._asker.ping_through(helper, probe.target, done, now)

    def _close_probe(self, probe: Probe, now: int) -> None:
        """Act on the verdict of *probe*, if it has one."""
        if probe.verdict is Verdict.OPEN:
            return
        if self._probe is probe:
            self._probe = None
            if probe.verdict is Verdict.REACHABLE:
                # Slow answers slow us down; members that do not answer must not.
                self.pace.answered_after(now - probe.started_at)
        if probe.verdict is Verdict.INCONCLUSIVE:
            self._core.counts.probes_inconclusive += 1
        elif probe.verdict is Verdict.SUSPECT and self._core.members.get(probe.target.name):
            # Of the incarnation that was probed: a newer one has shown itself alive meanwhile.
            self._rows.declare(replace(probe.target, status=Status.SUSPECT), now, via="probe")
        if self._urgent and self.gossiping:
            self.probe_next(now)


def _failure(outcome: Outcome) -> Failure:
    """How the ping failed of which *outcome* came."""
    if isinstance(outcome, Failure):
        return outcome
    kind = outcome.kind if isinstance(outcome, Refusal) else "no answer to a ping"
    return Failure("declined", kind)
