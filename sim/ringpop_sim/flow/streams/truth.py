"""The promises of a stream, checked after each change of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.table.evaluator import mark_name
from ringpop_sim.state.journal.promises import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.state.table.keyed import KeyedState

TWICE: Final = "twice"
LOST: Final = "lost"
BACK: Final = "back"
LIVE: Final = "live"
ERROR: Final = "error"

INVARIANTS: Final[dict[str, str]] = {
    TWICE: "no record counts twice",
    LOST: "a partition whose mark is behind a record has counted it, if it is one of its own",
    BACK: "a mark only rises",
    LIVE: "once nothing fails, all records count within a bounded time",
    ERROR: "no write is refused, but for a span that begins behind the mark",
}


def key_of(source: str, position: int) -> str:
    """Return the key that counts one record."""
    return f"{source}@{position}"


class StreamTruth:
    """The existing records, by source and partition, in the order of their positions."""

    def __init__(self, records: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        self._of: dict[tuple[str, int], list[int]] = {}
        for source, rows in records.items():
            for position, partition in rows:
                self._of.setdefault((source, partition), []).append(position)
        self._marks: dict[tuple[str, int], int] = {}

    def check(self, source: str, partition: int, state: KeyedState) -> None:
        """Compare one partition with all records of *source*. Raises PromiseBroken."""
        mark = state.offsets.get(mark_name(source), 0)
        assert isinstance(mark, int)
        before = self._marks.get((source, partition), 0)
        where = f"partition {partition}, whose mark of {source} is {mark}"
        if mark < before:
            raise PromiseBroken(BACK, f"{where}: it was {before}")
        self._marks[source, partition] = mark
        positions = self._of.get((source, partition), [])
        counts = state.packed([key_of(source, position) for position in positions])
        for position, packed in zip(positions, counts, strict=True):
            count = 0 if packed is None else decode_value("msgpack", packed)
            if count > 1:
                raise PromiseBroken(TWICE, f"{where}: record {position} counts {count} times")
            if position <= mark and not count:
                raise PromiseBroken(LOST, f"{where}: record {position} does not count")
