"""Put the rows of one shuffle into another, node to node: the client only says what goes where."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ShuffleDamaged, ShuffleUnavailable
from ringpop_py.flow.shuffle.client.cluster import Pauses
from ringpop_py.flow.shuffle.client.puts import Receipt
from ringpop_py.flow.shuffle.protocol import calls as c

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.shuffle.client.cluster import Cluster
    from ringpop_py.flow.shuffle.client.lines import Line
    from ringpop_py.flow.shuffle.protocol.record import Record

FEED_S: Final = 600.0
"""An interval that was not put after so many seconds is put by another attempt."""
FEEDS_MAX: Final = 4
"""The most intervals that a node is asked for at a time."""


class Feeding:
    """See the module: intervals of *name* become attempts of *target*."""

    def __init__(self, source: Cluster, into: Cluster, name: str, target: str) -> None:
        self._source = source
        self._into = into
        self._name = name
        self._target = target

    def run(self, refresh: Callable[[], Record], uid: int) -> list[Receipt]:
        """Return the receipts of all intervals, each an attempt of the shuffle *uid*.

        Args:
            refresh: reads the record of the source again.

        Raises:
            ShuffleDamaged: if an interval is lost.
            ShuffleUnavailable: if nodes have not done it in time, counted from the last progress.
        """
        record = refresh()
        left = list(range(record.interval_count))
        receipts: list[Receipt] = []
        why, pauses = "", self._pauses()
        while left and pauses:
            done, failed, why = self._round(record, left, uid)
            receipts += done
            if failed:
                pauses.wait()
                record = refresh()
            if done:
                pauses = self._pauses()
            left = failed
        if left:
            text = f"{len(left)} intervals of shuffle {self._name!r} were not put"
            raise ShuffleUnavailable(f"{text} into {self._target!r}: {why}")
        return receipts

    def _pauses(self) -> Pauses:
        return Pauses(time.monotonic() + self._source.timeout_s)

    def _round(
        self, record: Record, intervals: list[int], uid: int
    ) -> tuple[list[Receipt], list[int], str]:
        """Have all owners put at the same time; return receipts, what failed, and why."""
        said = self._into.ask(c.TakeAttempts(self._target, uid, len(intervals)))
        first = said.number if isinstance(said, c.Said) else 0
        waiting: dict[str, list[c.Feed]] = {}
        failed, why = [], ""
        for attempt, number in enumerate(intervals, first):
            holders = record.intervals[number].holders
            if not holders:
                raise ShuffleDamaged(f"interval {number} of shuffle {self._name!r} is lost")
            address = self._source.addresses.get(holders[0].host)
            if address is None:
                failed.append(number)
                continue
            name, target = self._name, self._target
            feed = c.Feed(name, record.uid, record.version, number, target, uid, attempt)
            waiting.setdefault(address, []).append(feed)
        done: list[Receipt] = []
        while any(waiting.values()):
            begun: list[tuple[str, c.Feed, tuple[Line, int] | None]] = []
            for address, feeds in waiting.items():
                begun += [(address, feed, self._begin(address, feed)) for feed in feeds[:FEEDS_MAX]]
                del feeds[:FEEDS_MAX]
            for address, feed, call in begun:
                fed, text = self._ended(address, call)
                if fed is None:
                    failed.append(feed.interval)
                    why = text
                else:
                    done.append(Receipt(feed.attempt, fed.frames, fed.rows, feed.target_uid))
        return done, failed, why

    def _begin(self, address: str, feed: c.Feed) -> tuple[Line, int] | None:
        try:
            line = self._source.line(address)
            return line, line.send(feed, timeout_s=self._source.timeout_s)
        except ShuffleUnavailable:
            return None

    def _ended(self, address: str, begun: tuple[Line, int] | None) -> tuple[c.Fed | None, str]:
        if begun is None:
            return None, f"{address} cannot be reached"
        line, number = begun
        try:
            # Nothing is said until an interval is put, however large it is.
            reply, _ = line.receive(number, deadline=time.monotonic() + FEED_S, silent_s=FEED_S)
        except ShuffleUnavailable as error:
            return None, str(error)
        return (reply, "") if isinstance(reply, c.Fed) else (None, f"{address} answers {reply}")
