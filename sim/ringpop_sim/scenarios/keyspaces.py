"""Clusters with a keyspace: its partitions move, while clients read and append to its keys."""

from __future__ import annotations

from typing import Final

from ringpop_sim.plans.plan import (
    Crash,
    Cut,
    Drain,
    FailStore,
    Impair,
    Jump,
    KeyspacePlan,
    Link,
    Operation,
    Pause,
    Plan,
    Rebalance,
    Start,
    Stop,
    uniform,
)
from ringpop_sim.scenarios.sizes import cut_in_halves, everybody, for_nodes
from ringpop_sim.units import hours, ms, s

QUICK: Final[tuple[tuple[str, float | int | bool], ...]] = (
    ("period_s", 0.5),
    ("ping_timeout_s", 0.3),
    ("ping_req_timeout_s", 0.7),
    ("join_timeout_s", 0.5),
    ("suspect_s", 1.5),
    ("suspect_factor", 3.0),
    ("heal_period_s", 3.0),
    ("heal_fast_s", 1.0),
    ("heal_timeout_s", 0.5),
)
"""Settings with which members that are gone are detected within seconds."""
SLOW_LINKS: Final = Link(delay=uniform(5 * ms, 40 * ms))
SETTLED_US: Final = 60 * s
"""Partitions may wait as long after the last fault: for the end of a truce, and for each try."""


@for_nodes(3, usual=4)
def partitions_drained(count: int) -> Plan:
    """Members are drained in turn: partitions are handed over under load, and nothing is lost."""
    return _drained(count, "durable")


@for_nodes(3, usual=4)
def copies_drained(count: int) -> Plan:
    """As partitions-drained, with a keyspace in memory mode."""
    return _drained(count, "memory")


@for_nodes(3, usual=4)
def partitions_paused(count: int) -> Plan:
    """Members are paused in turn, lose their partitions, and then answer nothing from memory."""
    pauses = (Pause(at_us=(5 + 6 * n) * s, for_us=4 * s, nodes=(n,)) for n in everybody(count))
    # Mostly a group is under way when a pause begins.
    keyspace = _busy(partitions=4, timeout_us=4 * s, store_write_us=50 * ms)
    return _served(count, keyspace, *pauses)


@for_nodes(3, usual=4)
def partitions_killed(count: int) -> Plan:
    """Members are killed in turn, in the midst of writes, and requests end before others serve."""
    kills = (Crash(at_us=(5 + 10 * n) * s, for_us=8 * s, nodes=(n,)) for n in everybody(count))
    keyspace = _busy(store_write_us=100 * ms, timeout_us=1 * s)
    return _served(count, keyspace, *kills)


@for_nodes(2, usual=4)
def partitions_split(count: int) -> Plan:
    """Both sides of a cut reach the store, and want all partitions: truces keep the moves few."""
    return _split(count, "durable")


@for_nodes(2, usual=4)
def actors_split(count: int) -> Plan:
    """As partitions-split, with actors that are at work when their partitions move."""
    return _split(count, "durable", actors=0.6, busy_us=300 * ms)


@for_nodes(3, usual=4)
def partitions_sealed(count: int) -> Plan:
    """A member that lives is declared faulty: its journal is sealed, and it claims again."""
    first, others = everybody(count)[:1], everybody(count)[1:]
    # It receives messages and cannot answer, but the store answers it. Others take few partitions
    # at a time, so each time their seal hits partitions that no other node is about to claim.
    deaf = Cut(at_us=6 * s, for_us=8 * s, left=first, right=others, one_way=True)
    keyspace = _busy(partitions=24, takeovers_max=1, keys=12, per_second=60.0)
    return _served(count, keyspace, deaf)


@for_nodes(3, usual=4)
def journals_trimmed(count: int) -> Plan:
    """Partitions have moved and members were killed; half a minute later journals are short."""
    kill = Crash(at_us=(6 + 4 * count) * s, for_us=3 * s, nodes=(count - 1,))
    keyspace = _busy(after_us=35 * s)
    return _served(count, keyspace, *_drains(count, 4), kill)


