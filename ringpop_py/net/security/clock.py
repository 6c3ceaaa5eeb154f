"""The clock by which certificates are valid, which is not that of tasks: it may be set."""

from __future__ import annotations

import time
from typing import Final

EXPIRED: Final = "its certificate has expired: compare the clocks, or give it another certificate"
LOOK_S: Final = 5.0
"""The seconds between two looks whether the certificate of a peer still counts."""
EARLIER_S: Final = 24 * 3600
"""A certificate is valid from so many seconds before its issue: clocks differ."""
EARLY_S: Final = 60.0
"""A connection on which nothing happens ends so many seconds before its certificate."""


def wall_s() -> float:
    """Return the time of the wall clock, in seconds since 1970."""
    return time.time()


def has_expired(ends_at: float, *, busy: bool) -> bool:
    """Return whether a connection ends for a certificate that *ends_at*: best in a pause."""
    return wall_s() >= ends_at - (0 if busy else EARLY_S)
