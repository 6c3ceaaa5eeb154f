"""The log of `ringpopd` on standard error: text for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.logs import NAME, LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
COLOURS: Final = {"debug": 2, "info": 32, "warning": 33, "error": 31}  # dim, green, yellow, red


class Logs:
    """The log of this process; its level may change while the process runs."""

    def __init__(self, form: str, level: str) -> None:
        self._usual = LEVELS[level]
        self._logger = logging.getLogger(NAME)
        self._logger.setLevel(self._usual)
        self._logger.propagate = False  # a handler of the root would print each event again
        self._logger.handlers = [_Stderr(_JsonFormatter() if form == "json" else _TextFormatter())]

    def debug(self, on: bool) -> None:  # noqa: FBT001 - a callback has one argument
        """Log everything, or return to the level of the start."""
        self._logger.setLevel(LEVELS["debug"] if on else self._usual)


class _Stderr(logging.Handler):
    """Writes to standard error. Lines that cannot be written are counted.

    Their number is logged before the next line that can be written, for example after a disk was
    full.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lost_count = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._lost_count:
                event = LogEvent("log-lines-lost", {"count": self._lost_count})
                self._write(logging.LogRecord(NAME, logging.WARNING, "", 0, event, (), None))
                self._lost_count = 0
            self._write(record)
        except (OSError, ValueError):  # ValueError: standard error is closed
            self._lost_count += 1

    def _write(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")
        sys.stderr.flush()


class _JsonFormatter(logging.Formatter):
    """One object a line: the event's fields, then ``event``, ``level`` and ``timestamp``."""

    def format(self, record: logging.LogRecord) -> str:
        event = _event_of(record)
        row: dict[str, Any] = {**event.fields, "event": event.name}
        row |= {"level": record.levelname.lower(), "timestamp": _timestamp(record)}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)  # a field of any type must not lose the line


class _TextFormatter(logging.Formatter):
    """One line an event, with colours on a terminal unless ``NO_COLOR`` is set."""

    def __init__(self) -> None:
        super().__init__()
        coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        self._paint: Callable[[str], str] = _painted if coloured else str

    def format(self, record: logging.LogRecord) -> str:
        level = self._paint(record.levelname.lower())
        padding = " " * (9 - len(record.levelname))  # so that all events begin in one column
        text = f"{_timestamp(record)} [{level}{padding}] {_event_of(record)}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _painted(level: str) -> str:
    return f"\x1b[{COLOURS.get(level, 0)}m{level}\x1b[0m"


def _event_of(record: logging.LogRecord) -> LogEvent:
    return record.msg if isinstance(record.msg, LogEvent) else LogEvent(record.getMessage(), {})


def _timestamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"
