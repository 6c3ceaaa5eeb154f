"""All partitions of a keyspace in this process, in memory, with nobody to share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ringpop_py.errors import KeyspaceError, PartitionUnavailable
from ringpop_py.partitions.table import Table
from ringpop_py.state.rescaling import Gained, RescaleEvents
from ringpop_py.state.serving import scanned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.partitions.definition import Definition
    from ringpop_py.partitions.keyed import KeyedState
    from ringpop_py.partitions.operations import Write
    from ringpop_py.state.messages import ScanRequest
    from ringpop_py.state.rescaling import RescaleEvent

GENERATION = EPOCH = 1


class LocalHost:
    """See `ringpop_py.state.host.Host`. Nothing is logged, sent, or waited for."""

    def __init__(
        self, definition: Definition, name: str, make_state: Callable[[Definition], KeyedState]
    ) -> None:
        self.definition = definition
        self.generation = GENERATION
        self.events = RescaleEvents()
        self.changed = trio.Event()
        self.table = Table(definition.name, GENERATION, definition.partitions)
        self.table.desire([name] * definition.partitions)
        for row in self.table:
            self.table.put(row.claimed(name, EPOCH))
        self._name = name
        self._states = [make_state(definition) for _ in range(definition.partitions)]

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
