"""The promises about one shuffle, of which clients read the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.flow.shuffle.protocol.record import State
from ringpop_sim.flow.shuffle import truth as t
from ringpop_sim.units import s

if TYPE_CHECKING:
    from ringpop_py.flow.shuffle.protocol.record import MemberId, Record

LEASE_US: Final = 10 * s


class ShuffleRows(t.Truth):
    """What was acknowledged of a shuffle, and what must be read.

    Attributes:
        put: the rows of each attempt.
    """

    def __init__(self) -> None:
        super().__init__(LEASE_US)
        self.put: dict[int, list[tuple[int, ...]]] = {}
        self._seen: dict[int, list[tuple[int, ...]]] = {}
        self._uid = 0

    @property
    def version(self) -> int:
        """The version of the record, as far as any process has seen it."""
        return -1 if self._record is None else self._record.version

    @property
    def uid(self) -> int:
        """The uid of the record, as far as any process has seen it."""
        return 0 if self._record is None else self._record.uid

    def _ended(self, _record: Record, now: int) -> None:
        self._ended_at = now  # its cuts are Arrow's: `read` needs none

    def _check_holders(self, former: Record, record: Record) -> None:
        if record.version == former.version + 1:
            super()._check_holders(former, record)

    def lost(self, live: dict[MemberId, Any], uid: int | None = None) -> None:
        """Note that nobody but *live* has anything any longer, of the shuffle of that *uid*."""
        record = self._record
        if record is None or uid not in (None, record.uid):
            return
        found: list[Any] = list(record.intervals if record.state is State.GET else ())
        found += record.segments.values()
        if any(each.holders and not any(o in live for o in each.holders) for each in found):
            self.is_single = False

    def read(self, record: Record, number: int, rows: list[tuple[int, ...]]) -> None:
        """Note that a client has read *rows*."""
        if record.uid != self._uid:
            self._uid, self._seen = record.uid, {}
        self.tally["answers"] += 1
        if self._seen.setdefault(number, rows) != rows:
            self.breaks(t.ROWS, f"interval {number} has other rows than before")
        if len(self._seen) == record.interval_count:
            found = [row for each in sorted(self._seen) for row in self._seen[each]]
            keys = [row[0] for row in found]
            expected = sorted(row for attempt in record.winners for row in self.put[attempt])
            if sorted(found) != expected or keys != sorted(keys):
                self.breaks(t.ROWS, f"there are {len(found)} rows, and should be {len(expected)}")
