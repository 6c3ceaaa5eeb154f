"""Which member to probe next, and each `Probe` from ping to verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.calls import failure_of
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import Ack, Failure, PingReqAck
from ringpop_py.member.swim.probe import Probe, Verdict
from ringpop_py.member.swim.rows import Grounds
from ringpop_py.member.swim.waits import ExchangePing, ProbeHelp, ProbePing, SecondPingDue

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.asker import Asker
    from ringpop_py.member.swim.calls import Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.periods import Periods
    from ringpop_py.member.swim.rows import Rows


URGENT_OPEN_MAX: Final = 3
"""How many probes out of turn may run at the same time, besides the one in turn."""

UNHEARD_MAX: Final = 3
"""How many probes in a row are inconclusive if no member answers us at all: the fault may be ours.
From the next one on, silence accuses; otherwise the only survivor of many members would consider
the dead ones alive for ever, as in Ringpop. A lone accuser waits long anyway (Lifeguard)."""


class Prober:
    """Probes the rotation one member at a time, and members with broken connections out of turn."""

    def __init__(self, core: Core, rows: Rows, asker: Asker, periods: Periods) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._periods = periods
        self._open: dict[int, Probe] = {}
        self._probe_count = 0
        self._in_turn = 0
        self._urgent: dict[str, bool] = {}
        """Members to probe out of turn, and whether with helpers from the beginning."""
        self._hurried: set[str] = set()
        self._exchanging: set[str] = set()
        self._heard_at = 0
        self._unheard_count = 0

    @property
    def under_way(self) -> dict[str, int]:
        """See `Node.under_way`."""
        return {"probes": len(self._open), "exchanges": len(self._exchanging)}

    # Periods.

    def start(self, now: int) -> bool:
        """Begin the protocol periods; return False if they already run or must not."""
        core, periods = self._core, self._periods
        if periods.running or core.stopped or not core.may_speak:
            return False
        periods.running = True
        self.probe_next(now)
        periods.begin(now)
        return True

    def begin_period(self, now: int) -> None:
        """Begin a period: probe members out of turn, and the member whose turn it is."""
        self._hurried.clear()
        self._periods.advance(now, rests=self._may_rest())
        self._probe_urgent(now)
        if self._in_turn in self._open:
            self._core.counts.periods_skipped += 1
            return
        self.probe_next(now)

    def _may_rest(self) -> bool:
        """Return whether the next period may be long: no news, no suspect, and we are healthy."""
        core = self._core
        if not core.config.quiet or len(self._rows.dissemination) or core.health.score:
            return False
        return not any(member.status is Status.SUSPECT for member in core.members)

    def probe_next(self, now: int) -> None:
        """Probe the next member of the rotation, unless the last such probe is still open."""
        if self._in_turn in self._open:
            return
        target = self._core.members.next_to_probe()
        if target is not None and not self._is_probed(target.name):
            self._in_turn = self._begin_probe(target, now)

    # Out of turn.

    def probe_soon(self, address: Address, now: int, *, quiet: bool = False) -> None:
        """Probe the members at *address* now: the connection to it broke, or it owes answers.

        Do so at most once a period: a peer that drops each connection must not be called in a loop.

        Args:
            quiet: whether it owes answers: that counts as a ping without an answer, so helpers are
                asked at the same time as the member.
        """
        members = self._core.members
        if not (self._core.dialect.pings_out_of_turn and self._periods.running):
            return
        for member in members:
            if member.address != address or not members.is_pingable(member):
                continue
            if not self._is_probed(member.name) and member.name not in self._hurried:
                self._hurried.add(member.name)
                self._urgent[member.name] = quiet
        self._probe_urgent(now)

    def _is_probed(self, name: str) -> bool:
        return any(probe.target.name == name for probe in self._open.values())

    def _probe_urgent(self, now: int) -> None:
        # They run side by side, so that one that waits for a silent helper delays no other.
        while self._periods.running:
            urgent_count = len(self._open) - (self._in_turn in self._open)
            if urgent_count >= URGENT_OPEN_MAX:
                return
            name = next(iter(self._urgent), None)
            if name is None:
                return
            quiet = self._urgent.pop(name)
            target = self._core.members.get(name)
            probed = self._is_probed(name)
            if target is None or probed or not self._core.members.is_pingable(target):
                continue
            number = self._begin_probe(target, now)
            if quiet:
                self._ask_at_once(number, now)

    def exchange(self, name: str, now: int) -> None:
        """Ping *name* to exchange news, unless such a ping of it is already open."""
        peer = self._core.members.get(name)
        fits = name != self._core.name and name not in self._exchanging
        if peer is None or not fits or not self._core.dialect.pings_out_of_turn:
            return
        self._exchanging.add(name)
        self._asker.ping(peer, ExchangePing(name), now, to_sync=True)

    def exchanged(self, name: str) -> None:
        """Note that the ping of `exchange` is over."""
        self._exchanging.discard(name)

    # One probe.

    def hear(self, now: int) -> None:
        """Note that some peer answered one of our calls."""
        self._heard_at = now
        self._unheard_count = 0

    def _begin_probe(self, target: Member, now: int) -> int:
        self._probe_count = number = self._probe_count + 1
        self._open[number] = Probe(target, now, weighs_evidence=self._core.config.evidence)
        self._asker.ping(target, ProbePing(number), now)
        return number

    def pinged(self, number: int, outcome: Outcome, now: int) -> None:
        """Continue the probe *number* after its ping."""
        probe = self._open.get(number)
        if probe is None:  # it was answered, to a helper that was asked at the same time
            return
        if isinstance(outcome, Ack):
            probe.answered()
        elif probe.ping_open:
            probe.ping_failed_late(failure_of(outcome).reason)
        else:
            self._ask_helpers(number, probe, failure_of(outcome), now)
        self._close_if_settled(number, probe, now)

    def ping_again(self, number: int, now: int) -> None:
        """Send the second ping of the probe *number*."""
        if not self._core.stopped:
            self._asker.ping(self._open[number].target, ProbePing(number), now)

    def _ask_helpers(self, number: int, probe: Probe, failure: Failure, now: int) -> None:
        core = self._core
        core.counts.ping_failures += 1
        helpers = self._helpers_for(probe)
        if probe.wants_second_ping and not helpers:
            probe.ping_failed_again(failure.reason)
            return
        self._ask(helpers, number, probe, failure.reason, now)
        if probe.wants_second_ping:
            # Later, so that a process that is just restarting can answer.
            core.timers.set(now + self._periods.length_us // 2, SecondPingDue(number))

    def _helpers_for(self, probe: Probe) -> list[Member]:
        core = self._core
        return core.members.random_pingable(core.config.ping_req_size, but=probe.target.name)

    def _ask(self, helpers: list[Member], number: int, probe: Probe, reason: str, now: int) -> None:
        probe.ping_failed(reason, [helper.name for helper in helpers])
        for helper in helpers:
            self._asker.ping_through(helper, probe.target, ProbeHelp(number, helper.name), now)

    def _ask_at_once(self, number: int, now: int) -> None:
        """Ask helpers of a probe whose ping is under way; without helpers, the ping decides."""
        helpers = self._helpers_for(self._open[number])
        if helpers:
            self._open[number].ping_open = True
            self._ask(helpers, number, self._open[number], "timeout", now)

    def helped(self, number: int, helper: str, outcome: Outcome, now: int) -> None:
        """Continue the probe *number* after *helper* answered or failed to."""
        probe = self._open.get(number)
        if probe is None:
            return
        if not isinstance(outcome, PingReqAck):
            unheard = self._unheard_count >= UNHEARD_MAX and probe.started_at >= self._heard_at
            probe.silence_accuses = unheard and self._core.config.confirmations
            silent = isinstance(outcome, Failure) and outcome.reason == "timeout"
            probe.unheard(helper, silent=silent)
        elif outcome.ping_ok:
            probe.answered()
        else:
            probe.nacked(helper, outcome.failure)
        self._close_if_settled(number, probe, now)

    def _close_if_settled(self, number: int, probe: Probe, now: int) -> None:
        if probe.verdict is Verdict.OPEN:
            return
        del self._open[number]
        self._judge(probe, now)
        self._probe_urgent(now)

    def _judge(self, probe: Probe, now: int) -> None:
        core, target = self._core, probe.target
        if probe.verdict is Verdict.REACHABLE:
            # Only answered probes set the pace: dead members must not slow us down.
            self._periods.pace.answered_after(now - probe.started_at)
            core.judge_health(-1, "answered")
            return
        core.judge_health(probe.slow_count, "unanswered")
        if probe.verdict is Verdict.INCONCLUSIVE:
            core.counts.probes_inconclusive += 1
            self._unheard_count += probe.started_at >= self._heard_at
        elif core.members.get(target.name):
            # About the incarnation that was probed: a newer one has shown that it is alive.
            grounds = Grounds(probe=probe.report(now))
            row = replace(target, status=Status.SUSPECT)
            self._rows.declare(row, now, via="probe", grounds=grounds)
