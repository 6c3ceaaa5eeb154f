"""What a keyspace asks of partitions, as routers take it; this node can serve each part, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringpop_py.columns.pages import ColumnsOf
from ringpop_py.partition.server import scanned
from ringpop_py.values import requests as messages
from ringpop_py.values.declared import convert, encode, replace
from ringpop_py.values.requests import ApplyRequest, ReadRequest, Scanned, ScanRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.columns.pages import ColumnsRequest
    from ringpop_py.keyed.keyed import KeyedState
    from ringpop_py.shares.host import Host
    from ringpop_py.values.operations import Write


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes by partition."""

    host: Host
    parts: Mapping[int, Sequence[Write]]
    endpoint = messages.APPLY
    changes_state = True

    def encode(self, numbers: Sequence[int]) -> bytes:
        """As a body."""
        parts = tuple((number, tuple(self.parts[number])) for number in numbers)
        return ApplyRequest(self.host.definition.name, self.host.generation, parts).encode()

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """See `messages`."""
        return messages.outcomes_of(result, len(self.parts[number]))

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `Request`."""
        return await self.host.apply([(number, self.parts[number]) for number in numbers])


@dataclass(frozen=True, slots=True)
class Reads:
    """Keys by partition; a result is the packed value of each, or None."""

    host: Host
    parts: Mapping[int, Sequence[str]]
    stale: bool
    endpoint = messages.READ
    changes_state = False

    def encode(self, numbers: Sequence[int]) -> bytes:
        """As a body."""
        parts = tuple((number, tuple(self.parts[number])) for number in numbers)
        name, generation = self.host.definition.name, self.host.generation
        return encode(ReadRequest(name, generation, parts, self.stale))

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """See `messages`."""
        return messages.packed_values_of(result, len(self.parts[number]))

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `Request`."""
        parts = [(number, self.parts[number]) for number in numbers]
        return await self.host.read(parts, stale=self.stale)

    def look(self, number: int) -> Callable[[KeyedState], Any]:
        """See `StaleRequest`."""
        keys = self.parts[number]
        return lambda state: state.packed(keys)


@dataclass(frozen=True, slots=True)
class Scans:
    """Rows in order of keys; a result is rows and whether there are more."""

    host: Host
    request: ScanRequest
    endpoint = messages.SCAN
    changes_state = False

    def _of(self, numbers: Sequence[int]) -> ScanRequest:
        return replace(self.request, partitions=tuple(numbers))

    def encode(self, numbers: Sequence[int]) -> bytes:
        """As a body."""
        return encode(self._of(numbers))

    def decode(self, _number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """See `messages`."""
        return convert(Scanned, result)

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `Request`."""
        return await self.host.scan(self._of(numbers))

    def look(self, _number: int) -> Callable[[KeyedState], Any]:
        """See `StaleRequest`."""
        return lambda state: scanned(state, self.request)


class ColumnsHere(ColumnsOf):
    """Columns, which this node may serve as well."""

    def __init__(self, host: Host, head: ColumnsRequest) -> None:
        super().__init__(head)
        self._host = host

    async def serve_here(self, numbers: Sequence[int]) -> list[Any]:
        """See `Request`."""
        return await self._host.columns(self.only(numbers))
