"""What we believe about each member: which changes replace its row, and what follows from that.

Rules for this file: rows change nowhere else; and code that changes a row also updates what rides
on the next messages and the timer of its status, and emits the effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.dissemination import Dissemination
from ringpop_py.member.swim.effects import (
    PeerTrouble,
    ProbeReport,
    Refuted,
    StatusChanged,
    SuspicionConfirmed,
    Via,
)
from ringpop_py.member.swim.member import DAMPING_MAX, Member, Status, merged, overrides
from ringpop_py.member.swim.messages import JoinAck, MemberChange
from ringpop_py.member.swim.namesakes import Hearsay, hearsay_of
from ringpop_py.member.swim.suspicion import StatusTimers, Suspicion, span_for, version_of
from ringpop_py.member.swim.timers import microseconds
from ringpop_py.member.swim.vouching import Unvouched, Vouching

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.base.address import Address
    from ringpop_py.base.config.settings import GossipConfig
    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim.calls import Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.namesakes import Namesakes
    from ringpop_py.member.swim.periods import Periods
    from ringpop_py.member.swim.scores import Scores
    from ringpop_py.member.swim.waits import VouchCall


class Grounds(NamedTuple):
    """Why our own probe or timer changed a row; see `StatusChanged`."""

    probe: ProbeReport | None = None
    accusers: tuple[str, ...] = ()
    waited_us: int = 0


NO_GROUNDS: Final = Grounds()
FIX_CLOCK: Final = "set the clock of that member's machine, and restart the member"
FIX_PEER: Final = "upgrade or end that peer: no version that works sends this"
RAISE_LIMIT: Final = "raise members_max in [gossip] on all nodes, or find what invents members"
INDEPENDENT: Final[frozenset[Via]] = frozenset({"ping", "ack", "ping-req", "probe"})
"""Ways by which an independent accusation may arrive. Lists and healing repeat those of others."""


HEARSAY: Final[frozenset[Via]] = frozenset({"ping", "ack", "ping-req", "full-sync"})
"""Ways by which a verdict of others arrives."""
CONDEMNED_MAX: Final = 16
"""How many of the members that one message makes faulty are informed of it."""
LOST_MAX: Final = 1_000
UNHEARD_S: Final = 3600.0
"""How long a member that this node has only ever read about stays faulty: it may not exist."""


class LostMembers:
    """The addresses of the last `LOST_MAX` members that were faulty and then evicted.

    A cut may last longer than a tombstone. Without these addresses, two sides without a host in
    common could never find each other again. A member that left is not remembered; one that is
    back is removed.
    """

    def __init__(self) -> None:
        self._addresses: dict[str, Address] = {}
        self.version = 0  # differs after each change
        self.given_up_at: int | None = None  # when a reachable member was last declared faulty

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses, each once, in the order in which they were lost."""
        return tuple(dict.fromkeys(self._addresses.values()))

    def follow(self, before: Member | None, after: Member, now: int) -> None:
        """Remember a member whose row is replaced by a tombstone, unless it left; else drop it."""
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
    """Our own row, which only we change, and those of the others, which any member may accuse."""

    def __init__(
        self, core: Core, scores: Scores, namesakes: Namesakes, vouching: Vouching, periods: Periods
    ) -> None:
        self._core = core
        self._scores = scores
        self._namesakes = namesakes
        self.vouching = vouching
        self._heard: set[str] = set()
        self._condemned: dict[str, None] = {}
        self._periods = periods
        self._members = core.members
        changes_max = core.config.changes_max if core.config.delta_sync else None
        self.dissemination = Dissemination(core.config.piggyback_factor, changes_max)
        self._spread(self.own_change(core.local))
        self.lost = LostMembers()
        after_us = _status_durations_us(core.config, core.dialect)
        self._reminds_from = 0
        self._unheard_us = microseconds(UNHEARD_S) if core.dialect.extends else None
        self._status_timers = StatusTimers(core.timers, after_us)

    def update(
        self,
        changes: Iterable[MemberChange],
        now: int,
        *,
        via: Via,
        told_by: str,
        grounds: Grounds = NO_GROUNDS,
        vouched: bool = False,
    ) -> list[MemberChange]:
        """Apply those of *changes* that are newer than our rows, and let them ride on.

        A new accuser of a suspect also rides on, though the suspect's row stays the same.

        Args:
            vouched: the processes of *changes* have confirmed them.

        Returns: the applied changes, as they ride on. A change that was not merged with anything
            is the same object as in *changes*; callers rely on that.
        """
        core = self._core
        applied = []
        horizon_ms = self.vouching.horizon_ms(now)
        for change in changes:
            new = change.member
            before = self._members.get(new.name)
            moved = before is not None and (before.port != new.port or before.host != new.host)
            doubtful = (moved or new.incarnation > horizon_ms) and not vouched
            if doubtful and not self._takes(Unvouched(change, via, told_by), before, now):
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

    def _takes(self, unvouched: Unvouched, held: Member | None, now: int) -> bool:
        """Return whether *unvouched*, about *held*, is believed as it comes; if not, ask."""
        row = unvouched.change.member
        if not self._core.is_believable(row, now):
            self._refuse_claim(unvouched, "its incarnation is a century ahead")
            return False
        if self.vouching.is_needed(unvouched, held):
            self.vouching.ask(unvouched, now)
            return False
        return True

    def _refuse_claim(self, unvouched: Unvouched, why: str) -> None:
        self._core.counts.incarnations_refused += 1
        self._refuse(unvouched.change.member, why, FIX_CLOCK, unvouched.via, unvouched.told_by)

    def take_condemned(self) -> list[str]:
        """Return the members that have become faulty by hearsay since the last such call."""
        if not self._condemned:  # mostly
            return []
        condemned, self._condemned = list(self._condemned), {}
        return condemned

    def vouched(self, call: VouchCall, outcome: Outcome, now: int) -> None:
        """Apply what *call* was made for, if *outcome* is the word of its own process."""
        unvouched, vouched = self.vouching.answered(call, outcome)
        if vouched:
            change, via, told_by = unvouched
            self.update([change], now, via=via, told_by=told_by, vouched=True)
        else:
            address = unvouched.change.member.address
            self._refuse_claim(unvouched, f"no process of that name at {address} confirms it")

    def heard_from(self, name: str) -> None:
        """Note that the process of *name* has answered us."""
        if self._members.get(name) is not None:  # what a peer invents must not be kept
            self._heard.add(name)

    def _spread(self, change: MemberChange) -> None:
        if not self.dissemination:
            self._periods.wake()
        self.dissemination.record(change)

    def _refuse(self, row: Member, why: str, advice: str, via: Via, told_by: str) -> None:
        reason = f"the row of {row.name} was not accepted: {why}"
        self._core.emit(PeerTrouble(told_by, via, reason, advice))

    def update_from_list(self, response: JoinAck, now: int, *, via: Via) -> None:
        """Apply a whole member list. It is news only to us: only rows that we merged ride on."""
        source, incarnation = response.source, response.source_incarnation
        changes = [
            MemberChange(member=member, source=source, source_incarnation=incarnation)
            for member in response.members
        ]
        self._update_quietly(changes, now, via=via, told_by=source)

    def merge(self, rows: Iterable[Member], now: int, *, told_by: str) -> None:
        """Apply *rows* of a peer's list. They are news only to us, and do not ride on.

        They have no source, because many lists may repeat what one member said.
        """
        changes = [MemberChange(member=member) for member in rows]
        self._update_quietly(changes, now, via="full-sync", told_by=told_by)

    def _update_quietly(
        self, changes: Sequence[MemberChange], now: int, *, via: Via, told_by: str
    ) -> None:
        told = {change.member.name: change for change in changes}
        for change in self.update(changes, now, via=via, told_by=told_by):
            if change is told[change.member.name]:  # otherwise the row is news to the sender, too
                self.dissemination.forget(change.member.name)

    def declare(self, row: Member, now: int, *, via: Via, grounds: Grounds = NO_GROUNDS) -> None:
        """Declare *row*, of another member, in our own name."""
        change = self.own_change(row)
        self.update([change], now, via=via, told_by=self._core.name, grounds=grounds)

    def own_change(self, row: Member) -> MemberChange:
        """Return *row* as a change of which we are the source."""
        return MemberChange(
            member=row, source=self._core.name, source_incarnation=self._core.local.incarnation
        )

    def listed_change(self, row: Member) -> MemberChange:
        """Return *row* as part of our list: a suspicion in it is not an accusation by us."""
        borrowed = row.status is Status.SUSPECT and self._core.config.confirmations
        return MemberChange(member=row) if borrowed else self.own_change(row)

    # Suspicions.

    def is_witnessed(self, name: str) -> bool:
        """See `Node.is_silent`."""
        suspicion = self._status_timers.suspicion_of(name)
        return suspicion is not None and suspicion.witnessed

    def accusation_of(self, member: Member) -> MemberChange | None:
        """Return the accusation that *member* has to refute; None if it is not a suspect."""
        row = self._members.get(member.name)
        suspicion = self._status_timers.suspicion_of(member.name)
        if row is None or suspicion is None or row.address != member.address:
            return None
        return MemberChange(member=row, source=suspicion.accusers[0] if suspicion.accusers else "")

    def _watch(
        self, change: MemberChange, row: Member, now: int, *, via: Via, probe: ProbeReport | None
    ) -> None:
        suspicion = None
        if row.status is Status.SUSPECT:
            reachable_count = self._members.pingable_count + 1  # and we
            suspicion = Suspicion(now, span_for(self._core.config, reachable_count))
            if _is_independent(change, via):
                suspicion.accuse(change.source)
            if probe is not None:
                suspicion.witnessed = probe.nacks > 0
                if probe.strong:
                    suspicion.prove(now + microseconds(self._core.config.evidence_s))
        if not self._core.ready:
            self._heard.add(row.name)  # the hosts that we were given have heard from it
        if row.status is Status.FAULTY and via in HEARSAY and len(self._condemned) < CONDEMNED_MAX:
            self._condemned[row.name] = None
        heard = row.name in self._heard
        self._status_timers.watch(row, now, suspicion, most_us=None if heard else self._unheard_us)

    def _count_accuser(
        self, change: MemberChange, now: int, *, via: Via, probe: ProbeReport | None
    ) -> None:
        """If *change* confirms a suspicion, end that sooner, and let the confirmation ride on."""
        core, row = self._core, self._members.get(change.member.name)
        suspicion = self._status_timers.suspicion_of(change.member.name)
        if row is None or suspicion is None or version_of(change.member) != version_of(row):
            return  # only a claim of exactly what we already believe confirms it
        confirms = core.config.confirmations and _is_independent(change, via)
        counted = confirms and suspicion.accuse(change.source)
        evidence_until = now + microseconds(core.config.evidence_s)
        proven = probe is not None and probe.strong and suspicion.prove(evidence_until)
        if counted:
            self._spread(replace(change, member=row))
        witnessed = probe is not None and probe.nacks > 0 and not suspicion.witnessed
        suspicion.witnessed |= witnessed
        if counted or proven or (witnessed and core.config.confirmations):
            left_us = self._status_timers.hasten(row.name, now)
            accusers = tuple(suspicion.accusers)
            core.emit(SuspicionConfirmed(row, change.source, accusers, left_us, probe))

    # Our own row.

    def set_local_status(self, status: Status, now: int) -> None:
        """Change our own status."""
        self.set_local(replace(self._core.local, status=status), now)

    def set_local(self, row: Member, now: int, *, above: int = 0) -> None:
        """Make *row* our own, with a new incarnation: the clock's, but higher than before."""
        if self._core.name_lost:
            return  # the row would be about the process that has the name
        before = self._core.local
        incarnation = max(self._core.clock.wall_ms(now), before.incarnation + 1, above + 1)
        after = replace(row, incarnation=incarnation)
        self._members.put(after)
        self._spread(self.own_change(after))
        name = self._core.name
        self._core.emit(StatusChanged(before, after, "local", name, name))

    def _remind_if_stale(self, change: MemberChange, now: int) -> None:
        # Our refutation may have been lost, so it is repeated; but at most once a period, because
        # otherwise a peer could keep all nodes busy with old rumours.
        core, claim = self._core, change.member
        accused = claim.status in (Status.SUSPECT, Status.FAULTY)
        ours = accused and not core.name_lost
        stale = ours and claim.incarnation < core.local.incarnation
        if stale and core.config.tells_suspects and now >= self._reminds_from:
            self._reminds_from = now + microseconds(core.config.period_s)
            self._spread(self.own_change(core.local))

    def _take_verdict(self, change: MemberChange, *, via: Via, told_by: str) -> None:
        # A verdict is not an accusation: it is not refuted, but passed on as our own.
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
        """Ask the process of *row*, which has our name and another address, or outbid the row."""
        if self._namesakes.heard_of(row, now):
            self.outbid(row, now)

    def outbid(self, namesake: Member, now: int) -> None:
        """Override *namesake*, a row of our name: its process is not alive, or it yields to us."""
        if overrides(namesake, self._core.local):
            self._refute(MemberChange(member=namesake), now)
        else:
            self._spread(self.own_change(self._core.local))

    def _refute(self, change: MemberChange, now: int) -> None:
        core = self._core
        # Only we may raise our incarnation, and one above the accusation overrides it everywhere.
        self.set_local(core.local, now, above=change.member.incarnation)
        core.counts.refutations += 1
        if change.source:  # otherwise no probe of us failed: two lists are being merged
            core.judge_health(1, "accused")
        core.emit(Refuted(change.member, core.local, change.source))

    # Rows that expire.

    def status_due(self, name: str, now: int) -> None:
        """Replace the status of *name*, whose time is up: by faulty, a tombstone, or no row."""
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
        self._heard.discard(row.name)
        self.dissemination.forget(row.name)
        self.dissemination.adjust(self._members.pingable_count)
        name = self._core.name
        self._core.emit(StatusChanged(row, None, "timer", name, name))
        self._scores.row_changed(row, None, now)


def _is_independent(change: MemberChange, via: Via) -> bool:
    # A source accuses because its own probe failed, and is not the suspect itself.
    return via in INDEPENDENT and change.source not in ("", change.member.name)


def _rider(change: MemberChange, row: Member, before: Member | None) -> MemberChange:
    if row is change.member:
        return change
    if overrides(change.member, before):
        return replace(change, member=row)
    if row == change.member and row.status is not Status.SUSPECT:
        return change
    # Nobody said exactly this before; and a node that damps a suspect is not its accuser.
    return MemberChange(member=row)


def _status_durations_us(config: GossipConfig, dialect: Dialect) -> dict[Status, int]:
    faulty_us = microseconds(config.faulty_s)
    after_us = {Status.FAULTY: faulty_us, Status.TOMBSTONE: microseconds(config.tombstone_s)}
    if dialect.retires_leavers:
        after_us[Status.LEAVE] = faulty_us
    return after_us