@for_nodes(2, usual=4)
def copies_split(count: int) -> Plan:
    """Both sides of a cut serve all partitions, whose copies become one when the cut is over."""
    return _split(count, "memory")


@for_nodes(5, usual=5)
def copies_leaving(count: int) -> Plan:
    """Members stop and start in turn on bad links, and hand over everything before they end."""
    operations: list[Operation] = []
    for node in range(count - 2):
        at_us = (4 + 8 * node) * s
        operations.append(Stop(at_us=at_us, for_us=7 * s, nodes=(node,)))
        # Another one begins to give to those that stop.
        operations.append(Drain(at_us=at_us - 150 * ms, for_us=3 * s, nodes=(count - 2,)))
    keyspace = _busy("memory", partitions=24, keys=12)
    return _served(count, keyspace, *operations, link=SLOW_LINKS)


@for_nodes(3, usual=4)
def requests_lost(count: int) -> Plan:
    """Answers are lost while members are drained: requests are repeated, and take effect once."""
    everyone = everybody(count)
    return _served(
        count,
        _busy(partitions=4),
        Impair(at_us=3 * s, for_us=20 * s, nodes=everyone, loss_in=0.1, duplicate=0.1),
        *_drains(count, 4),
    )


@for_nodes(3, usual=4)
def store_failing(count: int) -> Plan:
    """The store fails in every way, for all members and for one, while partitions move."""
    return _served(
        count,
        _busy(handoffs_max=1, takeovers_max=1),
        FailStore(at_us=4 * s, for_us=8 * s, how="unknown"),
        FailStore(at_us=13 * s, for_us=4 * s, nodes=(1,), how="cut"),
        FailStore(at_us=18 * s, for_us=4 * s, how="read-only"),
        FailStore(at_us=23 * s, for_us=4 * s, how="full"),
        *_drains(count, 6),
    )


@for_nodes(3, usual=4)
def disks_full(count: int) -> Plan:
    """Disks of members fill while actors are busy and partitions move: others take them over.

    Some of these members find no room in the store either, and are cut off from the others.
    """
    operations: list[Operation] = []
    for turn in range(6):
        at_us, node = (4 + 6 * turn) * s, turn % count
        operations.append(FailStore(at_us=at_us, for_us=4 * s, nodes=(node,), how="disk"))
        if turn % 2:
            full = FailStore(at_us=at_us, for_us=2500 * ms, nodes=(node,), how="full")
            others = tuple(n for n in range(count) if n != node)
            operations += [full, Cut(at_us=at_us, for_us=5 * s, left=(node,), right=others)]
    return _served(
        count,
        _busy(actors=0.5, busy_us=300 * ms, store_write_us=20 * ms),
        *operations,
        *_drains(count, 6),
    )


@for_nodes(2, usual=5)
def partitions_awaited(count: int) -> Plan:
    """Members start one after the other: no partition is served before there are enough of them."""
    start = Start(at_us=2 * s, nodes=everybody(count)[1:], stagger_us=2 * s)
    return _served(count, _busy(min_cluster_size=count - 1), start)


@for_nodes(3, usual=4)
def partitions_by_hand(count: int) -> Plan:
    """Members stop and return; partitions go to others, and return when somebody spreads them."""
    keyspace = _busy(strategy="average", automatic=False)
    stops = (Stop(at_us=(6 + 10 * n) * s, for_us=7 * s, nodes=(n,)) for n in range(2))
    spread = (Rebalance(at_us=at_s * s, nodes=(2,)) for at_s in (16, 30))
    for_good = Stop(at_us=34 * s, nodes=(0,))
    return _served(count, keyspace, *stops, *spread, for_good, left=1)


@for_nodes(5, usual=5)
def keys_expire(count: int) -> Plan:
    """Keys expire while wall clocks jump, partitions move, and a member is killed."""
    kill = Crash(at_us=24 * s, for_us=4 * s, nodes=(2,))
    return _expiring(count, "durable", kill, *_drains(count, 4))


