"""What we believe of each member: which changes replace its row, and what follows from that.

Rules for this file: rows change nowhere else; and whatever changes a row sees to what follows:
what rides on the next messages, the timer of its status, and the effect that tells of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.swim.dissemination import Dissemination
from ringpop_py.swim.effects import (
    PeerTrouble,
    ProbeReport,
    Refuted,
    StatusChanged,
    SuspicionConfirmed,
    Via,
)
from ringpop_py.swim.identity import Hearsay, hearsay_of
from ringpop_py.swim.member import (
    DAMPING_MAX,
    Member,
    Status,
    merged,
    overrides,
)
from ringpop_py.swim.messages import JoinAck, MemberChange
from ringpop_py.swim.suspicion import StatusTimers, Suspicion, span_for
from ringpop_py.swim.timers import microseconds
from ringpop_py.values.declared import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.address import Address
    from ringpop_py.config.settings import GossipConfig
    from ringpop_py.dialect import Dialect
    from ringpop_py.swim.core import Core
    from ringpop_py.swim.namesakes import Namesakes
    from ringpop_py.swim.periods import Periods
    from ringpop_py.swim.scores import Scores


class Grounds(NamedTuple):
    """Why we changed a row by ourselves; see `StatusChanged`."""

    probe: ProbeReport | None = None
    accusers: tuple[str, ...] = ()
    waited_us: int = 0


NO_GROUNDS: Final = Grounds()
FIX_CLOCK: Final = "set the clock of that member's machine, and restart the member"
FIX_PEER: Final = "upgrade or end that peer: no version that works sends this"
RAISE_LIMIT: Final = "raise members_max in [gossip] on all nodes, or look for who makes up members"
INDEPENDENT: Final[frozenset[Via]] = frozenset({"ping", "ack", "ping-req", "probe"})
"""What may bring an accusation that somebody made for itself. Lists and healing repeat others'."""


LOST_MAX: Final = 1_000


