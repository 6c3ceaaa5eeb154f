"""Two processes with one name: which one continues, and whether other members notice."""

from __future__ import annotations

from typing import Final, get_args

from ringpop_sim.plans.plan import Lie, Lies, Operation, Pause, Rumour, Twin
from ringpop_sim.scenarios.sizes import (
    ALL_RUN,
    ONE_VIEW,
    cut_in_halves,
    everybody,
    for_nodes,
    others,
)
from ringpop_sim.units import ms, s

UNNOTICED: Final = (ONE_VIEW, ALL_RUN, "refuted == 0", "moved == 0", "suspects == 0")


@for_nodes(3, usual=8, until_us=40 * s, expect=UNNOTICED)
def twins(_count: int) -> list[Operation]:
    """A second process starts with the name of a live one: it ends, and no other member notices."""
    return [Twin(at_us=10 * s, about=1)]


@for_nodes(3, usual=8, until_us=60 * s, expect=UNNOTICED)
def supervised_twin(_count: int) -> list[Operation]:
    """A second process with a name in use restarts whenever it ends: still no member notices."""
    return [Twin(at_us=10 * s, for_us=30 * s, about=1, again_us=200 * ms)]


@for_nodes(3, usual=8, until_us=90 * s, expect=(ONE_VIEW, ALL_RUN, "moved 1 == 1"))
def replaced_asleep(_count: int) -> list[Operation]:
    """A paused process is replaced elsewhere before it wakes: it yields."""
    return [Pause(at_us=10 * s, for_us=30 * s, nodes=(1,)), Twin(at_us=20 * s, about=1)]


@for_nodes(4, usual=8, until_us=120 * s, expect=(ONE_VIEW, ALL_RUN, "joined 1 <= 3"))
def twins_across_a_cut(count: int) -> list[Operation]:
    """Both sides of a cut have a process of one name: the one that ran before stays.

    A supervisor restarts the other one again and again at its address: members no longer notice.
    """
    # Restarted sooner than gossip spreads which process keeps the name (decision 39).
    twin = Twin(at_us=25 * s, about=1, again_us=50 * ms, beside=count // 2)
    return [cut_in_halves(count, 10 * s, 40 * s), twin]


@for_nodes(3, usual=8, until_us=60 * s, expect=(ONE_VIEW, ALL_RUN, "left_out == 0", "moved == 0"))
def forged_move(count: int) -> list[Operation]:
    """A rumour says that a node is at an address without a process: it stays where it is."""
    return [
        Rumour(at_us=at_us, nodes=everybody(count), about=1, status="alive", elsewhere=True)
        for at_us in range(10 * s, 16 * s, 2 * s)
    ]


@for_nodes(3, usual=8, until_us=240 * s, expect=(ONE_VIEW, ALL_RUN, "moved == 0"))
def liar(count: int) -> list[Operation]:
    """A member lies in every way: no process ends, and no member is missed for long (L11)."""
    return [
        Lie(at_us=(40 + 15 * turn) * s, for_us=10 * s, nodes=others(count, 1), about=1, lie=lie)
        for turn, lie in enumerate(get_args(Lies))
    ]
