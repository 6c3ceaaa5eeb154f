"""Histories of reads and appends, without the open outcomes that make a check of them long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringpop_sim.linear import ANY

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ringpop_sim.linear import Invocation


def made_certain(history: Iterable[Invocation], end: float) -> list[Invocation]:
    """Return *history*, recorded until *end*, without open outcomes that its results decide.

    It has reads and appends, and no two appends of a key have the same argument. The returned
    history is linearizable if and only if *history* is:

    - An append with an open outcome that no result shows is left out: it may have no effect, and if
      it had one, it came after everything that was seen.
    - An append that a result shows took effect, and its own result was the items up to its item.
    """
    by_key: dict[str, list[Invocation]] = {}
    for one in history:
        by_key.setdefault(one.key, []).append(one)
    return [each for some in by_key.values() for each in _certain(some, end)]


def _certain(operations: list[Invocation], end: float) -> Iterable[Invocation]:
    longest: tuple[Hashable, ...] = ()
    shown: set[Hashable] = set()
    for one in operations:
        if isinstance(one.result, tuple) and not one.is_open:
            shown.update(one.result)
            longest = max(longest, one.result, key=len)
    upto = {item: longest[: at + 1] for at, item in enumerate(longest)}
    for one in operations:
        is_append = one.name == "append"
        if is_append and one.is_open and one.argument not in shown:
            continue
        if is_append and one.argument in upto and (one.is_open or one.result is ANY):
            till = end if one.returned_at is None else one.returned_at
            yield replace(one, result=upto[one.argument], returned_at=till)
        else:
            yield one
