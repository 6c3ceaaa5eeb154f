"""Links that lose, damage or repeat messages, of some nodes or of all."""

from __future__ import annotations

from ringpop_sim.plans.plan import Crash, Impair, Link, Operation, Plan
from ringpop_sim.scenarios.sizes import ALL_RUN, everybody, for_nodes
from ringpop_sim.units import minutes, s


@for_nodes(20, usual=1000)
def flip_flop(count: int) -> Plan:
    """1 % of the nodes is deaf for 20 s in every 40 s: exactly those leave and stay out."""
    return _deaf(count, 4 * minutes, loss_in=1.0, flip_us=20 * s)


@for_nodes(20, usual=1000)
def deaf(count: int) -> Plan:
    """1 % of the nodes loses 80 % of what arrives: exactly those are left out."""
    return _deaf(count, 100 * s, loss_in=0.8)


def _deaf(count: int, for_us: int, *, loss_in: float, flip_us: int = 0) -> Plan:
    bad = everybody(max(2, count // 100))
    return Plan(
        nodes=count,
        # Just before the links are good again, and the nodes come back.
        until_us=10 * s + for_us - 1,
        expect=(
            f"deaths {len(bad)}-{count - 1} == 0",
            f"left_out == {len(bad)}",
            f"left_out 0-{len(bad) - 1} == {len(bad)}",
        ),
        operations=(
            Impair(at_us=10 * s, for_us=for_us, nodes=bad, loss_in=loss_in, flip_us=flip_us),
        ),
    )


@for_nodes(
    4,
    usual=8,
    until_us=40 * s,
    link=Link(corrupt=0.01),
    codec_share=1.0,
    expect=("deaths == 0", ALL_RUN),
)
def corruption(_count: int) -> list[Operation]:
    """1 % of all messages is damaged: no node believes one, and no node ends because of it."""
    return []


@for_nodes(
    4,
    usual=8,
    until_us=50 * s,
    link=Link(duplicate=0.2),
    expect=("deaths 0,2-{last} == 0", "converged_s <= 20"),
)
def duplication(_count: int) -> list[Operation]:
    """20 % of all messages arrive twice: the effect is the same as of one."""
    return [Crash(at_us=10 * s, for_us=5 * s, nodes=(1,))]
