"""The keyspaces of a node, whose code is loaded when one is first needed.

That code takes a third of the processor time of a start, and 4 MB. A node without a store that
never learns of a keyspace does without it: at the start of a node nothing else imports
`ringpop_py.state.keyspaces.registry`, but for types (held by `tests/test_layers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.errors import PartitionUnavailable
from ringpop_py.member.drain import ENDED
from ringpop_py.member.swim.effects import DigestDiffers, Effect
from ringpop_py.net.wire.calls import NODE_SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.member.drain import Work
    from ringpop_py.state.catalog.stored import OpenedStore
    from ringpop_py.state.keyspaces.registry import Keyspaces
    from ringpop_py.state.shares.view import NodeView
    from ringpop_py.state.table.due import DueClock

ENDPOINTS: Final = ("/keyspace/", "/admin/keyspaces", "/admin/leaders", "/admin/ticks")
"""The prefixes of the endpoints that are served once keyspaces are loaded."""


class KeyspacesOnDemand:
    """Loads a node's `Keyspaces` when its store, application, peers or operators ask for them.

    Attributes:
        store: the node's, if it has one.
    """

    def __init__(self, node: NodeView, store: OpenedStore | None, clock: DueClock) -> None:
        self._node = node
        self._clock = clock
        self.store = store
        self._keyspaces: Keyspaces | None = None
        self._loaded = trio.Event()
        self._ended = False
        self._on_load: list[Callable[[], None]] = []
        node.channel.handlers.on_unserved = self._unserved
        node.observe(self._observed)

    def get(self) -> Keyspaces:
        """Return the keyspaces; the first call loads them, and they begin to run.

        Loading takes about 0.1 s of processor time, in which nothing else runs.

        Raises:
            PartitionUnavailable: if the node has ended.
        """
        if self._ended:
            raise PartitionUnavailable(ENDED)
        if self._keyspaces is None:
            from ringpop_py.state.keyspaces.registry import Keyspaces  # noqa: PLC0415 - see above

            self._keyspaces = Keyspaces(self._node, self.store, self._clock)
            self._loaded.set()
            for act in self._on_load:
                act()
        return self._keyspaces

    def on_load(self, act: Callable[[], None]) -> None:
        """Call *act* when keyspaces are loaded, which must not have happened yet."""
        assert self._keyspaces is None
        self._on_load.append(act)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run keyspaces until cancelled; see `Keyspaces.run` for what has started by then."""
        try:
            if self.store is None and self._keyspaces is None:
                # Without a store there are no keyspaces to find, so the start of the node goes on.
                task_status.started()
                await self._loaded.wait()
                await self.get().run()
            else:
                await self.get().run(task_status=task_status)
        finally:
            self._ended = True  # from now on nothing would run the tasks of keyspaces

    @property
    def loaded(self) -> bool:
        """Whether the keyspaces are loaded."""
        return self._keyspaces is not None

    @property
    def digest(self) -> int:
        """See `TableGossip.digest`."""
        return self._keyspaces.gossip.digest if self._keyspaces is not None else 0

    def under_way(self) -> Mapping[Work, int]:
        """See `Shares.under_way`."""
        return self._keyspaces.shares.under_way() if self._keyspaces is not None else {}

    def end_waits(self) -> None:
        """See `Shares.end_waits`."""
        if self._keyspaces is not None:
            self._keyspaces.shares.end_waits()

    async def close(self) -> None:
        """Give up all partitions, if keyspaces are loaded."""
        if self._keyspaces is not None:
            await self._keyspaces.shares.close()

    def _unserved(self, service: str, endpoint: str) -> None:
        if service == NODE_SERVICE and endpoint.startswith(ENDPOINTS):
            self.get()

    def _observed(self, effect: Effect) -> None:
        if isinstance(effect, DigestDiffers):
            self.get()  # it observes the node from now on, and receives this very effect as well
