"""How many partitions move when a member comes, and how evenly they are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.state.placement.strategies import STRATEGIES, assign
from tests.bench.report import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS: Final = 256
SIZES: Final = (3, 10, 30)


def placement(_folder: Path) -> Iterator[Row]:
    """Of each strategy; the ideal share that moves is that of the new member."""
    for strategy in STRATEGIES:
        for size in SIZES:
            names = [f"node-{index}" for index in range(size + 1)]
            before = assign(strategy, PARTITIONS, names[:-1])
            after = assign(strategy, PARTITIONS, names, current=before)
            moved = sum(one != other for one, other in zip(before, after, strict=True))
            counts = [before.count(name) for name in names[:-1]]
            title = f"state.placement.{strategy}.{size}"
            ideal = 1 / (size + 1)
            share = moved / PARTITIONS
            if strategy != "round_robin":  # which is for the first time; then it is as `average`
                yield Row(f"{title}.moved", share, "share", "ideal", ideal, ideal / share)
            busiest = max(counts) * size / PARTITIONS
            yield Row(f"{title}.busiest_over_mean", busiest, "times", "ideal", 1.0, 1 / busiest)
