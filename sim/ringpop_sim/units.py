"""Virtual time: whole microseconds."""

from __future__ import annotations

from typing import Final

us: Final = 1
ms: Final = 1_000
s: Final = 1_000_000
minutes: Final = 60 * s
hours: Final = 60 * minutes


def seconds(instant_us: int) -> float:
    """Return *instant_us* in seconds."""
    return instant_us / s
