"""S14 and X: nothing that arrives ends a node, and nothing else does."""

from __future__ import annotations

import traceback
from typing import Final

from ringpop_sim.checks import Broken

CRASH: Final = "X"
"""Stands for an invariant that needs no oracle: no node raises, whatever happens to it."""
CODING: Final = "S14"
PLACES_MAX: Final = 3


def crash(error: Exception, at_us: int) -> Broken:
    """What *error*, which ended a run, breaks.

    S14, if it was raised while bytes were read or written: a codec may raise `BodyError` alone,
    and that the world takes for an error frame. Else X: a node, an operation or an oracle raised.
    """
    frames = traceback.extract_tb(error.__traceback__)
    coding = any("/ringpop_py/wire/" in frame.filename for frame in frames)
    # Without where it is installed, so that it reads the same everywhere.
    places = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in frames[-PLACES_MAX:]
    ]
    detail = f"{type(error).__name__}: {error} (in {', '.join(places)})"
    return Broken(CODING if coding else CRASH, at_us, detail)
