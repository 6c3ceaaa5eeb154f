"""One pass of healing: what the two sides of a split send each other.

Members that one side declared faulty must raise their incarnations before that side believes that
they live, and only they can. So the first pass sends each side, as suspicions, what the other
believes about it, and the members refute. When the lists no longer contradict each other, the
second pass exchanges them.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.member import Member, Status, merged, overrides
from ringpop_py.member.swim.messages import Ack, JoinAck, MemberChange, SyncAck
from ringpop_py.member.swim.waits import HealLast, HealPass, HealRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.member.swim.asker import Asker
    from ringpop_py.member.swim.calls import Outcome
    from ringpop_py.member.swim.core import Core
    from ringpop_py.member.swim.rows import Rows
    from ringpop_py.member.swim.syncer import Syncer


class Pass(Enum):
    """How a pass ended. UNFINISHED: members have to refute first, or there was too much to send."""

    FAILED = auto()
    UNFINISHED = auto()
    MERGED = auto()


def contradictions(
    ours: Iterable[Member], theirs: Iterable[Member]
) -> tuple[list[MemberChange], list[MemberChange]]:
    """Return what each side has to refute before the lists may be merged: (for us, for them).

    These are suspicions, so healing declares no live member faulty; and they have no source, so
    they count as nobody's accusation. Each has the address of the process that can refute it: a
    dead process of the same name elsewhere must not take the name from a living one.
    """
    for_us, for_them = [], []
    rows = {member.name: member for member in ours}
    for b in theirs:
        a = rows.get(b.name)
        if a is None:
            continue
        if b.status.reachable and is_given_up(a) and overrides(a, b):
            for_them.append(
                MemberChange(member=replace(a, status=Status.SUSPECT, host=b.host, port=b.port))
            )
        elif a.status.reachable and is_given_up(b) and overrides(b, a):
            for_us.append(
                MemberChange(member=replace(b, status=Status.SUSPECT, host=a.host, port=a.port))
            )
    return for_us, for_them


def is_given_up(member: Member) -> bool:
    """Return whether *member* is considered dead; one that left has nothing to refute."""
    return member.status in (Status.FAULTY, Status.TOMBSTONE)


class PassEnd(NamedTuple):
    """How a pass ended, and the rows of the other side as far as they were read."""

    how: Pass
    theirs: tuple[Member, ...] = ()


class Passes:
    """Carries out passes. Each step returns how the pass ended, or None if it goes on."""

    def __init__(self, core: Core, rows: Rows, asker: Asker, syncer: Syncer) -> None:
        self._core = core
        self._rows = rows
        self._asker = asker
        self._syncer = syncer

    def compare(self, heals: HealPass, theirs: JoinAck, now: int) -> PassEnd | None:
        """Begin a pass with *theirs*, the list of its target."""
        config = self._core.config
        if config.delta_sync and (theirs.more or len(self._core.members) > config.sync_rows_max):
            # The lists are too long for a message: read only their rows that differ.
            self._syncer.begin(heals.target, HealRows(heals), now, reads_only=True)
            return None
        for_us, for_them = contradictions(self._core.members, theirs.members)
        contradicted = bool(for_us or for_them)
        if not contradicted:
            for_us = [MemberChange(member=member) for member in theirs.members]
        self._rows.update(for_us, now, via="heal", told_by=theirs.source)
        if not contradicted:
            for_them = self._news_for(theirs)
        return self._tell(heals, for_them, theirs.members, now, merges=not contradicted)

    def go_on(self, then: HealRows | HealLast, outcome: Outcome, now: int) -> PassEnd | None:
        """Continue a pass after a call."""
        if isinstance(then, HealRows) and isinstance(outcome, SyncAck):
            return self._rows_read(then.heals, outcome, now)
        if isinstance(then, HealLast) and isinstance(outcome, Ack | SyncAck):
            # The changes in an `Ack` are ignored: old rumours that we are faulty may still ride
            # there, and would override the suspicions before they are refuted.
            return PassEnd(Pass.MERGED if then.merges else Pass.UNFINISHED, then.theirs)
        return PassEnd(Pass.FAILED)

    def _rows_read(self, heals: HealPass, ack: SyncAck, now: int) -> PassEnd | None:
        for_us, for_them = contradictions(self._core.members, ack.rows)
        if for_us or for_them:
            self._rows.update(for_us, now, via="heal", told_by=ack.source)
            return self._tell(heals, for_them, ack.rows, now, merges=False)
        self._syncer.begin(heals.target, HealLast(heals, merges=True, theirs=ack.rows), now)
        return None

    def _tell(
        self,
        heals: HealPass,
        changes: Sequence[MemberChange],
        theirs: tuple[Member, ...],
        now: int,
        *,
        merges: bool,
    ) -> PassEnd | None:
        """Send the target as many of *changes* as fit into a message, and end the pass."""
        config = self._core.config
        limit = config.changes_max if config.fast_heal or config.delta_sync else len(changes)
        merges = merges and len(changes) <= limit
        if not changes:
            return PassEnd(Pass.MERGED if merges else Pass.UNFINISHED, theirs)
        told, last = tuple(changes[:limit]), HealLast(heals, merges, theirs)
        self._asker.tell(heals.target, told, config.heal_timeout_s, last, now)
        return None

    def _news_for(self, theirs: JoinAck) -> list[MemberChange]:
        if not self._core.config.fast_heal:  # Ringpop sends all rows, and not only news
            return [MemberChange(member=member) for member in self._core.members]
        held = {member.name: member for member in theirs.members}
        return [MemberChange(member=m) for m in self._core.members if merged(m, held.get(m.name))]
