"""Two processes with one name: which one continues, and whether other members notice."""

from __future__ import annotations

from typing import get_args

from ringpop_sim.plans.plan import Cut, Lie, Lies, Pause, Plan, Rumour, Twin
from ringpop_sim.scenarios.sizes import everybody, for_nodes, others
from ringpop_sim.units import ms, s


@for_nodes(3, usual=8)
def twins(count: int) -> Plan:
    """A second process starts with the name of a live one: it ends, and no other member notices."""
    return Plan(
        nodes=count,
        until_us=40 * s,
        expect=("views == 1", f"running == {count}", "refuted == 0", "moved == 0", "suspects == 0"),
        operations=(Twin(at_us=10 * s, about=1),),
    )


@for_nodes(3, usual=8)
def supervised_twin(count: int) -> Plan:
    """A second process with a name in use restarts whenever it ends: still no member notices."""
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=("views == 1", f"running == {count}", "refuted == 0", "moved == 0", "suspects == 0"),
        operations=(Twin(at_us=10 * s, for_us=30 * s, about=1, again_us=200 * ms),),
    )


@for_nodes(3, usual=8)
def replaced_asleep(count: int) -> Plan:
    """A paused process is replaced elsewhere before it wakes: it yields."""
    return Plan(
        nodes=count,
        until_us=90 * s,
        expect=("views == 1", f"running == {count}", "moved 1 == 1"),
        operations=(Pause(at_us=10 * s, for_us=30 * s, nodes=(1,)), Twin(at_us=20 * s, about=1)),
    )


@for_nodes(4, usual=8)
def twins_across_a_cut(count: int) -> Plan:
    """Both sides of a cut have a process of one name: the one that ran before stays.

    A supervisor restarts the other one again and again at its address: members no longer notice.
    """
    half = count // 2
    return Plan(
        nodes=count,
        until_us=120 * s,
        expect=("views == 1", f"running == {count}", "joined 1 <= 3"),
        operations=(
            Cut(
                at_us=10 * s,
                for_us=40 * s,
                left=everybody(count)[:half],
                right=everybody(count)[half:],
            ),
            # Restarted sooner than gossip spreads which process keeps the name (decision 39).
            Twin(at_us=25 * s, about=1, again_us=50 * ms, beside=half),
        ),
    )


@for_nodes(3, usual=8)
def forged_move(count: int) -> Plan:
    """A rumour says that a node is at an address without a process: it stays where it is."""
    rumours = tuple(
        Rumour(at_us=at_us, nodes=everybody(count), about=1, status="alive", elsewhere=True)
        for at_us in range(10 * s, 16 * s, 2 * s)
    )
    return Plan(
        nodes=count,
        until_us=60 * s,
        expect=("views == 1", f"running == {count}", "left_out == 0", "moved == 0"),
        operations=rumours,
    )


@for_nodes(3, usual=8)
def liar(count: int) -> Plan:
    """A member lies in every way: no process ends, and no member is missed for long (L11)."""
    lies = tuple(
        Lie(at_us=(40 + 15 * turn) * s, for_us=10 * s, nodes=others(count, 1), about=1, lie=lie)
        for turn, lie in enumerate(get_args(Lies))
    )
    return Plan(
        nodes=count,
        until_us=240 * s,
        expect=("views == 1", f"running == {count}", "moved == 0"),
        operations=lies,
    )
