"""Ways to do one thing, timed in turns: what else the machine does slows all of them alike."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do it.

    Attributes:
        rows: that *run* does.
        check: called after each run, and not timed; raises if it did not do what it should.
        warm: False for what takes long, and does not get faster by doing it once before.
    """

    run: Callable[[], object]
    rows: int
    check: Callable[[], object] = _nothing
    warm: bool = True


def rates(ways: Mapping[str, Way], turns: int) -> dict[str, float]:
    """Rows a second of each way: the median of *turns* turns, after one that does not count.

    Every run is checked, that of the first turn as well, so no rate is that of a wrong result.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            if turn == 0 and not way.warm:
                continue
            started = time.perf_counter()
            way.run()
            taken[name].append(time.perf_counter() - started)
            way.check()
            tell(f"  {name} {taken[name][-1]:.2f} s" + ("" if turn else " (not counted)"))
    return {
        name: way.rows / median(taken[name][1:] if way.warm else taken[name])
        for name, way in ways.items()
    }


def tell(text: str) -> None:
    """Say on standard error what goes on."""
    print(text, file=sys.stderr, flush=True)
