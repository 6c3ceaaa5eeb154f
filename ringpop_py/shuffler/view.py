"""Which members have a process for shuffles, as the node beside this one sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ringpop_py.errors import BodyError, RingpopError
from ringpop_py.shuffle.home import View
from ringpop_py.values.declared import Named, Text, convert

if TYPE_CHECKING:
    from ringpop_py.client.client import Client
    from ringpop_py.shuffle.record import MemberId, Record

LABEL: Final = "ringpop.shuffle"
"""The label of a node with such a process: ``PORT/INCARNATION``."""
LIVE: Final = ("alive", "suspect")
UNKNOWN_S: Final = 60.0
"""A host that the node has never heard of is taken for gone when it has looked for so long."""
WITHOUT_S: Final = 5.0
"""A host that is there without the label for so long has lost its process, or never had one."""
PERIOD_S: Final = 0.5
"""How often the node is asked."""


class Shuffler(NamedTuple):
    """A process for shuffles: where it listens, and since when it runs."""

    address: str
    incarnation: int


class _Row(Named, frozen=True):
    name: Text
    address: Text
    status: Text
    labels: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default


class _Members(Named, frozen=True):
    members: tuple[_Row, ...]


class Watch:
    """Asks the node beside this process who is there.

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
            value = await trio.to_thread.run_sync(
                lambda: self._client.admin("/admin/members", timeout_s=2.0), abandon_on_cancel=True
            )
            shown = convert(_Members, value)
        except (RingpopError, BodyError):
            return  # the node is busy: what was known stays
        found = {row.name: _shuffler_of(row) for row in shown.members}
        self.shufflers = {name: each for name, each in found.items() if each is not None}
        self.changed.set()
        self.changed = trio.Event()
        self._gone = frozenset(row.name for row in shown.members if row.status not in LIVE)
        now = trio.current_time()
        without = {name for name, each in found.items() if each is None} - self._gone
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


def _shuffler_of(row: _Row) -> Shuffler | None:
    port, _, incarnation = row.labels.get(LABEL, "").partition("/")
    if row.status not in LIVE or not port.isdecimal() or not incarnation.isdecimal():
        return None
    host = row.address.rpartition(":")[0]
    return Shuffler(f"{host}:{port}", int(incarnation))
