"""The oracles of rest: after a run nothing new begins, and all that has begun has to end.

- L8: calls, probes, votes and all else that a node counts as under way end.
- L9: all that a share of a keyspace counts as under way ends, and all that waits for it.
- L10: where the partitions are settled, no share is given the same duty again and again.

Other oracles find wrong answers while they are given. These find waits without end, resources that
are never given back, and work that is done again and again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ringpop_py.state.placement import duties
from ringpop_sim.checks import Broken
from ringpop_sim.units import ms, s
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


Given = Counter[tuple[str, str, int | None]]
"""How often each node was given tasks of each kind, about each partition."""


def left_at_rest(
    world: World,
    shares: Callable[[], Iterable[tuple[str, dict[str, int]]]] = tuple,
    given: Given | None = None,
) -> list[Broken]:
    """Let *world* rest, and return a violation for all that does not end or is repeated.

    Args:
        shares: returns how much of each kind is under way in each node's share of a keyspace.
        given: the duties so far, if all partitions have been where they belong for a while.
    """
    processes = [p for p in world.running if p.life is Life.RUNNING and p.node.ready]
    for process in processes:
        world.do(process, lambda node, now: node.stop_gossip(now))
    before, ends_at = _duties(given), world.now + REST_US_MAX
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
    if given is not None:
        broken += [
            Broken(
                "L10",
                world.now,
                f"at rest {name} is given {duty} {count} times"
                + (f" for partition {number}" if number is not None else ""),
            )
            for (name, duty, number), count in (_duties(given) - before).items()
            if count > AGAIN_MAX
        ]
    return broken


def _under_way(
    processes: Sequence[Process], shares: Callable[[], Iterable[tuple[str, dict[str, int]]]]
) -> dict[tuple[str, str, str], int]:
    of_nodes = [(process.name, "L8", process.node.under_way) for process in processes]
    of_shares = [(name, "L9", under_way) for name, under_way in shares()]
    found = [*of_nodes, *of_shares]
    return {(name, each, what): n for name, each, kinds in found for what, n in kinds.items()}


def _duties(given: Given | None) -> Given:
    found = (given or Given()).items()
    return Given({key: count for key, count in found if key[1] not in NO_DUTIES})
