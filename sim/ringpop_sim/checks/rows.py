"""S1 to S5: how the row of a member may change at an observer.

Each is checked at every `StatusChanged`. S1 is also checked against the node's own list every
`SWEEP_US`, so that a row that changes without an event is found, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.member import Member, Status, overrides
from ringpop_py.member.swim.messages import Asked, Ping, PingReq
from ringpop_py.member.swim.timers import microseconds
from ringpop_sim.checks import Check
from ringpop_sim.units import s, seconds
from ringpop_sim.world.checksums import ReferenceChecksum
from ringpop_sim.world.liar import SOURCE

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import GossipConfig
    from ringpop_py.member.swim.effects import Effect, StatusChanged
    from ringpop_py.member.swim.messages import Input, MemberChange
    from ringpop_sim.world.process import Process

SWEEP_US: Final = 5 * s
"""How often each whole list is compared with the events of its node."""
# The node rounds a suspicion's length in several steps, `suspicion_us` only at the end.
ROUNDING_US: Final = 10

Version = tuple[str, int]
"""A member's name and one of its incarnations."""


class _Since(NamedTuple):
    """When (by the observer's clock) a row took its status, and how many were reachable then."""

    status: Status
    incarnation: int
    at: int
    member_count: int


class RowsRise(Check):
    """S1 and S4: rows only ever rise, the dead stay dead, and no row changes without an event.

    For each observer and subject, (incarnation, precedence of status) never decreases, nor does
    the counter of damping, until the row is evicted or the observer is restarted. A process that
    is revived with its memory is the same observer. A tombstone gives way only to a higher
    incarnation, and no tombstone of an unknown member is accepted.

    If two processes of one name have the same incarnation, because they started in the same
    millisecond, the higher address wins, whatever the status.

    Exempt: after an eviction the row may begin anew with any incarnation, even a lower one. A
    member on the far side of a cut may still have the old row when the cut ends, and a node that
    evicted the member cannot tell this old row from that of a newcomer.
    """

    invariants: ClassVar = ("S1", "S4")

    def begin(self) -> None:
        self._rows: dict[Process, dict[str, Member]] = {}
        self._reference = ReferenceChecksum(self.world.dialect)
        self.world.push(SWEEP_US, self._sweep)

    def started(self, process: Process) -> None:
        if process not in self._rows:
            self._rows[process] = {member.name: member for member in process.node.members}

    def ended(self, process: Process) -> None:
        # The last chance, because `_sweep` looks only at processes that run.
        self._compare(process)

    def fact(self, process: Process, effect: Effect) -> None:
        if not isinstance(effect, fx.StatusChanged):
            return
        before, after = effect.before, effect.after
        rows = self._rows[process]
        row = after or before
        assert row is not None
        if rows.get(row.name) != before:
            detail = f"{process.name} had {_text(rows.get(row.name))}, but reports a change from"
            self.broke("S1", f"{detail} {_text(before)}: the row changed without an event")
        if after is None:
            rows.pop(row.name, None)
            if row.name == process.name:
                self.broke("S1", f"{process.name} evicted itself")
            return
        rows[after.name] = after
        if before is None:
            if after.status is Status.TOMBSTONE:
                self.broke("S4", f"{process.name} accepted {_text(after)}, which it did not know")
        else:
            self._compare_rows(process, before, after)

    def _compare_rows(self, process: Process, before: Member, after: Member) -> None:
        rises = _rank(after) >= _rank(before)
        if rises and after.damping >= before.damping:
            return
        dead = before.status is Status.TOMBSTONE and after.damping >= before.damping
        detail = f"at {process.name}, {_text(before)} became {_text(after)}"
        self.broke("S4" if dead else "S1", detail)

    def _sweep(self, _argument: object) -> None:
        for process in self.world.at.values():
            self._compare(process)
        self.world.push(self.world.now + SWEEP_US, self._sweep)

    def _compare(self, process: Process) -> None:
        """Compare the list of *process* with its events, and its checksum with its rows."""
        told, held = self._rows[process], list(process.node.members)
        if held != list(told.values()):
            rows = {member.name: member for member in held}
            for name in sorted(rows.keys() | told.keys()):
                if rows.get(name) != told.get(name):
                    detail = f"{process.name} has {_text(rows.get(name))}, but its events say"
                    self.broke("S1", f"{detail} {_text(told.get(name))}")
                    break
            self._rows[process] = rows  # so that one row is reported once, not at every sweep
        if self._reference.of(held) != process.node.members.checksum:
            self.broke("S1", f"the checksum of {process.name} is not that of its rows")

    def finish(self) -> None:
        for process in self.world.running:
            self._compare(process)


