"""The feed of one source of input: brings its records to a keyspace's partitions, each once: pure.

The driver reads records in their order, and sends each group that `Feed.next` returns until its
partition has it. A partition keeps its mark: how far it has come (see
`ringpop_py.base.values.operations.Span`). So a feed has no state of its own that must be kept: the
next feed of the source asks all partitions for their marks, and continues behind the lowest.
Two feeds of one source at the same time are harmless.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

R = TypeVar("R")

UNDER_WAY_MAX: Final = 4
"""The most groups that are under way to one partition at the same time."""
GROUP_RECORDS: Final = 1_000
GROUP_BYTES: Final = 1 << 20
"""The most records of a group, and the bytes at which it ends, with the record that brings them."""
BEHIND_MAX: Final = 50_000
"""The records of others after which a partition without records is told the source's position."""


class Sending(NamedTuple, Generic[R]):
    """A group: all records for *partition* that stand after *after*, up to *upto*."""

    partition: int
    after: int
    upto: int
    records: Sequence[tuple[int, R]]
    size: int = 0


@dataclass(slots=True)
class _Lane(Generic[R]):
    """The feed's knowledge of one partition.

    Attributes:
        mark: the last mark that it reported.
        sent: the end of the last group that was sent.
        sent_at: how many records the feed had received by then.
        waiting: records after *sent*, each with its position and size.
        under_way: groups without an answer yet, in their order.
    """

    mark: int
    sent: int
    sent_at: int = 0
    waiting: deque[tuple[int, R, int]] = field(default_factory=deque)
    under_way: deque[Sending[R]] = field(default_factory=deque)


class Feed(Generic[R]):
    """See the module.

    Args:
        marks: the mark of each partition, by number.
        behind_max: see `BEHIND_MAX`.

    Attributes:
        read: the position of the last record that was added.
        held: how many records wait, or are under way.
        held_bytes: about how many bytes these have.
    """

    def __init__(
        self,
        marks: Sequence[int],
        *,
        group_records: int = GROUP_RECORDS,
        behind_max: int = BEHIND_MAX,
    ) -> None:
        self._lanes = [_Lane[R](mark, mark) for mark in marks]
        self._group_records = group_records
        self._behind_max = behind_max
        self._added = 0
        self.read = min(marks)
        self.held = 0
        self.held_bytes = 0

    @property
    def marks(self) -> list[int]:
        """The marks that the partitions have reported last."""
        return [lane.mark for lane in self._lanes]

    @property
    def done(self) -> bool:
        """Whether all partitions have come as far as the source was read."""
        return all(lane.mark >= self.read for lane in self._lanes)

    def skip(self, position: int) -> None:
        """Note that the source was read up to *position*, without a record for any partition.

        Raises:
            ValueError: if *position* does not follow the last one.
        """
        if position <= self.read:
            raise ValueError(f"position {position} after position {self.read}")
        self.read = position
        self._added += 1

    def add(self, position: int, partition: int, record: R, size: int = 0) -> None:
        """Add the next record, of about *size* bytes; what its partition has already is ignored.

        Raises:
            ValueError: if *position* does not follow the last one.
        """
        self.skip(position)
        lane = self._lanes[partition]
        if position > lane.sent:
            lane.waiting.append((position, record, size))
            self.held += 1
            self.held_bytes += size

    def next(self, *, all_of_it: bool = False) -> list[Sending[R]]:
        """Return groups to send now.

        Args:
            all_of_it: tell each partition how far the source was read, even if it has no records.
        """
        found: list[Sending[R]] = []
        for number, lane in enumerate(self._lanes):
            while len(lane.under_way) < UNDER_WAY_MAX and lane.sent < self.read:
                is_near = lane.under_way or self._added - lane.sent_at < self._behind_max
                if not lane.waiting and is_near and not all_of_it:
                    break  # a later group says it as well
                found.append(self._group(number, lane))
        return found

    def _group(self, number: int, lane: _Lane[R]) -> Sending[R]:
        records: list[tuple[int, R]] = []
        bytes_count = 0
        while lane.waiting and len(records) < self._group_records and bytes_count < GROUP_BYTES:
            position, record, size = lane.waiting.popleft()
            records.append((position, record))
            bytes_count += size
        # With more to come, the group ends with its last record, of which there may be several
        # changes but no second one.
        upto = records[-1][0] if lane.waiting else self.read
        sending = Sending(number, lane.sent, upto, records, bytes_count)
        lane.sent, lane.sent_at = upto, self._added
        lane.under_way.append(sending)
        return sending

    def taken(self, partition: int, mark: int) -> None:
        """Note the *mark* of *partition*, reached by this feed or another of the same source."""
        lane = self._lanes[partition]
        lane.mark = max(lane.mark, mark)  # marks only rise: a lower one is an old answer
        while lane.under_way and lane.under_way[0].upto <= lane.mark:
            sending = lane.under_way.popleft()
            self.held -= len(sending.records)
            self.held_bytes -= sending.size
