"""Whom to probe next; and each `Probe` from ping to verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.swim.calls import failure_of
from ringpop_py.swim.member import Member, Status
from ringpop_py.swim.messages import Ack, Failure, PingReqAck
from ringpop_py.swim.probe import Probe, Verdict
from ringpop_py.swim.rows import Grounds
from ringpop_py.swim.waits import ExchangePing, ProbeHelp, ProbePing, SecondPingDue
from ringpop_py.values.declared import replace

if TYPE_CHECKING:
    from ringpop_py.address import Address
    from ringpop_py.swim.asker import Asker
    from ringpop_py.swim.calls import Outcome
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.periods import Periods
    from ringpop_py.swim.rows import Rows


URGENT_OPEN_MAX: Final = 3
"""So many members in doubt are probed at once, besides the one whose turn it is."""

UNHEARD_MAX: Final = 3
"""So many probes, while nobody answers us anything, are held for a fault of our own, as Ringpop
does with all of them. But then the only survivor would hold the dead for alive for ever: from the
next on silence accuses, and a lone accuser waits long (Lifeguard)."""


class Prober:
    """Probes the members of the rotation one at a time, and those in doubt without waiting."""

    def __init__(self, core: Core, rows: Rows, asker: Asker, periods: Periods) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._periods = periods
        self._open: dict[int, Probe] = {}
        self._probe_count = 0
        self._in_turn = 0
        self._urgent: dict[str, None] = {}
        self._hurried: set[str] = set()
        self._exchanging: set[str] = set()
        self._heard_at = 0
        self._unheard_count = 0

    # Periods.

    def start(self, now: int) -> bool:
        """Begin with the protocol periods. Returns: whether they did not run, and may."""
        core, periods = self._core, self._periods
        if periods.running or core.stopped or not core.may_speak:
            return False
        periods.running = True
        self.probe_next(now)
        periods.begin(now)
        return True

    def begin_period(self, now: int) -> None:
        """A period begins: probe those in doubt, and the member whose turn it is."""
        self._hurried.clear()
        self._periods.advance(now, rests=self._may_rest())
        self._probe_urgent(now)
        if self._in_turn in self._open:
            self._core.counts.periods_skipped += 1
            return
        self.probe_next(now)

    def _may_rest(self) -> bool:
        """Whether nothing is lost by waiting: no news, nobody in doubt, and all is well here."""
        core = self._core
        if not core.config.quiet or len(self._rows.dissemination) or core.health.score:
            return False
        return not any(member.status is Status.SUSPECT for member in core.members)

    def probe_next(self, now: int) -> None:
        """Probe whoever is next in the rotation, unless that is going on."""
        if self._in_turn in self._open:
            return
        target = self._core.members.next_to_probe()
        if target is not None and not self._is_probed(target.name):
            self._in_turn = self._begin_probe(target, now)

    # Out of turn.

    def probe_soon(self, address: Address, now: int) -> None:
        """The connection to *address* broke: whoever is there is probed now.

        Once a period at most, so that a peer that drops each connection is not called in a loop.
        """
        members = self._core.members
        if not (self._core.dialect.pings_out_of_turn and self._periods.running):
            return
        for member in members:
            if member.address != address or not members.is_pingable(member):
                continue
            if not self._is_probed(member.name) and member.name not in self._hurried:
                self._hurried.add(member.name)
                self._urgent[member.name] = None
        self._probe_urgent(now)

    def _is_probed(self, name: str) -> bool:
        return any(probe.target.name == name for probe in self._open.values())

    def _probe_urgent(self, now: int) -> None:
        """Probe those in doubt. A probe that waits for a silent helper holds none of them up."""
        while self._periods.running and self._urgent_open_count < URGENT_OPEN_MAX:
            target = self._next_urgent()
            if target is None:
                return
            self._begin_probe(target, now)

    @property
    def _urgent_open_count(self) -> int:
        return len(self._open) - (self._in_turn in self._open)

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
        self._asker.ping(peer, ExchangePing(name), now, to_sync=True)

    def exchanged(self, name: str) -> None:
        """The ping for what *name* knows is over."""
        self._exchanging.discard(name)

    # One probe.

    def hear(self, now: int) -> None:
        """Somebody answered us."""
        self._heard_at = now
        self._unheard_count = 0

    def _begin_probe(self, target: Member, now: int) -> int:
        self._probe_count = number = self._probe_count + 1
        self._open[number] = Probe(target, now, weighs_evidence=self._core.config.evidence)
        self._asker.ping(target, ProbePing(number), now)
        return number

    def pinged(self, number: int, outcome: Outcome, now: int) -> None:
        """The ping of the probe *number* is over."""
        probe = self._open[number]
        if isinstance(outcome, Ack):
            probe.answered()
        else:
            self._ask_helpers(number, probe, failure_of(outcome), now)
        self._close_if_settled(number, probe, now)

    def ping_again(self, number: int, now: int) -> None:
        """The second ping of the probe *number* is due."""
        if not self._core.stopped:
            self._asker.ping(self._open[number].target, ProbePing(number), now)

    def _ask_helpers(self, number: int, probe: Probe, failure: Failure, now: int) -> None:
        core = self._core
        core.counts.ping_failures += 1
        helpers = core.members.random_pingable(core.config.ping_req_size, but=probe.target.name)
        if probe.wants_second_ping and not helpers:
            probe.ping_failed_again(failure.reason)
            return
        probe.ping_failed(failure.reason, [helper.name for helper in helpers])
        for helper in helpers:
            self._asker.ping_through(helper, probe.target, ProbeHelp(number, helper.name), now)
        if probe.wants_second_ping:
            # Later, so that who only starts anew gets through.
            core.timers.set(now + self._periods.length_us // 2, SecondPingDue(number))

    def helped(self, number: int, helper: str, outcome: Outcome, now: int) -> None:
        """*helper* has tried to reach the target of the probe *number*, or did not answer."""
        probe = self._open.get(number)
        if probe is None:
            return
        if not isinstance(outcome, PingReqAck):
            probe.silence_accuses = self._is_deaf_since(probe.started_at)
            silent = isinstance(outcome, Failure) and outcome.reason == "timeout"
            probe.unheard(helper, silent=silent)
        elif outcome.ping_ok:
            probe.answered()
        else:
            probe.nacked(helper, outcome.failure)
        self._close_if_settled(number, probe, now)

    def _is_deaf_since(self, began_at: int) -> bool:
        unheard = self._unheard_count >= UNHEARD_MAX and began_at >= self._heard_at
        return unheard and self._core.config.confirmations

    def _close_if_settled(self, number: int, probe: Probe, now: int) -> None:
        """Act on the verdict of *probe*, if it has one."""
        if probe.verdict is Verdict.OPEN:
            return
        del self._open[number]
        self._judge(probe, now)
        self._probe_urgent(now)

    def _judge(self, probe: Probe, now: int) -> None:
        core, target = self._core, probe.target
        if probe.verdict is Verdict.REACHABLE:
            # Slow answers slow us down; members that do not answer must not.
            self._periods.pace.answered_after(now - probe.started_at)
            core.judge_health(-1, "answered")
            return
        core.judge_health(probe.slow_count, "unanswered")
        if probe.verdict is Verdict.INCONCLUSIVE:
            core.counts.probes_inconclusive += 1
            self._unheard_count += probe.started_at >= self._heard_at
        elif core.members.get(target.name):
            # Of the incarnation that was probed: a newer one has shown itself alive meanwhile.
            grounds = Grounds(probe=probe.report(now))
            row = replace(target, status=Status.SUSPECT)
            self._rows.declare(row, now, via="probe", grounds=grounds)
