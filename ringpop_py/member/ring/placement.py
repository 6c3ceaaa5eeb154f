"""The ring of one node: it follows the member list, from one batch of changes to the next.

Membership does not know the ring, and the ring does not know members. This module joins them. It is
pure, so the simulator runs the same lines as the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.member.ring.hashring import HashRing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.member.swim.member import Member
    from ringpop_py.member.swim.node import Node


class Placement:
    """The ring of *node*'s members.

    Attributes:
        ring: the owners of keys, as of the last `follow`; equal member lists give equal rings.
        holders: those that may hold partitions, as a ring: they are the members of *ring*, and
            those whose application is away.
        changes_count: how often *ring* has changed.
    """

    def __init__(self, node: Node) -> None:
        self._members = node.members
        self.ring = self.holders = HashRing(dialect=node.dialect, points_count=node.ring_points)
        self.changes_count = 0
        self._left_out: Sequence[str] = ()
        self.follow([member.name for member in node.members])

    def follow(self, changed: Sequence[str]) -> None:
        """Update the ring to the present list; the rows of *changed* are new, or gone, since then.

        Call it once for all changes that came together, because a new ring costs nearly as much for
        one change as for many. Whether a member is left out depends on how many others there are,
        so a change of one may bring another back. Of the damped ones those are few: a limited share
        of the members, however many are damped.
        """
        members = self._members
        before, self._left_out = self._left_out, members.left_out
        # Those that were left out before are looked at, too: they may be back.
        looked_at = (*changed, *before, *self._left_out)
        self.holders = self._followed(self.holders, looked_at, members.holds)
        ring = self.holders  # the same object, so usually only one is made
        if members.leaves_out_away:
            ring = self._followed(self.ring, looked_at, members.in_ring)
        self.changes_count += ring is not self.ring
        self.ring = ring

    def _followed(
        self, ring: HashRing, names: Sequence[str], belongs: Callable[[Member], bool]
    ) -> HashRing:
        identities, out = {}, []
        for name in names:
            row = self._members.get(name)
            if row is not None and belongs(row):
                identities[name] = row.identity
            else:
                out.append(name)
        return ring.with_changes(identities, out)
