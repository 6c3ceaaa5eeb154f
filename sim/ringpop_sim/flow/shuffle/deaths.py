"""Every death at every step: one small shuffle, run again for each event and each member."""

from __future__ import annotations

from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Final

from ringpop_sim.flow.shuffle.truth import INVARIANTS
from ringpop_sim.flow.shuffle.world import ShuffleWorld
from ringpop_sim.state.journal.sweep import Checker, ScheduleOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

SEED: Final = 1
NODES: Final = 3
LEASE: Final = 60
UNTIL: Final = 600
"""The shuffle without a fault can be read long before this, and is probed until then."""
RETURNS_AFTER: Final = 20
NEIGHBOUR_DIES_AFTER: Final = (1, 10, 40, 120)


class Deaths(ShuffleWorld):
    """The world of the schedule; *what* happens to a member before the event *at*."""

    def __init__(
        self, nodes: int, what: Callable[[Deaths], None], at: int, *, traced: bool = False
    ) -> None:
        super().__init__(SEED, nodes, LEASE, spare=False, traced=traced)
        self._what = what
        self._at = at
        self.scene_count = 0
        """The events until the shuffle can be read."""

    def play(self) -> None:
        self.go_on(UNTIL, lambda: self.event_count >= self._at)
        if self.event_count >= self._at:
            self._what(self)
            self.changed = True
        self.go_on(UNTIL, self.is_settled)
        self.scene_count = self.event_count
        self.go_on(UNTIL)


def _gone(world: Deaths, host: str, *, silenced: bool) -> None:
    world.kill(host, silenced=silenced)


def _returns(world: Deaths, host: str) -> None:
    world.kill(host)
    world.after(RETURNS_AFTER, partial(world.start, host))


def _suspected(world: Deaths, host: str) -> None:
    world.suspect(host)


def _two(world: Deaths, host: str, delay: int) -> None:
    hosts = sorted(world.processes)
    neighbour = hosts[(hosts.index(host) + 1) % len(hosts)]
    world.kill(host)
    world.truth.is_single = False
    world.after(delay, partial(world.kill, neighbour))


DISTURBANCES: Final[tuple[tuple[str, Callable[[Deaths, str], None]], ...]] = (
    ("gone", partial(_gone, silenced=False)),
    ("gone with its messages", partial(_gone, silenced=True)),
    ("gone, and back", _returns),
    ("taken for dead", _suspected),
    *(
        (f"gone, its neighbour {delay} later", partial(_two, delay=delay))
        for delay in NEIGHBOUR_DIES_AFTER
    ),
)


@cache
def cases(nodes: int = NODES) -> tuple[tuple[int, str, int], ...]:
    """Return all cases: the event before which it happens, the member, and which disturbance."""
    world = Deaths(nodes, lambda _: None, 1 << 30)
    world.run()
    hosts = sorted(world.processes)
    return tuple(product(range(world.scene_count + 1), hosts, range(len(DISTURBANCES))))


def run_case(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run case number *seed*; the count begins again after the last."""
    count = nodes or NODES
    at, host, number = cases(count)[seed % len(cases(count))]
    name, disturbance = DISTURBANCES[number]
    world = Deaths(count, lambda world: disturbance(world, host), at, traced=traced)
    world.note("world", f"{host} will be {name}, before event {at}")
    return world.run()


DEATHS: Final = Checker(run_case, INVARIANTS, lambda nodes: len(cases(nodes or NODES)))
