"""Which members have a process for shuffles, as the node beside this one sees them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import BodyError, RingpopError
from ringpop_py.flow.shuffle.client.members import Shuffler, seen_by
from ringpop_py.flow.shuffle.protocol.home import View

if TYPE_CHECKING:
    from ringpop_py.client.sync.client import Client
    from ringpop_py.flow.shuffle.protocol.record import MemberId, Record

UNKNOWN_S: Final = 60.0
"""After so many seconds of looking, a host that the node does not know is taken for gone."""
WITHOUT_S: Final = 5.0
"""A host without the label for so many seconds has lost its process, or never had one."""
LOOK_S: Final = 2.0
PERIOD_S: Final = 0.5
"""Seconds between two requests to the node."""


class Watch:
    """Asks the node beside this process which processes are there.

    Attributes:
        shufflers: by host, those that are there.
        changed: set, and replaced, when the node has been asked.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.changed = trio.Event()
        self.shufflers: dict[str, Shuffler] = {}
        self._gone: frozenset[str] = frozenset()
        """Hosts that are no longer there, in the eyes of the node."""
        self._without: dict[str, float] = {}
        """Hosts that are there, and since when they seem to have no such process."""
        self._began_at = trio.current_time()

    async def run(self) -> None:
        """Ask again and again. Raises RingpopError when the node has not answered for long."""
        while True:
            await self.look()
            await trio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Ask once."""
        try:
            found, gone = await trio.to_thread.run_sync(
                partial(seen_by, self._client, timeout_s=LOOK_S), abandon_on_cancel=True
            )
        except (RingpopError, BodyError):
            return  # the node is busy: what was known stays
        self.shufflers = {name: each for name, each in found.items() if each is not None}
        self.changed.set()
        self.changed = trio.Event()
        self._gone = gone
        now = trio.current_time()
        without = [name for name, each in found.items() if each is None]
        self._without = {name: self._without.get(name, now) for name in without}

    def view_of(self, record: Record, me: MemberId, *, is_member: bool) -> View:
        """Return what is believed of the members of *record*."""
        gone = (each for each in record.members if each != me and self._is_gone(each))
        mine = (each for each in record.members if each.host == me.host and each != me)
        return View(frozenset([*gone, *mine]), () if is_member else (me,))

    def _is_gone(self, member: MemberId) -> bool:
        shuffler = self.shufflers.get(member.host)
        if shuffler is not None:
            # Its process began later than this life of it.
            return shuffler.incarnation > member.incarnation
        if member.host in self._gone:
            return True
        # Its label may not have come yet: a process that starts is not one that has ended.
        since = self._without.get(member.host)
        if since is not None:
            return trio.current_time() - since > WITHOUT_S
        return trio.current_time() - self._began_at > UNKNOWN_S

    def addresses(self) -> dict[str, str]:
        """Return where processes listen, by host."""
        return {host: shuffler.address for host, shuffler in self.shufflers.items()}
