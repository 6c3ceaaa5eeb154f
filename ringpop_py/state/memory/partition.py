"""One partition of a keyspace in memory mode, at a node that serves it or has a copy of it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from ringpop_py.base.errors import KeyspaceError, PartitionUnavailable
from ringpop_py.state.partition.chart import Presence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_py.base.values.operations import Outcome, Write
    from ringpop_py.state.copies.log import CopyLog
    from ringpop_py.state.memory.mergeable import Content, MergeableState, Part
    from ringpop_py.state.table.joins import Rule
    from ringpop_py.state.table.keyed import KeyedState

F = TypeVar("F")


class MemoryPartition:
    """See the module.

    Attributes:
        presence: PENDING while other members' copies arrive, OWNED while it is served here,
            RELEASING while it is handed over.
        on_expiring: called when it has changed, if any of its keys expires.
        on_changed: called when it has changed, if it has copies at other members.
    """

    def __init__(self, number: int, mergeable: MergeableState, now_ms: Callable[[], int]) -> None:
        self.number = number
        self.presence = Presence.PENDING
        self.mergeable = mergeable
        self._now_ms = now_ms
        self._forgotten_count = 0
        self.on_expiring: Callable[[MemoryPartition], None]
        self.on_changed: Callable[[MemoryPartition], None]

    def __repr__(self) -> str:
        return f"<MemoryPartition {self.number} {self.presence.value}>"

    @property
    def state(self) -> KeyedState:
        """The state that reads see."""
        return self.mergeable.keyed

    async def write(
        self, writes: Sequence[Write], _deadline: float = inf
    ) -> list[Outcome | KeyspaceError]:
        """Apply *writes*, in order. It waits only for copies at other members.

        Raises:
            PartitionUnavailable: if it is not served here, or there are too few copies; none took
                effect.
            OutcomeUnknown: if there are too few copies now.
        """
        await trio.lowlevel.checkpoint()  # before the check: the partition may leave meanwhile
        self._refuse_unless_online()
        if self.mergeable.log is None:
            return self._written(writes)
        copied, results = trio.Event(), list[Any]()

        def done(result: object) -> None:
            results.append(result)
            copied.set()

        result = self._copied(self.mergeable.log, writes, done)
        if result is None:
            await copied.wait()
            (result,) = results
        if isinstance(result, KeyspaceError):
            raise result
        return cast("list[Outcome | KeyspaceError]", result)

    def _copied(
        self, copies: CopyLog, writes: Sequence[Write], done: Callable[[object], None]
    ) -> object | None:
        copies.check()
        outcomes = self._written(writes)
        self.on_changed(self)
        return copies.hold(outcomes, done)

    def _written(self, writes: Sequence[Write]) -> list[Outcome | KeyspaceError]:
        outcomes = self.mergeable.write(writes, self._now_ms())
        if self.state.due:
            self.on_expiring(self)
        return outcomes

    async def read(
        self, look: Callable[[KeyedState], F], _deadline: float = inf, *, stale: bool = False
    ) -> F:
        """Return what *look* finds in this node's copy; the other side of a cut has another one.

        Raises:
            PartitionUnavailable: if it is not served here.
        """
        del stale  # every read is of this node's copy, so stale reads are no different
        await trio.lowlevel.checkpoint()
        self._refuse_unless_online()
        return look(self.state)

    def begin_write(self, writes: Sequence[Write], done: Callable[[object], None]) -> object:
        """See `ServedPartition`."""
        try:
            self._refuse_unless_online()
            if self.mergeable.log is not None:
                return self._copied(self.mergeable.log, writes, done)
            return self._written(writes)
        except KeyspaceError as error:
            return error

    def begin_read(
        self,
        look: Callable[[KeyedState], F],
        _done: Callable[[object], None],
        *,
        stale: bool,
    ) -> object:
        """See `ServedPartition`."""
        del stale  # see `read`
        try:
            self._refuse_unless_online()
            return look(self.state)
        except KeyspaceError as error:
            return error

    def parts(self) -> Iterator[Part]:
        """Yield its content in parts; it must not change until the last part was taken."""
        return self.mergeable.parts(self._now_ms())

    def merge(self, content: Content, rule: Rule, transfer: str) -> None:
        """Merge a part of another copy. *transfer* names the part, since it may arrive twice."""
        self.mergeable.merge(content, rule, self._now_ms(), transfer=transfer)
        if self.state.due:
            self.on_expiring(self)
        if self.mergeable.log is not None:
            self.on_changed(self)

    def expire(self) -> bool:
        """Have keys that are due expire, and return true."""
        self.mergeable.expire()
        if self.mergeable.log is not None:
            self.on_changed(self)
        return True

    def collect(self) -> int:
        """Forget deleted keys that are old enough.

        Return how many others were forgotten since the last call, early and for lack of room.
        """
        versions = self.mergeable.versions
        versions.collect(self._now_ms())
        before, self._forgotten_count = self._forgotten_count, versions.forgotten_count
        return self._forgotten_count - before

    def _refuse_unless_online(self) -> None:
        if self.presence is not Presence.OWNED:
            raise PartitionUnavailable(f"partition {self.number} is {self.presence.value} here")
