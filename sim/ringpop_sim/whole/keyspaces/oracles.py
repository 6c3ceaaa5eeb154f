"""K1 to K9: what must hold of the partitions of a keyspace, and of requests for them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from ringpop_py.base.values.packed import decode_value
from ringpop_sim.checks.liveness import can_meet
from ringpop_sim.linear import TooManyOrders, check, made_certain
from ringpop_sim.plans.plan import Drain, Leave, Start, Stop
from ringpop_sim.units import s, seconds
from ringpop_sim.whole.keyspaces.journal_oracles import JOURNAL_ORACLES
from ringpop_sim.whole.keyspaces.oracle import HinderedCheck, KeyspaceOracle
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from ringpop_sim.whole.keyspaces.shares import DaemonShare
    from ringpop_sim.world.world import World

LATE_US: Final = 1 * s
STILL_US: Final = 3 * s
PLACES_MAX: Final = 100_000
"""The most states that the search for an order of one key visits; beyond it K1 counts as broken."""
TURNS_MAX: Final = 6
TURNS_US: Final = 10 * s
"""A node that loses a partition to the other side of a cut waits for 1, 2, 4 s … before it takes
the partition back, so it begins to serve it at most `TURNS_MAX` times in `TURNS_US`."""
FORMED_US: Final = 2 * s
ORDERLY: Final = (Drain, Leave, Start, Stop)
"""Operations after which memory mode has lost nothing."""
STOPPED_US_MIN: Final = 6 * s
"""A member that is started again sooner than this may not have handed everything over."""


class OneOwnerAnEpoch(KeyspaceOracle):
    """K2: durable partitions: an epoch has one owner, and a member's epochs only rise.

    What is acknowledged is in the journal that the claim of the epoch names. A member may begin to
    serve in an epoch that has ended: if it was frozen, or its store slow, it learns late that its
    claim was put. The journal then fences it.
    """

    invariants: ClassVar = ("K2",)

    def begin(self) -> None:
        self._owner: dict[tuple[int, int], int] = {}
        self._epoch: dict[tuple[int, str], int] = {}

    def serves(self, share: DaemonShare, number: int, epoch: int) -> None:
        if self.shares.plan.mode != "durable":
            return
        before = self._epoch.get((number, share.name), 0)
        if epoch <= before:
            self.broke("K2", f"{share.name} serves partition {number} in epoch {epoch} <= {before}")
        self._epoch[number, share.name] = epoch
        self.acknowledged(share, number, epoch)

    def serves_again(self, share: DaemonShare, number: int, epoch: int) -> None:
        self.serves(share, number, epoch)

    def acknowledged(self, share: DaemonShare, number: int, epoch: int) -> None:
        owner = self._owner.setdefault((number, epoch), share.process.serial)
        if owner != share.process.serial:
            self.broke("K2", f"partition {number} has two owners in epoch {epoch}: {share.name}")
        claim = self.shares.shelf.claim(number, epoch)
        if claim is None or claim.journal != share.journal.name:
            self.broke("K2", f"{share.name} writes partition {number} in epoch {epoch} of {claim}")


class HistoriesHold(KeyspaceOracle):
    """K1: what clients saw of each key could come from one copy of it.

    In memory mode it is claimed only of plans in which members come and go in order, and only if
    clients begin once the members, which all start at the same time, know each other: before that,
    several may serve a partition. For the others K3 says what is left.
    """

    invariants: ClassVar = ("K1",)

    def finish(self) -> None:
        plan, world = self.shares.plan, self.world
        # Partitions that are assigned for the first time, while members still get to know each
        # other, may begin at several of them.
        late = {n for o in world.plan.operations if isinstance(o, Start) for n in o.nodes}
        formed = plan.min_cluster_size <= world.plan.nodes - len(late)
        claimed = _orderly(world) and formed and plan.from_us >= FORMED_US
        if plan.mode == "memory" and not claimed:
            return
        operations = made_certain(self.clients.all_operations(), self.world.now)
        try:
            for violation in check(operations, places_max=PLACES_MAX):
                self.broke("K1", str(violation))
        except TooManyOrders as error:
            self.broke("K1", str(error))  # an unchecked history does not count as correct


def _orderly(world: World) -> bool:
    plan = world.plan
    if plan.keyspace is None or plan.keyspace.expiring:  # of two sides, the later writer wins
        return False
    if plan.link.loss or plan.link.corrupt:
        return False
    # A second stop or a late start of a node that is down: its supervisor kills what it finds.
    ends = [n for o in plan.operations if isinstance(o, Start | Stop) for n in o.nodes]
    if len(set(ends)) < len(ends):
        return False
    # Without another member in the ring, nothing can be handed over.
    if len({n for o in plan.operations for n in o.nodes_named()}) >= plan.nodes:
        return False
    return all(
        isinstance(o, ORDERLY) and not (isinstance(o, Stop) and 0 < o.for_us < STOPPED_US_MIN)
        for o in plan.operations
    )


class MergesKeep(KeyspaceOracle):
    """K3: memory mode: after the last fault one copy is left, by the rule of merging.

    It has only items that a client wrote, and each of them once. If members came and went
    in order, everything that was acknowledged is in it.
    """

    invariants: ClassVar = ("K3",)

    def finish(self) -> None:
        if self.shares.plan.mode != "memory" or not self.shares.settled:
            return
        tried: dict[str, set[int]] = {}
        acknowledged: dict[str, set[int]] = {}
        for one in self.clients.all_operations():
            if one.name == "append":
                assert isinstance(one.argument, int)
                tried.setdefault(one.key, set()).add(one.argument)
                if not one.is_open:
                    acknowledged.setdefault(one.key, set()).add(one.argument)
        lossless = _orderly(self.world)
        for key in sorted(tried):
            self._look(key, tried[key], acknowledged.get(key, set()) if lossless else set())

    def _look(self, key: str, tried: set[int], kept: set[int]) -> None:
        values = [
            decode_value("msgpack", packed)
            for share in self.shares
            for number in sorted(share.steward.serving)
            for packed in share.partitions[number].state.packed([key])
            if packed is not None
        ]
        if len(values) > 1:
            self.broke("K3", f"{key} is at {len(values)} members")
        items = values[0] if values else []
        if isinstance(items, dict):  # the record of an actor
            items = items["state"]
        if len(set(items)) < len(items) or not set(items) <= tried:
            self.broke("K3", f"{key} holds {items}, of which somebody wrote only {sorted(tried)}")
        missing = kept - set(items)
        if missing:
            self.broke("K3", f"{key} lacks {sorted(missing)}, which were acknowledged: {items}")


class ServedAgain(KeyspaceOracle):
    """K4, K5: after the last fault every partition is served soon, and then stays where it is."""

    invariants: ClassVar = ("K4", "K5")

    def finish(self) -> None:
        world, shares = self.world, self.shares
        if not any(h.ready for h in shares) or world.now < world.plan.until_us:
            return
        owners = max((len(share.owners()) for share in shares), default=0)
        assigned = any(share.table.assigned for share in shares)
        too_few = owners < shares.plan.min_cluster_size and not assigned
        if shares.settled or too_few or not owners or not can_meet(world, world.running):
            return
        if world.now - shares.moved_at < STILL_US:
            self.broke("K5", f"partitions still move: {shares.moves_count} moves in all")
            return
        for share in shares:
            self.broke(
                "K4", f"{share!r} {[(r.owner, r.epoch, r.status.label) for r in share.table]}"
            )


class RequestsOfKeysEnd(HinderedCheck, KeyspaceOracle):
    """K6: a request ends at its deadline at the latest, or with the member that sent it."""

    invariants: ClassVar = ("K6",)

    def finish(self) -> None:
        bound_us = self.clients.plan.timeout_us + self.shares.plan.wait_us + LATE_US
        for request in self.clients.open:
            process = request.process
            well_since = self.well_since(process.number)
            sound = process.life is Life.RUNNING and well_since is not None
            began_at = request.began_at
            if sound and not request.outside:
                assert well_since is not None
                began_at = max(began_at, well_since, process.started_at)
            late = self.world.now - began_at > bound_us
            if late and (sound or request.outside):
                age_s, errand = seconds(self.world.now - request.began_at), request.errand
                self.broke("K6", f"open for {age_s:.1f} s at {process.name}: {errand!r}")


class NothingAtThoseWhoLeft(KeyspaceOracle):
    """K7: a member that is not in the ring serves nothing, if another member could."""

    invariants: ClassVar = ("K7",)

    def finish(self) -> None:
        if not self.shares.settled:
            return
        for share in self.shares:
            if share.name not in share.owners() and share.owners() and share.steward.serving:
                self.broke("K7", f"{share.name} is not in the ring, and serves partitions")


class MinimumWaitedFor(KeyspaceOracle):
    """K8: no partition is served before there were as many members as the keyspace waits for."""

    invariants: ClassVar = ("K8",)

    def serves(self, share: DaemonShare, number: int, _epoch: int) -> None:
        least = self.shares.plan.min_cluster_size
        if self.shares.members_max < least:
            count = self.shares.members_max
            self.broke("K8", f"{share.name} serves partition {number}; {count} of {least} members")


class TrucesKept(KeyspaceOracle):
    """K9: a node does not gain one partition again and again: it keeps its truces.

    It may claim partitions again as often as its journal is sealed: K10 says how long that takes.
    """

    invariants: ClassVar = ("K9",)

    def begin(self) -> None:
        self._began: dict[tuple[int, int], deque[int]] = {}

    def serves(self, share: DaemonShare, number: int, _epoch: int) -> None:
        began = self._began.setdefault((share.process.serial, number), deque(maxlen=TURNS_MAX))
        now = self.world.now
        if len(began) == TURNS_MAX and now - began[0] < TURNS_US:
            self.broke(
                "K9", f"{share.name} began {TURNS_MAX + 1} times to serve partition {number}"
            )
        began.append(now)


ORACLES: Final[tuple[type[KeyspaceOracle], ...]] = (
    HistoriesHold,
    OneOwnerAnEpoch,
    MergesKeep,
    ServedAgain,
    RequestsOfKeysEnd,
    NothingAtThoseWhoLeft,
    MinimumWaitedFor,
    TrucesKept,
    *JOURNAL_ORACLES,
)