class IncarnationsIssued(Check):
    """S2: every incarnation that is seen was issued by its owner; only the owner raises it.

    A process issues every incarnation that it has itself. Processes of one name (restarted ones,
    twins, and in the ringpop dialect also a process that takes over an address) issue together.
    A `plan.Rumour` uses an incarnation that exists. Exempt: what a `plan.Lie` says.
    """

    invariants: ClassVar = ("S2",)

    def begin(self) -> None:
        self._issued: set[Version] = set()

    def started(self, process: Process) -> None:
        self._issued.add((process.name, process.node.local.incarnation))

    def fact(self, process: Process, effect: Effect) -> None:
        if not isinstance(effect, fx.StatusChanged) or effect.after is None:
            return
        before, after = effect.before, effect.after
        if before is not None and before.incarnation == after.incarnation:
            return
        if after.name == process.name:
            self._issued.add((after.name, after.incarnation))
            return
        version = after.name, after.incarnation
        if version not in self._issued and version not in self.world.lies:
            detail = f"{process.name} believes {_text(after)} from {effect.told_by} ({effect.via})"
            self.broke("S2", f"{detail}, but {after.name} never had that incarnation")


class Refutations(Check):
    """S3: an accused node refutes, with an incarnation above all that it received of itself.

    - A node's own row changes only with a higher incarnation. The exception is a verdict on
      damping, which does not touch the incarnation.
    - A refutation is above the accusation and above the node's former row.
    - After a ping or ping-req with a newer row of the receiver, the receiver's own row is newer
      still. So a process that was restarted with its clock set back may begin lower, but once it
      has received a row of its former life it is above that.

    Exempt: a node that is about to end, or has lost its name, does not refute. A node that is not
    ready (ringpop dialect), or does not know yet whether its name is free, reads no changes. A
    claim of another address is about another process of that name.
    """

    invariants: ClassVar = ("S3",)

    def begin(self) -> None:
        self._claims: list[tuple[Process, Member]] = []

    def input(self, process: Process, message: Input) -> None:
        # This hook is called before a node acts, so by now it has acted on the input before.
        if self._claims:
            self._settle()
        if type(message) is Asked:
            request = message.request
            if isinstance(request, Ping | PingReq) and request.changes:
                self._note(process, request.changes)

    def _note(self, process: Process, changes: tuple[MemberChange, ...]) -> None:
        for change in changes:
            member = change.member
            if member.name == process.name and self._binds(process, member):
                self._claims.append((process, member))

    @staticmethod
    def _binds(process: Process, claim: Member) -> bool:
        node = process.node
        listens = node.ready or node.dialect.answers_while_joining
        return (
            listens
            and not (node.evicting or node.name_lost or node.name_in_doubt)
            and claim.address == process.address
            and overrides(claim, node.local)
        )

    def _settle(self) -> None:
        for process, claim in self._claims:
            # Again, because this very message may have made it begin to end, or lose its name.
            if process.running and self._binds(process, claim):
                local = _text(process.node.local)
                self.broke("S3", f"{process.name} received {_text(claim)} and stays {local}")
        self._claims.clear()

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.Refuted):
            if effect.now.incarnation <= effect.accusation.incarnation:
                detail = f"{_text(effect.accusation)} with {_text(effect.now)}"
                self.broke("S3", f"{process.name} refutes {detail}")
        elif isinstance(effect, fx.StatusChanged) and effect.after is not None:
            before, after = effect.before, effect.after
            if after.name == process.name and before is not None:
                self._compare(process, before, after)

    def _compare(self, process: Process, before: Member, after: Member) -> None:
        # Others pass the verdicts on damping, and the node accepts them without a new incarnation.
        judged = after.damping > before.damping
        same = (before.incarnation, before.status, before.labels)
        if judged and same == (after.incarnation, after.status, after.labels):
            return
        if after.incarnation <= before.incarnation:
            detail = f"{_text(before)} to {_text(after)} without a higher incarnation"
            self.broke("S3", f"{process.name} went from {detail}")

    def finish(self) -> None:
        self._settle()


