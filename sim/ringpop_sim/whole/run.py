"""A run of whole daemons: from a plan and a seed to a result, as `ringpop_sim.runs.run`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from ringpop_py.state.placement.definition import Mode
from ringpop_sim.checks import Broken, Check
from ringpop_sim.checks.liveness import Converges
from ringpop_sim.plans.plan import FailStore, KeyspacePlan, Plan
from ringpop_sim.runs.rest import left_at_rest
from ringpop_sim.runs.run import CRASH, Run, places_of
from ringpop_sim.units import s
from ringpop_sim.whole.cluster import WholeCluster, heard
from ringpop_sim.whole.keyspaces.clients import DaemonClients
from ringpop_sim.whole.keyspaces.driver_oracles import DRIVER_ORACLES, CalmIsQuick
from ringpop_sim.whole.keyspaces.expiring import KeysExpire
from ringpop_sim.whole.keyspaces.logs import LogsCountOnce
from ringpop_sim.whole.keyspaces.oracles import ORACLES
from ringpop_sim.whole.keyspaces.outside import connecting
from ringpop_sim.whole.keyspaces.shares import DaemonShares
from ringpop_sim.whole.stage.surroundings import installed
from ringpop_sim.whole.watching import WatchersSee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_sim.plans.plan import Operation
    from ringpop_sim.runs.run import Result
    from ringpop_sim.whole.shuffles.kept import ShufflesKept
    from ringpop_sim.whole.traffic import DaemonTraffic
    from ringpop_sim.world.world import World

KEYSPACE_ORACLES: Final = (*ORACLES, LogsCountOnce, WatchersSee, *DRIVER_ORACLES)
BURSTS_US: Final = 2 * s
BURSTS_END_US: Final = 1 * s


class StoreFails(Check):
    """Has the store of all daemons fail as the plan says."""

    world: WholeCluster

    def fault_began(self, operation: Operation, _nodes: Sequence[int]) -> None:
        if isinstance(operation, FailStore):
            self.world.store.begin(operation)

    def fault_ended(self, operation: Operation, _nodes: Sequence[int]) -> None:
        if isinstance(operation, FailStore):
            self.world.store.end(operation)


class WholeRun(Run):
    """See the module. What it holds is freed at its end, so it cannot be examined afterwards.

    Attributes:
        shares, clients: the keyspace of the plan at all daemons, and its clients, if it has one.
        shuffles: those of the plan, if it has some.
        traffic: that of the plan, if it has some.
    """

    ORACLES = (Converges,)  # these look at nodes, and need not hear of every message
    WORLD = WholeCluster
    has_loaded: ClassVar[bool] = False
    world: WholeCluster

    def __init__(self, plan: Plan, seed: int, *rest: Any, **named: Any) -> None:
        _load_all()
        self._bugs: list[Broken] = []
        self.shares: DaemonShares | None = None
        self.shuffles: ShufflesKept | None = None
        self.traffic: DaemonTraffic | None = None
        super().__init__(plan, seed, *rest, **named)
        self.world.on_bug = self._found_bug
        self._around = ExitStack()
        self._around.enter_context(heard(self.world))
        self._around.enter_context(installed(self.world.stage, self.world.threads))
        if self.shares is not None:
            self._around.enter_context(self.shares.observing())
            self._around.enter_context(connecting(self.world, self.clients.machine_of))
            self._around.enter_context(self.world.folder.shown())
        for users in (self.shuffles, self.traffic):
            if users is not None:
                self._around.enter_context(users.observing())

    def _more_checks(self, world: World) -> list[Check]:
        found: list[Check] = [StoreFails(world)]
        if world.plan.traffic is not None:
            from ringpop_sim.whole.requests import REQUEST_ORACLES  # noqa: PLC0415
            from ringpop_sim.whole.traffic import DaemonTraffic  # noqa: PLC0415 - loads hypercorn

            self.traffic = DaemonTraffic(world)
            found += [self.traffic, *(kind(world) for kind in REQUEST_ORACLES)]
        if world.plan.shuffle is not None:
            from ringpop_sim.whole.shuffles.kept import ShufflesKept  # noqa: PLC0415 - loads pyarrow

            self.shuffles = ShufflesKept(world)
            found.append(self.shuffles)
        self._oracles += found
        if world.plan.keyspace is None:
            return found
        self.shares = shares = DaemonShares(world)
        self.clients = clients = DaemonClients(shares)
        kinds = (*KEYSPACE_ORACLES, KeysExpire) if shares.plan.expiring else KEYSPACE_ORACLES
        oracles = [kind(world, shares, clients) for kind in kinds]
        self._oracles += oracles
        return [*found, shares, *oracles]

    def _found_bug(self, text: str, error: BaseException) -> None:
        if self.shuffles is not None and self.shuffles.expects(error):
            return
        self._bugs.append(Broken(CRASH, self.world.now, f"{text} (in {places_of(error)})"))

    def _go_to_the_end(self) -> None:
        super()._go_to_the_end()
        calm = [oracle for oracle in self._oracles if isinstance(oracle, CalmIsQuick)]
        if not calm or not calm[0].applies or self.broken or not self._is_still():
            return
        calm[0].since = self.world.now
        self.clients.burst(self.world.now + BURSTS_US)
        self.advance(self.world.now + BURSTS_US + BURSTS_END_US)

    def _is_still(self) -> bool:
        shares, world = self.shares, self.world
        if self.shuffles is not None and self.shuffles.unread():
            return False
        if shares is None:
            return True
        clients_done = world.now > world.plan.quiet_at_us + shares.plan.after_us
        still = world.now - shares.moved_at > world.plan.calm_us
        counted = all(o.done for o in self._oracles if isinstance(o, LogsCountOnce | WatchersSee))
        return shares.settled and still and clients_done and counted and not self.clients.open

    @property
    def broken(self) -> list[Broken]:
        return sorted([*self._bugs, *super().broken], key=lambda broken: broken.at_us)

    def finish(self) -> Result:
        try:
            return super().finish()
        finally:
            self.close()

    def _rest(self) -> None:
        shares = self.shares
        if shares is None:
            super()._rest()
        else:
            given = shares.duties if self._is_still() else None
            self._left = left_at_rest(self.world, shares.under_way, given)

    def _sent(self) -> tuple[int, float]:
        return self.world.links.pieces_count, self.world.links.bytes_count

    def _traffic_counts(self) -> dict[str, int]:
        if self.shares is None:
            return self.traffic.counts if self.traffic is not None else {}
        return {
            "requests": self.clients.ended_count + len(self.clients.open),
            "operations": len(self.clients.history),
            "moves": self.shares.moves_count,
        }

    def close(self) -> None:
        """Free what the run holds; real time and chance go on."""
        if self.shares is not None:
            self.shares.forget()
        for users in (self.shuffles, self.traffic):
            if users is not None:
                users.close()
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
        WholeRun(Plan(nodes=1, until_us=3 * s, keyspace=keyspace), 0).finish()
