"""The unreliable road to a store; lists and deletions take several steps there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ringpop_py.slotlog.effects import StoreAnswer

if TYPE_CHECKING:
    import random
    from collections import deque
    from collections.abc import Callable, Collection, Iterable

    from ringpop_sim.schedules.odds import Odds

    Steps = Iterable[Callable[[], None]]

Place = TypeVar("Place", bound=Any)  # whatever has an order


class Sender(Protocol):
    """What sends requests, and is answered."""

    @property
    def label(self) -> str:
        """A name for the trace."""

    @property
    def online(self) -> bool:
        """Whether it believes that it is an owner."""

    @property
    def stalled_until(self) -> int:
        """Its road to the store is slow and lossy until then."""

    def answered(self, request: Any, reply: Any) -> None:  # noqa: ANN401 - of the checker's kind
        """Handle the store's *reply* to *request*."""


class RoadSurroundings(Protocol):
    """What a road needs from its world."""

    rng: random.Random
    calm: bool
    now: int

    @property
    def odds(self) -> Odds:
        """How much goes wrong."""

    def after(self, delay: int, what: Callable[[], None]) -> None:
        """Call *what* after *delay*."""

    def lives(self, sender: Any) -> bool:  # noqa: ANN401 - of the checker's kind
        """Return whether *sender* has not crashed."""

    def note(self, who: str, what: object) -> None:
        """Add *what* to the trace."""


class Road:
    """The road between processes and the store: requests arrive late, twice or not at all.

    What the store then does is for the subclass to say (`carry`).

    Attributes:
        puts: the requests that fail if the store has no room.
        looks: the request with which an owner looks whether it still is the owner.
        late_most: how much later a request may take effect that was reported as failed.
        long_pauses: the share of long pauses between two steps.
    """

    puts: ClassVar[tuple[type, ...]]
    looks: ClassVar[type]
    late_most: ClassVar[int] = 250
    long_pauses: ClassVar[float] = 0.2

    def __init__(self, world: RoadSurroundings) -> None:
        self.world = world

    def ask(self, sender: Sender, request: Any, body: Any = None) -> None:  # noqa: ANN401
        """Send *request* of *sender* to the store, which carries it out at some time, or never.

        Args:
            request: one of the checker's requests.
            body: what belongs to it, if it is a checkpoint.
        """
        rng, odds = self.world.rng, self.world.odds
        delay = self._delay(sender, request)
        if self.world.calm:
            self.carry(delay, sender, request, body)
            return
        chance = self.chance(request)
        if chance < odds.lost:
            self.fail(sender, request, delay)
            if rng.random() < 0.6:  # noqa: PLR2004 - a share; the other requests never arrived
                self.carry(delay, None, request, body)
            return
        # Reported as failed, and carried out long after, when other nodes may have gone on.
        if chance < odds.lost + odds.late:
            self.fail(sender, request, delay)
            self.carry(delay + int(rng.random() * self.late_most), None, request, body)
            return
        if isinstance(request, self.puts) and rng.random() < odds.no_room:
            # And not carried out: a store that answers this has to mean it.
            self.world.after(delay, partial(self.answer, sender, request, StoreAnswer.NO_ROOM))
            return
        self.carry(delay, sender, request, body)
        if rng.random() < odds.doubled:
            self.carry(delay + int(rng.random() * 150), None, request, body)

    def carry(self, delay: int, sender: Sender | None, request: Any, body: Any) -> None:  # noqa: ANN401
        """Carry out *request* after *delay*; without a *sender*, its reply goes nowhere."""
        raise NotImplementedError

    def chance(self, _request: object) -> float:
        """Draw what happens to a request: the less, the worse."""
        return self.world.rng.random()

    def _delay(self, sender: Sender, request: object) -> int:
        """Draw how long *request* takes to the store."""
        rng, odds = self.world.rng, self.world.odds
        delay = 1 + int(rng.random() * 4)
        # A driver waits before it repeats a request.
        if getattr(request, "attempt", 0):
            delay += 3 + int(rng.random() * 8)
        if self.world.calm:
            return delay
        if rng.random() < odds.slow:
            delay += int(rng.random() * (120 if rng.random() < 0.3 else 20))  # noqa: PLR2004
        if sender.stalled_until > self.world.now:
            delay += int(rng.random() * (sender.stalled_until - self.world.now))
        if sender.online and isinstance(request, self.looks) and rng.random() < odds.late:
            delay += int(rng.random() * 250)  # much can happen before an owner sees its slot
        return delay

    def fail(self, sender: Sender, request: object, delay: int) -> None:
        """Report *request* as failed."""
        self.world.after(delay + 8, partial(self.answer, sender, request, StoreAnswer.FAILED))

    def answer(self, sender: Sender, request: Any, reply: object) -> None:  # noqa: ANN401
        """Deliver *reply* to *sender*, if that has not crashed."""
        if self.world.lives(sender):
            self.world.note(sender.label, (request.id, reply))
            sender.answered(request, reply)

    def reply(self, sender: Sender | None, request: object, reply: object) -> None:
        """Send *reply*, what the store says to *request*, to *sender*."""
        world = self.world
        whose = sender.label if sender is not None else "nobody"
        world.note("store", (request, reply, f"to {whose}"))
        if sender is not None:
            delay = 1 + int(world.rng.random() * 4) + self.lag(sender, request)
            if sender.stalled_until > world.now and not world.calm:
                delay += int(world.rng.random() * (sender.stalled_until - world.now))
            world.after(delay, partial(self.answer, sender, request, reply))

    def lag(self, _sender: Sender, _request: object) -> int:
        """Draw how much later than usual the reply to *request* arrives."""
        return 0

    # Operations that a store carries out in several steps, each at another moment.

    def pages(self, of: Collection[Place], into: list[Place]) -> Steps:
        """Return steps that read *of* in ascending order, and add what they find to *into*."""
        known = sorted(of)
        cut = known[int(self.world.rng.random() * len(known))] if known else None
        bounds = [(None, cut), (cut, None)] if cut else [(None, None)]
        return [partial(look, of, into, after, up_to) for after, up_to in bounds]

    def go_on(self, steps: deque[Callable[[], None]], done: Callable[[], None]) -> None:
        """Take all *steps*, with pauses, and then call *done*."""
        steps.popleft()()
        if steps:
            self.world.after(self._pause(), partial(self.go_on, steps, done))
        else:
            done()

    def _pause(self) -> int:
        """Draw the pause between two steps: mostly short."""
        chance = self.world.rng.random()
        is_short = self.world.calm or chance < 1 - self.long_pauses
        return int(chance * 3) if is_short else int(chance * 60)


def look(
    of: Collection[Place], into: list[Place], after: Place | None, up_to: Place | None
) -> None:
    """Add to *into* those of *of* that are beyond *after*, and not beyond *up_to*."""
    into += [
        place
        for place in of
        if (after is None or place > after) and (up_to is None or place <= up_to)
    ]
