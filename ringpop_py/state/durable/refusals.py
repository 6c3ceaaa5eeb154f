"""A member whose store refuses its writes gives its partitions to members whose store takes them.

A mount that has turned read-only, or lost its permissions, has to be repaired, and concerns one
machine. So the member says by its label that it owns nothing, as after a failure of its share, and
checks now and then whether it may write again. While no other member can take its partitions, it
keeps them, and serves reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.base.logs import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.state.ownership.ownership import Ownership

LOOK_S: Final = 1.0
PROBE_S: Final = 5.0
"""The seconds from one try to write to the next, after the store has refused one."""


class RefusalWatch:
    """Watches whether the store refuses what *ownership* puts, for one keyspace at the node *name*.

    Args:
        members: returns the members that may own partitions now.

    Attributes:
        away: whether this member owns nothing because the store refuses its writes.
        why: why it does; empty while it does not.
    """

    def __init__(
        self,
        ownership: Ownership[Any],
        name: str,
        keyspace: str,
        members: Callable[[], Sequence[str]],
    ) -> None:
        self.away = False
        self.why = ""
        self._is_full = False
        self._name = name
        self._keyspace = keyspace
        self._ownership = ownership
        self._members = members

    async def run(
        self, probe: Callable[[], Awaitable[object]], changed: Callable[[], None]
    ) -> None:
        """Watch until cancelled.

        Args:
            probe: writes something. Raises StoreUnavailable.
            changed: called when `away` has changed.
        """
        probe_at = 0.0
        while True:
            await trio.sleep(LOOK_S)
            now, why = trio.current_time(), self._ownership.refusal
            if why is not None and self.away and now >= probe_at:
                probe_at = now + PROBE_S
                try:
                    await probe()
                except StoreUnavailable:
                    pass
                else:
                    why = self._ownership.refusal = None
            self._look_for_room()
            others = [name for name in self._members() if name != self._name]
            away = why is not None and bool(others)
            if away != self.away:
                self.away = away
                if not away:
                    probe_at = 0.0
                self.why = str(why) if away else ""
                self._tell(self.why)
                changed()

    def _look_for_room(self) -> None:
        # Nobody can take over, so the operator alone can help.
        full = self._ownership.full
        if (full is not None) != self._is_full:
            self._is_full, keyspace = full is not None, self._keyspace
            if full is not None:
                text = f"the store has no room for writes of keyspace {keyspace!r}: {full}"
                log.warning("store-full", text=text, keyspace=keyspace)
            else:
                text = f"the store has room for writes of keyspace {keyspace!r} again"
                log.info("store-has-room", text=text, keyspace=keyspace)

    def _tell(self, why: str) -> None:
        if why:
            text = f"the store refuses writes of keyspace {self._keyspace!r} here, so other members"
            log.warning("store-refuses", text=f"{text} take over: {why}", keyspace=self._keyspace)
        else:
            text = f"this member may own partitions of keyspace {self._keyspace!r} again"
            log.info("store-accepts", text=text, keyspace=self._keyspace)
