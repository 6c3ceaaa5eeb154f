"""S9 and L5: equal checksums mean equal lists and equal rings, and damping leaves out few."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.member.ring.placement import Placement
from ringpop_py.member.swim.member import Status
from ringpop_py.member.swim.memberlist import DAMPED_SERVING_MIN
from ringpop_sim.checks import Check
from ringpop_sim.units import ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.member.swim.member import Member
    from ringpop_sim.world.process import Process

LOOK_US: Final = 500 * ms
LOOKED_AT_MAX: Final = 24
"""How many processes are compared at a time; the others wait, because whole lists are compared."""
FOLLOWED_FIRST, FOLLOWED_EACH = 3, 5
"""The rings of the first `FOLLOWED_FIRST` processes are followed, then of each
`FOLLOWED_EACH`-th one."""
NODES_MAX: Final = 64
"""In larger clusters no rings are followed, because that costs too much."""
REMEMBERED_MAX: Final = 4096  # each is a whole list, so memory needs a limit

Rows = tuple["Member", ...]


def who_serves(rows: Iterable[Member], *, extends: bool, damp_share: float) -> dict[str, str]:
    """Return the identity of each owner by name, computed anew from *rows* by an independent rule.

    Owners are the alive and suspect members. With *extends*, members that drain are left out, those
    whose application is away if it is not so with all, and the first damped members by name, up to
    the number that damping may leave out.
    """
    serving = [m for m in rows if m.status.reachable and not (extends and m.draining)]
    left_out: set[str] = set()
    if extends:
        serving = [m for m in serving if not m.away] or serving
        damped = sorted(m.name for m in rows if m.damped and m.status <= Status.FAULTY)
        left_out.update(damped[: leaves_out_max(len(serving), damp_share)])
    return {m.name: m.identity for m in serving if m.name not in left_out}


def leaves_out_max(serving_count: int, damp_share: float) -> int:
    """Return how many of *serving_count* members damping may leave out of the ring."""
    if serving_count < DAMPED_SERVING_MIN:
        return 0
    return max(1, math.floor(damp_share * serving_count))


class EqualListsEqualRings(Check):
    """S9, and the part of L5 that damping leaves out no more than its share.

    - Two processes with one checksum, at any two instants, have the same rows (tombstones do not
      count), and so the same ring.
    - The ring that the product updates change by change has the owners that follow from the
      list, computed anew, at the points at which a fresh ring has them.

    Changed lists are compared twice a second; in large clusters processes take turns. The rings
    of some processes are followed, but none in clusters above `NODES_MAX`. Nothing is exempt.
    """

    invariants: ClassVar = ("S9", "L5")

    def begin(self) -> None:
        self._damp_share = self.world.config.damp_share
        self._follows = self.world.plan.nodes <= NODES_MAX
        self._placements: dict[Process, Placement] = {}
        # A dict keeps an order, so that all take turns, the same in every run.
        self._changed: dict[Process, None] = {}
        self._rows_of: dict[int, Rows] = {}
        self._fresh: dict[tuple[tuple[str, str], ...], HashRing] = {}
        self.world.push(LOOK_US, self._look)

    def started(self, process: Process) -> None:
        # By serial, so that in small clusters and after many restarts some are followed.
        chosen = process.serial <= FOLLOWED_FIRST or process.serial % FOLLOWED_EACH == 0
        if self._follows and chosen and process not in self._placements:
            self._placements[process] = Placement(process.node)
        self._changed[process] = None

    def members_changed(self, process: Process, names: Sequence[str]) -> None:
        self._changed[process] = None
        placement = self._placements.get(process)
        if placement is not None:
            placement.follow(names)

    def _look(self, _argument: object) -> None:
        for process in list(self._changed)[:LOOKED_AT_MAX]:
            del self._changed[process]
            if process.running:
                self._compare(process)
        self.world.push(self.world.now + LOOK_US, self._look)

    def finish(self) -> None:
        for process in self.world.running[:LOOKED_AT_MAX]:
            self._compare(process)

    def _compare(self, process: Process) -> None:
        members = process.node.members
        rows = tuple(
            # Without tombstones, which the checksum does not count.
            sorted((m for m in members if m.status is not Status.TOMBSTONE), key=lambda m: m.name)
        )
        if len(self._rows_of) > REMEMBERED_MAX:
            # Some pairs of lists are then never compared; nothing is reported wrongly.
            self._rows_of.clear()
        known = self._rows_of.setdefault(members.checksum, rows)
        if known != rows:
            differing = sorted({m.name for m in {*known} ^ {*rows}})
            what = f"{process.name} has the checksum of another list, and differs from it in"
            self.broke("S9", f"{what} {', '.join(differing[:3])}")
        placement = self._placements.get(process)
        if placement is not None:
            self._compare_ring(process, rows, placement.ring)

    def _compare_ring(self, process: Process, rows: Rows, ring: HashRing) -> None:
        extends = self.world.dialect.extends
        owners = who_serves(rows, extends=extends, damp_share=self._damp_share)
        if dict(ring.members) != owners:
            differing = sorted({*ring.members.items()} ^ {*owners.items()})
            what = f"the ring of {process.name} has other members than its list gives"
            self.broke("S9", f"{what}: {', '.join(name for name, _ in differing[:3])}")
            self._limit(process, rows, ring)
        elif not _equal(ring, self._fresh_ring(owners)):
            self.broke("S9", f"the ring of {process.name} has other owners than a fresh one")

    def _limit(self, process: Process, rows: Rows, ring: HashRing) -> None:
        serving = [m for m in rows if m.status.reachable and not m.draining]
        serving = [m for m in serving if not m.away] or serving
        out = [m.name for m in serving if m.name not in ring.members]
        if len(out) > leaves_out_max(len(serving), self._damp_share):
            text = f"{len(out)} of {len(serving)} serving members"
            self.broke("L5", f"{text} are out of the ring of {process.name}")

    def _fresh_ring(self, owners: dict[str, str]) -> HashRing:
        key = tuple(sorted(owners.items()))
        ring = self._fresh.get(key)
        if ring is None:
            if len(self._fresh) > REMEMBERED_MAX // 16:  # a ring is larger than a list
                self._fresh.clear()
            ring = self._fresh[key] = HashRing(owners, dialect=self.world.dialect)
        return ring


def _equal(a: HashRing, b: HashRing) -> bool:
    """Return whether *a* and *b*, of the same members, have the same owner for every key."""
    ours, theirs = a._points, b._points  # noqa: SLF001 - looking every key up would take too long
    return np.array_equal(ours.hashes, theirs.hashes) and np.array_equal(
        ours.owners_at, theirs.owners_at
    )
