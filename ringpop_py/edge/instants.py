"""Instants as people write them: for the query of a request, and for a command line."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from math import inf
from typing import Final

from ringpop_py.base.rules import Rule, is_number


def _instant(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    at = datetime.fromisoformat(text)
    return at.timestamp() if at.tzinfo is not None else -1.0


INSTANT: Final = Rule(
    "seconds since 1970, or a time with its zone such as 2030-01-31T09:00:00Z",
    lambda v: is_number(v) and 0 < v < inf,
    _instant,
)
