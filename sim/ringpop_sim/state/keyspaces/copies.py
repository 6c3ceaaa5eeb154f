"""Drives the partitions of a simulated keyspace in memory mode: what is served, given and taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ringpop_py.base.values.packed import make_packer
from ringpop_py.state.journal.desk import Presence
from ringpop_py.state.memory.hand_over import BLANK, HandOver, HandOverReply, HandOverStep
from ringpop_py.state.memory.mergeable import MergeableState
from ringpop_py.state.memory.versioned import HybridClock
from ringpop_py.state.table.aggregations import Aggregations
from ringpop_sim.units import s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringpop_py.state.placement import duties
    from ringpop_py.state.placement.definition import Definition

    _EndSaid = Callable[[Any], None]

NAME: Final = "state"
GENERATION: Final = 1
STEP_US: Final = 5 * s
PART_BYTES: Final = 200
"""The bytes of a part: so few that most transfers have several parts."""
PACK: Final = make_packer()
AGGREGATIONS: Final = Aggregations()


class CopyHome(Protocol):
    """The keyspace at one process. See `ringpop_sim.state.keyspaces.home.Home`."""

    name: str
    steward: Any
    definition: Definition
    partitions: dict[int, Any]

    @property
    def now(self) -> int:
        """The time on the clock of the process."""

    def nonce(self) -> str:
        """Return a text that no process has used before."""

    def do(self, tasks: Iterable[duties.Task], /) -> None:
        """Carry *tasks* out."""

    def call(self, to: str, what: str, argument: Any, ttl_us: int, end: _EndSaid, /) -> None:
        """Call the member *to*."""


class MemoryCopy:
    """A partition in memory mode, at one node."""

    def __init__(self, number: int, state: MergeableState) -> None:
        self.number = number
        self.state = state
        self.presence = Presence.PENDING

    def leave(self) -> None:
        """Forget it."""
        self.presence = Presence.LOST


class CopyDriver:
    """The copies at *home*: written, read, sent to other members and merged with theirs."""

    def __init__(self, home: CopyHome) -> None:
        self._home = home
        self._clock = HybridClock(home.name)

    def at(self, number: int) -> MemoryCopy:
        """Return this node's copy of a partition, which is empty if it is new."""
        partitions = self._home.partitions
        if number not in partitions:
            partitions[number] = MemoryCopy(number, MergeableState(self._clock, PACK, AGGREGATIONS))
        found: MemoryCopy = partitions[number]
        return found

    @property
    def now_ms(self) -> int:
        """The time for versions of values."""
        return self._home.now // 1000 + 1

    def has_nothing(self, number: int) -> bool:
        """Return whether there is nothing to give of a partition that is not served here."""
        copy = self.at(number)
        return copy.state.empty and copy.presence is Presence.PENDING

    def offer(self, number: int, to: str, end: _EndSaid) -> None:
        """Ask the member *to* whether it takes a partition."""
        self._step(to, number, HandOverStep.OFFER, end)

    def send(self, duty: duties.Send, end: _EndSaid) -> None:
        """Send a partition, part by part; *end* gets whether all of it was taken."""
        home, (number, to) = self._home, duty
        parts = list(self.at(number).state.parts(self.now_ms, part_bytes=PART_BYTES))
        transfer = home.nonce()

        def finish(answer: HandOverReply) -> None:
            end(answer is HandOverReply.YES)

        def next_part(at: int) -> None:
            if home.steward.taker(number) != to:
                finish(HandOverReply.NOT_NOW)
                return
            last = at == len(parts) - 1
            step = HandOverStep.LAST if last else HandOverStep.PART

            def said(answer: HandOverReply) -> None:
                if answer is not HandOverReply.YES or last:
                    finish(answer)
                else:
                    next_part(at + 1)

            self._step(to, number, step, said, f"{transfer}/{at}", parts[at])

        next_part(0)

    def _step(
        self,
        to: str,
        number: int,
        step: HandOverStep,
        end: _EndSaid,
        transfer: str = "",
        part: Any = BLANK,
    ) -> None:
        home = self._home
        request = HandOver(
            NAME,
            GENERATION,
            number,
            home.name,
            home.steward.leaving,
            home.steward.row_of(number),
            step,
            transfer,
            *part,
        )
        said = HandOverReply.NOT_NOW
        home.call(
            to, "take", request, STEP_US, lambda v: end(v if isinstance(v, HandOverReply) else said)
        )

    def take(self, request: HandOver) -> HandOverReply:
        """Take a step of another member's hand-over. Raises BodyError."""
        home, content = self._home, request.content
        said: HandOverReply
        said, tasks = home.steward.take(request, home.now, able=True)
        if said is HandOverReply.YES and request.step is not HandOverStep.OFFER:
            state, rule = self.at(request.number).state, home.definition.merge
            state.merge(content, rule, self.now_ms, transfer=request.transfer)
        home.do(tasks)
        return said
