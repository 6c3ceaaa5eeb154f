"""The promises of a dataflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_sim.state.journal.promises import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TWICE: Final = "twice"
LOST: Final = "lost"
CHANGED: Final = "changed"
EARLY: Final = "early"
LIVE: Final = "live"
ERROR: Final = "error"

INVARIANTS: Final[dict[str, str]] = {
    TWICE: "no record is sent on twice, nor counts twice in a state",
    LOST: "at the end every record was sent on, and counts in the state",
    CHANGED: "what is delivered under one id is always the same",
    EARLY: "no record is earlier than the watermark before it, unless a source was idle or away",
    LIVE: "once nothing fails, all records are sent on within a bounded time",
    ERROR: "nothing comes on a channel that may not come there, and nothing fails",
}


class Delivered:
    """The deliveries to sinks, by id, as a sink that drops repeated ids sees them."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[int, int], tuple[str, ...]] = {}
        self._records: set[str] = set()

    def deliver(self, epoch: int, number: int, records: Sequence[str]) -> None:
        """Note what came under one id. Raises PromiseBroken."""
        key, found = (epoch, number), tuple(records)
        known = self._by_id.get(key)
        if known is not None:
            if known != found:
                raise PromiseBroken(CHANGED, f"{key} was {known}, and is {found}")
            return
        self._by_id[key] = found
        again = [record for record in found if record in self._records]
        if again or len(set(found)) < len(found):
            raise PromiseBroken(TWICE, f"{again or found} came again in epoch {epoch}")
        self._records.update(found)

    @property
    def count(self) -> int:
        """The number of records that have come."""
        return len(self._records)


def check_counts(counts: Mapping[str, int], records: Mapping[str, int]) -> None:
    """Compare the counts of a whole state with the records by key. Raises PromiseBroken."""
    for key, count in records.items():
        found = counts.get(key, 0)
        if found != count:
            raise PromiseBroken(
                TWICE if found > count else LOST, f"{key} has {found} records of {count}"
            )