class LostMembers:
    """The addresses of members that were given up and then forgotten, the newest last.

    A cut may last longer than a tombstone; without this, a side without hosts in common with the
    other could never find it again. It is all that is left of an evicted member: no row, no
    timer, an address, and `LOST_MAX` of them at most. A member that left by itself is not
    remembered, and one that is seen again is not lost.

    Attributes:
        version: another after each change.
        given_up_at: when a member was last given up that had been reachable.
    """

    def __init__(self) -> None:
        self._addresses: dict[str, Address] = {}
        self.version = 0
        self.given_up_at: int | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All that are remembered, each once, in the order in which they were lost."""
        return tuple(dict.fromkeys(self._addresses.values()))

    def follow(self, before: Member | None, after: Member, now: int) -> None:
        """A row was replaced: remember it if it was given up, drop it if it is back."""
        if before is not None and before.status.reachable and after.status is Status.FAULTY:
            self.given_up_at = now
        if after.status is Status.TOMBSTONE:
            if before is not None and before.status not in (Status.LEAVE, Status.TOMBSTONE):
                self._remember(after)
        elif after.name in self._addresses:
            del self._addresses[after.name]
            self.version += 1

    def _remember(self, member: Member) -> None:
        self._addresses.pop(member.name, None)
        while len(self._addresses) >= LOST_MAX:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[member.name] = member.address
        self.version += 1

    def __len__(self) -> int:
        return len(self._addresses)


class Rows:
    """Our own row, which only we may change, and those of the others, which anybody may accuse."""

    def __init__(self, core: Core, scores: Scores, namesakes: Namesakes, periods: Periods) -> None:
        self._core = core
        self._scores = scores
        self._namesakes = namesakes
        self._periods = periods
        self._members = core.members
        changes_max = core.config.changes_max if core.config.delta_sync else None
        self.dissemination = Dissemination(core.config.piggyback_factor, changes_max)
        self._spread(self.own_change(core.local))
        self.lost = LostMembers()
        after_us = _status_durations_us(core.config, core.dialect)
        self._reminds_from = 0
        self._status_timers = StatusTimers(core.timers, after_us)

    def update(
        self,
        changes: Iterable[MemberChange],
        now: int,
        *,
        via: Via,
        told_by: str,
        grounds: Grounds = NO_GROUNDS,
    ) -> list[MemberChange]:
        """Apply what is newer in *changes* than what we have, and let it ride on.

        Who accuses a suspect is news, too, though its row stays the same.

        Returns: those applied, as they ride on; what was applied whole is the very change.
        """
        core = self._core
        applied = []
        for change in changes:
            new = change.member
            if not core.is_believable(new, now):
                core.counts.incarnations_refused += 1
                self._refuse(new, "its incarnation is a century ahead", FIX_CLOCK, via, told_by)
                continue
            if new.damping > DAMPING_MAX:
                core.counts.dampings_refused += 1
                self._refuse(new, "its damping counter is too high", FIX_PEER, via, told_by)
                continue
            if new.name == core.name:
                self._remind_if_stale(change, now)
                self._take_verdict(change, via=via, told_by=told_by)
                self._hear_of_ourselves(change, now)
                continue
            before = self._members.get(new.name)
            self._count_accuser(change, now, via=via, probe=grounds.probe)
            row = merged(new, before)
            if row is None:
                continue
            if before is None and len(self._members) >= core.config.members_max:
                core.counts.members_over_limit += 1
                limit = f"the list is full with {core.config.members_max} members"
                self._refuse(new, limit, RAISE_LIMIT, via, told_by)
                continue
            self._members.put(row)
            if core.config.fast_heal:
                self.lost.follow(before, row, now)
            rider = _rider(change, row, before)
            self._spread(rider)
            self._watch(change, row, now, via=via, probe=grounds.probe)
            core.emit(StatusChanged(before, row, via, told_by, change.source, *grounds))
            self._scores.row_changed(before, row, now)
            applied.append(rider)
        if applied:
            core.counts.changes_applied += len(applied)
            self.dissemination.adjust(self._members.pingable_count)
        return applied

    def _spread(self, change: MemberChange) -> None:
        """Let *change* ride from now on. If there was nothing to tell, a rest is over."""
        if not self.dissemination:
            self._periods.wake()
        self.dissemination.record(change)

    def _refuse(self, row: Member, why: str, advice: str, via: Via, told_by: str) -> None:
        reason = f"the row of {row.name} was not taken in: {why}"
        self._core.emit(PeerTrouble(told_by, via, reason, advice))

    def update_from_list(self, response: JoinAck, now: int, *, via: Via) -> None:
        """Take in a whole member list. It is news to us alone: only what we say rides on."""
        changes = [
            MemberChange(
                member=member,
                source=response.source,
                source_incarnation=response.source_incarnation,
            )
            for member in response.members
        ]
        told = {change.member.name: change for change in changes}
        for change in self.update(changes, now, via=via, told_by=response.source):
            if change is told[change.member.name]:  # else we have added what they did not know
                self.dissemination.forget(change.member.name)

    def merge(self, rows: Iterable[Member], now: int, *, told_by: str) -> None:
        """Take in *rows* of somebody's list. They are news to us alone, and do not ride on.

        Nor do they say who believes them: many lists may repeat what one member said.
        """
        told = {member.name: MemberChange(member=member) for member in rows}
        for change in self.update(told.values(), now, via="full-sync", told_by=told_by):
            if change is told[change.member.name]:  # else it rode before, and holds more now
                self.dissemination.forget(change.member.name)

    def declare(self, row: Member, now: int, *, via: Via, grounds: Grounds = NO_GROUNDS) -> None:
        """Say *row* of another member in our own name."""
        change = self.own_change(row)
        self.update([change], now, via=via, told_by=self._core.name, grounds=grounds)

    def own_change(self, row: Member) -> MemberChange:
        """*row* as we say it ourselves."""
        return MemberChange(
            member=row, source=self._core.name, source_incarnation=self._core.local.incarnation
        )

    def listed_change(self, row: Member) -> MemberChange:
        """*row* as part of our whole list: that we hold a suspicion is no accusation of ours."""
        borrowed = row.status is Status.SUSPECT and self._core.config.confirmations
        return MemberChange(member=row) if borrowed else self.own_change(row)

    # Suspicions.

    def accusation_of(self, member: Member) -> MemberChange | None:
        """What *member*, as we knew it, has to refute; None if it is no suspect (any more)."""
        row = self._members.get(member.name)
        suspicion = self._status_timers.suspicion_of(member.name)
        if row is None or suspicion is None or row.address != member.address:
            return None
        return MemberChange(member=row, source=suspicion.accusers[0] if suspicion.accusers else "")

    def _watch(
        self, change: MemberChange, row: Member, now: int, *, via: Via, probe: ProbeReport | None
    ) -> None:
        """Time the status of *row*, which came of *change*, if it is one that ends."""
        suspicion = None
        if row.status is Status.SUSPECT:
            suspicion = Suspicion(now, span_for(self._core.config, self._core.reachable_count))
            if _is_independent(change, via):
                suspicion.accuse(change.source)
            if probe is not None and probe.strong:
                suspicion.prove(now + microseconds(self._core.config.evidence_s))
        self._status_timers.watch(row, now, suspicion)

    def _count_accuser(
        self, change: MemberChange, now: int, *, via: Via, probe: ProbeReport | None
    ) -> None:
        """Have *change* end a suspicion sooner, if it confirms one, and tell the others."""
        core, row = self._core, self._members.get(change.member.name)
        suspicion = self._status_timers.suspicion_of(change.member.name)
        if row is None or suspicion is None or not _accuses_again(change.member, row):
            return
        confirms = core.config.confirmations and _is_independent(change, via)
        counted = confirms and suspicion.accuse(change.source)
        evidence_until = now + microseconds(core.config.evidence_s)
        proven = probe is not None and probe.strong and suspicion.prove(evidence_until)
        if counted:
            self._spread(replace(change, member=row))
        if counted or proven:
            left_us = self._status_timers.hasten(row.name, now)
            accusers = tuple(suspicion.accusers)
            core.emit(SuspicionConfirmed(row, change.source, accusers, left_us, probe))

    # Our own row.

    def set_local_status(self, status: Status, now: int) -> None:
        """Change our own status."""
        self.set_local(replace(self._core.local, status=status), now)

    def set_local(self, row: Member, now: int, *, above: int = 0) -> None:
        """Make *row* ours under a new incarnation: the clock's, but always higher than before."""
        if self._core.name_lost:
            return  # whatever we would say now would be said of another
        before = self._core.local
        incarnation = max(self._core.clock.wall_ms(now), before.incarnation + 1, above + 1)
        after = replace(row, incarnation=incarnation)
        self._members.put(after)
        self._spread(self.own_change(after))
        name = self._core.name
        self._core.emit(StatusChanged(before, after, "local", name, name))

    def _remind_if_stale(self, change: MemberChange, now: int) -> None:
        """Say again that we are alive, to who has not heard that we refuted *change* long ago.

        At most once a period, or a peer could keep us and all others talking with old rumours.
        """
        core, claim = self._core, change.member
        accused = claim.status in (Status.SUSPECT, Status.FAULTY)
        ours = accused and not core.name_lost
        stale = ours and claim.incarnation < core.local.incarnation
        if stale and core.config.tells_suspects and now >= self._reminds_from:
            self._reminds_from = now + microseconds(core.config.period_s)
            self._spread(self.own_change(core.local))

    def _take_verdict(self, change: MemberChange, *, via: Via, told_by: str) -> None:
        """Others have judged us: that is no accusation, and our own word for it carries it on."""
        before = self._core.local
        if change.member.damping > before.damping and not self._core.name_lost:
            after = replace(before, damping=change.member.damping)
            self._members.put(after)
            self._spread(self.own_change(after))
            self._core.emit(StatusChanged(before, after, via, told_by, change.source))

    def _hear_of_ourselves(self, change: MemberChange, now: int) -> None:
        core, theirs = self._core, change.member
        if core.stopped:
            return
        match hearsay_of(theirs, core.local, joining=not core.ready):
            case Hearsay.NOTHING:
                pass
            case Hearsay.ACCUSATION:
                self._refute(change, now)
            case Hearsay.NAMESAKE:
                self.hear_of_namesake(theirs, now)
            case Hearsay.OUTDATED:
                self._spread(self.own_change(core.local))

    def hear_of_namesake(self, row: Member, now: int) -> None:
        """*row* says that a process of our name is at another address."""
        if self._namesakes.heard_of(row, now):
            self.outbid(row, now)

    def outbid(self, namesake: Member, now: int) -> None:
        """No living process stands behind *namesake*, a row of our name, or it yields to us."""
        if overrides(namesake, self._core.local):
            self._refute(MemberChange(member=namesake), now)
        else:
            self._spread(self.own_change(self._core.local))

    def _refute(self, change: MemberChange, now: int) -> None:
        core = self._core
        # Only we may raise our incarnation, and one above the accusation overrides it everywhere.
        self.set_local(core.local, now, above=change.member.incarnation)
        core.counts.refutations += 1
        if change.source:  # else nobody has found us slow: two lists are being merged
            core.judge_health(1, "accused")
        core.emit(Refuted(change.member, core.local, change.source))

    # Rows that end by themselves.

    def status_due(self, name: str, now: int) -> None:
        """*name* has been in its status for as long as that lasts."""
        member, suspicion = self._status_timers.expire(name)
        row = self._members.get(member.name)
        assert row is not None
        if member.status is Status.TOMBSTONE:
            self._forget(row, now)
            return
        next_status = Status.FAULTY if member.status is Status.SUSPECT else Status.TOMBSTONE
        grounds = NO_GROUNDS
        if suspicion is not None:
            waited_us = now - suspicion.began_at
            grounds = Grounds(accusers=tuple(suspicion.accusers), waited_us=waited_us)
        after = replace(row, status=next_status)  # its labels may be newer
        self.declare(after, now, via="timer", grounds=grounds)

    def _forget(self, row: Member, now: int) -> None:
        self._members.remove(row.name)
        self.dissemination.forget(row.name)
        self.dissemination.adjust(self._members.pingable_count)
        name = self._core.name
        self._core.emit(StatusChanged(row, None, "timer", name, name))
        self._scores.row_changed(row, None, now)