class StatusesLast(Check):
    """S5: a node declares a member faulty after the suspicion time, or repeats one that waited.

    - A node's own timer declares a member faulty only if the node suspected it in that
      incarnation for as long as the numbers of accusers and members require, or for
      ``evidence_s`` since strong evidence of its own. Tombstones follow faulty (or leave) after
      their time, and evictions follow tombstones.
    - Each accuser that is counted has accused: its own probe found the member suspect in that
      incarnation. Each accuser counts once.
    - A faulty row that came by a message was first created by some node in the same incarnation:
      by a timer or, in the ringpop dialect, by the member itself when it ended.

    Time is that of the observer's own clock, without its stalls. Exempt: a `plan.Rumour` or
    `plan.Lie` that a member is faulty, and its repetitions.
    """

    invariants: ClassVar = ("S5",)

    def begin(self) -> None:
        config = self.world.config
        self._config = config
        self._evidence_us = microseconds(config.evidence_s) if config.evidence else None
        self._lasts_us = {
            Status.FAULTY: microseconds(config.faulty_s),
            Status.LEAVE: microseconds(config.faulty_s),
            Status.TOMBSTONE: microseconds(config.tombstone_s),
        }
        self._said: set[Version] = set()
        self._accused: set[tuple[str, str, int]] = set()
        self._since: dict[Process, dict[str, _Since]] = {}
        self._others: dict[Process, int] = {}
        self._proven_at: dict[Process, dict[Version, int]] = {}
        self._stalled_us: dict[Process, int] = {}

    def started(self, process: Process) -> None:
        if process not in self._since:
            self._since[process] = {}
            self._proven_at[process] = {}
            self._others[process] = 0

    def fact(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, fx.Stalled):
            self._stalled_us[process] = self._stalled_us.get(process, 0) + effect.for_us
        elif isinstance(effect, fx.SuspicionConfirmed):
            self._confirmed(process, effect)
        elif isinstance(effect, fx.StatusChanged):
            self._count(process, effect)
            self._changed(process, effect)

    def _count(self, process: Process, change: StatusChanged) -> None:
        """Count the other members that *process* considers reachable."""
        # Not read from the node's list, which already has all changes of the call.
        for row, by in ((change.before, -1), (change.after, 1)):
            if row is not None and row.name != process.name and row.status.reachable:
                self._others[process] += by

    def _confirmed(self, process: Process, effect: fx.SuspicionConfirmed) -> None:
        member = effect.member
        if effect.probe is not None:
            self._accused.add((process.name, member.name, member.incarnation))
            if effect.probe.strong:
                self._prove(process, member)
        self._count_accusers(process, member, effect.accusers)

    def _count_accusers(self, process: Process, member: Member, accusers: tuple[str, ...]) -> None:
        for accuser in accusers:
            accused = (accuser, member.name, member.incarnation) in self._accused
            if not accused and accuser != SOURCE:
                detail = f"{accuser} as an accuser of {_text(member)}, which it did not accuse"
                self.broke("S5", f"{process.name} counts {detail}")
        if len(set(accusers)) != len(accusers):
            self.broke("S5", f"{process.name} counts an accuser twice: {', '.join(accusers)}")

    def _clock(self, process: Process) -> int:
        return process.time(self.world.now) - self._stalled_us.get(process, 0)

    def _prove(self, process: Process, member: Member) -> None:
        version = member.name, member.incarnation
        # Later evidence does not prolong the suspicion.
        self._proven_at[process].setdefault(version, self._clock(process))

    def _changed(self, process: Process, change: StatusChanged) -> None:
        before, after = change.before, change.after
        if after is None:
            assert before is not None
            self._timed(process, change, before)
            self._since[process].pop(before.name, None)
            return
        unchanged = before is not None and (before.status, before.incarnation) == (
            after.status,
            after.incarnation,
        )
        if unchanged:  # only labels, damping or the address
            return
        if after.name == process.name:
            if after.status is Status.FAULTY and process.node.evicting:
                self._said.add((after.name, after.incarnation))
            return
        if change.via == "timer":
            self._timed(process, change, after)
        elif after.status is Status.FAULTY:
            self._repeated(process, change, after)
        # After the check: a faulty row must not vouch for itself.
        if after.status is Status.FAULTY:
            self._said.add((after.name, after.incarnation))
        self._keep(process, change, after)

    def _keep(self, process: Process, change: StatusChanged, after: Member) -> None:
        since = self._since[process]
        if after.status is Status.ALIVE:
            since.pop(after.name, None)
        else:
            # The number at the beginning, because later arrivals do not change its length.
            clock, members = self._clock(process), self._others[process] + 1
            since[after.name] = _Since(after.status, after.incarnation, clock, members)
        if change.via == "probe":
            self._accused.add((process.name, after.name, after.incarnation))
        if change.probe is not None and change.probe.strong:
            self._prove(process, after)

    def _repeated(self, process: Process, change: StatusChanged, after: Member) -> None:
        if (after.name, after.incarnation) not in self._said and change.source != SOURCE:
            detail = f"{process.name} accepted {_text(after)} from {change.told_by} ({change.via})"
            self.broke("S5", f"{detail}, but no node had waited for that")

    def _timed(self, process: Process, change: StatusChanged, row: Member) -> None:
        """Check that the status that a timer of *process* ended had lasted long enough."""
        assert row is not None
        since = self._since[process].get(row.name)
        what = f"{process.name} turned {_text(change.before)} into {_text(change.after)}"
        if since is None or since.incarnation != row.incarnation:
            self.broke("S5", f"{what}, which no timer can do")
            return
        if not _follows(change.after, since.status):
            self.broke("S5", f"{what}, which no timer can do")
            return
        waited_us = self._clock(process) - since.at
        if since.status is Status.SUSPECT:
            self._count_accusers(process, row, change.accusers)
            least_us = self._suspicion_us(process, row, since, len(change.accusers))
        else:
            least_us = self._lasts_us[since.status]
        if waited_us < least_us:
            due = f"{seconds(waited_us):.3f} s instead of {seconds(least_us):.3f} s"
            self.broke("S5", f"{what} after {due}")

    def _suspicion_us(
        self, process: Process, row: Member, since: _Since, accuser_count: int
    ) -> int:
        """Return how long, in microseconds, the suspicion of *row* must last at least."""
        least_us = suspicion_us(self._config, since.member_count, accuser_count) - ROUNDING_US
        proven_at = self._proven_at[process].pop((row.name, row.incarnation), None)
        if proven_at is None or self._evidence_us is None:
            return least_us
        return min(least_us, proven_at - since.at + self._evidence_us)


