"""Random plans: faults of every kind, several at the same time, and then a quiet time.

A plan is a function of its seed alone. Plans are short, because what counts is how many different
courses a core can examine in a second. So the protocol's own times are shortened, faults last for
seconds, and a plan ends soon after the cluster has converged again. If the cluster does not
converge, the plan continues for as long as that may take.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, get_args

from ringpop_py.base.dialect import dialect_named
from ringpop_sim.checks.bounds import Bounds
from ringpop_sim.plans import plan as p
from ringpop_sim.units import hours, ms, s

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_sim.plans.plan import Nodes, Operation

NODES_DEFAULT: Final = 8
FAULTS_DEFAULT: Final = 5
CODEC_SHARE: Final = 0.02
CALM_US: Final = 2 * s
PARTITIONS_SETTLE_US: Final = 60 * s
"""How long partitions may take at most to be served again once the members agree: a truce of 30 s
after many fences, a silent owner that is waited for, and a few tries of everything."""
FAULTS_FROM_US: Final = 2 * s
FAULTS_UNTIL_US: Final = 10 * s
FAULT_US_MAX: Final = 6 * s

TIMES: Final[tuple[tuple[str, float | int | bool], ...]] = (
    ("period_s", 0.5),
    ("ping_timeout_s", 0.3),
    ("ping_req_timeout_s", 0.7),
    ("join_timeout_s", 0.5),
    ("join_delay_max_s", 2.0),
    ("suspect_s", 1.5),
    ("suspect_factor", 3.0),
    ("heal_period_s", 3.0),
    ("heal_fast_s", 1.0),
    ("heal_timeout_s", 0.5),
    ("damp_vote_period_s", 2.0),
)
"""Settings for a plan of half a minute; the times are in the usual proportions."""
OTHER_TIMES: Final[tuple[tuple[tuple[str, float | int | bool], ...], ...]] = (
    (("suspect_s", 0.6),),
    (("period_s", 0.2),),
    # So short that members are evicted within the plan, and come back.
    (("faulty_s", 4.0), ("tombstone_s", 2.0)),
    # So low that a few restarts damp a member, and so short that it is released again.
    (("damp_suppress", 1500), ("damp_reuse", 800), ("damp_half_life_s", 4.0)),
    (("ping_req_size", 1),),
)
DELAYS: Final = (p.Delay(), p.uniform(1 * ms, 20 * ms), p.exponential(10 * ms), p.long_tail(5 * ms))


def random_plan(
    seed: int,
    nodes: int = NODES_DEFAULT,
    faults: int = FAULTS_DEFAULT,
    name: str = "random",
    *,
    keyspaces: bool = False,
) -> p.Plan:
    """Return a plan of *nodes* nodes with *faults* to *faults* + 3 faults, drawn from *seed*.

    With *keyspaces*, the nodes have a keyspace, and its faults are among the others.
    """
    if keyspaces:
        return _keyspace_plan(seed, nodes, faults, name)
    draw = _Draw(random.Random(f"plan {seed} {nodes} {faults}"), nodes)
    operations = [o for _ in range(faults + draw.upto(3)) for o in _fault(draw, _WEIGHTED)]
    operations.sort(key=lambda operation: operation.at_us)
    plan = p.Plan(
        name=name,
        about=f"drawn from seed {seed}",
        nodes=nodes,
        until_us=1 * hours,  # for now: the bounds follow from the plan itself
        settle_us=CALM_US,
        calm_us=CALM_US,
        dialect="ringpop" if draw.chance(0.15) else "native",
        settings=draw.settings(),
        seeds=draw.rng.randint(1, nodes) if draw.chance(0.2) else 0,
        link=draw.link(),
        codec_share=CODEC_SHARE,
        operations=tuple(operations),
    )
    bounds = Bounds(plan, plan.gossip(), dialect_named(plan.dialect))
    # A second more, so that the bound has passed when the plan ends.
    return replace(plan, until_us=plan.quiet_at_us + bounds.settle_us + 1 * s)


def _keyspace_plan(seed: int, nodes: int, faults: int, name: str) -> p.Plan:
    draw = _Draw(random.Random(f"keyspaces {seed} {nodes} {faults}"), nodes)
    keyspace = draw.keyspace()
    calm = draw.chance(0.3)
    if calm:  # requests begin when the members know each other, see K1
        keyspace = replace(keyspace, from_us=CALM_US)
    kinds = _ORDERLY if calm else _WITH_KEYSPACES
    operations = [o for _ in range(1 + draw.upto(faults)) for o in _fault(draw, kinds)]
    more = _Draw(random.Random(f"states {seed} {nodes} {faults}"), nodes)
    if more.chance(0.2):
        keyspace = replace(keyspace, actors=0.5, busy_us=more.rng.choice((50 * ms, 500 * ms)))
    logs = _Draw(random.Random(f"files {seed} {nodes} {faults}"), nodes)
    if keyspace.mode == "durable" and logs.chance(0.3):
        rotated_us = logs.rng.choice((0, 2 * s, 5 * s))
        keyspace = replace(keyspace, files=logs.rng.choice((1, 3)), rotated_us=rotated_us)
        keyspace = replace(keyspace, dataflow=logs.chance(0.5))
    if keyspace.mode == "durable" and logs.chance(0.3):
        keyspace = replace(keyspace, watchers=3)
    if not calm and more.chance(0.2):
        disk = p.FailStore(at_us=more.at(), for_us=more.lasting(), nodes=more.some(2), how="disk")
        operations.append(disk)
    operations.sort(key=lambda operation: operation.at_us)
    plan = p.Plan(
        name=name,
        about=f"drawn from seed {seed}",
        nodes=nodes,
        until_us=1 * hours,
        settle_us=CALM_US,
        calm_us=CALM_US,
        settings=TIMES,
        link=p.Link(loss=0.0 if calm else draw.rng.choice((0.0, 0.0, 0.02))),
        codec_share=0.0,
        keyspace=keyspace,
        traffic=_Draw(random.Random(f"traffic {seed} {nodes} {faults}"), nodes).traffic(),
        operations=tuple(operations),
    )
    bounds = Bounds(plan, plan.gossip(), dialect_named(plan.dialect))
    return replace(plan, until_us=plan.quiet_at_us + bounds.settle_us + PARTITIONS_SETTLE_US)


def with_expiry(plan: p.Plan, seed: int) -> p.Plan:
    """Return *plan* with keys that expire, and wall clocks that jump, always the same few's."""
    assert plan.keyspace is not None
    draw = _Draw(random.Random(f"expiring {seed}"), plan.nodes)
    keyspace = replace(plan.keyspace, expiring=0.8, per_second=25.0, after_us=10 * s, actors=0.0)
    jumps: list[Operation] = [
        p.Jump(at_us=at_us, for_us=draw.lasting(), nodes=(node,), clock_us=by * hours)
        for node in draw.rng.sample(range(plan.nodes), (plan.nodes - 1) // 2)
        for at_us, by in [(draw.rng.choice((0, draw.at())), draw.rng.choice((-1, 1)))]
    ]
    others = [replace(o, clock_us=0) if isinstance(o, p.Crash) else o for o in plan.operations]
    operations = tuple(sorted((*others, *jumps), key=lambda operation: operation.at_us))
    changed = replace(plan, keyspace=keyspace, operations=operations)
    later_us = changed.quiet_at_us - plan.quiet_at_us
    return replace(changed, until_us=plan.until_us + later_us + keyspace.after_us)


class _Draw:
    """The random draws for one plan."""

    def __init__(self, rng: random.Random, nodes: int) -> None:
        self.rng = rng
        self.nodes = nodes
        self.storm = False

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def upto(self, count: int) -> int:
        return self.rng.randint(0, count)

    def settings(self) -> tuple[tuple[str, float | int | bool], ...]:
        settings = dict(TIMES)
        if self.chance(0.5):
            settings.update(self.rng.choice(OTHER_TIMES))
        return tuple(settings.items())

    def link(self) -> p.Link:
        return p.Link(
            # Mostly none, because several oracles claim nothing if messages are lost or doubled.
            loss=self.rng.choice((0.0, 0.0, 0.0, 0.02, 0.1)),
            delay=self.rng.choice(DELAYS),
            duplicate=self.rng.choice((0.0, 0.0, 0.0, 0.1)),
            corrupt=0.02 if self.chance(0.1) else 0.0,
        )

    def traffic(self) -> p.Traffic | None:
        if not self.chance(0.2):
            return None
        return p.Traffic(
            keys=50,
            per_second=20.0,
            from_us=2 * s,
            retry_schedule_us=(0, 300 * ms, 1 * s),
            timeout_us=700 * ms,
            service_us=self.rng.choice((0, 5 * ms)),
            idempotent=(idempotent := self.chance(0.3)),
            consistency=self.rng.choice(("keys", "keys", "checksum")),
            failover=self.rng.choice((1, 2, 3)) if idempotent else 1,
        )

    def keyspace(self) -> p.KeyspacePlan:
        rng = self.rng
        durable = self.chance(0.65)
        by_hand = durable and self.chance(0.2)
        strategies = ("balanced", "ring", "range")
        return p.KeyspacePlan(
            partitions=rng.choice((1, 4, 4, 8, 16)),
            mode="durable" if durable else "memory",
            strategy="average" if by_hand else rng.choice(strategies),
            automatic=not by_hand or self.chance(0.5),
            min_cluster_size=rng.choice((1, 1, 1, 2, self.nodes)),
            handoffs_max=rng.choice((1, 2)),
            takeovers_max=rng.choice((1, 16)),
            keys=rng.choice((3, 8)),
            keys_each=rng.choice((1, 2, 3)),
            per_second=rng.choice((5.0, 15.0)),
            # In memory mode, members that do not know each other yet serve the same partitions.
            from_us=500 * ms if durable else FAULTS_FROM_US,
            timeout_us=rng.choice((1 * s, 3 * s)),
        )

    def at(self) -> int:
        return self.rng.randrange(FAULTS_FROM_US, FAULTS_UNTIL_US)

    def lasting(self) -> int:
        """Draw a duration in us: mostly shorter or longer than a suspicion, seldom in between."""
        longest = self.rng.choice((1 * s, 3 * s, FAULT_US_MAX))
        return self.rng.randrange(50 * ms, longest)

    def node(self) -> int:
        return self.rng.randrange(self.nodes)

    def some(self, most: int | None = None) -> Nodes:
        """Draw one node or more, mostly few."""
        most = min(most or self.nodes, self.nodes)
        count = min(self.rng.choice((1, 1, 1, 2, 3, self.nodes // 2)), most)
        return tuple(sorted(self.rng.sample(range(self.nodes), max(1, count))))

    def parts(self, count: int) -> list[Nodes]:
        """Divide all nodes into *count* parts, or into fewer if there are not enough nodes."""
        shuffled = self.rng.sample(range(self.nodes), self.nodes)
        cuts = sorted(self.rng.sample(range(1, self.nodes), min(count, self.nodes) - 1))
        bounds = [0, *cuts, self.nodes]
        return [tuple(sorted(shuffled[a:b])) for a, b in pairwise(bounds)]


# Faults. Each kind gives one or more operations that belong together.


def _cut_in_parts(draw: _Draw) -> list[Operation]:
    """Cut the cluster into two or three parts; one of them may be a single node."""
    parts = draw.parts(draw.rng.choice((2, 2, 2, 3)))
    if draw.chance(0.3):
        lonely = draw.node()
        parts = [(lonely,), tuple(n for n in range(draw.nodes) if n != lonely)]
    at_us, for_us = draw.at(), draw.lasting()
    one_way, refuse = draw.chance(0.3), draw.chance(0.3)
    return [
        p.Cut(at_us=at_us, for_us=for_us, left=a, right=b, one_way=one_way, refuse=refuse)
        for place, a in enumerate(parts)
        for b in parts[place + 1 :]
        if a and b
    ]


def _bridge(draw: _Draw) -> list[Operation]:
    """Cut two parts apart, and leave nodes that reach both."""
    parts = draw.parts(3)
    left, right = parts[0], parts[-1]
    if len(parts) < 3:  # noqa: PLR2004 - no node is left to be the bridge
        return _cut_in_parts(draw)
    return [p.Cut(at_us=draw.at(), for_us=draw.lasting(), left=left, right=right)]


def _impair(draw: _Draw) -> list[Operation]:
    loss_in, loss_out = draw.rng.choice(((0.8, 0.0), (0.3, 0.3), (0.0, 0.6), (0.0, 0.0)))
    return [
        p.Impair(
            at_us=draw.at(),
            for_us=draw.lasting(),
            nodes=draw.some(),
            loss_in=loss_in,
            loss_out=loss_out,
            delay_us=draw.rng.choice((0, 0, 50 * ms, 400 * ms)),
            duplicate=draw.rng.choice((0.0, 0.5)),
            corrupt=draw.rng.choice((0.0, 0.0, 0.3)),
            flip_us=draw.rng.choice((0, 0, 500 * ms, 2 * s)),
        )
    ]


def _slow(draw: _Draw) -> list[Operation]:
    by_us = draw.rng.choice((20 * ms, 200 * ms, 500 * ms))
    at_us, for_us = draw.at(), draw.lasting()
    return [p.Slow(at_us=at_us, for_us=for_us, nodes=draw.some(), by_us=by_us)]


def _pause(draw: _Draw) -> list[Operation]:
    return [p.Pause(at_us=draw.at(), for_us=draw.lasting(), nodes=draw.some())]


def _crash(draw: _Draw) -> list[Operation]:
    for_us = 0 if draw.chance(0.15) else draw.lasting()
    return [
        p.Crash(
            at_us=draw.at(),
            for_us=for_us,
            # Only one node, if for good: oracles judge the nodes that are left.
            nodes=draw.some(1 if for_us == 0 else None),
            silent=draw.chance(0.4),
            memory="kept" if draw.chance(0.2) else "lost",
            clock_us=draw.rng.choice((0, 0, -5 * s, -1 * hours, 1 * hours)),
            moves=draw.chance(0.2),
        )
    ]


def _rolling(draw: _Draw) -> list[Operation]:
    """Restart all nodes, one after the other or at the same time."""
    everyone = tuple(draw.rng.sample(range(draw.nodes), draw.nodes))
    stagger_us = draw.rng.choice((0, 100 * ms, 400 * ms))
    kind = draw.rng.choice((p.Crash, p.Stop))
    down_us = draw.rng.randrange(100 * ms, 1 * s)
    at_us = draw.at()
    return [kind(at_us=at_us, for_us=down_us, nodes=everyone, stagger_us=stagger_us)]


def _stop(draw: _Draw) -> list[Operation]:
    for_us = 0 if draw.chance(0.2) else draw.lasting()
    return [p.Stop(at_us=draw.at(), for_us=for_us, nodes=draw.some(2))]


def _join_storm(draw: _Draw) -> list[Operation]:
    """Start several nodes late; a plan has at most one storm."""
    if draw.storm:
        return _pause(draw)
    draw.storm = True
    # Not all, and in one storm only, so that the late ones find a cluster to join.
    late = draw.some(draw.nodes - 1)
    stagger_us = draw.rng.choice((0, 0, 100 * ms))
    return [p.Start(at_us=draw.at(), nodes=late, stagger_us=stagger_us)]


def _takeover(draw: _Draw) -> list[Operation]:
    return [p.Takeover(at_us=draw.at(), about=draw.node())]


def _twin(draw: _Draw) -> list[Operation]:
    """Start a second process with a name in use, sometimes while the first one is down."""
    about, at_us, for_us = draw.node(), draw.at(), draw.lasting()
    twin = p.Twin(
        at_us=at_us,
        for_us=0 if draw.chance(0.3) else for_us,
        about=about,
        again_us=draw.rng.choice((0, 0, 300 * ms)),
        beside=draw.node() if draw.chance(0.5) else None,
    )
    if draw.chance(0.5):
        return [twin]
    asleep_us = draw.rng.randrange(100 * ms, 2 * s)
    # Faults begin at 2 s or later, so this one never begins before the plan.
    return [p.Pause(at_us=at_us - asleep_us, for_us=asleep_us + for_us, nodes=(about,)), twin]


def _leave(draw: _Draw) -> list[Operation]:
    return [p.Leave(at_us=draw.at(), for_us=draw.lasting(), nodes=draw.some(3))]


def _clock(draw: _Draw) -> list[Operation]:
    drift_ppm = draw.rng.choice((-50_000, -500, 500, 50_000))
    at_us, for_us = draw.at(), draw.lasting()
    return [p.Clock(at_us=at_us, for_us=for_us, nodes=draw.some(), drift_ppm=drift_ppm)]


def _discovery(draw: _Draw) -> list[Operation]:
    """Change hosts lists from the beginning, or later with a crash, so that a node reads them."""
    nodes = draw.some()
    listed = draw.rng.choice(((), nodes, draw.some()))
    strangers = draw.rng.choice((0, 0, 3))
    from_us = draw.rng.choice((0, draw.at()))
    until_us = max(from_us, FAULTS_FROM_US) + draw.lasting()
    found: list[Operation] = [
        p.Discovery(
            at_us=from_us,
            for_us=until_us - from_us,
            nodes=nodes,
            listed=listed,
            strangers=strangers,
        )
    ]
    if from_us:
        found.append(p.Crash(at_us=from_us, for_us=200 * ms, nodes=nodes[:2]))
    return found


def _rumour(draw: _Draw) -> list[Operation]:
    status = draw.rng.choice(("suspect", "faulty", "faulty", "leave", "alive"))
    about = draw.node()
    nodes, elsewhere = draw.some(), status == "alive" and draw.chance(0.5)
    at_us = draw.at()
    return [p.Rumour(at_us=at_us, nodes=nodes, about=about, status=status, elsewhere=elsewhere)]


def _lie(draw: _Draw) -> list[Operation]:
    liar, lie = draw.node(), draw.rng.choice(get_args(p.Lies))
    told = tuple(node for node in range(draw.nodes) if node != liar)
    if draw.chance(0.3):
        told = told[: draw.rng.randrange(1, 4)]
    return [p.Lie(at_us=draw.at(), for_us=draw.lasting(), about=liar, nodes=told, lie=lie)]


def _drain(draw: _Draw) -> list[Operation]:
    return [p.Drain(at_us=draw.at(), for_us=draw.lasting(), nodes=draw.some(2))]


def _store(draw: _Draw) -> list[Operation]:
    """Make the store fail, for all or for a few, in one way."""
    troubles: tuple[p.StoreTrouble, ...] = get_args(p.StoreTrouble)[:-1]  # except that of disks
    how = draw.rng.choice(("unknown", *troubles))
    nodes = () if draw.chance(0.4) else draw.some(2)
    return [p.FailStore(at_us=draw.at(), for_us=draw.lasting(), nodes=nodes, how=how)]


def _cut_both(draw: _Draw) -> list[Operation]:
    """Cut a node off from the others, and from the store or not."""
    node, at_us, for_us = draw.node(), draw.at(), draw.lasting()
    others = tuple(n for n in range(draw.nodes) if n != node)
    if not others:
        return _store(draw)
    cut: list[Operation] = [p.Cut(at_us=at_us, for_us=for_us, left=(node,), right=others)]
    if draw.chance(0.5):
        cut.append(p.FailStore(at_us=at_us, for_us=for_us, nodes=(node,), how="cut"))
    return cut


def _rebalance(draw: _Draw) -> list[Operation]:
    return [p.Rebalance(at_us=draw.at(), nodes=(draw.node(),))]


def _orderly_stop(draw: _Draw) -> list[Operation]:
    node = draw.node()
    down_us = draw.rng.randrange(6 * s, 8 * s)
    return [p.Stop(at_us=draw.at(), for_us=down_us, nodes=(node,))]


_Weighted = tuple[tuple["Callable[[_Draw], list[Operation]]", int], ...]
_WEIGHTED: Final[_Weighted] = (
    (_cut_in_parts, 5),
    (_bridge, 2),
    (_impair, 4),
    (_slow, 2),
    (_pause, 3),
    (_crash, 5),
    (_rolling, 1),
    (_stop, 2),
    (_join_storm, 2),
    (_takeover, 1),
    (_twin, 2),
    (_leave, 2),
    (_clock, 1),
    (_discovery, 2),
    (_rumour, 2),
    (_lie, 2),
)
_ORDERLY: Final = ((_orderly_stop, 3), (_drain, 3), (_leave, 2), (_join_storm, 2), (_rebalance, 1))
"""Faults after which memory mode must have lost nothing."""
_WITH_KEYSPACES: Final = (
    (_store, 6),
    (_cut_both, 3),
    (_cut_in_parts, 3),
    (_bridge, 1),
    (_impair, 2),
    (_slow, 2),
    (_pause, 4),
    (_crash, 4),
    (_rolling, 1),
    (_stop, 2),
    (_join_storm, 2),
    (_leave, 2),
    (_drain, 2),
    (_rebalance, 2),
    (_clock, 1),
)


def _fault(draw: _Draw, weighted: _Weighted) -> list[Operation]:
    kinds, weights = zip(*weighted, strict=True)
    return draw.rng.choices(kinds, weights)[0](draw)  # type: ignore[no-any-return]
