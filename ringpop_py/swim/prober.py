"""The protocol periods: whom to probe next, and when; and each `Probe` from ping to verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ringpop_py.swim.calls import failure_of
from ringpop_py.swim.member import Member, Status
from ringpop_py.swim.messages import Ack, Failure, PingReqAck
from ringpop_py.swim.pace import Pace
from ringpop_py.swim.probe import Probe, Verdict
from ringpop_py.swim.rows import Grounds
from ringpop_py.swim.timers import microseconds

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.asker import Asker
    from ringpop_py.swim.calls import Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.rows import Rows
    from ringpop_py.swim.timers import Timer


URGENT_OPEN_MAX: Final = 3
"""So many members in doubt are probed at once, besides the one whose turn it is."""

UNHEARD_MAX: Final = 3
"""So many probes, while nobody answers us anything, are held for a fault of our own, as Ringpop
does with all of them. But then the only survivor would hold the dead for alive for ever: from the
next on silence accuses, and a lone accuser waits long (Lifeguard)."""


class Prober:
    """Probes the members of the rotation one at a time, and those in doubt without waiting.

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
        self._urgent_open: dict[str, Probe] = {}
        self._hurried: set[str] = set()
        self._exchanging: set[str] = set()
        self._rests = False
        rows.dissemination.on_news = self._wake

    @property
    def period_us(self) -> int:
        """The period as our peers and our own health let it be."""
        return self.pace.period_us * self._core.health.factor

    # Periods.

    def start(self, now: int) -> None:
        """Begin with the protocol periods, which must not run."""
        assert not self.gossiping
        self.gossiping = True
        # The first probe goes out at once, the second after a part of a period drawn at random,
        # so that nodes that were started together do not stay in step.
        self.probe_next(now)
        self._plan_period(now + self._core.rng.randint(0, self.period_us))

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
        self._rests = self._may_rest()
        quiet_us = microseconds(self._core.config.quiet_period_s)
        period_us = max(quiet_us, self.period_us) if self._rests else self.period_us
        at = self._period_at + period_us
        if at <= now:  # we were not running; no use in making up for it
            at = now + period_us
        self._plan_period(at)
        self._probe_urgent(now)
        if self._probe is not None:
            self._core.counts.periods_skipped += 1
            return
        self.probe_next(now)

    def _may_rest(self) -> bool:
        """Whether nothing is lost by waiting: no news, nobody in doubt, and all is well here."""
        core = self._core
        if not core.config.quiet or len(self._rows.dissemination) or core.health.score:
            return False
        return not any(member.status is Status.SUSPECT for member in core.members)

    def _wake(self) -> None:
        """There is news: go on as if we had not rested."""
        if not (self._rests and self.gossiping):
            return
        self._rests = False
        assert self._period_timer is not None
        self._period_timer.cancel()
        now = self._core.now
        # Those who hear of it at one time must not go on in step.
        spread_us = self._core.rng.randint(0, self.period_us // 2)
        self._plan_period(min(self._period_at, now + spread_us))

    def probe_next(self, now: int) -> None:
        """Probe whoever is next in the rotation, unless that is going on."""
        if self._probe is not None:
            return
        target = self._core.members.next_to_probe()
        if target is not None and target.name not in self._urgent_open:
            self._probe = self._begin_probe(target, now)

    # Out of turn.

    def probe_soon(self, address: Address, now: int) -> None:
        """The connection to *address* broke: whoever is there is probed now.

        Once a period at most, so that a peer that drops each connection is not called in a loop.
        """
        members = self._core.members
        if not (self._core.dialect.pings_out_of_turn and self.gossiping):
            return
        for member in members:
            if member.address != address or not members.is_pingable(member):
                continue
            if not self._is_probed(member.name) and member.name not in self._hurried:
                self._hurried.add(member.name)
                self._urgent[member.name] = None
        self._probe_urgent(now)

    def _is_probed(self, name: str) -> bool:
        its_turn = self._probe is not None and self._probe.target.name == name
        return its_turn or name in self._urgent_open

    def _probe_urgent(self, now: int) -> None:
        """Probe those in doubt. A probe that waits for a silent helper holds none of them up."""
        while self.gossiping and len(self._urgent_open) < URGENT_OPEN_MAX:
            target = self._next_urgent()
            if target is None:
                return
            self._urgent_open[target.name] = self._begin_probe(target, now)

    def _next_urgent(self) -> Member | None:
        members = self._core.members
        while self._urgent:
            name = next(iter(self._urgent))
            del self._urgent[name]
            member = members.get(name)
            probed = self._is_probed(name)
            if member is not None and not probed and members.is_pingable(member):
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

    def _begin_probe(self, target: Member, now: int) -> Probe:
        probe = Probe(target, now, weighs_evidence=self._core.config.evidence)
        self._ping(probe, now)
        return probe

    def _ping(self, probe: Probe, now: int) -> None:
        def done(outcome: Outcome, now: int) -> None:
            if isinstance(outcome, Ack):
                probe.answered()
            else:
                self._ask_helpers(probe, failure_of(outcome), now)
            self._close_probe(probe, now)

        self._asker.ping(probe.target, done, now)

    def _ping_again(self, probe: Probe, now: int) -> None:
        if not self._core.stopped:
            self._ping(probe, now)

    def _ask_helpers(self, probe: Probe, failure: Failure, now: int) -> None:
        core = self._core
        core.counts.ping_failures += 1
        helpers = core.members.random_pingable(core.config.ping_req_size, but=probe.target.name)
        if probe.wants_second_ping and not helpers:
            probe.ping_failed_again(failure.reason)
            return
        probe.ping_failed(failure.reason, [helper.name for helper in helpers])
        for helper in helpers:
            self._ask_helper(probe, helper, now)
        if probe.wants_second_ping:
            # Later, so that who only starts anew gets through.
            core.timers.set(now + self.period_us // 2, self._ping_again, probe)

    def _ask_helper(self, probe: Probe, helper: Member, now: int) -> None:
        def done(outcome: Outcome, now: int) -> None:
            if probe.verdict is not Verdict.OPEN:
                return
            if not isinstance(outcome, PingReqAck):
                probe.silence_accuses = self._is_deaf_since(probe.started_at)
                silent = isinstance(outcome, Failure) and outcome.reason == "timeout"
                probe.unheard(helper.name, silent=silent)
            elif outcome.ping_ok:
                probe.answered()
            else:
                probe.nacked(helper.name, outcome.failure)
            self._close_probe(probe, now)

        self._asker.ping_through(helper, probe.target, done, now)

    def _is_deaf_since(self, began_at: int) -> bool:
        core = self._core
        unheard = core.unheard_count >= UNHEARD_MAX and began_at >= core.heard_at
        return unheard and core.config.confirmations

    def _close_probe(self, probe: Probe, now: int) -> None:
        """Act on the verdict of *probe*, if it has one."""
        if probe.verdict is Verdict.OPEN:
            return
        if self._probe is probe:
            self._probe = None
        elif self._urgent_open.get(probe.target.name) is probe:
            del self._urgent_open[probe.target.name]
        self._judge(probe, now)
        self._probe_urgent(now)

    def _judge(self, probe: Probe, now: int) -> None:
        core, target = self._core, probe.target
        if probe.verdict is Verdict.REACHABLE:
            # Slow answers slow us down; members that do not answer must not.
            self.pace.answered_after(now - probe.started_at)
            core.health.better("answered")
            return
        core.health.worse(probe.slow_count, "unanswered")
        if probe.verdict is Verdict.INCONCLUSIVE:
            core.counts.probes_inconclusive += 1
            core.unheard_count += probe.started_at >= core.heard_at
        elif core.members.get(target.name):
            # Of the incarnation that was probed: a newer one has shown itself alive meanwhile.
            grounds = Grounds(probe=probe.report(now))
            row = replace(target, status=Status.SUSPECT)
            self._rows.declare(row, now, via="probe", grounds=grounds)