def suspicion_us(config: GossipConfig, member_count: int, accuser_count: int) -> int:
    """Return how long a suspicion lasts, in microseconds, with that many members and accusers.

    This is the formula of Lifeguard, section IV-B, written independently of the product:
    ``max(min, max - (max - min) log(c+1)/log(k+1))``.
    """
    least = config.suspect_s * 1e6
    if not config.confirmations:
        return round(least)
    least *= max(1.0, math.log10(member_count))
    most = least * max(1.0, config.suspect_factor)
    k, c = min(config.confirmations_max, member_count - 2), max(0, accuser_count - 1)
    if k < 1:
        return round(least)
    return round(max(least, most - (most - least) * math.log(c + 1) / math.log(k + 1)))


def _follows(after: Member | None, status: Status) -> bool:
    """Return whether a timer may turn a row of that *status* into *after*."""
    if after is None:
        return status is Status.TOMBSTONE
    if after.status is Status.FAULTY:
        return status is Status.SUSPECT
    return after.status is Status.TOMBSTONE and status in (Status.FAULTY, Status.LEAVE)


def _rank(row: Member) -> tuple[int, Address, Status]:
    return row.incarnation, row.address, row.status


def _text(member: Member | None) -> str:
    if member is None:
        return "nothing"
    damping = f" damping {member.damping}" if member.damping else ""
    return f"{member.name} {member.status.label} {member.incarnation}{damping}"
