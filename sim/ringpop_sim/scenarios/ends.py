"""Processes that end, and processes that come back, in every way that they may."""

from __future__ import annotations

from ringpop_sim.plans.plan import (
    Crash,
    Cut,
    Leave,
    Link,
    Pause,
    Plan,
    Rumour,
    Start,
    Stop,
    Takeover,
    Traffic,
)
from ringpop_sim.scenarios.sizes import SHORT_LIVES, at_least, everybody, others
from ringpop_sim.units import hours, ms, s


def crash(nodes: int | None) -> Plan:
    """One node dies under load and stays away: the others take over its keys."""
    return Plan(
        name="crash",
        nodes=at_least(2, nodes, 10),
        until_us=90 * s,
        traffic=Traffic(per_second=50, from_us=5 * s),
        # Refused connections are evidence, so a suspicion takes half a second (decision 12).
        expect=("detected_s <= 1", "left_out 1 == 1", "false_faulty == 0"),
        operations=(Crash(at_us=20 * s, nodes=(1,)),),
    )


def power_loss(nodes: int | None) -> Plan:
    """A third of the nodes loses power at the same time: no connection is refused or closed."""
    count = at_least(6, nodes, 9)
    gone = everybody(count)[-(count // 3) :]
    return Plan(
        name="power-loss",
        nodes=count,
        until_us=80 * s,
        expect=(f"left_out {gone[0]}-{gone[-1]} == {len(gone)}", f"deaths 0-{gone[0] - 1} == 0"),
        operations=(Crash(at_us=10 * s, nodes=gone, silent=True),),
    )


def rolling_restart(nodes: int | None) -> Plan:
    """All nodes are restarted one by one: no request fails, and no node is declared faulty."""
    count = at_least(4, nodes, 30)
    # Each is back before the next one stops, as a careful operator does it.
    stop = Stop(at_us=10 * s, for_us=2 * s, nodes=everybody(count), stagger_us=3 * s)
    return Plan(
        name="rolling-restart",
        nodes=count,
        until_us=stop.over_at_us + 15 * s,
        traffic=Traffic(per_second=40, from_us=5 * s),
        expect=("failed == 0", "deaths == 0", "converged_s <= 10", f"running == {count}"),
        operations=(stop,),
    )


def scale_down(nodes: int | None) -> Plan:
    """Half of the nodes leaves within a second: none of them is declared faulty."""
    count = at_least(4, nodes, 20)
    leaving = everybody(count)[count // 2 :]
    stop = Stop(at_us=10 * s, nodes=leaving, stagger_us=1 * s // len(leaving))
    return Plan(
        name="scale-down",
        nodes=count,
        until_us=40 * s,
        expect=(
            "deaths == 0",
            f"left_out {leaving[0]}-{count - 1} == {len(leaving)}",
            "views <= 1",
        ),
        operations=(stop,),
    )


def cluster_restart(nodes: int | None) -> Plan:
    """All nodes are killed at the same time and restarted at slightly different times."""
    count = at_least(2, nodes, 10)
    crashes = tuple(
        Crash(at_us=10 * s, for_us=2 * s + node * 200 * ms, nodes=(node,)) for node in range(count)
    )
    return Plan(
        name="cluster-restart",
        nodes=count,
        until_us=60 * s,
        expect=("converged_s <= 20", f"running == {count}"),
        operations=crashes,
    )


def seeds_restart(nodes: int | None) -> Plan:
    """Two seeds that list only each other restart at the same time: they do not stay an island."""
    count = at_least(4, nodes, 8)
    return Plan(
        name="seeds-restart",
        nodes=count,
        seeds=2,
        until_us=70 * s,
        expect=("converged_s <= 45", "views == 1"),
        operations=(Crash(at_us=10 * s, for_us=1 * s, nodes=(0, 1)),),
    )


def seeds_replaced(nodes: int | None) -> Plan:
    """The seeds stay away until they are forgotten; they come back and are found."""
    count = at_least(4, nodes, 8)
    return Plan(
        name="seeds-replaced",
        nodes=count,
        seeds=2,
        until_us=110 * s,
        settings=SHORT_LIVES,
        expect=("converged_s <= 45", "views == 1"),
        operations=(Crash(at_us=10 * s, for_us=40 * s, nodes=(0, 1)),),
    )


def takeover(nodes: int | None) -> Plan:
    """A process with a new name takes a killed one's address: the old name is declared faulty."""
    count = at_least(3, nodes, 8)
    return Plan(
        name="takeover",
        nodes=count,
        until_us=80 * s,
        expect=("converged_s <= 50", "views == 1"),
        operations=(Takeover(at_us=10 * s, about=1),),
    )


def moved(nodes: int | None) -> Plan:
    """A node comes back under its name at another address: it is the same member immediately."""
    count = at_least(3, nodes, 8)
    return Plan(
        name="moved",
        nodes=count,
        until_us=40 * s,
        expect=("converged_s <= 1.5", "views == 1", f"running == {count}"),
        operations=(Crash(at_us=10 * s, for_us=3 * s, nodes=(1,), moves=True),),
    )


def moved_back(nodes: int | None) -> Plan:
    """A node moves immediately, its clock an hour behind: it still gets its name back."""
    count = at_least(3, nodes, 8)
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
        name="moved-back",
        nodes=count,
        until_us=40 * s,
        expect=("converged_s <= 4", "views == 1", f"running == {count}"),
        operations=(restart,),
    )


def clock_back(nodes: int | None) -> Plan:
    """A node restarts with its clock set back by an hour: it outbids its former life."""
    count = at_least(3, nodes, 8)
    restart = Crash(at_us=10 * s, for_us=20 * s, nodes=(1,), clock_us=-1 * hours)
    return Plan(
        name="clock-back",
        nodes=count,
        until_us=50 * s,
        expect=("converged_s <= 10", f"running == {count}"),
        operations=(restart,),
    )


def snapshot(nodes: int | None) -> Plan:
    """A machine is restored to a minute ago: its old rows do not revive dead members."""
    count = at_least(4, nodes, 8)
    return Plan(
        name="snapshot",
        nodes=count,
        until_us=110 * s,
        expect=("left_out 2 == 1", "views == 1"),
        operations=(
            Crash(at_us=10 * s, for_us=50 * s, nodes=(1,), memory="kept", silent=True),
            Crash(at_us=12 * s, nodes=(2,)),
        ),
    )


def forgotten_snapshot(nodes: int | None) -> Plan:
    """A machine is restored after it was forgotten: it becomes a member again, the dead do not."""
    count = at_least(4, nodes, 8)
    return Plan(
        name="forgotten-snapshot",
        nodes=count,
        until_us=130 * s,
        settings=SHORT_LIVES,
        expect=("left_out 2 == 1", "views == 1", "converged_s <= 60"),
        operations=(
            Crash(at_us=10 * s, for_us=40 * s, nodes=(1,), memory="kept", silent=True),
            Crash(at_us=12 * s, nodes=(2,)),
        ),
    )


def old_alive(nodes: int | None) -> Plan:
    """Old gossip says that a dead node lives, until it is a tombstone and after: in vain."""
    count = at_least(4, nodes, 8)
    rumours = tuple(
        Rumour(at_us=at_us, nodes=others(count, 1), about=1, status="alive")
        for at_us in range(10_500 * ms, 40 * s, 500 * ms)
    )
    return Plan(
        name="old-alive",
        nodes=count,
        until_us=60 * s,
        # So short that the dead node is a tombstone long before the rumours end.
        settings=(("suspect_s", 1.0), ("suspect_factor", 1.0), ("faulty_s", 8.0)),
        expect=("left_out 1 == 1", "views == 1"),
        operations=(Crash(at_us=10 * s, nodes=(1,), silent=True), *rumours),
    )


def missed_news(nodes: int | None) -> Plan:
    """A node leaves while another is cut off for a moment: that one learns of it later."""
    count = at_least(4, nodes, 8)
    last = count - 1
    return Plan(
        name="missed-news",
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


def die_young(nodes: int | None) -> Plan:
    """Nodes die a moment after they joined: accusations of them arrive before their rows."""
    count = at_least(6, nodes, 10)
    young = everybody(count)[-3:]
    return Plan(
        name="die-young",
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


def leave_and_return(nodes: int | None) -> Plan:
    """Nodes leave the ring by command and come back: never faulty, and in every ring again."""
    count = at_least(4, nodes, 8)
    return Plan(
        name="leave-and-return",
        nodes=count,
        until_us=45 * s,
        traffic=Traffic(per_second=30, from_us=5 * s),
        # No syncs: gossip alone has to spread the news, and does so in time.
        expect=("deaths == 0", "failed == 0", "left_out == 0", "syncs == 0", "converged_s <= 1.5"),
        operations=(Leave(at_us=10 * s, for_us=15 * s, nodes=(1, 2)),),
    )


def failover_under_load(nodes: int | None) -> Plan:
    """Nodes crash, hang and leave while requests may go to the member after the owner, too."""
    count = at_least(4, nodes, 6)
    return Plan(
        name="failover-under-load",
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


def crash_under_load(nodes: int | None) -> Plan:
    """Requests have keys of several owners: nodes crash, hang and leave, and answers get lost."""
    count = at_least(4, nodes, 6)
    return Plan(
        name="crash-under-load",
        nodes=count,
        until_us=60 * s,
        link=Link(loss=0.05),
        traffic=Traffic(
            keys_each=4,
            per_second=60,
            from_us=5 * s,
            timeout_us=500 * ms,
            service_us=100 * ms,
            each_for_us=1200 * ms,
        ),
        operations=(
            Crash(at_us=10 * s, for_us=3 * s, nodes=everybody(count), stagger_us=4 * s),
            Crash(at_us=40 * s, for_us=5 * s, nodes=(2,), silent=True),
            Pause(at_us=50 * s, for_us=1 * s, nodes=(3,)),
            Leave(at_us=52 * s, for_us=3 * s, nodes=(1,)),
        ),
    )
