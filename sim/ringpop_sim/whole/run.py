"""A run of whole daemons: from a plan and a seed to a result, as `ringpop_sim.runs.run`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar, Final, get_args

from ringpop_py.state.placement.definition import Mode
from ringpop_sim.checks import Broken
from ringpop_sim.checks.liveness import Converges
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.plan import KeyspacePlan, Plan
from ringpop_sim.runs.run import CRASH, Run, places_of
from ringpop_sim.state.keyspaces.oracles import ORACLES as KEYSPACE_ORACLES
from ringpop_sim.units import s
from ringpop_sim.whole.clients import DaemonClients
from ringpop_sim.whole.cluster import WholeCluster, heard
from ringpop_sim.whole.oracles import WHOLE_ORACLES, CalmIsQuick, all_observing
from ringpop_sim.whole.shares import DaemonShares
from ringpop_sim.whole.stage.surroundings import installed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_sim.checks import Check
    from ringpop_sim.runs.run import Result
    from ringpop_sim.world.watcher import Watcher
    from ringpop_sim.world.world import World

BURSTS_US: Final = 2 * s
BURSTS_END_US: Final = 1 * s


class WholeRun(Run):
    """See the module. What it holds is freed at its end, so it cannot be examined afterwards."""

    ORACLES = (Converges,)  # these look at nodes, and need not hear of every message
    KEYSPACE_ORACLES = (*KEYSPACE_ORACLES, *WHOLE_ORACLES)
    WORLD = WholeCluster
    has_loaded: ClassVar[bool] = False
    world: WholeCluster

    def __init__(
        self,
        plan: Plan,
        seed: int,
        checks: Sequence[type[Check]] | None = None,
        *,
        keep_trace: bool = False,
        watch: Callable[[World], Watcher] | None = None,
    ) -> None:
        if plan.traffic is not None:
            raise PlanError("whole daemons have no traffic but that of a keyspace")
        _load_all()
        self._bugs: list[Broken] = []
        super().__init__(plan, seed, checks, keep_trace=keep_trace, watch=watch)
        self.world.on_bug = self._found_bug
        self._around = ExitStack()
        self._around.enter_context(heard(self.world))
        self._around.enter_context(installed(self.world.stage, self.world.threads))
        if self.homes is not None:
            self._around.enter_context(self.homes.observing())
        self._around.enter_context(all_observing(self._oracles))

    def _keyspace(self, world: World) -> tuple[DaemonShares, DaemonClients]:
        shares = DaemonShares(world)
        return shares, DaemonClients(shares)

    def _found_bug(self, text: str, error: BaseException) -> None:
        self._bugs.append(Broken(CRASH, self.world.now, f"{text} (in {places_of(error)})"))

    def _go_to_the_end(self) -> None:
        super()._go_to_the_end()
        calm = [oracle for oracle in self._oracles if isinstance(oracle, CalmIsQuick)]
        if not calm or not calm[0].applies or self.broken or not self._is_still():
            return
        calm[0].since = self.world.now
        self.clients.burst(self.world.now + BURSTS_US)
        self.advance(self.world.now + BURSTS_US + BURSTS_END_US)

    @property
    def broken(self) -> list[Broken]:
        """See `Run`."""
        return sorted([*self._bugs, *super().broken], key=lambda broken: broken.at_us)

    def finish(self) -> Result:
        """See `Run`."""
        try:
            return super().finish()
        finally:
            self.close()

    def close(self) -> None:
        """Free what the run holds; real time and chance go on."""
        if self.homes is not None:
            self.homes.forget()
        self.world.close()
        self._around.close()


def _load_all() -> None:
    """Load what daemons load on demand: otherwise the first run of a process would differ.

    Some of these modules draw from chance as they are loaded.
    """
    if WholeRun.has_loaded:
        return
    WholeRun.has_loaded = True
    for mode in get_args(Mode):
        keyspace = KeyspacePlan(mode=mode, from_us=1 * s)
        WholeRun(Plan(nodes=2, until_us=3 * s, keyspace=keyspace), 0).finish()
