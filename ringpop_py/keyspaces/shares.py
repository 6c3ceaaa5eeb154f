"""A keyspace's share at one node: the tasks that run it fail together, and alone.

A bug in one of them, or in the code of a store, stops the share: its partitions are given up, what
is asked of it is refused, and other members learn of it. The node and all other keyspaces go on.
Nothing but a new start of the node brings the share back: the state that the bug left behind is
unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import trio

from ringpop_py.errors import PartitionUnavailable
from ringpop_py.logs import log
from ringpop_py.supervision import one_line
from ringpop_py.swim.member import FAILED_LABEL, LABEL_VALUE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ringpop_py.keyspaces.keyspace import Keyspace
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.shares.host import DurableHost
    from ringpop_py.shares.memory_host import MemoryHost
    from ringpop_py.swim.member import Member

ALL_FAILED: Final = "*"
"""The value of the label where the names would be too long for it."""
GIVE_UP_S: Final = 5.0


class Share:
    """One keyspace's share.

    Args:
        make: makes the host and the keyspace, given what runs their tasks.
        on_failed: called once, when the share has failed.

    Attributes:
        failure: why it has failed; empty while it is well.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Spawn], tuple[DurableHost | MemoryHost, Keyspace]],
        on_failed: Callable[[], None],
    ) -> None:
        self.failure = ""
        self._name = name
        self._on_failed = on_failed
        self._nursery: trio.Nursery | None = None
        self._spawned_early: list[tuple[Callable[..., Awaitable[object]], tuple[object, ...]]] = []
        self.host, self.keyspace = make(self.spawn)

    async def run(self) -> None:
        """Run the share until it fails, or `stop`; then give up what is left of it."""
        await self._run(self.host.run)
        if self.failure:
            # Others could take the partitions over by themselves; what is given up in good order
            # they need not find out, and in memory mode there is no other copy.
            with trio.move_on_after(GIVE_UP_S):
                await self._run(self.host.close)
            self.host.let_go()

    async def _run(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                for early, arguments in self._spawned_early:
                    self._nursery.start_soon(self._contain, early, *arguments)
                self._spawned_early.clear()
                await self._contain(function)
                self.stop()
        except Exception as error:  # noqa: BLE001 - of a task that was being cancelled
            self.fail(error)

    def stop(self) -> None:
        """End all tasks of the share."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """See `Spawn`; what the task raises fails the share.

        Raises:
            PartitionUnavailable: the share, or the node, has ended.
        """
        if self._nursery is None:  # `run` is about to begin
            self._spawned_early.append((function, arguments))
            return
        try:
            self._nursery.start_soon(self._contain, function, *arguments)
        except RuntimeError:  # it is closed
            message = self.failure or "this node has ended"
            raise PartitionUnavailable(message) from None

    async def _contain(
        self, function: Callable[..., Awaitable[object]], *arguments: object
    ) -> None:
        try:
            await function(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop the share because of *error*, a bug; only the first one counts."""
        if not self.failure:
            name, what = self._name, one_line(error)
            self.failure = f"this node's share of keyspace {name!r} has failed: {what}"
            log.error("keyspace-failed", text=self.failure, keyspace=name, exc_info=error)
            self.host.fail(self.failure)
            self.keyspace.stage.fail(self.failure)
            self._on_failed()
        self.stop()


def failed_label(names: Iterable[str]) -> str | None:
    """The value of `FAILED_LABEL` for these keyspaces; None if there are none."""
    value = ",".join(quote(name, safe="") for name in sorted(names))
    return (value if len(value) <= LABEL_VALUE_BYTES_MAX else ALL_FAILED) or None


def has_failed(member: Member, name: str) -> bool:
    """Whether the share of the keyspace *name* at *member* has failed, as its label says."""
    for key, value in member.labels:
        if key == FAILED_LABEL:
            return value == ALL_FAILED or quote(name, safe="") in value.split(",")
    return False
