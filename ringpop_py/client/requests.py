"""Requests for partitions of a keyspace, as couriers send them: one body for each owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringpop_py.values import requests as messages
from ringpop_py.values.declared import encode, replace
from ringpop_py.values.requests import ApplyRequest, ReadRequest, Scanned, ScanRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.values.operations import Write


@dataclass(frozen=True, slots=True)
class WritesOf:
    """Writes by partition; a result is the outcome of each."""

    keyspace: str
    generation: int
    parts: Mapping[int, Sequence[Write]]
    endpoint = messages.APPLY
    changes_state = True
    stale = False  # only owners take writes

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""
        parts = tuple((number, tuple(self.parts[number])) for number in numbers)
        return ApplyRequest(self.keyspace, self.generation, parts).encode()

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of partition *number*. Raises BodyError."""
        return messages.outcomes_of(result, len(self.parts[number]))


@dataclass(frozen=True, slots=True)
class ReadsOf:
    """Keys by partition; a result is the packed value of each, or None."""

    keyspace: str
    generation: int
    parts: Mapping[int, Sequence[str]]
    stale: bool
    endpoint = messages.READ
    changes_state = False

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""
        parts = tuple((number, tuple(self.parts[number])) for number in numbers)
        return encode(ReadRequest(self.keyspace, self.generation, parts, self.stale))

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of partition *number*. Raises BodyError."""
        return messages.packed_values_of(result, len(self.parts[number]))


@dataclass(frozen=True, slots=True)
class ScansOf:
    """Rows in order of keys; a result is a `Scanned`."""

    request: ScanRequest
    endpoint = messages.SCAN
    changes_state = False

    @property
    def stale(self) -> bool:
        """Whether others than the owner may answer."""
        return self.request.stale

    def only(self, numbers: Sequence[int]) -> ScanRequest:
        """Return the request for the partitions *numbers*."""
        return replace(self.request, partitions=tuple(numbers))

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""
        return encode(self.only(numbers))

    def decode(self, _number: int, result: Any) -> Scanned:  # noqa: ANN401 - as it came
        """Return the result of a partition. Raises BodyError."""
        return messages.scanned_of(result)
