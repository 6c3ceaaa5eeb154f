"""Random plans: faults of every kind, several at once, and then a quiet time.

A plan is a function of its seed alone. They are short, for what counts is how many different
courses a core can look at in a second: the protocol's own times are shortened, faults last for
seconds, and a plan ends soon after the cluster has become one again. If it does not become one, it
goes on for as long as that may take.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ringpop_py.dialect import dialect_named
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
"""Times that fit a plan of half a minute; in the proportions of the usual ones."""
OTHER_TIMES: Final[tuple[tuple[tuple[str, float | int | bool], ...], ...]] = (
    (("suspect_s", 0.6),),
    (("period_s", 0.2),),
    (("faulty_s", 4.0), ("tombstone_s", 2.0)),
    (("damp_suppress", 1500), ("damp_reuse", 800), ("damp_half_life_s", 4.0)),
    (("ping_req_size", 1),),
)
DELAYS: Final = (
    p.Delay(),
    p.uniform(1 * ms, 20 * ms),
    p.exponential(10 * ms),
    p.long_tail(5 * ms),
)


def random_plan(
    seed: int, nodes: int = NODES_DEFAULT, faults: int = FAULTS_DEFAULT, name: str = "random"
) -> p.Plan:
    """A plan of *nodes* nodes with *faults* faults or up to three more, drawn from *seed*."""
    draw = _Draw(random.Random(f"plan {seed} {nodes} {faults}"), nodes)
    operations = [o for _ in range(faults + draw.upto(3)) for o in draw.fault()]
    operations.sort(key=lambda operation: operation.at_us)
    plan = p.Plan(
        name=name,
        about=f"drawn from seed {seed}",
        nodes=nodes,
        until_us=1 * hours,
        settle_us=CALM_US,
        calm_us=CALM_US,
        dialect="ringpop" if draw.chance(0.15) else "native",
        settings=draw.settings(),
        seeds=draw.rng.randint(1, nodes) if draw.chance(0.2) else 0,
        link=draw.link(),
        codec_share=CODEC_SHARE,
        traffic=draw.traffic(),
        operations=tuple(operations),
    )
    bounds = Bounds(plan, plan.gossip(), dialect_named(plan.dialect))
    return replace(plan, until_us=plan.quiet_at_us + bounds.settle_us + 1 * s)


class _Draw:
    """What is drawn for one plan."""

    def __init__(self, rng: random.Random, nodes: int) -> None:
        self.rng = rng
        self._nodes = nodes
        self._storm = False

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
            idempotent=self.chance(0.3),
            consistency=self.rng.choice(("keys", "keys", "checksum")),
        )

    # Faults. Each kind gives one operation or more that belong together.

    def fault(self) -> list[Operation]:
        kind = self.rng.choices(_KINDS, _WEIGHTS)[0]
        return kind(self)

    def _at(self) -> int:
        return self.rng.randrange(FAULTS_FROM_US, FAULTS_UNTIL_US)

    def _for(self) -> int:
        """Mostly shorter than a suspicion or longer than one, seldom in between."""
        longest = self.rng.choice((1 * s, 3 * s, FAULT_US_MAX))
        return self.rng.randrange(50 * ms, longest)

    def _node(self) -> int:
        return self.rng.randrange(self._nodes)

    def _some(self, most: int | None = None) -> Nodes:
        """One node or more, mostly few."""
        most = min(most or self._nodes, self._nodes)
        count = min(self.rng.choice((1, 1, 1, 2, 3, self._nodes // 2)), most)
        return tuple(sorted(self.rng.sample(range(self._nodes), max(1, count))))

    def _parts(self, count: int) -> list[Nodes]:
        """All nodes in *count* parts, or fewer if there are not enough of them."""
        shuffled = self.rng.sample(range(self._nodes), self._nodes)
        cuts = sorted(self.rng.sample(range(1, self._nodes), min(count, self._nodes) - 1))
        bounds = [0, *cuts, self._nodes]
        return [tuple(sorted(shuffled[a:b])) for a, b in pairwise(bounds)]

    def cut_in_parts(self) -> list[Operation]:
        """Two parts or three; one of them may be a single node."""
        parts = self._parts(self.rng.choice((2, 2, 2, 3)))
        if self.chance(0.3):
            lonely = self._node()
            parts = [(lonely,), tuple(n for n in range(self._nodes) if n != lonely)]
        at_us, for_us = self._at(), self._for()
        one_way, refuse = self.chance(0.3), self.chance(0.3)
        return [
            p.Cut(at_us=at_us, for_us=for_us, left=a, right=b, one_way=one_way, refuse=refuse)
            for place, a in enumerate(parts)
            for b in parts[place + 1 :]
            if a and b
        ]

    def bridge(self) -> list[Operation]:
        """Two parts that see nothing of each other, and nodes that see both."""
        parts = self._parts(3)
        left, right = parts[0], parts[-1]
        if len(parts) < 3:  # noqa: PLR2004 - there is nobody to be the bridge
            return self.cut_in_parts()
        return [p.Cut(at_us=self._at(), for_us=self._for(), left=left, right=right)]

    def impair(self) -> list[Operation]:
        loss_in, loss_out = self.rng.choice(((0.8, 0.0), (0.3, 0.3), (0.0, 0.6), (0.0, 0.0)))
        return [
            p.Impair(
                at_us=self._at(),
                for_us=self._for(),
                nodes=self._some(),
                loss_in=loss_in,
                loss_out=loss_out,
                delay_us=self.rng.choice((0, 0, 50 * ms, 400 * ms)),
                duplicate=self.rng.choice((0.0, 0.5)),
                corrupt=self.rng.choice((0.0, 0.0, 0.3)),
                flip_us=self.rng.choice((0, 0, 500 * ms, 2 * s)),
            )
        ]

    def slow(self) -> list[Operation]:
        by_us = self.rng.choice((20 * ms, 200 * ms, 500 * ms))
        at_us, for_us = self._at(), self._for()
        return [p.Slow(at_us=at_us, for_us=for_us, nodes=self._some(), by_us=by_us)]

    def pause(self) -> list[Operation]:
        return [p.Pause(at_us=self._at(), for_us=self._for(), nodes=self._some())]

    def crash(self) -> list[Operation]:
        for_us = 0 if self.chance(0.15) else self._for()
        return [
            p.Crash(
                at_us=self._at(),
                for_us=for_us,
                nodes=self._some(1 if for_us == 0 else None),
                silent=self.chance(0.4),
                memory="kept" if self.chance(0.2) else "lost",
                clock_us=self.rng.choice((0, 0, -5 * s, -1 * hours, 1 * hours)),
                moves=self.chance(0.2),
            )
        ]

    def rolling(self) -> list[Operation]:
        """Everyone is restarted: one after the other, or at once."""
        everyone = tuple(self.rng.sample(range(self._nodes), self._nodes))
        stagger_us = self.rng.choice((0, 100 * ms, 400 * ms))
        kind = self.rng.choice((p.Crash, p.Stop))
        down_us = self.rng.randrange(100 * ms, 1 * s)
        at_us = self._at()
        return [kind(at_us=at_us, for_us=down_us, nodes=everyone, stagger_us=stagger_us)]

    def stop(self) -> list[Operation]:
        for_us = 0 if self.chance(0.2) else self._for()
        return [p.Stop(at_us=self._at(), for_us=for_us, nodes=self._some(2))]

    def join_storm(self) -> list[Operation]:
        """Several nodes are started only then; a plan has one storm at most."""
        if self._storm:
            return self.pause()
        self._storm = True
        late = self._some(self._nodes - 1)
        stagger_us = self.rng.choice((0, 0, 100 * ms))
        return [p.Start(at_us=self._at(), nodes=late, stagger_us=stagger_us)]

    def takeover(self) -> list[Operation]:
        return [p.Takeover(at_us=self._at(), about=self._node())]

    def twin(self) -> list[Operation]:
        """A second process under a name in use; sometimes while the first one does not run."""
        about, at_us, for_us = self._node(), self._at(), self._for()
        twin = p.Twin(
            at_us=at_us,
            for_us=0 if self.chance(0.3) else for_us,
            about=about,
            again_us=self.rng.choice((0, 0, 300 * ms)),
            beside=self._node() if self.chance(0.5) else None,
        )
        if self.chance(0.5):
            return [twin]
        asleep_us = self.rng.randrange(100 * ms, 2 * s)
        return [p.Pause(at_us=at_us - asleep_us, for_us=asleep_us + for_us, nodes=(about,)), twin]

    def leave(self) -> list[Operation]:
        return [p.Leave(at_us=self._at(), for_us=self._for(), nodes=self._some(3))]

    def clock(self) -> list[Operation]:
        drift_ppm = self.rng.choice((-50_000, -500, 500, 50_000))
        at_us, for_us = self._at(), self._for()
        return [p.Clock(at_us=at_us, for_us=for_us, nodes=self._some(), drift_ppm=drift_ppm)]

    def discovery(self) -> list[Operation]:
        """From the beginning, or later and with a crash, so that someone looks."""
        nodes = self._some()
        listed = self.rng.choice(((), nodes, self._some()))
        strangers = self.rng.choice((0, 0, 3))
        from_us = self.rng.choice((0, self._at()))
        until_us = max(from_us, FAULTS_FROM_US) + self._for()
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

    def rumour(self) -> list[Operation]:
        status = self.rng.choice(("suspect", "faulty", "faulty", "leave", "alive"))
        about = self._node()
        nodes, elsewhere = self._some(), status == "alive" and self.chance(0.5)
        at_us = self._at()
        return [p.Rumour(at_us=at_us, nodes=nodes, about=about, status=status, elsewhere=elsewhere)]


_WEIGHTED: Final[tuple[tuple[Callable[[_Draw], list[Operation]], int], ...]] = (
    (_Draw.cut_in_parts, 5),
    (_Draw.bridge, 2),
    (_Draw.impair, 4),
    (_Draw.slow, 2),
    (_Draw.pause, 3),
    (_Draw.crash, 5),
    (_Draw.rolling, 1),
    (_Draw.stop, 2),
    (_Draw.join_storm, 2),
    (_Draw.takeover, 1),
    (_Draw.twin, 2),
    (_Draw.leave, 2),
    (_Draw.clock, 1),
    (_Draw.discovery, 2),
    (_Draw.rumour, 2),
)
_KINDS: Final = tuple(kind for kind, _ in _WEIGHTED)
_WEIGHTS: Final = tuple(weight for _, weight in _WEIGHTED)
