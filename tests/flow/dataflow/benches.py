"""Dataflows in virtual time: sources and sinks in memory, which refuse, delay, and fail half-way.

The store is that of `tests.state.keyspaces.clusters`: `MemoryStore.inject` has it fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ringpop_py.base.errors import SinkFailed, SourceFailed
from ringpop_py.dataflow import start_dataflow
from ringpop_py.streams import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from ringpop_py.dataflow import Context, Dataflow, Row, Sent
    from ringpop_py.node.ringpop import Ringpop

T = TypeVar("T")

EVERY_S = 1.0
LONG_S = 600.0


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run stages, sources and sinks on the loop: virtual time would jump while threads run."""

    async def run_sync(
        function: Callable[..., T],
        *arguments: object,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T:
        del abandon_on_cancel
        async with limiter or trio.CapacityLimiter(1):
            return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)


class Rows:
    """A source in memory.

    Attributes:
        failing: the splits that cannot be read now, and "" while they cannot be listed.
    """

    def __init__(self, *splits: str) -> None:
        self.splits_now: dict[str, list[Record]] = {split: [] for split in splits}
        self.failing: set[str] = set()

    def add(self, split: str, *keys: str, value: Any = 1) -> None:  # noqa: ANN401
        """Add a record for each of *keys*."""
        rows = self.splits_now.setdefault(split, [])
        rows += [Record(at, key, value) for at, key in enumerate(keys, len(rows) + 1)]

    def splits(self) -> Sequence[str]:
        """See `Source`."""
        if "" in self.failing:
            raise SourceFailed("nobody answers")
        return list(self.splits_now)

    def read(self, split: str, after: int, limit: int) -> Sequence[Record]:
        """See `Source`."""
        if split in self.failing:
            raise SourceFailed(f"{split} cannot be read")
        return self.splits_now[split][after:][:limit]


class Results:
    """A sink that says no while it is told to, before or after it has taken what it is given.

    Attributes:
        refusing: whether it refuses everything.
        is_half: whether it has taken what it refuses: its answer is lost.
        asked: the ids of all that was brought, also again.
        taken: what has arrived, by its id, in that order.
    """

    def __init__(self, *, refusing: bool = False) -> None:
        self.refusing = refusing
        self.is_half = False
        self.asked: list[str] = []
        self.taken: dict[str, Sequence[tuple[str, Any]]] = {}

    def __call__(self, sent: Sent) -> None:
        """Take *sent*."""
        self.asked.append(sent.id)
        if not self.refusing or self.is_half:
            assert self.taken.setdefault(sent.id, sent.rows) == sent.rows
        if self.refusing:
            raise SinkFailed("not now")

    @property
    def rows(self) -> list[tuple[str, Any]]:
        """All rows that have arrived, each once."""
        return [row for rows in self.taken.values() for row in rows]


def passed_on(state: int | None, rows: Sequence[Row], context: Context) -> int:
    """Count the records of a key, and send each on with its number."""
    for number in range(len(rows)):
        context.emit(context.key, (state or 0) + number + 1)
    return (state or 0) + len(rows)


def a_flow(node: Ringpop, source: Rows, sink: Any = None, **options: Any) -> Dataflow:  # noqa: ANN401
    """Start the dataflow "flow" at *node*."""
    options = {"every_s": EVERY_S, "stage": passed_on, **options}
    return start_dataflow(node, source, name="flow", sink=sink, **options)


async def until(condition: Callable[[], object]) -> None:
    """Return once *condition* is true; all that waits meanwhile takes no time."""
    with trio.fail_after(LONG_S):
        while not condition():
            await trio.sleep(0.05)
