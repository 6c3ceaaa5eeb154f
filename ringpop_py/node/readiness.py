"""Whether a node has joined, or why it will not join, or must stop; and its application."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import JoinRefused, NameLost
from ringpop_py.member.swim import effects as fx

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.member.door import ApplicationDoor
    from ringpop_py.member.swim.node import Node


class Readiness:
    """The outcome of the first join of *node*.

    Attributes:
        name_lost: the error once another process has our name; None before.
        on_name_lost: called when *name_lost* is set.
        door: that of the HTTP application beside the node; None if there is no such application.
    """

    def __init__(self, node: Node) -> None:
        self.name_lost: NameLost | None = None
        self.on_name_lost: Callable[[], None] = lambda: None
        self.door: ApplicationDoor | None = None
        self._node = node
        self._refused: JoinRefused | None = None
        self._known = trio.Event()

    def observe(self, effect: fx.Effect) -> None:
        """Note *effect*, a fact of the protocol."""
        match effect:
            case fx.Ready():
                self._known.set()
            case fx.JoinRejected(address, reason, fatal=True):
                self._refused = JoinRefused(f"{address} refuses this node: {reason}")
                self._known.set()
            case fx.NameTaken(lost=True):
                self.name_lost = _name_lost(effect, joined=self._node.ready)
                self._known.set()
                self.on_name_lost()
            case _:
                pass

    @property
    def application_trouble(self) -> str:
        """Why the application beside the node counts as away; empty if it does not."""
        if self.door is None or self.door.is_open:
            return ""
        return self.door.trouble or "it has answered again, but not yet for long enough"

    async def wait(self) -> None:
        """Return once the node has joined. Raises JoinRefused, NameLost."""
        await self._known.wait()
        # First: a node that has joined can lose its name later, and must not count as ready.
        if self.name_lost is not None:
            raise self.name_lost
        if self._refused is not None:
            raise self._refused


def _name_lost(effect: fx.NameTaken, *, joined: bool) -> NameLost:
    ours, theirs = effect.ours, effect.theirs
    has_run = ""
    if effect.since_ms is not None:
        with suppress(ValueError, OverflowError, OSError):  # a peer can send any number
            at = datetime.fromtimestamp(effect.since_ms / 1000, UTC)
            has_run = f", which has run since {at:%Y-%m-%d %H:%M:%S} UTC"
    what = "stopped, because it is the later of the two" if joined else "did not join"
    return NameLost(
        f"the name {ours.name} belongs to the process at {theirs.address}{has_run}; "
        f"this one, at {ours.address}, {what}. Give this one another --name, or stop that one first"
    )
