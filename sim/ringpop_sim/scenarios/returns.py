"""Processes that come back, and others that leave or die with something on its way."""

from __future__ import annotations

from typing import Final

from ringpop_sim.plans.plan import (
    Crash,
    Cut,
    Leave,
    Operation,
    Pause,
    Plan,
    Rumour,
    Start,
    Stop,
    Traffic,
)
from ringpop_sim.scenarios.sizes import (
    ALL_RUN,
    ONE_VIEW,
    SHORT_LIVES,
    everybody,
    for_nodes,
    others,
)
from ringpop_sim.units import hours, ms, s


@for_nodes(3, usual=8, until_us=40 * s, expect=("converged_s <= 1.5", ONE_VIEW, ALL_RUN))
def moved(_count: int) -> list[Operation]:
    """A node comes back under its name at another address: it is the same member immediately."""
    return [Crash(at_us=10 * s, for_us=3 * s, nodes=(1,), moves=True)]


@for_nodes(3, usual=8, until_us=40 * s, expect=("converged_s <= 4", ONE_VIEW, ALL_RUN))
def moved_back(_count: int) -> list[Operation]:
    """A node moves immediately, its clock an hour behind: it still gets its name back."""
    restart = Crash(
        # So soon that all lists have the former life alive, whose silent machine does not answer.
        # The clock makes the new row the lower one.
        at_us=10 * s,
        for_us=100 * ms,
        nodes=(1,),
        silent=True,
        moves=True,
        clock_us=-1 * hours,
    )
    return [restart]


@for_nodes(3, usual=8, until_us=50 * s, expect=("converged_s <= 10", ALL_RUN))
def clock_back(_count: int) -> list[Operation]:
    """A node restarts with its clock set back by an hour: it outbids its former life."""
    return [Crash(at_us=10 * s, for_us=20 * s, nodes=(1,), clock_us=-1 * hours)]


OLD_STAY_DEAD: Final = ("left_out 2 == 1", ONE_VIEW)


@for_nodes(4, usual=8, until_us=110 * s, expect=OLD_STAY_DEAD)
def snapshot(_count: int) -> list[Operation]:
    """A machine is restored to a minute ago: its old rows do not revive dead members."""
    return _restored_after(50 * s)


@for_nodes(
    4,
    usual=8,
    until_us=130 * s,
    settings=SHORT_LIVES,
    expect=(*OLD_STAY_DEAD, "converged_s <= 60"),
)
def forgotten_snapshot(_count: int) -> list[Operation]:
    """A machine is restored after it was forgotten: it becomes a member again, the dead do not."""
    return _restored_after(40 * s)


def _restored_after(for_us: int) -> list[Operation]:
    restored = Crash(at_us=10 * s, for_us=for_us, nodes=(1,), memory="kept", silent=True)
    return [restored, Crash(at_us=12 * s, nodes=(2,))]


@for_nodes(
    4,
    usual=8,
    until_us=60 * s,
    # So short that the dead node is a tombstone long before the rumours end.
    settings=(("suspect_s", 1.0), ("suspect_factor", 1.0), ("faulty_s", 8.0)),
    expect=("left_out 1 == 1", ONE_VIEW),
)
def old_alive(count: int) -> list[Operation]:
    """Old gossip says that a dead node lives, until it is a tombstone and after: in vain."""
    rumours = (
        Rumour(at_us=at_us, nodes=others(count, 1), about=1, status="alive")
        for at_us in range(10_500 * ms, 40 * s, 500 * ms)
    )
    return [Crash(at_us=10 * s, nodes=(1,), silent=True), *rumours]


@for_nodes(
    4,
    usual=8,
    until_us=25 * s,
    # A change is repeated so rarely that the node behind the cut misses it. The time-out is longer
    # than the cut, so that helpers then reach the node and no member suspects it.
    settings=(("piggyback_factor", 1), ("ping_timeout_s", 1.0)),
    expect=("suspects == 0", "left_out 1 == 1", ONE_VIEW),
)
def missed_news(count: int) -> list[Operation]:
    """A node leaves while another is cut off for a moment: that one learns of it later."""
    cut = Cut(at_us=10 * s, for_us=800 * ms, left=(count - 1,), right=others(count, count - 1))
    return [cut, Leave(at_us=10_050 * ms, nodes=(1,))]


@for_nodes(6, usual=10)
def die_young(count: int) -> Plan:
    """Nodes die a moment after they joined: accusations of them arrive before their rows."""
    young = everybody(count)[-3:]
    deaths = (
        Crash(at_us=10 * s + 30 * ms + 150 * ms * place, nodes=(node,), silent=True)
        for place, node in enumerate(young)
    )
    return Plan(
        nodes=count,
        until_us=80 * s,
        expect=(f"left_out {young[0]}-{young[-1]} == 3", ONE_VIEW),
        operations=(Start(at_us=10 * s, nodes=young), *deaths),
    )


@for_nodes(
    4,
    usual=8,
    until_us=45 * s,
    # No syncs: gossip alone has to spread the news, and does so in time.
    expect=("deaths == 0", "left_out == 0", "syncs == 0", "converged_s <= 1.5"),
)
def leave_and_return(_count: int) -> list[Operation]:
    """Nodes leave the ring by command and come back: never faulty, and in every ring again."""
    return [Leave(at_us=10 * s, for_us=15 * s, nodes=(1, 2))]


@for_nodes(
    4,
    usual=4,
    until_us=55 * s,
    traffic=Traffic(per_second=40, from_us=3 * s, timeout_us=30 * s, service_us=300 * ms),
)
def requests_troubled(count: int) -> list[Operation]:
    """Daemons are killed, paused and cut off under load: what may not be repeated runs once."""
    return [
        Crash(at_us=6 * s, for_us=4 * s, nodes=(1,)),
        Stop(at_us=13 * s, for_us=3 * s, nodes=(2,)),
        Cut(at_us=18 * s, for_us=6 * s, left=(0,), right=others(count, 0)),
        Pause(at_us=28 * s, for_us=3 * s, nodes=(2, 3)),
        Leave(at_us=33 * s, for_us=3 * s, nodes=(1,)),
        Crash(at_us=38 * s, for_us=3 * s, nodes=(3,), silent=True),
    ]


@for_nodes(
    4,
    usual=6,
    until_us=60 * s,
    traffic=Traffic(
        per_second=60,
        from_us=5 * s,
        retry_schedule_us=(100 * ms,),
        timeout_us=500 * ms,
        service_us=100 * ms,
        idempotent=True,
        failover=2,
    ),
    # Those for which both members end at the same moment.
    expect=("failed <= 5",),
)
def failover_under_load(_count: int) -> list[Operation]:
    """Nodes crash, hang and leave while requests may go to the member after the owner, too."""
    return [
        Crash(at_us=10 * s, for_us=5 * s, nodes=(2,)),
        Crash(at_us=25 * s, for_us=5 * s, nodes=(3,), silent=True),
        Pause(at_us=40 * s, for_us=3 * s, nodes=(1,)),
        Leave(at_us=50 * s, for_us=3 * s, nodes=(1,)),
        Crash(at_us=55 * s, nodes=(2, 3)),
    ]
