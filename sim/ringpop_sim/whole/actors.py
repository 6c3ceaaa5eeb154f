"""The actors of whole daemons: each keeps a list, as a key that clients append to holds one."""

from __future__ import annotations

from typing import Final

import trio

from ringpop_py.base.errors import ApplicationError
from ringpop_py.state.actors.actors import Actor
from ringpop_sim.units import s

KIND: Final = "ListKeeper"
ACTORS_MAX: Final = 3
"""So few actors of a daemon are in memory that they leave it, and come back."""


class ListKeeper(Actor[list[int], list[int]]):
    """Appends an item, works for a while, and answers with all items.

    A message has the item, or 0; for how many microseconds the actor works; and whether it fails
    then, with an error that has the items of before.
    """

    state: list[int] = []  # noqa: RUF012 - each actor begins with a copy

    async def receive(self, message: list[int]) -> list[int]:
        item, work_us, fails = message
        before = list(self.state)
        if item:
            self.state = [*before, item]
        if work_us:
            await trio.sleep(work_us / s)
        if fails:
            raise ApplicationError(KIND, " ".join(map(str, before)))
        return list(self.state)
