"""A member that lies (`plan.Lie`): it sends forged rows again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.messages import MemberChange, Ping
from ringpop_sim.units import ms
from ringpop_sim.world.network import STRANGERS, address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_sim.plans.plan import Lie
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World

SOURCE: Final = "rumour"
"""The alleged source of forged rows, here and in a `plan.Rumour`."""
EVERY_US: Final = 200 * ms
NEAR_MS: Final = 60_000
"""A forged incarnation that is only so far ahead is believed immediately."""
FAR_MS: Final = 3_600_000
"""A forged incarnation that is so far ahead is not believed immediately."""
INVENTED: Final = 20
"""How many members a liar invents."""


class Liar:
    """Sends what *lie* says every `EVERY_US`, until it is told to stop."""

    def __init__(self, world: World, lie: Lie) -> None:
        self._world = world
        self._lie = lie
        self._old: dict[tuple[str, int], Member] = {}
        self._stopped = False
        self._tell(None)

    def stop(self) -> None:
        """Stop lying."""
        self._stopped = True

    def _tell(self, _argument: object) -> None:
        world = self._world
        liar = world.numbered.get(self._lie.about)
        if self._stopped:
            return
        if liar is not None and liar.running:
            others = [process for process in world.running if process.number != liar.number]
            rows = _FORGED[self._lie.lie](self, liar, others)
            for row in rows:
                world.lies.add((row.name, row.incarnation))
            changes = tuple(MemberChange(member=row, source=SOURCE) for row in rows)
            for process in others:
                if process.number in self._lie.nodes:
                    tell(world, process, liar, changes)
        world.push(world.now + EVERY_US, self._tell)

    # What is forged; rows of others as they are now.

    def _claim(self, liar: Process, others: Sequence[Process]) -> list[Member]:
        """Say that the others have moved: to the liar, or to an address without a process."""
        nowhere = address_of(STRANGERS)
        rows = []
        for process in others:
            at = liar.address if process.number % 2 else nowhere
            local = process.node.local
            incarnation = local.incarnation + NEAR_MS
            # Also as if it had ended before: then it could be believed to be started elsewhere.
            rows.append(replace(local, incarnation=incarnation, status=Status.FAULTY))
            incarnation += 1
            rows.append(replace(local, host=at.host, port=at.port, incarnation=incarnation))
        return [] if self._world.dialect.names_are_addresses else rows

    def _raise(self, _liar: Process, others: Sequence[Process]) -> list[Member]:
        """Say that the others are faulty, in incarnations to come."""
        rows = []
        for process in others:
            local = process.node.local
            ahead_ms = FAR_MS if process.number % 2 else NEAR_MS
            incarnation = local.incarnation + ahead_ms
            rows.append(replace(local, incarnation=incarnation, status=Status.FAULTY))
        return rows

    def _invent(self, _liar: Process, _others: Sequence[Process]) -> list[Member]:
        """Say that there are members that no node has seen."""
        rows = []
        for number in range(INVENTED):
            address = address_of(STRANGERS + number)
            by_address = self._world.dialect.names_are_addresses
            name = str(address) if by_address else f"invented{number}"
            rows.append(Member(name, *address, 1))
        return rows

    def _accuse(self, _liar: Process, others: Sequence[Process]) -> list[Member]:
        """Say that the others are suspect, or faulty."""
        statuses = Status.SUSPECT, Status.FAULTY
        return [
            replace(process.node.local, status=statuses[process.number % 2]) for process in others
        ]

    def _replay(self, liar: Process, _others: Sequence[Process]) -> list[Member]:
        """Say what was true once."""
        then = list(self._old.values())
        for row in liar.node.members:
            self._old[row.name, row.incarnation] = row
        return then


_FORGED: Final[dict[str, Callable[[Liar, Process, Sequence[Process]], list[Member]]]] = {
    "claim": Liar._claim,  # noqa: SLF001 - of this file
    "raise": Liar._raise,  # noqa: SLF001
    "invent": Liar._invent,  # noqa: SLF001
    "accuse": Liar._accuse,  # noqa: SLF001
    "replay": Liar._replay,  # noqa: SLF001
}


def tell(
    world: World, process: Process, sender: Process, changes: tuple[MemberChange, ...]
) -> None:
    """Deliver a ping of *sender* that carries *changes*; the answer goes nowhere."""
    cluster, row = sender.node.cluster, sender.node.local
    ping = Ping(cluster, None, row.name, *row.address, row.incarnation, None, changes)
    world.exchange.forge(process, ping)