@for_nodes(5, usual=5)
def copies_expire(count: int) -> Plan:
    """Keys expire on both sides of a cut, where clocks jump; what was renewed on one side stays."""
    return _expiring(count, "memory", *_drains(count, 4), cut_in_halves(count, 22 * s, 10 * s))


@for_nodes(3, usual=4)
def keys_watched(count: int) -> Plan:
    """Programs watch keys that change and expire while partitions move and members are killed."""
    keyspace = _busy(partitions=4, keys=30, expiring=0.3, watchers=6, after_us=10 * s)
    kills = (Crash(at_us=(6 + 9 * n) * s, for_us=4 * s, nodes=(n,)) for n in range(count - 1))
    return _served(count, keyspace, *kills, *_drains(count, 7), cut_in_halves(count, 30 * s, 6 * s))


@for_nodes(3, usual=4)
def logs_rotated(count: int) -> Plan:
    """Log files grow and are rotated; a stream and a dataflow count each line once."""
    first, others = everybody(count)[:1], everybody(count)[1:]
    return _served(
        count,
        _busy(partitions=6, per_second=5.0, files=2, rotated_us=4 * s, dataflow=True),
        Crash(at_us=6 * s, for_us=4 * s, nodes=(1,)),
        Pause(at_us=12 * s, for_us=4 * s, nodes=(2,)),
        Cut(at_us=20 * s, for_us=6 * s, left=first, right=others),
        FailStore(at_us=30 * s, for_us=3 * s, how="unknown"),
        Crash(at_us=36 * s, for_us=3 * s, nodes=others),
    )


def _expiring(count: int, mode: str, *operations: Operation) -> Plan:
    keyspace = _busy(mode, keys=2, expiring=0.9, after_us=10 * s)
    jumps = (
        Jump(at_us=at_s * s, for_us=6 * s, nodes=(node,), clock_us=by * hours)
        for at_s, node, by in ((4, 0, 1), (6, 1, -1), (14, 1, 1), (16, 0, -1), (23, 0, 1))
    )
    return _served(count, keyspace, *jumps, *operations)


def _drained(count: int, mode: str) -> Plan:
    last = Drain(at_us=(5 + 4 * count) * s, nodes=(1,))  # for good
    # Writes gather, so that a release often waits behind some.
    keyspace = _busy(mode, store_write_us=20 * ms)
    return _served(count, keyspace, *_drains(count, 4), last, link=SLOW_LINKS)


def _drains(count: int, every_s: int) -> list[Operation]:
    return [
        Drain(at_us=(5 + every_s * n) * s, for_us=(every_s - 1) * s, nodes=(n,))
        for n in range(count - 1)
    ]


def _split(count: int, mode: str, **changed: float) -> Plan:
    return _served(count, _busy(mode, **changed), cut_in_halves(count, 6 * s, 20 * s))


def _busy(mode: str = "durable", **changed: float | str | bool) -> KeyspacePlan:
    """Return a keyspace with so many requests for so few keys that a wrong answer is seen."""
    usual = {
        "mode": mode,
        "partitions": 8,
        "keys": 6,
        "keys_each": 2,
        "per_second": 30.0,
        "from_us": 3 * s,
    }
    return KeyspacePlan(**usual | changed)  # type: ignore[arg-type]


def _served(
    count: int,
    keyspace: KeyspacePlan,
    *operations: Operation,
    link: Link | None = None,
    left: int = 0,
) -> Plan:
    """Return a plan that ends when every partition is served; *left* members are gone by then."""
    return Plan(
        nodes=count,
        calm_us=2 * s,
        settings=QUICK,
        codec_share=0.0,
        link=link or Link(),
        keyspace=keyspace,
        operations=tuple(sorted(operations, key=lambda operation: operation.at_us)),
        until_us=max(operation.over_at_us for operation in operations) + SETTLED_US,
        expect=(f"running == {count - left}", "views == 1"),
    )
