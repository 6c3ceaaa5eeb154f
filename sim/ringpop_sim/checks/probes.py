"""S6 to S8: which members may be suspected, and which suspicions must come to nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.messages import Ack, Answered, Failed, Ping, PingReq, PingReqAck
from ringpop_py.member.swim.timers import microseconds
from ringpop_sim.checks import Check
from ringpop_sim.checks.bounds import Bounds
from ringpop_sim.checks.calm import Calm, CalmCheck
from ringpop_sim.plans import plan as p
from ringpop_sim.units import seconds
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.effects import Effect, StatusChanged
    from ringpop_py.member.swim.member import Member
    from ringpop_py.member.swim.messages import Input, Response
    from ringpop_sim.world.process import Process

GONE: Final = ("refused", "lost", "replaced")
"""How a call fails if the machine itself reports that the process is gone."""
# Not the product's numbers: with them, a wrong number there would go unnoticed.
WITNESSES: Final = 2
UNHEARD_ROUNDS: Final = 3
"""After this many rounds without an answer from any member, silence accuses, as in SWIM."""
OPEN_PINGS_MAX: Final = 256
# An answer to a call before these is not judged.
OVER_MAX: Final = 64
NACKED, SILENT, OPEN = "nacked", "silent", "open"
NOBODY = "nobody"


@dataclass(slots=True)
class _OpenPing:
    to: Address
    sent_at: int
    timeout_us: int


@dataclass(slots=True)
class _Round:
    """One round of helpers, all asked in one event whether they reach the target.

    Attributes:
        available: how many helpers could have been asked.
        target, address: the member that they were asked about.
        failed: whether the node's own ping has failed, before or meanwhile.
    """

    asked_at: int
    available: int
    target: str
    address: Address
    failed: bool
    helpers: dict[int, str] = field(default_factory=dict)
    acked: bool = False


@dataclass(slots=True)
class _Probing:
    """What the check remembers of one process's calls.

    Attributes:
        pings, rounds, helping: its open pings by call, rounds by target, helpers by call.
        ended: when the last ping to an address ended, and who answered it.
        over: the calls that have ended, the latest `OVER_MAX` of them.
        deaf_at: the instant at which an answer came to a call that was over, or -1.
        unheard_rounds: how many rounds began since any member last answered.
    """

    pings: dict[int, _OpenPing] = field(default_factory=dict)
    rounds: dict[str, _Round] = field(default_factory=dict)
    helping: dict[int, tuple[_Round, int, int]] = field(default_factory=dict)
    ended: dict[Address, tuple[int, str]] = field(default_factory=dict)
    over: dict[int, None] = field(default_factory=dict)
    deaf_at: int = -1
    unheard_rounds: int = 0


class ProbesFail(Check):
    """S6: a node suspects a member by itself only if its ping and all helpers failed in that round.

    - The node's own ping to the member failed, was answered by another process, or was not
      answered within its time-out.
    - The node asked as many helpers as configured, or all there are. None of them answered in
      time that it reaches the member, and at least one answered that it does not, because a
      silent helper says nothing about the member. In the native dialect it is enough that none
      answers if some rounds before were like that: otherwise the last survivor never finds out.
    - Evidence is strong only if the node's own ping, and those of two helpers (or of all that
      were asked), failed in a way that says that the process is gone.
    - An answer to a call that has ended changes no row.

    Exempt: an answer that came after its time-out. A node may count it or not, depending on
    whether the node ran in between.
    """

    invariants: ClassVar = ("S6",)

    def begin(self) -> None:
        self._helpers_max = self.world.config.ping_req_size
        self._silence_accuses = self.world.dialect.extends and self.world.config.confirmations
        self._of: dict[Process, _Probing] = {}

    def started(self, process: Process) -> None:
        self._of.setdefault(process, _Probing())

    # Calls that the node makes.

    def duty(self, process: Process, effect: Effect) -> None:
        if type(effect) is not fx.CallPeer:
            return
        request = effect.request
        if type(request) is Ping:
            self._pinged(process, effect)
        elif type(request) is PingReq:
            self._asked_helper(process, effect, request.target, request.target_address)

    def _pinged(self, process: Process, call: fx.CallPeer) -> None:
        pings = self._of[process].pings
        pings[call.call_id] = _OpenPing(call.to, process.time(self.world.now), call.timeout_us)
        if len(pings) > OPEN_PINGS_MAX:  # the end of a lost ping is never reported
            for call_id in list(pings)[: OPEN_PINGS_MAX // 2]:
                del pings[call_id]

    def _asked_helper(
        self, process: Process, call: fx.CallPeer, target: str, address: Address
    ) -> None:
        probing, now = self._of[process], self.world.now
        current = probing.rounds.get(target)
        if current is None or current.asked_at != now:
            members = process.node.members
            row = members.get(target)
            # The target itself cannot be a helper.
            others = members.pingable_count - (row is not None and members.is_pingable(row))
            failed = self._ping_failed(process, target, address)
            current = probing.rounds[target] = _Round(now, others, target, address, failed)
            probing.unheard_rounds += 1
        current.helpers[call.call_id] = OPEN
        probing.helping[call.call_id] = current, process.time(now), call.timeout_us

    def _ping_failed(self, process: Process, target: str, address: Address) -> bool:
        """Return whether a ping to *target* has just failed; each failure counts once."""
        probing, clock = self._of[process], process.time(self.world.now)
        ended_at, by = probing.ended.pop(address, (-1, ""))
        # An answer of another process says that the target is not there. One without a name counts
        # as the target's.
        if ended_at == self.world.now and by not in ("", target):
            return True
        # No input reports a time-out: the node finds it by its own clock, and so does this check.
        for call_id, ping in probing.pings.items():
            if ping.to == address and clock - ping.sent_at >= ping.timeout_us:
                del probing.pings[call_id]
                return True
        return False

    # Answers, and what the node does then.

    def input(self, process: Process, message: Input) -> None:
        if type(message) is Answered:
            self._close(process, message.call_id)
            self._answered(process, message.call_id, message.response)
        elif type(message) is Failed:
            self._close(process, message.call_id)
            self._ended(process, message.call_id)
        else:
            # Changes that follow at this very instant are due to this input, not to a late answer.
            self._of[process].deaf_at = -1

    def _close(self, process: Process, call_id: int) -> None:
        """Note that the call is over, or that its answer came too late."""
        probing = self._of[process]
        over = probing.over
        if call_id in over:
            probing.deaf_at = self.world.now
            return
        probing.deaf_at = -1
        over[call_id] = None
        if len(over) > OVER_MAX:
            del over[next(iter(over))]

    def _answered(self, process: Process, call_id: int, response: Response) -> None:
        probing = self._of[process]
        probing.unheard_rounds = 0  # a late answer, too, shows that a peer reaches this node
        ping = probing.pings.pop(call_id, None)
        if ping is not None:
            # A refusal is not an answer to a ping, so it counts as a failure.
            source = response.source if type(response) is Ack else NOBODY
            probing.ended[ping.to] = self.world.now, source
            late = process.time(self.world.now) - ping.sent_at >= ping.timeout_us
            self._note_failed(probing, ping, NOBODY if late else source)
            return
        helping = probing.helping.pop(call_id, None)
        if helping is None:
            return
        current, asked_at, timeout_us = helping
        if type(response) is not PingReqAck:
            current.helpers[call_id] = SILENT
        elif not response.ping_ok:
            current.helpers[call_id] = NACKED
        # After its time-out the node may have ended the round without this answer.
        elif process.time(self.world.now) - asked_at < timeout_us:
            current.acked = True

    def _ended(self, process: Process, call_id: int) -> None:
        probing = self._of[process]
        ping = probing.pings.pop(call_id, None)
        if ping is not None:
            probing.ended[ping.to] = self.world.now, NOBODY
            self._note_failed(probing, ping, NOBODY)
            return
        helping = probing.helping.pop(call_id, None)
        if helping is not None:
            helping[0].helpers[call_id] = SILENT

    @staticmethod
    def _note_failed(probing: _Probing, ping: _OpenPing, by: str) -> None:
        # Of a member that owes answers, helpers are asked together with the ping.
        for current in probing.rounds.values():
            if current.address == ping.to and by not in ("", current.target):
                current.failed = True

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.SuspicionConfirmed):
            self._weigh(process, effect.member, effect.probe)
        if not isinstance(effect, fx.StatusChanged):
            return
        # A change at the instant of a late answer, with no other input since, is due to it.
        if self._of[process].deaf_at == self.world.now:
            self._changed_by_late_answer(process, effect)
        after = effect.after
        if effect.via == "probe" and after is not None and after.status is Status.SUSPECT:
            self._weigh(process, after, effect.probe)
            self._accused(process, after.name, after.address)

    def _weigh(self, process: Process, member: Member, probe: fx.ProbeReport | None) -> None:
        if probe is None or not probe.strong:
            return
        said = [how for _, how in probe.helpers]
        witnesses = sum(how in GONE for how in said)
        if probe.ping not in GONE or witnesses < min(WITNESSES, len(said)):
            what = f"{process.name} considers {probe.ping} and {', '.join(said) or 'nobody'}"
            self.broke("S6", f"{what} strong evidence against {member.name}")

    def _changed_by_late_answer(self, process: Process, change: StatusChanged) -> None:
        # A process that is woken or resumed at this very instant also acts on its timers.
        woken = process.wakes_at is None or process.number in self.world.disturbed
        if not woken and change.via not in ("timer", "local"):
            row = change.after or change.before
            assert row is not None
            self.broke("S6", f"a late answer made {process.name} change {row}")

    def _accused(self, process: Process, name: str, address: Address) -> None:
        probing = self._of[process]
        what = f"{process.name} suspects {name}"
        # A round supports one accusation only.
        current = probing.rounds.pop(name, None)
        nobody_to_ask = process.node.members.pingable_count <= 1
        if nobody_to_ask and self._ping_failed(process, name, address):
            return  # what helpers answered in an earlier round does not matter
        if current is None:
            if not self._ping_failed(process, name, address):
                self.broke("S6", f"{what}, which it did not ping in vain")
            elif not nobody_to_ask:
                self.broke("S6", f"{what}, but asked no helper")
            return
        said = list(current.helpers.values())
        if not current.failed and not self._ping_failed(process, name, address):
            self.broke("S6", f"{what}, which it did not ping in vain")
        elif current.acked:
            self.broke("S6", f"{what}, which a helper reached")
        elif len(said) < min(self._helpers_max, current.available):
            self.broke("S6", f"{what}, but asked {len(said)} of {current.available} helpers")
        elif NACKED not in said and not self._is_deaf(probing):
            self.broke("S6", f"{what}, about which no helper answered")

    def _is_deaf(self, probing: _Probing) -> bool:
        return self._silence_accuses and probing.unheard_rounds > UNHEARD_ROUNDS


class NobodySuspected(CalmCheck):
    """S7: no member is suspected without faults, if answers arrive within the time-out.

    The check applies once the world has been calm (`Calm`) for so long that nothing begun
    before is still in progress, and to live members at the address that the observer knows.

    Exempt: a member that is not ready yet (in the ringpop dialect it does not answer).
    """

    invariants: ClassVar = ("S7",)

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.Ready):
            self._calm.disturbed()
        elif isinstance(effect, fx.StatusChanged) and effect.via == "probe":
            self._accused(process, effect)

    def _accused(self, process: Process, change: StatusChanged) -> None:
        row = change.after
        if row is None or row.status is not Status.SUSPECT:
            return
        if self._calm.lasts_us <= self._calm.digest_us:
            return
        subject = self.world.at.get(self.world.network.machine_of(row.address))
        if subject is None or subject.name != row.name or not subject.node.ready:
            return
        if subject.life is Life.RUNNING:
            self.broke("S7", f"nothing is wrong, and {process.name} suspects {row.name}")


class PausesEndWell(Check):
    """S8: a pause shorter than the suspicion time, minus that of spreading, ends without faulty.

    The check applies to pauses alone: no other fault is active while a suspicion of the paused
    process may last, and no messages are lost. Other nodes may well *suspect* a paused process.
    """

    invariants: ClassVar = ("S8",)

    def begin(self) -> None:
        world = self.world
        self._bounds = Bounds(world.plan, world.config, world.dialect)
        self._calm = Calm(world)
        self._watched = [o for o in world.plan.operations if self._applies(o)]

    def _applies(self, operation: p.Operation) -> bool:
        if not isinstance(operation, p.Pause) or not operation.for_us or not self._calm.delivers:
            return False
        left_us = microseconds(self.world.config.suspect_s) - self._spread_us()
        # By identity: two equal pauses are two faults.
        others = [o for o in self.world.plan.operations if o is not operation]
        return operation.for_us < left_us and not any(
            self._overlap(operation, other) for other in others
        )

    def _overlap(self, pause: p.Operation, other: p.Operation) -> bool:
        margin_us = self._calm.digest_us + self._bounds.suspicion_us
        from_us, until_us = pause.at_us - margin_us, pause.until_us + margin_us
        ends_us = self.world.plan.until_us if not other.for_us else other.over_at_us
        return other.at_us <= until_us and from_us <= ends_us

    def _spread_us(self) -> int:
        """Return the time in which a refutation reaches all, except once in thousands of times."""
        nodes = self.world.plan.nodes
        periods = math.ceil(math.log2(nodes + 1) + math.log(nodes + 1)) + 8
        return periods * microseconds(self.world.config.period_s)

    def fact(self, process: Process, effect: Effect) -> None:
        if not self._watched or not isinstance(effect, fx.StatusChanged):
            return
        if effect.via != "timer" or effect.after is None:
            return
        if effect.after.status is Status.FAULTY:
            self._given_up(process, effect.after.name)

    def _given_up(self, process: Process, name: str) -> None:
        now, last_us = self.world.now, self._bounds.suspicion_us
        for pause in self._watched:
            if not pause.at_us <= now <= pause.until_us + last_us + self._calm.digest_us:
                continue
            paused = [self.world.numbered[n] for n in pause.nodes_named()]
            if name in {o.name for o in paused if o.running}:
                for_s = f"{seconds(pause.for_us):.3f} s"
                self.broke("S8", f"{process.name} declared {name} faulty, which paused for {for_s}")
