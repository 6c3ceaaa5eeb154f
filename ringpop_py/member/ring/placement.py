"""The ring of one node: it follows the member list, from one batch of changes to the next.

Membership does not know the ring, and the ring does not know members. This module joins them. It is
pure, so the simulator runs the same lines as the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.member.ring.hashring import HashRing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.member.swim.node import Node


class Placement:
    """The ring of *node*'s members.

    Attributes:
        ring: as of the last `follow`; equal member lists give equal rings.
        changes_count: how often it has changed.
    """

    def __init__(self, node: Node) -> None:
        self._members = node.members
        self.ring = HashRing(dialect=node.dialect, points_count=node.ring_points)
        self.changes_count = 0
        self._left_out: Sequence[str] = ()
        self.follow([member.name for member in node.members])

    def follow(self, changed: Sequence[str]) -> None:
        """Update the ring to the present list; the rows of *changed* are new, or gone, since then.

        Call it once for all changes that came together, because a new ring costs nearly as much for
        one change as for many. The members that damping leaves out depend on how many others there
        are, so a change of one may bring another back. Those are few: a limited share of the
        members, however many are damped.
        """
        members = self._members
        before, self._left_out = self._left_out, members.left_out
        identities, out = {}, []
        # Those that were left out before are looked at, too: they may be back.
        for name in (*changed, *before, *self._left_out):
            row = members.get(name)
            if row is not None and members.in_ring(row):
                identities[name] = row.identity
            else:
                out.append(name)
        ring = self.ring.with_changes(identities, out)
        self.changes_count += ring is not self.ring
        self.ring = ring
