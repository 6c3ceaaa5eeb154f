"""What a benchmark says: rows, measured side by side with a named peer, and how they print."""

from __future__ import annotations

import gc
import json
from dataclasses import asdict, dataclass, fields
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROUNDS_COUNT: Final = 15
NOT_INSTALLED: Final = "not installed"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        name: what was measured, `benchmark.subject.size`.
        peer: what it is compared with; says so if that is not installed.
        ratio: how many times better than the peer; above 1 is in our favour. None if there is
            none to be said: nothing was to be counted on our side.
        target: the least ratio that we promise, if any.
        ok: whether the target is met; None if there is no target or no peer.
    """

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    target: float | None = None
    ok: bool | None = None


def smaller_is_better(
    name: str, value: float, unit: str, peer: str, peer_value: float, target: float | None = None
) -> Row:
    """A row of durations, where the ratio is the peer's over ours."""
    ratio = peer_value / value if value else None
    return _compared(name, value, unit, peer, peer_value, ratio, target)


def larger_is_better(
    name: str, value: float, unit: str, peer: str, peer_value: float, target: float | None = None
) -> Row:
    """A row of rates, where the ratio is ours over the peer's."""
    return _compared(name, value, unit, peer, peer_value, value / peer_value, target)


def against_goal(name: str, value: float, unit: str, goal: float | None) -> Row:
    """A row of what is to be small, compared with what we promise instead of with a peer."""
    if goal is None:
        return Row(name, value, unit)
    ratio = goal / value if value else None
    return Row(name, value, unit, "goal", goal, ratio, 1.0, value <= goal)


def without_peer(name: str, value: float, unit: str, peer: str, target: float | None = None) -> Row:
    """A row whose peer is missing from this environment."""
    return Row(name, value, unit, peer=f"{peer}: {NOT_INSTALLED}", target=target)


def _compared(
    name: str,
    value: float,
    unit: str,
    peer: str,
    peer_value: float,
    ratio: float | None,
    target: float | None,
) -> Row:
    ok = None if target is None else ratio is None or ratio >= target
    return Row(name, value, unit, peer, peer_value, ratio, target, ok)


def seconds_each(*runs: Callable[[], object], rounds_count: int = ROUNDS_COUNT) -> list[float]:
    """The median duration of each of *runs*, taken in turns after one round to warm up.

    In turns, because the machine is shared: what slows one round slows all that are compared.
    """
    gc.collect()
    for run in runs:
        run()
    durations: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds_count):
        for run, taken in zip(runs, durations, strict=True):
            started = perf_counter()
            run()
            taken.append(perf_counter() - started)
    return [median(taken) for taken in durations]


def print_json(rows: Iterable[Row], at: str) -> None:
    """Print one object a line, each as soon as it is measured; *at* names the measured commit."""
    for row in rows:
        print(json.dumps(asdict(row) | {"at": at}), flush=True)


def print_table(rows: Iterable[Row], at: str) -> None:
    """Print columns, as wide as they need to be; *at* names the measured commit."""
    names = [field.name for field in fields(Row)]
    lines = [[*names, "at"]]
    lines += [[*(_cell(getattr(row, name)) for name in names), at] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "NO"
        case float():
            return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
        case _:
            return str(value)
