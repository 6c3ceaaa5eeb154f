"""All partitions of a keyspace in this process, in memory, with nobody to share them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

import trio

from ringpop_py.columns.pages import Room
from ringpop_py.errors import KeyspaceError, PartitionUnavailable
from ringpop_py.keyspaces.keyspace import Keyspace
from ringpop_py.partition.server import scanned
from ringpop_py.placing.keys import partition_of
from ringpop_py.placing.table import Table
from ringpop_py.steward.rescale_events import Gained, RescaleEvents
from ringpop_py.values.operations import Change, OperationId, Outcome, Write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ringpop_py.columns.pages import ColumnsRequest
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.partition.tasks import Spawn
    from ringpop_py.placing.definition import Definition
    from ringpop_py.steward.rescale_events import RescaleEvent
    from ringpop_py.steward.view import NodeView
    from ringpop_py.values.operations import Value
    from ringpop_py.values.requests import ScanRequest

GENERATION = EPOCH = 1


class LocalHost:
    """See `ringpop_py.shares.host.Host`. Nothing is logged, sent, or waited for."""

    def __init__(
        self, definition: Definition, name: str, make_state: Callable[[Definition], KeyedState]
    ) -> None:
        self.definition = definition
        self.generation = GENERATION
        self.events = RescaleEvents()
        self.changed = trio.Event()
        self.copies = None
        self.table = Table(definition.name, GENERATION, definition.partitions)
        self.table.desire([name] * definition.partitions)
        for row in self.table:
            self.table.put(row.claimed(name, EPOCH))
        self._name = name
        self._sequence = count()
        self._states = [make_state(definition) for _ in range(definition.partitions)]

    def members(self) -> Sequence[str]:
        """See `Host`."""
        return [self._name]

    def already(self) -> list[RescaleEvent]:
        """See `Host`: it has had all of them from the beginning."""
        return [Gained(n, EPOCH, state.offsets) for n, state in enumerate(self._states)]

    def destination(self, _partition: int) -> str:
        """See `Host`."""
        return self._name

    def why_nobody(self, partition: int) -> KeyspaceError:
        """See `Host`: there always is somebody."""
        return PartitionUnavailable(f"partition {partition} is at {self._name}")

    def learn(self, _row: list[Any]) -> None:
        """See `Host`: there is nobody who could know more."""

    async def apply(self, parts: Sequence[tuple[int, Sequence[Write]]]) -> list[Any]:
        """See `Host`."""
        await trio.lowlevel.checkpoint()
        results: list[Any] = []
        for number, writes in parts:
            state = self._states[number]
            body, outcomes = state.stage(writes)
            if body is not None:
                state.apply(body)
            results.append(outcomes)
        return results

    def change(
        self, number: int, changes: Sequence[Change], offsets: Mapping[str, Value] | None
    ) -> list[Outcome | KeyspaceError]:
        """Make *changes*, each by itself, at once; nobody will ever repeat them."""
        state = self._states[number]
        # As one write, which is quicker; it takes effect as a whole or not at all.
        body, (outcome,) = state.stage([Write(*self._new_id(), tuple(changes), offsets)])
        if body is not None:
            state.apply(body)
            assert isinstance(outcome, Outcome), "it is in the body"
            return [Outcome((value,)) for value in outcome.values]
        writes = [Write(*self._new_id(), (change,), offsets) for change in changes]
        body, outcomes = state.stage(writes)
        if body is not None:
            state.apply(body)
        return outcomes

    def _new_id(self) -> OperationId:
        return OperationId(self._name, next(self._sequence))

    async def read(
        self,
        parts: Sequence[tuple[int, Sequence[str]]],
        *,
        stale: bool = False,  # noqa: ARG002 - nothing here ever is
    ) -> list[Any]:
        """See `Host`."""
        await trio.lowlevel.checkpoint()
        return [self._states[number].packed(keys) for number, keys in parts]

    async def scan(self, request: ScanRequest) -> list[Any]:
        """See `Host`."""
        await trio.lowlevel.checkpoint()
        return [scanned(self._states[number], request) for number in request.partitions]

    async def columns(self, request: ColumnsRequest) -> list[Any]:
        """See `Host`."""
        await trio.lowlevel.checkpoint()
        room = Room(request.bytes_max)
        return [room.columns_of(self._states[number], wanted) for number, wanted in request.parts]


_NOTHING: Final = Outcome(())


class LocalKeyspace(Keyspace):
    """A keyspace with all of its partitions at hand: many changes are made without detours."""

    def __init__(self, node: NodeView, host: LocalHost, rng: random.Random, spawn: Spawn) -> None:
        super().__init__(node, host, rng, spawn)
        self._local = host

    async def update_many(
        self,
        changes: Iterable[Change | tuple[str, str, Value]],
        *,
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome | KeyspaceError]:
        """See `Keyspace`."""
        if operation_id is not None:
            return await super().update_many(
                changes, operation_id=operation_id, offsets=offsets, timeout_s=timeout_s
            )
        await trio.lowlevel.checkpoint()
        groups: dict[int, list[tuple[int, Change]]] = {}
        partitions, total = self.partitions, 0
        for index, change in enumerate(changes):
            total += 1
            wanted = change if type(change) is Change else Change(*change)
            groups.setdefault(partition_of(wanted.key, partitions), []).append((index, wanted))
        outcomes: list[Outcome | KeyspaceError] = [_NOTHING] * total
        for number, rows in groups.items():
            found = self._local.change(number, [change for _, change in rows], offsets)
            for (index, _), outcome in zip(rows, found, strict=True):
                outcomes[index] = outcome
        return outcomes
