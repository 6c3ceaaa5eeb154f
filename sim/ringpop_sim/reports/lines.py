"""Reading a trace: a file that may be damaged, cut short, or not a trace at all."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_sim.errors import PlanError, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

Line = dict[str, Any]

LINES_MAX: Final = 2_000_000


def read_lines(path: str | Path, take: Callable[[Line], None]) -> bool:
    """Have *take* see each line of the trace at *path*; return whether these were all.

    Raises:
        TraceError: the file is not a trace; the message names the line.
    """
    number = 0
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(file, 1):
                if number > LINES_MAX:
                    break
                take(_line_of(text))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    except KeyError as error:
        raise TraceError(f"{path}: line {number}: {error} is missing") from None
    except (ValueError, TypeError, IndexError, AttributeError, PlanError) as error:
        raise TraceError(f"{path}: line {max(1, number)}: {error}") from None
    if not number:
        raise TraceError(f"{path}: line 1: it is empty; a trace begins with its plan")
    return number <= LINES_MAX


def _line_of(text: str) -> Line:
    try:
        line = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise TypeError("this is not a JSON object")
    line["time"] = float(line["time"])
    if not isfinite(line["time"]):
        raise ValueError("its time is not an instant")
    return line


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and the like are not JSON
