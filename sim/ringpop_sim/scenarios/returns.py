"""Processes that come back, and others that leave or die with something on its way."""

from __future__ import annotations

from ringpop_sim.plans.plan import (
    Crash,
    Cut,
    Leave,
    Pause,
    Plan,
    Rumour,
    Start,
    Stop,
    Traffic,
)
from ringpop_sim.scenarios.sizes import SHORT_LIVES, everybody, for_nodes, others
from ringpop_sim.units import hours, ms, s


@for_nodes(3, usual=8)
def moved(count: int) -> Plan:
    """A node comes back under its name at another address: it is the same member immediately."""
    return Plan(
        nodes=count,
        until_us=40 * s,
        expect=("converged_s <= 1.5", "views == 1", f"running == {count}"),
        operations=(Crash(at_us=10 * s, for_us=3 * s, nodes=(1,), moves=True),),
    )


@for_nodes(3, usual=8)
def moved_back(count: int) -> Plan:
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
    return Plan(
        nodes=count,
        until_us=40 * s,
        expect=("converged_s <= 4", "views == 1", f"running == {count}"),
        operations=(restart,),
    )


@for_nodes(3, usual=8)
def clock_back(count: int) -> Plan:
    """A node restarts with its clock set back by an hour: it outbids its former life."""
    restart = Crash(at_us=10 * s, for_us=20 * s, nodes=(1,), clock_us=-1 * hours)
    return Plan(
        nodes=count,
        until_us=50 * s,
        expect=("converged_s <= 10", f"running == {count}"),
        operations=(restart,),
    )


@for_nodes(4, usual=8)
def snapshot(count: int) -> Plan:
    """A machine is restored to a minute ago: its old rows do not revive dead members."""
    return Plan(
        nodes=count,
        until_us=110 * s,
        expect=("left_out 2 == 1", "views == 1"),
        operations=(
            Crash(at_us=10 * s, for_us=50 * s, nodes=(1,), memory="kept", silent=True),
            Crash(at_us=12 * s, nodes=(2,)),
        ),
    )


@for_nodes(4, usual=8)
def forgotten_snapshot(count: int) -> Plan:
    """A machine is restored after it was forgotten: it becomes a member again, the dead do not."""
    return Plan(
        nodes=count,
        until_us=130 * s,
        settings=SHORT_LIVES,
        expect=("left_out 2 == 1", "views == 1", "converged_s <= 60"),
        operations=(
            Crash(at_us=10 * s, for_us=40 * s, nodes=(1,), memory="kept", silent=True),
            Crash(at_us=12 * s, nodes=(2,)),
        ),
    )


@for_nodes(4, usual=8)
def old_alive(count: int) -> Plan:
    """Old gossip says that a dead node lives, until it is a tombstone and after: in vain."""
    rumours = tuple(
        Rumour(at_us=at_us, nodes=others(count, 1), about=1, status="alive")
        for at_us in range(10_500 * ms, 40 * s, 500 * ms)
    )
    return Plan(
        nodes=count,
        until_us=60 * s,
        # So short that the dead node is a tombstone long before the rumours end.
        settings=(("suspect_s", 1.0), ("suspect_factor", 1.0), ("faulty_s", 8.0)),
        expect=("left_out 1 == 1", "views == 1"),
        operations=(Crash(at_us=10 * s, nodes=(1,), silent=True), *rumours),
    )


@for_nodes(4, usual=8)
def missed_news(count: int) -> Plan:
    """A node leaves while another is cut off for a moment: that one learns of it later."""
    last = count - 1
    return Plan(
        nodes=count,
        until_us=25 * s,
        # A change is repeated so rarely that the node behind the cut misses it. The time-out is
        # longer than the cut, so that helpers then reach the node and no member suspects it.
        settings=(("piggyback_factor", 1), ("ping_timeout_s", 1.0)),
        expect=("suspects == 0", "left_out 1 == 1", "views == 1"),
        operations=(
            Cut(at_us=10 * s, for_us=800 * ms, left=(last,), right=others(count, last)),
            Leave(at_us=10_050 * ms, nodes=(1,)),
        ),
    )


@for_nodes(6, usual=10)
def die_young(count: int) -> Plan:
    """Nodes die a moment after they joined: accusations of them arrive before their rows."""
    young = everybody(count)[-3:]
    return Plan(
        nodes=count,
        until_us=80 * s,
        expect=(f"left_out {young[0]}-{young[-1]} == 3", "views == 1"),
        operations=(
            Start(at_us=10 * s, nodes=young),
            *(
                Crash(at_us=10 * s + 30 * ms + 150 * ms * place, nodes=(node,), silent=True)
                for place, node in enumerate(young)
            ),
        ),
    )


@for_nodes(4, usual=8)
def leave_and_return(count: int) -> Plan:
    """Nodes leave the ring by command and come back: never faulty, and in every ring again."""
    return Plan(
        nodes=count,
        until_us=45 * s,
        # No syncs: gossip alone has to spread the news, and does so in time.
        expect=("deaths == 0", "left_out == 0", "syncs == 0", "converged_s <= 1.5"),
        operations=(Leave(at_us=10 * s, for_us=15 * s, nodes=(1, 2)),),
    )


@for_nodes(4, usual=4)
def requests_troubled(count: int) -> Plan:
    """Daemons are killed, paused and cut off under load: what may not be repeated runs once."""
    first, rest = everybody(count)[:1], everybody(count)[1:]
    return Plan(
        nodes=count,
        until_us=55 * s,
        traffic=Traffic(per_second=40, from_us=3 * s, timeout_us=30 * s, service_us=300 * ms),
        operations=(
            Crash(at_us=6 * s, for_us=4 * s, nodes=(1,)),
            Stop(at_us=13 * s, for_us=3 * s, nodes=(2,)),
            Cut(at_us=18 * s, for_us=6 * s, left=first, right=rest),
            Pause(at_us=28 * s, for_us=3 * s, nodes=(2, 3)),
            Leave(at_us=33 * s, for_us=3 * s, nodes=(1,)),
            Crash(at_us=38 * s, for_us=3 * s, nodes=(3,), silent=True),
        ),
    )


@for_nodes(4, usual=6)
def failover_under_load(count: int) -> Plan:
    """Nodes crash, hang and leave while requests may go to the member after the owner, too."""
    return Plan(
        nodes=count,
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
        operations=(
            Crash(at_us=10 * s, for_us=5 * s, nodes=(2,)),
            Crash(at_us=25 * s, for_us=5 * s, nodes=(3,), silent=True),
            Pause(at_us=40 * s, for_us=3 * s, nodes=(1,)),
            Leave(at_us=50 * s, for_us=3 * s, nodes=(1,)),
            Crash(at_us=55 * s, nodes=(2, 3)),
        ),
    )
