"""``/admin/log``: the last lines of the log of this process, for admins. Secrets are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ringpop_py.base.logs import LogEvent, log
from ringpop_py.base.texts import redacted
from ringpop_py.base.values.declared import Named, Natural, convert

if TYPE_CHECKING:
    from ringpop_py.base.logs import Kept
    from ringpop_py.node.ringpop import Ringpop

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
NAMES: Final = {number: name for name, number in LEVELS.items()}
PAGE_MAX: Final = 200
"""The most lines of one answer."""
SHOWN: Final = 100
"""The lines of an answer to a caller that names no line after which they begin."""
TEXT_CHARACTERS_MAX: Final = 2_000


class _Wanted(Named, frozen=True):
    """What ``/admin/log`` is asked for.

    Attributes:
        after: the number of the line before the first; None asks for the last `SHOWN`.
        level: of which level lines are at least. Debug lines are kept only while they are asked
            for.
    """

    after: Natural | None = None
    level: Literal["debug", "info", "warning", "error"] = "info"


def recent(ringpop: Ringpop, value: object) -> object:
    """Return the lines, the number up to which they reach, and how many before were forgotten."""
    wanted = convert(_Wanted, {} if value is None else value, "request")
    if wanted.level == "debug":
        log.watch()
    kept, after = list(log.kept), wanted.after
    last = kept[-1][0] if kept else 0
    rows = [row for row in kept if row[2] >= LEVELS[wanted.level] and row[0] > (after or 0)]
    if after is None:
        rows = rows[-SHOWN:]
    elif len(rows) > PAGE_MAX:
        rows = rows[:PAGE_MAX]
        last = rows[-1][0]
    forgotten = max(0, kept[0][0] - 1 - after) if kept and after is not None else 0
    return {
        "source": ringpop.name,
        "last": last,
        "forgotten": forgotten,
        "lines": [_line(row) for row in rows],
    }


def _line(row: Kept) -> dict[str, Any]:
    number, at, level, event, fields, raised = row
    text = redacted(str(LogEvent(event, fields)))[:TEXT_CHARACTERS_MAX]
    line = {"number": number, "at": at, "level": NAMES[level], "event": event, "text": text}
    return {**line, "traceback": redacted(raised)} if raised else line
