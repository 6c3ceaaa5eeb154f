"""Virtual time: whole microseconds."""

from __future__ import annotations

from typing import Final

us: Final = 1
ms: Final = 1_000
s: Final = 1_000_000
minutes: Final = 60 * s
hours: Final = 60 * minutes


def seconds(instant_us: int) -> float:
    """*instant_us* as a person reads it."""
    return instant_us / s