def _is_independent(change: MemberChange, via: Via) -> bool:
    """Whether *change* says who found by itself that a member does not answer."""
    return via in INDEPENDENT and change.source not in ("", change.member.name)


def _accuses_again(claim: Member, row: Member) -> bool:
    """Whether *claim* says of a suspect just what we believe already."""
    said = claim.status, claim.incarnation, claim.address
    return said == (row.status, row.incarnation, row.address)


def _rider(change: MemberChange, row: Member, before: Member | None) -> MemberChange:
    """How *row*, which came of *change* and *before*, is passed on: in whose name."""
    if row is change.member:
        return change
    if overrides(change.member, before):
        return replace(change, member=row)
    if row == change.member and row.status is not Status.SUSPECT:
        return change
    # Nobody said this before; and who damps a suspect must not pass for one of its accusers.
    return MemberChange(member=row)


def _status_durations_us(config: GossipConfig, dialect: Dialect) -> dict[Status, int]:
    """How long a member stays in those statuses that end by themselves, but suspicions."""
    faulty_us = microseconds(config.faulty_s)
    after_us = {
        Status.FAULTY: faulty_us,
        Status.TOMBSTONE: microseconds(config.tombstone_s),
    }
    if dialect.retires_leavers:
        after_us[Status.LEAVE] = faulty_us
    return after_us
