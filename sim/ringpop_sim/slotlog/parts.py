"""What a store does in several steps, each at another moment: lists, and deletions."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from ringpop_py.slotlog.effects import Delete, Listed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable

    from ringpop_py.slotlog.slots import Slot
    from ringpop_sim.slotlog.shelf import Shelf

    Steps = Iterable[Callable[[], None]]


class PartSurroundings(Protocol):
    """What decides how long the steps are apart."""

    rng: random.Random
    calm: bool

    def after(self, delay: int, what: Callable[[], None]) -> None:
        """Have *what* happen later."""


class Parts:
    """Lists what is on *shelf*, and deletes some of it."""

    def __init__(self, shelf: Shelf, world: PartSurroundings) -> None:
        self._shelf = shelf
        self._world = world

    def list_all(self, done: Callable[[Listed], None]) -> None:
        """Call *done* with a list of all that there is.

        It looks at checkpoints up to some slot and then at the others; at marks likewise; and at
        slots. Which of the three comes first is open.
        """
        shelf = self._shelf
        slots: list[Slot] = []
        checkpoints: list[Slot] = []
        marks: list[Slot] = []
        looks: list[Steps] = [
            [partial(_look, shelf.slots, slots, None, None)],
            self._pages(shelf.checkpoints, checkpoints),
            self._pages(shelf.marks, marks),
        ]
        self._world.rng.shuffle(looks)
        listed = Listed(slots, checkpoints, marks)
        self._go_on(deque(chain.from_iterable(looks)), partial(_tell, done, listed))

    def _pages(self, of: Collection[Slot], into: list[Slot]) -> Steps:
        """Looks at *of* in ascending order, which add what they find to *into*."""
        known = sorted(of)
        cut = known[int(self._world.rng.random() * len(known))] if known else None
        bounds = [(None, cut), (cut, None)] if cut else [(None, None)]
        return [partial(_look, of, into, after, up_to) for after, up_to in bounds]

    def delete(self, request: Delete, done: Callable[[], None], *, stops: bool) -> None:
        """Delete slots, checkpoints and marks, in any order; then call *done*.

        If it *stops*, perhaps only what came first.
        """
        shelf, rng = self._shelf, self._world.rng
        parts = [shelf.delete_slots, shelf.delete_checkpoints, shelf.delete_marks]
        rng.shuffle(parts)
        if stops:
            parts = parts[: 1 + int(rng.random() * len(parts))]
        self._go_on(deque(partial(part, request) for part in parts), done)

    def _go_on(self, steps: deque[Callable[[], None]], done: Callable[[], None]) -> None:
        steps.popleft()()
        if steps:
            self._world.after(self._pause(), partial(self._go_on, steps, done))
        else:
            done()

    def _pause(self) -> int:
        """Between two steps: mostly short."""
        chance = self._world.rng.random()
        is_short = self._world.calm or chance < 0.8  # noqa: PLR2004 - a share
        return int(chance * 3) if is_short else int(chance * 60)


def _look(of: Collection[Slot], into: list[Slot], after: Slot | None, up_to: Slot | None) -> None:
    """Add those of *of* to *into* that are beyond *after*, and not beyond *up_to*."""
    into += [
        slot for slot in of if (after is None or slot > after) and (up_to is None or slot <= up_to)
    ]


def _tell(done: Callable[[Listed], None], listed: Listed) -> None:
    done(Listed(*map(sorted, (listed.slots, listed.checkpoints, listed.marks))))
