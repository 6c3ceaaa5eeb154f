"""The oracles of rest: after a run nothing new begins, and all that has begun has to end.

- L8: calls, probes, votes and all else that a node counts as under way end.
- L9: all that a share of a keyspace counts as under way ends, and all that waits for it.
- L10: where the partitions are settled, no share is given the same duty again and again.

Other oracles find wrong answers while they are given. These find waits without end, resources that
are never given back, and work that is done again and again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from ringpop_py.state.placement import duties
from ringpop_sim.checks import Broken
from ringpop_sim.units import ms, s
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

REST_US: Final = 7 * s
REST_US_MAX: Final = 17 * s
"""A time that is longer than any call of a node or a home."""
LOOK_US: Final = 50 * ms
"""The pause between looks: periodic work is under way at some of them, but not at all."""
AGAIN_MAX: Final = 5
"""How often a duty may be tried again, to make up for messages that were lost before the rest."""
NO_DUTIES: Final = frozenset({duties.ReadAssignment.__name__, duties.Changed.__name__})
"""Duties that are repeated whether or not something has changed, and duties that are not work."""


class ShareAtRest(Protocol):
    """What one node has of a keyspace."""

    name: str

    @property
    def under_way(self) -> dict[str, int]:
        """How much of each kind has begun and not ended."""


class SharesAtRest(Protocol):
    """What all nodes have of a keyspace.

    Attributes:
        duties: how often each was given tasks of each kind, about each partition.
    """

    duties: Counter[tuple[str, str, int | None]]

    def __iter__(self) -> Iterator[ShareAtRest]:
        """Yield what each node has."""


def left_at_rest(
    world: World, shares: SharesAtRest | None = None, *, settled: bool = False
) -> list[Broken]:
    """Let *world* rest, and return a violation for all that does not end or is repeated.

    Args:
        settled: whether all partitions are where they belong, and have been for a while.
    """
    processes = [p for p in world.running if p.life is Life.RUNNING and p.node.ready]
    for process in processes:
        world.do(process, lambda node, now: node.stop_gossip(now))
    before, ends_at = _duties(shares), world.now + REST_US_MAX
    world.run(world.now + REST_US)
    found = _under_way(processes, shares)
    while any(found.values()) and world.now < ends_at:
        world.run(world.now + LOOK_US)
        now = _under_way(processes, shares)
        found = {key: min(count, now.get(key, 0)) for key, count in found.items()}
    broken = [
        Broken(invariant, world.now, f"at rest {name} still has {count} {what} under way")
        for (name, invariant, what), count in sorted(found.items())
        if count
    ]
    if settled:
        broken += [
            Broken(
                "L10",
                world.now,
                f"at rest {name} is given {duty} {count} times"
                + (f" for partition {number}" if number is not None else ""),
            )
            for (name, duty, number), count in (_duties(shares) - before).items()
            if count > AGAIN_MAX
        ]
    return broken


def _under_way(
    processes: Sequence[Process], shares: SharesAtRest | None
) -> dict[tuple[str, str, str], int]:
    found = {
        (process.name, "L8", what): count
        for process in processes
        for what, count in process.node.under_way.items()
    }
    of_shares = {
        (share.name, "L9", what): count
        for share in shares or ()
        for what, count in share.under_way.items()
    }
    return found | of_shares


def _duties(shares: SharesAtRest | None) -> Counter[tuple[str, str, int | None]]:
    given = shares.duties if shares is not None else {}
    return Counter({key: count for key, count in given.items() if key[1] not in NO_DUTIES})
