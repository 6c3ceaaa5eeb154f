"""The ring of one node: follows the member list, from one batch of changes to the next.

Membership knows no ring, and the ring knows no members; what joins them is here, and pure, so
that the simulator drives the same lines as the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.ring.hashring import HashRing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.swim.node import Node


class Placement:
    """Who of *node*'s members stands on the ring.

    Attributes:
        ring: as of the last `follow`; equal member lists give equal rings.
    """

    def __init__(self, node: Node) -> None:
        self._members = node.members
        self.ring = HashRing(dialect=node.dialect, points_count=node.ring_points)
        self._left_out: Sequence[str] = ()
        self.follow([member.name for member in node.members])

    def follow(self, changed: Sequence[str]) -> None:
        """Move the ring to the list as it is now; the rows of *changed* are new since, or gone.

        To be called once for all that came together, because a new ring costs hardly less for one
        change than for many. Whom damping leaves out depends on how many others there are, so each
        change of one may bring another back. Those are few: a share of the members, however many
        are damped.
        """
        members = self._members
        before, self._left_out = self._left_out, members.left_out
        identities, out = {}, []
        for name in (*changed, *before, *self._left_out):
            row = members.get(name)
            if row is not None and members.in_ring(row):
                identities[name] = row.identity
            else:
                out.append(name)
        self.ring = self.ring.with_changes(identities, out)
